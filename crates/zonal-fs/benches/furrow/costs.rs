//! What one operation costs by one thread: processor time, and instructions in user space.
//!
//! Unlike operations a second, both say the same on a busy machine, instructions to the last one;
//! so two commits can be compared anywhere. The clock stands almost still, and the same thread does
//! the background work now and then. So commits of each second and reclaim are left out, and the
//! file that is overwritten is a small part of its drive.
//!
//! Of this the *caller* spends a part: the rest is work that a mount leaves to its worker. Another
//! run times the exclusive lock of the state, which bounds the rate of all threads together; the
//! clock adds some 50 ns to each taking.

use std::sync::Arc;

use bench_support::{Machine, Report, callgrind, thread_ns, timed};
use zonal::ManualClock;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{FileSystem, Ino, SyncKind};

use crate::Args;
use crate::report::Rounds;
use crate::volume::{
    BLOCK, BLOCK_BYTES, Dice, Made, create_directory, create_file, fill, make, overwrite,
};

/// Names that are looked up.
const NAMES: u64 = 4096;

/// Blocks of the file that is read and overwritten.
const BLOCKS: u64 = 4096;

/// Operations between two ticks.
const TICK: u64 = 1000;

/// An operation, and how often it is done in a round.
const OPERATIONS: [(Operation, &str, u64); 5] = [
    (Operation::Create, "create", 100_000),
    (Operation::Lookup, "lookup", 200_000),
    (Operation::Overwrite, "4 KiB overwrite", 100_000),
    (Operation::Sync, "4 KiB overwrite and fsync", 10_000),
    (Operation::Read, "4 KiB read", 200_000),
];

/// Callgrind, some fifty times slower, counts a long run less a short one, of these shares.
const COUNTED: (u64, u64) = (100, 20);

#[derive(Clone, Copy)]
enum Operation {
    Create,
    Lookup,
    Overwrite,
    Sync,
    Read,
}

/// Time in the calls, and under the exclusive lock, in nanoseconds.
#[derive(Default)]
struct Caller {
    processor: u64,
    exclusive: u64,
}

impl Caller {
    fn now(fs: &Furrow) -> Self {
        Self { processor: thread_ns(), exclusive: fs.exclusive_ns() }
    }

    fn add(&mut self, start: &Self, end: &Self) {
        self.processor += end.processor - start.processor;
        self.exclusive += end.exclusive - start.exclusive;
    }
}

/// A file system with the names and the file that operations need.
struct Subject {
    made: Made,
    home: Ino,
    file: Ino,
}

fn name(number: u64) -> String {
    format!("file-{number:07}")
}

impl Subject {
    fn new() -> Self {
        let made = make(256, 16, Arc::new(ManualClock::new(1)));
        let home = create_directory(&made.fs, "home");
        for number in 0..NAMES {
            create_file(&made.fs, home, &name(number));
        }
        let file = create_file(&made.fs, home, "file");
        fill(&made.fs, file, BLOCKS * BLOCK);
        made.fs.sync().expect("synced");
        Self { made, home, file }
    }

    /// Does an operation `times` times. Returns the cost for its caller, by the clock `now`.
    fn work(&self, operation: Operation, times: u64, now: fn(&Furrow) -> Caller) -> Caller {
        let Made { fs, worker, .. } = &self.made;
        let new = create_directory(fs, "new");
        let mut dice = Dice(7);
        let mut caller = Caller::default();
        let mut start = now(fs);
        for number in 1..=times {
            self.once(fs, operation, (new, number), &mut dice);
            if worker.take_need() || number.is_multiple_of(TICK) {
                caller.add(&start, &now(fs));
                fs.tick().expect("work in the background");
                start = now(fs);
            }
        }
        fs.sync().expect("synced");
        caller
    }

    fn once(&self, fs: &Furrow, operation: Operation, (new, number): (Ino, u64), dice: &mut Dice) {
        match operation {
            Operation::Create => {
                create_file(fs, new, &name(number));
            }
            Operation::Lookup => {
                fs.lookup(self.home, name(dice.below(NAMES)).as_bytes()).expect("found");
            }
            Operation::Overwrite => overwrite(fs, self.file, dice.below(BLOCKS)),
            Operation::Sync => {
                overwrite(fs, self.file, dice.below(BLOCKS));
                fs.fsync(self.file, SyncKind::Full).expect("synced");
            }
            Operation::Read => {
                let at = dice.below(BLOCKS) * BLOCK;
                fs.read(self.file, at, &mut [0; BLOCK_BYTES]).expect("read");
            }
        }
    }
}

/// Each operation: its processor time in every round, and its instructions once.
pub(crate) fn costs(args: &Args, report: &mut Report) {
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds {
        for (operation, name, times) in OPERATIONS {
            let subject = Subject::new();
            let (took, caller) = timed(|| subject.work(operation, times, Caller::now));
            let mut push = |cost, ns: f64| {
                rounds.push(&format!("{name}: {cost}"), "ns", ns / times as f64);
            };
            push("processor time", took.processor * 1e9);
            push("processor time of the caller", caller.processor as f64);

            let subject = Subject::new();
            subject.made.fs.count_exclusive_time(Arc::new(Machine));
            let caller = subject.work(operation, times, Caller::now);
            push("exclusive lock of the state", caller.exclusive as f64);
        }
    }
    rounds.report(report);
    for (_, name, times) in OPERATIONS {
        let counted = (times / COUNTED.0, times / COUNTED.1);
        match callgrind::per_operation(name, counted) {
            Some(count) => report.add_variant((name, "instructions"), "", &[count]),
            None => println!("SKIP {name}: instructions need valgrind"),
        }
    }
}

/// Does the operations that callgrind counts, if it has started this process.
pub(crate) fn is_counted() -> bool {
    let Some((what, times)) = callgrind::requested() else { return false };
    let known = OPERATIONS.into_iter().find(|(_, name, _)| *name == what);
    let (operation, ..) = known.expect("an operation of this benchmark");
    // Valgrind knows no clock of threads.
    Subject::new().work(operation, times, |_| Caller::default());
    true
}
