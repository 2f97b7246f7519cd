//! Allocation: room for writers in open zones, and when to open another zone.
//!
//! [`zonal_placement::streams`] decides; this keeps the accounts. Every writer may use the room in
//! an open zone: if no zone can be opened, a user's write goes wherever room is left (F4), so files
//! that have zones of their own never keep others from writing.

use std::collections::BTreeSet;
use std::iter::Sum;
use std::ops::{Add, Sub};

use zonal::ZoneId;
use zonal_placement::life::{birth_of, class_of_moved};
use zonal_placement::streams::{Ages, Choice, Locality, OpenZone, Supply, Target};
use zonal_placement::victim::Policy;

use crate::furrow::drive::host::OnFullHost;
use crate::furrow::zones::{Origin, Role, Stream, Urgency, ZoneSlot, Zones};

/// A zone whose room is at most its capacity divided by this is given up sooner than that a file is
/// cut. By trial below RocksDB on a drive of 256 zones that it fills to 80 %, Furrow amplifies
/// overwrites with 16 to 1.061 to 1.066, with 8 to 1.049 to 1.057, with 3 to 1.044 to 1.055.
const REMNANT_SHARE: u32 = 3;

/// Blocks of a zone for a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Allocation {
    pub(in crate::furrow) zone: u32,
    /// The first block, for a write that names its place; an append may land elsewhere.
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) blocks: u32,
}

/// Purpose of a write, and the target that placement chose for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Purpose {
    /// A user's write, past the buffer.
    Write(Target),
    /// Write-back of the buffer.
    WriteBack(Target),
    /// Blocks that reclaim moves out of a victim.
    Reclaim {
        /// When they were written, on the data clock: the mean.
        birth: u64,
        /// How urgent reclaim is.
        urgency: Urgency,
    },
}

impl Purpose {
    /// Only the buffer's blocks, which no error can be given for any more, use the reserve.
    pub(in crate::furrow) const fn on_full_host(self) -> OnFullHost {
        match self {
            Self::WriteBack(_) => OnFullHost::UseReserve,
            Self::Write(_) | Self::Reclaim { .. } => OnFullHost::Fail,
        }
    }
}

/// Blocks that a write needs in one zone.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct AllocationRequest {
    pub(in crate::furrow) purpose: Purpose,
    /// The rest of the file or run that the blocks belong to.
    pub(in crate::furrow) locality: Locality,
    /// How many, at most.
    pub(in crate::furrow) blocks: u32,
}

/// Free zones that a writer leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct ZoneReserve {
    /// Of the free zones that metadata can take.
    pub(in crate::furrow) for_metadata: usize,
    /// Of all free zones, beyond these.
    pub(in crate::furrow) others: usize,
}

/// Blocks that can be written in open zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct OpenRoom {
    /// In the open zones of users.
    pub(in crate::furrow) users: u64,
    /// In the open zones of reclaim.
    pub(in crate::furrow) moved: u64,
}

impl OpenRoom {
    /// Of one zone.
    pub(super) fn of(slot: &ZoneSlot) -> Self {
        match slot.role {
            Role::Open(Stream::User) => Self { users: slot.remaining().into(), moved: 0 },
            Role::Open(Stream::Reclaim) => Self { users: 0, moved: slot.remaining().into() },
            Role::Super
            | Role::Meta
            | Role::Free
            | Role::Sealed
            | Role::PendingReset
            | Role::Failed => Self::default(),
        }
    }
}

impl Add for OpenRoom {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { users: self.users + other.users, moved: self.moved + other.moved }
    }
}

impl Sub for OpenRoom {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { users: self.users - other.users, moved: self.moved - other.moved }
    }
}

impl Sum for OpenRoom {
    fn sum<I: Iterator<Item = Self>>(rooms: I) -> Self {
        rooms.fold(Self::default(), Self::add)
    }
}

impl ZoneSlot {
    /// The data clock at the first and at the last write of its blocks.
    pub(super) fn births(&self) -> (u64, u64) {
        match self.origin {
            Origin::Written => (self.born, self.last_write),
            Origin::Moved => (self.born, self.born),
        }
    }

