//! The drive in file-system blocks: turns zone and block into device calls. No other room calls the
//! device.

pub(super) mod ahead;
pub(super) mod drives;
pub(super) mod host;
pub mod layout;
pub(super) mod part;
pub(super) mod pins;
pub(super) mod reads;
pub(super) mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zonal::{
    DeviceError, Io, Lba, LbaCount, Op, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice,
};

use crate::furrow::drive::ahead::ReadAhead;
use crate::furrow::drive::drives::Drives;
use crate::furrow::drive::host::{HostSpace, OnFullHost};
use crate::furrow::drive::layout::Layout;
use crate::furrow::drive::pins::ReadPins;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::planted::Planted;
use crate::furrow::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

type Result<T> = std::result::Result<T, DeviceError>;

/// The drive.
pub(super) struct Drive {
    pub(super) device: Arc<dyn ZonedDevice>,
    pub(super) layout: Layout,
    /// Calls so far that may have changed the drive.
    changes: AtomicU64,
    /// The number of changing calls that had returned before the last successful flush began.
    flushed: AtomicU64,
    /// Read-locked by every thread from the choice of a zone to the end of the write there: zones
    /// that such writes are about to fill have no room any more, and yet are active.
    placing: RwLock<()>,
    /// Held by the thread that flushes: the flush of one thread often covers the calls of those
    /// that wait.
    flushing: Mutex<()>,
    /// Zones that the drive has refused to finish, and may count as active.
    unfinished: Mutex<BTreeSet<u32>>,
    /// Whether `unfinished` has any: mostly not, and then a write takes no lock for it.
    has_unfinished: AtomicBool,
    /// Data placed since the last flush began, and the data that this flush covers. Locked after
    /// `flushing`.
    unflushed: Mutex<[Unflushed; 2]>,
    /// `changes` after the last reset: a host gets the zone's space back by the flush after it.
    last_reset: AtomicU64,
    host: HostSpace,
    ahead: ReadAhead,
    pub(super) counts: Counts,
    pub(super) pins: ReadPins,
    pub(super) planted: Planted,
}

/// Data that no finished flush covers.
#[derive(Clone, Debug, Default)]
pub(super) struct Unflushed {
    /// The first such block of each zone.
    pub(super) from: Vec<Address>,
    /// How many blocks there are.
    pub(super) blocks: u64,
    /// One of them is all zeroes, like an unwritten block of a finished zone.
    pub(super) has_zeroes: bool,
}

impl Unflushed {
    fn add(&mut self, other: &Self) {
        for &at in &other.from {
            self.add_from(at);
        }
        self.blocks += other.blocks;
        self.has_zeroes |= other.has_zeroes;
    }

    /// A search is enough, since few zones are written at a time.
    fn add_from(&mut self, at: Address) {
        match self.from.iter_mut().find(|from| from.zone == at.zone) {
            Some(from) => from.block = from.block.min(at.block),
            None => self.from.push(at),
        }
    }
}

pub(super) fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

/// Bytes and calls since mount.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) user_bytes: AtomicU64,
    pub(super) reclaim_bytes: AtomicU64,
    pub(super) meta_bytes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) blocks_reread: AtomicU64,
    pub(super) blocks_moved_wrong: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) resets: AtomicU64,
    /// Transfers that did not begin where the one before had ended.
    pub(super) jumps: AtomicU64,
    /// Where the last transfer has ended: a block of the device.
    head: AtomicU64,
}

