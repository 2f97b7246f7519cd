//! A SCSI or SATA drive in memory: decodes commands as a drive does, performs them on any zoned
//! device, and fails when a test asks for it, as drives in the field do.
//!
//! It is strict: it refuses reads beyond the write pointer (URSWRZ is 0), writes of less than a
//! physical block, and reports with another length than their memory, as `libata` does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use zonal::nvme::decode::{ReportCount, SendTarget};
use zonal::{
    DeviceError, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneKind, ZonedDevice,
};

use super::super::ata::{
    AtaCommand, Identification, NativeQueue, WriteCacheBit, ZONED_INFORMATION, ZonedInformation,
};
use super::super::cdb::{BlockRange, CdbError, Command, ReportZones, ZoneFilter};
use super::super::inquiry::{
    BlockLimits, CACHING, CONTROL, Caching, Capacity, Characteristics, Inquiry, WriteCache,
    ZonedCharacteristics, encode_control, encode_page, page,
};
use super::super::number::ByteOrder::{self, HighFirst, LowFirst};
use super::super::sense::{AtaRegisters, Sense, key};
use super::super::transport::{Reply, Request, Transport, status};
use super::super::zones::{Descriptor, ENTRY_BYTES, ReportHeader, ZoneType};
use crate::data::Data;

/// Bytes of a command at most, so that tests have commands to split.
pub(super) const BYTES_MAX: u64 = 64 << 10;

/// What commands do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Report,
    Manage,
    Flush,
    Question,
}

impl Kind {
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Read(_) | Command::Ata(AtaCommand::Read(..)) => Self::Read,
            Command::Write(_) | Command::Ata(AtaCommand::Write(..)) => Self::Write,
            Command::ReportZones(_) | Command::Ata(AtaCommand::ReportZones(_)) => Self::Report,
            Command::ManageZones { .. } | Command::Ata(AtaCommand::ManageZones { .. }) => {
                Self::Manage
            }
            Command::SynchronizeCache | Command::Ata(AtaCommand::Flush) => Self::Flush,
            _ => Self::Question,
        }
    }
}

/// When a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Before the drive does anything.
    Before,
    /// After the drive has performed it.
    After,
}

/// The answer to a command that fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Sense(Sense),
    Status(u8),
    Host(u16),
    /// The kernel does not let it through.
    Forbidden,
    /// The drive is gone from then on.
    Vanish,
}

/// Commands that are to fail.
struct Plan {
    on: Box<dyn Fn(&Command) -> bool + Send + Sync>,
    times: u32,
    when: When,
    trouble: Trouble,
}

/// How commands reach the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adapter {
    /// As SCSI.
    Scsi,
    /// An adapter that translates no zone commands, no reads and no writes.
    AtaOnly,
}

/// A drive in memory.
pub(super) struct Target {
    pub(super) device: Arc<dyn ZonedDevice>,
    /// log₂ of the drive's blocks in a block of the device: 3 for 512e.
    pub(super) shift: u32,
    adapter: Adapter,
    is_gone: AtomicBool,
    plans: Mutex<Vec<Plan>>,
    /// Every command that arrived.
    pub(super) log: Mutex<Vec<Command>>,
    /// Whether its control mode page says that it takes no writes.
    pub(super) is_protected: AtomicBool,
    /// Whether it stands still until it is started.
    pub(super) is_stopped: AtomicBool,
    /// Whether sense data comes by REQUEST SENSE only, and where it waits.
    pub(super) keeps_sense: AtomicBool,
    kept_sense: Mutex<Option<Sense>>,
    /// Whether sense data of SCSI has the descriptor format (`D_SENSE`).
    pub(super) has_descriptors: AtomicBool,
    /// Changes its report of a zone.
    pub(super) disguise: Mutex<Option<fn(&mut Descriptor)>>,
    /// The zone domain of each realm; empty if it has none.
    pub(super) realms: Mutex<Vec<u8>>,
}

/// Zones of each realm in the two zone domains. The domains lie one behind the other.
pub(super) const REALM_ZONES: [u64; 2] = [1, 2];

