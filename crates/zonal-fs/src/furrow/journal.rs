//! The journal: batches of rows, in two copies, chained by checksum.
//!
//! The manifest names the journal's zones. The writer goes on to the next one when a record does
//! not fit, with both copies at once; when there is none left, or when both copies have failed, the
//! commit becomes a checkpoint. No record is written before the one before it is durable, so behind
//! one that a power cut has torn there is none. [`replay`](super::replay) reads the journal.

use super::format::manifest::JournalZone;
use super::format::record::{
    HEADER_BYTES, PaddedRecord, RecordHeader, RecordId, RecordKind, decode_header, verify,
};
use super::format::{Address, BLOCK_BYTES, blocks_for};
use super::io::Drive;
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
    /// Block of the next record in each copy.
    pub(super) next: [u32; 2],
    /// Copies that take no more records: a write has failed, or a record is missing.
    pub(super) failed: [bool; 2],
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
            if self.failed[copy] {
                continue;
            }
            let at = Address { zone: zones.zone[copy].get(), block: self.next[copy] };
            let (bytes, _) = record.seal(&id, at);
            if let Err(error) = drive.write(at, bytes) {
                tracing::warn!(zone = at.zone, %error, "a copy of the journal has failed");
                self.failed[copy] = true;
            }
            self.next[copy] += blocks;
        }
        if self.failed == [true; 2] {
            return Appended::NoRoom;
        }
        self.last_batch += 1;
        self.chain = record.chain(self.chain);
        self.blocks += u64::from(blocks);
        Appended::Written
    }

    /// Whether a copy has failed: a checkpoint gives the journal two new ones.
    pub(super) fn is_impaired(&self) -> bool {
        self.failed.contains(&true)
    }

    /// Whether the current zones have room, or the next ones once moved to.
    fn make_room(&mut self, drive: &Drive, blocks: u32) -> bool {
        if self.failed == [true; 2] {
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
        self.next = [0; 2];
        true
    }

    /// Blocks left in the current zone of the fuller copy.
    pub(super) fn room(&self, drive: &Drive) -> u32 {
        let zones = self.zones[self.index];
        (0..2)
            .filter(|&copy| !self.failed[copy])
            .map(|copy| {
                let (zone, block) = (zones.zone[copy].get(), self.next[copy]);
                drive.blocks_after(Address { zone, block })
            })
            .min()
            .unwrap_or(0)
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

/// Why a record could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The device does not give its blocks back.
    Device(String),
    /// They hold something else.
    Wrong(String),
}

impl From<Unread> for String {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Device(why) | Unread::Wrong(why) => why,
        }
    }
}

/// Reads and verifies a record of any kind: its header and its body.
pub(super) fn read_record(
    drive: &Drive,
    at: Address,
    kind: RecordKind,
    trust: Trust,
) -> std::result::Result<(RecordHeader, Vec<u8>), Unread> {
    if drive.blocks_after(at) == 0 {
        return Err(Unread::Wrong("beyond the zone's end".into()));
    }
    let read =
        |bytes| drive.read_bytes(at, bytes).map_err(|error| Unread::Device(error.to_string()));
    let head = read(BLOCK_BYTES)?;
    let header = decode_header(&head, kind, at).map_err(Unread::Wrong)?;
    let bytes = HEADER_BYTES + header.body_bytes.get() as usize;
    if blocks_for(bytes) > drive.blocks_after(at) as usize {
        return Err(Unread::Wrong(format!("{bytes} bytes, more than its zone holds")));
    }
    let mut record = if bytes <= head.len() { head } else { read(bytes)? };
    record.truncate(bytes);
    if trust == Trust::Verify {
        verify(&record, &header).map_err(Unread::Wrong)?;
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
