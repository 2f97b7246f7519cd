//! Finds the zones of a drive that Zonal can use: zones of one size, at multiples of it.
//!
//! Most drives have no others. Hybrid drives have several zone domains: some of their zones are
//! inactive, some take writes by rules that no file system of ours knows, and gap zones or smaller
//! ones lie between the domains (ZBC-2, "Zone domains and zone realms", "Zone types"). Zones of
//! Zonal have numbers and one size, so each of these is left out: it looks offline, no command goes
//! to it, and a sentence says why.

use std::collections::BTreeMap;
use std::fmt;

use zonal::{Lba, ZoneId, ZoneKind, ZoneRuns};

use super::zones::{Descriptor, ZoneType};

/// Most zones of Zonal for each zone that the drive reports: a drive whose few usable zones are
/// tiny would otherwise take memory for millions that are left out.
const ZONES_PER_REPORTED: u64 = 64;

/// Why zones are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// They belong to no active realm.
    Inactive,
    /// Sequential or before required.
    BeforeRequired,
    /// Gap zones that are not the end of a zone.
    Gap,
    /// Sequential zones of the other kind.
    OtherKind,
    /// Zones of another size or capacity, or beside the multiples of the size.
    OtherSize,
}

/// Zones that are left out for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    reason: Reason,
    zones: u32,
    first: Lba,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reason {
            Reason::Inactive => "inactive: no active realm has them",
            Reason::BeforeRequired => "of type sequential or before required",
            Reason::Gap => "gap zones",
            Reason::OtherKind => "of the other sequential type",
            Reason::OtherSize => "of another size, or beside its multiples",
        };
        write!(f, "{} zones from block {} on are {what}", self.zones, self.first)
    }
}

/// A zone, and the gap zone behind it, in logical blocks.
struct Place {
    kind: Result<ZoneKind, Reason>,
    start: u64,
    capacity: u64,
    size: u64,
}

/// The zones of a drive that can be used, in logical blocks.
#[derive(Debug)]
pub(super) struct Grid {
    /// The first block of zone 0: less than a zone.
    pub(super) base: u64,
    /// Distance between two zones.
    pub(super) zone_size: u64,
    /// Writable part of a sequential zone.
    pub(super) zone_capacity: u64,
    pub(super) conventional: ZoneRuns,
    pub(super) sequential_kind: ZoneKind,
    /// For each zone, whether it is left out; empty if none is.
    pub(super) is_left_out: Box<[bool]>,
    /// Why zones of the drive are left out.
    pub(super) left_out: Vec<LeftOut>,
}

/// The zones of a drive, which have to cover all of it.
fn places(zones: &[Descriptor], last: Lba) -> Result<Vec<Place>, String> {
    let (mut places, mut next): (Vec<Place>, u64) = (Vec::new(), 0);
    for zone in zones {
        let (start, blocks) = (zone.start.get(), zone.blocks.get());
        if start != next {
            return Err(format!("reports a zone at block {start}, where {next} comes next"));
        }
        next = start
            .checked_add(blocks)
            .filter(|_| blocks > 0)
            .ok_or_else(|| format!("reports a zone of {blocks} blocks at block {start}"))?;
        let kind = match zone.kind {
            ZoneType::Gap => match places.last_mut().filter(|place| place.capacity == place.size) {
                Some(place) if place.kind != Err(Reason::Gap) => {
                    place.size += blocks;
                    continue;
                }
                Some(_) | None => Err(Reason::Gap),
            },
            _ if zone.cond.is_none() => Err(Reason::Inactive),
            ZoneType::Conventional => Ok(ZoneKind::Conventional),
            ZoneType::SequentialRequired => Ok(ZoneKind::SequentialRequired),
            ZoneType::SequentialPreferred => Ok(ZoneKind::SequentialPreferred),
            ZoneType::SequentialOrBeforeRequired => Err(Reason::BeforeRequired),
        };
        places.push(Place { kind, start, capacity: blocks, size: blocks });
    }
    if Some(next) != last.get().checked_add(1) {
        return Err(format!("reports zones up to block {next}, but its last block is {last}"));
    }
    Ok(places)
}

/// The properties that the zones of most blocks have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    size: u64,
    capacity: u64,
    phase: u64,
    is_preferred: bool,
}

impl Common {
    /// The last zone may be smaller, so it counts only where it is the only one.
    fn of(places: &[Place]) -> Option<Self> {
        let (last, others) = places.split_last()?;
        let sequential = |place: &&Place| place.kind.is_ok_and(ZoneKind::is_sequential);
        if let Some(common) = Self::most(others.iter().filter(sequential)) {
            return Some(common);
        }
        let conventional = Self::most(others.iter().filter(|place| place.kind.is_ok()));
        let last = Some(last).filter(|place| place.kind.is_ok());
        match (conventional, last) {
            (Some(common), Some(last)) if sequential(&last) => {
                let capacity = last.capacity.min(common.size);
                let is_preferred = last.kind == Ok(ZoneKind::SequentialPreferred);
                Some(Self { capacity, is_preferred, ..common })
            }
            (Some(common), _) => Some(common),
            (None, last) => Self::most(last),
        }
    }

