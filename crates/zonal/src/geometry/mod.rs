//! Geometry: the fixed shape of a zoned device, and every conversion between its address spaces.
//!
//! The zone size is any number of blocks. [`Geometry::locate`] finds the zone of a block with one
//! multiplication by a precomputed reciprocal, the same code for every zone size: a zone size that
//! is a power of two gets no branch of its own and no advantage.

mod bytes;
mod runs;

pub use bytes::GeometryBytes;
pub use runs::{Stretch, ZoneRun, ZoneRuns, ZoneRunsError};

use crate::size::readable;
use crate::{ByteCount, DeviceError, Lba, LbaCount, ZoneId, ZoneKind};

/// Size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// Bytes in a block.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// log₂ of the bytes in a block.
    pub const fn shift(self) -> u32 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }

    /// The block size of `bytes` bytes, if it is one of ours.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }
}

/// The properties that a drive's maker fixes; [`Geometry::new`] checks them. A drive of sequential
/// write preferred zones has no limits: ZBC gives it optimal numbers of open zones, beyond which it
/// refuses nothing.
///
/// ```
/// use zonal::{BlockSize, Geometry, GeometrySpec, LbaCount, ZoneKind, ZoneRuns};
/// let geometry = Geometry::new(GeometrySpec {
///     block_size: BlockSize::B4096,
///     block_count: LbaCount::new(100 * 24_576),
///     zone_size: LbaCount::new(24_576), // 96 MiB
///     zone_capacity: LbaCount::new(24_576),
///     conventional_zones: ZoneRuns::NONE,
///     sequential_kind: ZoneKind::SequentialRequired,
///     max_open: Some(14),
///     max_active: Some(28),
///     max_append: LbaCount::new(256),
/// })?;
/// assert_eq!(geometry.zone_count(), 100);
/// # Ok::<(), zonal::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// Bytes in a logical block.
    pub block_size: BlockSize,
    /// Blocks of the whole device; a last zone may be smaller (a runt).
    pub block_count: LbaCount,
    /// Distance between the starts of two zones.
    pub zone_size: LbaCount,
    /// Writable part of a sequential zone. A smaller last zone's capacity is the smaller of this
    /// and its size.
    pub zone_capacity: LbaCount,
    /// Zones that are conventional.
    pub conventional_zones: ZoneRuns,
    /// The kind of all other zones.
    pub sequential_kind: ZoneKind,
    /// Zones that may be open at once; `None`: no limit.
    pub max_open: Option<u32>,
    /// Zones that may be active at once; `None`: no limit.
    pub max_active: Option<u32>,
    /// Blocks that one append may write.
    pub max_append: LbaCount,
}

/// The checked shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    spec: GeometrySpec,
    zone_count: u32,
    /// `floor((2^64 - 1) / zone_size)`, see [`Geometry::locate`].
    reciprocal: u64,
}

impl Geometry {
    /// Blocks a device may have: 64 PiB of 4 KiB blocks. Every byte address is then a valid file
    /// offset, also after a zone size was rounded up to a power of two.
    pub const BLOCK_COUNT_MAX: u64 = 1 << 44;

    /// Zones a device may have. The largest drives of today have about 100,000; a zone costs some
    /// 64 bytes of memory.
    pub const ZONE_COUNT_MAX: u32 = 1 << 24;

