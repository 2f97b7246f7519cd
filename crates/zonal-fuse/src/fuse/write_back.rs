//! What the kernel collects in its write-back cache, kept within bounds (`-o writeback`).
//!
//! The kernel sends what write(2) and mappings changed when it likes. So
//!
//! - it may collect [`COLLECTED_MAX`] bytes at most, as far as we may set that;
//! - every [`SEND_INTERVAL`] it is made to send everything, for the next commit;
//! - what it sends leaves the file's times as they are: the kernel sends those too, unless they are the ones that it has from us (a write(2)
//!   in the tick of its clock that made the file);
//! - where there is not room for twice as much, files are opened for direct writes, so that write(2) itself
//!   finds the drive full;
//! - a direct read that goes beyond the end of the file as it has arrived here is answered when the
//!   kernel has sent what it has behind that end: what is between is a hole. (Before a copy it
//!   sends that by itself.)
//! - holes are not looked for in a file while it is open for collected writes: the kernel asks without sending what it
//!   has, and syncfs(2) does not wait until it has arrived. Once a writer has closed it, all of it has arrived.
//!
//! What a file could not take after it was opened is an error of close(2) and fsync(2), and from then on of write(2): after a failed WRITE the
//! kernel is to forget the file's attributes, so it asks for them at the next write(2), which fails with what it is answered.

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
use zonal_fuse_transport::abi::InitFlags;
use zonal_fuse_transport::apart::{self, Call};
use zonal_fuse_transport::{Errno, NodeId, Reply, request};

use super::inbox::Inbox;
use super::pages::PageRange;
use super::zone_files::size;
use super::{Front, convert};
use crate::options::WriteCache;

/// What the kernel may collect: some milliseconds of a drive's time.
const COLLECTED_MAX: u64 = 32 << 20;

/// How long it may collect.
const SEND_INTERVAL: Duration = Duration::from_secs(4);

/// What there may be to send.
#[derive(Default)]
pub(super) struct Collected {
    /// Of each file that is open for writing through the page cache.
    writers: Mutex<BTreeMap<NodeId, Writers>>,
    ending: Inbox<Infallible>,
}

/// Those of one file.
#[derive(Default)]
struct Writers {
    /// How often it is open.
    count: u64,
    /// There was no room for what the kernel sent.
    refused: Option<Errno>,
}

impl Collected {
    fn writers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Writers>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.ending.close();
    }
}

/// Has the kernel send, in a thread of its own: the others have to take what it sends.
pub(crate) struct Sending {
    front: Front,
    ending: Receiver<Infallible>,
}

impl Front {
    /// What makes the kernel send what it has collected; `None` where it collects nothing.
    pub(crate) fn sending(&self) -> Option<Sending> {
        if !self.has_write_back() {
            return None;
        }
        Some(Sending { front: self.clone(), ending: self.shared.collected.ending.open() })
    }

    pub(super) fn has_write_back(&self) -> bool {
        self.shared.write_cache == WriteCache::Back
    }

    /// Answers a FLUSH, which the kernel sends at a close(2) when all that it had collected of the file has arrived. It has
    /// found errors by then, and locks are its own, so nothing is left to do: it need not send another.
    pub(super) fn flush(&self, reply: Reply) {
        // Linux before 5.8 would not send at a close either what it has collected. This flag is newer.
        let sends = |agreed: &InitFlags| agreed.contains(InitFlags::HANDLE_KILLPRIV_V2);
        if self.shared.agreed.get().is_some_and(sends) {
            reply.error(Errno::NOSYS);
        } else {
            reply.ok();
        }
    }

    /// A file was opened for writing through the page cache.
    pub(super) fn add_writer(&self, ino: NodeId) {
        if self.has_write_back() {
            self.shared.collected.writers().entry(ino).or_default().count += 1;
        }
    }

    /// It was closed. A mapping keeps its file open.
    pub(super) fn remove_writer(&self, ino: NodeId) {
        if !self.has_write_back() {
            return;
        }
        let mut writers = self.shared.collected.writers();
        if let Some(of_file) = writers.get_mut(&ino) {
            of_file.count -= 1;
            if of_file.count == 0 {
                writers.remove(&ino);
            }
        }
    }

