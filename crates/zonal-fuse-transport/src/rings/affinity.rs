//! Affinity of a thread: bound to the processor of its queue, or free to run on any.
//!
//! The caller of a single request waits on the processor of the queue, so a bound thread can start
//! at once; waking another processor takes longer than most requests. Concurrent requests run
//! faster on several processors.

use rustix::thread::sched_setaffinity;

use super::queue::{Processor, Queue, bind};

/// Surplus of concurrent over single requests, or the reverse, at which a thread changes affinity.
const MOVES: i32 = 8;

/// Affinity of a thread, and its recent requests.
pub(super) struct Affinity {
    is_bound: bool,
    /// Concurrent requests minus single ones.
    crowd: i32,
}

impl Affinity {
    /// Binds the calling thread to the processor of its queue, if that is online. Fails if the
    /// thread may not run there.
    pub(super) fn new(queue: &Queue) -> rustix::io::Result<Self> {
        match queue.processor {
            Processor::Online => bind(queue.number)?,
            Processor::Offline => sched_setaffinity(None, &queue.shared.everywhere)?,
        }
        Ok(Self { is_bound: queue.processor == Processor::Online, crowd: 0 })
    }

    /// Adapts the affinity of the calling thread, which has one of the `at_work` requests of its
    /// queue.
    pub(super) fn see(&mut self, queue: &Queue, at_work: usize) {
        let Some(bound) = self.count(at_work) else { return };
        let moved = if bound {
            bind(queue.number)
        } else {
            sched_setaffinity(None, &queue.shared.everywhere)
        };
        if let Err(error) = moved {
            tracing::debug!(queue = queue.number, %error, "the affinity of a thread stays");
        }
    }

    /// Counts a request; returns whether the thread is to be bound, if that changes.
    fn count(&mut self, at_work: usize) -> Option<bool> {
        let step = if at_work > 1 { 1 } else { -1 };
        self.crowd = (self.crowd + step).clamp(-MOVES, MOVES);
        let bound = match self.crowd {
            MOVES => false,
            crowd if crowd == -MOVES => true,
            _ => return None,
        };
        let moves = bound != self.is_bound;
        self.is_bound = bound;
        moves.then_some(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_moves_only_on_lasting_change() {
        let mut affinity = Affinity { is_bound: true, crowd: 0 };
        let mut moves = |at_work: &[usize]| -> Vec<bool> {
            at_work.iter().filter_map(|&at_work| affinity.count(at_work)).collect()
        };
        assert_eq!(moves(&[1; 100]), []);
        assert_eq!(moves(&[1, 2].repeat(100)), []);
        assert_eq!(moves(&[3; 100]), [false]);
        assert_eq!(moves(&[2, 1].repeat(100)), []);
        assert_eq!(moves(&[1; 100]), [true]);
    }
}
