//! Timed mode against its own books: dies and buses do the operations that were asked of them, to
//! the nanosecond, in every config; and the same config and seed give the same outcome.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::Size;
use crate::config::Kind as DriveKind;
use crate::flash::Flash;
use crate::ftl::{PageMapped, ZoneMapped};
use crate::load::{Op, Request, Workload};

/// Requests of a list.
struct Listed(std::vec::IntoIter<Request>);

impl Workload for Listed {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        batch.clear();
        let room = batch.capacity();
        batch.extend(self.0.by_ref().take(room));
        Ok(())
    }
}

struct Endless(Request);

impl Workload for Endless {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        batch.resize(room, self.0);
        Ok(())
    }
}

fn job(requests: Vec<Request>, pacing: Pacing) -> Job {
    Job::new("listed", Box::new(Listed(requests.into_iter())), pacing)
}

fn write(offset: u64, bytes: u32) -> Request {
    Request { at_ns: 0, offset, bytes, op: Op::Write, handle: 0 }
}

fn read(offset: u64, bytes: u32) -> Request {
    Request { op: Op::Read, ..write(offset, bytes) }
}

/// 2 channels of 2 dies, 64 superblocks of 16 programs of 48 KiB.
fn small() -> Config {
    let mut config = Config {
        flash: Flash {
            channels: 2,
            dies_per_channel: 2,
            planes: 1,
            programs_per_block: 4,
            superblocks: 64,
            ..Flash::default()
        },
        ..Config::default()
    };
    config.drive.op = 0.25;
    config.check().expect("possible");
    config
}

fn seed() -> u64 {
    zonal::repeat::seed(1)
}

/// The drive once in order, then `count` random writes, reads and trims of up to 64 KiB.
fn requests(config: &Config, count: usize) -> Vec<Request> {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let layout = config.layout().expect("possible");
    let (user, unit) = (layout.user_bytes(), layout.unit);
    let mut requests: Vec<Request> = Vec::new();
    for offset in (0..user).step_by(64 << 10) {
        let bytes = u32::try_from((user - offset).min(64 << 10)).expect("small");
        requests.push(write(offset, bytes));
    }
    for _ in 0..count {
        let offset = random.random_range(0..user / unit) * unit;
        let bytes = random.random_range(1..=16) * 4096;
        let bytes = u32::try_from((user - offset).min(bytes)).expect("small");
        let op = match random.random_range(0..20) {
            0 => Op::Trim,
            1..8 => Op::Read,
            _ => Op::Write,
        };
        requests.push(Request { op, ..write(offset, bytes) });
    }
    requests
}

#[test]
fn trim_sends_no_data_over_the_link() {
    let mut config = small();
    config.controller = Some(config::Controller { link_in_mb_s: 100.0, ..Default::default() });
    let trim = Request { op: Op::Trim, ..write(0, 64 << 20) };
    let ftl = PageMapped::new(&config).expect("possible");
    let jobs = vec![job(vec![trim, write(0, 4096)], Pacing::Depth(1))];
    let mut timed = Timed::new(&config, ftl, jobs).expect("possible");
    timed.run(Until::Idle).expect("it runs");
    assert!(timed.seconds() < 0.1, "64 MiB over the link take 0.67 s: {}", timed.seconds());
}

