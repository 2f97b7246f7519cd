//! Statistics of a mount: counters since mount ([`Stats`]), and the present use of blocks and zones
//! ([`Live`]) with open zones, victims, and how full zones are.
//!
//! [`ops`](crate::furrow::ops) fills them in. Measurements over time are in
//! [`meters`](crate::furrow::meters).

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use zonal_placement::lifetime::WriteLifetime;

use crate::furrow::zones::{Role, Stream, ZoneSlot};

/// Counters since mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of file data written to zones.
    pub user_bytes: u64,
    /// Bytes that reclaim moved.
    pub reclaim_bytes: u64,
    /// Bytes of journal, table and superblocks.
    pub meta_bytes: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Blocks whose checksum was wrong at first and right when they were read again.
    pub blocks_reread: u64,
    /// Blocks that reclaim moved although they stayed wrong: their readers get an error.
    pub blocks_moved_wrong: u64,
    /// Device flushes.
    pub flushes: u64,
    /// Zones reset.
    pub resets: u64,
    /// Transfers that did not begin where the one before had ended: a disk moves its head.
    pub jumps: u64,
    /// Number of the last durable batch, over the file system's life.
    pub batches: u64,
    /// Bytes of memory that hold inodes, entries and maps.
    pub held_bytes: u64,
    /// Bytes of memory that hold parts of the table.
    pub cache_bytes: u64,
    /// Reads of a part of the table that found it in memory.
    pub cache_hits: u64,
    /// Reads of a part of the table that went to the device.
    pub cache_misses: u64,
    /// Leaves of the table that can be read from no copy: access to their rows fails. A leaf that
    /// was lost before the mount counts once a read has found it.
    pub leaves_lost: u64,
    /// Times that a writer waited for room, or reclaimed room itself.
    pub waits: u64,
    /// Sum of these times, in nanoseconds.
    pub wait_ns: u64,
    /// The longest of them, in nanoseconds.
    pub wait_ns_max: u64,
    /// Empty zones.
    pub zones_free: u64,
    /// Open data zones.
    pub zones_open: u64,
    /// Most data zones that the mount keeps open: by its options, within the limits of the drive.
    pub open_zones_max: u64,
    /// Zones with data that are closed to writers.
    pub zones_sealed: u64,
    /// Zones of superblocks, journal and table.
    pub zones_metadata: u64,
    /// Zones that can no longer be written.
    pub zones_failed: u64,
    /// The metadata drive, if there is one. Its zones are counted above, too.
    pub metadata_drive: Option<MetadataDrive>,
    /// Zones with data that the device refused to read when reclaim last tried, or of which no row
    /// names the owners.
    pub zones_unread: u64,
    /// Zones without data that the device refused to reset when that was last tried.
    pub resets_owed: u64,
    /// Deleted, truncated or discarded parts of files whose blocks are not free yet because the
    /// device refused to read metadata when that was last tried.
    pub removals_owed: u64,
}

/// Zones of a metadata drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataDrive {
    /// All of them.
    pub zones: u64,
    /// Empty ones. If there is none, the drive for data takes both copies of new metadata.
    pub zones_free: u64,
}

/// A mount at one moment. Blocks are of [`block_bytes`](Self::block_bytes), which is 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Live {
    /// Bytes of a block.
    #[serde(rename = "block_size_bytes")]
    pub block_bytes: u64,
    /// Blocks of the drive by their use.
    #[serde(rename = "space")]
    pub blocks: Blocks,
    /// Blocks that running writes hold.
    pub reservations: Reservations,
    /// Open data zones.
    #[serde(rename = "open_zone_list")]
    pub open_zones: Vec<OpenZone>,
    /// Zones out of which reclaim is moving data.
    pub victims: Vec<VictimZone>,
    /// Zones with data that are closed to writers, by the share of their blocks in use: below a
    /// tenth, below two tenths and so on; in the last place, nine tenths and more.
    pub used_tenths: [u64; 10],
    /// Cost and gain of the last victims, 16 at most.
    pub reclaimed: Reclaimed,
    /// Bytes since mount.
    pub since_mount: Traffic,
    /// Bytes of the last minute, or since the mount if that is less.
    pub minute: Traffic,
}

