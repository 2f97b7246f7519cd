//! Going through many rows, past those that no copy gives.

use super::super::store::DriveStore;
use super::{Runs, Source, View};
use crate::furrow::drive::Drive;
use crate::furrow::planted::Planted;
use crate::furrow::table::compaction::{Compaction, Merged};
use crate::furrow::table::key::Key;
use crate::furrow::table::levels::Span;
use crate::furrow::table::memtable::Memtable;
use crate::vfs::Result;

/// What a scan comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Scanned<'a> {
    /// A row.
    Row(Key, &'a [u8]),
    /// From this key on, and below the other, no copy gives the rows: there are those only that follow.
    Lost(Key, Key),
}

impl View {
    /// Hands on all rows from `from` on and below `below`, in order, as they are at this moment. They do not
    /// go through the cache.
    pub(in crate::furrow) fn scan(
        &self,
        drive: &Drive,
        (from, below): (Key, Key),
        each: &mut dyn FnMut(Scanned<'_>),
    ) -> Result<()> {
        if from >= below {
            return Ok(());
        }
        let (memory, levels) = {
            let layers = self.read_layers();
            // The oldest first: each is entered over those before.
            let mut memory = Memtable::default();
            let tables: Vec<&Memtable> = layers.memory().collect();
            for table in tables.into_iter().rev() {
                for (key, value) in table.range(from, below) {
                    memory.insert(*key, value.clone());
                }
            }
            (memory, std::sync::Arc::clone(&layers.levels))
        };
        let store = DriveStore { remade: self.remade(), ..DriveStore::new(drive, self.uuid) };
        let limits = drive.layout.table;
        let compaction = Compaction { store: &store, limits, planted: Planted::default() };
        let span = Span { from, below: Some(below) };
        let outcome = compaction.scan(&levels, (&[&memory], span), &mut |merged| {
            match merged {
                Merged::Row(key, Some(value)) => match self.moved_value(key, value, u64::MAX) {
                    Some(moved) => each(Scanned::Row(key, &moved)),
                    None => each(Scanned::Row(key, value)),
                },
                Merged::Row(_, None) => {}
                Merged::Lost(first, last) => each(Scanned::Lost(first, last.successor())),
            }
            Ok(())
        });
        self.refusals.note(store.refused.take().as_ref());
        outcome
    }

    /// Whether parts know that something of a range is lost.
    pub(in crate::furrow) fn knows_lost(&self, drive: &Drive, range: (Key, Key)) -> bool {
        let levels = self.levels();
        self.with_store(drive, |store| {
            let source = Source { store, cache: &self.cache };
            Runs { source, levels: &levels }.known_lost(range).is_some()
        })
    }
}
