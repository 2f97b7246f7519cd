//! NVMe/TCP protocol data units (PDUs) as bytes, without sockets: headers, digests, and where the
//! data is. [`Frame::parse`] takes any bytes.
//!
//! Sections are of the NVMe/TCP Transport Specification 1.0: 3.4 (errors), 3.6 (PDUs).

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonal::crc32c;
use zonal::nvme::{CompletionEntry, SubmissionEntry};

/// Bytes of the common header.
pub const COMMON_BYTES: usize = 8;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// Most bytes of the header in error that a TermReq PDU repeats.
const QUOTE_BYTES_MAX: usize = 128;

/// The common header (CH) of every PDU (section 3.6.1).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | kind | PDU-Type |
/// | 1 | 1 | flags | see [`flag`] |
/// | 2 | 1 | header_bytes | HLEN: bytes of the header, without its digest |
/// | 3 | 1 | data_at | PDO: offset of the data |
/// | 4 | 4 | bytes | PLEN: bytes of the whole PDU |
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
    /// All zeroes: [`put`] fills it in.
    pub const UNSET: Self =
        Self { kind: 0, flags: 0, header_bytes: 0, data_at: 0, bytes: U32::ZERO };
}

/// `ICReq` and `ICResp`, which initialize a connection (sections 3.6.2.2 and 3.6.2.3).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | version | PFV: 0 |
/// | 10 | 1 | alignment | HPDA or CPDA: alignment of data to this side, in 4 bytes, 0's based |
/// | 11 | 1 | digests | DGST; bit 0: header, bit 1: data |
/// | 12 | 4 | limit | ICReq: MAXR2T, 0's based; ICResp: MAXH2CDATA, in bytes |
/// | 16 | 112 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IcPdu {
    pub common: CommonHeader,
    pub version: U16,
    pub alignment: u8,
    pub digests: u8,
    pub limit: U32,
    pub reserved: [u8; 112],
}
const _: () = assert!(size_of::<IcPdu>() == 128);
const _: () = assert!(offset_of!(IcPdu, limit) == 12);

/// `H2CTermReq` and `C2HTermReq`: why one side terminates the connection (sections 3.6.2.4 and
/// 3.6.2.5).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | status | FES: fatal error status |
/// | 10 | 4 | info | FEI: offset in the header of the field in error, or the received digest |
/// | 14 | 10 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct TermReqPdu {
    pub common: CommonHeader,
    pub status: U16,
    pub info: U32,
    pub reserved: [u8; 10],
}
const _: () = assert!(size_of::<TermReqPdu>() == 24);

/// `H2CData`, `C2HData` and R2T (sections 3.6.2.8 to 3.6.2.10).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | common | |
/// | 8 | 2 | command | CCCID: command identifier |
/// | 10 | 2 | tag | TTAG: transfer tag; reserved in C2HData |
/// | 12 | 4 | offset | DATAO or R2TO: offset in the data of the command |
/// | 16 | 4 | length | DATAL or R2TL |
/// | 20 | 4 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DataPdu {
    pub common: CommonHeader,
    pub command: U16,
    pub tag: U16,
    pub offset: U32,
    pub length: U32,
    pub reserved: U32,
}
const _: () = assert!(size_of::<DataPdu>() == 24);
const _: () = assert!(offset_of!(DataPdu, offset) == 12);

impl DataPdu {
    /// The header for `range` of the data of a command.
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

/// PDU-Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduType {
    /// Initialize Connection Request.
    ICReq,
    /// Initialize Connection Response.
    ICResp,
    /// Host to Controller Terminate Connection Request.
    H2CTermReq,
    /// Controller to Host Terminate Connection Request.
    C2HTermReq,
    /// Command Capsule, which may carry in-capsule data.
    CapsuleCmd,
    /// Response Capsule: a completion queue entry.
    CapsuleResp,
    /// Host to Controller Data Transfer.
    H2CData,
    /// Controller to Host Data Transfer.
    C2HData,
    /// Ready to Transfer: the controller asks for data of a command.
    R2T,
}

impl PduType {
    /// Every type.
    pub const ALL: [Self; 9] = [
        Self::ICReq,
        Self::ICResp,
        Self::H2CTermReq,
        Self::C2HTermReq,
        Self::CapsuleCmd,
        Self::CapsuleResp,
        Self::H2CData,
        Self::C2HData,
        Self::R2T,
    ];

