//! Checks requests, and performs them on a disk.

use std::ops::Range;

use zonal::disk::{Content, DiskExtent, Durability, ZeroedSpace};
use zonal::{Disk, DiskError, DiskShape, Lba, LbaCount};

use crate::wire::{Command, Extent, NbdError, Request, command_flag, state};

/// Most bytes of data of a request: the size that all clients may count on.
pub(super) const PAYLOAD_MAX: u32 = 32 << 20;
/// Reads of fewer bytes are not searched for zeroes.
const SPARSE_READ_MIN: u32 = 64 * 1024;
/// Fewer zeroes in a read are sent as data.
const HOLE_MIN: u64 = 4096;
/// Most extents of an answer.
const EXTENTS_MAX: usize = 4096;

/// How requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replies {
    Simple,
    Structured,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: NbdError,
    /// For people.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(error: NbdError, message: &str) -> Self {
        Self { error, message: message.to_owned() }
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Self {
        Self { error: NbdError::from(&error), message: error.to_string() }
    }
}

/// A part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Bytes of the read, from its start on.
    pub(super) range: Range<usize>,
    pub(super) kind: PartKind,
}

/// The kind of a part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// In the buffer.
    Data,
    /// Zeroes, of which the buffer has none.
    Zeroes,
}

/// A request that a disk can perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) command: Command,
    pub(super) request: Request,
    pub(super) lba: Lba,
    pub(super) blocks: LbaCount,
}

