//! The bytes that a mount counts for cached metadata bound the memory that it really takes.
//!
//! For each kind of metadata the test makes a drive with much of it. Another process mounts the
//! drive, reads all of it, and reports the growth of the count and of its resident size. In this
//! process, the allocator would hand out again memory that other code has freed.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stdout, reason = "the figures are a part of the result")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::{ByteCount, GeometrySpec, ManualClock, Rules};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{AtimePolicy, Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::{Allocate, Caller, FileKind, FileSystem, Ino, NewInode, XattrMode};

/// The drive that the other process reads; the name of its file is a kind.
const DRIVE: &str = "ZONAL_MEMORY_DRIVE";

/// Resident bytes per counted byte, at most: a mount leaves a sixth of its memory unused, for what
/// the allocator loses between allocations.
const LOST: (u64, u64) = (6, 5);

/// Bytes that a mount takes in addition to the counted ones.
const FIXED: u64 = 3 << 20;

/// A kind of metadata: how much of it is made, and how it is read again.
struct Kind {
    name: &'static str,
    /// A name in the root.
    first: &'static str,
    make: fn(&Furrow),
    read: fn(&Furrow),
}

const KINDS: [Kind; 5] = [
    Kind { name: "files", first: "d0", make: make_files, read: read_files },
    Kind {
        name: "small directories",
        first: "name-0",
        make: make_directories,
        read: read_directories,
    },
    Kind { name: "symbolic links", first: "d0", make: make_links, read: read_links },
    Kind { name: "attributes", first: "d0", make: make_attributes, read: read_attributes },
    Kind { name: "extents of a file", first: "file", make: make_extents, read: read_extents },
];

/// Of each kind about.
const COUNT: u64 = 50_000;

fn mount(path: &Path) -> Furrow {
    let drive = Arc::new(FileDrive::open(path, OpenMode::ReadWrite).unwrap());
    // Nothing is evicted.
    let (memory, atime) = (ByteCount::new(1 << 30), AtimePolicy::Never);
    let options = MountOptions { memory, atime, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(ManualClock::new(0)), options).unwrap()
}

fn create(fs: &Furrow, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let target: &[u8] = if kind == FileKind::Symlink { &[b't'; 60] } else { b"" };
    let new = NewInode { kind, perm: 0o755, rdev: 0, target };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).unwrap().ino
}

fn find(fs: &Furrow, parent: Ino, name: &str) -> Ino {
    fs.lookup(parent, name.as_bytes()).unwrap().ino
}

/// Makes a number of inodes in directories of a thousand.
fn make_many(fs: &Furrow, count: u64, kind: FileKind) {
    let mut home = Ino::ROOT;
    for number in 0..count {
        if number.is_multiple_of(1000) {
            home = create(fs, Ino::ROOT, &format!("d{}", number / 1000), FileKind::Directory);
            fs.sync().unwrap();
        }
        create(fs, home, &format!("name-{number}"), kind);
    }
}

/// Finds them again, one by one.
fn each_of_many(fs: &Furrow, count: u64, mut each: impl FnMut(Ino)) {
    for number in 0..count {
        let home = find(fs, Ino::ROOT, &format!("d{}", number / 1000));
        each(find(fs, home, &format!("name-{number}")));
    }
}

fn make_files(fs: &Furrow) {
    make_many(fs, COUNT, FileKind::Regular);
}

fn read_files(fs: &Furrow) {
    each_of_many(fs, COUNT, |_| ());
}

fn make_links(fs: &Furrow) {
    make_many(fs, COUNT, FileKind::Symlink);
}

fn read_links(fs: &Furrow) {
    each_of_many(fs, COUNT, |link| assert_eq!(fs.readlink(link).unwrap().len(), 60));
}

fn make_directories(fs: &Furrow) {
    for number in 0..COUNT / 5 {
        let home = create(fs, Ino::ROOT, &format!("name-{number}"), FileKind::Directory);
        create(fs, home, "first", FileKind::Fifo);
        create(fs, home, "second", FileKind::Fifo);
    }
}

