//! Tests: servers that are killed at any moment lose no answered change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use zonal::{BlockSize, ByteCount, repeat};

use super::*;

const BLOCK: usize = 512;
const BLOCKS: usize = 4096;
const MARK: u64 = 7;

/// A disk in memory that forgets unflushed data when its server is killed.
struct Volatile {
    now: Mutex<Vec<u8>>,
    flushed: Mutex<Vec<u8>>,
    flushes: AtomicU64,
    /// Flushes that fail next.
    failing: AtomicU64,
}

impl Volatile {
    fn new() -> Arc<Self> {
        let zeroes = vec![0; BLOCK * BLOCKS];
        let (now, flushed) = (Mutex::new(zeroes.clone()), Mutex::new(zeroes));
        Arc::new(Self { now, flushed, flushes: AtomicU64::new(0), failing: AtomicU64::new(0) })
    }

    fn kill(&self) {
        let flushed = lock(&self.flushed).clone();
        *lock(&self.now) = flushed;
    }

    fn zero(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let bytes = self.shape().range(lba, blocks)?;
        let bytes = usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap();
        lock(&self.now)[bytes].fill(0);
        Ok(())
    }
}

impl Disk for Volatile {
    fn shape(&self) -> DiskShape {
        DiskShape {
            block_size: BlockSize::B512,
            physical_size: BlockSize::B4096,
            blocks: LbaCount::new(BLOCKS as u64),
            atomic: ByteCount::new(4096),
            is_read_only: false,
        }
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(self.shape().range_of(lba, buffer.len())?.start).unwrap();
        buffer.copy_from_slice(&lock(&self.now)[start..start + buffer.len()]);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], _: Durability) -> Result<()> {
        let start = usize::try_from(self.shape().range_of(lba, data.len())?.start).unwrap();
        lock(&self.now)[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let failing = self.failing.load(Ordering::Relaxed);
        if failing > 0 {
            self.failing.store(failing - 1, Ordering::Relaxed);
            return Err(failed(io::Error::other("the drive refuses a flush")));
        }
        // Two flushes at once take turns: the content of the later one stays.
        lock(&self.flushed).clone_from(&lock(&self.now));
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.zero(lba, blocks)
    }

    fn write_zeroes(
        &self,
        lba: Lba,
        blocks: LbaCount,
        _: ZeroedSpace,
        _: Durability,
    ) -> Result<()> {
        self.zero(lba, blocks)
    }

    fn extents(&self, _: Lba, _: LbaCount, _: &mut dyn FnMut(DiskExtent) -> bool) -> Result<()> {
        Ok(())
    }
}

/// A random change of blocks `within`.
fn change(rng: &mut StdRng, within: Range<usize>, disk: &dyn Disk) {
    let first = rng.random_range(within.clone());
    let count = rng.random_range(1..=64.min(within.end - first));
    let (lba, blocks) = (Lba::new(first as u64), LbaCount::new(count as u64));
    let durability = if rng.random_bool(0.05) { Durability::AtOnce } else { Durability::Later };
    match rng.random_range(0..20) {
        0 => disk.flush(),
        1 => disk.discard(lba, blocks),
        2 => disk.write_zeroes(lba, blocks, ZeroedSpace::Free, durability),
        3 => disk.write_zeroes(lba, blocks, ZeroedSpace::Keep, durability),
        _ => disk.write(lba, &vec![rng.random(); count * BLOCK], durability),
    }
    .unwrap();
}

