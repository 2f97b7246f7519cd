//! Cursors over rows in memory, and the merge of several cursors into one.

use super::key::Key;
use super::part::PartError;

pub use super::part::Cursor;

/// A cursor over rows in memory.
#[derive(Debug)]
pub struct RowsCursor<'a, I, V> {
    rows: I,
    row: Option<(&'a Key, &'a Option<V>)>,
}

impl<'a, I: Iterator<Item = (&'a Key, &'a Option<V>)>, V> RowsCursor<'a, I, V> {
    /// A cursor over sorted rows, such as a range of a `BTreeMap`.
    pub fn new(mut rows: I) -> Self {
        let row = rows.next();
        Self { rows, row }
    }
}

impl<'a, I, V> Cursor for RowsCursor<'a, I, V>
where
    I: Iterator<Item = (&'a Key, &'a Option<V>)>,
    V: AsRef<[u8]>,
{
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        self.row.map(|(&key, value)| (key, value.as_ref().map(AsRef::as_ref)))
    }

    fn advance(&mut self) -> Result<(), PartError> {
        self.row = self.rows.next();
        Ok(())
    }
}

/// A cursor over the newest row of each key of several cursors, tombstones included.
pub struct Merge<'a> {
    cursors: Vec<Box<dyn Cursor + 'a>>,
    /// Key and number of each cursor that is not at its end, in descending order. The last one is
    /// the current row: it has the lowest key, and of those with that key the lowest number, the
    /// newest.
    order: Vec<(Key, usize)>,
}

impl<'a> Merge<'a> {
    /// Merges these cursors, the newest first.
    pub fn new(cursors: Vec<Box<dyn Cursor + 'a>>) -> Self {
        let key = |cursor: &dyn Cursor| cursor.peek().map(|(key, _)| key);
        let mut order: Vec<(Key, usize)> = (0..)
            .zip(&cursors)
            .filter_map(|(number, cursor)| Some((key(&**cursor)?, number)))
            .collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        Self { cursors, order }
    }

    /// Number of the cursor that has the current row; a lower one is newer.
    pub fn age(&self) -> Option<usize> {
        self.order.last().map(|&(_, newest)| newest)
    }

    /// Advances the cursor at a place in the order, and restores the order.
    fn advance_at(&mut self, place: usize) -> Result<(), PartError> {
        let (_, number) = self.order[place];
        let cursor = &mut self.cursors[number];
        cursor.advance()?;
        let Some((key, _)) = cursor.peek() else {
            self.order.remove(place);
            return Ok(());
        };
        let next = (key, number);
        let place_next = self.order[..place].partition_point(|other| *other > next);
        self.order[place] = next;
        self.order[place_next..=place].rotate_right(1);
        Ok(())
    }
}

impl Cursor for Merge<'_> {
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        let &(_, newest) = self.order.last()?;
        self.cursors[newest].peek()
    }

    fn advance(&mut self) -> Result<(), PartError> {
        let Some(&(key, _)) = self.order.last() else { return Ok(()) };
        // Older rows of the key first: if one cannot advance, the newest still hides the others.
        while let Some(older) = self.order.len().checked_sub(2)
            && self.order[older].0 == key
        {
            self.advance_at(older)?;
        }
        self.advance_at(self.order.len() - 1)
    }
}

impl std::fmt::Debug for Merge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Merge at {:?}", self.order.last())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::part::Section;
    use super::super::tests::sample::{Rows, any_rows};
    use super::*;
    use crate::furrow::format::Unread;

    fn cursor(rows: &Rows) -> Box<dyn Cursor + '_> {
        Box::new(RowsCursor::new(rows.iter()))
    }

    /// The same key in many of them: each has a small share of few keys.
    fn any_runs() -> impl Strategy<Value = Vec<Rows>> {
        vec(any_rows(60), 0..12)
    }

    fn overlay(newest_first: &[Rows]) -> Rows {
        newest_first.iter().rev().flatten().map(|(&key, value)| (key, value.clone())).collect()
    }

    /// Fails once at each row of a cursor before it goes on.
    struct Stumbling<'a> {
        below: Box<dyn Cursor + 'a>,
        has_failed: bool,
    }

    impl Cursor for Stumbling<'_> {
        fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
            self.below.peek()
        }

        fn advance(&mut self) -> Result<(), PartError> {
            self.has_failed = !self.has_failed;
            if self.has_failed {
                let copies = [const { Unread::Wrong(String::new()) }; 2];
                return Err(PartError { part: 1, section: Section::Index, copies });
            }
            self.below.advance()
        }
    }

    proptest! {
        // A case has up to twelve runs.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn merge_is_overlay_of_runs(runs in any_runs()) {
            let mut merge = Merge::new(runs.iter().map(cursor).collect());
            for (&key, value) in &overlay(&runs) {
                prop_assert_eq!(merge.peek(), Some((key, value.as_deref())));
                merge.advance().unwrap();
            }
            prop_assert_eq!(merge.peek(), None);
            prop_assert!(merge.advance().is_ok());
        }

        /// After an error the merge is where it was: no older row of the key comes up.
        #[test]
        fn merge_continues_after_errors(runs in any_runs()) {
            let stumbling = |rows| -> Box<dyn Cursor + '_> {
                Box::new(Stumbling { below: cursor(rows), has_failed: false })
            };
            let mut merge = Merge::new(runs.iter().map(stumbling).collect());
            for (&key, value) in &overlay(&runs) {
                prop_assert_eq!(merge.peek(), Some((key, value.as_deref())));
                while merge.advance().is_err() {
                    prop_assert_eq!(merge.peek(), Some((key, value.as_deref())));
                }
            }
            prop_assert_eq!(merge.peek(), None);
        }
    }
}
