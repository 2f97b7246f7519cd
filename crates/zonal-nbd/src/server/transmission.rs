//! Transmission: requests of a client, performed by several threads at once.
//!
//! The threads take turns at receiving: one receives a request with its data, lets another receive
//! the next, performs its own, and sends the answer. So a request never changes threads, a client
//! has at most [`THREADS_MAX`] requests performed at once, and the rest stays in its socket.
//! Threads are started as requests come that find none waiting. Answers are sent in the order in
//! which requests end, which NBD allows.
//!
//! Data has a buffer within the budget of the server. If the budget is used up, a request is
//! performed in pieces, in memory that the connection has reserved: other clients cannot stop it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use rustix::net::Shutdown;
use zerocopy::{FromZeros, IntoBytes};
use zonal::LbaCount;
use zonal::budget::{Buffer, Reservation};

use super::handshake::Chosen;
use super::perform::{self, Checked, Failure, Part, Replies};
use super::socket::{Input, Output, SOCKET_BYTES, Socket, invalid};
use super::{Shared, answer};
use crate::Export;
use crate::wire::{Command, Extent, NbdError, Request, RequestHeader, command_flag};

/// Most requests of a client that are performed at once.
const THREADS_MAX: usize = 16;
/// Bytes of a piece.
const PIECE: usize = 256 * 1024;
/// Memory of a connection: both directions of its socket, a piece, and a share for its threads.
pub(super) const CONNECTION_BYTES: usize = SOCKET_BYTES + PIECE + 256 * 1024;

/// Both directions of a connection.
pub(super) struct Channel {
    pub(super) input: Input,
    pub(super) output: Output,
}

/// Serves requests until the client ends the connection.
pub(super) fn run(
    shared: &Shared,
    socket: &Socket,
    chosen: Chosen,
    channel: Channel,
) -> io::Result<()> {
    let Chosen { export, replies, has_context } = chosen;
    let incoming = Incoming { input: channel.input, end: None };
    let transmission = Transmission {
        shared,
        socket,
        export,
        replies,
        has_context,
        incoming: Mutex::new(incoming),
        output: Mutex::new(channel.output),
        waiting: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
    };
    thread::scope(|scope| transmission.work(scope));
    let incoming = transmission.incoming.into_inner().unwrap_or_else(PoisonError::into_inner);
    incoming.end.unwrap_or(Ok(()))?;
    let mut output = transmission.output.into_inner().unwrap_or_else(PoisonError::into_inner);
    output.finish()
}

struct Transmission<'a> {
    shared: &'a Shared,
    socket: &'a Socket,
    export: Arc<Export>,
    replies: Replies,
    has_context: bool,
    incoming: Mutex<Incoming>,
    output: Mutex<Output>,
    /// Threads that wait for their turn to receive.
    waiting: AtomicUsize,
    threads: AtomicUsize,
}

struct Incoming {
    input: Input,
    /// The end of receiving, and its reason.
    end: Option<io::Result<()>>,
}

/// A request that was received.
struct Task {
    request: Request,
    checked: Result<Checked, Failure>,
    data: Option<Data>,
}

/// A buffer, and its part of the budget.
struct Data {
    buffer: Buffer,
    _memory: Reservation,
}

/// How a request ended.
enum Outcome {
    Done,
    Read(Vec<Part>),
    Extents(Vec<Extent>),
}

/// Ends the connection if a thread panics: its client would wait for an answer.
struct EndOnPanic<'a>(&'a Socket);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.shutdown(Shutdown::Both);
        }
    }
}

