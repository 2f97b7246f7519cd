//! SCSI commands as command descriptor blocks (CDB): a host encodes them, a target decodes them.
//!
//! SPC-5 (INQUIRY, MODE SENSE(10), REQUEST SENSE, TEST UNIT READY), SBC-4 (READ(16), WRITE(16),
//! READ CAPACITY(16), START STOP UNIT, SYNCHRONIZE CACHE(16)) and ZBC-2 (all commands about zones)
//! define the layouts, in the clause that has the name of the command; `ata.rs` has ATA
//! PASS-THROUGH(16). An [`Lba`] here is an address in the logical blocks of the drive.

use zonal::nvme::decode::{Durability, ReportCount, SendTarget};
use zonal::{Lba, ZoneAction, ZoneCond};

use super::ata::AtaCommand;
use super::number::ByteOrder::HighFirst;

/// Operation codes.
mod opcode {
    pub(super) const TEST_UNIT_READY: u8 = 0x00;
    pub(super) const REQUEST_SENSE: u8 = 0x03;
    pub(super) const INQUIRY: u8 = 0x12;
    pub(super) const START_STOP_UNIT: u8 = 0x1b;
    pub(super) const MODE_SENSE_10: u8 = 0x5a;
    pub(super) const ATA_PASS_THROUGH_16: u8 = 0x85;
    pub(super) const READ_16: u8 = 0x88;
    pub(super) const WRITE_16: u8 = 0x8a;
    pub(super) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub(super) const ZBC_OUT: u8 = 0x94;
    pub(super) const ZBC_IN: u8 = 0x95;
    pub(super) const SERVICE_ACTION_IN_16: u8 = 0x9e;
}

/// Service actions: of SERVICE ACTION IN(16), and of ZBC IN.
mod action {
    pub(super) const READ_CAPACITY_16: u8 = 0x10;
    pub(super) const REPORT_ZONES: u8 = 0x00;
    pub(super) const REPORT_REALMS: u8 = 0x06;
    pub(super) const REPORT_ZONE_DOMAINS: u8 = 0x07;
    pub(super) const ZONE_ACTIVATE: u8 = 0x08;
    pub(super) const ZONE_QUERY: u8 = 0x09;
}

/// DBD, byte 1 of MODE SENSE: no block descriptors, please.
const DISABLE_BLOCK_DESCRIPTORS: u64 = 1 << 3;
/// START, byte 4 of START STOP UNIT, without a power condition.
const START: u8 = 1;
/// FUA, byte 1 of READ and WRITE.
const FUA: u8 = 1 << 3;
/// RDPROTECT and WRPROTECT, byte 1.
const PROTECT: u8 = 0xe0;
/// IMMED, byte 1 of SYNCHRONIZE CACHE: answers before the data is on the medium.
const IMMEDIATE: u8 = 1 << 1;
/// PARTIAL, byte 14 of REPORT ZONES: the list length counts the returned zones only.
pub(super) const PARTIAL: u8 = 1 << 7;
/// ALL, byte 14 of ZBC OUT.
const ALL: u8 = 1;

/// A command descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; Self::BYTES_MAX],
    len: usize,
}

impl Cdb {
    /// Bytes of the longest.
    pub const BYTES_MAX: usize = 16;

    /// An empty one. The operation code gives its length (SPC-5, "Operation code").
    pub(super) fn new(opcode: u8) -> Self {
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[0] = opcode;
        let len = match opcode >> 5 {
            0 => 6,
            1 | 2 => 10,
            5 => 12,
            _ => Self::BYTES_MAX,
        };
        Self { bytes, len }
    }

