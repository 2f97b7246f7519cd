//! How much does zonefs cost: through FUSE, compared with a minimal FUSE server, and as a library,
//! compared with the bare device? The figure is processor time per operation, of the program and of
//! the daemon that serves it, in user space and kernel.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bench_support::{Report, WarmUp, interleave, process_ns, thread_ns};
use zonal::AlignedBytes;

use crate::daemon::{self, Daemon};
use crate::is_wanted;
use crate::target::{Handle, Kind, Op, Target};

const ROUNDS: usize = 7;
/// The most bytes and the most operations of one turn, for each job.
const TURN_BYTES: u64 = 24 << 20;
const TURN_OPERATIONS: u64 = 1500;
const JOBS_MAX: u32 = 8;
const ZONE_BYTES: u64 = 32 << 20;

/// Measures all rows that are wanted.
pub(crate) fn measure_all(report: &mut Report, dir: &Path, rows: &[String]) {
    let daemons = ["ceiling", "mem:", "file", "warm"].map(|what| Daemon::start(what, dir));
    let zones = &daemons[0].point;
    for job in 0..JOBS_MAX {
        fs::write(zones.join(job.to_string()), []).expect("it takes names");
    }
    let targets = targets(dir, &daemons);
    report.subject("zonefs", ROUNDS);
    for (op, name) in Op::ALL {
        for (bytes, size) in [(4 << 10, "4 KiB"), (128 << 10, "128 KiB"), (1 << 20, "1 MiB")] {
            for jobs in [1, JOBS_MAX] {
                let row = format!("{name} of {size}, {jobs} jobs");
                if is_wanted(&row, rows) {
                    measure(report, &targets, &row, |target| turn_of(target, op, bytes, jobs));
                }
            }
        }
    }
}

/// All targets; the figures of each are compared with the target that `AGAINST` names.
fn targets(dir: &Path, daemons: &[Daemon; 4]) -> Vec<Target> {
    let plain = dir.join("plain");
    fs::create_dir(&plain).expect("a directory");
    for job in 0..JOBS_MAX {
        fs::write(plain.join(job.to_string()), vec![1; 32 << 20]).expect("room for a zone");
    }
    let [ceiling, memory, file, warm] = daemons;
    let open = |what: &str| daemon::zones(what, &dir.join("bare"));
    let library = |what| Kind::Library(Arc::new(daemon::zonefs(open(what))));
    let served = |name, daemon: &Daemon, dir: &str| Target {
        name,
        kind: Kind::Zones(daemon.point.join(dir)),
        daemon: Some(daemon.process()),
    };
    let bare = |name, kind| Target { name, kind, daemon: None };
    vec![
        served("FUSE ceiling", ceiling, ""),
        served("zonefs, FUSE, memory", memory, "seq"),
        served("zonefs, FUSE, file", file, "seq"),
        bare("plain file", Kind::Plain(plain)),
        bare("device in memory", Kind::Device(open("mem:"))),
        bare("zonefs, library, memory", library("mem:")),
        bare("device in a file", Kind::Device(open("file"))),
        bare("zonefs, library, file", library("file 2")),
        served("zonefs, FUSE, warm-cache", warm, "seq"),
    ]
}

/// The target with which each one is compared.
const AGAINST: [Option<usize>; 9] =
    [None, Some(0), Some(0), None, None, Some(4), None, Some(6), Some(1)];

fn measure(
    report: &mut Report,
    targets: &[Target],
    row: &str,
    turn: impl Fn(&Target) -> Option<Turn>,
) {
    let turns = interleave(ROUNDS, targets.len(), WarmUp::Round, |at| turn(&targets[at]));
    let times = |at: usize| -> Vec<f64> { turns[at].iter().map(|turn| turn.processor).collect() };
    for (at, target) in targets.iter().enumerate() {
        let base = AGAINST[at].map_or_else(Vec::new, times);
        report.add_beside((row, target.name), "µs of processor time", &times(at), &base);
        let rates: Vec<f64> = turns[at].iter().map(|turn| turn.rate).collect();
        report.add_variant((row, target.name), "MB/s", &rates);
    }
}