/// Checks the times of dies and buses against the operations of the run.
fn check_books<T: Translation>(timed: &mut Timed<T>, config: &Config) {
    let flash = &config.flash;
    let dies = timed.flash_array.die_times();
    let buses = timed.flash_array.bus_times();
    let mut ops = [0; 5];
    for (channel, bus) in buses.iter().enumerate() {
        let (mut expected, mut busy) = (bus.busy_ns + bus.waited_ns, 0);
        for die in dies.iter().skip(channel).step_by(buses.len()) {
            let [host_reads, gc_reads, host_programs, gc_programs, erases] = die.ops;
            assert!(die.pages >= host_reads + gc_reads);
            expected += die.pages * ns(flash.read_us);
            expected += (host_programs + gc_programs) * ns(flash.program_us);
            expected += erases * ns(flash.erase_us);
            busy += die.busy_ns.iter().sum::<u64>();
            let pauses = die.suspends * ns(flash.suspend_us) + die.resumes * ns(flash.resume_us);
            assert_eq!(die.suspend_ns, pauses, "suspends and resumes of a die");
            assert!(die.busy_ns.iter().sum::<u64>() + pauses <= timed.flash_array.now_ns);
            ops.iter_mut().zip(die.ops).for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(busy, expected, "channel {channel}: operations, transfers and waits");
        assert!(bus.busy_ns <= timed.flash_array.now_ns);
    }
    let counters = timed.ftl.counters();
    assert_eq!(ops[Kind::Erase as usize], counters.erased * u64::from(flash.dies()));
    let programs = ops[Kind::HostProgram as usize] + ops[Kind::GcProgram as usize];
    let units = u64::from(timed.places.program_units());
    let placed = counters.host + counters.moved;
    // Each frontier has one program that is not complete.
    assert!(programs * units <= placed && placed < (programs + 16) * units);
    let bytes: u64 = buses.iter().map(|bus| bus.bytes).sum();
    let read = bytes - programs * flash.program_bytes();
    let copied = counters.moved * config.drive.unit.0;
    assert!(read >= copied, "what is moved was read");
}

/// Fills and overwrites a drive, and checks everything that must hold.
fn drive_through(config: &Config) -> Outcome {
    config.check().expect("possible");
    let requests = requests(config, 3_000);
    let count = |op| requests.iter().filter(|request| request.op == op).count() as u64;
    let bytes = |op: Op| {
        let of = requests.iter().filter(|request| request.op == op);
        of.map(|request| u64::from(request.bytes)).sum::<u64>()
    };
    let expected = [count(Op::Read), count(Op::Write), bytes(Op::Write)];
    let ftl = PageMapped::new(config).expect("possible");
    let jobs = vec![job(requests, Pacing::Depth(8))];
    let mut timed = Timed::new(config, ftl, jobs).expect("possible");
    let outcome = timed.run(Until::Idle).expect("runs");
    let done = [outcome.reads.count(), outcome.writes.count(), outcome.written_bytes];
    assert_eq!(outcome.jobs[0].refused, 0);
    assert_eq!(done, expected, "all is done");
    check_books(&mut timed, config);
    let mut ftl = timed.into_ftl();
    ftl.write(&[0, 1, 2], 0);
    outcome
}

#[test]
fn accounts_of_dies_and_buses_balance() {
    let outcome = drive_through(&small());
    assert!(outcome.wa() > 1.2 && outcome.busy.gc_read > 0.0 && outcome.busy.suspend > 0.0);
    assert!(outcome.dies.iter().all(|die| die.total() > 0.3 && die.total() <= 1.0));
    assert!(outcome.channels.iter().all(|share| *share > 0.01 && *share <= 1.0));
}

#[test]
fn configs_at_limits_work() {
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 16] = [
        ("one die", |config| (config.flash.channels, config.flash.dies_per_channel) = (1, 1)),
        ("many dies", |config| config.flash.dies_per_channel = 16),
        ("one program a block", |config| config.flash.programs_per_block = 1),
        ("few superblocks", |config| {
            config.flash.superblocks = 16;
            config.gc.low_water = 2;
            config.drive.op = 1.0;
        }),
        ("fast flash", |config| {
            let flash = &mut config.flash;
            (flash.read_us, flash.program_us, flash.erase_us) = (0.1, 0.1, 0.1);
            (flash.suspend_us, flash.resume_us) = (0.0, 0.0);
            config.drive.read_firmware_us = 0.0;
        }),
        ("free suspension", |config| {
            (config.flash.suspend_us, config.flash.resume_us) = (0.0, 0.0);
        }),
        ("slow suspension", |config| {
            (config.flash.suspend_us, config.flash.resume_us) = (1e5, 1e5);
        }),
        ("slow bus", |config| config.flash.channel_mb_s = 1.0),
        ("fast bus", |config| config.flash.channel_mb_s = 1e5),
        ("small buffer", |config| config.drive.buffer_programs = 1),
        ("large buffer", |config| config.drive.buffer_programs = 1024),
        ("one copy at a time", |config| config.drive.gc_reads = 1),
        ("many copies", |config| config.drive.gc_reads = 4096),
        ("small units", |config| config.drive.unit = Size(512)),
        ("large units", |config| {
            config.flash.planes = 4;
            config.flash.page = Size(4096);
            config.drive.unit = Size(16 << 10);
        }),
        ("units of two pages", |config| {
            config.flash.pages_per_program = 4;
            config.drive.unit = Size(32 << 10);
        }),
    ];
    for (name, change) in changes {
        println!("{name}");
        let mut config = small();
        change(&mut config);
        drive_through(&config);
    }
}