    /// The data clock when a block of it was written.
    pub(in crate::furrow) fn birth_of(&self, block: u32) -> u64 {
        let (first, last) = self.births();
        birth_of(first, last, block, self.end)
    }

    /// Records when the next blocks were written.
    fn note_births(&mut self, purpose: Purpose, blocks: u32, clock: u64) {
        let (first, last) = self.births();
        let (before, blocks) = (u128::from(self.written), u128::from(blocks));
        let mean = |next: u64| {
            let all = u128::from(u64::midpoint(first, last)) * before + u128::from(next) * blocks;
            u64::try_from(all / (before + blocks).max(1)).expect("between the two")
        };
        match (purpose, self.origin) {
            (Purpose::Reclaim { birth, .. }, _) => {
                (self.origin, self.born) = (Origin::Moved, mean(birth));
            }
            _ if before == 0 => (self.origin, self.born) = (Origin::Written, clock),
            (_, Origin::Written) => {}
            (_, Origin::Moved) => self.born = mean(clock),
        }
        self.last_write = clock;
    }
}

impl Zones {
    /// The zones that data is written to.
    pub(in crate::furrow) fn open_zones(&self) -> &[OpenZone] {
        self.streams.zones()
    }

    /// The open zone that takes the data of one file alone.
    pub(in crate::furrow) fn zone_of_file(&self, number: u64) -> Option<u32> {
        self.streams.zone_of(number)
    }

    /// As many zones are open at once at most.
    pub(in crate::furrow) fn open_zones_max(&self) -> usize {
        self.streams.budget().open
    }

    /// Whether reclaim shares the zones of users: the drive has too few active zones.
    pub(in crate::furrow) fn is_shared(&self) -> bool {
        self.streams.budget().moved == 0
    }

    /// Blocks that can be written in open zones without reclaim's data.
    pub(in crate::furrow) fn users_only_room(&self) -> u64 {
        if self.is_shared() { 0 } else { self.room.users }
    }

    /// Blocks that can be written in open zones.
    pub(in crate::furrow) fn open_room(&self) -> OpenRoom {
        self.room
    }

    /// Blocks that users can write in open zones: all but one zone of the open zones of reclaim,
    /// which stays reserved for reclaim.
    pub(in crate::furrow) fn room_of_users(&self) -> u64 {
        self.room.users + self.room.moved.saturating_sub(self.limits.zone_blocks.into())
    }

    /// The target of a write: for moved blocks, the class of their age.
    fn target_of(&self, purpose: Purpose, clock: u64) -> Target {
        match purpose {
            Purpose::Write(target) | Purpose::WriteBack(target) => target,
            Purpose::Reclaim { birth, .. } => self.target_of_moved(birth, clock),
        }
    }

    fn target_of_moved(&self, birth: u64, clock: u64) -> Target {
        Target::Moved(class_of_moved(clock.saturating_sub(birth), self.usable()))
    }

    /// Whether one open zone has room for all blocks that reclaim is to move together.
    pub(in crate::furrow) fn has_room_for(
        &self,
        birth: u64,
        locality: Locality,
        clock: u64,
    ) -> bool {
        let target = self.target_of_moved(birth, clock);
        let room = |zone| u64::from(self.slot(zone).remaining());
        let choice = self.streams.choose(target, locality, Supply::Exhausted, clock, room);
        matches!(choice, Choice::Zone(zone) if room(zone) >= locality.blocks)
    }