impl Checked {
    /// Bytes of data that it transfers.
    pub(super) fn payload(&self) -> usize {
        match self.command {
            Command::Read | Command::Write => self.request.length as usize,
            Command::Disconnect
            | Command::Flush
            | Command::Trim
            | Command::WriteZeroes
            | Command::BlockStatus => 0,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        if self.request.has(command_flag::FUA) { Durability::AtOnce } else { Durability::Later }
    }
}

/// Checks a request against the rules of the protocol and the size of a disk.
pub(super) fn check(
    request: Request,
    shape: &DiskShape,
    replies: Replies,
) -> Result<Checked, Failure> {
    let Ok(command) = request.command else {
        return Err(Failure::new(NbdError::Invalid, "this server does not know the command"));
    };
    let allowed = command_flag::FUA | command.flags();
    if request.flags & !allowed != 0
        || (request.has(command_flag::DF) && replies == Replies::Simple)
    {
        return Err(Failure::new(NbdError::Invalid, "a flag that the command does not have"));
    }
    if command == Command::Flush {
        if request.offset != 0 || request.length != 0 {
            return Err(Failure::new(NbdError::Invalid, "a flush has neither offset nor length"));
        }
        return Ok(Checked { command, request, lba: Lba::ZERO, blocks: LbaCount::ZERO });
    }
    let writes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
    if writes && shape.is_read_only {
        return Err(Failure::new(NbdError::Permission, "the export is read-only"));
    }
    let (length, block_size) = (u64::from(request.length), shape.block_size.bytes());
    if !request.offset.is_multiple_of(block_size) || !length.is_multiple_of(block_size) {
        let message = format!("offset and length have to be multiples of {block_size}");
        return Err(Failure { error: NbdError::Invalid, message });
    }
    let lba = Lba::new(request.offset >> shape.block_size.shift());
    let blocks = LbaCount::new(length >> shape.block_size.shift());
    if let Err(behind) = shape.range(lba, blocks) {
        let has_data = matches!(command, Command::Write | Command::WriteZeroes);
        let error = if has_data { NbdError::NoSpace } else { NbdError::Invalid };
        return Err(Failure { error, message: behind.to_string() });
    }
    let checked = Checked { command, request, lba, blocks };
    if checked.payload() > PAYLOAD_MAX as usize {
        let is_long_read = command == Command::Read && replies == Replies::Structured;
        let error = if is_long_read { NbdError::Overflow } else { NbdError::Invalid };
        return Err(Failure::new(error, "a request has at most 32 MiB of data"));
    }
    Ok(checked)
}

/// Reads into `buffer`. Zeroes are left out where the client takes parts.
pub(super) fn read(
    disk: &dyn Disk,
    read: &Checked,
    replies: Replies,
    buffer: &mut [u8],
) -> Result<Vec<Part>, Failure> {
    let is_whole = replies == Replies::Simple
        || read.request.has(command_flag::DF)
        || read.request.length < SPARSE_READ_MIN;
    let parts = if is_whole {
        vec![Part { range: 0..buffer.len(), kind: PartKind::Data }]
    } else {
        parts(disk, read)?
    };
    let shift = disk.shape().block_size.shift();
    for part in parts.iter().filter(|part| part.kind == PartKind::Data) {
        let lba = read.lba + LbaCount::new((part.range.start >> shift) as u64);
        disk.read(lba, &mut buffer[part.range.clone()])?;
    }
    Ok(parts)
}

/// Where a read finds data, and where zeroes.
fn parts(disk: &dyn Disk, read: &Checked) -> Result<Vec<Part>, Failure> {
    let shift = disk.shape().block_size.shift();
    let mut parts: Vec<Part> = Vec::new();
    let mut end = 0;
    disk.extents(read.lba, read.blocks, &mut |extent| {
        let bytes = extent.blocks.get() << shift;
        let kind = match extent.content {
            Content::Zeroes { .. } if bytes >= HOLE_MIN => PartKind::Zeroes,
            Content::Zeroes { .. } | Content::Data => PartKind::Data,
        };
        let start = end;
        end += usize::try_from(bytes).expect("a part of a read");
        match parts.last_mut() {
            Some(last) if last.kind == kind => last.range.end = end,
            Some(_) | None => parts.push(Part { range: start..end, kind }),
        }
        true
    })?;
    assert_eq!(end, read.request.length as usize, "the extents of a range cover it");
    Ok(parts)
}

/// The extents of `BLOCK_STATUS`: the first ones, as many as an answer may have.
pub(super) fn status(disk: &dyn Disk, status: &Checked) -> Result<Vec<Extent>, Failure> {
    if status.blocks == LbaCount::ZERO {
        return Err(Failure::new(NbdError::Invalid, "extents of no range"));
    }
    let extents_max = if status.request.has(command_flag::REQ_ONE) { 1 } else { EXTENTS_MAX };
    let shift = disk.shape().block_size.shift();
    let mut extents: Vec<Extent> = Vec::new();
    disk.extents(status.lba, status.blocks, &mut |extent| {
        let flags = state_of(&extent);
        let length = u32::try_from(extent.blocks.get() << shift).expect("a part of the request");
        let has_room = extents.len() < extents_max;
        match extents.last_mut() {
            Some(last) if last.flags.get() == flags => last.length += length,
            Some(_) | None if has_room => {
                extents.push(Extent { length: length.into(), flags: flags.into() });
            }
            Some(_) | None => return false,
        }
        true
    })?;
    Ok(extents)
}

fn state_of(extent: &DiskExtent) -> u32 {
    match extent.content {
        Content::Data => 0,
        Content::Zeroes { takes_space: true } => state::ZERO,
        Content::Zeroes { takes_space: false } => state::ZERO | state::HOLE,
    }
}

/// Performs TRIM. With FUA it is durable when it returns.
pub(super) fn trim(disk: &dyn Disk, trim: &Checked) -> Result<(), Failure> {
    disk.discard(trim.lba, trim.blocks)?;
    if trim.durability() == Durability::AtOnce {
        disk.flush()?;
    }
    Ok(())
}

/// Performs `WRITE_ZEROES`. A disk gives space back without writing data. To keep the space it may
/// have to write zeroes, so this refuses a client that asks for both space and speed.
pub(super) fn write_zeroes(disk: &dyn Disk, zeroes: &Checked) -> Result<(), Failure> {
    let keeps = zeroes.request.has(command_flag::NO_HOLE);
    if keeps && zeroes.request.has(command_flag::FAST_ZERO) {
        let message = "zeroes that keep their space may be as slow as a write";
        return Err(Failure::new(NbdError::NotSupported, message));
    }
    let space = if keeps { ZeroedSpace::Keep } else { ZeroedSpace::Free };
    Ok(disk.write_zeroes(zeroes.lba, zeroes.blocks, space, zeroes.durability())?)
}