    fn most<'a>(places: impl IntoIterator<Item = &'a Place>) -> Option<Self> {
        let mut blocks = BTreeMap::<Self, u64>::new();
        for place in places {
            let Place { kind, start, capacity, size } = *place;
            let is_preferred = kind == Ok(ZoneKind::SequentialPreferred);
            let common = Self { size, capacity, phase: start % size, is_preferred };
            *blocks.entry(common).or_default() += capacity;
        }
        blocks.into_iter().max_by_key(|(_, blocks)| *blocks).map(|(common, _)| common)
    }

    const fn kind(self) -> ZoneKind {
        if self.is_preferred { ZoneKind::SequentialPreferred } else { ZoneKind::SequentialRequired }
    }

    /// The kind of a zone that can be used, or why it cannot.
    fn check(self, place: &Place, end: u64) -> Result<ZoneKind, Reason> {
        let kind = place.kind?;
        if kind.is_sequential() && kind != self.kind() {
            return Err(Reason::OtherKind);
        }
        let is_last = place.start + place.size == end;
        let most = if kind.is_sequential() { self.capacity } else { self.size };
        let fits = if place.size >= self.size {
            place.capacity == most
        } else {
            is_last && place.capacity == most.min(place.size)
        };
        let is_multiple =
            place.start >= self.phase && (place.start - self.phase).is_multiple_of(self.size);
        if fits && is_multiple { Ok(kind) } else { Err(Reason::OtherSize) }
    }
}

impl Grid {
    /// The usable zones of a drive that reports `zones`, and has `last` as its last block. Zonal
    /// counts in blocks of `1 << shift`.
    pub(super) fn find(zones: &[Descriptor], last: Lba, shift: u32) -> Result<Self, String> {
        let places = places(zones, last)?;
        let common = Common::of(&places).ok_or_else(|| unusable(&places))?;
        let end = last.get() + 1;
        let unit = 1_u64 << shift;
        let lengths = [common.phase, common.size, common.capacity];
        if lengths.iter().any(|blocks| !blocks.is_multiple_of(unit)) {
            let start = common.phase;
            return Err(format!(
                "has a zone at block {start} that is no multiple of {unit} blocks"
            ));
        }
        // A block of Zonal that the drive ends in the middle of is none.
        let end = end - end % unit;
        let count = end.saturating_sub(common.phase).div_ceil(common.size);
        if count > ZONES_PER_REPORTED * places.len() as u64 {
            let (size, reported) = (common.size, places.len());
            return Err(format!(
                "has zones that differ too much: {reported} in all, and most have {size} blocks"
            ));
        }
        let mut is_left_out = vec![true; usize::try_from(count).expect("few for each zone")];
        let (mut conventional, mut left_out) = (Vec::new(), BTreeMap::<Reason, LeftOut>::new());
        for place in &places {
            let number = place.start.saturating_sub(common.phase) / common.size;
            let slot = usize::try_from(number).ok().and_then(|at| is_left_out.get_mut(at));
            // The last zone, smaller and no whole number of blocks, is left out too.
            let is_whole = place.size.is_multiple_of(unit) || place.size >= common.size;
            let kind = common.check(place, last.get() + 1);
            match (kind, slot) {
                (Ok(kind), Some(slot)) if is_whole => {
                    *slot = false;
                    if kind == ZoneKind::Conventional {
                        conventional.push(ZoneId::new(u32::try_from(number).expect("a zone")));
                    }
                }
                (kind, _) => {
                    let (reason, first) = (kind.err().unwrap_or(Reason::OtherSize), place.start);
                    let new = LeftOut { reason, zones: 0, first: Lba::new(first) };
                    left_out.entry(reason).or_insert(new).zones += 1;
                }
            }
        }
        if !is_left_out.contains(&true) {
            is_left_out.clear();
        }
        let conventional = ZoneRuns::of(conventional)
            .map_err(|error| format!("has conventional zones in too many places: {error}"))?;
        Ok(Self {
            base: common.phase,
            zone_size: common.size,
            zone_capacity: common.capacity,
            conventional,
            sequential_kind: common.kind(),
            is_left_out: is_left_out.into_boxed_slice(),
            left_out: left_out.into_values().collect(),
        })
    }
}

