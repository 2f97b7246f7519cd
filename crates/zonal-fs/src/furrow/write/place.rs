//! Placement: writes data to zones, the only way from memory to data zones.
//!
//! The caller keeps the data until the drive has it: a write that one zone refuses goes to another
//! zone.

use std::sync::atomic::Ordering;

use zonal::{DeviceError, ZoneCond};
use zonal_placement::streams::Locality;

use crate::FsError;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::place::Placed;
use crate::furrow::space::Allowance;
use crate::furrow::write::Writer;
use crate::furrow::zones::allocation::{Allocation, AllocationRequest, Purpose};
use crate::furrow::zones::is_dead;
use crate::vfs::Result;

/// Zones that may refuse one write before it fails.
const REFUSALS_MAX: usize = 8;

/// Whole blocks to be written to data zones.
#[derive(Clone, Copy)]
pub(in crate::furrow) struct WriteRequest<'a> {
    pub(in crate::furrow) purpose: Purpose,
    pub(in crate::furrow) data: &'a [u8],
    /// The file or run that the blocks belong to.
    pub(in crate::furrow) locality: Locality,
}

/// A write under way: the placed blocks, and the rest.
pub(in crate::furrow) struct Placement<'a> {
    /// The request, with the locality of the rest.
    write: WriteRequest<'a>,
    /// Data that is not on the drive yet.
    rest: &'a [u8],
    placed: Vec<Placed>,
    /// Zones that have refused a part of it.
    refusals: usize,
}

impl<'a> Placement<'a> {
    pub(in crate::furrow) const fn new(write: WriteRequest<'a>) -> Self {
        Self { write, rest: write.data, placed: Vec::new(), refusals: 0 }
    }

    /// Room for the rest, in one extent at most.
    fn request(&self, extent_max: u32) -> AllocationRequest {
        let WriteRequest { purpose, locality, .. } = self.write;
        let blocks = u32::try_from(self.rest.len() / BLOCK_BYTES).unwrap_or(u32::MAX);
        AllocationRequest { purpose, locality, blocks: blocks.min(extent_max) }
    }

    fn add(&mut self, placed: Placed) {
        self.rest = &self.rest[placed.blocks as usize * BLOCK_BYTES..];
        let locality = &mut self.write.locality;
        locality.blocks = locality.blocks.saturating_sub(placed.blocks.into());
        locality.near = Some(placed.zone);
        self.placed.push(placed);
    }
}

impl Writer {
    /// Writes whole blocks to data zones: to one zone, with all of their locality, if there is
    /// room. It takes the state lock itself. The blocks are in flight until the caller maps them or
    /// gives them up.
    pub(in crate::furrow) fn place_data(&self, write: WriteRequest<'_>) -> Result<Vec<Placed>> {
        let mut placement = Placement::new(write);
        let outcome = self.place_rest(&mut placement);
        self.end_placement(placement, outcome)
    }

