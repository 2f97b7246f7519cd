//! Zones that fail, drives that fill up, the smallest drive, and churn for ten times the capacity.

use std::sync::Arc;

use zonal::image::Image;
use zonal::{
    Geometry, GeometrySpec, Select, ZoneAction, ZoneCond, ZoneFailure, ZoneId, ZonedDevice,
};
use zonal_fs::FsError;
use zonal_fs::furrow::layout::{SEQUENTIAL_ZONES_MIN, ZONE_BLOCKS_MIN};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{DumpWhat, Furrow, MkfsOptions, MountOptions, dump, mkfs};
use zonal_fs::tree::{Tree, snapshot};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, WriteFlags};

use crate::ops::drives::{self, SHAPES, SMALL, Shape, StepClock};
use crate::ops::session::Session;
use crate::ops::{Op, content};
use crate::run::Start;
use crate::{random_ops, seed};

pub(crate) const PLAIN: NewInode<'_> =
    NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };

fn mount(drive: &Arc<dyn ZonedDevice>) -> zonal_fs::vfs::Result<Furrow> {
    Furrow::mount(drive.clone(), Arc::new(StepClock::default()), MountOptions::default())
}

/// Reads all of a file; `Err` where a part is lost.
fn read_all(fs: &dyn FileSystem, ino: Ino, size: u64) -> zonal_fs::vfs::Result<Vec<u8>> {
    let mut data = vec![0; usize::try_from(size).expect("files here are small")];
    let read = fs.read(ino, 0, &mut data)?;
    assert_eq!(read as u64, size, "a read is short only at the end");
    Ok(data)
}

/// Every file is readable and right, or says that it is lost.
fn compare_files(fs: &Furrow, reference: &Tree) -> (u64, u64) {
    let (mut right, mut lost) = (0, 0);
    let expected = snapshot(reference).expect("the reference can be read");
    for (path, node) in expected.nodes() {
        if node.attr.kind != FileKind::Regular || node.attr.size > 1 << 24 {
            continue;
        }
        let find = |fs: &dyn FileSystem| {
            let names = path.split('/').filter(|name| !name.is_empty());
            names.into_iter().try_fold(Ino::ROOT, |dir, name| {
                let name = unescape(name);
                Ok::<_, FsError>(fs.lookup(dir, &name)?.ino)
            })
        };
        let ours = find(fs).expect("no name is lost: metadata is there twice");
        let theirs = find(reference).expect("it was listed");
        let wanted = read_all(reference, theirs, node.attr.size).expect("the reference reads");
        match read_all(fs, ours, node.attr.size) {
            Ok(data) => {
                assert!(data == wanted, "{path} is not what was written");
                right += 1;
            }
            Err(_) => lost += 1,
        }
    }
    (right, lost)
}

/// The names of a snapshot are escaped.
fn unescape(name: &str) -> Vec<u8> {
    match name {
        "\\xffodd \\n" => b"\xffodd \n".to_vec(),
        _ => name.as_bytes().to_vec(),
    }
}

/// A torn superblock stays in sight until its zone is reset.
fn is_superblock(drive: &Arc<dyn ZonedDevice>, zone: ZoneId) -> bool {
    let mut found = false;
    dump(drive.clone(), DumpWhat::Superblock, &mut |line| {
        found |= line["zone"] == zone.get();
    })
    .expect("it can be dumped");
    found
}

#[test]
fn zone_failed_before_mount_costs_its_files_at_most() {
    let seed = seed();
    let start = Start::new(&SMALL, 200, &random_ops(seed, 60));
    for zone in start.image.geometry().zones() {
        for failure in [ZoneFailure::ReadOnly, ZoneFailure::Offline] {
            let mut image = start.image.clone();
            image.fail_zone(zone, failure);
            let drive: Arc<dyn ZonedDevice> = Arc::new(image.power_on());
            let fs = mount(&drive)
                .unwrap_or_else(|error| panic!("SEED={seed}, zone {zone} {failure:?}: {error}"));
            let (_, lost) = compare_files(&fs, &start.tree());
            assert!(lost == 0 || failure == ZoneFailure::Offline, "a ReadOnly zone can be read");
            // And it still works.
            let file = fs.create(&Caller::ROOT, Ino::ROOT, b"after", &PLAIN).expect("create").ino;
            fs.write(file, 0, &content(3, 0, 50_000), WriteFlags::empty()).expect("write");
            fs.sync().unwrap_or_else(|error| panic!("zone {zone} {failure:?}: sync: {error}"));
            drop(fs);
            let fs = mount(&drive).expect("it mounts again");
            let file = fs.lookup(Ino::ROOT, b"after").expect("it was synced").ino;
            assert_eq!(read_all(&fs, file, 50_000).expect("read"), content(3, 0, 50_000));
        }
    }
}

