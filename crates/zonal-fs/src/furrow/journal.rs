//! The journal: batches of rows, in two copies, chained by checksum.
//!
//! The manifest names the journal's zones. The writer goes on to the next one when a record does
//! not fit, with both copies at once; when there is none left, or when both copies have failed, the
//! commit becomes a checkpoint. The reader follows the chain, takes each record from whichever copy
//! has it, and stops where neither has the next.

use zerocopy::byteorder::little_endian::U32;

use super::format::manifest::{JournalZone, Manifest};
use super::format::record::{
    HEADER_BYTES, PaddedRecord, RecordHeader, RecordId, RecordKind, decode_header, verify,
};
use super::format::{Address, BLOCK_BYTES, blocks_for};
use super::io::Drive;
use super::planted::PlantedBug;
use crate::vfs::Result;

/// Where the journal goes on.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    pub(super) uuid: [u8; 16],
    /// Epoch of the current superblock.
    pub(super) epoch: u64,
    pub(super) zones: Vec<JournalZone>,
    /// Which of `zones` is written.
    pub(super) index: usize,
    /// Next block of each copy; `None` for a copy that has failed.
    pub(super) next: [Option<u32>; 2],
    /// Chain value of the last record.
    pub(super) chain: u32,
    /// Number of the last batch.
    pub(super) last_batch: u64,
    /// Blocks written since the checkpoint, per copy.
    pub(super) blocks: u64,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is in at least one copy.
    Written,
    /// It fits nowhere: a checkpoint must take its place.
    NoRoom,
}

impl Journal {
    /// Writes a batch to both copies. It is not durable before the next flush.
    pub(super) fn append(&mut self, drive: &Drive, record: &mut PaddedRecord) -> Appended {
        let blocks = u32::try_from(record.blocks()).unwrap_or(u32::MAX);
        if !self.make_room(drive, blocks) {
            return Appended::NoRoom;
        }
        let id = RecordId {
            kind: RecordKind::Batch,
            uuid: self.uuid,
            epoch: self.epoch,
            seq: self.last_batch + 1,
            prev: self.chain,
        };
        let zones = self.zones[self.index];
        for copy in 0..2 {
            let Some(block) = self.next[copy] else { continue };
            let at = Address { zone: zones.zone[copy].get(), block };
            let (bytes, _) = record.seal(&id, at);
            self.next[copy] = match drive.write(at, bytes) {
                Ok(()) => Some(block + blocks),
                Err(error) => {
                    tracing::warn!(zone = at.zone, %error, "a copy of the journal has failed");
                    None
                }
            };
        }
        if self.next == [None; 2] {
            return Appended::NoRoom;
        }
        self.last_batch += 1;
        self.chain = record.chain(self.chain);
        self.blocks += u64::from(blocks);
        Appended::Written
    }

    /// Whether a copy has failed: a checkpoint gives the journal two new ones.
    pub(super) fn is_impaired(&self) -> bool {
        self.next.contains(&None)
    }

    /// Whether the current zones have room, or the next ones once moved to.
    fn make_room(&mut self, drive: &Drive, blocks: u32) -> bool {
        if self.next == [None; 2] {
            return false;
        }
        if self.room(drive) >= blocks {
            return true;
        }
        // A copy that failed stays failed: its successor zone would begin behind a hole.
        let fits = blocks <= drive.layout.zone_blocks;
        if !fits || self.is_impaired() || self.index + 1 >= self.zones.len() {
            return false;
        }
        let full = self.zones[self.index];
        for zone in full.zone {
            drive.finish(zone.get());
        }
        self.index += 1;
        self.next = [Some(0); 2];
        true
    }

    /// Blocks left in the current zone of the fuller copy.
    pub(super) fn room(&self, drive: &Drive) -> u32 {
        let zones = self.zones[self.index];
        (0..2)
            .filter_map(|copy| {
                let zone = zones.zone[copy].get();
                self.next[copy].map(|block| drive.blocks_after(Address { zone, block }))
            })
            .min()
            .unwrap_or(0)
    }
}

/// A batch found by [`Reader`].
pub(super) struct Batch {
    pub(super) seq: u64,
    pub(super) body: Vec<u8>,
    /// The copies it was found in, and where.
    pub(super) at: [Option<Address>; 2],
}