#[test]
fn outcome_repeats_with_seed() {
    let config = small();
    let first = drive_through(&config);
    assert_eq!(first, drive_through(&config));
    let mut other = config.clone();
    other.flash.program_us += 0.001;
    assert_ne!(first, drive_through(&other), "the outcome depends on every nanosecond");
}

#[test]
fn time_passes_idly_without_jobs() {
    let config = small();
    let ftl = PageMapped::new(&config).expect("possible");
    let mut timed = Timed::new(&config, ftl, Vec::new()).expect("possible");
    let outcome = timed.run(Until::Written(1)).expect("runs");
    assert_eq!((outcome.ended, outcome.events, outcome.written_bytes), (Ended::Idle, 0, 0));
    let outcome = timed.run(Until::Seconds(2.5)).expect("runs");
    assert!((outcome.seconds - 2.5).abs() < 1e-9 && outcome.wa().is_nan());
}

#[test]
fn reads_without_end_stop_after_writes() {
    let config = small();
    let ftl = PageMapped::new(&config).expect("possible");
    let reads = Job::random_reads("reads", 0..1 << 20, 4096, Reads { depth: 4, seed: seed() });
    let writes = job((0..100).map(|unit| write(unit * 4096, 4096)).collect(), Pacing::Depth(3));
    let mut timed = Timed::new(&config, ftl, vec![writes, reads]).expect("possible");
    let outcome = timed.run(Until::Written(1 << 20)).expect("runs");
    assert_eq!((outcome.ended, outcome.written_bytes), (Ended::Idle, 409_600));
    assert_eq!(outcome.writes.count(), 100, "the last ones are acknowledged");
}

#[test]
fn arrivals_beyond_drive_rate_wait() {
    let config = small();
    let ftl = PageMapped::new(&config).expect("possible");
    // All at once, and without an end.
    let endless = Box::new(Endless(write(0, 4096)));
    let job = Job::new("endless", endless, Pacing::Arrivals { speed: 1.0 });
    let mut timed = Timed::new(&config, ftl, vec![job]).expect("possible");
    let outcome = timed.run(Until::Written(16 << 20)).expect("runs");
    assert_eq!(outcome.ended, Ended::Reached);
    let waited = outcome.writes.quantile_us(1.0) / 1e6 / outcome.seconds;
    assert!((0.99..=1.01).contains(&waited), "latency counts from the arrival: {waited}");
}