    /// Checks `spec`.
    pub fn new(spec: GeometrySpec) -> Result<Self, DeviceError> {
        let invalid = |what: String| Err(DeviceError::Geometry { what });
        let (blocks, size) = (spec.block_count.get(), spec.zone_size.get());
        // A caller states a shape in bytes.
        let text = |blocks: u64| readable(blocks.saturating_mul(spec.block_size.bytes()));
        if size == 0 || blocks == 0 {
            let (device, zones, block) = (text(blocks), text(size), text(1));
            return invalid(format!(
                "a device of {device} in zones of {zones}: each needs a block of {block} at least"
            ));
        }
        if blocks > Self::BLOCK_COUNT_MAX {
            let most = text(Self::BLOCK_COUNT_MAX);
            return invalid(format!("a device of {}: {most} at most", text(blocks)));
        }
        if spec.zone_capacity > spec.zone_size || spec.zone_capacity == LbaCount::ZERO {
            let (capacity, least, most) = (text(spec.zone_capacity.get()), text(1), text(size));
            return invalid(format!("a zone capacity of {capacity}: from {least} to {most}"));
        }
        let zone_count = match u32::try_from(blocks.div_ceil(size)) {
            Ok(count) if count <= Self::ZONE_COUNT_MAX => count,
            Ok(_) | Err(_) => {
                let (count, most) = (blocks.div_ceil(size), Self::ZONE_COUNT_MAX);
                return invalid(format!("{count} zones of {}: {most} at most", text(size)));
            }
        };
        if spec.conventional_zones.end() > zone_count {
            let conventional = spec.conventional_zones;
            return invalid(format!("conventional zones {conventional} of {zone_count} zones"));
        }
        match spec.sequential_kind {
            ZoneKind::SequentialPreferred if spec.max_open.or(spec.max_active).is_some() => {
                return invalid(
                    "a limit of open or active zones, which sequential write preferred zones do not \
                     have"
                        .into(),
                );
            }
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {}
            ZoneKind::Conventional => {
                return invalid("sequential zones of the kind conventional".into());
            }
        }
        if spec.max_open == Some(0) || spec.max_active == Some(0) {
            return invalid("an open or active limit of 0".into());
        }
        if let (Some(open), Some(active)) = (spec.max_open, spec.max_active)
            && open > active
        {
            return invalid(format!("open limit {open} above active limit {active}"));
        }
        if spec.max_append == LbaCount::ZERO {
            return invalid("a largest append of less than a block".into());
        }
        let reciprocal = u64::MAX / size;
        Ok(Self { spec, zone_count, reciprocal })
    }

    /// The spec that it was made from.
    pub const fn spec(&self) -> &GeometrySpec {
        &self.spec
    }

    /// Bytes in a logical block.
    pub const fn block_size(&self) -> BlockSize {
        self.spec.block_size
    }

    /// Blocks of the device.
    pub const fn block_count(&self) -> LbaCount {
        self.spec.block_count
    }

    /// Number of zones, the runt included.
    pub const fn zone_count(&self) -> u32 {
        self.zone_count
    }

    /// Distance between the starts of two zones.
    pub const fn zone_size(&self) -> LbaCount {
        self.spec.zone_size
    }

    /// Zones that may be open at once; `None`: no limit.
    pub const fn max_open(&self) -> Option<u32> {
        self.spec.max_open
    }

    /// Zones that may be active at once; `None`: no limit.
    pub const fn max_active(&self) -> Option<u32> {
        self.spec.max_active
    }

    /// Blocks that one append may write.
    pub const fn max_append(&self) -> LbaCount {
        self.spec.max_append
    }

    /// Zones, in order.
    pub fn zones(&self) -> impl Iterator<Item = ZoneId> + use<> {
        (0..self.zone_count).map(ZoneId::new)
    }

    /// How many zones are sequential.
    pub fn sequential_count(&self) -> u32 {
        self.zone_count - self.spec.conventional_zones.zone_count()
    }

    /// The kind of a zone: where it takes writes.
    pub const fn kind(&self, zone: ZoneId) -> ZoneKind {
        if self.spec.conventional_zones.contains(zone) {
            ZoneKind::Conventional
        } else {
            self.spec.sequential_kind
        }
    }

    /// The kind of all zones that are not conventional.
    pub const fn sequential_kind(&self) -> ZoneKind {
        self.spec.sequential_kind
    }

    /// First block of a zone.
    pub const fn zone_start(&self, zone: ZoneId) -> Lba {
        Lba::new(zone.get() as u64 * self.spec.zone_size.get())
    }

    /// Size of this zone: smaller than [`Self::zone_size`] for a runt.
    pub fn size_of(&self, zone: ZoneId) -> LbaCount {
        let rest = self.spec.block_count - (self.zone_start(zone) - Lba::ZERO);
        rest.min(self.spec.zone_size)
    }

