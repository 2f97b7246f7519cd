//! Back-references of zones: the way back from a block of a zone to the place in a file that uses
//! it.
//!
//! A record says to whom a run of blocks was given. It stays when the blocks die, and when a map
//! entry is cut, split or joined: blocks of one run have the same distances in the file as in the
//! zone. So a record is a hint, and a reader of it looks the place up in the map
//! ([`relocation`](crate::furrow::metadata::state::relocation)). The invariant: each live block of
//! a zone whose owners are *listed* has a record that leads to its owner.
//!
//! Records of a zone that is being written stay in memory. Once the zone is sealed, the worker
//! encodes them as rows, and the next batch writes those; later records become further rows. A zone
//! in which nothing lives has none. After a crash the owners of a zone that was being written are
//! not listed; if such a zone becomes a victim, a [scan](crate::furrow::reclaim::backref_scan)
//! finds them.

use crate::furrow::format::backref::{Backref, Owner};
use crate::furrow::format::key::{Key, RowKind};
use crate::furrow::format::row::backrefs_bytes;
use crate::furrow::zones::{Listed, Role, ZoneSlot, Zones};
use crate::vfs::Ino;

/// Back-references of a zone in memory, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Records(Vec<Backref>);

impl Records {
    /// Adds one, or makes the last one longer.
    pub(super) fn push(&mut self, record: Backref) {
        if let Some(last) = self.0.last_mut()
            && let Some(joined) = last.joined(&record)
        {
            *last = joined;
        } else {
            self.0.push(record);
        }
    }

    pub(in crate::furrow) fn as_slice(&self) -> &[Backref] {
        &self.0
    }
}

/// Merges records that say the same or continue each other, and sorts all by their blocks.
pub(in crate::furrow) fn merge_sorted(records: &mut Vec<Backref>) {
    let key = |record: &Backref| match record.owner {
        Owner::Entry(ino, _) => (ino, record.distance(), record.block),
        Owner::Extent(id) => (Ino::default(), id.0, record.block),
    };
    records.sort_unstable_by_key(key);
    records.dedup_by(|next, last| match last.joined(next) {
        Some(joined) => {
            *last = joined;
            true
        }
        None => false,
    });
    records.sort_unstable_by_key(|record| (record.block, record.owner));
}

/// A moment in the life of a zone's records: it differs once some were added, or the zone was
/// reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct RecordsMark {
    resets: u32,
    count: usize,
    /// The last record, which may get longer.
    last: Option<Backref>,
}

/// Records of a zone that are to become rows.
pub(in crate::furrow) struct DueRecords {
    pub(in crate::furrow) zone: u32,
    pub(in crate::furrow) mark: RecordsMark,
    pub(in crate::furrow) records: Vec<Backref>,
}

/// Which zones get rows of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum DueZones {
    /// Zones that are no longer written.
    Closed,
    /// All, since the mount ends.
    All,
}

/// Encoded records of a zone, which the next batch writes if no others come before it.
#[derive(Debug)]
pub(super) struct EncodedRecords {
    mark: RecordsMark,
    values: Vec<Box<[u8]>>,
}

/// Rows of back-references that belong to a batch: those without a value are deleted.
pub(in crate::furrow) struct BackrefRows {
    pub(in crate::furrow) rows: Vec<(Key, Option<Box<[u8]>>)>,
    /// Bytes of the new rows.
    pub(in crate::furrow) added_bytes: u64,
    /// Bytes of the deleted ones.
    pub(in crate::furrow) removed_bytes: u64,
}

impl ZoneSlot {
    /// Whether its rows of back-references, without the records in memory, name all that lives in
    /// it.
    pub(in crate::furrow) fn is_listed_in_rows(&self) -> bool {
        matches!(self.listed, Listed::Yes | Listed::Searched) && self.records.as_slice().is_empty()
    }

    /// A pair of numbers that changes whenever a record is added.
    pub(in crate::furrow) fn owners_mark(&self) -> (usize, u32) {
        (self.records.as_slice().len(), self.next_owners)
    }

    fn records_mark(&self) -> RecordsMark {
        let records = self.records.as_slice();
        RecordsMark { resets: self.resets, count: records.len(), last: records.last().copied() }
    }
}

impl Zones {
    /// Records whose a run of live blocks is from now on. They have changed the zone, so until its
    /// rows have the record too, its own row says that it is not listed.
    pub(in crate::furrow) fn record_owner(&mut self, zone: u32, record: Backref) {
        self.slot_mut(zone).records.push(record);
        self.recorded.insert(zone);
    }

    /// A zone whose records are to become rows, and have not been encoded.
    pub(in crate::furrow) fn next_due(&self, which: DueZones) -> Option<DueRecords> {
        let is_due = |slot: &ZoneSlot| match which {
            DueZones::Closed => !matches!(slot.role, Role::Open(_)) && slot.in_flight == 0,
            DueZones::All => true,
        };
        let is_encoded = |zone, slot: &ZoneSlot| {
            self.encoded.get(zone).is_some_and(|encoded| encoded.mark == slot.records_mark())
        };
        let mut slots = self.recorded.iter().map(|zone| (zone, self.slot(*zone)));
        let found =
            slots.find(|(zone, slot)| slot.live > 0 && is_due(slot) && !is_encoded(zone, slot));
        found.map(|(&zone, slot)| DueRecords {
            zone,
            mark: slot.records_mark(),
            records: slot.records.as_slice().to_vec(),
        })
    }

