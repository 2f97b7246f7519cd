//! The checkpoint: every row in one sorted run, written twice, then a manifest, then a superblock.
//!
//! Order, with a flush at each arrow: run and manifest → superblock → old zones are reset. Until
//! the superblock is durable the old checkpoint and the old journal are whole.

use zerocopy::byteorder::little_endian::{U32, U64};
use zonal::DeviceError;

use super::Furrow;
use super::commit::{Committer, Ending};
use super::format::Address;
use super::format::manifest::{JournalZone, Manifest, ManifestHeader, PiecePointer};
use super::format::record::{PaddedRecord, RecordBuffer, RecordId, RecordKind};
use super::format::superblock::ManifestPointer;
use super::io::Drive;
use super::planted::{Planted, PlantedBug};
use super::state::State;
use crate::FsError;
use crate::vfs::Result;

/// Zones that may fail while one record is written.
const FAILURES_MAX: usize = 4;

/// Zones of the journal at most, per copy, so that a long one is not read for minutes at mount.
const JOURNAL_ZONES_MAX: u64 = 8;

/// Where checkpoints go.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckpointLog {
    /// Next place of each copy; `None`: a new zone.
    pub(super) next: [Option<Address>; 2],
    /// Zones with something of the current checkpoint.
    pub(super) zones: Vec<u32>,
}

impl CheckpointLog {
    /// Nothing of it is in these zones any more.
    fn forget(&mut self, zones: &[u32]) {
        self.zones.retain(|zone| !zones.contains(zone));
        for next in &mut self.next {
            *next = next.filter(|at| !zones.contains(&at.zone));
        }
    }
}

/// Everything of one moment, ready to be written.
pub(super) struct Image {
    pieces: Vec<RecordBuffer>,
    header: ManifestHeader,
    row_bytes: u64,
}

impl Image {
    /// Takes it. `last_batch` is the last batch whose changes are in it.
    pub(super) fn of(state: &State, drive: &Drive, planted: Planted) -> Self {
        let (pieces, rows) = super::rows::all_rows(state, drive.layout.piece_bytes, planted);
        let header = ManifestHeader {
            next_ino: U64::new(state.next_ino),
            next_extent: U64::new(state.next_extent),
            rows: U64::new(rows),
            data_clock: U64::new(state.totals.data_clock),
            ..ManifestHeader::default()
        };
        Self { pieces, header, row_bytes: state.totals.row_bytes }
    }
}

/// Gives zones to metadata: from the mounted state, or from an empty drive.
pub(super) trait MetaZones {
    /// A free zone.
    fn take(&mut self) -> Option<u32>;
    /// Zones that can be taken.
    fn available(&self) -> usize;
    /// A zone failed.
    fn fail(&mut self, zone: u32);
    /// The checkpoint is complete or given up. These zones hold nothing any more and have been
    /// reset.
    fn release(&mut self, zones: &[u32]);
}

/// Notes what is taken.
struct Taking<'a> {
    zones: &'a mut dyn MetaZones,
    taken: Vec<u32>,
}

impl MetaZones for Taking<'_> {
    fn take(&mut self) -> Option<u32> {
        let zone = self.zones.take();
        self.taken.extend(zone);
        zone
    }

    fn available(&self) -> usize {
        self.zones.available()
    }

    fn fail(&mut self, zone: u32) {
        self.zones.fail(zone);
    }

    fn release(&mut self, zones: &[u32]) {
        self.zones.release(zones);
    }
}

impl Committer {
    /// Writes a checkpoint and switches to it. The caller has flushed the data it refers to.
    pub(super) fn checkpoint(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        image: Image,
        ending: Ending,
    ) -> Result<()> {
        let mut before = std::mem::take(&mut self.checkpoints.zones);
        before.extend(self.journal.zones.iter().flat_map(|zones| zones.zone).map(U32::get));
        let epoch = self.journal.epoch;
        let mut taking = Taking { zones, taken: Vec::new() };
        let outcome = self.write_checkpoint(drive, &mut taking, (image, ending), &before);
        let mut garbage = before;
        if outcome.is_err() {
            // The old one is still current: its zones must not be taken for garbage. The new ones
            // are, unless a superblock that leads to them may have been written.
            let taken = std::mem::take(&mut taking.taken);
            self.checkpoints.zones.append(&mut garbage);
            if self.journal.epoch == epoch {
                garbage = taken;
                self.checkpoints.forget(&garbage);
            }
        }
        let mut released = Vec::new();
        garbage.sort_unstable();
        garbage.dedup();
        for zone in garbage.into_iter().filter(|zone| !self.is_in_use(*zone)) {
            match drive.reset(zone) {
                Ok(()) => released.push(zone),
                Err(error) => {
                    tracing::warn!(zone, %error, "an old metadata zone was not reset");
                    zones.fail(zone);
                }
            }
        }
        zones.release(&released);
        outcome
    }

