//! The dwords of each command: a controller decodes them, a host encodes them.
//!
//! Decoding fails for reserved values, with the status of the specification. Values that depend on
//! the namespace, such as addresses, are not checked here.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Nsid;
use super::command::{Opcode, SubmissionEntry};
use super::status::{self, NvmeStatus};
use crate::{Lba, LbaCount, ZoneAction, ZoneCond};

/// When a write has to survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After a later flush.
    Volatile,
    /// When it completes (FUA: force unit access).
    Durable,
}

/// FUA in dword 12 (NVM, figures 44 and 62).
const FUA: u32 = 1 << 30;

/// Read, Write, Write Zeroes, and Zone Append, whose address is that of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// SLBA or ZSLBA.
    pub first: Lba,
    /// NLB, 0's based on the wire.
    pub blocks: LbaCount,
    /// FUA.
    pub durability: Durability,
}

impl BlockRange {
    /// Most blocks of one command.
    pub const BLOCKS_MAX: LbaCount = LbaCount::new(1 << 16);

    /// Decodes the dwords.
    pub const fn decode(entry: &SubmissionEntry) -> Self {
        let dword12 = entry.dword(12);
        Self {
            first: Lba::new(entry.quadword(10)),
            blocks: LbaCount::new((dword12 & 0xffff) as u64 + 1),
            durability: if dword12 & FUA == 0 { Durability::Volatile } else { Durability::Durable },
        }
    }

    /// Encodes the command.
    ///
    /// # Panics
    /// If there are no blocks or too many for one command.
    pub fn encode(&self, opcode: Opcode, nsid: Nsid) -> SubmissionEntry {
        let (none, most) = (LbaCount::ZERO, Self::BLOCKS_MAX);
        assert!(self.blocks > none && self.blocks <= most, "1 to 65536 blocks");
        let mut entry = SubmissionEntry::new(opcode, nsid);
        entry.set_quadword(10, self.first.get());
        let blocks = u32::try_from(self.blocks.get() - 1).expect("at most 65536");
        let fua = match self.durability {
            Durability::Volatile => 0,
            Durability::Durable => FUA,
        };
        entry.set_dword(12, blocks | fua);
        entry
    }
}

/// Whether Write Zeroes may deallocate blocks (NVM, section 3.2.8: DEAC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// The blocks stay allocated.
    No,
    /// The controller should deallocate them.
    Wanted,
}

impl Deallocate {
    /// DEAC in dword 12.
    const BIT: u32 = 1 << 25;

    /// Decodes the bit of a Write Zeroes.
    pub const fn decode(entry: &SubmissionEntry) -> Self {
        if entry.dword(12) & Self::BIT == 0 { Self::No } else { Self::Wanted }
    }

    /// Adds the bit to a Write Zeroes.
    pub fn add_to(self, entry: &mut SubmissionEntry) {
        match self {
            Self::No => {}
            Self::Wanted => entry.set_dword(12, entry.dword(12) | Self::BIT),
        }
    }
}

/// Dataset Management (NVM, section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// NR: ranges in the data, 0's based on the wire.
    pub ranges: usize,
    /// AD: deallocate the ranges. All else that a host may say of them is advice.
    pub deallocate: Deallocate,
}

impl DatasetManagement {
    /// Most ranges of one command.
    pub const RANGES_MAX: usize = 256;
    /// AD in dword 11.
    const AD: u32 = 1 << 2;

    /// Bytes of the ranges.
    pub const fn bytes(self) -> usize {
        self.ranges * size_of::<DatasetRange>()
    }

    /// Decodes the dwords.
    pub const fn decode(entry: &SubmissionEntry) -> Self {
        let ranges = (entry.dword(10) & 0xff) as usize + 1;
        let wanted = entry.dword(11) & Self::AD != 0;
        Self { ranges, deallocate: if wanted { Deallocate::Wanted } else { Deallocate::No } }
    }

    /// Encodes the command.
    ///
    /// # Panics
    /// If there are no ranges or too many for one command.
    pub fn encode(self, nsid: Nsid) -> SubmissionEntry {
        assert!((1..=Self::RANGES_MAX).contains(&self.ranges), "1 to 256 ranges");
        let mut entry = SubmissionEntry::new(Opcode::DATASET_MANAGEMENT, nsid);
        entry.set_dword(10, u32::try_from(self.ranges - 1).expect("at most 255"));
        entry.set_dword(11, if self.deallocate == Deallocate::Wanted { Self::AD } else { 0 });
        entry
    }
}

/// A range of Dataset Management (NVM, section 3.2.3).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 4 | attributes | advice about future accesses |
/// | 4 | 4 | blocks | how many |
/// | 8 | 8 | first | first block |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DatasetRange {
    pub attributes: U32,
    pub blocks: U32,
    pub first: U64,
}
const _: () = assert!(size_of::<DatasetRange>() == 16);

