//! A small commit flushes once, for its batch and the data that the batch refers to. So a power cut
//! can leave the batch without its data: a mount then leaves the batch out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::{Image, Tail};
use zonal::layer::record::{Outage, Recorder, Step};
use zonal::{DeviceError, Lba, LbaCount, ZoneId, ZonedDevice};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SyncKind, WriteFlags};

use crate::hooked::{Hook, Hooked};
use crate::ops::content;
use crate::ops::drives::{self, SMALL, StepClock};
use crate::run::{Start, end_of};
use crate::seed;
use crate::zones::PLAIN;

/// Once armed, no flush succeeds; and blocks that cannot be read.
#[derive(Default)]
struct Trouble {
    no_flush: AtomicBool,
    unreadable: BTreeSet<Lba>,
}

impl Hook for Trouble {
    fn before_flush(&self) -> Result<(), DeviceError> {
        let fails = self.no_flush.load(Ordering::Relaxed);
        if fails { Err(DeviceError::Medium { lba: Lba::ZERO }) } else { Ok(()) }
    }

    fn after_read(&self, lba: Lba, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let end = lba + LbaCount::new(bytes.len() as u64 / 4096);
        match self.unreadable.range(lba..end).next() {
            Some(&lba) => Err(DeviceError::Medium { lba }),
            None => Ok(()),
        }
    }
}

fn mount(drive: Arc<dyn ZonedDevice>) -> Furrow {
    let clock = Arc::new(StepClock::default());
    Furrow::mount(drive, clock, MountOptions::default()).expect("mount")
}

fn write(fs: &Furrow, file: Ino, data: &[u8]) {
    fs.write(file, 0, data, WriteFlags::DIRECT).expect("write");
}

/// The content of a file, or the error of reading it.
fn read(fs: &Furrow, name: &[u8]) -> Result<Vec<u8>, String> {
    let attr = fs.lookup(Ino::ROOT, name).map_err(|error| error.to_string())?;
    let mut data = vec![0; attr.size as usize];
    fs.read(attr.ino, 0, &mut data).map_err(|error| error.to_string())?;
    Ok(data)
}

/// A drive with a file, overwritten by its newest batch, which also made another one.
struct Overwritten {
    recorder: Arc<Recorder>,
    before: Image,
    /// Where the new content lies.
    data: (ZoneId, Lba),
    contents: [Vec<u8>; 2],
}

impl Overwritten {
    fn new() -> Self {
        let recorder = Arc::new(Recorder::new(Start::new(&SMALL, 50, &[]).image));
        let fs = mount(recorder.clone());
        let contents = [1, 2].map(|seed| content(seed, 0, 3 * 4096));
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
        write(&fs, file, &contents[0]);
        fs.sync().expect("sync");
        let (before, steps) = (end_of(&recorder.recording()), recorder.len());
        write(&fs, file, &contents[1]);
        fs.create(&Caller::ROOT, Ino::ROOT, b"made", &PLAIN).expect("create");
        fs.fsync(file, SyncKind::Data).expect("fsync");
        let steps = recorder.recording().steps.split_off(steps);
        let Step::Store { zone, offset, .. } = steps[0] else { panic!("{:?}", steps[0]) };
        let lba = recorder.geometry().zone_start(zone) + offset;
        Self { recorder, before, data: (zone, lba), contents }
    }

    /// The drive without the new content.
    fn without_data(&self) -> Image {
        let mut image = end_of(&self.recorder.recording());
        image.put_back(self.data.0, &self.before);
        image
    }
}

fn flushes(fs: &Furrow, change: impl FnOnce()) -> u64 {
    fs.sync().expect("sync");
    let before = fs.stats().flushes;
    change();
    fs.sync().expect("sync");
    fs.stats().flushes - before
}

#[test]
fn commit_flushes_once_for_little_twice_for_much_data() {
    let fs = mount(Arc::new(Start::new(&SMALL, 0, &[]).image.power_on()));
    let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &PLAIN).expect("create");
    let file = create(b"file").ino;
    assert_eq!(flushes(&fs, || write(&fs, file, &content(1, 0, 4096))), 1);
    assert_eq!(flushes(&fs, || _ = create(b"other")), 1);
    assert_eq!(flushes(&fs, || write(&fs, file, &content(2, 0, 256 * 4096))), 1);
    assert_eq!(flushes(&fs, || write(&fs, file, &content(3, 0, 257 * 4096))), 2);
    // A block that was never written looks the same once its zone is finished.
    assert_eq!(flushes(&fs, || write(&fs, file, &[0; 4096])), 2);
}

