//! Reading ahead on a disk: small files that were written one after the other are read in few
//! commands, never outdated, and a block that nobody asked for fails no read.

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::BTreeMap;
use std::sync::Arc;

use zonal::layer::fault::{Fault, FaultKind, FaultOp, FaultPlan, FaultRule};
use zonal::layer::meter::{Meter, OpKind};
use zonal::{GeometrySpec, ManualClock, MemoryDrive, ZonedDevice, repeat};
use zonal_fs::furrow::{AtimePolicy, Furrow, MountOptions};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::{BLOCK, Dice, assert_clean, create, format, shape};

/// Small files of the cold trees.
const FILES: u64 = 400;

fn mount(drive: Arc<dyn ZonedDevice>, rotational: Option<bool>) -> Furrow {
    let options = MountOptions { rotational, atime: AtimePolicy::Never, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(ManualClock::new(1)), options).unwrap()
}

/// The content of a file of one to three blocks.
fn content(file: u64) -> Vec<u8> {
    let bytes = (file * 1009 % (3 * BLOCK) + 1) as usize;
    (0..bytes).map(|at| (at as u64 / 7 + file) as u8).collect()
}

/// Writes files one after the other.
fn fill_tree(drive: Arc<dyn ZonedDevice>) -> Vec<Ino> {
    drop(format(drive.clone()));
    let fs = mount(drive, Some(true));
    let make = |file: u64| {
        let ino = create(&fs, &format!("file {file}"));
        fs.write(ino, 0, &content(file), WriteFlags::empty()).unwrap();
        ino
    };
    let files = (0..FILES).map(make).collect();
    fs.shutdown().unwrap();
    files
}

/// Reads the files in their order. Returns how many cannot be read.
fn read_tree(fs: &Furrow, files: &[Ino]) -> u64 {
    let mut failed = 0;
    for (file, &ino) in (0..).zip(files) {
        let mut found = vec![0; 4 * BLOCK as usize];
        match fs.read(ino, 0, &mut found) {
            Ok(bytes) => assert!(found[..bytes] == content(file), "file {file}"),
            Err(error) => {
                println!("file {file}: {error}");
                failed += 1;
            }
        }
    }
    failed
}

#[test]
fn cold_tree_is_read_in_few_commands_on_disk() {
    let commands = [true, false].map(|rotational| {
        let clock = Arc::new(ManualClock::new(0));
        let drive = Arc::new(Meter::new(MemoryDrive::new(shape(32, 2048)).unwrap(), clock));
        let files = fill_tree(drive.clone());
        let fs = mount(drive.clone(), Some(rotational));
        let count = || drive.counters().of(OpKind::Read).count;
        let before = count();
        assert_eq!(read_tree(&fs, &files), 0);
        count() - before
    });
    let [disk, flash] = commands;
    println!("{FILES} files in {disk} reads on a disk, {flash} on flash");
    assert!(disk <= FILES / 10, "{disk} reads");
    assert!(flash >= FILES, "flash reads as much as is asked for");
}

#[test]
fn failed_read_of_cold_tree_fails_one_file_at_most() {
    for kind in [FaultKind::Medium, FaultKind::Flip] {
        let drive = MemoryDrive::new(shape(32, 2048)).unwrap();
        let drive = Arc::new(Fault::new(drive, FaultPlan { rules: vec![], seed: 1 }));
        let files = fill_tree(drive.clone());
        let (mut nth, mut failed) = (1, 0);
        loop {
            drive.disarm();
            let fs = mount(drive.clone(), Some(true));
            let before = drive.fired();
            drive.arm(vec![FaultRule::new(FaultOp::Read, kind).at_nth(nth)]);
            let lost = read_tree(&fs, &files);
            assert!(lost <= 1, "{kind:?} {nth}: {lost} files");
            failed += lost;
            if drive.fired() == before {
                break;
            }
            assert_eq!(read_tree(&fs, &files), 0, "{kind:?} {nth}: the fault is over");
            nth += 1;
        }
        println!("{kind:?}: {failed} files not read at {nth} reads");
        assert!(nth > 5);
        // Only reads of one file by itself fail: the first ones, before any goes on.
        assert!(failed <= 2, "{failed} files");
    }
}

