//! Timed mode on the drive of the published measurements: throughput and latency, by arithmetic and
//! against the figures the model was fitted to.

use zonal_sim::config::{Kind, Pattern};
use zonal_sim::ftl::{PageMapped, Translation, ZoneMapped};
use zonal_sim::load;
use zonal_sim::timed::{Ended, Job, Outcome, Pacing, Reads, Timed, Until};
use zonal_sim::{Config, Size};

/// 2 TiB of flash below 1.92 and 1.60 TB: sold as 7 and 28 %.
const OP_7: f64 = 0.1453;
const OP_28: f64 = 0.3744;

/// The drive with 1947 superblocks, each of 8 programs per die, and units of 32 KiB.
fn drive(kind: Kind, op: f64) -> Config {
    let mut config = Config::default();
    config.drive.kind = kind;
    config.drive.op = op;
    config.drive.unit = Size(32 << 10);
    // Erased ahead: a zone that is reset and written again does not wait for its own erase.
    config.zones.spare = 4;
    config.drive.read_firmware_us = if kind == Kind::Zns { 20.0 } else { 6.0 };
    config.flash = config.flash.shrunk(8);
    config.workload.io = Size(64 << 10);
    config.workload.kind = if kind == Kind::Zns { Pattern::Zones } else { Pattern::Uniform };
    config
}

fn writer(config: &Config, pacing: Pacing) -> Job {
    let workload = load::build(config, &config.layout().expect("possible")).expect("possible");
    Job::new("writer", workload, pacing)
}

/// A full conventional drive after so many drive writes of the workload, by counting.
fn warm(config: &Config, drive_writes: u64) -> PageMapped {
    let layout = config.layout().expect("possible");
    let mut ftl = PageMapped::new(config).expect("possible");
    ftl.write(&(0..layout.user_units).collect::<Vec<_>>(), 0);
    let mut workload = load::build(config, &layout).expect("possible");
    let (mut batch, mut units) = (Vec::with_capacity(1024), Vec::new());
    let limit = ftl.counters().host * (1 + drive_writes);
    while ftl.counters().host < limit {
        workload.fill(&mut batch).expect("no file is read");
        units.clear();
        for request in &batch {
            let first = u32::try_from(request.offset / layout.unit).expect("in the drive");
            units.extend(first..first + request.bytes / (32 << 10));
        }
        ftl.write(&units, 0);
    }
    ftl
}

fn steady<T: Translation>(config: &Config, ftl: T, bytes: u64) -> Outcome {
    let jobs = vec![writer(config, Pacing::Depth(32))];
    let mut timed = Timed::new(config, ftl, jobs).expect("possible");
    timed.run(Until::Written(bytes / 4)).expect("runs");
    let outcome = timed.run(Until::Written(bytes)).expect("runs");
    assert_eq!(outcome.ended, Ended::Reached);
    outcome
}

/// Programs, reads and erases are all that dies do: the host gets the rest of their time.
fn by_arithmetic(config: &Config, wa: f64) -> f64 {
    let flash = &config.flash;
    let program = 96.0 * 1024.0;
    let bus_us = program / flash.channel_mb_s;
    let copy_us = 3.0 * flash.read_us + bus_us;
    let us = flash.program_us + bus_us + flash.erase_us / f64::from(flash.programs_per_block);
    f64::from(flash.dies()) * program / (us * wa + copy_us * (wa - 1.0))
}

#[test]
fn zoned_writes_run_at_flash_rate() {
    let config = drive(Kind::Zns, 0.0);
    let outcome = steady(&config, ZoneMapped::new(&config).expect("possible"), 10_000_000_000);
    let most = by_arithmetic(&config, 1.0);
    println!("{:.0} of {most:.0} MB/s", outcome.write_mb_s);
    assert!((outcome.wa() - 1.0).abs() < 1e-9);
    // Published: 1086 MB/s.
    assert!((1050.0..1150.0).contains(&outcome.write_mb_s));
    assert!(outcome.write_mb_s < most && outcome.write_mb_s > 0.95 * most);
}

