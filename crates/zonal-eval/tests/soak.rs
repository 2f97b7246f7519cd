//! Days of work on a simulated drive, in virtual time: a log that is rotated, a database that is
//! overwritten in place, temporary files with a hint, objects that come and go on a drive that is
//! nearly full, and pauses. The reference tree gets the same operations. After each hour the test
//! mounts the file system again, every second time as after a kill, and everything visible must be
//! as in the reference; at the end the check must be clean.
//!
//! `COUNT` in the environment is the number of simulated minutes, `SEED` chooses the operations.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures of a test"
)]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::{Clock, ManualClock, repeat};
use zonal_fs::furrow::{self, AtimePolicy, DataCheck, Furrow, MkfsOptions, MountOptions, Stats};
use zonal_fs::tree::{Tree, snapshot};
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, NewInode, RenameFlags, Result, SetAttr, SyncKind,
    WriteFlags, XattrMode,
};
use zonal_sim::{Config, SimSsd};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// Percent of the file system's space that files take at most.
const FULL_PERCENT: u64 = 92;

const DATABASE_BYTES: u64 = 24 * MIB;
const LOG_BYTES: u64 = MIB;
const LOGS: u64 = 5;

/// The drive moves the monotonic clock. The wall clock stands still within an operation, so that
/// both file systems store the same times.
struct Time {
    drive: Arc<ManualClock>,
    wall_ns: AtomicI64,
}

impl Clock for Time {
    fn wall_ns(&self) -> i64 {
        self.wall_ns.load(Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.drive.monotonic_ns()
    }
}

/// An object, by its number.
struct Object {
    number: u64,
    bytes: u64,
}

struct Soak {
    drive: Arc<SimSsd>,
    time: Arc<Time>,
    fs: Furrow,
    tree: Tree,
    random: ChaCha8Rng,
    objects: Vec<Object>,
    temporary: Vec<u64>,
    /// Bytes of all objects.
    held: u64,
    /// The next file's number.
    number: u64,
    log_bytes: u64,
    /// Counts of the earlier mounts.
    earlier: Stats,
    longest_ns: u64,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let mut config = Config { seed, ..Config::default() };
        let flash = &mut config.flash;
        (flash.channels, flash.dies_per_channel) = (2, 2);
        (flash.programs_per_block, flash.superblocks) = (11, 96);
        let drive = Arc::new(SimSsd::new(&config).unwrap());
        let time = Arc::new(Time { drive: drive.clock(), wall_ns: AtomicI64::new(1) });
        furrow::mkfs(drive.clone(), &*time, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = mount(&drive, &time);
        let tree = Tree::new(time.clone());
        let mut soak = Self {
            drive,
            time,
            fs,
            tree,
            random: ChaCha8Rng::seed_from_u64(seed),
            objects: Vec::new(),
            temporary: Vec::new(),
            held: 0,
            number: 0,
            log_bytes: 0,
            earlier: Stats::default(),
            longest_ns: 0,
        };
        for name in ["objects", "tmp"] {
            soak.both(|fs| create(fs, Ino::ROOT, name, FileKind::Directory).map(drop));
        }
        // Files that are made there inherit the hint.
        soak.both(|fs| {
            let ino = fs.lookup(Ino::ROOT, b"tmp")?.ino;
            fs.setxattr(&Caller::ROOT, ino, b"user.zonal.lifetime", b"short", XattrMode::Any)
        });
        for name in ["log", "database"] {
            soak.both(|fs| create(fs, Ino::ROOT, name, FileKind::Regular).map(drop));
        }
        for at in (0..DATABASE_BYTES).step_by(MIB as usize) {
            soak.write(Ino::ROOT, "database", at, MIB);
        }
        soak
    }

    /// Does something on both file systems, which answer the same.
    fn both<T: Debug + PartialEq>(
        &mut self,
        operation: impl Fn(&dyn FileSystem) -> Result<T>,
    ) -> T {
        self.time.wall_ns.store(self.time.drive.wall_ns(), Ordering::Relaxed);
        let expected = operation(&self.tree).map_err(|error| error.errno());
        let begin = self.time.monotonic_ns();
        let found = operation(&self.fs);
        self.longest_ns = self.longest_ns.max(self.time.monotonic_ns() - begin);
        let found = found.map_err(|error| error.errno());
        assert_eq!(found, expected, "{:?}", self.fs.live().blocks);
        found.unwrap()
    }

