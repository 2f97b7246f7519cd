//! Damaged blocks in metadata zones. Everything there is written twice, so what leaves one good copy
//! of each write costs nothing; what leaves none may cost what it held, and is said.
//!
//! Images of one drive, once unmounted and once cut off, get 1 to 20 blocks of noise. `SEED` chooses
//! where.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small limits")]
#![expect(clippy::print_stdout, reason = "how many images still mount is a part of the result")]

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder, Recording, Step};
use zonal::{Geometry, GeometrySpec, Lba, LbaCount, ManualClock, ZoneAction, ZoneId, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{
    AtimePolicy, CheckReport, DataCheck, DumpWhat, Furrow, MkfsOptions, MountOptions, check, dump,
    mkfs,
};
use zonal_fs::tree::{Snapshot, snapshot};
use zonal_fs::vfs::{
    Caller, FileKind, FileSystem, Ino, Listing, NewInode, SetAttr, WriteFlags, XattrMode,
};

/// Small zones, so that metadata gets to where it stays.
const SPEC: GeometrySpec = shape(192, 64);
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

/// Returns what was there after each sync.
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
    /// What it may show, the newest last. What nothing follows in the journal looks like what a
    /// power cut leaves, so without it the batch before is the last.
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

/// Unmounted, and cut off after the last sync.
fn subjects() -> [Subject; 2] {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    work(&fs);
    fs.shutdown().unwrap();
    drop(fs);
    let fs = mount(recorder.clone()).unwrap();
    let synced = change(&fs);
    let cut = Subject::new("cut off", &recorder.recording(), &synced);
    fs.shutdown().unwrap();
    // The superblock of an unmount says which record is the last.
    let last = synced.len() - 1;
    [Subject::new("unmounted", &recorder.recording(), &synced[last..]), cut]
}

fn metadata_zones(image: &Image) -> BTreeSet<ZoneId> {
    let mut zones = BTreeSet::new();
    dump(Arc::new(image.power_on()), DumpWhat::Zones, &mut |zone| {
        let role = zone["role"].as_str().unwrap();
        if matches!(role, "superblock" | "metadata") {
            let number = u32::try_from(zone["zone"].as_u64().unwrap()).unwrap();
            zones.insert(ZoneId::new(number));
        }
    })
    .unwrap();
    zones
}

/// The writes that are still there, each with its copy: the next write of the same length to another
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
            Step::Store { .. } | Step::Manage { .. } | Step::Flush => {}
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

/// What became of a damaged drive.
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
            // The root was made anew from what there is, which a check of the damaged drive says.
            None if is_root_remade(&fs, image) => Outcome::Partly("the root is made anew".into()),
            None => {
                let difference = newest.first_difference(&found);
                panic!("{what}: there, then here: {}", difference.unwrap_or_default())
            }
        }
    }
}

/// Whether the root has names only that it had, or that a mount gave to what had lost its own, and a check says
/// that rows of the root are lost.
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

/// How often what happened.
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
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    (seed, ChaCha8Rng::seed_from_u64(seed))
}

