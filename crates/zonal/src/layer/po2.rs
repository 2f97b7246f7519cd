//! `PowerOfTwo`: a drive of any zone size, shown with zones whose size is a power of two.
//!
//! Linux and much software take only such drives. Each zone's size is rounded up; its capacity
//! stays. What is between the end of the real zone and the end of the shown one is the *gap*:
//!
//! - reads return zeroes there; a read that touches the gap is split;
//! - writes that reach the gap fail with [`DeviceError::Gap`] or [`DeviceError::CrossesZone`];
//! - P1: the gap is never read from or written to below, since there is nothing below.
//!
//! Zones keep their numbers, so actions pass through; addresses in reports, append results and
//! errors are translated. A smaller last zone stays as small as it is. Conventional zones get a gap
//! too and report the real size as their capacity.

use crate::error::Result;
use crate::{
    DeviceError, Geometry, GeometrySpec, Lba, LbaCount, Select, Zone, ZoneAction, ZoneId,
    ZonedDevice,
};

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
    geometry: Geometry,
    /// Bytes of a block, log₂.
    shift: u32,
}

impl<D: ZonedDevice> PowerOfTwo<D> {
    /// `below`, with zones of the next power of two. Where they are one already, nothing changes.
    pub fn new(below: D) -> Result<Self> {
        let real = *below.geometry();
        let zone_size = LbaCount::new(real.zone_size().get().next_power_of_two());
        let last = ZoneId::new(real.zone_count() - 1);
        let rounded = u64::from(last.get()) * zone_size.get();
        let last_size = match real.size_of(last) {
            whole if whole == real.zone_size() => zone_size,
            runt => runt,
        };
        let block_count = LbaCount::new(rounded) + last_size;
        let geometry = Geometry::new(GeometrySpec { block_count, zone_size, ..*real.spec() })?
            .with_conventional_capacity(real.conventional_capacity());
        let shift = real.block_size().shift();
        Ok(Self { below, geometry, shift })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// The real size of a zone.
    fn real_size(&self, zone: ZoneId) -> LbaCount {
        self.below.geometry().size_of(zone)
    }

    fn real_lba(&self, zone: ZoneId, offset: LbaCount) -> Lba {
        self.below.geometry().zone_start(zone) + offset
    }

    /// The shown address of a real one. The block after the last one, as write pointers can be, is
    /// that of the zone before it.
    fn shown_lba(&self, zone: ZoneId, real: Lba) -> Lba {
        self.geometry.zone_start(zone) + (real - self.below.geometry().zone_start(zone))
    }

    /// Splits a read at gaps and zone boundaries.
    #[cold]
    fn read_in_parts(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (lba, buffer);
        while !rest.is_empty() {
            let (zone, offset) = self.geometry.locate(at);
            let left = LbaCount::new((rest.len() >> self.shift) as u64);
            let shown = left.min(self.geometry.size_of(zone) - offset);
            let real = shown.min(self.real_size(zone).saturating_sub(offset));
            let (head, tail) = rest.split_at_mut(self.byte_len(shown));
            let (data, gap) = head.split_at_mut(self.byte_len(real));
            if !data.is_empty() {
                self.below
                    .read(self.real_lba(zone, offset), data)
                    .map_err(|error| self.shown_error(zone, error))?;
            }
            gap.fill(0);
            (at, rest) = (at + shown, tail);
        }
        Ok(())
    }

    fn byte_len(&self, count: LbaCount) -> usize {
        usize::try_from(count.get() << self.shift).expect("a buffer's length fits")
    }

    fn check_range(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let end = (lba - Lba::ZERO).checked_add(blocks);
        if end.is_none_or(|end| end > self.geometry.block_count()) {
            return Err(DeviceError::OutOfRange { lba, blocks });
        }
        Ok(())
    }

    /// An error from below, with the addresses shown above.
    #[cold]
    fn shown_error(&self, zone: ZoneId, error: DeviceError) -> DeviceError {
        let shown = |lba| self.shown_lba(zone, lba);
        match error {
            DeviceError::CrossesZone { zone, lba, blocks } => {
                DeviceError::CrossesZone { zone, lba: shown(lba), blocks }
            }
            DeviceError::NotAtWritePointer { zone, wp, lba } => {
                DeviceError::NotAtWritePointer { zone, wp: shown(wp), lba: shown(lba) }
            }
            DeviceError::OutOfRange { lba, blocks } => {
                DeviceError::OutOfRange { lba: shown(lba), blocks }
            }
            DeviceError::Medium { lba } => DeviceError::Medium { lba: shown(lba) },
            DeviceError::Gap { zone, lba } => DeviceError::Gap { zone, lba: shown(lba) },
            other => other,
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for PowerOfTwo<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let before = zones.len();
        self.below.report(first, zones, limit)?;
        for zone in &mut zones[before..] {
            zone.wp = zone.wp.map(|wp| self.shown_lba(zone.id, wp));
            zone.start = self.geometry.zone_start(zone.id);
            zone.size = self.geometry.size_of(zone.id);
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let blocks = self.geometry.blocks(buffer.len())?;
        self.check_range(lba, blocks)?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let (zone, offset) = self.geometry.locate(lba);
        if offset + blocks > self.real_size(zone) {
            return self.read_in_parts(lba, buffer);
        }
        self.below
            .read(self.real_lba(zone, offset), buffer)
            .map_err(|error| self.shown_error(zone, error))
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let blocks = self.geometry.blocks(data.len())?;
        self.check_range(lba, blocks)?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let (zone, offset) = self.geometry.locate(lba);
        let size = self.real_size(zone);
        // P1. Below, the next block would be one of the next zone.
        if offset >= size {
            return Err(DeviceError::Gap { zone, lba });
        }
        if offset + blocks > size {
            return Err(DeviceError::CrossesZone { zone, lba, blocks });
        }
        self.below
            .write(self.real_lba(zone, offset), data)
            .map_err(|error| self.shown_error(zone, error))
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        match self.below.append(zone, data) {
            Ok(real) => Ok(self.shown_lba(zone, real)),
            Err(error) => Err(self.shown_error(zone, error)),
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.below.manage(zones, action)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}
