//! GC in time: copies are read page by page, moved, and programmed; then superblocks are erased.

use super::Timed;
use super::die::{Kind, Op as FlashOp};
use super::place::{Pages, Places};
use crate::config::Config;
use crate::ftl::{Block, Slot, Translation, Unit, Work};

/// A read for GC: copies of one page, or of a unit that is larger.
#[derive(Clone, Copy, Debug)]
struct CopyRead {
    pages: Pages,
    copies: usize,
}

/// Whether GC keeps to its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It does.
    Paced,
    /// It works as fast as it can: the host has no room at all, or has ended.
    Urgent,
}

/// GC's state in time.
pub(super) struct Collector {
    /// Reads by number, and the copies of each, `read_units` places for each.
    reads: Vec<CopyRead>,
    copies: Vec<(Unit, Slot)>,
    read_units: usize,
    free: Vec<u32>,
    /// The read that is being put together.
    open: Option<u32>,
    /// A step that has to wait.
    step: Option<(Unit, Slot)>,
    /// Whether GC is paced at all.
    urgency: Urgency,
    /// Complete programs of GC that are not in the flash yet.
    complete: u32,
    complete_max: u32,
    /// Superblocks being erased, and on how many dies still.
    erasing: Vec<(Block, u32)>,
    /// Units the host may write before GC has moved more.
    credit: f64,
    /// Copies on their way, each of which brings more.
    copying: u32,
    /// Credit at which GC is far enough ahead of the host.
    credit_enough: f64,
}

impl Collector {
    pub(super) fn new(config: &Config, places: &Places) -> Self {
        let reads = config.drive.gc_reads;
        let (count, read_units) = (reads as usize, places.read_units());
        let pages = Pages { program: 0, first: 0, last: 0 };
        Self {
            reads: vec![CopyRead { pages, copies: 0 }; count],
            copies: vec![(0, 0); count * read_units],
            read_units,
            free: (0..reads).rev().collect(),
            open: None,
            step: None,
            urgency: Urgency::Paced,
            complete: 0,
            complete_max: config.drive.buffer_programs * config.flash.dies(),
            erasing: Vec::new(),
            credit: 0.0,
            copying: 0,
            // A stripe: as much as is written at once.
            credit_enough: f64::from(config.flash.dies() * places.program_units()),
        }
    }

    /// Stops pacing: GC finishes as fast as it can.
    pub(super) const fn finish(&mut self) {
        self.urgency = Urgency::Urgent;
    }

    /// Whether anything is under way after which GC may go on.
    pub(super) fn is_working(&self) -> bool {
        self.free.len() < self.reads.len()
            || self.step.is_some()
            || self.complete > 0
            || !self.erasing.is_empty()
    }

    /// Whether the host and GC are paced by each other.
    #[inline]
    pub(super) fn paced(&mut self, pace: f64) -> bool {
        if pace.is_infinite() {
            self.credit = self.credit_enough;
        }
        pace.is_finite()
    }

    /// Whether the host has to wait for GC. It does not while there is nothing to wait for.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.credit < 1.0 && self.is_working()
    }

    /// Whether GC has to wait for the host.
    fn is_ahead(&self, pace: f64, urgency: Urgency) -> bool {
        self.credit + f64::from(self.copying) * pace >= self.credit_enough
            && urgency == Urgency::Paced
            && self.urgency == Urgency::Paced
    }

    /// The host writes a unit.
    #[inline]
    pub(super) fn use_credit(&mut self) {
        self.credit = (self.credit - 1.0).max(0.0);
    }

    pub(super) fn program_begins(&mut self) {
        self.complete += 1;
    }

    pub(super) fn program_ends(&mut self) {
        self.complete -= 1;
    }

    /// Adds a copy to the open read, if it is on the same page.
    #[inline]
    fn join(&mut self, unit: Unit, from: Slot, pages: Pages) -> bool {
        let Some(open) = self.open else {
            return false;
        };
        let read = &mut self.reads[open as usize];
        if pages.program != read.pages.program
            || pages.first < read.pages.first
            || pages.first > read.pages.last
            || read.copies == self.read_units
        {
            return false;
        }
        read.pages.last = pages.last;
        self.copies[open as usize * self.read_units + read.copies] = (unit, from);
        read.copies += 1;
        true
    }
}

