//! Dies and channels below a [controller](crate::controller): when each will be free, with many
//! commands in flight.
//!
//! Calls come in the order of time. A die reads and programs in order. A read goes before the
//! programs that wait, and suspends the running one; a program is suspended at most
//! [`suspends_max`](crate::config::Controller::suspends_max) times. A read keeps its die until its
//! data is out. Programs wait in a write buffer that all dies share.
//!
//! The planes of a die program separately: each takes a time of its own and frees its part of the
//! write buffer when it ends. A write that finds the buffer full goes on when there is room for
//! [`resume_writes`](crate::config::Controller::resume_writes) of its size, so large writes wait
//! longer, and less often, than small ones.

use std::collections::VecDeque;

use super::Operations;
use super::place::{CHUNK_BYTES, Place};
use crate::config::{Config, Controller, Layout};
use crate::controller::{Draws, Line, OwnStripes, ns};
use crate::flash::Flash;
use crate::ftl::Slot;

/// By how many dies the first program of a superblock is further than that of the one before it.
/// Zones that are filled side by side then use different dies. 7: assumed; it shares no factor with
/// the usual numbers of dies.
const TURN: usize = 7;

/// The part of the write buffer, one in so many, for which a write that found it full waits at
/// most: dies never become idle for large writes. Assumed.
const RESUME_PART: usize = 4;

/// A time or a span, in nanoseconds.
type Ns = u64;

/// The number of a program or an erase of the drive's own.
const OWN: u32 = u32::MAX;

/// Dies and channels.
pub(super) struct Array {
    flash: Flash,
    times: Controller,
    place: Place,
    /// Units that the write buffer holds, of complete programs and of others.
    buffer_units: usize,
    /// Units in it whose programs are not complete.
    open_units: usize,
    /// Units that it takes before it has to be looked at again.
    credit: usize,
    dies: Vec<Die>,
    channels: Vec<Channel>,
    draws: Draws,
    /// When the write buffer took the last write: it takes them in order.
    accepted_ns: Ns,
    own_stripes: OwnStripes,
    /// The page that GC has read last.
    collected: Option<Slot>,
    operations: Operations,
}

/// The rest of a write that the write buffer has not taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Units, the current one included.
    pub(super) units: usize,
    /// Units of the whole write.
    pub(super) of_units: usize,
}

#[derive(Default)]
struct Die {
    /// When its last read is done.
    read_ns: Ns,
    /// Programs and erases that are not done, in their order.
    pending: VecDeque<Pending>,
}

struct Pending {
    /// The program, numbered through the flash, or `OWN`.
    number: u32,
    start_ns: Ns,
    /// When its slowest plane ends.
    end_ns: Ns,
    /// How much earlier each of the other planes ends.
    leads_ns: Vec<Ns>,
    suspends: u32,
}

#[derive(Default)]
struct Channel {
    reads: Line,
    /// Transfers into dies: begin and end.
    programs: VecDeque<(Ns, Ns)>,
}

