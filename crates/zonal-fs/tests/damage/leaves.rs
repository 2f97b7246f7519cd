//! Leaves that both copies have lost: files in their range are named, and their space comes back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zonal::disk::{Disk, Durability};
use zonal::image::ImageDrive;
use zonal::{ByteCount, DeviceError};
use zonal_fs::disk::{DiskSettings, DiskSpace, Disks};
use zonal_fs::furrow::Eviction;
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};

use super::*;

/// A leaf, and where both copies of it begin: zone and byte.
pub(super) struct LeafAt {
    pub(super) first: String,
    copies: [(u64, u64); 2],
}

pub(super) fn leaves(image: &Image) -> Vec<LeafAt> {
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
pub(super) fn lose(image: &mut Image, leaf: &LeafAt) {
    for (zone, byte) in leaf.copies {
        let byte = byte + 28;
        let zone = ZoneId::new(u32::try_from(zone).unwrap());
        let lba = image.geometry().zone_start(zone) + LbaCount::new(byte / 4096);
        image.flip_bit(lba, byte % 4096 * 8);
    }
}

/// The directories of a drive, by their numbers: the root may have other names for them now.
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

/// The drive with all that was written to it.
pub(super) fn all_written(recorder: &Recorder) -> Image {
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {}
    outage.everything()
}

/// A drive with many files, unmounted.
fn many_files() -> Image {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    work(&fs);
    fs.shutdown().unwrap();
    all_written(&recorder)
}

/// Inode numbers of its directories.
fn directories(image: &Image) -> Vec<Ino> {
    let fs = mount(Arc::new(image.power_on())).unwrap();
    let home = |number| fs.lookup(Ino::ROOT, format!("directory-{number}").as_bytes()).unwrap().ino;
    (0..DIRECTORIES).map(home).collect()
}

/// Checks a drive. Lost rows are its only problems.
pub(super) fn check_lost(drive: Arc<dyn ZonedDevice>, what: &str) -> CheckReport {
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

/// Writes enough that every part is merged, and more than once.
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
fn leaf_lost_in_both_copies_is_reported_by_path() {
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
        // Other writes go on, and merges pass the lost leaf.
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

/// A drive on which a file of many pieces lies among others that stay, and its inode; unmounted.
pub(super) fn many_pieces(blocks: u64) -> (Image, Ino) {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    let [file, other] = ["file", "other"].map(|name| make(&fs, Ino::ROOT, name, FileKind::Regular));
    // From the end on, so that each block is a piece; among them some of the other.
    for block in (0..blocks).rev() {
        fs.write(file, block * 4096, &[block as u8; 4096], WriteFlags::DIRECT).unwrap();
        if block % 20 == 0 {
            fs.write(other, block / 20 * 4096, &[7; 4096], WriteFlags::DIRECT).unwrap();
        }
        if block % 200 == 0 {
            fs.sync().unwrap();
            fs.tick().unwrap();
        }
    }
    fs.shutdown().unwrap();
    drop(fs);
    (all_written(&recorder), file)
}

/// A drive on which reclaim has moved pieces of a file, and the file's inode. It is unmounted, with
/// its remap tables in parts of the table.
fn moved_pieces(blocks: u64) -> (Image, Ino) {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    let [file, other] = ["file", "other"].map(|name| make(&fs, Ino::ROOT, name, FileKind::Regular));
    let write = |block: u64| {
        fs.write(file, block * 4096, &[block as u8; 4096], WriteFlags::DIRECT).unwrap();
    };
    // No piece follows another. Some of them die, and reclaim moves the others.
    for number in 0..blocks {
        write(number * 1097 % blocks);
        if number % 20 == 0 {
            fs.write(other, number / 20 * 4096, &[7; 4096], WriteFlags::DIRECT).unwrap();
        }
    }
    (0..blocks / 3).for_each(|number| write(number * 1301 % blocks));
    // Enough commits for a flush, but no turn of the sweep after the second.
    let flush = |turn: u64| {
        for number in 0..60 {
            make(&fs, Ino::ROOT, &format!("more-{turn}-{number}"), FileKind::Fifo);
            fs.sync().unwrap();
        }
        fs.tick().unwrap();
    };
    flush(1);
    while fs.reclaim_ahead().unwrap() == StepProgress::More {}
    flush(2);
    fs.shutdown().unwrap();
    drop(fs);
    (all_written(&recorder), file)
}

#[test]
fn remap_tables_lost_cost_their_blocks_only() {
    const BLOCKS: u64 = 3000;
    let (image, file) = moved_pieces(BLOCKS);
    let all = leaves(&image);
    let tables: Vec<_> = all.iter().filter(|leaf| leaf.first.starts_with("Remap")).collect();
    assert!(!tables.is_empty(), "they are in leaves of their own");
    let mut are_needed = 0;
    for (number, table) in tables.into_iter().enumerate() {
        let mut image = image.clone();
        lose(&mut image, table);
        let drive = Arc::new(image.power_on());
        let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        let is_of_file = |problem: &Problem| problem.path.as_deref() == Some("/file");
        let of_moves: Vec<_> =
            report.problems.iter().filter(|problem| problem.invariant.id == "C36").collect();
        // Some tables may be about to be dropped.
        let is_needed = !of_moves.is_empty();
        are_needed += usize::from(is_needed);
        assert!(of_moves.into_iter().all(is_of_file), "{number}: {:?}", report.problems);
        let fs = mount(drive.clone()).unwrap();
        let mut lost = 0;
        for block in 0..BLOCKS {
            let mut found = [0; 4096];
            match fs.read(file, block * 4096, &mut found) {
                Ok(_) => assert_eq!(found, [block as u8; 4096], "{number}: block {block}"),
                Err(error) => {
                    assert!(matches!(error, FsError::Corrupt { .. }), "{number}: {error}");
                    lost += 1;
                }
            }
        }
        assert!((lost > 0) == is_needed && lost < BLOCKS, "{number}: {lost} blocks are lost");
        let [before, after] = delete_file(&fs);
        assert_eq!(after.inodes, before.inodes - 1, "{number}");
        // An open zone keeps its blocks of the file.
        let came = after.blocks_free - before.blocks_free;
        assert!((BLOCKS - 64..=BLOCKS).contains(&came), "{number}: {came} blocks came back");
        fill_and_empty(&fs);
        assert!(is_other_whole(&fs, BLOCKS), "{number}: the other file is whole");
        fs.shutdown().unwrap();
        drop(fs);
        check_lost(drive, &format!("table {number}"));
    }
    assert!(are_needed > 0);
}

/// Deletes `file`, all of it. Returns the space before and afterwards.
fn delete_file(fs: &Furrow) -> [StatFs; 2] {
    let before = fs.statfs().unwrap();
    fs.unlink(Ino::ROOT, b"file").unwrap();
    while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
    fs.sync().unwrap();
    [before, fs.statfs().unwrap()]
}

/// Whether `other`, which has a twentieth of the blocks of `file`, reads as it was written.
fn is_other_whole(fs: &Furrow, blocks: u64) -> bool {
    let other = fs.lookup(Ino::ROOT, b"other").unwrap().ino;
    let mut found = vec![0; (blocks / 20 * 4096) as usize];
    fs.read(other, 0, &mut found).unwrap() == found.len() && found.iter().all(|byte| *byte == 7)
}

/// Fills the drive and empties it again, so that reclaim goes through all zones. Returns the bytes
/// that it had room for.
fn fill_and_empty(fs: &Furrow) -> u64 {
    let file = make(fs, Ino::ROOT, "filler", FileKind::Regular);
    let (data, mut at) = (vec![3; 64 << 10], 0);
    let full = loop {
        match fs.write(file, at, &data, WriteFlags::empty()) {
            Ok(_) => at += 64 << 10,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, FsError::NoSpace), "{full}");
    fs.unlink(Ino::ROOT, b"filler").unwrap();
    while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
    fs.sync().unwrap();
    at
}

#[test]
fn delete_of_file_with_lost_extents_frees_all_space() {
    const BLOCKS: u64 = 3000;
    let (image, file) = many_pieces(BLOCKS);
    let is_of_file = |leaf: &LeafAt| leaf.first.starts_with(&format!("Map {file}/"));
    let all = leaves(&image);
    // Leaves with nothing but pieces of the file.
    let inner = all.windows(2).filter(|pair| pair.iter().all(is_of_file));
    let leaves: Vec<_> = inner.map(|pair| &pair[0]).collect();
    assert!(leaves.len() > 3, "its map is in many leaves: {}", leaves.len());
    for number in 0..leaves.len() {
        let mut image = image.clone();
        // One, and two side by side.
        leaves.iter().skip(number).take(1 + number % 2).for_each(|leaf| lose(&mut image, leaf));
        let drive = Arc::new(image.power_on());
        let fs = mount(drive.clone()).unwrap();
        let [before, after] = delete_file(&fs);
        assert_eq!(after.inodes, before.inodes - 1, "{number}");
        let came = after.blocks_free - before.blocks_free;
        assert_eq!(came, BLOCKS, "{number}: what was lost comes back too");
        let written = fill_and_empty(&fs);
        assert!(written > (after.blocks_free - 16) * 4096, "{number}: it can be used: {written}");
        assert!(is_other_whole(&fs, BLOCKS), "{number}: the other file is whole");
        fs.shutdown().unwrap();
        drop(fs);
        let report = check_lost(drive.clone(), &format!("leaf {number}"));
        assert_eq!(report.orphans, 0, "{number}");
        assert_eq!(mount(drive).unwrap().statfs().unwrap().inodes, before.inodes - 1);
    }
}

/// A drive with a removed disk whose file is still there, as a power cut can leave it.
fn removed_disk(pieces: u64) -> (Image, Ino) {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let (volume, disks) = disks(recorder.clone());
    let thin = DiskSettings { space: DiskSpace::Thin, ..DiskSettings::default() };
    let name = "gone".parse().unwrap();
    disks.create(&name, ByteCount::new(2 * pieces * 4096), thin).unwrap();
    let disk = disks.open(&name).unwrap();
    for piece in 0..pieces {
        disk.write(Lba::new(2 * piece), &[5; 4096], Durability::Later).unwrap();
        if piece % 500 == 0 {
            disk.flush().unwrap();
            volume.tick().unwrap();
        }
    }
    drop(disk);
    let ino = volume.metadata("disks/gone").unwrap().ino;
    volume.rename("disks/gone", "disks/.unfinished-gone").unwrap();
    volume.close().unwrap();
    (all_written(&recorder), ino)
}

fn disks(drive: Arc<dyn ZonedDevice>) -> (Volume, Disks) {
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    let volume = Volume::mount(drive, Arc::new(ManualClock::new(1)), &options).unwrap();
    (volume.clone(), Disks::new(volume).unwrap())
}

#[test]
fn disks_are_made_though_file_of_removed_one_has_lost_extents() {
    let (image, ino) = removed_disk(3000);
    let leaves: Vec<_> = leaves(&image);
    let is_of_file = |leaf: &&LeafAt| leaf.first.starts_with(&format!("Map {ino}/"));
    let of_file: Vec<_> = leaves.iter().filter(is_of_file).collect();
    assert!(of_file.len() > 3, "its map is in many leaves: {}", of_file.len());
    for leaf in &of_file[1..4] {
        let mut image = image.clone();
        lose(&mut image, leaf);
        let (volume, disks) = disks(Arc::new(image.power_on()));
        let name = "new".parse().unwrap();
        disks.create(&name, ByteCount::new(1 << 20), DiskSettings::default()).unwrap();
        let clone = "clone".parse().unwrap();
        disks.clone_disk(&name, &clone, DiskSpace::Thick).unwrap();
        disks.remove(&name).unwrap();
        let gone = volume.symlink_metadata("disks/.unfinished-gone").unwrap_err();
        assert!(matches!(gone.reason(), FsError::NotFound), "{gone}");
        volume.close().unwrap();
    }
}

/// A drive that refuses all reads after one of a block that begins with `byte`.
struct RefusesAfter {
    below: ImageDrive,
    byte: u8,
    refuses: AtomicBool,
    refused: AtomicU64,
}

impl ZonedDevice for RefusesAfter {
    zonal::pass_on!(below: geometry, report, write, append, manage, flush, deallocate, identity);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> zonal::error::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(DeviceError::Medium { lba });
        }
        self.below.read(lba, buffer)?;
        if buffer[..1000].iter().all(|&byte| byte == self.byte) {
            self.refuses.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn read_succeeds_though_access_time_cannot_be_changed() {
    let below = many_files().power_on();
    let (refuses, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let drive = Arc::new(RefusesAfter { below, byte: 101, refuses, refused });
    let options = MountOptions {
        atime: AtimePolicy::Always,
        eviction: Eviction::AtEveryLock,
        memory: ByteCount::new(1),
        ..MountOptions::default()
    };
    let fs = Furrow::mount(drive.clone(), Arc::new(ManualClock::new(2)), options).unwrap();
    let home = fs.lookup(Ino::ROOT, b"directory-3").unwrap().ino;
    let file = fs.lookup(home, b"file-101").unwrap().ino;
    let mut buffer = [0; 5000];
    assert_eq!(fs.read(file, 0, &mut buffer).unwrap(), 5000);
    assert_eq!(buffer, [101; 5000]);
    assert!(drive.refused.load(Ordering::Relaxed) > 0, "its inode was asked for again");
    drive.refuses.store(false, Ordering::Relaxed);
    let before = fs.getattr(file).unwrap().atime;
    fs.read(file, 4500, &mut buffer).unwrap();
    assert_ne!(fs.getattr(file).unwrap().atime, before, "the next read moves the time");
}
