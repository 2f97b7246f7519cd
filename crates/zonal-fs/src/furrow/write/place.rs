//! Placing data on the drive, and reading it back: the only two ways between memory and data zones.
//!
//! A write that a zone refuses goes to another zone; the data is still held. A read pins the zones
//! it goes to under the state lock, so that none is reset before the read is done, and verifies
//! every block's checksum.

use std::sync::atomic::Ordering;

use zonal::{DeviceError, ZoneCond};
use zonal_placement::streams::Whole;

use crate::FsError;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::State;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::space::Allowance;
use crate::furrow::write::Writer;
use crate::furrow::zones::allocation::{Grant, Purpose, Wish};
use crate::furrow::zones::is_dead;
use crate::vfs::Result;

/// Zones that may refuse one write before it fails.
const REFUSALS_MAX: usize = 8;

/// Data on its way to zones.
pub(in crate::furrow) struct Placement<'a> {
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
    pub(in crate::furrow) const fn new(purpose: Purpose, whole: Whole, data: &'a [u8]) -> Self {
        Self { purpose, whole, data, rest: data, placed: Vec::new(), refusals: 0 }
    }

    fn add(&mut self, placed: Placed) {
        self.whole.blocks = self.whole.blocks.saturating_sub(placed.blocks.into());
        self.whole.near = Some(placed.zone);
        self.placed.push(placed);
    }
}

impl Writer {
    /// Writes whole blocks to data zones, never with the state locked. The blocks are in flight
    /// until they are settled. They lie in one zone if they can, with what follows.
    pub(in crate::furrow) fn place_data(
        &self,
        purpose: Purpose,
        whole: Whole,
        data: &[u8],
    ) -> Result<Vec<Placed>> {
        let mut placement = Placement::new(purpose, whole, data);
        let outcome = self.place_rest(&mut placement);
        self.end_placement(placement, outcome)
    }

    /// Writes as much of a placement as is left. After [`FsError::NoSpace`] it can go on where it
    /// stopped, once there is room.
    pub(in crate::furrow) fn place_rest(&self, placement: &mut Placement<'_>) -> Result<()> {
        while !placement.rest.is_empty() {
            let want = u32::try_from(placement.rest.len() / BLOCK_BYTES).unwrap_or(u32::MAX);
            let want = want.min(self.tree.layout().extent_max);
            let (who, refusals) = ((placement.purpose, placement.whole), placement.refusals);
            let granted = self.grant(&mut self.tree.write_accounts(), who, (want, refusals));
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
    pub(in crate::furrow) fn end_placement(
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
                self.give_up(&placed);
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

    /// Places several pieces of data side by side, each as by [`place_data`](Self::place_data).
    /// `None`: it found no room at once, or a zone refused it, so it has to be placed by itself.
    pub(in crate::furrow) fn place_together(
        &self,
        pieces: &[(Purpose, &[u8])],
    ) -> Vec<Option<Vec<Placed>>> {
        let granted: Vec<Option<Vec<Grant>>> = {
            let mut state = self.tree.write_accounts();
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
            let want = left.min(self.tree.layout().extent_max);
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
        self.give_up(&placed);
        None
    }

    /// Gives up data that was placed: no file maps it.
    pub(in crate::furrow) fn give_up(&self, placed: &[Placed]) {
        if placed.is_empty() {
            return;
        }
        let mut state = self.tree.write_accounts();
        for part in placed {
            state.zones.settle(part.zone, part.blocks);
        }
    }

    /// Gives up a grant that the device has refused.
    fn end_refused(&self, grant: Grant, error: &DeviceError) {
        if self.is_untouched(grant.zone, error) {
            self.tree.write_accounts().zones.give_back(grant);
        } else {
            self.tree.write_accounts().zones.settle(grant.zone, grant.blocks);
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
        let (want, leaving) = match self.tree.space.allowance(state, purpose) {
            Allowance::Zones { blocks, leaving } => (at_most(blocks), leaving),
            Allowance::Borrowed { blocks } => {
                return state.zones.borrow(wish, (at_most(blocks), clock));
            }
        };
        // Where a zone has refused, those that have taken something are better than new ones.
        let open_ones = (refusals > 0).then(|| self.tree.space.left_to_metadata(state));
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
            self.tree.write_accounts().zones.fail(zone);
            // What it holds is to be moved.
            self.tree.bell.wake_worker();
        } else {
            self.tree.write_accounts().zones.seal(zone);
            self.finish_zone(zone);
        }
    }

    /// Takes a zone that was sealed before it was full from the active ones of the drive.
    pub(in crate::furrow) fn finish_zone(&self, zone: u32) {
        self.drive.finish(zone);
        self.tree.write_accounts().zones.finished(zone);
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
    use std::time::Duration;

    use zonal::{Lba, ManualClock, MemoryDrive, Profile, ZoneId, ZonedDevice};

    use super::*;
    use crate::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

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
    fn zone_refused_as_active_is_used_later() {
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
    fn read_that_hangs_fails_waiter_without_blocking() {
        let drive: Arc<dyn ZonedDevice> =
            Arc::new(MemoryDrive::new(Profile::Small.geometry()).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.drive.pins.set_patience(Duration::from_millis(20));
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.write(ino, 0, &vec![1; 1 << 20], WriteFlags::DIRECT).unwrap();
        let zone = fs.tree.read_state().zones.slots.iter().position(|slot| slot.live > 0).unwrap();
        let zone = u32::try_from(zone).unwrap();
        fs.drive.pins.pin_zone(&*fs.tree.read_state(), zone);
        fs.unlink(Ino::ROOT, b"file").unwrap();
        fs.tree.write_state().zones.seal(zone);
        for _ in 0..2 {
            let error = fs.reclaimer.make_room().unwrap_err();
            assert!(matches!(error, FsError::ReadsHang { .. }), "{error}");
        }
        fs.drive.pins.unpin_zone(zone);
        fs.reclaimer.make_room().unwrap();
    }
}