    /// The byte on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::ICReq => 0x00,
            Self::ICResp => 0x01,
            Self::H2CTermReq => 0x02,
            Self::C2HTermReq => 0x03,
            Self::CapsuleCmd => 0x04,
            Self::CapsuleResp => 0x05,
            Self::H2CData => 0x06,
            Self::C2HData => 0x07,
            Self::R2T => 0x09,
        }
    }

    const fn header_bytes(self) -> usize {
        match self {
            Self::ICReq | Self::ICResp => size_of::<IcPdu>(),
            Self::H2CTermReq | Self::C2HTermReq => size_of::<TermReqPdu>(),
            Self::CapsuleCmd => COMMON_BYTES + size_of::<SubmissionEntry>(),
            Self::CapsuleResp => COMMON_BYTES + size_of::<CompletionEntry>(),
            Self::H2CData | Self::C2HData | Self::R2T => size_of::<DataPdu>(),
        }
    }

    /// The parameters for PDUs of this type: PDUs that initialize or terminate have no digests.
    fn params(self, agreed: ConnectionParams) -> ConnectionParams {
        match self {
            Self::ICReq | Self::ICResp | Self::H2CTermReq | Self::C2HTermReq => {
                ConnectionParams::default()
            }
            Self::CapsuleCmd | Self::CapsuleResp | Self::H2CData | Self::C2HData | Self::R2T => {
                agreed
            }
        }
    }

    const fn is_term_req(self) -> bool {
        matches!(self, Self::H2CTermReq | Self::C2HTermReq)
    }
}

/// Bits of FLAGS.
pub mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// `LAST_PDU`: the last data PDU of an R2T or of a command.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS: the command succeeded and no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// FES: why a connection is terminated (section 3.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalStatus {
    /// Invalid PDU Header Field; FEI is the offset of the field.
    Header,
    /// PDU Sequence Error.
    Sequence,
    /// Header Digest Error; FEI is the received digest.
    HeaderDigest,
    /// Data Transfer Out of Range.
    OutOfRange,
    /// Data Transfer Limit Exceeded.
    LimitExceeded,
    /// Unsupported Parameter.
    Unsupported,
}

impl FatalStatus {
    /// The number on the wire.
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

/// A fatal transport error: the connection is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// FES.
    pub status: FatalStatus,
    /// FEI.
    pub info: u32,
}

impl Fatal {
    /// Invalid PDU Header Field at byte `at` of the header.
    pub const fn header(at: u32) -> Self {
        Self { status: FatalStatus::Header, info: at }
    }

    /// An error without FEI.
    pub const fn of(status: FatalStatus) -> Self {
        Self { status, info: 0 }
    }
}

/// Whether a digest is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// No digest.
    #[default]
    Off,
    /// CRC-32C.
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

/// The parameters on which ICReq and ICResp agreed for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionParams {
    /// HDGST: digests of headers.
    pub header_digest: Digest,
    /// DDGST: digests of data.
    pub data_digest: Digest,
    /// HPDA, in bytes: alignment of the data in PDUs to the host; 0 for none.
    pub alignment: usize,
}

impl ConnectionParams {
    /// The digests that the DGST field enables.
    pub const fn digests(bits: u8) -> Self {
        let header_digest = if bits & 1 == 0 { Digest::Off } else { Digest::On };
        let data_digest = if bits & 2 == 0 { Digest::Off } else { Digest::On };
        Self { header_digest, data_digest, alignment: 0 }
    }
}

/// The layout of a PDU, according to its common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// PDU-Type.
    pub kind: PduType,
    /// See [`flag`].
    pub flags: u8,
    /// Bytes of the header, without its digest.
    pub header_bytes: usize,
    /// Whether a header digest follows.
    pub header_digest: Digest,
    /// Offset of the data.
    pub data_at: usize,
    /// Bytes of data.
    pub data_bytes: usize,
    /// Whether a data digest follows.
    pub data_digest: Digest,
}

