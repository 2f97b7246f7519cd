//! What lives in zones: whether two runs of blocks overlap, whether the lists of owners lead to all of it, and
//! whether the blocks are what their checksums say.
//!
//! So many zones at a time as there is memory for, since a bit for each block of a large drive and all
//! records of owners are more than that; the rows that name their blocks come in a pass.

use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::Row;
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::place::{ExtentId, Owner};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::tools::check::data::{Data, Run};
use crate::furrow::tools::check::pass::{Item, Source};
use crate::furrow::tools::check::survey::ZoneCount;
use crate::furrow::tools::check::{CheckOptions, CheckPhase, DataCheck, mix};
use crate::furrow::zones::{Role, ZoneSlot};
use crate::vfs::{Ino, Result};

/// Blocks that a record gives to an owner. `tag` tells owner and distance from others, but for one case in 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    tag: u32,
    block: u32,
    blocks: u32,
}

/// Bytes of a run whose data is read, its checksums aside.
const RUN_BYTES: u64 = size_of::<Run>() as u64;

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
            // All of it, whatever the record says.
            Owner::Extent(_) => u32::MAX - record.block,
        };
        Self { tag, block: record.block, blocks }
    }

    fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// A zone of the window.
struct Looked {
    /// A bit for each block that a row has named.
    taken: Vec<u64>,
    /// Sorted, and those that overlap are one; `None` if nothing is to be compared.
    claims: Option<Vec<Claim>>,
    /// Blocks to which a record leads.
    led_to: u64,
}

impl Looked {
    fn new(capacity: u32) -> Self {
        let taken = vec![0; (capacity as usize).div_ceil(64)];
        Self { taken, claims: None, led_to: 0 }
    }

    /// Takes a run of blocks; `false` if one of them was taken.
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

    fn settle(&mut self) {
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

    /// Counts the blocks of a run to which records lead.
    fn lead(&mut self, owner: Owner, block: u32, blocks: u32) {
        let Some(claims) = &self.claims else { return };
        let (tag, end) = (tag_of(owner, block), block + blocks);
        let first = claims.partition_point(|claim| (claim.tag, claim.end()) < (tag, block));
        let same = claims[first..].iter().take_while(|claim| claim.tag == tag && claim.block < end);
        let led_to = same.map(|claim| claim.end().min(end).saturating_sub(claim.block.max(block)));
        self.led_to += led_to.map(u64::from).sum::<u64>();
    }
}

/// What is known of the zones.
pub(in crate::furrow) struct Zones<'a> {
    pub(in crate::furrow) slots: &'a [ZoneSlot],
    pub(in crate::furrow) counts: &'a [ZoneCount],
    /// Their rows of owners name all that lives in them.
    pub(in crate::furrow) listed: &'a [bool],
    /// Blocks may have owners of which nothing is known: what they have was not counted.
    pub(in crate::furrow) may_lack: bool,
    pub(in crate::furrow) options: &'a CheckOptions,
}

