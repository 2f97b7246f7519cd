//! System calls of this process on its own mount: its own threads must answer the requests.
//!
//! A thread that waits for an answer cannot be killed, and it keeps the files of the process open,
//! including the connection to the kernel. If the answering threads are killed first, the kernel
//! would wait for ever. So each such call runs in a thread with a file table of its own
//! (`unshare_files`), without the connection. When all other threads are gone, the connection
//! closes, and the kernel fails the call.

#![expect(unsafe_code, reason = "a thread gets a file table of its own")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, makedev};
use rustix::mount::{FsPickFlags, UnmountFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::Errno;

/// Open files of the calling thread.
const OPEN: &str = "/proc/thread-self/fd";

/// A system call on the mount at a directory.
#[derive(Clone, Debug)]
pub enum Call {
    /// umount2(2)
    Unmount {
        /// The directory.
        point: PathBuf,
        /// Flags of umount2(2).
        flags: UnmountFlags,
    },
    /// fsconfig(2): makes the file system read-only and keeps all other flags. A remount by
    /// mount(2) would drop each flag that its caller does not name.
    MakeReadOnly {
        /// The directory.
        point: PathBuf,
    },
    /// syncfs(2), if the file system at the directory still has this device number.
    Sync {
        /// The directory.
        point: PathBuf,
        /// `st_dev` of stat(2).
        device: u64,
    },
}

/// Starts a call in a thread of its own, which sends the outcome.
pub fn start(call: Call) -> io::Result<Receiver<io::Result<()>>> {
    let (outcome, is_there) = channel();
    thread::Builder::new().name("fuse-apart".to_owned()).spawn(move || {
        if let Err(error) = unshare_files([]) {
            // In a container without unshare(2). Then killing this process may hang.
            tracing::debug!(%error, "no file table of its own for a call on the mount");
        }
        // The receiver may be gone.
        let _ = outcome.send(make(&call).map_err(io::Error::from));
    })?;
    Ok(is_there)
}

/// Makes a call and waits for its end.
pub fn run(call: Call) -> io::Result<()> {
    start(call)?.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
}

fn make(call: &Call) -> rustix::io::Result<()> {
    match call {
        Call::Unmount { point, flags } => {
            rustix::mount::unmount(point, *flags | UnmountFlags::NOFOLLOW)
        }
        Call::MakeReadOnly { point } => {
            let picked = fspick(CWD, point, FsPickFlags::FSPICK_CLOEXEC)?;
            fsconfig_set_flag(&picked, "ro")?;
            fsconfig_reconfigure(picked)
        }
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

/// Gives the calling thread a file table of its own, with only the files `kept`. Closes standard
/// input and output too: a process that reads our output waits until all copies are closed.
pub(crate) fn unshare_files<const COUNT: usize>(
    kept: [RawFd; COUNT],
) -> io::Result<[OwnedFd; COUNT]> {
    // SAFETY: from now on this thread uses no file that another one opens, nor gives another one a
    // file of its own.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    let mut directory = Dir::new(rustix::fs::open(OPEN, OFlags::RDONLY, Mode::empty())?)?;
    let own = directory.fd()?.as_raw_fd();
    let mut others = Vec::new();
    while let Some(entry) = directory.read() {
        let number = entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        others.extend(number.filter(|fd| *fd != own && !kept.contains(fd)));
    }
    for fd in others {
        // SAFETY: it is open, and no other code knows it in this file table.
        unsafe { rustix::io::close(fd) };
    }
    // SAFETY: they are open, and no other code knows them in this file table.
    Ok(kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}
