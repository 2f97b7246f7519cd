//! Power cuts. After each change of the drive, states that a cut can leave are mounted, and each
//! block of the disk must have its content of the last flush, or of a later request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zonal::disk::{Disk, DiskError, Durability, ZeroedSpace};
use zonal::image::{Image, ImageDrive, Tail};
use zonal::layer::record::{Outage, Recorder, Recording};
use zonal::{ByteCount, DeviceError, Geometry, Lba, LbaCount, ManualClock, ZonedDevice};
use zonal_fs::disk::{DiskSettings, DiskSpace, Disks, FurrowDisk};
use zonal_fs::furrow::{Eviction, Furrow, MountOptions, PlantedBug, Work, sample};
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};

use super::{Dice, count, format, name};

/// Blocks of the disk.
const BLOCKS: u64 = 384;

/// States that are tried after each change, if there are more.
const SAMPLES: u64 = 6;

/// A request, with the changes of the drive before it began and when it had ended.
struct Request {
    kind: Kind,
    lba: u64,
    blocks: u64,
    begun: usize,
    ended: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its number is in every word of its blocks.
    Write(Durability),
    Discard,
    Zero(Durability),
    Flush,
}

impl Request {
    fn covers(&self, block: u64) -> bool {
        (self.lba..self.lba + self.blocks).contains(&block)
    }

    /// Whether its change is durable when it has ended.
    fn is_durable(&self) -> bool {
        matches!(self.kind, Kind::Write(Durability::AtOnce) | Kind::Zero(Durability::AtOnce))
    }
}

/// A workload that was recorded.
struct Run {
    recording: Recording,
    requests: Vec<Request>,
    /// Blocks that the disk writes whole or not at all.
    atomic: u64,
}

fn mount(drive: Arc<dyn ZonedDevice>, options: MountOptions) -> Disks {
    mount_both(drive, options).1
}

fn mount_both(drive: Arc<dyn ZonedDevice>, options: MountOptions) -> (Arc<Furrow>, Disks) {
    let clock = Arc::new(ManualClock::new(1));
    let fs = Arc::new(Furrow::mount(drive, clock, options).unwrap());
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    let disks = Disks::new(Volume::new(fs.clone(), &options)).unwrap();
    (fs, disks)
}

/// A mount of which the discards leave all but two map entries for later.
fn discarding_late(planted: Option<PlantedBug>) -> MountOptions {
    let (planted, eviction) = (planted.into(), Eviction::AtEveryLock);
    MountOptions { planted, eviction, ..MountOptions::default() }
}

fn with_bug(planted: PlantedBug) -> MountOptions {
    MountOptions { planted: Some(planted).into(), ..MountOptions::default() }
}

/// A drive with an empty disk. The rest is nearly full, so that zones are reclaimed.
fn start(settings: DiskSettings, rest: u64) -> Image {
    let shape = sample::shape(28, 64);
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(shape).unwrap())));
    format(recorder.clone());
    let disks = mount(recorder.clone(), MountOptions::default());
    disks.create(&name("disk"), ByteCount::new(BLOCKS * 4096), settings).unwrap();
    if rest > 0 {
        disks.create(&name("rest"), ByteCount::new(rest * 4096), DiskSettings::default()).unwrap();
        let disk = disks.open(&name("rest")).unwrap();
        disk.write(Lba::ZERO, &vec![9; rest as usize * 4096], Durability::AtOnce).unwrap();
    }
    disks.close().unwrap();
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {}
    outage.everything()
}

