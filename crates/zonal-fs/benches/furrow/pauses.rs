//! How long a call waits for other work: pauses by the clock, so on an otherwise idle machine.
//!
//! For comparison, the same calls go to an idle file system: their pauses are the machine's. Next
//! to the time by the clock is the time without the thread's own waits for a processor. If a thread
//! that holds a lock waits for a processor, that still counts for the threads that wait for the
//! lock.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bench_support::{Machine, Report, timed};
use zonal::Clock;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use crate::Args;
use crate::report::{Latencies, Rounds};
use crate::volume::{
    BLOCK, BLOCK_BYTES, Dice, Made, create_directory, create_file, fill, make, overwrite,
    with_worker,
};

/// How long the calls are watched, in each round.
const WATCHED_NS: u64 = 5_000_000_000;

fn time(latencies: &mut Latencies, call: impl FnOnce()) {
    let start = Machine.monotonic_ns();
    call();
    latencies.push(Machine.monotonic_ns() - start);
}

/// A file of 100 GB is deleted while another thread asks for attributes, until its space is free.
pub(crate) fn unlink(args: &Args, report: &mut Report) {
    const BYTES: u64 = 100_000_000_000;
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds.min(3) {
        let made = make(512, 256, Arc::new(Machine));
        let fs = &made.fs;
        let watched = create_file(fs, Ino::ROOT, "watched");
        let file = create_file(fs, Ino::ROOT, "large");
        fill(fs, file, BYTES);
        fs.sync().expect("synced");
        let free = || fs.statfs().expect("it says").blocks_free;
        let before = free();
        let is_done = AtomicBool::new(false);
        let (took, mut latencies) = std::thread::scope(|scope| {
            let stat = scope.spawn(|| {
                let mut latencies = Latencies::default();
                while !is_done.load(Ordering::Acquire) {
                    time(&mut latencies, || drop(fs.getattr(watched)));
                }
                latencies
            });
            std::thread::park_timeout(Duration::from_millis(50));
            let took = with_worker(&made, || {
                let (deleted, ()) = timed(|| fs.unlink(Ino::ROOT, b"large").expect("deleted"));
                let (freed, ()) = timed(|| {
                    while free() < before + BYTES / BLOCK * 99 / 100 {
                        fs.sync().expect("synced");
                        std::thread::park_timeout(Duration::from_millis(10));
                    }
                });
                [deleted.wall, deleted.wall + freed.wall]
            });
            is_done.store(true, Ordering::Release);
            (took, stat.join().expect("it watches"))
        });
        rounds.push("unlink of 100 GB: the call", "ms", took[0] * 1e3);
        rounds.push("unlink of 100 GB: until its space is free", "ms", took[1] * 1e3);
        let longest = latencies.quantile_us(1.0) / 1e3;
        rounds.push("unlink of 100 GB: longest stat meanwhile", "ms", longest);
    }
    rounds.report(report);
}

/// A call of a program.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    Stat,
    Read,
    Write,
    Create,
}

const CALLS: [(Call, &str); 4] = [
    (Call::Stat, "stat"),
    (Call::Read, "4 KiB read"),
    (Call::Write, "4 KiB write"),
    (Call::Create, "create"),
];

/// Files of the watching thread.
struct Watched {
    home: Ino,
    file: Ino,
    made: AtomicU64,
}

const WATCHED_BLOCKS: u64 = 4096;

impl Watched {
    fn new(fs: &Furrow) -> Self {
        let home = create_directory(fs, "watched");
        let file = create_file(fs, home, "file");
        fill(fs, file, WATCHED_BLOCKS * BLOCK);
        Self { home, file, made: AtomicU64::new(0) }
    }

    fn call(&self, fs: &Furrow, call: Call, dice: &mut Dice) {
        let at = dice.below(WATCHED_BLOCKS) * BLOCK;
        match call {
            Call::Stat => {
                fs.getattr(self.file).expect("it is there");
            }
            Call::Read => {
                fs.read(self.file, at, &mut [0; BLOCK_BYTES]).expect("read");
            }
            Call::Write => {
                fs.write(self.file, at, &[5; BLOCK_BYTES], WriteFlags::empty()).expect("written");
            }
            Call::Create => {
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                create_file(fs, self.home, &number.to_string());
            }
        }
    }
}

