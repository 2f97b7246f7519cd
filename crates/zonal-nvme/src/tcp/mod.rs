//! NVMe/TCP: serves a subsystem to every host that reaches an address.
//!
//! [`serve`] listens until SIGTERM or SIGINT; a [`Server`] is stopped by its caller. Every
//! connection has a thread, because commands block. [`pdu`] has the bytes, `session.rs` the steps
//! of a connection, [`zonal::budget`] the memory that connections may take, `peers.rs` the choice
//! of a connection to close where there is no room, and [`crate`] the commands.
//!
//! A write completes when the device has it. A flush, or a write with FUA, completes when the
//! device says that it is durable.

mod discovery;
mod output;
pub mod pdu;
mod peers;
mod pending;
mod session;
mod stream;
mod transfers;

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::Clock;
use zonal::budget::Budget;

use crate::error::{Error, Result};
use crate::subsystem::Subsystem;
use peers::{Peer, Peers};
use session::{CONNECTION_BYTES, End, Session};

/// The TCP port of NVMe.
pub const PORT: u16 = 4420;

/// Most bytes that the buffers of all connections take together, unless the caller says otherwise.
/// A queue takes 2.9 MiB of it, a connection without a queue 64 KiB.
pub const MEMORY_MAX: usize = 1 << 30;

/// Most connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 4096;
/// How long [`Server::stop`] waits for running commands.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted, for lack of file descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long to wait until a connection that makes room for another has ended.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// State that all threads share.
struct Shared {
    subsystem: Arc<Subsystem>,
    clock: Arc<dyn Clock>,
    memory: Arc<Budget>,
    stopping: AtomicBool,
    peers: Mutex<Peers>,
    ended: Condvar,
}

impl Shared {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `take` until it finds room, and returns its result. Where it finds none, closes the
    /// connection that has been silent longest; `None` if none has been silent too long.
    fn make_room<T>(&self, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(taken) = take() {
                return Some(taken);
            }
            let peers = self.peers();
            let closed = peers.close_silent(self.clock.monotonic_ns())?;
            let is_there = |peers: &mut Peers| peers.has(closed);
            let waited = self.ended.wait_timeout_while(peers, ROOM_TIMEOUT, is_there);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Removes a connection from the list when its thread ends, even by a panic.
struct Entered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.peers().remove(self.number);
        self.shared.ended.notify_all();
    }
}

/// A subsystem that is being served.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Arc<TcpListener>, JoinHandle<()>)>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Starts to listen on `addresses`; port 0 is any free one. The buffers of connections take at
    /// most `memory_max` bytes, see [`MEMORY_MAX`].
    pub fn start(
        subsystem: Arc<Subsystem>,
        addresses: &[SocketAddr],
        memory_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            subsystem,
            clock,
            memory: Budget::new(memory_max),
            stopping: AtomicBool::new(false),
            peers: Mutex::default(),
            ended: Condvar::new(),
        });
        let mut server = Self { shared, listeners: Vec::new(), addresses: Vec::new() };
        for &address in addresses {
            let failed = |source| Error::Listen { address, source };
            let listener = Arc::new(TcpListener::bind(address).map_err(failed)?);
            server.addresses.push(listener.local_addr().map_err(failed)?);
            let (shared, accepting) = (Arc::clone(&server.shared), Arc::clone(&listener));
            let thread = thread::Builder::new().name("nvme-tcp-accept".to_owned());
            let thread = thread.spawn(move || accept(&shared, &accepting)).map_err(failed)?;
            server.listeners.push((listener, thread));
        }
        Ok(server)
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.shared.peers().len()
    }

    /// Closes every connection after its running command, and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        let peers = self.shared.peers();
        let waited =
            self.shared.ended.wait_timeout_while(peers, STOP_TIMEOUT, |peers| peers.len() > 0);
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.len();
        if left > 0 {
            tracing::warn!(left, "commands are still running; stopping anyway");
        }
        self.shared.subsystem.flush()
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for (listener, thread) in self.listeners.drain(..) {
            // This wakes up the accepting thread.
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
            let _ = thread.join();
        }
        for peer in self.shared.peers().iter() {
            // Only the reading side: pending responses are still sent.
            let _ = peer.stream.shutdown(Shutdown::Read);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until SIGTERM or SIGINT arrives. Calls `ready` with the addresses as soon as hosts can
/// connect.
pub fn serve(
    subsystem: Arc<Subsystem>,
    addresses: &[SocketAddr],
    memory_max: usize,
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(&[SocketAddr]),
) -> Result<()> {
    let failed = |source| Error::Io { what: "waiting for signals".to_owned(), source };
    // Before listening: from now on a signal stops the server cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(subsystem, addresses, memory_max, clock)?;
    ready(server.addresses());
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "stopping");
    }
    server.stop()
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while !shared.stopping.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, peer)) => enter(shared, stream, peer),
            Err(_) if shared.stopping.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Try again when a connection has ended, or after a while.
                let peers = shared.peers();
                peers.close_silent(shared.clock.monotonic_ns());
                drop(shared.ended.wait_timeout(peers, ACCEPT_RETRY_DELAY));
            }
        }
    }
}

/// Starts the thread of a connection.
fn enter(shared: &Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    if let Err(error) = stream::prepare(&stream) {
        tracing::debug!(%address, %error, "closed before it was accepted");
        return;
    }
    let peer = Peer::new(stream, shared.clock.monotonic_ns());
    let entered = shared.make_room(|| {
        let memory = shared.memory.reserve(CONNECTION_BYTES)?;
        let mut peers = shared.peers();
        let number = (peers.len() < CONNECTIONS_MAX).then(|| peers.add(Arc::clone(&peer)))?;
        Some((memory, number))
    });
    let Some((memory, number)) = entered else {
        tracing::warn!(%address, "a connection is refused: there are too many, or no memory for more");
        return;
    };
    let entered = Entered { shared: Arc::clone(shared), number };
    let thread = thread::Builder::new().name("nvme-tcp".to_owned());
    let started = thread.spawn(move || {
        let end = Session::new(&entered.shared, peer, memory).run();
        match end {
            End::Fatal(fatal, _) => {
                tracing::warn!(%address, ?fatal, "the host violated the protocol");
            }
            End::Io(error) => tracing::debug!(%address, %error, "the connection ended"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%address, %error, "no thread can be started for a connection");
    }
}
