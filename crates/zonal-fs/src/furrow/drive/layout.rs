//! The layout of a drive: which zones hold the superblock log, how large extents, parts and records
//! may be, and how many zones are reserved so that reclaim and metadata always find one.

use zonal::{Geometry, LbaCount, ZoneId, ZoneKind, ZoneRuns};
use zonal_placement::life::Evidence;
use zonal_placement::streams::Budget;

use crate::FsError;
use crate::furrow::drive::ahead::WINDOWS;
use crate::furrow::drive::drives::Drives;
use crate::furrow::drive::part::sequential_pair;
use crate::furrow::format::row::map_bytes;
use crate::furrow::format::{BLOCK_BYTES, BLOCK_SHIFT};
use crate::furrow::options::{MountOptions, Placement, Seeks};

/// Sequential zones below which mkfs refuses: 4 for superblocks, 2 for the journal's copies, 2 for
/// the table's copies, 4 for the successors of both, 1 for reclaim, the rest for data.
pub const SEQUENTIAL_ZONES_MIN: u32 = 20;

/// Blocks a zone must be able to hold (256 KiB): a journal record has to fit in one.
pub const ZONE_BLOCKS_MIN: u32 = 64;

/// The fewest active zones that Furrow can do with: two copies of the journal or of a part, one for
/// data, and one for superblocks.
pub const ACTIVE_ZONES_MIN: u32 = 4;

/// Active zones below which metadata finishes its zones as soon as it can.
const FEW_ACTIVE_ZONES: u32 = 12;

/// Open data zones on drives that allow any number. Linux limits zoned XFS to 128 there.
const OPEN_ZONES_MAX: u32 = 120;

/// Largest extent, in blocks: 1 MiB, a FUSE request's worth.
const EXTENT_BLOCKS_MAX: u32 = 256;

/// Bytes of a back-reference in a row of many, about.
const OWNER_BYTES: u64 = 6;

/// Bytes of rows, in one copy of the table, for a block that is an extent by itself: its map entry
/// with a checksum of 4 bytes, and its back-reference.
const BLOCK_ROW_BYTES: u64 = 20;

/// Bytes that all rows of a file of one block take in a copy of the table, for which metadata has
/// zones. Measured: 24 for a new file with a short name, a third more with the garbage that
/// compaction has not reached, and 55 if programs have overwritten all files in random order.
const FILE_ROW_BYTES: u64 = 44;

/// Copies of a row on the drive, about: two copies of a part, of which a third may be garbage, and
/// before that two copies of the journal.
pub(in crate::furrow) const ROW_COPIES: u64 = 5;

/// Zones of the journal: two copies.
const JOURNAL_ZONES: u64 = 2;

/// Zones kept free for metadata in addition to its own: a pair that follows the journal's, and one
/// that follows the pair of parts and manifests.
const SPARE_ZONES: u64 = 4;

/// Zones kept free for reclaim: one that it writes to, one that is begun, and one as slack for the
/// unused ends of zones.
const RECLAIM_ZONES: u64 = 3;

/// Bytes of a part at most. Larger ones write no less (parts of 8 to 256 MiB cost the same), but a
/// step takes longer.
const PART_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the memtable at most: larger ones make fewer runs, and hardly fewer bytes.
const MEMTABLE_BYTES_MAX: u64 = 32 << 20;

/// Bytes of journal that a mount replays at most, about: a disk reads them in half a second.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Runs of a tier that compaction merges into one of the next, as in other LSM trees.
const TIER_RUNS: usize = 8;

/// The sweep runs while the upper runs have more than one row for this many of the last level. Each
/// row is then written twice more on its way down, and the table is a quarter larger than its rows.
const SWEEP_SHARE: u64 = 4;

/// The sweep runs while there are more upper runs than this.
const RUNS_MAX: usize = 16;

/// Bytes that all rows take in a copy of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct RowBytes {
    /// Maps, shared extents and back-references: where data lies.
    pub(in crate::furrow) places: u64,
    /// Everything else.
    pub(in crate::furrow) others: u64,
}

impl RowBytes {
    /// All of them.
    pub(in crate::furrow) fn bytes(self) -> u64 {
        self.places + self.others
    }

