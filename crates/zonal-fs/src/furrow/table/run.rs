//! Cursors over the rows of a run, leaf by leaf through the cache, in ascending or descending
//! order.
//!
//! The index of a part has the first and last key of each leaf, so a cursor reads only leaves that
//! may have keys of its span. A leaf that no copy gives is an error, unless the mount has rebuilt
//! its rows: then the cursor skips it.

use std::sync::Arc;

use super::cache::LeafCache;
use super::key::{Key, KeySpan};
use super::leaf::CachedLeaf;
use super::levels::Part;
use super::merge::Cursor;
use super::part::{KeyRange, PartError, PartIndex, Section};
use super::part_store::PartStore;
use crate::furrow::format::Unread;

/// Parts of a store, read through the cache.
pub(super) struct CachedParts<'a, S> {
    pub(super) store: &'a S,
    pub(super) cache: &'a LeafCache,
}

impl<S> Clone for CachedParts<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for CachedParts<'_, S> {}

/// The position of a row in a run: part, leaf and row.
struct RunPosition {
    part: usize,
    index: Arc<PartIndex>,
    number: usize,
    leaf: Arc<CachedLeaf>,
    row: usize,
    value: Vec<u8>,
}

impl RunPosition {
    fn new(part: usize, index: &Arc<PartIndex>, number: usize, leaf: Arc<CachedLeaf>) -> Self {
        let (index, value) = (Arc::clone(index), Vec::new());
        Self { part, index, number, leaf, row: 0, value }
    }

    /// The same leaf, at this row.
    fn at(mut self, row: usize) -> Self {
        self.go(row);
        self
    }

    fn go(&mut self, row: usize) {
        self.row = row;
        self.leaf.gather(row, &mut self.value);
    }

    fn key(&self) -> Key {
        self.leaf.key(self.row)
    }

    fn row(&self) -> (Key, Option<&[u8]>) {
        (self.key(), self.leaf.value(self.row, &self.value))
    }
}

impl<S: PartStore> CachedParts<'_, S> {
    /// The outcome of a read of a range of a part: `None` where the range is lost and the mount has
    /// rebuilt all of it below `below`.
    fn unless_remade<T>(
        &self,
        read: Result<T, PartError>,
        part: &Part,
        range: KeyRange,
        below: Key,
    ) -> Result<Option<T>, PartError> {
        let is_missed = || self.store.missed(part, range).is_some_and(|(first, _)| first < below);
        match read {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_missed() => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn index(&self, part: &Part, below: Key) -> Result<Option<Arc<PartIndex>>, PartError> {
        let range = (part.summary.first, part.summary.last);
        self.unless_remade(self.cache.index(self.store, part), part, range, below)
    }

    fn leaf(
        &self,
        part: &Part,
        index: &Arc<PartIndex>,
        number: usize,
        below: Key,
    ) -> Result<Option<Arc<CachedLeaf>>, PartError> {
        let range = (index.first_of(number), index.last_of(number));
        let leaf = self.cache.leaf(self.store, part, index, number);
        self.unless_remade(leaf, part, range, below)
    }

    /// The first row with a key from `from` on, below `below`.
    fn first(
        &self,
        parts: &[Part],
        from: Key,
        below: Key,
    ) -> Result<Option<RunPosition>, PartError> {
        let start = parts.partition_point(|part| part.summary.last < from);
        for (at, part) in parts.iter().enumerate().skip(start) {
            if part.summary.first >= below {
                return Ok(None);
            }
            let Some(index) = self.index(part, below)? else { continue };
            for number in index.leaf_from(from)..index.leaves() {
                if index.first_of(number) >= below {
                    return Ok(None);
                }
                if let Some(leaf) = self.leaf(part, &index, number, below)? {
                    let row = leaf.lower_bound(from);
                    let is_wanted = leaf.key(row) < below;
                    return Ok(
                        is_wanted.then(|| RunPosition::new(at, &index, number, leaf).at(row))
                    );
                }
            }
        }
        Ok(None)
    }

    fn first_of_next_leaf(
        &self,
        parts: &[Part],
        position: &RunPosition,
        below: Key,
    ) -> Result<Option<RunPosition>, PartError> {
        let number = position.number + 1;
        if number == position.index.leaves() {
            return self.first(parts, parts[position.part].summary.last.successor(), below);
        }
        if position.index.first_of(number) >= below {
            return Ok(None);
        }
        match self.leaf(&parts[position.part], &position.index, number, below)? {
            Some(leaf) => {
                Ok(Some(RunPosition::new(position.part, &position.index, number, leaf).at(0)))
            }
            None => self.first(parts, position.index.last_of(number).successor(), below),
        }
    }

    /// The last row with a key below `below`, from `from` on.
    fn last(
        &self,
        parts: &[Part],
        from: Key,
        below: Key,
    ) -> Result<Option<RunPosition>, PartError> {
        let end = parts.partition_point(|part| part.summary.first < below);
        for (at, part) in parts[..end].iter().enumerate().rev() {
            if part.summary.last < from {
                return Ok(None);
            }
            let Some(index) = self.index(part, below)? else { continue };
            for number in (0..index.leaves_below(below)).rev() {
                if index.last_of(number) < from {
                    return Ok(None);
                }
                if let Some(leaf) = self.leaf(part, &index, number, below)? {
                    let Some(row) = leaf.lower_bound(below).checked_sub(1) else { continue };
                    let is_wanted = leaf.key(row) >= from;
                    return Ok(
                        is_wanted.then(|| RunPosition::new(at, &index, number, leaf).at(row))
                    );
                }
            }
        }
        Ok(None)
    }

    /// The first lost range with a key in the span that a part records: it was lost before the part
    /// was written. Also returns an error that says so.
    pub(super) fn known_lost(
        &self,
        parts: &[Part],
        span: KeySpan,
    ) -> Option<(KeyRange, PartError)> {
        let KeySpan { from, below } = span;
        let start = parts.partition_point(|part| part.summary.last < from);
        let parts = parts[start..].iter().take_while(|part| part.summary.first < below);
        for part in parts.filter(|part| part.summary.lost > 0) {
            // Reads report an index that cannot be read by themselves.
            let Ok(index) = self.cache.index(self.store, part) else { continue };
            for (number, &range) in (0..).zip(index.lost()) {
                let missed = self.store.missed(part, range);
                if let Some((first, last)) = missed.filter(|(_, last)| *last >= from) {
                    let (part, section) = (part.summary.number, Section::Lost(number));
                    let copies = ["it was lost before the part was written", "it was lost, too"];
                    let error = PartError {
                        part,
                        section,
                        copies: copies.map(|why| Unread::Wrong(why.to_owned())),
                    };
                    return (first < below).then_some(((first, last), error));
                }
            }
        }
        None
    }

    /// The range of keys that no copy gives, if the first rows of a run in a span are in it.
    pub(super) fn lost_at(&self, parts: &[Part], span: KeySpan) -> Option<(KeyRange, PartError)> {
        let KeySpan { from, below } = span;
        let start = parts.partition_point(|part| part.summary.last < from);
        for part in parts[start..].iter().take_while(|part| part.summary.first < below) {
            let range = (part.summary.first, part.summary.last);
            let missed = |range| self.store.missed(part, range);
            let index = match self.cache.index(self.store, part) {
                Ok(index) => index,
                Err(error) => {
                    let Some(missed) = missed(range) else { continue };
                    return Some((missed, error));
                }
            };
            for number in index.leaf_from(from)..index.leaves() {
                if index.first_of(number) >= below {
                    return None;
                }
                let error = self.cache.leaf(self.store, part, &index, number).err()?;
                if let Some(missed) = missed((index.first_of(number), index.last_of(number))) {
                    return Some((missed, error));
                }
            }
        }
        None
    }
}

/// The rows of a run in a span, in ascending order.
pub(super) struct AscendingRows<'a, S> {
    source: CachedParts<'a, S>,
    parts: &'a [Part],
    below: Key,
    position: Option<RunPosition>,
}

