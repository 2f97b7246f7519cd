//! A lock that is given in the order in which it was asked for: who waits for room, or pays for it, is never
//! overtaken.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};

/// Something that one thread at a time has.
#[derive(Debug, Default)]
pub(super) struct Turns<T> {
    tickets: Mutex<Tickets>,
    called: Condvar,
    /// Locked by who has the turn.
    value: Mutex<T>,
}

#[derive(Debug, Default)]
struct Tickets {
    /// Of who comes next.
    next: u64,
    /// Of who has the turn, or of the next one to have it.
    called: u64,
}

/// A turn. It ends when this is dropped.
pub(super) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    value: Option<MutexGuard<'a, T>>,
}

impl<T> Turns<T> {
    /// Waits for a turn, behind all who wait already.
    pub(super) fn take(&self) -> Turn<'_, T> {
        let mut tickets = self.tickets.lock().expect("no holder panicked");
        let ticket = tickets.next;
        tickets.next += 1;
        let called = self.called.wait_while(tickets, |tickets| tickets.called != ticket);
        drop(called.expect("no holder panicked"));
        // It ends even if the one before has panicked.
        let mut turn = Turn { turns: self, value: None };
        turn.value = Some(self.value.lock().expect("no holder panicked"));
        turn
    }

    /// How many have a turn or wait for one.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        let tickets = self.tickets.lock().expect("no holder panicked");
        tickets.next - tickets.called
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("there until it is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        if let Ok(mut tickets) = self.turns.tickets.lock() {
            tickets.called += 1;
        }
        self.turns.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_given_in_the_order_of_asking() {
        let turns: Turns<Vec<u64>> = Turns::default();
        std::thread::scope(|scope| {
            let first = turns.take();
            for number in 0..16 {
                let turns = &turns;
                scope.spawn(move || turns.take().push(number));
                while turns.count() < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*turns.take(), (0..16).collect::<Vec<u64>>());
    }
}
