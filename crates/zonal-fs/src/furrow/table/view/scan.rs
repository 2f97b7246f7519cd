//! Going through many rows, past those that no copy gives.

use super::super::run::Source;
use super::super::store::DriveStore;
use super::{Found, View, runs_in};
use crate::furrow::io::Drive;
use crate::furrow::table::key::Key;
use crate::furrow::table::levels::Part;
use crate::furrow::table::sweep::PartStore;
use crate::vfs::Result;

/// Rows that are read in one step.
const ROWS: usize = 4096;

/// What a scan comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Scanned<'a> {
    /// A row.
    Row(Key, &'a [u8]),
    /// From this key on, and below the other, no copy gives the rows.
    Lost(Key, Key),
}

impl View {
    /// Hands on all rows from `from` on and below `below`, in order.
    pub(in crate::furrow) fn scan(
        &self,
        drive: &Drive,
        (mut from, below): (Key, Key),
        each: &mut dyn FnMut(Scanned<'_>),
    ) -> Result<()> {
        let mut limit = below;
        while from < below {
            match self.rows(drive, (from, limit), ROWS) {
                Ok(Found { rows, end }) => {
                    for (key, value) in &rows {
                        each(Scanned::Row(*key, value));
                    }
                    from = end;
                }
                Err(error) => {
                    let Some((start, end)) = self.first_lost(drive, (from, below)) else {
                        return Err(error);
                    };
                    if start > from && start < limit {
                        limit = start;
                        continue;
                    }
                    each(Scanned::Lost(from, end));
                    from = end;
                }
            }
            if from >= limit {
                limit = below;
            }
        }
        Ok(())
    }

    /// What no copy gives of the leaves in which the runs go on at `from`: the first such range.
    fn first_lost(&self, drive: &Drive, (from, below): (Key, Key)) -> Option<(Key, Key)> {
        let store = DriveStore::new(drive, self.uuid);
        let source = Source { store: &store, cache: &self.cache };
        let levels = self.levels();
        let lost = runs_in(&levels, (from, below))
            .filter_map(|(parts, span)| source.lost_at(parts, span))
            .filter(|(start, end)| start < end);
        lost.min()
    }
}

impl<S: PartStore> Source<'_, S> {
    /// The range of keys that cannot be read, if the first rows of a run in a span cannot.
    fn lost_at(&self, parts: &[Part], (from, below): (Key, Key)) -> Option<(Key, Key)> {
        let first = parts.partition_point(|part| part.summary.last < from);
        for part in &parts[first..] {
            let summary = &part.summary;
            if summary.first >= below {
                return None;
            }
            let within = |start: Key, end: Key| (start.max(from), end.min(below));
            let Ok(index) = self.cache.index(self.store, part) else {
                return Some(within(summary.first, summary.last.successor()));
            };
            let number = index.leaf_from(from);
            if number == index.leaves() {
                continue;
            }
            let first = index.first_of(number);
            let is_lost =
                first < below && self.cache.leaf(self.store, (part, &index), number).is_err();
            return is_lost.then(|| within(first, index.last_of(number).successor()));
        }
        None
    }
}
