//! `Slice`: some zones of a drive, shown as a drive of their own.
//!
//! Zone `n` of the slice is zone `first + n` below. Nothing outside of these zones is read or
//! changed; an action on all zones goes below zone by zone. The slice has the limits of open and
//! active zones of the whole drive, which counts the zones outside too: [`Limited`] gives a slice a
//! fixed part of them.
//!
//! [`Limited`]: crate::layer::limited::Limited

use std::sync::Arc;

use super::manage_each;
use crate::device::batch::{Io, Op, Part};
use crate::error::Result;
use crate::{
    DeviceError, FailZone, Geometry, GeometrySpec, Identity, Lba, LbaCount, Select, Zone,
    ZoneAction, ZoneFailure, ZoneId, ZonedDevice,
};

/// The zones of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRange {
    /// The first one.
    pub first: ZoneId,
    /// The last one; `None`: the last one of the drive.
    pub last: Option<ZoneId>,
}

/// Some zones of the device below.
///
/// ```
/// use zonal::layer::slice::{Slice, ZoneRange};
/// use zonal::{Lba, MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let range = ZoneRange { first: ZoneId::new(4), last: Some(ZoneId::new(6)) };
/// let slice = Slice::new(MemoryDrive::new(Profile::Small.geometry())?, range)?;
/// assert_eq!(slice.geometry().zone_count(), 3);
/// assert_eq!(slice.append(ZoneId::new(0), &[1; 4096])?, Lba::ZERO);
/// assert_eq!(slice.below().zone(ZoneId::new(4))?.written().map(|blocks| blocks.get()), Some(1));
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Slice<D> {
    below: D,
    geometry: Geometry,
    place: Place,
}

/// Where the slice begins below.
#[derive(Clone, Copy)]
struct Place {
    first: ZoneId,
    start: Lba,
}

impl Place {
    fn zone_below(self, zone: ZoneId) -> ZoneId {
        ZoneId::new(self.first.get() + zone.get())
    }

    fn lba_below(self, lba: Lba) -> Lba {
        self.start + (lba - Lba::ZERO)
    }

    /// Errors of a bad device may name any place, so nothing is asserted here.
    fn shown_lba(self, lba: Lba) -> Lba {
        Lba::new(lba.get().saturating_sub(self.start.get()))
    }

    fn shown_zone(self, zone: ZoneId) -> ZoneId {
        ZoneId::new(zone.get().saturating_sub(self.first.get()))
    }

    #[cold]
    fn shown_error(self, error: DeviceError) -> DeviceError {
        error.renumbered(|zone| self.shown_zone(zone), |lba| self.shown_lba(lba))
    }
}

impl<D: ZonedDevice> Slice<D> {
    /// The zones `range` of `below`.
    pub fn new(below: D, range: ZoneRange) -> Result<Self> {
        let real = *below.geometry();
        let invalid = |what| Err(DeviceError::Geometry { what });
        let first = range.first;
        let last = range.last.unwrap_or_else(|| ZoneId::new(real.zone_count() - 1));
        if let Some(beyond) = [first, last].into_iter().find(|zone| zone.get() >= real.zone_count())
        {
            let count = real.zone_count();
            return invalid(format!("a slice with zone {beyond} of a drive of {count} zones"));
        }
        if first > last {
            return invalid(format!(
                "a slice from zone {first} to zone {last}, which is before it"
            ));
        }
        let start = real.zone_start(first);
        let end = real.zone_start(last) + real.size_of(last);
        let conventional_zones = real.spec().conventional_zones.within(first, last);
        let spec = GeometrySpec { block_count: end - start, conventional_zones, ..*real.spec() };
        let geometry = Geometry::new(spec)?;
        Ok(Self { below, geometry, place: Place { first, start } })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// The [`FailZone`] of the slice, over that of the drive.
    pub(crate) fn failing(&self, below: Arc<dyn FailZone>) -> Arc<dyn FailZone> {
        Arc::new(FailSliced { below, place: self.place, zone_count: self.geometry.zone_count() })
    }

    fn check_zone(&self, zone: ZoneId) -> Result<()> {
        if zone.get() < self.geometry.zone_count() {
            Ok(())
        } else {
            Err(DeviceError::NoSuchZone { zone })
        }
    }

    /// Whether the request is one for zones of the slice; the others go nowhere.
    fn is_inside(&self, op: &Op<'_>) -> bool {
        match op {
            Op::Read { lba, buffer } => self.geometry.blocks_at(*lba, buffer.len()).is_ok(),
            Op::Write { lba, data } => self.geometry.blocks_at(*lba, data.len()).is_ok(),
            Op::Append { zone, .. } => self.check_zone(*zone).is_ok(),
            Op::Flush => true,
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Slice<D> {
    crate::pass_on!(below: flush, keep_reserve, use_reserve);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let left = self.geometry.zone_count().saturating_sub(first.get()) as usize;
        if left == 0 {
            return Ok(());
        }
        let before = zones.len();
        let reported = self.below.report(self.place.zone_below(first), zones, limit.min(left));
        reported.map_err(|error| self.place.shown_error(error))?;
        for zone in &mut zones[before..] {
            zone.renumber(|zone| self.place.shown_zone(zone), |lba| self.place.shown_lba(lba));
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.geometry.blocks_at(lba, buffer.len())?;
        let done = self.below.read(self.place.lba_below(lba), buffer);
        done.map_err(|error| self.place.shown_error(error))
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.geometry.blocks_at(lba, data.len())?;
        let done = self.below.write(self.place.lba_below(lba), data);
        done.map_err(|error| self.place.shown_error(error))
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.geometry.blocks(data.len())?;
        self.check_zone(zone)?;
        match self.below.append(self.place.zone_below(zone), data) {
            Ok(lba) => Ok(self.place.shown_lba(lba)),
            Err(error) => Err(self.place.shown_error(error)),
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => {
                self.check_zone(zone)?;
                let one = Select::One(self.place.zone_below(zone));
                let done = self.below.manage(one, action);
                done.map_err(|error| self.place.shown_error(error))
            }
            Select::All => manage_each(self, action),
        }
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.geometry.locate_conventional(lba, blocks)?;
        let done = self.below.deallocate(self.place.lba_below(lba), blocks);
        done.map_err(|error| self.place.shown_error(error))
    }

    /// The drive's identity without its unique name: other slices are other devices.
    fn identity(&self) -> Identity {
        Identity { unique: None, ..self.below.identity() }
    }

    crate::pass_on!(below: rotates);

    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut below = Part::default();
        for Io { op, result } in &mut *batch {
            *result = None;
            if !self.is_inside(op) {
                continue;
            }
            let mut op = op.reborrow();
            op.renumber(|zone| self.place.zone_below(zone), |lba| self.place.lba_below(lba));
            below.push(op, result);
        }
        below.submit(&self.below);
        for Io { op, result } in batch {
            *result = Some(match (result.take(), &mut *op) {
                (None, op) => op.perform(self),
                (Some(Ok(_)), Op::Flush) => Ok(Lba::ZERO),
                (Some(Ok(lba)), _) => Ok(self.place.shown_lba(lba)),
                (Some(Err(error)), _) => Err(self.place.shown_error(error)),
            });
        }
    }
}

struct FailSliced {
    below: Arc<dyn FailZone>,
    place: Place,
    zone_count: u32,
}

impl FailZone for FailSliced {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        if zone.get() >= self.zone_count {
            return Err(DeviceError::NoSuchZone { zone });
        }
        let done = self.below.fail_zone(self.place.zone_below(zone), failure);
        done.map_err(|error| self.place.shown_error(error))
    }
}
