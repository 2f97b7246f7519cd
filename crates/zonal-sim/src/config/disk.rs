//! A spinning disk: its platters, arm, cache and command times.

use serde::{Deserialize, Serialize};
use zonal::{BlockSize, Geometry};

use crate::error::{Result, refused, within};
use crate::size::Size;

/// A spinning disk. A config with this section has no flash: of the other sections only `zones`
/// counts, with `size` and `max_open`.
///
/// The defaults come from the `hc620` preset; its file names their sources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// Zones of the disk.
    pub zones: u32,
    /// Conventional zones: the first ones. All of them: a conventional disk.
    pub conventional: u32,
    /// Place of the conventional zones, as a share of the way from the outer edge to the inner one.
    pub conventional_at: f64,
    /// Heads: surfaces with data. A zone lies on one surface; the next zone lies at the same radius
    /// on the next surface.
    pub heads: u32,
    /// Turns of the platters a minute.
    pub rpm: f64,
    /// Rate of long transfers at the outer edge, with the changes of tracks in it.
    pub outer_mb_s: f64,
    /// The same at the inner edge; at most `outer_mb_s`.
    pub inner_mb_s: f64,
    /// Recording zones: steps in which tracks get shorter from the outer edge to the inner one. 1:
    /// all tracks have the outer rate.
    pub recording_zones: u32,
    /// Tracks between two zones that hold no data, so that writing one zone spares the next.
    pub guard_tracks: u32,
    /// Time to move to the next track, and to settle there. A transfer that goes on in the next
    /// track takes `switch_ms` instead.
    pub track_seek_ms: f64,
    /// Time of a seek over a third of the tracks, about the mean of random ones.
    pub average_seek_ms: f64,
    /// Time of a seek over all tracks; at least `average_seek_ms`.
    pub full_seek_ms: f64,
    /// Additional time to settle before a write.
    pub write_settle_ms: f64,
    /// Time to change to the next track or to another head at the same radius. The skew of the
    /// tracks gives just this time.
    pub switch_ms: f64,
    /// Memory for writes that are not on the platters. 0: no write cache; a write ends when it is
    /// on the platter.
    pub write_cache: Size,
    /// Pieces that the write cache tracks. Writes that follow each other are one piece.
    pub write_pieces: u32,
    /// Longest piece that the disk writes before it turns to another one.
    pub destage: Size,
    /// Bytes of the oldest pieces of the write cache of which the head takes the nearest one first:
    /// so small pieces find the shortest way, and long ones stay in the order of arrival.
    pub destage_window: Size,
    /// Bytes that the disk reads on behind a read while no other command needs the head.
    pub read_ahead: Size,
    /// Places of the read cache: sequential readers that it can serve at once.
    pub read_segments: u32,
    /// Commands, or pieces of the write cache, of which the head takes the one that it reaches
    /// first (native command queuing).
    pub queue: u32,
    /// Time after which the oldest command goes first, wherever it is, and after which pieces of
    /// the write cache take turns with reads.
    pub patience_ms: f64,
    /// Time of a command outside the platters, without the transfer of its data.
    pub command_us: f64,
    /// Rate of the link.
    pub link_mb_s: f64,
    /// Rate of reads behind the write pointer of a zone, which no head performs.
    pub unwritten_mb_s: f64,
    /// Time to open, close or finish a zone.
    pub manage_us: f64,
    /// Time to reset a zone.
    pub reset_us: f64,
    /// Time to reset all zones by one command.
    pub reset_all_ms: f64,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            zones: 52_156,
            conventional: 524,
            conventional_at: 0.7,
            heads: 16,
            rpm: 7200.0,
            outer_mb_s: 244.5,
            inner_mb_s: 116.0,
            recording_zones: 24,
            guard_tracks: 2,
            track_seek_ms: 0.5,
            average_seek_ms: 7.7,
            full_seek_ms: 15.0,
            write_settle_ms: 0.5,
            switch_ms: 0.8,
            write_cache: Size(256 << 20),
            write_pieces: 512,
            destage: Size(1 << 20),
            destage_window: Size(2 << 20),
            read_ahead: Size(4 << 20),
            read_segments: 32,
            queue: 32,
            patience_ms: 500.0,
            command_us: 60.0,
            link_mb_s: 550.0,
            unwritten_mb_s: 374.0,
            manage_us: 100.0,
            reset_us: 1000.0,
            reset_all_ms: 2500.0,
        }
    }
}

/// Bytes of a block of a disk.
pub const DISK_BLOCK_BYTES: u64 = BlockSize::B4096.bytes();

impl Disk {
    /// Refuses fields outside their range.
    pub(super) fn check(&self, zone: Size) -> Result<()> {
        within("disk.zones", self.zones, 1, 1 << 24)?;
        within("disk.conventional", self.conventional, 0, self.zones)?;
        within("disk.conventional_at", self.conventional_at, 0.0, 1.0)?;
        within("disk.heads", self.heads, 1, 64)?;
        within("disk.rpm", self.rpm, 1000.0, 20_000.0)?;
        within("disk.outer_mb_s", self.outer_mb_s, 1.0, 2000.0)?;
        within("disk.inner_mb_s", self.inner_mb_s, 1.0, self.outer_mb_s)?;
        within("disk.recording_zones", self.recording_zones, 1, 1000)?;
        within("disk.guard_tracks", self.guard_tracks, 0, 1000)?;
        within("disk.track_seek_ms", self.track_seek_ms, 0.0, self.average_seek_ms)?;
        within("disk.average_seek_ms", self.average_seek_ms, 0.0, self.full_seek_ms)?;
        within("disk.full_seek_ms", self.full_seek_ms, 0.0, 1000.0)?;
        within("disk.write_settle_ms", self.write_settle_ms, 0.0, 100.0)?;
        within("disk.switch_ms", self.switch_ms, 0.0, 60_000.0 / self.rpm)?;
        within("disk.write_cache", self.write_cache.0, 0, 1 << 40)?;
        within("disk.write_pieces", self.write_pieces, 1, 1 << 20)?;
        within("disk.destage", self.destage.0, DISK_BLOCK_BYTES, 1 << 40)?;
        within("disk.destage_window", self.destage_window.0, 0, 1 << 40)?;
        within("disk.read_ahead", self.read_ahead.0, 0, 1 << 30)?;
        within("disk.read_segments", self.read_segments, 1, 1 << 16)?;
        within("disk.queue", self.queue, 1, 1024)?;
        within("disk.patience_ms", self.patience_ms, 0.0, 1e6)?;
        within("disk.command_us", self.command_us, 0.0, 1e6)?;
        within("disk.link_mb_s", self.link_mb_s, 1.0, 1e6)?;
        within("disk.unwritten_mb_s", self.unwritten_mb_s, 1.0, 1e6)?;
        within("disk.manage_us", self.manage_us, 0.0, 1e7)?;
        within("disk.reset_us", self.reset_us, 0.0, 1e7)?;
        within("disk.reset_all_ms", self.reset_all_ms, 0.0, 1e6)?;
        if zone.0 == 0 || !zone.0.is_multiple_of(DISK_BLOCK_BYTES) {
            return Err(refused("zones.size", zone, "of a disk, a multiple of 4KiB above 0"));
        }
        let blocks = u64::from(self.zones).checked_mul(zone.0 / DISK_BLOCK_BYTES);
        if blocks.is_none_or(|blocks| blocks > Geometry::BLOCK_COUNT_MAX) {
            let allowed = format!("with zones of {zone}, a disk of at most 64 PiB");
            return Err(refused("disk.zones", self.zones, &allowed));
        }
        Ok(())
    }
}
