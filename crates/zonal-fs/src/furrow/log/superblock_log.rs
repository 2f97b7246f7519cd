//! The superblock log: two pairs of zones, a copy of every superblock in each (F1). Of two drives
//! each has a pair.
//!
//! In a pair, Furrow writes one zone until it is full, then continues in the other one, flushes,
//! and only then resets the first one. If a pair fails altogether, the other one is left. All four
//! are sequential zones.

use zonal::{ZoneCond, ZoneId};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::superblock::Superblock;
use crate::furrow::format::{Address, BLOCK_BYTES, Unread};
use crate::furrow::planted::{Planted, PlantedBug, mistake};
use crate::vfs::Result;

/// Commits between attempts to write a failed copy, at most: the first, second, fourth and so on
/// try again. The next manifest tries in any case.
const COMMITS_MAX: u32 = 64;

/// The superblock log: its pairs, and the next block of each.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct SuperLog {
    pairs: [LogPair; 2],
    planted: Planted,
}

/// A pair of zones.
#[derive(Clone, Copy, Debug)]
struct LogPair {
    zones: [u32; 2],
    /// The one being written.
    current: usize,
    /// Its next block; `None` if the zone takes no more.
    next: Option<u32>,
    /// The pair lacks the current superblock, because a write failed.
    lags: bool,
    /// Commits since then.
    commits: u32,
}

/// A superblock that was found.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct FoundSuperblock {
    pub(in crate::furrow) superblock: Superblock,
    pub(in crate::furrow) at: Address,
    /// It is the last record in its zone: no torn one follows.
    pub(in crate::furrow) is_last: bool,
}

impl SuperLog {
    /// The log of an empty drive.
    pub(in crate::furrow) fn new(pairs: [[u32; 2]; 2]) -> Self {
        let pairs = pairs.map(|zones| LogPair {
            zones,
            current: 0,
            next: Some(0),
            lags: false,
            commits: 0,
        });
        Self { pairs, planted: Planted::default() }
    }

    /// Goes on after the newest superblock of each pair.
    pub(in crate::furrow) fn resume(
        drive: &Drive,
        found: &[FoundSuperblock],
        planted: Planted,
    ) -> Result<Self> {
        let mut log = Self::new(drive.layout.superblock_pairs);
        log.planted = planted;
        for pair in &mut log.pairs {
            if let Some(newest) = newest_of(found, pair.zones) {
                pair.current = usize::from(newest.at.zone == pair.zones[1]);
            }
            let zone = drive.device.zone(ZoneId::new(pair.zones[pair.current]))?;
            pair.next = zone.written().and_then(|written| drive.layout.whole_blocks(written));
            let is_begun = pair.next != Some(0);
            if zone.cond == ZoneCond::Full || (drive.layout.few_active_zones && is_begun) {
                pair.next = None;
            }
        }
        Ok(log)
    }

    /// Writes a superblock to both pairs and makes it durable.
    pub(super) fn write(&mut self, drive: &Drive, superblock: &Superblock) -> Result<()> {
        let mut old = Vec::new();
        let mut failure = None;
        for pair in &mut self.pairs {
            (pair.lags, pair.commits) = (false, 0);
            match write_to_pair(drive, pair, superblock) {
                Ok(switched_from) => old.extend(switched_from),
                Err(error) => {
                    pair.lags = true;
                    tracing::warn!(zones = ?pair.zones, %error, "a superblock copy was not written");
                    failure = Some((error, failure.is_some()));
                }
            }
        }
        if let Some((error, true)) = failure {
            return Err(error);
        }
        mistake!(self, SuperblockResetEarly, reset_all(drive, &old));
        drive.flush()?;
        reset_all(drive, &old);
        Ok(())
    }

    /// Writes the current superblock to a pair that lacks it, since one zone holds the only copy.
    /// Every commit calls it.
    pub(super) fn catch_up(&mut self, drive: &Drive, superblock: &Superblock) -> Result<()> {
        for pair in self.pairs.iter_mut().filter(|pair| pair.lags) {
            pair.commits = pair.commits.wrapping_add(1);
            if !pair.commits.is_power_of_two() && !pair.commits.is_multiple_of(COMMITS_MAX) {
                continue;
            }
            match write_to_pair(drive, pair, superblock) {
                Ok(old) => {
                    pair.lags = false;
                    drive.flush()?;
                    reset_all(drive, old.as_slice());
                }
                Err(error) => {
                    tracing::warn!(zones = ?pair.zones, %error, "a superblock copy is missing");
                }
            }
        }
        Ok(())
    }
}

fn reset_all(drive: &Drive, zones: &[u32]) {
    for &zone in zones {
        // The next switch to this zone resets it again.
        if let Err(error) = drive.reset(zone) {
            tracing::warn!(zone, %error, "an old superblock zone was not reset");
        }
    }
}

/// Writes a copy and returns the zone that was left, if it moved to the other one.
fn write_to_pair(
    drive: &Drive,
    pair: &mut LogPair,
    superblock: &Superblock,
) -> Result<Option<u32>> {
    let zone = pair.zones[pair.current];
    if let Some(block) = pair.next
        && block < drive.layout.capacity(zone)
    {
        if write_at(drive, superblock, Address { zone, block }).is_ok() {
            pair.next = if drive.layout.few_active_zones { None } else { Some(block + 1) };
            return Ok(None);
        }
        pair.next = None;
    }
    let other = pair.zones[1 - pair.current];
    drive.reset(other)?;
    write_at(drive, superblock, Address { zone: other, block: 0 })?;
    pair.current = 1 - pair.current;
    pair.next = if drive.layout.few_active_zones { None } else { Some(1) };
    Ok(Some(zone))
}

