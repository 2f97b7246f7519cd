//! The messages of NBD and their numbers, big-endian as on the wire.
//!
//! `handshake`: messages until a client has chosen an export; `transmission`: requests and replies.
//! [`ExportQuery`], [`ContextQuery`] and [`Request`] parse bytes from a peer; this side sends all
//! other messages.

mod handshake;
mod transmission;

pub use handshake::{
    BlockSizeInfo, CONTEXT, ClientFlags, ContextQuery, ExportInfo, ExportQuery, Greeting, NAME_MAX,
    OptionHeader, OptionReply, STRING_MAX, client_flag, context_matches, handshake_flag, info,
    option, reply,
};
pub use transmission::{
    Chunk, Command, ErrorChunk, Extent, Hole, NbdError, Offset, Request, RequestHeader,
    SimpleReply, chunk, command_flag, state, transmission_flag,
};

/// Magic numbers: the kind of a message, and a check that both sides agree where it begins.
pub mod magic {
    /// First of the greeting: "NBDMAGIC".
    pub const GREETING: u64 = 0x4e42_444d_4147_4943;
    /// Second of the greeting, and of each option: "IHAVEOPT".
    pub const OPTION: u64 = 0x4948_4156_454f_5054;
    /// Of a reply to an option.
    pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
    /// Of a request.
    pub const REQUEST: u32 = 0x2560_9513;
    /// Of a simple reply.
    pub const SIMPLE_REPLY: u32 = 0x6744_6698;
    /// Of a chunk of a structured reply.
    pub const CHUNK: u32 = 0x668e_33ef;
}
