//! The protocol data units of NVMe/TCP as bytes, without sockets: headers, digests, and what of a
//! unit is where. Any bytes can be given to [`Frame::parse`].
//!
//! Sections are those of the NVMe/TCP Transport Specification 1.0: 3.4 (errors), 3.6 (units).

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal::nvme::{CompletionEntry, SubmissionEntry};

/// Bytes that every unit begins with.
pub const COMMON_BYTES: usize = 8;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// Bytes of the header in error that a termination request repeats.
const QUOTE_BYTES_MAX: usize = 128;

/// What every unit begins with (section 3.6.1).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | kind | PDU-Type |
/// | 1 | 1 | flags | see [`flag`] |
/// | 2 | 1 | header_bytes | HLEN: without digest |
/// | 3 | 1 | data_at | PDO: where data begins |
/// | 4 | 4 | bytes | PLEN: of the whole unit |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct CommonHeader {
    pub kind: u8,
    pub flags: u8,
    pub header_bytes: u8,
    pub data_at: u8,
    pub bytes: U32,
}
const _: () = assert!(size_of::<CommonHeader>() == COMMON_BYTES);

impl CommonHeader {
    /// All zeroes; who puts a unit together fills it in.
    pub const UNSET: Self =
        Self { kind: 0, flags: 0, header_bytes: 0, data_at: 0, bytes: U32::ZERO };
}

/// `ICReq` and `ICResp`: the first unit of each side (sections 3.6.2.2 and 3.6.2.3).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | version | PFV: 0 |
/// | 10 | 1 | alignment | HPDA or CPDA: of data sent to this side, in 4 bytes, 0's based |
/// | 11 | 1 | digests | DGST; bit 0: header, bit 1: data |
/// | 12 | 4 | limit | MAXR2T: requests at once, 0's based; or MAXH2CDATA: bytes of data |
/// | 16 | 112 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct Initialize {
    pub common: CommonHeader,
    pub version: U16,
    pub alignment: u8,
    pub digests: u8,
    pub limit: U32,
    pub reserved: [u8; 112],
}
const _: () = assert!(size_of::<Initialize>() == 128);
const _: () = assert!(offset_of!(Initialize, limit) == 12);

/// `H2CTermReq` and `C2HTermReq`: why a side ends the connection (sections 3.6.2.4 and 3.6.2.5).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | status | FES |
/// | 10 | 4 | info | FEI: where in the header |
/// | 14 | 10 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct Terminate {
    pub common: CommonHeader,
    pub status: U16,
    pub info: U32,
    pub reserved: [u8; 10],
}
const _: () = assert!(size_of::<Terminate>() == 24);

/// `H2CData`, `C2HData` and R2T (sections 3.6.2.8 to 3.6.2.10).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | command | CCCID: of the command |
/// | 10 | 2 | tag | TTAG: of the transfer; not of C2HData |
/// | 12 | 4 | offset | DATAO or R2TO: in the command's data |
/// | 16 | 4 | length | DATAL or R2TL |
/// | 20 | 4 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct Data {
    pub common: CommonHeader,
    pub command: U16,
    pub tag: U16,
    pub offset: U32,
    pub length: U32,
    pub reserved: U32,
}
const _: () = assert!(size_of::<Data>() == 24);
const _: () = assert!(offset_of!(Data, offset) == 12);

impl Data {
    /// A part of a command's data.
    pub fn new(command: u16, tag: u16, range: &Range<usize>) -> Self {
        let raw = |value| u32::try_from(value).expect("a transfer's length").into();
        Self {
            common: CommonHeader::UNSET,
            command: command.into(),
            tag: tag.into(),
            offset: raw(range.start),
            length: raw(range.len()),
            reserved: U32::ZERO,
        }
    }
}

