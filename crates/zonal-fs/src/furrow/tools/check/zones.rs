//! Live blocks of zones: whether runs overlap, whether back-references lead to all of them, and
//! whether their data matches its checksums.
//!
//! A bit for each block of a large drive and all back-references may need more memory than there
//! is. So the check takes a window of zones at a time, and a pass over the rows that name blocks
//! for each.

use std::ops::Range;

use crate::furrow::format::Address;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::Row;
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::map::place::{ExtentId, Owner};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::tools::check::data::{BlockRun, Data};
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::furrow::tools::check::survey::ZoneCount;
use crate::furrow::tools::check::{CheckOptions, CheckPhase, DataCheck, mix};
use crate::furrow::zones::{Role, ZoneSlot};
use crate::vfs::{Ino, Result};

/// A back-reference in compact form. `tag` is a hash of the owner and of the distance between the
/// block in the file and in the zone: two of them are equal by chance in one case of 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    tag: u32,
    block: u32,
    blocks: u32,
}

/// Bytes of memory of a run whose data is read, without its checksums.
const RUN_BYTES: u64 = size_of::<BlockRun>() as u64;

fn tag_of(owner: Owner, block: u32) -> u32 {
    let hash = match owner {
        Owner::Entry(ino, first) => mix(mix(ino.get()) ^ first.wrapping_sub(block.into())),
        Owner::Extent(ExtentId(id)) => !mix(mix(id) ^ u64::from(block)),
    };
    u32::try_from(hash >> 32).expect("half of it")
}

impl Claim {
    fn of(record: &Backref) -> Self {
        let tag = tag_of(record.owner, record.block);
        let blocks = match record.owner {
            Owner::Entry(..) => record.blocks,
            // The whole extent, regardless of the length in the record.
            Owner::Extent(_) => u32::MAX - record.block,
        };
        Self { tag, block: record.block, blocks }
    }

    fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// The blocks of a zone of the window.
struct ZoneBlocks {
    /// A bit for each block that a row has named so far.
    taken: Vec<u64>,
    /// Sorted and merged where they overlap; `None` if back-references are not compared.
    claims: Option<Vec<Claim>>,
    /// Live blocks with a back-reference.
    led_to: u64,
}

impl ZoneBlocks {
    fn new(capacity: u32) -> Self {
        let taken = vec![0; (capacity as usize).div_ceil(64)];
        Self { taken, claims: None, led_to: 0 }
    }

    /// Marks a run of blocks as taken; returns `false` if one of them was.
    fn take(&mut self, block: u32, blocks: u32) -> bool {
        let mask = |word: u32| {
            let (from, end) = (block.max(word * 64), (block + blocks).min(word * 64 + 64));
            let ones = u64::MAX >> (64 - (end - from));
            ones << (from % 64)
        };
        let words = block / 64..=(block + blocks - 1) / 64;
        if words.clone().any(|word| self.taken[word as usize] & mask(word) != 0) {
            return false;
        }
        words.for_each(|word| self.taken[word as usize] |= mask(word));
        true
    }

    fn merge_claims(&mut self) {
        let Some(claims) = &mut self.claims else { return };
        claims.sort_unstable();
        claims.dedup_by(|next, last| {
            let is_one = next.tag == last.tag && next.block <= last.end();
            if is_one {
                last.blocks = last.end().max(next.end()) - last.block;
            }
            is_one
        });
    }

    /// Counts the blocks of a run that have a back-reference.
    fn lead(&mut self, owner: Owner, block: u32, blocks: u32) {
        let Some(claims) = &self.claims else { return };
        let (tag, end) = (tag_of(owner, block), block + blocks);
        let first = claims.partition_point(|claim| (claim.tag, claim.end()) < (tag, block));
        let same = claims[first..].iter().take_while(|claim| claim.tag == tag && claim.block < end);
        let led_to = same.map(|claim| claim.end().min(end).saturating_sub(claim.block.max(block)));
        self.led_to += led_to.map(u64::from).sum::<u64>();
    }
}

/// The zones of a drive, and the counts of the survey.
pub(super) struct ZonePass<'a> {
    pub(super) slots: &'a [ZoneSlot],
    pub(super) counts: &'a [ZoneCount],
    /// Whether the zone states that all its live blocks have back-references.
    pub(super) listed: &'a [bool],
    /// Lost rows may own blocks, which the survey has not counted.
    pub(super) may_lack: bool,
    pub(super) options: &'a CheckOptions,
}