#[test]
fn batch_newest_without_data_is_ignored() {
    let made = Overwritten::new();
    let drive = Arc::new(made.without_data().power_on());
    for _ in 0..2 {
        let fs = mount(drive.clone());
        assert_eq!(read(&fs, b"file").as_ref(), Ok(&made.contents[0]));
        assert!(fs.lookup(Ino::ROOT, b"made").is_err(), "all of the batch or nothing");
        assert_eq!(fs.losses(), []);
        drop(fs);
        assert_eq!(drives::problems(drive.clone()), Vec::<String>::new());
    }
    // Its number is used again.
    let fs = mount(drive.clone());
    fs.create(&Caller::ROOT, Ino::ROOT, b"later", &PLAIN).expect("create");
    fs.sync().expect("sync");
    let fs = mount(drive);
    fs.lookup(Ino::ROOT, b"later").expect("it was synced");
    assert!(fs.lookup(Ino::ROOT, b"made").is_err());
}

#[test]
fn batch_followed_by_another_lost_data_later() {
    let made = Overwritten::new();
    let fs = mount(made.recorder.clone());
    fs.create(&Caller::ROOT, Ino::ROOT, b"later", &PLAIN).expect("create");
    fs.sync().expect("sync");
    let fs = mount(Arc::new(made.without_data().power_on()));
    for name in [&b"made"[..], b"later"] {
        fs.lookup(Ino::ROOT, name).expect("its batch was durable");
    }
    assert!(read(&fs, b"file").is_err());
    assert!(!fs.losses().is_empty());
}

#[test]
fn batch_counts_though_its_data_is_unreadable() {
    let made = Overwritten::new();
    let unreadable = BTreeSet::from([made.data.1 + LbaCount::new(1)]);
    let image = end_of(&made.recorder.recording());
    let trouble = Trouble { unreadable, ..Trouble::default() };
    let fs = mount(Hooked::new(Arc::new(image.power_on()), trouble));
    fs.lookup(Ino::ROOT, b"made").expect("its batch was durable");
    assert!(read(&fs, b"file").is_err());
}

#[test]
fn commit_small_is_atomic_at_every_cut() {
    let made = Overwritten::new();
    let recording = made.recorder.recording();
    let mut outage = Outage::at_start(&recording);
    let mut states = 0;
    while outage.step() {
        if outage.at() + 4 < recording.steps.len() {
            continue;
        }
        for cuts in outage.choices(&[Tail::Whole, Tail::Torn]).combinations() {
            let Some(image) = outage.state(&cuts) else { continue };
            states += 1;
            let fs = mount(Arc::new(image.power_on()));
            let is_new = fs.lookup(Ino::ROOT, b"made").is_ok();
            let content = &made.contents[usize::from(is_new)];
            assert_eq!(read(&fs, b"file").as_ref(), Ok(content), "{cuts:?}");
            assert!(is_new || outage.at() < recording.steps.len(), "it was promised");
        }
    }
    assert!(states > 50, "{states} states");
}

/// A batch that was not flushed when its process was killed: the drive had it all the same.
#[test]
fn mount_makes_found_batch_durable_before_building_on_it() {
    let recorder = Arc::new(Recorder::new(Start::new(&SMALL, 50, &[]).image));
    let drive = Hooked::new(recorder.clone(), Trouble::default());
    let fs = mount(drive.clone());
    let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
    let contents = [1, 2].map(|seed| content(seed, 0, 4096));
    write(&fs, file, &contents[0]);
    fs.sync().expect("sync");
    write(&fs, file, &contents[1]);
    drive.hook.no_flush.store(true, Ordering::Relaxed);
    fs.sync().expect_err("no flush succeeds");
    drop(fs);
    drive.hook.no_flush.store(false, Ordering::Relaxed);
    let killed = recorder.len();
    let fs = mount(recorder.clone());
    assert_eq!(read(&fs, b"file").as_ref(), Ok(&contents[1]));
    fs.create(&Caller::ROOT, Ino::ROOT, b"later", &PLAIN).expect("create");
    fs.sync().expect("sync");
    drop(fs);
    let recording = recorder.recording();
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut outage = Outage::at_start(&recording);
    while outage.step() {
        if outage.at() < killed {
            continue;
        }
        for _ in 0..64 {
            let Some(image) = outage.sample(&mut |limit| random.next_u64() % limit) else {
                continue;
            };
            let fs = mount(Arc::new(image.power_on()));
            let found = read(&fs, b"file").unwrap_or_else(|why| panic!("{}: {why}", outage.at()));
            let is_later = fs.lookup(Ino::ROOT, b"later").is_ok();
            assert!(found == contents[1] || (!is_later && found == contents[0]));
        }
    }
}