impl Zones<'_> {
    /// Bytes that a look at a zone takes.
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

    /// Looks at all of them; returns the blocks that were read. Runs that overlap are `problems`, what else
    /// is found are `others`.
    pub(in crate::furrow) fn check(
        &self,
        source: &mut Source<'_>,
        (problems, others): (&mut Problems, &mut Problems),
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
                self.check_window(source, (first, below), &mut data, (problems, others))?;
            }
            first = below;
        }
        data.end(source, others)
    }

    fn check_window(
        &self,
        source: &mut Source<'_>,
        (first, below): (usize, usize),
        data: &mut Data,
        (problems, others): (&mut Problems, &mut Problems),
    ) -> Result<()> {
        let looked = self.slots[first..below].iter().zip(&self.counts[first..below]);
        let looked =
            looked.map(|(slot, count)| Looked::new(if count.live > 0 { slot.capacity } else { 0 }));
        let mut window = Window { zones: self, first, looked: looked.collect() };
        window.read_claims(source)?;
        let range = (Key::BASE_END, Key::new(RowKind::Backrefs, 0, 0));
        source.pass(CheckPhase::Zones, range, &mut |item| {
            let Item::Row(key, row, _) = item else { return };
            let Some((at, crcs)) = row.stored() else { return };
            let (zone, block) = (at.zone, at.block);
            let owner = if key.kind() == RowKind::Extent {
                Owner::Extent(ExtentId(key.owner()))
            } else {
                Owner::Entry(Ino::new(key.owner()), key.at())
            };
            match (window.take((zone, block), crcs.len(), owner), owner) {
                (Taken::Now, _) => data.note((zone, block), owner, crcs),
                (Taken::Elsewhere, _) => {}
                (Taken::Before, Owner::Entry(ino, first)) => {
                    let place = format!("{} blocks at zone {zone} block {block}", crcs.len());
                    let what = format!("inode {ino} block {first}: {place}");
                    problems.add_of(rule::DISJOINT, ino, what);
                }
                (Taken::Before, Owner::Extent(ExtentId(id))) => {
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

/// What became of a run.
enum Taken {
    /// It has its blocks for itself.
    Now,
    /// Another one has a block of it.
    Before,
    /// It lies in another zone, or nowhere.
    Elsewhere,
}

/// Some zones that are looked at together.
struct Window<'a> {
    zones: &'a Zones<'a>,
    first: usize,
    looked: Vec<Looked>,
}

impl Window<'_> {
    fn read_claims(&mut self, source: &mut Source<'_>) -> Result<()> {
        let key = |zone: usize| Key::new(RowKind::Backrefs, zone as u64, 0);
        let range = (key(self.first), key(self.first + self.looked.len()));
        for (looked, zone) in self.looked.iter_mut().zip(self.first..) {
            let is_compared = self.zones.listed[zone] && self.zones.counts[zone].live > 0;
            looked.claims = is_compared.then(Vec::new);
        }
        if self.looked.iter().any(|looked| looked.claims.is_some()) {
            source.pass(CheckPhase::Zones, range, &mut |item| {
                let Item::Row(key, Row::Backrefs(records), _) = item else { return };
                let zone = usize::try_from(key.owner()).unwrap_or(usize::MAX);
                if let Some(claims) = &mut self.looked[zone - self.first].claims {
                    claims.extend(records.iter().map(Claim::of));
                }
            })?;
        }
        self.looked.iter_mut().for_each(Looked::settle);
        Ok(())
    }

    /// Whether a run lies in one of these zones, and can lie there.
    fn has(&self, (zone, block): (u32, u32), blocks: usize) -> bool {
        let zone = zone as usize;
        let Some(slot) = self.zones.slots.get(zone) else { return false };
        let end = u32::try_from(blocks).ok().and_then(|blocks| block.checked_add(blocks));
        let looked = zone.checked_sub(self.first).and_then(|zone| self.looked.get(zone));
        // Where nothing lives as far as the survey has believed it, nothing is looked at.
        looked.is_some_and(|looked| !looked.taken.is_empty())
            && blocks > 0
            && !matches!(slot.role, Role::Super | Role::Meta)
            && end.is_some_and(|end| end <= slot.capacity)
    }

    /// Takes a run, if it is one of these.
    fn take(&mut self, at: (u32, u32), blocks: usize, owner: Owner) -> Taken {
        if !self.has(at, blocks) {
            return Taken::Elsewhere;
        }
        let blocks = u32::try_from(blocks).expect("inside a zone");
        let looked = &mut self.looked[at.0 as usize - self.first];
        if !looked.take(at.1, blocks) {
            return Taken::Before;
        }
        looked.lead(owner, at.1, blocks);
        Taken::Now
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
        let mut zone = Looked::new(300);
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
        let mut zone = Looked::new(100);
        zone.claims = Some(records.iter().map(Claim::of).collect());
        zone.settle();
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
