//! Which data lies together, at which cost, and that no room is lost by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonal::{GeometrySpec, ManualClock, MemoryDrive, ZonedDevice};
use zonal_fs::furrow::{AtimePolicy, DumpWhat, Furrow, MountOptions, dump};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags, XattrMode};
use zonal_placement::lifetime::WriteLifetime;
use zonal_placement::model::Rules;
use zonal_placement::sharing::may_share;

use super::{BLOCK, Dice, assert_clean, create, fill, format, mount, shape};

/// Files that have blocks in each zone.
pub(crate) fn files_of_zones(drive: Arc<dyn ZonedDevice>) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut zones: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let mut note = |map: serde_json::Value| {
        let number = |name: &str| map[name].as_u64().unwrap();
        zones.entry(number("zone")).or_default().insert(number("inode"));
    };
    dump(drive, DumpWhat::Maps, &mut note).unwrap();
    zones
}

pub(crate) fn mount_with(drive: Arc<dyn ZonedDevice>, options: MountOptions) -> Furrow {
    let options = MountOptions { atime: AtimePolicy::Never, ..options };
    Furrow::mount(drive, Arc::new(ManualClock::new(1)), options).unwrap()
}

#[test]
fn placement_keeps_eight_large_files_in_own_zones() {
    let (max_open, max_active) = (Some(28), Some(28));
    let shape = GeometrySpec { max_open, max_active, ..shape(96, 24_576) };
    let drive = Arc::new(MemoryDrive::new(shape).unwrap());
    let fs = format(drive.clone());
    let files: Vec<Ino> = (0..8).map(|file| create(&fs, &format!("file {file}"))).collect();
    let data = vec![7; 1 << 20];
    for turn in 0..64 {
        for &file in &files {
            fs.write(file, turn << 20, &data, WriteFlags::empty()).unwrap();
        }
    }
    fs.sync().unwrap();
    let zones = files_of_zones(drive);
    assert_eq!(zones.len(), 8, "{zones:?}");
    assert!(zones.values().all(|files| files.len() == 1), "{zones:?}");
}

#[test]
fn placement_groups_small_files_by_expected_life() {
    let drive = Arc::new(MemoryDrive::new(shape(128, 256)).unwrap());
    let fs = format(drive.clone());
    let mut hinted: BTreeMap<u64, &str> = BTreeMap::new();
    for turn in 0..40 {
        for hint in ["short", "extreme"] {
            let file = create(&fs, &format!("{hint} {turn}"));
            let attribute = (&b"user.zonal.lifetime"[..], hint.as_bytes());
            let root = zonal_fs::vfs::Caller::ROOT;
            fs.setxattr(&root, file, attribute.0, attribute.1, XattrMode::Any).unwrap();
            fs.write(file, 0, &[1; 3 << 12], WriteFlags::empty()).unwrap();
            hinted.insert(file.get(), hint);
        }
        fs.sync().unwrap();
    }
    let zones = files_of_zones(drive);
    for files in zones.values() {
        let hints: BTreeSet<&str> = files.iter().map(|file| hinted[file]).collect();
        assert_eq!(hints.len(), 1, "{zones:?}");
    }
    assert!(zones.len() <= 3, "{} zones for 240 blocks", zones.len());
}

/// The files in each zone, after files of 10 or 100 blocks with each hint were written piece by
/// piece; and the hint of each file.
fn files_with_hints(
    mount: impl Fn(Arc<MemoryDrive>) -> Furrow,
) -> (Vec<BTreeSet<u64>>, BTreeMap<u64, String>) {
    let (max_open, max_active) = (Some(28), Some(28));
    let drive = Arc::new(
        MemoryDrive::new(GeometrySpec { max_open, max_active, ..shape(256, 256) }).unwrap(),
    );
    drop(format(drive.clone()));
    let fs = mount(drive.clone());
    let mut dice = Dice(17);
    let mut files = Vec::new();
    for hint in ["none", "short", "medium", "long", "extreme"] {
        for blocks in [10, 10, 100, 100] {
            let file = create(&fs, &format!("{hint} {}", files.len()));
            let name = b"user.zonal.lifetime";
            let root = zonal_fs::vfs::Caller::ROOT;
            fs.setxattr(&root, file, name, hint.as_bytes(), XattrMode::Any).unwrap();
            files.push((file, blocks, 0_u64));
        }
    }
    while files.iter().any(|(_, blocks, written)| written < blocks) {
        let chosen = usize::try_from(dice.below(files.len() as u64)).unwrap();
        let (file, blocks, written) = &mut files[chosen];
        // The first write of a large file is all of it, so its size is known.
        let piece = if *blocks == 100 { 100 } else { 5 };
        if *written < *blocks {
            let data = vec![1; piece << 12];
            fs.write(*file, *written * BLOCK, &data, WriteFlags::DIRECT).unwrap();
            *written += piece as u64;
        }
    }
    fs.sync().unwrap();
    let hint_of =
        |file: Ino| String::from_utf8(fs.getxattr(file, b"user.zonal.lifetime").unwrap()).unwrap();
    let hints = files.iter().map(|(file, ..)| (file.get(), hint_of(*file))).collect();
    (files_of_zones(drive).into_values().collect(), hints)
}

