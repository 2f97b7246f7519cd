//! A disk of Furrow in its steady state: the bench writes single blocks at random, ten times the
//! capacity of the drive, and measures the second half. How many bytes does the drive get for each
//! byte of the disk, and how long do writes take?
//!
//! Run it with `cargo bench -p zonal-eval --bench disk`; words after `--` choose subjects by part
//! of their name, and `--percent N` is the share of the space for files that the disk takes.
//!
//! | subject | drive | time |
//! | --- | --- | --- |
//! | `disk-steady` | in memory | the machine's; a thread works in the background, as for a server |
//! | `disk-simulated` | a simulated ZN540 with smaller zones | virtual: only the drive takes any |
//!
//! In virtual time one thread does all the work, so a write that begins a commit or reclaim takes
//! as long as that.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::env;
use std::sync::Arc;

use bench_support::{Machine, Report};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use zonal::disk::{Disk, Durability};
use zonal::layer::meter::{Meter, OpKind};
use zonal::{
    ByteCount, Clock, GeometrySpec, Lba, LbaCount, MemoryDrive, Profile, ZoneId, ZonedDevice,
};
use zonal_fs::disk::{DiskSettings, Disks, FurrowDisk};
use zonal_fs::furrow::{AtimePolicy, Furrow, MkfsOptions, MountOptions, Stats, mkfs};
use zonal_fs::vfs::FileSystem;
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};
use zonal_sim::preset::Preset;
use zonal_sim::{Config, SimSsd, Size, theory};

const BLOCK: u64 = 4096;
const BLOCK_BYTES: usize = 4096;

/// Writes between two ticks, where no thread works in the background.
const TICK: u64 = 100;

/// Zones of the drive in memory, and MiB of each.
const IN_MEMORY: (u64, u64) = (1024, 2);

/// Programs of a die that fill an erase block of the simulated drive: its zones have 3 MiB.
const PROGRAMS: u32 = 1;

/// Random writes in all, in capacities of the drive.
const TURNS: u64 = 10;

const SKEW: f64 = 0.99;

/// The choice of blocks to write, and how full the disk makes the drive.
#[derive(Clone, Copy)]
struct Load {
    skew: Option<f64>,
    percent: u64,
}

impl Load {
    fn all(percent: Option<u64>) -> Vec<Self> {
        let percents = percent.map_or(vec![80, 95], |percent| vec![percent]);
        let of = |percent| [None, Some(SKEW)].map(|skew| Self { skew, percent });
        percents.into_iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        let Self { skew, percent } = self;
        let which = skew.map_or("uniform".to_owned(), |skew| format!("Zipf {skew}"));
        format!("{which}, {percent} %")
    }

    /// The least bytes written for each byte of data, where `live` is the live share of its zones.
    fn limit(self, live: f64, blocks: u64) -> f64 {
        let spare = 1.0 / live - 1.0;
        match self.skew {
            None => theory::fifo(spare),
            Some(skew) => {
                let blocks = u32::try_from(blocks).expect("a small disk");
                theory::separated(spare, &theory::zipf(blocks, skew))
            }
        }
    }
}

/// Measures a load on a drive.
type Measure = fn(Load, &mut Report);

fn main() {
    let mut arguments = env::args().skip(1).collect();
    let mut report = Report::begin("cargo bench -p zonal-eval --bench disk", &mut arguments);
    let at = arguments.iter().position(|argument| argument == "--percent");
    let percent = at.map(|at| {
        let number = arguments.drain(at..).nth(1).expect("--percent needs a number");
        number.parse().expect("--percent needs a number")
    });
    let subjects: [(&str, Measure); 2] =
        [("disk-steady", in_memory), ("disk-simulated", simulated)];
    for (name, measure) in subjects {
        if arguments.is_empty() || arguments.iter().any(|word| name.contains(word.as_str())) {
            report.subject(name, 1);
            for load in Load::all(percent) {
                measure(load, &mut report);
            }
        }
    }
    report.end();
}

/// Measures a load on a drive in memory.
fn in_memory(load: Load, report: &mut Report) {
    let (zones, mib) = IN_MEMORY;
    let zone_size = LbaCount::new(mib << 8);
    let shape = GeometrySpec {
        block_count: LbaCount::new(zones * zone_size.get()),
        zone_size,
        zone_capacity: zone_size,
        max_active: Some(14),
        ..Profile::Zns.geometry()
    };
    let drive = MemoryDrive::new(shape).expect("a possible shape");
    let clock: Arc<dyn Clock> = Arc::new(Machine);
    let drive = Arc::new(Meter::new(drive, Arc::clone(&clock)));
    measure(&drive, Time { clock, upkeep: Upkeep::Thread }, load, report);
}

/// Measures a load on a simulated ZN540 with smaller zones.
fn simulated(load: Load, report: &mut Report) {
    let drive = SimSsd::new(&config()).expect("a possible drive");
    let clock: Arc<dyn Clock> = drive.clock();
    let drive = Arc::new(Meter::new(drive, Arc::clone(&clock)));
    measure(&drive, Time { clock, upkeep: Upkeep::Caller }, load, report);
}

/// The preset `zn540` with zones so much smaller, and resets that take proportionally less time.
fn config() -> Config {
    let preset = Preset::find("zn540").expect("a preset");
    let mut config = Config::parse(preset.text).expect("a right one").shrunk(PROGRAMS);
    config.drive.unit = Size(BLOCK);
    // The next power of two: the zones have gaps.
    config.zones.size = Size(0);
    config
}