type Performed = Result<usize, Sense>;

const fn illegal(asc: u8, ascq: u8) -> Sense {
    Sense::new(key::ILLEGAL_REQUEST, asc, ascq)
}

pub(super) const INVALID_OPCODE: Sense = illegal(0x20, 0);
pub(super) const INVALID_FIELD: Sense = illegal(0x24, 0);
const OUT_OF_RANGE: Sense = illegal(0x21, 0);
const UNALIGNED_WRITE: Sense = illegal(0x21, 4);
const WRITE_BOUNDARY: Sense = illegal(0x21, 5);
const READ_INVALID_DATA: Sense = illegal(0x21, 6);
const READ_BOUNDARY: Sense = illegal(0x21, 7);
const GAP_ZONE: Sense = illegal(0x21, 9);
const LENGTH_ERROR: Sense = illegal(0x1a, 0);

impl Target {
    pub(super) fn new(device: Arc<dyn ZonedDevice>, shift: u32, adapter: Adapter) -> Arc<Self> {
        Arc::new(Self {
            device,
            shift,
            adapter,
            is_gone: AtomicBool::default(),
            plans: Mutex::default(),
            log: Mutex::default(),
            is_protected: AtomicBool::default(),
            is_stopped: AtomicBool::default(),
            keeps_sense: AtomicBool::default(),
            kept_sense: Mutex::default(),
            has_descriptors: AtomicBool::default(),
            disguise: Mutex::default(),
            realms: Mutex::default(),
        })
    }

    /// Makes the next `times` commands of a kind fail.
    pub(super) fn fail(&self, kind: Kind, times: u32, when: When, trouble: Trouble) {
        self.fail_if(move |command| Kind::of(command) == kind, times, when, trouble);
    }

    /// Makes the next `times` commands fail that `on` selects.
    pub(super) fn fail_if(
        &self,
        on: impl Fn(&Command) -> bool + Send + Sync + 'static,
        times: u32,
        when: When,
        trouble: Trouble,
    ) {
        self.plans.lock().unwrap().push(Plan { on: Box::new(on), times, when, trouble });
    }

    /// Drops all plans.
    pub(super) fn recover(&self) {
        self.plans.lock().unwrap().clear();
    }

