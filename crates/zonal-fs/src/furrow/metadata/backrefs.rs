//! Where back-references lead: the live blocks that a back-reference still names.
//!
//! Back-references ([`zones::backrefs`](crate::furrow::zones::backrefs)) are hints, so this looks
//! each up in the map of its file.

use std::ops::Range;

use crate::furrow::format::Address;
use crate::furrow::format::backref::Backref;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::place::{MapEntry, Owner};
use crate::furrow::metadata::remaps::Noted;
use crate::furrow::metadata::{File, State};
use crate::furrow::planted::PlantedBug;
use crate::furrow::table::key::Key;
use crate::furrow::table::memtable::Value;
use crate::vfs::Ino;

/// A run of live blocks that a record leads to, with their checksums.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct LiveRun {
    pub(in crate::furrow) owner: Owner,
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) crcs: Vec<u32>,
}

impl LiveRun {
    pub(in crate::furrow) fn blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).expect("inside a zone")
    }

    /// Whether another one is next in the file.
    pub(in crate::furrow) fn is_before_in_file(&self, next: &Self) -> bool {
        match (self.owner, next.owner) {
            (Owner::Entry(ino, first), Owner::Entry(next, next_first)) => {
                ino == next && first + u64::from(self.blocks()) == next_first
            }
            (Owner::Extent(_), _) | (_, Owner::Extent(_)) => false,
        }
    }

    /// Whether another one is next in file and zone.
    pub(in crate::furrow) fn goes_on_with(&self, next: &Self) -> bool {
        self.is_before_in_file(next) && self.block + self.blocks() == next.block
    }

    /// A record of `blocks` blocks after the first `skip`; `None` for a part of a shared extent,
    /// which only moves as a whole.
    pub(in crate::furrow) fn part(&self, skip: u32, blocks: u32) -> Option<Backref> {
        let Self { owner, block, .. } = *self;
        let whole = Backref { owner, block, blocks: self.blocks() };
        match owner {
            Owner::Entry(..) => Some(whole.part(skip, blocks)),
            Owner::Extent(_) => (blocks == whole.blocks).then_some(whole),
        }
    }
}

impl State {
    /// Takes the rows of back-references that belong to the next batch, and counts them.
    pub(in crate::furrow) fn take_backref_rows(&mut self) -> Vec<(Key, Value)> {
        let taken = self.zones.take_backref_rows();
        self.totals.remove_place_bytes(taken.removed_bytes);
        self.totals.add_place_bytes(taken.added_bytes);
        taken.rows
    }

    /// Whether a record may lead to live blocks. It may, if the map is not in memory.
    pub(in crate::furrow) fn leads_somewhere(&self, zone: u32, record: &Backref) -> bool {
        self.live_runs_of(zone, record).map_or(true, |runs| !runs.is_empty())
    }

    /// Live blocks that a record of a zone leads to.
    pub(in crate::furrow) fn live_runs_of(
        &self,
        zone: u32,
        record: &Backref,
    ) -> Lookup<Vec<LiveRun>> {
        match record.owner {
            Owner::Extent(id) => {
                let extent = self.extents.find(id)?;
                let extent =
                    extent.filter(|extent| (extent.zone, extent.block) == (zone, record.block));
                let crcs = extent.map(|extent| extent.crcs.as_slice().to_vec());
                let run = |crcs| LiveRun { owner: record.owner, block: record.block, crcs };
                Ok(crcs.map(run).into_iter().collect())
            }
            Owner::Entry(ino, first) => {
                let limit = first.saturating_add(u64::from(record.blocks));
                let file = self.stored_file(ino, first, limit)?;
                let entries = file.into_iter().flat_map(|file| file.overlapping(first, limit));
                let takes_any = self.planted.has(PlantedBug::RelocateOverwritten);
                let runs = entries.filter_map(|(start, entry)| {
                    let (from, at, crcs) = overlap(first..limit, start, &entry)?;
                    let block = record.block.checked_add(u32::try_from(from - first).ok()?)?;
                    let owner = Owner::Entry(ino, from);
                    let is_here = at == Address { zone, block } || takes_any;
                    is_here.then(|| LiveRun { owner, block, crcs: crcs.to_vec() })
                });
                Ok(runs.collect())
            }
        }
    }

    /// Looks up a file, deleted or not, whose map of `first..limit` is in memory; `None` if there
    /// is no such file.
    fn stored_file(&self, ino: Ino, first: u64, limit: u64) -> Lookup<Option<&File>> {
        let inode = match self.stored_inode(ino) {
            Ok(inode) => inode,
            Err(Stop::Failed(_)) => return Ok(None),
            Err(stop @ Stop::NotLoaded(_)) => return Err(stop),
        };
        let Ok(file) = inode.file() else { return Ok(None) };
        match file.known.first_unknown(first..limit) {
            Some(block) => Err(Stop::NotLoaded(Missing::Map(ino, block))),
            None => Ok(Some(file)),
        }
    }

    /// Maps the live blocks of a copied part of a zone to the copy.
    pub(in crate::furrow) fn relocate_runs(
        &mut self,
        zone: u32,
        part: &Backref,
        to: Address,
        noted: Noted,
    ) -> Lookup<()> {
        for found in self.live_runs_of(zone, part)? {
            let block = to.block + (found.block - part.block);
            let to = Placed { zone: to.zone, block, blocks: found.blocks() };
            self.relocate(found.owner, to, noted);
        }
        Ok(())
    }
}

/// The overlap of file blocks with a map entry, which begins at file block `start`: the first file
/// block, its place, and the checksums.
fn overlap(blocks: Range<u64>, start: u64, entry: &MapEntry) -> Option<(u64, Address, &[u32])> {
    let MapEntry::At { zone, block, crcs } = entry else { return None };
    let from = start.max(blocks.start);
    let to = blocks.end.min(start + u64::from(entry.blocks()));
    let narrow = |blocks: u64| usize::try_from(blocks).expect("inside the entry");
    let crcs = &crcs.as_slice()[narrow(from - start)..narrow(to - start)];
    let skip = u32::try_from(from - start).expect("inside the entry");
    Some((from, Address { zone: *zone, block: block + skip }, crcs))
}