/// Does random requests, and records the changes of the drive. A request that fails breaks a
/// promise, too.
fn run(
    image: &Image,
    options: MountOptions,
    requests: u64,
    dice: &mut Dice,
) -> Result<Run, String> {
    let recorder = Arc::new(Recorder::new(image.clone()));
    let (fs, disks) = mount_both(recorder.clone(), options);
    let disk = disks.open(&name("disk")).map_err(|error| error.to_string())?;
    let mut done: Vec<Request> = Vec::new();
    for number in 1..=requests {
        let begun = recorder.len();
        let durability = if dice.below(6) == 0 { Durability::AtOnce } else { Durability::Later };
        let kind = match dice.below(12) {
            0 => Kind::Flush,
            1 => Kind::Discard,
            2 => Kind::Zero(durability),
            _ => Kind::Write(durability),
        };
        let longest = if dice.below(8) == 0 { 280 } else { 12 };
        let lba = dice.below(BLOCKS);
        let blocks = (1 + dice.below(longest)).min(BLOCKS - lba);
        perform(&disk, kind, number, Lba::new(lba), LbaCount::new(blocks))
            .map_err(|error| format!("request {number}, {kind:?} of {blocks} at {lba}: {error}"))?;
        if dice.below(4) == 0 {
            fs.step(Work::Truncate).map_err(|error| error.to_string())?;
        }
        done.push(Request { kind, lba, blocks, begun, ended: recorder.len() });
    }
    // The volume is dropped after the recording is taken: the power goes.
    let atomic = disk.shape().atomic.get() / 4096;
    Ok(Run { recording: recorder.recording(), requests: done, atomic })
}

fn perform(
    disk: &FurrowDisk,
    kind: Kind,
    number: u64,
    lba: Lba,
    blocks: LbaCount,
) -> zonal::disk::Result<()> {
    match kind {
        Kind::Write(durability) => {
            let words = blocks.get() as usize * 512;
            let data = number.to_le_bytes().repeat(words);
            disk.write(lba, &data, durability)
        }
        Kind::Discard => disk.discard(lba, blocks),
        Kind::Zero(durability) => disk.write_zeroes(lba, blocks, ZeroedSpace::Free, durability),
        Kind::Flush => disk.flush(),
    }
}

/// The numbers of the requests that wrote the blocks of the disk; 0 for zeroes.
fn found(image: &Image, options: MountOptions) -> Result<Vec<u64>, String> {
    let disks = mount(Arc::new(image.power_on()), options);
    let disk = disks.open(&name("disk")).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for block in 0..BLOCKS {
        let mut data = [0; 4096];
        disk.read(Lba::new(block), &mut data).map_err(|error| format!("{block}: {error}"))?;
        let words: Vec<u64> =
            data.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        if words.iter().any(|word| *word != words[0]) {
            return Err(format!("block {block} is a mixture"));
        }
        found.push(words[0]);
    }
    Ok(found)
}

impl Run {
    /// The fault of the state after a cut at `at` changes, if it has one.
    fn violation(&self, at: usize, found: &[u64]) -> Option<String> {
        let begun = self.requests.iter().take_while(|request| request.begun <= at).count();
        let begun = &self.requests[..begun];
        let flushed = begun
            .iter()
            .rposition(|request| request.kind == Kind::Flush && request.ended <= at)
            .unwrap_or(0);
        for (block, &number) in (0..).zip(found) {
            let by = |request: usize| begun[request].covers(block);
            let writer = if number == 0 { None } else { Some(number as usize - 1) };
            if writer.is_some_and(|writer| writer >= begun.len() || !by(writer)) {
                return Some(format!("block {block} has {number}, which was not written there"));
            }
            // The oldest request whose content may be there.
            let oldest = (0..begun.len()).rfind(|&request| {
                let is_flushed = request < flushed;
                let is_durable = begun[request].is_durable() && begun[request].ended <= at;
                by(request) && begun[request].kind != Kind::Flush && (is_flushed || is_durable)
            });
            let is_zero = |request: usize| !matches!(begun[request].kind, Kind::Write(_));
            let is_late = match (writer, oldest) {
                (Some(writer), Some(oldest)) => writer >= oldest,
                (Some(_) | None, None) => true,
                (None, Some(oldest)) => {
                    let zeroes = (oldest..begun.len()).filter(|&request| is_zero(request));
                    zeroes.filter(|&request| begun[request].kind != Kind::Flush).any(by)
                }
            };
            if !is_late {
                return Some(format!(
                    "block {block} has {number}, but request {} was durable",
                    oldest.map_or(0, |request| request + 1)
                ));
            }
        }
        self.torn(begun, found)
    }

