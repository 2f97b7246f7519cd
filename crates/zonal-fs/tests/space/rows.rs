//! Drives that are filled with metadata alone, of each kind. Once all of it is deleted they hold as
//! much as before.

use std::sync::Arc;

use zonal::{ByteCount, GeometrySpec, ManualClock, MemoryDrive, repeat};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, Work, mkfs};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, Result, WriteFlags, XattrMode};

use super::{BLOCK, Dice, assert_clean, shape, steps};

/// The objects that fill a drive.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Extended attributes of this many bytes, fifteen for each file.
    Xattrs(usize),
    /// Empty files with the longest names.
    LongNames,
    /// Empty files.
    Files,
    /// Symbolic links to something long.
    Symlinks,
    /// Directories, each in the one before or next to it.
    Directories,
    /// More names of a file.
    Links,
}

const KINDS: [Kind; 6] = [
    Kind::Xattrs(2000),
    Kind::LongNames,
    Kind::Files,
    Kind::Symlinks,
    Kind::Directories,
    Kind::Links,
];

/// Attributes of a file.
const XATTRS: u64 = 15;

/// Operations between two ticks, as a worker would do them.
const TICK: u64 = 512;

/// A drive's shape, by a seed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    zones: u64,
    zone_blocks: u64,
    active: u32,
    /// Whether the test ticks, as a thread in the background would.
    ticks: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut dice = Dice(seed);
        Self {
            zones: 24 + dice.below(16),
            zone_blocks: 64 + dice.below(64),
            active: [4, 5, 8, 14][usize::try_from(dice.below(4)).unwrap()],
            ticks: dice.below(2) == 0,
        }
    }

    fn format(&self) -> (Arc<MemoryDrive>, Furrow) {
        let limits = GeometrySpec {
            max_open: Some(self.active),
            max_active: Some(self.active),
            ..shape(self.zones, self.zone_blocks)
        };
        let drive = Arc::new(MemoryDrive::new(limits).unwrap());
        mkfs(drive.clone(), &ManualClock::new(0), &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = mount(&drive);
        (drive, fs)
    }
}

fn mount(drive: &Arc<MemoryDrive>) -> Furrow {
    let options = MountOptions { memory: ByteCount::new(64 << 20), ..MountOptions::default() };
    Furrow::mount(drive.clone(), Arc::new(ManualClock::new(1)), options).unwrap()
}

fn new(kind: FileKind, target: &[u8]) -> NewInode<'_> {
    NewInode { kind, perm: 0o755, rdev: 0, target }
}

/// A value that does not become shorter.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut dice = Dice(seed);
    (0..bytes).map(|_| u8::try_from(dice.below(256)).unwrap()).collect()
}

fn name(number: u64) -> Vec<u8> {
    format!("{number}").into_bytes()
}

fn long_name(number: u64) -> Vec<u8> {
    let mut name = name(number);
    name.extend(noise(number, 255 - name.len()).into_iter().map(|byte| b'a' + byte % 26));
    name
}

