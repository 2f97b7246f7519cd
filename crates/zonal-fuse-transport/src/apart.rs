//! Calls by which this process uses its own mount, so that its own threads have to answer.
//!
//! A thread that waits for an answer cannot be killed, and as long as it lives, what this process
//! has open is open: had the answering threads been killed before it, nothing would ever end it. So
//! a thread makes such calls that has a table of its own (`alone`) of open files, without the
//! connection of the mount. When all other threads are gone, that closes, and the kernel answers
//! what is left.

#![expect(unsafe_code, reason = "a thread gets a table of open files of its own")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags, makedev};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::Errno;

/// What the calling thread has open.
const OPEN: &str = "/proc/thread-self/fd";

/// A call about the mount at a directory.
#[derive(Clone, Debug)]
pub enum Call {
    /// umount2(2)
    Unmount {
        /// The directory.
        point: PathBuf,
        /// How.
        flags: UnmountFlags,
    },
    /// mount(2) with `MS_REMOUNT`
    Remount {
        /// The directory.
        point: PathBuf,
        /// What the kernel is to watch over.
        flags: MountFlags,
    },
    /// syncfs(2), if the file system at the directory still has this number.
    Sync {
        /// The directory.
        point: PathBuf,
        /// The number, as stat(2) has it.
        device: u64,
    },
}

/// Makes a call. The outcome comes as soon as there is one.
pub fn start(call: Call) -> io::Result<Receiver<io::Result<()>>> {
    let (outcome, is_there) = channel();
    thread::Builder::new().name("fuse-apart".to_owned()).spawn(move || {
        if let Err(error) = alone([]) {
            // As in a container that may not unshare(2): a kill of this process may hang then.
            tracing::debug!(%error, "no table of open files for a call of its own");
        }
        // Nobody may wait for it any more.
        let _ = outcome.send(make(&call).map_err(io::Error::from));
    })?;
    Ok(is_there)
}

/// Makes a call, and waits for its end.
pub fn run(call: Call) -> io::Result<()> {
    start(call)?.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
}

fn make(call: &Call) -> rustix::io::Result<()> {
    match call {
        Call::Unmount { point, flags } => {
            rustix::mount::unmount(point, *flags | UnmountFlags::NOFOLLOW)
        }
        Call::Remount { point, flags } => rustix::mount::mount_remount(point, *flags, ""),
        Call::Sync { point, device } => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(point, flags, Mode::empty())?;
            let found = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
            if makedev(found.stx_dev_major, found.stx_dev_minor) != *device {
                return Err(Errno::NODEV);
            }
            rustix::fs::syncfs(root)
        }
    }
}

/// Gives the calling thread a table of open files of its own, and closes all but these in it. Also
/// the standard ones: somebody may wait for the end of what this process writes there, after it has
/// gone over to others.
pub(crate) fn alone<const COUNT: usize>(kept: [RawFd; COUNT]) -> io::Result<[OwnedFd; COUNT]> {
    // SAFETY: this thread uses no file that another one opens from now on, nor gives it one of its
    // own.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let mut directory = Dir::new(rustix::fs::open(OPEN, OFlags::RDONLY, Mode::empty())?)?;
    let own = directory.fd()?.as_raw_fd();
    let mut others = Vec::new();
    while let Some(entry) = directory.read() {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        others.extend(number.filter(|fd| *fd != own && !kept.contains(fd)));
    }
    for fd in others {
        // SAFETY: in this table nobody else knows of it, and it is open.
        unsafe { rustix::io::close(fd) };
    }
    // SAFETY: in this table nobody else knows of them, and they are open.
    Ok(kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}
