//! Translation layers: where data lies, and what has to be moved and erased for it.
//!
//! A layer maps *units* (what one entry of its table stands for, 4 KiB by default) to *slots*
//! (places for one unit in flash). Counting mode drives a layer in batches; timed mode drives it
//! by [`Translation`], step by step, with the same placement code below.

mod blocks;
mod choice;
mod map;
mod page;
mod steps;
mod victim;
mod words;
mod zone;

use std::collections::BTreeMap;

use serde::Serialize;

pub use choice::{Frontier, Isolation, Victim};
pub use page::PageMapped;
pub use zone::{Refusal, ZoneMapped};

use crate::config::{Config, Kind};
use crate::error::Result;
use crate::flash::refused;
use crate::size::Size;

/// A mapping unit of the host's address space.
pub type Unit = u32;

/// A place for one unit in flash: superblock × [`Layout::block_units`] + position in it.
pub type Slot = u32;

/// A superblock.
pub type Block = u32;

/// How much there is of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Bytes of a unit.
    pub unit: u64,
    /// Units the host sees.
    pub user_units: u32,
    /// Units of a superblock.
    pub block_units: u32,
    /// Superblocks in use: without those that bad blocks and parity have taken.
    pub blocks: u32,
    /// Superblocks that never hold data at rest: free ones below the low water mark, and open ones.
    pub kept_blocks: u32,
    /// Of these, superblocks that are being filled at any time.
    pub open_blocks: u32,
    /// Superblocks of the flash.
    pub raw_blocks: u32,
    /// Entries of the drive's own mapping table: one for each unit, or for each superblock of each
    /// zone.
    pub map_entries: u32,
}

impl Layout {
    /// The layout of a drive, or which field makes it impossible.
    pub fn new(config: &Config) -> Result<Self> {
        let (flash, drive) = (&config.flash, &config.drive);
        let (unit, block) = (drive.unit.0, flash.superblock_bytes());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let taken = (f64::from(flash.superblocks) * drive.reserved).ceil() as u32;
        let blocks = flash.superblocks - taken;
        let raw_units = u64::from(blocks) * (block / unit);
        if raw_units >= u64::from(u32::MAX) {
            let allowed = "at most 2^32 mapping units of flash: take a larger drive.unit";
            return Err(refused("drive.unit", drive.unit, allowed));
        }
        let open_blocks = open_blocks(config);
        let kept_blocks = match drive.kind {
            Kind::Zns => config.zones.spare,
            Kind::Conventional | Kind::Fdp => config.gc.low_water + open_blocks,
        };
        let user_bytes = match (drive.kind, drive.user) {
            (Kind::Zns, _) => {
                let zones = (blocks - config.zones.spare.min(blocks)) / config.zones.superblocks;
                u64::from(zones) * u64::from(config.zones.superblocks) * block
            }
            (Kind::Conventional | Kind::Fdp, Some(user)) => user.0,
            (Kind::Conventional | Kind::Fdp, None) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "far below 2^52"
                )]
                let user = (flash.raw_bytes() as f64 / (1.0 + drive.op)) as u64;
                user
            }
        };
        let limit = u64::from(blocks.saturating_sub(kept_blocks)) * block;
        if user_bytes < unit || user_bytes > limit {
            let allowed = format!("at most {} of user capacity, which is {}", Size(limit), {
                "what the flash leaves after reserved, free and open superblocks"
            });
            return Err(match drive.user {
                Some(user) => refused("drive.user", user, &allowed),
                None => refused("drive.op", drive.op, &allowed),
            });
        }
        let narrow = |units: u64| u32::try_from(units).expect("fewer than the raw units");
        let map_entries = match drive.kind {
            Kind::Zns => user_bytes / block,
            Kind::Conventional | Kind::Fdp => user_bytes / unit,
        };
        Ok(Self {
            unit,
            user_units: narrow(user_bytes / unit),
            block_units: narrow(block / unit),
            blocks,
            kept_blocks,
            open_blocks,
            raw_blocks: flash.superblocks,
            map_entries: narrow(map_entries),
        })
    }

    /// (raw − user) / user, of all the flash.
    pub fn op_nominal(&self) -> f64 {
        self.op(f64::from(self.raw_blocks))
    }

    /// (raw − user) / user, of the flash in which data can rest when GC chooses a victim: without
    /// bad blocks, parity, the free superblocks, and the unwritten part of the open ones.
    pub fn op_effective(&self) -> f64 {
        let kept = match self.open_blocks {
            0 => f64::from(self.kept_blocks),
            // GC begins when one superblock less than low water is free. One frontier has become
            // full just then; the others are half full on average.
            open => f64::from(self.kept_blocks - open - 1) + f64::from(open - 1) / 2.0,
        };
        self.op(f64::from(self.blocks) - kept)
    }

    fn op(&self, blocks: f64) -> f64 {
        blocks * f64::from(self.block_units) / f64::from(self.user_units) - 1.0
    }

    /// Bytes of DRAM that the drive needs for its mapping table, at 4 bytes an entry: a thousandth
    /// of the user capacity with units of 4 KiB, next to nothing with zones.
    pub const fn map_bytes(&self) -> u64 {
        4 * self.map_entries as u64
    }

    /// Bytes the host sees.
    pub const fn user_bytes(&self) -> u64 {
        self.user_units as u64 * self.unit
    }
}

