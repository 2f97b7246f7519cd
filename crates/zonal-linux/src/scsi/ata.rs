//! ATA commands inside ATA PASS-THROUGH(16), and the answers of a disk.
//!
//! SATA disks take ZAC commands. Adapters translate SCSI commands to them, and some leave the zone
//! commands out, or translate them wrongly; then the commands go through as they are. SAT-5
//! (ATA PASS-THROUGH (16) command) defines the layout of the CDB, ACS-4 and ZAC-2 define the
//! commands (the clause with the name of each). `zones.rs` decodes reports of zones.

use zonal::nvme::decode::{Durability, SendTarget};
use zonal::{Lba, ZoneAction};

use super::cdb::{BlockRange, Cdb, ReportZones, action_of_code, code_of_action};
use super::number::ByteOrder::{HighFirst, LowFirst};
use super::number::padded;

/// Bytes of a page of data, which ATA counts in.
pub const PAGE_BYTES: usize = 512;

/// Most blocks of one command: 65536 would be written as 0, which some adapters take for none.
pub const BLOCKS_MAX: u32 = 0xffff;

/// COMMAND.
mod opcode {
    pub(super) const READ_DMA_EXT: u8 = 0x25;
    pub(super) const READ_LOG_EXT: u8 = 0x2f;
    pub(super) const WRITE_DMA_EXT: u8 = 0x35;
    pub(super) const WRITE_DMA_FUA_EXT: u8 = 0x3d;
    pub(super) const ZAC_MANAGEMENT_IN: u8 = 0x4a;
    pub(super) const ZAC_MANAGEMENT_OUT: u8 = 0x9f;
    pub(super) const FLUSH_CACHE_EXT: u8 = 0xea;
    pub(super) const IDENTIFY_DEVICE: u8 = 0xec;
}

/// PROTOCOL, byte 1 of the CDB.
mod protocol {
    pub(super) const NON_DATA: u8 = 3;
    pub(super) const PIO_IN: u8 = 4;
    pub(super) const DMA: u8 = 6;
}

/// EXT, byte 1 of the CDB: registers of 48 bits.
const EXTENDED: u8 = 1;
/// Byte 2 of the CDB for data from the disk: `T_DIR`, `BYT_BLOK`, `T_LENGTH` in COUNT.
const FROM_DISK: u8 = 0x0e;
/// Byte 2 for data to the disk.
const TO_DISK: u8 = 0x06;
/// `T_TYPE` in byte 2: COUNT is in logical blocks, not in pages of 512 bytes.
const IN_BLOCKS: u8 = 0x10;
/// LBA, bit 6 of DEVICE.
const LBA_MODE: u8 = 0x40;
/// ALL, bit 8 of FEATURES of ZAC MANAGEMENT OUT.
const ALL: u16 = 1 << 8;

/// The unit of COUNT of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountUnit {
    /// Pages of 512 bytes, for disks whose logical blocks have that size.
    Pages,
    /// Logical blocks of another size.
    Blocks,
}

/// An ATA command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtaCommand {
    /// IDENTIFY DEVICE: [`Identification`].
    Identify,
    /// READ LOG EXT of one page: [`ZonedInformation`] is page 09h of log 30h.
    ReadLog {
        /// LOG ADDRESS.
        log: u8,
        /// PAGE NUMBER.
        page: u16,
    },
    /// REPORT ZONES EXT of ZAC MANAGEMENT IN. The length is rounded down to pages.
    ReportZones(ReportZones),
    /// CLOSE ZONE EXT, FINISH ZONE EXT, OPEN ZONE EXT and RESET WRITE POINTER EXT of ZAC MANAGEMENT
    /// OUT.
    ManageZones {
        /// Which of them.
        action: ZoneAction,
        /// ALL, or ZONE ID.
        zones: SendTarget,
    },
    /// READ DMA EXT.
    Read(BlockRange, CountUnit),
    /// WRITE DMA EXT, or WRITE DMA FUA EXT.
    Write(BlockRange, CountUnit),
    /// FLUSH CACHE EXT.
    Flush,
}

/// Log address and page number of [`ZonedInformation`] (ACS-4, IDENTIFY DEVICE data log).
pub const ZONED_INFORMATION: (u8, u16) = (0x30, 0x09);

/// The registers of a command, and the bytes 1 and 2 of the CDB.
#[derive(Clone, Copy)]
struct TaskFile {
    how: u8,
    transfer: u8,
    features: u16,
    count: u16,
    lba: u64,
    device: u8,
    command: u8,
}

