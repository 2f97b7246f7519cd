//! A drive that is full, or nearly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::io::Errno;
use zonal::{GeometrySpec, ManualClock, MemoryDrive, ZoneCond, ZoneFailure, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, Work, mkfs};
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, SyncKind, WriteFlags,
};
use zonal_placement::model::Rules;

use super::gate::{Call, Gate};
use super::{BLOCK, Dice, assert_clean, create, fill, format, mount, shape};

fn truncate(fs: &Furrow, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).unwrap();
}

/// Overwrites random blocks, `count` of them.
fn overwrite(fs: &Furrow, ino: Ino, blocks: u64, count: u64, seed: u64) {
    let mut dice = Dice(seed);
    for step in 0..count {
        let block = dice.below(blocks);
        fs.write(ino, block * BLOCK, &[3; 4096], WriteFlags::DIRECT)
            .unwrap_or_else(|error| panic!("overwrite {step}, block {block}: {error}"));
    }
}

/// Fills a drive to the last block with large writes, then overwrites it in blocks as often as
/// `turns` says, and gives its space back in every way there is.
fn fragment(zones: u64, zone_blocks: u64, turns: u64) {
    let drive = Arc::new(MemoryDrive::new(shape(zones, zone_blocks)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    fill(&fs, file, blocks);
    overwrite(&fs, file, blocks, blocks * turns, 7);
    fs.fallocate(file, Allocate::Punch, 7 * BLOCK + 7, blocks / 8 * BLOCK).unwrap();
    overwrite(&fs, file, blocks / 8, 100, 9);
    truncate(&fs, file, blocks * BLOCK / 2 + 5);
    fs.sync().unwrap();
    drop(fs);
    assert_clean(drive.clone());
    let fs = mount(drive.clone());
    overwrite(&fs, file, blocks / 2, 1000, 8);
    fs.unlink(Ino::ROOT, b"file").unwrap();
    super::steps::finish(&fs, Work::Truncate);
    fs.sync().unwrap();
    // An inode takes space too.
    let file = create(&fs, "again");
    let again = fs.statfs().unwrap().blocks_free;
    assert!(again * 100 >= blocks * 99, "{again} blocks free, {blocks} at first");
    fill(&fs, file, again);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

/// Fills a drive with a reserve of 0 %, and overwrites blocks of the file, half of the time in one
/// sixteenth of them.
fn overwrite_some_more_often(active: u32, placement: Rules) {
    let limits =
        GeometrySpec { max_open: Some(active), max_active: Some(active), ..shape(192, 64) };
    let drive = Arc::new(MemoryDrive::new(limits).unwrap());
    let options = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
    mkfs(drive.clone(), &ManualClock::new(0), &options, &mut |_| ()).unwrap();
    let options = MountOptions { placement, ..MountOptions::default() };
    let fs = Furrow::mount(drive.clone(), Arc::new(ManualClock::new(1)), options).unwrap();
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    fill(&fs, file, blocks);
    let mut dice = Dice(7);
    for step in 0..3 * blocks {
        let is_hot = dice.below(2) == 0;
        let block = dice.below(if is_hot { blocks / 16 } else { blocks });
        fs.write(file, block * BLOCK, &[3; 4096], WriteFlags::DIRECT).unwrap_or_else(|error| {
            panic!("{active} active zones, {placement:?}, step {step} of {blocks} blocks: {error}")
        });
    }
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn full_drive_overwrites_without_zone_for_reclaim() {
    overwrite_some_more_often(4, Rules::ByLife);
    overwrite_some_more_often(14, Rules::OneStream);
}

#[test]
fn full_drive_overwrites_at_any_active_limit() {
    for active in [5, 6, 14] {
        overwrite_some_more_often(active, Rules::ByLife);
    }
}

#[test]
fn full_drive_of_large_writes_overwrites_by_block() {
    fragment(160, 64, 3);
}

#[test]
#[ignore = "takes a minute; run by cargo xtask test --all"]
fn full_drive_of_large_writes_overwrites_ten_times() {
    fragment(256, 64, 10);
}

#[test]
#[ignore = "takes half an hour; run by cargo xtask test --soak"]
fn full_drive_of_256_4_mib_zones_overwrites_ten_times() {
    fragment(256, 1024, 10);
}

/// Two threads overwrite, two sync, on a drive that is filled to 95 %.
fn overwrite_and_sync(zones: u64, zone_blocks: u64, count: u64) {
    let drive = Arc::new(MemoryDrive::new(shape(zones, zone_blocks)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free * 95 / 100;
    fill(&fs, file, blocks);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        let writers: Vec<_> = (0..2)
            .map(|seed| scope.spawn(move || overwrite(fs, file, blocks, count, seed)))
            .collect();
        for _ in 0..2 {
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    fs.fsync(file, SyncKind::Full).unwrap();
                    thread::yield_now();
                }
            });
        }
        let outcome: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        assert!(outcome.iter().all(Result::is_ok), "a writer failed");
    });
    truncate(&fs, file, blocks * BLOCK / 2);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn overwrite_continues_beside_syncs() {
    overwrite_and_sync(32, 128, 2000);
}

#[test]
#[ignore = "takes minutes; run by cargo xtask test --all"]
fn overwrite_of_64_zones_continues_beside_syncs() {
    overwrite_and_sync(64, 256, 40_000);
}

#[test]
fn zone_emptied_during_read_is_reset_by_next_commit() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let file = create(&fs, "file");
    fill(&fs, file, 256);
    fs.sync().unwrap();
    let free = || fs.stats().zones_free;
    let before = free();
    gate.hold(Call::Read);
    thread::scope(|scope| {
        let reader = scope.spawn(|| fs.read(file, 0, &mut vec![0; 256 * 4096]).unwrap());
        gate.wait_for(1);
        truncate(&fs, file, 0);
        fs.sync().unwrap();
        assert_eq!(free(), before, "a zone that is read is not reset");
        gate.open();
        reader.join().unwrap();
    });
    fs.sync().unwrap();
    fs.tick().unwrap();
    assert!(free() >= before + 3, "{} free zones, {before} before", free());
}

#[test]
fn space_is_freed_when_reclaim_cannot_make_room() {
    let drive = Arc::new(MemoryDrive::new(shape(32, 64)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    fill(&fs, file, blocks);
    fs.sync().unwrap();
    // Zones fail until only the zones that metadata needs are left.
    let zones = drive.report_all().unwrap();
    let empty: Vec<_> = zones.iter().filter(|zone| zone.cond == ZoneCond::Empty).collect();
    for zone in &empty[..empty.len() - 5] {
        drive.fail_zone(zone.id, ZoneFailure::ReadOnly).unwrap();
    }
    let mut dice = Dice(3);
    let refused = (0..2000).find_map(|_| {
        let at = dice.below(blocks) * BLOCK;
        fs.write(file, at, &[3; 4096], WriteFlags::DIRECT).err().map(|error| error.errno())
    });
    assert_eq!(refused, Some(Errno::NOSPC.raw_os_error()));
    fs.fallocate(file, Allocate::Punch, 5 * BLOCK + 5, 100 * BLOCK).unwrap();
    truncate(&fs, file, blocks * BLOCK / 2 + 5);
    fs.sync().unwrap();
    overwrite(&fs, file, blocks / 2, 500, 8);
    fs.sync().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn files_fill_large_drive_except_reserve() {
    let drive = Arc::new(MemoryDrive::new(shape(512, 1024)).unwrap());
    let blocks = format(drive.clone()).statfs().unwrap().blocks;
    let all = 512 * 1024;
    assert!(blocks * 100 >= all * 91, "{blocks} blocks of {all}");
}

#[test]
fn reflink_ends_when_rows_have_no_space() {
    let drive = Arc::new(MemoryDrive::new(shape(32, 64)).unwrap());
    let fs = format(drive.clone());
    let (file, copy) = (create(&fs, "file"), create(&fs, "copy"));
    let blocks = fs.statfs().unwrap().blocks_free * 9 / 10;
    fill(&fs, file, blocks);
    // A map entry for each block.
    overwrite(&fs, file, blocks, blocks, 11);
    let len = blocks * BLOCK;
    let refused = (0..1000u64).find_map(|turn| {
        let target = (copy, turn * len);
        fs.copy_range((file, 0), target, len, WriteFlags::empty()).err().map(|error| error.errno())
    });
    assert_eq!(refused, Some(Errno::NOSPC.raw_os_error()));
    truncate(&fs, copy, 0);
    overwrite(&fs, file, blocks, 500, 12);
    fs.sync().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn write_without_space_is_refused_before_reclaim() {
    let fs = format(Arc::new(MemoryDrive::new(shape(32, 64)).unwrap()));
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    fill(&fs, file, blocks);
    overwrite(&fs, file, blocks, 300, 5);
    let before = fs.stats().reclaim_bytes;
    for _ in 0..10 {
        let refused = fs.write(file, blocks * BLOCK, &vec![1; 1 << 18], WriteFlags::DIRECT);
        assert_eq!(
            refused.map(drop).map_err(|error| error.errno()),
            Err(Errno::NOSPC.raw_os_error())
        );
    }
    assert_eq!(fs.stats().reclaim_bytes, before);
}

#[test]
fn unnamed_file_space_returns_after_close() {
    let fs = format(Arc::new(MemoryDrive::new(shape(32, 64)).unwrap()));
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    fs.pin(file).unwrap();
    fill(&fs, file, blocks);
    fs.unlink(Ino::ROOT, b"file").unwrap();
    assert_eq!(fs.statfs().unwrap().inodes_unlinked, 1);
    let other = fs.create(
        &Caller::ROOT,
        Ino::ROOT,
        b"other",
        &zonal_fs::vfs::NewInode {
            kind: zonal_fs::vfs::FileKind::Regular,
            perm: 0o644,
            rdev: 0,
            target: b"",
        },
    );
    assert_eq!(other.map_err(|error| error.errno()), Err(Errno::NOSPC.raw_os_error()));
    fs.unpin(file);
    assert_eq!(fs.statfs().unwrap().inodes_unlinked, 0);
    fill(&fs, create(&fs, "other"), blocks);
}

#[test]
fn host_without_space_costs_no_zone_and_is_reported() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let file = create(&fs, "file");
    fill(&fs, file, 100);
    fs.sync().unwrap();
    let zones = |fs: &Furrow| {
        let stats = fs.stats();
        (
            stats.zones_free,
            stats.zones_open,
            stats.zones_sealed,
            stats.zones_metadata,
            stats.zones_failed,
        )
    };
    let before = zones(&fs);
    gate.fill_host();
    let full = Err(Errno::NOSPC.raw_os_error());
    for _ in 0..20 {
        let written = fs.write(file, 0, &vec![7; 64 * 1024], WriteFlags::DIRECT);
        assert_eq!(written.map(drop).map_err(|error| error.errno()), full);
    }
    fs.write(file, 10, b"held in the buffer", WriteFlags::empty()).unwrap();
    for _ in 0..3 {
        assert_eq!(fs.sync().map_err(|error| error.errno()), full);
    }
    assert_eq!(zones(&fs), before, "no zone is given up");
    gate.empty_host();
    fs.sync().unwrap();
    fill(&fs, file, 200);
    fs.shutdown().unwrap();
    assert_eq!(zones(&fs).4, 0, "no zone has failed");
    drop(fs);
    assert_clean(gate);
}

/// Files of `bytes` bytes, until there is no space; returns how many blocks they have.
fn fill_with_files(fs: &Furrow, bytes: usize) -> u64 {
    let data = vec![3; bytes];
    let mut homes = 0..;
    let mut stored = 0;
    loop {
        let home = homes.next().expect("there is no end");
        let new = NewInode { kind: FileKind::Directory, perm: 0o755, rdev: 0, target: b"" };
        let name = format!("home-{home}");
        let Ok(home) = fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new) else {
            return stored;
        };
        for number in 0..500 {
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            let name = format!("file-{number}");
            let file = fs.create(&Caller::ROOT, home.ino, name.as_bytes(), &new);
            let written = file.and_then(|file| fs.write(file.ino, 0, &data, WriteFlags::DIRECT));
            match written {
                Ok(written) => stored += written.len.div_ceil(BLOCK),
                Err(FsError::NoSpace) => return stored,
                Err(error) => panic!("{error}"),
            }
            if number % 50 == 0 {
                fs.sync().unwrap();
                fs.tick().unwrap();
            }
        }
    }
}

#[test]
fn statfs_reports_how_many_files_fit() {
    for (zones, zone_blocks) in [(64, 512), (256, 128)] {
        for bytes in [1 << 20, 4096] {
            let drive = Arc::new(MemoryDrive::new(shape(zones, zone_blocks)).unwrap());
            let fs = format(drive.clone());
            let before = fs.statfs().unwrap();
            // The root directory has a row.
            assert!(before.blocks - before.blocks_free < 10, "nothing is used: {before:?}");
            let stored = fill_with_files(&fs, bytes);
            let after = fs.statfs().unwrap();
            println!(
                "{zones} zones of {zone_blocks} blocks, files of {bytes} bytes: {} blocks are sold, {stored} \
                 stored, {} left",
                before.blocks_free, after.blocks_free
            );
            assert!(stored * 100 >= before.blocks_free * 99, "{stored} of {before:?}");
            assert!(stored <= before.blocks_free, "{stored} of {before:?}");
            let left = (bytes as u64 / BLOCK).max(before.blocks / 50);
            assert!(after.blocks_free <= left, "{after:?}");
            fs.shutdown().unwrap();
            drop(fs);
            assert_clean(drive);
        }
    }
}

/// Files of one to 40 blocks are written until there is no space, by their number.
fn fill_up(fs: &Furrow, files: &mut BTreeMap<u64, u64>, dice: &mut Dice) {
    loop {
        let number = files.last_key_value().map_or(0, |(number, _)| number + 1);
        let blocks = 1 + dice.below(40);
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let name = number.to_string();
        let file = fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new);
        let data = vec![content_of(number); usize::try_from(blocks * BLOCK).unwrap()];
        match file.and_then(|file| fs.write(file.ino, 0, &data, WriteFlags::empty())) {
            Ok(written) if written.len == blocks * BLOCK => {
                files.insert(number, blocks);
            }
            // A part of it: it is the last one.
            Ok(written) => {
                files.insert(number, written.len / BLOCK);
                return;
            }
            Err(FsError::NoSpace) => {
                let created = fs.lookup(Ino::ROOT, name.as_bytes()).is_ok();
                if created {
                    fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                }
                return;
            }
            Err(error) => panic!("file {number}: {error}"),
        }
        if number.is_multiple_of(60) {
            fs.tick().unwrap();
        }
    }
}

fn content_of(number: u64) -> u8 {
    u8::try_from(number % 250 + 1).unwrap()
}

#[test]
fn full_drive_filled_again_and_again_regains_space() {
    let drive = Arc::new(MemoryDrive::new(shape(64, 128)).unwrap());
    let mut fs = format(drive.clone());
    let sold = fs.statfs().unwrap().blocks_free;
    let (mut files, mut dice) = (BTreeMap::new(), Dice(31));
    for turn in 0..8 {
        fill_up(&fs, &mut files, &mut dice);
        let held: u64 = files.values().sum();
        assert!(held * 100 >= sold * 95, "turn {turn}: {held} of {sold} blocks are held");
        // It can still be synced, and overwritten.
        fs.sync().unwrap();
        for (&number, &blocks) in &files {
            let ino = fs.lookup(Ino::ROOT, number.to_string().as_bytes()).unwrap().ino;
            let block = dice.below(blocks);
            let data = [content_of(number); 4096];
            fs.write(ino, block * BLOCK, &data, WriteFlags::empty()).unwrap();
        }
        // Most of them go, or every other one, or some.
        let kept = [0, 2, 8][turn % 3];
        let gone: Vec<u64> = files.keys().copied().filter(|_| dice.below(10) >= kept).collect();
        for number in gone {
            fs.unlink(Ino::ROOT, number.to_string().as_bytes()).unwrap();
            files.remove(&number);
        }
        if turn % 2 == 1 {
            fs.shutdown().unwrap();
            drop(fs);
            assert_clean(drive.clone());
            fs = mount(drive.clone());
        }
        for (&number, &blocks) in &files {
            let ino = fs.lookup(Ino::ROOT, number.to_string().as_bytes()).unwrap().ino;
            let mut found = vec![0; usize::try_from((blocks + 1) * BLOCK).unwrap()];
            let len = fs.read(ino, 0, &mut found).unwrap();
            assert_eq!(len as u64, blocks * BLOCK, "file {number}");
            assert!(found[..len].iter().all(|byte| *byte == content_of(number)), "file {number}");
        }
    }
    for number in files.keys() {
        fs.unlink(Ino::ROOT, number.to_string().as_bytes()).unwrap();
    }
    super::steps::finish(&fs, Work::Truncate);
    fs.sync().unwrap();
    let free = fs.statfs().unwrap().blocks_free;
    assert!(free * 100 >= sold * 99, "{free} blocks free, {sold} at first");
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn write_up_to_mebibyte_is_all_or_nothing() {
    let drive = Arc::new(MemoryDrive::new(shape(24, 1024)).unwrap());
    let fs = format(drive.clone());
    let file = create(&fs, "file");
    let free = fs.statfs().unwrap().blocks_free;
    let others = create(&fs, "others");
    fill(&fs, others, free - 200);
    let left = fs.statfs().unwrap().blocks_free;
    assert!((100..256).contains(&left), "{left} blocks");
    // It crosses a multiple of a mebibyte, with fewer blocks before that than there is room for.
    let data = vec![3; 1 << 20];
    let offset = (1 << 20) - 50 * BLOCK;
    for flags in [WriteFlags::empty(), WriteFlags::DIRECT] {
        let outcome = fs.write(file, offset, &data, flags);
        assert!(matches!(outcome, Err(FsError::NoSpace)), "{outcome:?}");
        let attr = fs.getattr(file).unwrap();
        assert_eq!((attr.size, attr.blocks), (0, 0), "{flags:?}");
    }
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}