fn read_directories(fs: &Furrow) {
    for number in 0..COUNT / 5 {
        let home = find(fs, Ino::ROOT, &format!("name-{number}"));
        find(fs, home, "first");
        find(fs, home, "second");
    }
}

fn make_attributes(fs: &Furrow) {
    make_many(fs, COUNT / 5, FileKind::Regular);
    each_of_many(fs, COUNT / 5, |file| {
        for number in 0..10 {
            let name = format!("user.attribute-{number}");
            let value = [number; 20];
            fs.setxattr(&Caller::ROOT, file, name.as_bytes(), &value, XattrMode::Any).unwrap();
        }
    });
}

fn read_attributes(fs: &Furrow) {
    each_of_many(fs, COUNT / 5, |file| {
        assert_eq!(fs.getxattr(file, b"user.attribute-3").unwrap(), [3; 20]);
    });
}

/// Allocates every other block of a file: each is an entry of its map.
fn make_extents(fs: &Furrow) {
    let file = create(fs, Ino::ROOT, "file", FileKind::Regular);
    for number in 0..4 * COUNT {
        fs.fallocate(file, Allocate::Extend, number * 8192, 4096).unwrap();
    }
}

fn read_extents(fs: &Furrow) {
    let file = find(fs, Ino::ROOT, "file");
    for number in 0..4 * COUNT {
        assert_eq!(fs.read(file, number * 8192, &mut [1]).unwrap(), 1);
    }
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Reads a drive in the other process, and prints the growth of the count and of the resident size.
fn measure(path: &Path) {
    let kind = path.file_name().unwrap().to_str().unwrap();
    let kind = KINDS.iter().find(|other| other.name == kind).unwrap();
    let fs = mount(path);
    // The first look loads metadata that every mount needs.
    find(&fs, Ino::ROOT, kind.first);
    let taken = || (fs.stats().held_bytes + fs.stats().cache_bytes, resident());
    let before = taken();
    (kind.read)(&fs);
    let after = taken();
    println!("counted {} resident {} end", after.0 - before.0, after.1 - before.1);
}

/// Makes a drive of a kind and lets another process read it: the counted and the resident bytes.
fn of_kind(kind: &Kind) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(kind.name);
    let options = CreateOptions {
        geometry: GeometrySpec { max_open: None, max_active: None, ..shape(512, 1024) },
        rules: Rules::Zns,
        uuid: [7; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(&path, &options).unwrap();
    let drive = Arc::new(FileDrive::open(&path, OpenMode::ReadWrite).unwrap());
    mkfs(drive, &ManualClock::new(0), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(&path);
    (kind.make)(&fs);
    fs.shutdown().unwrap();
    drop(fs);
    let mut reads = Command::new(std::env::current_exe().unwrap());
    reads.args(["--exact", "memory_counted_bounds_resident_size", "--nocapture"]);
    let output = reads.env(DRIVE, &path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |name: &str| {
        let at = words.windows(2).find(|pair| pair[0] == name).unwrap();
        at[1].parse().unwrap()
    };
    (number("counted"), number("resident"))
}

#[test]
fn memory_counted_bounds_resident_size() {
    if let Some(path) = std::env::var_os(DRIVE) {
        return measure(Path::new(&path));
    }
    for kind in &KINDS {
        let (counted, resident) = of_kind(kind);
        let percent = 100 * resident / counted.max(1);
        println!("{}: {counted} counted, {resident} resident, {percent} %", kind.name);
        let bound = counted * LOST.0 / LOST.1 + FIXED;
        assert!(counted > 5 * FIXED, "{}: {counted} bytes are too few to tell", kind.name);
        assert!(
            resident <= bound,
            "{}: {resident} bytes are resident, {counted} counted",
            kind.name
        );
        assert!(counted <= 2 * resident, "{}: {counted} counted, {resident} resident", kind.name);
    }
}
