//! Victims: which zone reclaim empties next, and which ones it has begun.
//!
//! Sealed zones with live blocks are in the index of [`zonal_placement::victims`]; the ages that it
//! compares are in the rows of zones, so they survive a mount.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};

use zonal_placement::victim::{Candidate, Policy};
use zonal_placement::victims::is_cheap;

use crate::furrow::format::backref::Backref;
use crate::furrow::sync::{Mutex, MutexGuard};
use crate::furrow::zones::{Listed, Role, Urgency, ZoneSlot, Zones};

/// A zone that reclaim is emptying.
#[derive(Debug)]
pub(in crate::furrow) struct Victim {
    pub(in crate::furrow) zone: u32,
    /// Its resets when reclaim began: after another one this victim is over.
    pub(in crate::furrow) resets: u32,
    /// Its back-references, in the order of blocks.
    pub(in crate::furrow) records: Vec<Backref>,
    /// The next record to look up, and how many of its blocks are done.
    next: (usize, u32),
    /// Differs from the zone's mark once it has more records.
    pub(in crate::furrow) mark: (usize, u32),
    /// Live blocks that its records have led to.
    pub(in crate::furrow) found: u64,
    /// Records, or parts of them, that were looked up.
    pub(in crate::furrow) looks: u64,
    /// The target zone of a run's beginning, if more of the run follows.
    pub(in crate::furrow) went: Option<u32>,
}

impl Victim {
    /// A victim that reclaim begins, with the records that are in memory.
    pub(in crate::furrow) fn new(zone: u32, slot: &ZoneSlot) -> Self {
        let (records, mark) = (slot.records.as_slice().to_vec(), slot.owners_mark());
        Self {
            zone,
            resets: slot.resets,
            records,
            next: (0, 0),
            mark,
            found: 0,
            looks: 0,
            went: None,
        }
    }

    /// The next record to look up; of a long one, a part of `most` blocks.
    pub(in crate::furrow) fn next(&self, most: u32) -> Option<Backref> {
        let (index, skip) = self.next;
        self.records.get(index).map(|record| record.part(skip, most))
    }

    /// Blocks left of a run whose beginning is done.
    pub(in crate::furrow) fn rest_of_run(&self) -> u64 {
        let (index, skip) = self.next;
        let record = self.records.get(index).filter(|_| skip > 0);
        record.map_or(0, |record| u64::from(record.blocks - skip))
    }

    /// Notes the target zone of the last run. The rest of the run follows there; another file goes
    /// where it fits best.
    pub(in crate::furrow) fn note_moved(&mut self, zone: Option<u32>) {
        self.went = zone.filter(|_| self.rest_of_run() > 0);
    }

    /// Whether all records are done.
    pub(in crate::furrow) fn is_through(&self) -> bool {
        self.next.0 >= self.records.len()
    }

    /// Passes a record that [`next`](Self::next) returned.
    pub(in crate::furrow) fn pass(&mut self, record: &Backref) {
        self.looks += 1;
        let (index, skip) = self.next;
        let skip = skip + record.blocks;
        let is_done = self.records[index].blocks <= skip;
        self.next = if is_done { (index + 1, 0) } else { (index, skip) };
    }
}

/// Use of a victim that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Use {
    /// Reclaim continues with it now.
    Now,
    /// It is no victim at the present urgency, and will be one again.
    Later,
    /// Nothing more can be moved out of it.
    Never,
}

/// Victims that were begun. A thread locks it before the state.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Underway {
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    /// Victims that no thread is emptying now, the next one first.
    waiting: VecDeque<Victim>,
    /// Zones of these, and of victims that a thread is emptying.
    zones: BTreeSet<u32>,
}

/// A victim that the caller alone empties. Dropping this ends the victim.
#[derive(Debug)]
pub(in crate::furrow) struct HeldVictim<'a> {
    underway: &'a Underway,
    victim: Option<Victim>,
}

impl Underway {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().expect("no holder panicked")
    }

    /// Takes the first waiting victim that `use_of` finds of use now.
    pub(in crate::furrow) fn take(
        &self,
        use_of: impl Fn(&Victim) -> Use,
    ) -> Option<HeldVictim<'_>> {
        let mut lists = self.lists();
        let mut index = 0;
        loop {
            let found = use_of(lists.waiting.get(index)?);
            if found == Use::Later {
                index += 1;
                continue;
            }
            let victim = lists.waiting.remove(index);
            if found == Use::Now {
                return Some(HeldVictim { underway: self, victim });
            }
            if let Some(victim) = victim {
                lists.zones.remove(&victim.zone);
            }
        }
    }

    /// Begins the victim that `find` returns; it gets the zones that were begun already.
    pub(in crate::furrow) fn choose(
        &self,
        find: impl FnOnce(&BTreeSet<u32>) -> Option<Victim>,
    ) -> Option<HeldVictim<'_>> {
        let mut lists = self.lists();
        let victim = find(&lists.zones)?;
        lists.zones.insert(victim.zone);
        Some(HeldVictim { underway: self, victim: Some(victim) })
    }
}