    /// The same with a number of `width` bytes at byte `at`.
    pub(super) fn with(mut self, at: usize, width: usize, number: u64) -> Self {
        HighFirst.store(number, &mut self.bytes[at..at + width]);
        self
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Blocks of READ(16) or WRITE(16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// LOGICAL BLOCK ADDRESS.
    pub first: Lba,
    /// TRANSFER LENGTH, in blocks.
    pub blocks: u32,
    /// FUA.
    pub durability: Durability,
}

/// The zones that a report has (ZBC-2, REPORT ZONES: REPORTING OPTIONS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFilter {
    /// All of them.
    All,
    /// Zones in one condition.
    Condition(ZoneCond),
    /// Zones that belong to no active realm.
    Inactive,
    /// Zones of which the drive recommends a reset.
    ResetRecommended,
    /// Zones with non-sequential write resources.
    NonSequential,
    /// All but gap zones.
    NoGaps,
}

impl ZoneFilter {
    const CODES: [(u8, Self); 13] = [
        (0x00, Self::All),
        (0x01, Self::Condition(ZoneCond::Empty)),
        (0x02, Self::Condition(ZoneCond::ImplicitOpen)),
        (0x03, Self::Condition(ZoneCond::ExplicitOpen)),
        (0x04, Self::Condition(ZoneCond::Closed)),
        (0x05, Self::Condition(ZoneCond::Full)),
        (0x06, Self::Condition(ZoneCond::ReadOnly)),
        (0x07, Self::Condition(ZoneCond::Offline)),
        (0x08, Self::Inactive),
        (0x10, Self::ResetRecommended),
        (0x11, Self::NonSequential),
        (0x3e, Self::NoGaps),
        (0x3f, Self::Condition(ZoneCond::NotWp)),
    ];

    /// Its number.
    pub fn code(self) -> u8 {
        let found = Self::CODES.iter().find(|(_, filter)| *filter == self);
        found.expect("the table has every filter").0
    }

    /// The filter of a number; `None` for a reserved one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|(number, _)| *number == code).map(|(_, filter)| *filter)
    }
}

/// REPORT ZONES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportZones {
    /// ZONE START LBA: a block of the first zone.
    pub first: Lba,
    /// ALLOCATION LENGTH. `libata` takes only multiples of 512, and only the length of the memory.
    pub bytes: u32,
    /// REPORTING OPTIONS.
    pub only: ZoneFilter,
    /// PARTIAL.
    pub count: ReportCount,
}

/// REPORT REALMS and REPORT ZONE DOMAINS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainReport {
    /// REALM LOCATOR or ZONE DOMAIN LOCATOR.
    pub first: Lba,
    /// ALLOCATION LENGTH.
    pub bytes: u32,
    /// REPORTING OPTIONS, which differ between the two.
    pub options: u8,
}

/// ZONE ACTIVATE(16) and ZONE QUERY(16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// ALL, or ZONE ID, of which the CDB has 48 bits.
    pub zones: SendTarget,
    /// ZONE DOMAIN ID to activate, 63 at most.
    pub domain: u8,
    /// NUMBER OF ZONES; `None` clears ZSRC, and the drive takes the zones of a realm.
    pub count: Option<u16>,
    /// ALLOCATION LENGTH.
    pub bytes: u32,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE, in the fixed format.
    RequestSense {
        /// ALLOCATION LENGTH.
        bytes: u8,
    },
    /// START STOP UNIT that starts, and returns when the drive is ready.
    Start,
    /// INQUIRY.
    Inquiry {
        /// PAGE CODE of vital product data; `None` is the standard data.
        page: Option<u8>,
        /// ALLOCATION LENGTH.
        bytes: u16,
    },
    /// MODE SENSE(10) of current values, without block descriptors.
    ModeSense {
        /// PAGE CODE.
        page: u8,
        /// ALLOCATION LENGTH.
        bytes: u16,
    },
    /// READ CAPACITY(16).
    ReadCapacity {
        /// ALLOCATION LENGTH.
        bytes: u32,
    },
    /// READ(16).
    Read(BlockRange),
    /// WRITE(16).
    Write(BlockRange),
    /// SYNCHRONIZE CACHE(16) of all blocks; returns when they are on the medium.
    SynchronizeCache,
    /// REPORT ZONES.
    ReportZones(ReportZones),
    /// CLOSE ZONE, FINISH ZONE, OPEN ZONE and RESET WRITE POINTER.
    ManageZones {
        /// Which of them.
        action: ZoneAction,
        /// ALL, or ZONE ID.
        zones: SendTarget,
    },
    /// REPORT REALMS.
    ReportRealms(DomainReport),
    /// REPORT ZONE DOMAINS.
    ReportZoneDomains(DomainReport),
    /// ZONE ACTIVATE(16).
    ZoneActivate(Activation),
    /// ZONE QUERY(16).
    ZoneQuery(Activation),
    /// ATA PASS-THROUGH(16).
    Ata(AtaCommand),
}

