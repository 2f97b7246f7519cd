//! Damaged blocks in metadata zones. All metadata there has two copies, so damage that leaves one
//! good copy of each write costs nothing. Other damage may cost the rows of the write, and is
//! reported.
//!
//! Images of one drive, once unmounted and once cut off, get 1 to 20 blocks of noise. `SEED`
//! chooses their places.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small limits")]
#![expect(clippy::print_stdout, reason = "how many images still mount is a part of the result")]

mod leaves;
mod refused;
mod shared;

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder, Recording, Step};
use zonal::{
    Geometry, GeometrySpec, Lba, LbaCount, ManualClock, ZoneAction, ZoneId, ZoneRuns, ZonedDevice,
    repeat,
};
use zonal_fs::FsError;
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{
    AtimePolicy, CheckReport, DataCheck, DumpWhat, Furrow, MkfsOptions, MountOptions, Problem,
    StepProgress, Work, check, dump, mkfs,
};
use zonal_fs::tree::{Snapshot, snapshot};
use zonal_fs::vfs::{
    Caller, FileKind, FileSystem, Ino, Listing, NewInode, SetAttr, StatFs, WriteFlags, XattrMode,
};

/// Small zones, so that metadata gets to where it stays.
const SPEC: GeometrySpec = shape(192, 64);
/// The same, with conventional ones for data.
const CONVENTIONAL: GeometrySpec =
    GeometrySpec { conventional_zones: ZoneRuns::leading(9), ..shape(201, 64) };
const DIRECTORIES: u64 = 12;
const FILES: u64 = 120;
/// Of each of the two drives.
const IMAGES: u64 = 60;
const DAMAGED_MAX: u64 = 20;

fn make(fs: &Furrow, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).unwrap().ino
}

/// Directories of files of up to three blocks, some with attributes; then a part of it is changed.
fn work(fs: &Furrow) {
    for directory in 0..DIRECTORIES {
        let home = make(fs, Ino::ROOT, &format!("directory-{directory}"), FileKind::Directory);
        for number in 0..FILES {
            let file = make(fs, home, &format!("file-{number}"), FileKind::Regular);
            let bytes = (number * 1000 % 12_000) as usize;
            fs.write(file, 0, &vec![number as u8; bytes], WriteFlags::empty()).unwrap();
            if number % 10 == 0 {
                let value = vec![directory as u8; 200];
                fs.setxattr(&Caller::ROOT, file, b"user.a", &value, XattrMode::Any).unwrap();
            }
        }
        fs.sync().unwrap();
        fs.tick().unwrap();
    }
}

/// Returns a snapshot after each sync.
fn change(fs: &Furrow) -> Vec<Snapshot> {
    let mut synced = Vec::new();
    for directory in 0..DIRECTORIES {
        let home = fs.lookup(Ino::ROOT, format!("directory-{directory}").as_bytes()).unwrap().ino;
        for number in (directory..FILES).step_by(13) {
            let name = format!("file-{number}");
            let file = fs.lookup(home, name.as_bytes()).unwrap().ino;
            fs.write(file, 4096, &[9; 4096], WriteFlags::DIRECT).unwrap();
            let set = SetAttr { perm: Some(0o640), ..SetAttr::default() };
            fs.setattr(&Caller::ROOT, file, &set).unwrap();
        }
        fs.unlink(home, format!("file-{}", 30 + directory).as_bytes()).unwrap();
        fs.sync().unwrap();
        fs.tick().unwrap();
        synced.push(snapshot(fs).unwrap());
    }
    synced
}

fn mount(drive: Arc<dyn ZonedDevice>) -> Result<Furrow, FsError> {
    let options = MountOptions { atime: AtimePolicy::Never, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(ManualClock::new(1)), options)
}

/// One write of metadata: where it lies now.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    start: Lba,
    blocks: u64,
}

impl Stored {
    fn blocks(self) -> impl Iterator<Item = Lba> {
        (0..self.blocks).map(move |block| self.start + LbaCount::new(block))
    }
}

/// A drive, and its metadata.
struct Subject {
    name: &'static str,
    image: Image,
    /// The states that a mount may show, the newest last. If the last record of the journal is bad,
    /// a power cut may have torn it, so the batch before is the last.
    shows: Vec<Snapshot>,
    /// Two copies of each write.
    pairs: Vec<[Stored; 2]>,
}