/// Another program resets a zone, or the drive loses its data.
#[test]
fn zone_without_its_data_costs_its_files_at_most() {
    // Not by any seed: operations that leave no file would leave nothing to lose.
    let start = Start::new(&SMALL, 200, &random_ops(5, 60));
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    let mut zones_lost = 0;
    for zone in start.image.geometry().zones() {
        let fail = |what: &str| -> ! { panic!("zone {zone}: {what}") };
        let drive: Arc<dyn ZonedDevice> = Arc::new(start.image.power_on());
        drive.manage(Select::One(zone), ZoneAction::Reset).expect("every zone can be reset");
        let fs = mount(&drive).unwrap_or_else(|error| fail(&error.to_string()));
        let losses = fs.losses().to_vec();
        for loss in &losses {
            let is_path = loss.path.as_deref().is_some_and(|path| path.starts_with('/'));
            assert!(is_path, "zone {zone}: {loss:?}");
        }
        let (right, lost) = compare_files(&fs, &start.tree());
        assert_eq!(lost > 0, !losses.is_empty(), "zone {zone}: {losses:?}");
        zones_lost += u32::from(lost > 0);
        // Every zone that is free is taken.
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"after", &PLAIN).expect("create").ino;
        let mut size = 0;
        while fs.write(file, size, &content(3, size, 65_536), WriteFlags::DIRECT).is_ok() {
            size += 65_536;
        }
        fs.sync().unwrap_or_else(|error| fail(&error.to_string()));
        drop(fs);
        let fs = mount(&drive).unwrap_or_else(|error| fail(&error.to_string()));
        assert_eq!(compare_files(&fs, &start.tree()), (right, lost), "zone {zone}");
        for ino in losses.iter().map(|loss| loss.ino).chain([file]) {
            fs.setattr(&Caller::ROOT, ino, &empty).unwrap_or_else(|error| fail(&error.to_string()));
        }
        fs.shutdown().unwrap_or_else(|error| fail(&error.to_string()));
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "zone {zone}");
    }
    assert!(zones_lost > 0, "no zone held a file");
}

/// A power cut has torn a record, in either copy.
#[test]
fn record_torn_costs_no_copy_after_it() {
    let start = Start::new(&SMALL, 200, &random_ops(5, 60));
    let mut torn = 0;
    for zone in start.image.power_on().report_all().expect("report") {
        let drive: Arc<dyn ZonedDevice> = Arc::new(start.image.power_on());
        if !zone.cond.is_active() || is_superblock(&drive, zone.id) {
            continue;
        }
        torn += 1;
        drive.append(zone.id, &[7; 4096]).expect("the zone has room");
        let fs = mount(&drive).expect("mount");
        for name in [b"one", b"two"] {
            fs.create(&Caller::ROOT, Ino::ROOT, name, &PLAIN).expect("create");
            fs.sync().expect("sync");
            let found = drives::problems(drive.clone());
            assert_eq!(found, Vec::<String>::new(), "zone {}", zone.id);
        }
    }
    assert!(torn >= 2, "{torn} zones were written");
}

