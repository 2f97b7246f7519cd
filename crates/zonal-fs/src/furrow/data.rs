//! Placing data on the drive, and reading it back: the only two ways between memory and data zones.
//!
//! A write that a zone refuses goes to another zone; the data is still held. A read pins the zones
//! it goes to under the state lock, so that none is reset before the read is done, and verifies
//! every block's checksum.

use std::sync::atomic::Ordering;
use std::time::Duration;

use zonal::placement::streams::Whole;
use zonal::{DeviceError, ZoneCond, ZoneId};

use super::Furrow;
use super::alloc::is_dead;
use super::extent::Placed;
use super::format::{Address, BLOCK_BYTES};
use super::grants::{Grant, Purpose, Wish};
use super::planted::PlantedBug;
use super::space::Allowance;
use super::state::State;
use crate::FsError;
use crate::vfs::{Ino, Result};

/// How long a thread that needs a zone waits for reads of it: as long as Linux lets a disk command
/// take before it resets the disk (`SD_TIMEOUT`).
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(30);

/// Zones that may refuse one write before it fails.
const REFUSALS_MAX: usize = 8;

/// Data on its way to zones.
pub(super) struct Placement<'a> {
    purpose: Purpose,
    /// What it belongs to that is still to come.
    whole: Whole,
    data: &'a [u8],
    /// What is not on the drive yet.
    rest: &'a [u8],
    placed: Vec<Placed>,
    /// Zones that have refused a part of it.
    refusals: usize,
}

impl<'a> Placement<'a> {
    pub(super) const fn new(purpose: Purpose, whole: Whole, data: &'a [u8]) -> Self {
        Self { purpose, whole, data, rest: data, placed: Vec::new(), refusals: 0 }
    }

    fn add(&mut self, placed: Placed) {
        self.whole.blocks = self.whole.blocks.saturating_sub(placed.blocks.into());
        self.whole.near = Some(placed.zone);
        self.placed.push(placed);
    }
}

/// Blocks to be read from a zone.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) at: Address,
    pub(super) crcs: Vec<u32>,
    /// For whom, to name it when the checksum is wrong.
    pub(super) ino: Ino,
    /// File block of the first one.
    pub(super) first: u64,
}

impl Furrow {
    /// Writes whole blocks to data zones, never with the state locked. The blocks are in flight until
    /// they are settled. They lie in one zone if they can, with what follows.
    pub(super) fn place_data(
        &self,
        purpose: Purpose,
        whole: Whole,
        data: &[u8],
    ) -> Result<Vec<Placed>> {
        let mut placement = Placement::new(purpose, whole, data);
        let outcome = self.place_rest(&mut placement);
        self.end_placement(placement, outcome)
    }