impl ZonePass<'_> {
    /// Bytes of memory that a zone takes in a window.
    fn cost(&self, zone: usize) -> u64 {
        let count = &self.counts[zone];
        if count.live == 0 {
            return 0;
        }
        let claims = count.records * size_of::<Claim>() as u64;
        let data = match self.options.data {
            DataCheck::Skip => 0,
            DataCheck::Read => count.runs * RUN_BYTES + 4 * count.live,
        };
        u64::from(self.slots[zone].capacity) / 8 + claims + data
    }

    /// Checks all zones, and returns the number of blocks read. Overlapping runs go to `problems`,
    /// all else to `others`.
    pub(super) fn check(
        &self,
        source: &mut RowSource<'_>,
        problems: &mut Problems,
        others: &mut Problems,
    ) -> Result<u64> {
        let live = self.counts.iter().map(|count| count.live).sum();
        let mut data = Data::new(self.options.data, live);
        let mut first = 0;
        while first < self.slots.len() {
            let (mut below, mut bytes) = (first, 0);
            while below < self.slots.len()
                && (below == first || bytes + self.cost(below) <= self.options.memory)
            {
                bytes += self.cost(below);
                below += 1;
            }
            if (first..below).any(|zone| self.counts[zone].live > 0) {
                self.check_window(source, first..below, &mut data, problems, others)?;
            }
            first = below;
        }
        data.end(source, others)
    }

    fn check_window(
        &self,
        source: &mut RowSource<'_>,
        zones: Range<usize>,
        data: &mut Data,
        problems: &mut Problems,
        others: &mut Problems,
    ) -> Result<()> {
        let first = zones.start;
        let looked = self.slots[zones.clone()].iter().zip(&self.counts[zones]);
        let looked = looked
            .map(|(slot, count)| ZoneBlocks::new(if count.live > 0 { slot.capacity } else { 0 }));
        let mut window = Window { zones: self, first, looked: looked.collect() };
        window.read_claims(source)?;
        let span = KeySpan::new(Key::BASE_END, Key::new(RowKind::Backrefs, 0, 0));
        source.pass(CheckPhase::Zones, span, &mut |item| {
            let Item::Row(key, row, _) = item else { return };
            let Some((at, crcs)) = row.stored() else { return };
            let Address { zone, block } = at;
            let owner = if key.kind() == RowKind::Extent {
                Owner::Extent(ExtentId(key.owner()))
            } else {
                Owner::Entry(Ino::new(key.owner()), key.at())
            };
            match (window.take(at, crcs.len(), owner), owner) {
                (TakeOutcome::Taken, _) => data.note(at, owner, crcs),
                (TakeOutcome::Outside, _) => {}
                (TakeOutcome::Overlaps, Owner::Entry(ino, first)) => {
                    let place = format!("{} blocks at zone {zone} block {block}", crcs.len());
                    let what = format!("inode {ino} block {first}: {place}");
                    problems.add_of(rule::DISJOINT, ino, what);
                }
                (TakeOutcome::Overlaps, Owner::Extent(ExtentId(id))) => {
                    let place = format!("zone {zone} block {block}, {} blocks", crcs.len());
                    problems.add(rule::DISJOINT, format!("extent {id} at {place}"));
                }
            }
        })?;
        window.compare(others);
        data.read(source, others);
        Ok(())
    }
}

/// Outcome of taking a run.
enum TakeOutcome {
    /// No other run has had its blocks.
    Taken,
    /// Another run has one of its blocks.
    Overlaps,
    /// It lies outside the zones of the window.
    Outside,
}

/// The zones that the check takes at once.
struct Window<'a> {
    zones: &'a ZonePass<'a>,
    first: usize,
    looked: Vec<ZoneBlocks>,
}

