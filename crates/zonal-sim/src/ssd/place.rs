//! Which die and channel a slot of the translation layer is on, and how long its transfer takes.

use crate::config::{Config, Layout};
use crate::ftl::Slot;

/// By how many dies the first program of a superblock is further than that of the one before it.
/// Zones that are filled side by side then use different dies. 7: assumed; it shares no factor with
/// the usual numbers of dies.
const TURN: usize = 7;

/// The shape of the flash, in units.
pub(super) struct Place {
    pub(super) program_units: u32,
    /// Units of a page of all planes of a die.
    page_units: u32,
    block_units: u32,
    unit_bytes: u64,
    dies: usize,
    channels: usize,
    /// Nanoseconds to move 2^20 bytes over a channel.
    mib_ns: u64,
}

impl Place {
    pub(super) fn new(config: &Config, layout: &Layout) -> Self {
        let flash = &config.flash;
        let units = |bytes| u32::try_from(bytes / layout.unit).expect("less than a superblock");
        Self {
            program_units: units(flash.program_bytes()),
            page_units: units(flash.page.0 * u64::from(flash.planes)).max(1),
            block_units: layout.block_units,
            unit_bytes: layout.unit,
            dies: flash.dies() as usize,
            channels: flash.channels as usize,
            mib_ns: crate::controller::ns(f64::from(1 << 20) / flash.channel_mb_s),
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

    /// Units from a slot to the end of its page.
    pub(super) const fn left_in_page(&self, slot: Slot) -> u32 {
        self.page_units - slot % self.program_units % self.page_units
    }

    /// The die of a slot, and its channel. Programs of a superblock go to one channel after the other.
    pub(super) const fn die_of(&self, slot: Slot) -> (usize, usize) {
        let (block, within) = (slot / self.block_units, slot % self.block_units);
        let program = (within / self.program_units) as usize + block as usize * TURN;
        let die = program % self.dies;
        (die, die % self.channels)
    }

    /// Time that so many bytes take on a channel.
    pub(super) const fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes * self.mib_ns) >> 20
    }
}
