//! Writing the manifest of table and journal, and the superblock that leads to it.
//!
//! A manifest goes to both zones of the open pair and is flushed; then the superblock log gets a
//! record with its addresses. If the manifest cannot be written, the earlier one counts. If the
//! superblock's fate is unknown, no record is written to the journal before a manifest is durable.

use std::borrow::Cow;

use zerocopy::byteorder::little_endian::{U32, U64};

use crate::furrow::drive::Drive;
use crate::furrow::format::Address;
use crate::furrow::format::record::{PaddedRecord, RecordBuffer, RecordId, RecordKind};
use crate::furrow::format::superblock::ManifestPointer;
use crate::furrow::log::committer::Committer;
use crate::furrow::metadata::Ending;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::furrow::table::levels::Levels;
use crate::furrow::table::pairs::{Copies, MetaZones, Pairs};
use crate::vfs::Result;

/// A manifest that is being written. Each copy has a header of its own.
struct ManifestCopies {
    record: PaddedRecord,
    id: RecordId,
    crcs: [u32; 2],
}

impl Copies for ManifestCopies {
    fn blocks(&self) -> usize {
        self.record.blocks()
    }

    fn bytes_at(&mut self, at: [Address; 2]) -> [Cow<'_, [u8]>; 2] {
        let copies = at.map(|at| self.record.seal(&self.id, at));
        self.crcs = [copies[0].1, copies[1].1];
        copies.map(|(bytes, _)| Cow::Owned(bytes))
    }
}

impl Committer {
    /// Writes a manifest of these levels and of the journal, and a superblock that leads to it. The
    /// manifest gives an impaired journal a new pair of zones.
    pub(in crate::furrow) fn write_manifest(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        pairs: &mut Pairs,
        levels: &Levels,
        ending: Ending,
    ) -> Result<()> {
        let before = self.journal.clone();
        let (last, first_void) = (before.pairs.last().copied(), self.superblock.first_void);
        // With few active zones the journal pauses during a step and continues in other zones.
        let has_pause = drive.layout.few_open_pairs && self.journal.is_active();
        if self.journal.is_impaired() || has_pause {
            let blocks = self.manifest_blocks(levels);
            pairs.make_room(drive, zones, blocks)?;
            self.take_journal_pair(drive, zones)?;
        }
        let pointer = self.write_manifest_record(drive, zones, pairs, levels);
        let pointer = pointer.inspect_err(|_| {
            let old: Vec<u32> = before.zones().collect();
            for zone in self.journal.zones().filter(|zone| !old.contains(zone)) {
                zones.release(zone);
            }
            // Taking the pair may have finished its zones.
            self.journal = before;
            self.journal.failed = [true; 2];
        })?;
        self.superblock.manifest = pointer;
        // Void records lie in the last pair. If another follows it, the manifest ends it before
        // them.
        let is_renewed = self.journal.pairs.last().copied() != last;
        self.superblock.first_void = if is_renewed { U64::new(0) } else { first_void };
        // From here on the new journal counts, even if the superblock's fate is unknown: a record
        // in the old one could be lost with it. So none is written before a manifest is known to be
        // durable.
        self.is_unnamed = true;
        self.write_superblock(drive, ending)?;
        self.is_unnamed = false;
        Ok(())
    }

    /// Blocks of the next manifest, at most.
    fn manifest_blocks(&self, levels: &Levels) -> u32 {
        let mut manifest = levels.to_manifest();
        manifest.journal = self.journal.to_manifest();
        let mut record = RecordBuffer::new();
        manifest.encode(record.body());
        // One block more, for another pair of the journal.
        u32::try_from(record.pad().blocks()).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn write_manifest_record(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        pairs: &mut Pairs,
        levels: &Levels,
    ) -> Result<[ManifestPointer; 2]> {
        let mut manifest = levels.to_manifest();
        let journal = &self.journal;
        let header = &mut manifest.header;
        header.next_part = U64::new(self.table.next_part);
        header.last_batch = U64::new(journal.start.last);
        header.chain = U32::new(journal.start.chain);
        header.journal_block = U32::new(journal.start.block);
        mistake!(self, ForgetSweep, {
            let start = Levels::new().to_manifest().header;
            (header.sweep_turn, header.sweep_key) = (start.sweep_turn, start.sweep_key);
        });
        manifest.journal = journal.to_manifest();
        let mut record = RecordBuffer::new();
        manifest.encode(record.body());
        let id = RecordId {
            kind: RecordKind::Manifest,
            uuid: journal.uuid,
            continues: false,
            trails: false,
            seq: 0,
            prev: 0,
        };
        let mut copies = ManifestCopies { record: record.pad(), id, crcs: [0; 2] };
        let at = pairs.write(drive, zones, &mut copies)?;
        if !self.planted.has(PlantedBug::SuperblockBeforeManifest) {
            drive.flush()?;
        }
        self.table.manifest = at;
        let bytes = copies.record.record_bytes();
        let bytes = U32::new(u32::try_from(bytes).expect("a manifest is small"));
        Ok([0, 1].map(|copy| ManifestPointer {
            zone: U32::new(at[copy].zone),
            block: U32::new(at[copy].block),
            bytes,
            crc: U32::new(copies.crcs[copy]),
        }))
    }
}
