//! What goes by `io_uring`, beside the structures of the protocol.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands of a ring.
pub(crate) mod ring_command {
    /// Here is one more entry of a queue.
    pub(crate) const REGISTER: u32 = 1;
    /// This is the answer, and the entry takes the next request.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// What an entry says of its request, or of the answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingAbout {
    pub(crate) flags: u64,
    /// By which the answer is committed.
    pub(crate) commit_id: u64,
    /// Bytes of the payload.
    pub(crate) payload_size: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

/// The header of an entry, which lies apart from its payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingHeader {
    /// An `InHeader`, or an `OutHeader`.
    pub(crate) in_out: [u8; 128],
    /// The structure of a request.
    pub(crate) op: [u8; 128],
    pub(crate) about: RingAbout,
}

/// What an entry of the submission queue carries.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingCommand {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) queue: u16,
    pub(crate) padding: [u8; 6],
}