/// Superblocks that are being filled at any time.
fn open_blocks(config: &Config) -> u32 {
    let handles = match config.drive.kind {
        Kind::Zns => return 0,
        Kind::Conventional => config.gc.streams,
        Kind::Fdp => config.fdp.handles,
    };
    let moved = match (config.gc.frontier, config.drive.kind, config.fdp.isolation) {
        (Frontier::Mixed, _, _) => 0,
        (Frontier::Separate, Kind::Fdp, Isolation::Persistently) => handles,
        (Frontier::Separate, _, _) => 1,
    };
    handles + moved
}

/// What was done so far, in units. Conservation: `programs = host + moved + padded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Units the host wrote.
    pub host: u64,
    /// Units GC moved.
    pub moved: u64,
    /// Units of padding: what finishing a zone programs without the host's data.
    pub padded: u64,
    /// Units the host trimmed or reset.
    pub trimmed: u64,
    /// Superblocks erased.
    pub erased: u64,
}

impl Counters {
    /// Write amplification of the drive: programs ÷ host writes; 1 before anything is written.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
    pub fn wa(&self) -> f64 {
        if self.host == 0 {
            return 1.0;
        }
        (self.host + self.moved + self.padded) as f64 / self.host as f64
    }

    /// What was done since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            host: self.host - before.host,
            moved: self.moved - before.moved,
            padded: self.padded - before.padded,
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
    /// From what the outermost layer did, and the drive [below](Translation::below) it, if any.
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

    /// The host is going to read or write a unit. Changes nothing: called for many units at a time,
    /// it brings their entries into the cache together, where one by one each would be waited for.
    fn touch(&self, _unit: Unit) {}

    /// Places a unit of the host's data. `None`: there is no room before a superblock has been
    /// erased, or a zoned drive's rules forbid it.
    fn place(&mut self, unit: Unit, handle: u8) -> Option<Slot>;

    /// Forgets units. On a zoned drive, whole zones: a reset.
    fn trim(&mut self, first: Unit, count: u32);

    /// The next step of GC, if any is wanted now and can be begun. An erase comes only after every
    /// copy of its superblock was answered by [`moved`](Self::moved).
    fn work(&mut self) -> Option<Work>;

    /// A copy has been read: where it goes. `None`: the host has overwritten it meanwhile.
    fn moved(&mut self, unit: Unit, from: Slot) -> Option<Slot>;

    /// A superblock has been erased and is free.
    fn erased(&mut self, block: Block);

    /// How many units the host may write per unit moved, so that neither runs out of room:
    /// (1 − u) / u of the current victim, and infinite while no GC is wanted.
    fn pace(&self) -> f64;

    /// The counters. A log of the host counts what it moved itself.
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
    fn a_map_of_units_takes_a_thousandth_and_a_map_of_zones_next_to_nothing() {
        let layout = |text| Config::parse(text).unwrap().layout().unwrap();
        let pages = layout("[drive]\nuser = \"1.92TB\"");
        assert_eq!(pages.map_bytes(), 4 * (1_920_000_000_000 / 4096));
        let zones = layout("[drive]\nkind = \"zns\"");
        assert_eq!(zones.map_bytes(), 4 * 1947);
    }

    #[test]
    fn effective_over_provisioning_leaves_out_what_is_free_open_or_bad() {
        let text = "[flash]\nsuperblocks = 1000\n[drive]\nop = 0.25\nreserved = 0.01\n\
                    [gc]\nlow_water = 5\nstreams = 3\n";
        let layout = Config::parse(text).unwrap().layout().unwrap();
        assert_eq!((layout.blocks, layout.open_blocks, layout.kept_blocks), (990, 4, 9));
        assert!((layout.op_nominal() - 0.25).abs() < 1e-6);
        // Of 800 superblocks of data; 4 free, three of the open ones half full.
        assert!((layout.op_effective() - ((990.0 - 4.0 - 1.5) / 800.0 - 1.0)).abs() < 1e-6);
    }

    #[test]
    fn erase_counts_are_counted() {
        assert_eq!(erase_histogram(&[3, 1, 3, 3]), BTreeMap::from([(1, 1), (3, 3)]));
    }
}
