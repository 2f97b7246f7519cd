//! From a slot of the translation layer to the program, die, channel and page that hold it.
//!
//! Slots of a superblock follow each other program by program, and programs die by die, as
//! [`Flash`] says. A superblock is a whole number of stripes, so programs can be numbered through
//! the whole drive: program `p` is on die `p mod dies`.

use crate::config::Layout;
use crate::flash::Flash;
use crate::ftl::{Block, Slot};

/// Division by a number that is only known at run time, by one multiplication.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    number: u32,
    /// ⌈2^64 / number⌉: exact for every 32-bit dividend.
    factor: u64,
}

impl Divisor {
    pub(super) fn new(number: u32) -> Self {
        assert!(number > 0, "nothing divides by zero");
        Self { number, factor: (u64::MAX / u64::from(number)).wrapping_add(1) }
    }

    /// Quotient and remainder.
    #[inline]
    pub(super) fn split(self, dividend: u32) -> (u32, u32) {
        if self.number == 1 {
            return (dividend, 0);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most the dividend")]
        let quotient = ((u128::from(self.factor) * u128::from(dividend)) >> 64) as u32;
        (quotient, dividend - quotient * self.number)
    }
}

/// The pages that hold a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// The program they belong to.
    pub(super) program: u32,
    /// The first, numbered through the program.
    pub(super) first: u32,
    /// The last.
    pub(super) last: u32,
}

/// The shape of the flash, as divisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Bytes of a unit: 2 to the power of this.
    unit_shift: u32,
    /// Bytes of a page of all planes of a die, which are read together.
    page: Divisor,
    program_units: Divisor,
    page_programs: u32,
    dies: Divisor,
    block_programs: u32,
}

impl Places {
    pub(super) fn new(flash: &Flash, layout: &Layout) -> Self {
        let programs = flash.dies() * flash.programs_per_block;
        let page = u64::from(flash.planes) * flash.page.0;
        assert!(layout.unit.is_power_of_two(), "checked with the config");
        Self {
            unit_shift: layout.unit.trailing_zeros(),
            page: Divisor::new(u32::try_from(page).expect("checked with the config")),
            program_units: Divisor::new(layout.block_units / programs),
            page_programs: flash.pages_per_program,
            dies: Divisor::new(flash.dies()),
            block_programs: programs,
        }
    }

    /// Units of a program.
    pub(super) const fn program_units(&self) -> u32 {
        self.program_units.number
    }

    /// Bytes of a unit.
    pub(super) const fn unit_bytes(&self) -> u64 {
        1 << self.unit_shift
    }

    /// Most units that one read of flash can serve.
    pub(super) fn read_units(&self) -> usize {
        let units = u64::from(self.page.number).div_ceil(self.unit_bytes()) + 1;
        usize::try_from(units).expect("units of a page")
    }

    /// The program a slot is in, and where in it.
    #[inline]
    pub(super) fn program(&self, slot: Slot) -> (u32, u32) {
        self.program_units.split(slot)
    }

    /// The die of a program.
    #[inline]
    pub(super) fn die(&self, program: u32) -> usize {
        self.dies.split(program).1 as usize
    }

    /// The die of a page.
    #[inline]
    pub(super) fn page_die(&self, page: u64) -> usize {
        let program = page / u64::from(self.page_programs);
        self.die(u32::try_from(program).expect("fewer programs than units"))
    }

    /// Whether a page is the last of its program.
    #[inline]
    pub(super) fn is_last_of_program(&self, page: u64) -> bool {
        (page + 1).is_multiple_of(u64::from(self.page_programs))
    }

    /// The pages of a slot.
    #[inline]
    pub(super) fn pages(&self, slot: Slot) -> Pages {
        let (program, at) = self.program(slot);
        let (first, unit) = (at << self.unit_shift, 1 << self.unit_shift);
        let page = |byte| self.page.split(byte).0;
        Pages { program, first: page(first), last: page(first + unit - 1) }
    }

    /// The pages of `bytes` bytes that begin `skip` bytes into a slot, numbered through the drive,
    /// and how many of the bytes each holds.
    #[inline]
    pub(super) fn split(
        &self,
        slot: Slot,
        skip: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let size = u64::from(self.page.number);
        let first = u64::from(slot) * self.unit_bytes() + skip;
        let end = first + bytes;
        (first / size..end.div_ceil(size))
            .map(move |page| (page, end.min((page + 1) * size) - first.max(page * size)))
    }

    /// The programs of a superblock.
    pub(super) fn programs_of(&self, block: Block) -> std::ops::Range<u32> {
        let first = block * self.block_programs;
        first..first + self.block_programs
    }

    /// Programs of the drive.
    pub(super) fn programs(&self, blocks: u32) -> usize {
        blocks as usize * self.block_programs as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn division_is_exact() {
        for number in [1, 2, 3, 7, 24, 32, 359, 11_488, 0xffff_ffff] {
            for dividend in [0, 1, 2, 3, 23, 24, 25, 0x7fff_ffff, 0xffff_fffe, 0xffff_ffff] {
                let split = Divisor::new(number).split(dividend);
                assert_eq!(split, (dividend / number, dividend % number), "{dividend} / {number}");
            }
        }
    }

    #[test]
    fn slots_go_by_program_and_die() {
        let config = Config::default();
        let layout = config.layout().expect("possible");
        let places = Places::new(&config.flash, &layout);
        assert_eq!(places.program_units(), 24);
        assert_eq!(places.program(23), (0, 23));
        assert_eq!(places.die(places.program(24).0), 1);
        assert_eq!(places.die(places.program(24 * 32).0), 0);
        assert_eq!(places.die(places.program(layout.block_units).0), 0);
        assert_eq!(places.programs_of(1).start, 32 * 359);
        // Eight units of 4 KiB are one page of two planes.
        assert_eq!(places.pages(7), Pages { program: 0, first: 0, last: 0 });
        assert_eq!(places.pages(8), Pages { program: 0, first: 1, last: 1 });
        assert_eq!(places.pages(24 + 16), Pages { program: 1, first: 2, last: 2 });
        assert_eq!(places.page_die(2), 0);
        assert_eq!(places.page_die(3), 1);
    }
}
