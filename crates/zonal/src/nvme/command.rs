//! Submission and completion queue entries, and opcodes.
//!
//! The fields of each command are decoded in `decode.rs`; the additions of fabrics are in
//! `zonal-nvme`.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Nsid, NvmeStatus};

/// Opcode (Base, figures 86 and 138; NVM, figure 17; ZNS, section 3). Admin and I/O commands have
/// opcodes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// Admin: Get Log Page.
    pub const GET_LOG_PAGE: Self = Self(0x02);
    /// Admin: Identify.
    pub const IDENTIFY: Self = Self(0x06);
    /// Admin: Abort.
    pub const ABORT: Self = Self(0x08);
    /// Admin: Set Features.
    pub const SET_FEATURES: Self = Self(0x09);
    /// Admin: Get Features.
    pub const GET_FEATURES: Self = Self(0x0a);
    /// Admin: Asynchronous Event Request.
    pub const ASYNC_EVENT: Self = Self(0x0c);
    /// Admin: Keep Alive.
    pub const KEEP_ALIVE: Self = Self(0x18);
    /// Flush.
    pub const FLUSH: Self = Self(0x00);
    /// Write.
    pub const WRITE: Self = Self(0x01);
    /// Read.
    pub const READ: Self = Self(0x02);
    /// Write Zeroes.
    pub const WRITE_ZEROES: Self = Self(0x08);
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: Self = Self(0x09);
    /// Zone Management Send.
    pub const ZONE_SEND: Self = Self(0x79);
    /// Zone Management Receive.
    pub const ZONE_RECEIVE: Self = Self(0x7a);
    /// Zone Append.
    pub const ZONE_APPEND: Self = Self(0x7d);
    /// Admin and I/O queues: a Fabrics command, whose type is in byte 4.
    pub const FABRICS: Self = Self(0x7f);
}

/// The data pointer of a command (Base, figure 112: SGL descriptor).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | address | or the offset in the capsule |
/// | 8 | 4 | length | bytes of data |
/// | 12 | 3 | reserved | |
/// | 15 | 1 | kind | type in the high four bits, subtype in the low |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DataPointer {
    pub address: U64,
    pub length: U32,
    pub reserved: [u8; 3],
    pub kind: u8,
}
const _: () = assert!(size_of::<DataPointer>() == 16);

impl DataPointer {
    /// Kind: data block at an offset in the command capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Kind: transport SGL data block, which the transport transfers.
    pub const TRANSPORT: u8 = 0x5a;

    /// No data.
    pub const NONE: Self =
        Self { address: U64::ZERO, length: U32::ZERO, reserved: [0; 3], kind: 0 };

    /// `length` bytes of in-capsule data, behind the command.
    pub const fn in_capsule(length: u32) -> Self {
        Self { length: U32::new(length), kind: Self::IN_CAPSULE, ..Self::NONE }
    }

    /// `length` bytes that the transport transfers.
    pub const fn transport(length: u32) -> Self {
        Self { length: U32::new(length), kind: Self::TRANSPORT, ..Self::NONE }
    }
}

/// Submission queue entry (Base, figure 87).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | opcode | the command |
/// | 1 | 1 | flags | bits 0-1: fused operation; bits 6-7: how data is pointed at |
/// | 2 | 2 | id | CID: command identifier |
/// | 4 | 4 | nsid | namespace; of a Fabrics command the first byte is its type |
/// | 8 | 8 | cdw2 | dwords 2 and 3 |
/// | 16 | 8 | metadata | MPTR: metadata pointer |
/// | 24 | 16 | data | DPTR: data pointer |
/// | 40 | 24 | cdw10 | dwords 10 to 15 |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct SubmissionEntry {
    pub opcode: u8,
    pub flags: u8,
    pub id: U16,
    pub nsid: U32,
    pub cdw2: [U32; 2],
    pub metadata: U64,
    pub data: DataPointer,
    pub cdw10: [U32; 6],
}
const _: () = assert!(size_of::<SubmissionEntry>() == 64);
const _: () = assert!(offset_of!(SubmissionEntry, nsid) == 4);
const _: () = assert!(offset_of!(SubmissionEntry, data) == 24);
const _: () = assert!(offset_of!(SubmissionEntry, cdw10) == 40);

impl SubmissionEntry {
    /// A command without data. The command identifier is still to be set.
    pub fn new(opcode: Opcode, nsid: Nsid) -> Self {
        Self {
            opcode: opcode.0,
            // PSDT: SGLs, since fabrics have no PRPs.
            flags: 0x40,
            id: U16::ZERO,
            nsid: nsid.get().into(),
            cdw2: [U32::ZERO; 2],
            metadata: U64::ZERO,
            data: DataPointer::NONE,
            cdw10: [U32::ZERO; 6],
        }
    }

    /// The opcode.
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// The namespace.
    pub const fn nsid(&self) -> Nsid {
        Nsid::new(self.nsid.get())
    }

    /// Command dword 10 to 15.
    ///
    /// # Panics
    /// If there is no such dword.
    pub const fn dword(&self, number: usize) -> u32 {
        self.cdw10[number - 10].get()
    }

    /// Two neighbouring dwords, the low half first.
    ///
    /// # Panics
    /// If there are no such dwords.
    pub const fn quadword(&self, number: usize) -> u64 {
        self.dword(number) as u64 | (self.dword(number + 1) as u64) << 32
    }

    /// Sets command dword 10 to 15.
    ///
    /// # Panics
    /// If there is no such dword.
    pub fn set_dword(&mut self, number: usize, value: u32) {
        self.cdw10[number - 10] = value.into();
    }

    /// Sets two neighbouring dwords, the low half first.
    #[expect(clippy::cast_possible_truncation, reason = "one half each")]
    pub fn set_quadword(&mut self, number: usize, value: u64) {
        self.set_dword(number, value as u32);
        self.set_dword(number + 1, (value >> 32) as u32);
    }
}

/// Completion queue entry (Base, figure 89; Fabrics: figure 90).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | result | dwords 0 and 1: the result of the command |
/// | 8 | 2 | sq_head | SQHD: how far the controller has taken the submission queue |
/// | 10 | 2 | sq_id | SQID: reserved on fabrics |
/// | 12 | 2 | id | CID: of the command |
/// | 14 | 2 | status | phase tag in bit 0 (not on fabrics), status above |
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct CompletionEntry {
    pub result: U64,
    pub sq_head: U16,
    pub sq_id: U16,
    pub id: U16,
    pub status: U16,
}
const _: () = assert!(size_of::<CompletionEntry>() == 16);
const _: () = assert!(offset_of!(CompletionEntry, id) == 12);

impl CompletionEntry {
    /// The status.
    pub const fn status(&self) -> NvmeStatus {
        NvmeStatus::from_field(self.status.get())
    }
}
