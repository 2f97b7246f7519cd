//! Names made, found and deleted, and blocks overwritten, in a second.

use std::sync::Arc;

use bench_support::{Machine, Report, Took, timed};
use zonal::ByteCount;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{FileSystem, Ino};

use crate::Args;
use crate::report::Rounds;
use crate::volume::{
    BLOCK, Dice, create_directory, create_file, fill, make, make_with_memory, overwrite,
    with_worker,
};

const NAMES: u64 = 200_000;
const OVERWRITES: u64 = 300_000;

/// Creates and lookups by one thread, creates by two, deletes by one; with the cost of commits.
pub(crate) fn names(args: &Args, report: &mut Report) {
    let mut rounds = Rounds::default();
    for _ in 0..args.rounds {
        // All names stay in memory, so that each step finds the same there.
        let made = make_with_memory(256, 64, Arc::new(Machine), ByteCount::new(2 << 30));
        let fs = &made.fs;
        let homes = ["one", "two", "three"].map(|name| create_directory(fs, name));
        let (one, ()) = with_worker(&made, || timed(|| create_all(fs, homes[0])));
        rate(&mut rounds, "creates, one thread", NAMES, one);
        let (found, ()) = timed(|| {
            let mut dice = Dice(1);
            for _ in 0..NAMES {
                let name = name(dice.below(NAMES));
                fs.lookup(homes[0], name.as_bytes()).expect("found");
            }
        });
        rate(&mut rounds, "lookups, one thread", NAMES, found);
        let (two, ()) = with_worker(&made, || {
            timed(|| {
                std::thread::scope(|scope| {
                    for home in &homes[1..] {
                        scope.spawn(|| create_all(fs, *home));
                    }
                });
            })
        });
        rate(&mut rounds, "creates, two threads in two directories", 2 * NAMES, two);
        let ratio = 2.0 * one.wall / two.wall;
        rounds.push("creates, two threads in two directories: ÷ one thread", "×", ratio);
        let (deleted, ()) = with_worker(&made, || {
            timed(|| {
                for number in 0..NAMES {
                    fs.unlink(homes[0], name(number).as_bytes()).expect("deleted");
                }
                fs.sync().expect("synced");
            })
        });
        rate(&mut rounds, "unlinks, one thread", NAMES, deleted);
    }
    rounds.report(report);
}

fn name(number: u64) -> String {
    format!("file-{number:07}")
}

fn create_all(fs: &Furrow, home: Ino) {
    for number in 0..NAMES {
        create_file(fs, home, &name(number));
    }
    fs.sync().expect("synced");
}

fn rate(rounds: &mut Rounds, name: &str, operations: u64, took: Took) {
    rounds.push(&format!("{name}: rate"), "per second", operations as f64 / took.wall);
    let each = took.processor * 1e6 / operations as f64;
    rounds.push(&format!("{name}: processor time"), "µs each", each);
}

/// Overwrites of 4 KiB at random, on a drive that is half full.
pub(crate) fn overwrites(args: &Args, report: &mut Report) {
    let made = make(256, 16, Arc::new(Machine));
    let fs = &made.fs;
    let file = create_file(fs, Ino::ROOT, "file");
    let blocks = made.drive.bytes() / BLOCK / 2;
    fill(fs, file, blocks * BLOCK);
    let mut dice = Dice(2);
    let mut rounds = Rounds::default();
    with_worker(&made, || {
        // Overwrites until reclaim moves as many blocks as it will go on to.
        for _ in 0..blocks {
            overwrite(fs, file, dice.below(blocks));
        }
        for _ in 0..args.rounds {
            let (took, ()) = timed(|| {
                for _ in 0..OVERWRITES {
                    overwrite(fs, file, dice.below(blocks));
                }
                fs.sync().expect("synced");
            });
            rate(&mut rounds, "4 KiB overwrites, half full, one thread", OVERWRITES, took);
        }
    });
    rounds.report(report);
}