impl<'a, S: PartStore> AscendingRows<'a, S> {
    /// A cursor at the first row of the span.
    pub(super) fn new(
        source: CachedParts<'a, S>,
        parts: &'a [Part],
        span: KeySpan,
    ) -> Result<Self, PartError> {
        let position = source.first(parts, span.from, span.below)?;
        Ok(Self { source, parts, below: span.below, position })
    }
}

impl<S: PartStore> Cursor for AscendingRows<'_, S> {
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        self.position.as_ref().map(RunPosition::row)
    }

    fn advance(&mut self) -> Result<(), PartError> {
        let Some(position) = &mut self.position else { return Ok(()) };
        if position.row + 1 == position.leaf.len() {
            self.position = self.source.first_of_next_leaf(self.parts, position, self.below)?;
        } else if position.leaf.key(position.row + 1) < self.below {
            position.go(position.row + 1);
        } else {
            self.position = None;
        }
        Ok(())
    }
}

/// The rows of a run in a span, in descending order.
pub(super) struct DescendingRows<'a, S> {
    source: CachedParts<'a, S>,
    parts: &'a [Part],
    from: Key,
    position: Option<RunPosition>,
}

impl<'a, S: PartStore> DescendingRows<'a, S> {
    /// A cursor at the last row of the span.
    pub(super) fn new(
        source: CachedParts<'a, S>,
        parts: &'a [Part],
        span: KeySpan,
    ) -> Result<Self, PartError> {
        let position = source.last(parts, span.from, span.below)?;
        Ok(Self { source, parts, from: span.from, position })
    }

    /// The current row; `None` before the first one.
    pub(super) fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        self.position.as_ref().map(RunPosition::row)
    }

    /// Goes to the previous row.
    pub(super) fn step_down(&mut self) -> Result<(), PartError> {
        let Some(position) = &mut self.position else { return Ok(()) };
        let key = position.key();
        match position.row.checked_sub(1) {
            Some(row) if position.leaf.key(row) >= self.from => position.go(row),
            None if key > self.from => {
                self.position = self.source.last(self.parts, self.from, key)?;
            }
            Some(_) | None => self.position = None,
        }
        Ok(())
    }
}
