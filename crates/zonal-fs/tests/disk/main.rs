//! Ordinary disks on zones: their promises, compared with bytes in memory and after power cuts.
//!
//! | file | question |
//! | --- | --- |
//! | `model` | does a disk act as an array of bytes, over snapshots, resizes and mounts too? |
//! | `cuts` | which states can a power cut leave? |
//! | `threads` | does a reader see a part of a write? |
//! | `set` | how are disks made, listed, copied and removed, and which calls fail? |
//! | `open` | which calls work on a disk that is in use? |
//!
//! In the environment: `SEED` chooses the random work (it is printed), `COUNT` multiplies it.
#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small limits")]

mod cuts;
mod model;
mod open;
mod set;
mod threads;

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::{ManualClock, ZonedDevice, repeat};
use zonal_fs::disk::{DiskName, Disks};
use zonal_fs::furrow::{DataCheck, MkfsOptions, check, mkfs};
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};

/// Chance, printed so that a run can be repeated.
struct Dice(ChaCha8Rng);

impl Dice {
    fn new() -> Self {
        Self(ChaCha8Rng::seed_from_u64(repeat::seed(rand::random())))
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit.max(1)
    }
}

/// `default` times `COUNT`.
fn count(default: u64) -> u64 {
    default * repeat::count(1)
}

fn name(text: &str) -> DiskName {
    text.parse().unwrap()
}

fn format(drive: Arc<dyn ZonedDevice>) {
    mkfs(drive, &ManualClock::new(0), &MkfsOptions::default(), &mut |_| ()).unwrap();
}

/// The disks of a formatted drive. The tests do the work that is due by time.
fn disks(drive: Arc<dyn ZonedDevice>) -> (Volume, Disks) {
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    let volume = Volume::mount(drive, Arc::new(ManualClock::new(1)), &options).unwrap();
    (volume.clone(), Disks::new(volume).unwrap())
}

fn assert_clean(drive: Arc<dyn ZonedDevice>) {
    let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
