//! The mapping of shown zones and blocks to real ones.

use crate::error::Result;
use crate::{
    DeviceError, Geometry, GeometrySpec, Lba, LbaCount, Stretch, Zone, ZoneCond, ZoneId, ZoneKind,
    ZoneRun, ZoneRuns,
};

/// How shown zones lie on real ones.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) shown: Geometry,
    pub(super) real: Geometry,
    /// One or more, in order.
    pub(super) segments: Vec<Segment>,
}

/// Neighbouring zones of one kind.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) kind: ZoneKind,
    /// The first zone, and where it begins.
    pub(super) shown_first: u32,
    pub(super) shown_start: Lba,
    /// The same below.
    pub(super) real_first: u32,
    pub(super) real_start: Lba,
}

/// The first blocks of a range: blocks of one real zone, and of the gap behind it.
pub(super) struct Piece {
    pub(super) real: Lba,
    pub(super) blocks: LbaCount,
    pub(super) gap: LbaCount,
}

impl Segment {
    /// The real zone of a shown one of a sequential segment.
    pub(super) fn real_zone(&self, zone: ZoneId) -> ZoneId {
        ZoneId::new(self.real_first + (zone.get() - self.shown_first))
    }

    /// The real block of a shown one of a conventional segment.
    pub(super) fn real_lba(&self, lba: Lba) -> Lba {
        self.real_start + (lba - self.shown_start)
    }
}

impl Place {
    pub(super) fn new(real: Geometry) -> Result<Self> {
        let zone_size = LbaCount::new(real.zone_size().get().next_power_of_two());
        let size = zone_size.get();
        let mut place = Self { shown: real, real, segments: Vec::new() };
        let (mut zones, mut blocks) = (0, 0);
        let mut conventional = Vec::new();
        for Stretch { run, is_in } in real.spec().conventional_zones.stretches(real.zone_count()) {
            let real_start = real.zone_start(ZoneId::new(run.first));
            let end = (real.zone_start(ZoneId::new(run.end())) - Lba::ZERO).min(real.block_count());
            let (below, is_last) =
                ((end - (real_start - Lba::ZERO)).get(), run.end() == real.zone_count());
            let (kind, shown) = match (is_in, is_last) {
                (true, true) => (ZoneKind::Conventional, below),
                (true, false) => (ZoneKind::Conventional, below / size * size),
                (false, _) => {
                    let whole = below / real.zone_size().get() * size;
                    (real.sequential_kind(), whole + below % real.zone_size().get())
                }
            };
            if shown == 0 {
                continue;
            }
            place.segments.push(Segment {
                kind,
                shown_first: zones,
                shown_start: Lba::new(blocks),
                real_first: run.first,
                real_start,
            });
            let count = u32::try_from(shown.div_ceil(size));
            let count = count.expect("no more zones than below, since none is smaller");
            if kind == ZoneKind::Conventional {
                conventional.push(ZoneRun { first: zones, count });
            }
            (zones, blocks) = (zones + count, blocks + shown);
        }
        let (block_count, conventional_zones) =
            (LbaCount::new(blocks), ZoneRuns::new(conventional)?);
        let spec = GeometrySpec { block_count, zone_size, conventional_zones, ..*real.spec() };
        place.shown = Geometry::new(spec)?;
        Ok(place)
    }

    pub(super) fn is_conventional(&self, zone: ZoneId) -> bool {
        self.shown.kind(zone) == ZoneKind::Conventional
    }

    /// The segment of a shown block; for one behind the end, the last one.
    #[inline]
    pub(super) fn segment_at(&self, lba: Lba) -> &Segment {
        match self.segments.as_slice() {
            [only] => only,
            several => {
                let behind = several.partition_point(|segment| segment.shown_start <= lba);
                &several[behind - 1]
            }
        }
    }

    pub(super) fn segment_of(&self, zone: ZoneId) -> &Segment {
        let behind = self.segments.partition_point(|segment| segment.shown_first <= zone.get());
        &self.segments[behind - 1]
    }

