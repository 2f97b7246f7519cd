//! What the kernel collects in its write-back cache, kept within bounds (`-o writeback`).
//!
//! The kernel sends what write(2) and mappings changed when it likes. So
//!
//! - it may collect [`COLLECTED_MAX`] bytes at most, as far as we may set that;
//! - every [`SEND_INTERVAL`] it is made to send everything, for the next commit;
//! - where there is not room for twice as much, files are opened for direct writes, so that write(2) itself
//!   finds the drive full;
//! - before a hole is looked for, it sends what it has: it asks without.
//!
//! What a file could not take after it was opened is an error of close(2) and fsync(2).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_fs::vfs::FileSystem;
use zonal_fuse_transport::Errno;

use super::Front;
use crate::options::WriteCache;

/// What the kernel may collect: some milliseconds of a drive's time.
const COLLECTED_MAX: u64 = 32 << 20;

/// How long it may collect.
const SEND_INTERVAL: Duration = Duration::from_secs(4);

/// Something to do once everything has been sent.
type Then = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// What there may be to send, and who waits for it.
#[derive(Default)]
pub(super) struct Collected {
    /// Files that are open for writing through the page cache.
    writers: AtomicU64,
    waiting: Mutex<Option<Sender<Then>>>,
}

impl Collected {
    /// A file was opened for writing through the page cache.
    pub(super) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
    }

    /// One of them was closed. A mapping keeps its file open.
    pub(super) fn remove_writer(&self) {
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the kernel may have something.
    fn is_possible(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    fn sender(&self) -> MutexGuard<'_, Option<Sender<Then>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        *self.sender() = None;
    }
}

/// Has the kernel send, in a thread of its own: the others have to take what it sends.
pub(crate) struct Sending {
    front: Front,
    waiting: Receiver<Then>,
}

impl Front {
    /// What makes the kernel send what it has collected; `None` where it collects nothing.
    pub(crate) fn sending(&self) -> Option<Sending> {
        if self.shared.write_cache == WriteCache::Through {
            return None;
        }
        let (sender, waiting) = channel();
        *self.shared.collected.sender() = Some(sender);
        Some(Sending { front: self.clone(), waiting })
    }

    /// Runs `then` once everything that the kernel has collected so far has been sent.
    pub(super) fn once_sent(&self, then: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let then: Then = Box::new(then);
        let unsent = match &*self.shared.collected.sender() {
            Some(sender) if self.shared.collected.is_possible() => {
                sender.send(then).err().map(|unsent| unsent.0)
            }
            Some(_) | None => Some(then),
        };
        if let Some(then) = unsent {
            then(Ok(()));
        }
    }

    /// Whether a file that is opened for writing now would be told of a full drive too late.
    pub(super) fn is_nearly_full(&self, fs: &dyn FileSystem) -> bool {
        self.shared.write_cache == WriteCache::Back
            && fs
                .statfs()
                .is_ok_and(|stat| stat.blocks_free * u64::from(stat.block_size) < 2 * COLLECTED_MAX)
    }
}

impl Sending {
    /// Works until the end of the mount at `root`.
    pub(crate) fn run(&self, root: &Path) {
        let Ok(device) = fs::metadata(root).map(|root| root.dev()) else { return };
        if let Err(error) = bound(device) {
            tracing::debug!(%error, "the kernel collects as much as it likes");
        }
        loop {
            match self.waiting.recv_timeout(SEND_INTERVAL) {
                Ok(then) => {
                    let waiting: Vec<Then> =
                        std::iter::once(then).chain(self.waiting.try_iter()).collect();
                    let sent = send(root, device);
                    for then in waiting {
                        then(sent);
                    }
                }
                // A file that is open for writing keeps the mount busy, so the root may be open as well.
                Err(RecvTimeoutError::Timeout) if self.front.shared.collected.is_possible() => {
                    // Whoever waits for it hears of an error from fsync(2) or close(2).
                    let _ = send(root, device);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Has the kernel send everything that it has of this mount.
fn send(root: &Path, device: u64) -> Result<(), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let root = fs::File::open(root).map_err(errno)?;
    if root.metadata().map_err(errno)?.dev() != device {
        // Unmounted meanwhile.
        return Ok(());
    }
    rustix::fs::syncfs(root)
}

/// Limits what the kernel collects, strictly; without it, one percent of memory is usual.
fn bound(device: u64) -> io::Result<()> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let bdi = Path::new("/sys/class/bdi").join(format!("{major}:{minor}"));
    fs::write(bdi.join("strict_limit"), "1")?;
    fs::write(bdi.join("max_bytes"), COLLECTED_MAX.to_string())
}
