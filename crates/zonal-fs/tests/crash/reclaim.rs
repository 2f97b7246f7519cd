//! Reclaim on a drive that misbehaves. Reclaim resets its victims, so it must have read their
//! blocks right.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use zonal::image::Image;
use zonal::{DeviceError, Lba, LbaCount, ZoneId, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{DumpWhat, Furrow, MountOptions, dump};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use crate::hooked::{Hook, Hooked};
use crate::ops::content;
use crate::ops::drives::{self, SMALL, StepClock};
use crate::run::Start;

/// Once armed, each block comes back wrong the first time that it is read.
#[derive(Default)]
struct WrongOnce {
    armed: AtomicBool,
    seen: Mutex<BTreeSet<Lba>>,
}

impl Hook for WrongOnce {
    fn after_read(&self, lba: Lba, bytes: &mut [u8]) -> Result<(), DeviceError> {
        if !self.armed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut seen = self.seen.lock().expect("no panic");
        for (index, block) in (0..).zip(bytes.chunks_mut(4096)) {
            if seen.insert(lba + LbaCount::new(index)) {
                block[100] ^= 0x10;
            }
        }
        Ok(())
    }
}

fn mount(drive: Arc<dyn ZonedDevice>, clock: Arc<StepClock>) -> Furrow {
    Furrow::mount(drive, clock, MountOptions::default()).expect("mount")
}

/// A full drive, and the blocks of its ballast.
fn full() -> (Image, u64) {
    let blocks = SMALL.ballast_max() + 100;
    (Start::new(&SMALL, blocks, &[]).image, blocks)
}

/// Writes blocks of the ballast again, scattered, except `spared`.
fn churn(fs: &Furrow, blocks: u64, spared: u64) -> Vec<u16> {
    let ballast = fs.lookup(Ino::ROOT, b"ballast").expect("it is there").ino;
    let mut seeds = vec![0; blocks as usize];
    for round in 0..3 * blocks {
        let (block, seed) = (round * 61 % blocks, 3 + (round % 60_000) as u16);
        if block == spared {
            continue;
        }
        let data = content(seed, block * 4096, 4096);
        fs.write(ballast, block * 4096, &data, WriteFlags::DIRECT).expect("an overwrite");
        seeds[block as usize] = seed;
    }
    fs.sync().expect("sync");
    seeds
}

#[test]
fn reclaim_retries_read_that_is_wrong_once() {
    let (image, blocks) = full();
    let drive = Hooked::new(Arc::new(image.power_on()), WrongOnce::default());
    let fs = mount(drive.clone(), Arc::new(StepClock::default()));
    drive.hook.armed.store(true, Ordering::Relaxed);
    let seeds = churn(&fs, blocks, u64::MAX);
    let stats = fs.stats();
    assert!(stats.reclaim_bytes > 0 && stats.blocks_reread > 0, "{stats:?}");
    assert_eq!(stats.blocks_moved_wrong, 0);
    drive.hook.armed.store(false, Ordering::Relaxed);
    let ballast = fs.lookup(Ino::ROOT, b"ballast").expect("it is there").ino;
    let mut data = vec![0; 4096];
    for (block, seed) in (0..).zip(seeds) {
        fs.read(ballast, block * 4096, &mut data).unwrap_or_else(|error| panic!("{error}"));
        assert!(seed == 0 || data == content(seed, block * 4096, 4096), "block {block}");
    }
    drop(fs);
    assert_eq!(drives::problems(drive), Vec::<String>::new());
}

#[test]
fn reclaim_moves_bad_block_with_checksum_and_counts_it() {
    let (mut image, blocks) = full();
    // The first block of the file, wherever it lies.
    let drive: Arc<dyn ZonedDevice> = Arc::new(image.power_on());
    let mut bad = None;
    dump(drive, DumpWhat::Maps, &mut |map| {
        if map["first"] == 0 {
            let zone = map["zone"].as_u64().expect("a number") as u32;
            let block = map["block"].as_u64().expect("a number");
            let start = SMALL.geometry().zone_start(ZoneId::new(zone));
            bad = Some(start + LbaCount::new(block));
        }
    })
    .expect("dump");
    image.flip_bit(bad.expect("the ballast has a first block"), 77);
    let drive: Arc<dyn ZonedDevice> = Arc::new(image.power_on());
    let fs = mount(drive.clone(), Arc::new(StepClock::default()));
    churn(&fs, blocks, 0);
    assert!(fs.stats().blocks_moved_wrong > 0, "its zone was meant to be a victim");
    let ballast = fs.lookup(Ino::ROOT, b"ballast").expect("it is there").ino;
    let mut data = vec![0; 4096];
    let wrong = fs.read(ballast, 0, &mut data).err();
    assert!(matches!(wrong, Some(FsError::Checksum { offset: 0, .. })), "{wrong:?}");
    fs.read(ballast, 4096, &mut data).expect("its neighbour can be read");
    drop(fs);
    let problems = drives::problems(drive);
    assert!(problems.len() == 1 && problems[0].contains("C30"), "{problems:?}");
}