    /// The real zone of a shown one; of a conventional zone, that of its first block.
    pub(super) fn real_zone(&self, zone: ZoneId) -> Result<ZoneId> {
        if zone.get() >= self.shown.zone_count() {
            return Err(DeviceError::NoSuchZone { zone });
        }
        let segment = self.segment_of(zone);
        Ok(match segment.kind {
            ZoneKind::Conventional => {
                self.real.locate(segment.real_lba(self.shown.zone_start(zone))).0
            }
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => segment.real_zone(zone),
        })
    }

    /// The shown zone of a real one; the first one if a real conventional zone is shown as several.
    /// Errors of a bad device may name any zone, so nothing is asserted here.
    pub(super) fn shown_zone(&self, real: ZoneId) -> ZoneId {
        let behind = self.segments.partition_point(|segment| segment.real_first <= real.get());
        let segment = &self.segments[behind.saturating_sub(1)];
        let nth = real.get().saturating_sub(segment.real_first);
        let nth = match segment.kind {
            ZoneKind::Conventional => {
                let blocks = u64::from(nth) * self.real.zone_size().get();
                u32::try_from(blocks / self.shown.zone_size().get()).unwrap_or(nth)
            }
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => nth,
        };
        ZoneId::new(segment.shown_first.saturating_add(nth))
    }

    /// The shown address of a real one in a sequential zone. The block after the last one, as write
    /// pointers can be, is that of the zone before it.
    pub(super) fn shown_lba(&self, zone: ZoneId, real: Lba) -> Lba {
        let start = self.real.zone_start(self.segment_of(zone).real_zone(zone));
        self.shown.zone_start(zone) + (real - start)
    }

    /// Blocks of a shown zone that are not in the gap.
    pub(super) fn blocks_of(&self, zone: ZoneId) -> LbaCount {
        let segment = self.segment_of(zone);
        match segment.kind {
            ZoneKind::Conventional => self.shown.size_of(zone),
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                self.real.size_of(segment.real_zone(zone))
            }
        }
    }

    /// The first of `limit` blocks from `lba` on.
    pub(super) fn piece(&self, lba: Lba, limit: LbaCount) -> Piece {
        let segment = self.segment_at(lba);
        let (zone, offset) = self.shown.locate(lba);
        let shown = limit.min(self.shown.size_of(zone) - offset);
        match segment.kind {
            ZoneKind::Conventional => {
                let real = segment.real_lba(lba);
                let (below, offset) = self.real.locate(real);
                let left = self.real.size_of(below) - offset;
                Piece { real, blocks: shown.min(left), gap: LbaCount::ZERO }
            }
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                let blocks = shown.min(self.blocks_of(zone).saturating_sub(offset));
                let start = self.real.zone_start(segment.real_zone(zone));
                Piece { real: start + offset, blocks, gap: shown - blocks }
            }
        }
    }

    /// The zones of `real`, which lie under the conventional `zone`, as one zone: it is in the
    /// condition of the worst of them.
    pub(super) fn shown_conventional(&self, zone: ZoneId, real: &[Zone]) -> Zone {
        let worst = [ZoneCond::Offline, ZoneCond::ReadOnly]
            .into_iter()
            .find(|cond| real.iter().any(|zone| zone.cond == *cond));
        let size = self.shown.size_of(zone);
        Zone {
            id: zone,
            kind: ZoneKind::Conventional,
            cond: worst.unwrap_or(ZoneCond::NotWp),
            start: self.shown.zone_start(zone),
            size,
            capacity: size,
            wp: None,
            non_sequential: false,
        }
    }

    /// An error of an access to `zone` or an action on it, as it is shown above.
    #[cold]
    pub(super) fn shown_error(&self, zone: ZoneId, error: DeviceError) -> DeviceError {
        let segment = self.segment_of(zone);
        if segment.kind == ZoneKind::Conventional {
            let shown = |lba: Lba| {
                let nth = lba.get().saturating_sub(segment.real_start.get());
                Lba::new(segment.shown_start.get().saturating_add(nth))
            };
            return error.renumbered(|_| zone, shown);
        }
        error.renumbered(|zone| self.shown_zone(zone), |lba| self.shown_lba(zone, lba))
    }
}
