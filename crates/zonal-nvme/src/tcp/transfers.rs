//! The commands of a connection whose data comes from the host by R2T and H2CData.
//!
//! Data is requested in the order of the commands, and of each command as a whole, with one R2T.
//! How much is requested at once is bounded, see [`Transfers::request`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use zonal::budget::{Budget, Buffer, Reservation};
use zonal::nvme::SubmissionEntry;

use super::pdu::{DataPdu, Fatal, FatalStatus, Frame, flag};
use crate::command::TRANSFER_MAX;

/// Bytes of buffers that each queue has reserved: enough for any one command.
pub(super) const OWN_BYTES: usize = TRANSFER_MAX;
/// Most bytes of buffers of a connection.
const REQUESTED_MAX: usize = 2 * TRANSFER_MAX;

/// A command that waits for its data.
struct Transfer {
    entry: SubmissionEntry,
    bytes: usize,
    /// Once the data was requested.
    requested: Option<Requested>,
}

/// Data that was requested.
struct Requested {
    buffer: Buffer,
    /// Memory beyond [`OWN_BYTES`].
    extra: Option<Reservation>,
    received: usize,
    damaged: bool,
}

/// A command whose data is complete. Its memory counts until it is [released](Transfers::release).
pub(super) struct Received {
    pub(super) entry: SubmissionEntry,
    pub(super) buffer: Buffer,
    /// A data digest was wrong.
    pub(super) damaged: bool,
    /// Memory beyond [`OWN_BYTES`].
    extra: Option<Reservation>,
}

/// Commands that wait for their data.
pub(super) struct Transfers {
    memory: Arc<Budget>,
    /// By command identifier, which is also the transfer tag (TTAG).
    commands: BTreeMap<u16, Transfer>,
    /// Identifiers of the commands whose data was not requested yet.
    waiting: VecDeque<u16>,
    /// Bytes of buffers within [`OWN_BYTES`], and of all.
    own: usize,
    requested: usize,
}

impl Transfers {
    pub(super) fn new(memory: Arc<Budget>) -> Self {
        let (commands, waiting) = (BTreeMap::new(), VecDeque::new());
        Self { memory, commands, waiting, own: 0, requested: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether requested data is still to come.
    pub(super) fn expects_data(&self) -> bool {
        self.commands.len() > self.waiting.len()
    }

    /// Whether a command of this identifier waits for its data.
    pub(super) fn contains(&self, id: u16) -> bool {
        self.commands.contains_key(&id)
    }

    /// Adds a command that needs `bytes` of data.
    pub(super) fn add(&mut self, entry: SubmissionEntry, bytes: usize) {
        let id = entry.id.get();
        self.commands.insert(id, Transfer { entry, bytes, requested: None });
        self.waiting.push_back(id);
    }

    /// Requests the data of the next command: returns the header of the R2T. `None` while there is
    /// no command left, or no memory: then some data is on its way, and the caller asks again when
    /// it has arrived.
    pub(super) fn request(&mut self) -> Option<DataPdu> {
        let id = *self.waiting.front()?;
        let transfer = self.commands.get_mut(&id)?;
        let size = Buffer::size(transfer.bytes);
        let extra = if self.own + size <= OWN_BYTES {
            self.own += size;
            None
        } else if self.requested + size <= REQUESTED_MAX {
            Some(self.memory.reserve(size)?)
        } else {
            return None;
        };
        self.waiting.pop_front();
        self.requested += size;
        let buffer = self.memory.buffer(transfer.bytes);
        transfer.requested = Some(Requested { buffer, extra, received: 0, damaged: false });
        Some(DataPdu::new(id, id, &(0..transfer.bytes)))
    }

    /// Where in the command's data the data of an H2CData PDU belongs.
    pub(super) fn check(&self, header: &DataPdu, frame: &Frame) -> Result<Range<usize>, Fatal> {
        let transfer = self.commands.get(&header.tag.get());
        let requested = transfer.and_then(|transfer| transfer.requested.as_ref());
        let requested = requested.ok_or(Fatal::header(10))?;
        let (offset, bytes) = (header.offset.get() as usize, header.length.get() as usize);
        let (end, all) = (offset.saturating_add(bytes), requested.buffer.data().len());
        if header.command != header.tag {
            Err(Fatal::header(8))
        } else if bytes != frame.data_bytes || bytes == 0 {
            Err(Fatal::header(16))
        } else if offset != requested.received || end > all {
            Err(Fatal::of(FatalStatus::OutOfRange))
        } else if (frame.flags & flag::LAST != 0) != (end == all) {
            Err(Fatal::header(1))
        } else {
            Ok(offset..end)
        }
    }

    /// The place for a part of the data of command `id`, which [`check`](Self::check) has returned.
    pub(super) fn part(&mut self, id: u16, range: Range<usize>) -> &mut [u8] {
        &mut self.requested_mut(id).buffer.data_mut()[range]
    }

    /// Notes that a data digest of command `id` was wrong.
    pub(super) fn damaged(&mut self, id: u16) {
        self.requested_mut(id).damaged = true;
    }

    /// Notes that the data of command `id` was received up to `end`; returns the command when that
    /// was all.
    pub(super) fn received(&mut self, id: u16, end: usize) -> Option<Received> {
        let requested = self.requested_mut(id);
        requested.received = end;
        if end < requested.buffer.data().len() {
            return None;
        }
        let Transfer { entry, requested, .. } = self.commands.remove(&id)?;
        let Requested { buffer, extra, damaged, .. } = requested?;
        Some(Received { entry, buffer, damaged, extra })
    }

    /// Gives back the memory of a command that is done.
    pub(super) fn release(&mut self, received: Received) {
        let Received { buffer, extra, .. } = received;
        let size = Buffer::size(buffer.data().len());
        self.requested -= size;
        if extra.is_none() {
            self.own -= size;
        }
    }

    fn requested_mut(&mut self, id: u16) -> &mut Requested {
        let transfer = self.commands.get_mut(&id);
        let requested = transfer.and_then(|transfer| transfer.requested.as_mut());
        requested.expect("its PDU was checked")
    }
}
