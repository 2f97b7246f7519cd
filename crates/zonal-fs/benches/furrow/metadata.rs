//! Bytes of metadata for each byte that programs write. One thread and a clock that the work moves:
//! the same bytes each time.

use std::collections::VecDeque;
use std::sync::Arc;

use bench_support::{Report, timed};
use zonal::ManualClock;
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use crate::Args;
use crate::drive::{Counts, SparseDrive};

use crate::volume::{
    BLOCK, Dice, Made, Worker, create_directory, create_file, fill, make_with, new_block,
    overwrite, scrambled,
};

/// A file system whose clock moves with its operations: `per_second` of them in a second.
pub(crate) struct Paced {
    pub(crate) drive: Arc<SparseDrive>,
    pub(crate) fs: Furrow,
    worker: Arc<Worker>,
    clock: Arc<ManualClock>,
    per_second: u64,
    done: u64,
    dice: Dice,
}

/// Counters at the start of a measurement.
struct Mark {
    drive: Counts,
    user: u64,
    reclaim: u64,
}

impl Paced {
    fn new(zones: u64, zone_mib: u64, per_second: u64) -> Self {
        Self::with((zones, zone_mib), per_second, MountOptions::default())
    }

    pub(crate) fn with(
        (zones, zone_mib): (u64, u64),
        per_second: u64,
        options: MountOptions,
    ) -> Self {
        let clock = Arc::new(ManualClock::new(1));
        let Made { drive, fs, worker } = make_with(zones, zone_mib, clock.clone(), options);
        Self { drive, fs, worker, clock, per_second, done: 0, dice: Dice(9) }
    }

    /// Counts an operation, and does background work at once.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        let is_due = self.done.is_multiple_of(self.per_second);
        // On average its share of the second: times in rows are as irregular as real ones.
        self.clock.advance_ns(self.dice.below(2_000_000_000 / self.per_second));
        if self.worker.take_need() || is_due {
            self.fs.tick().expect("work in the background");
        }
    }

    fn mark(&self) -> Mark {
        let stats = self.fs.stats();
        Mark { drive: self.drive.counts(), user: stats.user_bytes, reclaim: stats.reclaim_bytes }
    }

    /// Bytes of users, of reclaim and of everything else since then.
    fn since(&self, mark: &Mark) -> [f64; 3] {
        let now = self.mark();
        let (user, reclaim) = (now.user - mark.user, now.reclaim - mark.reclaim);
        let metadata = (now.drive - mark.drive).written - user - reclaim;
        [user as f64, reclaim as f64, metadata as f64]
    }
}

/// Parts of a turn; the figures of each are told while a large drive is overwritten.
const PARTS: u64 = 16;

/// Overwrites of a file that takes 80 % of a drive: its zones and their MiB, and how many turns of
/// it are written before the others are counted.
struct Overwrites {
    name: &'static str,
    drive: (u64, u64),
    turns: (u64, u64),
}

/// Five workloads.
pub(crate) fn metadata(args: &Args, report: &mut Report) {
    if args.is_large {
        let large = Overwrites { name: "uniform, 64 GiB", drive: (1280, 64), turns: (1, 1) };
        return overwrites((args, report), &large, Dice::below);
    }
    let small = |name| Overwrites { name, drive: (256, 8), turns: (2, 2) };
    overwrites((args, report), &small("uniform"), Dice::below);
    let zipf = Zipf::new(0.99, 2 * 1024 * 1024 * 1024 / BLOCK * 8 / 10);
    overwrites((args, report), &small("Zipf 0.99"), |dice, blocks| zipf.block(dice, blocks));
    churn(report);
    small_files(report);
    empty_files(report);
}

fn ratios(report: &mut Report, name: &str, [user, reclaim, metadata]: [f64; 3]) {
    report.count(&format!("{name}: metadata"), "bytes per byte written", metadata / user);
    report.count(&format!("{name}: reclaim"), "bytes per byte written", reclaim / user);
}

fn overwrites(
    (args, report): (&Args, &mut Report),
    &Overwrites { name, drive, turns }: &Overwrites,
    mut block: impl FnMut(&mut Dice, u64) -> u64,
) {
    let mut paced = Paced::new(drive.0, drive.1, 10_000);
    let file = create_file(&paced.fs, Ino::ROOT, "file");
    let all = paced.drive.bytes() / BLOCK;
    let blocks = (all * 8 / 10).min(paced.fs.statfs().expect("it says").blocks_free);
    fill(&paced.fs, file, blocks * BLOCK);
    let mut dice = Dice(5);
    let mut mark = paced.mark();
    for part in 0..(turns.0 + turns.1) * PARTS {
        if part == turns.0 * PARTS {
            paced.fs.sync().expect("synced");
            mark = paced.mark();
        }
        let before = paced.mark();
        let (took, ()) = timed(|| {
            for _ in 0..all / PARTS {
                overwrite(&paced.fs, file, block(&mut dice, blocks));
                paced.step();
            }
        });
        if args.is_large {
            let [user, reclaim, metadata] = paced.since(&before).map(|bytes| bytes / BLOCK as f64);
            let each = took.processor / user * 1e6;
            println!(
                "{}/{PARTS} of the drive overwritten; the last part: metadata {:.4}, reclaim {:.3} for each byte, \
                 {each:.1} µs of processor time a block",
                part + 1,
                metadata / user,
                reclaim / user,
            );
        }
    }
    paced.fs.sync().expect("synced");
    let name = format!("4 KiB overwrites, {name}, 80 % of raw");
    report.count(&format!("{name}: what can be filled"), "of raw", blocks as f64 / all as f64);
    ratios(report, &name, paced.since(&mark));
}

