//! Which zones hold the superblock log, how large things may be on a given drive, and what is kept
//! back so that reclaim and checkpoints always find a zone.

use zonal::{Geometry, LbaCount, ZoneId, ZoneKind};

use super::format::row::map_bytes;
use super::format::{BLOCK_BYTES, BLOCK_SHIFT};
use crate::FsError;

/// Sequential zones below which mkfs refuses: 4 for superblocks, 4 for the journal's two copies
/// and their successors, 4 for two checkpoints in two copies, 1 for reclaim, the rest for data.
pub const SEQUENTIAL_ZONES_MIN: u32 = 20;

/// Blocks a zone must be able to hold (256 KiB): a journal record has to fit in one.
pub const ZONE_BLOCKS_MIN: u32 = 64;

/// Active zones that the file system needs at least: two copies of the journal, one for data, and
/// one that a superblock or a checkpoint fills and finishes.
pub const ACTIVE_ZONES_MIN: u32 = 4;

/// Largest extent, in blocks: 1 MiB, a FUSE request's worth.
const EXTENT_BLOCKS_MAX: u32 = 256;

/// Bytes of the row of a block that is an extent by itself.
const ROW_BYTES_MAX: u64 = map_bytes(1);

/// Times that a row is on the drive at most: in two copies of a checkpoint and in two of the next
/// one, with the unused ends of their zones.
pub(super) const ROW_COPIES: u64 = 6;

/// Bytes of all rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rows {
    /// Of maps and shared extents: where data lies.
    pub(super) places: u64,
    /// Of everything else.
    pub(super) others: u64,
}

/// What the layout says about the use of zones.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneLimits {
    /// First zone that metadata may use: the first sequential one.
    pub(super) first_sequential: u32,
    /// Blocks that a zone for metadata has; a smaller last one is not used for it.
    pub(super) zone_blocks: u32,
    /// Zones that data is written to at once: 2, or 1 for files and reclaim together.
    pub(super) streams: usize,
    /// Largest extent, in blocks.
    pub(super) extent_max: u32,
}

/// The fixed numbers of a file system on a given drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
    /// Device blocks in a file-system block.
    pub(super) per_block: u64,
    pub(super) first_sequential: u32,
    /// Both pairs of zones of the superblock log.
    pub(super) superblock_pairs: [[u32; 2]; 2],
    /// Largest extent, in blocks.
    pub(super) extent_max: u32,
    /// Largest piece of a checkpoint, in bytes of its body.
    pub(super) piece_bytes: usize,
    /// Blocks of a full sequential zone.
    pub(super) zone_blocks: u32,
    /// Zones are finished as soon as they are not written for a while, because the drive allows
    /// few active ones.
    pub(super) few_active_zones: bool,
    /// Zones that data is written to at once: one for files and one for reclaim, or one for both.
    pub(super) streams: usize,
}

impl Layout {
    /// Works out the numbers, or says why the drive cannot hold a file system.
    pub(super) fn new(geometry: &Geometry) -> Result<Self, FsError> {
        let unsuitable = |why: String| Err(FsError::Unsuitable { why });
        let per_block = BLOCK_BYTES as u64 / geometry.block_size().bytes();
        let first_sequential = geometry.spec().conventional_zones;
        let sequential = geometry.zone_count() - first_sequential;
        if sequential < SEQUENTIAL_ZONES_MIN {
            return unsuitable(format!(
                "it has {sequential} sequential zones; {SEQUENTIAL_ZONES_MIN} are needed"
            ));
        }
        if !geometry.zone_size().get().is_multiple_of(per_block) {
            let size = geometry.zone_size();
            return unsuitable(format!("its zone size, {size} blocks, is no multiple of 4 KiB"));
        }
        let Ok(zone_blocks) = u32::try_from(geometry.spec().zone_capacity.get() / per_block) else {
            return unsuitable("its zones hold 16 TiB or more".into());
        };
        if zone_blocks < ZONE_BLOCKS_MIN {
            return unsuitable(format!(
                "its zones hold {zone_blocks} blocks of 4 KiB; {ZONE_BLOCKS_MIN} are needed"
            ));
        }
        let active = geometry.max_active().unwrap_or(u32::MAX);
        let open = geometry.max_open().unwrap_or(u32::MAX);
        if active.min(open) < ACTIVE_ZONES_MIN {
            return unsuitable(format!(
                "it allows {} active zones; {ACTIVE_ZONES_MIN} are needed",
                active.min(open)
            ));
        }
        let middle = first_sequential + sequential / 2;
        let append_max = u32::try_from(geometry.max_append().get() / per_block).unwrap_or(u32::MAX);
        if append_max == 0 {
            return unsuitable("its largest append is under 4 KiB".into());
        }
        Ok(Self {
            geometry: *geometry,
            per_block,
            first_sequential,
            superblock_pairs: [[first_sequential, first_sequential + 1], [middle, middle + 1]],
            extent_max: EXTENT_BLOCKS_MAX.min(zone_blocks / 8).min(append_max).max(1),
            piece_bytes: (zone_blocks as usize / 4 * BLOCK_BYTES).min(1 << 20) - 4096,
            zone_blocks,
            few_active_zones: active < 12,
            streams: if active < 6 { 1 } else { 2 },
        })
    }

