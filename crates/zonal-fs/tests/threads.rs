//! Many threads on one Furrow, with reclaim and commits under way: no update is lost, nothing
//! locks up, and the drive is clean afterwards.
//!
//! `SEED=n` replays a run's operations (the interleaving is the scheduler's).

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use zonal::{GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZonedDevice, repeat};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{DataCheck, Furrow, MkfsOptions, MountOptions, check, mkfs};
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, NewInode, RenameFlags, SetAttr, SyncKind,
    WriteFlags,
};

const THREADS: u64 = 4;
const STEPS: usize = 800;

fn drive() -> Arc<dyn ZonedDevice> {
    let spec = GeometrySpec { zone_capacity: LbaCount::new(192), ..shape(48, 200) };
    Arc::new(MemoryDrive::new(spec).unwrap())
}

fn create(fs: &Furrow, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).unwrap().ino
}

/// One thread's file and its expected content.
struct Worker {
    rng: ChaCha8Rng,
    ino: Ino,
    content: Vec<u8>,
    size_max: usize,
}

impl Worker {
    fn range(&mut self) -> (usize, usize) {
        let offset = self.rng.random_range(0..self.size_max);
        let len = if self.rng.random_ratio(1, 4) { 150_000 } else { 6000 };
        let len = self.rng.random_range(1..len).min(self.size_max - offset);
        (offset, len)
    }

    fn write(&mut self, fs: &Furrow) {
        let (offset, len) = self.range();
        let byte = self.rng.random::<u8>();
        let flags =
            if self.rng.random_ratio(1, 3) { WriteFlags::DIRECT } else { WriteFlags::empty() };
        fs.write(self.ino, offset as u64, &vec![byte; len], flags).unwrap();
        if self.content.len() < offset + len {
            self.content.resize(offset + len, 0);
        }
        self.content[offset..offset + len].fill(byte);
    }

    fn step(&mut self, fs: &Furrow) {
        match self.rng.random_range(0..20) {
            0 => {
                let size = self.rng.random_range(0..self.size_max);
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                fs.setattr(&Caller::ROOT, self.ino, &set).unwrap();
                self.content.resize(size, 0);
            }
            1 => {
                let (offset, len) = self.range();
                fs.fallocate(self.ino, Allocate::Punch, offset as u64, len as u64).unwrap();
                let end = (offset + len).min(self.content.len());
                if offset < end {
                    self.content[offset..end].fill(0);
                }
            }
            2 => fs.fsync(self.ino, SyncKind::Data).unwrap(),
            3..7 => self.verify(fs),
            _ => self.write(fs),
        }
    }

    fn verify(&self, fs: &Furrow) {
        let mut found = vec![0xa5; self.content.len() + 1];
        let len = fs.read(self.ino, 0, &mut found).unwrap();
        found.truncate(len);
        let wrong = found.iter().zip(&self.content).position(|(a, b)| a != b);
        assert!(
            len == self.content.len() && wrong.is_none(),
            "inode {}: {len} bytes, {} expected; first wrong {wrong:?}",
            self.ino,
            self.content.len()
        );
    }
}

/// Makes, links, moves and removes entries in a directory that other threads use as well.
fn entries(fs: &Furrow, shared: Ino, mut rng: ChaCha8Rng, thread: u64) {
    for step in 0..STEPS {
        let name = format!("t{thread}-{}", step % 50);
        let ino = create(fs, shared, &name, FileKind::Regular);
        fs.write(ino, 0, name.as_bytes(), WriteFlags::empty()).unwrap();
        let moved = format!("m{thread}-{}", rng.random_range(0..20));
        fs.rename((shared, name.as_bytes()), (shared, moved.as_bytes()), RenameFlags::empty())
            .unwrap();
        if rng.random_ratio(1, 2) {
            fs.unlink(shared, moved.as_bytes()).unwrap();
        }
    }
}

#[test]
fn threads_do_not_disturb_each_other() {
    let seed = repeat::seed(1);
    let (drive, clock) = (drive(), Arc::new(ManualClock::new(0)));
    mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
    // Half of the drive stays as it is, so that the rest is written often enough for reclaim.
    let ballast = create(&fs, Ino::ROOT, "ballast", FileKind::Regular);
    let half = usize::try_from(fs.statfs().unwrap().blocks_free * 4096 / 2).unwrap();
    fs.write(ballast, 0, &vec![1; half], WriteFlags::DIRECT).unwrap();
    // Together the files fill seven eighths of the rest.
    let size_max = usize::try_from(fs.statfs().unwrap().blocks_free * 4096 / THREADS * 7 / 8);
    let size_max = size_max.unwrap();
    let shared = create(&fs, Ino::ROOT, "shared", FileKind::Directory);
    let mut workers: Vec<Worker> = (0..THREADS)
        .map(|thread| Worker {
            rng: ChaCha8Rng::seed_from_u64(seed * 1000 + thread),
            ino: create(&fs, Ino::ROOT, &format!("file{thread}"), FileKind::Regular),
            content: Vec::new(),
            size_max,
        })
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| (0..STEPS).for_each(|_| worker.step(&fs))))
            .collect();
        let fs = &fs;
        let entering = (0..2).map(|thread| {
            let rng = ChaCha8Rng::seed_from_u64(seed * 77 + thread);
            scope.spawn(move || entries(fs, shared, rng, thread))
        });
        let entering: Vec<_> = entering.collect();
        let (clock, done) = (&clock, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                clock.advance_ns(10_000_000);
                fs.tick().unwrap();
                std::thread::yield_now();
            }
        });
        let outcome = running.into_iter().chain(entering).map(std::thread::ScopedJoinHandle::join);
        let outcome: Vec<_> = outcome.collect();
        done.store(true, Ordering::Release);
        assert!(outcome.iter().all(Result::is_ok), "a thread failed; SEED={seed}");
    });
    assert!(fs.stats().reclaim_bytes > 0, "the drive was meant to be full enough for reclaim");
    for worker in &workers {
        worker.verify(&fs);
    }
    fs.sync().unwrap();
    drop(fs);
    let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
    for worker in &workers {
        worker.verify(&fs);
    }
}
