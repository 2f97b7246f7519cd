//! Scans of many rows, which continue past lost ranges.

use super::super::store::DriveStore;
use super::{CachedParts, Runs, View};
use crate::furrow::drive::Drive;
use crate::furrow::planted::Planted;
use crate::furrow::table::compaction::{Compaction, Merged};
use crate::furrow::table::key::{Key, KeySpan};
use crate::furrow::table::memtable::Memtable;
use crate::vfs::Result;

/// A row of a scan, or a lost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Scanned<'a> {
    /// A row.
    Row(Key, &'a [u8]),
    /// From this key on, below the other, neither copy of a leaf can be read. Rows of newer layers
    /// in that range follow.
    Lost(Key, Key),
}

impl View {
    /// Calls `each` for all rows of a span, in order, as they are at this moment. It bypasses the
    /// cache, which a scan of the whole table would only empty.
    pub(in crate::furrow) fn scan(
        &self,
        drive: &Drive,
        span: KeySpan,
        each: &mut dyn FnMut(Scanned<'_>),
    ) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        let (memory, levels) = {
            let layers = self.read_layers();
            // The oldest layer first: newer ones overwrite its rows.
            let mut memory = Memtable::default();
            let tables: Vec<&Memtable> = layers.memory().collect();
            for table in tables.into_iter().rev() {
                for (key, value) in table.range(span.from, span.below) {
                    memory.insert(*key, value.clone());
                }
            }
            (memory, std::sync::Arc::clone(&layers.levels))
        };
        let store = DriveStore { remade: self.remade(), ..DriveStore::new(drive, self.uuid) };
        let limits = drive.layout.table;
        let compaction = Compaction { store: &store, limits, planted: Planted::default() };
        let outcome = compaction.scan(&levels, &[&memory], span, &mut |merged| {
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
        self.refusals.note(&store.refused.take());
        outcome
    }

    /// Whether parts record a lost range in a span.
    pub(in crate::furrow) fn knows_lost(&self, drive: &Drive, span: KeySpan) -> bool {
        let levels = self.levels();
        self.with_store(drive, |store| {
            let source = CachedParts { store, cache: &self.cache };
            Runs { source, levels: &levels }.known_lost(span).is_some()
        })
    }
}
