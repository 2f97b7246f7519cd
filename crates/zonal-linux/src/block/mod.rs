//! A zoned block device: `/dev/nvme0n1`, `/dev/sda`, `/dev/nullb0`, `/dev/ublkb0`.
//!
//! The kernel orders the writes to a zone, so here one writer at a time is in each zone. Block
//! devices have no zone append: an append becomes a write at the write pointer, which this file
//! therefore keeps. If another program moves it, a write fails, and the kernel reports the pointer
//! again.

mod batch;
pub(crate) mod raw;

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use zonal::{
    BlockSize, Claim, DeviceError, Geometry, GeometrySpec, Identity, Io, Lba, LbaCount, OpenMode,
    Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

use crate::Result;
use crate::by_zone::{self, Access, WriteRange, refusal};
use crate::discard::discard;
use crate::ioctl::{self, RawZone};
use crate::own_disk;
use crate::ring::FileRings;
use crate::rounds::{Appends, in_rounds};
use crate::sysfs::Attributes;
use crate::transfer::DirectFile;

/// Log₂ of the bytes of a sector, the unit of the kernel's interfaces.
const SECTOR_SHIFT: u32 = 9;

/// Largest append that is offered: it becomes one write.
const APPEND_BYTES: u64 = 1 << 20;

/// A zoned block device that is open.
pub struct BlockDrive {
    file: DirectFile,
    claim: Option<Claim>,
    name: String,
    mode: OpenMode,
    geometry: Geometry,
    identity: Identity,
    rotates: bool,
    discards: Discards,
    /// Log₂ of the sectors of a block.
    block_shift: u32,
    /// Sectors of the device, more than its blocks where the last zone holds less than the others.
    sectors: u64,
    zones: Box<[Slot]>,
    /// `None` where `io_uring` is disabled, and in a server of swap space.
    rings: Option<FileRings>,
}

/// Whether the device takes discards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discards {
    Taken,
    Refused,
}

/// The write pointer of a zone, and the lock of its writer.
struct Slot {
    /// Blocks written.
    written: AtomicU64,
    /// Held by the writer.
    turn: Mutex<()>,
}