/// The actions of Zone Management Send (ZNS, section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneSendAction {
    /// 1h to 4h: close, finish, open, reset.
    Manage(ZoneAction),
    /// 5h: make a ReadOnly zone Offline.
    Offline,
    /// 10h: set the zone descriptor extension.
    SetExtension,
    /// 11h: flush the zone random write area.
    FlushZrwa,
}

/// The zones of an action, as a host names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTarget {
    /// The zone that starts at this block.
    Start(Lba),
    /// Every zone for which the action makes sense.
    All,
}

/// Zone Management Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSend {
    /// ZSA.
    pub action: ZoneSendAction,
    /// SLBA, or Select All.
    pub zones: SendTarget,
}

impl ZoneSend {
    const SELECT_ALL: u32 = 1 << 8;
    /// ZRWAA: with a random write area, which no zone of ours has.
    const RANDOM_WRITE_AREA: u32 = 1 << 9;

    /// Decodes the dwords.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, NvmeStatus> {
        let dword13 = entry.dword(13);
        if dword13 & Self::RANDOM_WRITE_AREA != 0 {
            return Err(status::INVALID_FIELD);
        }
        let action = match dword13 & 0xff {
            0x01 => ZoneSendAction::Manage(ZoneAction::Close),
            0x02 => ZoneSendAction::Manage(ZoneAction::Finish),
            0x03 => ZoneSendAction::Manage(ZoneAction::Open),
            0x04 => ZoneSendAction::Manage(ZoneAction::Reset),
            0x05 => ZoneSendAction::Offline,
            0x10 => ZoneSendAction::SetExtension,
            0x11 => ZoneSendAction::FlushZrwa,
            _ => return Err(status::INVALID_FIELD),
        };
        let zones = if dword13 & Self::SELECT_ALL == 0 {
            SendTarget::Start(Lba::new(entry.quadword(10)))
        } else {
            SendTarget::All
        };
        Ok(Self { action, zones })
    }

    /// Encodes the command.
    pub fn encode(&self, nsid: Nsid) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(Opcode::ZONE_SEND, nsid);
        let mut dword13 = match self.action {
            ZoneSendAction::Manage(ZoneAction::Close) => 0x01,
            ZoneSendAction::Manage(ZoneAction::Finish) => 0x02,
            ZoneSendAction::Manage(ZoneAction::Open) => 0x03,
            ZoneSendAction::Manage(ZoneAction::Reset) => 0x04,
            ZoneSendAction::Offline => 0x05,
            ZoneSendAction::SetExtension => 0x10,
            ZoneSendAction::FlushZrwa => 0x11,
        };
        match self.zones {
            SendTarget::Start(lba) => entry.set_quadword(10, lba.get()),
            SendTarget::All => dword13 |= Self::SELECT_ALL,
        }
        entry.set_dword(13, dword13);
        entry
    }
}

/// Which descriptors a report has (ZNS, figure 39: ZRA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportForm {
    /// Zone descriptors.
    Plain,
    /// Each followed by its extension.
    Extended,
}

/// The zones that the zone count of a report includes (ZNS, figure 39: partial report).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCount {
    /// The zones that match, whether or not they fit.
    Matching,
    /// The zones that are in the report.
    Reported,
}

/// Zone Management Receive (ZNS, section 3.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReceive {
    /// SLBA: a block of the first zone.
    pub first: Lba,
    /// NUMD, 0's based dwords on the wire: bytes of the report.
    pub bytes: usize,
    /// ZRA.
    pub form: ReportForm,
    /// ZRASF: only zones in this condition; `None` is every zone.
    pub only: Option<ZoneCond>,
    /// Partial report.
    pub count: ReportCount,
}

impl ZoneReceive {
    /// The conditions in the order of their numbers, from 1 on (ZNS, figure 40).
    const ONLY: [ZoneCond; 7] = [
        ZoneCond::Empty,
        ZoneCond::ImplicitOpen,
        ZoneCond::ExplicitOpen,
        ZoneCond::Closed,
        ZoneCond::Full,
        ZoneCond::ReadOnly,
        ZoneCond::Offline,
    ];

    /// Decodes the dwords.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, NvmeStatus> {
        let dword13 = entry.dword(13);
        let form = match dword13 & 0xff {
            0x00 => ReportForm::Plain,
            0x01 => ReportForm::Extended,
            _ => return Err(status::INVALID_FIELD),
        };
        let only = match (dword13 >> 8 & 0xff) as usize {
            0 => None,
            number => Some(*Self::ONLY.get(number - 1).ok_or(status::INVALID_FIELD)?),
        };
        let count = match dword13 >> 16 & 1 {
            0 => ReportCount::Matching,
            _ => ReportCount::Reported,
        };
        let bytes = (entry.dword(12) as usize + 1) * 4;
        Ok(Self { first: Lba::new(entry.quadword(10)), bytes, form, only, count })
    }

    /// Encodes the command.
    ///
    /// # Panics
    /// If the length is no whole number of dwords, or there is no such filter.
    pub fn encode(&self, nsid: Nsid) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(Opcode::ZONE_RECEIVE, nsid);
        entry.set_quadword(10, self.first.get());
        assert!(self.bytes >= 4 && self.bytes.is_multiple_of(4), "whole dwords");
        entry.set_dword(12, u32::try_from(self.bytes / 4 - 1).expect("a report's length"));
        let form = match self.form {
            ReportForm::Plain => 0,
            ReportForm::Extended => 1,
        };
        let only = self.only.map_or(0, |cond| {
            let place = Self::ONLY.iter().position(|&only| only == cond);
            u32::try_from(place.expect("a condition to report by") + 1).expect("at most 7")
        });
        let count = match self.count {
            ReportCount::Matching => 0,
            ReportCount::Reported => 1 << 16,
        };
        entry.set_dword(13, form | only << 8 | count);
        entry
    }
}

