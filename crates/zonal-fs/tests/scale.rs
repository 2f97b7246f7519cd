//! Metadata far larger than memory: millions of files, and one file in millions of pieces, with
//! `memory=256MiB`. All of it is read back after an unmount and after a power cut, a check finds
//! nothing, and the resident memory of a mount stays within the option all the time.
//!
//! `COUNT` in the environment is how many files or pieces; without it ten million files, and 64 GiB
//! in pieces of 4 KiB. Times are printed, and not judged. The drive keeps its metadata in the
//! directory for temporary files.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stdout, reason = "what it took is a part of the result")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

#[allow(dead_code, reason = "benchmarks use the rest")]
#[path = "../benches/furrow/drive.rs"]
mod drive;
#[allow(dead_code, reason = "benchmarks use the rest")]
#[path = "../benches/furrow/volume.rs"]
mod volume;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bench_support::{Machine, timed};
use drive::SparseDrive;
use volume::{
    BLOCK, BLOCK_BYTES, Dice, Made, create_directory, create_file, make_on, mount, scrambled,
};
use zonal::{ByteCount, repeat};
use zonal_fs::furrow::{CheckOptions, DataCheck, Furrow, MountOptions, check};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

const MEMORY: u64 = 256 << 20;

/// Memory in which a check compares rows.
const CHECK_MEMORY: u64 = 64 << 20;

/// Memory that a check takes in addition to that, and to memory that was resident before.
const CHECK_REST: u64 = 100 << 20;

/// Operations between two ticks.
const TICK: u64 = 1000;

/// Steps of overwriting a file.
const STEPS: u64 = 16;

/// Operations after which memory is looked at.
const LOOK: u64 = 1 << 17;

/// Files of a directory.
const FILES: u64 = 1000;

/// Overwrites here and there after a mount, and as many reads.
const USES: u64 = 20_000;

/// The tests measure the memory of the whole process, so one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The owner of the blocks: number n is a file of its own, or block n of the one file.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    OfFiles,
    OfOneFile,
}

/// A drive, and the blocks written to it.
struct Subject {
    blocks: Blocks,
    count: u64,
    drive: Arc<SparseDrive>,
    /// Blocks that were written once more after a mount.
    again: BTreeSet<u64>,
    /// Of the process, the drive aside, since the last time it was printed.
    resident_max: u64,
    /// The bound of `resident_max`.
    bound: u64,
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// The content of a block: a word that differs for each block and each time it was written.
fn content(number: u64, times: u64) -> [u8; BLOCK_BYTES] {
    let word = scrambled(number << 2 | times).to_le_bytes();
    std::array::from_fn(|at| word[at % 8])
}

impl Subject {
    fn place(&self, fs: &Furrow, number: u64) -> (Ino, u64) {
        let find = |home, name: &str| fs.lookup(home, name.as_bytes()).unwrap().ino;
        match self.blocks {
            Blocks::OfFiles => {
                let home = find(Ino::ROOT, &format!("d{}", number / FILES));
                (find(home, &format!("file-{}", number % FILES)), 0)
            }
            Blocks::OfOneFile => (find(Ino::ROOT, "file"), number),
        }
    }

    fn print_resident(&mut self, when: &str) {
        self.look(when);
        let resident = std::mem::take(&mut self.resident_max);
        println!("resident at most while {when}: {} MiB of {}", resident >> 20, self.bound >> 20);
    }

    fn resident(&self) -> u64 {
        resident().saturating_sub(self.drive.stored())
    }

    fn look(&mut self, when: &str) {
        let (resident, bound) = (self.resident(), self.bound);
        self.resident_max = self.resident_max.max(resident);
        assert!(resident <= bound, "{when}: {resident} bytes are resident, of {bound}");
    }

    /// Ticks, and looks at the memory, each after a number of operations.
    fn after(&mut self, fs: &Furrow, done: u64, when: &str) {
        if done.is_multiple_of(TICK) {
            fs.tick().unwrap();
        }
        if done.is_multiple_of(LOOK) {
            self.look(when);
        }
    }

    fn make_files(&mut self, fs: &Furrow) {
        let mut home = Ino::ROOT;
        for number in 0..self.count {
            if number.is_multiple_of(FILES) {
                home = create_directory(fs, &format!("d{}", number / FILES));
            }
            let file = create_file(fs, home, &format!("file-{}", number % FILES));
            write(fs, (file, 0), &content(number, 0));
            self.after(fs, number + 1, "making files");
        }
    }

    /// Writes each block alone, in an order that puts no two neighbours together.
    fn make_pieces(&mut self, fs: &Furrow) {
        let file = create_file(fs, Ino::ROOT, "file");
        volume::fill(fs, file, self.count * BLOCK);
        self.look("filling");
        let before = fs.stats();
        let (took, ()) = timed(|| self.overwrite_all(fs, file));
        let after = fs.stats();
        let data = (self.count * BLOCK) as f64;
        let share = (after.meta_bytes - before.meta_bytes) as f64 / data;
        let moved = (after.reclaim_bytes - before.reclaim_bytes) as f64 / data;
        let processor = took.processor / self.count as f64 * 1e6;
        println!("overwrites: {processor:.1} µs of processor time each");
        println!("for each byte of them {share:.4} of metadata, {moved:.2} of reclaim");
    }