    /// What the kernel had collected of a file was refused. Whoever writes on has to hear of it: a program that fills the drive would
    /// never end.
    pub(super) fn refuse_writes(&self, ino: NodeId, error: Errno) {
        if matches!(error, Errno::NOSPC | Errno::DQUOT)
            && let Some(of_file) = self.shared.collected.writers().get_mut(&ino)
        {
            of_file.refused = Some(error);
        }
    }

    /// Completes `set`, which is otherwise as `what` says: the kernel keeps the times of regular files, and sends the change time.
    ///
    /// With nothing else than the modification time, and by an open file, it sends what it has collected (`fuse_flush_times`). A file that
    /// became immutable or append-only after it was opened has to take that, or close(2) would fail. utimensat(2) comes without a file.
    pub(super) fn take_kept_times(&self, what: &request::SetAttr, set: &mut SetAttr) {
        let Some(ctime) = what.ctime.filter(|_| self.has_write_back()) else { return };
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

    /// Attributes were asked for by stat(2): the kernel is not to keep them if a write(2) has to be refused.
    pub(super) fn have_writes_ask(&self, ino: NodeId) {
        if self.refusal_of_writes(ino).is_some() {
            self.forget_attributes(ino);
        }
    }

    /// What a write(2) to a file is to fail with, until there is room.
    pub(super) fn refusal_of_writes(&self, ino: NodeId) -> Option<Errno> {
        if !self.has_write_back() {
            return None;
        }
        let refused =
            self.shared.collected.writers().get(&ino).and_then(|writers| writers.refused)?;
        if self.is_nearly_full(&*self.shared.fs) {
            return Some(refused);
        }
        if let Some(of_file) = self.shared.collected.writers().get_mut(&ino) {
            of_file.refused = None;
        }
        None
    }

    /// Whether the kernel may have data of a file that has not arrived here.
    pub(super) fn is_collecting(&self, ino: NodeId) -> bool {
        self.has_write_back() && self.shared.collected.writers().contains_key(&ino)
    }

    /// The pages in which the kernel may have more of a file than has arrived here, if a request
    /// goes beyond what has: up to `end`. The kernel sends what it has of the range that is asked
    /// for, but what makes the file longer than that is in other pages. It sends these when they
    /// are dropped.
    pub(super) fn collected_beyond(&self, ino: NodeId, end: u64) -> Option<PageRange> {
        if !self.is_collecting(ino) {
            return None;
        }
        let arrived = self.inside(|fs| size(fs, self.ino(ino)))?;
        (arrived < end).then_some(PageRange { offset: arrived, len: None })
    }

    /// Whether a file that is opened for writing now would be told of a full drive too late.
    pub(super) fn is_nearly_full(&self, fs: &dyn FileSystem) -> bool {
        self.has_write_back()
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
        while let Err(RecvTimeoutError::Timeout) = self.ending.recv_timeout(SEND_INTERVAL) {
            // A file that is open for writing keeps the mount busy, so the root may be open as well.
            if !self.front.shared.collected.writers().is_empty()
                && let Err(error) = apart::run(Call::Sync { point: root.to_owned(), device })
            {
                // Whoever waits for it hears of it from fsync(2) or close(2).
                tracing::debug!(%error, "not all that the kernel collected could be sent");
            }
        }
    }
}

/// Limits what the kernel collects, strictly; without it, one percent of memory is usual.
fn bound(device: u64) -> io::Result<()> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = |kind| Path::new("/sys/class/bdi").join(format!("{major}:{minor}{kind}"));
    let bdi = [name(""), name("-fuseblk")].into_iter().find(|bdi| bdi.exists());
    let bdi = bdi.ok_or(io::ErrorKind::NotFound)?;
    fs::write(bdi.join("strict_limit"), "1")?;
    fs::write(bdi.join("max_bytes"), COLLECTED_MAX.to_string())
}
