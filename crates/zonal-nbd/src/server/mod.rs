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

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::Clock;
use zonal::budget::Budget;
use zonal::listen::{Connections, Listeners};

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
    connections: Arc<Connections<Socket>>,
}

/// Exports that are being served.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Listeners<Socket>,
    addresses: Vec<Address>,
}

impl Server {
    /// Starts to listen.
    pub fn start(exports: Exports, settings: Settings, clock: Arc<dyn Clock>) -> Result<Self> {
        let Settings { addresses, tls, memory_max } = settings;
        let mut listeners = Listeners::default();
        let connections = Arc::clone(listeners.connections());
        let budget = Budget::new(memory_max);
        let shared = Arc::new(Shared { exports, clock, tls, budget, connections });
        let mut bound = Vec::with_capacity(addresses.len());
        for address in addresses {
            let listener = Listener::bind(&address)?;
            let failed = |source| Error::Listen { address: address.to_string(), source };
            bound.push(listener.address().map_err(failed)?);
            let shared = Arc::clone(&shared);
            let take = move |accepted| match accepted {
                Ok(accepted) => enter(&shared, accepted),
                Err(error) => tracing::warn!(%error, "a connection could not be accepted"),
            };
            listeners.start("nbd-accept", listener, Listener::accept, take).map_err(failed)?;
        }
        Ok(Self { shared, listeners, addresses: bound })
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// How many connections there are.
    pub fn connection_count(&self) -> usize {
        self.shared.connections.open().len()
    }

    /// Closes every connection after the requests that it performs, and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.listeners.end();
        let left = self.shared.connections.wait_while(STOP_TIMEOUT, |open| !open.is_empty());
        if left > 0 {
            tracing::warn!(left, "requests are still being performed; stopping anyway");
        }
        for export in self.shared.exports.iter().filter(|export| !export.shape().is_read_only) {
            let name = export.name().to_owned();
            export.disk().flush().map_err(|source| Error::Flush { name, source })?;
        }
        Ok(())
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
    let Some(entered) = shared.connections.enter(Arc::clone(&socket), CONNECTIONS_MAX) else {
        tracing::warn!(client, "a connection is refused: there are {CONNECTIONS_MAX}");
        return;
    };
    let (name, shared) = (client.clone(), Arc::clone(shared));
    let started = thread::Builder::new().name("nbd".to_owned()).spawn(move || {
        let _held = (memory, entered);
        match converse(&shared, &socket) {
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
