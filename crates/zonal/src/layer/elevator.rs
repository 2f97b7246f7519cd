//! `Elevator`: a write-back buffer that spares the head of a disk.
//!
//! On a disk each move of the head costs about 8 ms, as long as a transfer of 2 MiB. Writers of
//! several zones move it at every write. This layer acknowledges a write of a sequential zone once
//! it is in memory, as the cache of a drive does, and writes the blocks of one zone at a time.
//!
//! - A flush makes every acknowledged write durable. Blocks that no flush followed can be lost; a
//!   zone keeps a prefix of its data even then (D4).
//! - A write pointer that a caller sees counts the blocks in memory, and reads find them.
//! - The drive can refuse blocks that were acknowledged. The next flush returns that error, and the
//!   zone has the write pointer of the drive from then on.
//! - Only an open zone has blocks in memory. Close, finish, and the write that fills a zone empty
//!   its part of the buffer first. At the limit of open zones this layer closes the one that was
//!   used longest ago. With a limit of active zones, the write that opens a zone goes to the drive.
//! - One thread writes at a time. A writer that finds the buffer full writes out the longest run.
//!
//! Conventional zones, and zones where sequential writes are preferred, are written directly.
//! `docs/decisions/sparing-the-head.md` compares it with other ways.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::aligned::AlignedBytes;
use crate::device::batch::{Io, Op, Part};
use crate::error::Result;
use crate::{
    ByteCount, DeviceError, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
    ZonedDevice,
};

/// Bytes of the buffer of a mount or an export.
pub const BUFFER: ByteCount = ByteCount::new(64 << 20);

/// Bytes of one write to the drive.
const PIECE: usize = 1 << 20;

/// Bytes that go to one zone before the next one has its turn.
const RUN: usize = 32 << 20;

/// A device that gathers the writes of the one below into long runs.
///
/// ```
/// use zonal::layer::elevator::{BUFFER, Elevator};
/// use zonal::{MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let drive = MemoryDrive::new(Profile::Small.geometry())?;
/// let disk = Elevator::new(drive, BUFFER)?;
/// for _ in 0..4 {
///     disk.append(ZoneId::new(0), &[1; 4096])?;
///     disk.append(ZoneId::new(1), &[1; 4096])?;
/// }
/// disk.flush()?; // the head moves once for each zone
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Elevator<D: ZonedDevice> {
    below: D,
    /// Bytes that the buffer holds.
    limit: usize,
    /// Held by the thread that writes to the drive or acts on its zones; taken before `state`.
    head: Mutex<()>,
    /// Held for moments, and during reports.
    state: Mutex<State>,
}

/// The open zones, and their blocks in memory.
#[derive(Default)]
struct State {
    /// Sequential zones that are open on the drive, or that blocks in memory will open.
    open: BTreeMap<ZoneId, Run>,
    /// Bytes in memory.
    bytes: usize,
    /// Writes and actions so far: the time by which zones were used.
    used: u64,
    /// The first error of a write-out since the last flush.
    failed: Option<DeviceError>,
}

/// The blocks of an open zone that its drive does not have yet.
struct Run {
    /// Write pointer of the drive.
    at: Lba,
    /// End of the zone's capacity.
    end: Lba,
    cond: ZoneCond,
    used: u64,
    data: VecDeque<u8>,
}

