//! Serves exports to every client that reaches an address.
//!
//! [`serve`] listens until SIGTERM or SIGINT; a [`Server`] is stopped by its caller. `handshake.rs`
//! lets a client choose an export. `transmission.rs` receives requests on several threads,
//! `perform.rs` checks them and performs them on the disk, and `answer.rs` sends the replies.
//! `socket.rs` has the bytes of a connection, `tls.rs` encrypts them, and `listen.rs` has the
//! addresses.
//!
//! A write is answered when the disk has it. A flush, or a request with FUA, is answered when the
//! disk says that it is durable. The size of an export follows its disk: after a disk was resized,
//! requests of all clients go up to its new end, and clients that connect from then on are given
//! the new size.

mod answer;
mod handshake;
mod listen;
mod perform;
mod socket;
mod tls;
mod transmission;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::Clock;
use zonal::budget::Budget;

use crate::{Error, Exports, Result};
pub use listen::Address;
use listen::{Accepted, Listener};
use socket::{Input, Output, Socket};
pub use tls::{Tls, TlsFiles, TlsPolicy};
use transmission::CONNECTION_BYTES;

/// The TCP port of NBD.
pub const PORT: u16 = 10809;

/// Most bytes that the buffers of all connections take together, unless the caller says otherwise.
pub const MEMORY_MAX: usize = 1 << 30;

/// Most connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to choose an export.
const HANDSHAKE_TIMEOUT_NS: u64 = 30_000_000_000;
/// How long [`Server::stop`] waits for requests that are being performed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted, for lack of file descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How a server works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// The certificates of TLS, if it has any.
    pub tls: Option<Tls>,
    /// Most bytes of the buffers of all connections, see [`MEMORY_MAX`].
    pub memory_max: usize,
}

/// State that all threads share.
struct Shared {
    exports: Exports,
    clock: Arc<dyn Clock>,
    tls: Option<Tls>,
    budget: Arc<Budget>,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    ended: Condvar,
}

/// The open connections.
#[derive(Default)]
struct Connections {
    next: u64,
    sockets: BTreeMap<u64, Arc<Socket>>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// Removes a connection from the list when its thread ends, even by a panic.
struct Entered {
    shared: Arc<Shared>,
    number: u64,
    socket: Arc<Socket>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.socket.shutdown(Shutdown::Both);
        self.shared.connections().sockets.remove(&self.number);
        self.shared.ended.notify_all();
    }
}

/// Exports that are being served.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Arc<Listener>, JoinHandle<()>)>,
    addresses: Vec<Address>,
}

impl Server {
    /// Starts to listen.
    pub fn start(exports: Exports, settings: Settings, clock: Arc<dyn Clock>) -> Result<Self> {
        let shared = Arc::new(Shared {
            exports,
            clock,
            tls: settings.tls,
            budget: Budget::new(settings.memory_max),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            ended: Condvar::new(),
        });
        let mut server = Self { shared, listeners: Vec::new(), addresses: Vec::new() };
        for address in settings.addresses {
            let listener = Arc::new(Listener::bind(&address)?);
            let failed = |source| Error::Listen { address: address.to_string(), source };
            server.addresses.push(listener.address().map_err(failed)?);
            let (shared, accepting) = (Arc::clone(&server.shared), Arc::clone(&listener));
            let thread = thread::Builder::new().name("nbd-accept".to_owned());
            let thread = thread.spawn(move || accept(&shared, &accepting)).map_err(failed)?;
            server.listeners.push((listener, thread));
        }
        Ok(server)
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.shared.connections().sockets.len()
    }

    /// Closes every connection after the requests that it performs, and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        let connections = self.shared.connections();
        let is_there = |connections: &mut Connections| !connections.sockets.is_empty();
        let waited = self.shared.ended.wait_timeout_while(connections, STOP_TIMEOUT, is_there);
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.sockets.len();
        if left > 0 {
            tracing::warn!(left, "requests are still being performed; stopping anyway");
        }
        for export in self.shared.exports.iter().filter(|export| !export.shape().is_read_only) {
            let name = export.name().to_owned();
            export.disk().flush().map_err(|source| Error::Flush { name, source })?;
        }
        Ok(())
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for (listener, thread) in self.listeners.drain(..) {
            // This wakes up the accepting thread.
            let _ = rustix::net::shutdown(&*listener, Shutdown::Both);
            let _ = thread.join();
        }
        for socket in self.shared.connections().sockets.values() {
            // Only the receiving side: answers are still sent.
            socket.shutdown(Shutdown::Read);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until SIGTERM or SIGINT arrives. Calls `ready` with the addresses as soon as clients can
/// connect.
pub fn serve(
    exports: Exports,
    settings: Settings,
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(&[Address]),
) -> Result<()> {
    let failed = |source| Error::Io { what: "waiting for signals".to_owned(), source };
    // Before listening: from now on a signal stops the server cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(exports, settings, clock)?;
    ready(server.addresses());
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "stopping");
    }
    server.stop()
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    while !shared.is_stopping() {
        match listener.accept() {
            Ok(accepted) => enter(shared, accepted),
            Err(_) if shared.is_stopping() => return,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Try again when a connection has ended, or after a while.
                drop(shared.ended.wait_timeout(shared.connections(), ACCEPT_RETRY_DELAY));
            }
        }
    }
}

/// Starts the thread of a connection.
fn enter(shared: &Arc<Shared>, accepted: Accepted) {
    let Accepted { fd, transport, name: client } = accepted;
    let socket = match Socket::new(fd, transport, Arc::clone(&shared.clock)) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(client, %error, "closed before it was accepted");
            return;
        }
    };
    let Some(memory) = shared.budget.reserve(CONNECTION_BYTES) else {
        tracing::warn!(client, "a connection is refused: there is no memory for more");
        return;
    };
    let mut connections = shared.connections();
    if connections.sockets.len() >= CONNECTIONS_MAX {
        tracing::warn!(client, "a connection is refused: there are {CONNECTIONS_MAX}");
        return;
    }
    let number = connections.next;
    connections.next += 1;
    connections.sockets.insert(number, Arc::clone(&socket));
    drop(connections);
    let entered = Entered { shared: Arc::clone(shared), number, socket };
    let name = client.clone();
    let started = thread::Builder::new().name("nbd".to_owned()).spawn(move || {
        let _memory = memory;
        match converse(&entered.shared, &entered.socket) {
            Ok(()) => tracing::debug!(client, "the connection ended"),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                tracing::warn!(client, %error, "the client violated the protocol");
            }
            Err(error) => tracing::debug!(client, %error, "the connection ended"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(client = name, %error, "no thread can be started for a connection");
    }
}

/// All of a connection.
fn converse(shared: &Shared, socket: &Arc<Socket>) -> std::io::Result<()> {
    let mut input = Input::new(Arc::clone(socket), HANDSHAKE_TIMEOUT_NS);
    let mut output = Output::new(Arc::clone(socket));
    let chosen = handshake::run(shared, socket, &mut input, &mut output)?;
    let Some(chosen) = chosen else { return output.finish() };
    input.finish_handshake();
    transmission::run(shared, socket, chosen, transmission::Channel { input, output })
}