/// Kind of unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ICReq`: the host begins.
    InitializeRequest,
    /// `ICResp`: the controller answers.
    InitializeResponse,
    /// `H2CTermReq`: the host gives up.
    HostTerminates,
    /// `C2HTermReq`: the controller gives up.
    ControllerTerminates,
    /// `CapsuleCmd`: a command, perhaps with data.
    Command,
    /// `CapsuleResp`: a completion.
    Response,
    /// `H2CData`: data of a command.
    HostData,
    /// `C2HData`: data for the host.
    ControllerData,
    /// R2T: the controller asks for data.
    ReadyToTransfer,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::InitializeRequest,
        Self::InitializeResponse,
        Self::HostTerminates,
        Self::ControllerTerminates,
        Self::Command,
        Self::Response,
        Self::HostData,
        Self::ControllerData,
        Self::ReadyToTransfer,
    ];

    /// PDU-Type.
    pub const fn code(self) -> u8 {
        match self {
            Self::InitializeRequest => 0x00,
            Self::InitializeResponse => 0x01,
            Self::HostTerminates => 0x02,
            Self::ControllerTerminates => 0x03,
            Self::Command => 0x04,
            Self::Response => 0x05,
            Self::HostData => 0x06,
            Self::ControllerData => 0x07,
            Self::ReadyToTransfer => 0x09,
        }
    }

    const fn header_bytes(self) -> usize {
        match self {
            Self::InitializeRequest | Self::InitializeResponse => size_of::<Initialize>(),
            Self::HostTerminates | Self::ControllerTerminates => size_of::<Terminate>(),
            Self::Command => COMMON_BYTES + size_of::<SubmissionEntry>(),
            Self::Response => COMMON_BYTES + size_of::<CompletionEntry>(),
            Self::HostData | Self::ControllerData | Self::ReadyToTransfer => size_of::<Data>(),
        }
    }

    /// What of the terms holds for this kind: units that begin or end a connection have no digests.
    fn terms(self, agreed: Terms) -> Terms {
        match self {
            Self::InitializeRequest
            | Self::InitializeResponse
            | Self::HostTerminates
            | Self::ControllerTerminates => Terms::default(),
            Self::Command
            | Self::Response
            | Self::HostData
            | Self::ControllerData
            | Self::ReadyToTransfer => agreed,
        }
    }

    const fn is_last_word(self) -> bool {
        matches!(self, Self::HostTerminates | Self::ControllerTerminates)
    }
}

/// Bits of the flags of a unit.
pub mod flag {
    /// The header has a digest.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// The data has a digest.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// The last data of a request or command.
    pub const LAST: u8 = 1 << 2;
    /// The command has succeeded, and no completion follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Why a connection has to end (section 3.4.2: FES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalStatus {
    /// A field of a header is wrong; the information is where.
    Header,
    /// A unit came at a wrong time.
    Sequence,
    /// The header's digest is wrong; the information is that digest.
    HeaderDigest,
    /// Data is outside of what was asked for.
    OutOfRange,
    /// A unit has more data than allowed.
    LimitExceeded,
    /// A parameter of the connection is not supported.
    Unsupported,
}

impl FatalStatus {
    /// FES.
    pub const fn code(self) -> u16 {
        match self {
            Self::Header => 1,
            Self::Sequence => 2,
            Self::HeaderDigest => 3,
            Self::OutOfRange => 4,
            Self::LimitExceeded => 5,
            Self::Unsupported => 6,
        }
    }
}

/// A violation of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// What is wrong.
    pub status: FatalStatus,
    /// FEI.
    pub info: u32,
}

impl Fatal {
    /// A wrong header field, this many bytes from the header's start.
    pub const fn header(at: u32) -> Self {
        Self { status: FatalStatus::Header, info: at }
    }

    /// Something else.
    pub const fn of(status: FatalStatus) -> Self {
        Self { status, info: 0 }
    }
}

/// Whether a kind of digest is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

impl Digest {
    const fn bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::On => DIGEST_BYTES,
        }
    }

    const fn flag(self, flag: u8) -> u8 {
        match self {
            Self::Off => 0,
            Self::On => flag,
        }
    }
}

/// What two sides agreed on for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Digests over headers.
    pub header_digest: Digest,
    /// Digests over data.
    pub data_digest: Digest,
    /// Alignment of data sent to the peer, in bytes; 0 for none.
    pub alignment: usize,
}

impl Terms {
    /// The digests that DGST names.
    pub const fn digests(bits: u8) -> Self {
        let header_digest = if bits & 1 == 0 { Digest::Off } else { Digest::On };
        let data_digest = if bits & 2 == 0 { Digest::Off } else { Digest::On };
        Self { header_digest, data_digest, alignment: 0 }
    }
}