    /// A write of which blocks are there and blocks are not.
    fn torn(&self, begun: &[Request], found: &[u64]) -> Option<String> {
        for (number, request) in (1..).zip(begun) {
            if request.blocks > self.atomic {
                continue;
            }
            let blocks = &found[request.lba as usize..(request.lba + request.blocks) as usize];
            let is_there = matches!(request.kind, Kind::Write(_)) && blocks.contains(&number);
            // Zeroes may come from a later request, or be older.
            let older = blocks.iter().position(|&found| found != 0 && found < number);
            if let Some(at) = older.filter(|_| is_there) {
                let (block, older) = (request.lba + at as u64, blocks[at]);
                return Some(format!("of write {number} block {block} is missing: it has {older}"));
            }
        }
        None
    }

    /// Goes through the cuts until one violates a promise.
    fn check(&self, options: MountOptions, dice: &mut Dice) -> Result<u64, String> {
        let mut outage = Outage::at_start(&self.recording);
        let mut states = 0;
        loop {
            let mut images = Vec::new();
            let choices = outage.new_choices(&[Tail::Whole, Tail::Torn]);
            if choices.count() <= SAMPLES {
                images.extend(choices.combinations().filter_map(|cuts| outage.state(&cuts)));
            } else {
                let sample = |_| outage.sample(&mut |limit| dice.below(limit));
                images.extend((0..SAMPLES).filter_map(sample));
            }
            for image in images {
                states += 1;
                let violation = match found(&image, options) {
                    Ok(found) => self.violation(outage.at(), &found),
                    Err(what) => Some(what),
                };
                if let Some(what) = violation {
                    return Err(format!("power cut after change {}: {what}", outage.at()));
                }
            }
            if !outage.step() {
                return Ok(states);
            }
        }
    }
}

#[test]
fn disk_keeps_its_promises_after_every_cut() {
    let mut dice = Dice::new();
    for (space, options) in [
        (DiskSpace::Thick, MountOptions::default()),
        (DiskSpace::Thin, MountOptions::default()),
        (DiskSpace::Thick, discarding_late(None)),
        (DiskSpace::Thin, discarding_late(None)),
    ] {
        for rest in [0, 400] {
            let image = start(DiskSettings { space, ..DiskSettings::default() }, rest);
            let mut states = 0;
            for _ in 0..count(2) {
                let run = run(&image, options, 40, &mut dice);
                let checked = run.and_then(|run| run.check(options, &mut dice));
                states += checked.unwrap_or_else(|what| panic!("{space:?}: {what}"));
            }
            println!("{space:?}, {rest} blocks beside it: {states} states");
        }
    }
}

/// Each rule that a disk on a log must keep, with mistakes that break it.
const MISTAKES: [(&str, PlantedBug); 13] = [
    ("a flush returns when the data is durable", PlantedBug::SkipDataFlush),
    ("a flush returns when the way to the data is durable", PlantedBug::SkipRecordFlush),
    ("a flush leaves no data in memory", PlantedBug::SkipWriteBack),
    ("the order of writes is that of the requests", PlantedBug::KeepOlderBuffered),
    ("a copy of reclaim never replaces a newer write", PlantedBug::RelocateOverwritten),
    ("a write of the atomic size is whole or absent", PlantedBug::SplitWrite),
    ("a zone is reset when its blocks are durable elsewhere", PlantedBug::ResetBeforeDurable),
    ("what reclaim moves is found again", PlantedBug::ForgetRelocation),
    ("moved blocks are durable before the record of the move", PlantedBug::SkipMovedFlush),
    ("moves are recorded", PlantedBug::ForgetMoved),
    ("discards are recorded", PlantedBug::ForgetDiscards),
    ("recovery believes no batch without its data", PlantedBug::BelieveNewestBatch),
    ("recovery takes every batch that is whole", PlantedBug::ReplayStopsEarly),
];

