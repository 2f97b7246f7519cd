//! Reads, writes and appends that have arrived together: the device gets them as one batch.
//!
//! A batch is everything that has arrived when another read would have to wait. So the depth at
//! which a host uses its queue is the depth at which the device works, and a host that sends one
//! command at a time waits for no other.

use std::ops::Range;

use zonal::budget::Buffer;
use zonal::nvme::SubmissionEntry;

use super::pdu::flag;
use super::session::Session;
use super::transfers::Received;
use crate::command::{Executed, Outcome, Payload};
use crate::queue;
use crate::wire::fabrics::FlowControl;

/// Most commands of a batch.
const BATCH_MAX: usize = 64;

/// Most bytes of in-capsule data of a batch, without that of its last command.
pub(super) const IN_CAPSULE_BYTES: usize = 128 * 1024;

/// The data of a command.
pub(super) enum Data {
    /// It came in the capsule: a part of that.
    InCapsule(Buffer, Range<usize>),
    /// It was requested.
    Received(Received),
    /// It goes to the host.
    ToHost(Buffer),
}

impl Data {
    /// Bytes of buffers that count as in-capsule data, and as output.
    fn sizes(&self) -> (usize, usize) {
        match self {
            Self::InCapsule(buffer, _) => (Buffer::size(buffer.data().len()), 0),
            Self::Received(_) => (0, 0),
            Self::ToHost(buffer) => (0, Buffer::size(buffer.data().len())),
        }
    }
}

/// Commands that wait for their batch. They are for one namespace.
#[derive(Default)]
pub(super) struct Pending {
    commands: Vec<(SubmissionEntry, Data)>,
    in_capsule_bytes: usize,
    to_host_bytes: usize,
}

impl Pending {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Bytes of buffers that will be output.
    pub(super) fn to_host_bytes(&self) -> usize {
        self.to_host_bytes
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
        let (in_capsule, to_host) = data.sizes();
        self.pending.in_capsule_bytes += in_capsule;
        self.pending.to_host_bytes += to_host;
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
        let Pending { mut commands, .. } = std::mem::take(&mut self.pending);
        let Some(queue) = self.queue.as_ref().filter(|_| !commands.is_empty()) else { return };
        let payload = |data| match data {
            &mut Data::InCapsule(ref buffer, ref range) => {
                Payload::FromHost(&buffer.data()[range.clone()])
            }
            &mut Data::Received(ref received) => Payload::FromHost(received.buffer.data()),
            Data::ToHost(buffer) => Payload::ToHost(buffer.data_mut()),
        };
        let batch = commands.iter_mut().map(|(entry, data)| (*entry, payload(data))).collect();
        let executed = queue::execute_batch(&queue.controller, batch);
        for ((entry, data), executed) in commands.into_iter().zip(executed) {
            match data {
                Data::ToHost(buffer) => self.answer_with(&entry, executed, buffer),
                Data::InCapsule(..) => self.answer(&entry, executed),
                Data::Received(received) => {
                    self.answer(&entry, executed);
                    self.transfers.release(received);
                }
            }
        }
        self.request_data();
    }

    /// Answers a command whose data goes to the host.
    pub(super) fn answer_with(
        &mut self,
        entry: &SubmissionEntry,
        executed: Executed,
        data: Buffer,
    ) {
        // Without SQ flow control, a success without a result needs no CapsuleResp.
        let no_response =
            self.queue.as_ref().is_some_and(|queue| queue.flow_control == FlowControl::Off);
        let is_short = no_response && executed == Ok(Outcome::Done(0));
        if executed.is_ok() {
            let flags = if is_short { flag::SUCCESS } else { 0 };
            self.output.add_data(entry.id.get(), flags, data, self.params);
        }
        if !is_short {
            self.answer(entry, executed);
        }
    }
}