/// How a unit is made up, as its first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// Its flags.
    pub flags: u8,
    /// Bytes of the header, without digest.
    pub header_bytes: usize,
    /// Whether a header digest follows.
    pub header_digest: Digest,
    /// Where data begins.
    pub data_at: usize,
    /// Bytes of data.
    pub data_bytes: usize,
    /// Whether a data digest follows.
    pub data_digest: Digest,
}

impl Frame {
    /// Reads the first bytes of a unit that may have at most `data_max` bytes of data.
    pub fn parse(first: [u8; COMMON_BYTES], agreed: Terms, data_max: usize) -> Result<Self, Fatal> {
        let common: CommonHeader = zerocopy::transmute!(first);
        let kind = Kind::ALL.into_iter().find(|kind| kind.code() == common.kind);
        let kind = kind.ok_or(Fatal::header(0))?;
        let (terms, header_bytes) = (kind.terms(agreed), kind.header_bytes());
        if usize::from(common.header_bytes) != header_bytes {
            return Err(Fatal::header(2));
        }
        let bytes = common.bytes.get() as usize;
        let header_digest = terms.header_digest;
        let head_bytes = header_bytes + header_digest.bytes();
        if bytes < head_bytes {
            return Err(Fatal::header(4));
        }
        // Without data there is no data digest, though a host may set the flag all the same.
        let header_flag = header_digest.flag(flag::HEADER_DIGEST);
        let data_flag = terms.data_digest.flag(flag::DATA_DIGEST);
        let has_data = bytes > head_bytes;
        let found = common.flags & (flag::HEADER_DIGEST | flag::DATA_DIGEST);
        if found != header_flag | data_flag && (has_data || found != header_flag) {
            return Err(Fatal::header(1));
        }
        let flags = common.flags;
        if !has_data {
            let (data_at, data_bytes, data_digest) = (head_bytes, 0, Digest::Off);
            return Ok(Self {
                kind,
                flags,
                header_bytes,
                header_digest,
                data_at,
                data_bytes,
                data_digest,
            });
        }
        let data_digest = terms.data_digest;
        // The last word has its data right behind the header, and no offset.
        let data_at = if kind.is_last_word() { head_bytes } else { common.data_at.into() };
        let end = bytes - data_digest.bytes().min(bytes);
        if data_at < head_bytes || data_at >= end {
            return Err(Fatal::header(3));
        }
        let data_bytes = end - data_at;
        if data_bytes > data_max {
            return Err(Fatal::of(FatalStatus::LimitExceeded));
        }
        Ok(Self { kind, flags, header_bytes, header_digest, data_at, data_bytes, data_digest })
    }

    /// Bytes of header and header digest.
    pub const fn head_bytes(&self) -> usize {
        self.header_bytes + self.header_digest.bytes()
    }

    /// Bytes of the whole unit.
    pub const fn bytes(&self) -> usize {
        match self.data_bytes {
            0 => self.head_bytes(),
            data => self.data_at + data + self.data_digest.bytes(),
        }
    }

