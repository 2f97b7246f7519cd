//! One entry of a queue, and its thread: it takes a request, has it served, and commits the answer.
//!
//! The memory of an entry is one page and the largest request. The first page begins with the
//! header; the payload begins at the second page. The end of the first page has room for the rest
//! of the message, so that message and payload are contiguous, as in a read of `/dev/fuse`.

#![expect(unsafe_code, reason = "the kernel writes to memory that a submitted entry names")]

use std::io;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::mount::UnmountFlags;
use zerocopy::{FromBytes, IntoBytes};

use super::affinity::Affinity;
use super::queue::{EntryOrder, Queue};
use super::slot::{Outcome, Slot};
use crate::abi::{
    self, InHeader, OutHeader, ReadFlags, ReadIn, RingAbout, RingCommand, RingHeader, ring_command,
};
use crate::answer::Status;
use crate::fields::Malformed;
use crate::pages::{PAGE, Pages};
use crate::serve::{Serve, dispatch};
use crate::{Errno, NodeId};

/// Most bytes of a message before its payload.
const BEFORE_PAYLOAD: usize = size_of::<InHeader>() + 128;

/// Offset of [`RingAbout`] in a header.
const ABOUT: usize = offset_of!(RingHeader, about);

/// Buffers of an entry: header and payload.
const PARTS: u32 = 2;

/// Answer to a request if the kernel does not wait for one.
const DONE: Outcome = Outcome { error: 0, len: 0 };

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Body of the thread of an entry.
pub(super) fn run(
    queue: &Arc<Queue>,
    orders: &Receiver<EntryOrder>,
    reports: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let outcome = live(queue, orders, reports);
    queue.lose_entry();
    if let Err(error) = &outcome {
        tracing::error!(queue = queue.number, %error, "the thread of an entry ended");
        // Otherwise its request, and all behind it, would wait for ever.
        queue.shared.mount.end(UnmountFlags::FORCE);
    }
    outcome
}

fn live(
    queue: &Arc<Queue>,
    orders: &Receiver<EntryOrder>,
    reports: &Sender<io::Result<()>>,
) -> io::Result<()> {
    // The starter of this thread gets errors as reports. It may be gone.
    let mut entry = match RingEntry::new(queue) {
        Ok(entry) => entry,
        Err(error) => {
            let _ = reports.send(Err(error));
            return Ok(());
        }
    };
    let _ = reports.send(Ok(()));
    let Ok(EntryOrder::Register) = orders.recv() else { return Ok(()) };
    let registered = entry.register();
    let failed = registered.is_err();
    let _ = reports.send(registered);
    if failed {
        return Ok(());
    }
    let Ok(EntryOrder::Serve(server)) = orders.recv() else { return Ok(()) };
    entry.serve(&server)
}

struct RingEntry {
    ring: Ring,
    queue: Arc<Queue>,
    /// Header and payload; `None` while a request is being served.
    memory: Option<Pages>,
    /// Where header and payload are in `memory`.
    parts: [IoVec; PARTS as usize],
    slot: Arc<Slot>,
    affinity: Affinity,
    /// Whether the registration completed at once, with the first request.
    early: bool,
    /// Whether the kernel locks pages of the caller before it takes the answer (a direct read).
    locks_pages: bool,
}

impl RingEntry {
    fn new(queue: &Arc<Queue>) -> io::Result<Self> {
        let (affinity, max) = (Affinity::new(queue)?, queue.shared.sizes.request_max);
        Ok(Self {
            affinity,
            queue: Arc::clone(queue),
            ring: IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(1)?,
            memory: Some(Pages::new(PAGE + max)),
            parts: [IoVec { start: 0, len: 0 }; PARTS as usize],
            slot: Arc::new(Slot::new(max)),
            early: false,
            locks_pages: false,
        })
    }

