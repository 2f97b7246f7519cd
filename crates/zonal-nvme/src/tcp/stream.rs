//! Reading and writing a TCP connection, with an end to every wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use zonal::Clock;

/// How often a wait looks whether it has lasted too long.
const TICK: Duration = Duration::from_secs(1);
/// How long a unit may take once its first byte is there, and an answer until the host takes it.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Bytes of the receive buffer: many small units with one call.
const BUFFER_BYTES: usize = 256 * 1024;

/// Makes a connection ready to be waited for.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    // A host that is gone without a word is found out, even one without a keep alive timer.
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// With something to read.
    Well,
    /// After a tick, with nothing: time to look at the clock, and at what else there is to do.
    InVain,
}

/// What arrives.
pub(super) struct Input {
    stream: Arc<TcpStream>,
    clock: Arc<dyn Clock>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new(stream: Arc<TcpStream>, clock: Arc<dyn Clock>) -> Self {
        Self { stream, clock, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }

    /// What has arrived and was not taken.
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

    /// Waits a little for the first byte of a unit; an error once the deadline has passed.
    pub(super) fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<Waited> {
        if self.start < self.end {
            return Ok(Waited::Well);
        }
        (self.start, self.end) = (0, 0);
        self.receive()?;
        if self.end > 0 {
            return Ok(Waited::Well);
        }
        // Only now: on a busy machine it may be us who are late, and not the host.
        deadline_ns.map_or(Ok(()), |deadline| self.check(deadline))?;
        Ok(Waited::InVain)
    }

    /// Waits until `count` bytes are buffered.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<()> {
        assert!(count <= BUFFER_BYTES, "what is taken as a whole fits in the buffer");
        if self.end - self.start >= count {
            return Ok(());
        }
        if self.start + count > BUFFER_BYTES {
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

    /// Reads all of `target`: what is buffered, then straight from the connection.
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
        self.clock.monotonic_ns().saturating_add(PATIENCE_NS)
    }

    fn check(&self, deadline_ns: u64) -> io::Result<()> {
        if self.clock.monotonic_ns() > deadline_ns {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Receives something, or nothing if a tick passes.
    fn receive(&mut self) -> io::Result<()> {
        match (&*self.stream).read(&mut self.buffer[self.end..]) {
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

/// Sends all of `bytes`.
pub(super) fn send(stream: &TcpStream, clock: &dyn Clock, bytes: &[u8]) -> io::Result<()> {
    let deadline = clock.monotonic_ns().saturating_add(PATIENCE_NS);
    let (mut stream, mut rest) = (stream, bytes);
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
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