impl TaskFile {
    fn new(protocol: u8, transfer: u8, command: u8) -> Self {
        let how = protocol << 1 | EXTENDED;
        Self { how, transfer, features: 0, count: 0, lba: 0, device: LBA_MODE, command }
    }

    fn put_in(self, cdb: Cdb) -> Cdb {
        let lba = self.lba.to_le_bytes().map(u64::from);
        cdb.with(1, 1, self.how.into())
            .with(2, 1, self.transfer.into())
            .with(3, 2, self.features.into())
            .with(5, 2, self.count.into())
            .with(7, 1, lba[3])
            .with(8, 1, lba[0])
            .with(9, 1, lba[4])
            .with(10, 1, lba[1])
            .with(11, 1, lba[5])
            .with(12, 1, lba[2])
            .with(13, 1, self.device.into())
            .with(14, 1, self.command.into())
    }

    fn take_from(cdb: &[u8; 16]) -> Self {
        let lba = [cdb[8], cdb[10], cdb[12], cdb[7], cdb[9], cdb[11]];
        Self {
            how: cdb[1],
            transfer: cdb[2],
            features: HighFirst.u16(&cdb[3..5]),
            count: HighFirst.u16(&cdb[5..7]),
            lba: LowFirst.u64(&lba),
            device: cdb[13],
            command: cdb[14],
        }
    }

    fn range(self, durability: Durability) -> (BlockRange, CountUnit) {
        let unit =
            if self.transfer & IN_BLOCKS == 0 { CountUnit::Pages } else { CountUnit::Blocks };
        let blocks = match self.count {
            0 => 1 << 16,
            blocks => blocks.into(),
        };
        (BlockRange { first: Lba::new(self.lba), blocks, durability }, unit)
    }
}

impl AtaCommand {
    /// Encodes the command into a CDB of ATA PASS-THROUGH(16).
    pub(super) fn encode(&self, cdb: Cdb) -> Cdb {
        use protocol::{DMA, NON_DATA, PIO_IN};
        let file = match *self {
            Self::Identify => TaskFile {
                how: PIO_IN << 1,
                count: 1,
                device: 0,
                ..TaskFile::new(PIO_IN, FROM_DISK, opcode::IDENTIFY_DEVICE)
            },
            Self::ReadLog { log, page } => TaskFile {
                count: 1,
                lba: u64::from(log) | u64::from(page & 0xff) << 8 | u64::from(page >> 8) << 32,
                device: 0,
                ..TaskFile::new(PIO_IN, FROM_DISK, opcode::READ_LOG_EXT)
            },
            Self::ReportZones(report) => TaskFile {
                features: u16::from(report.options()) << 8,
                count: u16::try_from(report.bytes as usize / PAGE_BYTES).unwrap_or(u16::MAX),
                lba: report.first.get(),
                ..TaskFile::new(DMA, FROM_DISK, opcode::ZAC_MANAGEMENT_IN)
            },
            Self::ManageZones { action, zones } => {
                let action = u16::from(code_of_action(action));
                let (features, lba) = match zones {
                    SendTarget::Start(zone) => (action, zone.get()),
                    SendTarget::All => (action | ALL, 0),
                };
                let file = TaskFile::new(NON_DATA, 0, opcode::ZAC_MANAGEMENT_OUT);
                TaskFile { features, lba, ..file }
            }
            Self::Read(range, unit) => {
                transfer_of(range, unit, TaskFile::new(DMA, FROM_DISK, opcode::READ_DMA_EXT))
            }
            Self::Write(range, unit) => {
                let command = match range.durability {
                    Durability::Volatile => opcode::WRITE_DMA_EXT,
                    Durability::Durable => opcode::WRITE_DMA_FUA_EXT,
                };
                transfer_of(range, unit, TaskFile::new(DMA, TO_DISK, command))
            }
            Self::Flush => {
                TaskFile { device: 0, ..TaskFile::new(NON_DATA, 0, opcode::FLUSH_CACHE_EXT) }
            }
        };
        file.put_in(cdb)
    }

