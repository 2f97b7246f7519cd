//! Which die and channel a slot of the translation layer is on, and how long its transfer takes.

use crate::config::{Config, Layout};
use crate::controller::ns;
use crate::ftl::Slot;

/// A read waits for at most this much of another transfer. 16 KiB: a page, as in timed mode.
pub(super) const CHUNK_BYTES: u64 = 16 << 10;

/// The shape of the flash, in units.
pub(super) struct Place {
    pub(super) program_units: u32,
    /// Units that one sensing reads.
    pub(super) page_units: u32,
    block_units: u32,
    unit_bytes: u64,
    dies: usize,
    channels: usize,
    /// Dies between the first programs of two neighbouring superblocks.
    turn: usize,
    /// Nanoseconds to move 2^20 bytes over a channel.
    mib_ns: u64,
}

impl Place {
    /// The flash of a config, where one sensing reads so many bytes, and a superblock begins `turn`
    /// dies behind the begin of the one before it.
    pub(super) fn new(config: &Config, layout: &Layout, page_bytes: u64, turn: usize) -> Self {
        let flash = &config.flash;
        let units = |bytes| u32::try_from(bytes / layout.unit).expect("less than a superblock");
        Self {
            program_units: units(flash.program_bytes()),
            page_units: units(page_bytes).max(1),
            block_units: layout.block_units,
            unit_bytes: layout.unit,
            dies: flash.dies() as usize,
            channels: flash.channels as usize,
            turn,
            mib_ns: ns(f64::from(1 << 20) / flash.channel_mb_s),
        }
    }

    pub(super) const fn program_bytes(&self) -> u64 {
        self.bytes(self.program_units)
    }

    pub(super) const fn bytes(&self, units: u32) -> u64 {
        units as u64 * self.unit_bytes
    }

    /// The program of a slot, numbered through the flash.
    pub(super) const fn program_of(&self, slot: Slot) -> u32 {
        slot / self.program_units
    }

    /// Whether a slot is the last one of its program.
    pub(super) const fn ends_program(&self, slot: Slot) -> bool {
        (slot + 1).is_multiple_of(self.program_units)
    }

    /// The page of a slot in its program.
    pub(super) const fn page_of(&self, slot: Slot) -> u32 {
        slot % self.program_units / self.page_units
    }

    /// The first slot of the page of a slot.
    pub(super) const fn page_start(&self, slot: Slot) -> Slot {
        slot - slot % self.program_units % self.page_units
    }

    /// Units from a slot to the end of its page.
    pub(super) const fn left_in_page(&self, slot: Slot) -> u32 {
        self.page_start(slot) + self.page_units - slot
    }

    /// The die of a slot, and its channel. Consecutive programs go to different channels.
    pub(super) const fn die_of(&self, slot: Slot) -> (usize, usize) {
        let (block, within) = (slot / self.block_units, slot % self.block_units);
        let program = (within / self.program_units) as usize + block as usize * self.turn;
        let die = program % self.dies;
        (die, die % self.channels)
    }

    /// Time that so many bytes take on a channel.
    pub(super) const fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes * self.mib_ns) >> 20
    }
}
