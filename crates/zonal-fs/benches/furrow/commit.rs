//! Bytes that an fsync writes, and its time on a drive in memory.

use std::sync::Arc;

use bench_support::{Machine, Report};
use zonal::{Clock, ManualClock};
use zonal_fs::vfs::{FileSystem, Ino, SyncKind};

use crate::Args;
use crate::report::{Latencies, Rounds};
use crate::volume::{create_file, fill, make, overwrite};

const SYNCS: u64 = 5000;

/// A block of a file of 4 MiB written and synced, again and again.
pub(crate) fn commit(args: &Args, report: &mut Report) {
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds {
        let made = make(256, 16, Arc::new(ManualClock::new(1)));
        let fs = &made.fs;
        let file = create_file(fs, Ino::ROOT, "file");
        fill(fs, file, 4 << 20);
        fs.sync().expect("synced");
        let before = made.drive.counts();
        let mut latencies = Latencies::default();
        for nth in 0..SYNCS {
            overwrite(fs, file, nth * 37 % 1024);
            let start = Machine.monotonic_ns();
            fs.fsync(file, SyncKind::Full).expect("synced");
            latencies.push(Machine.monotonic_ns() - start);
        }
        let done = made.drive.counts() - before;
        let each = |count: u64| count as f64 / SYNCS as f64;
        rounds.push("write and fsync of 4 KiB: writes to the drive", "", each(done.writes));
        rounds.push("write and fsync of 4 KiB: flushes", "", each(done.flushes));
        rounds.push("write and fsync of 4 KiB: bytes written", "", each(done.written));
        rounds.push("fsync of 4 KiB: p50", "µs", latencies.quantile_us(0.5));
        rounds.push("fsync of 4 KiB: p99", "µs", latencies.quantile_us(0.99));
        rounds.push("fsync of 4 KiB: longest", "µs", latencies.quantile_us(1.0));
    }
    rounds.report(report);
}