    /// Decodes the command of a CDB; `None` if it is none of these.
    pub(super) fn decode(cdb: &[u8; 16]) -> Option<Self> {
        let file = TaskFile::take_from(cdb);
        match file.command {
            opcode::IDENTIFY_DEVICE => Some(Self::Identify),
            opcode::READ_LOG_EXT => {
                let lba = file.lba.to_le_bytes();
                Some(Self::ReadLog { log: lba[0], page: LowFirst.u16(&[lba[1], lba[4]]) })
            }
            opcode::ZAC_MANAGEMENT_IN if file.features.to_le_bytes()[0] == 0 => {
                let options = file.features.to_le_bytes()[1];
                let bytes = u32::from(file.count) * 512;
                let report = ReportZones::from_options(options, Lba::new(file.lba), bytes)?;
                Some(Self::ReportZones(report))
            }
            opcode::ZAC_MANAGEMENT_OUT => {
                let action = action_of_code(file.features.to_le_bytes()[0])?;
                let zones = match file.features & ALL {
                    0 => SendTarget::Start(Lba::new(file.lba)),
                    _ => SendTarget::All,
                };
                Some(Self::ManageZones { action, zones })
            }
            opcode::READ_DMA_EXT => {
                let (range, unit) = file.range(Durability::Volatile);
                Some(Self::Read(range, unit))
            }
            opcode::WRITE_DMA_EXT => {
                let (range, unit) = file.range(Durability::Volatile);
                Some(Self::Write(range, unit))
            }
            opcode::WRITE_DMA_FUA_EXT => {
                let (range, unit) = file.range(Durability::Durable);
                Some(Self::Write(range, unit))
            }
            opcode::FLUSH_CACHE_EXT => Some(Self::Flush),
            _ => None,
        }
    }
}

fn transfer_of(range: BlockRange, unit: CountUnit, file: TaskFile) -> TaskFile {
    let in_blocks = match unit {
        CountUnit::Pages => 0,
        CountUnit::Blocks => IN_BLOCKS,
    };
    TaskFile {
        transfer: file.transfer | in_blocks,
        // 65536 blocks are 0.
        count: LowFirst.u16(&range.blocks.to_le_bytes()[..2]),
        lba: range.first.get(),
        ..file
    }
}

/// The part of the answer to IDENTIFY DEVICE that a host of zones needs (ACS-4, IDENTIFY DEVICE
/// data). Words have 16 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identification {
    /// SERIAL NUMBER, words 10 to 19, without the bytes of each word swapped.
    pub serial: [u8; 20],
    /// MODEL NUMBER, words 27 to 46, in the same way.
    pub model: [u8; 40],
    /// WORLD WIDE NAME, words 108 to 111, if word 87 says that it is there.
    pub name: Option<u64>,
    /// Whether the volatile write cache is enabled: word 85, bit 5.
    pub cache: WriteCacheBit,
    /// Whether the disk reads ahead into its cache: word 85, bit 6.
    pub looks_ahead: bool,
    /// Native command queueing, if word 76 says that it is there.
    pub queue: Option<NativeQueue>,
    /// NOMINAL MEDIA ROTATION RATE, word 217, in turns a minute; 0: not reported, 1: nothing turns.
    pub rotation_rate: u16,
}

/// Native command queueing (NCQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeQueue {
    /// Commands that may be in flight: QUEUE DEPTH, word 75, and one more.
    pub depth: u8,
    /// Whether commands may have a priority: word 76, bit 12.
    pub has_priority: bool,
}

impl NativeQueue {
    /// NCQ supported, word 76.
    const SUPPORTED: u16 = 1 << 8;
    /// NCQ priority information supported, word 76.
    const PRIORITY: u16 = 1 << 12;
}

/// The write cache of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCacheBit {
    /// It is enabled.
    Enabled,
    /// There is none, or it is disabled.
    Disabled,
}

impl Identification {
    /// Decodes an answer; missing bytes are zero.
    pub fn decode(answer: &[u8]) -> Self {
        let bytes: [u8; PAGE_BYTES] = padded(answer);
        let word = |number: usize| LowFirst.u16(&bytes[2 * number..2 * number + 2]);
        // Word 87: bit 8 stands for the name, bits 15 and 14 are 0 and 1 where the word is valid.
        let named = word(87) & 0xc100 == 0x4100;
        let name = (108..112).fold(0, |name, number| name << 16 | u64::from(word(number)));
        let cache = match word(85) & 1 << 5 {
            0 => WriteCacheBit::Disabled,
            _ => WriteCacheBit::Enabled,
        };
        let abilities = word(76);
        let has_queue = abilities != u16::MAX && abilities & NativeQueue::SUPPORTED != 0;
        let queue = has_queue.then(|| NativeQueue {
            depth: (bytes[2 * 75] & 0x1f) + 1,
            has_priority: abilities & NativeQueue::PRIORITY != 0,
        });
        Self {
            serial: swapped(padded(&bytes[20..40])),
            model: swapped(padded(&bytes[54..94])),
            name: named.then_some(name),
            cache,
            looks_ahead: word(85) & 1 << 6 != 0,
            queue,
            rotation_rate: word(217),
        }
    }

