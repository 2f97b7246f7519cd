//! The control directory's access to a file system: its counters, settings and orders.

use zonal_fs::FsError;
use zonal_fs::furrow::stats::{MetadataDrive, ZoneUse};
use zonal_fs::furrow::{self, Furrow, Live, StepProgress};
use zonal_fs::vfs::{Access, FileSystem, Result};
use zonal_fs::zonefs::{self, OpenPolicy, ZoneFs};

use crate::options::{KindOptions, Options};

/// Order to reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimOrder {
    /// Takes one step: moves up to 1 MiB out of the best victim, or resets an empty zone.
    Step,
    /// Stops reclaim in the background.
    Pause,
    /// Starts it again.
    Resume,
}

/// A file system whose counters and settings can be read.
pub trait Inspect: Send + Sync {
    /// Its type.
    fn kind(&self) -> &'static str;

    /// UUID of the file system.
    fn uuid(&self) -> [u8; 16];

    /// Current counters, by name.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Names of counters that have a file of their own.
    fn attributes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Current use of space; `None` if each zone is a file.
    fn live(&self) -> Option<Live> {
        None
    }

    /// Uses of up to `count` zones from `first` on. Calls no device.
    fn zone_uses(&self, _first: usize, _count: usize) -> Vec<ZoneUse> {
        Vec::new()
    }

    /// Current settings, by name.
    fn settings(&self) -> Vec<(&'static str, &'static str)>;

    /// The options in force that only its kind has.
    fn options(&self) -> KindOptions;

    /// Changes the options that a remount can change.
    fn set_options(&self, new: &Options) -> Result<()>;

    /// Executes an order to reclaim. A step is EAGAIN if no zone is worth it.
    fn reclaim(&self, _order: ReclaimOrder) -> Result<()> {
        Err(FsError::Unsupported { what: "reclaim, where each zone is a file" })
    }
}

/// The options of another kind of file system.
const OTHER_KIND: FsError = FsError::Invalid { what: "options of another file system" };

fn name_of(access: Access) -> &'static str {
    match access {
        Access::ReadWrite => "read-write",
        Access::ReadOnly => "read-only",
    }
}