    /// How many commands of a kind arrived.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.log.lock().unwrap().iter().filter(|command| Kind::of(command) == kind).count()
    }

    fn planned(&self, command: &Command) -> Option<(When, Trouble)> {
        let mut plans = self.plans.lock().unwrap();
        let plan = plans.iter_mut().find(|plan| plan.times > 0 && (plan.on)(command))?;
        plan.times -= 1;
        Some((plan.when, plan.trouble))
    }

    fn block_bytes(&self) -> u32 {
        u32::try_from(self.device.geometry().block_size().bytes()).unwrap() >> self.shift
    }

    fn last(&self) -> u64 {
        (self.device.geometry().block_count().get() << self.shift) - 1
    }

    fn perform(&self, command: &Command, data: &mut Data<'_>) -> Performed {
        let by_scsi = || match self.adapter {
            Adapter::Scsi => Ok(()),
            Adapter::AtaOnly => Err(INVALID_OPCODE),
        };
        let is_question = matches!(command, Command::Inquiry { .. } | Command::RequestSense { .. });
        if *command == Command::Start {
            self.is_stopped.store(false, Ordering::Release);
        } else if self.is_stopped.load(Ordering::Acquire) && !is_question {
            return Err(Sense::new(key::NOT_READY, 4, 2));
        }
        match *command {
            Command::TestUnitReady | Command::Start => Ok(0),
            Command::RequestSense { bytes } => {
                let kept = self.kept_sense.lock().unwrap().take();
                fill(data, bytes.into(), &kept.unwrap_or(Sense::new(0, 0, 0)).encode_fixed())
            }
            Command::Inquiry { page, bytes } => fill(data, bytes.into(), &self.inquiry(page)?),
            Command::ModeSense { page: CACHING, bytes } => {
                let caching = Caching { write: WriteCache::Volatile, reads: true };
                fill(data, bytes.into(), &caching.encode())
            }
            Command::ModeSense { page: CONTROL, bytes } => {
                let is_protected = self.is_protected.load(Ordering::Acquire);
                fill(data, bytes.into(), &encode_control(is_protected))
            }
            Command::ModeSense { .. } => Err(INVALID_FIELD),
            Command::ReadCapacity { bytes } => {
                let capacity = Capacity {
                    last: self.last(),
                    block_bytes: self.block_bytes(),
                    physical_exponent: u8::try_from(self.shift).unwrap(),
                    lowest_aligned: 0,
                    basis: 1,
                };
                fill(data, bytes as usize, &capacity.encode())
            }
            Command::Read(range) => by_scsi().and_then(|()| self.read(range, data)),
            Command::Write(range) => by_scsi().and_then(|()| self.write(range, data)),
            Command::SynchronizeCache => by_scsi().and_then(|()| self.flush()),
            Command::ReportZones(report) => {
                by_scsi().and_then(|()| self.report(report, HighFirst, data))
            }
            Command::ManageZones { action, zones } => {
                by_scsi().and_then(|()| self.manage(action, zones))
            }
            Command::ReportRealms(report) => {
                fill(data, report.bytes as usize, &self.list_realms()?)
            }
            Command::ReportZoneDomains(report) => {
                fill(data, report.bytes as usize, &self.list_domains()?)
            }
            Command::ZoneActivate(what) => {
                let mut result = self.query(what)?;
                if result.flags == 0 {
                    let realm = self.realm_at(what)?;
                    self.realms.lock().unwrap()[realm] = what.domain;
                    result.activated = true;
                }
                fill(data, what.bytes as usize, &result.encode())
            }
            Command::ZoneQuery(what) => {
                fill(data, what.bytes as usize, &self.query(what)?.encode())
            }
            Command::Ata(command) => self.perform_ata(command, data).map_err(sense_of_ata),
        }
    }

    fn perform_ata(&self, command: AtaCommand, data: &mut Data<'_>) -> Performed {
        match command {
            AtaCommand::Identify => {
                let (mut serial, mut model) = ([b' '; 20], [b' '; 40]);
                serial[..8].copy_from_slice(b"9JG1WXYZ");
                model[..4].copy_from_slice(b"Tape");
                let (name, cache) = (Some(0x5000_cca2_64d4_a039), WriteCacheBit::Enabled);
                let queue = Some(NativeQueue { depth: 32, has_priority: true });
                let (looks_ahead, rotation_rate) = (true, 5400);
                let disk = Identification {
                    serial,
                    model,
                    name,
                    cache,
                    looks_ahead,
                    queue,
                    rotation_rate,
                };
                fill(data, 512, &disk.encode())
            }
            AtaCommand::ReadLog { log, page } if (log, page) == ZONED_INFORMATION => {
                let max_open = self.device.geometry().max_open();
                fill(data, 512, &ZonedInformation { max_open }.encode())
            }
            AtaCommand::ReadLog { .. } => Err(INVALID_FIELD),
            AtaCommand::ReportZones(report) => self.report(report, LowFirst, data),
            AtaCommand::ManageZones { action, zones } => self.manage(action, zones),
            AtaCommand::Read(range, _) => self.read(range, data),
            AtaCommand::Write(range, _) => self.write(range, data),
            AtaCommand::Flush => self.flush(),
        }
    }

    fn inquiry(&self, page: Option<u8>) -> Result<Vec<u8>, Sense> {
        let geometry = self.device.geometry();
        let (device_type, zoned) = match geometry.sequential_kind() {
            ZoneKind::SequentialPreferred => (Inquiry::DISK, Characteristics::HOST_AWARE),
            ZoneKind::SequentialRequired | ZoneKind::Conventional => (Inquiry::HOST_MANAGED, 0),
        };
        let content: Vec<u8> = match page {
            None => {
                let (vendor, product) = (*b"ATA     ", *b"HGST HSH721414AL");
                return Ok(Inquiry { device_type, vendor, product }.encode().to_vec());
            }
            // Such adapters have few pages.
            Some(page) if self.adapter == Adapter::AtaOnly && page > page::SUPPORTED => {
                return Err(INVALID_FIELD);
            }
            Some(page::SUPPORTED) => vec![0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb6],
            Some(page::SERIAL) => b"9JG1WXYZ            ".to_vec(),
            Some(page::IDENTIFICATION) => {
                vec![1, 3, 0, 8, 0x50, 0, 0xcc, 0xa2, 0x64, 0xd4, 0xa0, 0x39]
            }
            Some(page::LIMITS) => BlockLimits { transfer_max: Some(1 << 16) }.encode().to_vec(),
            Some(page::CHARACTERISTICS) => {
                Characteristics { rotation_rate: 7200, zoned }.encode().to_vec()
            }
            Some(page::ZONED) => {
                let has_gaps = geometry.spec().zone_capacity < geometry.zone_size();
                let zoned = ZonedCharacteristics {
                    unrestricted_reads: false,
                    optimal_open: None,
                    max_open: geometry.max_open(),
                    alignment: if has_gaps { 8 } else { 1 },
                    granularity: geometry.zone_size().get() << self.shift,
                };
                zoned.encode().to_vec()
            }
            Some(_) => return Err(INVALID_FIELD),
        };
        Ok(encode_page(device_type, page.unwrap_or(0), &content))
    }

    /// The range in blocks of the device; `wrong` if it is of no whole ones.
    fn locate(
        &self,
        range: BlockRange,
        len: usize,
        wrong: Sense,
    ) -> Result<(Lba, LbaCount), Sense> {
        let (first, blocks) = (range.first.get(), u64::from(range.blocks));
        if len as u64 != blocks * u64::from(self.block_bytes()) {
            return Err(LENGTH_ERROR);
        }
        if first.checked_add(blocks).is_none_or(|end| end > self.last() + 1) {
            return Err(OUT_OF_RANGE);
        }
        let is_whole = |number: u64| number.is_multiple_of(1 << self.shift);
        if !is_whole(first) || !is_whole(blocks) {
            return Err(wrong);
        }
        Ok((Lba::new(first >> self.shift), LbaCount::new(blocks >> self.shift)))
    }

    fn read(&self, range: BlockRange, data: &mut Data<'_>) -> Performed {
        let Data::Fill(target) = data else { return Err(LENGTH_ERROR) };
        let (lba, blocks) = self.locate(range, target.len(), INVALID_FIELD)?;
        let geometry = self.device.geometry();
        let (id, offset) = geometry.locate(lba);
        if geometry.kind(id).is_sequential() {
            let zone = self.device.zone(id).map_err(|error| sense_of(&error))?;
            let end = offset + blocks;
            if end > zone.size {
                return Err(READ_BOUNDARY);
            }
            if end > zone.capacity {
                return Err(GAP_ZONE);
            }
            if zone.written().is_some_and(|written| end > written) {
                return Err(READ_INVALID_DATA);
            }
        }
        self.device.read(lba, target).map_err(|error| sense_of(&error))?;
        Ok(target.len())
    }

    fn write(&self, range: BlockRange, data: &mut Data<'_>) -> Performed {
        let Data::Take(data) = data else { return Err(LENGTH_ERROR) };
        let (lba, _) = self.locate(range, data.len(), UNALIGNED_WRITE)?;
        let (zone, offset) = self.device.geometry().locate(lba);
        if offset >= self.device.geometry().capacity_of(zone) {
            return Err(GAP_ZONE);
        }
        self.device.write(lba, data).map_err(|error| sense_of(&error))?;
        Ok(data.len())
    }

    fn flush(&self) -> Performed {
        self.device.flush().map(|()| 0).map_err(|error| sense_of(&error))
    }

    fn manage(&self, action: ZoneAction, zones: SendTarget) -> Performed {
        let geometry = self.device.geometry();
        let zones = match zones {
            SendTarget::All => Select::All,
            SendTarget::Start(start) if start.get() > self.last() => return Err(OUT_OF_RANGE),
            SendTarget::Start(start) => {
                let (zone, offset) = geometry.locate(Lba::new(start.get() >> self.shift));
                if offset != LbaCount::ZERO {
                    return Err(INVALID_FIELD);
                }
                Select::One(zone)
            }
        };
        self.device.manage(zones, action).map(|()| 0).map_err(|error| sense_of(&error))
    }

    fn report(&self, what: ReportZones, order: ByteOrder, data: &mut Data<'_>) -> Performed {
        if what.bytes as usize != data.len() || !data.len().is_multiple_of(512) {
            return Err(LENGTH_ERROR);
        }
        if what.first.get() > self.last() {
            return Err(OUT_OF_RANGE);
        }
        let zones = self.device.report_all().map_err(|error| sense_of(&error))?;
        let listed: Vec<Descriptor> = zones
            .iter()
            .flat_map(|zone| self.describe(zone))
            .filter(|zone| zone.start + zone.blocks > what.first && is_listed(zone, what.only))
            .collect();
        let room = (data.len() / ENTRY_BYTES).saturating_sub(1);
        let counted = match what.count {
            ReportCount::Matching => listed.len(),
            ReportCount::Reported => listed.len().min(room),
        };
        let header = ReportHeader {
            list_bytes: u32::try_from(counted * ENTRY_BYTES).unwrap(),
            same: 0,
            last: Lba::new(self.last()),
            granularity: LbaCount::ZERO,
        };
        let mut report = header.encode(order).to_vec();
        report.extend(listed.iter().take(room).flat_map(|zone| zone.encode(order)));
        fill(data, what.bytes as usize, &report)
    }

    /// A zone as the drive reports it, and the gap zone behind it.
    fn describe(&self, zone: &Zone) -> Vec<Descriptor> {
        let kind = ZoneType::from_code(zone.kind.code()).unwrap();
        let scaled = |blocks: LbaCount| LbaCount::new(blocks.get() << self.shift);
        let described = Descriptor {
            kind,
            cond: Some(zone.cond).filter(|_| self.is_active(zone)),
            non_sequential: zone.non_sequential,
            reset_recommended: false,
            blocks: scaled(zone.capacity),
            start: Lba::new(zone.start.get() << self.shift),
            wp: Lba::new(match zone.cond {
                ZoneCond::Full => u64::MAX,
                _ => zone.wp.map_or(u64::MAX, |wp| wp.get() << self.shift),
            }),
        };
        let gap = Descriptor {
            kind: ZoneType::Gap,
            cond: Some(ZoneCond::NotWp),
            non_sequential: false,
            blocks: scaled(zone.size - zone.capacity),
            start: described.start + described.blocks,
            wp: Lba::new(u64::MAX),
            ..described
        };
        let has_gap = gap.blocks > LbaCount::ZERO;
        let mut all = if has_gap { vec![described, gap] } else { vec![described] };
        if let Some(disguise) = *self.disguise.lock().unwrap() {
            all.iter_mut().for_each(disguise);
        }
        all
    }
}

