//! How many reads a drive whose calls take 100 µs is given at once.

use std::sync::Arc;
use std::time::Duration;

use bench_support::{Machine, Report};
use zonal::layer::delay::Delay;
use zonal::{Clock, ManualClock, MemoryDrive, ZonedDevice};
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs, sample};
use zonal_fs::vfs::{FileSystem, Ino};

use crate::Args;
use crate::report::Rounds;
use crate::volume::{BLOCK, BLOCK_BYTES, Dice, create_file, fill, overwrite};

const LATENCY: Duration = Duration::from_micros(100);
const BLOCKS_ALL: usize = 8192;
const BLOCKS: u64 = BLOCKS_ALL as u64;
const DEPTH_BLOCKS: usize = 32;
const DEPTH: u64 = DEPTH_BLOCKS as u64;
/// Reads of each thread.
const READS: u64 = 500;

/// 4 KiB at random places of a file, by one thread and by 32; and 32 blocks that lie apart, in one
/// call.
pub(crate) fn depth(args: &Args, report: &mut Report) {
    let shape = sample::shape(96, 256);
    let below = MemoryDrive::new(shape).expect("a possible shape");
    let drive = Arc::new(Delay::new(below, Duration::ZERO));
    let (fs, file) = made(&drive);
    fs.shutdown().expect("ended");
    drop(fs);
    let drive = Arc::new(Delay::new(drive, LATENCY));
    let served: Arc<dyn ZonedDevice> = drive.clone();
    let options = MountOptions::default();
    let fs = Furrow::mount(served, Arc::new(ManualClock::new(1)), options).expect("mounted");
    // All of its map is in memory from here on.
    fs.read(file, 0, &mut vec![0; BLOCKS_ALL * BLOCK_BYTES]).expect("read");
    let mut rounds = Rounds::default();
    for round in 0..args.rounds as u64 {
        let one = by_threads(&fs, file, (1, round));
        let many = by_threads(&fs, file, (DEPTH, round));
        drive.clear();
        let together = in_one_call(&fs, file, round);
        let waits = drive.rounds() as f64 / READS as f64;
        rounds.push("one thread: time", "µs for each", one);
        rounds.push("32 threads: time", "µs for each", many);
        rounds.push("32 threads: as many as one", "×", one / many);
        rounds.push("one call for 32 blocks: time", "µs for each", together);
        rounds.push("one call for 32 blocks: as many as one", "×", one / together);
        rounds.push("one call for 32 blocks: waits for the drive", "", waits);
    }
    rounds.report(report);
}

/// A file whose blocks were written in another order than that of the file.
fn made(drive: &Arc<Delay<MemoryDrive>>) -> (Furrow, Ino) {
    let (clock, options) = (Arc::new(ManualClock::new(1)), MkfsOptions::default());
    mkfs(drive.clone(), &*clock, &options, &mut |_| ()).expect("formatted");
    let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).expect("mounted");
    let file = create_file(&fs, Ino::ROOT, "file");
    fill(&fs, file, BLOCKS * BLOCK);
    (0..BLOCKS).for_each(|nth| overwrite(&fs, file, nth * 4097 % BLOCKS));
    fs.sync().expect("synced");
    (fs, file)
}

/// µs for each read of `threads` threads.
fn by_threads(fs: &Furrow, file: Ino, (threads, seed): (u64, u64)) -> f64 {
    let start = Machine.monotonic_ns();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let (mut dice, mut block) = (Dice(seed * 100 + thread), [0; BLOCK_BYTES]);
                for _ in 0..READS {
                    fs.read(file, dice.below(BLOCKS) * BLOCK, &mut block).expect("read");
                }
            });
        }
    });
    (Machine.monotonic_ns() - start) as f64 / (threads * READS) as f64 / 1e3
}

/// µs for each block of calls that read 32.
fn in_one_call(fs: &Furrow, file: Ino, seed: u64) -> f64 {
    let (mut dice, mut blocks) = (Dice(seed), vec![0; DEPTH_BLOCKS * BLOCK_BYTES]);
    let start = Machine.monotonic_ns();
    for _ in 0..READS {
        fs.read(file, dice.below(BLOCKS - DEPTH) * BLOCK, &mut blocks).expect("read");
    }
    (Machine.monotonic_ns() - start) as f64 / (READS * DEPTH) as f64 / 1e3
}