    /// Checks the digest behind a header; `head` is both.
    pub fn check_head(&self, head: &[u8]) -> Result<(), Fatal> {
        let (header, digest) = head.split_at(self.header_bytes);
        match U32::read_from_prefix(digest) {
            Ok((found, _)) if self.header_digest == Digest::On => {
                if is_digest_of(header, found.as_bytes()) {
                    return Ok(());
                }
                Err(Fatal { status: FatalStatus::HeaderDigest, info: found.get() })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Whether `digest` is that of `bytes`.
pub fn is_digest_of(bytes: &[u8], digest: &[u8]) -> bool {
    digest == U32::new(crc32c::crc32c(bytes)).as_bytes()
}

/// Puts a unit behind `out`. `header` begins with room for the common header, which is filled in.
pub fn put(out: &mut Vec<u8>, unit: (Kind, u8), header: &[u8], data: &[u8], agreed: Terms) {
    put_head(out, unit, header, data.len(), agreed);
    out.extend_from_slice(data);
    if unit.0.terms(agreed).data_digest == Digest::On && !data.is_empty() {
        out.extend_from_slice(U32::new(crc32c::crc32c(data)).as_bytes());
    }
}

/// Puts header, its digest and the padding before data.
fn put_head(
    out: &mut Vec<u8>,
    (kind, flags): (Kind, u8),
    header: &[u8],
    data_bytes: usize,
    agreed: Terms,
) {
    let (unit, terms) = (out.len(), kind.terms(agreed));
    let head_bytes = header.len() + terms.header_digest.bytes();
    let (data_at, bytes, data_digest) = if data_bytes == 0 {
        (0, head_bytes, Digest::Off)
    } else {
        let data_at = head_bytes.next_multiple_of(terms.alignment.max(1));
        (data_at, data_at + data_bytes + terms.data_digest.bytes(), terms.data_digest)
    };
    let digests =
        terms.header_digest.flag(flag::HEADER_DIGEST) | data_digest.flag(flag::DATA_DIGEST);
    let said = if kind.is_last_word() { 0 } else { data_at };
    let common = CommonHeader {
        kind: kind.code(),
        flags: flags | digests,
        header_bytes: u8::try_from(header.len()).expect("at most 128"),
        data_at: u8::try_from(said).expect("a header and at most 128"),
        bytes: u32::try_from(bytes).expect("a unit's length").into(),
    };
    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(&header[COMMON_BYTES..]);
    if terms.header_digest == Digest::On {
        let digest = crc32c::crc32c(&out[unit..]);
        out.extend_from_slice(U32::new(digest).as_bytes());
    }
    if data_bytes > 0 {
        out.resize(unit + data_at, 0);
    }
}

/// Puts a completion.
pub fn put_response(out: &mut Vec<u8>, completion: &CompletionEntry, agreed: Terms) {
    let mut header = [0; COMMON_BYTES + size_of::<CompletionEntry>()];
    header[COMMON_BYTES..].copy_from_slice(completion.as_bytes());
    put(out, (Kind::Response, 0), &header, &[], agreed);
}

/// Puts the unit that carries all data of a command, the data being zeroes, and says where they
/// are. [`end_data`] finishes it.
pub fn begin_data(out: &mut Vec<u8>, command: u16, bytes: usize, agreed: Terms) -> Range<usize> {
    let header = Data::new(command, 0, &(0..bytes));
    let unit = (Kind::ControllerData, flag::LAST);
    put_head(out, unit, header.as_bytes(), bytes, agreed);
    let start = out.len();
    out.resize(start + bytes, 0);
    start..start + bytes
}

/// Finishes the unit that [`begin_data`] began at `unit`, with more flags.
pub fn end_data(out: &mut Vec<u8>, unit: usize, data: &Range<usize>, flags: u8, agreed: Terms) {
    out[unit + 1] |= flags;
    if agreed.header_digest == Digest::On {
        let end = unit + size_of::<Data>();
        let digest = crc32c::crc32c(&out[unit..end]);
        out[end..end + DIGEST_BYTES].copy_from_slice(U32::new(digest).as_bytes());
    }
    if agreed.data_digest == Digest::On {
        let digest = crc32c::crc32c(&out[data.clone()]);
        out.extend_from_slice(U32::new(digest).as_bytes());
    }
}

/// Puts the last word of the controller: why the connection ends, and the header in error.
pub fn put_terminate(out: &mut Vec<u8>, fatal: Fatal, header: &[u8]) {
    let (status, info) = (fatal.status.code().into(), fatal.info.into());
    let terminate = Terminate { common: CommonHeader::UNSET, status, info, reserved: [0; 10] };
    let quote = &header[..header.len().min(QUOTE_BYTES_MAX)];
    let unit = (Kind::ControllerTerminates, 0);
    put(out, unit, terminate.as_bytes(), quote, Terms::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: Terms = Terms { header_digest: Digest::On, data_digest: Digest::On, alignment: 0 };

    fn first(bytes: &[u8]) -> [u8; COMMON_BYTES] {
        bytes[..COMMON_BYTES].try_into().unwrap()
    }

    #[test]
    fn a_unit_with_data_and_digests_has_them_where_the_specification_says() {
        let mut out = Vec::new();
        let data = begin_data(&mut out, 7, 9, ON);
        out[data.clone()].copy_from_slice(b"123456789");
        end_data(&mut out, 0, &data, flag::SUCCESS, ON);
        assert_eq!(out[..8], [0x07, 0x0f, 24, 28, 41, 0, 0, 0]);
        assert_eq!(out[8..12], [7, 0, 0, 0]);
        assert_eq!(out[28..37], *b"123456789");
        // The check value of CRC-32C.
        assert_eq!(out[37..], 0xe306_9283_u32.to_le_bytes());
        let frame = Frame::parse(first(&out), ON, 9).unwrap();
        assert_eq!((frame.data_at, frame.data_bytes, frame.bytes()), (28, 9, 41));
        frame.check_head(&out[..frame.head_bytes()]).unwrap();
        out[9] ^= 1;
        let wrong = frame.check_head(&out[..frame.head_bytes()]).unwrap_err();
        assert_eq!(wrong.status, FatalStatus::HeaderDigest);
    }

    #[test]
    fn data_is_aligned_as_the_host_asked() {
        let terms = Terms { alignment: 64, ..Terms::default() };
        let mut out = Vec::new();
        let data = begin_data(&mut out, 1, 512, terms);
        assert_eq!((data.start, out[3]), (64, 64));
        assert_eq!(Frame::parse(first(&out), terms, 512).unwrap().data_at, 64);
    }

    #[test]
    fn wrong_headers_are_told_by_place() {
        let good = [0x04, 0, 72, 72, 72 + 8, 0, 0, 0];
        let parse = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Frame::parse(bytes, Terms::default(), 8192)
        };
        assert_eq!(Frame::parse(good, Terms::default(), 8192).unwrap().data_bytes, 8);
        for (at, value, place) in [(0, 8, 0), (0, 0x40, 0), (2, 71, 2), (1, 1, 1), (1, 2, 1)] {
            assert_eq!(parse(at, value), Err(Fatal::header(place)), "byte {at} is {value}");
        }
        assert_eq!(parse(3, 71), Err(Fatal::header(3)));
        assert_eq!(parse(3, 80), Err(Fatal::header(3)));
        assert_eq!(parse(4, 71), Err(Fatal::header(4)));
        assert_eq!(parse(7, 1), Err(Fatal::of(FatalStatus::LimitExceeded)));
        assert_eq!(Frame::parse(good, Terms::default(), 7).unwrap_err().status.code(), 5);
        assert_eq!(Frame::parse(good, ON, 8192), Err(Fatal::header(1)));
    }

    /// Every combination of interesting values: what is accepted is as long as it says.
    #[test]
    fn any_first_bytes_are_a_frame_or_an_error() {
        let lengths = [0, 1, 23, 24, 28, 72, 76, 77, 80, 81, 128, 129, 200, 8264, u32::MAX];
        let mut accepted = 0_u32;
        for terms in [Terms::default(), Terms::digests(1), Terms::digests(2), ON] {
            for kind in 0..=16 {
                for flags in 0..16 {
                    for head in [0, 8, 24, 72, 128, 255] {
                        let places = [0, 8, 24, 28, 72, 76, 80, 255];
                        for (data_at, length) in
                            places.into_iter().flat_map(|at| lengths.map(|length| (at, length)))
                        {
                            let mut first = [kind, flags, head, data_at, 0, 0, 0, 0];
                            first[4..].copy_from_slice(&length.to_le_bytes());
                            if let Ok(frame) = Frame::parse(first, terms, 8192) {
                                assert_eq!(frame.bytes(), length as usize, "{first:?}");
                                assert!(frame.data_bytes <= 8192 && frame.data_at <= frame.bytes());
                                accepted += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(accepted > 500, "{accepted}");
    }

    #[test]
    fn the_last_word_quotes_the_header() {
        let mut out = Vec::new();
        put_terminate(&mut out, Fatal::header(3), &[9; 72]);
        assert_eq!(out[..14], [3, 0, 24, 0, 96, 0, 0, 0, 1, 0, 3, 0, 0, 0]);
        assert_eq!(out[24..], [9; 72]);
        let frame = Frame::parse(first(&out), Terms::default(), 128).unwrap();
        assert_eq!((frame.data_at, frame.data_bytes), (24, 72));
    }
}
