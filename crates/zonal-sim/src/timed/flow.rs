//! The path of a request through the drive: sent, in the firmware, placed or read, completed.

use std::collections::VecDeque;

use super::Timed;
use super::calendar::NEVER;
use super::die::{Kind, Op as FlashOp};
use super::gc::Urgency;
use super::host::{Completion, View};
use crate::config::Kind as Drive;
use crate::controller::{First, WriteKind};
use crate::error::Result;
use crate::ftl::{AreaStep, AreaWrite, Slot, Translation, Unit};
use crate::load::{Op, Request};

/// Time of a write, trim or reset before the buffer sees it. Assumed: no simulator or data sheet
/// we know gives it apart from the flash.
const WRITE_FIRMWARE_NS: u64 = 10_000;

/// The host's timers, behind the flash array's slots.
const TIMER_WRITES: usize = 0;
const TIMER_READS: usize = 1;
pub(super) const TIMER_JOBS: usize = 2;
const TIMER_DELIVERED: usize = 3;
const TIMER_ANSWERED: usize = 4;

/// A program of the drive's own, which holds nothing of the host.
const OWN: u32 = u32::MAX;

/// The write buffer.
pub(super) struct Buffer {
    /// Writes, trims and resets that the drive has not taken yet.
    waiting: VecDeque<u32>,
    /// Complete programs of the host that are not in the flash yet.
    complete: u32,
    complete_max: u32,
    /// One bit per program of the drive: some of it is here and not in the flash.
    held: Vec<u64>,
}

impl Buffer {
    pub(super) fn new(complete_max: u32, programs: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(64),
            complete: 0,
            complete_max,
            held: vec![0; programs.div_ceil(64)],
        }
    }

    /// Whether some of a program is not in the flash yet.
    #[inline]
    pub(super) fn holds(&self, program: u32) -> bool {
        self.held[(program / 64) as usize] & (1 << (program % 64)) != 0
    }

    #[inline]
    fn hold(&mut self, program: u32) {
        self.held[(program / 64) as usize] |= 1 << (program % 64);
    }

    #[inline]
    pub(super) fn release(&mut self, program: u32) {
        self.held[(program / 64) as usize] &= !(1 << (program % 64));
    }
}

/// Why the drive takes no more now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// Everything was taken.
    None,
    /// The buffer is full, or GC has to go first.
    Busy,
    /// There is no room in the flash.
    NoRoom,
}

impl<T: Translation> Timed<T> {
    /// Lets a job send the requests that it may send now.
    pub(super) fn send(&mut self, job: usize) -> Result<()> {
        let now_ns = self.flash_array.now_ns;
        let Self { host, ftl, places, user_units, .. } = self;
        let view = View { ftl, places, user_units: *user_units };
        while let Some((id, op)) = host.send(job, now_ns, &view)? {
            let in_flight = host.request(id);
            let bytes = u64::from(in_flight.request.bytes);
            match (&mut self.processor, op) {
                (None, Op::Read) => host.reads.push_back((now_ns + self.read_firmware_ns, id)),
                (None, _) => host.writes.push_back((now_ns + WRITE_FIRMWARE_NS, id)),
                (Some(processor), Op::Read) => host.reads.push_back((processor.read(now_ns), id)),
                (Some(processor), op) => {
                    // The bytes of a reset, a finish or a trim are not on the link.
                    let bytes = if op == Op::Write { bytes } else { 0 };
                    let arrival = processor.write(now_ns, WriteKind::Write, bytes, First::No);
                    in_flight.rest_ns = arrival.rest_ns;
                    host.writes.push_back((arrival.buffer_ns, id));
                }
            }
        }
        self.await_first(TIMER_READS);
        self.await_first(TIMER_WRITES);
        let due_ns = self.host.due().map_or(NEVER, |(due_ns, _)| due_ns);
        self.set_timer(TIMER_JOBS, due_ns);
        Ok(())
    }

    pub(super) fn set_timer(&mut self, timer: usize, at_ns: u64) {
        let slot = self.flash_array.timers() + timer;
        self.flash_array.calendar.set(slot, at_ns);
    }

    /// Requests that wait for a timer, with the times at which they are due.
    fn queue(&mut self, timer: usize) -> &mut VecDeque<(u64, u32)> {
        match timer {
            TIMER_WRITES => &mut self.host.writes,
            TIMER_READS => &mut self.host.reads,
            TIMER_DELIVERED => &mut self.host.delivered,
            TIMER_ANSWERED => &mut self.host.answered,
            _ => unreachable!("no requests wait for another timer"),
        }
    }

    /// Sets a timer to the first request that waits for it.
    fn await_first(&mut self, timer: usize) {
        let at_ns = self.queue(timer).front().map_or(NEVER, |&(at_ns, _)| at_ns);
        self.set_timer(timer, at_ns);
    }

