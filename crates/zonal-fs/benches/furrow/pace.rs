//! How long does a write take while reclaim keeps pace with it on a nearly full drive? By the
//! clock, so on a machine that does nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench_support::{Machine, Report};
use zonal::{ByteCount, Clock};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use crate::Args;
use crate::report::{Latencies, Rounds};
use crate::volume::{BLOCK, Dice, create_file, fill, make_with, new_block, overwrite, with_worker};

const ZONES: u64 = 64;

/// Percent of the space for files that is filled, unless `--percent` is given.
const FULL_PERCENT: u64 = 95;

/// Blocks that are written of each size at least: enough that every step of the table is met.
const BLOCKS_MIN: u64 = 200_000;

/// Blocks of the larger writes.
const LARGE: u64 = 256;

const WRITERS: u64 = 16;

/// Columns of the table.
const SHARES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "longest")];

/// How long they write.
const TOGETHER: Duration = Duration::from_secs(5);

/// Writes of one size, one after the other, of `blocks` blocks in all.
fn writes(fs: &Furrow, (file, of): (Ino, u64), (size, blocks): (u64, u64)) -> Latencies {
    let mut latencies = Latencies::default();
    let mut dice = Dice(7);
    let mut data = Vec::new();
    for _ in 0..blocks / size {
        let at = dice.below(of / size) * size * BLOCK;
        data.clear();
        (0..size).for_each(|_| data.extend_from_slice(&new_block()));
        let start = Machine.monotonic_ns();
        fs.write(file, at, &data, WriteFlags::DIRECT).expect("written");
        latencies.push(Machine.monotonic_ns() - start);
    }
    latencies
}

/// How often each of the writers has written a block of its own part of the file.
fn together(fs: &Furrow, (file, of): (Ino, u64)) -> Vec<u64> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_done = &is_done;
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                let (mut dice, mut count) = (Dice(writer), 0);
                while !is_done.load(Ordering::Acquire) {
                    let part = of / WRITERS;
                    overwrite(fs, file, writer * part + dice.below(part));
                    count += 1;
                }
                count
            })
        });
        let writers: Vec<_> = writers.collect();
        let end = Machine.monotonic_ns() + u64::try_from(TOGETHER.as_nanos()).expect("seconds");
        while Machine.monotonic_ns() < end {
            std::thread::park_timeout(TOGETHER);
        }
        is_done.store(true, Ordering::Release);
        writers.into_iter().map(|writer| writer.join().expect("it writes")).collect()
    })
}

/// All of it, once the drive has been filled and half of that overwritten.
pub(crate) fn pace(args: &Args, report: &mut Report) {
    let memory = ByteCount::new(1 << 30);
    let options = MountOptions { memory, ..MountOptions::default() };
    let made = make_with(ZONES, args.zone_mib, Arc::new(Machine), options);
    let fs = &made.fs;
    let file = create_file(fs, Ino::ROOT, "file");
    let percent = args.percent.unwrap_or(FULL_PERCENT);
    let of = fs.statfs().expect("it says").blocks_free * percent / 100;
    let mut rounds = Rounds::default();
    with_worker(&made, || {
        fill(fs, file, of * BLOCK);
        writes(fs, (file, of), (1, of / 2));
        for _ in 0..args.rounds.min(3) {
            for (size, name) in [(1, "write of 4 KiB"), (LARGE, "write of 1 MiB")] {
                let before = fs.stats();
                let mut times = writes(fs, (file, of), (size, (of / 8).max(BLOCKS_MIN)));
                for (share, column) in SHARES {
                    let name = format!("{name}: {column}");
                    rounds.push(&name, "ms", times.quantile_us(share) / 1e3);
                }
                let after = fs.stats();
                let ratio = (after.reclaim_bytes - before.reclaim_bytes) as f64
                    / (after.user_bytes - before.user_bytes) as f64;
                rounds.push(&format!("{name}: moved"), "bytes for each", ratio);
            }
            let counts = together(fs, (file, of));
            let bound = |count: Option<&u64>| *count.expect("there are writers") as f64;
            rounds.push("16 threads: least", "writes", bound(counts.iter().min()));
            rounds.push("16 threads: most", "writes", bound(counts.iter().max()));
        }
    });
    rounds.report(report);
}
