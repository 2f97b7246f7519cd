//! Open and active accounting (D2): how many zones are open and active, and which of them the
//! device may close on its own.
//!
//! The numbers change in one place, [`Limits::apply`], with the condition of the zone. The caller
//! knows when each zone was last used, and so which implicitly open zone is the least recently
//! used.

use std::collections::BTreeSet;

use crate::{Geometry, ZoneCond, ZoneId};

/// Whether a transition fits the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// It fits.
    Fits,
    /// One more active zone than allowed: an error, the device never deactivates a zone itself.
    ActiveFull(u32),
    /// One more open zone than allowed: an implicitly open zone can be closed, if there is one.
    OpenFull(u32),
}

/// Counts of the zones that take a resource.
#[derive(Debug)]
pub(crate) struct Limits {
    open_max: Option<u32>,
    active_max: Option<u32>,
    implicit: BTreeSet<ZoneId>,
    explicit_count: u32,
    closed_count: u32,
}

impl Limits {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            open_max: geometry.max_open(),
            active_max: geometry.max_active(),
            implicit: BTreeSet::new(),
            explicit_count: 0,
            closed_count: 0,
        }
    }

    /// Zones open now.
    pub(crate) fn open_count(&self) -> u32 {
        let implicit = u32::try_from(self.implicit.len()).expect("no more zones than a u32 counts");
        implicit + self.explicit_count
    }

    /// Zones active now.
    pub(crate) fn active_count(&self) -> u32 {
        self.open_count() + self.closed_count
    }

    /// Zones that may be closed to make room.
    pub(crate) fn implicit(&self) -> impl Iterator<Item = ZoneId> {
        self.implicit.iter().copied()
    }

    /// Whether one zone can go from `from` to `to` now.
    pub(crate) fn room(&self, from: ZoneCond, to: ZoneCond) -> Room {
        let more_active = to.is_active() && !from.is_active();
        let more_open = to.is_open() && !from.is_open();
        match (self.active_max, self.open_max) {
            (Some(limit), _) if more_active && self.active_count() >= limit => {
                Room::ActiveFull(limit)
            }
            (_, Some(limit)) if more_open && self.open_count() >= limit => Room::OpenFull(limit),
            (_, _) => Room::Fits,
        }
    }

    /// Whether every Closed zone can be opened explicitly together.
    pub(crate) fn room_for_all_closed(&self) -> Room {
        match self.open_max {
            Some(limit) if self.explicit_count + self.closed_count > limit => Room::OpenFull(limit),
            Some(_) | None => Room::Fits,
        }
    }

    /// Books the transition of `zone`.
    pub(crate) fn apply(&mut self, zone: ZoneId, from: ZoneCond, to: ZoneCond) {
        self.leave(zone, from);
        match to {
            ZoneCond::ImplicitOpen => {
                self.implicit.insert(zone);
            }
            ZoneCond::ExplicitOpen => self.explicit_count += 1,
            ZoneCond::Closed => self.closed_count += 1,
            ZoneCond::NotWp
            | ZoneCond::Empty
            | ZoneCond::Full
            | ZoneCond::ReadOnly
            | ZoneCond::Offline => {}
        }
    }

    fn leave(&mut self, zone: ZoneId, from: ZoneCond) {
        match from {
            ZoneCond::ImplicitOpen => {
                assert!(self.implicit.remove(&zone), "zone {zone} was booked as implicitly open");
            }
            ZoneCond::ExplicitOpen => self.explicit_count -= 1,
            ZoneCond::Closed => self.closed_count -= 1,
            ZoneCond::NotWp
            | ZoneCond::Empty
            | ZoneCond::Full
            | ZoneCond::ReadOnly
            | ZoneCond::Offline => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockSize, GeometrySpec, LbaCount, ZoneKind, ZoneRuns};

    fn limits(max_open: u32, max_active: u32) -> Limits {
        let geometry = Geometry::new(GeometrySpec {
            block_size: BlockSize::B4096,
            block_count: LbaCount::new(160),
            zone_size: LbaCount::new(16),
            zone_capacity: LbaCount::new(16),
            conventional_zones: ZoneRuns::NONE,
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: Some(max_open),
            max_active: Some(max_active),
            max_append: LbaCount::new(4),
        });
        Limits::new(&geometry.unwrap())
    }

    #[test]
    fn close_frees_open_but_not_active_zone() {
        let mut limits = limits(1, 2);
        limits.apply(ZoneId::new(0), ZoneCond::Empty, ZoneCond::ImplicitOpen);
        assert_eq!(limits.room(ZoneCond::Empty, ZoneCond::ImplicitOpen), Room::OpenFull(1));
        limits.apply(ZoneId::new(0), ZoneCond::ImplicitOpen, ZoneCond::Closed);
        assert_eq!(limits.room(ZoneCond::Empty, ZoneCond::ImplicitOpen), Room::Fits);
        limits.apply(ZoneId::new(1), ZoneCond::Empty, ZoneCond::ExplicitOpen);
        assert_eq!(limits.room(ZoneCond::Empty, ZoneCond::ImplicitOpen), Room::ActiveFull(2));
        assert_eq!((limits.open_count(), limits.active_count()), (1, 2));
    }

    #[test]
    fn open_all_closed_counts_only_unclosable() {
        let mut limits = limits(2, 4);
        limits.apply(ZoneId::new(0), ZoneCond::Empty, ZoneCond::ImplicitOpen);
        limits.apply(ZoneId::new(1), ZoneCond::Empty, ZoneCond::Closed);
        limits.apply(ZoneId::new(2), ZoneCond::Empty, ZoneCond::Closed);
        assert_eq!(limits.room_for_all_closed(), Room::Fits);
        limits.apply(ZoneId::new(3), ZoneCond::Empty, ZoneCond::ExplicitOpen);
        assert_eq!(limits.room_for_all_closed(), Room::OpenFull(2));
    }
}
