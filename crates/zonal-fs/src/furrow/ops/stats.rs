//! The numbers of a mount: how [`Stats`], [`Live`] and [`ZoneUse`] come about.
//!
//! Everything comes from memory; nothing here calls the device. One look at the state, with its
//! lock held for reading, makes all of it, so nothing is kept up to date for it meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use zonal_placement::lifetime::WriteLifetime;

use crate::furrow::Furrow;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::stats::{Live, MetadataDrive, Reservations, Stats, ZoneUse, open_name};
use crate::furrow::zones::Role;

impl Furrow {
    /// Counters since mount, and how many zones are used for what.
    pub fn stats(&self) -> Stats {
        let (counts, cache) = (&self.drive.counts, self.tree.view.cache_counts());
        let (waits, wait_ns, wait_ns_max) = self.meters.waits();
        let mut stats = Stats {
            user_bytes: counts.user_bytes.load(Ordering::Relaxed),
            reclaim_bytes: counts.reclaim_bytes.load(Ordering::Relaxed),
            meta_bytes: counts.meta_bytes.load(Ordering::Relaxed),
            read_bytes: counts.read_bytes.load(Ordering::Relaxed),
            blocks_reread: counts.blocks_reread.load(Ordering::Relaxed),
            blocks_moved_wrong: counts.blocks_moved_wrong.load(Ordering::Relaxed),
            flushes: counts.flushes.load(Ordering::Relaxed),
            resets: counts.resets.load(Ordering::Relaxed),
            jumps: counts.jumps.load(Ordering::Relaxed),
            batches: self.log.durable_batch.load(Ordering::Relaxed),
            cache_bytes: cache.bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            leaves_lost: self.tree.view.lost_count(),
            waits,
            wait_ns,
            wait_ns_max,
            ..Stats::default()
        };
        let state = self.tree.read_state();
        stats.held_bytes = state.residency.bytes() as u64;
        stats.open_zones_max = state.zones.open_zones_max() as u64;
        for (_, slot) in state.zones.all() {
            let count = match slot.role {
                Role::Free => &mut stats.zones_free,
                Role::Open(_) => &mut stats.zones_open,
                Role::Sealed | Role::PendingReset => &mut stats.zones_sealed,
                Role::Super | Role::Meta => &mut stats.zones_metadata,
                Role::Failed => &mut stats.zones_failed,
            };
            *count += 1;
            stats.zones_unread += u64::from(slot.unreadable && slot.live > 0);
        }
        let layout = self.tree.layout();
        stats.metadata_drive = layout.has_metadata_drive().then(|| MetadataDrive {
            zones: u64::from(layout.geometry.zone_count() - layout.data_zones),
            zones_free: state.zones.free_aside() as u64,
        });
        stats.zones_unread += state.zones.unread.len() as u64;
        stats.resets_owed = state.zones.refused_reset_count() as u64;
        let (lives, discards) = (&state.inodes.lives, &state.maps.discards);
        let owed = [lives.failed().len(), lives.lost_blocks.len(), discards.failed().len()];
        stats.removals_owed = owed.iter().map(|&count| count as u64).sum();
        stats
    }

