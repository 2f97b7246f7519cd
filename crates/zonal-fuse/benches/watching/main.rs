//! The cost of watching: `cargo bench -p zonal-fuse --bench watching`.
//!
//! Prints nanoseconds for measuring an operation, with one thread and with four that record the
//! same kind; and, for each part of a look at a Furrow of 50,000 zones, the median of 50 times, the
//! shortest and the longest.

use std::sync::Arc;

use bench_support::{Report, timed};
use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::{FileSystem, Ino};
use zonal_fuse::MountConfig;
use zonal_fuse::control::Control;
use zonal_fuse::latency::{Latencies, Operation};

const OPERATIONS: u32 = 5_000_000;

const ZONES: &str = "mem:zones=50000,zone=1M,conventional=0";

const LOOKS: usize = 50;

fn main() {
    let mut arguments = std::env::args().skip(1).collect();
    let command = "cargo bench -p zonal-fuse --bench watching";
    let mut report = Report::begin(command, &mut arguments);
    report.subject("watching", LOOKS);
    for threads in [1, 4] {
        let latencies = Arc::new(Latencies::new(Arc::new(SystemClock::new())));
        let (took, ()) = timed(|| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..OPERATIONS {
                            latencies.record(Operation::Read, latencies.now_ns());
                        }
                    });
                }
            });
        });
        let each = took.wall * 1e9 / f64::from(OPERATIONS);
        report.count(&format!("an operation of each of {threads} threads"), "ns", each);
    }
    look(&mut report);
    report.end();
}

fn look(report: &mut Report) {
    let clock = Arc::new(SystemClock::new());
    let stack = spec::open_stack(ZONES, OpenMode::ReadWrite, clock.clone()).expect("it opens");
    mkfs(stack.device.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
    let fs = Furrow::mount(stack.device.clone(), clock.clone(), MountOptions::default());
    let fs = Arc::new(fs.expect("mounted"));
    let latencies = Arc::new(Latencies::new(clock.clone()));
    let config = MountConfig::new(ZONES, "/mnt".as_ref());
    let control = Control::new(Arc::clone(&fs), &stack, config, latencies, &*clock);
    let directory = control.lookup(fs.root(), b".zonal").expect("it is there").ino;
    let mut buffer = vec![0; 1 << 20];
    let mut read = |name: &str| {
        let ino: Ino = control.lookup(directory, name.as_bytes()).expect("it is there").ino;
        control.read(ino, 0, &mut buffer).expect("it can be read");
    };
    measure(report, "Furrow::stats", || {
        std::hint::black_box(fs.stats());
    });
    measure(report, "Furrow::live", || {
        std::hint::black_box(fs.live());
    });
    for name in ["stats", "page", "metrics", "map"] {
        measure(report, &format!(".zonal/{name}"), || read(name));
    }
}

fn measure(report: &mut Report, what: &str, mut look: impl FnMut()) {
    let times: Vec<f64> = (0..LOOKS).map(|_| timed(&mut look).0.wall * 1e6).collect();
    report.add(what, "µs", &times);
}
