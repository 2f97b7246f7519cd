//! The listening part of a server: threads that accept connections, and the list of the open ones.
//!
//! The server itself decides what it accepts, and starts a thread for a connection if it wants one.
//! When it ends, the threads here end, and nothing more is read from open connections, so that each
//! ends after the answers that it owes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

/// How long to wait when a connection cannot be accepted, for lack of file descriptors or memory.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections<C: AsFd> {
    is_ending: AtomicBool,
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<C>>>,
    /// Signals that a connection has ended, or that the server ends.
    ended: Condvar,
}

impl<C: AsFd> Connections<C> {
    /// Whether the server ends.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// The connections, by number. No number is used twice.
    pub fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<C>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, unless `max` are open.
    pub fn enter(self: &Arc<Self>, connection: Arc<C>, max: usize) -> Option<Entered<C>> {
        let mut open = self.open();
        if open.len() >= max {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, Arc::clone(&connection));
        Some(Entered { connections: Arc::clone(self), number, connection })
    }

    /// Waits at most `timeout` while `holds` is true, and calls it again when a connection ends.
    /// Returns how many connections are open.
    pub fn wait_while(
        &self,
        timeout: Duration,
        holds: impl FnMut(&mut BTreeMap<u64, Arc<C>>) -> bool,
    ) -> usize {
        let waited = self.ended.wait_timeout_while(self.open(), timeout, holds);
        waited.unwrap_or_else(PoisonError::into_inner).0.len()
    }
}

/// A place in the list. The thread of the connection has it: when that ends, even by a panic, the
/// connection is closed and leaves the list.
#[derive(Debug)]
pub struct Entered<C: AsFd> {
    connections: Arc<Connections<C>>,
    number: u64,
    connection: Arc<C>,
}

impl<C: AsFd> Drop for Entered<C> {
    fn drop(&mut self) {
        let _ = shutdown(&*self.connection, Shutdown::Both);
        self.connections.open().remove(&self.number);
        self.connections.ended.notify_all();
    }
}

/// The threads that accept the connections of a server, until they are dropped.
pub struct Listeners<C: AsFd> {
    connections: Arc<Connections<C>>,
    threads: Vec<(Arc<dyn AsFd + Send + Sync>, JoinHandle<()>)>,
}

impl<C: AsFd> Default for Listeners<C> {
    fn default() -> Self {
        let (is_ending, next) = (AtomicBool::new(false), AtomicU64::new(0));
        let (open, ended) = (Mutex::default(), Condvar::new());
        let connections = Arc::new(Connections { is_ending, next, open, ended });
        Self { connections, threads: Vec::new() }
    }
}

impl<C: AsFd + Send + Sync + 'static> Listeners<C> {
    /// Starts a thread of this name that accepts connections by `accept`. `take` gets each of them,
    /// and each failure to accept one; after a failure the thread tries again when a connection has
    /// ended, or after a while.
    pub fn start<L: AsFd + Send + Sync + 'static, A>(
        &mut self,
        name: &str,
        listener: L,
        accept: impl Fn(&L) -> io::Result<A> + Send + 'static,
        take: impl Fn(io::Result<A>) + Send + 'static,
    ) -> io::Result<()> {
        let (listener, connections) = (Arc::new(listener), Arc::clone(&self.connections));
        let accepting = Arc::clone(&listener);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let accepted = accept(&accepting);
                if connections.is_ending() {
                    return;
                }
                let has_failed = accepted.is_err();
                take(accepted);
                if has_failed && !connections.is_ending() {
                    drop(connections.ended.wait_timeout(connections.open(), RETRY_DELAY));
                }
            }
        })?;
        self.threads.push((listener, thread));
        Ok(())
    }
}

impl<C: AsFd> Listeners<C> {
    /// The open connections.
    pub const fn connections(&self) -> &Arc<Connections<C>> {
        &self.connections
    }

    /// Accepts no more connections, and reads nothing more from the open ones. Waits for the
    /// threads that accept.
    pub fn end(&mut self) {
        self.connections.is_ending.store(true, Ordering::Release);
        self.connections.ended.notify_all();
        for (listener, thread) in self.threads.drain(..) {
            // This wakes up the accepting thread.
            let _ = shutdown(&*listener, Shutdown::Both);
            if thread.join().is_err() {
                tracing::error!("a thread that accepts connections panicked");
            }
        }
        for connection in self.connections.open().values() {
            // Only the receiving side: answers are still sent.
            let _ = shutdown(&**connection, Shutdown::Read);
        }
    }
}

impl<C: AsFd> Drop for Listeners<C> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "this is test code")]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn connections_are_counted_and_end_with_their_server() {
        let mut listeners = Listeners::<TcpStream>::default();
        let connections = Arc::clone(listeners.connections());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, entered) = mpsc::channel();
        let (list, accept) = (Arc::clone(&connections), |from: &TcpListener| from.accept());
        let take = move |accepted: io::Result<(TcpStream, _)>| {
            send.send(list.enter(Arc::new(accepted.unwrap().0), 1)).unwrap();
        };
        listeners.start("accept", listener, accept, take).unwrap();
        let mut first = TcpStream::connect(address).unwrap();
        let place = entered.recv().unwrap().unwrap();
        let _second = TcpStream::connect(address).unwrap();
        assert!(entered.recv().unwrap().is_none(), "there is room for one");
        drop(listeners);
        assert!(connections.is_ending() && TcpStream::connect(address).is_err());
        assert_eq!((&*place.connection).read(&mut [0]).unwrap(), 0);
        assert_eq!(connections.open().len(), 1);
        drop(place);
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        assert_eq!(connections.wait_while(Duration::MAX, |open| !open.is_empty()), 0);
    }
}