/// Blocks by their use. `capacity` is the sum of `used`, `in_flight`, `reclaimable`, `free` and
/// `metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Blocks {
    /// Capacity of all zones that work except the superblock zones, and blocks in use in failed
    /// zones.
    #[serde(rename = "capacity_blocks")]
    pub capacity: u64,
    /// In use by files.
    #[serde(rename = "used_blocks")]
    pub used: u64,
    /// Allocated to running writes.
    #[serde(rename = "in_flight_blocks")]
    pub in_flight: u64,
    /// Written, and no longer in use: reclaim or a reset frees them.
    #[serde(rename = "reclaimable_blocks")]
    pub reclaimable: u64,
    /// In empty zones, or behind the write pointer of open ones.
    #[serde(rename = "free_blocks")]
    pub free: u64,
    /// In zones of the journal and of the table.
    #[serde(rename = "metadata_blocks")]
    pub metadata: u64,
    /// Blocks of `reclaimable` and `free` that are reserved for metadata and reclaim.
    #[serde(rename = "reserved_blocks")]
    pub reserved: u64,
    /// Blocks that files may still fill, as statfs(2) reports them.
    #[serde(rename = "available_blocks")]
    pub available: u64,
}

/// Blocks that running writes hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reservations {
    /// Blocks of buffered or running writes.
    #[serde(rename = "pending_blocks")]
    pub pending: u64,
    /// Blocks of `pending` that will raise the number of blocks in use.
    #[serde(rename = "growing_blocks")]
    pub growing: u64,
    /// Preallocated to files.
    #[serde(rename = "preallocated_blocks")]
    pub preallocated: u64,
    /// Blocks that can be written before a writer has to wait for reclaim.
    #[serde(rename = "room_blocks")]
    pub room: u64,
    /// The room below which writers pay for reclaim.
    #[serde(rename = "low_mark_blocks")]
    pub low_mark: u64,
    /// Writers that wait for room now.
    #[serde(rename = "writers_waiting")]
    pub waiting: u64,
}

/// An open data zone, in blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OpenZone {
    /// Its number.
    pub zone: u32,
    /// Data that it takes.
    pub class: String,
    /// Predicted life of that data: `short`, `medium`, `long` or `extreme`; empty without a
    /// prediction.
    pub life: String,
    /// Lifetime hint of the file for which it was opened, in the same words; empty without a hint.
    #[serde(rename = "lifetime_hint")]
    pub hint: String,
    /// Capacity.
    #[serde(rename = "capacity_blocks")]
    pub capacity: u32,
    /// Blocks allocated to writes.
    #[serde(rename = "write_pointer_blocks")]
    pub write_pointer: u32,
    /// Of these, written blocks.
    #[serde(rename = "written_blocks")]
    pub written: u32,
    /// Of these, blocks in use.
    #[serde(rename = "used_blocks")]
    pub used: u32,
}

/// A zone out of which reclaim is moving data, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct VictimZone {
    /// Its number.
    pub zone: u32,
    /// Capacity.
    #[serde(rename = "capacity_blocks")]
    pub capacity: u32,
    /// Blocks still in use.
    #[serde(rename = "used_blocks")]
    pub used: u32,
    /// Blocks that reclaim has moved.
    #[serde(rename = "moved_blocks")]
    pub moved: u64,
}

/// Cost and gain of some victims, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Reclaimed {
    /// Number of victims.
    #[serde(rename = "count")]
    pub victims: u64,
    /// Blocks that reclaim moved out of them.
    #[serde(rename = "moved_blocks")]
    pub moved: u64,
    /// Blocks of the victims that can be written again, less the blocks that reclaim moved.
    #[serde(rename = "freed_blocks")]
    pub freed: u64,
}

impl Reclaimed {
    /// Blocks moved for each block freed; `None` if there was no victim, or nothing was freed.
    pub fn ratio(&self) -> Option<f64> {
        (self.freed > 0).then(|| divide(self.moved, self.freed))
    }
}

