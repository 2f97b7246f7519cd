//! The table: all rows on the drive, in sorted runs.
//!
//! A commit writes changed rows to the journal and puts them in the [`memtable`]. When that is full
//! it is frozen, written as a run and, by a manifest, put in the place of the journal before it.
//! Steps keep the number of runs small; none of them looks at all rows. Each row may use the rooms
//! of its last column, `all above` being those of the rows above it:
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `leaf` | how are neighbouring rows stored? | |
//! | `part` | how are sorted rows stored, to be found by key? | all above, `merge` |
//! | `merge` | how do several sorted runs become one? | all above |
//! | `lost` | what becomes of rows that no copy gives? | `part` |
//! | `memtable` | which rows does no run have yet? | |
//! | `remaps` | where are blocks now that reclaim has moved? | |
//! | `levels` | which runs are there, and what is due? | `part`, `memtable` |
//! | `part_store` | from where do parts come, and where do they go? | all above |
//! | `compaction` | how do rows move between the levels? | all above |
//! | `pointers` | how does the manifest name all this? | `part`, `levels` |
//! | `pairs` | which two zones get a part? | |
//! | `cache` | which leaves are in memory? | all above |
//! | `run` | how does a reader find rows in a run? | all above |
//! | `store` | how do parts get to the drive and back? | all above, `view` |
//! | `verify` | is it all there, in both copies? | all above |
//! | `refused` | what does a reader do with a part that cannot be read? | all above, `view` |
//! | `view` | how does a reader find rows? | all above, `mod.rs` |
//! | `mod.rs` | what does the committer know of it? | all above |
//!
//! `cargo xtask check` compares the last column with the paths in the source. A room that it names
//! although that stands further down should not be there.

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
mod refused;
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
use self::view::View;
use crate::furrow::format::Address;
use crate::furrow::log::journal::Position;
use crate::furrow::table::remaps::MovedKey;

/// Where the rows of the frozen memtable are, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    /// In the levels, too: it is needed no more.
    InLevels,
    /// Nowhere else.
    Stays,
}

/// The table as the committer knows it, beside what readers see of it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) view: Arc<View>,
    /// Where the journal goes on behind the rows of the frozen memtable.
    pub(super) frozen_end: Option<Position>,
    pub(super) next_part: u64,
    /// Where the manifest is.
    pub(super) manifest: [Address; 2],
    /// Below which number all moves are in the rows that readers of the levels may find, since they are the present
    /// ones.
    pub(super) moved_below: u64,
    /// Levels before the present ones that readers may still have, with the same number of each.
    pub(super) earlier: Vec<(Weak<Levels>, u64)>,
}

impl Table {
    /// A table that no manifest names yet.
    pub(super) fn new(view: Arc<View>) -> Self {
        let manifest = [Address::default(); 2];
        let moved_below = view.moved_below();
        Self { view, frozen_end: None, next_part: 1, manifest, moved_below, earlier: Vec::new() }
    }

    /// All zones that the parts of these levels and the manifest lie in.
    pub(super) fn zones(&self, levels: &Levels) -> BTreeSet<u32> {
        let parts = levels.parts().flat_map(|part| part.at);
        parts.chain(self.manifest).map(|at| at.zone).collect()
    }

    /// All zones of levels that readers still have.
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

    /// Puts levels that a manifest names in the place of those before.
    pub(super) fn install(&mut self, levels: Arc<Levels>, frozen: Frozen) {
        let before = self.view.install(levels, frozen);
        let moved_below = std::mem::replace(&mut self.moved_below, self.view.moved_below());
        self.earlier.push((Arc::downgrade(&before), moved_below));
    }

    /// Tables of moved blocks that no row needs any more, whichever levels it is read from.
    pub(super) fn unneeded_remaps(&self) -> Vec<MovedKey> {
        let readers = self.earlier.iter().filter(|(levels, _)| levels.strong_count() > 0);
        let below = readers.map(|(_, below)| *below).chain([self.moved_below]).min();
        self.view.remaps_below(below.unwrap_or(0))
    }
}