impl Counts {
    /// Counts a jump if a transfer of `blocks` blocks does not go on where the last one has ended.
    /// Of transfers side by side any may be the last one.
    fn note_transfer(&self, from: Lba, blocks: LbaCount) {
        let end = (from + blocks).get();
        if self.head.swap(end, Ordering::Relaxed) != from.get() {
            self.jumps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drive {
    pub(super) fn new(device: Arc<dyn ZonedDevice>, layout: &Layout) -> Self {
        // All changes of earlier mounts count as one.
        let (changes, flushed) = (AtomicU64::new(1), AtomicU64::new(0));
        let (placing, flushing, unflushed) = Default::default();
        let (unfinished, has_unfinished) = (Mutex::default(), AtomicBool::new(false));
        let counts = Counts::default();
        let pins = ReadPins::new(layout.geometry.zone_count());
        Self {
            device,
            layout: *layout,
            changes,
            flushed,
            placing,
            flushing,
            unfinished,
            has_unfinished,
            unflushed,
            last_reset: AtomicU64::new(0),
            host: HostSpace::default(),
            ahead: ReadAhead::new(layout.window_blocks.into()),
            counts,
            pins,
            planted: Planted::default(),
        }
    }

    /// The drive of tools: without mount options.
    pub(super) fn of(drives: &Drives) -> crate::vfs::Result<Self> {
        Ok(Self::new(Arc::clone(drives.device()), &Layout::new(drives)?))
    }

    /// Plants mistakes for a test.
    pub(super) fn planted(self, planted: Planted) -> Self {
        Self { pins: self.pins.planted(planted), planted, ..self }
    }

    fn lock_unflushed(&self) -> MutexGuard<'_, [Unflushed; 2]> {
        self.unflushed.lock().expect("no holder panicked")
    }

    /// Counts a call that has returned, not earlier: a concurrent flush does not cover it. A failed
    /// call counts too, since it may have changed something.
    fn changed<T>(&self, outcome: Result<T>) -> Result<T> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    /// Lets the caller choose zones and write or finish them beside other threads.
    #[cfg_attr(feature = "testing", track_caller)]
    pub(super) fn lock_placing(&self) -> RwLockReadGuard<'_, ()> {
        self.placing.read().expect("no holder panicked")
    }

    /// Writes zones beside other threads. If the drive refuses that because too many zones are
    /// active, writes [alone](Self::again_alone).
    pub(super) fn write_beside<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        let outcome = {
            let _beside = self.lock_placing();
            write()
        };
        self.again_alone(outcome, write)
    }

    /// Repeats a write that the drive has refused because too many zones are active, once all
    /// writes under way have ended. Others begin after it, so no other zone is about to be full: no
    /// more zones are active than the [layout](Layout) allots.
    fn again_alone<T>(
        &self,
        outcome: Result<T>,
        mut write: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match outcome {
            Err(DeviceError::TooManyActive { .. } | DeviceError::TooManyOpen { .. }) => {
                let _alone = self.placing.write().expect("no holder panicked");
                write()
            }
            outcome => outcome,
        }
    }

    fn lba(&self, at: Address) -> Lba {
        let start = self.layout.geometry.zone_start(ZoneId::new(at.zone));
        start + LbaCount::new(u64::from(at.block) * self.layout.per_block)
    }

    /// Notes a transfer of `bytes` bytes, if the data drive makes it.
    fn note_transfer(&self, at: Address, bytes: usize) {
        if !self.layout.is_on_data_drive(at.zone) {
            return;
        }
        let blocks = (bytes / BLOCK_BYTES) as u64 * self.layout.per_block;
        self.counts.note_transfer(self.lba(at), LbaCount::new(blocks));
    }

    /// Reads whole blocks. They may lie anywhere in the zone's capacity.
    pub(super) fn read(&self, at: Address, buffer: &mut [u8]) -> Result<()> {
        self.counts.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.note_transfer(at, buffer.len());
        self.device.read(self.lba(at), buffer)
    }

    /// Writes whole blocks at the write pointer of a zone.
    pub(super) fn write(&self, at: Address, data: &[u8]) -> Result<()> {
        self.counts.meta_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.write_beside(|| self.write_once(at, data))
    }

    fn write_once(&self, at: Address, data: &[u8]) -> Result<()> {
        self.finish_again();
        self.note_transfer(at, data.len());
        let write = || self.device.write(self.lba(at), data);
        self.changed(self.on_host(OnFullHost::UseReserve, write))
    }

    /// Writes whole blocks at the write pointers of two zones, side by side.
    pub(super) fn write_copies(&self, at: [Address; 2], copies: [&[u8]; 2]) -> [Result<()>; 2] {
        let bytes = copies[0].len() + copies[1].len();
        self.counts.meta_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let [first, second] = {
            let _beside = self.lock_placing();
            self.finish_again();
            for (at, copy) in at.into_iter().zip(copies) {
                self.note_transfer(at, copy.len());
            }
            let mut batch = [0, 1].map(|copy| Io::write(self.lba(at[copy]), copies[copy]));
            self.device.submit(&mut batch);
            batch.map(|io| self.changed(self.again_on_host(io).map(drop)))
        };
        let again = |copy: usize, outcome| {
            self.again_alone(outcome, || self.write_once(at[copy], copies[copy]))
        };
        [again(0, first), again(1, second)]
    }

    /// The outcome of a request of a batch, or of its second try if the host was full.
    fn again_on_host(&self, mut io: Io<'_>) -> Result<Lba> {
        let mut first = io.result.take();
        let mut op = io.op;
        self.on_host(OnFullHost::UseReserve, || match first.take() {
            Some(outcome) => outcome,
            None => op.perform(&*self.device),
        })
    }

