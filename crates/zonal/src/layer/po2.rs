//! `PowerOfTwo`: a drive of any zone size, shown with zones whose size is a power of two.
//!
//! Linux and much software take only such drives. Each zone's size is rounded up; its capacity
//! stays. What is between the end of the real zone and the end of the shown one is the *gap*:
//!
//! - reads return zeroes there; a read that touches the gap is split;
//! - writes that reach the gap fail with [`DeviceError::Gap`] or [`DeviceError::CrossesZone`];
//! - P1: the gap is never read or written below: there are no blocks for it.
//!
//! Zones keep their numbers, so actions pass through; addresses in reports, append results and
//! errors are translated. A smaller last zone stays as small as it is. Conventional zones get a gap
//! too and report the real size as their capacity.

use crate::batch::{Io, Op, Part};
use crate::error::Result;
use crate::layer::refusal_of_crossing;
use crate::{DeviceError, Geometry, GeometrySpec, Lba, LbaCount, Zone, ZoneId, ZonedDevice};

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
    block_shift: u32,
    /// Blocks of a shown zone, log₂.
    zone_shift: u32,
    /// Blocks of a real zone.
    real_zone_size: u64,
    /// Blocks of a gap.
    gap: u64,
}

/// Where shown blocks are below.
enum Mapped {
    /// All in one real zone, or in none; from this block on.
    At(Lba),
    /// Some are in a gap or in another zone.
    Split,
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
        Ok(Self {
            below,
            geometry,
            block_shift: real.block_size().shift(),
            zone_shift: zone_size.get().trailing_zeros(),
            real_zone_size: real.zone_size().get(),
            gap: zone_size.get() - real.zone_size().get(),
        })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// The way of nearly every access: a few instructions, and no access to the zone's state. Blocks
    /// beyond the device's end map to blocks beyond the real end, so the device below refuses them.
    #[inline]
    fn map(&self, lba: Lba, bytes: usize) -> Mapped {
        let blocks = bytes as u64 >> self.block_shift;
        let zone = lba.get() >> self.zone_shift;
        let offset = lba.get() - (zone << self.zone_shift);
        if offset + blocks <= self.real_zone_size && blocks > 0 {
            Mapped::At(Lba::new(lba.get() - zone * self.gap))
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
            other if lba - Lba::ZERO >= self.geometry.block_count() => other,
            other => self.shown_error(self.geometry.locate(lba).0, other),
        }
    }

    /// How a request ended that went below.
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
            Ok(real) => Ok(self.shown_lba(zone, real)),
            Err(error) => Err(self.shown_error(zone, error)),
        }
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
        self.geometry.blocks_at(lba, buffer.len())?;
        let (mut at, mut rest) = (lba, buffer);
        while !rest.is_empty() {
            let (zone, offset) = self.geometry.locate(at);
            let left = LbaCount::new((rest.len() >> self.block_shift) as u64);
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

    /// P1: a write that reaches a gap goes nowhere, since below, the block after a zone's last one
    /// is one of the next zone. It is refused first for what the zone is, as every drive does.
    #[cold]
    fn refuse_write(&self, lba: Lba, bytes: usize) -> Result<()> {
        let blocks = self.geometry.blocks_at(lba, bytes)?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let (zone, offset) = self.geometry.locate(lba);
        if offset >= self.real_size(zone) {
            return Err(DeviceError::Gap { zone, lba });
        }
        Err(refusal_of_crossing(&self.zone(zone)?, lba, blocks))
    }

    fn byte_len(&self, count: LbaCount) -> usize {
        usize::try_from(count.get() << self.block_shift).expect("a buffer's length fits")
    }

    /// An error from below, with the addresses shown above.
    #[cold]
    fn shown_error(&self, zone: ZoneId, error: DeviceError) -> DeviceError {
        error.renumbered(|id| id, |lba| self.shown_lba(zone, lba))
    }
}

impl<D: ZonedDevice> ZonedDevice for PowerOfTwo<D> {
    crate::pass_on!(below: manage, flush, identity);

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
            Mapped::Split => self.refuse_write(lba, data.len()),
        }
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.shown_append(zone, self.below.append(zone, data))
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let Some((zone, offset)) = self.geometry.locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        // P1: all of it is below the capacity, so none of it is in a gap.
        let done = self.below.deallocate(self.real_lba(zone, offset), blocks);
        done.map_err(|error| self.shown_error(zone, error))
    }

    /// What lies in one real zone goes below together, and reads that do not follow. With a write that
    /// does not, which is rare, all go one by one: why it is refused depends on those before it.
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
            let mapped = match op {
                Op::Read { lba, buffer } => self.map(*lba, buffer.len()),
                Op::Write { lba, data } => self.map(*lba, data.len()),
                Op::Append { .. } | Op::Flush => Mapped::At(Lba::ZERO),
            };
            let Mapped::At(real) = mapped else { continue };
            let mut op = op.reborrow();
            match &mut op {
                Op::Read { lba, .. } | Op::Write { lba, .. } => *lba = real,
                Op::Append { .. } | Op::Flush => {}
            }
            below.push(op, result);
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
