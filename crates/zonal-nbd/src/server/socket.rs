//! The socket of a connection, with or without TLS; every wait has a timeout.
//!
//! Receiving and sending are apart: one thread receives while another sends. Both use the state of
//! TLS for moments only, and never while they wait for the socket.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, sockopt};
use rustls::ServerConnection;
use zonal::Clock;

/// Timeout of a socket call, after which the deadline is checked.
const TICK: Duration = Duration::from_secs(1);
/// How long a message may take from its first byte to its last, in addition to the time for its
/// bytes.
const MESSAGE_TIMEOUT_NS: u64 = 30_000_000_000;
/// Nanoseconds for a byte: a peer that takes more than 16 s for a MiB is too slow.
const BYTE_TIMEOUT_NS: u64 = 16_000;
/// Most bytes that are received ahead: the data of a request is received straight into its buffer.
const AHEAD: usize = 4096;
/// Bytes of TLS that are received at once: a record and its overhead.
const TLS_AHEAD: usize = 20 * 1024;
/// Bytes that TLS encrypts before they are sent.
const TLS_PIECE: usize = 64 * 1024;
/// Most slices of one call.
const SLICES_MAX: usize = 1024;
/// Memory of both directions.
pub(super) const SOCKET_BYTES: usize = AHEAD + 2 * TLS_AHEAD + 3 * TLS_PIECE;

/// How a connection reached this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Unix,
}