fn is_listed(zone: &Descriptor, only: ZoneFilter) -> bool {
    match only {
        ZoneFilter::All => true,
        ZoneFilter::Condition(cond) => zone.cond == Some(cond),
        ZoneFilter::Inactive => zone.cond.is_none(),
        ZoneFilter::ResetRecommended => zone.reset_recommended,
        ZoneFilter::NonSequential => zone.non_sequential,
        ZoneFilter::NoGaps => zone.kind != ZoneType::Gap,
    }
}

/// Answers with as many bytes as the host has room for.
fn fill(data: &mut Data<'_>, allocated: usize, answer: &[u8]) -> Performed {
    let Data::Fill(target) = data else { return Err(LENGTH_ERROR) };
    let len = target.len().min(allocated).min(answer.len());
    target[..len].copy_from_slice(&answer[..len]);
    Ok(len)
}

/// The sense data of an error.
fn sense_of(error: &DeviceError) -> Sense {
    match error {
        DeviceError::OutOfRange { .. } | DeviceError::NoSuchZone { .. } => OUT_OF_RANGE,
        DeviceError::NotAtWritePointer { .. } => UNALIGNED_WRITE,
        DeviceError::CrossesZone { .. } => WRITE_BOUNDARY,
        DeviceError::ZoneFull { .. }
        | DeviceError::Transition { .. }
        | DeviceError::Conventional { .. } => INVALID_FIELD,
        DeviceError::ZoneReadOnly { .. } => Sense::new(key::DATA_PROTECT, 0x27, 0x08),
        DeviceError::ZoneOffline { .. } => Sense::new(key::DATA_PROTECT, 0x2c, 0x0e),
        DeviceError::TooManyOpen { .. } => Sense::new(key::DATA_PROTECT, 0x55, 0x0e),
        DeviceError::Medium { .. } => Sense::new(key::MEDIUM, 0x11, 0),
        _ => Sense::new(key::HARDWARE, 0x44, 0),
    }
}