#[test]
fn placement_hints_group_files_or_are_ignored() {
    let (zones, hints) = files_with_hints(|drive| mount(drive));
    let lifetime = |file: &u64| WriteLifetime::from_name(hints[file].as_bytes()).unwrap();
    for files in &zones {
        for (zone, file) in files.iter().flat_map(|a| files.iter().map(move |b| (a, b))) {
            let (zone, file) = (lifetime(zone), lifetime(file));
            assert!(zone == file || may_share(zone, file), "{zone:?} and {file:?}: {zones:?}");
        }
    }
    // Files of `short` and `medium` share zones, large ones too; two large ones of `long` do not.
    let zones_of = |hint: &str| -> Vec<&BTreeSet<u64>> {
        zones.iter().filter(|files| files.iter().any(|file| hints[file] == hint)).collect()
    };
    let mut together = zones_of("short").into_iter().chain(zones_of("medium"));
    assert!(together.all(|files| files.len() >= 4), "{zones:?}");
    assert_eq!(zones_of("long").iter().filter(|files| files.len() == 1).count(), 2, "{zones:?}");

    let options = MountOptions { follows_hints: false, ..MountOptions::default() };
    let (ignored, still) = files_with_hints(|drive| mount_with(drive, options));
    assert_eq!(hints, still, "they are kept and shown");
    // And so from now on in a mount that has followed them.
    let later = files_with_hints(|drive| {
        let fs = mount(drive);
        fs.set_options(&MountOptions { follows_hints: false, ..fs.options() }).unwrap();
        fs
    });
    assert_eq!(ignored, later.0);
    assert_ne!(ignored, zones);
    let alone = ignored.iter().filter(|files| files.len() == 1).count();
    assert_eq!((alone, ignored.len()), (10, 11), "each large file has a zone: {ignored:?}");
}