    /// Writes as much of a placement as is left. After [`FsError::NoSpace`] it can go on where it stopped,
    /// once there is room.
    pub(super) fn place_rest(&self, placement: &mut Placement<'_>) -> Result<()> {
        while !placement.rest.is_empty() {
            let want = u32::try_from(placement.rest.len() / BLOCK_BYTES).unwrap_or(u32::MAX);
            let want = want.min(self.layout().extent_max);
            let (who, refusals) = ((placement.purpose, placement.whole), placement.refusals);
            let granted = self.grant(&mut self.write_accounts(), who, (want, refusals));
            let Some(grant) = granted else {
                if self.reset_one() {
                    continue;
                }
                return Err(FsError::NoSpace);
            };
            let (now, later) = placement.rest.split_at(grant.blocks as usize * BLOCK_BYTES);
            let at = Address { zone: grant.zone, block: grant.block };
            let outcome = {
                let _under_way = self.placing.read().expect("no holder panicked");
                self.drive.place(at, now)
            };
            match outcome {
                Ok(block) => {
                    placement.add(Placed { zone: grant.zone, block, blocks: grant.blocks });
                    placement.rest = later;
                }
                Err(error) => {
                    self.end_refused(grant, &error);
                    placement.refusals += 1;
                    if placement.refusals >= REFUSALS_MAX || is_final(&error) {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a placement: all of it lies on the drive, or the blocks that do are given up.
    pub(super) fn end_placement(
        &self,
        placement: Placement<'_>,
        outcome: Result<()>,
    ) -> Result<Vec<Placed>> {
        let Placement { purpose, placed, data, .. } = placement;
        match outcome {
            Ok(()) => {
                self.count_placed(purpose, data);
                Ok(placed)
            }
            Err(error) => {
                let mut state = self.write_accounts();
                for part in &placed {
                    state.zones.settle(part.zone, part.blocks);
                }
                Err(error)
            }
        }
    }

    fn count_placed(&self, purpose: Purpose, data: &[u8]) {
        let bytes = data.len() as u64;
        let counts = &self.drive.counts;
        match purpose.wish() {
            Wish::New(_) => counts.user_bytes.fetch_add(bytes, Ordering::Relaxed),
            Wish::Moved { .. } => counts.reclaim_bytes.fetch_add(bytes, Ordering::Relaxed),
        };
    }

    /// Places several pieces of data side by side, each as by [`place_data`](Self::place_data). `None`: it
    /// found no room at once, or a zone refused it, so it has to be placed by itself.
    pub(super) fn place_together(&self, pieces: &[(Purpose, &[u8])]) -> Vec<Option<Vec<Placed>>> {
        let granted: Vec<Option<Vec<Grant>>> = {
            let mut state = self.write_accounts();
            pieces.iter().map(|&piece| self.grant_all(&mut state, piece)).collect()
        };
        let mut wanted = Vec::new();
        for (grants, &(_, data)) in granted.iter().zip(pieces) {
            let mut rest = data;
            for grant in grants.iter().flatten() {
                let (now, later) = rest.split_at(grant.blocks as usize * BLOCK_BYTES);
                wanted.push((Address { zone: grant.zone, block: grant.block }, now));
                rest = later;
            }
        }
        let mut outcomes = {
            let _under_way = self.placing.read().expect("no holder panicked");
            self.drive.place_all(&wanted).into_iter()
        };
        let ends = granted.into_iter().zip(pieces);
        ends.map(|(grants, &(purpose, data))| {
            let placed = self.end_grants(grants?, &mut outcomes)?;
            self.count_placed(purpose, data);
            Some(placed)
        })
        .collect()
    }

    /// Room for all of a piece of data, or none.
    fn grant_all(
        &self,
        state: &mut State,
        (purpose, data): (Purpose, &[u8]),
    ) -> Option<Vec<Grant>> {
        let (mut grants, mut whole) = (Vec::new(), Whole::default());
        let mut left = u32::try_from(data.len() / BLOCK_BYTES).ok()?;
        while left > 0 {
            let want = left.min(self.layout().extent_max);
            let Some(grant) = self.grant(state, (purpose, whole), (want, 0)) else {
                grants.into_iter().rev().for_each(|grant| state.zones.give_back(grant));
                return None;
            };
            left -= grant.blocks;
            whole.near = Some(grant.zone);
            grants.push(grant);
        }
        Some(grants)
    }

    /// Where a piece of data lies. If a part of it was refused, the others are given up.
    fn end_grants(
        &self,
        grants: Vec<Grant>,
        outcomes: &mut impl Iterator<Item = std::result::Result<u32, DeviceError>>,
    ) -> Option<Vec<Placed>> {
        let (mut placed, mut is_whole) = (Vec::new(), true);
        for (grant, outcome) in grants.into_iter().zip(outcomes) {
            match outcome {
                Ok(block) => {
                    placed.push(Placed { zone: grant.zone, block, blocks: grant.blocks });
                }
                Err(error) => {
                    is_whole = false;
                    self.end_refused(grant, &error);
                }
            }
        }
        if is_whole {
            return Some(placed);
        }
        let mut state = self.write_accounts();
        for part in &placed {
            state.zones.settle(part.zone, part.blocks);
        }
        None
    }

    /// Gives up a grant that the device has refused.
    fn end_refused(&self, grant: Grant, error: &DeviceError) {
        if self.is_untouched(grant.zone, error) {
            self.write_accounts().zones.give_back(grant);
        } else {
            self.write_accounts().zones.settle(grant.zone, grant.blocks);
            self.retire_zone(grant.zone, error);
        }
        if let DeviceError::TooManyActive { .. } = error {
            // The zones that other writes are about to fill stay active until these writes have
            // ended.
            self.let_writes_end();
        }
    }

    /// Whether a zone that has refused a write holds what it held before. If so, a fault that
    /// passes costs no room: an empty zone becomes free again, and all other free zones are taken
    /// before it.
    fn is_untouched(&self, zone: u32, error: &DeviceError) -> bool {
        match error {
            // No fault of the zone's: the next one would find no room either.
            DeviceError::NoSpace { .. } | DeviceError::TooManyActive { .. } => true,
            DeviceError::PowerCut => false,
            error => {
                let is_empty = self.drive.cond(zone) == Some(ZoneCond::Empty);
                if is_empty {
                    tracing::warn!(zone, %error, "an empty zone refused a write; going on in another");
                }
                is_empty
            }
        }
    }

    /// Waits until all writes of data that are under way have ended.
    fn let_writes_end(&self) {
        drop(self.placing.write().expect("no holder panicked"));
    }

    /// Room for a writer, as much as it wants or less (F4).
    fn grant(
        &self,
        state: &mut State,
        (purpose, whole): (Purpose, Whole),
        (want, refusals): (u32, usize),
    ) -> Option<Grant> {
        let (wish, clock) = (purpose.wish(), state.totals.data_clock);
        let at_most = |blocks: u64| want.min(u32::try_from(blocks).unwrap_or(u32::MAX));
        let (want, leaving) = match self.space.allowance(state, purpose) {
            Allowance::Zones { blocks, leaving } => (at_most(blocks), leaving),
            Allowance::Borrowed { blocks } => {
                return state.zones.borrow(wish, (at_most(blocks), clock));
            }
        };
        // Where a zone has refused, those that have taken something are better than new ones.
        let open_ones = (refusals > 0).then(|| self.space.left_to_metadata(state));
        let mut granted = |kept| state.zones.grant((wish, whole), (want, kept), clock);
        let grant = open_ones.into_iter().chain(leaving).find_map(&mut granted)?;
        match wish {
            Wish::New(_) => state.totals.data_clock += u64::from(grant.blocks),
            // Lives are counted in what users write.
            Wish::Moved { .. } => {}
        }
        Some(grant)
    }

    /// Takes a zone that refused a write out of use, and says why in the log.
    fn retire_zone(&self, zone: u32, error: &DeviceError) {
        if matches!(error, DeviceError::PowerCut) {
            return;
        }
        tracing::warn!(zone, %error, "a write failed; going on in another zone");
        if is_dead(self.drive.cond(zone)) {
            self.write_accounts().zones.fail(zone);
            // What it holds is to be moved.
            self.wake_worker();
        } else {
            self.write_accounts().zones.seal(zone);
            self.finish_zone(zone);
        }
    }

    /// Takes a zone that was sealed before it was full from the active ones of the drive.
    pub(super) fn finish_zone(&self, zone: u32) {
        self.drive.finish(zone);
        self.write_accounts().zones.finished(zone);
    }

    /// Keeps a zone from being reset while it is read. To be called under the state lock.
    pub(super) fn pin_zone(&self, zone: u32) {
        self.pins[zone as usize].fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back one [`pin_zone`](Self::pin_zone). Never with the state locked.
    pub(super) fn unpin_zone(&self, zone: u32) {
        let before = self.pins[zone as usize].fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.idle_waiters.load(Ordering::SeqCst) > 0 {
            let _turn = self.idle_turn.lock().expect("no holder panicked");
            if !self.has_planted(PlantedBug::KeepIdleWaiting) {
                self.became_idle.notify_all();
            }
        }
    }

    /// Waits until one of the zones in which nothing lives can be reset, if there are any: their
    /// readers began before the blocks died, and no new ones begin. They can take longer than
    /// [`READ_PATIENCE`] only if the device hangs: then this is an error, and later callers get it at
    /// once.
    pub(super) fn wait_for_idle(&self) -> Result<()> {
        let hangs = self.reads_hang.load(Ordering::Acquire);
        let patience = if hangs { Duration::ZERO } else { self.read_patience };
        self.idle_waiters.fetch_add(1, Ordering::SeqCst);
        let turn = self.idle_turn.lock().expect("no holder panicked");
        let all_are_read = |(): &mut ()| {
            let zones = &self.read_state().zones;
            zones.has_emptied() && !zones.has_idle_emptied(|zone| self.is_idle(zone))
        };
        let waited = self.became_idle.wait_timeout_while(turn, patience, all_are_read);
        let hangs = waited.expect("no holder panicked").1.timed_out();
        self.idle_waiters.fetch_sub(1, Ordering::SeqCst);
        self.reads_hang.store(hangs, Ordering::Release);
        if hangs { Err(FsError::ReadsHang { waited: self.read_patience }) } else { Ok(()) }
    }

    /// Whether nobody reads a zone.
    pub(super) fn is_idle(&self, zone: u32) -> bool {
        self.pins[zone as usize].load(Ordering::SeqCst) == 0
    }

    /// Reads and verifies whole blocks of a pinned zone.
    pub(super) fn read_blocks(&self, source: &Source, buffer: &mut [u8]) -> Result<()> {
        self.read_sources(vec![(source, buffer)])
    }

    /// Reads whole blocks of pinned zones side by side, and verifies them.
    pub(super) fn read_sources(&self, mut wanted: Vec<(&Source, &mut [u8])>) -> Result<()> {
        let places = wanted.iter_mut().map(|(source, buffer)| (source.at, &mut **buffer));
        self.drive.read_all(&mut places.collect::<Vec<_>>())?;
        if self.has_planted(PlantedBug::SkipDataChecksum) {
            return Ok(());
        }
        for (source, buffer) in wanted {
            let wrong = self.drive.find_wrong(source.at, &source.crcs, buffer);
            if let Some(&index) = wrong.first() {
                return Err(FsError::Checksum {
                    ino: source.ino,
                    offset: (source.first + u64::from(index)) * BLOCK_BYTES as u64,
                    zone: ZoneId::new(source.at.zone),
                    block: source.at.block + index,
                });
            }
        }
        Ok(())
    }
}

/// Whether trying another zone cannot help.
fn is_final(error: &DeviceError) -> bool {
    matches!(error, DeviceError::NoSpace { .. } | DeviceError::PowerCut)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use zonal::{Lba, ManualClock, MemoryDrive, Profile, ZonedDevice};

    use super::*;
    use crate::furrow::{MkfsOptions, MountOptions, mkfs};
    use crate::vfs::{Caller, FileKind, FileSystem, NewInode, WriteFlags};

    /// A drive that refuses some appends, as if too many zones were active.
    struct Busy {
        drive: MemoryDrive,
        refusals: AtomicU32,
    }

    impl ZonedDevice for Busy {
        zonal::pass_on!(drive: geometry, report, read, write, manage, flush);

        fn append(&self, zone: ZoneId, data: &[u8]) -> std::result::Result<Lba, DeviceError> {
            let less = |left: u32| left.checked_sub(1);
            if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                return Err(DeviceError::TooManyActive { zone, limit: 4 });
            }
            self.drive.append(zone, data)
        }
    }

    #[test]
    fn a_zone_that_could_not_become_active_is_used_later() {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let drive = Arc::new(Busy { drive, refusals: AtomicU32::new(0) });
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        let free = fs.stats().zones_free;
        drive.refusals.store(3, Ordering::Relaxed);
        fs.write(ino, 0, &vec![1; 1 << 16], WriteFlags::DIRECT).unwrap();
        assert_eq!(drive.refusals.load(Ordering::Relaxed), 0);
        assert_eq!(fs.stats().zones_free, free - 1, "the file has the only zone that was taken");
    }

    #[test]
    fn a_read_that_hangs_is_an_error_for_who_needs_its_zone_and_no_hang() {
        let drive: Arc<dyn ZonedDevice> =
            Arc::new(MemoryDrive::new(Profile::Small.geometry()).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let mut fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.read_patience = Duration::from_millis(20);
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.write(ino, 0, &vec![1; 1 << 20], WriteFlags::DIRECT).unwrap();
        let zone = fs.read_state().zones.slots.iter().position(|slot| slot.live > 0).unwrap();
        let zone = u32::try_from(zone).unwrap();
        fs.pin_zone(zone);
        fs.unlink(Ino::ROOT, b"file").unwrap();
        fs.write_state().zones.seal(zone);
        for _ in 0..2 {
            let error = fs.make_room().unwrap_err();
            assert!(matches!(error, FsError::ReadsHang { .. }), "{error}");
        }
        fs.unpin_zone(zone);
        fs.make_room().unwrap();
    }
}
