//! Reads, writes and appends that have arrived together: the device gets them as one batch.
//!
//! A batch is what is there when nothing more can be read without waiting. So the depth at which a host
//! uses its queue is the depth at which the device works, and a host that sends one command at a time
//! waits for no other.

use std::ops::Range;

use zonal::nvme::SubmissionEntry;

use super::pdu::{self, flag};
use super::session::Session;
use super::transfers::Received;
use crate::wire::fabrics::FlowControl;
use crate::{Outcome, Payload, command};

/// Most commands of a batch.
const BATCH_MAX: usize = 64;

/// Most bytes of in-capsule data of a batch, beside that of its last command.
pub(super) const IN_CAPSULE_BYTES: usize = 128 * 1024;

/// The data of a command.
pub(super) enum Data {
    /// It came in the capsule.
    InCapsule(Vec<u8>),
    /// It was requested.
    Received(Received),
    /// It goes to the host: its PDU in the output, and the data in that.
    ToHost {
        /// Of the PDU.
        pdu: Range<usize>,
        /// Of the data.
        data: Range<usize>,
    },
}

/// Commands that wait for their batch. They are for one namespace.
#[derive(Default)]
pub(super) struct Pending {
    commands: Vec<(SubmissionEntry, Data)>,
    in_capsule_bytes: usize,
}

impl Pending {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether a command has this identifier.
    pub(super) fn contains(&self, id: u16) -> bool {
        self.commands.iter().any(|(entry, _)| entry.id.get() == id)
    }

    /// Whether a command can join.
    fn has_room_for(&self, entry: &SubmissionEntry) -> bool {
        let same = |(first, _): &(SubmissionEntry, Data)| first.nsid() == entry.nsid();
        self.commands.len() < BATCH_MAX
            && self.in_capsule_bytes < IN_CAPSULE_BYTES
            && self.commands.first().is_none_or(same)
    }
}

impl Session<'_> {
    /// Adds a command to the batch.
    pub(super) fn join(&mut self, entry: SubmissionEntry, data: Data) {
        if let Data::InCapsule(data) = &data {
            self.pending.in_capsule_bytes += data.len();
        }
        self.pending.commands.push((entry, data));
    }

    /// Executes the batch first if a command cannot join it.
    pub(super) fn make_room_for(&mut self, entry: &SubmissionEntry) {
        if !self.pending.has_room_for(entry) {
            self.execute_pending();
        }
    }

    /// Executes the commands that wait, and answers them.
    pub(super) fn execute_pending(&mut self) {
        let Pending { commands, .. } = std::mem::take(&mut self.pending);
        let Some(queue) = self.queue.as_ref().filter(|_| !commands.is_empty()) else { return };
        let (mut rest, mut at) = (self.output.as_mut_slice(), 0);
        let mut batch = Vec::with_capacity(commands.len());
        for (entry, data) in &commands {
            let payload = match data {
                Data::InCapsule(data) => Payload::FromHost(data),
                Data::Received(received) => Payload::FromHost(received.buffer.data()),
                Data::ToHost { data, .. } => {
                    let (_, tail) = std::mem::take(&mut rest).split_at_mut(data.start - at);
                    let (room, tail) = tail.split_at_mut(data.len());
                    (rest, at) = (tail, data.end);
                    Payload::ToHost(room)
                }
            };
            batch.push((*entry, payload));
        }
        let executed = command::execute_batch(&queue.controller, batch);
        let no_response = queue.flow_control == FlowControl::Off;
        // From the last to the first: what is taken out moves none that is still to be completed.
        for ((_, data), executed) in commands.iter().zip(&executed).rev() {
            let Data::ToHost { pdu, data } = data else { continue };
            match executed {
                Ok(_) => {
                    let flags = if no_response { flag::SUCCESS } else { 0 };
                    pdu::end_data(&mut self.output, pdu.start, data, flags, self.params);
                }
                Err(_) => drop(self.output.drain(pdu.clone())),
            }
        }
        for ((entry, data), executed) in commands.into_iter().zip(executed) {
            // Without SQ flow control, a success without a result needs no CapsuleResp.
            let told = no_response && matches!(data, Data::ToHost { .. });
            if !(told && executed == Ok(Outcome::Done(0))) {
                self.answer(&entry, executed);
            }
            if let Data::Received(received) = data {
                self.transfers.release(received);
            }
        }
        self.request_data();
    }
}
