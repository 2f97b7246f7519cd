//! The users of a drive: locks on drive files, claims on block devices.
//!
//! A drive has many readers or one writer. They keep each other out by a lock on the file, or on
//! the node of the block device (flock(2)), and `/proc/locks` shows the process that holds it. The
//! kernel itself, and the programs of other file systems, heed no such lock: they open a device
//! exclusively (`O_EXCL`). So a [`Claim`] does that as well, and its owner reads and writes by
//! another descriptor. Thus it can let the kernel mount the device and still keep the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::event::{Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::DeviceError;
use crate::error::Result;

/// How often a lock is tried, and how long it is between two attempts: about a second. When a
/// program closes a device, udev holds a shared lock on it for a moment while it looks at the new
/// content.
const TRIES: u32 = 100;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// How often `/proc/locks` is read for a holder that it does not show.
const LOOKS: u32 = 8;

/// The purpose for which a drive is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Everything; one process at a time.
    ReadWrite,
    /// Looks on: reports and reads, also while another process writes. Blocks that it reads need
    /// not belong together, so this is not for file systems.
    ReadOnly,
    /// Reports and reads, and keeps writers out: opening fails while a process has the drive open
    /// for writing, and keeps others from opening it for writing. A drive may have many such
    /// readers.
    ReadLocked,
}

impl OpenMode {
    /// An error in a mode that does not allow changes.
    pub const fn check_writable(self) -> Result<()> {
        match self {
            Self::ReadWrite => Ok(()),
            Self::ReadOnly | Self::ReadLocked => Err(DeviceError::OpenedReadOnly),
        }
    }
}

/// A block device that this process uses, and keeps others away from.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Carries the lock.
    node: File,
    /// The exclusive descriptor; `None` for a reader among others, and while the kernel has the
    /// device mounted.
    exclusive: Mutex<Option<File>>,
}

/// Unlocks it, also from copies of the descriptor: see `file/backing.rs`.
impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.node.unlock();
    }
}

impl Claim {
    /// Claims the block device at `path` for a use by `mode`; `None` where this needs no claim.
    pub fn take(path: &Path, mode: OpenMode) -> Result<Option<Self>> {
        let Some(share) = Share::of(mode) else { return Ok(None) };
        let failed = |source| io_error("opening", path, source);
        let node = File::open(path).map_err(failed)?;
        let exclusive = match (open_exclusively(path), share) {
            (Ok(exclusive), _) => {
                lock_in(TRIES, &node, path, share)?;
                Some(exclusive)
            }
            (Err(error), Share::WithReaders) if is_busy(&error) => {
                lock_in(1, &node, path, share)?;
                if holders(&node, 2).len() < 2 {
                    // A program that takes no lock has the device.
                    return Err(DeviceError::Locked { path: path.to_owned(), by: None });
                }
                None
            }
            (Err(error), Share::Nobody) if is_busy(&error) => {
                return Err(DeviceError::Locked { path: path.to_owned(), by: holder(&node) });
            }
            (Err(error), _) => return Err(failed(error)),
        };
        Ok(Some(Self { path: path.to_owned(), node, exclusive: Mutex::new(exclusive) }))
    }

    /// The path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the kernel mount the device, which then keeps other programs away. The lock stays.
    pub fn hand_over(&self) {
        *self.exclusive.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Claims it again, after the kernel has failed to mount it. Fails if another program has it
    /// now.
    pub fn take_back(&self) -> Result<()> {
        let mut exclusive = self.exclusive.lock().unwrap_or_else(PoisonError::into_inner);
        if exclusive.is_none() {
            *exclusive = Some(open_exclusively(&self.path).map_err(|error| {
                if is_busy(&error) {
                    DeviceError::Locked { path: self.path.clone(), by: None }
                } else {
                    io_error("opening", &self.path, error)
                }
            })?);
        }
        Ok(())
    }
}

/// Which other processes may use a drive at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Nobody,
    WithReaders,
}

