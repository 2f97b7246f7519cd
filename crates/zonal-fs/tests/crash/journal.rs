//! Bad records in the two copies of the journal. Damage that leaves one good copy of each record
//! costs nothing; other damage is reported, and not taken for the journal's end.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use zonal::image::Image;
use zonal::layer::record::{Recorder, Step};
use zonal::{DeviceError, Geometry, Lba, LbaCount, ZoneCond, ZoneId, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{Access, Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, WriteFlags, XattrMode};

use crate::hooked::{Hook, Hooked};
use crate::ops::content;
use crate::ops::drives::{self, CONVENTIONAL, SMALL, Shape, StepClock};
use crate::run::end_of;
use crate::zones::PLAIN;

/// Blocks that cannot be read, and zones that take no writes.
#[derive(Default)]
struct Bad {
    unreadable: BTreeSet<Lba>,
    refused: Mutex<BTreeSet<u64>>,
}

impl Bad {
    /// From now on these zones take no writes, and all others do.
    fn refuse(&self, zones: impl IntoIterator<Item = ZoneId>) {
        *self.refused.lock().expect("no panic") =
            zones.into_iter().map(|zone| zone.get().into()).collect();
    }

    fn write(&self, zone: u64, lba: Lba) -> Result<(), DeviceError> {
        let is_refused = self.refused.lock().expect("no panic").contains(&zone);
        if is_refused { Err(DeviceError::Medium { lba }) } else { Ok(()) }
    }
}

impl Hook for Bad {
    fn before_write(&self, lba: Lba) -> Result<(), DeviceError> {
        // Zones are of one size in all drives here.
        self.write(lba.get() / SMALL.spec.zone_size.get(), lba)
    }

    fn before_append(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.write(zone.get().into(), SMALL.geometry().zone_start(zone))
    }

    fn after_read(&self, lba: Lba, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let end = lba + LbaCount::new(bytes.len() as u64 / 4096);
        match self.unreadable.range(lba..end).next() {
            Some(&lba) => Err(DeviceError::Medium { lba }),
            None => Ok(()),
        }
    }
}

/// A record of the journal: its first and its last block.
type Record = [Lba; 2];

/// A drive with batches in its journal, each of which made the file of its number.
struct Journal {
    image: Image,
    /// Both copies of each batch, or one where the other failed.
    batches: Vec<[Option<Record>; 2]>,
}

fn mount(drive: Arc<dyn ZonedDevice>, access: Access) -> Result<Furrow, FsError> {
    let options = MountOptions { access, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(StepClock::default()), options)
}

fn name(batch: usize) -> Vec<u8> {
    format!("batch {batch}").into_bytes()
}

impl Journal {
    /// `count` batches, the n-th of which has an attribute of `bytes(n)` bytes. From batch `fails`
    /// on the first copy is not written.
    fn new(image: &Image, count: usize, bytes: impl Fn(usize) -> usize, fails: usize) -> Self {
        let recorder = Arc::new(Recorder::new(image.clone()));
        let drive = Hooked::new(recorder.clone(), Bad::default());
        let fs = mount(drive.clone(), Access::ReadWrite).expect("mount");
        let mut batches: Vec<[Option<Record>; 2]> = Vec::new();
        for batch in 0..count {
            if batch == fails {
                let [first, _] = batches[batch - 1][0].expect("it has not failed yet");
                drive.hook.refuse([image.geometry().locate(first).0]);
            }
            let before = recorder.len();
            let made = fs.create(&Caller::ROOT, Ino::ROOT, &name(batch), &PLAIN).expect("create");
            let value = content(9, 0, bytes(batch));
            let mode = XattrMode::Any;
            fs.setxattr(&Caller::ROOT, made.ino, b"user.a", &value, mode).expect("setxattr");
            fs.sync().expect("sync");
            let steps = recorder.recording().steps.split_off(before);
            let records: Vec<Record> =
                steps.iter().filter_map(|step| record(image.geometry(), step)).collect();
            batches.push(match records[..] {
                [first, second] => [Some(first), Some(second)],
                [second] if batch >= fails => [None, Some(second)],
                _ => panic!("batch {batch} was no journal record: {records:?}"),
            });
        }
        Self { image: end_of(&recorder.recording()), batches }
    }

    /// Mounts the drive with these records bad, one of each copy, and checks the outcome.
    fn check(&self, bad: [(usize, Harm); 2], block: usize) {
        let mut image = self.image.clone();
        let mut hook = Bad::default();
        for (copy, (batch, harm)) in bad.into_iter().enumerate() {
            let Some(record) = self.batches[batch][copy] else { continue };
            match harm {
                Harm::Corrupt => image.flip_bit(record[block], 8 * 10),
                Harm::Unreadable => {
                    hook.unreadable.insert(record[block]);
                }
            }
        }
        let recorder = Arc::new(Recorder::new(image));
        let drive = Hooked::new(recorder.clone(), hook);
        let lost = (0..self.batches.len()).find(|&batch| {
            let is_bad = |copy: usize| self.batches[batch][copy].is_none() || bad[copy].0 == batch;
            is_bad(0) && is_bad(1)
        });
        let text = format!("{bad:?}, block {block}");
        match lost {
            None => self.is_whole(&(drive as Arc<dyn ZonedDevice>), &text),
            // If no record follows the bad one, a power cut may have left it so.
            Some(last) if last + 1 == self.batches.len() && self.is_torn(&bad, last) => {
                let fs = mount(drive, Access::ReadWrite);
                let fs = fs.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(self.found(&fs), last, "{text}");
            }
            Some(lost) => {
                let error = mount(drive.clone(), Access::ReadWrite).err();
                let is_said = matches!(error, Some(FsError::Corrupt { what: "journal", .. }));
                assert!(is_said, "{text}: {error:?}");
                assert!(recorder.is_empty(), "{text}: it was written to");
                let problems = drives::problems(drive.clone()).join("\n");
                assert!(problems.contains("C06"), "{text}: {problems}");
                let fs = mount(drive, Access::ReadOnly);
                let fs = fs.unwrap_or_else(|error| panic!("{text}: read-only: {error}"));
                assert_eq!(self.found(&fs), lost, "{text}");
            }
        }
    }

    fn is_whole(&self, drive: &Arc<dyn ZonedDevice>, text: &str) {
        for _ in 0..2 {
            let fs = mount(drive.clone(), Access::ReadWrite);
            let fs = fs.unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(self.found(&fs), self.batches.len(), "{text}");
            drop(fs);
            let problems = drives::problems(drive.clone());
            assert_eq!(problems, Vec::<String>::new(), "{text}: a mount mends what it can");
        }
    }

    /// Whether a power cut could have left the record so.
    fn is_torn(&self, bad: &[(usize, Harm); 2], batch: usize) -> bool {
        (0..2).all(|copy| {
            bad[copy] != (batch, Harm::Unreadable) || self.batches[batch][copy].is_none()
        })
    }

    /// How many batches are there; none is after one that is missing.
    fn found(&self, fs: &Furrow) -> usize {
        let is_there = |batch: &usize| fs.lookup(Ino::ROOT, &name(*batch)).is_ok();
        let found = (0..self.batches.len()).take_while(is_there).count();
        assert_eq!((0..self.batches.len()).filter(is_there).count(), found, "no gap");
        found
    }

    /// Every pair of records.
    fn check_pairs(&self, block: usize) {
        let harms = [Harm::Corrupt, Harm::Unreadable];
        for first in 0..self.batches.len() {
            for second in 0..self.batches.len() {
                for (one, other) in harms.into_iter().flat_map(|one| harms.map(|two| (one, two))) {
                    self.check([(first, one), (second, other)], block);
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Corrupt,
    Unreadable,
}

fn record(geometry: &Geometry, step: &Step) -> Option<Record> {
    let Step::Store { zone, offset, data } = step else { return None };
    let first = geometry.zone_start(*zone) + *offset;
    Some([first, first + LbaCount::new(data.len() as u64 / 4096 - 1)])
}

fn formatted(shape: &Shape) -> Image {
    let recorder = Arc::new(Recorder::new(Image::empty(&shape.geometry())));
    drives::format(recorder.clone(), &StepClock::default());
    end_of(&recorder.recording())
}

#[test]
fn journal_one_good_copy_of_each_record_suffices() {
    for shape in [SMALL, CONVENTIONAL] {
        let journal = Journal::new(&formatted(&shape), 5, |batch| batch % 3 * 4000, usize::MAX);
        journal.check_pairs(0);
        journal.check_pairs(1);
    }
}

#[test]
fn journal_copy_failure_leaves_hole_without_loss() {
    // Its last batch is in the second copy alone; the next commit would name another pair.
    for shape in [SMALL, CONVENTIONAL] {
        let journal = Journal::new(&formatted(&shape), 4, |batch| batch % 3 * 4000, 3);
        assert_eq!(journal.batches[3][0], None);
        journal.check_pairs(0);
    }
}

#[test]
fn journal_record_lost_before_zone_change_is_reported() {
    let mut journal = Journal::new(&formatted(&SMALL), 3, |_| 0, usize::MAX);
    // A torn record: the mount names another pair, which begins behind the last batch.
    let recorder = Arc::new(Recorder::new(journal.image.clone()));
    let [_, last] = journal.batches[2][0].expect("it has not failed");
    let zone = journal.image.geometry().locate(last).0;
    recorder.append(zone, &[7; 4096]).expect("the journal has room");
    drop(mount(recorder.clone(), Access::ReadWrite).expect("mount"));
    journal.image = end_of(&recorder.recording());
    for harm in [Harm::Corrupt, Harm::Unreadable] {
        for batch in 0..3 {
            let mut image = journal.image.clone();
            let mut hook = Bad::default();
            for record in journal.batches[batch].into_iter().flatten() {
                match harm {
                    Harm::Corrupt => image.flip_bit(record[0], 8 * 10),
                    Harm::Unreadable => {
                        hook.unreadable.insert(record[0]);
                    }
                }
            }
            let drive = Hooked::new(Arc::new(image.power_on()), hook);
            let error = mount(drive.clone(), Access::ReadWrite).err();
            let is_said = matches!(error, Some(FsError::Corrupt { what: "journal", .. }));
            assert!(is_said, "batch {batch}, {harm:?}: {error:?}");
            let fs = mount(drive, Access::ReadOnly).expect("what is before it can be read");
            assert_eq!(journal.found(&fs), batch, "{harm:?}");
        }
    }
}

/// When zones take writes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// While the file system is mounted.
    Mounted,
    /// After the process has died.
    Dead,
}

fn write_file(fs: &Furrow, name: &[u8], seed: u16) {
    let ino = fs.create(&Caller::ROOT, Ino::ROOT, name, &PLAIN).expect("create").ino;
    fs.write(ino, 0, &content(seed, 0, 20_000), WriteFlags::empty()).expect("write");
}

/// Which of the three files of the next test are there, whole.
fn files(fs: &Furrow) -> [bool; 3] {
    [(&b"synced"[..], 1), (b"deleted", 2), (b"later", 3)].map(|(name, seed)| {
        let Ok(found) = fs.lookup(Ino::ROOT, name) else { return false };
        let mut buffer = vec![0; 20_000];
        fs.read(found.ino, 0, &mut buffer).expect("read");
        assert!(buffer == content(seed, 0, 20_000), "{}", name.escape_ascii());
        true
    })
}

#[test]
fn commit_without_journal_zone_fails_and_keeps_synced() {
    for again in [Again::Mounted, Again::Dead] {
        let recorder = Arc::new(Recorder::new(formatted(&SMALL)));
        let drive = Hooked::new(recorder.clone(), Bad::default());
        let fs = mount(drive.clone(), Access::ReadWrite).expect("mount");
        write_file(&fs, b"synced", 1);
        write_file(&fs, b"deleted", 2);
        fs.sync().expect("sync");
        // Both copies of the journal fail, and every zone that they could go on in.
        let steps = recorder.recording().steps;
        let mut stores = steps.iter().rev().filter_map(|step| record(&SMALL.geometry(), step));
        let mut zone = || SMALL.geometry().locate(stores.next().expect("a record")[0]).0;
        let journal = [zone(), zone()];
        let zones = recorder.report_all().expect("report").into_iter();
        let empty = zones.filter(|zone| zone.cond == ZoneCond::Empty).map(|zone| zone.id);
        drive.hook.refuse(empty.chain(journal));
        write_file(&fs, b"later", 3);
        fs.unlink(Ino::ROOT, b"deleted").expect("unlink");
        for _ in 0..5 {
            let error = fs.sync().expect_err("nothing can be made durable");
            assert!(matches!(error, FsError::NoSpace), "{error:?}");
            assert_eq!(files(&fs), [true, false, true], "the mount goes on");
            let seen = mount(drive.clone(), Access::ReadOnly).expect("it can be read");
            assert_eq!(files(&seen), [true, true, false], "what was synced last");
        }
        drive.hook.refuse([]);
        let fs = match again {
            Again::Mounted => fs,
            Again::Dead => {
                drop(fs);
                let fs = mount(drive.clone(), Access::ReadWrite).expect("mount");
                assert_eq!(files(&fs), [true, true, false], "what was synced last");
                write_file(&fs, b"later", 3);
                fs.unlink(Ino::ROOT, b"deleted").expect("unlink");
                fs
            }
        };
        fs.sync().expect("zones take writes again");
        drop(fs);
        let fs = mount(drive.clone(), Access::ReadWrite).expect("mount");
        assert_eq!(files(&fs), [true, false, true]);
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{again:?}");
    }
}
