//! A zoned SCSI or SATA disk by pass-through: `/dev/sg0`.
//!
//! Most kernels of appliances are built without zoned block devices: then a zoned disk has no
//! `/dev/sdX`, and only its SCSI generic node is there. That node takes any command, so this also
//! works for disks that the kernel refuses, such as those with zones of any size. The kernel orders
//! nothing here: a lock serialises the writers of one zone. SCSI has no zone append: an append is a
//! write at the write pointer, which is known under that lock.
//!
//! The drive's last report or answer gives the stored write pointer of a zone. After a write that
//! failed or timed out, it is unknown until the drive reports the zone: nothing writes by a guess.
//!
//! - `number.rs`, [`cdb`], [`ata`], [`sense`], [`inquiry`], [`zones`]: the formats on the wire.
//! - `transport.rs`: the path of a command; `sg.rs`: through a node that copies the data, `bsg.rs`:
//!   through one that does not; `channel.rs`: commands as SCSI or ATA, with their repetitions.
//! - `discover.rs`, `shape.rs`: the drive's report of its geometry, limits and zones; `grid.rs`:
//!   which of them Zonal uses.
//! - [`realms`]: the zone realms of hybrid drives; `facts.rs`: further facts of a drive.
//! - `raw.rs`: the drive without checks, to test it.
//! - `failure.rs`: turns sense data into errors.
//! - `tests/`: the tests, over a drive in memory (`target.rs`).

pub mod ata;
mod bsg;
pub mod cdb;
mod channel;
mod discover;
pub(crate) mod facts;
mod failure;
mod grid;
pub mod inquiry;
mod node;
pub mod number;
pub(crate) mod raw;
pub mod realms;
pub mod sense;
mod sg;
mod shape;
#[cfg(test)]
mod tests;
mod transport;
pub mod zones;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::io::Errno;
use zonal::nvme::decode::SendTarget;
use zonal::{
    Claim, DeviceError, Geometry, Identity, Io, Lba, LbaCount, OpenMode, Select, Zone, ZoneAction,
    ZoneCond, ZoneId, ZoneKind, ZonedDevice,
};

use self::ata::PAGE_BYTES;
use self::channel::{Channel, DOUBTS, Doubt};
use self::discover::REPORT_BYTES;
use self::inquiry::WriteCache;
use self::shape::Shape;
use self::transport::{Failure, Next};
use crate::Result;
use crate::by_zone::{self, Access, WriteRange, refusal};
use crate::own_disk;
use crate::rounds::{Appends, in_rounds};
use crate::sysfs::Attributes;

pub use self::node::{find, is_node};

/// Commands that a batch keeps at the drive at once: the kernel takes 16 from one open node
/// (`SG_MAX_QUEUE`, `drivers/scsi/sg.c`).
const DEPTH: usize = 16;

/// How often a read begins again because its zone was reset meanwhile: a drive whose reports shrink
/// from one to the next would keep it for ever.
const RESETS: u32 = 8;

/// An open drive.
pub struct ScsiDrive {
    channel: Channel,
    /// The block device of the same drive, if there is one: claimed, so that no program mounts it.
    _block: Option<Claim>,
    path: PathBuf,
    mode: OpenMode,
    identity: Identity,
    rotates: bool,
    shape: Shape,
    /// Whether a disk of ATA is behind a translation.
    is_translated: bool,
    slots: Box<[Slot]>,
}

/// The write pointer of a zone, and the lock of its writer.
struct Slot {
    /// Blocks written, or [`UNKNOWN`](Self::UNKNOWN).
    written: AtomicU64,
    /// Held by the writer, and for a change of condition.
    turn: Mutex<()>,
}

impl Slot {
    /// Stands for a write pointer that only the drive knows.
    const UNKNOWN: u64 = u64::MAX;

    fn new(zone: &Zone) -> Self {
        let slot = Self { written: AtomicU64::new(Self::UNKNOWN), turn: Mutex::new(()) };
        slot.set(zone.written().unwrap_or(LbaCount::ZERO));
        slot
    }

    /// Blocks written; `None` if that is unknown.
    fn known(&self) -> Option<LbaCount> {
        let written = self.written.load(Ordering::Acquire);
        (written != Self::UNKNOWN).then_some(LbaCount::new(written))
    }

    fn set(&self, written: LbaCount) {
        self.written.store(written.get(), Ordering::Release);
    }

    /// Notes that blocks up to here are written. An unknown write pointer stays unknown.
    fn raise(&self, written: LbaCount) {
        self.written.fetch_max(written.get(), Ordering::AcqRel);
    }

