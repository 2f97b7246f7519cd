//! A zone file: its fixed properties and its state.
//!
//! Readers take no lock: size, health and the count of resets are atomics, and a reader that sees
//! another count after it has read starts again. A change of a file holds its [`Writer`]. Appends
//! only reserve their room under it, so that many can be on their way at once.
//! [`ZoneFile::settled`] waits for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use zonal::{Geometry, Lba, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind};

use super::recover::Failed;
use crate::vfs::{FileExtent, Ino, Timestamp};

/// Kind of a file's zones, and thereby its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `cnv`: conventional zones.
    Conventional,
    /// `seq`: sequential zones.
    Sequential,
}

impl Group {
    /// Name of the directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conventional => "cnv",
            Self::Sequential => "seq",
        }
    }
}

/// Health of a file: what can still be done with it. Only a new mount improves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Everything.
    Good,
    /// Reading.
    ReadOnly,
    /// Nothing.
    Offline,
}

impl Health {
    const ALL: [Self; 3] = [Self::Good, Self::ReadOnly, Self::Offline];

    /// Health of a file whose zone has this condition.
    pub(super) const fn of(cond: ZoneCond) -> Self {
        match cond {
            ZoneCond::Offline => Self::Offline,
            ZoneCond::ReadOnly => Self::ReadOnly,
            ZoneCond::NotWp
            | ZoneCond::Empty
            | ZoneCond::ImplicitOpen
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed
            | ZoneCond::Full => Self::Good,
        }
    }
}

/// Whether the file system has opened a zone explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It has, or has asked for that, and will close it.
    Open,
    /// It has not.
    No,
}

/// Attributes that `chmod`, `chown` and `utime` change, in memory only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) perm: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

/// A zone, or a run of conventional zones, as a file.
pub(super) struct ZoneFile {
    pub(super) group: Group,
    /// The zone, or the first of them.
    pub(super) zone: ZoneId,
    /// How many zones.
    pub(super) zones: u32,
    /// Bytes it can hold.
    pub(super) capacity: u64,
    /// Its first block.
    start: Lba,
    /// Bytes that each of its zones but the last holds.
    zone_bytes: u64,
    size: AtomicU64,
    health: AtomicU8,
    /// 0, or one more than the [`Failed`] after which the device refused to report the zone.
    owed_report: AtomicU8,
    resets: AtomicU64,
    writer: Mutex<Writer>,
    idle: Condvar,
    owned: Mutex<Owned>,
}

/// State that only the thread with the lock may change.
#[derive(Debug)]
pub(super) struct Writer {
    /// How often the file is open for writing.
    pub(super) opens: u32,
    /// Whether the zone is held open.
    pub(super) held: Held,
    /// Whether it counts as active.
    pub(super) active: bool,
    /// Number of appends in flight, and the end of the room reserved for them, in bytes.
    appends: u32,
    reserved: u64,
    /// Completed appends above one that is still in flight: start and end in bytes.
    early: BTreeMap<u64, u64>,
}

/// Outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// It is part of the file.
    InPlace,
    /// It failed, or the device has put it at a wrong place.
    Elsewhere,
}

impl ZoneFile {
    /// A file of one zone, as reported.
    pub(super) fn new(geometry: &Geometry, zone: &Zone, owned: Owned) -> Self {
        let group = match zone.kind {
            ZoneKind::Conventional => Group::Conventional,
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => Group::Sequential,
        };
        let capacity = geometry.bytes(zone.capacity).get();
        let health = Health::of(zone.cond);
        // The mount does not know how much a read-only zone holds: it has no write pointer.
        let size = match (health, group) {
            (Health::Good, Group::Conventional) => capacity,
            (Health::Good, Group::Sequential) => written(geometry, zone).unwrap_or(0),
            (Health::ReadOnly | Health::Offline, _) => 0,
        };
        // Nothing can be known about it: it is as good as offline.
        let health = if health == Health::Good { health } else { Health::Offline };
        Self {
            group,
            zone: zone.id,
            zones: 1,
            capacity,
            start: zone.start,
            zone_bytes: capacity,
            size: AtomicU64::new(size),
            health: AtomicU8::new(health as u8),
            owed_report: AtomicU8::new(0),
            resets: AtomicU64::new(0),
            writer: Mutex::new(Writer {
                opens: 0,
                held: Held::No,
                active: false,
                appends: 0,
                reserved: size,
                early: BTreeMap::new(),
            }),
            idle: Condvar::new(),
            owned: Mutex::new(owned),
        }
    }

    /// Adds the next conventional zone, which was the file `next`. The file gets the worse health.
    pub(super) fn extend(&mut self, next: &Self) {
        self.zones += 1;
        self.capacity += next.capacity;
        let health = self.health().max(next.health());
        *self.health.get_mut() = health as u8;
        *self.size.get_mut() = if health == Health::Good { self.capacity } else { 0 };
    }

    /// Inode number: that of its first zone.
    pub(super) fn ino(&self) -> Ino {
        Ino::new(self.zone.get().into())
    }

    /// Bytes below the write pointer.
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> Health {
        Health::ALL[usize::from(self.health.load(Ordering::Acquire))]
    }

    /// Lowers the health. Nothing raises it again.
    pub(super) fn degrade(&self, health: Health) {
        self.health.fetch_max(health as u8, Ordering::AcqRel);
    }