impl Inspect for Furrow {
    fn kind(&self) -> &'static str {
        "furrow"
    }

    fn uuid(&self) -> [u8; 16] {
        Self::uuid(self)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let stats = self.stats();
        let between = stats.bytes_between_jumps();
        let furrow::Stats {
            user_bytes,
            reclaim_bytes,
            meta_bytes,
            read_bytes,
            blocks_reread,
            blocks_moved_wrong,
            flushes,
            resets,
            jumps,
            batches,
            held_bytes,
            cache_bytes,
            cache_hits,
            cache_misses,
            leaves_lost,
            waits,
            wait_ns,
            wait_ns_max,
            zones_free,
            zones_open,
            open_zones_max,
            zones_sealed,
            zones_metadata,
            zones_failed,
            metadata_drive,
            zones_unread,
            resets_owed,
            removals_owed,
        } = stats;
        let mut counters = vec![
            ("user_bytes", user_bytes),
            ("reclaim_bytes", reclaim_bytes),
            ("meta_bytes", meta_bytes),
            ("read_bytes", read_bytes),
            ("blocks_reread", blocks_reread),
            ("blocks_moved_wrong", blocks_moved_wrong),
            ("flushes", flushes),
            ("resets", resets),
            ("jumps", jumps),
            ("bytes_between_jumps", between),
            ("batches", batches),
            ("memory", self.memory().get()),
            ("commit", self.options().commit_seconds.get().into()),
            ("held_bytes", held_bytes),
            ("cache_bytes", cache_bytes),
            ("cache_hits", cache_hits),
            ("cache_misses", cache_misses),
            ("leaves_lost", leaves_lost),
            ("waits", waits),
            ("wait_ns", wait_ns),
            ("wait_ns_max", wait_ns_max),
            ("zones_free", zones_free),
            ("open_zones", zones_open),
            ("open_zones_max", open_zones_max),
            ("zones_sealed", zones_sealed),
            ("zones_metadata", zones_metadata),
            ("zones_failed", zones_failed),
            ("zones_unread", zones_unread),
            ("resets_owed", resets_owed),
            ("removals_owed", removals_owed),
        ];
        // The option, if it was given; the limit in force is above.
        let wanted = self.options().max_open_zones;
        counters.extend(wanted.map(|zones| ("max_open_zones", zones.get().into())));
        counters.extend(metadata_drive.iter().flat_map(drive_counters));
        counters
    }

    fn live(&self) -> Option<Live> {
        Some(Furrow::live(self))
    }

    fn zone_uses(&self, first: usize, count: usize) -> Vec<ZoneUse> {
        Furrow::zone_uses(self, first, count)
    }

    fn settings(&self) -> Vec<(&'static str, &'static str)> {
        let reclaim = if self.is_reclaim_paused() { "paused" } else { "running" };
        let lifetime = if self.options().follows_hints { "followed" } else { "ignored" };
        let rotational = if self.is_rotational() { "yes" } else { "no" };
        vec![
            ("access", name_of(self.access())),
            ("reclaim", reclaim),
            ("lifetime", lifetime),
            ("rotational", rotational),
        ]
    }

    fn options(&self) -> KindOptions {
        KindOptions::Furrow(Self::options(self))
    }

    fn set_options(&self, new: &Options) -> Result<()> {
        let KindOptions::Furrow(options) = &new.kind else { return Err(OTHER_KIND) };
        Self::set_options(self, options)
    }

    fn reclaim(&self, order: ReclaimOrder) -> Result<()> {
        match order {
            ReclaimOrder::Step if self.reclaim_ahead()? == StepProgress::Idle => {
                Err(FsError::WouldBlock { what: "no zone is worth being emptied now" })
            }
            ReclaimOrder::Step => Ok(()),
            ReclaimOrder::Pause => {
                self.pause_reclaim();
                Ok(())
            }
            ReclaimOrder::Resume => {
                self.resume_reclaim();
                Ok(())
            }
        }
    }
}

impl Inspect for ZoneFs {
    fn kind(&self) -> &'static str {
        "zonefs"
    }

    fn uuid(&self) -> [u8; 16] {
        Self::uuid(self)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let stats = self.stats();
        vec![
            ("max_wro_seq_files", stats.max_wro_seq_files.into()),
            ("nr_wro_seq_files", stats.nr_wro_seq_files.into()),
            ("max_active_seq_files", stats.max_active_seq_files.into()),
            ("nr_active_seq_files", stats.nr_active_seq_files.into()),
            ("conventional_files", stats.conventional_files.into()),
            ("sequential_files", stats.sequential_files.into()),
            ("read_only_files", stats.read_only_files.into()),
            ("offline_files", stats.offline_files.into()),
            ("capacity_bytes", stats.capacity_bytes),
            ("used_bytes", stats.used_bytes),
        ]
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["max_wro_seq_files", "nr_wro_seq_files", "max_active_seq_files", "nr_active_seq_files"]
    }

    fn settings(&self) -> Vec<(&'static str, &'static str)> {
        let options = self.options();
        let open = match options.open {
            OpenPolicy::Implicit => "implicit",
            OpenPolicy::Explicit => "explicit",
        };
        let rotational = if self.is_rotational() { "yes" } else { "no" };
        vec![
            ("access", name_of(self.access())),
            ("errors", options.errors.name()),
            ("open", open),
            ("rotational", rotational),
        ]
    }

    fn options(&self) -> KindOptions {
        KindOptions::Zonefs(Self::options(self))
    }

    fn set_options(&self, new: &Options) -> Result<()> {
        let KindOptions::Zonefs(options) = new.kind else { return Err(OTHER_KIND) };
        Self::set_options(self, zonefs::MountOptions { access: new.mount.access, ..options });
        Ok(())
    }
}
/// The counters of a metadata drive.
fn drive_counters(drive: &MetadataDrive) -> [(&'static str, u64); 2] {
    [("metadata_drive_zones", drive.zones), ("metadata_drive_zones_free", drive.zones_free)]
}