/// Half a million files, and one of 1 GiB in pieces of 4 KiB.
fn prepare() -> (Made, Ino) {
    let made = make(512, 16, Arc::new(Machine));
    for directory in 0..500 {
        let home = create_directory(&made.fs, &format!("d{directory}"));
        for number in 0..1000 {
            create_file(&made.fs, home, &number.to_string());
        }
    }
    let file = create_file(&made.fs, Ino::ROOT, "file");
    fill(&made.fs, file, 1 << 30);
    (made, file)
}

/// Overwrites, creates, deletes and syncs until `is_done`.
fn disturb(fs: &Furrow, file: Ino, is_done: &AtomicBool) {
    let home = create_directory(fs, "disturbed");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(3);
            while !is_done.load(Ordering::Acquire) {
                overwrite(fs, file, dice.below((1 << 30) / BLOCK));
            }
        });
        scope.spawn(|| {
            let data = vec![4; 256 << 10];
            let mut number = 0_u64;
            while !is_done.load(Ordering::Acquire) {
                let made = create_file(fs, home, &number.to_string());
                fs.write(made, 0, &data, WriteFlags::empty()).expect("written");
                if let Some(earlier) = number.checked_sub(100) {
                    fs.unlink(home, earlier.to_string().as_bytes()).expect("deleted");
                }
                number += 1;
            }
            for number in number.saturating_sub(100)..number {
                fs.unlink(home, number.to_string().as_bytes()).expect("deleted");
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                fs.sync().expect("synced");
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
    });
    fs.rmdir(Ino::ROOT, b"disturbed").expect("deleted");
}

/// How long calls took by the clock, and the same without waiting for a processor.
#[derive(Default)]
struct Pauses {
    clock: Latencies,
    running: Latencies,
}

impl Pauses {
    fn time(&mut self, schedule: &File, call: impl FnOnce()) {
        let (start, ready) = (Machine.monotonic_ns(), ready_ns(schedule));
        call();
        let (took, waited) =
            (Machine.monotonic_ns() - start, ready_ns(schedule).saturating_sub(ready));
        self.clock.push(took);
        self.running.push(took.saturating_sub(waited));
    }

    fn report(&mut self, rounds: &mut Rounds, name: &str) {
        let kinds = [("", &mut self.clock), (", running", &mut self.running)];
        for (kind, found) in kinds {
            for (share, word) in [(0.999, "p99.9"), (1.0, "longest")] {
                let name = format!("{name}: {word}{kind}");
                rounds.push(&name, "ms", found.quantile_us(share) / 1e3);
            }
        }
    }
}

/// How long this thread was ready to run and had no processor.
fn ready_ns(schedule: &File) -> u64 {
    let mut text = [0; 64];
    let len = schedule.read_at(&mut text, 0).expect("Linux");
    let text = std::str::from_utf8(&text[..len]).expect("numbers");
    text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("the second of three numbers")
}

/// Each kind of call, in turn with the same call to an idle file system.
pub(crate) fn pauses(args: &Args, report: &mut Report) {
    let (made, file) = prepare();
    let idle = make(64, 16, Arc::new(Machine));
    let watched = [Watched::new(&made.fs), Watched::new(&idle.fs)];
    let schedule = File::open("/proc/thread-self/schedstat").expect("Linux");
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds.min(3) {
        let is_done = AtomicBool::new(false);
        let mut pauses: [[Pauses; 2]; CALLS.len()] = Default::default();
        with_worker(&made, || {
            std::thread::scope(|scope| {
                scope.spawn(|| disturb(&made.fs, file, &is_done));
                let end = Machine.monotonic_ns() + WATCHED_NS;
                let mut dice = Dice(4);
                while Machine.monotonic_ns() < end {
                    for ((call, _), [busy, idling]) in CALLS.iter().zip(&mut pauses) {
                        busy.time(&schedule, || watched[0].call(&made.fs, *call, &mut dice));
                        idling.time(&schedule, || watched[1].call(&idle.fs, *call, &mut dice));
                    }
                    // Programs do something else too, and pauses count by time.
                    std::thread::park_timeout(Duration::from_micros(50));
                }
                is_done.store(true, Ordering::Release);
            });
        });
        for ((_, name), kinds) in CALLS.iter().zip(&mut pauses) {
            for (what, found) in ["", ", idle file system"].into_iter().zip(kinds) {
                found.report(&mut rounds, &format!("{name}{what}"));
            }
        }
    }
    rounds.report(report);
}
