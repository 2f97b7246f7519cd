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

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::Clock;
use zonal::budget::Budget;
use zonal::listen::{Connections, Listeners};

use crate::error::{Error, Result};
use crate::subsystem::Subsystem;
use peers::Peer;
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
/// How long to wait until a connection that makes room for another has ended.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// State that all threads share.
struct Shared {
    subsystem: Arc<Subsystem>,
    clock: Arc<dyn Clock>,
    memory: Arc<Budget>,
    peers: Arc<Connections<Peer>>,
}

impl Shared {
    /// Calls `take` until it finds room, and returns its result. Where it finds none, closes the
    /// connection that has been silent longest; `None` if none has been silent too long.
    fn make_room<T>(&self, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(taken) = take() {
                return Some(taken);
            }
            let closed = peers::close_silent(&self.peers.open(), self.clock.monotonic_ns())?;
            self.peers.wait_while(ROOM_TIMEOUT, |peers| peers.contains_key(&closed));
        }
    }
}

/// A subsystem that is being served.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Listeners<Peer>,
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
        let mut listeners = Listeners::default();
        let (memory, peers) = (Budget::new(memory_max), Arc::clone(listeners.connections()));
        let shared = Arc::new(Shared { subsystem, clock, memory, peers });
        let mut bound = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let failed = |source| Error::Listen { address, source };
            let listener = TcpListener::bind(address).map_err(failed)?;
            bound.push(listener.local_addr().map_err(failed)?);
            let shared = Arc::clone(&shared);
            let take = move |accepted| match accepted {
                Ok((stream, peer)) => enter(&shared, stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    peers::close_silent(&shared.peers.open(), shared.clock.monotonic_ns());
                }
            };
            listeners
                .start("nvme-tcp-accept", listener, TcpListener::accept, take)
                .map_err(failed)?;
        }
        Ok(Self { shared, listeners, addresses: bound })
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.shared.peers.open().len()
    }

    /// Closes every connection after its running command, and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.listeners.end();
        let left = self.shared.peers.wait_while(STOP_TIMEOUT, |peers| !peers.is_empty());
        if left > 0 {
            tracing::warn!(left, "commands are still running; stopping anyway");
        }
        self.shared.subsystem.flush()
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

/// Starts the thread of a connection.
fn enter(shared: &Arc<Shared>, stream: TcpStream, address: SocketAddr) {
    if let Err(error) = stream::prepare(&stream) {
        tracing::debug!(%address, %error, "closed before it was accepted");
        return;
    }
    let peer = Peer::new(stream, shared.clock.monotonic_ns());
    let entered = shared.make_room(|| {
        let memory = shared.memory.reserve(CONNECTION_BYTES)?;
        Some((memory, shared.peers.enter(Arc::clone(&peer), CONNECTIONS_MAX)?))
    });
    let Some((memory, entered)) = entered else {
        tracing::warn!(%address, "a connection is refused: there are too many, or no memory for more");
        return;
    };
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("nvme-tcp".to_owned());
    let started = thread.spawn(move || {
        let _entered = entered;
        let end = Session::new(&shared, peer, memory).run();
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