/// Why a target cannot decode a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CdbError {
    /// It does not know the command: INVALID COMMAND OPERATION CODE.
    Opcode,
    /// A field has a reserved value: INVALID FIELD IN CDB.
    Field,
}

impl Command {
    /// Encodes the command.
    pub fn encode(&self) -> Cdb {
        match *self {
            Self::TestUnitReady => Cdb::new(opcode::TEST_UNIT_READY),
            Self::RequestSense { bytes } => {
                Cdb::new(opcode::REQUEST_SENSE).with(4, 1, bytes.into())
            }
            Self::Start => Cdb::new(opcode::START_STOP_UNIT).with(4, 1, START.into()),
            Self::Inquiry { page, bytes } => Cdb::new(opcode::INQUIRY)
                .with(1, 1, page.is_some().into())
                .with(2, 1, page.unwrap_or(0).into())
                .with(3, 2, bytes.into()),
            Self::ModeSense { page, bytes } => Cdb::new(opcode::MODE_SENSE_10)
                .with(1, 1, DISABLE_BLOCK_DESCRIPTORS)
                .with(2, 1, (page & 0x3f).into())
                .with(7, 2, bytes.into()),
            Self::ReadCapacity { bytes } => Cdb::new(opcode::SERVICE_ACTION_IN_16)
                .with(1, 1, action::READ_CAPACITY_16.into())
                .with(10, 4, bytes.into()),
            Self::Read(range) => range.encode(opcode::READ_16),
            Self::Write(range) => range.encode(opcode::WRITE_16),
            Self::SynchronizeCache => Cdb::new(opcode::SYNCHRONIZE_CACHE_16),
            Self::ReportZones(report) => Cdb::new(opcode::ZBC_IN)
                .with(1, 1, action::REPORT_ZONES.into())
                .with(2, 8, report.first.get())
                .with(10, 4, report.bytes.into())
                .with(14, 1, report.options().into()),
            Self::ManageZones { action, zones } => {
                let cdb = Cdb::new(opcode::ZBC_OUT).with(1, 1, code_of_action(action).into());
                match zones {
                    SendTarget::Start(zone) => cdb.with(2, 8, zone.get()),
                    SendTarget::All => cdb.with(14, 1, ALL.into()),
                }
            }
            Self::ReportRealms(report) => report.encode(action::REPORT_REALMS),
            Self::ReportZoneDomains(report) => report.encode(action::REPORT_ZONE_DOMAINS),
            Self::ZoneActivate(activation) => activation.encode(action::ZONE_ACTIVATE),
            Self::ZoneQuery(activation) => activation.encode(action::ZONE_QUERY),
            Self::Ata(command) => command.encode(Cdb::new(opcode::ATA_PASS_THROUGH_16)),
        }
    }

