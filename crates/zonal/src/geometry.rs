//! Geometry: the fixed shape of a zoned device, and every conversion between its address spaces.
//!
//! The zone size is any number of blocks. [`Geometry::locate`] finds the zone of a block with one
//! multiplication by a precomputed reciprocal, the same code for every zone size: a zone size that
//! is a power of two gets no branch of its own and no advantage.

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

/// What a drive's maker fixes; [`Geometry::new`] checks it.
///
/// ```
/// use zonal::{BlockSize, Geometry, GeometrySpec, LbaCount};
/// let geometry = Geometry::new(GeometrySpec {
///     block_size: BlockSize::B4096,
///     block_count: LbaCount::new(100 * 24_576),
///     zone_size: LbaCount::new(24_576), // 96 MiB
///     zone_capacity: LbaCount::new(24_576),
///     conventional_zones: 0,
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
    /// Blocks of the whole device; the last zone is what remains of it (a runt).
    pub block_count: LbaCount,
    /// Distance between the starts of two zones.
    pub zone_size: LbaCount,
    /// Writable part of a sequential zone. A smaller last zone's capacity is the smaller of this
    /// and its size.
    pub zone_capacity: LbaCount,
    /// Zones at the start of the device that are conventional.
    pub conventional_zones: u32,
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
    /// `ceil(2^64 / zone_size)`, see [`Geometry::locate`].
    reciprocal: u64,
}

impl Geometry {
    /// Blocks a device may have: beyond this the reciprocal would be off by one.
    pub const BLOCK_COUNT_MAX: u64 = 1 << 44;

    /// Checks `spec`.
    pub fn new(spec: GeometrySpec) -> Result<Self, DeviceError> {
        let invalid = |what: String| Err(DeviceError::Geometry { what });
        let (blocks, size) = (spec.block_count.get(), spec.zone_size.get());
        if size == 0 || blocks == 0 {
            return invalid(format!("a device of {blocks} blocks in zones of {size}"));
        }
        if blocks > Self::BLOCK_COUNT_MAX {
            return invalid(format!("{blocks} blocks, over {}", Self::BLOCK_COUNT_MAX));
        }
        if spec.zone_capacity > spec.zone_size || spec.zone_capacity == LbaCount::ZERO {
            let capacity = spec.zone_capacity;
            return invalid(format!("zone capacity {capacity} not in 1..={size}"));
        }
        let Ok(zone_count) = u32::try_from(blocks.div_ceil(size)) else {
            return invalid(format!("{} zones, over 2^32", blocks.div_ceil(size)));
        };
        if spec.conventional_zones > zone_count {
            return invalid(format!(
                "{} conventional zones of {zone_count}",
                spec.conventional_zones
            ));
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
            return invalid("a largest append of 0 blocks".into());
        }
        // For size 1 the reciprocal would be 2^64: one less still divides exactly below 2^44
        // when the quotient is corrected, see `locate`.
        let reciprocal = u64::MAX / size;
        Ok(Self { spec, zone_count, reciprocal })
    }

    /// What it was made from.
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

    /// Conventional or sequential.
    pub const fn kind(&self, zone: ZoneId) -> ZoneKind {
        if zone.get() < self.spec.conventional_zones {
            ZoneKind::Conventional
        } else {
            ZoneKind::SequentialRequired
        }
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
            ZoneKind::SequentialRequired => self.size_of(zone).min(self.spec.zone_capacity),
        }
    }

    /// The zone of a block and the block's offset in it.
    ///
    /// `q = floor(lba * floor((2^64-1) / size) / 2^64)` is the quotient or one less for every
    /// `lba` below 2^44, so one conditional correction makes it exact. The correction compiles to
    /// a conditional move: no branch depends on the zone size.
    #[inline]
    pub fn locate(&self, lba: Lba) -> (ZoneId, LbaCount) {
        debug_assert!(lba.get() < Self::BLOCK_COUNT_MAX);
        let size = self.spec.zone_size.get();
        let high = (u128::from(lba.get()) * u128::from(self.reciprocal)) >> 64;
        let quotient = high as u64;
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
}
