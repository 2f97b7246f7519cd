//! The rows of a run: leaf by leaf through the cache, upwards or downwards.
//!
//! The index says with which keys each leaf begins and ends, so leaves without any of the wanted keys
//! are not read.

use std::sync::Arc;

use super::cache::LeafCache;
use super::key::Key;
use super::leaf::Leaf;
use super::levels::Part;
use super::merge::Cursor;
use super::part::{PartError, PartIndex};
use super::sweep::PartStore;

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
    leaf: Arc<Leaf>,
    row: usize,
}

impl Spot {
    fn row(&self) -> (Key, Option<&[u8]>) {
        (self.leaf.key(self.row), self.leaf.value(self.row))
    }
}

impl<S: PartStore> Source<'_, S> {
    fn leaf(
        &self,
        parts: &[Part],
        (part, index): (usize, &Arc<PartIndex>),
        number: usize,
    ) -> Result<Arc<Leaf>, PartError> {
        self.cache.leaf(self.store, (&parts[part], index), number)
    }

    /// The first row from `from` on, below `below`.
    fn first(&self, parts: &[Part], from: Key, below: Key) -> Result<Option<Spot>, PartError> {
        let part = parts.partition_point(|part| part.summary.last < from);
        if parts.get(part).is_none_or(|part| part.summary.first >= below) {
            return Ok(None);
        }
        let index = self.cache.index(self.store, &parts[part])?;
        // The part's last key is not below.
        let number = index.leaf_from(from);
        if index.first_of(number) >= below {
            return Ok(None);
        }
        let leaf = self.leaf(parts, (part, &index), number)?;
        let row = leaf.lower_bound(from);
        let spot = Spot { part, index, number, leaf, row };
        Ok((spot.row().0 < below).then_some(spot))
    }

    fn first_of_next_leaf(
        &self,
        parts: &[Part],
        spot: &Spot,
        below: Key,
    ) -> Result<Option<Spot>, PartError> {
        let number = spot.number + 1;
        let (part, index, number) = if number < spot.index.leaves() {
            (spot.part, Arc::clone(&spot.index), number)
        } else {
            let part = spot.part + 1;
            if parts.get(part).is_none_or(|part| part.summary.first >= below) {
                return Ok(None);
            }
            (part, self.cache.index(self.store, &parts[part])?, 0)
        };
        if index.first_of(number) >= below {
            return Ok(None);
        }
        let leaf = self.leaf(parts, (part, &index), number)?;
        Ok(Some(Spot { part, index, number, leaf, row: 0 }))
    }

    /// The last row below `below`, from `from` on.
    fn last(&self, parts: &[Part], from: Key, below: Key) -> Result<Option<Spot>, PartError> {
        let Some(part) = parts.partition_point(|part| part.summary.first < below).checked_sub(1)
        else {
            return Ok(None);
        };
        if parts[part].summary.last < from {
            return Ok(None);
        }
        let index = self.cache.index(self.store, &parts[part])?;
        let mut number = index.leaf_of(below);
        if index.first_of(number) == below {
            number -= 1;
        }
        if index.last_of(number) < from {
            return Ok(None);
        }
        let leaf = self.leaf(parts, (part, &index), number)?;
        let Some(row) = leaf.lower_bound(below).checked_sub(1) else { return Ok(None) };
        let spot = Spot { part, index, number, leaf, row };
        Ok((spot.row().0 >= from).then_some(spot))
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
            spot.row += 1;
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
        let key = spot.leaf.key(spot.row);
        match spot.row.checked_sub(1) {
            Some(row) if spot.leaf.key(row) >= self.from => spot.row = row,
            None if key > self.from => {
                self.spot = self.source.last(self.parts, self.from, key)?;
            }
            Some(_) | None => self.spot = None,
        }
        Ok(())
    }
}
