//! Where every unit lies, and which unit lies in every slot: 4 bytes for each direction and one
//! bit.
//!
//! The tables are larger than any cache, and each host write goes to a random place of one of
//! them. So work comes in batches, a stage of it for the whole batch before the next stage: the
//! loads of one stage do not wait for each other, and the processor has many under way at once.

use super::words::Words;
use super::{Slot, Unit};

/// Units that are worked on together. 64: more than a core has misses under way, and the lists fit
/// the first cache.
pub(super) const BATCH: usize = 64;

/// No slot.
pub(super) const NOWHERE: Slot = Slot::MAX;

/// Forward map, reverse map, validity.
pub(super) struct Map {
    /// Unit → slot, complemented: zero, as memory is when it is allocated, stands for [`NOWHERE`].
    slots: Words<u32>,
    /// Slot → the unit put there last.
    units: Words<u32>,
    /// A bit for each slot: whether its unit still lies there.
    valid: Words<u64>,
}

impl Map {
    pub(super) fn new(units: u32, slots: u32) -> Self {
        Self {
            slots: Words::zeroed(units as usize),
            units: Words::zeroed(slots as usize),
            valid: Words::zeroed((slots as usize).div_ceil(64)),
        }
    }

    /// Bytes of memory taken.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.bytes() + self.units.bytes() + self.valid.bytes()
    }

    #[inline]
    pub(super) fn slot_of(&self, unit: Unit) -> Slot {
        !self.slots.as_slice()[unit as usize]
    }

    /// Whether that unit still lies there.
    #[inline]
    pub(super) fn is_valid(&self, slot: Slot) -> bool {
        self.valid.as_slice()[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// Puts units into the slots from `first` on, and returns where each lay before. A unit may
    /// occur twice: the later one counts.
    pub(super) fn put<'a>(
        &mut self,
        units: &[Unit],
        first: Slot,
        left: &'a mut [Slot; BATCH],
    ) -> &'a [Slot] {
        let left = &mut left[..units.len()];
        self.units.as_mut_slice()[first as usize..][..units.len()].copy_from_slice(units);
        let slots = self.slots.as_mut_slice();
        for ((&unit, left), slot) in units.iter().zip(left.iter_mut()).zip(first..) {
            *left = !std::mem::replace(&mut slots[unit as usize], !slot);
        }
        // Set the new bits before clearing the old ones: then a unit that occurs twice comes out
        // right.
        let valid = self.valid.as_mut_slice();
        fill(valid, first, units.len(), Bits::Set);
        let mut lost = 1;
        for &slot in left.iter().filter(|slot| **slot != NOWHERE) {
            let word = &mut valid[slot as usize / 64];
            lost &= *word >> (slot % 64);
            *word &= !(1 << (slot % 64));
        }
        assert!(lost & 1 == 1, "a slot that a unit leaves was valid");
        left
    }

    /// [`put`](Self::put) of a single unit.
    #[inline]
    pub(super) fn put_one(&mut self, unit: Unit, slot: Slot) -> Slot {
        self.units.as_mut_slice()[slot as usize] = unit;
        let entry = &mut self.slots.as_mut_slice()[unit as usize];
        let left = !std::mem::replace(entry, !slot);
        let valid = self.valid.as_mut_slice();
        valid[slot as usize / 64] |= 1 << (slot % 64);
        if left != NOWHERE {
            let word = &mut valid[left as usize / 64];
            assert!(*word >> (left % 64) & 1 == 1, "a slot that a unit leaves was valid");
            *word &= !(1 << (left % 64));
        }
        left
    }

    /// Moves units, which lie in the slots `from`, to the slots from `first` on. The slots they
    /// leave stay valid: the caller [clears](Self::clear) them all when they are done.
    pub(super) fn relocate(&mut self, units: &[Unit], from: &[Slot], first: Slot) {
        self.units.as_mut_slice()[first as usize..][..units.len()].copy_from_slice(units);
        let slots = self.slots.as_mut_slice();
        let mut wrong = 0;
        for ((&unit, &from), slot) in units.iter().zip(from).zip(first..) {
            wrong |= std::mem::replace(&mut slots[unit as usize], !slot) ^ !from;
        }
        assert!(wrong == 0, "a valid slot holds what its unit's entry says");
        fill(self.valid.as_mut_slice(), first, units.len(), Bits::Set);
    }

    /// Forgets a unit, and returns where it lay.
    pub(super) fn forget(&mut self, unit: Unit) -> Slot {
        let slot = !std::mem::take(&mut self.slots.as_mut_slice()[unit as usize]);
        if slot != NOWHERE {
            assert!(self.is_valid(slot), "a slot that a unit leaves was valid");
            self.clear(slot, 1);
        }
        slot
    }

    /// Marks slots as not valid.
    pub(super) fn clear(&mut self, first: Slot, count: usize) {
        fill(self.valid.as_mut_slice(), first, count, Bits::Clear);
    }

    /// Checks that units lie in the slots `from`.
    pub(super) fn check(&self, units: &[Unit], from: &[Slot]) {
        let slots = self.slots.as_slice();
        let wrong = |(unit, from): (&Unit, &Slot)| slots[*unit as usize] ^ !from;
        let wrong = units.iter().zip(from).map(wrong).fold(0, |all, wrong| all | wrong);
        assert!(wrong == 0, "a valid slot holds what its unit's entry says");
    }

    /// Lists the valid slots of `first..limit` with their units, as many as the lists hold.
    /// Returns how many, and where to go on.
    pub(super) fn valid_in(
        &self,
        first: Slot,
        limit: Slot,
        units: &mut [Unit],
        from: &mut [Slot],
    ) -> (usize, Slot) {
        let (valid, all) = (self.valid.as_slice(), self.units.as_slice());
        let (mut next, mut found) = (first, 0);
        while next < limit {
            let mut word = valid[next as usize / 64] & (u64::MAX << (next % 64));
            let base = next & !63;
            while word != 0 {
                let slot = base + word.trailing_zeros();
                if slot >= limit {
                    return (found, limit);
                }
                if found == units.len() {
                    return (found, slot);
                }
                (units[found], from[found]) = (all[slot as usize], slot);
                found += 1;
                word &= word - 1;
            }
            next = base.saturating_add(64);
        }
        (found, limit)
    }

    /// How many slots of a range are valid, by the bits.
    pub(super) fn count_valid(&self, first: Slot, limit: Slot) -> u32 {
        let valid = self.valid.as_slice();
        let mut count = 0;
        for at in first / 64..limit.div_ceil(64) {
            let mut word = valid[at as usize];
            if at == first / 64 {
                word &= u64::MAX << (first % 64);
            }
            if at == limit / 64 {
                word &= !(u64::MAX << (limit % 64));
            }
            count += word.count_ones();
        }
        count
    }
}

