//! `PowerOfTwo`: a drive of any zone size, shown with zones whose size is a power of two.
//!
//! Linux and much software take only such drives. The size of each sequential zone is rounded up;
//! its capacity stays. The blocks between the end of the real zone and the end of the shown one are
//! the *gap*:
//!
//! - reads return zeroes there; a read that touches the gap is split;
//! - writes that reach the gap fail with [`DeviceError::Gap`] or [`DeviceError::CrossesZone`];
//! - P1: the gap is never read or written below: there are no blocks for it.
//!
//! Conventional zones get no gap, which no software expects. The shown ones of a run lie across the
//! real ones, without a gap, as many as there is room for. The rest of the last real one is not
//! shown, unless the device ends there. So there may be fewer of them, none of a run that is too
//! short, and zones behind them have smaller numbers than below.
//!
//! Actions pass through; addresses and numbers in reports, append results and errors are
//! translated. A smaller last zone stays as small as it is.

mod place;

use std::sync::Arc;

use crate::device::batch::{Io, Op, Part};
use crate::error::Result;
use crate::layer::refusal_of_crossing;
use crate::{
    DeviceError, FailZone, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneFailure, ZoneId,
    ZoneKind, ZoneRun, ZonedDevice,
};
use place::{Place, Segment};

/// A device whose zone size is a power of two, over one whose zone size need not be.
///
/// ```
/// use zonal::layer::po2::PowerOfTwo;
/// use zonal::{Lba, LbaCount, MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let mut spec = Profile::Small.geometry();
/// spec.zone_size = LbaCount::new(192);
/// spec.block_count = LbaCount::new(64 * 192);
/// let drive = PowerOfTwo::new(MemoryDrive::new(spec)?)?;
/// assert_eq!(drive.geometry().zone_size(), LbaCount::new(256));
/// assert_eq!(drive.append(ZoneId::new(1), &[1; 4096])?, Lba::new(256));
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct PowerOfTwo<D> {
    below: D,
    place: Place,
    /// Bytes of a block, log₂.
    block_shift: u32,
    /// Blocks of a shown zone, log₂.
    zone_shift: u32,
    /// Blocks of a real zone.
    real_zone_size: u64,
}

/// Where shown blocks are below.
enum Mapped {
    /// All in one zone, above and below; from this block on.
    At(Lba),
    /// In several zones, or in a gap.
    Split,
}

impl<D: ZonedDevice> PowerOfTwo<D> {
    /// `below`, with zones of the next power of two. Where they are one already, nothing changes.
    pub fn new(below: D) -> Result<Self> {
        let place = Place::new(*below.geometry())?;
        let (real, shown) = (place.real.zone_size().get(), place.shown.zone_size().get());
        Ok(Self {
            below,
            block_shift: place.real.block_size().shift(),
            zone_shift: shown.trailing_zeros(),
            real_zone_size: real,
            place,
        })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// The [`FailZone`] of the zones that are shown, over that of the drive.
    pub(crate) fn failing(&self, below: Arc<dyn FailZone>) -> Arc<dyn FailZone> {
        Arc::new(FailShown { below, place: self.place.clone() })
    }

    /// The path of nearly every access: a few instructions, and no access to the zone's state.
    /// Blocks beyond the device's end map to blocks beyond the real end, so the device below
    /// refuses them.
    #[inline]
    fn map(&self, lba: Lba, bytes: usize) -> Mapped {
        let blocks = bytes as u64 >> self.block_shift;
        let segment = self.place.segment_at(lba);
        if segment.kind == ZoneKind::Conventional {
            return self.map_conventional(segment, lba, bytes);
        }
        let within = lba.get() - segment.shown_start.get();
        let zone = within >> self.zone_shift;
        let offset = within - (zone << self.zone_shift);
        if offset + blocks <= self.real_zone_size && blocks > 0 {
            let real = segment.real_start.get() + zone * self.real_zone_size;
            Mapped::At(Lba::new(real.saturating_add(offset)))
        } else {
            Mapped::Split
        }
    }

    /// Apart, so that the path of accesses to sequential zones, which are most, stays short.
    #[inline(never)]
    fn map_conventional(&self, segment: &Segment, lba: Lba, bytes: usize) -> Mapped {
        let is_in_one_zone = |geometry: &Geometry, lba: Lba| {
            let blocks = geometry.blocks_at(lba, bytes).unwrap_or(LbaCount::ZERO);
            blocks > LbaCount::ZERO && {
                let (zone, offset) = geometry.locate(lba);
                offset + blocks <= geometry.size_of(zone)
            }
        };
        let real = segment.real_lba(lba);
        if is_in_one_zone(&self.place.shown, lba) && is_in_one_zone(&self.place.real, real) {
            Mapped::At(real)
        } else {
            Mapped::Split
        }
    }

    /// The error of an access at `lba`, with the addresses shown above.
    #[cold]
    fn access_error(&self, lba: Lba, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::OutOfRange { blocks, .. } => DeviceError::OutOfRange { lba, blocks },
            // No zone is there whose addresses could be translated.
            other if lba - Lba::ZERO >= self.geometry().block_count() => other,
            other => self.place.shown_error(self.geometry().locate(lba).0, other),
        }
    }