    /// Writes the rest of a placement. After [`FsError::NoSpace`] the caller can make room and call
    /// it again.
    pub(in crate::furrow) fn place_rest(&self, placement: &mut Placement<'_>) -> Result<()> {
        while !placement.rest.is_empty() {
            match self.drive.write_beside(|| self.place_next(placement)) {
                Ok(Some(placed)) => placement.add(placed),
                Ok(None) if self.reset_one() => {}
                Ok(None) => return Err(FsError::NoSpace),
                Err(error) if placement.refusals >= REFUSALS_MAX || is_final(&error) => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the next part of a placement to one zone, and returns where it is; `None` without
    /// room.
    fn place_next(
        &self,
        placement: &mut Placement<'_>,
    ) -> std::result::Result<Option<Placed>, DeviceError> {
        self.retire_open(placement);
        let request = placement.request(self.tree.layout().extent_max);
        let refusals = placement.refusals;
        let allocation = self.allocate(&mut self.tree.write_accounts(), request, refusals);
        let Some(allocation) = allocation else { return Ok(None) };
        let Allocation { zone, block, blocks } = allocation;
        let now = &placement.rest[..blocks as usize * BLOCK_BYTES];
        let on_full_host = placement.write.purpose.on_full_host();
        match self.drive.place(Address { zone, block }, now, on_full_host) {
            Ok(block) => Ok(Some(Placed { zone, block, blocks })),
            Err(error) => {
                self.end_refused(allocation, &error);
                placement.refusals += 1;
                Err(error)
            }
        }
    }

    /// Seals and finishes an open zone, if its room is spare: one beyond the limit, or one that is
    /// almost full where a file would be cut otherwise.
    fn retire_open(&self, placement: &Placement<'_>) {
        let Purpose::Write(target) = placement.write.purpose else { return };
        let retired = {
            let mut state = self.tree.write_accounts();
            let surplus = state.zones.find_surplus();
            let remnant = || state.zones.find_remnant(target, placement.write.locality);
            let Some(zone) = surplus.or_else(remnant) else { return };
            let room = self.tree.space.writer_room(&state).now;
            let lost = u64::from(state.zones.slot(zone).remaining());
            let zone_blocks = u64::from(state.zones.zone_blocks());
            if self.tree.space.spare_zones(&state) < 2
                || room < state.rows.totals.pending() + lost + zone_blocks
            {
                return;
            }
            state.zones.seal(zone);
            zone
        };
        self.finish_zone(retired);
    }

    /// Ends a placement. After an error it gives up the blocks that are on the drive.
    pub(in crate::furrow) fn end_placement(
        &self,
        placement: Placement<'_>,
        outcome: Result<()>,
    ) -> Result<Vec<Placed>> {
        let Placement { write, placed, .. } = placement;
        match outcome {
            Ok(()) => {
                self.count_placed(write);
                Ok(placed)
            }
            Err(error) => {
                self.give_up(&placed);
                Err(error)
            }
        }
    }

    fn count_placed(&self, write: WriteRequest<'_>) {
        let bytes = write.data.len() as u64;
        let counts = &self.drive.counts;
        match write.purpose {
            Purpose::Write(_) | Purpose::WriteBack(_) => &counts.user_bytes,
            Purpose::Reclaim { .. } => &counts.reclaim_bytes,
        }
        .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Writes several runs of blocks side by side, each as [`place_data`](Self::place_data) does.
    /// `None` for one that found no room at once or was refused: its caller writes it alone.
    pub(super) fn place_together(&self, writes: &[WriteRequest<'_>]) -> Vec<Option<Vec<Placed>>> {
        let _beside = self.drive.lock_placing();
        let allocated: Vec<Option<Vec<Allocation>>> = {
            let mut state = self.tree.write_accounts();
            writes.iter().map(|&write| self.allocate_all(&mut state, write)).collect()
        };
        let mut wanted = Vec::new();
        for (allocations, write) in allocated.iter().zip(writes) {
            let mut rest = write.data;
            for &Allocation { zone, block, blocks } in allocations.iter().flatten() {
                let (now, later) = rest.split_at(blocks as usize * BLOCK_BYTES);
                wanted.push((Address { zone, block }, now));
                rest = later;
            }
        }
        let mut outcomes = self.drive.place_all(&wanted).into_iter();
        let ends = allocated.into_iter().zip(writes);
        ends.map(|(allocations, &write)| {
            let placed = self.end_allocations(allocations?, &mut outcomes)?;
            self.count_placed(write);
            Some(placed)
        })
        .collect()
    }

    /// Room for all of a write, or none.
    fn allocate_all(&self, state: &mut State, write: WriteRequest<'_>) -> Option<Vec<Allocation>> {
        let (mut allocations, mut near) = (Vec::new(), None);
        let mut left = u32::try_from(write.data.len() / BLOCK_BYTES).ok()?;
        while left > 0 {
            let (locality, blocks) =
                (Locality { blocks: 0, near }, left.min(self.tree.layout().extent_max));
            let request = AllocationRequest { purpose: write.purpose, locality, blocks };
            let Some(allocation) = self.allocate(state, request, 0) else {
                allocations.into_iter().rev().for_each(|given| state.zones.give_back(given));
                return None;
            };
            left -= allocation.blocks;
            near = Some(allocation.zone);
            allocations.push(allocation);
        }
        Some(allocations)
    }

    /// Returns where a write has gone. If a zone has refused a part of it, gives up the others.
    fn end_allocations(
        &self,
        allocations: Vec<Allocation>,
        outcomes: &mut impl Iterator<Item = std::result::Result<u32, DeviceError>>,
    ) -> Option<Vec<Placed>> {
        let (mut placed, mut is_whole) = (Vec::new(), true);
        for (allocation, outcome) in allocations.into_iter().zip(outcomes) {
            let Allocation { zone, blocks, .. } = allocation;
            match outcome {
                Ok(block) => placed.push(Placed { zone, block, blocks }),
                Err(error) => {
                    is_whole = false;
                    self.end_refused(allocation, &error);
                }
            }
        }
        if is_whole {
            return Some(placed);
        }
        self.give_up(&placed);
        None
    }

    /// Gives up placed data: no file will map it.
    pub(in crate::furrow) fn give_up(&self, placed: &[Placed]) {
        if placed.is_empty() {
            return;
        }
        let mut state = self.tree.write_accounts();
        for part in placed {
            state.zones.complete(part.zone, part.blocks);
        }
    }

    /// Ends an allocation after the device has refused the write.
    fn end_refused(&self, allocation: Allocation, error: &DeviceError) {
        let Allocation { zone, blocks, .. } = allocation;
        if self.is_untouched(zone, error) {
            self.tree.write_accounts().zones.give_back(allocation);
        } else {
            self.tree.write_accounts().zones.complete(zone, blocks);
            self.retire_zone(zone, error);
        }
    }

    /// Whether a zone that has refused a write is as before. If so, a passing fault costs no room:
    /// an empty zone becomes free again, and writers take all other free zones before it.
    fn is_untouched(&self, zone: u32, error: &DeviceError) -> bool {
        match error {
            // The zone has no fault: another one would refuse as well.
            DeviceError::NoSpace { .. }
            | DeviceError::TooManyActive { .. }
            | DeviceError::TooManyOpen { .. } => true,
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

    /// Allocates blocks in one zone, as many as requested or fewer (F4), for a write that
    /// `refusals` zones have refused.
    fn allocate(
        &self,
        state: &mut State,
        request: AllocationRequest,
        refusals: usize,
    ) -> Option<Allocation> {
        let clock = state.rows.totals.data_clock();
        let up_to = |most: u64| {
            let blocks = request.blocks.min(u32::try_from(most).unwrap_or(u32::MAX));
            AllocationRequest { blocks, ..request }
        };
        let (request, reserves) = match self.tree.space.allowance(state, request.purpose) {
            Allowance::Zones { blocks, leaving } => (up_to(blocks), leaving),
            Allowance::Borrowed { blocks } => return state.zones.borrow(up_to(blocks), clock),
        };
        // After a refusal, zones that have taken data before are a better choice than new ones.
        let open_ones = (refusals > 0).then(|| self.tree.space.left_to_metadata(state));
        let mut reserves = open_ones.into_iter().chain(reserves);
        let allocation =
            reserves.find_map(|reserve| state.zones.allocate(request, reserve, clock))?;
        // The data clock counts only writes of users.
        if !matches!(request.purpose, Purpose::Reclaim { .. }) {
            state.rows.totals.advance_clock(allocation.blocks.into());
        }
        Some(allocation)
    }

    /// Takes a zone that refused a write out of use, and says why in the log.
    fn retire_zone(&self, zone: u32, error: &DeviceError) {
        if matches!(error, DeviceError::PowerCut) {
            return;
        }
        tracing::warn!(zone, %error, "a write failed; going on in another zone");
        if is_dead(self.drive.cond(zone)) {
            self.tree.write_accounts().zones.fail(zone);
            // The worker moves its blocks.
            self.tree.bell.wake_worker();
        } else {
            self.tree.write_accounts().zones.seal(zone);
            self.finish_zone(zone);
        }
    }

    /// Finishes a zone that was sealed before it was full, so that it is not active any more. The
    /// caller has held [`placing`](crate::furrow::drive::Drive::lock_placing) since before it
    /// sealed the zone: a writer that is refused meanwhile waits.
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

    use zonal::{GeometrySpec, Lba, ManualClock, MemoryDrive, Profile, ZoneId, ZonedDevice};
    use zonal_placement::streams::Target;

    use super::*;
    use crate::furrow::sample::shape;
    use crate::furrow::zones::allocation::ZoneReserve;
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

    /// A writer gives back blocks of a full zone after another zone was opened in its place.
    #[test]
    fn zone_opened_again_beyond_limit_is_finished() {
        let spec = GeometrySpec { max_open: Some(4), max_active: Some(4), ..shape(24, 64) };
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        {
            let zones = &mut fs.tree.write_accounts().zones;
            let none = ZoneReserve { for_metadata: 0, others: 0 };
            let (purpose, locality) = (Purpose::Write(Target::Class(1)), Locality::default());
            let [first, last, other] = [40, 24, 8].map(|blocks| {
                zones.allocate(AllocationRequest { purpose, locality, blocks }, none, 5).unwrap()
            });
            zones.give_back(first);
            for allocation in [last, other] {
                zones.complete(allocation.zone, allocation.blocks);
            }
        }
        assert_eq!(fs.stats().zones_open, 2);
        fs.write(ino, 0, &[1; 4096], WriteFlags::DIRECT).unwrap();
        assert_eq!(fs.stats().zones_open, fs.stats().open_zones_max);
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
        let zone = fs.tree.read_state().zones.all().position(|(_, slot)| slot.live > 0).unwrap();
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