    /// In steps, whose times tell whether one costs more the later it comes.
    fn overwrite_all(&mut self, fs: &Furrow, file: Ino) {
        assert!(self.count.is_power_of_two(), "the generator goes through powers of two");
        let step = self.count.div_ceil(STEPS);
        // A linear congruential generator of full period takes each block once.
        let mut block = 1_u64;
        for from in (0..self.count).step_by(usize::try_from(step).unwrap()) {
            let end = self.count.min(from + step);
            let (took, ()) = timed(|| {
                for done in from + 1..=end {
                    write(fs, (file, block), &content(block, 0));
                    let next = block.wrapping_mul(0x5851_f42d_4c95_7f2d);
                    block = next.wrapping_add(0x1405_7b7e_f767_814f) % self.count;
                    self.after(fs, done, "overwriting");
                }
            });
            let processor = took.processor / (end - from) as f64 * 1e6;
            println!(
                "{end} overwritten, the last ones in {:.0} s, {processor:.1} µs each",
                took.wall
            );
        }
    }

    /// Overwrites blocks here and there, then reads others and all of these.
    fn use_some(&mut self, fs: &Furrow, dice: &mut Dice) {
        let (overwritten, ()) = timed(|| {
            for done in 1..=USES {
                let number = dice.below(self.count);
                write(fs, self.place(fs, number), &content(number, 1));
                self.again.insert(number);
                self.after(fs, done, "overwriting after a mount");
            }
        });
        let (read, ()) = timed(|| {
            for done in 1..=USES {
                self.verify(fs, dice.below(self.count));
                self.after(fs, done, "reading after a mount");
            }
        });
        self.print_resident("using it after a mount");
        for &number in &self.again {
            self.verify(fs, number);
        }
        let [overwritten, read] =
            [overwritten, read].map(|took| took.processor / USES as f64 * 1e6);
        println!("an overwrite {overwritten:.1} µs, a read {read:.1} µs of processor time");
    }

    fn verify(&self, fs: &Furrow, number: u64) {
        let (file, block) = self.place(fs, number);
        let mut found = [0; BLOCK_BYTES];
        assert_eq!(fs.read(file, block * BLOCK, &mut found).unwrap(), BLOCK_BYTES);
        let expected = content(number, u64::from(self.again.contains(&number)));
        assert!(found == expected, "{:?}: block {number} holds something else", self.blocks);
    }

    fn mount(&mut self, after: &str) -> Furrow {
        let memory = ByteCount::new(MEMORY);
        let (took, fs) = timed(|| mount(self.drive.clone(), Arc::new(Machine), memory));
        println!("mount after {after}: {:.3} s", took.wall);
        self.look("mounting");
        fs
    }

    fn check(&mut self) {
        let options = CheckOptions { data: DataCheck::Read, memory: CHECK_MEMORY };
        let drive = self.drive.clone();
        self.bound = self.resident() + CHECK_MEMORY + CHECK_REST;
        let (took, report) =
            timed(|| check(drive, options, &mut |_| self.look("checking")).unwrap());
        assert!(report.is_clean(), "{:?}", report.problems);
        assert!(report.blocks_read >= self.count, "all data is read");
        println!("a check with data: {:.0} s", took.wall);
        self.print_resident("checking");
    }
}

fn write(fs: &Furrow, (file, block): (Ino, u64), data: &[u8]) {
    fs.write(file, block * BLOCK, data, WriteFlags::DIRECT).unwrap();
}

fn keeps_to_memory(blocks: Blocks, count: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let zone_mib = 64;
    // Half of it is in use.
    let zones = (count * BLOCK / (zone_mib << 19)).max(256);
    let drive = Arc::new(SparseDrive::in_file(zones, zone_mib).unwrap());
    let options = MountOptions { memory: ByteCount::new(MEMORY), ..MountOptions::default() };
    let Made { fs, drive, .. } = make_on(drive, Arc::new(Machine), options);
    let mut subject =
        Subject { blocks, count, drive, again: BTreeSet::new(), resident_max: 0, bound: MEMORY };
    let (took, ()) = timed(|| match blocks {
        Blocks::OfFiles => subject.make_files(&fs),
        Blocks::OfOneFile => subject.make_pieces(&fs),
    });
    let (wall, each) = (took.wall, took.processor / count as f64 * 1e6);
    println!("{blocks:?}, {count}: made in {wall:.0} s, {each:.1} µs of processor time each");
    let meta = fs.stats().meta_bytes as f64 / count as f64;
    println!("metadata written for each, both copies: {meta:.0} bytes");
    subject.print_resident("making it");
    fs.shutdown().unwrap();
    drop(fs);
    let mut dice = Dice(5);
    let fs = subject.mount("an unmount");
    subject.use_some(&fs, &mut dice);
    fs.sync().unwrap();
    drop(fs);
    let fs = subject.mount("a power cut");
    subject.use_some(&fs, &mut dice);
    fs.shutdown().unwrap();
    drop(fs);
    subject.check();
}

#[test]
#[ignore = "takes a quarter of an hour; run by cargo xtask test --soak"]
fn memory_bounds_ten_million_files() {
    keeps_to_memory(Blocks::OfFiles, repeat::count(10_000_000));
}

#[test]
#[ignore = "takes half an hour; run by cargo xtask test --soak"]
fn memory_bounds_file_of_sixteen_million_extents() {
    keeps_to_memory(Blocks::OfOneFile, repeat::count(16 << 20));
}
