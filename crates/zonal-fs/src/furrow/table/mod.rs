//! The table: a log-structured merge tree of all rows, in two copies on the drive.
//!
//! A commit writes changed rows to the journal and puts them in the [`memtable`]. When that is full
//! it is frozen, written as a run and, by a manifest, put in the place of the journal before it.
//! Steps keep the number of runs small; none of them looks at all rows. The last column names the
//! rooms that a room may use, and `all above` means the rooms of the rows above:
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `leaf` | how are neighbouring rows stored? | |
//! | `part` | how are sorted rows stored, to be found by key? | all above |
//! | `merge` | how do several sorted runs become one? | all above |
//! | `lost` | what becomes of rows that no copy gives? | `part` |
//! | `memtable` | which rows does no run have yet? | |
//! | `remaps` | where are blocks now that reclaim has moved? | |
//! | `levels` | which runs are there, and which compaction is due? | `part`, `memtable` |
//! | `part_store` | where do parts come from, and where do they go? | all above |
//! | `compaction` | how do rows move between the levels? | all above |
//! | `pointers` | how does the manifest name all this? | `part`, `levels` |
//! | `pairs` | which two zones get a part? | |
//! | `cache` | which leaves are in memory? | all above |
//! | `run` | how does a reader find rows in a run? | all above |
//! | `store` | how do parts get to the drive and back? | all above |
//! | `verify` | is it all there, in both copies? | all above |
//! | `refused` | how long are reads tried again that the device refuses? | all above |
//! | `view` | how does a reader find rows? | all above |
//! | `mod.rs` | which part of it belongs to the committer? | all above |
//!
//! `cargo xtask check` compares the last column with the paths in the source.

pub(super) mod cache;
pub(super) mod compaction;
pub use crate::furrow::format::key;
pub mod leaf;
pub(super) mod levels;
pub(super) mod lost;
pub(super) mod memtable;
pub mod merge;
pub(super) mod pairs;
pub mod part;
pub(super) mod part_store;
pub(super) mod pointers;
pub(super) mod refused;
pub(super) mod remaps;
pub(super) mod run;
pub(super) mod store;
#[cfg(test)]
mod tests;
pub(super) mod verify;
pub(super) mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use self::levels::Levels;
use self::memtable::Frozen;
use self::view::View;
use crate::furrow::format::Address;
use crate::furrow::format::position::Position;
use crate::furrow::table::remaps::MovedKey;

/// The committer's side of the table; readers use its [`View`].
#[derive(Debug)]
pub(super) struct Table {
    pub(super) view: Arc<View>,
    /// Position of the journal behind the rows of the frozen memtable, if there is one.
    pub(super) frozen_end: Option<Position>,
    /// Number of the next part.
    pub(super) next_part: u64,
    /// Addresses of both copies of the manifest.
    pub(super) manifest: [Address; 2],
    /// Remaps with a lower number are applied in all rows of the present levels and of the
    /// memtable.
    pub(super) moved_below: u64,
    /// Earlier levels that readers may still hold, each with its `moved_below`.
    pub(super) earlier: Vec<(Weak<Levels>, u64)>,
}

impl Table {
    /// A table without a manifest.
    pub(super) fn new(view: Arc<View>) -> Self {
        let manifest = [Address::default(); 2];
        let moved_below = view.moved_below();
        Self { view, frozen_end: None, next_part: 1, manifest, moved_below, earlier: Vec::new() }
    }

    /// Zones that hold parts of these levels or the manifest.
    pub(super) fn zones(&self, levels: &Levels) -> BTreeSet<u32> {
        let parts = levels.parts().flat_map(|part| part.at);
        parts.chain(self.manifest).map(|at| at.zone).collect()
    }

    /// Zones that hold parts of earlier levels which readers still hold.
    pub(super) fn zones_of_readers(&mut self) -> BTreeSet<u32> {
        let mut zones = BTreeSet::new();
        self.earlier.retain(|(levels, _)| {
            let levels = levels.upgrade();
            let parts = levels.iter().flat_map(|levels| levels.parts());
            zones.extend(parts.flat_map(|part| part.at).map(|at| at.zone));
            levels.is_some()
        });
        zones
    }

    /// Replaces the levels by others, which a manifest names.
    pub(super) fn install(&mut self, levels: Arc<Levels>, frozen: Frozen) {
        let before = self.view.install(levels, frozen);
        let moved_below = std::mem::replace(&mut self.moved_below, self.view.moved_below());
        self.earlier.push((Arc::downgrade(&before), moved_below));
    }

    /// Remap tables that no row needs any more, neither in the present levels nor in earlier ones
    /// that readers hold.
    pub(super) fn unneeded_remaps(&self) -> Vec<MovedKey> {
        let readers = self.earlier.iter().filter(|(levels, _)| levels.strong_count() > 0);
        let below = readers.map(|(_, below)| *below).chain([self.moved_below]).min();
        self.view.remaps_below(below.unwrap_or(0))
    }
}
