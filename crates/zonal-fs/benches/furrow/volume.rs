//! A file system on a sparse drive, and the calls of the benchmarks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

use zonal::{ByteCount, Clock, ManualClock, ZonedDevice};
use zonal_fs::furrow::{AtimePolicy, Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

use crate::drive::SparseDrive;

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const BLOCK_BYTES: usize = 4096;

/// A file system, its drive, and who works for it in the background.
pub(crate) struct Made {
    pub(crate) drive: Arc<SparseDrive>,
    pub(crate) fs: Furrow,
    pub(crate) worker: Arc<Worker>,
}

/// Hears of work in the background.
#[derive(Default)]
pub(crate) struct Worker {
    /// The thread that does it, while there is one.
    thread: Mutex<Option<Thread>>,
    is_needed: AtomicBool,
}

impl Worker {
    /// Whether there was work since the last time.
    pub(crate) fn take_need(&self) -> bool {
        self.is_needed.swap(false, Ordering::AcqRel)
    }

    fn wake(&self) {
        self.is_needed.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock().expect("no holder panicked") {
            thread.unpark();
        }
    }

    fn set_thread(&self, thread: Option<Thread>) {
        *self.thread.lock().expect("no holder panicked") = thread;
    }
}

/// Formats a drive and mounts it.
pub(crate) fn make(zones: u64, zone_mib: u64, clock: Arc<dyn Clock>) -> Made {
    make_with_memory(zones, zone_mib, clock, MountOptions::default().memory)
}

/// The same, with `memory` bytes for metadata.
pub(crate) fn make_with_memory(
    zones: u64,
    zone_mib: u64,
    clock: Arc<dyn Clock>,
    memory: ByteCount,
) -> Made {
    make_with(zones, zone_mib, clock, MountOptions { memory, ..MountOptions::default() })
}

/// The same, mounted as `options` say.
pub(crate) fn make_with(
    zones: u64,
    zone_mib: u64,
    clock: Arc<dyn Clock>,
    options: MountOptions,
) -> Made {
    make_on(Arc::new(SparseDrive::new(zones, zone_mib)), clock, options)
}

/// The same, on a drive that there is.
pub(crate) fn make_on(
    drive: Arc<SparseDrive>,
    clock: Arc<dyn Clock>,
    options: MountOptions,
) -> Made {
    // No reserve, so that the benchmark says itself how full the drive is.
    let format = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
    mkfs(drive.clone(), &ManualClock::new(1), &format, &mut |_| ()).expect("formatted");
    let options = MountOptions { atime: AtimePolicy::Never, ..options };
    let fs = Furrow::mount(drive.clone(), clock, options).expect("mounted");
    let worker = Arc::new(Worker::default());
    let woken = Arc::clone(&worker);
    fs.on_work(Arc::new(move || woken.wake()));
    Made { drive, fs, worker }
}

pub(crate) fn mount(
    drive: Arc<dyn ZonedDevice>,
    clock: Arc<dyn Clock>,
    memory: ByteCount,
) -> Furrow {
    // An access time would be a change to commit.
    let options = MountOptions { atime: AtimePolicy::Never, memory, ..MountOptions::default() };
    Furrow::mount(drive, clock, options).expect("mounted")
}

pub(crate) fn create(fs: &Furrow, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).expect("created").ino
}

pub(crate) fn create_file(fs: &Furrow, parent: Ino, name: &str) -> Ino {
    create(fs, parent, name, FileKind::Regular)
}

pub(crate) fn create_directory(fs: &Furrow, name: &str) -> Ino {
    create(fs, Ino::ROOT, name, FileKind::Directory)
}

/// Writes the first `bytes` of a file, a megabyte at a time.
pub(crate) fn fill(fs: &Furrow, ino: Ino, bytes: u64) {
    let data = vec![1; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let len = data.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
        fs.write(ino, at, &data[..len], WriteFlags::DIRECT).expect("written");
        at += len as u64;
    }
}

/// Writes one block of a file, past the write buffer.
pub(crate) fn overwrite(fs: &Furrow, ino: Ino, block: u64) {
    fs.write(ino, block * BLOCK, &new_block(), WriteFlags::DIRECT).expect("overwritten");
}

/// A block that no call before has returned: of a word of its own, so of a checksum of its own.
pub(crate) fn new_block() -> [u8; BLOCK_BYTES] {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let word = scrambled(COUNT.fetch_add(1, Ordering::Relaxed)).to_le_bytes();
    let mut block = [0; BLOCK_BYTES];
    // By words: bytes took a quarter of the time that a benchmark measures.
    block.as_chunks_mut::<8>().0.fill(word);
    block
}

/// A number that looks like any other, another one for each.
pub(crate) fn scrambled(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Does `work` while another thread does the background work, as in a mount.
pub(crate) fn with_worker<R>(made: &Made, work: impl FnOnce() -> R) -> R {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                made.fs.tick().expect("work in the background");
                if !made.worker.take_need() {
                    std::thread::park_timeout(Duration::from_secs(1));
                }
            }
        });
        made.worker.set_thread(Some(ticker.thread().clone()));
        let _end = Ending { is_done: &is_done, worker: &made.worker };
        work()
    })
}

/// Ends the thread that ticks, also when the work panics.
struct Ending<'a> {
    is_done: &'a AtomicBool,
    worker: &'a Worker,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        self.worker.wake();
        self.worker.set_thread(None);
    }
}

/// Numbers that are the same in each run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % limit
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.below(1 << 32) as f64 / (1_u64 << 32) as f64
    }
}