fn write_at(drive: &Drive, superblock: &Superblock, at: Address) -> Result<()> {
    drive.write(at, &superblock.encode(at))?;
    if drive.layout.few_active_zones {
        drive.finish(at.zone);
    }
    Ok(())
}

/// The content of the log's zones.
#[derive(Debug, Default)]
pub(in crate::furrow) struct SuperblockSearch {
    /// Every zone's newest superblock.
    pub(in crate::furrow) found: Vec<FoundSuperblock>,
    /// Why other zones have none.
    pub(in crate::furrow) bad: Vec<String>,
    /// Both pairs have unreadable blocks where a newer superblock may be.
    pub(in crate::furrow) is_stale: bool,
}

/// The newest superblock of a pair of zones.
pub(in crate::furrow) fn newest_of(
    found: &[FoundSuperblock],
    pair: [u32; 2],
) -> Option<&FoundSuperblock> {
    let of_pair = found.iter().filter(|found| pair.contains(&found.at.zone));
    of_pair.max_by_key(|found| found.superblock.epoch.get())
}

/// Looks through all four zones.
pub(in crate::furrow) fn find_all(drive: &Drive) -> SuperblockSearch {
    let mut search = SuperblockSearch { is_stale: true, ..SuperblockSearch::default() };
    for pair in drive.layout.superblock_pairs {
        let mut hides = false;
        for zone in pair {
            let newest = find_in_zone(drive, zone);
            hides |= newest.hides;
            search.found.extend(newest.found);
            search.bad.extend(newest.bad.map(|why| format!("zone {zone}: {why}")));
        }
        search.is_stale &= hides;
    }
    search
}

/// The content of one zone of the log.
#[derive(Debug, Default)]
struct ZoneNewest {
    found: Option<FoundSuperblock>,
    /// Why a zone that is not empty has no superblock.
    bad: Option<String>,
    /// Blocks behind the superblock cannot be read.
    hides: bool,
}

/// The newest valid superblock of a zone. Valid ones lie from the zone's start on without holes,
/// so the last one is found by bisection in a finished zone, whose pointer says nothing.
fn find_in_zone(drive: &Drive, zone: u32) -> ZoneNewest {
    let hidden = |why: String| ZoneNewest { bad: Some(why), hides: true, found: None };
    let report = match drive.device.zone(ZoneId::new(zone)) {
        Ok(report) => report,
        Err(error) => return hidden(error.to_string()),
    };
    let written = match (report.cond, report.wp) {
        (ZoneCond::Offline, _) => return hidden("the zone is offline".into()),
        (ZoneCond::Empty, _) => return ZoneNewest::default(),
        (_, Some(wp)) => {
            let blocks = (wp - report.start).get() / drive.layout.per_block;
            u32::try_from(blocks).unwrap_or(u32::MAX)
        }
        (_, None) => drive.layout.capacity(zone),
    };
    let finished = matches!(report.cond, ZoneCond::Full | ZoneCond::ReadOnly);
    let mut newest = ZoneNewest::default();
    let mut limit = if finished { written_before_zeroes(drive, zone, written) } else { written };
    // A torn record at the end, and perhaps one more behind a bad block.
    let give_up = limit.saturating_sub(8);
    while limit > give_up {
        let at = Address { zone, block: limit - 1 };
        match read_at(drive, at) {
            Ok(superblock) => {
                let found = Some(FoundSuperblock { superblock, at, is_last: newest.bad.is_none() });
                return ZoneNewest { found, bad: None, ..newest };
            }
            Err(unread) => {
                newest.hides |= matches!(unread, Unread::Device(_));
                let why = format!("block {}: {}", at.block, String::from(unread));
                newest.bad = newest.bad.or(Some(why));
            }
        }
        limit -= 1;
    }
    newest
}

/// Blocks of a finished zone before the zeroes that finishing left.
fn written_before_zeroes(drive: &Drive, zone: u32, written: u32) -> u32 {
    let is_written = |block| {
        let mut buffer = [0; BLOCK_BYTES];
        let read = drive.read(Address { zone, block }, &mut buffer);
        read.is_err() || buffer.iter().any(|&byte| byte != 0)
    };
    let (mut low, mut high) = (0, written);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_written(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

fn read_at(drive: &Drive, at: Address) -> std::result::Result<Superblock, Unread> {
    let mut buffer = [0; BLOCK_BYTES];
    drive.read(at, &mut buffer).map_err(|error| Unread::Device(error.to_string()))?;
    Superblock::decode(&buffer, at).map_err(Unread::Wrong)
}

/// The current superblock: the highest epoch of all.
///
/// `bad` says why other zones have none.
pub(in crate::furrow) fn newest<'a>(
    found: &'a [FoundSuperblock],
    bad: &[String],
    planted: Planted,
) -> Result<&'a Superblock> {
    let by_epoch = |found: &&FoundSuperblock| found.superblock.epoch.get();
    let newest = if planted.has(PlantedBug::StaleSuperblock) {
        found.iter().min_by_key(by_epoch)
    } else {
        found.iter().max_by_key(by_epoch)
    };
    let newest = newest.ok_or_else(|| {
        let mut why = "none of the four zones for superblocks holds a valid one".to_owned();
        if !bad.is_empty() {
            why = format!("{why}: {}", bad.join("; "));
        }
        FsError::Missing { what: "Furrow", why }
    })?;
    Ok(&newest.superblock)
}