    /// A directory below the root, on both.
    fn in_directory<T: Debug + PartialEq>(
        &mut self,
        directory: &str,
        operation: impl Fn(&dyn FileSystem, Ino) -> Result<T>,
    ) -> T {
        self.both(|fs| operation(fs, fs.lookup(Ino::ROOT, directory.as_bytes())?.ino))
    }

    /// Writes random data to a file.
    fn write(&mut self, parent: Ino, name: &str, at: u64, bytes: u64) {
        let data = self.data(bytes);
        self.both(|fs| {
            let ino = fs.lookup(parent, name.as_bytes())?.ino;
            fs.write(ino, at, &data, WriteFlags::empty()).map(drop)
        });
    }

    fn data(&mut self, bytes: u64) -> Vec<u8> {
        let word: [u8; 8] = self.random.random();
        word.into_iter().cycle().take(bytes as usize).collect()
    }

    fn sync(&mut self, name: &str) {
        self.both(|fs| fs.fsync(fs.lookup(Ino::ROOT, name.as_bytes())?.ino, SyncKind::Data));
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.random_range(0..limit)
    }

    /// Appends to the log, and begins another one when it is long.
    fn log(&mut self) {
        let bytes = 100 + self.below(32 * KIB);
        self.write(Ino::ROOT, "log", self.log_bytes, bytes);
        self.sync("log");
        self.log_bytes += bytes;
        if self.log_bytes < LOG_BYTES {
            return;
        }
        self.log_bytes = 0;
        for age in (0..LOGS).rev() {
            let older = format!("log.{}", age + 1);
            let younger = if age == 0 { "log".to_owned() } else { format!("log.{age}") };
            let [older, younger] = [older.as_bytes(), younger.as_bytes()];
            let is_there = self.tree.lookup(Ino::ROOT, younger).is_ok();
            if is_there {
                let names = ((Ino::ROOT, younger), (Ino::ROOT, older));
                self.both(|fs| fs.rename(names.0, names.1, RenameFlags::empty()));
            }
        }
        self.both(|fs| create(fs, Ino::ROOT, "log", FileKind::Regular).map(drop));
    }

    /// Overwrites blocks, some of them far more often than others.
    fn database(&mut self) {
        for _ in 0..=self.below(12) {
            let octave = self.below(u64::from((DATABASE_BYTES / 4096).ilog2()) + 1);
            let block = ((1 << octave) + self.below(1 << octave)) * 2731 % (DATABASE_BYTES / 4096);
            self.write(Ino::ROOT, "database", block * 4096, 4096);
        }
        self.sync("database");
    }

    /// Makes files that are soon gone, empties a part of one, cuts one off.
    fn temporary(&mut self) {
        let (number, bytes) = (self.next(), 1 + self.below(200 * KIB));
        let (name, data) = (number.to_string(), self.data(bytes));
        self.in_directory("tmp", |fs, tmp| {
            let ino = create(fs, tmp, &name, FileKind::Regular)?;
            fs.write(ino, 0, &data, WriteFlags::empty()).map(drop)
        });
        self.temporary.push(number);
        let (hole, kept) = (self.below(bytes), self.below(bytes));
        self.in_directory("tmp", |fs, tmp| {
            let ino = fs.lookup(tmp, name.as_bytes())?.ino;
            fs.fallocate(ino, Allocate::Punch, hole, 64 * KIB)?;
            let set = SetAttr { size: Some(kept), ..SetAttr::default() };
            fs.setattr(&Caller::ROOT, ino, &set).map(drop)
        });
        if self.temporary.len() > 20 {
            let chosen = self.below(self.temporary.len() as u64) as usize;
            let name = self.temporary.swap_remove(chosen).to_string();
            self.in_directory("tmp", |fs, tmp| fs.unlink(tmp, name.as_bytes()));
        }
    }