    /// The picture of now.
    pub fn live(&self) -> Live {
        let (counts, now) = (&self.drive.counts, self.clock.monotonic_ns());
        self.meters.sample(counts, now);
        let (since_mount, minute) = self.meters.traffic(counts, now);
        let mut victims = self.meters.victims();
        let mut live = Live {
            block_bytes: BLOCK_BYTES as u64,
            reclaimed: self.meters.reclaimed(),
            since_mount,
            minute,
            ..Live::default()
        };
        let state = self.tree.read_state();
        live.blocks.capacity = state.zones.usable();
        let data_zones = self.tree.layout().data_zones as usize;
        for (zone, slot) in state.zones.all().take(data_zones) {
            live.add(zone, slot);
        }
        for open in &mut live.open_zones {
            let (life, hint) = state.lives_of(open.zone);
            let word = |lifetime: WriteLifetime| match lifetime {
                WriteLifetime::None => String::new(),
                lifetime => lifetime.name().to_owned(),
            };
            (open.life, open.hint) = (word(life), word(hint));
        }
        for victim in &mut victims {
            let slot = state.zones.slot(victim.zone);
            (victim.capacity, victim.used) = (slot.capacity, slot.live);
        }
        live.victims = victims;
        let (totals, room) = (&state.rows.totals, self.tree.space.writer_room(&state));
        live.reservations = Reservations {
            pending: totals.pending(),
            growing: totals.reserved(),
            preallocated: totals.preallocated(),
            room: room.now.saturating_sub(totals.pending()),
            low_mark: room.low,
            waiting: self.throttle.waiting().into(),
        };
        let blocks = &mut live.blocks;
        blocks.available = self.tree.space.free_blocks(&state);
        blocks.reserved = (blocks.free + blocks.reclaimable).saturating_sub(blocks.available);
        live
    }

