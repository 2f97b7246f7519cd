//! Protections of a server whose disk the same machine mounts.
//!
//! To free memory, the kernel writes to that disk. A thread of the server that waited for this
//! memory would wait for itself.
#![expect(unsafe_code, reason = "the allocator of the C library has settings")]

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

/// Which memory of the process stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockedMemory {
    /// Pages that were touched. A first touch may wait until other programs free memory.
    Touched,
    /// All that is mapped, stacks of threads included, from the moment when it is mapped. The heap
    /// has [`HEAP_ROOM`] from the start.
    Mapped,
}

/// Bytes by which the heap grows at once: more than a disk's server needs.
pub const HEAP_ROOM: u32 = 64 << 20;

/// Protects this process, and returns the protections that the kernel refuses to it. Threads
/// inherit them: call this before there are any.
///
/// - Memory for its threads is freed without writing (`PR_SET_IO_FLUSHER`).
/// - What it has in memory stays there. The server's own limits, for metadata, queues and
///   connections, bound the memory that is locked.
pub fn protect(locked: LockedMemory) -> Vec<Unprotected> {
    let io_flusher = configure_io_flusher_behavior(true).map_err(Unprotected::IoFlusher);
    [io_flusher, lock_memory(locked).map_err(Unprotected::Locked)]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// Locks memory. With a limit of locked memory, allocations would fail later on.
fn lock_memory(locked: LockedMemory) -> Result<(), Errno> {
    if getrlimit(Resource::Memlock).current.is_some() && !may_lock() {
        return Err(Errno::PERM);
    }
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE;
    match locked {
        LockedMemory::Touched => mlockall(all | MlockAllFlags::ONFAULT),
        LockedMemory::Mapped => {
            grow_heap_in_large_steps();
            mlockall(all)
        }
    }
}

/// Whether this process may lock memory without a limit.
fn may_lock() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK))
}

/// One heap for all threads, which grows by [`HEAP_ROOM`] and does not shrink.
#[cfg(target_env = "gnu")]
fn grow_heap_in_large_steps() {
    let room = libc::c_int::try_from(HEAP_ROOM).expect("less than 2 GiB");
    let settings = [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TOP_PAD, room),
        (libc::M_TRIM_THRESHOLD, libc::c_int::MAX),
        // The largest that it takes: 32 MiB. Data of requests comes from the heap, too.
        (libc::M_MMAP_THRESHOLD, 32 << 20),
    ];
    for (setting, value) in settings {
        // SAFETY: it changes numbers of the allocator, under the allocator's lock.
        let taken = unsafe { libc::mallopt(setting, value) };
        debug_assert_eq!(taken, 1, "setting {setting} of the allocator");
    }
}

/// Other C libraries have no such settings.
#[cfg(not(target_env = "gnu"))]
const fn grow_heap_in_large_steps() {}
