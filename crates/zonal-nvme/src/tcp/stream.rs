//! Reading and writing a TCP connection; every wait has a timeout.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use zonal::Clock;

/// Timeout of a socket call, after which the clock and the other work of the connection are
/// checked.
const TICK: Duration = Duration::from_secs(1);
/// The time limit of a PDU from its first byte to its last, and of the host for receiving a
/// response.
const PDU_TIMEOUT_NS: u64 = 30_000_000_000;
/// Bytes of the receive buffer before Connect: more than any PDU that is allowed until then.
pub(super) const SMALL_BUFFER: usize = 16 * 1024;
/// Bytes of the receive buffer of a queue: one call receives many small PDUs.
pub(super) const QUEUE_BUFFER: usize = 256 * 1024;
/// Most bytes received ahead of data that goes directly to a buffer of its own.
const AHEAD_OF_DATA: usize = 4096;

/// Sets the options of a new connection.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    // Finds hosts that disappeared, also those without a keep alive timer.
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// How a wait for the next PDU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// There is something to read.
    Ready,
    /// Nothing arrived within a tick.
    TimedOut,
}

/// The receiving side of a connection.
pub(super) struct Input {
    stream: Arc<TcpStream>,
    clock: Arc<dyn Clock>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Most bytes of one call.
    ahead: usize,
    /// When the connection times out unless it has a queue by then.
    connect_deadline_ns: Option<u64>,
}

/// The PDUs that the host is expected to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Commands.
    Commands,
    /// Requested data, in addition to commands.
    Data,
}

impl Input {
    /// For a connection that has to have a queue by `deadline_ns`.
    pub(super) fn new(stream: Arc<TcpStream>, clock: Arc<dyn Clock>, deadline_ns: u64) -> Self {
        let buffer = vec![0; SMALL_BUFFER].into();
        let connect_deadline_ns = Some(deadline_ns);
        Self { stream, clock, buffer, start: 0, end: 0, ahead: usize::MAX, connect_deadline_ns }
    }

    /// Sets the expected PDUs. Data goes directly to its place, but for the part that arrives along
    /// with its header.
    pub(super) fn expect(&mut self, expected: Expected) {
        self.ahead = match expected {
            Expected::Commands => usize::MAX,
            Expected::Data => AHEAD_OF_DATA,
        };
    }

    /// Notes that the connection has a queue: it gets the larger buffer, and no deadline for
    /// Connect.
    pub(super) fn connected(&mut self) {
        self.connect_deadline_ns = None;
        let mut buffer = vec![0; QUEUE_BUFFER].into_boxed_slice();
        let count = self.end - self.start;
        buffer[..count].copy_from_slice(self.buffered());
        (self.buffer, self.start, self.end) = (buffer, 0, count);
    }

    /// Bytes that have arrived and were not taken yet.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes `count` buffered bytes.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let at = self.start;
        self.start += count;
        assert!(self.start <= self.end, "only what has arrived is taken");
        &self.buffer[at..at + count]
    }

    /// Waits up to a tick for the first byte of a PDU; an error once the deadline has passed.
    pub(super) fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<Wait> {
        if self.start < self.end {
            return Ok(Wait::Ready);
        }
        (self.start, self.end) = (0, 0);
        self.receive()?;
        if self.end > 0 {
            return Ok(Wait::Ready);
        }
        // Checked only now: on a busy machine this thread may be late, and not the host.
        deadline_ns.map_or(Ok(()), |deadline| self.check(deadline))?;
        Ok(Wait::TimedOut)
    }

    /// Waits until `count` bytes are buffered.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<()> {
        assert!(count <= self.buffer.len(), "what is buffered as a whole fits in the buffer");
        if self.end - self.start >= count {
            return Ok(());
        }
        if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let deadline = self.deadline();
        while self.end - self.start < count {
            self.check(deadline)?;
            self.receive()?;
        }
        Ok(())
    }

    /// Reads all of `target`: first the buffered bytes, then directly from the connection.
    pub(super) fn read_into(&mut self, target: &mut [u8]) -> io::Result<()> {
        let count = target.len().min(self.end - self.start);
        let (head, mut rest) = target.split_at_mut(count);
        head.copy_from_slice(self.take(count));
        let deadline = self.deadline();
        while !rest.is_empty() {
            match (&*self.stream).read(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => rest = &mut rest[count..],
                Err(error) if is_tick(&error) => {}
                Err(error) => return Err(error),
            }
            self.check(deadline)?;
        }
        Ok(())
    }

    fn deadline(&self) -> u64 {
        let deadline_ns = self.clock.monotonic_ns().saturating_add(PDU_TIMEOUT_NS);
        self.connect_deadline_ns.map_or(deadline_ns, |connect| connect.min(deadline_ns))
    }

    fn check(&self, deadline_ns: u64) -> io::Result<()> {
        if self.clock.monotonic_ns() > deadline_ns {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Receives the bytes that have arrived, or nothing if a tick passes.
    fn receive(&mut self) -> io::Result<()> {
        let end = self.buffer.len().min(self.end.saturating_add(self.ahead));
        match (&*self.stream).read(&mut self.buffer[self.end..end]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.end += count;
                Ok(())
            }
            Err(error) if is_tick(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Sends all of `slices`.
pub(super) fn send(
    mut stream: &TcpStream,
    clock: &dyn Clock,
    slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    let deadline = clock.monotonic_ns().saturating_add(PDU_TIMEOUT_NS);
    let mut rest = slices;
    // Leaves out empty slices.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if is_tick(&error) => {}
            Err(error) => return Err(error),
        }
        if !rest.is_empty() && clock.monotonic_ns() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