impl Array {
    pub(super) fn new(config: &Config, controller: &Controller, layout: &Layout) -> Self {
        let flash = &config.flash;
        let dies = flash.dies() as usize;
        // All planes of a die read at once.
        let page_bytes = flash.page.0 * u64::from(flash.planes);
        let place = Place::new(config, layout, page_bytes, TURN);
        let program_units = place.program_units as usize;
        Self {
            flash: flash.clone(),
            times: controller.clone(),
            place,
            buffer_units: config.drive.buffer_programs as usize * dies * program_units,
            open_units: 0,
            credit: 0,
            dies: std::iter::repeat_with(Die::default).take(dies).collect(),
            channels: std::iter::repeat_with(Channel::default)
                .take(flash.channels as usize)
                .collect(),
            draws: Draws::new(config.seed.wrapping_add(1)),
            accepted_ns: 0,
            own_stripes: OwnStripes::new(config),
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

    /// Units were written up to and including `slot`, in order. Returns when the write buffer has
    /// taken them: `from`, or when it has room again.
    ///
    /// The buffer is one for all zones: behind a write that waits, the next ones wait too.
    pub(super) fn written(&mut self, now: Ns, from: Ns, slot: Slot, left: Left) -> Ns {
        let accepted = self.admit(now, self.accepted_ns.max(from), left);
        self.accepted_ns = accepted;
        if !self.place.ends_program(slot) {
            return accepted;
        }
        self.open_units -= self.place.program_units as usize;
        self.forget(now);
        let (die, channel) = self.place.die_of(slot);
        let moved = self.place.transfer_ns(self.program_bytes());
        let programs = &mut self.channels[channel].programs;
        let begin = programs.back().map_or(accepted, |&(_, end)| accepted.max(end));
        programs.push_back((begin, begin + moved));
        self.program(die, begin + moved, self.place.program_of(slot));
        if self.own_stripes.is_due_after_program() {
            (0..self.dies.len()).for_each(|die| self.occupy(die, accepted, OWN));
        }
        accepted
    }

    /// Counts units as programmed long ago, in whole programs.
    pub(super) fn mark_programmed(&mut self, units: u32) {
        let programs = u64::from(units / self.place.program_units);
        self.operations.programs += programs;
        self.operations.busy_ns += programs * ns(self.flash.program_us);
    }

    /// Units of padding were placed up to and including `slot`. Returns when they are programmed,
    /// if that completes a program.
    pub(super) fn padded(&mut self, now: Ns, slot: Slot) -> Ns {
        if !self.place.ends_program(slot) {
            return now;
        }
        let (die, _) = self.place.die_of(slot);
        self.program(die, now, self.place.program_of(slot));
        self.dies[die].pending.back().map_or(now, |program| program.end_ns)
    }

    /// The mean time of a program.
    pub(super) fn program_ns(&self) -> Ns {
        ns(self.flash.program_us)
    }

    /// Erases a superblock: one block of every die.
    pub(super) fn erase(&mut self, now: Ns) {
        self.forget(now);
        let takes = ns(self.flash.erase_us);
        for die in 0..self.dies.len() {
            self.enqueue(die, now, OWN, takes, Vec::new());
        }
        let count = self.dies.len() as u64;
        self.operations.erases += count;
        self.operations.busy_ns += count * takes;
    }

    /// Reads a unit for GC, behind the operations of its die. Neighbours in one page are one read.
    pub(super) fn collect(&mut self, now: Ns, slot: Slot) {
        let page = self.place.page_start(slot);
        if self.collected.replace(page) == Some(page) {
            return;
        }
        let takes = ns(self.flash.read_us);
        self.enqueue(self.place.die_of(slot).0, now, OWN, takes, Vec::new());
        self.operations.reads += 1;
        self.operations.busy_ns += takes;
    }

    /// Reads units that lie one after the other, all below `written` (the slot where the next write
    /// of their superblock goes, or its end), from `from` on. Returns when the last has left its
    /// channel.
    pub(super) fn read(
        &mut self,
        now: Ns,
        from: Ns,
        slots: std::ops::Range<Slot>,
        written: Slot,
    ) -> Ns {
        self.forget(now);
        let (mut done, mut slot) = (from, slots.start);
        while slot < slots.end {
            let count = self.place.left_in_page(slot).min(slots.end - slot);
            done = done.max(self.read_page(now, from, slot, count, written));
            slot += count;
        }
        done
    }

    fn read_page(&mut self, now: Ns, from: Ns, slot: Slot, count: u32, written: Slot) -> Ns {
        let number = self.place.program_of(slot);
        let (die, channel) = self.place.die_of(slot);
        let waits = |program: &Pending| program.number == number && program.end_ns > from;
        if (number + 1) * self.place.program_units > written
            || self.dies[die].pending.iter().any(waits)
        {
            return from; // From the write buffer.
        }
        let slow = self.place.page_of(slot) + 1 == self.flash.pages_per_program;
        let sense = self.flash.read_us + if slow { self.times.slow_page_us } else { 0.0 };
        let (begin, pause) = self.make_way(die, from);
        let sensed = begin + ns(sense);
        let moved = self.place.transfer_ns(self.place.bytes(count));
        let end = self.channels[channel].read(now, sensed, moved, &self.place);
        let state = &mut self.dies[die];
        state.read_ns = end;
        // Programs and erases behind the read wait for its end.
        let mut free = end;
        for program in state.pending.iter_mut().filter(|program| program.end_ns > begin) {
            if program.start_ns < begin {
                program.end_ns += pause + (end - begin);
            } else if program.start_ns < free {
                let later = free - program.start_ns;
                program.start_ns += later;
                program.end_ns += later;
            }
            free = program.end_ns;
        }
        self.operations.reads += 1;
        self.operations.busy_ns += ns(sense);
        end
    }

    /// When a die begins with a read that arrives at `from`, and how much longer the operation
    /// takes that it suspends.
    fn make_way(&mut self, die: usize, from: Ns) -> (Ns, Ns) {
        let state = &mut self.dies[die];
        let asked = from.max(state.read_ns);
        let running = |program: &&mut Pending| program.start_ns <= asked && asked < program.end_ns;
        let Some(program) = state.pending.iter_mut().find(running) else { return (asked, 0) };
        if asked > from {
            return (asked, 0); // Behind a read, for which it is suspended already.
        }
        let (suspend, resume) = (ns(self.flash.suspend_us), ns(self.flash.resume_us));
        let pulse = self.draws.exponential_ns(self.times.suspend_pulse_us);
        if program.suspends >= self.times.suspends_max || program.end_ns - asked <= suspend + pulse
        {
            return (program.end_ns, 0);
        }
        program.suspends += 1;
        self.operations.suspends += 1;
        self.operations.busy_ns += suspend + resume;
        // During a pulse the program still goes on.
        (asked + pulse + suspend, suspend + resume)
    }

    /// Forgets operations that are over at `now`: later calls ask for no earlier time.
    fn forget(&mut self, now: Ns) {
        for die in &mut self.dies {
            while die.pending.front().is_some_and(|program| program.end_ns <= now) {
                die.pending.pop_front();
            }
        }
        for channel in &mut self.channels {
            while channel.programs.front().is_some_and(|&(_, end)| end <= now) {
                channel.programs.pop_front();
            }
        }
    }

    /// Takes a unit into the write buffer when it has room, from `from` on.
    fn admit(&mut self, now: Ns, from: Ns, left: Left) -> Ns {
        self.open_units += 1;
        if let Some(credit) = self.credit.checked_sub(1) {
            self.credit = credit;
            return from;
        }
        self.forget(now);
        let plane_units = self.place.program_units as usize / self.flash.planes as usize;
        let host = self.dies.iter().flat_map(|die| &die.pending).filter(|one| one.number != OWN);
        let ends = host.flat_map(Pending::plane_ends);
        let mut ends: Vec<Ns> = ends.filter(|end| *end > from).collect();
        let used = ends.len() * plane_units + self.open_units;
        let Some(over) = used.checked_sub(self.buffer_units).filter(|over| *over > 0) else {
            self.credit = self.buffer_units - used;
            return from;
        };
        let others = self.times.resume_writes.saturating_sub(1) as usize * left.of_units;
        let more = (left.units - 1 + others).min(self.buffer_units / RESUME_PART);
        // Incomplete programs never end by themselves: if they fill the buffer, it takes more units
        // than it has room for.
        let freed = (over + more).div_ceil(plane_units).min(ends.len());
        self.credit = (freed * plane_units).saturating_sub(over);
        match freed.checked_sub(1) {
            None => from,
            Some(last) => *ends.select_nth_unstable(last).1,
        }
    }

    /// Takes the units of an incomplete program out of the count: the host does not complete it.
    /// `written` units of its zone are written.
    pub(super) fn leave_open(&mut self, written: u32) {
        let left = written % self.place.program_units;
        self.open_units = self.open_units.saturating_sub(left as usize);
    }

    /// Programs a die, from `from` on.
    fn program(&mut self, die: usize, from: Ns, number: u32) {
        self.operations.programs += 1;
        self.occupy(die, from, number);
    }

    /// Occupies a die for a program, from `from` on.
    fn occupy(&mut self, die: usize, from: Ns, number: u32) {
        let mut planes_ns = self.draws.planes_ns(&self.flash, self.times.program_spread);
        let takes = planes_ns.pop().expect("a die has a plane");
        self.operations.busy_ns += takes;
        let leads_ns = planes_ns.into_iter().map(|plane_ns| takes - plane_ns).collect();
        self.enqueue(die, from, number, takes, leads_ns);
    }

    fn enqueue(&mut self, die: usize, from: Ns, number: u32, takes: Ns, leads_ns: Vec<Ns>) {
        let state = &mut self.dies[die];
        let before = state.pending.back().map_or(0, |program| program.end_ns);
        let start_ns = from.max(before).max(state.read_ns);
        let end_ns = start_ns + takes;
        state.pending.push_back(Pending { number, start_ns, end_ns, leads_ns, suspends: 0 });
    }
}

impl Pending {
    /// When each plane ends.
    fn plane_ends(&self) -> impl Iterator<Item = Ns> {
        let others = self.leads_ns.iter().map(|lead_ns| self.end_ns - lead_ns);
        others.chain([self.end_ns])
    }
}

impl Channel {
    /// Moves sensed data out of a die from `from` on; returns when it is out.
    fn read(&mut self, now: Ns, from: Ns, takes: Ns, place: &Place) -> Ns {
        let under_way = self.programs.iter().find(|(begin, end)| (*begin..*end).contains(&from));
        let begin = under_way.map_or(from, |&(begin, end)| {
            let chunk = place.transfer_ns(CHUNK_BYTES).max(1);
            (begin + (from - begin).next_multiple_of(chunk)).min(end)
        });
        self.reads.take(now, begin, takes)
    }
}