impl Subject {
    fn new(name: &'static str, recording: &Recording, shows: &[Snapshot]) -> Self {
        let mut outage = Outage::at_start(recording);
        while outage.step() {}
        let image = outage.everything();
        let pairs = pairs(&image, &recording.steps);
        Self { name, image, shows: shows.to_vec(), pairs }
    }

    /// Every copy of every write, with the number of its pair and which copy it is.
    fn copies(&self) -> Vec<(usize, usize, Stored)> {
        let pairs = self.pairs.iter().enumerate();
        pairs.flat_map(|(pair, both)| [(pair, 0, both[0]), (pair, 1, both[1])]).collect()
    }
}

/// Unmounted, and cut off after the last sync, on two drives.
fn subjects() -> impl Iterator<Item = Subject> {
    let sequential = subjects_on(SPEC, ["unmounted", "cut off"]);
    let names = ["unmounted, conventional zones", "cut off, conventional zones"];
    sequential.into_iter().chain(subjects_on(CONVENTIONAL, names))
}

fn subjects_on(spec: GeometrySpec, names: [&'static str; 2]) -> [Subject; 2] {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(spec).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    work(&fs);
    fs.shutdown().unwrap();
    drop(fs);
    let fs = mount(recorder.clone()).unwrap();
    let synced = change(&fs);
    let cut = Subject::new(names[1], &recorder.recording(), &synced);
    fs.shutdown().unwrap();
    // The superblock of an unmount says which record is the last.
    let last = synced.len() - 1;
    [Subject::new(names[0], &recorder.recording(), &synced[last..]), cut]
}

fn metadata_zones(image: &Image) -> BTreeSet<ZoneId> {
    let mut zones = BTreeSet::new();
    dump(Arc::new(image.power_on()), DumpWhat::Zones, &mut |zone| {
        let role = zone["role"].as_str().unwrap();
        if matches!(role, "superblock" | "journal" | "metadata") {
            let number = u32::try_from(zone["zone"].as_u64().unwrap()).unwrap();
            zones.insert(ZoneId::new(number));
        }
    })
    .unwrap();
    zones
}

/// Writes that zones still hold, each with its copy: the next write of the same length to another
/// metadata zone.
fn pairs(image: &Image, steps: &[Step]) -> Vec<[Stored; 2]> {
    let zones = metadata_zones(image);
    let mut pairs: Vec<[Stored; 2]> = Vec::new();
    let mut single: Vec<Stored> = Vec::new();
    let zone_of = |stored: &Stored| image.geometry().locate(stored.start).0;
    for step in steps {
        match step {
            Step::Store { zone, offset, data } if zones.contains(zone) => {
                let start = image.geometry().zone_start(*zone) + *offset;
                let stored = Stored { start, blocks: (data.len() / 4096) as u64 };
                let is_copy =
                    |other: &Stored| other.blocks == stored.blocks && zone_of(other) != *zone;
                match single.iter().position(is_copy) {
                    Some(at) => pairs.push([single.remove(at), stored]),
                    None => single.push(stored),
                }
            }
            Step::Manage { zone, action: ZoneAction::Reset } => {
                pairs.retain(|both| both.iter().all(|stored| zone_of(stored) != *zone));
                single.retain(|stored| zone_of(stored) != *zone);
            }
            Step::Store { .. } | Step::Deallocate { .. } | Step::Manage { .. } | Step::Flush => {}
        }
    }
    assert!(single.is_empty(), "every write of metadata has a copy: {single:?}");
    let blocks: u64 = pairs.iter().map(|[first, _]| first.blocks).sum();
    assert!(blocks > 20, "there is something to damage: {pairs:?}");
    pairs
}

/// Noise in one block.
fn damage(image: &mut Image, lba: Lba, random: &mut ChaCha8Rng) {
    for _ in 0..64 {
        image.flip_bit(lba, random.next_u64() % (4096 * 8));
    }
}

/// The outcome of a mount of a damaged drive.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Whole,
    /// It shows an earlier sync.
    Earlier,
    /// It mounts, and something gives an error.
    Partly(String),
    Refused(String),
}