/// The value that [`fill`] writes.
#[derive(Clone, Copy)]
enum Bits {
    Set,
    Clear,
}

/// Sets or clears `count` bits from `first` on.
fn fill(words: &mut [u64], first: Slot, count: usize, bits: Bits) {
    let (mut next, limit) = (first as usize, first as usize + count);
    while next < limit {
        let end = limit.min((next | 63) + 1);
        let mask = (u64::MAX >> (64 - (end - next))) << (next % 64);
        match bits {
            Bits::Set => words[next / 64] |= mask,
            Bits::Clear => words[next / 64] &= !mask,
        }
        next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_bit_ranges_work_at_any_boundary() {
        for (first, count) in [(0, 1), (0, 64), (3, 61), (3, 62), (63, 2), (64, 128), (10, 200)] {
            let mut map = Map::new(1, 300);
            let limit = first + u32::try_from(count).unwrap();
            fill(map.valid.as_mut_slice(), first, count, Bits::Set);
            for slot in 0..300 {
                assert_eq!(map.is_valid(slot), (first..limit).contains(&slot), "{first} {count}");
            }
            assert_eq!(map.count_valid(0, 300) as usize, count);
            assert_eq!(map.count_valid(first, limit) as usize, count);
            assert_eq!(map.count_valid(first + 1, limit) as usize, count - 1);
            let (mut units, mut from) = ([0], [0]);
            assert_eq!(map.valid_in(0, 300, &mut units, &mut from).0, 1);
            assert_eq!(from, [first]);
            assert_eq!(map.valid_in(limit, 300, &mut units, &mut from), (0, 300));
            assert_eq!(map.valid_in(0, first, &mut units, &mut from), (0, first));
            map.clear(first, count);
            assert_eq!(map.count_valid(0, 300), 0);
        }
    }

    #[test]
    fn map_keeps_last_place_of_unit_twice_in_batch() {
        let mut map = Map::new(4, 8);
        let mut left = [0; BATCH];
        assert_eq!(map.put(&[2, 1, 2], 0, &mut left), [NOWHERE, NOWHERE, 0]);
        assert_eq!((map.slot_of(2), map.slot_of(1), map.slot_of(0)), (2, 1, NOWHERE));
        assert_eq!([0, 1, 2].map(|slot| map.is_valid(slot)), [false, true, true]);
        assert_eq!(map.forget(1), 1);
        assert_eq!(map.forget(1), NOWHERE);
        assert_eq!(map.count_valid(0, 8), 1);
    }
}