impl Share {
    /// `None` for a mode that takes no lock.
    fn of(mode: OpenMode) -> Option<Self> {
        match mode {
            OpenMode::ReadOnly => None,
            OpenMode::ReadLocked => Some(Self::WithReaders),
            OpenMode::ReadWrite => Some(Self::Nobody),
        }
    }
}

/// Locks a drive file, or another node than that of a block device, for a use by `mode`. The lock
/// ends with `file`.
pub fn lock(file: &File, path: &Path, mode: OpenMode) -> Result<()> {
    Share::of(mode).map_or(Ok(()), |share| lock_in(1, file, path, share))
}

fn lock_in(tries: u32, file: &File, path: &Path, share: Share) -> Result<()> {
    let mut left = tries;
    loop {
        let outcome = match share {
            Share::Nobody => file.try_lock(),
            Share::WithReaders => file.try_lock_shared(),
        };
        left -= 1;
        match outcome {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if left > 0 => {
                // A signal that ends the pause early costs a try.
                let _ = poll(&mut [], Some(&PAUSE));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(DeviceError::Locked { path: path.to_owned(), by: holder(file) });
            }
            Err(TryLockError::Error(source)) => return Err(io_error("locking", path, source)),
        }
    }
}

fn open_exclusively(path: &Path) -> io::Result<File> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).expect("a flag of open(2)");
    OpenOptions::new().read(true).custom_flags(exclusive).open(path)
}

fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

/// The process that uses the drive at `path`, if it can be found.
pub fn holder_of(path: &Path) -> Option<u32> {
    // The lock of a drive in pieces is that of the first one.
    let path = if path.is_dir() { &path.join("0") } else { path };
    holder(&File::open(path).ok()?)
}

fn holder(file: &File) -> Option<u32> {
    holders(file, 1).first().copied().filter(|process| *process > 0)
}

/// The processes that have locked a file, as /proc/locks has it: `proc_locks(5)`. That file may
/// name the file otherwise, as on some layered file systems, and it leaves out the processes of
/// other namespaces.
///
/// The kernel goes on by the number of a line between two reads (`fs/seq_file.c`). A lock that
/// ends in between moves the lines up, and one of them is missing. So the file is read in large
/// pieces, and again while fewer than `expected` processes are found.
fn holders(file: &File, expected: usize) -> Vec<u32> {
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // A line with an arrow is about a process that waits for a lock.
        let is_of_file = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&&*name);
        is_of_file.then(|| words[4].parse().unwrap_or(0))
    };
    let mut found = Vec::new();
    for _ in 0..LOOKS {
        let locks = read_locks().unwrap_or_default();
        found = locks.lines().filter_map(holder).collect();
        if found.len() >= expected {
            break;
        }
    }
    found
}

fn read_locks() -> io::Result<String> {
    let mut text = String::new();
    let mut locks = BufReader::with_capacity(64 << 10, File::open("/proc/locks")?);
    while locks.read_line(&mut text)? > 0 {}
    Ok(text)
}

fn io_error(what: &str, path: &Path, source: io::Error) -> DeviceError {
    DeviceError::Io { what: format!("{what} {}", path.display()), source }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "this is test code")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn holder_is_found_while_other_locks_come_and_go() {
        let held = tempfile::tempfile().unwrap();
        lock(&held, Path::new("held"), OpenMode::ReadWrite).unwrap();
        let process = std::process::id();
        if holder(&held) != Some(process) {
            println!("SKIP: /proc/locks does not name this process");
            return;
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let files: Vec<_> = (0..100).map(|_| tempfile::tempfile().unwrap()).collect();
                    while !is_over.load(Ordering::Relaxed) {
                        for file in &files {
                            file.lock().unwrap();
                        }
                        for file in &files {
                            file.unlock().unwrap();
                        }
                    }
                });
            }
            let missed = (0..3000).filter(|_| holder(&held) != Some(process)).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }
}
