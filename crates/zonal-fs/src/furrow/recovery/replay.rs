//! Replay: reads each batch of the journal from whichever copy has it, up to the end.
//!
//! If neither copy has the next record, that is either the end or a loss. It is the end if nothing
//! is written there, or only the torn rest of a record that was never acknowledged. It is a loss if
//! the device does not return the blocks, or if a later record can be read: the writer makes each
//! record durable before it writes the next. Replay never takes a loss for a torn record. If the
//! data of the newest batch is not there, that batch was never acknowledged, and counts as torn.
//! Records that one recovery has rejected do not count for a later one: the superblock says where
//! these begin, before the recovery changes anything else on the drive.
//!
//! A finished zone reads as zeroes behind its last record.

use zerocopy::byteorder::little_endian::U32;
use zonal::{Zone, ZoneCond};

use crate::furrow::drive::{Drive, is_zero};
use crate::furrow::format::batch::{FreshZone, take_fresh};
use crate::furrow::format::manifest::Manifest;
use crate::furrow::format::record::{HEADER_BYTES, RecordHeader, RecordKind, decode_header};
use crate::furrow::format::superblock::Superblock;
use crate::furrow::format::{Address, BLOCK_BYTES, Unread, blocks_for};
use crate::furrow::log::fresh::FreshData;
use crate::furrow::log::journal::{Journal, JournalZones, Position, Trust, read_record};
use crate::furrow::log::trail::Trail;
use crate::furrow::planted::{Planted, mistake};

/// Blocks that one read of the search for later records returns: 1 MiB.
const SEARCH_BLOCKS: u32 = 256;

/// Zero blocks after which the search in a finished zone ends: 16 MiB.
const ZERO_BLOCKS_MAX: u32 = 4096;

/// A batch found by [`JournalReader`].
pub(in crate::furrow) struct Batch {
    /// Number of its last record.
    pub(in crate::furrow) seq: u64,
    /// Rows of each of its records.
    pub(in crate::furrow) bodies: Vec<Vec<u8>>,
    /// Where data begins that may not have been durable before the batch.
    pub(super) fresh: Vec<FreshZone>,
    /// The copies that have all of it.
    pub(super) is_in: [bool; 2],
    /// The second copy lacks records of it only where it ends, as these records say that it may.
    pub(super) trails: bool,
}

/// Reads the journal from where the table ends.
pub(in crate::furrow) struct JournalReader<'a> {
    drive: &'a Drive,
    zones: &'a [Zone],
    journal: Journal,
    /// The end of the last whole batch.
    whole: Position,
    /// The end of the one before.
    before: Position,
    /// The last batch that the superblock knows to be durable.
    durable: u64,
    /// Whether the file system was unmounted after that batch.
    is_clean: bool,
    /// The first record that an earlier recovery has rejected, if one has.
    first_void: Option<u64>,
    pub(super) planted: Planted,
}

/// A record that was read.
struct Record {
    header: RecordHeader,
    body: Vec<u8>,
}

/// A record and the copies that have it.
struct FoundRecord {
    record: Record,
    is_in: [bool; 2],
    /// The second copy ends before the end of the record, or reads as the rest of a finished zone.
    second_ends: bool,
}

/// The content of a copy of the journal where the next record should be.
enum RecordSlot {
    /// That record.
    Record(Record),
    /// Nothing that could be that record.
    Nothing,
    /// Written blocks that the device does not return.
    Unreadable(String),
}

impl<'a> JournalReader<'a> {
    /// A reader for a drive with these `zones`, and a journal that begins where the manifest says.
    pub(in crate::furrow) fn new(
        drive: &'a Drive,
        zones: &'a [Zone],
        superblock: &Superblock,
        manifest: &Manifest,
        planted: Planted,
    ) -> Self {
        let (uuid, durable) = (superblock.uuid, superblock.last_batch.get());
        let is_clean = superblock.clean.get() == 1;
        let first_void = Some(superblock.first_void.get()).filter(|&first| first > 0);
        let header = &manifest.header;
        let start = Position {
            index: 0,
            block: header.journal_block.get(),
            last: header.last_batch.get(),
            chain: header.chain.get(),
            blocks: 0,
        };
        let pairs = manifest.journal.iter().map(|pair| JournalZones {
            zones: pair.zone.map(U32::get),
            first: pair.first_batch.get(),
        });
        let (pairs, failed) = (pairs.collect(), [false; 2]);
        let journal = Journal { uuid, pairs, start, end: start, failed, trail: Trail::default() };
        Self {
            drive,
            zones,
            journal,
            whole: start,
            before: start,
            durable,
            is_clean,
            first_void,
            planted,
        }
    }

    /// Where the journal ends: behind the last whole batch, once `next` has returned `None`.
    pub(super) fn into_journal(mut self) -> Journal {
        if self.first_void.is_some() {
            self.journal.roll_back(self.whole);
            return self.journal;
        }
        let end = &mut self.journal.end;
        if end.index != self.whole.index && end.last == self.whole.last {
            // At the start of the next pair.
            return self.journal;
        }
        if *end != self.whole {
            self.journal.roll_back(self.whole);
        }
        self.journal
    }

