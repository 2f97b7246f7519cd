//! A disk compared with an array of bytes: random requests of all kinds.

use std::sync::Arc;

use zonal::disk::{Content, Disk, Durability, ZeroedSpace};
use zonal::{BlockSize, ByteCount, Lba, LbaCount, MemoryDrive};
use zonal_fs::disk::{DiskSettings, DiskSpace, Disks, FurrowDisk};
use zonal_fs::furrow::sample;
use zonal_fs::volume::Volume;

use super::{Dice, assert_clean, count, disks, format, name};

/// Bytes that Furrow keeps together.
const UNIT: u64 = 4096;

/// A disk, and the bytes that it should have.
struct Model {
    drive: Arc<MemoryDrive>,
    volume: Volume,
    disks: Disks,
    disk: Option<Arc<FurrowDisk>>,
    settings: DiskSettings,
    bytes: Vec<u8>,
    /// Snapshots with their content.
    snapshots: Vec<(String, Vec<u8>)>,
    dice: Dice,
}

impl Model {
    fn new(settings: DiskSettings, size: u64) -> Self {
        let drive = Arc::new(MemoryDrive::new(sample::shape(96, 64)).unwrap());
        format(drive.clone());
        let (volume, disks) = disks(drive.clone());
        disks.create(&name("disk"), ByteCount::new(size), settings).unwrap();
        let disk = Some(disks.open(&name("disk")).unwrap());
        let bytes = vec![0; size as usize];
        let (snapshots, dice) = (Vec::new(), Dice::new());
        Self { drive, volume, disks, disk, settings, bytes, snapshots, dice }
    }

    fn disk(&self) -> &FurrowDisk {
        self.disk.as_ref().unwrap()
    }

    fn block(&self) -> u64 {
        self.settings.block_size.bytes()
    }

    /// A range of blocks, mostly short, as first block and number.
    fn range(&mut self) -> (Lba, LbaCount) {
        let all = self.bytes.len() as u64 / self.block();
        let first = self.dice.below(all);
        let longest = match self.dice.below(8) {
            0 => 300,
            1 => 40,
            _ => 6,
        };
        let blocks = 1 + self.dice.below(longest * 4096 / self.block());
        (Lba::new(first), LbaCount::new(blocks.min(all - first)))
    }

    fn bytes_of(&self, lba: Lba, blocks: LbaCount) -> std::ops::Range<usize> {
        let bytes = self.disk().shape().range(lba, blocks).unwrap();
        bytes.start as usize..bytes.end as usize
    }

    fn durability(&mut self) -> Durability {
        if self.dice.below(10) == 0 { Durability::AtOnce } else { Durability::Later }
    }

    fn step(&mut self) {
        let (lba, blocks) = self.range();
        let range = self.bytes_of(lba, blocks);
        match self.dice.below(100) {
            0..45 => {
                let byte = self.dice.below(255) as u8 + 1;
                self.bytes[range.clone()].fill(byte);
                let durability = self.durability();
                self.disk().write(lba, &self.bytes[range], durability).unwrap();
            }
            45..65 => {
                let mut found = vec![0xee; range.len()];
                self.disk().read(lba, &mut found).unwrap();
                assert!(found == self.bytes[range], "read of {blocks} blocks at {lba}");
            }
            65..72 => {
                let (start, end) = (range.start as u64, range.end as u64);
                let whole = start.next_multiple_of(UNIT)..end / UNIT * UNIT;
                if !whole.is_empty() {
                    self.bytes[whole.start as usize..whole.end as usize].fill(0);
                }
                self.disk().discard(lba, blocks).unwrap();
            }
            72..79 => {
                self.bytes[range].fill(0);
                let space = match self.dice.below(2) {
                    0 => ZeroedSpace::Free,
                    _ => ZeroedSpace::Keep,
                };
                let durability = self.durability();
                self.disk().write_zeroes(lba, blocks, space, durability).unwrap();
            }
            79..85 => self.disk().flush().unwrap(),
            85..90 => self.compare_extents(lba, blocks),
            90..93 => self.volume.tick().unwrap(),
            93..95 => self.snapshot(),
            95..97 => self.drop_snapshot(),
            97..99 => self.resize(),
            _ => self.remount(),
        }
    }

    fn compare_extents(&self, lba: Lba, blocks: LbaCount) {
        let mut at = lba.get();
        self.disk()
            .extents(lba, blocks, &mut |extent| {
                assert_eq!(extent.lba.get(), at);
                assert!(extent.blocks > LbaCount::ZERO);
                at += extent.blocks.get();
                let is_thick = self.settings.space == DiskSpace::Thick;
                if let Content::Zeroes { takes_space } = extent.content {
                    assert_eq!(takes_space, is_thick);
                    let range = self.bytes_of(extent.lba, extent.blocks);
                    assert!(self.bytes[range].iter().all(|&byte| byte == 0));
                }
                true
            })
            .unwrap();
        assert_eq!(at, lba.get() + blocks.get());
    }

