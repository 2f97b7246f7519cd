//! Superblocks, manifests and parts of the table have two copies: one bad copy does no harm, is
//! found, and does not stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use zonal::image::Image;
use zonal::layer::record::Recorder;
use zonal::{DeviceError, Lba, LbaCount, ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{Access, DumpWhat, Furrow, MountOptions, dump};
use zonal_fs::vfs::{Caller, FileSystem, Ino};

use crate::hooked::{Hook, Hooked};
use crate::ops::drives::{self, CONVENTIONAL, SMALL, Shape, StepClock};
use crate::random_ops;
use crate::run::{Start, end_of};
use crate::zones::PLAIN;

/// Pairs of the superblock log.
type Pairs = [[u32; 2]; 2];

/// Drives and where they have superblocks.
const DRIVES: [(Shape, Pairs); 2] =
    [(SMALL, [[0, 1], [12, 13]]), (CONVENTIONAL, [[10, 11], [21, 22]])];

/// A pair of the superblock log, which while armed takes no writes.
struct SecondPair(AtomicBool, [u32; 2]);

impl Hook for SecondPair {
    fn before_write(&self, lba: Lba) -> Result<(), DeviceError> {
        let zone = CONVENTIONAL.geometry().locate(lba).0;
        let fails = self.1.contains(&zone.get()) && self.0.load(Ordering::Relaxed);
        if fails { Err(DeviceError::Medium { lba }) } else { Ok(()) }
    }
}

/// Blocks that cannot be read.
struct Unreadable(Vec<Lba>);

impl Hook for Unreadable {
    fn after_read(&self, lba: Lba, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let end = lba + LbaCount::new(bytes.len() as u64 / 4096);
        match self.0.iter().find(|bad| (lba..end).contains(bad)) {
            Some(&lba) => Err(DeviceError::Medium { lba }),
            None => Ok(()),
        }
    }
}

fn mount(drive: Arc<dyn ZonedDevice>, access: Access) -> Result<Furrow, FsError> {
    let options = MountOptions { access, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(StepClock::default()), options)
}

/// Appends a block to a zone that is no record.
pub(crate) fn tear(drive: &dyn ZonedDevice, zone: ZoneId) {
    drive.append(zone, &[7; 4096]).expect("the zone has room");
}

fn dumped(image: &Image, what: DumpWhat) -> Vec<Value> {
    let mut values = Vec::new();
    dump(Arc::new(image.power_on()), what, &mut |value| values.push(value)).expect("dump");
    values
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn lba(zone: &Value, block: &Value) -> Lba {
    let zone = ZoneId::new(number(zone) as u32);
    // Zones are of one size in all drives here.
    CONVENTIONAL.geometry().zone_start(zone) + LbaCount::new(number(block))
}

#[test]
fn copy_of_manifest_or_part_if_bad_is_repaired() {
    let start = Start::new(&SMALL, 100, &random_ops(5, 60));
    let superblocks = dumped(&start.image, DumpWhat::Superblock);
    let newest = superblocks.iter().max_by_key(|found| number(&found["epoch"])).expect("one");
    let parts = dumped(&start.image, DumpWhat::Parts);
    for copy in 0..2 {
        let part = &parts[0];
        let pointer = &newest["manifest"][copy];
        for (at, rule) in [
            (lba(&part["zone"][copy], &part["block"][copy]), "C03"),
            (lba(&pointer["zone"], &pointer["block"]), "C02"),
        ] {
            let mut image = start.image.clone();
            image.flip_bit(at, 8 * 70);
            let drive: Arc<dyn ZonedDevice> = Arc::new(image.power_on());
            let problems = drives::problems(drive.clone());
            let is_found = problems.len() == 1 && problems[0].contains(rule);
            assert!(is_found, "copy {copy}, {rule}: {problems:?}");
            drop(mount(drive.clone(), Access::ReadWrite).expect("the other copy is good"));
            if copy == 0 {
                // A bad second copy is not read by a mount.
                assert_eq!(drives::problems(drive), Vec::<String>::new(), "{rule}");
            }
        }
    }
}

#[test]
fn check_names_file_of_each_bad_block() {
    let start = Start::new(&SMALL, 300, &[]);
    let mut image = start.image.clone();
    let mut expected = Vec::new();
    for map in dumped(&image, DumpWhat::Maps) {
        let block = number(&map["block"]);
        image.flip_bit(lba(&map["zone"], &map["block"]), 5);
        let (zone, byte) = (number(&map["zone"]), number(&map["first"]) * 4096);
        let inode = number(&map["inode"]);
        expected.push(format!("zone {zone} block {block}: byte {byte} of inode {inode}"));
    }
    assert!(expected.len() > 100, "many blocks are bad");
    let problems = drives::problems(Arc::new(image.power_on()));
    assert_eq!(problems.len(), expected.len());
    for what in expected {
        assert!(problems.iter().any(|problem| problem.contains(&what)), "{what}: {problems:?}");
    }
}

#[test]
fn copy_of_superblock_if_failed_is_written_by_next_commit() {
    for (shape, pairs) in DRIVES {
        failed_copy(shape, pairs);
    }
}

fn failed_copy(shape: Shape, pairs: Pairs) {
    let image = Start::new(&shape, 50, &[]).image;
    let recorder = Arc::new(Recorder::new(image.clone()));
    let drive = Hooked::new(recorder.clone(), SecondPair(AtomicBool::new(false), pairs[1]));
    // A torn record in the journal makes the mount write a manifest and a superblock.
    let journal = &dumped(&image, DumpWhat::Manifest)[0]["journal_zones"][0][0];
    tear(&*recorder, ZoneId::new(number(journal) as u32));
    drive.hook.0.store(true, Ordering::Relaxed);
    let fs = mount(drive.clone(), Access::ReadWrite).expect("mount");
    let problems = drives::problems(drive.clone());
    assert!(problems.iter().any(|problem| problem.contains("C01")), "{problems:?}");
    drive.hook.0.store(false, Ordering::Relaxed);
    fs.create(&Caller::ROOT, Ino::ROOT, b"made", &PLAIN).expect("create");
    fs.sync().expect("sync");
    assert_eq!(drives::problems(drive), Vec::<String>::new());
    let mut image = end_of(&recorder.recording());
    for zone in pairs[0] {
        image.fail_zone(ZoneId::new(zone), ZoneFailure::Offline);
    }
    let fs = mount(Arc::new(image.power_on()), Access::ReadWrite).expect("the other pair has it");
    fs.lookup(Ino::ROOT, b"made").expect("it was synced");
}

#[test]
fn superblock_unreadable_newest_is_not_replaced_by_older() {
    for (shape, pairs) in DRIVES {
        unreadable_newest(shape, pairs);
    }
}

fn unreadable_newest(shape: Shape, pairs: Pairs) {
    let recorder = Arc::new(Recorder::new(Start::new(&shape, 50, &[]).image));
    let fs = mount(recorder.clone(), Access::ReadWrite).expect("mount");
    fs.create(&Caller::ROOT, Ino::ROOT, b"made", &PLAIN).expect("create");
    fs.shutdown().expect("unmount");
    let image = end_of(&recorder.recording());
    let newest = |pair: [u32; 2]| {
        let superblocks = dumped(&image, DumpWhat::Superblock);
        let of_pair = superblocks
            .iter()
            .filter(|found| pair.iter().any(|&zone| u64::from(zone) == number(&found["zone"])));
        let newest = of_pair.max_by_key(|found| number(&found["epoch"])).expect("one");
        lba(&newest["zone"], &newest["block"])
    };
    let bad = pairs.map(newest);
    for one in bad {
        let drive = Hooked::new(Arc::new(image.power_on()), Unreadable(vec![one]));
        let fs = mount(drive, Access::ReadWrite).expect("the other pair has it");
        fs.lookup(Ino::ROOT, b"made").expect("it is there");
    }
    let recorder = Arc::new(Recorder::new(image.clone()));
    let drive = Hooked::new(recorder.clone(), Unreadable(bad.to_vec()));
    let error = mount(drive.clone(), Access::ReadWrite).err();
    let is_said = matches!(error, Some(FsError::Corrupt { what: "superblock", .. }));
    assert!(is_said && recorder.is_empty(), "{error:?}");
    let problems = drives::problems(drive.clone()).join("\n");
    assert!(problems.contains("C07"), "{problems}");
    mount(drive, Access::ReadOnly).expect("what was there before can be read");
}

#[test]
fn superblocks_older_lead_to_later_writes() {
    for (shape, pairs) in DRIVES {
        earlier_superblocks(shape, pairs);
    }
}

fn earlier_superblocks(shape: Shape, pairs: Pairs) {
    let image = Start::new(&shape, 50, &[]).image;
    let recorder = Arc::new(Recorder::new(image.clone()));
    let fs = mount(recorder.clone(), Access::ReadWrite).expect("mount");
    fs.shutdown().expect("unmount");
    let fs = mount(recorder.clone(), Access::ReadWrite).expect("mount");
    fs.create(&Caller::ROOT, Ino::ROOT, b"made", &PLAIN).expect("create");
    fs.sync().expect("sync");
    let mut stale = end_of(&recorder.recording());
    for zone in pairs.into_iter().flatten() {
        stale.put_back(ZoneId::new(zone), &image);
    }
    // The journal goes on across superblocks.
    let fs = mount(Arc::new(stale.power_on()), Access::ReadWrite).expect("mount");
    fs.lookup(Ino::ROOT, b"made").expect("it was synced");
}
