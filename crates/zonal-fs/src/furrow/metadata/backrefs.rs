//! Owner records: the way back from a block of a zone to the place in a file that uses it.
//!
//! A record says to whom a run of blocks was given. It stays when the blocks die, and when a map
//! entry is cut, split or joined: blocks of one run have the same distances in the file as in the
//! zone. So a record is a hint, and a reader of it looks the place up in the map. The invariant:
//! each live block of a zone whose owners are *listed* has a record that leads to its owner.
//!
//! Records of a zone that is being written stay in memory. Once the zone is sealed, the worker
//! makes its rows of owners of them, and the next batch writes those; later records become further
//! rows. A zone in which nothing lives has none. After a crash the owners of a zone that was being
//! written are not listed; if such a zone becomes a victim, a
//! [scan](crate::furrow::reclaim::backref_scan) finds them.

use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::backrefs_bytes;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::place::{MapEntry, Owner};
use crate::furrow::metadata::remaps::Noted;
use crate::furrow::metadata::{Ending, File, State};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::furrow::zones::records::Records;
use crate::furrow::zones::{Listed, Role, ZoneSlot, Zones};
use crate::vfs::Ino;

/// The records of a zone that are to become rows.
pub(in crate::furrow) struct Due {
    pub(in crate::furrow) zone: u32,
    pub(in crate::furrow) resets: u32,
    pub(in crate::furrow) records: Vec<Backref>,
}

/// Rows of owners of a zone that the next batch is to write.
#[derive(Debug)]
pub(in crate::furrow) struct NewRows {
    /// They are of so many records of the zone, with this last one, as long as it is not reset.
    pub(in crate::furrow) resets: u32,
    pub(in crate::furrow) records: (usize, Option<Backref>),
    pub(in crate::furrow) values: Vec<Box<[u8]>>,
}

impl NewRows {
    /// Whether the zone is the same, and no records have come.
    fn are_all_of(&self, slot: &ZoneSlot) -> bool {
        self.resets == slot.resets && self.records == mark_of(slot.records.as_slice())
    }
}

/// What changes whenever a record is added, or the last one gets longer.
pub(in crate::furrow) fn mark_of(records: &[Backref]) -> (usize, Option<Backref>) {
    (records.len(), records.last().copied())
}

impl ZoneSlot {
    /// Whether its rows of owners, without what is in memory, name all that lives in it.
    pub(in crate::furrow) fn is_listed_in_rows(&self) -> bool {
        self.listed != Listed::No && self.records.as_slice().is_empty()
    }

    /// What changes whenever a record is added.
    pub(in crate::furrow) fn owners_mark(&self) -> (usize, u32) {
        (self.records.as_slice().len(), self.next_owners)
    }
}

impl Zones {
    /// Notes whose a run of live blocks is from now on. They have changed the zone, so until its
    /// rows of owners have the record too, its own row says that it is not listed.
    pub(in crate::furrow) fn record_owner(&mut self, zone: u32, record: Backref) {
        self.slot_mut(zone).records.push(record);
        self.recorded.insert(zone);
    }

    /// A zone of which rows are to be made of records, since it is not written any more. At the end
    /// of a mount, any.
    pub(in crate::furrow) fn next_due(&self, ending: Ending) -> Option<Due> {
        let is_due = |slot: &ZoneSlot| match ending {
            Ending::Record => !matches!(slot.role, Role::Open(_)) && slot.in_flight == 0,
            Ending::Clean => true,
        };
        let is_made =
            |zone, slot| self.new_owners.get(zone).is_some_and(|new| new.are_all_of(slot));
        let mut slots = self.recorded.iter().map(|zone| (zone, self.slot(*zone)));
        let found =
            slots.find(|(zone, slot)| slot.live > 0 && is_due(slot) && !is_made(zone, slot));
        found.map(|(&zone, slot)| Due {
            zone,
            resets: slot.resets,
            records: slot.records.as_slice().to_vec(),
        })
    }

    /// Zones that have changed and in which nothing lives now: whatever was known of their owners
    /// is over.
    fn take_unlived(&mut self) -> Vec<u32> {
        let is_empty = |zone: &u32| self.slots[*zone as usize].live == 0;
        let zones: Vec<u32> = self.changed.iter().copied().filter(is_empty).collect();
        for &zone in &zones {
            let slot = self.slot_mut(zone);
            slot.listed = Listed::Yes;
            slot.records = Records::default();
            self.recorded.remove(&zone);
        }
        zones
    }

    /// Whether there are records in memory only.
    pub(in crate::furrow) fn has_records(&self) -> bool {
        !self.recorded.is_empty()
    }
}

/// Blocks of a zone that live, with their checksums: what a record leads to.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Piece {
    pub(in crate::furrow) owner: Owner,
    pub(in crate::furrow) block: u32,
    pub(in crate::furrow) crcs: Vec<u32>,
}

impl Piece {
    pub(in crate::furrow) fn blocks(&self) -> u32 {
        u32::try_from(self.crcs.len()).expect("inside a zone")
    }