impl HeldVictim<'_> {
    /// It is to be gone on with.
    pub(in crate::furrow) fn put_back(mut self) {
        self.underway.lists().waiting.extend(self.victim.take());
    }
}

impl Deref for HeldVictim<'_> {
    type Target = Victim;

    fn deref(&self) -> &Victim {
        self.victim.as_ref().expect("there until it is put back")
    }
}

impl DerefMut for HeldVictim<'_> {
    fn deref_mut(&mut self) -> &mut Victim {
        self.victim.as_mut().expect("there until it is put back")
    }
}

impl Drop for HeldVictim<'_> {
    fn drop(&mut self) {
        // After a panic the lock may be poisoned, and a second panic would hide the first.
        if let (Some(victim), Ok(mut lists)) = (&self.victim, self.underway.lists.lock()) {
            lists.zones.remove(&victim.zone);
        }
    }
}

impl Zones {
    /// Tells placement that blocks of a zone have died, and when on the data clock.
    pub(in crate::furrow) fn note_death(&mut self, zone: u32, blocks: u32, clock: u64) {
        self.victims.note_death(zone, blocks, clock);
    }

    /// Updates the index of victims after a zone has changed.
    pub(in crate::furrow) fn index(&mut self, zone: u32) {
        let slot = self.slot(zone);
        let ZoneSlot { role, live, capacity, last_write: filled, .. } = *slot;
        match role {
            Role::Sealed if live > 0 => self.victims.put(zone, live, capacity, filled),
            Role::Sealed
            | Role::Super
            | Role::Meta
            | Role::Free
            | Role::Open(_)
            | Role::PendingReset
            | Role::Failed => self.victims.remove(zone),
        }
    }

    /// The best victim that is none of `others`: sealed, not full of live blocks, readable, its
    /// owners known. `None` if nothing can be gained, or if that costs too much and reclaim is not
    /// urgent.
    pub(in crate::furrow) fn find_victim(
        &self,
        data_clock: u64,
        urgency: Urgency,
        others: &BTreeSet<u32>,
    ) -> Option<u32> {
        let is_victim = |zone| self.is_victim(zone, urgency) && !others.contains(&zone);
        let candidate = |zone: u32| {
            let slot = self.slot(zone);
            let age = data_clock.saturating_sub(slot.last_write);
            let known = Candidate { live: slot.live, capacity: slot.capacity, age };
            let suits = urgency != Urgency::Ahead || is_cheap(&known);
            (suits && is_victim(zone)).then_some(known)
        };
        let policy = match urgency {
            Urgency::Emergency => Policy::Greedy,
            Urgency::Ahead | Urgency::Normal => self.limits.placement.victim(&self.victims),
            Urgency::Rescue => return self.ids().find(|&zone| is_victim(zone)),
        };
        let victim = self.victims.choose(policy, candidate)?;
        let may_cost_much = urgency == Urgency::Emergency;
        let is_worth_it = |known| self.victims.is_worth_it(&known);
        let is_victim = may_cost_much || candidate(victim).is_some_and(is_worth_it);
        is_victim.then_some(victim)
    }

    /// The use of a victim that was begun. A rescue leaves the other victims begun, and the other
    /// way round: a victim that is dropped begins at its first block again.
    pub(in crate::furrow) fn use_of(&self, victim: &Victim, urgency: Urgency) -> Use {
        let slot = self.slot(victim.zone);
        if slot.resets != victim.resets || victim.is_through() || slot.live == 0 {
            Use::Never
        } else if self.is_victim(victim.zone, urgency) {
            Use::Now
        } else if matches!(slot.role, Role::Sealed | Role::Failed) && slot.is_readable() {
            Use::Later
        } else {
            Use::Never
        }
    }

    /// Whether reclaim would move blocks out of a zone.
    pub(in crate::furrow) fn is_victim(&self, zone: u32, urgency: Urgency) -> bool {
        let slot = self.slot(zone);
        let role = match urgency {
            Urgency::Ahead | Urgency::Normal | Urgency::Emergency => Role::Sealed,
            Urgency::Rescue => Role::Failed,
        };
        slot.role == role && slot.in_flight == 0 && slot.is_readable() && slot.live > 0
    }
}

impl ZoneSlot {
    /// Whether its live blocks can be found and read, as far as is known.
    fn is_readable(&self) -> bool {
        !self.unreadable && self.listed != Listed::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::backref::Owner;
    use crate::vfs::Ino;

    #[test]
    fn victim_follows_only_continued_extent() {
        let record = |ino, block, blocks| {
            let owner = Owner::Entry(Ino::new(ino), 0);
            Backref { block, blocks, owner }
        };
        let mut victim = Victim::new(3, &ZoneSlot::new(Role::Sealed, 200));
        victim.records = vec![record(1, 0, 100), record(2, 100, 10)];
        for (went, follows) in [(7, Some(7)), (8, None), (9, None)] {
            let next = victim.next(64).unwrap();
            victim.pass(&next);
            victim.note_moved(Some(went));
            assert_eq!(victim.went, follows, "{next:?}");
        }
        assert!(victim.is_through());
    }
}
