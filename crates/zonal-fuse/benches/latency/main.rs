//! What measuring an operation costs: `cargo bench -p zonal-fuse --bench latency`.
//!
//! Prints nanoseconds for each operation, with one thread and with four that record the same kind.
#![expect(clippy::print_stdout, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::sync::Arc;
use std::time::Instant;

use zonal::SystemClock;
use zonal_fuse::latency::{Latencies, Operation};

const OPERATIONS: u32 = 5_000_000;

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
}