/// Files and their content.
struct World {
    fs: Furrow,
    dice: Dice,
    files: BTreeMap<Ino, Vec<u8>>,
    made: u64,
}

impl World {
    fn random_file(&mut self) -> Option<Ino> {
        let at = self.dice.below(self.files.len().max(1) as u64);
        self.files.keys().nth(at as usize).copied()
    }

    /// Writes a part of a file.
    fn write(&mut self, ino: Ino, most: u64) {
        let (offset, len) = (self.dice.below(6) * 2000, 1 + self.dice.below(most) as usize);
        let data = vec![self.dice.below(256) as u8; len];
        self.fs.write(ino, offset, &data, WriteFlags::empty()).unwrap();
        let held = self.files.get_mut(&ino).unwrap();
        let end = offset as usize + len;
        held.resize(held.len().max(end), 0);
        held[offset as usize..end].copy_from_slice(&data);
    }

    fn step(&mut self) {
        let used = self.files.values().map(Vec::len).sum::<usize>() as u64;
        match self.dice.below(40) {
            0..=19 if used < 12 << 20 => {
                let name = self.made.to_string();
                self.made += 1;
                let ino = create(&self.fs, &name);
                self.files.insert(ino, Vec::new());
                self.write(ino, 80_000);
            }
            0..=21 => {
                if let Some(ino) = self.random_file() {
                    self.write(ino, 40_000);
                }
            }
            22..=25 => self.remove_some(),
            26..=31 => self.fs.sync().unwrap(),
            32..=37 => self.fs.tick().unwrap(),
            _ => self.read_some(),
        }
    }

    /// Deletes some files that were made one after the other.
    fn remove_some(&mut self) {
        let first = self.dice.below(self.made.max(1));
        for number in first..self.made.min(first + 60) {
            let name = number.to_string();
            if let Ok(found) = self.fs.lookup(Ino::ROOT, name.as_bytes()) {
                self.fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                self.files.remove(&found.ino);
            }
        }
    }

    /// Reads some files one after the other.
    fn read_some(&mut self) {
        let Some(first) = self.random_file() else { return };
        let count = 1 + self.dice.below(40) as usize;
        for (&ino, content) in self.files.range(first..).take(count) {
            let mut found = vec![1; content.len() + 10];
            let bytes = self.fs.read(ino, 0, &mut found).unwrap();
            assert!(found[..bytes] == content[..], "{ino:?}");
        }
    }
}

/// `COUNT` rounds of 6,000 operations, from `SEED` on: on a small drive, so that zones are reset
/// and written again all the time.
#[test]
fn blocks_read_ahead_are_never_outdated() {
    let (first, count) = (repeat::seed(7), repeat::count(4));
    for seed in first..first + count {
        println!("SEED={seed}");
        // The zone that was reset first is written first, as on every disk.
        let shape = GeometrySpec { max_active: None, ..shape(32, 256) };
        let drive = Arc::new(MemoryDrive::new(shape).unwrap());
        drop(format(drive.clone()));
        let fs = mount(drive.clone(), Some(true));
        let mut world = World { fs, dice: Dice(seed), files: BTreeMap::new(), made: 0 };
        for _ in 0..6000 {
            world.step();
        }
        let stats = world.fs.stats();
        println!("{} resets, {} bytes moved", stats.resets, stats.reclaim_bytes);
        assert!(stats.resets > 30, "zones are written again");
        assert_eq!(stats.blocks_reread, 0, "a block was outdated");
        world.fs.shutdown().unwrap();
        drop(world);
        assert_clean(drive);
    }
}
