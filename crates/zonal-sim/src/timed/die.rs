//! A die: one operation at a time, and in which order.
//!
//! | rank | operation | |
//! | --- | --- | --- |
//! | 1 | read for the host | suspends a program or an erase that is under way |
//! | 2 | resume | the suspended operation |
//! | 3 | read for GC | suspends nothing |
//! | 4 | program, erase | in order |
//!
//! Reads cannot starve programs and erases: after [`READS_AHEAD`] reads in a row a program or an
//! erase goes on, and an operation is suspended at most [`SUSPENDS_MAX`] times.

use std::collections::VecDeque;

use super::calendar::NEVER;
use crate::config::{Config, Controller};
use crate::controller::{Draws, ns};

/// Reads for the host in a row, while something else waits. Assumed.
const READS_AHEAD: u8 = 16;

/// Times one program or erase can be suspended, where no controller says it. Assumed.
pub(super) const SUSPENDS_MAX: u32 = 16;

/// The kind of an operation, and whether it is for the host or for GC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Read for the host.
    HostRead,
    /// Read for GC.
    GcRead,
    /// Program that the host filled.
    HostProgram,
    /// Program that GC filled.
    GcProgram,
    /// Erase of the die's part of a superblock.
    Erase,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) kind: Kind,
    /// Pages, of a read.
    pub(super) pages: u16,
    /// How many of them are the last ones of their programs.
    pub(super) slow_pages: u16,
    /// Bytes that go over the bus.
    pub(super) bytes: u32,
    /// The identifier that the caller gave it.
    pub(super) tag: u32,
}

/// Times of operations, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlashTimes {
    pub(super) read: u64,
    pub(super) program: u64,
    pub(super) erase: u64,
    pub(super) suspend: u64,
    pub(super) resume: u64,
    /// Additional time to read the last page of a program.
    pub(super) slow_page: u64,
    /// Planes of a die: a program ends with the slowest.
    pub(super) planes: u32,
    /// Share by which a plane takes longer or shorter at most.
    pub(super) program_spread: f64,
    /// Mean of the time for which a program goes on before it is suspended, in µs.
    pub(super) pulse_us: f64,
    /// Times one program or erase can be suspended.
    pub(super) suspends_max: u32,
}

impl FlashTimes {
    /// The times of a config.
    pub(super) fn new(config: &Config) -> Self {
        let (flash, controller) = (&config.flash, config.controller.as_ref());
        let extra = |field: fn(&Controller) -> f64| controller.map_or(0.0, field);
        Self {
            read: ns(flash.read_us),
            program: ns(flash.program_us),
            erase: ns(flash.erase_us),
            suspend: ns(flash.suspend_us),
            resume: ns(flash.resume_us),
            slow_page: ns(extra(|controller| controller.slow_page_us)),
            planes: flash.planes,
            program_spread: extra(|controller| controller.program_spread),
            pulse_us: extra(|controller| controller.suspend_pulse_us),
            suspends_max: controller.map_or(SUSPENDS_MAX, |controller| controller.suspends_max),
        }
    }
}

/// The current activity of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing.
    Idle,
    /// Reading the array.
    Sense,
    /// Waiting for the bus, or handing over the data that was read.
    Out,
    /// Waiting for the bus, or taking the data to program.
    In,
    /// Programming or erasing, until `ends_ns`.
    Array,
    /// Suspending a program or erase, for a read.
    Suspend,
    /// Resuming it.
    Resume,
}

/// The next event of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextEvent {
    /// Nothing.
    Nothing,
    /// The die's event, at this time.
    At(u64),
    /// The bus takes `Op` out of the die, or into it.
    Bus,
}

/// Time a die was busy, by operation. A read or a program includes its time on the bus and waiting
/// for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DieTime {
    /// Indexed by [`Kind`].
    pub(super) busy_ns: [u64; KINDS],
    /// Operations completed, indexed by [`Kind`].
    pub(super) ops: [u64; KINDS],
    /// Pages read.
    pub(super) pages: u64,
    /// Suspending and resuming.
    pub(super) suspend_ns: u64,
    /// Suspensions.
    pub(super) suspends: u64,
    /// Operations that were resumed after a suspension, or delayed because reads went first.
    pub(super) resumes: u64,
}

/// Kinds of operations.
pub(super) const KINDS: usize = 5;

#[derive(Clone, Copy, Debug)]
struct Paused {
    op: Op,
    left_ns: u64,
}

/// A die.
#[derive(Debug)]
pub(super) struct Die {
    /// The bus it is on.
    pub(super) bus: usize,
    pub(super) stage: Stage,
    pub(super) op: Op,
    since_ns: u64,
    ends_ns: u64,
    paused: Option<Paused>,
    suspends: u32,
    draws: Draws,
    ahead: u8,
    host_reads: VecDeque<Op>,
    gc_reads: VecDeque<Op>,
    writes: VecDeque<Op>,
    pub(super) time: DieTime,
}

impl Die {
    pub(super) fn new(bus: usize, draws: Draws) -> Self {
        Self {
            bus,
            stage: Stage::Idle,
            op: Op { kind: Kind::HostRead, pages: 0, slow_pages: 0, bytes: 0, tag: 0 },
            since_ns: 0,
            ends_ns: NEVER,
            paused: None,
            suspends: 0,
            draws,
            ahead: 0,
            host_reads: VecDeque::with_capacity(16),
            gc_reads: VecDeque::with_capacity(64),
            writes: VecDeque::with_capacity(64),
            time: DieTime::default(),
        }
    }

