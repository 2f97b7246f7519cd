//! Protections of a server whose disk the same machine mounts.
//!
//! To free memory, the kernel writes to that disk. A thread of the server that waited for this
//! memory would wait for itself.
#![expect(unsafe_code, reason = "settings of the C library's allocator, protection of pages")]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MlockAllFlags, MprotectFlags, madvise, mlockall, mprotect};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};

/// A protection that the kernel refused to this process.
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
    /// The kernel may take pages of the program out of memory.
    #[error(
        "the kernel may read code of this server from its file again, which waits for the disk \
         that it serves, if this machine uses that as swap space ({0})"
    )]
    Program(Errno),
}

/// Which pages of the process stay in memory.
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

/// Whether this process serves swap space of this machine.
static SERVES_SWAP: AtomicBool = AtomicBool::new(false);

/// Makes this process a server of swap space: block devices that it opens from now on get requests
/// for which the kernel allocates no memory. These have 16 KiB at most, so the server is slower.
pub fn serve_swap() {
    SERVES_SWAP.store(true, Ordering::Relaxed);
}

/// Whether a thread of this process must do without memory that the kernel allocates for a request
/// to a block device.
pub(crate) fn serves_swap() -> bool {
    SERVES_SWAP.load(Ordering::Relaxed)
}

/// Protects this process, and returns the protections that the kernel refuses to it. Threads
/// inherit them: call this before there are any.
///
/// - The kernel frees memory for its threads without writing (`PR_SET_IO_FLUSHER`).
/// - Its pages stay in memory. The server's own limits, for metadata, queues and connections, bound
///   the memory that is locked.
/// - With [`LockedMemory::Mapped`], the pages of its program stay too.
pub fn protect(locked: LockedMemory) -> Vec<Unprotected> {
    let io_flusher = configure_io_flusher_behavior(true).map_err(Unprotected::IoFlusher);
    let program = match locked {
        LockedMemory::Touched => Ok(()),
        LockedMemory::Mapped => own_program().map_err(Unprotected::Program),
    };
    [io_flusher, program, lock_memory(locked).map_err(Unprotected::Locked)]
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

/// Gives the process pages of its own for its program and libraries, which are in memory already or
/// are read now.
///
/// Locking does not keep pages of a file in memory: they belong to the file. Under pressure, Linux
/// 7.3 took pages of ext4 away from a process that had locked them.
fn own_program() -> Result<(), Errno> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    maps.lines().filter_map(FileMapping::of_line).try_for_each(|mapping| mapping.copy())
}

/// Memory that is mapped privately from a file and cannot be written: code and constants.
#[derive(Debug, PartialEq, Eq)]
struct FileMapping {
    start: usize,
    len: usize,
    protection: MprotectFlags,
}

impl FileMapping {
    /// The mapping of a line of `/proc/self/maps`; `None` for other memory.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let protection = match words.next()? {
            "r--p" => MprotectFlags::READ,
            "r-xp" => MprotectFlags::READ | MprotectFlags::EXEC,
            _ => return None,
        };
        // After the offset and the device; memory of no file has inode 0.
        let is_file = words.nth(2)? != "0";
        is_file.then(|| Self { start, len: end.saturating_sub(start), protection })
    }

    /// Replaces its pages by copies that belong to this process.
    fn copy(&self) -> Result<(), Errno> {
        let Self { start, len, protection } = *self;
        let start = ptr::with_exposed_provenance_mut(start);
        // SAFETY: no thread writes there, and the memory can be read and run as before.
        unsafe { mprotect(start, len, protection | MprotectFlags::WRITE) }?;
        // SAFETY: it changes no byte.
        let copied = unsafe { madvise(start, len, Advice::LinuxPopulateWrite) };
        // SAFETY: the memory is protected as it was before.
        unsafe { mprotect(start, len, protection) }?;
        copied
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_disk_finds_code_and_constants() {
        let code = "7f00-9f00 r-xp 005d5000 fe:00 1234                  /usr/bin/zonal";
        let protection = MprotectFlags::READ | MprotectFlags::EXEC;
        let expected = FileMapping { start: 0x7f00, len: 0x2000, protection };
        assert_eq!(FileMapping::of_line(code), Some(expected));
        assert!(FileMapping::of_line(&code.replace("r-xp", "r--p")).is_some());
        for (part, other) in [("r-xp", "rw-p"), ("r-xp", "r--s"), ("r-xp", "---p"), ("1234", "0")] {
            assert_eq!(FileMapping::of_line(&code.replace(part, other)), None, "{other}");
        }
        assert_eq!(FileMapping::of_line("Size:                 20 kB"), None);
    }

    /// KiB of the mapping that holds an address, and of these the pages that are the process's own.
    fn sizes_at(address: usize) -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let bounds = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        };
        let is_it = |line: &&str| bounds(line).is_some_and(|bounds| bounds.contains(&address));
        let mut mapping = text.lines().skip_while(|line| !is_it(line));
        let mut kib = |name: &str| {
            let line = mapping.find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        (kib("Size:"), kib("Anonymous:"))
    }

    #[test]
    fn own_disk_program_has_no_pages_of_file_left() {
        static CONSTANT: [u64; 2] = [1, 2];
        own_program().unwrap();
        // Other tests may map the program's file elsewhere meanwhile, for a backtrace.
        for address in [own_program as *const () as usize, (&raw const CONSTANT).addr()] {
            let (mapped, own) = sizes_at(address);
            assert_eq!(own, mapped, "KiB");
        }
    }
}