    /// Makes an object, and deletes others where there is no room for it.
    fn object(&mut self) {
        let octave = (16 * KIB) << self.below(7);
        let bytes = octave + self.below(octave);
        let room = self.fs.statfs().unwrap();
        let all = room.blocks * u64::from(room.block_size) / 100 * FULL_PERCENT;
        let others = DATABASE_BYTES + (LOGS + 1) * (LOG_BYTES + 64 * KIB) + 21 * 200 * KIB;
        while self.held + bytes + others > all {
            let chosen = self.below(self.objects.len() as u64) as usize;
            let gone = self.objects.swap_remove(chosen);
            self.held -= gone.bytes.next_multiple_of(4096);
            let name = gone.number.to_string();
            self.in_directory("objects", |fs, objects| fs.unlink(objects, name.as_bytes()));
        }
        let (number, data) = (self.next(), self.data(bytes));
        let name = number.to_string();
        self.in_directory("objects", |fs, objects| {
            let ino = create(fs, objects, &name, FileKind::Regular)?;
            for (at, part) in (0..).step_by(128 << 10).zip(data.chunks(128 << 10)) {
                fs.write(ino, at, part, WriteFlags::empty())?;
            }
            Ok(())
        });
        self.objects.push(Object { number, bytes });
        self.held += bytes.next_multiple_of(4096);
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The operations of a minute: many in two of three minutes, few in the third, with pauses
    /// between.
    fn minute(&mut self, minute: u64) {
        let end = self.time.monotonic_ns() + 60 * SECOND_NS;
        let often = if minute % 3 == 2 { 10 * SECOND_NS } else { SECOND_NS / 2 };
        while self.time.monotonic_ns() < end {
            match self.below(8) {
                0 | 1 => self.log(),
                2..=4 => self.database(),
                5 => self.temporary(),
                _ => self.object(),
            }
            let pause = self.below(2 * often);
            let ticks = pause / SECOND_NS;
            for _ in 0..ticks {
                self.time.drive.advance_ns(SECOND_NS);
                self.fs.tick().unwrap();
            }
            self.time.drive.advance_ns(pause % SECOND_NS);
            if ticks == 0 && self.below(2) == 0 {
                self.fs.tick().unwrap();
            }
        }
    }

    /// Mounts the file system again: after an unmount, or as after a kill. Everything must be as in
    /// the reference.
    fn again(&mut self, hour: u64) {
        self.fs.sync().unwrap();
        self.note();
        if hour.is_multiple_of(2) {
            self.fs.shutdown().unwrap();
        }
        // The assignment drops the old file system once the new one is mounted.
        self.fs = {
            let idle = Arc::clone(&self.drive);
            let time = Arc::clone(&self.time);
            mount(&idle, &time)
        };
        let [found, expected] = [snapshot(&self.fs), snapshot(&self.tree)].map(Result::unwrap);
        assert_eq!(found.first_difference(&expected), None, "after {hour} hours");
    }

    /// Adds the counts of the mount.
    fn note(&mut self) {
        let now = self.fs.stats();
        self.earlier.user_bytes += now.user_bytes;
        self.earlier.reclaim_bytes += now.reclaim_bytes;
        self.earlier.meta_bytes += now.meta_bytes;
        self.earlier.resets += now.resets;
    }
}

fn mount(drive: &Arc<SimSsd>, time: &Arc<Time>) -> Furrow {
    let options = MountOptions { atime: AtimePolicy::Never, ..MountOptions::default() };
    Furrow::mount(drive.clone(), time.clone(), options).unwrap()
}

fn create(fs: &dyn FileSystem, parent: Ino, name: &str, kind: FileKind) -> Result<Ino> {
    let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
    Ok(fs.create(&Caller::ROOT, parent, name.as_bytes(), &new)?.ino)
}

fn soak(minutes: u64) {
    let (seed, minutes) = (repeat::seed(13), repeat::count(minutes));
    let mut soak = Soak::new(seed);
    for minute in 0..minutes {
        soak.minute(minute);
        if minute % 60 == 59 || minute + 1 == minutes {
            soak.again(minute / 60);
        }
    }
    let Stats { user_bytes, reclaim_bytes, meta_bytes, resets, .. } = soak.earlier;
    let account = soak.drive.account();
    println!(
        "{minutes} minutes: {} MiB of files, moved {:.2} of that, metadata {:.3}, {resets} zones reset, erased {} to {} times; \
         longest call {} ms",
        user_bytes >> 20,
        reclaim_bytes as f64 / user_bytes as f64,
        meta_bytes as f64 / user_bytes as f64,
        account.erases_min,
        account.erases_max,
        soak.longest_ns / 1_000_000,
    );
    assert!(reclaim_bytes > 0 || minutes < 10, "reclaim had nothing to do");
    soak.fs.shutdown().unwrap();
    let report = furrow::check(soak.drive, DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn soak_half_hour_ends_as_in_reference() {
    soak(30);
}

#[test]
#[ignore = "takes three minutes in a release build; run by cargo xtask test --soak"]
fn soak_two_days_end_as_in_reference() {
    soak(2 * 24 * 60);
}