/// The clock of a run, and the thread that works in the background.
struct Time {
    clock: Arc<dyn Clock>,
    upkeep: Upkeep,
}

/// A disk, its file system and its clock.
struct Subject {
    fs: Arc<Furrow>,
    disks: Disks,
    disk: Arc<FurrowDisk>,
    blocks: u64,
    time: Time,
    /// Blocks written so far, so that each has a content of its own.
    written: u64,
}

impl Subject {
    /// Formats a device and makes a thick disk that fills a share of it.
    fn new(device: Arc<dyn ZonedDevice>, percent: u64, time: Time) -> Self {
        let format = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
        mkfs(device.clone(), &*time.clock, &format, &mut |_| ()).expect("formatted");
        let options = MountOptions { atime: AtimePolicy::Never, ..MountOptions::default() };
        let fs = Arc::new(Furrow::mount(device, time.clock.clone(), options).expect("mounted"));
        let blocks = fs.statfs().expect("it says").blocks_free * percent / 100;
        let options = VolumeOptions { upkeep: time.upkeep, ..VolumeOptions::default() };
        let volume = Volume::new(Arc::clone(&fs) as Arc<dyn FileSystem>, &options);
        let disks = Disks::new(volume).expect("Furrow has disks");
        let name = "disk".parse().expect("a name of a disk");
        let size = ByteCount::new(blocks * BLOCK);
        disks.create(&name, size, DiskSettings::default()).expect("it fits");
        let disk = disks.open(&name).expect("it was made");
        Self { fs, disks, disk, blocks, time, written: 0 }
    }

    fn write(&mut self, block: u64) {
        self.written += 1;
        let mut data = [0; BLOCK_BYTES];
        data.as_chunks_mut::<8>().0.fill(self.written.to_le_bytes());
        self.disk.write(Lba::new(block), &data, Durability::Later).expect("written");
        if self.time.upkeep == Upkeep::Caller && self.written.is_multiple_of(TICK) {
            self.fs.tick().expect("work in the background");
        }
    }

    /// Writes blocks, and returns how long each took, in nanoseconds, sorted.
    fn write_all(&mut self, blocks: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut times = Vec::new();
        for block in blocks {
            let start = self.time.clock.monotonic_ns();
            self.write(block);
            times.push(self.time.clock.monotonic_ns() - start);
        }
        times.sort_unstable();
        times
    }

    fn flush(&self) {
        self.disk.flush().expect("flushed");
    }

    fn close(self) {
        drop(self.disk);
        self.disks.close().expect("closed");
    }
}

/// The time that a share of the calls do not exceed, in µs.
fn quantile_us(times: &[u64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = (times.len() as f64 * share) as usize;
    times[at.min(times.len() - 1)] as f64 / 1e3
}

/// A block. Hot blocks lie anywhere on the disk.
fn block_of(load: Load, blocks: u64, dice: &mut ChaCha8Rng) -> u64 {
    match load.skew {
        None => dice.random_range(0..blocks),
        Some(skew) => {
            let rank = Zipf::new(blocks as f64, skew).expect("a law").sample(dice);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
            let rank = rank as u64;
            rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks
        }
    }
}

/// Counts at the begin of the measured half.
struct Counts {
    /// Bytes that the drive has taken.
    drive: u64,
    stats: Stats,
}

fn measure<D: ZonedDevice + 'static>(
    drive: &Arc<Meter<D>>,
    time: Time,
    load: Load,
    report: &mut Report,
) {
    let geometry = drive.geometry();
    let all: u64 = geometry.zones().map(|zone| geometry.capacity_of(zone).get()).sum();
    let zone_blocks = geometry.capacity_of(ZoneId::new(0)).get();
    let mut subject = Subject::new(Arc::clone(drive) as _, load.percent, time);
    let blocks = subject.blocks;
    subject.write_all(0..blocks);
    let mut dice = ChaCha8Rng::seed_from_u64(5);
    let writes = TURNS * all / 2;
    subject.write_all((0..writes).map(|_| block_of(load, blocks, &mut dice)));
    let count = |subject: &Subject| {
        subject.flush();
        let bytes = |kind| drive.counters().of(kind).bytes.get();
        let drive = bytes(OpKind::Write) + bytes(OpKind::Append);
        Counts { drive, stats: subject.fs.stats() }
    };
    let before = count(&subject);
    let times = subject.write_all((0..writes).map(|_| block_of(load, blocks, &mut dice)));
    let after = count(&subject);

    let name = load.name();
    let mut push = |figure: &str, unit: &str, value: f64| {
        report.add_variant((figure, &name), unit, &[value]);
    };
    let for_data = all - after.stats.zones_metadata * zone_blocks;
    let live = blocks as f64 / for_data as f64;
    let placed = (after.stats.user_bytes - before.stats.user_bytes) as f64;
    let moved = (after.stats.reclaim_bytes - before.stats.reclaim_bytes) as f64;
    let (data, limit) = ((placed + moved) / placed, load.limit(live, blocks));
    let written = (writes * BLOCK) as f64;
    let to_drive = (after.drive - before.drive) as f64;
    push("share of the drive that lives", "ratio", blocks as f64 / all as f64);
    push("share of its zones for data that lives", "ratio", live);
    push("bytes to the drive for each to the disk", "ratio", to_drive / written);
    push("data placed and moved for each placed", "ratio", data);
    push("limit of that at this share", "ratio", limit);
    push("of the limit", "ratio", data / limit);
    for (share, word) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "longest")] {
        push(word, "µs", quantile_us(&times, share));
    }
    subject.close();
}
