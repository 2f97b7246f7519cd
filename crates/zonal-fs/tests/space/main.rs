//! Space: overwriting and freeing space always work, freed space can be used at once, and no block
//! is written twice.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stdout, reason = "what overwriting costs is a part of the result")]
#![expect(clippy::cast_precision_loss, reason = "ratios of bytes")]

mod ahead;
mod any_drive;
mod calls;
mod churn;
mod conventional;
mod copies;
mod df;
mod extents;
mod full;
mod gate;
mod growth;
mod host;
mod metadata;
mod pace;
mod placement;
mod refused;
mod rows;
mod share;
mod small_host;
mod steps;
mod straddle;
mod tables;
mod turns;

use std::sync::Arc;

use zonal::{GeometrySpec, LbaCount, ManualClock, ZonedDevice};
use zonal_fs::furrow::{
    AtimePolicy, DataCheck, DumpWhat, Furrow, MkfsOptions, MountOptions, check, dump, mkfs, sample,
};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

const BLOCK: u64 = 4096;

fn shape(zones: u64, zone_blocks: u64) -> GeometrySpec {
    GeometrySpec { max_append: LbaCount::new(256), ..sample::shape(zones, zone_blocks) }
}

fn format(drive: Arc<dyn ZonedDevice>) -> Furrow {
    mkfs(drive.clone(), &ManualClock::new(0), &MkfsOptions::default(), &mut |_| ()).unwrap();
    mount(drive)
}

fn mount(drive: Arc<dyn ZonedDevice>) -> Furrow {
    // An access time would be a change to commit.
    let options = MountOptions { atime: AtimePolicy::Never, ..MountOptions::default() };
    Furrow::mount(drive, Arc::new(ManualClock::new(1)), options).unwrap()
}

fn create(fs: &Furrow, name: &str) -> Ino {
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap().ino
}

/// Writes the first `blocks` blocks of a file, a megabyte at a time.
fn fill(fs: &Furrow, ino: Ino, blocks: u64) {
    let data = vec![1; 1 << 20];
    let mut at = 0;
    while at < blocks * BLOCK {
        let len = data.len().min(usize::try_from(blocks * BLOCK - at).unwrap());
        fs.write(ino, at, &data[..len], WriteFlags::DIRECT).unwrap();
        at += len as u64;
    }
}

/// Numbers below `limit`, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn assert_clean(drive: Arc<dyn ZonedDevice>) {
    let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Lengths of a drive's map entries, in the order of files and of blocks in them.
fn map_lengths(drive: Arc<dyn ZonedDevice>) -> Vec<u64> {
    let mut lengths = Vec::new();
    dump(drive, DumpWhat::Maps, &mut |map| lengths.push(map["blocks"].as_u64().unwrap())).unwrap();
    lengths
}