    /// Encodes an answer.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        bytes[20..40].copy_from_slice(&swapped(self.serial));
        bytes[54..94].copy_from_slice(&swapped(self.model));
        if self.cache == WriteCacheBit::Enabled {
            bytes[2 * 85] = 1 << 5;
        }
        bytes[2 * 85] |= u8::from(self.looks_ahead) << 6;
        if let Some(NativeQueue { depth, has_priority }) = self.queue {
            let priority = if has_priority { NativeQueue::PRIORITY } else { 0 };
            bytes[2 * 75] = depth.saturating_sub(1) & 0x1f;
            LowFirst.store((NativeQueue::SUPPORTED | priority).into(), &mut bytes[152..154]);
        }
        LowFirst.store(self.rotation_rate.into(), &mut bytes[434..436]);
        if let Some(name) = self.name {
            bytes[2 * 87 + 1] = 0x41;
            let words = [name >> 48, name >> 32, name >> 16, name];
            for (word, to) in words.into_iter().zip(bytes[2 * 108..].chunks_exact_mut(2)) {
                LowFirst.store(word, to);
            }
        }
        bytes
    }
}

/// Text of ATA has the second byte of each word first.
fn swapped<const N: usize>(mut text: [u8; N]) -> [u8; N] {
    for word in text.chunks_exact_mut(2) {
        word.swap(0, 1);
    }
    text
}

/// Zoned Device Information, page 09h of the IDENTIFY DEVICE data log (ZAC-2, clause of that name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedInformation {
    /// MAXIMUM NUMBER OF OPEN SEQUENTIAL WRITE REQUIRED ZONES; `None`: no limit, or not reported.
    pub max_open: Option<u32>,
}

impl ZonedInformation {
    /// Where a field of eight bytes is valid.
    const VALID: u64 = 1 << 63;

    /// Decodes the page; `None` if it is another one.
    pub fn decode(page: &[u8]) -> Option<Self> {
        let bytes: [u8; PAGE_BYTES] = padded(page);
        let header = LowFirst.u64(&bytes[..8]);
        if header & Self::VALID == 0 || header >> 16 & 0xff != u64::from(ZONED_INFORMATION.1) {
            return None;
        }
        let max_open = LowFirst.u64(&bytes[40..48]);
        let limit = LowFirst.u32(&bytes[40..44]);
        let is_limit = max_open & Self::VALID != 0 && limit != 0 && limit != u32::MAX;
        Some(Self { max_open: is_limit.then_some(limit) })
    }