    fn snapshot(&mut self) {
        if self.snapshots.len() == 3 {
            return;
        }
        self.close_sometimes();
        let snapshot = format!("s{}", self.dice.below(1 << 40));
        self.disks.snapshot(&name("disk"), &name("disk").snapshot(&snapshot).unwrap()).unwrap();
        self.snapshots.push((snapshot, self.bytes.clone()));
        self.reopen();
    }

    fn drop_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let (snapshot, content) = self.snapshots.remove(0);
        let snapshot = name("disk").snapshot(&snapshot).unwrap();
        let disk = self.disks.open(&snapshot).unwrap();
        let mut found = vec![0; content.len()];
        disk.read(Lba::ZERO, &mut found).unwrap();
        assert!(found == content, "{snapshot}");
        drop(disk);
        self.close_sometimes();
        self.disks.remove(&snapshot).unwrap();
        self.reopen();
    }

    fn resize(&mut self) {
        let size = (64 + self.dice.below(400)) * UNIT;
        if size < self.bytes.len() as u64 {
            self.disk = None;
        } else {
            self.close_sometimes();
        }
        self.disks.resize(&name("disk"), ByteCount::new(size)).unwrap();
        self.bytes.resize(size as usize, 0);
        self.reopen();
    }

    fn remount(&mut self) {
        self.disk = None;
        self.volume.clone().close().unwrap();
        assert_clean(self.drive.clone());
        (self.volume, self.disks) = disks(self.drive.clone());
        self.reopen();
    }

    fn close_sometimes(&mut self) {
        if self.dice.below(2) == 0 {
            self.disk = None;
        }
    }

    fn reopen(&mut self) {
        let open = || self.disks.open(&name("disk")).unwrap();
        let disk = self.disk.get_or_insert_with(open);
        assert_eq!(disk.shape().bytes(), self.bytes.len() as u64);
    }

    fn end(mut self) {
        let mut found = vec![0; self.bytes.len()];
        self.disk().read(Lba::ZERO, &mut found).unwrap();
        assert!(found == self.bytes);
        while !self.snapshots.is_empty() {
            self.drop_snapshot();
        }
        self.disk = None;
        self.disks.remove(&name("disk")).unwrap();
        assert_eq!(self.disks.list().unwrap(), []);
        self.volume.close().unwrap();
        assert_clean(self.drive);
    }
}

#[test]
fn disk_does_what_array_of_bytes_does() {
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        for space in [DiskSpace::Thick, DiskSpace::Thin] {
            println!("{block_size:?} {space:?}");
            let settings = DiskSettings { block_size, space, ..DiskSettings::default() };
            let mut model = Model::new(settings, 300 * UNIT);
            for _ in 0..count(1500) {
                model.step();
            }
            model.end();
        }
    }
}

#[test]
fn threads_on_one_disk_see_their_own_writes() {
    const THREADS: u64 = 4;
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        let settings = DiskSettings { block_size, ..DiskSettings::default() };
        let model = Model::new(settings, 256 * UNIT);
        let disk = model.disk();
        let blocks = disk.shape().blocks.get();
        let seeds: Vec<u64> = (0..THREADS).map(|thread| thread * 977 + 5).collect();
        std::thread::scope(|scope| {
            for (thread, seed) in (0..THREADS).zip(&seeds) {
                scope.spawn(move || {
                    // Neighbours in one block of Furrow belong to different threads.
                    let mut last = vec![0_u8; (blocks / THREADS) as usize];
                    let (mut dice, size) = (*seed, block_size.bytes() as usize);
                    for _ in 0..count(1500) {
                        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let at = (dice >> 33) % (blocks / THREADS);
                        let lba = Lba::new(at * THREADS + thread);
                        let byte = (dice >> 20) as u8;
                        let mut found = vec![0; size];
                        disk.read(lba, &mut found).unwrap();
                        assert!(found.iter().all(|&byte| byte == last[at as usize]));
                        let durability = match dice >> 59 {
                            0 => Durability::AtOnce,
                            _ => Durability::Later,
                        };
                        disk.write(lba, &vec![byte; size], durability).unwrap();
                        last[at as usize] = byte;
                    }
                });
            }
        });
        let Model { volume, drive, disk, .. } = model;
        drop(disk);
        volume.close().unwrap();
        assert_clean(drive);
    }
}