    /// All of them once each of this many blocks is an extent by itself, or a file.
    pub(in crate::furrow) fn bytes_at_most(self, blocks: u64) -> u64 {
        let places = self.places.max(blocks * BLOCK_ROW_BYTES);
        (self.others + places).max(blocks * FILE_ROW_BYTES)
    }
}

/// Blocks by their use.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Shares {
    pub(in crate::furrow) journal: u64,
    /// The table when files have all of theirs.
    pub(in crate::furrow) table: u64,
    /// Kept free for metadata to go on.
    pub(in crate::furrow) spare: u64,
    /// Kept free for reclaim.
    pub(in crate::furrow) reclaim: u64,
    pub(in crate::furrow) files: u64,
}

/// The part of the layout that decides how zones are used.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct ZoneLimits {
    /// Zones that metadata does not use.
    pub(in crate::furrow) conventional: ZoneRuns,
    /// Zones of the data drive; those behind are the metadata drive's, which data does not use.
    pub(in crate::furrow) data_zones: u32,
    /// Blocks that a zone for metadata has; a smaller last one is not used for it.
    pub(in crate::furrow) zone_blocks: u32,
    /// Open data zones, and how streams share them.
    pub(in crate::furrow) budget: Budget,
    /// Empty zones are taken in turn, so that flash wears evenly. Otherwise the one with the lowest
    /// number is, because disks are fastest there.
    pub(in crate::furrow) in_turn: bool,
    /// What a jump costs: a disk's conventional zones are its slower ones.
    pub(in crate::furrow) seeks: Seeks,
    /// How to compare victims while no writer waits.
    pub(in crate::furrow) placement: Placement,
    /// The evidence for predicted lives.
    pub(in crate::furrow) evidence: Evidence,
    /// Largest extent, in blocks.
    pub(in crate::furrow) extent_max: u32,
}

/// Sizes of the parts and levels of the table.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Limits {
    /// Bytes of a part.
    pub(in crate::furrow) part_bytes: usize,
    /// Bytes of parts and memtable up to which a flush writes the last level with all rows.
    pub(in crate::furrow) whole_bytes: u64,
    /// Runs of a tier that compaction merges into one of the next.
    pub(in crate::furrow) tier_runs: usize,
    /// The sweep runs while upper runs have more than one row for this many of the last level.
    pub(in crate::furrow) share: u64,
    /// The sweep runs while there are more upper runs than this.
    pub(in crate::furrow) runs_max: usize,
}

/// The fixed numbers of a file system on a given drive.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Layout {
    pub(in crate::furrow) geometry: Geometry,
    /// Zones of the data drive; those behind are the metadata drive's.
    pub(in crate::furrow) data_zones: u32,
    /// Zones of the metadata drive that can have copies of the journal and of the table.
    metadata_zones: u64,
    /// Device blocks in a file-system block.
    pub(in crate::furrow) per_block: u64,
    /// Both pairs of zones of the superblock log.
    pub(in crate::furrow) superblock_pairs: [[u32; 2]; 2],
    /// Largest extent, in blocks.
    pub(in crate::furrow) extent_max: u32,
    /// Sizes of the table's parts and levels.
    pub(in crate::furrow) table: Limits,
    /// Bytes from which the memtable is written as a run.
    pub(in crate::furrow) memtable_bytes: usize,
    /// Blocks of journal from which the memtable is written.
    pub(in crate::furrow) journal_blocks: u64,
    /// Bytes of rows in one record of the journal, about.
    pub(in crate::furrow) record_bytes: usize,
    /// Bytes of memory that remap tables may take.
    pub(in crate::furrow) moved_bytes: usize,
    /// Blocks that a window of the read-ahead has at most.
    pub(in crate::furrow) window_blocks: u16,
    /// Blocks of a full sequential zone.
    pub(in crate::furrow) zone_blocks: u32,
    /// The drive allows so few active zones that metadata finishes its zones between writes.
    pub(in crate::furrow) few_active_zones: bool,
    /// It allows so few that the journal pauses while a step writes parts.
    pub(in crate::furrow) few_open_pairs: bool,
    /// Open data zones.
    pub(in crate::furrow) open_zones: usize,
    /// What a jump costs.
    pub(in crate::furrow) seeks: Seeks,
    /// The rules of placement.
    placement: Placement,
    /// The evidence for predicted lives.
    evidence: Evidence,
}

