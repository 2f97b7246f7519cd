//! What does zonefs cost: through FUSE against the least that FUSE costs, and as a library against
//! the bare device?
//!
//! Run it with `cargo bench -p zonal-fuse --bench zonefs` as root; words after `--` choose rows by
//! part of their name. All targets take turns within each round, so that what else the machine does
//! meets all of them. The figure is processor time per operation, of the program and of the daemon
//! that serves it, in user space and kernel: the median of the rounds, and the median of the ratio
//! to the target named beside it. Drive files and plain files lie in `BENCH_DIR`, `/dev/shm` without it.

#![expect(clippy::print_stdout, reason = "it is its result")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod ceiling;
mod instructions;
mod target;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::mount::{UnmountFlags, unmount};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use zonal::{Clock, OpenMode, ZonedDevice, spec};
use zonal_fs::zonefs::{MkfsOptions, MountOptions, ZoneFs, mkfs};
use zonal_fuse::MountConfig;
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::DirectWrites;

use target::{Kind, Op, Target, processor_ns};

const ROUNDS: usize = 7;
/// What one turn moves at most, and how many operations it does at most, for each job.
const TURN_BYTES: u64 = 24 << 20;
const TURN_OPERATIONS: u64 = 1500;
const JOBS_MAX: u32 = 8;
const ZONE_BYTES: u64 = 32 << 20;
const SHAPE: &str = "zone=32M,zones=9";

/// Which daemon this process is to be: its target and mount point.
const SERVE: &str = "ZONAL_BENCH_SERVE";

/// What this process is to do while its instructions are counted.
const COUNT: &str = "ZONAL_BENCH_COUNT";

/// glibc's setting for when freed memory goes back to the kernel.
const KEEP_MEMORY: &str = "MALLOC_TRIM_THRESHOLD_";

fn main() {
    if let Some(what) = env::var_os(SERVE) {
        let what = what.into_string().expect("we have set it");
        let (what, point) = what.split_once('\n').expect("we have set it");
        return daemon(what, Path::new(point));
    }
    if let Some(what) = env::var_os(COUNT) {
        return instructions::run(&what.into_string().expect("we have set it"));
    }
    if env::var_os(KEEP_MEMORY).is_none() {
        return again();
    }
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("SKIP: needs root and /dev/fuse");
    }
    let home = env::var_os("BENCH_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let dir = TempDir::with_prefix_in("zonal-bench-", home).expect("a place for drive files");
    if words.is_empty() || words.iter().any(|word| word == "instructions") {
        instructions::print();
    }
    let daemons = ["ceiling", "mem:", "file", "warm"].map(|what| Daemon::start(what, dir.path()));
    let targets = targets(dir.path(), &daemons);
    println!("µs of processor time per operation, median of {ROUNDS} interleaved rounds\n");
    for (op, name) in Op::ALL {
        for (bytes, size) in [(4 << 10, "4 KiB"), (128 << 10, "128 KiB"), (1 << 20, "1 MiB")] {
            for jobs in [1, JOBS_MAX] {
                let row = format!("{name} of {size}, {jobs} jobs");
                if words.is_empty() || words.iter().any(|word| row.contains(word.as_str())) {
                    measure(&targets, op, bytes, jobs, &row);
                }
            }
        }
    }
}

/// Starts this program again with an allocator that keeps what a reset frees: otherwise the writes
/// measure the kernel's page faults.
fn again() {
    let limit = (1_u64 << 40).to_string();
    let status = Command::new(env::current_exe().expect("a program knows its path"))
        .args(env::args().skip(1))
        .env(KEEP_MEMORY, &limit)
        .env("MALLOC_MMAP_THRESHOLD_", &limit)
        .env("MALLOC_TOP_PAD_", (64 << 20).to_string())
        .status();
    let succeeded = status.is_ok_and(|status| status.success());
    std::process::exit(i32::from(!succeeded));
}