    /// Decodes a command, which may be any bytes.
    pub fn decode(cdb: &[u8]) -> Result<Self, CdbError> {
        let opcode = *cdb.first().ok_or(CdbError::Opcode)?;
        let len = Cdb::new(opcode).len;
        let cdb: &[u8; 16] = &super::number::padded(cdb.get(..len).ok_or(CdbError::Field)?);
        match opcode {
            opcode::TEST_UNIT_READY => Ok(Self::TestUnitReady),
            opcode::REQUEST_SENSE => Ok(Self::RequestSense { bytes: cdb[4] }),
            opcode::START_STOP_UNIT if cdb[1] & 1 == 0 && cdb[4] == START => Ok(Self::Start),
            opcode::INQUIRY => match (cdb[1], cdb[2]) {
                (0, 0) => Ok(Self::Inquiry { page: None, bytes: HighFirst.u16(&cdb[3..5]) }),
                (1, page) => {
                    Ok(Self::Inquiry { page: Some(page), bytes: HighFirst.u16(&cdb[3..5]) })
                }
                _ => Err(CdbError::Field),
            },
            // Current values only, and no subpages.
            opcode::MODE_SENSE_10 if cdb[2] & 0xc0 == 0 && cdb[3] == 0 => {
                Ok(Self::ModeSense { page: cdb[2], bytes: HighFirst.u16(&cdb[7..9]) })
            }
            opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1f == action::READ_CAPACITY_16 => {
                Ok(Self::ReadCapacity { bytes: HighFirst.u32(&cdb[10..14]) })
            }
            opcode::READ_16 => BlockRange::decode(cdb).map(Self::Read),
            opcode::WRITE_16 => BlockRange::decode(cdb).map(Self::Write),
            opcode::SYNCHRONIZE_CACHE_16 if cdb[1] & IMMEDIATE == 0 => Ok(Self::SynchronizeCache),
            opcode::ZBC_OUT => {
                let action = action_of_code(cdb[1] & 0x1f).ok_or(CdbError::Opcode)?;
                let zones = match cdb[14] & ALL {
                    0 => SendTarget::Start(Lba::new(HighFirst.u64(&cdb[2..10]))),
                    _ => SendTarget::All,
                };
                Ok(Self::ManageZones { action, zones })
            }
            opcode::ZBC_IN => Self::decode_zbc_in(cdb),
            opcode::ATA_PASS_THROUGH_16 => {
                AtaCommand::decode(cdb).map(Self::Ata).ok_or(CdbError::Field)
            }
            opcode::START_STOP_UNIT | opcode::MODE_SENSE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                Err(CdbError::Field)
            }
            _ => Err(CdbError::Opcode),
        }
    }

    fn decode_zbc_in(cdb: &[u8; 16]) -> Result<Self, CdbError> {
        match cdb[1] & 0x1f {
            action::REPORT_ZONES => {
                let (first, bytes) = (HighFirst.u64(&cdb[2..10]), HighFirst.u32(&cdb[10..14]));
                let report = ReportZones::from_options(cdb[14], Lba::new(first), bytes);
                report.map(Self::ReportZones).ok_or(CdbError::Field)
            }
            action::REPORT_REALMS => Ok(Self::ReportRealms(DomainReport::decode(cdb))),
            action::REPORT_ZONE_DOMAINS => Ok(Self::ReportZoneDomains(DomainReport::decode(cdb))),
            action::ZONE_ACTIVATE => Ok(Self::ZoneActivate(Activation::decode(cdb))),
            action::ZONE_QUERY => Ok(Self::ZoneQuery(Activation::decode(cdb))),
            _ => Err(CdbError::Opcode),
        }
    }
}

impl BlockRange {
    fn encode(self, opcode: u8) -> Cdb {
        let fua = match self.durability {
            Durability::Volatile => 0,
            Durability::Durable => FUA,
        };
        Cdb::new(opcode).with(1, 1, fua.into()).with(2, 8, self.first.get()).with(
            10,
            4,
            self.blocks.into(),
        )
    }

    fn decode(cdb: &[u8; 16]) -> Result<Self, CdbError> {
        if cdb[1] & PROTECT != 0 {
            return Err(CdbError::Field);
        }
        let durability = if cdb[1] & FUA == 0 { Durability::Volatile } else { Durability::Durable };
        let first = Lba::new(HighFirst.u64(&cdb[2..10]));
        Ok(Self { first, blocks: HighFirst.u32(&cdb[10..14]), durability })
    }
}

impl ReportZones {
    /// REPORTING OPTIONS and PARTIAL, in a byte that SCSI and ATA share.
    pub(super) fn options(self) -> u8 {
        let partial = match self.count {
            ReportCount::Matching => 0,
            ReportCount::Reported => PARTIAL,
        };
        self.only.code() | partial
    }

    /// The report with that byte.
    pub(super) fn from_options(options: u8, first: Lba, bytes: u32) -> Option<Self> {
        let only = ZoneFilter::from_code(options & !PARTIAL)?;
        let count =
            if options & PARTIAL == 0 { ReportCount::Matching } else { ReportCount::Reported };
        Some(Self { first, bytes, only, count })
    }
}

impl DomainReport {
    fn encode(self, service_action: u8) -> Cdb {
        Cdb::new(opcode::ZBC_IN)
            .with(1, 1, service_action.into())
            .with(2, 8, self.first.get())
            .with(10, 4, self.bytes.into())
            .with(14, 1, (self.options & 0x3f).into())
    }

