//! The threads that serve requests.
//!
//! A thread owns some tags of one queue, and an `io_uring` of its own. It fetches a request for
//! each tag, serves the requests that have arrived (`zoned.rs`, `disk.rs`), and fetches the next
//! with each completion. So a request waits only for other requests of its thread.
#![expect(unsafe_code, reason = "the driver shares memory, and a ring trusts its entries")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;
use zonal::aligned::ALIGNMENT;
use zonal::{AlignedBytes, Disk};

use super::abi::{self, Descriptor, IoCommand};
use super::disk::{self, DiskWork};
use super::export::Export;
use super::zoned::ZonedWork;

/// The part that performs the requests.
pub(super) enum Target {
    /// A device with zones.
    Zoned(Export),
    /// An ordinary disk.
    Disk(Arc<dyn Disk>),
}

/// The data that all threads of a device share.
pub(super) struct Shared {
    /// `/dev/ublkcN`.
    pub(super) file: File,
    pub(super) target: Target,
}

/// A report of a thread.
#[derive(Debug)]
pub(super) enum Event {
    /// Its tags are known to the driver.
    Ready,
    /// The device was stopped, or serving failed.
    Ended(io::Result<()>),
}

/// The requests of one queue, in memory that the driver writes.
pub(super) struct Descriptors {
    start: NonNull<Descriptor>,
    depth: u16,
}

// SAFETY: the memory belongs to this value, and is only read.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    /// Maps the descriptors of queue `queue`, of `depth` tags.
    pub(super) fn map(file: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let offset = u64::from(queue) * abi::DESCRIPTORS_STRIDE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let len = Self::bytes(depth);
        // SAFETY: a new mapping at no fixed address.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).expect("memory is not mapped at 0");
        Ok(Self { start, depth })
    }

    fn bytes(depth: u16) -> usize {
        (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(ALIGNMENT)
    }

    /// The request of a tag that the driver has completed a fetch for.
    pub(super) fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the tag is in the mapping, by the assertion.
        let place = unsafe { self.start.add(usize::from(tag)) };
        // SAFETY: the place is mapped, aligned, and any bytes are a descriptor. The driver wrote it
        // before it completed the fetch, and writes it again only after this request is completed.
        unsafe { place.read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; nothing refers to it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), Self::bytes(self.depth)) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// One thread.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) queue: u16,
    pub(super) tags: Vec<u16>,
}

impl Worker {
    /// Serves until the device is stopped. Reports when the driver knows the tags, and how it
    /// ended.
    pub(super) fn run(self, events: &Sender<Event>) {
        let outcome = self.serve(events);
        if let Err(error) = &outcome {
            tracing::error!(queue = self.queue, %error, "a thread cannot serve any more requests");
        }
        // The receiver is gone if another thread failed before.
        let _ = events.send(Event::Ended(outcome));
    }

    fn serve(&self, events: &Sender<Event>) -> io::Result<()> {
        let entries = u32::try_from(self.tags.len()).expect("at most a queue's depth");
        let mut ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries.next_power_of_two())?;
        for &tag in &self.tags {
            let command = IoCommand { queue: self.queue, tag, result: 0, append_sector: 0 };
            self.push(&mut ring, abi::FETCH, command);
        }
        ring.submit()?;
        // Only a fetch that the driver refuses completes at once.
        if let Some(end) = ring.completion().next() {
            return Err(refusal(end.result()));
        }
        let _ = events.send(Event::Ready);
        let mut memory = match &self.shared.target {
            Target::Zoned(_) => AlignedBytes::default(),
            Target::Disk(_) => disk::memory(),
        };
        let mut arrived: Vec<u16> = Vec::with_capacity(self.tags.len());
        let mut with_driver = self.tags.len();
        while with_driver > 0 {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                submitted => drop(submitted?),
            }
            for end in ring.completion() {
                match end.result() {
                    0 => arrived.push(u16::try_from(end.user_data()).expect("we set it to a tag")),
                    ended if ended == -Errno::NODEV.raw_os_error() => with_driver -= 1,
                    refused => return Err(refusal(refused)),
                }
            }
            match &self.shared.target {
                Target::Zoned(export) => {
                    ZonedWork { worker: self, export }.serve(&mut ring, &arrived, &mut memory)?;
                }
                Target::Disk(disk) => {
                    DiskWork { worker: self, disk: &**disk }.serve(
                        &mut ring,
                        &arrived,
                        &mut memory,
                    )?;
                }
            }
            arrived.clear();
        }
        Ok(())
    }

    fn push(&self, ring: &mut IoUring, op: u32, command: IoCommand) {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(command.as_bytes());
        let file = Fd(self.shared.file.as_raw_fd());
        let entry =
            opcode::UringCmd16::new(file, op).cmd(bytes).build().user_data(command.tag.into());
        // SAFETY: the entry refers to no memory, and to a file that is open as long as this worker.
        unsafe { ring.submission().push(&entry) }.expect("an entry for each tag");
    }

    /// Completes a request, and fetches the next.
    pub(super) fn push_answer(&self, ring: &mut IoUring, tag: u16, outcome: Result<At, Errno>) {
        let (result, append_sector) = match outcome {
            Ok(At { bytes, sector }) => (i32::try_from(bytes).unwrap_or(i32::MAX), sector),
            Err(errno) => (-errno.raw_os_error(), 0),
        };
        let answer = IoCommand { queue: self.queue, tag, result, append_sector };
        self.push(ring, abi::COMMIT_AND_FETCH, answer);
    }

    /// Runs `perform`, and makes an error of a panic, which must not leave programs waiting
    /// forever.
    pub(super) fn guarded<T>(
        &self,
        perform: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        catch_unwind(AssertUnwindSafe(perform)).unwrap_or_else(|_| {
            tracing::error!(queue = self.queue, "serving a request panicked");
            Err(Errno::IO)
        })
    }

    /// Copies data into the pages of the request.
    pub(super) fn give(&self, tag: u16, data: &[u8]) -> Result<(), Errno> {
        let copied = self.shared.file.write_all_at(data, abi::data_offset(self.queue, tag));
        copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Copies data out of the pages of the request.
    pub(super) fn take(&self, tag: u16, data: &mut [u8]) -> Result<(), Errno> {
        let copied = self.shared.file.read_exact_at(data, abi::data_offset(self.queue, tag));
        copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// The result of a request: bytes, and the sector of an append.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) bytes: usize,
    pub(super) sector: u64,
}

impl At {
    pub(super) const fn bytes(bytes: usize) -> Self {
        Self { bytes, sector: 0 }
    }
}

fn refusal(result: i32) -> io::Error {
    match result {
        0.. => io::Error::other("the driver answers before there is a request"),
        errno => io::Error::from_raw_os_error(-errno),
    }
}