#[test]
fn zones_failing_under_way_cost_their_files_at_most() {
    let seed = seed();
    for (index, shape) in (0..).zip(&SHAPES[..4]) {
        let start = Start::new(shape, 100, &[]);
        let drive = Arc::new(start.image.power_on());
        let device: Arc<dyn ZonedDevice> = drive.clone();
        let mut furrow = Session::new(Arc::new(mount(&device).expect("mount")));
        let mut tree = Session::new(Arc::new(start.tree()));
        let zones = u64::from(shape.geometry().zone_count());
        for (at, op) in (0_u64..).zip(random_ops(seed + index, 200)) {
            // Two zones in all, none of the superblock.
            if at == 20 || at == 40 {
                let zone = ZoneId::new((5 + (seed + at) % (zones / 2 - 6)) as u32);
                drive.fail_zone(zone, ZoneFailure::ReadOnly).expect("it can fail once");
            }
            let names = tree.names();
            let before = tree.with(Arc::new((*tree.fs).clone()));
            if matches!(op, Op::Remount) {
                continue;
            }
            if let Some(reply) = furrow.reply(&op, &names) {
                match reply {
                    Err(error) if error == "NoSpace" || error == "Device" => tree = before,
                    reply => {
                        let expected = tree.reply(&op, &names);
                        let same = expected.is_some_and(|expected| same_error(&reply, &expected));
                        assert!(same, "SEED={seed}, {}: {op:?}: {reply:?}", shape.name);
                    }
                }
            }
        }
        furrow.release_all();
        furrow.fs.sync().unwrap_or_else(|error| panic!("SEED={seed}, {}: {error}", shape.name));
        let (_, lost) = compare_files(&furrow.fs, &tree.fs);
        assert_eq!(lost, 0, "SEED={seed}, {}: a ReadOnly zone can be read", shape.name);
        drop(furrow);
        let fs = mount(&device).expect("it mounts again");
        assert_eq!(compare_files(&fs, &tree.fs).1, 0, "SEED={seed}, {}", shape.name);
    }
}

/// Both succeed or both fail: the times differ between two clocks.
fn same_error(first: &Result<String, String>, second: &Result<String, String>) -> bool {
    first.as_ref().err() == second.as_ref().err()
}

#[test]
fn full_drive_reports_no_space_and_returns_all() {
    for shape in &SHAPES {
        let drive: Arc<dyn ZonedDevice> = Arc::new(Image::empty(&shape.geometry()).power_on());
        drives::format(drive.clone(), &StepClock::default());
        let fs = mount(&drive).expect("mount");
        for round in 0..3 {
            let before = fs.statfs().expect("statfs");
            let mut files = 0_u64;
            let error = loop {
                let name = format!("file {files}");
                let created = fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &PLAIN);
                let written = created.and_then(|attr| {
                    let data = content(round, 0, 30_000 + files as usize % 7 * 5000);
                    fs.write(attr.ino, 0, &data, WriteFlags::empty())
                });
                match written {
                    Ok(_) => files += 1,
                    Err(error) => break error,
                }
            };
            let name = shape.name;
            assert!(matches!(error, FsError::NoSpace), "{name}: {error}");
            fs.sync().unwrap_or_else(|error| panic!("{name}: a full drive can be synced: {error}"));
            let full = fs.statfs().expect("statfs");
            let left = full.blocks_free * 100 / before.blocks_free;
            assert!(left <= 5, "{name}: full with {left} % of {} blocks free", before.blocks_free);
            // Overwriting needs no space.
            for file in 0..files {
                let ino =
                    fs.lookup(Ino::ROOT, format!("file {file}").as_bytes()).expect("it is there");
                fs.write(ino.ino, 0, &content(9, 0, 20_000), WriteFlags::empty())
                    .unwrap_or_else(|error| panic!("{name}: overwriting a full drive: {error}"));
            }
            for file in 0..=files {
                let outcome = fs.unlink(Ino::ROOT, format!("file {file}").as_bytes());
                assert!(outcome.is_ok() || file == files, "{name}: a full drive can be emptied");
            }
            fs.sync().expect("sync");
            let after = fs.statfs().expect("statfs");
            assert_eq!(after.blocks_free, before.blocks_free, "{name}: space is given back");
        }
        fs.shutdown().expect("unmount");
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{}", shape.name);
    }
}

#[test]
fn drive_of_smallest_size_works_smaller_is_refused() {
    let spec = |zones: u32, blocks: u32| GeometrySpec {
        max_open: Some(4),
        max_active: Some(4),
        ..shape(zones.into(), blocks.into())
    };
    let format = |spec| {
        let drive = Arc::new(Image::empty(&Geometry::new(spec).expect("valid")).power_on());
        let clock = StepClock::default();
        mkfs(drive.clone(), &clock, &MkfsOptions::default(), &mut |_| ()).map(|_| drive)
    };
    for (zones, blocks) in
        [(SEQUENTIAL_ZONES_MIN - 1, ZONE_BLOCKS_MIN), (SEQUENTIAL_ZONES_MIN, ZONE_BLOCKS_MIN - 1)]
    {
        let refused = format(spec(zones, blocks)).err();
        assert!(matches!(refused, Some(FsError::Unsuitable { .. })), "{refused:?}");
    }
    let drive: Arc<dyn ZonedDevice> =
        format(spec(SEQUENTIAL_ZONES_MIN, ZONE_BLOCKS_MIN)).expect("the smallest is enough");
    let fs = mount(&drive).expect("mount");
    let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
    for round in 0..50_u16 {
        let data = content(round, 0, 200_000);
        fs.write(file, 0, &data, WriteFlags::empty()).expect("200 kB fit");
        fs.sync().expect("sync");
        assert_eq!(read_all(&fs, file, 200_000).expect("read"), data);
    }
    fs.shutdown().expect("unmount");
}