impl BlockDrive {
    /// Opens a device, and claims it unless `mode` needs no claim.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |source| DeviceError::Io { what: format!("opening {name}"), source };
        let claim = Claim::take(path, mode)?;
        let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag of open(2)");
        let mut options = File::options();
        options.read(true).write(mode == OpenMode::ReadWrite).custom_flags(direct);
        let file = options.open(path).map_err(failed)?;
        let number = file.metadata().map_err(failed)?.rdev();
        let attributes = Attributes::of(number);
        let unsuitable = |what: String| DeviceError::Unsuitable { path: path.to_owned(), what };
        if !attributes.has_zones() {
            return Err(DeviceError::NoZones { path: path.to_owned() });
        }
        if attributes.is_partition() {
            return Err(unsuitable("is a partition; zones belong to whole drives".into()));
        }
        let sectors = attributes.sectors()?;
        let report = report_all(&file, sectors).map_err(|source| failed(source.into()))?;
        let geometry = geometry(&attributes, &report).map_err(unsuitable)?;
        let block_shift = geometry.block_size().shift() - SECTOR_SHIFT;
        let slot = |raw: &RawZone| Slot {
            written: AtomicU64::new(written(raw) >> block_shift),
            turn: Mutex::new(()),
        };
        let zones = report.iter().map(slot).collect();
        let file = DirectFile::new(file);
        // The kernel allocates memory for a ring.
        let rings = if own_disk::serves_swap() { None } else { FileRings::of_kernel() };
        let discards = match attributes.number("discard_max_bytes") {
            Ok(bytes) if bytes > 0 => Discards::Taken,
            Ok(_) | Err(_) => Discards::Refused,
        };
        let identity = attributes.identity();
        let rotates = attributes.rotates() == Some(true);
        Ok(Self {
            file,
            claim,
            name,
            mode,
            geometry,
            identity,
            rotates,
            discards,
            block_shift,
            sectors,
            zones,
            rings,
        })
    }

    fn slot(&self, zone: ZoneId) -> Result<&Slot> {
        self.zones.get(zone.index()).ok_or(DeviceError::NoSuchZone { zone })
    }

    fn sector(&self, lba: Lba) -> u64 {
        lba.get() << self.block_shift
    }

    fn byte(&self, lba: Lba) -> u64 {
        self.geometry.bytes(lba - Lba::ZERO).get()
    }

    /// Asks for one zone, and remembers its write pointer. The caller has its turn.
    fn ask(&self, zone: ZoneId) -> Result<Zone> {
        let slot = self.slot(zone)?;
        let sector = self.sector(self.geometry.zone_start(zone));
        let report = ioctl::report(self.file.as_file(), sector)
            .map_err(|error| self.failed("reporting", error))?;
        let raw = report.first().ok_or(DeviceError::NoSuchZone { zone })?;
        slot.written.store(written(raw) >> self.block_shift, Ordering::Release);
        Ok(self.zone_of(zone, raw))
    }

    fn zone_of(&self, id: ZoneId, raw: &RawZone) -> Zone {
        let cond = condition(raw.cond);
        let start = self.geometry.zone_start(id);
        let capacity = self.geometry.capacity_of(id);
        let wp = match cond {
            ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => None,
            ZoneCond::Full => Some(start + capacity),
            _ => Some(start + LbaCount::new(written(raw) >> self.block_shift)),
        };
        let (kind, size) = (self.geometry.kind(id), self.geometry.size_of(id));
        let non_sequential = raw.non_sequential != 0;
        Zone { id, kind, cond, start, size, capacity, wp, non_sequential }
    }

    fn failed(&self, what: &str, error: Errno) -> DeviceError {
        DeviceError::Io { what: format!("{what} {}", self.name), source: error.into() }
    }

    /// Reads a part of a zone: the written blocks, and zeroes beyond, where not every drive allows
    /// reads.
    fn read_in_zone(&self, zone: ZoneId, offset: LbaCount, target: &mut [u8]) -> Result<()> {
        let slot = self.slot(zone)?;
        let blocks = self.geometry.blocks(target.len())?;
        let mut stored = match self.geometry.kind(zone) {
            ZoneKind::Conventional => self.geometry.size_of(zone),
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                LbaCount::new(slot.written.load(Ordering::Acquire))
            }
        };
        if offset + blocks > stored {
            // Another program may have written, and only a report tells that a zone is offline. The
            // turn keeps our own writers away: their write pointer would be newer than the report.
            let turn = lock(slot);
            let asked = self.ask(zone)?;
            drop(turn);
            if asked.cond == ZoneCond::Offline {
                return Err(DeviceError::ZoneOffline { zone });
            }
            // The kernel reports no write pointer of a read-only zone: the drive decides.
            stored = asked.written().unwrap_or(asked.size);
        }
        let len = self.geometry.bytes(stored.saturating_sub(offset).min(blocks)).get();
        let len = usize::try_from(len).expect("at most what is in memory");
        let (head, tail) = target.split_at_mut(len);
        tail.fill(0);
        if head.is_empty() {
            return Ok(());
        }
        let lba = self.geometry.zone_start(zone) + offset;
        self.file
            .read(self.byte(lba), head)
            .map_err(|source| self.explain(zone, lba, source, Access::Read))
    }

    /// Writes to a zone, whose turn the caller has: at the write pointer where the zone wants that.
    fn write_in_turn(&self, zone: ZoneId, lba: Lba, data: &[u8]) -> Result<()> {
        let end = lba - self.geometry.zone_start(zone) + self.geometry.blocks(data.len())?;
        let slot = self.slot(zone)?;
        if let Err(source) = self.file.write(self.byte(lba), data) {
            return Err(self.explain(zone, lba, source, Access::Write));
        }
        if self.geometry.kind(zone).is_sequential() {
            slot.written.fetch_max(end.get(), Ordering::AcqRel);
        }
        Ok(())
    }

    /// The error of a failure, from the errno and from the present condition of the zone.
    ///
    /// Asking for the zone is also what makes the kernel take writes to it again: after a failed
    /// one it no longer trusts the write pointer that it keeps (Linux 6.13, `block/blk-zoned.c`).
    fn explain(&self, zone: ZoneId, lba: Lba, source: io::Error, access: Access) -> DeviceError {
        let now = self.slot(zone).and_then(|slot| {
            // The writer holds the zone's lock already.
            let _turn = matches!(access, Access::Read).then(|| lock(slot));
            self.ask(zone)
        });
        let errno = Errno::from_io_error(&source);
        if let Some(error) = errno.and_then(|errno| self.limit_reached(zone, errno)) {
            return error;
        }
        if !matches!(errno, Some(Errno::IO | Errno::NXIO | Errno::NODATA)) {
            return DeviceError::Io { what: format!("block {lba} of {}", self.name), source };
        }
        match (now, access) {
            (Err(error), _) => error,
            (Ok(now), _) if now.cond == ZoneCond::Offline => DeviceError::ZoneOffline { zone },
            (Ok(now), Access::Write) => {
                let refused = refusal(&now, lba).or_else(|| self.cannot_open(&now));
                refused.unwrap_or(DeviceError::Medium { lba })
            }
            (Ok(_), Access::Read) => DeviceError::Medium { lba },
        }
    }

    fn limit_reached(&self, zone: ZoneId, errno: Errno) -> Option<DeviceError> {
        match errno {
            Errno::OVERFLOW => {
                let limit = self.geometry.max_active().unwrap_or(0);
                Some(DeviceError::TooManyActive { zone, limit })
            }
            Errno::TOOMANYREFS => {
                let limit = self.geometry.max_open().unwrap_or(0);
                Some(DeviceError::TooManyOpen { zone, limit })
            }
            _ => None,
        }
    }

    /// Whether a limit keeps a zone from being opened. Of a write that becomes several requests,
    /// the kernel tells only that one of them failed, so the zone is opened to find out.
    fn cannot_open(&self, zone: &Zone) -> Option<DeviceError> {
        if !matches!(zone.cond, ZoneCond::Empty | ZoneCond::Closed) {
            return None;
        }
        match ioctl::manage(self.file.as_file(), ZoneAction::Open, self.range(zone.id)) {
            Ok(()) => {
                let back = match zone.cond {
                    ZoneCond::Empty => ZoneAction::Reset,
                    _ => ZoneAction::Close,
                };
                // Restores the condition if it can; the caller reports the failure in any case.
                let _ = ioctl::manage(self.file.as_file(), back, self.range(zone.id));
                None
            }
            Err(errno) => self.limit_reached(zone.id, errno),
        }
    }

    /// The sectors of a zone.
    fn range(&self, zone: ZoneId) -> ioctl::Range {
        let start = self.sector(self.geometry.zone_start(zone));
        let size = self.geometry.zone_size().get() << self.block_shift;
        ioctl::Range { start, len: size.min(self.sectors - start) }
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        let slot = self.slot(zone)?;
        if self.geometry.kind(zone) == ZoneKind::Conventional {
            return Err(DeviceError::Conventional { zone });
        }
        let _turn = lock(slot);
        let done = ioctl::manage(self.file.as_file(), action, self.range(zone));
        let now = self.ask(zone)?;
        let Err(errno) = done else { return Ok(()) };
        if let Some(error) = self.limit_reached(zone, errno) {
            return Err(error);
        }
        match now.cond {
            ZoneCond::ReadOnly => Err(DeviceError::ZoneReadOnly { zone }),
            ZoneCond::Offline => Err(DeviceError::ZoneOffline { zone }),
            cond => Err(DeviceError::Transition { zone, cond, action }),
        }
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, ()> {
    slot.turn.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ZonedDevice for BlockDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let end = first.index().saturating_add(limit).min(self.zones.len());
        let mut next = first.index();
        while next < end {
            let id = |index: usize| ZoneId::new(u32::try_from(index).expect("a zone"));
            let sector = self.sector(self.geometry.zone_start(id(next)));
            let report = ioctl::report(self.file.as_file(), sector)
                .map_err(|error| self.failed("reporting", error))?;
            if report.is_empty() {
                return Err(self.failed("reporting", Errno::NODATA));
            }
            for raw in report.iter().take(end - next) {
                zones.push(self.zone_of(id(next), raw));
                next += 1;
            }
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        by_zone::read(&self.geometry, lba, buffer, |zone, offset, part| {
            self.read_in_zone(zone, offset, part)
        })
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.mode.check_writable()?;
        let Some(range) = WriteRange::of_write(&self.geometry, lba, data.len())? else {
            return Ok(());
        };
        let WriteRange { zone, offset, .. } = range;
        let slot = self.slot(zone)?;
        if self.geometry.kind(zone) == ZoneKind::Conventional {
            return self.write_in_turn(zone, lba, data);
        }
        let _turn = lock(slot);
        if slot.written.load(Ordering::Acquire) != offset.get()
            && let Some(error) = refusal(&self.ask(zone)?, lba)
        {
            return Err(error);
        }
        self.write_in_turn(zone, lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.mode.check_writable()?;
        let slot = self.slot(zone)?;
        let blocks = by_zone::append_blocks(&self.geometry, data.len())?;
        if blocks == LbaCount::ZERO {
            let written = LbaCount::new(slot.written.load(Ordering::Acquire));
            return Ok(self.geometry.zone_start(zone) + written);
        }
        if self.geometry.kind(zone) == ZoneKind::Conventional {
            return Err(DeviceError::Conventional { zone });
        }
        let _turn = lock(slot);
        let start = self.geometry.zone_start(zone);
        let capacity = self.geometry.capacity_of(zone);
        let mut lba = start + LbaCount::new(slot.written.load(Ordering::Acquire));
        let mut retried = false;
        loop {
            if lba == start + capacity || retried {
                let now = self.ask(zone)?;
                if let Some(error) = refusal(&now, now.wp.unwrap_or(lba)) {
                    return Err(error);
                }
                lba = now.wp.unwrap_or(lba);
            }
            if lba - start + blocks > capacity {
                return Err(DeviceError::CrossesZone { zone, lba, blocks });
            }
            match self.write_in_turn(zone, lba, data) {
                Ok(()) => return Ok(lba),
                // Another program has written: `explain` has asked for the write pointer.
                Err(DeviceError::NotAtWritePointer { .. }) if !retried => retried = true,
                Err(error) => return Err(error),
            }
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.mode.check_writable()?;
        by_zone::manage(self, zones, action, |zone| self.manage_one(zone, action))
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.mode.check_writable()?;
        let Some((zone, _)) = self.geometry.locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        if self.discards == Discards::Refused {
            return Ok(());
        }
        let len = self.geometry.bytes(blocks).get();
        match discard(self.file.as_file(), self.byte(lba), len) {
            // The device took discards when it was opened, and takes none now.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.explain(zone, lba, errno.into(), Access::Write)),
        }
    }

    fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn rotates(&self) -> bool {
        self.rotates
    }

    fn flush(&self) -> Result<()> {
        self.file
            .as_file()
            .sync_data()
            .map_err(|source| DeviceError::Io { what: format!("flushing {}", self.name), source })
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let Some(rings) = &self.rings else {
            for io in batch {
                io.perform(self);
            }
            return;
        };
        in_rounds(self, Appends::OneByOne, batch, |round| self.side_by_side(rings, round));
    }
}

/// Every zone of a device of `sectors` sectors.
fn report_all(file: &File, sectors: u64) -> rustix::io::Result<Vec<RawZone>> {
    let mut zones: Vec<RawZone> = Vec::new();
    let mut next = 0;
    while next < sectors {
        let part = ioctl::report(file, next)?;
        let Some(last) = part.last().filter(|last| last.start + last.len > next) else {
            return Err(Errno::NODATA);
        };
        next = last.start + last.len;
        zones.extend(part);
    }
    Ok(zones)
}

/// The geometry of a device, or the reason why it is not supported.
fn geometry(attributes: &Attributes, zones: &[RawZone]) -> std::result::Result<Geometry, String> {
    let number = |name: &str| attributes.number(name).map_err(|error| error.to_string());
    // A disk of 512e addresses blocks of 512 bytes, and its sequential zones take whole ones of
    // 4096.
    let granularity = attributes.number("zone_write_granularity").unwrap_or(0);
    let bytes = number("logical_block_size")?.max(granularity);
    let block_size = BlockSize::from_bytes(bytes)
        .ok_or(format!("has blocks of {bytes} bytes, not 512 or 4096"))?;
    let shift = block_size.shift() - SECTOR_SHIFT;
    let is_whole = |sectors: u64| sectors.is_multiple_of(1 << shift);
    if let Some(zone) = zones.iter().find(|zone| !is_whole(zone.len) || !is_whole(zone.capacity)) {
        let (start, len) = (zone.start, zone.len);
        return Err(format!("has a zone of {len} sectors at {start}, not of whole blocks"));
    }
    let is_conventional = |zone: &RawZone| zone.kind == ZoneKind::Conventional.code();
    let numbers = (0..).map(ZoneId::new).zip(zones);
    let conventional = numbers.filter(|(_, zone)| is_conventional(zone)).map(|(number, _)| number);
    let conventional_zones = ZoneRuns::of(conventional)
        .map_err(|error| format!("has conventional zones in too many places: {error}"))?;
    let first = zones.first().ok_or("has no zones")?;
    let last = zones.last().ok_or("has no zones")?;
    let sequential = zones.iter().find(|zone| !is_conventional(zone));
    let sequential_kind = match sequential.map(|zone| zone.kind) {
        Some(kind) if kind == ZoneKind::SequentialPreferred.code() => ZoneKind::SequentialPreferred,
        Some(_) | None => ZoneKind::SequentialRequired,
    };
    let is_other = |zone: &&RawZone| !is_conventional(zone) && zone.kind != sequential_kind.code();
    if let Some(other) = zones.iter().find(is_other) {
        return Err(format!(
            "has a zone of type {} beside {} ones",
            other.kind,
            sequential_kind.name()
        ));
    }
    let capacity = sequential.map_or(first.len, |zone| zone.capacity);
    let is_regular = |zone: &RawZone| {
        zone.len == first.len && (is_conventional(zone) || zone.capacity == capacity)
    };
    if !zones[..zones.len() - 1].iter().all(is_regular) {
        return Err("has zones of different sizes or capacities".to_owned());
    }
    // Servers give a smaller last zone the size of the others, and less capacity.
    let is_smaller = last.capacity < capacity && !is_conventional(last);
    let last_blocks = if is_smaller { last.capacity } else { last.len };
    // For preferred zones the drive reports optimal numbers, and refuses no request beyond them.
    let has_limits = sequential_kind == ZoneKind::SequentialRequired;
    let limit = |name: &str| {
        let limit = u32::try_from(number(name)?).ok();
        Ok::<_, String>(limit.filter(|limit| *limit > 0 && has_limits))
    };
    let spec = GeometrySpec {
        block_size,
        block_count: LbaCount::new((last.start + last_blocks) >> shift),
        zone_size: LbaCount::new(first.len >> shift),
        zone_capacity: LbaCount::new(capacity >> shift),
        conventional_zones,
        sequential_kind,
        max_open: limit("max_open_zones")?,
        max_active: limit("max_active_zones")?,
        max_append: LbaCount::new((APPEND_BYTES / bytes).min(capacity >> shift)),
    };
    Geometry::new(spec).map_err(|error| error.to_string())
}

/// `enum blk_zone_cond`.
fn condition(raw: u8) -> ZoneCond {
    match raw {
        0 => ZoneCond::NotWp,
        1 => ZoneCond::Empty,
        2 => ZoneCond::ImplicitOpen,
        3 => ZoneCond::ExplicitOpen,
        4 => ZoneCond::Closed,
        0xd => ZoneCond::ReadOnly,
        0xe => ZoneCond::Full,
        // The condition is unknown: nothing may read or write the zone.
        _ => ZoneCond::Offline,
    }
}

/// Sectors written in a zone.
fn written(raw: &RawZone) -> u64 {
    match condition(raw.cond) {
        ZoneCond::Full => raw.capacity,
        ZoneCond::Empty | ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => 0,
        ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
            raw.wp.saturating_sub(raw.start).min(raw.capacity)
        }
    }
}