impl Frame {
    /// Checks the common header of a PDU that may carry at most `data_max` bytes of data.
    pub fn parse(
        first: [u8; COMMON_BYTES],
        agreed: ConnectionParams,
        data_max: usize,
    ) -> Result<Self, Fatal> {
        let common: CommonHeader = zerocopy::transmute!(first);
        let kind = PduType::ALL.into_iter().find(|kind| kind.code() == common.kind);
        let kind = kind.ok_or(Fatal::header(0))?;
        let (params, header_bytes) = (kind.params(agreed), kind.header_bytes());
        if usize::from(common.header_bytes) != header_bytes {
            return Err(Fatal::header(2));
        }
        let bytes = common.bytes.get() as usize;
        let header_digest = params.header_digest;
        let head_bytes = header_bytes + header_digest.bytes();
        if bytes < head_bytes {
            return Err(Fatal::header(4));
        }
        // A PDU without data has no data digest, but hosts may set the flag regardless.
        let header_flag = header_digest.flag(flag::HEADER_DIGEST);
        let data_flag = params.data_digest.flag(flag::DATA_DIGEST);
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
        let data_digest = params.data_digest;
        // A TermReq PDU has no PDO: its data follows the header.
        let data_at = if kind.is_term_req() { head_bytes } else { common.data_at.into() };
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

    /// Bytes of the header and its digest.
    pub const fn head_bytes(&self) -> usize {
        self.header_bytes + self.header_digest.bytes()
    }

    /// Bytes of the whole PDU.
    pub const fn bytes(&self) -> usize {
        match self.data_bytes {
            0 => self.head_bytes(),
            data => self.data_at + data + self.data_digest.bytes(),
        }
    }

    /// Checks the header digest; `head` is the header and the digest.
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

/// Appends a PDU to `out`. `header` begins with room for the common header, which this fills in.
pub fn put(
    out: &mut Vec<u8>,
    kind: PduType,
    flags: u8,
    header: &[u8],
    data: &[u8],
    agreed: ConnectionParams,
) {
    put_head(out, kind, flags, header, data.len(), agreed);
    out.extend_from_slice(data);
    if kind.params(agreed).data_digest == Digest::On && !data.is_empty() {
        out.extend_from_slice(U32::new(crc32c::crc32c(data)).as_bytes());
    }
}

/// Appends a header, its digest and the padding in front of the data.
fn put_head(
    out: &mut Vec<u8>,
    kind: PduType,
    flags: u8,
    header: &[u8],
    data_bytes: usize,
    agreed: ConnectionParams,
) {
    let (start, params) = (out.len(), kind.params(agreed));
    let head_bytes = header.len() + params.header_digest.bytes();
    let (data_at, bytes, data_digest) = if data_bytes == 0 {
        (0, head_bytes, Digest::Off)
    } else {
        let data_at = head_bytes.next_multiple_of(params.alignment.max(1));
        (data_at, data_at + data_bytes + params.data_digest.bytes(), params.data_digest)
    };
    let digests =
        params.header_digest.flag(flag::HEADER_DIGEST) | data_digest.flag(flag::DATA_DIGEST);
    let pdo = if kind.is_term_req() { 0 } else { data_at };
    let common = CommonHeader {
        kind: kind.code(),
        flags: flags | digests,
        header_bytes: u8::try_from(header.len()).expect("at most 128"),
        data_at: u8::try_from(pdo).expect("a header and at most 128"),
        bytes: u32::try_from(bytes).expect("a PDU's length").into(),
    };
    out.extend_from_slice(common.as_bytes());
    out.extend_from_slice(&header[COMMON_BYTES..]);
    if params.header_digest == Digest::On {
        let digest = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(U32::new(digest).as_bytes());
    }
    if data_bytes > 0 {
        out.resize(start + data_at, 0);
    }
}

/// Appends a CapsuleResp.
pub fn put_response(out: &mut Vec<u8>, completion: &CompletionEntry, agreed: ConnectionParams) {
    let mut header = [0; COMMON_BYTES + size_of::<CompletionEntry>()];
    header[COMMON_BYTES..].copy_from_slice(completion.as_bytes());
    put(out, PduType::CapsuleResp, 0, &header, &[], agreed);
}

/// Appends a C2HData PDU for all data of a command, but for the data itself. Returns the byte of
/// `out` in front of which the data belongs.
pub fn put_data(
    out: &mut Vec<u8>,
    command: u16,
    flags: u8,
    data: &[u8],
    agreed: ConnectionParams,
) -> usize {
    let header = DataPdu::new(command, 0, &(0..data.len()));
    put_head(out, PduType::C2HData, flag::LAST | flags, header.as_bytes(), data.len(), agreed);
    let at = out.len();
    if agreed.data_digest == Digest::On {
        out.extend_from_slice(U32::new(crc32c::crc32c(data)).as_bytes());
    }
    at
}

/// Appends a C2HTermReq: why the connection is terminated, and the header in error.
pub fn put_term_req(out: &mut Vec<u8>, fatal: Fatal, header: &[u8]) {
    let (status, info) = (fatal.status.code().into(), fatal.info.into());
    let terminate = TermReqPdu { common: CommonHeader::UNSET, status, info, reserved: [0; 10] };
    let quote = &header[..header.len().min(QUOTE_BYTES_MAX)];
    put(out, PduType::C2HTermReq, 0, terminate.as_bytes(), quote, ConnectionParams::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: ConnectionParams =
        ConnectionParams { header_digest: Digest::On, data_digest: Digest::On, alignment: 0 };

    fn first(bytes: &[u8]) -> [u8; COMMON_BYTES] {
        bytes[..COMMON_BYTES].try_into().unwrap()
    }

    #[test]
    fn pdu_layout_with_data_and_digests_matches_specification() {
        let mut out = Vec::new();
        let at = put_data(&mut out, 7, flag::SUCCESS, b"123456789", ON);
        out.splice(at..at, *b"123456789");
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
    fn pdu_data_is_aligned_as_host_asked() {
        let params = ConnectionParams { alignment: 64, ..ConnectionParams::default() };
        let mut out = Vec::new();
        let at = put_data(&mut out, 1, 0, &[7; 512], params);
        assert_eq!((at, out[3]), (64, 64));
        assert_eq!(Frame::parse(first(&out), params, 512).unwrap().data_at, 64);
    }

    #[test]
    fn pdu_invalid_header_field_is_reported_by_offset() {
        let good = [0x04, 0, 72, 72, 72 + 8, 0, 0, 0];
        let parse = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Frame::parse(bytes, ConnectionParams::default(), 8192)
        };
        assert_eq!(Frame::parse(good, ConnectionParams::default(), 8192).unwrap().data_bytes, 8);
        for (at, value, place) in [(0, 8, 0), (0, 0x40, 0), (2, 71, 2), (1, 1, 1), (1, 2, 1)] {
            assert_eq!(parse(at, value), Err(Fatal::header(place)), "byte {at} is {value}");
        }
        assert_eq!(parse(3, 71), Err(Fatal::header(3)));
        assert_eq!(parse(3, 80), Err(Fatal::header(3)));
        assert_eq!(parse(4, 71), Err(Fatal::header(4)));
        assert_eq!(parse(7, 1), Err(Fatal::of(FatalStatus::LimitExceeded)));
        assert_eq!(
            Frame::parse(good, ConnectionParams::default(), 7).unwrap_err().status.code(),
            5
        );
        assert_eq!(Frame::parse(good, ON, 8192), Err(Fatal::header(1)));
    }

    /// Every combination of interesting values: an accepted PDU is as long as its header says.
    #[test]
    fn pdu_any_common_header_is_frame_or_error() {
        let lengths = [0, 1, 23, 24, 28, 72, 76, 77, 80, 81, 128, 129, 200, 8264, u32::MAX];
        let mut accepted = 0_u32;
        for params in [
            ConnectionParams::default(),
            ConnectionParams::digests(1),
            ConnectionParams::digests(2),
            ON,
        ] {
            for kind in 0..=16 {
                for flags in 0..16 {
                    for head in [0, 8, 24, 72, 128, 255] {
                        let places = [0, 8, 24, 28, 72, 76, 80, 255];
                        for (data_at, length) in
                            places.into_iter().flat_map(|at| lengths.map(|length| (at, length)))
                        {
                            let mut first = [kind, flags, head, data_at, 0, 0, 0, 0];
                            first[4..].copy_from_slice(&length.to_le_bytes());
                            if let Ok(frame) = Frame::parse(first, params, 8192) {
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
    fn pdu_term_req_repeats_bad_header() {
        let mut out = Vec::new();
        put_term_req(&mut out, Fatal::header(3), &[9; 72]);
        assert_eq!(out[..14], [3, 0, 24, 0, 96, 0, 0, 0, 1, 0, 3, 0, 0, 0]);
        assert_eq!(out[24..], [9; 72]);
        let frame = Frame::parse(first(&out), ConnectionParams::default(), 128).unwrap();
        assert_eq!((frame.data_at, frame.data_bytes), (24, 72));
    }
}