/// A connection.
pub(super) struct Socket {
    fd: OwnedFd,
    clock: Arc<dyn Clock>,
    tls: OnceLock<Mutex<ServerConnection>>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Sets the options of a new connection.
    pub(super) fn new(
        fd: OwnedFd,
        transport: Transport,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Arc<Self>> {
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(TICK))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(TICK))?;
        if transport == Transport::Tcp {
            sockopt::set_tcp_nodelay(&fd, true)?;
            // Finds clients that disappeared: NBD has no messages for that.
            sockopt::set_socket_keepalive(&fd, true)?;
        }
        Ok(Arc::new(Self { fd, clock, tls: OnceLock::new() }))
    }

    /// When all of a message of `bytes` bytes has to be there that begins now.
    fn deadline_ns(&self, bytes: usize) -> u64 {
        let timeout_ns = (bytes as u64).saturating_mul(BYTE_TIMEOUT_NS) + MESSAGE_TIMEOUT_NS;
        self.clock.monotonic_ns().saturating_add(timeout_ns)
    }

    fn check(&self, deadline_ns: u64) -> io::Result<()> {
        if self.clock.monotonic_ns() > deadline_ns {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Ends the connection, or one direction of it. It may have ended already.
    pub(super) fn shutdown(&self, what: Shutdown) {
        let _ = rustix::net::shutdown(&self.fd, what);
    }

    /// Whether TLS protects the connection.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    fn tls(&self) -> Option<MutexGuard<'_, ServerConnection>> {
        self.tls.get().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Receives bytes that have arrived; `None` if a tick passes.
    fn receive(&self, target: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.fd, target, RecvFlags::empty()) {
            Ok((_, 0)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((_, count)) => Ok(Some(count)),
            Err(errno) if is_tick(errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn send(&self, slices: &mut [IoSlice<'_>], deadline_ns: u64) -> io::Result<()> {
        let mut rest = slices;
        // Leaves out empty slices.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(SLICES_MAX)];
            let mut ancillary = SendAncillaryBuffer::default();
            match sendmsg(&self.fd, now, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(errno) if is_tick(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
            if !rest.is_empty() {
                self.check(deadline_ns)?;
            }
        }
        Ok(())
    }
}

fn is_tick(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR)
}

/// The receiving side.
pub(super) struct Input {
    source: Source,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// When the handshake has to be over.
    handshake_deadline_ns: Option<u64>,
}

/// The bytes that a socket receives, decrypted.
struct Source {
    socket: Arc<Socket>,
    tls_bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// The receiving side of a connection whose handshake has to be over after this time.
    pub(super) fn new(socket: Arc<Socket>, handshake_timeout_ns: u64) -> Self {
        let deadline_ns = socket.clock.monotonic_ns().saturating_add(handshake_timeout_ns);
        let source = Source { socket, tls_bytes: Box::default(), start: 0, end: 0 };
        let handshake_deadline_ns = Some(deadline_ns);
        Self { source, buffer: vec![0; AHEAD].into(), start: 0, end: 0, handshake_deadline_ns }
    }

    /// The handshake is over: from now on a client may be silent for as long as it likes.
    pub(super) fn finish_handshake(&mut self) {
        self.handshake_deadline_ns = None;
    }

    /// Waits for the first byte of a request; `false` if the connection has ended before it.
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        while self.start == self.end {
            match self.source.receive(&mut self.buffer) {
                Ok(None) => {}
                Ok(Some(count)) => (self.start, self.end) = (0, count),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads all of `target`: first the buffered bytes, then directly from the connection.
    pub(super) fn read(&mut self, target: &mut [u8]) -> io::Result<()> {
        let deadline_ns = self.deadline_ns(target.len());
        self.read_until(target, deadline_ns)
    }

    /// Reads `count` bytes that have no use.
    pub(super) fn skip(&mut self, count: u32) -> io::Result<()> {
        let mut rest = count as usize;
        let deadline_ns = self.deadline_ns(rest);
        let mut unused = [0; AHEAD];
        while rest > 0 {
            let now = rest.min(AHEAD);
            self.read_until(&mut unused[..now], deadline_ns)?;
            rest -= now;
        }
        Ok(())
    }

    fn deadline_ns(&self, bytes: usize) -> u64 {
        let deadline_ns = self.source.socket.deadline_ns(bytes);
        self.handshake_deadline_ns.map_or(deadline_ns, |handshake| handshake.min(deadline_ns))
    }

    fn read_until(&mut self, target: &mut [u8], deadline_ns: u64) -> io::Result<()> {
        let mut rest = target;
        loop {
            let count = rest.len().min(self.end - self.start);
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            rest = tail;
            if rest.is_empty() {
                return Ok(());
            }
            if rest.len() >= AHEAD {
                let count = self.source.receive(rest)?.unwrap_or(0);
                rest = &mut rest[count..];
            } else {
                let count = self.source.receive(&mut self.buffer)?.unwrap_or(0);
                (self.start, self.end) = (0, count);
            }
            self.source.socket.check(deadline_ns)?;
        }
    }

    /// Goes on with TLS, and waits until its handshake is over. Refuses a client that has sent
    /// anything in clear behind its request for TLS: an attacker may have put it there.
    pub(super) fn start_tls(
        &mut self,
        tls: ServerConnection,
        output: &mut Output,
    ) -> io::Result<()> {
        if self.start < self.end {
            return Err(invalid("data in clear behind the request for TLS"));
        }
        let socket = Arc::clone(&self.source.socket);
        let set = socket.tls.set(Mutex::new(tls));
        assert!(set.is_ok(), "TLS starts once");
        self.source.tls_bytes = vec![0; TLS_AHEAD].into();
        let deadline_ns = self.deadline_ns(0);
        while socket.tls().is_some_and(|tls| tls.is_handshaking()) {
            let received = self.source.receive_tls();
            // Send the alert too that says why the handshake fails.
            output.send(&mut [])?;
            received?;
            socket.check(deadline_ns)?;
        }
        Ok(())
    }
}

impl Source {
    /// Receives the bytes that have arrived; `None` if a tick passes.
    fn receive(&mut self, target: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let Some(mut tls) = self.socket.tls() else {
                return self.socket.receive(target);
            };
            match tls.reader().read(target) {
                // The client has ended TLS.
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            drop(tls);
            if !self.receive_tls()? {
                return Ok(None);
            }
        }
    }

    /// Gives TLS the bytes that have arrived; `false` if a tick passes.
    fn receive_tls(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            let Some(count) = self.socket.receive(&mut self.tls_bytes)? else { return Ok(false) };
            (self.start, self.end) = (0, count);
        }
        let mut tls = self.socket.tls().expect("TLS has started");
        let count = tls.read_tls(&mut &self.tls_bytes[self.start..self.end])?;
        self.start += count;
        tls.process_new_packets().map_err(|error| invalid(&error.to_string()))?;
        Ok(true)
    }
}

/// The sending side.
pub(super) struct Output {
    socket: Arc<Socket>,
    tls_bytes: Vec<u8>,
}

impl Output {
    /// The sending side of a connection.
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, tls_bytes: Vec::new() }
    }

    /// Sends all of `slices`.
    pub(super) fn send(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let deadline_ns = self.socket.deadline_ns(bytes);
        if !self.socket.has_tls() {
            return self.socket.send(slices, deadline_ns);
        }
        for piece in slices.iter().flat_map(|slice| slice.chunks(TLS_PIECE)) {
            self.encrypt(piece)?;
            if self.tls_bytes.len() >= TLS_PIECE {
                self.send_encrypted(deadline_ns)?;
            }
        }
        // Send messages of TLS itself too.
        self.encrypt(&[])?;
        self.send_encrypted(deadline_ns)
    }

    /// Says that nothing follows, where TLS has a message for that.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Some(mut tls) = self.socket.tls() {
            tls.send_close_notify();
        }
        self.send(&mut [])
    }

    fn encrypt(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut tls = self.socket.tls().expect("TLS has started");
        tls.writer().write_all(piece)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.tls_bytes)?;
        }
        Ok(())
    }

    fn send_encrypted(&mut self, deadline_ns: u64) -> io::Result<()> {
        let sent = self.socket.send(&mut [IoSlice::new(&self.tls_bytes)], deadline_ns);
        self.tls_bytes.clear();
        sent
    }
}

/// A violation of the protocol.
pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