/// The sense data of an ATA disk says less: of most errors, that it aborted the command.
fn sense_of_ata(sense: Sense) -> Sense {
    let ata = Some(AtaRegisters { error: 0x04, status: 0x51 });
    match sense.key {
        key::MEDIUM | key::DATA_PROTECT => Sense { ata, ..sense },
        _ => Sense { ata, ..Sense::new(key::ABORTED, 0, 0) },
    }
}

impl Transport for Arc<Target> {
    fn run(&self, request: &mut Request<'_>) -> io::Result<Reply> {
        assert!(request.data.len() as u64 <= BYTES_MAX && request.timeout_ms > 0);
        if self.is_gone.load(Ordering::Acquire) {
            return Err(Errno::NODEV.into());
        }
        let command = match Command::decode(request.cdb.as_bytes()) {
            Ok(command) => command,
            Err(CdbError::Opcode) => return Ok(refused(INVALID_OPCODE)),
            Err(CdbError::Field) => return Ok(refused(INVALID_FIELD)),
        };
        self.log.lock().unwrap().push(command);
        let plan = self.planned(&command);
        if let Some((When::Before, trouble)) = plan {
            return self.trouble(trouble);
        }
        let len = request.data.len();
        let performed = self.perform(&command, &mut request.data);
        match (plan, performed) {
            (Some((_, trouble)), _) => self.trouble(trouble),
            (None, Ok(bytes)) => {
                Ok(Reply { status: status::GOOD, sense: None, host: 0, residual: len - bytes })
            }
            // Through the bytes of the wire, in both formats.
            (None, Err(sense)) => Ok(self.refuse(sense)),
        }
    }