/// Reads the journal from the checkpoint on.
pub(super) struct Reader<'a> {
    drive: &'a Drive,
    journal: Journal,
    planted: Option<PlantedBug>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        drive: &'a Drive,
        (uuid, epoch): ([u8; 16], u64),
        manifest: &Manifest,
        planted: Option<PlantedBug>,
    ) -> Self {
        let header = &manifest.header;
        let journal = Journal {
            uuid,
            epoch,
            zones: manifest.journal.clone(),
            index: 0,
            next: header.journal_block.map(|block| Some(block.get())),
            chain: header.chain.get(),
            last_batch: header.last_batch.get(),
            blocks: 0,
        };
        Self { drive, journal, planted }
    }

    /// Where the journal ends: where the next record goes, once `next` has returned `None`.
    pub(super) fn into_journal(self) -> Journal {
        self.journal
    }

    /// The next batch, or `None` at the first break.
    pub(super) fn next(&mut self) -> Option<Batch> {
        if let Some(batch) = self.next_in_zone() {
            return Some(batch);
        }
        if self.journal.index + 1 >= self.journal.zones.len() {
            return None;
        }
        let before = (self.journal.index, self.journal.next);
        self.journal.index += 1;
        self.journal.next = [Some(0); 2];
        let batch = self.next_in_zone();
        if batch.is_none() {
            (self.journal.index, self.journal.next) = before;
        }
        batch
    }

    fn next_in_zone(&mut self) -> Option<Batch> {
        let zones = self.journal.zones[self.journal.index];
        let mut found: Option<(RecordHeader, Vec<u8>)> = None;
        let mut at = [None; 2];
        let mut next = self.journal.next;
        for copy in 0..2 {
            let Some(block) = self.journal.next[copy] else { continue };
            let here = Address { zone: zones.zone[copy].get(), block };
            if let Some((header, body)) = self.read(here) {
                at[copy] = Some(here);
                let blocks = blocks_for(HEADER_BYTES + body.len());
                next[copy] =
                    u32::try_from(blocks).ok().and_then(|blocks| block.checked_add(blocks));
                found = found.or(Some((header, body)));
            } else {
                next[copy] = None;
            }
        }
        let (header, body) = found?;
        self.journal.next = next;
        self.journal.chain = header.chain.get();
        self.journal.last_batch = header.seq.get();
        self.journal.blocks += blocks_for(HEADER_BYTES + body.len()) as u64;
        Some(Batch { seq: header.seq.get(), body, at })
    }

    /// The record at `at`, if it continues the journal.
    fn read(&self, at: Address) -> Option<(RecordHeader, Vec<u8>)> {
        let is_planted = self.planted == Some(PlantedBug::SkipRecordChecksum);
        let trust = if is_planted { Trust::Blind } else { Trust::Verify };
        let (header, body) = read_record(self.drive, at, RecordKind::Batch, trust).ok()?;
        let journal = &self.journal;
        let belongs = header.uuid == journal.uuid
            && header.epoch.get() == journal.epoch
            && header.seq.get() == journal.last_batch + 1
            && header.prev == U32::new(journal.chain);
        (belongs || self.planted == Some(PlantedBug::SkipChain)).then_some((header, body))
    }
}

/// Whether to believe a record's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Compare them.
    Verify,
    /// Do not: a planted bug.
    Blind,
}

/// Reads and verifies a record of any kind: its header and its body.
pub(super) fn read_record(
    drive: &Drive,
    at: Address,
    kind: RecordKind,
    trust: Trust,
) -> std::result::Result<(RecordHeader, Vec<u8>), String> {
    if drive.blocks_after(at) == 0 {
        return Err("beyond the zone's end".into());
    }
    let read = |bytes| drive.read_bytes(at, bytes).map_err(|error| error.to_string());
    let head = read(BLOCK_BYTES)?;
    let header = decode_header(&head, kind, at)?;
    let bytes = HEADER_BYTES + header.body_bytes.get() as usize;
    if blocks_for(bytes) > drive.blocks_after(at) as usize {
        return Err(format!("{bytes} bytes, more than its zone holds"));
    }
    let mut record = if bytes <= head.len() { head } else { read(bytes)? };
    record.truncate(bytes);
    if trust == Trust::Verify {
        verify(&record, &header)?;
    }
    record.drain(..HEADER_BYTES);
    Ok((header, record))
}

/// Reads one copy of something that has two.
pub(super) fn first_valid<T>(
    copies: [Address; 2],
    what: &'static str,
    read: impl Fn(Address) -> std::result::Result<T, String>,
) -> Result<T> {
    let mut reasons = Vec::new();
    for at in copies {
        match read(at) {
            Ok(value) => return Ok(value),
            Err(why) => reasons.push(format!("zone {} block {}: {why}", at.zone, at.block)),
        }
    }
    Err(crate::FsError::Corrupt { what, why: reasons.join("; ") })
}
