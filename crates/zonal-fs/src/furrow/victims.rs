//! Which zone reclaim empties next.
//!
//! Sealed zones in which something lives are in the index of [`zonal::placement::victims`]; the ages that it
//! compares are in the rows of zones, so they survive a mount.

use zonal::victim::{Candidate, Policy};

use super::alloc::{Listed, Role, Urgency, Zones};

impl Zones {
    /// What is known of a zone as a victim has changed.
    pub(super) fn index(&mut self, zone: u32) {
        let slot = self.slot(zone);
        let (role, blocks, filled) = (slot.role, (slot.live, slot.capacity), slot.last_write);
        match role {
            Role::Sealed if blocks.0 > 0 => self.victims.put(zone, blocks, filled),
            Role::Sealed
            | Role::Super
            | Role::Meta
            | Role::Free
            | Role::Open(_)
            | Role::PendingReset
            | Role::Failed => self.victims.remove(zone),
        }
    }

    /// The best victim: sealed, not full of live blocks, readable, its owners known. `None` if nothing
    /// can be won, or if that costs too much and the need is not great.
    pub(super) fn find_victim(&self, data_clock: u64, urgency: Urgency) -> Option<u32> {
        let candidate = |zone: u32| {
            let slot = self.slot(zone);
            let age = data_clock.saturating_sub(slot.last_write);
            let known = Candidate { live: slot.live, capacity: slot.capacity, age };
            self.is_victim(zone, urgency).then_some(known)
        };
        let policy = match urgency {
            Urgency::Emergency => Policy::Greedy,
            Urgency::Normal => self.limits.victim,
            Urgency::Rescue => return self.ids().find(|&zone| self.is_victim(zone, urgency)),
        };
        self.victims.choose(policy, candidate)
    }

    /// Whether a zone has something that reclaim would move.
    pub(super) fn is_victim(&self, zone: u32, urgency: Urgency) -> bool {
        let slot = self.slot(zone);
        let role = match urgency {
            Urgency::Normal | Urgency::Emergency => Role::Sealed,
            Urgency::Rescue => Role::Failed,
        };
        let is_known = !slot.unreadable && slot.listed != Listed::No;
        slot.role == role && slot.in_flight == 0 && is_known && slot.live > 0
    }
}
