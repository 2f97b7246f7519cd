//! Files that grow by short writes have a zone of their own each, as files have that programs write
//! in large pieces.

use std::num::NonZeroU32;
use std::sync::Arc;

use zonal::{GeometrySpec, MemoryDrive};
use zonal_fs::furrow::{Furrow, MountOptions, Stats};
use zonal_fs::vfs::{FileSystem, Ino, WriteFlags};

use super::placement::{files_of_zones, mount_with};
use super::{Dice, assert_clean, create, format, shape};

const MIB: u64 = 1 << 20;

/// Files in a zone of 96 MiB on average, after `writers` writers have written a file of 64 MiB
/// each, one piece in turn.
fn files_a_zone(writers: u64, piece: usize, max_open_zones: Option<NonZeroU32>) -> f64 {
    let (max_open, max_active) = (Some(28), Some(28));
    let shape = GeometrySpec { max_open, max_active, ..shape(96, 24_576) };
    let drive = Arc::new(MemoryDrive::new(shape).unwrap());
    drop(format(drive.clone()));
    let options = MountOptions { max_open_zones, ..MountOptions::default() };
    let fs = mount_with(drive.clone(), options);
    let files: Vec<Ino> = (0..writers).map(|file| create(&fs, &format!("file {file}"))).collect();
    let data = vec![7; piece];
    for at in (0..64 * MIB).step_by(piece) {
        for &file in &files {
            fs.write(file, at, &data, WriteFlags::empty()).unwrap();
        }
    }
    fs.sync().unwrap();
    let zones = files_of_zones(drive);
    let all: usize = zones.values().map(std::collections::BTreeSet::len).sum();
    all as f64 / zones.len() as f64
}

#[test]
fn growing_files_have_zone_each_at_any_write_size() {
    // HDFS writes 64,512 bytes at a time, tar 10,240.
    for piece in [4 << 10, 10_240, 64_512, 64 << 10, 100_000, 256 << 10] {
        let found = files_a_zone(8, piece, None);
        println!("8 writers of {piece} bytes: {found:.2} files a zone");
        assert!(found <= 1.1, "{piece} bytes: {found:.2} files a zone");
    }
}

#[test]
fn growing_files_have_zone_each_up_to_open_limit() {
    for piece in [64 << 10, 256 << 10, 1 << 20] {
        let found = files_a_zone(3, piece, NonZeroU32::new(3));
        println!("3 writers of {piece} bytes, 3 zones: {found:.2} files a zone");
        assert!(found <= 1.1, "{piece} bytes: {found:.2} files a zone");
    }
}

/// Zones of a drive.
const ZONES: u64 = 96;

/// Blocks of a zone, and of each file.
const ZONE_BLOCKS: u64 = 2048;

/// Files of a zone each, which some writers write at once, and which are deleted at random.
struct Churn {
    fs: Furrow,
    dice: Dice,
    /// Numbers of files.
    live: Vec<u64>,
    made: u64,
}

impl Churn {
    /// Makes files, piece by piece, of which three quarters of the drive hold as many as they can.
    fn go_on(&mut self, writers: u64, piece: usize, until: u64) {
        let data = vec![7; piece];
        while self.made < until {
            while (self.live.len() as u64 + writers) * 4 > ZONES * 3 {
                let chosen = usize::try_from(self.dice.below(self.live.len() as u64)).unwrap();
                let name = self.live.swap_remove(chosen).to_string();
                self.fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            }
            let new = self.made..self.made + writers;
            self.made = new.end;
            let files: Vec<Ino> =
                new.clone().map(|number| create(&self.fs, &number.to_string())).collect();
            self.write(&files, &data);
            self.live.extend(new);
        }
    }

    /// Writes all of some files, syncing now and then as a mount does.
    fn write(&self, files: &[Ino], data: &[u8]) {
        let bytes = ZONE_BLOCKS * super::BLOCK;
        for at in (0..bytes).step_by(data.len()) {
            let len = data.len().min(usize::try_from(bytes - at).unwrap());
            for &file in files {
                self.fs.write(file, at, &data[..len], WriteFlags::empty()).unwrap();
            }
            if at % (3 * MIB) < data.len() as u64 && at > 0 {
                self.fs.sync().unwrap();
                self.fs.tick().unwrap();
            }
        }
    }
}

/// Bytes written to the drive for each byte of files, in the second half of four turns of the
/// drive.
fn amplification(writers: u64, piece: usize) -> f64 {
    let drive = Arc::new(MemoryDrive::new(shape(ZONES, ZONE_BLOCKS)).unwrap());
    let fs = format(drive.clone());
    let mut churn = Churn { fs, dice: Dice(27), live: Vec::new(), made: 0 };
    churn.go_on(writers, piece, 2 * ZONES);
    let before = churn.fs.stats();
    churn.go_on(writers, piece, 4 * ZONES);
    let after = churn.fs.stats();
    churn.fs.shutdown().unwrap();
    drop(churn);
    assert_clean(drive);
    let bytes = |stats: &Stats| stats.user_bytes + stats.reclaim_bytes + stats.meta_bytes;
    (bytes(&after) - bytes(&before)) as f64 / (after.user_bytes - before.user_bytes) as f64
}

#[test]
fn growing_files_with_zone_each_amplify_little() {
    for writers in [1, 4] {
        for piece in [64 << 10, 100_000, 128 << 10] {
            let found = amplification(writers, piece);
            println!("{writers} writers of {piece} bytes: {found:.3}");
            assert!(found <= 1.05, "{writers} writers of {piece} bytes: {found:.3}");
        }
    }
}
