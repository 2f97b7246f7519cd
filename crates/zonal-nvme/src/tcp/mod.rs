//! NVMe/TCP: a subsystem for any host that reaches the address.
//!
//! [`serve`] listens until SIGTERM or SIGINT; [`Server`] is the same under the caller's control.
//! Every connection has a thread, because commands block; what bytes mean is in [`pdu`], what a
//! connection does in `session.rs`, what commands do in [`crate`].
//!
//! A write is answered when the device has it. A flush, or a write with FUA, is answered when the
//! device says that it is durable.

mod discovery;
pub mod pdu;
mod session;
mod stream;

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zonal::Clock;

use crate::Error;
use crate::Result;
use crate::Subsystem;
use session::{End, Session};

/// The TCP port of NVMe.
pub const PORT: u16 = 4420;

/// Connections at once; more are closed as they come.
const CONNECTIONS_MAX: usize = 4096;
/// How long connections may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, for want of files or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// What all threads share.
struct Shared {
    subsystem: Arc<Subsystem>,
    clock: Arc<dyn Clock>,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    ended: Condvar,
}

#[derive(Default)]
struct Connections {
    next: u64,
    streams: BTreeMap<u64, Arc<TcpStream>>,
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a connection off the list when its thread ends, however it ends.
struct Entered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.connections().streams.remove(&self.number);
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
    /// Starts to listen at `addresses`; port 0 is any free one.
    pub fn start(
        subsystem: Arc<Subsystem>,
        addresses: &[SocketAddr],
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            subsystem,
            clock,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
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

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connections there are.
    pub fn connection_count(&self) -> usize {
        self.shared.connections().streams.len()
    }

    /// Ends every connection after its running command, and makes everything durable.
    pub fn stop(mut self) -> Result<()> {
        self.end();
        let connections = self.shared.connections();
        let waited = self.shared.ended.wait_timeout_while(connections, PATIENCE, |connections| {
            !connections.streams.is_empty()
        });
        let left = waited.unwrap_or_else(PoisonError::into_inner).0.streams.len();
        if left > 0 {
            tracing::warn!(left, "commands still run; ending regardless");
        }
        self.shared.subsystem.flush()
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for (listener, thread) in self.listeners.drain(..) {
            // This wakes the thread that accepts.
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
            let _ = thread.join();
        }
        for stream in self.shared.connections().streams.values() {
            // Reading ends, so what was already answered is still sent.
            let _ = stream.shutdown(Shutdown::Read);
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
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(&[SocketAddr]),
) -> Result<()> {
    let failed = |source| Error::Io { what: "waiting for signals".to_owned(), source };
    // Before listening: a signal from now on ends the server cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(failed)?;
    let server = Server::start(subsystem, addresses, clock)?;
    ready(server.addresses());
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "ending");
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
                // Somebody's end may help; a while later it is tried in any case.
                let connections = shared.connections();
                drop(shared.ended.wait_timeout(connections, PAUSE));
            }
        }
    }
}

/// Gives a connection a thread.
fn enter(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = stream::prepare(&stream) {
        tracing::debug!(%peer, %error, "gone before it began");
        return;
    }
    let stream = Arc::new(stream);
    let number = {
        let mut connections = shared.connections();
        if connections.streams.len() >= CONNECTIONS_MAX {
            tracing::warn!(%peer, "refused: too many connections");
            return;
        }
        let number = connections.next;
        connections.next += 1;
        connections.streams.insert(number, Arc::clone(&stream));
        number
    };
    let entered = Entered { shared: Arc::clone(shared), number };
    let thread = thread::Builder::new().name("nvme-tcp".to_owned());
    let started = thread.spawn(move || {
        let end = Session::new(&entered.shared, stream).run();
        match end {
            End::Fatal(fatal, _) => tracing::warn!(%peer, ?fatal, "the host broke the protocol"),
            End::Io(error) => tracing::debug!(%peer, %error, "the connection ended"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%peer, %error, "no thread for a connection");
    }
}