impl Window<'_> {
    fn read_claims(&mut self, source: &mut RowSource<'_>) -> Result<()> {
        let key = |zone: usize| Key::new(RowKind::Backrefs, zone as u64, 0);
        let span = KeySpan::new(key(self.first), key(self.first + self.looked.len()));
        for (looked, zone) in self.looked.iter_mut().zip(self.first..) {
            let is_compared = self.zones.listed[zone] && self.zones.counts[zone].live > 0;
            looked.claims = is_compared.then(Vec::new);
        }
        if self.looked.iter().any(|looked| looked.claims.is_some()) {
            source.pass(CheckPhase::Zones, span, &mut |item| {
                let Item::Row(key, Row::Backrefs(records), _) = item else { return };
                let zone = usize::try_from(key.owner()).unwrap_or(usize::MAX);
                if let Some(claims) = &mut self.looked[zone - self.first].claims {
                    claims.extend(records.iter().map(Claim::of));
                }
            })?;
        }
        self.looked.iter_mut().for_each(ZoneBlocks::merge_claims);
        Ok(())
    }

    /// Whether a run lies in a zone of the window that may hold data.
    fn has(&self, at: Address, blocks: usize) -> bool {
        let (zone, block) = (at.zone as usize, at.block);
        let Some(slot) = self.zones.slots.get(zone) else { return false };
        let end = u32::try_from(blocks).ok().and_then(|blocks| block.checked_add(blocks));
        let looked = zone.checked_sub(self.first).and_then(|zone| self.looked.get(zone));
        // The survey has counted no live blocks in zones without a bitmap.
        looked.is_some_and(|looked| !looked.taken.is_empty())
            && blocks > 0
            && !matches!(slot.role, Role::Super | Role::Meta)
            && end.is_some_and(|end| end <= slot.capacity)
    }

    /// Takes a run, if it lies in the window.
    fn take(&mut self, at: Address, blocks: usize, owner: Owner) -> TakeOutcome {
        if !self.has(at, blocks) {
            return TakeOutcome::Outside;
        }
        let blocks = u32::try_from(blocks).expect("inside a zone");
        let looked = &mut self.looked[at.zone as usize - self.first];
        if !looked.take(at.block, blocks) {
            return TakeOutcome::Overlaps;
        }
        looked.lead(owner, at.block, blocks);
        TakeOutcome::Taken
    }

    fn compare(&self, problems: &mut Problems) {
        for (looked, zone) in self.looked.iter().zip(self.first..) {
            let live = self.zones.counts[zone].live;
            let is_wrong = looked.led_to < live || looked.led_to > live && !self.zones.may_lack;
            if looked.claims.is_some() && is_wrong {
                let what =
                    format!("zone {zone} lists owners of {} blocks of {live}", looked.led_to);
                problems.add(rule::LISTED, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_block_is_taken_once() {
        let mut zone = ZoneBlocks::new(300);
        assert!(zone.take(60, 140));
        assert!(!zone.take(199, 1));
        assert!(zone.take(200, 56) && zone.take(0, 60));
        assert!(!zone.take(0, 300));
        assert!(zone.take(256, 44));
        assert_eq!(zone.taken.iter().map(|word| word.count_ones()).sum::<u32>(), 300);
    }

    #[test]
    fn backref_matches_blocks_at_equal_distance() {
        let record = |first, block, blocks| Backref {
            owner: Owner::Entry(Ino::new(7), first),
            block,
            blocks,
        };
        let shared = Backref { owner: Owner::Extent(ExtentId(3)), block: 50, blocks: 4 };
        let records = [record(100, 10, 10), record(105, 15, 10), record(0, 30, 5), shared];
        let mut zone = ZoneBlocks::new(100);
        zone.claims = Some(records.iter().map(Claim::of).collect());
        zone.merge_claims();
        let mut lead = |owner, block, blocks| {
            let before = zone.led_to;
            zone.lead(owner, block, blocks);
            zone.led_to - before
        };
        assert_eq!(lead(Owner::Entry(Ino::new(7), 102), 12, 20), 13, "up to block 25");
        assert_eq!(lead(Owner::Entry(Ino::new(7), 103), 12, 4), 0, "another distance");
        assert_eq!(lead(Owner::Entry(Ino::new(8), 102), 12, 4), 0, "another file");
        assert_eq!(lead(Owner::Extent(ExtentId(3)), 50, 9), 9);
        assert_eq!(lead(Owner::Extent(ExtentId(3)), 51, 8), 0, "it begins elsewhere");
    }
}