    /// Whether another one follows it in the file.
    pub(in crate::furrow) fn is_before_in_file(&self, next: &Self) -> bool {
        match (self.owner, next.owner) {
            (Owner::Entry(ino, first), Owner::Entry(next, next_first)) => {
                ino == next && first + u64::from(self.blocks()) == next_first
            }
            (Owner::Extent(_), _) | (_, Owner::Extent(_)) => false,
        }
    }

    /// Whether another one follows it in file and zone.
    pub(in crate::furrow) fn goes_on_with(&self, next: &Self) -> bool {
        self.is_before_in_file(next) && self.block + self.blocks() == next.block
    }

    /// So many blocks of it behind the first `skip`, as a record; `None` for a part of a shared
    /// extent, which goes nowhere but as a whole.
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
    /// Counts the rows of owners that were made as part of the next batch, and returns them with
    /// their keys. Those of zones in which nothing lives any more are deleted.
    pub(in crate::furrow) fn add_owner_rows(&mut self) -> Vec<(Key, Value)> {
        let mut batch = Vec::new();
        let key = |zone: u32, at: u32| Key::new(RowKind::Backrefs, zone.into(), at.into());
        for zone in self.zones.take_unlived() {
            let slot = self.zones.slot_mut(zone);
            let bytes = std::mem::take(&mut slot.owner_bytes);
            batch
                .extend((0..std::mem::take(&mut slot.next_owners)).map(|at| (key(zone, at), None)));
            self.totals.remove_place_bytes(bytes.into());
        }
        for (zone, rows) in std::mem::take(&mut self.zones.new_owners) {
            let slot = self.zones.slot_mut(zone);
            if slot.live == 0 || !rows.are_all_of(slot) {
                continue;
            }
            slot.records = Records::default();
            for value in rows.values {
                let bytes = backrefs_bytes(value.len());
                batch.push((key(zone, slot.next_owners), Some(value)));
                slot.next_owners += 1;
                slot.owner_bytes += bytes;
                self.totals.add_place_bytes(bytes.into());
            }
            self.zones.recorded.remove(&zone);
            self.zones.changed.insert(zone);
        }
        batch
    }

    /// Whether something may live where a record of a zone says: what is not in memory is not
    /// looked at.
    pub(in crate::furrow) fn leads_somewhere(&self, zone: u32, record: &Backref) -> bool {
        self.pieces_at(zone, record).map_or(true, |pieces| !pieces.is_empty())
    }

    /// What still lives where a record of a zone says that it was put.
    pub(in crate::furrow) fn pieces_at(&self, zone: u32, record: &Backref) -> Lookup<Vec<Piece>> {
        match record.owner {
            Owner::Extent(id) => {
                let extent = self.extents.find(id)?;
                let extent =
                    extent.filter(|extent| (extent.zone, extent.block) == (zone, record.block));
                let crcs = extent.map(|extent| extent.crcs.as_slice().to_vec());
                let piece = |crcs| Piece { owner: record.owner, block: record.block, crcs };
                Ok(crcs.map(piece).into_iter().collect())
            }
            Owner::Entry(ino, first) => {
                let limit = first.saturating_add(u64::from(record.blocks));
                let file = self.stored_file(ino, first, limit)?;
                let entries = file.into_iter().flat_map(|file| file.overlapping(first, limit));
                let pieces = entries.filter_map(|(start, entry)| {
                    let (from, at, crcs) = overlap(zone, (first, limit), (start, entry))?;
                    let expected = u64::from(record.block) + (from - first);
                    let owner = Owner::Entry(ino, from);
                    (u64::from(at) == expected).then_some(Piece { owner, block: at, crcs })
                });
                Ok(pieces.collect())
            }
        }
    }

    /// A file, deleted or not, of which the map of `first..limit` is in memory; `None` if there is
    /// none.
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

    /// Moves what still lives of a copied part of a zone to the copy.
    pub(in crate::furrow) fn relocate_piece(
        &mut self,
        zone: u32,
        part: &Backref,
        (to, noted): ((u32, u32), Noted),
    ) -> Lookup<()> {
        for found in self.pieces_at(zone, part)? {
            let block = to.1 + (found.block - part.block);
            let to = Placed { zone: to.0, block, blocks: found.blocks() };
            self.relocate(found.owner, to, noted);
        }
        Ok(())
    }
}

/// What of file blocks `first..limit` a map entry has in a zone: the first file block, the first
/// zone block, and the checksums.
fn overlap(
    zone: u32,
    (first, limit): (u64, u64),
    (start, entry): (u64, &MapEntry),
) -> Option<(u64, u32, Vec<u32>)> {
    let MapEntry::At { zone: lies_in, block, crcs } = entry else { return None };
    let from = start.max(first);
    let to = limit.min(start + u64::from(entry.blocks()));
    let narrow = |blocks: u64| usize::try_from(blocks).expect("inside the entry");
    let crcs = &crcs.as_slice()[narrow(from - start)..narrow(to - start)];
    let skip = u32::try_from(from - start).expect("inside the entry");
    (*lies_in == zone).then(|| (from, block + skip, crcs.to_vec()))
}