    /// Takes the request that a timer was set to.
    fn take_first(&mut self, timer: usize) -> u32 {
        let (_, id) = self.queue(timer).pop_front().expect("its time came");
        self.await_first(timer);
        id
    }

    /// A timer of the host is due.
    pub(super) fn fire_timer(&mut self, timer: usize) -> Result<()> {
        self.flash_array.events += 1;
        match timer {
            TIMER_WRITES => {
                let id = self.take_first(TIMER_WRITES);
                self.buffer.waiting.push_back(id);
                self.advance()
            }
            TIMER_READS => {
                let id = self.take_first(TIMER_READS);
                self.read(id)
            }
            TIMER_JOBS => match self.host.due() {
                Some((_, job)) => self.send(job),
                None => {
                    self.set_timer(TIMER_JOBS, NEVER);
                    Ok(())
                }
            },
            TIMER_DELIVERED | TIMER_ANSWERED => {
                let id = self.take_first(timer);
                self.tell(id, Completion::Done)
            }
            _ => unreachable!("the host has five timers"),
        }
    }

    /// The drive is done with a request; the host hears of it after the time that the controller
    /// needs for the answer.
    fn complete(&mut self, id: u32, completion: Completion) -> Result<()> {
        let now_ns = self.flash_array.now_ns;
        let in_flight = *self.host.request(id);
        let (op, bytes) = (in_flight.request.op, u64::from(in_flight.request.bytes));
        let Some(processor) = self.processor.as_mut().filter(|_| completion == Completion::Done)
        else {
            return self.tell(id, completion);
        };
        let (timer, at_ns) = if op == Op::Read {
            (TIMER_DELIVERED, processor.deliver(now_ns, now_ns, bytes))
        } else {
            (TIMER_ANSWERED, now_ns + in_flight.rest_ns)
        };
        self.queue(timer).push_back((at_ns, id));
        self.await_first(timer);
        Ok(())
    }

    fn tell(&mut self, id: u32, completion: Completion) -> Result<()> {
        match self.host.complete(id, completion, self.flash_array.now_ns) {
            Some(job) => self.send(job),
            None => Ok(()),
        }
    }

    /// The units a request touches: the first, and the first that it does not.
    fn units(&self, request: &Request) -> (Unit, Unit) {
        let unit = self.places.unit_bytes();
        let end = request.offset.saturating_add(u64::from(request.bytes)).div_ceil(unit);
        let limit = u64::from(self.user_units);
        let narrow = |units: u64| u32::try_from(units.min(limit)).expect("at most the drive's");
        (narrow(request.offset / unit), narrow(end))
    }