    /// The next batch, `None` at the journal's end, or why the rest of the journal is lost.
    pub(in crate::furrow) fn next(&mut self) -> Result<Option<Batch>, String> {
        let (bodies, fresh) = Default::default();
        let mut batch = Batch { seq: 0, bodies, fresh, is_in: [true; 2], trails: true };
        while let Some(FoundRecord { record, is_in, second_ends }) = self.next_record()? {
            batch.trails &= is_in[1] || (second_ends && record.header.trails != 0);
            let Record { header, mut body } = record;
            let (fresh, rows) = take_fresh(&body)?;
            batch.fresh.extend_from_slice(fresh);
            let rows_at = body.len() - rows.len();
            body.drain(..rows_at);
            batch.bodies.push(body);
            for (all, is_in) in batch.is_in.iter_mut().zip(is_in) {
                *all &= is_in;
            }
            if header.continues == 0 {
                batch.seq = header.seq.get();
                // An unmount brings the second copy up to date.
                batch.trails &= batch.is_in[0] && (!self.is_clean || batch.seq > self.durable);
                self.before = std::mem::replace(&mut self.whole, self.journal.end);
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Whether the power failed during the write of the newest batch: the copy that lacks it ends
    /// before the batch does, and nothing proves that it was durable. A copy that ends behind it
    /// may have gone bad.
    pub(super) fn is_cut_off(&self, newest: &Batch) -> bool {
        let mut copies = newest.is_in.into_iter().enumerate();
        !self.is_durable(newest)
            && copies.all(|(copy, is_in)| is_in || self.ends_before(copy, self.whole))
    }

    /// Whether a copy ends before a position.
    fn ends_before(&self, copy: usize, end: Position) -> bool {
        let zone = self.journal.pairs[end.index].zones[copy];
        let written = self.zones.get(zone as usize).and_then(Zone::written);
        let end = u64::from(end.block) * self.drive.layout.per_block;
        written.is_some_and(|written| written.get() < end)
    }

    /// Whether something proves that the newest batch was durable.
    fn is_durable(&self, newest: &Batch) -> bool {
        // The writer began any later record, even a torn one, only after this one was durable.
        newest.seq <= self.durable || self.journal.end.last > newest.seq
    }

    /// Rejects the newest batch if its data is not there and nothing proves that it was durable.
    /// Returns why; the journal then ends before that batch.
    pub(super) fn refuse(&mut self, newest: &Batch) -> Option<String> {
        mistake!(self, BelieveNewestBatch, return None);
        if self.is_durable(newest) {
            return None;
        }
        let data = FreshData { drive: self.drive, zones: self.zones, fresh: &newest.fresh };
        let why = data.missing_of(&newest.bodies)?;
        self.whole = self.before;
        Some(why)
    }

    /// The next record, `None` at the end, or why the rest is lost.
    fn next_record(&mut self) -> Result<Option<FoundRecord>, String> {
        let journal = &mut self.journal;
        let next = journal.end.last + 1;
        if self.first_void.is_some_and(|first| next >= first) {
            return Ok(None);
        }
        while let Some(pair) = journal.pairs.get(journal.end.index + 1)
            && pair.first <= next
        {
            journal.end.index += 1;
            journal.end.block = 0;
            journal.failed = [false; 2];
        }
        if journal.pairs.is_empty() {
            // The manifest names no pair: nothing was written since.
            return Ok(None);
        }
        let mut unreadable = Vec::new();
        if let Some(record) = self.next_here(&mut unreadable) {
            return Ok(Some(record));
        }
        if !unreadable.is_empty() {
            let why = unreadable.join("; ");
            return Err(format!("batch {next} cannot be read in either copy: {why}"));
        }
        if let Some(pair) = self.journal.pairs.get(self.journal.end.index + 1) {
            let first = pair.first;
            return Err(format!("batch {next} is in neither copy, but batch {first} is named"));
        }
        match self.find_later() {
            None => Ok(None),
            Some((at, what)) => Err(format!(
                "batch {next} is in neither copy, but zone {} block {} holds {what}",
                at.zone, at.block
            )),
        }
    }

    /// The next record in the zones of the current pair.
    fn next_here(&mut self, unreadable: &mut Vec<String>) -> Option<FoundRecord> {
        let mut found: Option<Record> = None;
        let mut is_in = [false; 2];
        for (copy, is_in) in is_in.iter_mut().enumerate() {
            match self.slot(self.address(copy)) {
                RecordSlot::Record(record) => {
                    *is_in = true;
                    found = found.or(Some(record));
                }
                RecordSlot::Nothing => {}
                RecordSlot::Unreadable(why) => unreadable.push(why),
            }
        }
        let record = found?;
        let blocks = blocks_for(HEADER_BYTES + record.body.len());
        let second = self.address(1);
        let journal = &mut self.journal;
        for (failed, is_in) in journal.failed.iter_mut().zip(is_in) {
            *failed |= !is_in;
        }
        // Both copies have their records at the same blocks, so a copy that lacks one skips it.
        let narrow = u32::try_from(blocks).unwrap_or(u32::MAX);
        journal.end.block = journal.end.block.saturating_add(narrow);
        journal.end.chain = record.header.chain.get();
        journal.end.last = record.header.seq.get();
        journal.end.blocks += blocks as u64;
        let ends = || self.ends_before(1, self.journal.end) || self.is_unwritten(second);
        let second_ends = !is_in[1] && ends();
        Some(FoundRecord { record, is_in, second_ends })
    }

    /// Whether a block reads as zeroes, as the unwritten rest of a finished zone does.
    fn is_unwritten(&self, at: Address) -> bool {
        let mut block = vec![0; BLOCK_BYTES];
        self.drive.read(at, &mut block).is_ok() && is_zero(&block)
    }

    fn address(&self, copy: usize) -> Address {
        let end = &self.journal.end;
        Address { zone: self.journal.pairs[end.index].zones[copy], block: end.block }
    }

    /// Blocks of a zone that may hold data, the last one perhaps in part; 0 if it is offline.
    fn written(&self, zone: u32) -> u32 {
        let capacity = self.drive.layout.capacity(zone);
        match self.zones.get(zone as usize) {
            Some(report) if report.cond == ZoneCond::Offline => 0,
            Some(report) => report.written().map_or(capacity, |written| {
                u32::try_from(written.get().div_ceil(self.drive.layout.per_block))
                    .unwrap_or(capacity)
            }),
            None => 0,
        }
    }

    fn slot(&self, at: Address) -> RecordSlot {
        if at.block >= self.written(at.zone) {
            return RecordSlot::Nothing;
        }
        let mut trust = Trust::Verify;
        mistake!(self, SkipRecordChecksum, trust = Trust::Blind);
        match read_record(self.drive, at, RecordKind::Batch, trust) {
            Ok((header, body)) if self.continues(&header) => {
                RecordSlot::Record(Record { header, body })
            }
            Ok(_) | Err(Unread::Wrong(_)) => RecordSlot::Nothing,
            Err(Unread::Device(why)) => RecordSlot::Unreadable(why),
        }
    }

    /// Whether a record is the next one.
    fn continues(&self, header: &RecordHeader) -> bool {
        let journal = &self.journal;
        mistake!(self, SkipChain, return true);
        header.uuid == journal.uuid
            && header.seq.get() == journal.end.last + 1
            && header.prev == U32::new(journal.end.chain)
    }

    /// A record in the last pair behind the place that lacks the next record.
    fn find_later(&self) -> Option<(Address, String)> {
        // Bounds the reads that verify candidates, so that forged headers cannot keep a mount busy.
        let mut budget = 16 * u64::from(self.drive.layout.zone_blocks);
        (0..2).find_map(|copy| self.find_from(self.address(copy), &mut budget))
    }

    fn find_from(&self, from: Address, budget: &mut u64) -> Option<(Address, String)> {
        let limit = self.written(from.zone);
        let mut zeroes = 0;
        let mut first = from.block;
        while first < limit && zeroes < ZERO_BLOCKS_MAX {
            let blocks = SEARCH_BLOCKS.min(limit - first);
            let chunk = self.read_blocks(Address { block: first, ..from }, blocks);
            for (block, bytes) in (first..).zip(chunk.chunks(BLOCK_BYTES)) {
                let at = Address { block, ..from };
                zeroes = if is_zero(bytes) { zeroes + 1 } else { 0 };
                if let Some(what) = self.later_record(at, bytes, budget) {
                    return Some((at, what));
                }
            }
            first += blocks;
        }
        None
    }

    /// Blocks, with zeroes for unreadable ones.
    fn read_blocks(&self, at: Address, blocks: u32) -> Vec<u8> {
        let mut buffer = vec![0; blocks as usize * BLOCK_BYTES];
        if self.drive.read(at, &mut buffer).is_err() {
            for (block, bytes) in (at.block..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
                if self.drive.read(Address { block, ..at }, bytes).is_err() {
                    bytes.fill(0);
                }
            }
        }
        buffer
    }

    /// Names the record at `at` if it is later than the records that replay has read.
    fn later_record(&self, at: Address, head: &[u8], budget: &mut u64) -> Option<String> {
        let journal = &self.journal;
        let header = decode_header(head, RecordKind::Batch, at).ok()?;
        let seq = header.seq.get();
        if header.uuid != journal.uuid || seq <= journal.end.last {
            return None;
        }
        let blocks = blocks_for(HEADER_BYTES + header.body_bytes.get() as usize) as u64;
        if let Some(left) = budget.checked_sub(blocks) {
            *budget = left;
            read_record(self.drive, at, RecordKind::Batch, Trust::Verify).ok()?;
        }
        Some(format!("batch {seq}"))
    }
}