#[test]
fn gc_share_depends_on_over_provisioning() {
    // Published: 236 MB/s, and half the rate of the zoned drive; by the prototype 246 and 519.
    for (op, mb_s) in [(OP_7, 246.0), (OP_28, 519.0)] {
        let config = drive(Kind::Conventional, op);
        let outcome = steady(&config, warm(&config, 5), 10_000_000_000);
        let most = by_arithmetic(&config, outcome.wa());
        println!("{:.1} of {most:.1} MB/s, wa {:.3}", outcome.write_mb_s, outcome.wa());
        assert!((outcome.write_mb_s / mb_s - 1.0).abs() < 0.05, "{}", outcome.write_mb_s);
        assert!(outcome.write_mb_s < most && outcome.write_mb_s > 0.93 * most);
    }
}

/// Mean latencies of 4 KiB reads, one at a time, at some rates of writes.
fn read_us<T: Translation>(config: &Config, ftl: T) -> Vec<f64> {
    let user = config.layout().expect("possible").user_bytes();
    let reader = Job::random_reads("reader", 0..user, 4096, Reads { depth: 1, seed: 1 });
    let jobs = vec![writer(config, Pacing::Depth(0)), reader];
    let mut timed = Timed::new(config, ftl, jobs).expect("possible");
    let means = [0.0, 25.0, 50.0, 100.0, 200.0].map(|mb_s| {
        if mb_s > 0.0 {
            timed.set_pacing(0, Pacing::Rate { mb_s, depth: 32 });
        }
        timed.run(Until::Seconds(2.0)).expect("runs");
        let outcome = timed.run(Until::Seconds(15.0)).expect("runs");
        let off = (outcome.write_mb_s - mb_s).abs();
        assert!(off <= 0.02 * mb_s, "{} of {mb_s} MB/s", outcome.write_mb_s);
        outcome.reads.mean_us()
    });
    means.to_vec()
}

#[test]
fn reads_wait_for_gc_writes() {
    // Latencies of a prototype, to which the model was fitted.
    let expected = [
        (Kind::Zns, [90.1, 95.2, 100.4, 110.8, 132.7]),
        (Kind::Conventional, [76.1, 97.4, 120.2, 163.8, 248.9]),
    ];
    for (kind, expected) in expected {
        let config = drive(kind, OP_7);
        let means = if kind == Kind::Zns {
            let mut ftl = ZoneMapped::new(&config).expect("possible");
            let units: Vec<u32> = (0..config.layout().expect("possible").user_units).collect();
            ftl.write(&units).expect("in order");
            read_us(&config, ftl)
        } else {
            read_us(&config, warm(&config, 5))
        };
        println!("{kind:?} {means:.1?}");
        for (mean, expected) in means.iter().zip(expected) {
            assert!((mean / expected - 1.0).abs() < 0.05, "{kind:?}: {mean} for {expected}");
        }
    }
}

#[test]
fn zn540_keeps_rate_through_zone_resets() {
    let preset = zonal_sim::preset::Preset::find("zn540").expect("there is one");
    let mut config = Config::parse(preset.text).expect("possible");
    config.workload.write_mb_s = 1048.576;
    let measured = zonal_sim::timed::run(&config).expect("runs");
    let outcome = &measured.outcome;
    println!("{:.1} MB/s, {} units reset", outcome.write_mb_s, outcome.counters.trimmed);
    assert!(outcome.counters.trimmed > 0, "a zone is reset");
    assert!(measured.reaches_rate(), "{:.1} MB/s", outcome.write_mb_s);
    // Drive: 69 µs beside reads.
    let mean_us = outcome.writes.mean_us();
    assert!((60.0..80.0).contains(&mean_us), "{mean_us}");
}