/// Ranks with a probability of rank to the power of minus `skew`, after Gray et al., "Quickly
/// generating billion-record synthetic databases" (1994).
pub(crate) struct Zipf {
    items: u64,
    skew: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub(crate) fn new(skew: f64, items: u64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-skew)).sum::<f64>();
        let all = zeta(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - skew)) / (1.0 - zeta(2) / all);
        Self { items, skew, zeta: all, eta }
    }

    /// A block; which ones are hot has nothing to do with where they lie.
    pub(crate) fn block(&self, dice: &mut Dice, blocks: u64) -> u64 {
        scattered(self.rank(dice)) % blocks
    }

    /// A rank, 0 the hottest.
    pub(crate) fn rank(&self, dice: &mut Dice) -> u64 {
        let share = dice.share();
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.skew) {
            1
        } else {
            let base = self.eta * share - self.eta + 1.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
            let rank = (self.items as f64 * base.powf(1.0 / (1.0 - self.skew))) as u64;
            rank.min(self.items - 1)
        }
    }
}

/// A number that has nothing to do with its neighbours'.
pub(crate) const fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Files of 16 KiB to 2 MiB, made and deleted in a drive of 4 GiB that stays half full.
fn churn(report: &mut Report) {
    let mut paced = Paced::new(256, 16, 200);
    let home = create_directory(&paced.fs, "home");
    let all = paced.drive.bytes();
    let mut dice = Dice(6);
    let mut alive: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut held, mut written) = (0, 0);
    let mut mark = paced.mark();
    let data = vec![7; 2 << 20];
    let mut number = 0;
    let mut is_measured = false;
    while written < 3 * all {
        if !is_measured && written >= all {
            (is_measured, mark) = (true, paced.mark());
        }
        // As many of 16 to 32 KiB as of 1 to 2 MiB.
        let bytes = (16 << 10 << dice.below(7)) * (64 + dice.below(64)) / 64;
        let file = create_file(&paced.fs, home, &number.to_string());
        let len = usize::try_from(bytes).expect("at most 2 MiB");
        paced.fs.write(file, 0, &data[..len], WriteFlags::empty()).expect("written");
        alive.push_back((number, bytes));
        (number, held, written) = (number + 1, held + bytes, written + bytes);
        while held > all / 2 {
            let at = usize::try_from(dice.below(alive.len() as u64)).expect("an index");
            let (number, bytes) = alive.swap_remove_back(at).expect("it is there");
            paced.fs.unlink(home, number.to_string().as_bytes()).expect("deleted");
            held -= bytes;
        }
        paced.step();
    }
    paced.fs.sync().expect("synced");
    ratios(report, "files of 16 KiB to 2 MiB made and deleted", paced.since(&mark));
}

/// Four hundred thousand files of 4 KiB, directory by directory.
fn small_files(report: &mut Report) {
    let mut paced = Paced::new(256, 16, 10_000);
    let mark = paced.mark();
    for directory in 0..400 {
        let home = create_directory(&paced.fs, &format!("directory-{directory}"));
        for number in 0..1000 {
            let file = create_file(&paced.fs, home, &format!("{:09x}", scrambled(number) >> 28));
            paced.fs.write(file, 0, &new_block(), WriteFlags::empty()).expect("written");
            paced.step();
        }
    }
    paced.fs.sync().expect("synced");
    let [user, _, metadata] = paced.since(&mark);
    report.count("files of 4 KiB: metadata", "bytes per byte written", metadata / user);
    report.count("files of 4 KiB: metadata per file", "bytes", metadata / 4e5);
}

/// A million empty files made; each is deleted when 200,000 later ones are there.
fn empty_files(report: &mut Report) {
    const FILES: u64 = 1_000_000;
    const ALIVE: u64 = 200_000;
    let mut paced = Paced::new(256, 16, 20_000);
    let home = create_directory(&paced.fs, "home");
    let mark = paced.mark();
    let name = |number: u64| format!("{:012x}", scrambled(number) >> 16);
    for number in 0..FILES + ALIVE {
        if number < FILES {
            create_file(&paced.fs, home, &name(number));
        }
        if let Some(earlier) = number.checked_sub(ALIVE) {
            paced.fs.unlink(home, name(earlier).as_bytes()).expect("deleted");
        }
        paced.step();
    }
    paced.fs.sync().expect("synced");
    let [_, _, metadata] = paced.since(&mark);
    report.count(
        "empty files made and deleted: metadata per file",
        "bytes",
        metadata / FILES as f64,
    );
}