impl Kind {
    /// Adds the next one.
    fn add(self, fs: &Furrow, number: u64) -> Result<()> {
        let create = |name: &[u8], new: &NewInode<'_>| {
            fs.create(&Caller::ROOT, Ino::ROOT, name, new).map(|attr| attr.ino)
        };
        match self {
            Self::Xattrs(bytes) => {
                let file = name(number / XATTRS);
                if number.is_multiple_of(XATTRS) {
                    create(&file, &new(FileKind::Regular, b""))?;
                }
                let ino = fs.lookup(Ino::ROOT, &file)?.ino;
                let key = format!("user.{}", number % XATTRS);
                let value = noise(number, bytes);
                fs.setxattr(&Caller::ROOT, ino, key.as_bytes(), &value, XattrMode::Any)
            }
            Self::LongNames => create(&long_name(number), &new(FileKind::Regular, b"")).map(drop),
            Self::Files => create(&name(number), &new(FileKind::Regular, b"")).map(drop),
            Self::Symlinks => {
                let target = noise(number, 1000).into_iter().map(|byte| b'a' + byte % 26);
                let target: Vec<u8> = target.collect();
                create(&name(number), &new(FileKind::Symlink, &target)).map(drop)
            }
            Self::Directories => create(&name(number), &new(FileKind::Directory, b"")).map(drop),
            Self::Links => {
                if number == 0 {
                    return create(b"0", &new(FileKind::Regular, b"")).map(drop);
                }
                let ino = fs.lookup(Ino::ROOT, b"0")?.ino;
                fs.link(ino, Ino::ROOT, &long_name(number)).map(drop)
            }
        }
    }

    /// Deletes the one of this number, with all that it has.
    fn delete(self, fs: &Furrow, number: u64) -> Result<()> {
        match self {
            Self::Xattrs(_) if number.is_multiple_of(XATTRS) => {
                fs.unlink(Ino::ROOT, &name(number / XATTRS))
            }
            Self::Xattrs(_) => Ok(()),
            Self::Files | Self::Symlinks => fs.unlink(Ino::ROOT, &name(number)),
            Self::Directories => fs.rmdir(Ino::ROOT, &name(number)),
            Self::Links if number == 0 => fs.unlink(Ino::ROOT, b"0"),
            Self::LongNames | Self::Links => fs.unlink(Ino::ROOT, &long_name(number)),
        }
    }
}

/// The result of a call that a drive with space must not refuse.
fn must<T>(at: &str, what: &str, outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{at}: {what}: {error}"))
}

/// Fills a drive with `kind` until it is full, deletes everything, and fills it with data.
fn fill_and_empty(seed: u64, plan: Plan, kind: Kind) {
    let (drive, mut fs) = plan.format();
    let at = format!("SEED={seed} {plan:?}, {kind:?}");
    let free = fs.statfs().unwrap().blocks_free;
    let mut count = 0;
    let refused = loop {
        match kind.add(&fs, count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        if plan.ticks && count.is_multiple_of(TICK) {
            must(&at, "a tick while it is filled", fs.tick());
        }
    };
    assert!(matches!(refused, FsError::NoSpace), "{at}: {refused}");
    must(&at, "sync of the full drive", fs.sync());
    if seed % 2 == 1 {
        must(&at, "unmount of the full drive", fs.shutdown());
        drop(fs);
        fs = mount(&drive);
    }
    // An attribute or two may be without effect.
    for number in 0..=count {
        match kind.delete(&fs, number) {
            Err(FsError::NotFound) if number == count => {}
            outcome => must(&at, "deleting", outcome),
        }
        if plan.ticks && number.is_multiple_of(TICK) {
            must(&at, "a tick while it is emptied", fs.tick());
        }
    }
    steps::finish(&fs, Work::Truncate);
    must(&at, "sync of the empty drive", fs.sync());
    must(&at, "a tick of the empty drive", fs.tick());
    let now = fs.statfs().unwrap().blocks_free;
    assert!(now + free / 100 + 16 > free, "{at}: {now} blocks of {free}");
    let file = fs.create(&Caller::ROOT, Ino::ROOT, b"data", &new(FileKind::Regular, b""));
    let file = must(&at, "create", file).ino;
    let data = vec![1; 16 * 4096];
    let mut written = 0;
    while fs.write(file, written * BLOCK, &data, WriteFlags::empty()).is_ok() {
        written += 16;
    }
    assert!(written + 16 + now / 50 > now, "{at}: {written} of {now}");
    must(&at, "unmount", fs.shutdown());
    drop(fs);
    assert_clean(drive);
    println!("{plan:?}, {kind:?}: {count} of it, then {written} blocks of {now}");
}

fn fill_drives(default: u64) {
    let (seed, count) = (repeat::seed(1), repeat::count(default));
    for seed in seed..seed + count {
        let kind = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
        fill_and_empty(seed, Plan::of(seed), kind);
    }
}

#[test]
fn metadata_full_drive_empties_and_takes_data() {
    fill_drives(6);
}

#[test]
#[ignore = "takes many minutes; run by cargo xtask test --soak"]
fn metadata_full_drives_of_many_kinds_empty() {
    fill_drives(120);
    let plan = Plan { zones: 96, zone_blocks: 1024, active: 14, ticks: true };
    for kind in KINDS {
        fill_and_empty(0, plan, kind);
    }
}