    /// What the zone bookkeeping needs to know.
    pub(super) fn zone_limits(&self) -> ZoneLimits {
        let Self { first_sequential, zone_blocks, streams, extent_max, .. } = *self;
        ZoneLimits { first_sequential, zone_blocks, streams, extent_max }
    }

    /// Whether a zone belongs to the superblock log.
    pub(super) fn is_superblock(&self, zone: u32) -> bool {
        self.superblock_pairs.iter().flatten().any(|&other| other == zone)
    }

    /// Blocks of 4 KiB that a zone can hold.
    pub(super) fn capacity(&self, zone: u32) -> u32 {
        let blocks = self.geometry.capacity_of(ZoneId::new(zone)).get() / self.per_block;
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    pub(super) fn is_conventional(&self, zone: u32) -> bool {
        self.geometry.kind(ZoneId::new(zone)) == ZoneKind::Conventional
    }

    /// Blocks of 4 KiB below a write pointer; `None` if it is not on such a block.
    pub(super) fn whole_blocks(&self, written: LbaCount) -> Option<u32> {
        let blocks = written.get() / self.per_block;
        written.get().is_multiple_of(self.per_block).then(|| u32::try_from(blocks).ok()).flatten()
    }

    /// Zones that one copy of a checkpoint of `row_bytes` may need, the unused end of the last one
    /// and the waste between pieces included.
    fn checkpoint_zones(&self, row_bytes: u64) -> u64 {
        let zone_bytes = u64::from(self.zone_blocks) << BLOCK_SHIFT;
        1 + row_bytes.saturating_mul(4) / (zone_bytes * 3)
    }

    /// Zones that a checkpoint of `row_bytes` takes: two copies of it, and two of its journal.
    pub(super) fn meta_set(&self, row_bytes: u64) -> u64 {
        2 + 2 * self.checkpoint_zones(row_bytes)
    }

    /// The same with a quarter of a zone more rows. By this new writes are measured, so that there
    /// is room for what has been let in, and for reclaim, when the rows have become that many.
    pub(super) fn meta_set_ahead(&self, row_bytes: u64) -> u64 {
        self.meta_set(row_bytes.saturating_add(u64::from(self.zone_blocks / 4) << BLOCK_SHIFT))
    }

    /// Zones kept from the data of users: metadata and its successor, one that reclaim writes to,
    /// one that it has begun, and one as slack for the unused ends of zones.
    fn kept_zones(&self, row_bytes: u64) -> u64 {
        2 * self.meta_set(row_bytes) + 3
    }

    /// Blocks that files may fill, of `usable` blocks in zones.
    ///
    /// Overwriting takes no space, but it cuts extents until each is a block, and rows then take a
    /// sixteenth of what data takes. That has to fit as well: it may use half the reserve.
    pub(super) fn user_blocks(&self, usable: u64, reserve_percent: u32, rows: Rows) -> u64 {
        let percent = u64::from(reserve_percent.min(90));
        let left = |row_bytes: u64| {
            usable.saturating_sub(self.kept_zones(row_bytes) * u64::from(self.zone_blocks))
        };
        let whole = left(rows.others + rows.places);
        // The most blocks for which there is still room when each is an extent.
        let (mut fits, mut limit) = (0, whole + 1);
        while fits + 1 < limit {
            let blocks = fits.midpoint(limit);
            if blocks <= left(rows.others + blocks * ROW_BYTES_MAX) {
                fits = blocks;
            } else {
                limit = blocks;
            }
        }
        (whole - whole * percent / 100).min(fits - fits * percent / 200)
    }
}
