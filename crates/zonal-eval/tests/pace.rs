//! How long writes wait for reclaim on a drive that is nearly full, in virtual time: a call takes
//! as long as the simulated drive needs for its requests. One thread makes all calls, so a run
//! repeats exactly. `SEED` in the environment chooses the writes, `COUNT` how many of them are
//! measured.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
#![allow(clippy::cast_sign_loss, reason = "shares")]

use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::{Clock, Lba, ManualClock, ZoneId, ZonedDevice, repeat};
use zonal_fs::furrow::{self, DataCheck, Furrow, MkfsOptions, MountOptions};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};
use zonal_sim::{Config, SimSsd};

const MIB: u64 = 1 << 20;

/// Percent of the free space that the file takes.
const FULL_PERCENT: u64 = 95;

/// Most bytes that reclaim moves before a write of one block.
const STEP: u64 = 256 << 10;

/// Front ends tick once a second.
const TICK_NS: u64 = 1_000_000_000;

/// 4 dies with 96 zones of 4 MiB.
fn config(seed: u64) -> Config {
    let mut config = Config { seed, ..Config::default() };
    let flash = &mut config.flash;
    (flash.channels, flash.dies_per_channel) = (2, 2);
    (flash.programs_per_block, flash.superblocks) = (11, 96);
    config
}

/// The time to read a zone and write it elsewhere, a megabyte at a time.
fn zone_copy(config: &Config) -> Duration {
    let drive = SimSsd::new(config).unwrap();
    let clock = drive.clock();
    let capacity =
        drive.geometry().bytes(drive.geometry().capacity_of(ZoneId::new(0))).get() as usize;
    let zone = vec![7; capacity];
    for part in zone.chunks(MIB as usize) {
        drive.append(ZoneId::new(0), part).unwrap();
    }
    let start = clock.monotonic_ns();
    let mut read = vec![0; capacity];
    drive.read(Lba::ZERO, &mut read).unwrap();
    for part in read.chunks(MIB as usize) {
        drive.append(ZoneId::new(1), part).unwrap();
    }
    Duration::from_nanos(clock.monotonic_ns() - start)
}

/// A file that is overwritten at random.
struct Overwritten {
    fs: Furrow,
    drive: Arc<SimSsd>,
    clock: Arc<ManualClock>,
    ino: Ino,
    bytes: u64,
    random: ChaCha8Rng,
    ticked_ns: u64,
}

impl Overwritten {
    fn new(config: &Config) -> Self {
        let drive = Arc::new(SimSsd::new(config).unwrap());
        let clock = drive.clock();
        furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let room = fs.statfs().unwrap();
        let bytes = room.blocks_free * u64::from(room.block_size) / 100 * FULL_PERCENT / MIB * MIB;
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        let random = ChaCha8Rng::seed_from_u64(config.seed);
        let mut file = Self { fs, drive, clock, ino, bytes, random, ticked_ns: 0 };
        for megabyte in 0..bytes / MIB {
            file.write(megabyte * MIB, MIB);
        }
        file
    }

    /// Writes, and returns how long that took. The tick of a second comes after it and does not
    /// count.
    fn write(&mut self, at: u64, bytes: u64) -> Duration {
        let data = vec![self.random.random(); bytes as usize];
        let start = self.clock.monotonic_ns();
        self.fs.write(self.ino, at, &data, WriteFlags::DIRECT).unwrap();
        let end = self.clock.monotonic_ns();
        if end - self.ticked_ns >= TICK_NS {
            self.ticked_ns = end;
            self.fs.tick().unwrap();
        }
        Duration::from_nanos(end - start)
    }

    fn overwrite(&mut self, bytes: u64) -> Duration {
        let at = self.random.random_range(0..self.bytes / bytes) * bytes;
        self.write(at, bytes)
    }

    /// Overwrites until reclaim has its pace, then measures.
    fn measure(&mut self, bytes: u64, count: u64) -> Measured {
        for _ in 0..self.bytes / bytes {
            self.overwrite(bytes);
        }
        let (mut times, mut moved) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let before = self.fs.stats().reclaim_bytes;
            times.push(self.overwrite(bytes));
            moved.push(self.fs.stats().reclaim_bytes - before);
        }
        times.sort_unstable();
        Measured { times, moved }
    }
}

/// Times of writes, in order, and bytes that reclaim moved while each of them waited.
struct Measured {
    times: Vec<Duration>,
    moved: Vec<u64>,
}

impl Measured {
    fn quantile(&self, share: f64) -> Duration {
        self.times[(share * (self.times.len() - 1) as f64).ceil() as usize]
    }
}

#[test]
fn write_to_nearly_full_drive_waits_one_reclaim_step() {
    let config = config(repeat::seed(1));
    let copy = zone_copy(&config);
    println!("a zone read and written elsewhere: {copy:.1?}");
    for (bytes, count) in [(4096, 30_000), (MIB, 200)] {
        let mut file = Overwritten::new(&config);
        let found = file.measure(bytes, repeat::count(count));
        let all: u64 = found.moved.iter().sum();
        let moved = all as f64 / (bytes * found.moved.len() as u64) as f64;
        let [p50, p99, p999, longest] = [0.5, 0.99, 0.999, 1.0].map(|share| found.quantile(share));
        print!("{} KiB: {moved:.2} moved for each written; ", bytes >> 10);
        println!("p50 {p50:.2?}, p99 {p99:.2?}, p99.9 {p999:.2?}, longest {longest:.1?}");
        assert!(moved > 1.0, "reclaim has nothing to do: {moved:.2}");
        let most = *found.moved.iter().max().unwrap();
        assert!(bytes > 4096 || most <= STEP, "{most} bytes were moved before one write");
        file.fs.shutdown().unwrap();
        let report = furrow::check(file.drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
