//! The journal: batches of rows, in two copies, chained by checksum.
//!
//! The manifest names the journal's pairs of zones and the first batch of each. A record goes to
//! the same block of both zones of the last pair. If it does not fit there, or a copy has failed, a
//! small manifest names one more pair; that rewrites no row. A batch that is too long for one
//! record continues in the next, and counts only if all of it is there, with its [fresh
//! data](crate::furrow::log::fresh). A commit writes a batch only once the one before is durable,
//! so no batch follows one that a power cut has torn.
//!
//! Where a jump costs time, [the second copy trails](crate::furrow::log::trail).
//! [`replay`](crate::furrow::recovery::replay) reads the journal.

use zerocopy::byteorder::little_endian::{U32, U64};
use zonal::DeviceError;

use crate::furrow::drive::Drive;
use crate::furrow::format::manifest::JournalPair;
pub(in crate::furrow) use crate::furrow::format::position::Position;
use crate::furrow::format::record::{
    HEADER_BYTES, PaddedRecord, RecordHeader, RecordId, RecordKind, decode_header, verify,
};
use crate::furrow::format::{Address, BLOCK_BYTES, Unread, blocks_for};
use crate::furrow::log::trail::{TRAIL_BYTES_MAX, Trail};
use crate::furrow::options::Seeks;
use crate::vfs::Result;

/// A pair of zones with a copy of the journal each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct JournalZones {
    pub(in crate::furrow) zones: [u32; 2],
    /// Number of the first record in them.
    pub(in crate::furrow) first: u64,
}

/// The journal: its zones, its start and its end.
#[derive(Clone, Debug)]
pub(in crate::furrow) struct Journal {
    pub(in crate::furrow) uuid: [u8; 16],
    /// Its pairs, from the one where replay begins to the one that commits write.
    pub(in crate::furrow) pairs: Vec<JournalZones>,
    /// Where replay begins: in the first pair.
    pub(in crate::furrow) start: Position,
    /// Where the next record goes.
    pub(in crate::furrow) end: Position,
    /// Copies that take no more records, since a write has failed or a record is missing.
    pub(in crate::furrow) failed: [bool; 2],
    /// Records that the second copy lacks so far.
    pub(in crate::furrow) trail: Trail,
}

/// Whether a batch continues in the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// It ends with this record.
    None,
    /// It continues.
    Follows,
}

/// The outcome of an append to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is in at least one copy.
    Written,
    /// It fits nowhere: the journal needs another pair.
    NoRoom,
}

impl Journal {
    /// A journal without zones, of a file system without rows.
    pub(in crate::furrow) fn new(uuid: [u8; 16]) -> Self {
        let (start, end) = (Position::default(), Position::default());
        let (pairs, failed, trail) = (Vec::new(), [true; 2], Trail::default());
        Self { uuid, pairs, start, end, failed, trail }
    }