    /// The use of each zone, up to `count` of them from `first` on.
    pub fn zone_uses(&self, first: usize, count: usize) -> Vec<ZoneUse> {
        let victims = self.meters.victims();
        let state = self.tree.read_state();
        let classes: BTreeMap<u32, u8> = state
            .zones
            .open_zones()
            .iter()
            .filter_map(|open| Some((open.zone, open.class?)))
            .collect();
        let uses = state.zones.all().skip(first).take(count);
        uses.map(|(zone, slot)| {
            let is_victim =
                slot.role == Role::Sealed && victims.iter().any(|victim| victim.zone == zone);
            let written = match slot.role {
                Role::Super | Role::Meta => slot.capacity,
                Role::Free => 0,
                Role::Open(_) | Role::Sealed | Role::PendingReset | Role::Failed => slot.written,
            };
            ZoneUse {
                role: match slot.role {
                    _ if is_victim => "victim",
                    Role::Open(stream) => open_name(stream, classes.get(&zone).copied()),
                    role => role.name(),
                },
                capacity: slot.capacity,
                written,
                used: slot.live.min(slot.capacity),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::MountOptions;
    use crate::furrow::sample::formatted;
    use crate::furrow::stats::Blocks;
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    fn file(fs: &Furrow, name: &str) -> Ino {
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap().ino
    }

    /// The parts of the drive, which have to add up at any time.
    fn assert_sums(fs: &Furrow) -> Live {
        let live = fs.live();
        let Blocks { capacity, used, in_flight, reclaimable, free, metadata, .. } = live.blocks;
        assert_eq!(used + in_flight + reclaimable + free + metadata, capacity, "{live:?}");
        assert_eq!(used, fs.tree.read_state().rows.totals.live());
        assert_eq!(live.blocks.available, fs.statfs().unwrap().blocks_free);
        assert_eq!(live.used_tenths.iter().sum::<u64>(), fs.stats().zones_sealed);
        let stats = fs.stats();
        assert_eq!(live.open_zones.len() as u64, stats.zones_open);
        assert!(stats.zones_open <= stats.open_zones_max, "{stats:?}");
        live
    }

    #[test]
    fn stats_blocks_add_up_after_any_change() {
        let (drive, clock) = formatted(48, 512);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        assert_eq!(assert_sums(&fs).blocks.used, 0);
        let first = file(&fs, "first");
        fs.write(first, 0, &vec![1; 700 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        let live = assert_sums(&fs);
        assert_eq!(live.blocks.used, 700);
        let open = &live.open_zones[0];
        assert_eq!((open.class.as_str(), open.capacity), ("user", 512));
        assert_eq!((open.write_pointer, open.written, open.used), (188, 188, 188));
        assert_eq!(live.used_tenths[9], 1, "one zone is full");
        // Buffered: room that is held.
        fs.write(first, 0, &[2; 10], WriteFlags::empty()).unwrap();
        assert_eq!(assert_sums(&fs).reservations.pending, 1);
        // Most of the first zone dies.
        fs.write(first, 0, &vec![3; 500 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        fs.sync().unwrap();
        let live = assert_sums(&fs);
        assert!(live.blocks.reclaimable >= 500, "{live:?}");
        assert_eq!(live.used_tenths[0], 1, "{live:?}");
        assert!(live.since_mount.amplification().unwrap() > 1.0);
        fs.unlink(Ino::ROOT, b"first").unwrap();
        fs.sync().unwrap();
        fs.tick().unwrap();
        assert_sums(&fs);
    }

    #[test]
    fn stats_show_open_zone_limit_in_force() {
        let limit = |wanted: Option<u32>| {
            let (drive, clock) = formatted(96, 512);
            let max_open_zones = wanted.and_then(std::num::NonZeroU32::new);
            let options = MountOptions { max_open_zones, ..MountOptions::default() };
            Furrow::mount(drive, clock, options).unwrap().stats().open_zones_max
        };
        // The drive allows 14 active zones, of which metadata takes six.
        assert_eq!([None, Some(3), Some(100)].map(limit), [8, 3, 8]);
    }

    #[test]
    fn stats_show_life_and_hint_of_open_zones() {
        let (drive, clock) = formatted(64, 256);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        for (hint, blocks) in [("medium", 3), ("extreme", 3), ("long", 100)] {
            let ino = file(&fs, hint);
            let name = b"user.zonal.lifetime";
            let any = crate::vfs::XattrMode::Any;
            fs.setxattr(&Caller::ROOT, ino, name, hint.as_bytes(), any).unwrap();
            fs.write(ino, 0, &vec![1; blocks * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        let live = assert_sums(&fs);
        let shown = live.open_zones.iter().map(|open| {
            let words = [&open.class, &open.life, &open.hint].map(String::as_str);
            (words, open.write_pointer, open.written, open.used)
        });
        let expected = [
            (["user", "medium", "medium"], 3, 3, 3),
            (["user", "extreme", "extreme"], 3, 3, 3),
            (["user", "long", "long"], 100, 100, 100),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        let uses = fs.zone_uses(0, 100);
        for role in ["open-medium", "open-extreme", "open"] {
            assert_eq!(uses.iter().filter(|zone| zone.role == role).count(), 1, "{role}");
        }
    }

    #[test]
    fn stats_show_what_reclaim_moves_and_frees() {
        let (drive, clock) = formatted(32, 256);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let keep = file(&fs, "keep");
        let piece = 64 * BLOCK_BYTES;
        for number in 0..32 {
            fs.write(keep, (number * piece) as u64, &vec![1; piece], WriteFlags::DIRECT).unwrap();
        }
        // So half of each zone is dead.
        for number in (0..32).step_by(2) {
            fs.fallocate(keep, Allocate::Punch, (number * piece) as u64, piece as u64).unwrap();
        }
        fs.sync().unwrap();
        fs.tick().unwrap();
        let before = assert_sums(&fs);
        assert_eq!(before.reclaimed.ratio(), None);
        while fs.reclaimer.make_room().is_ok() && fs.live().reclaimed.victims < 2 {
            assert_sums(&fs);
        }
        let live = assert_sums(&fs);
        let ratio = live.reclaimed.ratio().expect("there were victims");
        assert!((0.9..1.1).contains(&ratio), "half of each was in use: {ratio}");
        assert!(fs.zone_uses(0, 100).iter().any(|zone| zone.role.starts_with("reclaim-")));
    }

    #[test]
    fn stats_show_zones_in_any_range() {
        let (drive, clock) = formatted(32, 256);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let all = fs.zone_uses(0, usize::MAX);
        assert_eq!(all.len(), 32);
        assert_eq!(fs.zone_uses(7, 5), all[7..12]);
        assert!(fs.zone_uses(99, 5).is_empty());
        assert_eq!(all.iter().filter(|zone| zone.role == "superblock").count(), 4);
        assert!(all.iter().all(|zone| zone.used <= zone.written && zone.written <= zone.capacity));
    }
}