#[test]
fn placement_uses_room_of_other_zones_before_no_space() {
    for zones in [32, 80] {
        let drive = Arc::new(MemoryDrive::new(shape(zones, 64)).unwrap());
        let fs = format(drive.clone());
        let files: Vec<Ino> = (0..8).map(|file| create(&fs, &format!("file {file}"))).collect();
        for &file in &files {
            fill(&fs, file, 20);
        }
        let last = create(&fs, "last");
        fill(&fs, last, fs.statfs().unwrap().blocks_free);
        // The files can be overwritten too, with the room that reclaim needs.
        let mut dice = Dice(3);
        for _ in 0..2000 {
            let file = files[usize::try_from(dice.below(8)).unwrap()];
            fs.write(file, dice.below(20) * BLOCK, &[3; 4096], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        assert_clean(drive);
    }
}

#[test]
fn placement_forgets_deleted_files() {
    let drive = Arc::new(MemoryDrive::new(shape(80, 64)).unwrap());
    let fs = format(drive.clone());
    for blocks in [20, 30, 45, 60] {
        let files: Vec<String> = (0..8).map(|file| format!("file {file}")).collect();
        for name in &files {
            fill(&fs, create(&fs, name), blocks);
        }
        for name in &files {
            fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        }
        let all = create(&fs, "all");
        fill(&fs, all, fs.statfs().unwrap().blocks_free);
        fs.unlink(Ino::ROOT, b"all").unwrap();
        super::steps::finish(&fs, zonal_fs::furrow::Work::Truncate);
        fs.sync().unwrap();
    }
    drop(fs);
    assert_clean(drive);
}

#[test]
fn active_limit_of_any_size_holds_over_mounts() {
    for limit in [4, 5, 6, 8, 14, 28, 128] {
        let limits =
            GeometrySpec { max_open: Some(limit), max_active: Some(limit), ..shape(128, 64) };
        let drive = Arc::new(MemoryDrive::new(limits).unwrap());
        let mut fs = format(drive.clone());
        let mut dice = Dice(u64::from(limit));
        let free = fs.statfs().unwrap().blocks_free;
        let files: Vec<Ino> = (0..20).map(|file| create(&fs, &format!("file {file}"))).collect();
        let blocks = free * 8 / 10 / 20;
        for turn in 0..blocks / 16 {
            for &file in &files {
                let data = vec![7; 16 << 12];
                fs.write(file, turn * 16 * BLOCK, &data, WriteFlags::DIRECT).unwrap();
            }
        }
        for step in 0..8000 {
            let file = files[usize::try_from(dice.below(20)).unwrap()];
            let block = dice.below(blocks / 16 * 16);
            fs.write(file, block * BLOCK, &[5; 4096], WriteFlags::DIRECT).unwrap_or_else(|error| {
                panic!("{limit} active zones, step {step}: {error}, {:?}", fs.stats())
            });
            if step % 500 == 0 {
                fs.sync().unwrap();
                fs.tick().unwrap();
            }
            if step % 2000 == 1000 {
                // Without an unmount.
                drop(fs);
                fs = mount(drive.clone());
            }
        }
        assert_eq!(fs.stats().zones_failed, 0);
        fs.shutdown().unwrap();
        drop(fs);
        assert_clean(drive);
    }
}

#[test]
fn commits_of_little_data_take_no_zones() {
    for limit in [4, 5, 6, 14] {
        let limits =
            GeometrySpec { max_open: Some(limit), max_active: Some(limit), ..shape(64, 64) };
        let fs = format(Arc::new(MemoryDrive::new(limits).unwrap()));
        let file = create(&fs, "file");
        fs.sync().unwrap();
        let before = fs.stats();
        for block in 0..20 {
            fs.write(file, block * BLOCK, &[3; 4096], WriteFlags::DIRECT).unwrap();
            fs.sync().unwrap();
        }
        let after = fs.stats();
        assert_eq!(after.zones_metadata, before.zones_metadata, "{limit} active zones");
        // A record of a block in two copies, and a superblock now and then.
        let blocks = (after.meta_bytes - before.meta_bytes) / BLOCK;
        assert!((40..60).contains(&blocks), "{limit} active zones: {blocks} blocks for 20 commits");
    }
}

#[test]
fn zone_of_deleted_file_is_active_until_reset() {
    for limit in [4, 6, 8] {
        let (max_open, max_active) = (Some(limit), Some(limit));
        let limits = GeometrySpec { max_open, max_active, ..shape(40, 128) };
        let drive = Arc::new(MemoryDrive::new(limits).unwrap());
        let fs = format(drive.clone());
        // Nothing is reset in the background.
        for turn in 0..6 {
            let file = create(&fs, "file");
            fill(&fs, file, 70);
            fs.unlink(Ino::ROOT, b"file").unwrap();
            fs.sync().unwrap_or_else(|error| panic!("{limit} active zones, turn {turn}: {error}"));
        }
        let file = create(&fs, "file");
        fill(&fs, file, 1);
        fs.shutdown().unwrap_or_else(|error| panic!("{limit} active zones: {error}"));
        drop(fs);
        assert_clean(drive);
    }
}

/// Writes a file of a zone, and removes it again: the zones that it had.
fn zones_of_short_file(fs: &Furrow, drive: Arc<dyn ZonedDevice>) -> BTreeSet<u64> {
    fill(fs, create(fs, "file"), 64);
    fs.sync().unwrap();
    let used = files_of_zones(drive).into_keys().collect();
    fs.unlink(Ino::ROOT, b"file").unwrap();
    fs.sync().unwrap();
    fs.tick().unwrap();
    used
}

#[test]
fn placement_takes_empty_zones_in_turn_on_flash_lowest_on_disk() {
    let used = |limit: Option<u32>| {
        let shape = GeometrySpec { max_open: limit, max_active: limit, ..shape(64, 64) };
        let drive = Arc::new(MemoryDrive::new(shape).unwrap());
        let fs = format(drive.clone());
        let used: BTreeSet<u64> =
            (0..20).flat_map(|_| zones_of_short_file(&fs, drive.clone())).collect();
        fs.shutdown().unwrap();
        drop(fs);
        (used, zones_of_short_file(&mount(drive.clone()), drive))
    };
    let (flash, after_mount) = used(Some(14));
    assert!(flash.len() >= 18, "{flash:?}");
    assert!(after_mount.iter().all(|&zone| zone >= 20), "{after_mount:?}");
    let (disk, after_mount) = used(None);
    assert!(disk.len() <= 4, "{disk:?}");
    assert!(after_mount.iter().all(|&zone| zone < 20), "{after_mount:?}");
}

/// Blocks written by reclaim and by users per block of users, in the last of three turns of hot and
/// cold overwrites of 95 % of the space.
fn amplification(placement: Rules) -> f64 {
    let drive = Arc::new(MemoryDrive::new(shape(256, 64)).unwrap());
    drop(format(drive.clone()));
    let fs = mount_with(drive, MountOptions { placement, ..MountOptions::default() });
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free * 95 / 100;
    fill(&fs, file, blocks);
    let mut dice = Dice(11);
    let mut before = fs.stats();
    for step in 0..3 * blocks {
        if step == 2 * blocks {
            before = fs.stats();
        }
        let hot = blocks / 10;
        let block =
            if dice.below(10) < 9 { dice.below(hot) } else { hot + dice.below(blocks - hot) };
        fs.write(file, block * BLOCK, &[3; 4096], WriteFlags::DIRECT).unwrap();
        if step % 1000 == 0 {
            fs.tick().unwrap();
        }
    }
    let after = fs.stats();
    1.0 + (after.reclaim_bytes - before.reclaim_bytes) as f64
        / (after.user_bytes - before.user_bytes) as f64
}

#[test]
fn placement_amplification_does_not_get_worse() {
    let (two, by_life) = (amplification(Rules::TwoStreams), amplification(Rules::ByLife));
    println!("hot and cold overwrites: greedy {two:.3}, by life {by_life:.3}");
    assert!(by_life < two);
    assert!(by_life <= 2.9, "{by_life:.3}");
}

#[test]
fn placement_gives_large_file_its_own_zone() {
    let (max_open, max_active) = (Some(28), Some(28));
    let shape = GeometrySpec { max_open, max_active, ..shape(160, 2048) };
    let drive = Arc::new(MemoryDrive::new(shape).unwrap());
    let fs = format(drive.clone());
    let data = vec![7; 1 << 20];
    // Four files, a megabyte of each after the other.
    let write = |name: &str, megabytes: u64| {
        let files: Vec<Ino> = (0..4).map(|file| create(&fs, &format!("{name}-{file}"))).collect();
        for turn in 0..megabytes {
            for &file in &files {
                fs.write(file, turn << 20, &data, WriteFlags::empty()).unwrap();
            }
        }
        fs.sync().unwrap();
        let zones = files_of_zones(drive.clone()).into_values();
        zones.filter(|zone| files.iter().any(|file| zone.contains(&file.get()))).collect::<Vec<_>>()
    };
    // Nothing is known of them.
    let first = write("first", 1);
    assert!(first.len() == 4 && first.iter().all(|files| files.len() == 1), "{first:?}");
    for file in 0..4 {
        fs.unlink(Ino::ROOT, format!("first-{file}").as_bytes()).unwrap();
    }
    assert_eq!(write("second", 1).len(), 1, "they share a zone");
    // A quarter of a zone is two megabytes.
    let third = write("third", 6);
    assert_eq!(third.iter().filter(|files| files.len() == 1).count(), 4, "{third:?}");
}

#[test]
fn placement_cuts_few_files_at_zone_ends() {
    let cut = |placement: Rules| {
        let drive = Arc::new(MemoryDrive::new(shape(96, 1024)).unwrap());
        drop(format(drive.clone()));
        let fs = mount_with(drive.clone(), MountOptions { placement, ..MountOptions::default() });
        let data = vec![7; 200 << 12];
        let mut dice = Dice(9);
        for file in 0..300 {
            let len = usize::try_from((10 + dice.below(190)) * BLOCK).unwrap();
            let file = create(&fs, &format!("file {file}"));
            fs.write(file, 0, &data[..len], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        let mut zones: BTreeMap<u64, u64> = BTreeMap::new();
        for file in files_of_zones(drive).into_values().flatten() {
            *zones.entry(file).or_default() += 1;
        }
        zones.into_values().filter(|zones| *zones > 1).count()
    };
    let (two, by_life) = (cut(Rules::TwoStreams), cut(Rules::ByLife));
    println!("of 300 files in zones of ten, cut: one stream {two}, by life {by_life}");
    assert!(by_life * 4 <= two * 3, "{by_life} of {two}");
}

/// The costs of a churn of files.
struct Cost {
    /// Data written by reclaim and by users per block of users, in the second half.
    amplification: f64,
    /// Bytes of metadata in all of it.
    meta_bytes: u64,
}

/// Whole files of up to a quarter zone come and go in 48 directories. Files of the last directory
/// live 300 times as long as in the first, each half to one and a half times as long as is usual
/// there, and the file with the earliest time of death goes first.
fn churn(options: MountOptions, hints: Option<[&str; 4]>) -> Cost {
    const ALL: u64 = 256 * 64;
    let drive = Arc::new(MemoryDrive::new(shape(256, 64)).unwrap());
    drop(format(drive.clone()));
    let mut fs = mount_with(drive.clone(), options);
    let root = zonal_fs::vfs::Caller::ROOT;
    let new = |kind| zonal_fs::vfs::NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
    let directory = new(zonal_fs::vfs::FileKind::Directory);
    let file = new(zonal_fs::vfs::FileKind::Regular);
    let create = |fs: &Furrow, home, name: &str, new| {
        fs.create(&root, home, name.as_bytes(), new).unwrap().ino
    };
    let homes: Vec<Ino> =
        (0..48).map(|home| create(&fs, Ino::ROOT, &format!("home-{home}"), &directory)).collect();
    let most = fs.statfs().unwrap().blocks_free * 95 / 100;
    let mut dice = Dice(6);
    // By the time of death: directory and blocks.
    let mut alive: BTreeMap<(u64, u64), (usize, u64)> = BTreeMap::new();
    let (mut held, mut written, mut number) = (0, 0, 0);
    let (mut before, mut meta_bytes) = (None, 0);
    let data = vec![7; 16 << 12];
    while written < 6 * ALL {
        if before.is_none() && written >= 3 * ALL {
            // A mount keeps the learned lives.
            meta_bytes = fs.stats().meta_bytes;
            fs.shutdown().unwrap();
            drop(fs);
            fs = mount_with(drive.clone(), options);
            before = Some(fs.stats());
        }
        let blocks = 1 + dice.below(16);
        while held + blocks > most {
            let ((_, number), (home, blocks)) = alive.pop_first().unwrap();
            fs.unlink(homes[home], format!("{number}.dat").as_bytes()).unwrap();
            held -= blocks;
        }
        let home = usize::try_from(dice.below(48)).unwrap();
        let ino = create(&fs, homes[home], &format!("{number}.dat"), &file);
        if let Some(hints) = hints {
            let hint = hints[home / 12];
            let name = b"user.zonal.lifetime";
            fs.setxattr(&root, ino, name, hint.as_bytes(), XattrMode::Any).unwrap();
        }
        let len = usize::try_from(blocks * BLOCK).unwrap();
        fs.write(ino, 0, &data[..len], WriteFlags::empty()).unwrap();
        // 300 to the power of home / 47, by tenths of a percent.
        let usual = (0..home).fold(ALL * 10, |life, _| life * 1129 / 1000);
        let life = usual / 1000 * (500 + dice.below(1000)) / 1000;
        alive.insert((written + life, number), (home, blocks));
        (held, written, number) = (held + blocks, written + blocks, number + 1);
        if number % 40 == 0 {
            fs.sync().unwrap();
            fs.tick().unwrap();
        }
    }
    let (before, after) = (before.unwrap(), fs.stats());
    let moved = (after.reclaim_bytes - before.reclaim_bytes) as f64;
    let user = (after.user_bytes - before.user_bytes) as f64;
    meta_bytes += after.meta_bytes;
    drop(fs);
    assert_clean(drive);
    Cost { amplification: 1.0 + moved / user, meta_bytes }
}

#[test]
fn placement_learns_from_directories() {
    let nothing = MountOptions { learns_lives: false, ..MountOptions::default() };
    let without = churn(nothing, None);
    let learned = churn(MountOptions::default(), None);
    let hinted = churn(nothing, Some(["short", "medium", "long", "extreme"]));
    let [a, b, c] = [&without, &learned, &hinted].map(|cost| cost.amplification);
    println!("48 directories: nothing known {a:.3}, learned {b:.3}, hints {c:.3}");
    let [a_meta, b_meta] = [&without, &learned].map(|cost| cost.meta_bytes);
    println!("bytes of metadata: {a_meta}, learned {b_meta}");
    assert!(b < 0.92 * a && c < 0.95 * a, "{a:.3}, {b:.3}, {c:.3}");
    assert!(b <= 2.61, "{b:.3}");
    // Learned lives take few rows.
    assert!(b_meta <= a_meta + a_meta / 100, "{a_meta}, {b_meta}");
}
