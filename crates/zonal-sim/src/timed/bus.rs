//! A channel: one transfer at a time, in chunks, so that a read waits for at most one chunk.
//!
//! A transfer is one event, however many chunks it has. It is split only when a more urgent
//! transfer arrives, at the end of the current chunk; the rest goes to the head of its queue.

use std::collections::VecDeque;

use super::calendar::NEVER;

/// The largest piece of a transfer. 16 KiB: a page of one plane.
const CHUNK: u64 = 16 << 10;

/// Which transfers come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Out of a die, for the host.
    HostRead,
    /// Out of a die, for GC.
    GcRead,
    /// Into a die, to be programmed.
    Program,
}

const CLASSES: usize = 3;

/// Time that bytes take on the bus: ns per byte, in 2^-24.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(u64);

impl Pace {
    /// The pace of a channel of so many 10^6 bytes a second.
    pub(super) fn new(mb_s: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the slowest channel takes 1000 ns for a byte"
        )]
        Self((1000.0 / mb_s * f64::from(1 << 24)).round() as u64)
    }

    /// The time of so many bytes.
    #[inline]
    pub(super) const fn ns(self, bytes: u64) -> u64 {
        (bytes * self.0) >> 24
    }

    /// The bytes that are transferred in this time.
    const fn bytes(self, ns: u64) -> u64 {
        (ns << 24) / self.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    die: usize,
    class: Class,
    done: u64,
    total: u64,
    /// Since when it waits.
    since_ns: u64,
}

/// A transfer under way, up to `until` bytes of it.
#[derive(Clone, Copy, Debug)]
struct Running {
    transfer: Transfer,
    start_ns: u64,
    until: u64,
}

/// Counts of a bus so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BusTime {
    /// Bytes moved.
    pub(super) bytes: u64,
    /// Time it moved them.
    pub(super) busy_ns: u64,
    /// Time that dies waited for it, summed over the dies.
    pub(super) waited_ns: u64,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Bus {
    pace: Pace,
    running: Option<Running>,
    waiting: [VecDeque<Transfer>; CLASSES],
    pub(super) time: BusTime,
}

impl Bus {
    pub(super) fn new(pace: Pace, dies: usize) -> Self {
        let waiting = std::array::from_fn(|_| VecDeque::with_capacity(dies + 1));
        Self { pace, running: None, waiting, time: BusTime::default() }
    }

    /// Asks for a transfer. Returns when the bus's next event comes.
    #[inline]
    pub(super) fn ask(&mut self, class: Class, die: usize, total: u64, now_ns: u64) -> u64 {
        let transfer = Transfer { die, class, done: 0, total, since_ns: now_ns };
        match &mut self.running {
            None => self.start(transfer, now_ns),
            Some(running) => {
                if class < running.transfer.class {
                    let Running { transfer, start_ns, until } = running;
                    let moved = self.pace.bytes(now_ns - *start_ns);
                    let cut = transfer.done + (moved / CHUNK + 1) * CHUNK;
                    *until = cut.min(*until);
                }
                self.waiting[class as usize].push_back(transfer);
                self.ends_ns()
            }
        }
    }

    /// Cancels the transfer of a die, if it has not begun.
    pub(super) fn take_back(&mut self, class: Class, die: usize, now_ns: u64) -> Option<()> {
        let waiting = &mut self.waiting[class as usize];
        let at = waiting.iter().position(|waits| waits.die == die && waits.done == 0)?;
        let transfer = waiting.remove(at)?;
        self.time.waited_ns += now_ns - transfer.since_ns;
        Some(())
    }

    /// The running part of a transfer ends: returns the die if its transfer is complete, and when
    /// the next event comes.
    #[inline]
    pub(super) fn fire(&mut self, now_ns: u64) -> (Option<usize>, u64) {
        let Running { transfer, start_ns, until } =
            self.running.take().expect("its event was to come");
        self.time.bytes += until - transfer.done;
        self.time.busy_ns += now_ns - start_ns;
        let complete = until == transfer.total;
        if !complete {
            let rest = Transfer { done: until, since_ns: now_ns, ..transfer };
            self.waiting[transfer.class as usize].push_front(rest);
        }
        let next = self.waiting.iter_mut().find_map(VecDeque::pop_front);
        let ends_ns = next.map_or(NEVER, |next| self.start(next, now_ns));
        (complete.then_some(transfer.die), ends_ns)
    }

    fn start(&mut self, transfer: Transfer, now_ns: u64) -> u64 {
        self.time.waited_ns += now_ns - transfer.since_ns;
        self.running = Some(Running { transfer, start_ns: now_ns, until: transfer.total });
        self.ends_ns()
    }

    /// When the running part ends. The parts of a transfer together take as long as the whole.
    fn ends_ns(&self) -> u64 {
        self.running.as_ref().map_or(NEVER, |running| {
            let Running { transfer, start_ns, until } = running;
            start_ns + self.pace.ns(*until) - self.pace.ns(transfer.done)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_read_waits_for_one_chunk() {
        let mut bus = Bus::new(Pace::new(800.0), 4);
        let whole = bus.ask(Class::Program, 0, 6 * CHUNK, 1_000);
        assert_eq!(whole, 1_000 + 122_880);
        // 30 µs later the second chunk of 20.48 µs is on its way.
        assert_eq!(bus.ask(Class::HostRead, 1, 4096, 31_000), 1_000 + 2 * 20_480);
        // Another program changes nothing.
        assert_eq!(bus.ask(Class::Program, 2, 6 * CHUNK, 32_000), 1_000 + 2 * 20_480);
        let (done, next) = bus.fire(41_960);
        assert_eq!((done, next), (None, 41_960 + 5_120));
        let (done, next) = bus.fire(next);
        assert_eq!((done, next), (Some(1), 41_960 + 5_120 + 4 * 20_480));
        let (done, next) = bus.fire(next);
        assert_eq!(done, Some(0));
        let (done, next) = bus.fire(next);
        assert_eq!((done, next), (Some(2), NEVER));
        assert_eq!(bus.time.bytes, 12 * CHUNK + 4096);
        assert_eq!(bus.time.busy_ns, 2 * 122_880 + 5_120);
    }

    #[test]
    fn bus_pending_transfer_can_be_withdrawn() {
        let mut bus = Bus::new(Pace::new(800.0), 4);
        bus.ask(Class::Program, 0, CHUNK, 0);
        bus.ask(Class::Program, 1, CHUNK, 0);
        assert_eq!(bus.take_back(Class::Program, 0, 10), None);
        assert_eq!(bus.take_back(Class::Program, 1, 10), Some(()));
        assert_eq!(bus.fire(20_480), (Some(0), NEVER));
        assert_eq!(bus.time.waited_ns, 10);
    }
}