impl<D: ZonedDevice> Elevator<D> {
    /// A layer that holds up to `buffer` bytes of `below`, which nobody else writes.
    ///
    /// # Errors
    /// If the drive cannot report its zones.
    pub fn new(below: D, buffer: ByteCount) -> Result<Self> {
        let limit = usize::try_from(buffer.get()).unwrap_or(usize::MAX);
        let elevator = Self { below, limit, head: Mutex::default(), state: Mutex::default() };
        elevator.learn_all()?;
        Ok(elevator)
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// Whether blocks are in memory.
    pub fn holds_blocks(&self) -> bool {
        self.state().bytes > 0
    }

    /// Writes out what is in memory. The next flush makes it durable, and returns the error of a
    /// drive that has refused some of it.
    pub fn write_out_all(&self) {
        let _head = self.head();
        self.sweep();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> MutexGuard<'_, ()> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks(&self, bytes: usize) -> u64 {
        bytes as u64 / self.below.geometry().block_size().bytes()
    }

    fn bytes(&self, blocks: u64) -> usize {
        let bytes = self.below.geometry().bytes(LbaCount::new(blocks)).get();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// The write pointer that callers see.
    fn shown(&self, run: &Run) -> Lba {
        run.at + LbaCount::new(self.blocks(run.data.len()))
    }

    /// Takes a write into memory if the zone is open, the blocks go to its write pointer and leave
    /// room behind them, and the buffer has room.
    fn buffer(&self, zone: ZoneId, at: Option<Lba>, data: &[u8]) -> Option<Lba> {
        let blocks = self.blocks(data.len());
        let mut state = self.state();
        let state = &mut *state;
        let run = state.open.get_mut(&zone)?;
        let shown = self.shown(run);
        let is_whole = blocks > 0 && self.bytes(blocks) == data.len();
        let fits = blocks < (run.end - shown).get() && state.bytes + data.len() <= self.limit;
        if !is_whole || !fits || at.is_some_and(|at| at != shown) {
            return None;
        }
        run.data.extend(data);
        state.bytes += data.len();
        state.used += 1;
        run.used = state.used;
        Some(shown)
    }

    /// Writes to a zone; `None` is its write pointer.
    fn write_at(&self, zone: ZoneId, at: Option<Lba>, data: &[u8]) -> Result<Lba> {
        if let Some(lba) = self.buffer(zone, at, data) {
            return Ok(lba);
        }
        let _head = self.head();
        if data.len() <= self.limit / 2 {
            self.make_room(data.len());
            if let Some(lba) = self.buffer(zone, at, data) {
                return Ok(lba);
            }
        }
        // The zone is not open, or the write fills it or is wrong.
        self.settle(zone);
        let found = self.below.zone(zone)?;
        let blocks = LbaCount::new(self.blocks(data.len()));
        let is_whole = blocks.get() > 0 && self.bytes(blocks.get()) == data.len();
        let room = found.wp.map(|wp| found.start + found.capacity - wp);
        if is_whole && at.is_none_or(|at| found.wp == Some(at)) && room >= Some(blocks) {
            self.close_one_for(&found)?;
            if self.can_start(&found) {
                self.enter(&Zone { cond: ZoneCond::ImplicitOpen, ..found });
                if let Some(lba) = self.buffer(zone, at, data) {
                    return Ok(lba);
                }
            }
        }
        let written = match at {
            Some(lba) => self.below.write(lba, data).map(|()| lba),
            None => self.below.append(zone, data),
        };
        self.learn(zone);
        if written.is_ok() {
            self.touch(zone);
        }
        written
    }

    /// Writes out the longest runs until `len` more bytes fit.
    fn make_room(&self, len: usize) {
        loop {
            let state = self.state();
            if state.bytes + len <= self.limit {
                return;
            }
            let longest = state.open.iter().max_by_key(|(_, run)| run.data.len());
            let Some((&zone, run)) = longest else { return };
            let run = run.data.len().min(RUN);
            drop(state);
            self.write_out(zone, run);
        }
    }

    /// Writes the first `bytes` bytes in memory of a zone. The caller holds the head.
    fn write_out(&self, zone: ZoneId, mut bytes: usize) {
        let mut piece = AlignedBytes::zeroed(bytes.min(PIECE));
        while bytes > 0 {
            let state = self.state();
            let Some(run) = state.open.get(&zone) else { return };
            let (lba, len) = (run.at, bytes.min(PIECE));
            copy(&run.data, 0, &mut piece[..len]);
            drop(state);
            let written = self.below.write(lba, &piece[..len]);
            let mut guard = self.state();
            let state = &mut *guard;
            let Some(run) = state.open.get_mut(&zone) else { return };
            if let Err(error) = written {
                tracing::error!(zone = zone.get(), %error, "writing buffered blocks failed");
                state.bytes -= run.data.len();
                run.data = VecDeque::new();
                run.end = run.at;
                state.failed.get_or_insert(error);
                drop(guard);
                return self.learn(zone);
            }
            run.data.drain(..len);
            if run.data.is_empty() {
                run.data = VecDeque::new();
            }
            run.at = lba + LbaCount::new(self.blocks(len));
            state.bytes -= len;
            bytes -= len;
        }
    }

    /// Writes out a zone, and takes no more blocks of it into memory until the caller, who holds
    /// the head, has learnt of it again.
    fn settle(&self, zone: ZoneId) {
        loop {
            let mut state = self.state();
            let Some(run) = state.open.get_mut(&zone) else { return };
            let bytes = run.data.len();
            if bytes == 0 {
                run.end = run.at;
                return;
            }
            drop(state);
            self.write_out(zone, bytes);
        }
    }

    /// Writes out what is in memory now, in the order of addresses. The caller holds the head.
    fn sweep(&self) {
        let runs = |(zone, run): (&ZoneId, &Run)| (*zone, run.data.len());
        let zones: Vec<_> = self.state().open.iter().map(runs).collect();
        for (zone, bytes) in zones {
            self.write_out(zone, bytes);
        }
    }

    /// Open zones other than this one.
    fn open_beside(&self, zone: ZoneId) -> u32 {
        let others = self.state().open.keys().filter(|open| **open != zone).count();
        u32::try_from(others).unwrap_or(u32::MAX)
    }

    /// Whether blocks in memory can open a zone once the drive gets them.
    fn can_start(&self, zone: &Zone) -> bool {
        let geometry = self.below.geometry();
        matches!(zone.cond, ZoneCond::Empty | ZoneCond::Closed)
            && geometry.max_active().is_none()
            && geometry.max_open().is_none_or(|limit| self.open_beside(zone.id) < limit)
    }

    /// Closes the zone that was used longest ago, if the drive would do that to open `zone`.
    fn close_one_for(&self, zone: &Zone) -> Result<()> {
        let geometry = self.below.geometry();
        let Some(limit) = geometry.max_open() else { return Ok(()) };
        if self.open_beside(zone.id) < limit {
            return Ok(());
        }
        let victim = {
            let state = self.state();
            let implicit = state.open.iter().filter(|(_, run)| run.cond == ZoneCond::ImplicitOpen);
            let others = implicit.filter(|(open, _)| **open != zone.id);
            others.min_by_key(|(_, run)| run.used).map(|(victim, _)| *victim)
        };
        let Some(victim) = victim else { return Ok(()) };
        let takes_one = match (zone.cond, geometry.max_active()) {
            (ZoneCond::Closed, _) | (ZoneCond::Empty, None) => true,
            (ZoneCond::Empty, Some(limit)) => {
                let zones = self.below.report_all()?;
                zones.iter().filter(|zone| zone.cond.is_active()).count() < limit as usize
            }
            (
                ZoneCond::ImplicitOpen
                | ZoneCond::ExplicitOpen
                | ZoneCond::NotWp
                | ZoneCond::Full
                | ZoneCond::ReadOnly
                | ZoneCond::Offline,
                _,
            ) => false,
        };
        if takes_one {
            self.settle(victim);
            let closed = self.below.manage(Select::One(victim), ZoneAction::Close);
            self.learn(victim);
            closed?;
        }
        Ok(())
    }

    /// Takes over a zone as the drive has it: nothing of it is in memory, and the caller holds the
    /// head.
    fn learn(&self, zone: ZoneId) {
        match self.below.zone(zone) {
            Ok(found) => self.enter(&found),
            // It is written directly until the drive answers.
            Err(_) => drop(self.state().open.remove(&zone)),
        }
    }

    fn enter(&self, zone: &Zone) {
        let is_taken = zone.cond.is_open() && zone.kind == ZoneKind::SequentialRequired;
        let mut state = self.state();
        let before = state.open.remove(&zone.id);
        if let Some(at) = zone.wp.filter(|_| is_taken) {
            let (end, cond) = (zone.start + zone.capacity, zone.cond);
            let used = before.map_or(state.used + 1, |run| run.used);
            state.used = state.used.max(used);
            state.open.insert(zone.id, Run { at, end, cond, used, data: VecDeque::new() });
        }
    }

    /// Notes that a write or an action has just used a zone.
    fn touch(&self, zone: ZoneId) {
        let mut state = self.state();
        state.used += 1;
        let used = state.used;
        if let Some(run) = state.open.get_mut(&zone) {
            run.used = used;
        }
    }

    /// Takes over all zones as the drive has them.
    fn learn_all(&self) -> Result<()> {
        self.below.report_all()?.iter().for_each(|zone| self.enter(zone));
        Ok(())
    }

    /// Drops the blocks of a zone that was reset.
    fn forget(&self, zone: ZoneId) {
        let mut state = self.state();
        if let Some(run) = state.open.remove(&zone) {
            state.bytes -= run.data.len();
        }
    }

    fn manage_all(&self, action: ZoneAction) -> Result<()> {
        let _head = self.head();
        let zones: Vec<_> = self.state().open.keys().copied().collect();
        for zone in zones {
            self.settle(zone);
        }
        let managed = self.below.manage(Select::All, action);
        self.learn_all().and(managed)
    }

    /// The blocks in memory of a range: where they begin in it, and their bytes.
    fn in_memory(&self, lba: Lba, bytes: usize) -> Vec<(usize, Vec<u8>)> {
        // The drive refuses a wrong range.
        let Ok(blocks) = self.below.geometry().blocks_at(lba, bytes) else { return Vec::new() };
        let (end, state) = (lba + blocks, self.state());
        let mut parts = Vec::new();
        for run in state.open.values().filter(|run| !run.data.is_empty()) {
            let (from, to) = (lba.max(run.at), end.min(self.shown(run)));
            if from < to {
                let mut part = vec![0; self.bytes((to - from).get())];
                copy(&run.data, self.bytes((from - run.at).get()), &mut part);
                parts.push((self.bytes((from - lba).get()), part));
            }
        }
        parts
    }
}

impl<D: ZonedDevice> ZonedDevice for Elevator<D> {
    crate::pass_on!(below: geometry, deallocate, identity, rotates, keep_reserve, use_reserve);

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        // With the lock, so that no write-out ends between the two looks.
        let state = self.state();
        let from = zones.len();
        self.below.report(first, zones, limit)?;
        for zone in &mut zones[from..] {
            if let Some(run) = state.open.get(&zone.id).filter(|run| !run.data.is_empty()) {
                (zone.cond, zone.wp) = (run.cond, Some(self.shown(run)));
            }
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let parts = self.in_memory(lba, buffer.len());
        if !matches!(&parts[..], [(0, part)] if part.len() == buffer.len()) {
            self.below.read(lba, buffer)?;
        }
        for (at, part) in parts {
            buffer[at..at + part.len()].copy_from_slice(&part);
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let geometry = self.below.geometry();
        let blocks = geometry.blocks_at(lba, data.len())?;
        let (zone, _) = geometry.locate(lba);
        if blocks.get() == 0 || geometry.kind(zone) != ZoneKind::SequentialRequired {
            return self.below.write(lba, data);
        }
        self.write_at(zone, Some(lba), data).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let geometry = self.below.geometry();
        let is_long = self.blocks(data.len()) > geometry.max_append().get();
        if is_long || zone.get() >= geometry.zone_count() {
            return self.below.append(zone, data);
        }
        self.write_at(zone, None, data)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let zone = match (zones, action) {
            (Select::One(zone), _) => zone,
            // Each open may close another zone.
            (Select::All, ZoneAction::Open) => return super::manage_each(self, action),
            (Select::All, _) => return self.manage_all(action),
        };
        let _head = self.head();
        match action {
            ZoneAction::Reset => {
                // A zone that refuses keeps its blocks.
                self.below.manage(zones, action)?;
                self.forget(zone);
                return Ok(());
            }
            ZoneAction::Open => self.close_one_for(&self.below.zone(zone)?)?,
            ZoneAction::Close | ZoneAction::Finish => {}
        }
        self.settle(zone);
        let managed = self.below.manage(zones, action);
        self.learn(zone);
        if managed.is_ok() {
            self.touch(zone);
        }
        managed
    }

    fn flush(&self) -> Result<()> {
        let _head = self.head();
        self.sweep();
        let flushed = self.below.flush();
        self.state().failed.take().map_or(Ok(()), Err).and(flushed)
    }

    /// Reads of blocks that are on the drive go to it side by side.
    fn submit(&self, batch: &mut [Io<'_>]) {
        for part in batch.split_inclusive_mut(|io| matches!(io.op, Op::Flush)) {
            let (mut reads, mut others) = (Part::default(), Vec::new());
            for io in part {
                let is_below = match &io.op {
                    Op::Read { lba, buffer } => self.in_memory(*lba, buffer.len()).is_empty(),
                    Op::Write { .. } | Op::Append { .. } | Op::Flush => false,
                };
                if is_below {
                    reads.push(io.op.reborrow(), &mut io.result);
                } else {
                    others.push(io);
                }
            }
            reads.submit(&self.below);
            for io in others {
                io.perform(self);
            }
        }
    }
}

/// Like that of the cache of a drive that is switched off in order: nothing is lost.
impl<D: ZonedDevice> Drop for Elevator<D> {
    fn drop(&mut self) {
        self.write_out_all();
    }
}

/// Copies bytes from `from` on.
fn copy(data: &VecDeque<u8>, from: usize, to: &mut [u8]) {
    let (first, second) = data.as_slices();
    let split = first.len().saturating_sub(from).min(to.len());
    let (head, tail) = to.split_at_mut(split);
    head.copy_from_slice(&first[from.min(first.len())..][..split]);
    let from = from.saturating_sub(first.len());
    tail.copy_from_slice(&second[from..from + tail.len()]);
}