#[test]
fn planted_mistake_breaks_a_promise_of_the_disk() {
    for (rule, mistake) in MISTAKES {
        let mut dice = Dice::new();
        let options = if mistake == PlantedBug::ForgetDiscards {
            discarding_late(Some(mistake))
        } else {
            with_bug(mistake)
        };
        let images = [0, 400].map(|rest| start(DiskSettings::default(), rest));
        let violation = (0..12).find_map(|round| {
            let run = run(&images[round % 2], options, 60, &mut dice);
            run.and_then(|run| run.check(options, &mut dice)).err()
        });
        println!("{mistake:?}: {violation:?}");
        assert!(violation.is_some(), "{rule}: {mistake:?} was not noticed");
    }
}

/// A drive of which one flush fails.
struct OneFlushFails {
    below: ImageDrive,
    is_armed: AtomicBool,
}

impl ZonedDevice for OneFlushFails {
    zonal::pass_on!(below: geometry, report, read, write, append, manage, deallocate, identity);

    fn flush(&self) -> zonal::error::Result<()> {
        if self.is_armed.swap(false, Ordering::Relaxed) {
            return Err(DeviceError::Medium { lba: Lba::ZERO });
        }
        self.below.flush()
    }
}

/// An open disk on a drive of which a flush can be made to fail.
fn on_failing_drive(settings: DiskSettings) -> (Arc<OneFlushFails>, Disks, Arc<FurrowDisk>) {
    let below = start(settings, 0).power_on();
    let drive = Arc::new(OneFlushFails { below, is_armed: AtomicBool::new(false) });
    let disks = mount(drive.clone(), MountOptions::default());
    let disk = disks.open(&name("disk")).unwrap();
    (drive, disks, disk)
}

#[test]
fn flush_after_failed_flush_makes_all_data_durable() {
    let (drive, disks, disk) = on_failing_drive(DiskSettings::default());
    disk.write(Lba::ZERO, &[1; 4096], Durability::AtOnce).unwrap();
    disk.write(Lba::ZERO, &[2; 4096], Durability::Later).unwrap();
    drive.is_armed.store(true, Ordering::Relaxed);
    assert!(matches!(disk.flush(), Err(DiskError::Below { .. })));
    disk.flush().unwrap();
    disk.write(Lba::new(1), &[3; 4096], Durability::AtOnce).unwrap();
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    // Another mount shows the durable state, for this one is killed.
    std::mem::forget((disks, disk));
    let disks = mount(drive, MountOptions::default());
    for each in ["disk", "disk@one"] {
        let mut found = [0; 8192];
        disks.open(&name(each)).unwrap().read(Lba::ZERO, &mut found).unwrap();
        assert!(found[..4096] == [2; 4096] && found[4096..] == [3; 4096], "{each}");
    }
}

#[test]
fn disk_whose_growth_is_not_durable_has_size_of_its_file() {
    for space in [DiskSpace::Thick, DiskSpace::Thin] {
        let settings = DiskSettings { space, ..DiskSettings::default() };
        let (drive, disks, disk) = on_failing_drive(settings);
        let (old, new) = (disk.shape().bytes(), ByteCount::new(BLOCKS * 4096 + (1 << 20)));
        drive.is_armed.store(true, Ordering::Relaxed);
        disks.resize(&name("disk"), new).unwrap_err();
        let info = disks.info(&name("disk")).unwrap();
        assert_eq!((info.bytes, disk.shape().bytes()), (new.get(), new.get()), "{space:?}");
        disk.write(Lba::new(old / 4096), &[1; 4096], Durability::AtOnce).unwrap();
        disks.resize(&name("disk"), new).unwrap();
    }
}

#[test]
fn thick_disk_on_full_drive_is_never_refused() {
    let mut dice = Dice::new();
    let image = start(DiskSettings::default(), 400);
    for round in 0..count(30) {
        if let Err(what) = run(&image, MountOptions::default(), 200, &mut dice) {
            panic!("round {round}: {what}");
        }
    }
}