    /// Allocates as many of these blocks as one zone takes, where data that belongs together stays
    /// together, and leaves the zones of `reserve` free; `None` without room.
    pub(in crate::furrow) fn allocate(
        &mut self,
        request: AllocationRequest,
        reserve: ZoneReserve,
        clock: u64,
    ) -> Option<Allocation> {
        let ZoneReserve { for_metadata, others } = reserve;
        let supply =
            if self.free_beside(for_metadata) > others { Supply::Empty } else { Supply::Exhausted };
        let target = self.target_of(request.purpose, clock);
        self.streams.set_ages(match self.limits.placement.victim(&self.victims) {
            Policy::Greedy => Ages::Nothing,
            Policy::CostBenefit => Ages::Tell,
        });
        let room = |zone| u64::from(self.slot(zone).remaining());
        let zone = match self.streams.choose(target, request.locality, supply, clock, room) {
            Choice::Zone(zone) => zone,
            Choice::Open => {
                let zone = self.next_free_beside(for_metadata)?;
                self.take_free(zone);
                self.open(zone, target, 0, clock);
                zone
            }
            Choice::Nothing => return None,
        };
        Some(self.allocate_in(zone, target, request, clock))
    }

    /// Allocates as many of these blocks, which reclaim moves, as fit in the user zone with the
    /// most room.
    pub(in crate::furrow) fn borrow(
        &mut self,
        request: AllocationRequest,
        clock: u64,
    ) -> Option<Allocation> {
        let users = self.streams.zones().iter().map(|open| open.zone);
        let users = users.filter(|&zone| self.slot(zone).role == Role::Open(Stream::User));
        let zone = users.max_by_key(|&zone| (self.slot(zone).remaining(), zone))?;
        let target = self.target_of(request.purpose, clock);
        (request.blocks > 0).then(|| self.allocate_in(zone, target, request, clock))
    }

    /// Allocates as many of these blocks as fit in an open zone that has room.
    fn allocate_in(
        &mut self,
        zone: u32,
        target: Target,
        request: AllocationRequest,
        clock: u64,
    ) -> Allocation {
        let slot = self.slot_mut(zone);
        let blocks = request.blocks.min(slot.remaining());
        slot.note_births(request.purpose, blocks, clock);
        let block = slot.written;
        slot.in_flight += blocks;
        self.update(zone, |slot| slot.written += blocks);
        self.streams.note(zone, target, blocks, clock);
        if self.slot(zone).remaining() == 0 {
            self.seal(zone);
        }
        Allocation { zone, block, blocks }
    }

    /// Opens a zone, of which `written` blocks are written already, for a target.
    fn open(&mut self, zone: u32, target: Target, written: u32, clock: u64) {
        let stream = stream_of(self.streams.budget().merged(target));
        self.update(zone, |slot| (slot.role, slot.written) = (Role::Open(stream), written));
        self.streams.open(zone, target, clock);
    }

    /// Seals open user zones that hold no live block and are more than half full. Not during a
    /// change of the tree, which may put blocks back that it has taken out.
    pub(super) fn seal_dead(&mut self) {
        let users = self.streams.zones().iter();
        let users = users.filter(|open| !matches!(open.target, Target::Moved(_)));
        // The drive counts a sealed one as active until it is reset. As long as another one is
        // open, none is opened in its place that would be one too many.
        let most = users.clone().count().saturating_sub(1);
        let is_dead = |zone: &u32| {
            let slot = self.slot(*zone);
            slot.live == 0 && slot.in_flight == 0 && slot.remaining() < slot.capacity / 2
        };
        let dead: Vec<u32> = users.map(|open| open.zone).filter(is_dead).take(most).collect();
        for zone in dead {
            self.seal(zone);
        }
    }

    /// Ends the flight of allocated blocks: they have an owner now, or are given up.
    pub(in crate::furrow) fn complete(&mut self, zone: u32, blocks: u32) {
        self.slot_mut(zone).in_flight -= blocks;
        self.note_inactive(zone);
        self.note_emptied(zone);
    }

