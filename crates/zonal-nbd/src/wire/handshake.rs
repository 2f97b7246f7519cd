//! The handshake: the greeting, options and their replies, until a client has chosen an export.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::magic;

/// Most bytes of a string of the protocol.
pub const STRING_MAX: usize = 4096;
/// Most bytes of the name of an export.
pub const NAME_MAX: usize = STRING_MAX;
/// The one metadata context: which extents hold data.
pub const CONTEXT: &str = "base:allocation";

/// Flags of the greeting.
pub mod handshake_flag {
    /// Options have replies.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The reply to `EXPORT_NAME` may end without zeroes.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// The same, of the client's answer.
pub mod client_flag {
    /// Options have replies.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// The reply to `EXPORT_NAME` ends without zeroes.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Options of a client.
pub mod option {
    /// Choose an export, without a reply that could say why not.
    pub const EXPORT_NAME: u32 = 1;
    /// End the connection.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Go on with TLS.
    pub const START_TLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// The same, and choose it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of reply to an option.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export in the list.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Kinds that are errors.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const UNSUPPORTED: u32 = ERROR | 1;
    /// The option is forbidden here.
    pub const POLICY: u32 = ERROR | 2;
    /// The option makes no sense.
    pub const INVALID: u32 = ERROR | 3;
    /// TLS has to come first.
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = ERROR | 6;
    /// The server is ending.
    pub const SHUTDOWN: u32 = ERROR | 7;
    /// The option is too long.
    pub const TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Name.
    pub const NAME: u16 = 1;
    /// Description.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The first message, of the server.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Greeting {
    /// [`magic::GREETING`].
    pub magic: U64,
    /// [`magic::OPTION`].
    pub options_magic: U64,
    /// Of [`handshake_flag`].
    pub flags: U16,
}

/// The second message, of the client.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ClientFlags {
    /// Of [`client_flag`].
    pub flags: U32,
}

/// The header of an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionHeader {
    /// [`magic::OPTION`].
    pub magic: U64,
    /// Of [`option`].
    pub option: U32,
    /// Bytes that follow.
    pub length: U32,
}

/// The header of a reply to an option.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OptionReply {
    /// [`magic::OPTION_REPLY`].
    pub magic: U64,
    /// The option.
    pub option: U32,
    /// Of [`reply`].
    pub kind: U32,
    /// Bytes that follow.
    pub length: U32,
}

impl OptionReply {
    /// A reply with `length` bytes.
    pub fn new(option: u32, kind: u32, length: u32) -> Self {
        let magic = magic::OPTION_REPLY.into();
        Self { magic, option: option.into(), kind: kind.into(), length: length.into() }
    }
}

/// Size and transmission flags of an export: all of the reply to `EXPORT_NAME`, and after its kind
/// [`info::EXPORT`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExportInfo {
    /// Bytes of the export.
    pub bytes: U64,
    /// Of [`transmission_flag`](super::transmission_flag).
    pub flags: U16,
}

/// [`info::BLOCK_SIZE`], after its kind.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockSizeInfo {
    /// Requests are whole multiples of this.
    pub minimum: U32,
    /// Requests that are whole multiples of this are fast.
    pub preferred: U32,
    /// Most bytes of data of a request.
    pub payload_max: U32,
}

/// The data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportQuery<'a> {
    /// The name of an export.
    pub name: &'a str,
    /// The kinds of information that the client asks for.
    pub infos: Vec<u16>,
}

impl<'a> ExportQuery<'a> {
    /// Parses the data of the option; `None` if it makes no sense.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let (name, rest) = string(data)?;
        let (count, rest) = U16::read_from_prefix(rest).ok()?;
        let infos = <[U16]>::ref_from_bytes(rest).ok()?;
        (infos.len() == usize::from(count.get())).then_some(())?;
        Some(Self { name, infos: infos.iter().map(|kind| kind.get()).collect() })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextQuery<'a> {
    /// The name of an export.
    pub name: &'a str,
    /// Contexts that the client asks for.
    pub queries: Vec<&'a str>,
}

impl<'a> ContextQuery<'a> {
    /// Parses the data of the option; `None` if it makes no sense.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let (name, rest) = string(data)?;
        let (count, mut rest) = U32::read_from_prefix(rest).ok()?;
        let mut queries = Vec::new();
        for _ in 0..count.get() {
            let (query, after) = string(rest)?;
            queries.push(query);
            rest = after;
        }
        rest.is_empty().then_some(Self { name, queries })
    }
}

/// Whether a query of `LIST_META_CONTEXT` means [`CONTEXT`]. Only there an empty name after the
/// namespace means all contexts in it.
pub fn context_matches(option: u32, query: &str) -> bool {
    query == CONTEXT || (option == option::LIST_META_CONTEXT && query == "base:")
}

/// A string behind its length, and the rest of the bytes.
fn string(data: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = U32::read_from_prefix(data).ok()?;
    let length = usize::try_from(length.get()).ok().filter(|&length| length <= STRING_MAX)?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_query_of_exact_length_parses() {
        let data = b"\0\0\0\x04disk\0\x02\0\x01\0\x03";
        let query = ExportQuery { name: "disk", infos: vec![info::NAME, info::BLOCK_SIZE] };
        assert_eq!(ExportQuery::parse(data), Some(query));
        for length in 0..data.len() {
            assert_eq!(ExportQuery::parse(&data[..length]), None, "{length}");
        }
        assert_eq!(ExportQuery::parse(&[&data[..], &[0]].concat()), None);
        assert_eq!(ExportQuery::parse(b"\0\0\0\x01\xff\0\0"), None, "no UTF-8");
    }

    #[test]
    fn context_query_of_exact_length_parses() {
        let data = b"\0\0\0\0\0\0\0\x02\0\0\0\x05base:\0\0\0\0";
        let query = ContextQuery { name: "", queries: vec!["base:", ""] };
        assert_eq!(ContextQuery::parse(data), Some(query));
        for length in 0..data.len() {
            assert_eq!(ContextQuery::parse(&data[..length]), None, "{length}");
        }
        assert_eq!(
            ContextQuery::parse(b"\0\0\0\0\xff\xff\xff\xff"),
            None,
            "a count without queries"
        );
    }

    #[test]
    fn context_wildcard_lists_and_does_not_set() {
        assert!(context_matches(option::LIST_META_CONTEXT, "base:"));
        assert!(!context_matches(option::SET_META_CONTEXT, "base:"));
        assert!(context_matches(option::SET_META_CONTEXT, CONTEXT));
        assert!(!context_matches(option::LIST_META_CONTEXT, "qemu:"));
    }
}
