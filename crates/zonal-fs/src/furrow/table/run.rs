//! The rows of a run: leaf by leaf through the cache, upwards or downwards.
//!
//! The index says with which keys each leaf begins and ends, so leaves without any of the wanted keys
//! are not read. What was lost is an error, unless a mount has made it anew: then it is nothing.

use std::sync::Arc;

use super::cache::LeafCache;
use super::key::Key;
use super::leaf::CachedLeaf;
use super::levels::Part;
use super::merge::Cursor;
use super::part::{KeyRange, PartError, PartIndex, Section};
use super::part_store::PartStore;
use crate::furrow::format::Unread;

/// Parts and their cache.
pub(in crate::furrow) struct Source<'a, S> {
    pub(in crate::furrow) store: &'a S,
    pub(in crate::furrow) cache: &'a LeafCache,
}

impl<S> Clone for Source<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Source<'_, S> {}

/// A row of a run: part, leaf, and which row of it.
struct Spot {
    part: usize,
    index: Arc<PartIndex>,
    number: usize,
    leaf: Arc<CachedLeaf>,
    row: usize,
    value: Vec<u8>,
}

impl Spot {
    fn new(part: usize, (index, number): (&Arc<PartIndex>, usize), leaf: Arc<CachedLeaf>) -> Self {
        let (index, value) = (Arc::clone(index), Vec::new());
        Self { part, index, number, leaf, row: 0, value }
    }

    /// At this row of the leaf.
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

impl<S: PartStore> Source<'_, S> {
    /// What was read of a part; `None` where it is lost and nothing below `below` is missed of it.
    fn unless_remade<T>(
        &self,
        read: Result<T, PartError>,
        (part, range, below): (&Part, KeyRange, Key),
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
        self.unless_remade(self.cache.index(self.store, part), (part, range, below))
    }

    fn leaf(
        &self,
        part: &Part,
        (index, number): (&Arc<PartIndex>, usize),
        below: Key,
    ) -> Result<Option<Arc<CachedLeaf>>, PartError> {
        let range = (index.first_of(number), index.last_of(number));
        let leaf = self.cache.leaf(self.store, (part, index), number);
        self.unless_remade(leaf, (part, range, below))
    }

    /// The first row from `from` on, below `below`.
    fn first(&self, parts: &[Part], from: Key, below: Key) -> Result<Option<Spot>, PartError> {
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
                if let Some(leaf) = self.leaf(part, (&index, number), below)? {
                    let row = leaf.lower_bound(from);
                    let is_wanted = leaf.key(row) < below;
                    return Ok(is_wanted.then(|| Spot::new(at, (&index, number), leaf).at(row)));
                }
            }
        }
        Ok(None)
    }

    fn first_of_next_leaf(
        &self,
        parts: &[Part],
        spot: &Spot,
        below: Key,
    ) -> Result<Option<Spot>, PartError> {
        let number = spot.number + 1;
        if number == spot.index.leaves() {
            return self.first(parts, parts[spot.part].summary.last.successor(), below);
        }
        if spot.index.first_of(number) >= below {
            return Ok(None);
        }
        match self.leaf(&parts[spot.part], (&spot.index, number), below)? {
            Some(leaf) => Ok(Some(Spot::new(spot.part, (&spot.index, number), leaf).at(0))),
            None => self.first(parts, spot.index.last_of(number).successor(), below),
        }
    }

    /// The last row below `below`, from `from` on.
    fn last(&self, parts: &[Part], from: Key, below: Key) -> Result<Option<Spot>, PartError> {
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
                if let Some(leaf) = self.leaf(part, (&index, number), below)? {
                    let Some(row) = leaf.lower_bound(below).checked_sub(1) else { continue };
                    let is_wanted = leaf.key(row) >= from;
                    return Ok(is_wanted.then(|| Spot::new(at, (&index, number), leaf).at(row)));
                }
            }
        }
        Ok(None)
    }

    /// The first range with a key from `from` on, below `below`, that was lost before its part was
    /// written, with an error that says so.
    pub(in crate::furrow) fn known_lost(
        &self,
        parts: &[Part],
        (from, below): (Key, Key),
    ) -> Option<(KeyRange, PartError)> {
        let start = parts.partition_point(|part| part.summary.last < from);
        let parts = parts[start..].iter().take_while(|part| part.summary.first < below);
        for part in parts.filter(|part| part.summary.lost > 0) {
            // An index that cannot be read is another error.
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

    /// The range of keys that no copy gives, if that is why the first rows of a run in a span cannot be read.
    pub(in crate::furrow) fn lost_at(
        &self,
        parts: &[Part],
        (from, below): (Key, Key),
    ) -> Option<KeyRange> {
        let start = parts.partition_point(|part| part.summary.last < from);
        for part in parts[start..].iter().take_while(|part| part.summary.first < below) {
            let range = (part.summary.first, part.summary.last);
            let missed = |range| self.store.missed(part, range);
            let Ok(index) = self.cache.index(self.store, part) else {
                let Some(missed) = missed(range) else { continue };
                return Some(missed);
            };
            for number in index.leaf_from(from)..index.leaves() {
                if index.first_of(number) >= below {
                    return None;
                }
                if self.cache.leaf(self.store, (part, &index), number).is_ok() {
                    return None;
                }
                if let Some(missed) = missed((index.first_of(number), index.last_of(number))) {
                    return Some(missed);
                }
            }
        }
        None
    }
}

/// Goes up through the rows of a run.
pub(in crate::furrow) struct Upwards<'a, S> {
    source: Source<'a, S>,
    parts: &'a [Part],
    below: Key,
    spot: Option<Spot>,
}

