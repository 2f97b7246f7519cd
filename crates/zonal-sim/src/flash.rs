//! The flash: its shape and the times of its operations, the same below every translation layer.
//!
//! A *superblock* is one erase block of every plane of every die, and the unit in which flash is
//! erased and collected. It is written in *stripes*: one program per die, dies in order. A
//! *program* is one-shot: `pages_per_program` pages of every plane of one die at once.

use serde::{Deserialize, Serialize};

use crate::error::{Result, refused, within};
use crate::size::Size;

/// Shape and timing of the flash. The default is the drive of the published measurements as far
/// as it is known: 2 TiB of TLC in 32 dies, one-shot programs of 96 KiB, superblocks of 1077 MiB
/// (`NVMeVirt`'s preset for the ZN540; times are fitted, see each field).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Flash {
    /// Channels.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die, which work together.
    pub planes: u32,
    /// Bytes of a page of one plane.
    pub page: Size,
    /// Pages of each plane programmed at once: 3 for one-shot TLC.
    pub pages_per_program: u32,
    /// Programs that fill an erase block of a die.
    pub programs_per_block: u32,
    /// Superblocks of the drive, bad ones included.
    pub superblocks: u32,
    /// Program/erase cycles a block is rated for. 3000: assumed, common for TLC.
    pub pe_cycles: u32,
    /// Time from a read command to data in the die's register. 65: `NVMeVirt` has 50–58.
    pub read_us: f64,
    /// Time of one program. 2600: fitted to 1.1 GB/s over 32 dies.
    pub program_us: f64,
    /// Time of one erase of a block of the unscaled size. 10000: assumed.
    pub erase_us: f64,
    /// Rate of a channel, 10^6 bytes a second. 800: `NVMeVirt`'s 970 PRO.
    pub channel_mb_s: f64,
    /// Time to suspend a program or an erase for a read. 250: fitted, the one number that read
    /// latency under writes hangs on.
    pub suspend_us: f64,
    /// Time to resume it. 20: assumed.
    pub resume_us: f64,
}

impl Default for Flash {
    fn default() -> Self {
        Self {
            channels: 8,
            dies_per_channel: 4,
            planes: 2,
            page: Size(16 << 10),
            pages_per_program: 3,
            programs_per_block: 359,
            superblocks: 1947,
            pe_cycles: 3000,
            read_us: 65.0,
            program_us: 2600.0,
            erase_us: 10_000.0,
            channel_mb_s: 800.0,
            suspend_us: 250.0,
            resume_us: 20.0,
        }
    }
}

impl Flash {
    /// Dies.
    pub const fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Bytes of one program of one die.
    pub const fn program_bytes(&self) -> u64 {
        self.planes as u64 * self.page.0 * self.pages_per_program as u64
    }

    /// Bytes of one program of every die.
    pub const fn stripe_bytes(&self) -> u64 {
        self.program_bytes() * self.dies() as u64
    }

    /// Bytes of a superblock.
    pub const fn superblock_bytes(&self) -> u64 {
        self.stripe_bytes() * self.programs_per_block as u64
    }

    /// Bytes of all superblocks.
    pub const fn raw_bytes(&self) -> u64 {
        self.superblock_bytes() * self.superblocks as u64
    }

    /// The same flash with `programs_per_block` programs in a block instead, and erases that take
    /// proportionally less time: a smaller drive of the same speed and the same number of
    /// superblocks.
    #[must_use]
    pub fn shrunk(&self, programs_per_block: u32) -> Self {
        let share = f64::from(programs_per_block) / f64::from(self.programs_per_block);
        Self { programs_per_block, erase_us: self.erase_us * share, ..self.clone() }
    }

    /// Refuses fields outside their range.
    pub fn check(&self) -> Result<()> {
        within("flash.channels", self.channels, 1, 64)?;
        within("flash.dies_per_channel", self.dies_per_channel, 1, 64)?;
        within("flash.planes", self.planes, 1, 8)?;
        within("flash.page", self.page.0, 4096, 64 << 10)?;
        if !self.page.0.is_power_of_two() {
            return Err(refused("flash.page", self.page, "a power of two from 4KiB to 64KiB"));
        }
        within("flash.pages_per_program", self.pages_per_program, 1, 16)?;
        within("flash.programs_per_block", self.programs_per_block, 1, 1 << 16)?;
        within("flash.superblocks", self.superblocks, 16, 1 << 22)?;
        within("flash.pe_cycles", self.pe_cycles, 1, 1_000_000)?;
        within("flash.read_us", self.read_us, 0.1, 1e5)?;
        within("flash.program_us", self.program_us, 0.1, 1e6)?;
        within("flash.erase_us", self.erase_us, 0.1, 1e7)?;
        within("flash.channel_mb_s", self.channel_mb_s, 1.0, 1e5)?;
        within("flash.suspend_us", self.suspend_us, 0.0, 1e5)?;
        within("flash.resume_us", self.resume_us, 0.0, 1e5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_default_is_published_drive() {
        let flash = Flash::default();
        assert!(flash.check().is_ok());
        assert_eq!(flash.program_bytes(), 96 << 10);
        assert_eq!(flash.superblock_bytes(), 1077 << 20);
        // 2 TiB, to the superblock.
        assert_eq!(((2_u64 << 40) - flash.raw_bytes()) / flash.superblock_bytes(), 0);
    }

    #[test]
    fn flash_refusal_names_field_value_and_range() {
        let flash = Flash { channels: 0, ..Flash::default() };
        let said = flash.check().expect_err("no channels").to_string();
        assert_eq!(said, "flash.channels = 0 is not possible: from 1 to 64");
        let flash = Flash { read_us: f64::NAN, ..Flash::default() };
        assert!(flash.check().is_err());
    }
}