/// All that is compared; each is set against the one that `AGAINST` names.
fn targets(dir: &Path, daemons: &[Daemon; 4]) -> Vec<Target> {
    let plain = dir.join("plain");
    fs::create_dir(&plain).expect("a directory");
    for job in 0..JOBS_MAX {
        fs::write(plain.join(job.to_string()), vec![1; 32 << 20]).expect("room for a zone");
    }
    let [ceiling, memory, file, warm] = daemons;
    let open = |what: &str| -> Arc<dyn ZonedDevice> {
        let device = device(what, &dir.join("bare"));
        mkfs(&*device, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
        device
    };
    let library = |what| {
        let fs = ZoneFs::mount(open(what), Arc::new(Machine), MountOptions::default());
        Kind::Library(Arc::new(fs.expect("mounted")))
    };
    let served = |name, daemon: &Daemon, dir: &str| Target {
        name,
        kind: Kind::Zones(daemon.point.join(dir)),
        daemon: Some(daemon.child.id()),
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

/// Which target each is set against.
const AGAINST: [Option<usize>; 9] =
    [None, Some(0), Some(0), None, None, Some(4), None, Some(6), Some(1)];

fn measure(targets: &[Target], op: Op, bytes: usize, jobs: u32, row: &str) {
    let mut times: Vec<Vec<f64>> = targets.iter().map(|_| Vec::new()).collect();
    let mut walls = times.clone();
    for round in 0..=ROUNDS {
        for turn in 0..targets.len() {
            let at = (round + turn) % targets.len();
            if op == Op::FirstRead && !targets[at].open(0, op).is_cached() {
                continue;
            }
            let (processor, wall) = turn_of(&targets[at], op, bytes, jobs);
            if round > 0 {
                times[at].push(processor);
                walls[at].push(wall);
            }
        }
    }
    println!("{row}");
    for (at, target) in targets.iter().enumerate() {
        if times[at].is_empty() {
            continue;
        }
        let ratio = AGAINST[at].map_or(String::new(), |base| {
            let ratios = times[at].iter().zip(&times[base]).map(|(time, base)| time / base);
            format!("{:8.3} × {}", median(ratios.collect()), targets[base].name)
        });
        let rate = bytes as f64 * 1e3 / median(walls[at].clone());
        let time = median(times[at].clone()) / 1e3;
        println!("    {:26}{time:10.2}{rate:10.0} MB/s{ratio}", target.name);
    }
}

/// One turn of one target: nanoseconds of processor time and of real time per operation.
fn turn_of(target: &Target, op: Op, bytes: usize, jobs: u32) -> (f64, f64) {
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
    // What is stored after the writes is stored by now.
    std::thread::park_timeout(std::time::Duration::from_millis(60));
    let daemon = || target.daemon.map_or(0, processor_ns);
    let before = (daemon(), Machine.monotonic_ns());
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
    let wall = Machine.monotonic_ns() - before.1;
    let all = (operations * u64::from(jobs)) as f64;
    ((client + daemon() - before.0) as f64 / all, wall as f64 / all)
}

/// Fills the file of a job if it is not full.
fn fill(target: &Target, job: u32) {
    let handle = target.open(job, Op::Write);
    let full = match &handle {
        target::Handle::Zone(file) | target::Handle::Plain(file) => {
            file.metadata().expect("it is there").len() >= ZONE_BYTES
        }
        target::Handle::Library(fs, ino) => {
            use zonal_fs::vfs::FileSystem;
            fs.getattr(*ino).expect("it is there").size >= ZONE_BYTES
        }
        target::Handle::Device(device, zone) => {
            let zone = device.zone(*zone).expect("it is there");
            zone.remaining() == zonal::LbaCount::ZERO
        }
    };
    if full {
        return;
    }
    write_anew(&handle);
}

fn write_anew(handle: &target::Handle<'_>) {
    handle.restart();
    let (buffer, range) = aligned(1 << 20);
    for piece in 0..ZONE_BYTES >> 20 {
        handle.write(piece << 20, &buffer[range.clone()]);
    }
}

fn work(handle: &target::Handle<'_>, op: Op, bytes: usize, operations: u64, seed: u64) {
    let (mut buffer, range) = aligned(bytes);
    let places = ZONE_BYTES / bytes as u64;
    let mut random = seed + 1;
    for nth in 0..operations {
        match op {
            Op::Write => handle.write(nth % places * bytes as u64, &buffer[range.clone()]),
            Op::BufferedRead | Op::FirstRead => {
                handle.read(nth % places * bytes as u64, &mut buffer[range.clone()]);
            }
            Op::RandomRead => {
                // A linear congruential generator will do to spread reads.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                handle.read((random >> 33) % places * bytes as u64, &mut buffer[range.clone()]);
            }
        }
    }
}

/// A buffer as `O_DIRECT` wants it.
fn aligned(len: usize) -> (Vec<u8>, std::ops::Range<usize>) {
    let buffer = vec![7; len + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    (buffer, start..start + len)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn thread_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("not negative")
}

/// The machine's clock.
struct Machine;

impl Clock for Machine {
    fn wall_ns(&self) -> i64 {
        i64::try_from(ns(ClockId::Realtime)).expect("before the year 2262")
    }
    fn monotonic_ns(&self) -> u64 {
        ns(ClockId::Monotonic)
    }
}

fn device(what: &str, path: &Path) -> Arc<dyn ZonedDevice> {
    let text = if what == "mem:" {
        format!("mem:{SHAPE}")
    } else {
        let path = path.with_extension(what.replace(' ', "-"));
        let shape: zonal::profile::Changes = SHAPE.parse().expect("a shape");
        let options = zonal::file::CreateOptions {
            geometry: shape.geometry().expect("a possible shape"),
            rules: zonal::Rules::Zns,
            uuid: [1; 16],
            overwrite: zonal::file::Overwrite::Refuse,
        };
        zonal::FileDrive::create(&path, &options).expect("a drive file");
        path.display().to_string()
    };
    spec::open(&text, OpenMode::ReadWrite, Arc::new(Machine)).expect("a device")
}

/// A process that serves one target, ended with its mount.
struct Daemon {
    child: Child,
    point: PathBuf,
}

impl Daemon {
    fn start(what: &str, dir: &Path) -> Self {
        let point = dir.join(format!("mnt-{}", what.trim_end_matches(':')));
        fs::create_dir(&point).expect("a mount point");
        let mut child = Command::new(env::current_exe().expect("a program knows its path"))
            .env(SERVE, format!("{what}\n{}", point.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line == "READY");
        assert!(ready, "{what} did not start");
        Self { child, point }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is lost with it.
        let _ = unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::FORCE);
        let _ = self.child.wait();
    }
}

fn daemon(what: &str, point: &Path) {
    if what == "ceiling" {
        let (count, capacity) = (JOBS_MAX as usize, 32 << 20);
        return ceiling::serve(point, count, capacity).expect("it serves");
    }
    let device = device(if what == "warm" { "mem:" } else { what }, &point.with_extension("drive"));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
    let fs = ZoneFs::mount(device, Arc::new(Machine), MountOptions::default()).expect("mounted");
    let mut config = MountConfig::new(what, point);
    "zonefs".clone_into(&mut config.kind);
    if what == "warm" {
        config.direct_writes = DirectWrites::Cache;
    }
    let latencies = Arc::new(Latencies::new(Arc::new(Machine)));
    zonal_fuse::serve(Arc::new(fs), latencies, &config, || println!("READY")).expect("it serves");
}