    /// Queues an operation.
    #[inline]
    pub(super) fn queue(&mut self, op: Op) {
        match op.kind {
            Kind::HostRead => self.host_reads.push_back(op),
            Kind::GcRead => self.gc_reads.push_back(op),
            Kind::HostProgram | Kind::GcProgram | Kind::Erase => self.writes.push_back(op),
        }
    }

    /// Requeues an operation that only waits for the bus.
    pub(super) fn put_back(&mut self, now_ns: u64) {
        assert_eq!(self.stage, Stage::In, "only programs wait before they begin");
        self.settle(now_ns);
        self.stage = Stage::Idle;
        self.writes.push_front(self.op);
    }

    /// Begins the operation whose turn it is. The die is idle.
    #[inline]
    pub(super) fn begin(&mut self, times: &FlashTimes, now_ns: u64) -> NextEvent {
        self.settle(now_ns);
        self.stage = Stage::Idle;
        let others = self.paused.is_some() || !self.writes.is_empty() || !self.gc_reads.is_empty();
        if !(others && self.ahead >= READS_AHEAD)
            && let Some(read) = self.host_reads.pop_front()
        {
            self.ahead = self.ahead.saturating_add(1);
            return self.sense(read, times, now_ns);
        }
        self.ahead = 0;
        if self.paused.is_some() {
            return self.enter(Stage::Resume, now_ns, times.resume);
        }
        if let Some(read) = self.gc_reads.pop_front() {
            return self.sense(read, times, now_ns);
        }
        let Some(op) = self.writes.pop_front() else {
            return NextEvent::Nothing;
        };
        self.op = op;
        self.suspends = 0;
        if op.kind == Kind::Erase {
            return self.enter(Stage::Array, now_ns, times.erase);
        }
        self.stage = Stage::In;
        self.since_ns = now_ns;
        NextEvent::Bus
    }

    /// A read for the host has arrived: suspends the current operation if that is possible.
    pub(super) fn suspend(&mut self, times: &FlashTimes, now_ns: u64) -> NextEvent {
        let left_ns = self.ends_ns - now_ns;
        let pulse_ns = self.draws.exponential_ns(times.pulse_us);
        if self.stage != Stage::Array
            || self.suspends >= times.suspends_max
            || left_ns <= times.suspend + pulse_ns
        {
            return NextEvent::Nothing;
        }
        self.settle(now_ns);
        // During a pulse the program still goes on.
        self.paused = Some(Paused { op: self.op, left_ns: left_ns - pulse_ns });
        self.suspends += 1;
        self.time.suspends += 1;
        self.enter(Stage::Suspend, now_ns, times.suspend + pulse_ns)
    }

    /// The data to be programmed is in the die. Reads that came meanwhile go first: the latches
    /// keep the data, as they do during a suspension.
    #[inline]
    pub(super) fn loaded(&mut self, times: &FlashTimes, now_ns: u64) -> NextEvent {
        self.settle(now_ns);
        let plane_ns = |_| self.draws.stretch_ns(times.program, times.program_spread);
        let program_ns = (0..times.planes).map(plane_ns).max().expect("a die has a plane");
        if self.host_reads.is_empty() {
            return self.enter(Stage::Array, now_ns, program_ns);
        }
        self.paused = Some(Paused { op: self.op, left_ns: program_ns });
        self.begin(times, now_ns)
    }

    /// Resumes the suspended operation.
    pub(super) fn resumed(&mut self, times: &FlashTimes, now_ns: u64) -> NextEvent {
        self.settle(now_ns);
        self.time.resumes += 1;
        let Paused { op, left_ns } = self.paused.take().expect("something was suspended");
        self.op = op;
        let next = self.enter(Stage::Array, now_ns, left_ns);
        if self.host_reads.is_empty() {
            return next;
        }
        match self.suspend(times, now_ns) {
            NextEvent::Nothing => next,
            suspended => suspended,
        }
    }

    /// Adds the time since the last call to the counter of the current activity.
    #[inline]
    pub(super) fn settle(&mut self, now_ns: u64) {
        let passed_ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        match self.stage {
            Stage::Idle => {}
            Stage::Sense | Stage::Out | Stage::In | Stage::Array => {
                self.time.busy_ns[self.op.kind as usize] += passed_ns;
            }
            Stage::Suspend | Stage::Resume => self.time.suspend_ns += passed_ns,
        }
    }

    fn sense(&mut self, read: Op, times: &FlashTimes, now_ns: u64) -> NextEvent {
        self.op = read;
        self.time.pages += u64::from(read.pages);
        let slow_ns = times.slow_page * u64::from(read.slow_pages);
        self.enter(Stage::Sense, now_ns, times.read * u64::from(read.pages) + slow_ns)
    }

    fn enter(&mut self, stage: Stage, now_ns: u64, takes_ns: u64) -> NextEvent {
        self.stage = stage;
        self.since_ns = now_ns;
        self.ends_ns = now_ns + takes_ns;
        NextEvent::At(self.ends_ns)
    }
}
