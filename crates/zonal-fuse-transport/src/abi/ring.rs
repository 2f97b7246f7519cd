//! Structures of `io_uring`, in addition to the structures of the protocol.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands of a ring.
pub(crate) mod ring_command {
    /// Registers an entry.
    pub(crate) const REGISTER: u32 = 1;
    /// Commits an answer and takes the next request.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// The part of an entry about its request or answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingAbout {
    pub(crate) flags: u64,
    /// Id with which the answer is committed.
    pub(crate) commit_id: u64,
    /// Bytes of the payload.
    pub(crate) payload_size: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

/// Header of an entry, in a buffer apart from the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingHeader {
    /// An `InHeader`, or an `OutHeader`.
    pub(crate) in_out: [u8; 128],
    /// The structure of a request.
    pub(crate) op: [u8; 128],
    pub(crate) about: RingAbout,
}

/// Command in an entry of the submission queue.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingCommand {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) queue: u16,
    pub(crate) padding: [u8; 6],
}
