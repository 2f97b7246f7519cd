//! The jobs of every place, one operation at a time unless a job says otherwise.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};
use rustix::fs::{Advice, fadvise};

use crate::zone_files::aligned;

const O_DIRECT: i32 = 0o40000;

/// Bytes of the file that is read and overwritten.
const DATA_BYTES: u64 = 64 << 20;
const DEPTH: u32 = 32;
const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;
const APPENDED: usize = 128 << 10;
const SMALL_FILE: usize = 16 << 10;

/// One row of the tables.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// Operations of one turn.
    pub(crate) operations: u64,
    /// Prepares the files of the operations; this is not measured.
    pub(crate) prepare: fn(&Path, u64),
    pub(crate) work: fn(&Path, u64, &mut Laps),
}

/// How long each operation of a turn took.
#[derive(Default)]
pub(crate) struct Laps(pub(crate) Vec<f64>);

impl Laps {
    fn lap<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = operation();
        self.0.push(start.elapsed().as_nanos() as f64);
        done
    }
}

pub(crate) const JOBS: [Job; 15] = [
    job("read of 4 KiB, direct", 1500, data, |dir, count, laps| {
        read(&open(dir, O_DIRECT), SMALL, count, laps);
    }),
    job("write of 4 KiB, direct", 1500, data, |dir, count, laps| {
        write(&open(dir, O_DIRECT), SMALL, count, laps);
    }),
    job("read of 4 KiB, direct, 32 at once", 6000, data, read_at_depth),
    job("read of 1 MiB, direct", 64, data, |dir, count, laps| {
        read(&open(dir, O_DIRECT), LARGE, count, laps);
    }),
    job("write of 1 MiB, direct", 64, data, |dir, count, laps| {
        write(&open(dir, O_DIRECT), LARGE, count, laps);
    }),
    job("append of 128 KiB, buffered", 256, no_names, append),
    job("write of 4 KiB, buffered", 3000, data, |dir, count, laps| {
        write(&open(dir, 0), SMALL, count, laps);
    }),
    job("read of 4 KiB, cached", 6000, warm_data, |dir, count, laps| {
        read(&open(dir, 0), SMALL, count, laps);
    }),
    job("read of 1 MiB, buffered, cold", 64, cold_data, |dir, count, laps| {
        read(&open(dir, 0), LARGE, count, laps);
    }),
    job("write of 4 KiB and fdatasync", 500, data, sync),
    job("create and close", 1000, no_names, |dir, count, laps| {
        for nth in 0..count {
            laps.lap(|| File::create(name(dir, nth)).expect("created"));
        }
    }),
    job("open, write 16 KiB, close", 1000, no_names, |dir, count, laps| {
        let content = vec![3; SMALL_FILE];
        for nth in 0..count {
            laps.lap(|| fs::write(name(dir, nth), &content).expect("written"));
        }
    }),
    job("stat, cold", 1000, forgotten_names, |dir, count, laps| {
        for nth in 0..count {
            laps.lap(|| fs::metadata(name(dir, nth)).expect("it is there"));
        }
    }),
    job("rename", 1000, names, |dir, count, laps| {
        for nth in 0..count {
            let new = dir.join(format!("new{nth}"));
            laps.lap(|| fs::rename(name(dir, nth), new).expect("renamed"));
        }
    }),
    job("unlink", 1000, names, |dir, count, laps| {
        for nth in 0..count {
            laps.lap(|| fs::remove_file(name(dir, nth)).expect("removed"));
        }
    }),
];

const fn job(
    name: &'static str,
    operations: u64,
    prepare: fn(&Path, u64),
    work: fn(&Path, u64, &mut Laps),
) -> Job {
    Job { name, operations, prepare, work }
}

fn open(dir: &Path, flags: i32) -> File {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags);
    options.open(dir.join("data")).expect("it is there")
}

fn name(dir: &Path, nth: u64) -> PathBuf {
    dir.join(format!("file{nth}"))
}

/// Makes the file that is read and overwritten, if it is not there.
fn data(dir: &Path, _: u64) {
    let path = dir.join("data");
    if path.exists() {
        return;
    }
    let mut file = File::create(path).expect("created");
    let piece = vec![5; LARGE];
    for _ in 0..DATA_BYTES / LARGE as u64 {
        file.write_all(&piece).expect("written");
    }
    file.sync_all().expect("synced");
}