impl Transmission<'_> {
    /// The loop of each thread.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let _end = EndOnPanic(self.socket);
        while let Some(task) = self.next(scope) {
            if let Err(error) = self.perform(task) {
                tracing::debug!(%error, "an answer could not be sent");
                // The thread that receives finds the end.
                self.socket.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// Receives a request when it is this thread's turn; `None` after the last.
    fn next<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Option<Task> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let incoming = self.incoming.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // A thread that panicked while it received has lost its place in the stream of requests.
        let mut incoming = incoming.ok().filter(|incoming| incoming.end.is_none())?;
        match self.receive(&mut incoming.input) {
            Ok(Some(task)) => {
                self.start_thread(scope);
                Some(task)
            }
            Ok(None) => {
                incoming.end = Some(Ok(()));
                None
            }
            Err(error) => {
                incoming.end = Some(Err(error));
                None
            }
        }
    }

    /// Starts a thread that receives the next request, where none waits for that. Only the thread
    /// whose turn it is calls this.
    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let threads = self.threads.load(Ordering::Relaxed);
        if self.waiting.load(Ordering::Relaxed) > 0 || threads == THREADS_MAX {
            return;
        }
        let thread = thread::Builder::new().name("nbd".to_owned());
        match thread.spawn_scoped(scope, || self.work(scope)) {
            Ok(_) => self.threads.store(threads + 1, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "a connection has {threads} threads"),
        }
    }

    /// Receives a request with its data; `None` after the last.
    fn receive(&self, input: &mut Input) -> io::Result<Option<Task>> {
        while input.wait()? {
            let mut header = RequestHeader::new_zeroed();
            input.read(header.as_mut_bytes())?;
            let bytes = header.as_bytes().try_into().expect("the bytes of a header");
            let request = Request::parse(bytes).ok_or_else(|| invalid("no request of NBD"))?;
            if request.command == Ok(Command::Disconnect) {
                return Ok(None);
            }
            let checked = self.check(request);
            let Ok(one) = &checked else {
                if request.command == Ok(Command::Write) {
                    input.skip(request.length)?;
                }
                return Ok(Some(Task { request, checked, data: None }));
            };
            if one.payload() == 0 {
                return Ok(Some(Task { request, checked, data: None }));
            }
            let Some(memory) = self.shared.budget.reserve(Buffer::size(one.payload())) else {
                self.perform_in_pieces(input, one)?;
                continue;
            };
            let mut buffer = self.shared.budget.buffer(one.payload());
            if one.command == Command::Write {
                input.read(buffer.data_mut())?;
            }
            let data = Some(Data { buffer, _memory: memory });
            return Ok(Some(Task { request, checked, data }));
        }
        Ok(None)
    }

    fn check(&self, request: Request) -> Result<Checked, Failure> {
        if self.shared.connections.is_ending() {
            return Err(Failure::new(NbdError::Shutdown, "the server is ending"));
        }
        if request.command == Ok(Command::BlockStatus) && !self.has_context {
            let message = "no metadata context was chosen for this export";
            return Err(Failure::new(NbdError::Invalid, message));
        }
        perform::check(request, &self.export.shape(), self.replies)
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a request, and answers it.
    fn perform(&self, task: Task) -> io::Result<()> {
        let Task { request, checked, mut data } = task;
        let buffer = data.as_mut().map_or(&mut [][..], |data| data.buffer.data_mut());
        let outcome = checked.and_then(|checked| self.execute(&checked, buffer));
        let output = &mut *self.output();
        match outcome {
            Err(failure) => {
                tracing::debug!(?request, message = failure.message, "a request failed");
                answer::failed(output, &request, self.replies, &failure)
            }
            Ok(Outcome::Done) => answer::done(output, &request),
            Ok(Outcome::Extents(extents)) => answer::extents(output, &request, &extents),
            Ok(Outcome::Read(parts)) => match self.replies {
                Replies::Simple => answer::simple_data(output, &request, buffer),
                Replies::Structured => answer::parts(output, &request, &parts, buffer),
            },
        }
    }

    fn execute(&self, one: &Checked, buffer: &mut [u8]) -> Result<Outcome, Failure> {
        let disk = self.export.disk();
        match one.command {
            Command::Read => {
                return perform::read(disk, one, self.replies, buffer).map(Outcome::Read);
            }
            Command::BlockStatus => return perform::status(disk, one).map(Outcome::Extents),
            Command::Write => disk.write(one.lba, buffer, one.durability())?,
            Command::Flush => disk.flush()?,
            Command::Trim => perform::trim(disk, one)?,
            Command::WriteZeroes => perform::write_zeroes(disk, one)?,
            Command::Disconnect => unreachable!("it is not performed"),
        }
        Ok(Outcome::Done)
    }

    /// Performs a read or a write in memory that the connection has, and answers it.
    fn perform_in_pieces(&self, input: &mut Input, one: &Checked) -> io::Result<()> {
        let mut piece = self.shared.budget.buffer(PIECE.min(one.payload()));
        match one.command {
            Command::Write => self.write_in_pieces(input, one, piece.data_mut()),
            _ => self.read_in_pieces(one, piece.data_mut()),
        }
    }

    fn write_in_pieces(
        &self,
        input: &mut Input,
        one: &Checked,
        piece: &mut [u8],
    ) -> io::Result<()> {
        let mut result = Ok(());
        for at in (0..one.payload()).step_by(piece.len()) {
            let count = piece.len().min(one.payload() - at);
            let data = &mut piece[..count];
            input.read(data)?;
            // The data behind a failed piece is received all the same.
            result = result
                .and_then(|()| self.export.disk().write(self.lba(one, at), data, one.durability()));
        }
        match result {
            Ok(()) => answer::done(&mut self.output(), &one.request),
            Err(error) => {
                answer::failed(&mut self.output(), &one.request, self.replies, &error.into())
            }
        }
    }

    fn read_in_pieces(&self, one: &Checked, piece: &mut [u8]) -> io::Result<()> {
        let (request, replies) = (&one.request, self.replies);
        if request.has(command_flag::DF) && one.payload() > piece.len() {
            let failure = Failure::new(NbdError::Overflow, "too long for a read without fragments");
            return answer::failed(&mut self.output(), request, replies, &failure);
        }
        // The parts of a simple reply have to follow each other.
        let output = &mut *self.output();
        for at in (0..one.payload()).step_by(piece.len()) {
            let count = piece.len().min(one.payload() - at);
            let data = &mut piece[..count];
            match self.export.disk().read(self.lba(one, at), data) {
                Err(error) if at == 0 || replies == Replies::Structured => {
                    return answer::failed(output, request, replies, &error.into());
                }
                // The reply says already that the read has succeeded.
                Err(error) => return Err(io::Error::other(error)),
                Ok(()) => {}
            }
            match replies {
                Replies::Structured => answer::chunk_data(output, request, at, data)?,
                Replies::Simple if at == 0 => answer::simple_data(output, request, data)?,
                Replies::Simple => output.send(&mut [IoSlice::new(data)])?,
            }
        }
        match replies {
            Replies::Structured => answer::chunk_end(output, request),
            Replies::Simple => Ok(()),
        }
    }

    fn lba(&self, one: &Checked, at: usize) -> zonal::Lba {
        one.lba + LbaCount::new((at >> self.export.shape().block_size.shift()) as u64)
    }
}
