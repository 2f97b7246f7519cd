//! The flash at work: dies and buses, and the clock that their events move.
//!
//! It knows nothing of the data: operations go in, and come out when they are done.

use super::bus::{Bus, BusTime, Class, Pace};
use super::calendar::{Calendar, NEVER};
use super::die::{Die, DieTime, FlashTimes, Kind, NextEvent, Op, Stage};
use crate::config::Config;
use crate::controller::Draws;

/// Dies and buses.
#[derive(Debug)]
pub(super) struct FlashArray {
    pub(super) now_ns: u64,
    /// Events so far.
    pub(super) events: u64,
    pub(super) calendar: Calendar,
    dies: Vec<Die>,
    buses: Vec<Bus>,
    times: FlashTimes,
    program_bytes: u32,
}

impl FlashArray {
    /// The flash of a config, all idle; `timers` slots of the calendar are for the caller.
    pub(super) fn new(config: &Config, timers: usize) -> Self {
        let flash = &config.flash;
        let (dies, buses) = (flash.dies() as usize, flash.channels as usize);
        let pace = Pace::new(flash.channel_mb_s);
        Self {
            now_ns: 0,
            events: 0,
            calendar: Calendar::new(dies + buses + timers),
            dies: (0..dies)
                .map(|die| Die::new(die % buses, Draws::new(config.seed ^ (die as u64) << 32)))
                .collect(),
            buses: (0..buses).map(|_| Bus::new(pace, dies / buses)).collect(),
            times: FlashTimes::new(config),
            program_bytes: u32::try_from(flash.program_bytes()).expect("checked with the config"),
        }
    }

    /// The first slot of the calendar that is the caller's.
    pub(super) fn timers(&self) -> usize {
        self.dies.len() + self.buses.len()
    }

    /// Dies.
    pub(super) fn die_count(&self) -> usize {
        self.dies.len()
    }

    /// Queues a read at a die.
    pub(super) fn read(&mut self, die: usize, read: Op) {
        self.dies[die].queue(read);
        if read.kind == Kind::HostRead {
            self.make_way(die);
        } else {
            self.begin_if_idle(die);
        }
    }

    /// Programs a die.
    pub(super) fn program(&mut self, die: usize, kind: Kind, tag: u32) {
        self.dies[die].queue(Op { kind, pages: 0, slow_pages: 0, bytes: self.program_bytes, tag });
        self.begin_if_idle(die);
    }

    /// Erases a superblock's part of a die.
    pub(super) fn erase(&mut self, die: usize, tag: u32) {
        self.dies[die].queue(Op { kind: Kind::Erase, pages: 0, slow_pages: 0, bytes: 0, tag });
        self.begin_if_idle(die);
    }

    /// Handles the event of a die or a bus; returns the operation that it completes, if any.
    #[inline]
    pub(super) fn fire(&mut self, slot: usize) -> Option<Op> {
        self.events += 1;
        if slot < self.dies.len() { self.fire_die(slot) } else { self.fire_bus(slot) }
    }

    fn fire_die(&mut self, at: usize) -> Option<Op> {
        let (now_ns, times) = (self.now_ns, self.times);
        let die = &mut self.dies[at];
        match die.stage {
            Stage::Sense => {
                die.settle(now_ns);
                die.stage = Stage::Out;
                self.follow(at, NextEvent::Bus);
                None
            }
            Stage::Array => {
                let op = die.op;
                die.time.ops[op.kind as usize] += 1;
                let next = die.begin(&times, now_ns);
                self.follow(at, next);
                Some(op)
            }
            Stage::Suspend => {
                let next = die.begin(&times, now_ns);
                self.follow(at, next);
                None
            }
            Stage::Resume => {
                let next = die.resumed(&times, now_ns);
                self.follow(at, next);
                None
            }
            Stage::Idle | Stage::Out | Stage::In => {
                unreachable!("a die has no event of its own while it is idle or on the bus")
            }
        }
    }

    fn fire_bus(&mut self, slot: usize) -> Option<Op> {
        let (now_ns, times) = (self.now_ns, self.times);
        let (done, next_ns) = self.buses[slot - self.dies.len()].fire(now_ns);
        self.calendar.set(slot, next_ns);
        let at = done?;
        let die = &mut self.dies[at];
        if die.stage == Stage::In {
            let next = die.loaded(&times, now_ns);
            self.follow(at, next);
            return None;
        }
        let op = die.op;
        die.time.ops[op.kind as usize] += 1;
        let next = die.begin(&times, now_ns);
        self.follow(at, next);
        Some(op)
    }

    fn begin_if_idle(&mut self, at: usize) {
        let die = &mut self.dies[at];
        if die.stage == Stage::Idle {
            let next = die.begin(&self.times, self.now_ns);
            self.follow(at, next);
        }
    }

    /// A read for the host waits at a die.
    fn make_way(&mut self, at: usize) {
        let (now_ns, times) = (self.now_ns, self.times);
        let die = &mut self.dies[at];
        match die.stage {
            Stage::Array => {
                let next = die.suspend(&times, now_ns);
                self.follow(at, next);
            }
            Stage::In => {
                let bus = die.bus;
                if self.buses[bus].take_back(Class::Program, at, now_ns).is_some() {
                    die.put_back(now_ns);
                    self.begin_if_idle(at);
                }
            }
            Stage::Idle => self.begin_if_idle(at),
            Stage::Sense | Stage::Out | Stage::Suspend | Stage::Resume => {}
        }
    }

    #[inline]
    fn follow(&mut self, at: usize, next: NextEvent) {
        match next {
            // A die whose event has just come has none until it is given one.
            NextEvent::Nothing => {
                if self.dies[at].stage == Stage::Idle {
                    self.calendar.set(at, NEVER);
                }
            }
            NextEvent::At(at_ns) => self.calendar.set(at, at_ns),
            NextEvent::Bus => {
                self.calendar.set(at, NEVER);
                let Die { op, bus, .. } = self.dies[at];
                let class = match op.kind {
                    Kind::HostRead => Class::HostRead,
                    Kind::GcRead => Class::GcRead,
                    Kind::HostProgram | Kind::GcProgram | Kind::Erase => Class::Program,
                };
                let ends_ns = self.buses[bus].ask(class, at, u64::from(op.bytes), self.now_ns);
                self.calendar.set(self.dies.len() + bus, ends_ns);
            }
        }
    }

    /// The times of each die so far, up to now.
    pub(super) fn die_times(&mut self) -> Vec<DieTime> {
        let now_ns = self.now_ns;
        let settled = self.dies.iter_mut().map(|die| {
            die.settle(now_ns);
            die.time
        });
        settled.collect()
    }

    /// The times of each bus so far; a transfer counts when it ends.
    pub(super) fn bus_times(&self) -> Vec<BusTime> {
        self.buses.iter().map(|bus| bus.time).collect()
    }
}
