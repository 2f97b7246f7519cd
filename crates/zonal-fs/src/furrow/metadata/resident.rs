//! Resident ranges: file blocks whose map entries are in memory, and cookies whose directory
//! entries are.

use std::ops::Range;

use crate::furrow::metadata::small::SmallMap;

/// Ranges of numbers, disjoint and apart. A range that ends in [`u64::MAX`] goes to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Resident(SmallMap<u64, u64>);

impl Resident {
    /// Everything.
    pub(super) fn all() -> Self {
        Self(SmallMap::from((0, u64::MAX)))
    }

    /// Whether that is everything.
    pub(super) fn is_all(&self) -> bool {
        self.0.get(&0) == Some(&u64::MAX)
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    /// The end of the range in which a number is.
    pub(in crate::furrow) fn end_of(&self, number: u64) -> Option<u64> {
        let (_, &end) = self.0.range(..=number).next_back()?;
        (number < end).then_some(end)
    }

    /// The first number of a range that is not resident.
    pub(in crate::furrow) fn first_missing(&self, range: Range<u64>) -> Option<u64> {
        let first = self.end_of(range.start).unwrap_or(range.start);
        (first < range.end).then_some(first)
    }

    /// The ranges, in order.
    #[cfg(test)]
    fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        if start >= end {
            return;
        }
        // Ranges that touch it, from the last one on.
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back()
            && other_end >= start
        {
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        while let Some((&other, &other_end)) = self.0.range(..range.end).next_back()
            && other_end > range.start
        {
            self.0.remove(&other);
            if other < range.start {
                self.0.insert(other, range.start);
            }
            if other_end > range.end {
                self.0.insert(range.end, other_end);
            }
            if other <= range.start {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn resident_ranges_of_everything_have_no_end() {
        let mut resident = Resident::all();
        assert!(resident.is_all() && resident.first_missing(0..u64::MAX).is_none());
        resident.remove(5..7);
        assert_eq!(resident.ranges().collect::<Vec<_>>(), [0..5, 7..u64::MAX]);
        assert_eq!(resident.first_missing(0..u64::MAX), Some(5));
        resident.insert(5..7);
        assert!(resident.is_all());
    }

    proptest! {
        #[test]
        fn resident_ranges_match_numbers(changes in vec((any::<bool>(), 0_u64..40, 0_u64..12), 0..40)) {
            let mut resident = Resident::default();
            let mut numbers = [false; 64];
            for (adds, start, len) in changes {
                let range = start..start + len;
                if adds { resident.insert(range.clone()) } else { resident.remove(range.clone()) }
                let index = |number| usize::try_from(number).unwrap();
                numbers[index(range.start)..index(range.end)].fill(adds);
                for number in 0..60_u64 {
                    prop_assert_eq!(resident.end_of(number).is_some(), numbers[index(number)]);
                }
                let ranges: Vec<_> = resident.ranges().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                let missing = (0..60).find(|&number| !numbers[index(number)]);
                prop_assert_eq!(resident.first_missing(0..60), missing);
            }
        }
    }
}