    /// Capacity of this zone. Conventional zones have no gap.
    pub fn capacity_of(&self, zone: ZoneId) -> LbaCount {
        match self.kind(zone) {
            ZoneKind::Conventional => self.size_of(zone),
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                self.size_of(zone).min(self.spec.zone_capacity)
            }
        }
    }

    /// The zone of a block and the block's offset in it.
    ///
    /// With `r = floor((2^64 - 1) / size)`, `lba * r / 2^64` is below `lba / size` by less than
    /// `lba / 2^64`, which is less than one. So `floor(lba * r / 2^64)` is the quotient or one
    /// less, and one conditional correction makes it exact. The correction compiles to a
    /// conditional move: no branch depends on the zone size.
    #[inline]
    pub fn locate(&self, lba: Lba) -> (ZoneId, LbaCount) {
        debug_assert!(lba.get() <= self.spec.block_count.get(), "block {lba} is on the device");
        let size = self.spec.zone_size.get();
        let quotient = ((u128::from(lba.get()) * u128::from(self.reciprocal)) >> 64) as u64;
        let offset = lba.get() - quotient * size;
        let short = u64::from(offset >= size);
        #[expect(clippy::cast_possible_truncation, reason = "zone_count is a u32")]
        let zone = ZoneId::new((quotient + short) as u32);
        (zone, LbaCount::new(offset - short * size))
    }

    /// Bytes in `count` blocks.
    pub const fn bytes(&self, count: LbaCount) -> ByteCount {
        ByteCount::new(count.get() << self.spec.block_size.shift())
    }

    /// Blocks in `bytes` bytes; an error where it is not a whole number.
    pub fn blocks(&self, bytes: usize) -> Result<LbaCount, DeviceError> {
        let block_size = self.spec.block_size.bytes();
        let bytes = bytes as u64;
        if bytes.is_multiple_of(block_size) {
            Ok(LbaCount::new(bytes >> self.spec.block_size.shift()))
        } else {
            Err(DeviceError::Unaligned { bytes, block_size })
        }
    }

    /// Blocks in `bytes` bytes from `lba` on; an error where it is not a whole number, or where
    /// some of them are beyond the device's end.
    pub fn blocks_at(&self, lba: Lba, bytes: usize) -> Result<LbaCount, DeviceError> {
        let blocks = self.blocks(bytes)?;
        self.check_range(lba, blocks)?;
        Ok(blocks)
    }

    fn check_range(&self, lba: Lba, blocks: LbaCount) -> Result<(), DeviceError> {
        match (lba - Lba::ZERO).checked_add(blocks) {
            Some(end) if end <= self.spec.block_count => Ok(()),
            Some(_) | None => Err(DeviceError::OutOfRange { lba, blocks }),
        }
    }

    /// The conventional zone that holds all these blocks, and where they begin in it. `None` if
    /// there are no blocks; an error if some are beyond the device's end, in a sequential zone, or
    /// in another zone than the first.
    pub fn locate_conventional(
        &self,
        lba: Lba,
        blocks: LbaCount,
    ) -> Result<Option<(ZoneId, LbaCount)>, DeviceError> {
        self.check_range(lba, blocks)?;
        if blocks == LbaCount::ZERO {
            return Ok(None);
        }
        let (zone, offset) = self.locate(lba);
        match self.kind(zone) {
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                Err(DeviceError::Sequential { zone })
            }
            ZoneKind::Conventional if offset + blocks > self.capacity_of(zone) => {
                Err(DeviceError::CrossesZone { zone, lba, blocks })
            }
            ZoneKind::Conventional => Ok(Some((zone, offset))),
        }
    }

    /// A range of blocks in pieces of one zone each.
    pub fn by_zone(&self, lba: Lba, blocks: LbaCount) -> impl Iterator<Item = (Lba, LbaCount)> {
        let (mut at, mut left) = (lba, blocks);
        std::iter::from_fn(move || {
            if left == LbaCount::ZERO {
                return None;
            }
            let (zone, offset) = self.locate(at);
            let piece = (at, left.min(self.size_of(zone) - offset));
            at += piece.1;
            left -= piece.1;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(blocks: u64, zone_size: u64) -> GeometrySpec {
        GeometrySpec {
            block_size: BlockSize::B512,
            block_count: LbaCount::new(blocks),
            zone_size: LbaCount::new(zone_size),
            zone_capacity: LbaCount::new(zone_size),
            conventional_zones: ZoneRuns::NONE,
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: None,
            max_active: None,
            max_append: LbaCount::new(1),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Zone sizes of every magnitude, on devices as large as they get; blocks around a zone's
        /// start, where a reciprocal that is off by a little gives the zone before.
        #[test]
        fn locate_divides_exactly(
            shift in 0_u32..44, low in any::<u64>(), block in any::<u64>(), near in -2_i64..=2,
        ) {
            let size = (1_u64 << shift) | (low & ((1_u64 << shift) - 1));
            let zones = (Geometry::BLOCK_COUNT_MAX / size).min(u64::from(Geometry::ZONE_COUNT_MAX));
            let geometry = Geometry::new(spec(size * zones.max(1), size)).unwrap();
            let limit = geometry.block_count().get();
            let start = block % limit / size * size;
            for lba in [block % limit, start.saturating_add_signed(near).min(limit - 1), limit - 1] {
                let (zone, offset) = geometry.locate(Lba::new(lba));
                prop_assert_eq!(u64::from(zone.get()), lba / size, "lba {} size {}", lba, size);
                prop_assert_eq!(offset.get(), lba % size, "lba {} size {}", lba, size);
                prop_assert_eq!(geometry.zone_start(zone) + offset, Lba::new(lba));
            }
        }

        #[test]
        fn zones_tile_device(blocks in 1_u64..10_000, size in 1_u64..500, capacity in 1_u64..500) {
            let capacity = LbaCount::new(capacity.min(size));
            let geometry =
                Geometry::new(GeometrySpec { zone_capacity: capacity, ..spec(blocks, size) }).unwrap();
            let mut next = Lba::ZERO;
            for zone in geometry.zones() {
                prop_assert_eq!(geometry.zone_start(zone), next);
                prop_assert!(geometry.capacity_of(zone) <= geometry.size_of(zone));
                prop_assert!(geometry.size_of(zone) > LbaCount::ZERO);
                next += geometry.size_of(zone);
            }
            prop_assert_eq!(next - Lba::ZERO, geometry.block_count());
        }
    }

    #[test]
    fn blocks_end_with_device() {
        let geometry = Geometry::new(spec(100, 30)).unwrap();
        let blocks = |lba, bytes| geometry.blocks_at(Lba::new(lba), bytes);
        assert_eq!(blocks(98, 1024).unwrap(), LbaCount::new(2));
        assert_eq!(blocks(100, 0).unwrap(), LbaCount::ZERO);
        assert!(matches!(blocks(98, 1000), Err(DeviceError::Unaligned { bytes: 1000, .. })));
        for (first, bytes) in [(99, 1024), (101, 0), (u64::MAX, 512)] {
            match blocks(first, bytes) {
                Err(DeviceError::OutOfRange { lba, .. }) => assert_eq!(lba, Lba::new(first)),
                other => panic!("{bytes} bytes at {first}: {other:?}"),
            }
        }
    }

    #[test]
    fn geometry_impossible_is_refused() {
        let good = spec(100, 10);
        let preferred = ZoneKind::SequentialPreferred;
        let bad: [(&str, GeometrySpec); 12] = [
            ("zones of 0", spec(100, 0)),
            ("device of 0", spec(0, 10)),
            (": 8 PiB at most", spec(Geometry::BLOCK_COUNT_MAX + 1, 1 << 40)),
            ("zones of 512 B: 16777216 at most", spec(1 << 25, 1)),
            (
                "zone capacity of 5.5 KiB: from 512 B to 5 KiB",
                GeometrySpec { zone_capacity: LbaCount::new(11), ..good },
            ),
            ("conventional", GeometrySpec { conventional_zones: ZoneRuns::leading(11), ..good }),
            ("limit of 0", GeometrySpec { max_open: Some(0), ..good }),
            ("above active", GeometrySpec { max_open: Some(3), max_active: Some(2), ..good }),
            (
                "sequential write preferred",
                GeometrySpec { sequential_kind: preferred, max_open: Some(3), ..good },
            ),
            (
                "sequential write preferred",
                GeometrySpec { sequential_kind: preferred, max_active: Some(3), ..good },
            ),
            ("kind conventional", GeometrySpec { sequential_kind: ZoneKind::Conventional, ..good }),
            ("append of less than a block", GeometrySpec { max_append: LbaCount::ZERO, ..good }),
        ];
        for (what, spec) in bad {
            let error = Geometry::new(spec).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