    /// Translates the outcome of a request that went below.
    fn shown_outcome(&self, op: &Op<'_>, outcome: Result<Lba>) -> Result<Lba> {
        match *op {
            Op::Read { lba, .. } | Op::Write { lba, .. } => match outcome {
                Ok(_) => Ok(lba),
                Err(error) => Err(self.access_error(lba, error)),
            },
            Op::Append { zone, .. } => self.shown_append(zone, outcome),
            Op::Flush => outcome,
        }
    }

    fn shown_append(&self, zone: ZoneId, outcome: Result<Lba>) -> Result<Lba> {
        match outcome {
            // Only an append of nothing succeeds there.
            Ok(_) if self.place.is_conventional(zone) => Ok(self.geometry().zone_start(zone)),
            Ok(real) => Ok(self.place.shown_lba(zone, real)),
            Err(error) => Err(self.place.shown_error(zone, error)),
        }
    }

    /// Splits a read at gaps and zone boundaries.
    #[cold]
    fn read_in_parts(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.geometry().blocks_at(lba, buffer.len())?;
        let (mut at, mut rest) = (lba, buffer);
        while !rest.is_empty() {
            let left = LbaCount::new((rest.len() >> self.block_shift) as u64);
            let piece = self.place.piece(at, left);
            let (data, tail) = rest.split_at_mut(self.byte_len(piece.blocks));
            let (gap, tail) = tail.split_at_mut(self.byte_len(piece.gap));
            if !data.is_empty() {
                let done = self.below.read(piece.real, data);
                done.map_err(|error| self.access_error(at, error))?;
            }
            gap.fill(0);
            (at, rest) = (at + piece.blocks + piece.gap, tail);
        }
        Ok(())
    }

    /// Splits a write in a conventional zone where real zones end, and refuses any other.
    #[cold]
    fn write_in_parts(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let blocks = self.geometry().blocks_at(lba, data.len())?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let (zone, offset) = self.geometry().locate(lba);
        let fits = offset + blocks <= self.geometry().size_of(zone);
        if !fits || !self.place.is_conventional(zone) {
            return Err(self.refusal(zone, lba, blocks));
        }
        let (mut at, mut rest) = (lba, data);
        while !rest.is_empty() {
            let left = LbaCount::new((rest.len() >> self.block_shift) as u64);
            let piece = self.place.piece(at, left);
            let (head, tail) = rest.split_at(self.byte_len(piece.blocks));
            let done = self.below.write(piece.real, head);
            done.map_err(|error| self.place.shown_error(zone, error))?;
            (at, rest) = (at + piece.blocks, tail);
        }
        Ok(())
    }

    /// P1: no part of a write that reaches a gap goes below, where the block after a zone's last
    /// one belongs to the next zone. A write that begins before the gap is refused for the
    /// condition of the zone first, as on every drive.
    #[cold]
    fn refusal(&self, zone: ZoneId, lba: Lba, blocks: LbaCount) -> DeviceError {
        if lba - self.geometry().zone_start(zone) >= self.place.blocks_of(zone) {
            return DeviceError::Gap { zone, lba };
        }
        match self.zone(zone) {
            Ok(zone) => refusal_of_crossing(&zone, lba, blocks),
            Err(error) => error,
        }
    }

    fn byte_len(&self, count: LbaCount) -> usize {
        usize::try_from(count.get() << self.block_shift).expect("a buffer's length fits")
    }

    /// Reports conventional zones of a segment.
    fn report_conventional(
        &self,
        segment: &Segment,
        run: ZoneRun,
        zones: &mut Vec<Zone>,
    ) -> Result<()> {
        let Place { shown, real, .. } = &self.place;
        let (first, end) = (run.first, run.end());
        let below = |zone: u32| {
            let (start, size) =
                (shown.zone_start(ZoneId::new(zone)), shown.size_of(ZoneId::new(zone)));
            let start = segment.real_lba(start);
            let last = start + (size - LbaCount::new(1));
            real.locate(start).0.index()..=real.locate(last).0.index()
        };
        let (begin, last) = (*below(first).start(), *below(end - 1).end());
        let mut found = Vec::new();
        let first_below = ZoneId::new(u32::try_from(begin).expect("the number of a zone"));
        self.below.report(first_below, &mut found, last - begin + 1)?;
        for zone in first..end {
            let (from, to) = (*below(zone).start() - begin, *below(zone).end() - begin);
            // A bad device may report less than it has.
            let real = found.get(from..=to).unwrap_or_default();
            zones.push(self.place.shown_conventional(ZoneId::new(zone), real));
        }
        Ok(())
    }

