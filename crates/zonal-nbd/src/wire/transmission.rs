//! Transmission: requests, and simple and structured replies.

use rustix::io::Errno;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal::DiskError;

use super::magic;

/// The flags of an export.
pub mod transmission_flag {
    /// The field is valid.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// It takes no writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Reads that are not fragmented.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers the writes of all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Zeroes that are fast, or refused at once.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod command_flag {
    /// Durable when answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes keep their space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// At most one chunk with content.
    pub const DF: u16 = 1 << 2;
    /// At most one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Only if it is faster than a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds and flags of chunks of a structured reply.
pub mod chunk {
    /// The last chunk of a reply.
    pub const DONE: u16 = 1 << 0;
    /// Nothing more.
    pub const NONE: u16 = 0;
    /// [`Offset`](super::Offset), and data.
    pub const OFFSET_DATA: u16 = 1;
    /// [`Hole`](super::Hole).
    pub const OFFSET_HOLE: u16 = 2;
    /// The number of a context, and [`Extent`](super::Extent)s.
    pub const BLOCK_STATUS: u16 = 5;
    /// [`ErrorChunk`](super::ErrorChunk), and a message.
    pub const ERROR: u16 = (1 << 15) | 1;
}

/// Flags of an extent in `base:allocation`.
pub mod state {
    /// A write to it may find no space.
    pub const HOLE: u32 = 1 << 0;
    /// It reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}

/// The header of a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RequestHeader {
    /// [`magic::REQUEST`].
    pub magic: U32,
    /// Of [`command_flag`].
    pub flags: U16,
    /// Number of the command.
    pub command: U16,
    /// The reply has the same one.
    pub cookie: U64,
    /// First byte of the export.
    pub offset: U64,
    /// Bytes of the export.
    pub length: U32,
}

/// Commands of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Data is read.
    Read,
    /// Data follows, and is written.
    Write,
    /// The connection ends.
    Disconnect,
    /// Writes become durable.
    Flush,
    /// Data is not needed any more.
    Trim,
    /// Zeroes are written.
    WriteZeroes,
    /// Extents are listed.
    BlockStatus,
}

impl Command {
    /// All commands of this server.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Disconnect,
        Self::Flush,
        Self::Trim,
        Self::WriteZeroes,
        Self::BlockStatus,
    ];

    /// Its number.
    pub const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
        }
    }

    /// The command of a number.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.number() == number)
    }

    /// The flags that it may have in addition to FUA, which is allowed everywhere.
    pub const fn flags(self) -> u16 {
        match self {
            Self::Read => command_flag::DF,
            Self::WriteZeroes => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            Self::BlockStatus => command_flag::REQ_ONE,
            Self::Write | Self::Disconnect | Self::Flush | Self::Trim => 0,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command, or the number of one that this server does not know.
    pub command: Result<Command, u16>,
    /// Of [`command_flag`].
    pub flags: u16,
    /// The reply has the same one.
    pub cookie: u64,
    /// First byte of the export.
    pub offset: u64,
    /// Bytes of the export.
    pub length: u32,
}

impl Request {
    /// Parses the bytes of a request; `None` if it is none.
    pub fn parse(bytes: &[u8; size_of::<RequestHeader>()]) -> Option<Self> {
        let header = RequestHeader::read_from_bytes(bytes).ok()?;
        let number = header.command.get();
        (header.magic.get() == magic::REQUEST).then_some(Self {
            command: Command::of(number).ok_or(number),
            flags: header.flags.get(),
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            length: header.length.get(),
        })
    }

    /// The bytes of it.
    pub fn header(&self) -> RequestHeader {
        let number = self.command.map_or_else(|number| number, Command::number);
        RequestHeader {
            magic: magic::REQUEST.into(),
            flags: self.flags.into(),
            command: number.into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        }
    }

    /// Whether it has a flag.
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A simple reply: a number, and after a read the data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SimpleReply {
    /// [`magic::SIMPLE_REPLY`].
    pub magic: U32,
    /// Number of a [`NbdError`], or 0.
    pub error: U32,
    /// Of the request.
    pub cookie: U64,
}

/// The header of a chunk of a structured reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Chunk {
    /// [`magic::CHUNK`].
    pub magic: U32,
    /// [`chunk::DONE`], or 0.
    pub flags: U16,
    /// Of [`chunk`].
    pub kind: U16,
    /// Of the request.
    pub cookie: U64,
    /// Bytes that follow.
    pub length: U32,
}

/// The place of the data that follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Offset {
    /// First byte of the export.
    pub offset: U64,
}

/// A part of a read that is zeroes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Hole {
    /// First byte of the export.
    pub offset: U64,
    /// Bytes of the export.
    pub length: U32,
}

/// An extent of `BLOCK_STATUS`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Extent {
    /// Bytes of the export.
    pub length: U32,
    /// Of [`state`].
    pub flags: U32,
}

/// An error, before its message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorChunk {
    /// Number of a [`NbdError`].
    pub error: U32,
    /// Bytes of the message that follows.
    pub length: U16,
}

/// Why a request failed, as the protocol can say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdError {
    /// The export is read-only.
    Permission,
    /// The disk failed.
    Io,
    /// There is no memory.
    NoMemory,
    /// The request makes no sense.
    Invalid,
    /// There is no space, or a write ends behind the disk.
    NoSpace,
    /// The request is too long.
    Overflow,
    /// Zeroes would be no faster than a write.
    NotSupported,
    /// The server is ending.
    Shutdown,
}

impl NbdError {
    /// Its number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io => 5,
            Self::NoMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }
}

impl From<&DiskError> for NbdError {
    /// By the errno of a Linux block device, of which NBD has a few.
    fn from(error: &DiskError) -> Self {
        match error.errno() {
            Errno::PERM | Errno::ROFS | Errno::ACCESS => Self::Permission,
            Errno::NOMEM => Self::NoMemory,
            Errno::INVAL => Self::Invalid,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::NoSpace,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use zonal::{Lba, LbaCount};

    use super::*;

    #[test]
    fn request_as_it_was_made_parses() {
        for number in 0..12 {
            let command = Command::of(number).ok_or(number);
            let request =
                Request { command, flags: 3, cookie: 7 << 40, offset: 1 << 33, length: 9 };
            let header = request.header();
            let bytes = header.as_bytes().try_into().unwrap();
            assert_eq!(Request::parse(bytes), Some(request));
        }
        assert_eq!(Request::parse(&[0; 28]), None);
    }

    #[test]
    fn disk_errors_have_numbers_of_the_protocol() {
        let (lba, blocks) = (Lba::ZERO, LbaCount::new(1));
        let below = |errno| DiskError::Below { errno, source: Box::new(io::Error::from(errno)) };
        let table = [
            (DiskError::ReadOnly, 1),
            (below(Errno::PERM), 1),
            (DiskError::OutOfRange { lba, blocks, size: blocks }, 5),
            (below(Errno::BUSY), 5),
            (below(Errno::NOMEM), 12),
            (DiskError::Unaligned { bytes: 5, block_size: 512 }, 22),
            (DiskError::NoSpace, 28),
            (below(Errno::FBIG), 28),
        ];
        for (error, number) in table {
            assert_eq!(NbdError::from(&error).number(), number, "{error}");
        }
    }
}