/// Identify (Base, section 5.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CNS: which structure, see [`super::identify::cns`].
    pub what: u8,
    /// CSI: of which command set.
    pub command_set: u8,
}

impl Identify {
    /// Decodes the dwords.
    #[expect(clippy::cast_possible_truncation, reason = "fields of a byte")]
    pub const fn decode(entry: &SubmissionEntry) -> Self {
        Self { what: entry.dword(10) as u8, command_set: (entry.dword(11) >> 24) as u8 }
    }

    /// Encodes the command.
    pub fn encode(&self, nsid: Nsid) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(Opcode::IDENTIFY, nsid);
        entry.set_dword(10, self.what.into());
        entry.set_dword(11, u32::from(self.command_set) << 24);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NSID: Nsid = Nsid::new(3);

    #[test]
    fn write_of_one_block_is_zero_on_wire() {
        let range = BlockRange {
            first: Lba::new(0x1_2345_6789),
            blocks: LbaCount::new(1),
            durability: Durability::Durable,
        };
        let entry = range.encode(Opcode::WRITE, NSID);
        let dwords = entry.cdw10.map(zerocopy::little_endian::U32::get);
        assert_eq!(dwords, [0x2345_6789, 1, 0x4000_0000, 0, 0, 0]);
        assert_eq!(BlockRange::decode(&entry), range);
        let most = BlockRange { blocks: BlockRange::BLOCKS_MAX, ..range };
        assert_eq!(BlockRange::decode(&most.encode(Opcode::READ, NSID)), most);
    }

    #[test]
    fn dataset_ranges_are_counted_from_zero() {
        let every = DatasetManagement { ranges: 256, deallocate: Deallocate::Wanted };
        let entry = every.encode(NSID);
        assert_eq!((entry.dword(10), entry.dword(11), every.bytes()), (255, 4, 4096));
        assert_eq!(DatasetManagement::decode(&entry), every);
        let advice = DatasetManagement { ranges: 1, deallocate: Deallocate::No };
        assert_eq!(DatasetManagement::decode(&advice.encode(NSID)), advice);
        let mut zeroes = SubmissionEntry::new(Opcode::WRITE_ZEROES, NSID);
        assert_eq!(Deallocate::decode(&zeroes), Deallocate::No);
        Deallocate::Wanted.add_to(&mut zeroes);
        assert_eq!((zeroes.dword(12), Deallocate::decode(&zeroes)), (1 << 25, Deallocate::Wanted));
    }

    #[test]
    fn zone_actions_round_trip() {
        let numbers = [(ZoneAction::Close, 1), (ZoneAction::Finish, 2), (ZoneAction::Open, 3)];
        for (action, number) in numbers {
            let send = ZoneSend {
                action: ZoneSendAction::Manage(action),
                zones: SendTarget::Start(Lba::new(77)),
            };
            let entry = send.encode(NSID);
            assert_eq!((entry.dword(10), entry.dword(13)), (77, number));
            assert_eq!(ZoneSend::decode(&entry), Ok(send));
        }
        let reset = ZoneSendAction::Manage(ZoneAction::Reset);
        let all = ZoneSend { action: reset, zones: SendTarget::All };
        assert_eq!(all.encode(NSID).dword(13), 0x104);
        assert_eq!(ZoneSend::decode(&all.encode(NSID)), Ok(all));
        let mut entry = all.encode(NSID);
        for unknown in [0x77, 0x203] {
            entry.set_dword(13, unknown);
            assert_eq!(ZoneSend::decode(&entry), Err(status::INVALID_FIELD));
        }
    }

    #[test]
    fn zone_report_request_counts_dwords_from_zero() {
        let receive = ZoneReceive {
            first: Lba::new(5),
            bytes: 4096,
            form: ReportForm::Plain,
            only: Some(ZoneCond::Full),
            count: ReportCount::Reported,
        };
        let entry = receive.encode(NSID);
        assert_eq!((entry.dword(12), entry.dword(13)), (1023, 0x1_0500));
        assert_eq!(ZoneReceive::decode(&entry), Ok(receive));
    }
}
