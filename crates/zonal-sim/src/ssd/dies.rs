//! How long a drive's operations take when calls come one at a time: when each die and each
//! channel is free again.
//!
//! The flash and its times are the same as in timed mode; this module leaves out the queue of host
//! commands. A program goes over its die's channel and then waits for the die. A read suspends a
//! program or an erase. Data that is not programmed yet is read from the write buffer.

use std::collections::VecDeque;

use super::place::{CHUNK_BYTES, Place};
use crate::config::{Config, Layout};
use crate::controller::ns;
use crate::ftl::Slot;

/// A time or a span, in nanoseconds.
type Ns = u64;

/// Operations of the dies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Operations {
    /// Programs, of one die each.
    pub programs: u64,
    /// Page reads, of one die each.
    pub reads: u64,
    /// Erases, of one die each.
    pub erases: u64,
    /// Programs and erases that were suspended for a read.
    pub suspends: u64,
    /// Time that dies spent on these together, in nanoseconds.
    pub busy_ns: u64,
}

/// Dies and channels.
pub(super) struct Dies {
    times: DieTimes,
    place: Place,
    /// Programs that may wait for each die.
    buffered_max: usize,
    states: Vec<Die>,
    /// When each channel is free.
    channels: Vec<Ns>,
    /// The page that GC has read last.
    collected: Option<Slot>,
    operations: Operations,
}

/// Times of operations.
struct DieTimes {
    read: Ns,
    program: Ns,
    erase: Ns,
    suspend: Ns,
    resume: Ns,
}

#[derive(Default)]
struct Die {
    /// When its programs and erases are done.
    free: Ns,
    /// When its last read is done.
    read: Ns,
    /// Programs that are not done: number of the program in flash, and when it is done.
    pending: VecDeque<(u32, Ns)>,
}

impl Dies {
    pub(super) fn new(config: &Config, layout: &Layout) -> Self {
        let flash = &config.flash;
        let states = std::iter::repeat_with(Die::default).take(flash.dies() as usize).collect();
        Self {
            times: DieTimes {
                read: ns(flash.read_us),
                program: ns(flash.program_us),
                erase: ns(flash.erase_us),
                suspend: ns(flash.suspend_us),
                resume: ns(flash.resume_us),
            },
            // A plane reads its page alone; a unit of several planes' pages is read by all at once.
            place: Place::new(config, layout, flash.page.0, 0),
            buffered_max: config.drive.buffer_programs as usize,
            states,
            channels: vec![0; flash.channels as usize],
            collected: None,
            operations: Operations::default(),
        }
    }

    pub(super) const fn program_bytes(&self) -> u64 {
        self.place.program_bytes()
    }

    pub(super) const fn operations(&self) -> Operations {
        self.operations
    }

    /// Time that the host link needs for so many bytes: it is as fast as all channels together
    /// (assumed).
    pub(super) fn link_ns(&self, bytes: u64) -> Ns {
        self.place.transfer_ns(bytes) / self.channels.len() as u64
    }

    /// Units were written up to and including `slot`, in order. Returns when the write buffer has
    /// taken them: `now`, or when it has room again.
    pub(super) fn written(&mut self, now: Ns, slot: Slot) -> Ns {
        if self.place.ends_program(slot) { self.program(now, slot) } else { now }
    }

    fn program(&mut self, now: Ns, slot: Slot) -> Ns {
        let (die, channel) = self.place.die_of(slot);
        let over_channel = self.place.transfer_ns(self.program_bytes());
        let (state, bus) = (&mut self.states[die], &mut self.channels[channel]);
        while state.pending.front().is_some_and(|&(_, end)| end <= now) {
            state.pending.pop_front();
        }
        let mut accepted = now;
        if state.pending.len() >= self.buffered_max {
            let (_, end) = state.pending.pop_front().expect("at least one may wait");
            accepted = accepted.max(end);
        }
        *bus = accepted.max(*bus) + over_channel;
        state.free = state.free.max(*bus) + self.times.program;
        state.pending.push_back((self.place.program_of(slot), state.free));
        self.operations.programs += 1;
        self.operations.busy_ns += self.times.program;
        accepted
    }

    /// Counts units as programmed long ago, in whole programs.
    pub(super) fn mark_programmed(&mut self, units: u32) {
        let programs = u64::from(units / self.place.program_units);
        self.operations.programs += programs;
        self.operations.busy_ns += programs * self.times.program;
    }