/// Bytes written to the drive in some time, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Traffic {
    /// Length of that time in nanoseconds; 0 without a measurement.
    #[serde(rename = "measured_ns")]
    pub ns: u64,
    /// File data.
    #[serde(rename = "user_bytes")]
    pub user: u64,
    /// Data that reclaim moved.
    #[serde(rename = "reclaim_bytes")]
    pub reclaim: u64,
    /// Journal, table and superblocks.
    #[serde(rename = "meta_bytes")]
    pub meta: u64,
}

impl Traffic {
    /// Bytes written to the drive per byte of file data; `None` without file data.
    pub fn amplification(&self) -> Option<f64> {
        (self.user > 0).then(|| divide(self.user + self.reclaim + self.meta, self.user))
    }

    /// Saves it as JSON, for readers after the end of the mount.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        zonal::output::write(path, serde_json::to_string_pretty(self)? + "\n", &[])
    }

    /// Reads a file of [`save`](Self::save).
    pub fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

/// Present use of a zone, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneUse {
    /// Name of the use, as in `zonal dump DEVICE zones`; "victim" while reclaim moves data out. An
    /// open zone for data of one class of life has the class behind it.
    pub role: &'static str,
    /// Capacity.
    pub capacity: u32,
    /// Blocks allocated to writes; of a metadata zone, all.
    pub written: u32,
    /// In use.
    pub used: u32,
}

impl Stats {
    /// Mean number of bytes between two jumps.
    pub fn bytes_between_jumps(&self) -> u64 {
        let Self { user_bytes, reclaim_bytes, meta_bytes, read_bytes, jumps, .. } = *self;
        (user_bytes + reclaim_bytes + meta_bytes + read_bytes) / jumps.max(1)
    }
}

impl Live {
    /// Counts a zone.
    pub(super) fn add(&mut self, zone: u32, slot: &ZoneSlot) {
        let [capacity, written, used, in_flight] =
            [slot.capacity, slot.written, slot.live, slot.in_flight].map(u64::from);
        let blocks = &mut self.blocks;
        let dead = written.saturating_sub(used + in_flight);
        match slot.role {
            Role::Super => {}
            Role::Meta => blocks.metadata += capacity,
            Role::Free => blocks.free += capacity,
            Role::Failed => blocks.used += used,
            Role::Open(stream) => {
                blocks.used += used;
                blocks.in_flight += in_flight;
                blocks.free += capacity - written;
                blocks.reclaimable += dead;
                self.open_zones.push(OpenZone {
                    zone,
                    class: class(stream).to_owned(),
                    life: String::new(),
                    hint: String::new(),
                    capacity: slot.capacity,
                    write_pointer: slot.written,
                    written: slot.written - slot.in_flight,
                    used: slot.live,
                });
            }
            Role::Sealed | Role::PendingReset => {
                blocks.used += used;
                blocks.in_flight += in_flight;
                blocks.reclaimable += dead;
                // The rest of a sealed zone gets no more writes, so it is dead too.
                blocks.reclaimable += capacity - written;
                let tenth = (10 * used).checked_div(capacity).unwrap_or(0).min(9);
                self.used_tenths[usize::try_from(tenth).expect("at most 9")] += 1;
            }
        }
    }
}

/// Name of the use of an open zone for data of one class of life.
pub(super) fn open_name(stream: Stream, class: Option<u8>) -> &'static str {
    match (stream, class.map(WriteLifetime::of_class)) {
        (stream, None | Some(WriteLifetime::None)) => Role::Open(stream).name(),
        (Stream::User, Some(WriteLifetime::Short)) => "open-short",
        (Stream::User, Some(WriteLifetime::Medium)) => "open-medium",
        (Stream::User, Some(WriteLifetime::Long)) => "open-long",
        (Stream::User, Some(WriteLifetime::Extreme)) => "open-extreme",
        (Stream::Reclaim, Some(WriteLifetime::Short)) => "reclaim-short",
        (Stream::Reclaim, Some(WriteLifetime::Medium)) => "reclaim-medium",
        (Stream::Reclaim, Some(WriteLifetime::Long)) => "reclaim-long",
        (Stream::Reclaim, Some(WriteLifetime::Extreme)) => "reclaim-extreme",
    }
}

/// The word for a stream.
const fn class(stream: Stream) -> &'static str {
    match stream {
        Stream::User => "user",
        Stream::Reclaim => "reclaim",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn divide(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