fn warm_data(dir: &Path, count: u64) {
    data(dir, count);
    fs::read(dir.join("data")).expect("read");
}

fn cold_data(dir: &Path, count: u64) {
    data(dir, count);
    let file = open(dir, 0);
    // The kernel drops only clean pages.
    file.sync_all().expect("synced");
    fadvise(&file, 0, None, Advice::DontNeed).expect("only advice");
}

fn no_names(dir: &Path, count: u64) {
    for path in (0..count).flat_map(|nth| [name(dir, nth), dir.join(format!("new{nth}"))]) {
        if path.exists() {
            fs::remove_file(path).expect("removed");
        }
    }
}

fn names(dir: &Path, count: u64) {
    no_names(dir, count);
    for nth in 0..count {
        File::create(name(dir, nth)).expect("created");
    }
}

fn forgotten_names(dir: &Path, count: u64) {
    names(dir, count);
    fs::write("/proc/sys/vm/drop_caches", "2").expect("as root");
}

/// Places in the file, in an order that no readahead guesses if they are small.
fn places(bytes: usize, count: u64) -> impl Iterator<Item = u64> {
    let slots = DATA_BYTES / bytes as u64;
    // Coprime to the number of slots, which is a power of two.
    let step = if bytes == SMALL { 7919 } else { 1 };
    (0..count).map(move |nth| nth * step % slots * bytes as u64)
}

fn read(file: &File, bytes: usize, count: u64, laps: &mut Laps) {
    let mut buffer = aligned(bytes);
    for at in places(bytes, count) {
        laps.lap(|| file.read_exact_at(&mut buffer, at).expect("read"));
    }
}

fn write(file: &File, bytes: usize, count: u64, laps: &mut Laps) {
    let buffer = aligned(bytes);
    for at in places(bytes, count) {
        laps.lap(|| file.write_all_at(&buffer, at).expect("written"));
    }
}

fn append(dir: &Path, count: u64, laps: &mut Laps) {
    let content = vec![9; APPENDED];
    let mut file = File::create(name(dir, 0)).expect("created");
    for _ in 0..count {
        laps.lap(|| file.write_all(&content).expect("written"));
    }
}

fn sync(dir: &Path, count: u64, laps: &mut Laps) {
    let file = open(dir, 0);
    for at in places(SMALL, count) {
        laps.lap(|| {
            file.write_all_at(&[6; SMALL], at).expect("written");
            file.sync_data().expect("synced");
        });
    }
}

/// Keeps as many reads under way as [`DEPTH`] says; single times say nothing then.
#[expect(unsafe_code, reason = "the kernel is handed buffers that it fills later")]
fn read_at_depth(dir: &Path, count: u64, _: &mut Laps) {
    let file = open(dir, O_DIRECT);
    let mut ring = IoUring::new(DEPTH).expect("the kernel has io_uring");
    let mut buffers: Vec<_> = (0..DEPTH).map(|_| aligned(SMALL)).collect();
    let mut waiting = places(SMALL, count);
    let mut free: Vec<u64> = (0..u64::from(DEPTH)).collect();
    let (mut left, bytes) = (count, u32::try_from(SMALL).expect("it is small"));
    while left > 0 {
        while let Some(slot) = free.pop() {
            let Some(at) = waiting.next() else { break };
            let buffer = &mut buffers[usize::try_from(slot).expect("a slot")];
            let target = types::Fd(file.as_raw_fd());
            let entry = opcode::Read::new(target, buffer.as_mut_ptr(), bytes);
            let entry = entry.offset(at).build().user_data(slot);
            // SAFETY: file and buffer live until all reads have ended, and each buffer has one.
            unsafe { ring.submission().push(&entry) }.expect("it has room for all");
        }
        ring.submit_and_wait(1).expect("submitted");
        for done in ring.completion() {
            assert_eq!(usize::try_from(done.result()), Ok(SMALL));
            free.push(done.user_data());
            left -= 1;
        }
    }
}
