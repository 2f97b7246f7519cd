//! How long the commands of a drive take: with constant times before the flash, or through a
//! [controller](crate::config::Controller).

use super::array::{Array, Left};
use super::dies::Dies;
use super::{COMMAND_NS, Operations};
use crate::config::{Config, Layout};
use crate::controller::{Arrival, First, Processor, WriteKind, ns};
use crate::ftl::Slot;

/// A time or a span, in nanoseconds.
type Ns = u64;

/// The model of the times.
pub(super) enum Timing {
    /// Each command takes a constant time before the flash.
    Constant { dies: Dies, read_firmware_ns: Ns },
    /// A controller has a processor and a link.
    Controlled { array: Box<Array>, processor: Box<Processor> },
}

/// The content of a zone to reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reset {
    /// Superblocks that the host has written.
    pub(super) superblocks: f64,
    /// Units that the host has written of a zone that is not full.
    pub(super) open_units: u32,
    /// Whether a stripe of an active zone has been programmed: then its open one is programmed too.
    pub(super) stripe: OpenStripe,
}

/// Whether an active zone has programs that a reset waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenStripe {
    /// The zone has all its data in the write buffer, or is not active.
    None,
    /// A part of a stripe is programmed before the zone can go.
    Programmed,
}

impl Timing {
    pub(super) fn new(config: &Config, layout: &Layout) -> Self {
        match (Processor::new(config), &config.controller) {
            (Some(processor), Some(controller)) => {
                let array = Array::new(config, controller, layout);
                Self::Controlled { array: Box::new(array), processor: Box::new(processor) }
            }
            _ => Self::Constant {
                dies: Dies::new(config, layout),
                read_firmware_ns: ns(config.drive.read_firmware_us),
            },
        }
    }

    pub(super) const fn is_controlled(&self) -> bool {
        matches!(self, Self::Controlled { .. })
    }

    pub(super) const fn operations(&self) -> Operations {
        match self {
            Self::Constant { dies, .. } => dies.operations(),
            Self::Controlled { array, .. } => array.operations(),
        }
    }

    pub(super) const fn program_bytes(&self) -> u64 {
        match self {
            Self::Constant { dies, .. } => dies.program_bytes(),
            Self::Controlled { array, .. } => array.program_bytes(),
        }
    }

    /// A write or an append of so many bytes arrives.
    pub(super) fn write(&mut self, now: Ns, kind: WriteKind, bytes: u64, first: First) -> Arrival {
        match self {
            Self::Constant { dies, .. } => {
                Arrival { buffer_ns: now + COMMAND_NS + dies.link_ns(bytes), rest_ns: 0 }
            }
            Self::Controlled { processor, .. } => processor.write(now, kind, bytes, first),
        }
    }

    /// Units were written up to and including `slot`, by a command that arrived at `now` and has
    /// `left` to write. Returns when the write buffer has taken them: `from`, or when it has room
    /// again.
    pub(super) fn written(&mut self, now: Ns, from: Ns, slot: Slot, left: Left) -> Ns {
        match self {
            Self::Constant { dies, .. } => dies.written(from, slot),
            Self::Controlled { array, .. } => array.written(now, from, slot, left),
        }
    }

    /// Counts units as programmed long ago, in whole programs.
    pub(super) fn mark_programmed(&mut self, units: u32) {
        match self {
            Self::Constant { dies, .. } => dies.mark_programmed(units),
            Self::Controlled { array, .. } => array.mark_programmed(units),
        }
    }

    /// GC reads a unit, behind the operations of its die.
    pub(super) fn collect(&mut self, now: Ns, slot: Slot) {
        match self {
            Self::Constant { dies, .. } => dies.collect(now, slot),
            Self::Controlled { array, .. } => array.collect(now, slot),
        }
    }

    /// A superblock is erased.
    pub(super) fn erase(&mut self, now: Ns) {
        match self {
            Self::Constant { dies, .. } => dies.erase(now),
            Self::Controlled { array, .. } => array.erase(now),
        }
    }

    /// A read arrives; returns when the flash sees it.
    pub(super) fn read_arrives(&mut self, now: Ns) -> Ns {
        match self {
            Self::Constant { read_firmware_ns, .. } => now + *read_firmware_ns,
            Self::Controlled { processor, .. } => processor.read(now),
        }
    }

    /// Reads units that lie one after the other, all below `written`, by a command that arrived at
    /// `now`, from `from` on.
    pub(super) fn read(
        &mut self,
        now: Ns,
        from: Ns,
        slots: std::ops::Range<Slot>,
        written: Slot,
    ) -> Ns {
        match self {
            Self::Constant { dies, .. } => dies.read(from, slots, written),
            Self::Controlled { array, .. } => array.read(now, from, slots, written),
        }
    }

    /// The flash has read so many bytes at `end`; returns when the host has them.
    pub(super) fn deliver(&mut self, now: Ns, end: Ns, bytes: u64) -> Ns {
        match self {
            Self::Constant { .. } => end,
            Self::Controlled { processor, .. } => processor.deliver(now, end, bytes),
        }
    }

    /// Opens a zone; returns when it is open.
    pub(super) fn open(&mut self, now: Ns) -> Ns {
        match self {
            Self::Constant { .. } => now,
            Self::Controlled { processor, .. } => processor.open(now),
        }
    }

    /// Closes a zone; returns when it is closed.
    pub(super) fn close(&mut self, now: Ns) -> Ns {
        match self {
            Self::Constant { .. } => now,
            Self::Controlled { processor, .. } => processor.close(now),
        }
    }

    /// Finishes a zone whose padding takes these slots; returns when that ends.
    pub(super) fn finish(&mut self, now: Ns, padding: std::ops::Range<Slot>) -> Ns {
        match self {
            Self::Constant { dies, .. } => padding.fold(now, |end, slot| dies.written(end, slot)),
            Self::Controlled { array, processor } => {
                let begun = processor.finish(now);
                if !padding.is_empty() {
                    array.leave_open(padding.start);
                }
                padding.fold(begun, |end, slot| end.max(array.padded(begun, slot)))
            }
        }
    }

    /// Resets a zone, and erases `erases` superblocks of it; returns when the reset ends.
    pub(super) fn reset(&mut self, now: Ns, reset: Reset, erases: usize) -> Ns {
        match self {
            Self::Constant { dies, .. } => {
                (0..erases).for_each(|_| dies.erase(now));
                now
            }
            Self::Controlled { array, processor } => {
                let open_ns = match reset.stripe {
                    OpenStripe::None => now,
                    OpenStripe::Programmed => now + array.program_ns(),
                };
                array.leave_open(reset.open_units);
                let end = processor.reset(now, reset.superblocks, open_ns);
                (0..erases).for_each(|_| array.erase(now));
                end
            }
        }
    }
}