    fn write_checkpoint(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        (image, ending): (Image, Ending),
        before: &[u32],
    ) -> Result<()> {
        let epoch = self.journal.epoch + 1;
        let uuid = self.journal.uuid;
        if drive.layout.few_active_zones {
            // Their two active zones are needed for the copies of the checkpoint.
            self.finish_journal(drive);
        }
        let (mut pieces, mut prev) = (Vec::new(), 0);
        for (seq, piece) in (0..).zip(image.pieces) {
            let mut record = piece.pad();
            let id = RecordId { kind: RecordKind::Run, uuid, epoch, seq, prev };
            let [first, second] = self.write_twice(drive, zones, &mut record, &id)?;
            prev = record.chain(prev);
            pieces.push(PiecePointer {
                zone: [U32::new(first.0.zone), U32::new(second.0.zone)],
                block: [U32::new(first.0.block), U32::new(second.0.block)],
                bytes: U32::new(u32::try_from(record.record_bytes()).expect("a piece is small")),
                chain: U32::new(prev),
            });
        }
        let journal = self.next_journal(drive, zones, image.row_bytes)?;
        // Until the switch they are the checkpoint's: given back with it if it fails.
        self.checkpoints
            .zones
            .extend(journal.zones.iter().flat_map(|zones| zones.zone).map(U32::get));
        let mut header = image.header;
        header.last_batch = U64::new(journal.last_batch);
        header.chain = U32::new(journal.chain);
        header.journal_block = journal.next.map(U32::new);
        let manifest = Manifest { header, pieces, journal: journal.zones.clone() };
        let mut record = RecordBuffer::new();
        manifest.encode(record.body());
        let mut record = record.pad();
        let id = RecordId { kind: RecordKind::Manifest, uuid, epoch, seq: 0, prev };
        let copies = self.write_twice(drive, zones, &mut record, &id)?;
        if !self.has_planted(PlantedBug::SuperblockBeforeCheckpoint) {
            drive.flush()?;
        }
        let bytes = U32::new(u32::try_from(record.record_bytes()).expect("a manifest is small"));
        self.superblock.manifest = copies.map(|(at, crc)| ManifestPointer {
            zone: U32::new(at.zone),
            block: U32::new(at.block),
            bytes,
            crc: U32::new(crc),
        });
        self.superblock.epoch = U64::new(epoch);
        self.superblock.clean = U32::new(u32::from(ending == Ending::Clean));
        // From here on the new journal counts, even if the superblock's fate is unknown: a
        // record in the old one could be lost with it.
        self.journal = journal;
        if self.has_planted(PlantedBug::ReleaseMetaEarly) {
            for &zone in before.iter().filter(|zone| !self.is_in_use(**zone)) {
                drive.reset(zone)?;
            }
        }
        self.superlog.write(drive, &self.superblock)?;
        if drive.layout.few_active_zones {
            for at in self.checkpoints.next.iter().flatten() {
                drive.finish(at.zone);
            }
            self.checkpoints.next = [None; 2];
        }
        Ok(())
    }