    /// Writes a record to both copies, or to the first one and the trail. It is not durable before
    /// the next flush.
    pub(super) fn append(
        &mut self,
        drive: &Drive,
        record: &PaddedRecord,
        rest: Continuation,
    ) -> Result<Appended> {
        let blocks = u32::try_from(record.blocks()).unwrap_or(u32::MAX);
        if self.room(drive) < blocks {
            return Ok(Appended::NoRoom);
        }
        let is_short = record.blocks() * BLOCK_BYTES <= TRAIL_BYTES_MAX;
        if !is_short {
            self.catch_up(drive);
        }
        let trails = drive.layout.seeks == Seeks::Cost && !self.is_impaired() && is_short;
        let id = RecordId {
            kind: RecordKind::Batch,
            uuid: self.uuid,
            continues: rest == Continuation::Follows,
            trails,
            seq: self.end.last + 1,
            prev: self.end.chain,
        };
        let at = self.pairs[self.end.index].zones;
        let at = at.map(|zone| Address { zone, block: self.end.block });
        let seal = |copy: usize| record.seal(&id, at[copy]).0;
        let outcomes = match self.failed {
            [false, false] if trails => self.append_first(drive, at, [seal(0), seal(1)]),
            [false, false] => drive.write_copies(at, [&seal(0), &seal(1)]).map(Some),
            [false, true] => [Some(drive.write(at[0], &seal(0))), None],
            [true, _] => [None, Some(drive.write(at[1], &seal(1)))],
        };
        let is_written = outcomes.iter().flatten().any(std::result::Result::is_ok);
        for (copy, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                None | Some(Ok(())) => {}
                // No fault of the zone's, and both are as they were before.
                Some(Err(error @ DeviceError::NoSpace { .. })) if !is_written => {
                    return Err(error.into());
                }
                Some(Err(error)) => {
                    tracing::warn!(zone = at[copy].zone, %error, "a copy of the journal has failed");
                    self.failed[copy] = true;
                }
            }
        }
        if !is_written {
            return Ok(Appended::NoRoom);
        }
        self.end.block += blocks;
        self.end.last += 1;
        self.end.chain = record.chain(self.end.chain);
        self.end.blocks += u64::from(blocks);
        Ok(Appended::Written)
    }

    /// Whether a copy has failed: the next manifest gives the journal another pair then.
    pub(in crate::furrow) fn is_impaired(&self) -> bool {
        self.failed.contains(&true)
    }

    /// Goes on in a pair of empty zones. A manifest must name it before it is written.
    pub(super) fn push_pair(&mut self, zones: [u32; 2]) {
        debug_assert!(!self.has_trail(), "the pair before is finished");
        // Drops pairs whose records were all rolled back.
        while self.pairs.pop_if(|pair| pair.first > self.end.last).is_some() {}
        if self.is_in_table() {
            self.pairs.clear();
        }
        if self.pairs.is_empty() {
            self.start = Position { index: 0, block: 0, ..self.end };
        }
        self.pairs.push(JournalZones { zones, first: self.end.last + 1 });
        self.end = Position { index: self.pairs.len() - 1, block: 0, ..self.end };
        self.failed = [false; 2];
    }

    /// Whether the table has all its rows.
    pub(super) fn is_in_table(&self) -> bool {
        self.start.last == self.end.last
    }

    /// Gives up all pairs. The table has all rows, so the next pair can be taken when the zones of
    /// these are free.
    pub(super) fn give_up_pairs(&mut self) {
        assert!(self.is_in_table(), "no row is in these pairs only");
        self.pairs.clear();
        self.end = Position { index: 0, block: 0, ..self.end };
        self.start = self.end;
        self.failed = [true; 2];
    }

    /// Rolls back the records after `end`, which may not be durable: the next record takes their
    /// number, in another pair.
    pub(in crate::furrow) fn roll_back(&mut self, end: Position) {
        self.end = end;
        self.failed = [true; 2];
        self.trail = Trail::default();
    }

    /// Makes replay begin at `start`, and drops the pairs before it.
    pub(super) fn begin_at(&mut self, start: Position) {
        self.pairs.drain(..start.index);
        self.end.index -= start.index;
        self.start = Position { index: 0, ..start };
    }

    /// Whether its zones are active.
    pub(super) fn is_active(&self) -> bool {
        self.end.block > 0
    }

    /// Blocks that a mount would replay, per copy.
    pub(super) fn blocks(&self) -> u64 {
        self.end.blocks - self.start.blocks
    }

    /// Blocks left in the last pair.
    pub(super) fn room(&self, drive: &Drive) -> u32 {
        let Some(pair) = self.pairs.get(self.end.index) else { return 0 };
        if self.failed == [true; 2] {
            return 0;
        }
        drive.blocks_after(Address { zone: pair.zones[0], block: self.end.block })
    }

    /// Finishes both zones of the pair that is being written. Their records stay readable.
    pub(super) fn finish(&mut self, drive: &Drive) {
        self.catch_up(drive);
        self.trail = Trail::default();
        for zone in self.pairs.get(self.end.index).into_iter().flat_map(|pair| pair.zones) {
            drive.finish(zone);
        }
    }

    /// Finishes its active zones, if it has any. The next manifest gives it another pair then.
    pub(super) fn close(&mut self, drive: &Drive) {
        if self.is_active() {
            self.finish(drive);
            self.failed = [true; 2];
        }
    }

    /// Its pairs, for a manifest.
    pub(super) fn to_manifest(&self) -> Vec<JournalPair> {
        let pair = |pair: &JournalZones| JournalPair {
            zone: pair.zones.map(U32::new),
            first_batch: U64::new(pair.first),
        };
        self.pairs.iter().map(pair).collect()
    }

    /// Its zones.
    pub(in crate::furrow) fn zones(&self) -> impl Iterator<Item = u32> {
        self.pairs.iter().flat_map(|pair| pair.zones)
    }
}

/// Whether to believe a record's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum Trust {
    /// Compare them.
    Verify,
    /// Do not: a planted bug.
    Blind,
}

/// Reads and verifies a record of any kind: its header and its body.
pub(in crate::furrow) fn read_record(
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
pub(in crate::furrow) fn first_valid<T>(
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
