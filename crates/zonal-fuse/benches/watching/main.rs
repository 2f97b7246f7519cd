//! What watching costs: `cargo bench -p zonal-fuse --bench watching`.
//!
//! Prints nanoseconds for measuring an operation, with one thread and with four that record the
//! same kind; and, of a Furrow of 50,000 zones, how long each of the things takes that a look
//! consists of, as the median and the longest of 50.
#![expect(clippy::print_stdout, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::sync::Arc;
use std::time::Instant;

use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::{FileSystem, Ino};
use zonal_fuse::control::Control;
use zonal_fuse::latency::{Latencies, Operation};

const OPERATIONS: u32 = 5_000_000;

const ZONES: &str = "mem:zones=50000,zone=1M,conventional=0";

const LOOKS: usize = 50;

fn main() {
    for threads in [1, 4] {
        let latencies = Arc::new(Latencies::new(Arc::new(SystemClock::new())));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..OPERATIONS {
                        latencies.record(Operation::Read, latencies.now_ns());
                    }
                });
            }
        });
        let each = begin.elapsed() / OPERATIONS;
        println!("{threads} threads: {} ns for each operation of a thread", each.as_nanos());
    }
    look();
}

fn look() {
    let clock = Arc::new(SystemClock::new());
    let stack = spec::open_stack(ZONES, OpenMode::ReadWrite, clock.clone()).expect("it opens");
    mkfs(stack.device.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
    let fs = Furrow::mount(stack.device.clone(), clock.clone(), MountOptions::default());
    let fs = Arc::new(fs.expect("mounted"));
    let latencies = Arc::new(Latencies::new(clock.clone()));
    let control = Control::new(Arc::clone(&fs), &stack, latencies, &*clock);
    let directory = control.lookup(fs.root(), b".zonal").expect("it is there").ino;
    let mut buffer = vec![0; 1 << 20];
    let mut read = |name: &str| {
        let ino: Ino = control.lookup(directory, name.as_bytes()).expect("it is there").ino;
        control.read(ino, 0, &mut buffer).expect("it can be read");
    };
    measure("Furrow::stats", || {
        std::hint::black_box(fs.stats());
    });
    measure("Furrow::live", || {
        std::hint::black_box(fs.live());
    });
    for name in ["stats", "page", "metrics", "map"] {
        measure(&format!(".zonal/{name}"), || read(name));
    }
}

fn measure(what: &str, mut look: impl FnMut()) {
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        let begin = Instant::now();
        look();
        times.push(begin.elapsed().as_micros());
    }
    times.sort_unstable();
    println!("{what:<16} {:>6} µs, at most {} µs", times[LOOKS / 2], times[LOOKS - 1]);
}
