//! Translation layers: they place data, and decide which data to move and which superblocks to
//! erase.
//!
//! A layer maps *units* (its table has an entry for each, 4 KiB by default) to *slots* (places for
//! one unit in flash). Counting mode drives a layer in batches; timed mode drives it by
//! [`Translation`], step by step, with the same placement code below.

mod area;
mod blocks;
mod map;
mod page;
mod progress;
mod steps;
mod victim;
mod words;
mod zone;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

pub use area::{AreaStep, AreaWrite};
pub use page::PageMapped;
pub use zone::{Refusal, ZoneMapped};

pub use crate::config::{Frontier, Isolation, Victim};

/// A mapping unit of the host's address space.
pub type Unit = u32;

/// A place for one unit in flash: superblock × [units of a superblock] + position in it.
///
/// [units of a superblock]: crate::config::Layout::block_units
pub type Slot = u32;

/// A superblock.
pub type Block = u32;

/// Counts of units so far. Conservation: `programs = host − rewritten + moved + padded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters {
    /// Units the host wrote.
    #[serde(rename = "host_units")]
    pub host: u64,
    /// Of these, units that are never programmed: the host wrote them again, or reset their zone,
    /// while they were in a zone random write area.
    #[serde(rename = "rewritten_units")]
    pub rewritten: u64,
    /// Units GC moved.
    #[serde(rename = "moved_units")]
    pub moved: u64,
    /// Units of padding: programmed without the host's data when a zone is finished or an area
    /// committed.
    #[serde(rename = "padded_units")]
    pub padded: u64,
    /// Of these, the units of commits.
    #[serde(rename = "commit_padded_units")]
    pub commit_padded: u64,
    /// Commits of areas that the host asked for.
    pub explicit_commits: u64,
    /// Commits of areas by a write behind the area.
    pub implicit_commits: u64,
    /// Units the host trimmed or reset.
    #[serde(rename = "trimmed_units")]
    pub trimmed: u64,
    /// Superblocks erased.
    #[serde(rename = "superblocks_erased")]
    pub erased: u64,
}

impl Counters {
    /// Write amplification of the drive: programs ÷ host writes; NaN, as the ratio of nothing,
    /// before anything is written. Tables leave it empty, and JSON has null.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
    pub fn wa(&self) -> f64 {
        if self.host == 0 {
            return f64::NAN;
        }
        self.programs() as f64 / self.host as f64
    }

    /// Units programmed, units that wait in a random write area included.
    pub const fn programs(&self) -> u64 {
        self.host - self.rewritten + self.moved + self.padded
    }

    /// Units that random write areas have saved the flash, less the padding of their commits.
    pub const fn saved(&self) -> i64 {
        self.rewritten.cast_signed() - self.commit_padded.cast_signed()
    }

    /// The counts since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            host: self.host - before.host,
            rewritten: self.rewritten - before.rewritten,
            moved: self.moved - before.moved,
            padded: self.padded - before.padded,
            commit_padded: self.commit_padded - before.commit_padded,
            explicit_commits: self.explicit_commits - before.explicit_commits,
            implicit_commits: self.implicit_commits - before.implicit_commits,
            trimmed: self.trimmed - before.trimmed,
            erased: self.erased - before.erased,
        }
    }
}

/// Where writes were amplified.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amplification {
    /// By the host's log: bytes it gave to the drive ÷ bytes given to it; 1 where there is none.
    pub host: f64,
    /// By the drive: bytes programmed ÷ bytes given to it.
    pub drive: f64,
}

impl Amplification {
    /// From the counters of the outermost layer and of the drive [below](Translation::below) it, if
    /// any.
    pub fn of(done: &Counters, below: Option<Counters>) -> Self {
        match below {
            None => Self { host: 1.0, drive: done.wa() },
            Some(drive) => Self { host: done.wa(), drive: drive.wa() },
        }
    }

    /// By both: bytes programmed ÷ bytes of the workload.
    pub fn whole(&self) -> f64 {
        self.host * self.drive
    }
}

/// Erase counts of superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wear {
    /// The least.
    pub min: u32,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub max: u32,
}

