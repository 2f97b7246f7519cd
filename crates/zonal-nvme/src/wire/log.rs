//! Log pages (Base, section 5.16.1; ZNS, section 4.1.4).

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use zonal::Lba;
use zonal::nvme::{Nsid, NvmeStatus, Opcode, SubmissionEntry, status};

/// LID: which page (Base, figure 199).
pub mod page {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERRORS: u8 = 0x01;
    /// SMART / Health Information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Changed Zone List.
    pub const CHANGED_ZONES: u8 = 0xbf;
}

/// Whether reading a log page clears its asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRead {
    /// It does.
    Clear,
    /// It does not (RAE: retain asynchronous event).
    Retain,
}

/// Get Log Page (Base, section 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID: which page, see [`page`].
    pub page: u8,
    /// RAE.
    pub read: LogRead,
    /// LPO: offset in the page, in bytes.
    pub offset: u64,
    /// NUMD, 0's based dwords on the wire: length in bytes.
    pub bytes: u64,
    /// CSI: of which command set.
    pub command_set: u8,
}

impl GetLogPage {
    const RETAIN: u32 = 1 << 15;
    /// OT: the offset is an index and not a byte.
    const OFFSET_IS_INDEX: u32 = 1 << 23;

    /// Decodes the dwords.
    #[expect(clippy::cast_possible_truncation, reason = "fields of a byte")]
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, NvmeStatus> {
        let (dword10, dword14) = (entry.dword(10), entry.dword(14));
        if dword14 & Self::OFFSET_IS_INDEX != 0 {
            return Err(status::INVALID_FIELD);
        }
        let offset = entry.quadword(12);
        if !offset.is_multiple_of(4) {
            return Err(status::INVALID_FIELD);
        }
        let dwords = u64::from(dword10 >> 16) | u64::from(entry.dword(11) & 0xffff) << 16;
        let read = if dword10 & Self::RETAIN == 0 { LogRead::Clear } else { LogRead::Retain };
        Ok(Self {
            page: dword10 as u8,
            read,
            offset,
            bytes: (dwords + 1) * 4,
            command_set: (dword14 >> 24) as u8,
        })
    }

    /// Encodes the command.
    ///
    /// # Panics
    /// If the length is no whole number of dwords.
    pub fn encode(&self, nsid: Nsid) -> SubmissionEntry {
        assert!(self.bytes >= 4 && self.bytes.is_multiple_of(4), "whole dwords");
        let dwords = u32::try_from(self.bytes / 4 - 1).expect("a log page's length");
        let mut entry = SubmissionEntry::new(Opcode::GET_LOG_PAGE, nsid);
        let retain = match self.read {
            LogRead::Clear => 0,
            LogRead::Retain => Self::RETAIN,
        };
        entry.set_dword(10, u32::from(self.page) | retain | dwords << 16);
        entry.set_dword(11, dwords >> 16);
        entry.set_quadword(12, self.offset);
        entry.set_dword(14, u32::from(self.command_set) << 24);
        entry
    }
}

/// Error Information Log Entry (Base, figure 204).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | count | counts errors; 0: the entry is not used |
/// | 8 | 2 | queue | of the command |
/// | 10 | 2 | command | its identifier |
/// | 12 | 2 | status | as in its completion |
/// | 14 | 2 | parameter | where in the command |
/// | 16 | 8 | lba | first block |
/// | 24 | 4 | nsid | namespace |
/// | 29 | 1 | transport | TRTYPE: 3 is TCP |
/// | 30 | 1 | command_set | CSI: of the opcode |
/// | 31 | 1 | opcode | of the command |
/// | 63 | 1 | version | 1: command set and opcode are valid |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ErrorEntry {
    pub count: U64,
    pub queue: U16,
    pub command: U16,
    pub status: U16,
    pub parameter: U16,
    pub lba: U64,
    pub nsid: U32,
    pub vendor: u8,
    pub transport: u8,
    pub command_set: u8,
    pub opcode: u8,
    pub reserved_32: [u8; 31],
    pub version: u8,
}
const _: () = assert!(size_of::<ErrorEntry>() == 64);
const _: () = assert!(offset_of!(ErrorEntry, opcode) == 31);
const _: () = assert!(offset_of!(ErrorEntry, nsid) == 24);

