//! Protections of a server whose disk the same machine mounts.
//!
//! To free memory, the kernel writes to that disk. A thread of the server that waited for this
//! memory would wait for itself.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};

/// A protection that this process may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprotected {
    /// The kernel may free memory for this process by writing.
    #[error(
        "a thread that needs memory may wait for the disk that it serves, if this machine uses \
         that ({0}); CAP_SYS_RESOURCE prevents this"
    )]
    IoFlusher(Errno),
    /// The memory of this process may be swapped out.
    #[error(
        "memory of this server may be swapped out to the disk that it serves, if this machine uses \
         that as swap space ({0}); CAP_IPC_LOCK prevents this"
    )]
    Locked(Errno),
}

/// Protects this process, and returns the protections that the kernel refuses to it. Threads
/// inherit them: call this before there are any.
///
/// - Memory for its threads is freed without writing (`PR_SET_IO_FLUSHER`).
/// - Pages that it touches stay in memory. The server's own limits, for metadata, queues and
///   connections, bound the memory that is locked.
pub fn protect() -> Vec<Unprotected> {
    let io_flusher = configure_io_flusher_behavior(true).map_err(Unprotected::IoFlusher);
    [io_flusher, lock_memory().map_err(Unprotected::Locked)]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// Locks all pages that are touched. With a limit of locked memory, allocations would fail later
/// on.
fn lock_memory() -> Result<(), Errno> {
    if getrlimit(Resource::Memlock).current.is_some() && !may_lock() {
        return Err(Errno::PERM);
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
}

/// Whether this process may lock memory without a limit.
fn may_lock() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK))
}