impl Wear {
    /// Of the counts of all superblocks.
    pub fn of(erases: &[u32]) -> Self {
        let sum: u64 = erases.iter().copied().map(u64::from).sum();
        #[expect(clippy::cast_precision_loss, reason = "a mean of counts below 2^52")]
        let mean = sum as f64 / erases.len().max(1) as f64;
        let min = erases.iter().min().copied().unwrap_or(0);
        Self { min, mean, max: erases.iter().max().copied().unwrap_or(0) }
    }
}

/// One step of a layer's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read `from`, then call [`Translation::moved`].
    Copy {
        /// The unit that lay there when the victim was chosen.
        unit: Unit,
        /// Where.
        from: Slot,
    },
    /// Erase this superblock, then call [`Translation::erased`].
    Erase(Block),
}

/// A translation layer, driven step by step. Each method decides a placement and takes no time;
/// the caller gives the time.
pub trait Translation {
    /// Where a unit lies, if it was written.
    fn locate(&self, unit: Unit) -> Option<Slot>;

    /// The host is going to read or write a unit. Changes nothing: a caller that announces many
    /// units at once brings their entries into the cache together, and waits for all of them once.
    fn touch(&self, _unit: Unit) {}

    /// Places a unit of the host's data. `None`: there is no room before a superblock has been
    /// erased, or a zoned drive's rules forbid it.
    fn place(&mut self, unit: Unit, handle: u8) -> Option<Slot>;

    /// Whether the area of a zone takes a unit without programming another.
    fn fits_area(&self, _unit: Unit) -> bool {
        false
    }

    /// The next step to write a unit into the random write area of its zone.
    fn write_area(&mut self, _write: AreaWrite) -> AreaStep {
        AreaStep::None
    }

    /// Opens the empty zone of a unit with a random write area. Without effect where there is none.
    fn open_area(&mut self, _unit: Unit) {}

    /// The host commits the area of a zone up to a unit.
    fn commit_area(&mut self, _through: Unit) {}

    /// Makes all written units of a zone's area due for commit, before the zone is finished.
    fn drain_area(&mut self, _unit: Unit) {}

    /// The next step of the commits that are due in the zone of a unit.
    fn commit_step(&mut self, _unit: Unit) -> AreaStep {
        AreaStep::None
    }

    /// Finishes the zone of a unit, once its area is committed, and returns where the padding is
    /// programmed: nowhere if the drive has no zones.
    fn finish_zone(&mut self, _unit: Unit) -> Range<Slot> {
        0..0
    }

    /// Forgets units. On a zoned drive, whole zones: a reset.
    fn trim(&mut self, first: Unit, count: u32);

    /// The next step of GC, if any is wanted now and can be begun. An erase comes only after every
    /// copy of its superblock was answered by [`moved`](Self::moved).
    fn work(&mut self) -> Option<Work>;

    /// GC has read a copy; returns its new slot. `None`: the host has overwritten it meanwhile.
    fn moved(&mut self, unit: Unit, from: Slot) -> Option<Slot>;

    /// A superblock has been erased and is free.
    fn erased(&mut self, block: Block);

    /// How many units the host may write per unit moved, so that neither runs out of room:
    /// (1 − u) / u of the current victim, and infinite while no GC is wanted.
    fn pace(&self) -> f64;

    /// The counters. A log of the host counts the units that it moved itself.
    fn counters(&self) -> Counters;

    /// The counters of the zoned drive below, if this is a log of the host.
    fn below(&self) -> Option<Counters> {
        None
    }

    /// How often each superblock was erased.
    fn erases(&self) -> &[u32];
}

/// How worn a drive is: erase counts that occur, and how many superblocks have each.
pub fn erase_histogram(erases: &[u32]) -> BTreeMap<u32, u32> {
    let mut histogram = BTreeMap::new();
    for count in erases {
        *histogram.entry(*count).or_default() += 1;
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erase_histogram_counts_erases() {
        assert_eq!(erase_histogram(&[3, 1, 3, 3]), BTreeMap::from([(1, 1), (3, 3)]));
    }
}