/// Overwrites, deletes and creates at 90 % of what `statfs` promises until ten times the capacity
/// was written. Nothing may fail.
fn churn(shape: &Shape) {
    let drive: Arc<dyn ZonedDevice> = Arc::new(Image::empty(&shape.geometry()).power_on());
    drives::format(drive.clone(), &StepClock::default());
    let fs = mount(&drive).expect("mount");
    let capacity = fs.statfs().expect("statfs").blocks_free;
    let file_blocks = 12;
    let files = capacity * 90 / 100 / file_blocks;
    let mut seeds = vec![0_u16; files as usize];
    let mut number = 12_345_u64;
    let mut below = |limit: u64| {
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % limit
    };
    let name = |file: u64| format!("file {file}").into_bytes();
    let fail = |what: &str, error: FsError, written: u64| -> ! {
        panic!("{}: {what} after {written} of {capacity} blocks: {error}", shape.name)
    };
    let len = (file_blocks * 4096) as usize;
    let mut written = 0;
    for file in 0..files {
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, &name(file), &PLAIN).expect("create").ino;
        if let Err(error) = fs.write(ino, 0, &content(0, 0, len), WriteFlags::empty()) {
            fail("filling", error, written);
        }
        written += file_blocks;
    }
    let mut seed = 0_u16;
    while written < 10 * capacity {
        let file = below(files);
        seed = seed.wrapping_add(1);
        if below(4) == 0 {
            fs.unlink(Ino::ROOT, &name(file))
                .unwrap_or_else(|error| fail("unlink", error, written));
            let made = fs.create(&Caller::ROOT, Ino::ROOT, &name(file), &PLAIN);
            made.unwrap_or_else(|error| fail("create", error, written));
        }
        let ino = fs.lookup(Ino::ROOT, &name(file)).expect("it is there").ino;
        let outcome = fs.write(ino, 0, &content(seed, 0, len), WriteFlags::empty());
        outcome.unwrap_or_else(|error| fail("a write", error, written));
        seeds[file as usize] = seed;
        written += file_blocks;
        if below(10) == 0 {
            fs.sync().unwrap_or_else(|error| fail("sync", error, written));
        }
    }
    for (file, &seed) in (0..).zip(&seeds) {
        let ino = fs.lookup(Ino::ROOT, &name(file)).expect("it is there").ino;
        assert!(read_all(&fs, ino, len as u64).expect("read") == content(seed, 0, len));
    }
    println!(
        "{}: {written} blocks written at 90 % of {capacity}, write amplification {:.2}",
        shape.name,
        fs.live().since_mount.amplification().expect("there is data")
    );
    fs.shutdown().expect("unmount");
    assert_eq!(drives::problems(drive), Vec::<String>::new(), "{}", shape.name);
}

#[test]
fn churn_at_90_percent_neither_wedges_nor_fills_drive() {
    SHAPES.iter().for_each(churn);
    // Zones of 1 MiB, and more of them: the reserve is a smaller part.
    churn(&Shape { name: "zones of 1 MiB", spec: shape(80, 256) });
}

#[test]
fn mkfs_accepts_drive_with_failed_zones() {
    let mut image = Image::empty(&SMALL.geometry());
    image.fail_zone(ZoneId::new(7), ZoneFailure::ReadOnly);
    image.fail_zone(ZoneId::new(9), ZoneFailure::Offline);
    let drive: Arc<dyn ZonedDevice> = Arc::new(image.power_on());
    drives::format(drive.clone(), &StepClock::default());
    let fs = mount(&drive).expect("mount");
    assert_eq!(fs.stats().zones_failed, 2);
    let failed = drive.report_all().expect("report");
    let failed =
        failed.iter().filter(|zone| matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline));
    assert_eq!(failed.count(), 2);
}