/// One turn of one target.
struct Turn {
    /// µs per operation, of program and daemon.
    processor: f64,
    /// MB/s by the clock.
    rate: f64,
}

/// Measures one turn. Only targets with a page cache have a first read.
fn turn_of(target: &Target, op: Op, bytes: usize, jobs: u32) -> Option<Turn> {
    if op == Op::FirstRead && !target.open(0, op).is_cached() {
        return None;
    }
    let operations = (TURN_BYTES / bytes as u64).min(TURN_OPERATIONS);
    let handles: Vec<_> = (0..jobs).map(|job| target.open(job, op)).collect();
    for (job, handle) in (0..jobs).zip(&handles) {
        match op {
            Op::Write => handle.restart(),
            Op::RandomRead | Op::BufferedRead => fill(target, job),
            Op::FirstRead => write_anew(&target.open(job, Op::Write)),
        }
        if op != Op::FirstRead {
            handle.cool();
        }
    }
    // After this pause the daemon has stored the written pages (`warm-cache`).
    std::thread::park_timeout(std::time::Duration::from_millis(60));
    let daemon = || target.daemon.map_or(0, process_ns);
    let (before, start) = (daemon(), Instant::now());
    let client: u64 = std::thread::scope(|scope| {
        let jobs = handles.iter().enumerate();
        let workers: Vec<_> = jobs
            .map(|(seed, handle)| {
                scope.spawn(move || {
                    let start = thread_ns();
                    work(handle, op, bytes, operations, seed as u64);
                    thread_ns() - start
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it works")).sum()
    });
    let wall = start.elapsed().as_nanos();
    let all = (operations * u64::from(jobs)) as f64;
    let processor = (client + daemon() - before) as f64 / all / 1e3;
    Some(Turn { processor, rate: bytes as f64 * 1e3 * all / wall as f64 })
}

/// Fills the file of a job if it is not full.
pub(crate) fn fill(target: &Target, job: u32) {
    let handle = target.open(job, Op::Write);
    let full = match &handle {
        Handle::Zone(file) | Handle::Plain(file) => {
            file.metadata().expect("it is there").len() >= ZONE_BYTES
        }
        Handle::Library(fs, ino) => {
            use zonal_fs::vfs::FileSystem;
            fs.getattr(*ino).expect("it is there").size >= ZONE_BYTES
        }
        Handle::Device(device, zone) => {
            let zone = device.zone(*zone).expect("it is there");
            zone.remaining() == zonal::LbaCount::ZERO
        }
    };
    if full {
        return;
    }
    write_anew(&handle);
}

fn write_anew(handle: &Handle<'_>) {
    handle.restart();
    let buffer = aligned(1 << 20);
    for piece in 0..ZONE_BYTES >> 20 {
        handle.write(piece << 20, &buffer);
    }
}

pub(crate) fn work(handle: &Handle<'_>, op: Op, bytes: usize, operations: u64, seed: u64) {
    let mut buffer = aligned(bytes);
    let places = ZONE_BYTES / bytes as u64;
    let mut random = seed + 1;
    for nth in 0..operations {
        match op {
            Op::Write => handle.write(nth % places * bytes as u64, &buffer),
            Op::BufferedRead | Op::FirstRead => {
                handle.read(nth % places * bytes as u64, &mut buffer);
            }
            Op::RandomRead => {
                // A linear congruential generator will do to spread reads.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                handle.read((random >> 33) % places * bytes as u64, &mut buffer);
            }
        }
    }
}

/// A buffer as `O_DIRECT` wants it.
pub(crate) fn aligned(len: usize) -> AlignedBytes {
    let mut buffer = AlignedBytes::zeroed(len);
    buffer.fill(7);
    buffer
}