    /// Writes whole blocks of data into a zone and returns their first block: the planned one in a
    /// conventional zone, the device's choice in a sequential one. The caller holds
    /// [`placing`](Self::lock_placing).
    pub(super) fn place(&self, planned: Address, data: &[u8], on_full: OnFullHost) -> Result<u32> {
        self.finish_again();
        let outcome = self.on_host(on_full, || self.op_of(planned, data).perform(&*self.device));
        self.placed(planned, data, outcome)
    }

    /// Writes several runs of blocks of the write buffer side by side, each as
    /// [`place`](Self::place) does.
    pub(super) fn place_all(&self, wanted: &[(Address, &[u8])]) -> Vec<Result<u32>> {
        self.finish_again();
        let mut batch: Vec<Io<'_>> =
            wanted.iter().map(|&(planned, data)| Io::new(self.op_of(planned, data))).collect();
        self.device.submit(&mut batch);
        let ends = batch.into_iter().zip(wanted);
        ends.map(|(io, &(planned, data))| self.placed(planned, data, self.again_on_host(io)))
            .collect()
    }

    fn op_of<'a>(&self, planned: Address, data: &'a [u8]) -> Op<'a> {
        if self.layout.is_conventional(planned.zone) {
            Op::Write { lba: self.lba(planned), data }
        } else {
            Op::Append { zone: ZoneId::new(planned.zone), data }
        }
    }

    /// The block that a write or an append has gone to.
    fn placed(&self, planned: Address, data: &[u8], outcome: Result<Lba>) -> Result<u32> {
        let (zone, lba) = (ZoneId::new(planned.zone), self.changed(outcome)?);
        let offset = lba - self.layout.geometry.zone_start(zone);
        let block = self.layout.whole_blocks(offset).ok_or(DeviceError::NotAtWritePointer {
            zone,
            wp: lba,
            lba: self.lba(planned),
        })?;
        self.note_transfer(Address { block, ..planned }, data.len());
        let has_zeroes = data.chunks(BLOCK_BYTES).any(is_zero);
        // Only now, after the call: a concurrent flush does not cover it.
        let [unflushed, _] = &mut *self.lock_unflushed();
        unflushed.add_from(Address { block, ..planned });
        unflushed.blocks += (data.len() / BLOCK_BYTES) as u64;
        unflushed.has_zeroes |= has_zeroes;
        Ok(block)
    }

    /// Makes the changes of every call durable that has returned.
    pub(super) fn flush(&self) -> Result<()> {
        let _turn = self.flushing.lock().expect("no holder panicked");
        // Before the flush: it does not cover calls that return while it runs.
        let covered = self.changes.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) >= covered {
            return Ok(());
        }
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        {
            let [after, before] = &mut *self.lock_unflushed();
            *before = std::mem::take(after);
        }
        // A host may need space to take the blocks of emptied zones out of the file.
        let outcome = self.on_host(OnFullHost::UseReserve, || self.device.flush());
        let [after, before] = &mut *self.lock_unflushed();
        let before = std::mem::take(before);
        if outcome.is_err() {
            after.add(&before);
        }
        outcome?;
        self.flushed.fetch_max(covered, Ordering::AcqRel);
        Ok(())
    }

    /// Whether no flush has followed the last reset.
    pub(super) fn has_unflushed_resets(&self) -> bool {
        self.last_reset.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }

    /// Placed data that no finished flush covers.
    pub(super) fn unflushed(&self) -> Unflushed {
        let [after, before] = &*self.lock_unflushed();
        let mut all = after.clone();
        all.add(before);
        all
    }

    /// Resets a zone. A conventional one has no write pointer: the device only deallocates its
    /// blocks.
    pub(super) fn reset(&self, zone: u32) -> Result<()> {
        self.ahead.forget(zone);
        if self.layout.is_conventional(zone) {
            self.deallocate(zone);
            return Ok(());
        }
        self.counts.resets.fetch_add(1, Ordering::Relaxed);
        // Before the reset, since another thread may write the zone right after it.
        let was_unfinished = self.lock_unfinished().is_some_and(|mut zones| zones.remove(&zone));
        let outcome = self.manage(zone, ZoneAction::Reset);
        self.last_reset.store(self.changes.load(Ordering::Acquire), Ordering::Release);
        if was_unfinished && outcome.is_err() {
            self.note_unfinished(zone);
        }
        outcome
    }

    /// Deallocates all blocks of a zone. F3: as for a reset, no durable record refers to it.
    fn deallocate(&self, zone: u32) {
        let id = ZoneId::new(zone);
        let (start, blocks) =
            (self.layout.geometry.zone_start(id), self.layout.geometry.capacity_of(id));
        // Furrow can write the zone again even if this fails.
        if let Err(error) = self.changed(self.device.deallocate(start, blocks)) {
            tracing::debug!(zone, %error, "blocks stay allocated");
        }
    }

    /// Finishes a zone, which frees its active resources. If the drive refuses, the next write
    /// tries again: a drive with few active zones might refuse that write otherwise.
    pub(super) fn finish(&self, zone: u32) {
        if self.layout.is_conventional(zone) {
            return;
        }
        if !self.try_finish(zone) {
            self.note_unfinished(zone);
        }
    }

    /// Finishes a zone; returns whether that succeeded or another attempt is useless.
    fn try_finish(&self, zone: u32) -> bool {
        match self.manage(zone, ZoneAction::Finish) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(zone, %error, "zone stays active");
                !matches!(error, DeviceError::Io { .. } | DeviceError::Medium { .. })
            }
        }
    }

    fn manage(&self, zone: u32, action: ZoneAction) -> Result<()> {
        self.changed(self.device.manage(Select::One(ZoneId::new(zone)), action))
    }

    fn note_unfinished(&self, zone: u32) {
        self.unfinished.lock().expect("no holder panicked").insert(zone);
        self.has_unfinished.store(true, Ordering::Release);
    }

    /// Zones that the drive has refused to finish, if there are any.
    fn lock_unfinished(&self) -> Option<MutexGuard<'_, BTreeSet<u32>>> {
        let any = self.has_unfinished.load(Ordering::Acquire);
        any.then(|| self.unfinished.lock().expect("no holder panicked"))
    }

    /// Finishes zones that the drive has refused to finish before.
    fn finish_again(&self) {
        if let Some(mut zones) = self.lock_unfinished() {
            zones.retain(|&zone| !self.try_finish(zone));
            self.has_unfinished.store(!zones.is_empty(), Ordering::Release);
        }
    }

    /// The condition of a zone, if the drive reports it.
    pub(super) fn cond(&self, zone: u32) -> Option<ZoneCond> {
        self.device.zone(ZoneId::new(zone)).map(|zone| zone.cond).ok()
    }

    /// Blocks of a zone's capacity from `at` on.
    pub(super) fn blocks_after(&self, at: Address) -> u32 {
        self.layout.capacity(at.zone).saturating_sub(at.block)
    }

    /// Reads `bytes` bytes from `at` on, or fewer if the zone ends before.
    pub(super) fn read_bytes(&self, at: Address, bytes: usize) -> Result<Vec<u8>> {
        let blocks = bytes.div_ceil(BLOCK_BYTES).min(self.blocks_after(at) as usize);
        let mut buffer = vec![0; blocks * BLOCK_BYTES];
        self.read(at, &mut buffer)?;
        buffer.truncate(bytes);
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use zonal::{GeometrySpec, MemoryDrive};

    use super::*;
    use crate::furrow::sample::shape;

    /// A drive that tells which writes it has refused.
    struct Telling {
        drive: MemoryDrive,
        refused: Sender<()>,
    }

    impl ZonedDevice for Telling {
        zonal::pass_on!(drive: geometry, report, read, append, manage, flush);

        fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
            let outcome = self.drive.write(lba, data);
            if let Err(DeviceError::TooManyActive { .. }) = outcome {
                self.refused.send(()).unwrap();
            }
            outcome
        }
    }

    #[test]
    fn refused_copy_waits_for_writer_that_fills_zone() {
        let spec = GeometrySpec { max_open: Some(4), max_active: Some(4), ..shape(24, 64) };
        let (refused, told) = channel();
        let device = Telling { drive: MemoryDrive::new(spec).unwrap(), refused };
        let drives = Drives::from(Arc::new(device));
        let drive = &Drive::of(&drives).unwrap();
        let blocks = vec![1; 63 * BLOCK_BYTES];
        for zone in 5..8 {
            drive.write(Address { zone, block: 0 }, &blocks).unwrap();
        }
        let one = &blocks[..BLOCK_BYTES];
        std::thread::scope(|scope| {
            let beside = drive.lock_placing();
            let at = [8, 9].map(|zone| Address { zone, block: 0 });
            let copies = scope.spawn(move || drive.write_copies(at, [one, one]));
            told.recv().unwrap();
            drive.place(Address { zone: 5, block: 63 }, one, OnFullHost::Fail).unwrap();
            drop(beside);
            for outcome in copies.join().unwrap() {
                outcome.unwrap();
            }
        });
    }
}