    /// Reports sequential zones of a segment.
    fn report_sequential(
        &self,
        segment: &Segment,
        run: ZoneRun,
        zones: &mut Vec<Zone>,
    ) -> Result<()> {
        let before = zones.len();
        let first = segment.real_zone(ZoneId::new(run.first));
        self.below.report(first, zones, run.count as usize)?;
        for zone in &mut zones[before..] {
            let id = self.place.shown_zone(zone.id);
            zone.renumber(|_| id, |lba| self.place.shown_lba(id, lba));
            zone.size = self.geometry().size_of(id);
        }
        Ok(())
    }
}

impl<D: ZonedDevice> ZonedDevice for PowerOfTwo<D> {
    crate::pass_on!(below: flush, identity, rotates, keep_reserve, use_reserve);

    fn geometry(&self) -> &Geometry {
        &self.place.shown
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let all = self.place.shown.zone_count();
        let (mut next, mut left) = (first.get(), limit);
        while left > 0 && next < all {
            let segment = self.place.segment_of(ZoneId::new(next));
            let end = self.place.segments.iter().map(|segment| segment.shown_first);
            let end = end.into_iter().find(|&first| first > next).unwrap_or(all);
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(end - next);
            let run = ZoneRun { first: next, count };
            match segment.kind {
                ZoneKind::Conventional => self.report_conventional(segment, run, zones)?,
                ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                    self.report_sequential(segment, run, zones)?;
                }
            }
            (next, left) = (run.end(), left - count as usize);
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        match self.map(lba, buffer.len()) {
            Mapped::At(real) => match self.below.read(real, buffer) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.access_error(lba, error)),
            },
            Mapped::Split => self.read_in_parts(lba, buffer),
        }
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        match self.map(lba, data.len()) {
            Mapped::At(real) => match self.below.write(real, data) {
                Ok(()) => Ok(()),
                Err(error) => Err(self.access_error(lba, error)),
            },
            Mapped::Split => self.write_in_parts(lba, data),
        }
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.geometry().blocks(data.len())?;
        self.shown_append(zone, self.below.append(self.place.real_zone(zone)?, data))
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => {
                let one = Select::One(self.place.real_zone(zone)?);
                let done = self.below.manage(one, action);
                done.map_err(|error| self.place.shown_error(zone, error))
            }
            Select::All => {
                let done = self.below.manage(zones, action);
                done.map_err(|error| {
                    error.renumbered(|zone| self.place.shown_zone(zone), |lba| lba)
                })
            }
        }
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let Some((zone, _)) = self.geometry().locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        let real = self.place.segment_of(zone).real_lba(lba);
        for (lba, blocks) in self.place.real.by_zone(real, blocks) {
            let done = self.below.deallocate(lba, blocks);
            done.map_err(|error| self.place.shown_error(zone, error))?;
        }
        Ok(())
    }

    /// Requests within one real zone go below together, and reads across zones follow. If there is
    /// a write across zones, which is rare, all go one by one: the reason to refuse it depends on
    /// the requests before it.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let is_split = |op: &Op<'_>| match op {
            Op::Write { lba, data } => matches!(self.map(*lba, data.len()), Mapped::Split),
            Op::Read { .. } | Op::Append { .. } | Op::Flush => false,
        };
        if batch.iter().any(|io| is_split(&io.op)) {
            for io in batch {
                io.perform(self);
            }
            return;
        }
        let mut below = Part::default();
        for Io { op, result } in &mut *batch {
            *result = None;
            let mut op = op.reborrow();
            let is_mapped = match &mut op {
                Op::Read { lba, buffer } => self.place_at(lba, buffer.len()),
                Op::Write { lba, data } => self.place_at(lba, data.len()),
                Op::Append { zone, .. } => self.place_in(zone),
                Op::Flush => true,
            };
            if is_mapped {
                below.push(op, result);
            }
        }
        below.submit(&self.below);
        for Io { op, result } in batch {
            *result = Some(match result.take() {
                None => op.perform(self),
                Some(outcome) => self.shown_outcome(op, outcome),
            });
        }
    }
}

impl<D: ZonedDevice> PowerOfTwo<D> {
    /// Turns a shown address into the real one; `false` if the access has to be split.
    fn place_at(&self, lba: &mut Lba, bytes: usize) -> bool {
        match self.map(*lba, bytes) {
            Mapped::At(real) => {
                *lba = real;
                true
            }
            Mapped::Split => false,
        }
    }

    /// Turns the number of a shown zone into the real one; `false` if there is none.
    fn place_in(&self, zone: &mut ZoneId) -> bool {
        match self.place.real_zone(*zone) {
            Ok(real) => {
                *zone = real;
                true
            }
            Err(_) => false,
        }
    }
}

struct FailShown {
    below: Arc<dyn FailZone>,
    place: Place,
}

impl FailZone for FailShown {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        let done = self.below.fail_zone(self.place.real_zone(zone)?, failure);
        done.map_err(|error| self.place.shown_error(zone, error))
    }
}
