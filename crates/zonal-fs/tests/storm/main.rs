//! One rig: threads, memory pressure, faults, full drives, kills and power cuts, all from one seed.
//!
//! A round is a drive of some shape and a few threads that do any operations on one tree, one at a
//! time and in an order that the seed decides: at every lock and every call of the drive another
//! one may go on. The answers must fit some order of the operations. Then the power is cut at
//! moments by chance, and again in the recovery: the tree must then be in a state of a moment at or
//! after the last promise, `check` with all data must be clean, and the drive must go on: work in
//! the background, deletion, sync, unmount and mount.
//!
//! | file | question |
//! | --- | --- |
//! | `scheduler` | which thread goes on? |
//! | `drive` | how does the drive serve calls, and how does it fail them? |
//! | `setting` | how does a seed set up a round? |
//! | `choice` | which operation comes next? |
//! | `world` | what do the threads do? |
//! | `model`, `node` | how does an operation change the tree? |
//! | `copying` | how does a copy change it, step by step? |
//! | `history` | which states may the tree have? |
//! | `check` | what must hold after a cut? |
//! | `ending` | what must hold once all faults have ended? |
//! | `overlap` | does a write wait for a zone that another one is about to fill? |
//! | `planted` | does it notice mistakes that are made on purpose? |
//!
//! `SEED` chooses the first round, `COUNT` says how many there are: `SEED=n COUNT=1` repeats the
//! one that failed.

#[path = "../ops/mod.rs"]
mod ops;

mod check;
mod choice;
mod copying;
mod drive;
mod ending;
mod history;
mod model;
mod node;
mod overlap;
mod planted;
mod round;
mod scheduler;
mod setting;
mod splitting;
mod world;

use check::Tally;
use zonal::repeat;

/// Rounds of about a minute of a busy processor.
const ROUNDS: u64 = 120;

#[test]
fn storm_loses_nothing_and_never_wedges() {
    let (first, rounds) = (repeat::seed(1), repeat::count(ROUNDS));
    let mut tally = Tally::default();
    for seed in first..first + rounds {
        match round::run(seed, None) {
            Ok(one) => tally += one,
            Err(why) => panic!("SEED={seed} COUNT=1: {why}"),
        }
    }
    println!("{tally:?}");
}