    /// Erases a superblock: one block of every die.
    pub(super) fn erase(&mut self, now: Ns) {
        for die in &mut self.states {
            die.free = die.free.max(now) + self.times.erase;
        }
        let count = self.states.len() as u64;
        self.operations.erases += count;
        self.operations.busy_ns += count * self.times.erase;
    }

    /// Reads units that lie one after the other, all below `written` (the slot where the next
    /// write of their superblock goes, or its end). Returns when the last has arrived.
    pub(super) fn read(&mut self, now: Ns, slots: std::ops::Range<Slot>, written: Slot) -> Ns {
        let (mut done, mut slot) = (now, slots.start);
        while slot < slots.end {
            let count = self.place.left_in_page(slot).min(slots.end - slot);
            done = done.max(self.read_page(now, slot, count, written));
            slot += count;
        }
        done
    }

    /// Reads a unit for GC, behind the operations of its die. Neighbours in one page are one read.
    pub(super) fn collect(&mut self, now: Ns, slot: Slot) {
        let page = self.place.page_start(slot);
        if self.collected.replace(page) == Some(page) {
            return;
        }
        let (die, channel) = self.place.die_of(slot);
        let over_channel = self.place.transfer_ns(self.place.bytes(self.place.page_units));
        let (state, bus) = (&mut self.states[die], &mut self.channels[channel]);
        state.free = state.free.max(now) + self.times.read;
        *bus = (*bus).max(now) + over_channel;
        self.operations.reads += 1;
        self.operations.busy_ns += self.times.read;
    }

    fn read_page(&mut self, now: Ns, slot: Slot, count: u32, written: Slot) -> Ns {
        let bytes = self.place.bytes(count);
        let (die, channel) = self.place.die_of(slot);
        let program = self.place.program_of(slot);
        let issued = (program + 1) * self.place.program_units <= written;
        let state = &mut self.states[die];
        let waiting = |&(number, end): &(u32, Ns)| number == program && end > now;
        if !issued || state.pending.iter().any(waiting) {
            return now + self.link_ns(bytes);
        }
        let begin = now.max(state.read);
        let mut end = begin + self.times.read;
        if state.free > begin {
            // A read right after another one finds the die suspended already.
            let mut pause = self.times.read;
            if state.read <= now {
                end += self.times.suspend;
                pause += self.times.suspend + self.times.resume;
                self.operations.suspends += 1;
                self.operations.busy_ns += self.times.suspend + self.times.resume;
            }
            state.free += pause;
            for (_, end) in &mut state.pending {
                *end += if *end > begin { pause } else { 0 };
            }
        }
        state.read = end;
        self.operations.reads += 1;
        self.operations.busy_ns += self.times.read;
        let (over_channel, chunk) =
            (self.place.transfer_ns(bytes), self.place.transfer_ns(CHUNK_BYTES));
        let bus = &mut self.channels[channel];
        let start = end.max((*bus).min(end + chunk));
        *bus = (*bus).max(end) + over_channel;
        start + over_channel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_suspended_ends_later_with_data_in_buffer() {
        let config = Config::default();
        let layout = config.layout().expect("a layout");
        let mut dies = Dies::new(&config, &layout);
        assert_eq!(dies.written(0, 22), 0, "the program is not full yet");
        assert_eq!(dies.operations().programs, 0);
        dies.written(0, 23);
        let end = dies.place.transfer_ns(96 << 10) + 2_600_000;
        // The same die, another superblock: 250 µs to suspend, 65 to read, 20 to resume.
        let other = layout.block_units;
        let read = dies.read(1_000_000, other..other + 1, 2 * other) - 1_000_000;
        assert!((315_000..340_000).contains(&read), "{read} ns");
        let second = dies.read(1_000_000, other + 4..other + 5, 2 * other) - 1_000_000;
        assert!((380_000..405_000).contains(&second), "not suspended again: {second} ns");
        let ends = end + 335_000 + 65_000;
        for (now, buffered) in [(end + 1_000, true), (ends - 1, true), (ends, false)] {
            let time = dies.read(now, 0..1, 24) - now;
            assert_eq!(time < 5_000, buffered, "{time} ns at {now}, program ends at {ends}");
        }
        assert_eq!(dies.operations().suspends, 1);
    }
}