/// Why a drive without a usable zone cannot be used.
fn unusable(places: &[Place]) -> String {
    let reasons = places.iter().filter_map(|place| Some((place.kind.err()?, place.start)));
    let first = reasons.min_by_key(|(reason, _)| *reason).map(|(reason, start)| {
        let zones = u32::try_from(places.len()).unwrap_or(u32::MAX);
        LeftOut { reason, zones, first: Lba::new(start) }.to_string()
    });
    format!("has no zone that Zonal can use: {}", first.as_deref().unwrap_or("it reports none"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonal::{LbaCount, ZoneCond};

    use super::*;

    /// Zones of these types and lengths, one behind the other; the condition `None` is inactive.
    fn grid(zones: &[(ZoneType, u64, Option<ZoneCond>)], shift: u32) -> Result<Grid, String> {
        let mut next = 0;
        let mut all = Vec::new();
        for (kind, blocks, cond) in zones {
            let start = Lba::new(next);
            all.push(Descriptor {
                kind: *kind,
                cond: *cond,
                non_sequential: false,
                reset_recommended: false,
                blocks: LbaCount::new(*blocks),
                start,
                wp: start,
            });
            next += blocks;
        }
        Grid::find(&all, Lba::new(next - 1), shift)
    }

    const EMPTY: Option<ZoneCond> = Some(ZoneCond::Empty);
    const REQUIRED: ZoneType = ZoneType::SequentialRequired;

    fn numbers(grid: &Grid) -> Vec<usize> {
        let zones = grid.is_left_out.iter().enumerate();
        zones.filter(|(_, is_left_out)| **is_left_out).map(|(number, _)| number).collect()
    }

    #[test]
    fn zones_of_domains_of_other_size_are_left_out() {
        let zones = [
            (ZoneType::Conventional, 50, EMPTY),
            (ZoneType::Conventional, 30, EMPTY),
            (ZoneType::Gap, 20, EMPTY),
            (REQUIRED, 100, EMPTY),
            (REQUIRED, 100, EMPTY),
            (REQUIRED, 100, None),
            (ZoneType::SequentialPreferred, 100, EMPTY),
            (REQUIRED, 40, EMPTY),
        ];
        let found = grid(&zones, 0).unwrap();
        assert_eq!((found.base, found.zone_size, found.zone_capacity), (0, 100, 100));
        assert_eq!(numbers(&found), [0, 3, 4], "the last one is only smaller");
        assert!(found.conventional.is_empty());
        let why: Vec<Reason> = found.left_out.iter().map(|found| found.reason).collect();
        assert_eq!(why, [Reason::Inactive, Reason::OtherKind, Reason::OtherSize]);
        let text = found.left_out[2].to_string();
        assert_eq!(text, "2 zones from block 0 on are of another size, or beside its multiples");
    }

    #[test]
    fn zones_that_begin_beside_multiples_have_base() {
        let found = grid(
            &[
                (ZoneType::Conventional, 8, EMPTY),
                (REQUIRED, 80, EMPTY),
                (REQUIRED, 80, EMPTY),
                (REQUIRED, 80, EMPTY),
            ],
            3,
        )
        .unwrap();
        assert_eq!((found.base, found.zone_size, numbers(&found).len()), (8, 80, 0));
    }

    #[test]
    fn gap_behind_last_zone_of_domain_leaves_it_usable() {
        let zones = [
            (REQUIRED, 100, EMPTY),
            (REQUIRED, 100, EMPTY),
            (ZoneType::Gap, 250, EMPTY),
            (REQUIRED, 50, EMPTY),
            (REQUIRED, 100, EMPTY),
            (REQUIRED, 100, EMPTY),
        ];
        let found = grid(&zones, 0).unwrap();
        assert_eq!(numbers(&found), [2, 3, 4]);
        assert_eq!(found.is_left_out.len(), 7);
    }

    proptest! {
        /// Every zone that is not left out is one that the drive reports, at its place.
        #[test]
        fn zones_in_use_are_reported_zones(
            zones in prop::collection::vec((1_u8..6, 1_u64..40, any::<bool>()), 1..40),
            shift in 0..4_u32,
        ) {
            let zones: Vec<_> = zones
                .into_iter()
                .map(|(kind, blocks, is_active)| {
                    let kind = ZoneType::from_code(kind).expect("1 to 5");
                    (kind, blocks, EMPTY.filter(|_| is_active))
                })
                .collect();
            if let Ok(found) = grid(&zones, shift) {
                let end: u64 = zones.iter().map(|(_, blocks, _)| blocks).sum();
                let count = (((end - found.base) >> shift) << shift).div_ceil(found.zone_size);
                for number in 0..count {
                    let at = usize::try_from(number).unwrap();
                    if found.is_left_out.get(at).is_some_and(|is_left_out| *is_left_out) {
                        continue;
                    }
                    let start = found.base + number * found.zone_size;
                    let (mut next, mut is_there) = (0, false);
                    for (kind, blocks, cond) in &zones {
                        let is_usable = cond.is_some()
                            && !matches!(kind, ZoneType::Gap | ZoneType::SequentialOrBeforeRequired);
                        is_there |= next == start && is_usable && *blocks <= found.zone_size;
                        next += blocks;
                    }
                    prop_assert!(is_there, "zone {} of {:?}", number, found);
                }
            }
        }
    }
}