#[test]
fn killed_server_of_disk_loses_nothing_answered() {
    let mut rng = StdRng::seed_from_u64(repeat::seed(rand::random()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    let mut served = SurvivingDisk::create(disk.clone(), &path, MARK).unwrap();
    for _ in 0..50 {
        for _ in 0..rng.random_range(0..100) {
            change(&mut rng, 0..BLOCKS, &served);
        }
        let answered = lock(&disk.now).clone();
        drop(served);
        disk.kill();
        // A server may be killed while it makes the changes again.
        if rng.random_bool(0.3) {
            Notes::open(&path, MARK).unwrap().replay(&*disk).unwrap();
            disk.kill();
        }
        served = SurvivingDisk::recover(disk.clone(), &path, MARK).unwrap();
        assert!(*lock(&disk.now) == answered, "answered changes are lost");
        assert!(*lock(&disk.flushed) == answered, "they are not durable");
    }
}

#[test]
fn killed_server_keeps_order_of_overlapping_changes() {
    let seed = repeat::seed(rand::random());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    let served = SurvivingDisk::create(disk.clone(), &path, MARK).unwrap();
    thread::scope(|scope| {
        for number in 0..4 {
            let served = &served;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed ^ number);
                for _ in 0..500 {
                    change(&mut rng, 0..100, served);
                }
            });
        }
    });
    let answered = lock(&disk.now).clone();
    drop(served);
    disk.kill();
    drop(SurvivingDisk::recover(disk.clone(), &path, MARK).unwrap());
    assert!(*lock(&disk.now) == answered, "other changes win");
}

#[test]
fn full_notes_make_writer_flush() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    let served = SurvivingDisk::create(disk.clone(), &path, MARK).unwrap();
    let data = vec![3; 1 << 20];
    for _ in 0..100 {
        served.write(Lba::ZERO, &data, Durability::Later).unwrap();
    }
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 3);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES);
}

#[test]
fn failed_flush_of_disk_leaves_room_for_later_notes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    let served = SurvivingDisk::create(disk.clone(), &path, MARK).unwrap();
    // Two halves have room for 62 of these.
    let write = |number: u8| {
        let data = vec![number; 1 << 20];
        served.write(Lba::ZERO, &data, Durability::Later)
    };
    write(1).unwrap();
    disk.failing.store(2, Ordering::Relaxed);
    assert!(served.flush().is_err() && served.flush().is_err());
    // The flush that the full half causes covers the half that the failed flush has left.
    for number in 2..100 {
        write(number).unwrap();
    }
    assert_eq!(disk.flushes.load(Ordering::Relaxed), 4);
    // A flush that succeeds after one that failed keeps the order of the notes.
    disk.failing.store(1, Ordering::Relaxed);
    assert!(served.flush().is_err());
    write(200).unwrap();
    disk.kill();
    drop(SurvivingDisk::recover(disk.clone(), &path, MARK).unwrap());
    assert!(lock(&disk.now)[..1 << 20].iter().all(|&byte| byte == 200), "the last write wins");
}

#[test]
fn full_notes_fail_write_while_flushes_fail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    let served = SurvivingDisk::create(disk.clone(), &path, MARK).unwrap();
    disk.failing.store(u64::MAX, Ordering::Relaxed);
    let data = vec![3; 1 << 20];
    let write = || served.write(Lba::ZERO, &data, Durability::Later);
    let noted = (0..100).filter(|_| write().is_ok()).count();
    assert_eq!(noted, 62, "both halves are full");
    // Writers that wait for the flush of another writer try one of their own.
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        assert!(writers.into_iter().all(|writer| writer.join().unwrap().is_err()));
    });
    disk.failing.store(0, Ordering::Relaxed);
    for _ in 0..100 {
        write().unwrap();
    }
    served.flush().unwrap();
}

#[test]
fn notes_of_other_disk_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("unflushed");
    let disk = Volatile::new();
    drop(SurvivingDisk::create(disk.clone(), &path, MARK).unwrap());
    assert!(SurvivingDisk::create(disk.clone(), &path, MARK).is_err());
    let refused = SurvivingDisk::recover(disk.clone(), &path, MARK + 1);
    assert!(refused.err().unwrap().to_string().contains("another disk"));
    std::fs::remove_file(&path).unwrap();
    assert!(SurvivingDisk::recover(disk, &path, MARK).is_err());
}