impl Layout {
    /// Makes a memtable, and a part that is being made, no larger than memory allows.
    fn limit_memory(&mut self, memtable: usize, part: usize) {
        self.memtable_bytes = self.memtable_bytes.min(memtable);
        self.table.part_bytes = self.table.part_bytes.min(part);
        self.record_bytes = self.record_bytes.min(part);
    }

    /// Works out the numbers for a new file system, or says why the drive cannot hold one.
    pub(in crate::furrow) fn new(drives: &Drives) -> Result<Self, FsError> {
        let unsuitable = |why: String| Err(FsError::Unsuitable { why });
        let (geometry, data) = (drives.geometry(), drives.data());
        let per_block = BLOCK_BYTES as u64 / geometry.block_size().bytes();
        let sequential = data.sequential_count();
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
        let append_max = u32::try_from(geometry.max_append().get() / per_block).unwrap_or(u32::MAX);
        if append_max == 0 {
            return unsuitable("its largest append is under 4 KiB".into());
        }
        let zone_bytes = u64::from(zone_blocks) << BLOCK_SHIFT;
        let mut layout = Self {
            geometry: *geometry,
            data_zones: data.zone_count(),
            metadata_zones: metadata_zones(drives),
            per_block,
            superblock_pairs: superblock_pairs(drives),
            extent_max: EXTENT_BLOCKS_MAX.min(zone_blocks / 8).min(append_max).max(1),
            table: table_limits(zone_bytes),
            memtable_bytes: narrow(MEMTABLE_BYTES_MAX.min(zone_bytes / 2)),
            // So the open pair has room for commits while a step flushes the memtable.
            journal_blocks: JOURNAL_BYTES_MAX.min(zone_bytes * 3 / 4) >> BLOCK_SHIFT,
            record_bytes: narrow((zone_bytes / 4).min(PART_BYTES_MAX)),
            moved_bytes: usize::MAX,
            window_blocks: 0,
            zone_blocks,
            few_active_zones: false,
            few_open_pairs: false,
            open_zones: 1,
            seeks: Seeks::Free,
            placement: MountOptions::default().placement(),
            evidence: Evidence::default(),
        };
        layout.divide_active(sequential);
        Ok(layout)
    }

    /// Divides the active zones that the drive allows between metadata and data.
    fn divide_active(&mut self, sequential: u32) {
        let active = self.geometry.max_active().unwrap_or(u32::MAX);
        let open = self.geometry.max_open().unwrap_or(u32::MAX);
        self.few_active_zones = active < FEW_ACTIVE_ZONES;
        self.few_open_pairs = active.min(open) < 6;
        let zone_bytes = self.zone_bytes();
        // Consecutive steps take a pair of their own, so there are fewer and longer ones.
        let whole = if self.few_open_pairs { zone_bytes / 4 } else { part_bytes_max(zone_bytes) };
        self.table.whole_bytes = whole;
        self.open_zones = open_zones(active.min(open), sequential);
    }

    /// Applies mount options, within the limits of the drive.
    pub(in crate::furrow) fn limit(&mut self, options: &MountOptions, seeks: Seeks) {
        self.seeks = seeks;
        let budget = options.memory_budget(seeks);
        self.limit_memory(budget.memtable, budget.part);
        self.moved_bytes = budget.moved;
        self.window_blocks =
            u16::try_from(budget.ahead / WINDOWS / BLOCK_BYTES).expect("some megabytes");
        (self.placement, self.evidence) = (options.placement(), options.evidence());
        let wanted = options.max_open_zones.map_or(usize::MAX, |zones| zones.get() as usize);
        self.open_zones = self.open_zones.min(wanted);
    }

    /// Bytes of a full sequential zone.
    pub(in crate::furrow) fn zone_bytes(&self) -> u64 {
        u64::from(self.zone_blocks) << BLOCK_SHIFT
    }

