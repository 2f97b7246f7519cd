//! Turns: threads get them in the order in which they came, so no thread that waits for room, or
//! pays for it, is overtaken.

use crate::furrow::planted::{Planted, mistake};
use crate::furrow::sync::{Condvar, Mutex};

/// Turns at something that a bounded number of threads may do at once.
#[derive(Debug, Default)]
pub(super) struct Turns {
    tickets: Mutex<Tickets>,
    changed: Condvar,
    planted: Planted,
}

#[derive(Debug, Default)]
struct Tickets {
    /// The ticket of the next thread that comes.
    next: u64,
    /// The ticket whose turn is next.
    called: u64,
    /// Turns that have not ended.
    running: usize,
}

/// A turn. Dropping it ends the turn.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(planted: Planted) -> Self {
        Self { planted, ..Self::default() }
    }

    /// Waits for a turn, behind all threads that wait already, and as long as `most` or more have
    /// one. `most` runs under the lock of the tickets, so it may take only locks that come later.
    pub(super) fn take(&self, most: impl Fn() -> usize) -> Turn<'_> {
        let mut tickets = self.tickets.lock().expect("no holder panicked");
        let ticket = tickets.next;
        tickets.next += 1;
        let waits = |tickets: &mut Tickets| tickets.called != ticket || tickets.running >= most();
        let mut tickets = self.changed.wait_while(tickets, waits).expect("no holder panicked");
        tickets.called += 1;
        tickets.running += 1;
        // The next thread may get a turn as well.
        self.changed.notify_all();
        Turn(self)
    }

    /// How many have a turn or wait for one.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        let tickets = self.tickets.lock().expect("no holder panicked");
        tickets.next - tickets.called + tickets.running as u64
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Ok(mut tickets) = self.0.tickets.lock() {
            tickets.running -= 1;
        }
        mistake!(self.0, KeepTurnWaiting, return);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn turns_are_fifo() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let first = turns.take(|| 1);
            for number in 0..16 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take(|| 1);
                    order.lock().unwrap().push(number);
                });
                while turns.count() < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), (0..16).collect::<Vec<u64>>());
    }

    #[test]
    fn turns_run_as_many_as_allowed() {
        let (turns, most) = (Turns::default(), AtomicUsize::new(3));
        let all_run = Barrier::new(4);
        std::thread::scope(|scope| {
            let first = turns.take(|| 1);
            for _ in 0..3 {
                scope.spawn(|| {
                    let _turn = turns.take(|| most.load(Ordering::Relaxed));
                    all_run.wait();
                });
            }
            while turns.count() < 4 {
                std::thread::yield_now();
            }
            // The three run together, without the first.
            drop(first);
            all_run.wait();
        });
        assert_eq!(turns.count(), 0);
    }
}
