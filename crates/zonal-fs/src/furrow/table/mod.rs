//! The table: all rows on the drive, in sorted runs.
//!
//! A commit writes changed rows to the journal and puts them in the [`memtable`]. When that is full
//! it is frozen, written as a run and, by a manifest, put in the place of the journal before it.
//! Steps keep the number of runs small; none of them looks at all rows. What each file answers:
//!
//! | file | question |
//! | --- | --- |
//! | [`key`], [`leaf`], [`part`] | how are rows stored? |
//! | [`merge`] | how do several sorted runs become one? |
//! | [`memtable`], [`levels`] | which rows and runs are there, and what is due? |
//! | [`sweep`] | how do rows move between the levels? |
//! | [`pointers`] | how does the manifest name all this? |
//! | [`pairs`], [`store`] | how do parts get to the drive and back? |
//! | [`steps`] | who does it, and when? |
//! | [`verify`] | is it all there, in both copies? |

pub mod key;
pub mod leaf;
pub(super) mod levels;
pub(super) mod memtable;
pub mod merge;
#[cfg(test)]
mod model;
pub(super) mod pairs;
pub mod part;
pub(super) mod pointers;
#[cfg(test)]
mod sample;
pub(super) mod steps;
pub(super) mod store;
pub(super) mod sweep;
pub(super) mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::levels::Levels;
use self::memtable::Memtable;
use super::format::Address;
use super::journal::Position;

/// A memtable that is being written as a run.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) rows: Arc<Memtable>,
    /// Where the journal goes on behind its rows.
    pub(super) end: Position,
}

/// The table as the committer knows it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) levels: Levels,
    pub(super) memtable: Memtable,
    pub(super) frozen: Option<Frozen>,
    pub(super) next_part: u64,
    /// Where the manifest is.
    pub(super) manifest: [Address; 2],
    /// Parts of which a copy is bad: they are written again.
    pub(super) suspects: BTreeSet<u64>,
}

impl Table {
    /// A table without rows.
    pub(super) fn new() -> Self {
        Self {
            levels: Levels::new(),
            memtable: Memtable::default(),
            frozen: None,
            next_part: 1,
            manifest: [Address::default(); 2],
            suspects: BTreeSet::new(),
        }
    }

    /// All zones that its parts and the manifest lie in.
    pub(super) fn zones(&self) -> BTreeSet<u32> {
        let parts = self.levels.parts().flat_map(|part| part.at);
        parts.chain(self.manifest).map(|at| at.zone).collect()
    }
}