impl Subject {
    /// Mounts a damaged image. It may show less and say so, and nothing that was not there.
    fn outcome(&self, image: &Image, what: &str) -> Outcome {
        let fs = match mount(Arc::new(image.power_on())) {
            Ok(fs) => fs,
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let found = match snapshot(&fs) {
            Ok(found) => found,
            Err(error) => return Outcome::Partly(error.to_string()),
        };
        let newest = self.shows.last().unwrap();
        match self.shows.iter().rposition(|shown| *shown == found) {
            Some(at) if at + 1 == self.shows.len() => Outcome::Whole,
            Some(_) => Outcome::Earlier,
            // The mount has rebuilt the root from the rest, and a check of the damaged drive
            // reports that.
            None if is_root_remade(&fs, image) => Outcome::Partly("the root is made anew".into()),
            None => {
                let difference = newest.first_difference(&found);
                panic!("{what}: there, then here: {}", difference.unwrap_or_default())
            }
        }
    }
}

/// Whether the root has only its own names and names that a mount gave to lost inodes, and a check
/// reports that rows of the root are lost.
fn is_root_remade(fs: &Furrow, image: &Image) -> bool {
    let mut are_known = true;
    fs.readdir(Ino::ROOT, 0, &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        are_known &= [".", ".."].contains(&&*name)
            || name.starts_with("directory-")
            || name.starts_with("lost-");
        Listing::More
    })
    .unwrap();
    let report = check(Arc::new(image.power_on()), DataCheck::Skip, &mut |_| ()).unwrap();
    are_known && report.problems.iter().any(|problem| problem.path.as_deref() == Some("/"))
}

/// The number of each outcome.
#[derive(Default)]
struct Tally {
    whole: usize,
    earlier: usize,
    partly: Vec<String>,
    refused: Vec<String>,
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Whole => self.whole += 1,
            Outcome::Earlier => self.earlier += 1,
            Outcome::Partly(why) => self.partly.push(why),
            Outcome::Refused(why) => self.refused.push(why),
        }
    }

    fn print(&self, name: &str) {
        let Self { whole, earlier, partly, refused } = self;
        println!(
            "{name}: {whole} whole, {earlier} without the last batches, {} partly, {} not mounted",
            partly.len(),
            refused.len()
        );
        for (what, reasons) in [("partly", partly), ("not mounted", refused)] {
            let reasons: BTreeSet<&String> = reasons.iter().collect();
            for why in reasons.into_iter().take(10) {
                println!("    {what}: {why}");
            }
        }
    }
}

fn random() -> (u64, ChaCha8Rng) {
    let seed = repeat::seed(1);
    (seed, ChaCha8Rng::seed_from_u64(seed))
}

#[test]
fn damage_leaving_one_good_copy_costs_nothing() {
    let (seed, mut random) = random();
    for subject in subjects() {
        let copies = subject.copies();
        for number in 0..IMAGES {
            let mut image = subject.image.clone();
            let mut spared: Vec<Option<usize>> = vec![None; subject.pairs.len()];
            for _ in 0..=number % DAMAGED_MAX {
                let (pair, copy, stored) = copies[random.next_u64() as usize % copies.len()];
                // The first hit decides which copy stays good.
                if *spared[pair].get_or_insert(1 - copy) == copy {
                    continue;
                }
                let block = LbaCount::new(random.next_u64() % stored.blocks);
                damage(&mut image, stored.start + block, &mut random);
            }
            let what = format!("SEED={seed}, {}, image {number}", subject.name);
            assert_eq!(subject.outcome(&image, &what), Outcome::Whole, "{what}");
        }
    }
}

#[test]
fn damage_anywhere_in_metadata_makes_nothing_up() {
    let (seed, mut random) = random();
    for subject in subjects() {
        let mut tally = Tally::default();
        let blocks: Vec<Lba> = subject.copies().iter().flat_map(|copy| copy.2.blocks()).collect();
        for number in 0..IMAGES {
            let mut image = subject.image.clone();
            for _ in 0..=number % DAMAGED_MAX {
                let lba = blocks[random.next_u64() as usize % blocks.len()];
                damage(&mut image, lba, &mut random);
            }
            let what = format!("SEED={seed}, {}, image {number}", subject.name);
            tally.add(subject.outcome(&image, &what));
        }
        tally.print(&format!("{}, 1 to {DAMAGED_MAX} blocks", subject.name));
    }
}

#[test]
fn block_lost_in_both_copies_makes_nothing_up() {
    let (seed, mut random) = random();
    for subject in subjects() {
        let mut tally = Tally::default();
        for [first, second] in &subject.pairs {
            for (one, other) in first.blocks().zip(second.blocks()).step_by(5) {
                let mut image = subject.image.clone();
                damage(&mut image, one, &mut random);
                damage(&mut image, other, &mut random);
                let what = format!("SEED={seed}, {}, blocks {one} and {other}", subject.name);
                tally.add(subject.outcome(&image, &what));
            }
        }
        tally.print(&format!("{}, one block in both copies", subject.name));
    }
}