impl<'a, S: PartStore> Upwards<'a, S> {
    /// At the first row from `from` on, up to below `below`.
    pub(in crate::furrow) fn new(
        source: Source<'a, S>,
        parts: &'a [Part],
        (from, below): (Key, Key),
    ) -> Result<Self, PartError> {
        let spot = source.first(parts, from, below)?;
        Ok(Self { source, parts, below, spot })
    }
}

impl<S: PartStore> Cursor for Upwards<'_, S> {
    fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        self.spot.as_ref().map(Spot::row)
    }

    fn advance(&mut self) -> Result<(), PartError> {
        let Some(spot) = &mut self.spot else { return Ok(()) };
        if spot.row + 1 == spot.leaf.len() {
            self.spot = self.source.first_of_next_leaf(self.parts, spot, self.below)?;
        } else if spot.leaf.key(spot.row + 1) < self.below {
            spot.go(spot.row + 1);
        } else {
            self.spot = None;
        }
        Ok(())
    }
}

/// Goes down through the rows of a run.
pub(in crate::furrow) struct Downwards<'a, S> {
    source: Source<'a, S>,
    parts: &'a [Part],
    from: Key,
    spot: Option<Spot>,
}

impl<'a, S: PartStore> Downwards<'a, S> {
    /// At the last row below `below`, down to `from`.
    pub(in crate::furrow) fn new(
        source: Source<'a, S>,
        parts: &'a [Part],
        (from, below): (Key, Key),
    ) -> Result<Self, PartError> {
        let spot = source.last(parts, from, below)?;
        Ok(Self { source, parts, from, spot })
    }

    /// The row it is at; `None` when it is through.
    pub(in crate::furrow) fn peek(&self) -> Option<(Key, Option<&[u8]>)> {
        self.spot.as_ref().map(Spot::row)
    }

    /// Goes to the row before.
    pub(in crate::furrow) fn step_down(&mut self) -> Result<(), PartError> {
        let Some(spot) = &mut self.spot else { return Ok(()) };
        let key = spot.key();
        match spot.row.checked_sub(1) {
            Some(row) if spot.leaf.key(row) >= self.from => spot.go(row),
            None if key > self.from => {
                self.spot = self.source.last(self.parts, self.from, key)?;
            }
            Some(_) | None => self.spot = None,
        }
        Ok(())
    }
}
