//! The writeback cache of the kernel (`-o writeback`), kept within bounds.
//!
//! The kernel sends data of write(2) and of mappings when it likes. So
//!
//! - it may collect at most [`COLLECTED_MAX`] bytes, if we may set that;
//! - every [`FLUSH_INTERVAL`] a thread makes it send everything, for the next commit;
//! - a WRITE of collected data keeps the times of the file: the kernel sends times separately,
//!   unless they are the ones that it got from us (a write(2) within the clock tick that made the
//!   file);
//! - if there is not room for twice [`COLLECTED_MAX`], files are opened for direct writes, so that
//!   write(2) itself finds the drive full;
//! - a direct read beyond the end of the file as it has arrived here is answered once the kernel
//!   has sent its data behind that end: the bytes between are a hole. (Before a copy the kernel
//!   sends it by itself.)
//! - lseek(2) does not search for holes while a file is open for collected writes: the kernel asks
//!   without sending its data, and syncfs(2) does not wait until data has arrived. When a writer
//!   has closed the file, all its data has arrived.
//!
//! Data that a file could not take makes close(2) and fsync(2) fail, and from then on write(2):
//! after a failed WRITE the kernel has to forget the attributes of the file, so it asks for them
//! before the next write(2), which fails with the error of that answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_fs::vfs::{FileSystem, SetAttr, SetTime};
use zonal_fuse_transport::own_mount::{self, Call};
use zonal_fuse_transport::{Errno, NodeId, request};

use super::convert;
use super::inbox::Inbox;
use super::page_cache::PageRange;
use crate::options::WriteCache;

/// Most bytes that the kernel may collect: some milliseconds of a drive's time.
const COLLECTED_MAX: u64 = 32 << 20;

/// Longest time that the kernel may collect.
const FLUSH_INTERVAL: Duration = Duration::from_secs(4);

/// Data that the kernel may have collected.
pub(crate) struct Writeback {
    mode: WriteCache,
    /// Files that are open for writing through the page cache.
    writers: Mutex<BTreeMap<NodeId, Writers>>,
    /// Ends [`flush_regularly`](Self::flush_regularly).
    pub(crate) ending: Inbox<Infallible>,
}

/// Writers of one file.
#[derive(Default)]
struct Writers {
    /// Number of opens.
    count: u64,
    /// Error of a WRITE that found no room.
    refused: Option<Errno>,
}

impl Writeback {
    pub(super) fn new(mode: WriteCache) -> Self {
        Self { mode, writers: Mutex::default(), ending: Inbox::default() }
    }

    fn writers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Writers>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel collects writes.
    pub(crate) fn is_on(&self) -> bool {
        self.mode == WriteCache::Back
    }

    /// A file was opened for writing through the page cache.
    pub(super) fn add_writer(&self, node: NodeId) {
        if self.is_on() {
            self.writers().entry(node).or_default().count += 1;
        }
    }

    /// A writer was closed. A mapping keeps its file open.
    pub(super) fn remove_writer(&self, node: NodeId) {
        if !self.is_on() {
            return;
        }
        let mut writers = self.writers();
        if let Some(of_file) = writers.get_mut(&node) {
            of_file.count -= 1;
            if of_file.count == 0 {
                writers.remove(&node);
            }
        }
    }

    /// A WRITE of collected data failed. If the drive is full, later writes must fail too: a
    /// program that fills the drive would never stop.
    pub(super) fn note_failure(&self, node: NodeId, error: Errno) {
        if matches!(error, Errno::NOSPC | Errno::DQUOT)
            && let Some(of_file) = self.writers().get_mut(&node)
        {
            of_file.refused = Some(error);
        }
    }

    /// Error with which a write(2) to a file fails, until there is room.
    pub(super) fn pending_error(&self, node: NodeId, fs: &dyn FileSystem) -> Option<Errno> {
        if !self.is_on() {
            return None;
        }
        let refused = self.writers().get(&node).and_then(|writers| writers.refused)?;
        if self.is_nearly_full(fs) {
            return Some(refused);
        }
        if let Some(of_file) = self.writers().get_mut(&node) {
            of_file.refused = None;
        }
        None
    }