    /// The part of the layout that zone accounting needs.
    pub(in crate::furrow) fn zone_limits(&self) -> ZoneLimits {
        let Self { zone_blocks, extent_max, evidence, seeks, .. } = *self;
        let (placement, budget) = (self.placement, self.placement.budget(self.open_zones));
        // Flash bounds its active zones, since each takes some of its memory; disks do not.
        let in_turn = self.geometry.max_active().is_some();
        ZoneLimits {
            conventional: self.geometry.spec().conventional_zones,
            data_zones: self.data_zones,
            zone_blocks,
            budget,
            in_turn,
            seeks,
            placement,
            evidence,
            extent_max,
        }
    }

    /// Whether a zone belongs to the superblock log.
    pub(in crate::furrow) fn is_superblock(&self, zone: u32) -> bool {
        self.superblock_pairs.iter().flatten().any(|&other| other == zone)
    }

    /// Whether another drive has the first copies of metadata.
    pub(in crate::furrow) fn has_metadata_drive(&self) -> bool {
        self.data_zones < self.geometry.zone_count()
    }

    /// Whether a zone is on the drive for data.
    pub(in crate::furrow) fn is_on_data_drive(&self, zone: u32) -> bool {
        zone < self.data_zones
    }

    /// Blocks of 4 KiB that a zone can hold.
    pub(in crate::furrow) fn capacity(&self, zone: u32) -> u32 {
        let blocks = self.geometry.capacity_of(ZoneId::new(zone)).get() / self.per_block;
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    pub(in crate::furrow) fn is_conventional(&self, zone: u32) -> bool {
        self.geometry.kind(ZoneId::new(zone)) == ZoneKind::Conventional
    }

    /// Blocks of 4 KiB below a write pointer; `None` if it is not on such a block.
    pub(in crate::furrow) fn whole_blocks(&self, written: LbaCount) -> Option<u32> {
        let blocks = written.get() / self.per_block;
        written.get().is_multiple_of(self.per_block).then(|| u32::try_from(blocks).ok()).flatten()
    }

    /// Pairs of zones for parts of `bytes` bytes: two fifths more than that for dead parts, since
    /// only whole pairs become free, and half a zone for the open pair.
    pub(in crate::furrow) fn pairs_for(&self, bytes: u64) -> u64 {
        let zone = self.zone_bytes();
        (bytes.saturating_mul(7) / 5 + zone / 2).div_ceil(zone)
    }

    /// Zones that metadata takes for rows of `row_bytes`: of the journal, and of parts.
    fn meta_zones(&self, row_bytes: u64) -> u64 {
        JOURNAL_ZONES + 2 * self.pairs_for(row_bytes)
    }

    /// Zones kept free for metadata in addition to its own.
    fn spare_zones(&self) -> u64 {
        // Consecutive steps take a pair of their own.
        if self.few_open_pairs { SPARE_ZONES + 2 } else { SPARE_ZONES }
    }

    /// Zones that metadata needs for rows of `row_bytes`, with spare ones for the next steps.
    pub(in crate::furrow) fn meta_zones_wanted(&self, row_bytes: u64) -> u64 {
        self.meta_zones(row_bytes) + self.spare_zones()
    }

    /// Of this many zones of metadata, those on the data drive: the second copies, and the first
    /// ones for which the metadata drive has no zones.
    pub(in crate::furrow) fn on_data_drive(&self, zones: u64) -> u64 {
        zones - (zones / 2).min(self.metadata_zones)
    }

    /// Zones that the metadata drive needs so that the first copies of all metadata go there when
    /// files have all of their `usable` blocks in zones of the data drive.
    pub(in crate::furrow) fn metadata_zones_wanted(&self, usable: u64) -> u64 {
        2 + self.meta_zones_wanted(RowBytes::default().bytes_at_most(usable)) / 2
    }

    /// Blocks that files may fill, of `usable` blocks in zones.
    pub(in crate::furrow) fn user_blocks(
        &self,
        usable: u64,
        reserve_percent: u32,
        rows: RowBytes,
    ) -> u64 {
        self.shares(usable, reserve_percent, rows).files
    }

    /// Divides `usable` blocks in zones.
    ///
    /// Metadata takes its zones. Of the rest, a reserve stays: the zones that metadata and reclaim
    /// need to go on or, where that is more, `reserve_percent` of all. The share of files does not
    /// depend on their size: small files, and blocks that were overwritten one by one, have a row
    /// or several for each block. Zones for these rows are set aside too, from half the reserve.
    pub(in crate::furrow) fn shares(
        &self,
        usable: u64,
        reserve_percent: u32,
        rows: RowBytes,
    ) -> Shares {
        let percent = u64::from(reserve_percent.min(90));
        let zone = u64::from(self.zone_blocks);
        let spare = self.on_data_drive(self.spare_zones());
        let meta = |row_bytes: u64| {
            self.on_data_drive(self.meta_zones_wanted(row_bytes)).saturating_sub(spare)
        };
        let least = (spare + RECLAIM_ZONES) * zone;
        let kept = (usable * percent / 100).max(least);
        let kept_by_half = (usable * percent / 200 + RECLAIM_ZONES * zone).max(least).min(kept);
        let left = |row_bytes: u64, kept: u64| usable.saturating_sub(meta(row_bytes) * zone + kept);
        // A drive full of large files has extents of half the largest size.
        let in_extents = |blocks: u64| {
            let extents = (2 * blocks).div_ceil(u64::from(self.extent_max));
            extents * (map_bytes(self.extent_max.div_ceil(2)) + OWNER_BYTES)
        };
        let whole = most(usable, |blocks| blocks <= left(in_extents(blocks), kept));
        let files = most(whole, |blocks| blocks <= left(rows.bytes_at_most(blocks), kept_by_half));
        let (journal, spare) = (self.on_data_drive(JOURNAL_ZONES) * zone, spare * zone);
        let table = meta(in_extents(files).max(rows.bytes())) * zone - journal;
        let rest = usable.saturating_sub(journal + table + spare + files);
        Shares { journal, table, spare, reclaim: (kept - spare).min(rest), files }
    }
}

/// The zones of the superblock log: the first two sequential zones of each drive or, if there is
/// one, its first two and the two in the middle of all sequential ones.
fn superblock_pairs(drives: &Drives) -> [[u32; 2]; 2] {
    let (all, data) = (drives.geometry(), drives.data());
    let sequential_from =
        |zone, nth| sequential_pair(all, zone, nth).expect("Furrow refuses drives with fewer");
    let second = match drives.metadata_zones() {
        None => sequential_from(0, data.sequential_count() / 2),
        Some(_) => sequential_from(data.zone_count(), 0),
    };
    [sequential_from(0, 0), second]
}

/// Zones of the metadata drive that can have copies of the journal and of the table: whole zones
/// outside the superblock log.
fn metadata_zones(drives: &Drives) -> u64 {
    let Some(sequential) = drives.metadata_zones() else { return 0 };
    let geometry = drives.geometry();
    let last = geometry.capacity_of(ZoneId::new(geometry.zone_count() - 1));
    let partial = u32::from(last < geometry.spec().zone_capacity);
    u64::from(sequential.saturating_sub(2 + partial))
}

/// Open data zones: the part of `active` zones that metadata leaves, and no more than an eighth of
/// the `sequential` ones, so that half-written zones take only a small part of a small drive.
fn open_zones(active: u32, sequential: u32) -> usize {
    // Two copies of the journal and of parts, and one or two superblock zones: two if Furrow does
    // not finish them at once.
    let metadata = if active < FEW_ACTIVE_ZONES { 5 } else { 6 };
    let most = active.saturating_sub(metadata).clamp(1, OPEN_ZONES_MAX);
    // Even on a small drive reclaim has an open zone of its own.
    most.min((sequential / 8).max(2)) as usize
}

/// The most blocks, up to `limit`, that fit.
fn most(limit: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut below, mut above) = (0, limit + 1);
    while below + 1 < above {
        let blocks = below.midpoint(above);
        if fits(blocks) { below = blocks } else { above = blocks }
    }
    below
}

/// A part takes a sixteenth of a zone at most, so that pairs fill up well.
fn part_bytes_max(zone_bytes: u64) -> u64 {
    PART_BYTES_MAX.min(zone_bytes / 16)
}

fn table_limits(zone_bytes: u64) -> Limits {
    let part_bytes = part_bytes_max(zone_bytes);
    Limits {
        part_bytes: narrow(part_bytes),
        whole_bytes: part_bytes,
        tier_runs: TIER_RUNS,
        share: SWEEP_SHARE,
        runs_max: RUNS_MAX,
    }
}

fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).expect("some megabytes")
}