    fn forget(&self) {
        self.written.store(Self::UNKNOWN, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScsiDrive {
    /// Opens a drive by its SCSI generic node. Unless `mode` is [`OpenMode::ReadOnly`], it must be
    /// neither mounted nor open in another Zonal process that is not read-only.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let (channel, block) = connect(path, mode)?;
        Ok(Self { _block: block, ..Self::over(channel, path, mode)? })
    }

    /// Opens the drive behind a channel.
    fn over(mut channel: Channel, path: &Path, mode: OpenMode) -> Result<Self> {
        let name = path.display();
        let unsuitable = |what| DeviceError::Unsuitable { path: path.to_owned(), what };
        let answers = discover::ask_all(&channel)
            .map_err(|failure| failure::plain(format!("identifying {name}"), failure))?;
        if !answers.has_zones() {
            return Err(DeviceError::NoZones { path: path.to_owned() });
        }
        if mode == OpenMode::ReadWrite && answers.is_write_protected == Some(true) {
            let what = "is write-protected by a switch, or by SWP of its control mode page";
            return Err(unsuitable(what.to_owned()));
        }
        shape::block_size(&answers.capacity).map_err(unsuitable)?;
        channel.block_bytes = answers.capacity.block_bytes;
        let (found, last) = discover::all_zones(&mut channel)
            .map_err(|failure| failure::plain(format!("reporting zones of {name}"), failure))?;
        let shape =
            shape::decode(&answers, &found, last, channel.bytes_max()).map_err(unsuitable)?;
        for left_out in &shape.left_out {
            tracing::warn!(device = %name, "left out: {left_out}");
        }
        let (identity, is_translated) = (answers.identity(), answers.is_translated());
        let (path, slots) = (path.to_owned(), Box::default());
        // Every SCSI drive with zones is a shingled disk, even if it reports no rotation rate.
        let rotates = answers.rotates().unwrap_or(true);
        let mut drive = Self {
            channel,
            _block: None,
            path,
            mode,
            identity,
            rotates,
            shape,
            is_translated,
            slots,
        };
        let mut zones = Vec::new();
        drive.report(ZoneId::ZERO, &mut zones, usize::MAX)?;
        drive.slots = zones.iter().map(Slot::new).collect();
        drive.check_right_to_flush()?;
        Ok(drive)
    }

    /// Whether this process may have filled a volatile cache of the drive.
    fn has_to_flush(&self) -> bool {
        self.shape.limits.cache != WriteCache::None && self.mode == OpenMode::ReadWrite
    }

    /// Refuses a drive whose cache this process may fill, but not empty: the kernel passes
    /// WRITE(16) on for all that may open the node, SYNCHRONIZE CACHE(16) only for `CAP_SYS_RAWIO`
    /// (`scsi_cmd_allowed`, `drivers/scsi/scsi_ioctl.c`).
    fn check_right_to_flush(&self) -> Result<()> {
        if !self.has_to_flush() {
            return Ok(());
        }
        match self.channel.flush() {
            Err(Failure::Kernel(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let what = format!(
                    "opening {} for writing: the kernel lets this process write, and not flush; run as \
                     root, or with CAP_SYS_RAWIO",
                    self.path.display()
                );
                Err(DeviceError::Io { what, source: error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The write pointer of a zone. A zone that is left out has none: every access asks here first,
    /// so that no command goes to it.
    fn slot(&self, zone: ZoneId) -> Result<&Slot> {
        if self.shape.is_left_out(zone) {
            return Err(DeviceError::ZoneOffline { zone });
        }
        self.slots.get(zone.index()).ok_or(DeviceError::NoSuchZone { zone })
    }

    /// The address of a block in the drive's own.
    fn drive_lba(&self, lba: Lba) -> Lba {
        Lba::new((lba.get() << self.shape.limits.shift) + self.shape.limits.base)
    }

    fn byte_len(&self, blocks: LbaCount) -> usize {
        usize::try_from(self.shape.geometry.bytes(blocks).get()).expect("at most what is in memory")
    }

    /// Reports one zone, and stores its write pointer, which is unknown if that fails. The caller
    /// has its turn, so that no write is running whose result would be newer than the report.
    fn refresh(&self, zone: ZoneId) -> Result<Zone> {
        let slot = self.slot(zone)?;
        slot.forget();
        let found = self.zone(zone)?;
        slot.set(found.written().unwrap_or(LbaCount::ZERO));
        Ok(found)
    }

    /// The same for all zones, of which the caller has the turns. Returns those whose write pointer
    /// is lower than it was.
    fn refresh_all(&self) -> Result<Vec<ZoneId>> {
        let before: Vec<_> = self.slots.iter().map(Slot::known).collect();
        self.slots.iter().for_each(Slot::forget);
        let zones = self.report_all()?;
        for (slot, zone) in self.slots.iter().zip(&zones) {
            slot.set(zone.written().unwrap_or(LbaCount::ZERO));
        }
        let lower = zones.iter().zip(before).filter(|(zone, before)| {
            zone.written().zip(*before).is_some_and(|(now, before)| now < before)
        });
        Ok(lower.map(|(zone, _)| zone.id).collect())
    }

    fn turns(&self) -> Vec<MutexGuard<'_, ()>> {
        self.slots.iter().map(Slot::lock).collect()
    }

    /// The same for a caller that has no turn.
    fn refresh_between_writes(&self, zone: ZoneId) -> Result<Zone> {
        let _turn = self.slot(zone)?.lock();
        self.refresh(zone)
    }

    /// Blocks of a zone that a read takes from the drive, if it ends `end` blocks behind the start
    /// of the zone; beyond them it fills in zeroes.
    fn stored(&self, zone: ZoneId, end: LbaCount) -> Result<LbaCount> {
        let slot = self.slot(zone)?;
        if self.shape.geometry.kind(zone) == ZoneKind::Conventional {
            return Ok(self.shape.geometry.size_of(zone));
        }
        if let Some(written) = slot.known().filter(|written| end <= *written) {
            return Ok(written);
        }
        // Another program may have written, and only a report tells that a zone is offline.
        let asked = self.refresh_between_writes(zone)?;
        if asked.cond == ZoneCond::Offline {
            return Err(DeviceError::ZoneOffline { zone });
        }
        // A read-only zone has no write pointer: the drive decides.
        Ok(asked.written().unwrap_or(asked.capacity))
    }

    /// Reads a part of a zone: the written blocks, and zeroes beyond, where not every drive allows
    /// reads.
    fn read_in_zone(&self, zone: ZoneId, offset: LbaCount, target: &mut [u8]) -> Result<()> {
        let blocks = self.shape.geometry.blocks(target.len())?;
        let mut stored = self.stored(zone, offset + blocks)?;
        let lba = self.shape.geometry.zone_start(zone) + offset;
        let mut resets = 0;
        loop {
            let len = self.byte_len(stored.saturating_sub(offset).min(blocks));
            let (head, tail) = target.split_at_mut(len);
            tail.fill(0);
            let Err((place, failure)) = self.read_pieces(lba, head) else { return Ok(()) };
            let now = self.refresh_between_writes(zone);
            match now.as_ref().ok().and_then(Zone::written) {
                // It was reset meanwhile: the next turn reads less.
                Some(written) if written < stored && resets < RESETS => {
                    (stored, resets) = (written, resets + 1);
                }
                Some(_) | None => {
                    return Err(self.explain(zone, place, Access::Read, now, failure));
                }
            }
        }
    }

    /// Reads from `lba` on. A failure comes with the blocks of its command.
    fn read_pieces(
        &self,
        lba: Lba,
        target: &mut [u8],
    ) -> std::result::Result<(), ((Lba, LbaCount), Failure)> {
        let mut at = lba;
        for piece in target.chunks_mut(self.byte_len(self.shape.limits.transfer)) {
            let blocks =
                LbaCount::new(piece.len() as u64 >> self.shape.geometry.block_size().shift());
            let read = self.channel.read(self.drive_lba(at), piece);
            read.map_err(|failure| ((at, blocks), failure))?;
            at += blocks;
        }
        Ok(())
    }

    /// Writes to a zone, whose turn the caller has if it is sequential.
    fn write_in_turn(&self, zone: ZoneId, lba: Lba, data: &[u8]) -> Result<()> {
        let mut at = lba;
        for piece in data.chunks(self.byte_len(self.shape.limits.transfer)) {
            let blocks = self.shape.geometry.blocks(piece.len())?;
            self.write_piece(zone, at, blocks, piece)?;
            at += blocks;
            if self.shape.geometry.kind(zone).is_sequential() {
                self.slot(zone)?.raise(at - self.shape.geometry.zone_start(zone));
            }
        }
        Ok(())
    }

    /// Writes by one command. A failed one is repeated only if the drive shows that it did nothing,
    /// or if repeating it does no harm: in a conventional zone.
    fn write_piece(&self, zone: ZoneId, lba: Lba, blocks: LbaCount, piece: &[u8]) -> Result<()> {
        let is_required = self.shape.geometry.kind(zone) == ZoneKind::SequentialRequired;
        let mut doubts = 0;
        loop {
            let Err(failure) = self.channel.write(self.drive_lba(lba), piece) else {
                return Ok(());
            };
            // The write pointer of a conventional zone is none, and its lock is not held.
            let now = match self.shape.geometry.kind(zone) {
                ZoneKind::Conventional => self.zone(zone),
                ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => self.refresh(zone),
            };
            let did_nothing = now.as_ref().is_ok_and(|now| now.wp == Some(lba));
            if failure.next() == Next::Doubt && doubts < DOUBTS && (did_nothing || !is_required) {
                doubts += 1;
                continue;
            }
            return Err(self.explain(zone, (lba, blocks), Access::Write, now, failure));
        }
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        let slot = self.slot(zone)?;
        if self.shape.geometry.kind(zone) == ZoneKind::Conventional {
            return Err(DeviceError::Conventional { zone });
        }
        let _turn = slot.lock();
        let start = SendTarget::Start(self.drive_lba(self.shape.geometry.zone_start(zone)));
        if let Err(failure) = self.channel.manage(action, start) {
            let now = self.refresh(zone);
            return Err(self.explain_action(zone, action, now, failure));
        }
        match action {
            ZoneAction::Reset => slot.set(LbaCount::ZERO),
            ZoneAction::Finish => slot.set(self.shape.geometry.capacity_of(zone)),
            ZoneAction::Open | ZoneAction::Close => {}
        }
        Ok(())
    }

    /// One command for all zones: for a reset of 52,000 zones the difference is that between
    /// seconds and many minutes.
    fn manage_all(&self, action: ZoneAction) -> Result<()> {
        let _turns = self.turns();
        let done = self.channel.manage(action, SendTarget::All);
        // If this fails, every write pointer is unknown until a request reports its zone.
        let _ = self.refresh_all();
        done.map_err(|failure| {
            let of_zone = failure.meaning().and_then(|what| self.of_zone(ZoneId::ZERO, what));
            let what = format!("{} all zones of", action.name());
            of_zone.unwrap_or_else(|| self.failed(&what, failure))
        })
    }

    /// D4: a drive that loses power loses the content of its cache, and then its write pointers are
    /// lower than they were. Stores the write pointers that the drive reports.
    fn check_after_reset(&self) -> Result<()> {
        let _turns = self.turns();
        let lower = self.refresh_all().inspect_err(|_| self.channel.note_reset())?;
        let Some(zone) = lower.first() else { return Ok(()) };
        let (count, name) = (lower.len(), self.path.display());
        let why = format!("the drive was reset and lost blocks of {count} zones, such as {zone}");
        Err(DeviceError::Io { what: format!("flushing {name}"), source: io::Error::other(why) })
    }

    /// Performs the requests of a round by as many threads as the kernel takes commands. `SG_IO`
    /// waits for its command. The interface that does not, write(2) and read(2) on the node, needs
    /// one reader that hands out the answers, and lets the kernel write to memory after a call has
    /// returned. To start a thread takes some microseconds, and a disk some milliseconds.
    fn side_by_side(&self, round: &mut [&mut Io<'_>]) {
        // A server of swap space must not wait for the memory of a thread.
        if own_disk::serves_swap() {
            return;
        }
        let count = round.len().min(DEPTH);
        let queue = Mutex::new(round.iter_mut());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(io) = next() {
                io.perform(self);
            }
        };
        thread::scope(|scope| {
            for _ in 1..count {
                // Without a further thread, the running ones do the work.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}

impl ZonedDevice for ScsiDrive {
    fn geometry(&self) -> &Geometry {
        &self.shape.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let end =
            first.index().saturating_add(limit).min(self.shape.geometry.zone_count() as usize);
        let most =
            self.byte_len(self.shape.limits.transfer).min(REPORT_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let order = self.channel.order();
        let mut next = first.index();
        while next < end {
            let id = ZoneId::new(u32::try_from(next).expect("a zone"));
            if self.shape.is_left_out(id) {
                zones.push(self.shape.left_out_zone(id));
                next += 1;
                continue;
            }
            // The header, and a gap zone behind each zone.
            let entries = (end - next).saturating_mul(2).saturating_add(1);
            let bytes = entries.saturating_mul(zones::ENTRY_BYTES).min(most);
            let mut report = vec![0; bytes.next_multiple_of(PAGE_BYTES)];
            let start = self.drive_lba(self.shape.geometry.zone_start(id));
            let len = self
                .channel
                .report(start, &mut report, Doubt::Repeated)
                .map_err(|failure| self.failed("reporting zones of", failure))?;
            let mut found = shape::zones(order, &report[..len], &self.shape, id)
                .map_err(|what| self.wrong(what))?;
            found.truncate(end - next);
            next += found.len();
            zones.extend(found);
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        by_zone::read(&self.shape.geometry, lba, buffer, |zone, offset, part| {
            self.read_in_zone(zone, offset, part)
        })
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.mode.check_writable()?;
        let Some(range) = WriteRange::of_write(&self.shape.geometry, lba, data.len())? else {
            return Ok(());
        };
        let WriteRange { zone, offset, .. } = range;
        let slot = self.slot(zone)?;
        if self.shape.geometry.kind(zone) == ZoneKind::Conventional {
            return self.write_in_turn(zone, lba, data);
        }
        let _turn = slot.lock();
        if slot.known() != Some(offset)
            && let Some(error) = refusal(&self.refresh(zone)?, lba)
        {
            return Err(error);
        }
        self.write_in_turn(zone, lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.mode.check_writable()?;
        let slot = self.slot(zone)?;
        let blocks = by_zone::append_blocks(&self.shape.geometry, data.len())?;
        let (start, capacity) =
            (self.shape.geometry.zone_start(zone), self.shape.geometry.capacity_of(zone));
        if self.shape.geometry.kind(zone) == ZoneKind::Conventional {
            let is_empty = blocks == LbaCount::ZERO;
            return if is_empty { Ok(start) } else { Err(DeviceError::Conventional { zone }) };
        }
        let _turn = slot.lock();
        let mut known = slot.known();
        loop {
            // A full zone may have been reset by another program.
            let is_new = known.is_none_or(|written| written == capacity);
            let written = match known {
                Some(written) if !is_new || blocks == LbaCount::ZERO => written,
                Some(_) | None => {
                    let now = self.refresh(zone)?;
                    let wp = now.wp.unwrap_or(start);
                    if let Some(error) = refusal(&now, wp).filter(|_| blocks > LbaCount::ZERO) {
                        return Err(error);
                    }
                    wp - start
                }
            };
            let lba = start + written;
            if blocks == LbaCount::ZERO {
                return Ok(lba);
            }
            if written + blocks > capacity {
                return Err(DeviceError::CrossesZone { zone, lba, blocks });
            }
            match self.write_in_turn(zone, lba, data) {
                Ok(()) => return Ok(lba),
                // Another program has written: the drive refused the write and reported the zone.
                Err(DeviceError::NotAtWritePointer { .. }) if known.is_some() => known = None,
                Err(error) => return Err(error),
            }
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.mode.check_writable()?;
        match zones {
            Select::One(zone) => self.manage_one(zone, action),
            Select::All => self.manage_all(action),
        }
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn rotates(&self) -> bool {
        self.rotates
    }

    fn flush(&self) -> Result<()> {
        if !self.has_to_flush() {
            return Ok(());
        }
        self.channel.flush().map_err(|failure| self.failed("flushing", failure))?;
        if self.channel.take_reset() { self.check_after_reset() } else { Ok(()) }
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        in_rounds(self, Appends::OneByOne, batch, |round| self.side_by_side(round));
    }
}

/// The commands of a drive, which this process claims, with its block device if there is one.
fn connect(path: &Path, mode: OpenMode) -> Result<(Channel, Option<Claim>)> {
    let failed = |source| DeviceError::Io { what: format!("opening {}", path.display()), source };
    let writes = mode == OpenMode::ReadWrite;
    let file = File::options().read(true).write(writes).open(path).map_err(failed)?;
    let number = file.metadata().map_err(failed)?.rdev();
    zonal::claim::lock(&file, path, mode)?;
    let node = Attributes::of_generic(number).and_then(|attributes| attributes.node());
    let block = node.map(|node| Claim::take(&node, mode)).transpose()?.flatten();
    let node = sg::Node::new(file).map_err(|errno| not_generic(path, errno))?;
    Ok((Channel::new(Box::new(node)), block))
}

fn not_generic(path: &Path, errno: Errno) -> DeviceError {
    match errno {
        Errno::NOTTY | Errno::INVAL => DeviceError::Unsuitable {
            path: path.to_owned(),
            what: "is not a SCSI generic node, such as /dev/sg0".into(),
        },
        errno => DeviceError::Io {
            what: format!("identifying {}", path.display()),
            source: errno.into(),
        },
    }
}
