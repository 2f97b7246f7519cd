//! The connections, and the choice of one to close where there is no room for others.
//!
//! A peer that has not connected a queue has a time limit, and a host with a keep alive timer has
//! that. A host without one may be silent for as long as it likes, until the server needs room: for
//! a connection, for the memory of a queue, or for a file descriptor. Then the server closes the
//! connection that has been silent longest.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a peer without a queue may be silent when others need room. A host connects in an
/// instant.
const UNCONNECTED_PATIENCE_NS: u64 = 1_000_000_000;
/// The same of a host without a keep alive timer.
const UNTIMED_PATIENCE_NS: u64 = 10_000_000_000;
/// Longer timers are no timers: the host chooses them.
const TIMER_MAX_MS: u32 = 120_000;

/// How the server learns that a peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has no queue yet.
    Unconnected,
    /// It has an admin queue, and no timer.
    Untimed,
    /// By a timer, or by another connection of the host.
    Timed,
}

impl Standing {
    /// The standing of a host with this timer.
    pub(super) fn of_timer(keep_alive_ms: Option<u32>) -> Self {
        match keep_alive_ms {
            Some(ms) if ms <= TIMER_MAX_MS => Self::Timed,
            Some(_) | None => Self::Untimed,
        }
    }

    fn patience_ns(self) -> Option<u64> {
        match self {
            Self::Unconnected => Some(UNCONNECTED_PATIENCE_NS),
            Self::Untimed => Some(UNTIMED_PATIENCE_NS),
            Self::Timed => None,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) stream: Arc<TcpStream>,
    /// When the server last heard it, and its standing.
    heard: Mutex<(u64, Standing)>,
}

impl Peer {
    /// A new one.
    pub(super) fn new(stream: TcpStream, now_ns: u64) -> Arc<Self> {
        let heard = Mutex::new((now_ns, Standing::Unconnected));
        Arc::new(Self { stream: Arc::new(stream), heard })
    }

    /// When the server last heard it.
    pub(super) fn heard_ns(&self) -> u64 {
        self.heard().0
    }

    /// Notes when the server last heard it, and its present standing.
    pub(super) fn note(&self, heard_ns: u64, standing: Standing) {
        *self.heard() = (heard_ns, standing);
    }

    fn heard(&self) -> MutexGuard<'_, (u64, Standing)> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it has been silent, if that is too long when others need room.
    fn silent_ns(&self, now_ns: u64) -> Option<u64> {
        let (heard_ns, standing) = *self.heard();
        let patience_ns = standing.patience_ns()?;
        let silent_ns = now_ns.saturating_sub(heard_ns);
        Some(silent_ns).filter(|silent_ns| *silent_ns >= patience_ns)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Closes the connection that has been silent longest, if that is too long, and returns its number.
/// Its memory is free when its thread has ended.
pub(super) fn close_silent(peers: &BTreeMap<u64, Arc<Peer>>, now_ns: u64) -> Option<u64> {
    let silent = peers
        .iter()
        .filter_map(|(number, peer)| peer.silent_ns(now_ns).map(|silent_ns| (silent_ns, *number)));
    let (silent_ns, number) = silent.max()?;
    let peer = &peers[&number];
    // So that no later call chooses it again.
    peer.note(now_ns, Standing::Timed);
    let address = peer.stream.peer_addr().ok();
    tracing::warn!(?address, silent_ns, "a connection that is silent makes room for another");
    // It may have ended already.
    let _ = peer.stream.shutdown(Shutdown::Both);
    Some(number)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn peers(count: u64) -> (BTreeMap<u64, Arc<Peer>>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ((0..count).map(|number| (number, Peer::new(connect(), 0))).collect(), listener)
    }

    #[test]
    fn peer_silent_longest_goes_first_and_once() {
        let (peers, _listener) = peers(3);
        peers[&0].note(5 * SECOND_NS, Standing::Untimed);
        peers[&1].note(3 * SECOND_NS, Standing::Untimed);
        peers[&2].note(20 * SECOND_NS, Standing::Unconnected);
        assert_eq!(close_silent(&peers, 4 * SECOND_NS), None);
        let now_ns = 20 * SECOND_NS;
        assert_eq!([(); 3].map(|()| close_silent(&peers, now_ns)), [Some(1), Some(0), None]);
        assert_eq!(close_silent(&peers, 21 * SECOND_NS), Some(2));
    }

    #[test]
    fn peer_with_timer_stays_unless_very_long() {
        let (peers, _listener) = peers(2);
        peers[&0].note(0, Standing::of_timer(Some(60_000)));
        peers[&1].note(0, Standing::of_timer(Some(u32::MAX)));
        assert_eq!(Standing::of_timer(None), Standing::Untimed);
        let now_ns = 1_000 * SECOND_NS;
        assert_eq!([(); 2].map(|()| close_silent(&peers, now_ns)), [Some(1), None]);
    }
}