    /// Takes writes into the buffer and lets GC work, as far as both can.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<()> {
        loop {
            let stall = self.accept()?;
            let urgency = if stall == Stall::NoRoom { Urgency::Urgent } else { Urgency::Paced };
            if self.collect(urgency) {
                continue;
            }
            if stall == Stall::NoRoom && !self.gc.is_working() {
                // Nothing is under way that could make room, and nothing will be: this request is
                // first.
                let id = self.buffer.waiting.pop_front().expect("it found no room");
                self.complete(id, Completion::Refused)?;
                continue;
            }
            return Ok(());
        }
    }

    fn accept(&mut self) -> Result<Stall> {
        while let Some(&id) = self.buffer.waiting.front() {
            let request = self.host.request(id).request;
            if request.op == Op::Write {
                let stall = self.place(id, &request);
                if stall != Stall::None {
                    return Ok(stall);
                }
                self.written_bytes += u64::from(request.bytes);
                self.sample();
            } else if matches!(request.op, Op::OpenArea | Op::Commit | Op::Finish) {
                let stall = self.change_zone(id, &request);
                if stall != Stall::None {
                    return Ok(stall);
                }
            } else if request.op == Op::Trim || self.drive == Drive::Zns {
                // A conventional host that begins a zone anew does not say so.
                let (first, end) = self.units(&request);
                self.ftl.trim(first, end.saturating_sub(first));
            }
            self.buffer.waiting.pop_front();
            self.complete(id, Completion::Done)?;
        }
        Ok(Stall::None)
    }

    /// Opens or finishes a zone, or commits its area, as far as there is room.
    fn change_zone(&mut self, id: u32, request: &Request) -> Stall {
        let unit = self.units(request).0;
        // Commit once, however often the request has to wait.
        let is_new = std::mem::replace(&mut self.host.request(id).units, 1) == 0;
        match request.op {
            Op::OpenArea => self.ftl.open_area(unit),
            Op::Commit if is_new => self.ftl.commit_area(unit),
            Op::Finish => self.ftl.drain_area(unit),
            Op::Commit | Op::Read | Op::Write | Op::Trim | Op::Reset => {}
        }
        loop {
            if self.buffer.complete >= self.buffer.complete_max {
                return Stall::Busy;
            }
            match self.ftl.commit_step(unit) {
                AreaStep::Committed(slot) => self.placed(slot, Kind::HostProgram),
                AreaStep::NoRoom => return Stall::NoRoom,
                AreaStep::None | AreaStep::Taken => break,
            }
        }
        if request.op == Op::Finish {
            for slot in self.ftl.finish_zone(unit) {
                self.placed(slot, Kind::HostProgram);
            }
        }
        Stall::None
    }

    /// Places the rest of a write, as far as there is room.
    fn place(&mut self, id: u32, request: &Request) -> Stall {
        let (first, end) = self.units(request);
        let from = first + self.host.request(id).units;
        let paced = self.gc.paced(self.ftl.pace());
        let mut stall = Stall::None;
        let mut unit = from;
        while unit < end {
            let is_full = self.buffer.complete >= self.buffer.complete_max;
            if (is_full || (paced && self.gc.is_behind())) && !self.ftl.fits_area(unit) {
                stall = Stall::Busy;
                break;
            }
            let write = AreaWrite { unit, last: end - 1, handle: request.handle };
            let (slot, placed) = match self.ftl.write_area(write) {
                AreaStep::Taken => {
                    unit += 1;
                    continue;
                }
                AreaStep::Committed(slot) => (Some(slot), 0),
                AreaStep::NoRoom => (None, 0),
                AreaStep::None => (self.ftl.place(unit, request.handle), 1),
            };
            let Some(slot) = slot else {
                stall = Stall::NoRoom;
                break;
            };
            if paced {
                self.gc.use_credit();
            }
            self.placed(slot, Kind::HostProgram);
            unit += placed;
        }
        self.host.request(id).units = unit - first;
        stall
    }

    /// A unit was placed: when its program is complete, the die gets it.
    #[inline]
    pub(super) fn placed(&mut self, slot: Slot, kind: Kind) {
        let (program, at) = self.places.program(slot);
        self.buffer.hold(program);
        if at + 1 < self.places.program_units() {
            return;
        }
        if kind == Kind::HostProgram {
            self.buffer.complete += 1;
        } else {
            self.gc.program_begins();
        }
        self.flash_array.program(self.places.die(program), kind, program);
        if kind == Kind::HostProgram && self.own_stripes.is_due_after_program() {
            for die in 0..self.flash_array.die_count() {
                self.flash_array.program(die, kind, OWN);
            }
        }
    }

    /// A program is in the flash.
    #[inline]
    pub(super) fn programmed(&mut self, op: FlashOp) {
        if op.tag == OWN {
            return;
        }
        self.buffer.release(op.tag);
        if op.kind == Kind::HostProgram {
            self.buffer.complete -= 1;
        } else {
            self.gc.program_ends();
        }
    }

    /// A read has come through the firmware: the dies read its pages.
    fn read(&mut self, id: u32) -> Result<()> {
        let request = self.host.request(id).request;
        let unit_bytes = self.places.unit_bytes();
        let (_, end_unit) = self.units(&request);
        let end = (request.offset + u64::from(request.bytes)).min(u64::from(end_unit) * unit_bytes);
        let mut at = request.offset;
        let (mut page, mut bytes, mut parts) = (0, 0, 0);
        while at < end {
            let unit = u32::try_from(at / unit_bytes).expect("within the drive");
            let skip = at % unit_bytes;
            let length = (unit_bytes - skip).min(end - at);
            at += length;
            let Some(slot) = self.ftl.locate(unit) else {
                continue;
            };
            if self.buffer.holds(self.places.program(slot).0) {
                continue;
            }
            for (next, part) in self.places.split(slot, skip, length) {
                if bytes > 0 && next != page {
                    parts += 1;
                    self.read_page(id, page, bytes);
                    bytes = 0;
                }
                page = next;
                bytes += part;
            }
        }
        if bytes > 0 {
            parts += 1;
            self.read_page(id, page, bytes);
        }
        self.host.request(id).units = parts;
        if parts == 0 { self.complete(id, Completion::Done) } else { Ok(()) }
    }

    fn read_page(&mut self, id: u32, page: u64, bytes: u64) {
        let bytes = u32::try_from(bytes).expect("at most a page");
        let slow_pages = u16::from(self.places.is_last_of_program(page));
        let op = FlashOp { kind: Kind::HostRead, pages: 1, slow_pages, bytes, tag: id };
        self.flash_array.read(self.places.page_die(page), op);
    }

    /// A page of a read has been read.
    pub(super) fn read_part(&mut self, id: u32) -> Result<()> {
        let in_flight = self.host.request(id);
        in_flight.units -= 1;
        if in_flight.units > 0 { Ok(()) } else { self.complete(id, Completion::Done) }
    }
}