    fn decode(cdb: &[u8; 16]) -> Self {
        let first = Lba::new(HighFirst.u64(&cdb[2..10]));
        Self { first, bytes: HighFirst.u32(&cdb[10..14]), options: cdb[14] & 0x3f }
    }
}

impl Activation {
    /// ALL, byte 2.
    const ALL: u8 = 1 << 7;
    /// ZSRC, byte 2: the number of zones counts.
    const COUNTED: u8 = 1 << 6;

    fn encode(self, service_action: u8) -> Cdb {
        let counted = if self.count.is_some() { Self::COUNTED } else { 0 };
        let (all, zone) = match self.zones {
            SendTarget::All => (Self::ALL, 0),
            SendTarget::Start(zone) => (0, zone.get()),
        };
        Cdb::new(opcode::ZBC_IN)
            .with(1, 1, service_action.into())
            .with(2, 1, (all | counted | self.domain & 0x3f).into())
            .with(3, 6, zone)
            .with(9, 4, self.bytes.into())
            .with(13, 2, self.count.unwrap_or(0).into())
    }

    fn decode(cdb: &[u8; 16]) -> Self {
        let zones = match cdb[2] & Self::ALL {
            0 => SendTarget::Start(Lba::new(HighFirst.u64(&cdb[3..9]))),
            _ => SendTarget::All,
        };
        let count = (cdb[2] & Self::COUNTED != 0).then(|| HighFirst.u16(&cdb[13..15]));
        Self { zones, domain: cdb[2] & 0x3f, count, bytes: HighFirst.u32(&cdb[9..13]) }
    }
}

/// The number of an action: the service action of ZBC OUT, and the low byte of FEATURES of ATA.
pub(super) const fn code_of_action(action: ZoneAction) -> u8 {
    match action {
        ZoneAction::Close => 0x01,
        ZoneAction::Finish => 0x02,
        ZoneAction::Open => 0x03,
        ZoneAction::Reset => 0x04,
    }
}