/// SMART / Health Information (Base, figure 207).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | warning | critical warnings, a bit for each |
/// | 1 | 2 | temperature | in kelvin |
/// | 3 | 1 | spare | per cent |
/// | 4 | 1 | spare_min | per cent |
/// | 5 | 1 | worn | per cent |
/// | 32 | 16 | read | data units read: 512,000 bytes each, rounded up |
/// | 48 | 16 | written | data units written |
/// | 64 | 16 | reads | read commands |
/// | 80 | 16 | writes | write commands |
/// | 176 | 16 | errors | entries that the error log ever got |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct Health {
    pub warning: u8,
    pub temperature: U16,
    pub spare: u8,
    pub spare_min: u8,
    pub worn: u8,
    pub reserved_6: [u8; 26],
    pub read: U128,
    pub written: U128,
    pub reads: U128,
    pub writes: U128,
    pub reserved_96: [u8; 80],
    pub errors: U128,
    pub reserved_192: [u8; 320],
}
const _: () = assert!(size_of::<Health>() == 512);
const _: () = assert!(offset_of!(Health, read) == 32);
const _: () = assert!(offset_of!(Health, writes) == 80);
const _: () = assert!(offset_of!(Health, errors) == 176);

/// Firmware Slot Information (Base, figure 210).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | active | bits 0-2: slot in use |
/// | 8 | 8 | slot_1 | revision in slot 1, ASCII |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct FirmwareSlots {
    pub active: u8,
    pub reserved_1: [u8; 7],
    pub slot_1: [u8; 8],
    pub reserved_16: [u8; 496],
}
const _: () = assert!(size_of::<FirmwareSlots>() == 512);

/// Commands Supported and Effects (Base, figures 211 and 212).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1024 | admin | a word for each admin opcode |
/// | 1024 | 1024 | io | a word for each I/O opcode |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct Effects {
    pub admin: [U32; 256],
    pub io: [U32; 256],
    pub reserved: [u8; 2048],
}
const _: () = assert!(size_of::<Effects>() == 4096);

/// CSUPP: the command is supported.
pub const EFFECT_SUPPORTED: u32 = 1 << 0;
/// LBCC: the command may change user data.
pub const EFFECT_DATA: u32 = 1 << 1;

/// Changed Zone List (ZNS, figure 42).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 2 | count | NRZID: identifiers that follow; all ones: more than fit |
/// | 8 | 4088 | zones | first block of each zone |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ChangedZones {
    pub count: U16,
    pub reserved: [u8; 6],
    pub zones: [U64; 511],
}
const _: () = assert!(size_of::<ChangedZones>() == 4096);

impl ChangedZones {
    /// NRZID: more zones changed than fit in the page.
    const TOO_MANY: u16 = u16::MAX;

    /// The page that lists these zones.
    pub fn encode(zones: &[Lba]) -> Self {
        let mut page = Self { count: U16::ZERO, reserved: [0; 6], zones: [U64::ZERO; 511] };
        if zones.len() > page.zones.len() {
            page.count = Self::TOO_MANY.into();
            return page;
        }
        page.count = u16::try_from(zones.len()).expect("at most 511").into();
        for (slot, lba) in page.zones.iter_mut().zip(zones) {
            *slot = lba.get().into();
        }
        page
    }

    /// First blocks of the zones; `None` if there were more than fit.
    pub fn decode(&self) -> Option<Vec<Lba>> {
        let zones = self.zones.get(..usize::from(self.count.get()))?;
        Some(zones.iter().map(|lba| Lba::new(lba.get())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_zones_beyond_capacity_are_not_listed() {
        let zones: Vec<_> = (0..512).map(|number| Lba::new(number * 16)).collect();
        assert_eq!(ChangedZones::encode(&zones).decode(), None);
        assert_eq!(ChangedZones::encode(&zones[..511]).decode().as_deref(), Some(&zones[..511]));
        assert_eq!(ChangedZones::encode(&[]).decode(), Some(Vec::new()));
    }

    #[test]
    fn log_page_request_counts_dwords_from_zero() {
        let log = GetLogPage {
            page: 5,
            read: LogRead::Retain,
            offset: 512,
            bytes: 4096 << 10,
            command_set: 2,
        };
        let entry = log.encode(Nsid::ALL);
        assert_eq!((entry.dword(10), entry.dword(11)), (0xffff_8005, 0xf));
        assert_eq!(GetLogPage::decode(&entry), Ok(log));
    }
}