    /// The failure after which the zone must still be reported. Until then size and health may be
    /// wrong.
    pub(super) fn owed_report(&self) -> Option<Failed> {
        failed_of(self.owed_report.load(Ordering::Acquire))
    }

    /// The zone could not be reported after a failure.
    pub(super) fn owe_report(&self, failed: Failed) {
        self.owed_report.fetch_max(failed as u8 + 1, Ordering::AcqRel);
    }

    /// The zone was reported. Returns the failure after which it could not be.
    pub(super) fn settle_report(&self) -> Option<Failed> {
        failed_of(self.owed_report.swap(0, Ordering::AcqRel))
    }

    /// Number of resets: a reader that sees it change must read again.
    pub(super) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Acquire)
    }

    /// Block of the byte at `offset`, and the bytes from there to the end of its zone.
    pub(super) fn locate(&self, geometry: &Geometry, offset: u64) -> (Lba, u64) {
        let shift = geometry.block_size().shift();
        if self.zones == 1 {
            return (self.start + LbaCount::new(offset >> shift), self.capacity - offset);
        }
        let nth = u32::try_from(offset / self.zone_bytes).expect("fewer zones than a device has");
        let start = geometry.zone_start(ZoneId::new(self.zone.get() + nth));
        let inside = offset % self.zone_bytes;
        let left = (self.zone_bytes - inside).min(self.capacity - offset);
        (start + LbaCount::new(inside >> shift), left)
    }

    /// The part of each of its zones that its content takes.
    pub(super) fn extents(&self) -> impl Iterator<Item = FileExtent> + use<> {
        let (ino, first, size) = (self.ino(), self.zone.get(), self.size());
        let zone_bytes = if self.zones == 1 { self.capacity } else { self.zone_bytes };
        (0..self.zones).map_while(move |nth| {
            let offset = u64::from(nth) * zone_bytes;
            let len = size.checked_sub(offset).filter(|left| *left > 0)?.min(zone_bytes);
            let zone = ZoneId::new(first + nth);
            Some(FileExtent { ino, offset, len, zone, zone_offset: 0, shared: false })
        })
    }

    /// Locks the state of the file.
    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state of the file once no append is in flight.
    pub(super) fn settled(&self) -> MutexGuard<'_, Writer> {
        self.settle(self.writer())
    }

    /// Waits until no append is in flight.
    pub(super) fn settle<'a>(
        &'a self,
        mut writer: MutexGuard<'a, Writer>,
    ) -> MutexGuard<'a, Writer> {
        while writer.appends > 0 {
            writer = self.idle.wait(writer).unwrap_or_else(PoisonError::into_inner);
        }
        writer
    }

    /// Publishes the new size after a write at the end.
    pub(super) fn grow(&self, writer: &mut Writer, size: u64) {
        writer.reserved = size;
        self.size.store(size, Ordering::Release);
    }

    /// Publishes a new size. If it is lower, readers may be reading the bytes that are cut off.
    pub(super) fn set_size(&self, writer: &mut Writer, size: u64) {
        debug_assert_eq!(writer.appends, 0, "nobody else changes the size");
        writer.reserved = size;
        writer.early.clear();
        if size < self.size.swap(size, Ordering::AcqRel) {
            self.resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Bytes of capacity that are neither written nor reserved for an append.
    pub(super) fn room(&self, writer: &Writer) -> u64 {
        self.capacity - writer.reserved
    }

    /// Reserves `len` bytes for an append, for which there must be room.
    pub(super) fn start_append(&self, writer: &mut Writer, len: u64) {
        assert!(len <= self.room(writer), "no more is reserved than there is");
        writer.reserved += len;
        writer.appends += 1;
    }

    /// Ends an append of `len` bytes that the device has put at byte `landed`. The outcome says
    /// whether that is in the reserved room: it is not if another program has moved the write
    /// pointer.
    pub(super) fn end_append(&self, writer: &mut Writer, landed: Option<u64>, len: u64) -> Landed {
        writer.appends -= 1;
        if writer.appends == 0 {
            self.idle.notify_all();
        }
        let mut size = self.size();
        let reserved = size..writer.reserved;
        let Some(start) = landed.filter(|start| reserved.contains(start)) else {
            return Landed::Elsewhere;
        };
        let end = start + len;
        if end > reserved.end {
            return Landed::Elsewhere;
        }
        if start == size {
            size = end;
        } else {
            writer.early.insert(start, end);
        }
        while let Some(end) = writer.early.remove(&size) {
            size = end;
        }
        self.size.store(size, Ordering::Release);
        Landed::InPlace
    }

    pub(super) fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure in [`ZoneFile::owed_report`].
const fn failed_of(number: u8) -> Option<Failed> {
    match number {
        0 => None,
        1 => Some(Failed::Read),
        _ => Some(Failed::Write),
    }
}

/// Written bytes of a zone by its report; `None` if the report has no write pointer.
pub(super) fn written(geometry: &Geometry, zone: &Zone) -> Option<u64> {
    match zone.cond {
        ZoneCond::Full => Some(geometry.bytes(zone.capacity).get()),
        _ => zone.written().map(|blocks| geometry.bytes(blocks).get()),
    }
}