    /// Takes an allocation back of which the device wrote nothing.
    pub(in crate::furrow) fn give_back(&mut self, allocation: Allocation) {
        // In a sequential zone the device finds the place of each write, so only the sum counts.
        let is_sequential = !self.limits.conventional.contains(ZoneId::new(allocation.zone));
        let slot = self.slot(allocation.zone);
        let is_last = slot.written == allocation.block + allocation.blocks;
        if is_sequential || is_last {
            self.reopen_full(allocation.zone);
            if matches!(self.slot(allocation.zone).role, Role::Open(_)) {
                self.update(allocation.zone, |slot| slot.written -= allocation.blocks);
            }
        }
        self.complete(allocation.zone, allocation.blocks);
        let slot = self.slot(allocation.zone);
        if matches!(slot.role, Role::Open(_)) && slot.written == 0 && slot.in_flight == 0 {
            self.streams.close(allocation.zone);
            self.free_untouched(allocation.zone);
        }
    }

    /// Reopens a zone that was sealed because it was full, to get blocks back.
    fn reopen_full(&mut self, zone: u32) {
        let slot = self.slot(zone);
        if slot.role == Role::Sealed && !slot.is_unfinished {
            self.streams.return_to(zone);
            let open = self.streams.zones().iter().find(|open| open.zone == zone);
            if let Some(stream) = open.map(|open| stream_of(open.target)) {
                self.update(zone, |slot| slot.role = Role::Open(stream));
                self.index(zone);
            }
        }
    }

    /// Seals a zone: nothing more is written to it. If it has room, the caller
    /// [finishes](Self::finished) it.
    pub(in crate::furrow) fn seal(&mut self, zone: u32) {
        self.update(zone, |slot| {
            if matches!(slot.role, Role::Open(_)) {
                slot.role = Role::Sealed;
                slot.is_unfinished = slot.remaining() > 0;
            }
            slot.written = slot.capacity;
        });
        self.streams.leave(zone);
        self.note_inactive(zone);
        self.index(zone);
        self.note_emptied(zone);
    }

    /// Notes that the drive no longer counts a zone as active.
    pub(in crate::furrow) fn finished(&mut self, zone: u32) {
        self.slot_mut(zone).is_unfinished = false;
        self.streams.close(zone);
    }

    /// Notes that a sealed zone is full, once all its blocks have arrived.
    fn note_inactive(&mut self, zone: u32) {
        let slot = self.slot(zone);
        if slot.in_flight == 0 && slot.role == Role::Sealed && !slot.is_unfinished {
            self.streams.close(zone);
        }
    }

    /// Opens a zone that a mount finds partly written; `false` if enough are open already.
    pub(in crate::furrow) fn resume(&mut self, zone: u32, written: u32, clock: u64) -> bool {
        let slot = self.slot(zone);
        let (last_write, is_full) = (slot.last_write, written >= slot.capacity);
        let target = match slot.origin {
            // The file is unknown, and none has this number.
            Origin::Written => Target::File(0),
            Origin::Moved => self.target_of_moved(slot.born, clock),
        };
        if is_full || !self.streams.can_resume(target) {
            return false;
        }
        self.open(zone, target, written, last_write);
        self.index(zone);
        true
    }

    /// An open zone with the least room, if more are open than should be: a writer that the drive
    /// has refused gave back blocks of a full zone after another zone was opened in its place.
    pub(in crate::furrow) fn find_surplus(&self) -> Option<u32> {
        let open = self.streams.zones();
        let idle = open.iter().map(|open| open.zone).filter(|&zone| self.slot(zone).in_flight == 0);
        let least = idle.min_by_key(|&zone| (self.slot(zone).remaining(), zone));
        least.filter(|_| open.len() > self.open_zones_max())
    }

    /// An open zone with little room, that could be sealed so that a file gets a zone with room for
    /// all of it. A file that is cut costs more than this room: reclaim moves the blocks next to
    /// its parts.
    pub(in crate::furrow) fn find_remnant(
        &self,
        target: Target,
        locality: Locality,
    ) -> Option<u32> {
        let room = |zone| u64::from(self.slot(zone).remaining());
        let candidates = self.streams.zones_beside_cut(target, locality, room);
        let idle = candidates.filter(|&zone| {
            let slot = self.slot(zone);
            slot.in_flight == 0 && slot.remaining() <= slot.capacity / REMNANT_SHARE
        });
        idle.min_by_key(|&zone| (room(zone), zone))
    }

