//! A disk in its steady state: ten turns of a drive in single blocks at random, the second half
//! measured. How much more than the disk's bytes does the drive get, and how long do writes take?
//!
//! On a drive in memory, time is the machine's, and a thread works in the background as for a
//! server. On a simulated drive time is virtual: only the drive takes any. One thread does all the
//! work, so a write that begins a commit or reclaim takes as long as that.

use std::sync::Arc;

use bench_support::{Machine, Report};
use zonal::layer::meter::{Meter, OpKind};
use zonal::{ZoneId, ZonedDevice};
use zonal_fs::furrow::Stats;
use zonal_fs::vfs::FileSystem;
use zonal_fs::volume::Upkeep;
use zonal_sim::preset::Preset;
use zonal_sim::{Config, SimSsd, Size, theory};

use crate::Args;
use crate::disk::{Setup, Subject, TICK, memory_drive};
use crate::metadata::Zipf;
use crate::report::Latencies;
use crate::volume::{BLOCK, Dice};

/// Zones of the drive in memory, and MiB of each.
const IN_MEMORY: (u64, u64) = (1024, 2);

/// Programs of a die that fill an erase block of the simulated drive: its zones have 3 MiB.
const PROGRAMS: u32 = 1;

/// Turns of a drive that are written.
const TURNS: u64 = 10;

const SKEW: f64 = 0.99;

/// Which blocks are written, and how full the disk makes the drive.
#[derive(Clone, Copy)]
struct Load {
    skew: Option<f64>,
    percent: u64,
}

impl Load {
    fn all(args: &Args) -> Vec<Self> {
        let percents = args.percent.map_or(vec![80, 95], |percent| vec![percent]);
        let of = |percent| [None, Some(SKEW)].map(|skew| Self { skew, percent });
        percents.into_iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        let Self { skew, percent } = self;
        let which = skew.map_or("uniform".to_owned(), |skew| format!("Zipf {skew}"));
        format!("{which}, {percent} %")
    }

    /// Bytes written for each byte, at best, where this share of the zones lives.
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

/// On a drive in memory.
pub(crate) fn in_memory(args: &Args, report: &mut Report) {
    for load in Load::all(args) {
        let (zones, mib) = IN_MEMORY;
        let drive = Meter::new(memory_drive(zones, mib), Arc::new(Machine));
        measure(&Arc::new(drive), &Setup::default(), load, report);
    }
}

/// On a simulated ZN540 with smaller zones.
pub(crate) fn simulated(args: &Args, report: &mut Report) {
    for load in Load::all(args) {
        let drive = SimSsd::new(&config()).expect("a possible drive");
        let clock = drive.clock();
        let setup = Setup { upkeep: Upkeep::Caller, clock: clock.clone(), ..Setup::default() };
        measure(&Arc::new(Meter::new(drive, clock)), &setup, load, report);
    }
}

/// The preset `zn540` with zones so much smaller, and resets that take proportionally less time.
fn config() -> Config {
    let preset = Preset::find("zn540").expect("a preset");
    let mut config = Config::parse(preset.text).expect("a right one");
    let share = f64::from(PROGRAMS) / f64::from(config.flash.programs_per_block);
    config.flash = config.flash.shrunk(PROGRAMS);
    config.drive.unit = Size(BLOCK);
    // As large as its capacity.
    config.zones.size = Size(0);
    if let Some(controller) = &mut config.controller {
        controller.reset_us *= share;
        controller.reset_superblock_us *= share;
        controller.reset_lock_us *= share;
    }
    config
}

/// Counts from which on a run is measured.
struct Counts {
    /// Bytes that the drive has taken.
    drive: u64,
    stats: Stats,
}

fn measure<D: ZonedDevice + 'static>(
    drive: &Arc<Meter<D>>,
    setup: &Setup,
    load: Load,
    report: &mut Report,
) {
    let geometry = drive.geometry();
    let all: u64 = geometry.zones().map(|zone| geometry.capacity_of(zone).get()).sum();
    let zone_blocks = geometry.capacity_of(ZoneId::new(0)).get();
    let subject = Subject::new(Arc::clone(drive) as _, load.percent, setup);
    subject.fill();
    let zipf = load.skew.map(|skew| Zipf::new(skew, subject.blocks));
    let mut dice = Dice(5);
    let mut next = || match &zipf {
        Some(zipf) => zipf.block(&mut dice, subject.blocks),
        None => dice.below(subject.blocks),
    };
    let writes = TURNS * all / 2;
    write_all(&subject, setup, (0..writes).map(|_| next()));
    let count = || {
        subject.flush();
        let bytes = |kind| drive.counters().of(kind).bytes.get();
        let drive = bytes(OpKind::Write) + bytes(OpKind::Append);
        Counts { drive, stats: subject.fs.stats() }
    };
    let before = count();
    let mut latencies = write_all(&subject, setup, (0..writes).map(|_| next()));
    let after = count();

    let name = load.name();
    let mut push = |figure: &str, unit: &str, value: f64| {
        report.add_variant((figure, &name), unit, &[value]);
    };
    let for_data = all - after.stats.zones_metadata * zone_blocks;
    let live = subject.blocks as f64 / for_data as f64;
    let placed = (after.stats.user_bytes - before.stats.user_bytes) as f64;
    let moved = (after.stats.reclaim_bytes - before.stats.reclaim_bytes) as f64;
    let (data, limit) = ((placed + moved) / placed, load.limit(live, subject.blocks));
    let written = (writes * BLOCK) as f64;
    push("share of the drive that lives", "ratio", subject.blocks as f64 / all as f64);
    push("share of its zones for data that lives", "ratio", live);
    push("bytes to the drive for each to the disk", "ratio", {
        (after.drive - before.drive) as f64 / written
    });
    push("data placed and moved for each placed", "ratio", data);
    push("limit of that at this share", "ratio", limit);
    push("of the limit", "ratio", data / limit);
    for (share, word) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "longest")] {
        push(word, "µs", latencies.quantile_us(share));
    }
    subject.close();
}

fn write_all(subject: &Subject, setup: &Setup, blocks: impl Iterator<Item = u64>) -> Latencies {
    let mut latencies = Latencies::default();
    for (nth, block) in (1..).zip(blocks) {
        let start = setup.clock.monotonic_ns();
        subject.write(block);
        if setup.upkeep == Upkeep::Caller && nth % TICK == 0 {
            subject.fs.tick().expect("work in the background");
        }
        latencies.push(setup.clock.monotonic_ns() - start);
    }
    latencies
}