    /// Has the next batch write these rows, unless the zone gets records that they lack.
    pub(in crate::furrow) fn add_encoded(
        &mut self,
        zone: u32,
        mark: RecordsMark,
        values: Vec<Box<[u8]>>,
    ) {
        self.encoded.insert(zone, EncodedRecords { mark, values });
    }

    /// Whether there are records in memory only.
    pub(in crate::furrow) fn has_records(&self) -> bool {
        !self.recorded.is_empty()
    }

    /// Takes the rows that were encoded for the next batch. Rows of zones in which nothing lives
    /// any more are deleted.
    pub(in crate::furrow) fn take_backref_rows(&mut self) -> BackrefRows {
        let key = |zone: u32, at: u32| Key::new(RowKind::Backrefs, zone.into(), at.into());
        let mut taken = BackrefRows { rows: Vec::new(), added_bytes: 0, removed_bytes: 0 };
        for zone in self.take_unlived() {
            let slot = self.slot_mut(zone);
            let rows = std::mem::take(&mut slot.next_owners);
            taken.removed_bytes += u64::from(std::mem::take(&mut slot.owner_bytes));
            taken.rows.extend((0..rows).map(|at| (key(zone, at), None)));
        }
        for (zone, encoded) in std::mem::take(&mut self.encoded) {
            let slot = self.slot_mut(zone);
            if slot.live == 0 || encoded.mark != slot.records_mark() {
                continue;
            }
            slot.records = Records::default();
            for value in encoded.values {
                let bytes = backrefs_bytes(value.len());
                taken.rows.push((key(zone, slot.next_owners), Some(value)));
                slot.next_owners += 1;
                slot.owner_bytes += bytes;
                taken.added_bytes += u64::from(bytes);
            }
            self.recorded.remove(&zone);
            self.changed.insert(zone);
        }
        taken
    }

    /// Zones that have changed and have no live blocks now: their back-references are void.
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
}

impl Backref {
    /// At most `blocks` blocks of it, behind the first `skip`. A shared extent stays whole.
    pub(in crate::furrow) fn part(&self, skip: u32, blocks: u32) -> Self {
        match self.owner {
            Owner::Extent(_) => *self,
            Owner::Entry(ino, first) => Self {
                owner: Owner::Entry(ino, first + u64::from(skip)),
                block: self.block + skip,
                blocks: blocks.min(self.blocks - skip),
            },
        }
    }

    /// Both as one, if `next` says the same or goes on where this ends.
    fn joined(&self, next: &Self) -> Option<Self> {
        let (owners, blocks) = ((self.owner, next.owner), (self.block, next.block));
        let is_same = match owners {
            (Owner::Extent(id), Owner::Extent(next)) => id == next && blocks.0 == blocks.1,
            (Owner::Entry(ino, _), Owner::Entry(next_ino, _)) => {
                ino == next_ino
                    && self.distance() == next.distance()
                    && (self.block..=self.end()).contains(&next.block)
            }
            (Owner::Extent(_), Owner::Entry(..)) | (Owner::Entry(..), Owner::Extent(_)) => false,
        };
        let end = self.end().max(next.end());
        is_same.then(|| Self { blocks: end - self.block, ..*self })
    }

    /// A key that is equal for blocks of one run: how far they lie apart in file and zone.
    fn distance(&self) -> u64 {
        match self.owner {
            Owner::Entry(_, first) => first.wrapping_sub(u64::from(self.block)),
            Owner::Extent(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::backref::ExtentId;

    fn of_file(ino: u64, first: u64, block: u32, blocks: u32) -> Backref {
        Backref { owner: Owner::Entry(Ino::new(ino), first), block, blocks }
    }

    fn of_extent(id: u64, block: u32, blocks: u32) -> Backref {
        Backref { owner: Owner::Extent(ExtentId(id)), block, blocks }
    }

    #[test]
    fn backref_of_ordered_writes_is_one_record() {
        let mut records = Records::default();
        (0..100).for_each(|turn| records.push(of_file(7, u64::from(turn) * 4, 10 + turn * 4, 4)));
        assert_eq!(records.as_slice(), [of_file(7, 0, 10, 400)]);
        records.push(of_file(7, 0, 410, 4));
        records.push(of_file(8, 4, 414, 4));
        assert_eq!(records.as_slice().len(), 3, "another place, another file");
    }

    #[test]
    fn backref_merge_joins_equals_only() {
        let mut records = vec![
            of_file(7, 20, 120, 5),
            of_file(9, 0, 3, 1),
            of_extent(7, 100, 8),
            of_file(7, 0, 100, 10),
            of_file(7, 5, 105, 15),
            of_file(7, 2, 50, 3),
            of_extent(7, 100, 8),
            of_extent(8, 100, 8),
            of_file(7, 26, 126, 1),
        ];
        merge_sorted(&mut records);
        let expected = [
            of_file(9, 0, 3, 1),
            of_file(7, 2, 50, 3),
            of_file(7, 0, 100, 25),
            of_extent(7, 100, 8),
            of_extent(8, 100, 8),
            of_file(7, 26, 126, 1),
        ];
        assert_eq!(records, expected);
    }

    #[test]
    fn backref_part_is_part_of_file() {
        let record = of_file(7, 10, 100, 8);
        assert_eq!(record.part(3, 2), of_file(7, 13, 103, 2));
        assert_eq!(record.part(3, 50), of_file(7, 13, 103, 5));
        assert_eq!(of_extent(7, 100, 8).part(3, 2), of_extent(7, 100, 8), "stays whole");
    }
}