#[test]
fn damage_that_leaves_one_good_copy_of_each_write_costs_nothing() {
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
fn a_block_that_both_copies_have_lost_makes_nothing_up() {
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

/// A leaf, and where both copies of it begin: zone and byte.
struct LeafAt {
    first: String,
    copies: [(u64, u64); 2],
}

fn leaves(image: &Image) -> Vec<LeafAt> {
    let values = |what| {
        let mut values = Vec::new();
        dump(Arc::new(image.power_on()), what, &mut |value| values.push(value)).unwrap();
        values
    };
    let parts = values(DumpWhat::Parts);
    let leaf_at = |leaf: &serde_json::Value| {
        let part = parts.iter().find(|part| part["part"] == leaf["part"]).unwrap();
        let copy = |copy: usize| {
            let start = part["block"][copy].as_u64().unwrap() * 4096;
            (part["zone"][copy].as_u64().unwrap(), start + leaf["offset"].as_u64().unwrap())
        };
        LeafAt { first: leaf["first"].as_str().unwrap().to_owned(), copies: [copy(0), copy(1)] }
    };
    values(DumpWhat::Leaves).iter().map(leaf_at).collect()
}

/// Damages a leaf in both copies: the first byte behind its header.
fn lose(image: &mut Image, leaf: &LeafAt) {
    for (zone, byte) in leaf.copies {
        let byte = byte + 28;
        let zone = ZoneId::new(u32::try_from(zone).unwrap());
        let lba = image.geometry().zone_start(zone) + LbaCount::new(byte / 4096);
        image.flip_bit(lba, byte % 4096 * 8);
    }
}

/// The directories of a drive, under whatever name the root has them now.
fn homes(fs: &Furrow, numbers: &[Ino]) -> Vec<Option<Ino>> {
    let mut homes = vec![None; numbers.len()];
    fs.readdir(Ino::ROOT, 0, &mut |entry| {
        if let Some(number) = numbers.iter().position(|&ino| ino == entry.ino) {
            homes[number] = Some(entry.ino);
        }
        Listing::More
    })
    .unwrap();
    homes
}

/// Every file by its path: whether it can be looked up and read.
fn readable(fs: &Furrow, directories: &[Ino]) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (directory, home) in homes(fs, directories).into_iter().enumerate() {
        for number in 0..FILES {
            let name = format!("file-{number}");
            let file = home.and_then(|home| fs.lookup(home, name.as_bytes()).ok());
            let mut buffer = vec![0; 12_000];
            let read = file.and_then(|file| fs.read(file.ino, 0, &mut buffer).ok());
            let expected = (number * 1000 % 12_000) as usize;
            let is_right = read.is_some_and(|read| {
                read == expected && buffer[..read].iter().all(|&byte| byte == number as u8)
            });
            assert!(read.is_none() || is_right, "{directory}/{number} reads what it never was");
            found.push((format!("/directory-{directory}/{name}"), is_right));
        }
    }
    found
}

/// A drive with many files, unmounted.
fn many_files() -> Image {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    work(&fs);
    fs.shutdown().unwrap();
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {}
    outage.everything()
}

/// Inode numbers of its directories.
fn directories(image: &Image) -> Vec<Ino> {
    let fs = mount(Arc::new(image.power_on())).unwrap();
    let home = |number| fs.lookup(Ino::ROOT, format!("directory-{number}").as_bytes()).unwrap().ino;
    (0..DIRECTORIES).map(home).collect()
}

/// What a check finds. Nothing but what is lost is a problem.
fn check_lost(drive: Arc<dyn ZonedDevice>, what: &str) -> CheckReport {
    let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
    let is_of_parts = |id: &str| id == "C03";
    let others: Vec<_> =
        report.problems.iter().filter(|problem| !is_of_parts(problem.invariant.id)).collect();
    assert!(others.is_empty(), "{what}: what cannot be compared is no problem: {others:?}");
    report
}

/// Ranges of keys that a check says are lost.
fn lost_ranges(report: &CheckReport) -> Vec<&str> {
    let ranges = report.problems.iter().map(|problem| &problem.what[..]);
    ranges.filter(|what| what.starts_with("no copy has the rows")).collect()
}

/// Writes so much that every part is merged, and more than once.
fn write_much(fs: &Furrow, what: &str) {
    let home = make(fs, Ino::ROOT, "beside", FileKind::Directory);
    for number in 0..600 {
        let file = make(fs, home, &format!("new-{number}"), FileKind::Regular);
        fs.write(file, 0, &[5; 100], WriteFlags::empty()).unwrap();
        if number % 20 == 0 {
            fs.sync().unwrap();
            fs.tick().unwrap();
        }
    }
    for _ in 0..3 {
        fs.tick().unwrap();
    }
    let written = fs.stats().meta_bytes;
    fs.tick().unwrap();
    assert_eq!(fs.stats().meta_bytes, written, "{what}: nothing is tried again and again");
}

#[test]
fn a_leaf_lost_in_both_copies_costs_what_lies_in_it_and_is_told_by_path() {
    let image = many_files();
    let directories = directories(&image);
    let (mut hurt, mut merged) = (0, 0);
    for leaf in &leaves(&image) {
        let mut image = image.clone();
        lose(&mut image, leaf);
        let what = format!("without the leaf from {} on", leaf.first);
        let report = check_lost(Arc::new(image.power_on()), &what);
        assert!(!report.is_clean(), "{what}");
        // Newer rows may have taken the place of all that it holds.
        let is_hurt = !lost_ranges(&report).is_empty();
        hurt += usize::from(is_hurt);
        let told: BTreeSet<&String> =
            report.problems.iter().filter_map(|problem| problem.path.as_ref()).collect();
        let begins = ["Totals", "Zone", "Inode 1/"];
        let is_remade = begins.iter().any(|kind| leaf.first.starts_with(kind));

        let drive = Arc::new(image.power_on());
        let fs = mount(drive.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let files = readable(&fs, &directories);
        let lost = files.iter().filter(|(_, is_readable)| !is_readable);
        for (path, _) in lost.clone() {
            let home = &path[..path.rfind('/').unwrap()];
            let is_told = told.contains(path)
                || told.iter().any(|told| *told == home || *told == "/" && is_remade);
            assert!(is_told, "{what}: {path} is told: {told:?}");
        }
        let count = lost.count();
        assert!(count < files.len() / 2, "{what}: most can be read, not {count}");
        assert!(count == 0 || (is_hurt && fs.stats().leaves_lost > 0), "{what}: it is counted");
        // Life goes on beside it, and merges pass it.
        write_much(&fs, &what);
        let still_lost = fs.stats().leaves_lost;
        fs.shutdown().unwrap();
        drop(fs);
        let dump = leaves_known_lost(drive.clone());
        merged += usize::from(dump > 0);
        let fs = mount(drive.clone()).unwrap();
        assert_eq!(fs.stats().leaves_lost, still_lost, "{what}: a mount knows what is lost");
        let home = fs.lookup(Ino::ROOT, b"beside");
        let home = home.unwrap_or_else(|error| panic!("{what}: {told:?}: {error}")).ino;
        for number in 0..600 {
            fs.lookup(home, format!("new-{number}").as_bytes()).unwrap();
        }
        let again = readable(&fs, &directories);
        let came = files.iter().zip(&again).find(|(before, after)| before.1 != after.1);
        assert_eq!(came, None, "{what}: nothing goes, and nothing old comes back");
        fs.shutdown().unwrap();
        drop(fs);
        let report = check_lost(drive, &what);
        assert!(count == 0 || !lost_ranges(&report).is_empty() || is_remade, "{what}: it is told");
    }
    assert!(hurt > 3 && merged > 3, "{hurt} leaves of files, {merged} of them known to be lost");
}

/// Ranges that parts know to be lost.
fn leaves_known_lost(drive: Arc<dyn ZonedDevice>) -> usize {
    let mut count = 0;
    dump(drive, DumpWhat::Leaves, &mut |leaf| count += usize::from(leaf["lost"] == true)).unwrap();
    count
}