    /// Seals an open zone with more dead blocks than room, if reclaim gains more from it than from
    /// any victim. The caller finishes it on the drive.
    pub(in crate::furrow) fn give_up_open(&mut self, clock: u64) -> Option<u32> {
        let dead = |zone: u32| {
            let slot = self.slot(zone);
            slot.written.saturating_sub(slot.live)
        };
        let open = self.streams.zones().iter().map(|open| open.zone);
        let idle = open.filter(|&zone| {
            let slot = self.slot(zone);
            slot.in_flight == 0 && dead(zone) > slot.remaining()
        });
        let zone = idle.max_by_key(|&zone| (dead(zone), zone))?;
        let victim = self.find_victim(clock, Urgency::Emergency, &BTreeSet::new());
        let victim = victim.map(|zone| self.slot(zone));
        if victim.is_some_and(|victim| victim.capacity - victim.live >= dead(zone)) {
            return None;
        }
        self.seal(zone);
        Some(zone)
    }
}

/// The stream of a target.
const fn stream_of(target: Target) -> Stream {
    match target {
        Target::File(_) | Target::Class(_) | Target::Hinted(_) => Stream::User,
        Target::Moved(_) => Stream::Reclaim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    const NONE: ZoneReserve = ZoneReserve { for_metadata: 0, others: 0 };

    fn births(fs: &Furrow) -> Vec<(u32, (u64, u64), Origin)> {
        let state = fs.tree.read_state();
        let zones = state.zones.ids().map(|zone| (zone, state.zones.slot(zone)));
        let zones = zones.filter(|(_, slot)| slot.live > 0);
        zones.map(|(zone, slot)| (zone, slot.births(), slot.origin)).collect()
    }

    #[test]
    fn block_ages_survive_mounts_and_reclaim() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let write = |name: &str, blocks: usize| {
            let ino = fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap().ino;
            fs.write(ino, 0, &vec![1; blocks << 12], WriteFlags::DIRECT).unwrap();
            ino
        };
        let old = write("old", 64);
        write("young", 40);
        fs.fallocate(old, crate::vfs::Allocate::Punch, 0, 16 << 12).unwrap();
        let [(victim, (first, last), _), (_, young, _)] = births(&fs)[..] else { panic!("two") };
        assert!((first..=64).contains(&last) && young.0 >= 64, "{first}, {last}, {young:?}");
        fs.tree.write_state().zones.seal(victim);
        fs.reclaimer.reclaim_some(48, Urgency::Emergency).unwrap();
        fs.sync().unwrap();
        let moved = births(&fs);
        let mean = moved.iter().find(|(_, _, origin)| *origin == Origin::Moved).unwrap().1;
        assert!(mean.0 == mean.1 && (first..=last).contains(&mean.0), "{mean:?}");
        fs.shutdown().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        assert_eq!(births(&fs), moved);
    }

    #[test]
    fn allocation_seals_full_zone_and_reopens_on_return() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let zones = &mut fs.tree.write_state().zones;
        let allocate = |zones: &mut Zones, blocks| {
            let (purpose, locality) = (Purpose::Write(Target::Class(1)), Locality::default());
            let request = AllocationRequest { purpose, locality, blocks };
            zones.allocate(request, NONE, 5).unwrap()
        };
        let (first, last) = (allocate(zones, 40), allocate(zones, 60));
        assert_eq!((first.zone, last.blocks), (last.zone, 24));
        assert_eq!((zones.slot(last.zone).role, zones.room_of_users()), (Role::Sealed, 0));
        zones.give_back(last);
        assert_eq!(zones.slot(last.zone).role, Role::Open(Stream::User));
        assert_eq!(zones.room_of_users(), 24);
        let again = allocate(zones, 20);
        assert_eq!((again.zone, again.block), (last.zone, 40));
        zones.give_back(again);
        zones.give_back(first);
        assert_eq!((zones.slot(first.zone).role, zones.room_of_users()), (Role::Free, 0));
    }
}