    /// Encodes the page.
    pub fn encode(self) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        let header = Self::VALID | u64::from(ZONED_INFORMATION.1) << 16 | 1;
        LowFirst.store(header, &mut bytes[..8]);
        let limit = u64::from(self.max_open.unwrap_or(u32::MAX));
        LowFirst.store(Self::VALID | limit, &mut bytes[40..48]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonal::nvme::decode::ReportCount;

    use super::super::cdb::{Command, ZoneFilter};
    use super::*;

    fn golden(command: AtaCommand, bytes: [u8; 16]) {
        assert_eq!(Command::Ata(command).encode().as_bytes(), bytes, "{command:?}");
        assert_eq!(Command::decode(&bytes), Ok(Command::Ata(command)), "{bytes:02x?}");
    }

    const RANGE: BlockRange = BlockRange {
        first: Lba::new(0x0102_0304_0506),
        blocks: 0x0708,
        durability: Durability::Volatile,
    };

    /// SAT-5, ATA PASS-THROUGH (16); ACS-4, IDENTIFY DEVICE, READ LOG EXT, READ DMA EXT, WRITE DMA
    /// EXT, WRITE DMA FUA EXT, FLUSH CACHE EXT.
    #[test]
    fn ata_commands_have_bytes_of_sat() {
        golden(AtaCommand::Identify, [0x85, 0x08, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xec, 0]);
        let log = AtaCommand::ReadLog { log: 0x30, page: 0x0109 };
        golden(log, [0x85, 0x09, 0x0e, 0, 0, 0, 1, 0, 0x30, 1, 9, 0, 0, 0, 0x2f, 0]);
        let read = [0x85, 0x0d, 0x0e, 0, 0, 7, 8, 3, 6, 2, 5, 1, 4, 0x40, 0x25, 0];
        golden(AtaCommand::Read(RANGE, CountUnit::Pages), read);
        let write = [0x85, 0x0d, 0x16, 0, 0, 7, 8, 3, 6, 2, 5, 1, 4, 0x40, 0x35, 0];
        golden(AtaCommand::Write(RANGE, CountUnit::Blocks), write);
        let durable = BlockRange { durability: Durability::Durable, ..RANGE };
        let write = [0x85, 0x0d, 0x06, 0, 0, 7, 8, 3, 6, 2, 5, 1, 4, 0x40, 0x3d, 0];
        golden(AtaCommand::Write(durable, CountUnit::Pages), write);
        golden(AtaCommand::Flush, [0x85, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xea, 0]);
    }

    /// ZAC-2, REPORT ZONES EXT, CLOSE ZONE EXT to RESET WRITE POINTER EXT.
    #[test]
    fn ata_zone_commands_have_bytes_of_zac() {
        let report = ReportZones {
            first: RANGE.first,
            bytes: 0x0102 * 512,
            only: ZoneFilter::ResetRecommended,
            count: ReportCount::Reported,
        };
        let bytes = [0x85, 0x0d, 0x0e, 0x90, 0, 1, 2, 3, 6, 2, 5, 1, 4, 0x40, 0x4a, 0];
        golden(AtaCommand::ReportZones(report), bytes);
        let zones = SendTarget::Start(RANGE.first);
        let finish = [0x85, 0x07, 0, 0, 2, 0, 0, 3, 6, 2, 5, 1, 4, 0x40, 0x9f, 0];
        golden(AtaCommand::ManageZones { action: ZoneAction::Finish, zones }, finish);
        let all = AtaCommand::ManageZones { action: ZoneAction::Reset, zones: SendTarget::All };
        golden(all, [0x85, 0x07, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x9f, 0]);
    }

    /// ACS-4, IDENTIFY DEVICE data: words 10, 27, 75, 76, 85, 87, 108 and 217.
    #[test]
    fn identification_has_words_of_acs() {
        let mut bytes = [0; PAGE_BYTES];
        bytes[20..24].copy_from_slice(b"2143");
        bytes[54..58].copy_from_slice(b"aTep");
        (bytes[170], bytes[175]) = (0x60, 0x41);
        (bytes[150], bytes[153]) = (31, 0x11);
        bytes[434..436].copy_from_slice(&[0x20, 0x1c]);
        bytes[216..224].copy_from_slice(&[0, 0x50, 0xca, 0xc5, 1, 0, 2, 0]);
        let found = Identification::decode(&bytes);
        assert_eq!((&found.serial[..4], &found.model[..4]), (&b"1234"[..], &b"Tape"[..]));
        assert_eq!(found.name, Some(0x5000_c5ca_0001_0002));
        assert_eq!((found.cache, found.looks_ahead), (WriteCacheBit::Enabled, true));
        assert_eq!(found.queue, Some(NativeQueue { depth: 32, has_priority: true }));
        assert_eq!(found.rotation_rate, 7200);
        assert_eq!(found.encode(), bytes);
        bytes[152..154].fill(0xff);
        assert_eq!(Identification::decode(&bytes).queue, None, "word 76 is not valid");
    }

    /// ZAC-2, Zoned Device Information.
    #[test]
    fn zoned_information_has_limit_of_open_zones() {
        let page = |limit: [u8; 8]| {
            let mut bytes = [0; PAGE_BYTES];
            bytes[..8].copy_from_slice(&[1, 0, 9, 0, 0, 0, 0, 0x80]);
            bytes[40..48].copy_from_slice(&limit);
            bytes
        };
        let limited = page([128, 0, 0, 0, 0, 0, 0, 0x80]);
        let found = ZonedInformation::decode(&limited).unwrap();
        assert_eq!(found.max_open, Some(128));
        assert_eq!(found.encode(), limited);
        for none in [[128, 0, 0, 0, 0, 0, 0, 0], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x80]] {
            assert_eq!(ZonedInformation::decode(&page(none)).unwrap().max_open, None);
        }
        assert_eq!(ZonedInformation::decode(&[0; PAGE_BYTES]), None);
    }

    proptest! {
        #[test]
        fn ata_answers_decode_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let found = Identification::decode(&bytes);
            prop_assert_eq!(Identification::decode(&found.encode()), found);
            if let Some(found) = ZonedInformation::decode(&bytes) {
                prop_assert_eq!(ZonedInformation::decode(&found.encode()), Some(found));
            }
        }
    }
}
