//! Free space as a file system without zones keeps it: extents, found first-fit.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks: `first..first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Free blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free extents by first block; neighbours are joined.
    extents: BTreeMap<u32, u32>,
}

impl Space {
    /// All of these are free.
    pub fn new(blocks: Range<u32>) -> Self {
        Self { extents: BTreeMap::from([(blocks.start, blocks.end - blocks.start)]) }
    }

    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.extents.values().map(|&count| u64::from(count)).sum()
    }

    /// Finds room, first-fit: one extent that holds all, or else the first ones there are.
    pub fn allocate(&mut self, count: u32) -> Option<Vec<Extent>> {
        let whole = self.extents.iter().find(|(_, free)| **free >= count).map(|(&first, _)| first);
        let mut found: Vec<Extent> = Vec::new();
        let mut wanted = count;
        while wanted > 0 {
            let first = whole.or_else(|| self.extents.keys().next().copied());
            let Some(first) = first else {
                for extent in found {
                    self.release(extent);
                }
                return None;
            };
            let free = self.extents.remove(&first).expect("it is free");
            let count = free.min(wanted);
            if free > count {
                self.extents.insert(first + count, free - count);
            }
            found.push(Extent { first, count });
            wanted -= count;
        }
        Some(found)
    }

    /// Makes an extent free again.
    pub fn release(&mut self, Extent { mut first, mut count }: Extent) {
        if let Some((&before, &length)) = self.extents.range(..first).next_back()
            && before + length == first
        {
            self.extents.remove(&before);
            (first, count) = (before, length + count);
        }
        if let Some(length) = self.extents.remove(&(first + count)) {
            count += length;
        }
        self.extents.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_merges_freed_neighbours() {
        let whole = Space::new(10..100);
        let mut space = whole.clone();
        let extents: Vec<Extent> =
            (1..=5).flat_map(|count| space.allocate(count).expect("room")).collect();
        assert_eq!(extents.len(), 5);
        assert_eq!(space.free(), 90 - 15);
        space.release(extents[2]);
        assert_eq!(space.allocate(3), Some(vec![extents[2]]), "the first that fits");
        for at in [1, 3, 0, 4, 2] {
            space.release(extents[at]);
        }
        assert_eq!(space, whole);
        assert_eq!(space.allocate(91), None, "more than there is");
        assert_eq!(space, whole);
    }

    #[test]
    fn space_takes_first_parts_if_nothing_fits_whole() {
        let mut space = Space::new(0..10);
        let parts = space.allocate(10).expect("room");
        assert_eq!(parts, [Extent { first: 0, count: 10 }]);
        space.release(Extent { first: 1, count: 2 });
        space.release(Extent { first: 5, count: 3 });
        let parts = space.allocate(4).expect("room in parts");
        assert_eq!(parts, [Extent { first: 1, count: 2 }, Extent { first: 5, count: 2 }]);
    }
}