impl<T: Translation> Timed<T> {
    /// Begins the next steps of GC, unless it is ahead of the host, so that it works as evenly as
    /// the host writes. Returns whether units were moved at once.
    #[inline]
    pub(super) fn collect(&mut self, urgency: Urgency) -> bool {
        let mut moved = false;
        while self.gc.complete < self.gc.complete_max {
            let (unit, from) = match self.next_step() {
                Some(Work::Copy { unit, from }) => (unit, from),
                Some(Work::Erase(block)) => {
                    self.erase(block);
                    continue;
                }
                None => break,
            };
            let pages = self.places.pages(from);
            if self.buffer.holds(pages.program) {
                self.answer(unit, from);
                moved = true;
            } else if !self.copy(unit, from, pages, urgency) {
                self.gc.step = Some((unit, from));
                break;
            }
        }
        self.close_read();
        moved
    }

    /// Erases without time: counting mode puts erases off until it needs a superblock, and these
    /// erases would hold up the first writes.
    pub(super) fn erase_leftovers(&mut self) {
        loop {
            match self.ftl.work() {
                Some(Work::Erase(block)) => self.ftl.erased(block),
                Some(Work::Copy { unit, from }) => {
                    self.gc.step = Some((unit, from));
                    return;
                }
                None => return,
            }
        }
    }

    /// The step that could not be begun before, or else the next one.
    #[inline]
    fn next_step(&mut self) -> Option<Work> {
        if let Some((unit, from)) = self.gc.step.take() {
            return Some(Work::Copy { unit, from });
        }
        self.ftl.work()
    }

    /// Lets a copy be read. `false`: it has to wait. A page is read as a whole: GC looks at its
    /// pace between pages.
    fn copy(&mut self, unit: Unit, from: Slot, pages: Pages, urgency: Urgency) -> bool {
        if !self.gc.join(unit, from, pages) {
            self.close_read();
            let pace = self.ftl.pace();
            if self.gc.paced(pace) && self.gc.is_ahead(pace, urgency) {
                return false;
            }
            let Some(read) = self.gc.free.pop() else {
                return false;
            };
            self.gc.open = Some(read);
            self.gc.reads[read as usize] = CopyRead { pages, copies: 0 };
            let joined = self.gc.join(unit, from, pages);
            assert!(joined, "a new read takes a copy of its own page");
        }
        self.gc.copying += 1;
        true
    }

    /// Sends the read that was put together, if there is one.
    #[inline]
    fn close_read(&mut self) {
        if let Some(tag) = self.gc.open.take() {
            self.send_read(tag);
        }
    }

    fn send_read(&mut self, tag: u32) {
        let CopyRead { pages, copies } = self.gc.reads[tag as usize];
        let bytes = copies as u64 * self.places.unit_bytes();
        let op = FlashOp {
            kind: Kind::GcRead,
            pages: u16::try_from(pages.last - pages.first + 1).expect("pages of a program"),
            slow_pages: 0,
            bytes: u32::try_from(bytes).expect("at most a program"),
            tag,
        };
        self.flash_array.read(self.places.die(pages.program), op);
    }

    /// A read for GC is done: its copies are placed.
    pub(super) fn copied(&mut self, read: u32) {
        let first = read as usize * self.gc.read_units;
        for at in first..first + self.gc.reads[read as usize].copies {
            let (unit, from) = self.gc.copies[at];
            self.answer(unit, from);
        }
        let copies = u32::try_from(self.gc.reads[read as usize].copies).expect("units of a page");
        self.gc.copying -= copies;
        self.gc.free.push(read);
    }

    /// Moves one unit that has been read.
    #[inline]
    fn answer(&mut self, unit: Unit, from: Slot) {
        let pace = self.ftl.pace();
        if pace.is_finite() {
            self.gc.credit += pace;
        }
        if let Some(slot) = self.ftl.moved(unit, from) {
            self.placed(slot, Kind::GcProgram);
        }
    }

    fn erase(&mut self, block: Block) {
        let dies = self.flash_array.die_count();
        self.gc.erasing.push((block, u32::try_from(dies).expect("checked with the config")));
        for die in 0..dies {
            self.flash_array.erase(die, block);
        }
    }

    /// A superblock's part of one die is erased.
    pub(super) fn erased(&mut self, block: Block) {
        let erasing = &mut self.gc.erasing;
        let at =
            erasing.iter().position(|(erased, _)| *erased == block).expect("it was being erased");
        erasing[at].1 -= 1;
        if erasing[at].1 > 0 {
            return;
        }
        erasing.swap_remove(at);
        // A zone that was reset early leaves a program that was never complete.
        for program in self.places.programs_of(block) {
            self.buffer.release(program);
        }
        self.ftl.erased(block);
    }
}