#[test]
fn latency_is_sum_of_its_parts() {
    let mut config = small();
    config.drive.read_firmware_us = 7.0;
    let user = config.layout().expect("possible").user_bytes();
    let ftl = PageMapped::new(&config).expect("possible");
    let mut timed = Timed::new(&config, ftl, Vec::new()).expect("possible");
    let mut run = |requests| {
        timed.set_jobs(vec![job(requests, Pacing::Depth(1))]);
        timed.run(Until::Idle).expect("runs")
    };
    // Never written, and still in the buffer: no flash is read.
    let outcome = run(vec![read(0, 4096), write(0, 4096), read(0, 4096)]);
    assert!((outcome.reads.mean_us() - 7.0).abs() < 1e-9);
    assert!((outcome.writes.mean_us() - 10.0).abs() < 1e-9);
    // Three programs of 48 KiB are complete, in the order of the dies.
    run((1..36).map(|unit| write(unit * 4096, 4096)).collect());
    let page = 16.0 * 1024.0 / 800.0;
    for (request, expected) in [
        (read(0, 4096), 7.0 + 65.0 + page / 4.0),
        (read(4096, 512), 7.0 + 65.0 + page / 32.0),
        (read(0, 16 << 10), 7.0 + 65.0 + page),
        // Two pages of one die follow each other.
        (read(0, 32 << 10), 7.0 + 2.0 * (65.0 + page)),
        // Two dies on different channels read side by side; a page is twelve units behind.
        (read((48 << 10) - 4096, 8192), 7.0 + 65.0 + page / 4.0),
        (read(user - 4096, 4096), 7.0),
    ] {
        let found = run(vec![request]).reads.mean_us();
        assert!((found - expected).abs() < 0.002, "{found} for {expected}: {request:?}");
    }
}

#[test]
fn read_suspends_program_once_and_waits_no_further() {
    let config = small();
    let ftl = PageMapped::new(&config).expect("possible");
    let mut timed = Timed::new(&config, ftl, Vec::new()).expect("possible");
    let fill = (0..96).map(|unit| write(unit * 4096, 4096)).collect();
    timed.set_jobs(vec![job(fill, Pacing::Depth(1))]);
    timed.run(Until::Idle).expect("runs");
    // A program of the die of unit 0 is under way, for a millisecond, when the read arrives.
    let again = (0..12).map(|unit| write(unit * 4096, 4096)).collect();
    let late = Request { at_ns: 1_300_000, ..read(48 * 1024 * 4, 4096) };
    let jobs = vec![job(again, Pacing::Depth(1)), job(vec![late], Pacing::Arrivals { speed: 1.0 })];
    timed.set_jobs(jobs);
    let outcome = timed.run(Until::Idle).expect("runs");
    let expected = 6.0 + 250.0 + 65.0 + 5.12;
    assert!((outcome.reads.mean_us() - expected).abs() < 0.002, "{}", outcome.reads.mean_us());
    let dies = timed.flash_array.die_times();
    assert_eq!(dies.iter().map(|die| die.suspends).sum::<u64>(), 1);
    check_books(&mut timed, &config);
}

#[test]
fn reads_do_not_starve_programs() {
    let mut config = small();
    (config.flash.channels, config.flash.dies_per_channel) = (1, 1);
    config.check().expect("possible");
    let user = config.layout().expect("possible").user_bytes();
    let fill: Vec<Request> = (0..user / 4096).map(|unit| write(unit * 4096, 4096)).collect();
    let ftl = PageMapped::new(&config).expect("possible");
    let jobs = vec![job(fill.clone(), Pacing::Depth(8))];
    let mut timed = Timed::new(&config, ftl, jobs).expect("possible");
    timed.run(Until::Idle).expect("runs");
    let reads = Job::random_reads("reads", 0..user, 4096, Reads { depth: 64, seed: seed() });
    timed.set_jobs(vec![job(fill, Pacing::Depth(8)), reads]);
    let outcome = timed.run(Until::Seconds(2.0)).expect("runs");
    assert!(outcome.write_mb_s > 0.5, "{} MB/s", outcome.write_mb_s);
    assert!(outcome.read_mb_s > 20.0, "{} MB/s", outcome.read_mb_s);
}