    /// Completes `set` from the request `what`: the kernel keeps the times of regular files, and
    /// sends the change time.
    ///
    /// With an open file and no other change than the modification time, it flushes a time that it
    /// has kept (`fuse_flush_times`). A file that became immutable or append-only after it was
    /// opened must take that time, or close(2) would fail. utimensat(2) has no open file.
    pub(super) fn take_kept_times(&self, what: &request::SetAttr, set: &mut SetAttr) {
        let Some(ctime) = what.ctime.filter(|_| self.is_on()) else { return };
        set.ctime = Some(convert::timestamp(ctime));
        let request::SetAttr { mtime, ctime, handle, .. } = *what;
        let times = request::SetAttr { mtime, ctime, handle, ..Default::default() };
        if let Some(SetTime::To(mtime)) = set.mtime
            && *what == times
            && handle.is_some()
        {
            set.mtime = Some(SetTime::Written(mtime));
        }
    }

    /// Whether the kernel may have data of a file that has not arrived here.
    pub(super) fn is_collecting(&self, node: NodeId) -> bool {
        self.is_on() && self.writers().contains_key(&node)
    }

    /// The pages in which the kernel may have more of a file than has arrived here, if a read up to
    /// `end` goes beyond that. The kernel sends its data of the range that a program reads; data
    /// that makes the file longer is in other pages. It sends these when they are dropped. `size`
    /// looks up the size of the file as it has arrived.
    pub(super) fn unsent_before(
        &self,
        node: NodeId,
        end: u64,
        size: impl FnOnce() -> Option<u64>,
    ) -> Option<PageRange> {
        if !self.is_collecting(node) {
            return None;
        }
        let arrived = size()?;
        (arrived < end).then_some(PageRange { offset: arrived, len: None })
    }

    /// Whether a file that is opened for writing now would hear of a full drive too late.
    pub(super) fn is_nearly_full(&self, fs: &dyn FileSystem) -> bool {
        self.is_on()
            && fs
                .statfs()
                .is_ok_and(|stat| stat.blocks_free * u64::from(stat.block_size) < 2 * COLLECTED_MAX)
    }

    /// Makes the kernel send its data regularly, until the end of the mount at `root`. Runs in a
    /// thread of its own, since the serving threads must take that data.
    pub(crate) fn flush_regularly(&self, ending: &Receiver<Infallible>, root: &Path) {
        let mut found = MountDevice::default();
        found.look(root);
        while let Err(RecvTimeoutError::Timeout) = ending.recv_timeout(FLUSH_INTERVAL) {
            // Only while a file is open for writing: it keeps the mount busy anyway, so an open
            // root does not make umount(2) fail.
            if !self.writers().is_empty()
                && let Some(device) = found.look(root)
                && let Err(error) = own_mount::run(Call::Sync { point: root.to_owned(), device })
            {
                // fsync(2) or close(2) of the writer returns the error.
                tracing::debug!(%error, "the kernel could not send all collected data");
            }
        }
    }
}

/// The device number of the mount, once its root could be looked at.
#[derive(Default)]
struct MountDevice(Option<u64>);

impl MountDevice {
    /// Reads the device number of the root, unless it is known, and limits the data that the kernel
    /// collects for the device. The drive may refuse to return the root's attributes for a while.
    fn look(&mut self, root: &Path) -> Option<u64> {
        if self.0.is_none() {
            let device = fs::metadata(root).ok()?.dev();
            if let Err(error) = limit(device) {
                tracing::debug!(%error, "no limit on the data that the kernel collects");
            }
            self.0 = Some(device);
        }
        self.0
    }
}

/// Limits the data that the kernel collects. Without this, one percent of memory is usual.
fn limit(device: u64) -> io::Result<()> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = |kind| Path::new("/sys/class/bdi").join(format!("{major}:{minor}{kind}"));
    let bdi = [name(""), name("-fuseblk")].into_iter().find(|bdi| bdi.exists());
    let bdi = bdi.ok_or(io::ErrorKind::NotFound)?;
    fs::write(bdi.join("strict_limit"), "1")?;
    fs::write(bdi.join("max_bytes"), COLLECTED_MAX.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writeback_flusher_finds_root_that_failed_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let mut found = MountDevice::default();
        assert_eq!(found.look(&root), None);
        fs::create_dir(&root).unwrap();
        let device = found.look(&root);
        assert!(device.is_some());
        fs::remove_dir(&root).unwrap();
        assert_eq!(found.look(&root), device);
    }
}