    fn bytes_max(&self) -> u64 {
        BYTES_MAX
    }
}

impl Target {
    fn refuse(&self, sense: Sense) -> Reply {
        if self.keeps_sense.load(Ordering::Acquire) {
            *self.kept_sense.lock().unwrap() = Some(sense);
            return Reply { sense: None, ..refused(sense) };
        }
        if self.has_descriptors.load(Ordering::Acquire) {
            let sense = Sense::decode(&sense.encode_descriptors());
            return Reply { sense, ..refused(Sense::new(0, 0, 0)) };
        }
        refused(sense)
    }

    fn trouble(&self, trouble: Trouble) -> io::Result<Reply> {
        let reply = Reply { status: status::GOOD, sense: None, host: 0, residual: 0 };
        match trouble {
            Trouble::Sense(sense) => Ok(self.refuse(sense)),
            Trouble::Status(status) => Ok(Reply { status, ..reply }),
            Trouble::Host(host) => Ok(Reply { host, ..reply }),
            Trouble::Forbidden => Err(Errno::PERM.into()),
            Trouble::Vanish => {
                self.is_gone.store(true, Ordering::Release);
                Err(Errno::NODEV.into())
            }
        }
    }
}

/// The reply with sense data, which goes through its bytes on the wire: the descriptor format for
/// ATA, and the fixed one else.
fn refused(sense: Sense) -> Reply {
    let bytes = match sense.ata {
        Some(_) => sense.encode_descriptors(),
        None => sense.encode_fixed().to_vec(),
    };
    let sense = Sense::decode(&bytes);
    Reply { status: status::CHECK_CONDITION, sense, host: 0, residual: 0 }
}