/// The action of that number.
pub(super) fn action_of_code(code: u8) -> Option<ZoneAction> {
    ZoneAction::ALL.into_iter().find(|action| code_of_action(*action) == code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks a command against its bytes, and the bytes against the command.
    fn golden(command: Command, bytes: &[u8]) {
        assert_eq!(command.encode().as_bytes(), bytes, "{command:?}");
        assert_eq!(Command::decode(bytes), Ok(command), "{bytes:02x?}");
    }

    /// SPC-5: TEST UNIT READY, REQUEST SENSE, INQUIRY, MODE SENSE(10).
    #[test]
    fn primary_commands_have_bytes_of_spc() {
        golden(Command::TestUnitReady, &[0; 6]);
        golden(Command::RequestSense { bytes: 252 }, &[3, 0, 0, 0, 252, 0]);
        golden(Command::Inquiry { page: None, bytes: 96 }, &[0x12, 0, 0, 0, 96, 0]);
        let page = Some(0xb6);
        golden(Command::Inquiry { page, bytes: 0x140 }, &[0x12, 1, 0xb6, 1, 0x40, 0]);
        let caching = [0x5a, 0x08, 0x08, 0, 0, 0, 0, 1, 0, 0];
        golden(Command::ModeSense { page: 8, bytes: 256 }, &caching);
    }

    /// SBC-4: START STOP UNIT, READ CAPACITY(16), READ(16), WRITE(16), SYNCHRONIZE CACHE(16).
    #[test]
    fn block_commands_have_bytes_of_sbc() {
        golden(Command::Start, &[0x1b, 0, 0, 0, 1, 0]);
        let capacity = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
        golden(Command::ReadCapacity { bytes: 32 }, &capacity);
        let range = |durability| BlockRange {
            first: Lba::new(0x0102_0304_0506_0708),
            blocks: 0x090a_0b0c,
            durability,
        };
        let read = [0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
        golden(Command::Read(range(Durability::Volatile)), &read);
        let write = [0x8a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
        golden(Command::Write(range(Durability::Durable)), &write);
        let mut flush = [0; 16];
        flush[0] = 0x91;
        golden(Command::SynchronizeCache, &flush);
    }

    /// ZBC-2: REPORT ZONES, CLOSE ZONE, FINISH ZONE, OPEN ZONE, RESET WRITE POINTER.
    #[test]
    fn zone_commands_have_bytes_of_zbc() {
        let report = ReportZones {
            first: Lba::new(0x0008_0000),
            bytes: 0x1_0000,
            only: ZoneFilter::All,
            count: ReportCount::Reported,
        };
        let bytes = [0x95, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0x80, 0];
        golden(Command::ReportZones(report), &bytes);
        let full = ZoneFilter::Condition(ZoneCond::Full);
        let report = ReportZones { only: full, count: ReportCount::Matching, ..report };
        let bytes = [0x95, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0x05, 0];
        golden(Command::ReportZones(report), &bytes);
        let zones = SendTarget::Start(Lba::new(0x0008_0000));
        for (action, code) in [
            (ZoneAction::Close, 1),
            (ZoneAction::Finish, 2),
            (ZoneAction::Open, 3),
            (ZoneAction::Reset, 4),
        ] {
            let one = [0x94, code, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
            golden(Command::ManageZones { action, zones }, &one);
            let all = [0x94, code, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            golden(Command::ManageZones { action, zones: SendTarget::All }, &all);
        }
    }

    /// ZBC-2: REPORT REALMS, REPORT ZONE DOMAINS, ZONE ACTIVATE(16), ZONE QUERY(16).
    #[test]
    fn domain_commands_have_bytes_of_zbc() {
        let report = DomainReport { first: Lba::new(0x10), bytes: 512, options: 2 };
        let bytes = [0x95, 6, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 2, 0, 2, 0];
        golden(Command::ReportRealms(report), &bytes);
        let bytes = [0x95, 7, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 2, 0, 2, 0];
        golden(Command::ReportZoneDomains(report), &bytes);
        let zones = SendTarget::Start(Lba::new(0x0102_0304_0506));
        let one = Activation { zones, domain: 1, count: Some(0x0708), bytes: 512 };
        let bytes = [0x95, 8, 0x41, 1, 2, 3, 4, 5, 6, 0, 0, 2, 0, 7, 8, 0];
        golden(Command::ZoneActivate(one), &bytes);
        let all = Activation { zones: SendTarget::All, domain: 2, count: None, bytes: 64 };
        let bytes = [0x95, 9, 0x82, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
        golden(Command::ZoneQuery(all), &bytes);
    }

    #[test]
    fn report_filters_have_codes_of_zbc() {
        let known: Vec<u8> = (0..=0xff).filter(|&c| ZoneFilter::from_code(c).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0x11, 0x3e, 0x3f]);
        for code in known {
            assert_eq!(ZoneFilter::from_code(code).map(ZoneFilter::code), Some(code));
        }
    }

    #[test]
    fn commands_unknown_are_refused() {
        let refused = |bytes: &[u8]| Command::decode(bytes).unwrap_err();
        assert_eq!(refused(&[]), CdbError::Opcode);
        assert_eq!(refused(&[0xff; 16]), CdbError::Opcode);
        assert_eq!(refused(&[0x12, 0, 0]), CdbError::Field, "too short");
        assert_eq!(refused(&[0x12, 0, 0xb6, 0, 0, 0]), CdbError::Field, "a page without EVPD");
        let mut report = [0; 16];
        (report[0], report[14]) = (0x95, 0x09);
        assert_eq!(refused(&report), CdbError::Field, "reserved options");
        report[1] = 0x1f;
        assert_eq!(refused(&report), CdbError::Opcode, "a service action that nobody has");
        let mut flush = [0; 16];
        (flush[0], flush[1]) = (0x91, 2);
        assert_eq!(refused(&flush), CdbError::Field, "IMMED");
    }

    proptest! {
        #[test]
        fn cdb_decode_handles_any_bytes(
            opcode in prop::sample::select(vec![
                0x00_u8, 0x03, 0x12, 0x1b, 0x5a, 0x85, 0x88, 0x8a, 0x91, 0x94, 0x95, 0x9e, 0xff,
            ]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = opcode;
            }
            if let Ok(command) = Command::decode(&bytes) {
                let again = command.encode();
                prop_assert_eq!(Command::decode(again.as_bytes()), Ok(command));
            }
        }
    }
}