    /// Registers the entry with the kernel.
    fn register(&mut self) -> io::Result<()> {
        let memory = self.memory.as_mut().expect("no request is at work").bytes_mut();
        let (first, second) = memory.split_at_mut(PAGE);
        self.parts = [io_vec(&mut first[..size_of::<RingHeader>()]), io_vec(second)];
        let parts = self.parts.as_ptr().expose_provenance();
        let command = self.command(ring_command::REGISTER, 0, parts);
        self.push(&command)?;
        self.ring.submit()?;
        // The kernel completes a refused registration at once, another one with the first request.
        match self.ring.completion().next().map(|end| end.result()) {
            None => Ok(()),
            Some(0) => {
                self.early = true;
                Ok(())
            }
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    fn command(&self, operation: u32, commit_id: u64, parts: usize) -> squeue::Entry128 {
        let queue = self.queue.number;
        let about = RingCommand { flags: 0, commit_id, queue, padding: [0; 6] };
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(about.as_bytes());
        let fd = Fd(self.queue.shared.mount.device().raw());
        let command = opcode::UringCmd80::new(fd, operation).cmd(bytes).addr(Some(parts as u64));
        with_len(command.build(), PARTS)
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: a registration names `parts` and `memory`. The kernel reads `parts` while it
        // takes the command, and writes to `memory` only between a commit and its completion: then
        // `memory` is in `self`, and nothing borrows it. Its bytes stay in place when it is moved,
        // and both live longer than the ring, which is the first field and dropped first.
        unsafe { self.ring.submission().push(command) }.map_err(io::Error::other)
    }

    /// Serves one request after the other, until the mount has ended.
    fn serve(&mut self, server: &Arc<dyn Serve>) -> io::Result<()> {
        self.queue.note_entry();
        while self.wait()? {
            let queue = Arc::clone(&self.queue);
            let at_work = queue.begin(server);
            self.affinity.see(&queue, at_work);
            let commit_id = self.answer(server);
            let command = self.command(ring_command::COMMIT_AND_FETCH, commit_id, 0);
            self.push(&command)?;
            if std::mem::take(&mut self.locks_pages)
                && let Err(error) = self.ring.submit()
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            queue.end();
        }
        Ok(())
    }

    /// Waits for a request; `false` once the mount has ended.
    fn wait(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.early) {
            return Ok(true);
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                submitted => drop(submitted?),
            }
            let Some(end) = self.ring.completion().next() else { continue };
            if end.result() == 0 {
                return Ok(true);
            }
            let error = Errno::from_raw_os_error(-end.result());
            return match error {
                Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::CANCELED => Ok(false),
                error => Err(error.into()),
            };
        }
    }

