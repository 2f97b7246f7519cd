//! Where a thread runs: on the processor of its queue, or wherever there is room.
//!
//! The caller of a single request waits on that processor, so there the thread can begin at once; to wake
//! another processor takes longer than most requests. Of several requests at once each had better have its own.

use rustix::thread::sched_setaffinity;

use super::queue::{Processor, Queue, bind};

/// How many more requests of one kind than of the other make a thread move.
const MOVES: i32 = 8;

/// Where a thread runs, and what requests it has had lately.
pub(super) struct Placing {
    is_bound: bool,
    /// Requests that came while others were at work, less those that came alone.
    crowd: i32,
}

impl Placing {
    /// Binds the calling thread to the processor of its queue, if that is there. Fails if it may not run there.
    pub(super) fn new(queue: &Queue) -> rustix::io::Result<Self> {
        match queue.processor {
            Processor::Online => bind(queue.number)?,
            Processor::Offline => sched_setaffinity(None, &queue.shared.everywhere)?,
        }
        Ok(Self { is_bound: queue.processor == Processor::Online, crowd: 0 })
    }

    /// The calling thread has a request, one of so many that are at work in its queue.
    pub(super) fn see(&mut self, queue: &Queue, at_work: usize) {
        let Some(bound) = self.count(at_work) else { return };
        let moved = if bound {
            bind(queue.number)
        } else {
            sched_setaffinity(None, &queue.shared.everywhere)
        };
        if let Err(error) = moved {
            tracing::debug!(queue = queue.number, %error, "a thread stays where it is");
        }
    }

    /// Counts a request; whether to be bound from now on, if that changes.
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
    fn a_thread_moves_when_its_requests_have_changed_for_good() {
        let mut placing = Placing { is_bound: true, crowd: 0 };
        let mut moves = |at_work: &[usize]| -> Vec<bool> {
            at_work.iter().filter_map(|&at_work| placing.count(at_work)).collect()
        };
        assert_eq!(moves(&[1; 100]), []);
        assert_eq!(moves(&[1, 2].repeat(100)), []);
        assert_eq!(moves(&[3; 100]), [false]);
        assert_eq!(moves(&[2, 1].repeat(100)), []);
        assert_eq!(moves(&[1; 100]), [true]);
    }
}