#[test]
fn pacing_is_kept() {
    let mut config = small();
    config.flash.superblocks = 512;
    let user = config.layout().expect("possible").user_bytes();
    let fill = || (0..user / 4096).map(|unit| write(unit * 4096, 4096)).collect::<Vec<_>>();
    let ftl = PageMapped::new(&config).expect("possible");
    let jobs = vec![job(fill(), Pacing::Rate { mb_s: 10.0, depth: 4 })];
    let mut timed = Timed::new(&config, ftl, jobs).expect("possible");
    let outcome = timed.run(Until::Seconds(1.0)).expect("runs");
    assert!((outcome.write_mb_s - 10.0).abs() < 0.01, "{}", outcome.write_mb_s);
    // A hundred reads that arrive at once, ten times as fast as recorded: each counts from its
    // own arrival, and they wait for one another.
    let burst = |at_ns| Request { at_ns, ..read(0, 4096) };
    let requests = (0..100).map(|at| burst(1_000_000 + at)).collect();
    timed.set_jobs(vec![job(requests, Pacing::Arrivals { speed: 10.0 })]);
    let outcome = timed.run(Until::Idle).expect("runs");
    let summary = outcome.reads.summary();
    let one = 65.0 + 5.12;
    assert!((summary.max_us - (6.0 + 100.0 * one)).abs() < 10.0, "{summary:?}");
    assert!(outcome.seconds > 0.0001);
}

#[test]
fn zoned_drive_refuses_forbidden_and_continues() {
    let mut config = small();
    config.drive.kind = DriveKind::Zns;
    (config.zones.max_open, config.zones.max_active) = (2, 2);
    let ftl = ZoneMapped::new(&config).expect("possible");
    let zone = u64::from(ftl.zone_units()) * 4096;
    let reset =
        |at| Request { op: Op::Reset, ..write(at * zone, u32::try_from(zone).expect("small")) };
    let requests = vec![
        write(0, 8192),
        write(4096, 4096), // not at the write pointer
        write(zone, 4096),
        write(2 * zone, 4096), // one active zone too many
        reset(0),
        write(0, 4096),
    ];
    let mut timed =
        Timed::new(&config, ftl, vec![job(requests, Pacing::Depth(1))]).expect("possible");
    let outcome = timed.run(Until::Idle).expect("runs");
    let job = &outcome.jobs[0];
    assert_eq!((job.writes.count(), job.refused, job.others), (3, 2, 1));
    assert_eq!(outcome.counters.erased, 1);
    check_books(&mut timed, &config);
}

#[test]
fn zones_are_all_rewritten_repeatedly() {
    let mut config = small();
    config.drive.kind = DriveKind::Zns;
    for spare in [0, 2] {
        config.zones.spare = spare;
        let ftl = ZoneMapped::new(&config).expect("possible");
        let (zones, zone) = (u64::from(ftl.zone_count()), u64::from(ftl.zone_units()) * 4096);
        let bytes = u32::try_from(zone).expect("small");
        let pass = (0..zones).flat_map(|at| {
            [Request { op: Op::Reset, ..write(at * zone, bytes) }, write(at * zone, bytes)]
        });
        let passes = std::iter::repeat_n(pass.collect::<Vec<_>>(), 3).flatten().collect();
        let jobs = vec![job(passes, Pacing::Depth(4))];
        let mut timed = Timed::new(&config, ftl, jobs).expect("possible");
        let outcome = timed.run(Until::Idle).expect("runs");
        assert_eq!(outcome.written_bytes, 3 * zones * zone, "{spare} to spare");
        assert_eq!((outcome.jobs[0].refused, outcome.counters.erased), (0, 2 * zones));
        check_books(&mut timed, &config);
    }
}

#[test]
fn counting_leaves_no_erases_behind() {
    let mut config = small();
    config.drive.kind = DriveKind::Zns;
    let mut ftl = ZoneMapped::new(&config).expect("possible");
    let units = ftl.zone_count() * ftl.zone_units();
    ftl.write(&(0..units).collect::<Vec<_>>()).expect("in order");
    ftl.trim(0, units);
    let jobs = vec![job(vec![write(0, 4096)], Pacing::Depth(1))];
    let mut timed = Timed::new(&config, ftl, jobs).expect("possible");
    let outcome = timed.run(Until::Idle).expect("runs");
    assert!((outcome.writes.mean_us() - 10.0).abs() < 1e-9, "{}", outcome.writes.mean_us());
    assert!(outcome.busy.erase.abs() < 1e-9);
}