    /// Serves the request that has arrived, and waits until its answer is in `memory`. Returns the
    /// id with which the answer is committed.
    fn answer(&mut self, server: &Arc<dyn Serve>) -> u64 {
        let mut memory = self.memory.take().expect("no request is at work");
        let arrived = Arrived::read(&memory);
        let (unique, commit_id) = (arrived.header.unique, arrived.about.commit_id);
        self.locks_pages = arrived.is_direct_read();
        if [abi::opcode::READ, abi::opcode::WRITE].contains(&arrived.header.opcode) {
            self.queue.note_file(NodeId(arrived.header.nodeid));
        }
        let (mut memory, given) = match arrived.lengths(self.queue.shared.sizes.request_max) {
            // The kernel does not wait for this answer.
            _ if arrived.header.opcode == abi::opcode::NOTIFY_REPLY => (memory, DONE),
            Err(error) => {
                tracing::error!(%error, "a malformed request");
                (memory, Outcome { error: -Errno::IO.raw_os_error(), len: 0 })
            }
            Ok((op, 0)) => {
                let mut message = [0; BEFORE_PAYLOAD];
                let message = arrived.message_before(op, &mut message);
                self.slot.open(unique, Some(memory));
                self.dispatch(server, message);
                self.slot.close(None)
            }
            Ok((op, payload)) => {
                // Directly before the payload, so that both are contiguous.
                let bytes = memory.bytes_mut();
                let mut before = [0; BEFORE_PAYLOAD];
                let before = arrived.message_before(op, &mut before);
                let start = PAGE - before.len();
                bytes[start..PAGE].copy_from_slice(before);
                self.slot.open(unique, None);
                self.dispatch(server, &memory.bytes()[start..PAGE + payload]);
                self.slot.close(Some(memory))
            }
        };
        let bytes = memory.bytes_mut();
        let out = Status { error: given.error, unique }.header(given.len);
        bytes[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let payload_size = u32::try_from(given.len).expect("no longer than a request");
        let about = RingAbout { payload_size, ..arrived.about };
        bytes[ABOUT..][..size_of::<RingAbout>()].copy_from_slice(about.as_bytes());
        self.memory = Some(memory);
        commit_id
    }

    /// Serves a message, and returns once it is answered.
    fn dispatch(&mut self, server: &Arc<dyn Serve>, message: &[u8]) {
        let slot = Arc::clone(&self.slot);
        let served = dispatch(message, &**server, &(Arc::clone(&slot) as _));
        let node = match served {
            Ok(node) => node,
            Err(error) => {
                tracing::error!(%error, "a malformed request");
                return;
            }
        };
        if !slot.is_given() {
            self.queue.wait(server, node, |limit| slot.wait(limit));
        }
    }
}

/// A request that has arrived.
struct Arrived {
    header: InHeader,
    raw: RingHeader,
    about: RingAbout,
}

impl Arrived {
    fn read(memory: &Pages) -> Self {
        let (raw, _) = RingHeader::read_from_prefix(memory.bytes()).expect("a page is longer");
        let (header, _) = InHeader::read_from_prefix(&raw.in_out).expect("as long as that");
        Self { header, raw, about: raw.about }
    }

    /// Whether it is a read into a buffer of the caller.
    fn is_direct_read(&self) -> bool {
        let read = ReadIn::read_from_prefix(&self.raw.op);
        self.header.opcode == abi::opcode::READ
            && read.is_ok_and(|(read, _)| {
                ReadFlags::from_bits_retain(read.read_flags).contains(ReadFlags::LOCK_OWNER)
            })
    }

    /// Lengths of the structure of the request and of its payload.
    fn lengths(&self, request_max: usize) -> Result<(usize, usize), Malformed> {
        let wrong = Malformed { what: "not as long as it says" };
        let payload = self.about.payload_size as usize;
        let op = (self.header.len as usize).checked_sub(size_of::<InHeader>() + payload);
        let op = op.filter(|op| *op <= self.raw.op.len() && payload <= request_max);
        Ok((op.ok_or(wrong)?, payload))
    }

    /// The message before its payload; its structure has `op` bytes.
    fn message_before<'a>(&self, op: usize, room: &'a mut [u8; BEFORE_PAYLOAD]) -> &'a [u8] {
        let (first, second) = room.split_at_mut(size_of::<InHeader>());
        first.copy_from_slice(self.header.as_bytes());
        second[..op].copy_from_slice(&self.raw.op[..op]);
        &room[..size_of::<InHeader>() + op]
    }
}

/// An `iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
struct IoVec {
    start: usize,
    len: usize,
}

fn io_vec(bytes: &mut [u8]) -> IoVec {
    IoVec { start: bytes.as_mut_ptr().expose_provenance(), len: bytes.len() }
}

/// Sets the length of a command, which has an address only.
fn with_len(mut command: squeue::Entry128, len: u32) -> squeue::Entry128 {
    /// Offset of `len` in an entry of the submission queue.
    const LEN: usize = 24;
    let start = (&raw mut command).cast::<u8>();
    // SAFETY: an `Entry128` is an entry of the submission queue, of 128 bytes.
    let place = unsafe { start.add(LEN) };
    // SAFETY: as above. Any four bytes are a length.
    unsafe { place.cast::<[u8; 4]>().write(zerocopy::transmute!(len)) };
    command
}