    /// The journal that follows the checkpoint: the rest of the present one if that is worth it.
    fn next_journal(
        &self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        row_bytes: u64,
    ) -> Result<super::journal::Journal> {
        let mut journal = self.journal.clone();
        journal.epoch += 1;
        journal.blocks = 0;
        let healthy =
            !drive.layout.few_active_zones && !journal.zones.is_empty() && !journal.is_impaired();
        if healthy && journal.room(drive) >= drive.layout.zone_blocks / 2 {
            journal.zones = journal.zones.split_off(journal.index);
            journal.index = 0;
            return Ok(journal);
        }
        // As long as the rows are many, so that a checkpoint is not written for every zone of
        // journal; but only from plenty.
        let zone_bytes = u64::from(drive.layout.zone_blocks) * 4096;
        let wanted = (1 + row_bytes / zone_bytes).min(JOURNAL_ZONES_MAX);
        let plenty = zones.available() > 8 * usize::try_from(wanted).unwrap_or(usize::MAX) + 32;
        let count = if plenty { wanted } else { 1 };
        let mut take = || zones.take().map(U32::new).ok_or(FsError::NoSpace);
        let taken: Result<Vec<JournalZone>> =
            (0..count).map(|_| Ok(JournalZone { zone: [take()?, take()?] })).collect();
        journal.zones = taken?;
        // Not before: without zones the old one may have to go on.
        self.finish_journal(drive);
        journal.index = 0;
        (journal.next, journal.failed) = ([0; 2], [false; 2]);
        Ok(journal)
    }

    /// Gives up the journal's active zones. What is in them stays readable.
    fn finish_journal(&self, drive: &Drive) {
        if let Some(zones) = self.journal.zones.get(self.journal.index) {
            for zone in zones.zone {
                drive.finish(zone.get());
            }
        }
    }

    /// Writes a record to both copies of the checkpoint log; returns where, and each `crc`.
    fn write_twice(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        record: &mut PaddedRecord,
        id: &RecordId,
    ) -> Result<[(Address, u32); 2]> {
        let mut copies = [(Address::default(), 0); 2];
        for (copy, written) in copies.iter_mut().enumerate() {
            *written = self.write_copy(drive, zones, copy, (&mut *record, id))?;
        }
        Ok(copies)
    }

    fn write_copy(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        copy: usize,
        (record, id): (&mut PaddedRecord, &RecordId),
    ) -> Result<(Address, u32)> {
        let blocks = u32::try_from(record.blocks()).unwrap_or(u32::MAX);
        let mut failures = 0;
        loop {
            let next = self.checkpoints.next[copy];
            let at = match next.filter(|at| drive.blocks_after(*at) >= blocks) {
                Some(at) => at,
                None => {
                    if let Some(full) = next {
                        drive.finish(full.zone);
                    }
                    Address { zone: zones.take().ok_or(FsError::NoSpace)?, block: 0 }
                }
            };
            let (bytes, crc) = record.seal(id, at);
            if !self.checkpoints.zones.contains(&at.zone) {
                self.checkpoints.zones.push(at.zone);
            }
            match drive.write(at, bytes) {
                Ok(()) => {
                    self.checkpoints.next[copy] =
                        Some(Address { zone: at.zone, block: at.block + blocks });
                    return Ok((at, crc));
                }
                Err(error) => {
                    tracing::warn!(zone = at.zone, %error, "a checkpoint write failed");
                    self.checkpoints.next[copy] = None;
                    failures += 1;
                    let is_final =
                        matches!(error, DeviceError::NoSpace { .. } | DeviceError::PowerCut);
                    if failures >= FAILURES_MAX || is_final {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Whether the current checkpoint or journal lies in a zone.
    fn is_in_use(&self, zone: u32) -> bool {
        let mut journal = self.journal.zones.iter().flat_map(|zones| zones.zone);
        self.checkpoints.zones.contains(&zone) || journal.any(|other| other.get() == zone)
    }

    /// Whether a mistake is switched on.
    pub(super) fn has_planted(&self, bug: PlantedBug) -> bool {
        self.planted.has(bug)
    }
}

/// Zones for metadata from a mounted file system.
pub(super) struct MountedZones<'a>(pub(super) &'a Furrow);

impl MetaZones for MountedZones<'_> {
    fn take(&mut self) -> Option<u32> {
        loop {
            let zone = self.0.write_accounts().zones.take_meta();
            if zone.is_some() || !self.0.reset_one() {
                return zone;
            }
        }
    }

    fn available(&self) -> usize {
        let zones = &self.0.read_state().zones;
        zones.free_count() + zones.reset_count()
    }

    fn fail(&mut self, zone: u32) {
        self.0.write_state().zones.fail(zone);
    }

    fn release(&mut self, zones: &[u32]) {
        let mut state = self.0.write_state();
        for &zone in zones {
            state.zones.release(zone);
        }
        state.zones.end_checkpoint();
    }
}
