//! The commit: it makes everything before it durable, as a whole or not at all.
//!
//! Order: buffered data to data zones → the changed rows as one batch of the journal, twice or
//! [once where jumps cost time](crate::furrow::log::trail) → *flush* → the rows enter the memtable,
//! and zones in which nothing lives any more may be reset (F3), which the
//! [worker](crate::furrow::worker) does later. A commit flushes much data before the batch. If
//! there is little, the batch says where it lies, and counts only [if that data is
//! there](crate::furrow::log::fresh).
//!
//! One thread commits at a time, for all. Other callers wait until their changes are durable; if
//! the running commit began too early for that, one of them makes the next commit, for all callers
//! so far.
//!
//! The batch is the tree at one moment. Taking it is short: later changes belong to the next batch,
//! while this thread encodes the rows of this one as they were. Only operations that put blocks
//! into the write buffer wait a little longer, until the last blocks have left it.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::FsError;
use crate::furrow::format::batch::{FreshZone, put_fresh};
use crate::furrow::format::record::{PaddedRecord, RecordBuffer};
use crate::furrow::log::Log;
use crate::furrow::log::committer::Committer;
use crate::furrow::log::fresh::FRESH_BLOCKS_MAX;
use crate::furrow::log::journal::{Appended, Continuation};
use crate::furrow::log::maintenance::{Backlog, StepBudget};
use crate::furrow::metadata::{Ending, State};
use crate::furrow::planted::mistake;
use crate::furrow::sync::MutexGuard;
use crate::furrow::table::key::Key;
use crate::furrow::table::leaf::encode_rows;
use crate::furrow::table::memtable::{Memtable, ROW_BYTES, Value};
use crate::furrow::write::order::WriteOrder;
use crate::furrow::zones::SPARE_ZONES_MIN;
use crate::vfs::Result;

/// Passes over the write buffer before a commit holds off changes to finish it.
const PASSES: usize = 2;

/// Rows that a commit encodes under one lock of the state: some 25 µs.
const ROWS_AT_ONCE: usize = 64;

/// Pairs of zones that may turn out to be bad, or too small, while one record is written.
const TRIES_MAX: usize = 4;

/// Part of the state that a commit takes together with the rows.
struct TakenBatch {
    batch: u64,
    /// Zones to reset once the batch is durable.
    emptied: Vec<u32>,
}

/// Work of a commit that makes every change so far durable.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct CommitNeed {
    /// The batch that has the last change.
    batch: u64,
    /// Metadata has so few zones left that the table must shrink before it gets more rows.
    table_is_too_large: bool,
}

/// Which commit made everything durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Committed {
    /// Another one.
    Elsewhere,
    /// This one, with a batch. The table then has this much maintenance to do.
    Batch(Backlog),
}

impl Log {
    /// Makes everything before this call durable, and helps with maintenance of the table. On a
    /// file system that is read-only it writes nothing, and is an error if changes are not durable:
    /// those from before a thread panicked.
    pub(in crate::furrow) fn commit(&self, ending: Ending) -> Result<()> {
        let need = self.commit_need(&self.tree.read_state(), ending);
        self.commit_needed(need, ending)
    }

    /// As [`commit`](Self::commit), for a caller that has looked at the state.
    pub(in crate::furrow) fn commit_needed(
        &self,
        mut need: CommitNeed,
        ending: Ending,
    ) -> Result<()> {
        if need.table_is_too_large && !self.tree.is_read_only() {
            self.compact(StepBudget::Commit);
            // Compaction changes rows too, and may have committed the others meanwhile.
            need = self.commit_need(&self.tree.read_state(), ending);
        }
        if let Committed::Batch(backlog) = self.commit_batch(need.batch, ending)? {
            self.help_maintenance(backlog);
        }
        if ending == Ending::Clean {
            let mut committer = self.lock_committer();
            if committer.journal.has_trail() {
                committer.journal.catch_up(&self.drive);
                self.drive.flush()?;
            }
            committer.write_superblock(&self.drive, ending)?;
        }
        Ok(())
    }

    /// Work of a commit that makes every change so far durable.
    pub(in crate::furrow) fn commit_need(&self, state: &State, ending: Ending) -> CommitNeed {
        // Zones to reset are no promise: a file system that is read-only leaves them.
        let resets = !self.tree.is_read_only()
            && state.zones.has_idle_emptied(|zone| self.drive.pins.is_idle(zone));
        let nothing = state.rows.batch.is_empty() && state.maps.buffered.is_empty() && !resets;
        let leaves_records = ending == Ending::Clean && state.zones.has_records();
        let mut batch = state.rows.batch.number();
        if nothing && !leaves_records {
            batch = batch.saturating_sub(1);
            mistake!(self.tree, SyncForgetsUnderway, batch = batch.saturating_sub(1));
        }
        let table_is_too_large = state.zones.takeable_for_metadata() < SPARE_ZONES_MIN;
        CommitNeed { batch, table_is_too_large }
    }

    /// Makes everything up to a batch durable.
    fn commit_batch(&self, wanted: u64, ending: Ending) -> Result<Committed> {
        let is_needed = || self.durable_batch.load(Ordering::Acquire) < wanted;
        let Some(_turn) = self.commit_turns.take(is_needed) else {
            return Ok(Committed::Elsewhere);
        };
        let mut committer = self.lock_committer();
        self.tree.check_writable()?;
        let taken = {
            let turn = self.writer.flushing.lock().expect("no holder panicked");
            let mut passes = PASSES;
            mistake!(self.tree, SkipWriteBack, passes = 0);
            for _ in 0..passes {
                // Blocks that came in meanwhile are for the next pass: the last one has writers
                // wait.
                if self.writer.write_back_all()? == 0 {
                    break;
                }
            }
            self.take(ending, turn)?
        };
        mistake!(self.tree, DurableTooEarly, {
            self.durable_batch.store(taken.batch, Ordering::Release);
        });
        self.make_durable(&mut committer, taken)?;
        Ok(Committed::Batch(committer.backlog(self.tree.layout())))
    }

    /// A function that commits if a commit is due, for a long step of the table to call now and
    /// then. After a failed commit it does nothing any more.
    pub(super) fn committing_meanwhile(&self) -> impl Fn() {
        let has_failed = Cell::new(false);
        move || {
            if !has_failed.get()
                && self.is_commit_due()
                && let Err(error) = self.commit_beside_table()
            {
                tracing::warn!(%error, "a commit beside a step of the table failed");
                has_failed.set(true);
            }
        }
    }

    fn commit_beside_table(&self) -> Result<()> {
        let need = self.commit_need(&self.tree.read_state(), Ending::Record);
        self.commit_batch(need.batch, Ending::Record).map(drop)
    }

    /// Lets maintenance of the table keep pace with commits: the worker does it if there is one.
    /// The caller helps if there is none, or if it has fallen behind.
    fn help_maintenance(&self, backlog: Backlog) {
        if backlog != Backlog::None {
            self.tree.bell.wake_worker();
        }
        if !self.tree.bell.has_worker() || backlog == Backlog::Much {
            self.compact(StepBudget::Bounded);
        }
    }

    /// Takes the batch: from here on changes belong to the next one.
    fn take(&self, ending: Ending, turn: MutexGuard<'_, WriteOrder>) -> Result<TakenBatch> {
        // It takes long, so a worker does it as soon as a zone is sealed.
        if ending == Ending::Clean || !self.tree.bell.has_worker() {
            while self.tree.make_backref_rows(ending) {}
        }
        let (taken, rest) = {
            // Only small writes wait for the device here, and only for blocks that came in since
            // the last pass.
            let no_more_blocks = self.tree.lock_buffering();
            mistake!(self.tree, BufferWhileTaking, drop(no_more_blocks));
            let mut is_last = false;
            mistake!(self.tree, FreezeWithoutLastPass, is_last = true);
            mistake!(self.tree, SkipWriteBack, is_last = true);
            loop {
                let unchanged = self.tree.hold_off_changes();
                let mut state = self.tree.write_accounts();
                if is_last || state.maps.buffered.is_empty() {
                    break self.freeze(&mut state);
                }
                drop(state);
                drop(unchanged);
                self.writer.write_back_all()?;
                is_last = true;
            }
        };
        drop(turn);
        if let Some(owners) = rest {
            self.encode_beside_changes(owners);
        }
        self.last_commit_ns.store(self.clock.monotonic_ns(), Ordering::Release);
        Ok(taken)
    }

    /// Freezes the batch, and encodes a small one at once. For a large one it returns the rows of
    /// back-references, and the caller encodes the others while changes go on.
    fn freeze(&self, state: &mut State) -> (TakenBatch, Option<Vec<(Key, Value)>>) {
        let owners = state.take_backref_rows();
        state.freeze();
        state.zones.retry_resets();
        let mut emptied = state.zones.take_emptied(|zone| self.drive.pins.is_idle(zone));
        mistake!(self.tree, ResetUnderReaders, emptied.extend(state.zones.take_emptied(|_| true)));
        let taken = TakenBatch { batch: state.rows.batch.number() - 1, emptied };
        if state.rows.batch.taken_count() + owners.len() > ROWS_AT_ONCE {
            return (taken, Some(owners));
        }
        let (rows, _) = state.frozen_rows(Key::MIN, ROWS_AT_ONCE);
        self.tree.view.add_unwritten(with_rows(Memtable::of_rows(rows), owners));
        state.thaw();
        (taken, None)
    }

    /// Encodes the rows of a batch while others change, and ends what [`freeze`](Self::freeze)
    /// began.
    fn encode_beside_changes(&self, owners: Vec<(Key, Value)>) {
        let rows = with_rows(self.encode_batch(), owners);
        // A row is always found, in the state or in the view.
        self.tree.view.add_unwritten(rows);
        let thawed = {
            let mut state = self.tree.write_accounts();
            state.thaw()
        };
        // It can be large, so not under the state lock.
        drop(thawed);
    }

    /// The rows of the batch. Changes go on meanwhile.
    fn encode_batch(&self) -> Memtable {
        let mut rows = Vec::new();
        let mut next = Some(Key::MIN);
        while let Some(from) = next {
            let (more, rest) = self.tree.read_state().frozen_rows(from, ROWS_AT_ONCE);
            rows.extend(more);
            next = rest;
        }
        Memtable::of_rows(rows)
    }

    fn make_durable(&self, committer: &mut Committer, taken: TakenBatch) -> Result<()> {
        let TakenBatch { batch, mut emptied } = taken;
        mistake!(self.tree, ResetBeforeDurable, {
            for zone in std::mem::take(&mut emptied) {
                self.writer.reset_zone(zone);
            }
        });
        let outcome = committer.superlog.catch_up(&self.drive, &committer.superblock);
        let outcome = outcome.and_then(|()| self.write_batch(committer));
        if let Err(error) = outcome {
            self.tree.write_accounts().zones.put_back_emptied(&emptied);
            if !error.is_host_full() {
                tracing::error!(%error, "a commit failed");
            }
            return Err(error);
        }
        self.durable_batch.store(batch, Ordering::Release);
        if !emptied.is_empty() {
            self.tree.write_accounts().zones.allow_resets(&emptied);
            self.tree.bell.wake_worker();
        }
        Ok(())
    }

    fn write_batch(&self, committer: &mut Committer) -> Result<()> {
        if !self.tree.view.has_unwritten() {
            return Ok(self.drive.flush()?);
        }
        let outcome = self.flush_data().and_then(|fresh| self.append_batch(committer, &fresh));
        self.note_journal(committer);
        outcome?;
        self.tree.view.end_batch();
        committer.durable_record = committer.journal.end.last;
        Ok(())
    }

    /// Flushes the data that a batch refers to. If that is little, returns where it lies instead,
    /// and the flush of the batch covers it.
    fn flush_data(&self) -> Result<Vec<FreshZone>> {
        mistake!(self.tree, SkipDataFlush, return Ok(Vec::new()));
        let unflushed = self.drive.unflushed();
        // Remap tables have no checksums, so replay could not verify blocks that they move.
        let mut has_moved = self.tree.view.has_unwritten_remaps();
        mistake!(self.tree, SkipMovedFlush, has_moved = false);
        if unflushed.blocks > FRESH_BLOCKS_MAX || unflushed.has_zeroes || has_moved {
            self.drive.flush()?;
            return Ok(Vec::new());
        }
        let fresh = unflushed.from.into_iter();
        let fresh = fresh.map(|at| FreshZone { zone: at.zone.into(), block: at.block.into() });
        Ok(fresh.collect())
    }

    fn append_batch(&self, committer: &mut Committer, fresh: &[FreshZone]) -> Result<()> {
        let bytes = self.tree.layout().record_bytes;
        let records = self.tree.view.with_unwritten(|rows| records_of(rows, fresh, bytes));
        let records: Vec<PaddedRecord> = records.into_iter().map(RecordBuffer::pad).collect();
        let first = records.first().map_or(0, PaddedRecord::blocks);
        let has_room = committer.journal.room(&self.drive) as usize >= first;
        if committer.is_unnamed || committer.journal.is_impaired() || !has_room {
            match self.renew_journal(committer) {
                Err(FsError::NoSpace) if committer.journal.room(&self.drive) as usize >= first => {
                    tracing::warn!("no room for another pair: the journal goes on in one copy");
                }
                outcome => outcome?,
            }
        }
        let end = committer.journal.end;
        let outcome = self.append_records(committer, &records);
        if outcome.is_err() && committer.journal.end.last != end.last {
            committer.journal.catch_up_to(&self.drive, end);
            committer.journal.roll_back(end);
        }
        outcome
    }

    fn append_records(&self, committer: &mut Committer, records: &[PaddedRecord]) -> Result<()> {
        for (index, record) in records.iter().enumerate() {
            let rest =
                if index + 1 < records.len() { Continuation::Follows } else { Continuation::None };
            let mut tries = 0;
            while committer.journal.append(&self.drive, record, rest)? == Appended::NoRoom {
                tries += 1;
                if tries > TRIES_MAX {
                    return Err(FsError::NoSpace);
                }
                committer.journal.give_up_pair(&self.drive);
                self.name_journal(committer)?;
            }
        }
        self.note_trail(committer);
        mistake!(self.tree, SkipRecordFlush, return Ok(()));
        Ok(self.drive.flush()?)
    }
}

fn with_rows(mut rows: Memtable, more: Vec<(Key, Value)>) -> Memtable {
    for (key, value) in more {
        rows.insert(key, value);
    }
    rows
}

/// Rows as records of about `bytes` bytes each, the first of which says where fresh data begins.
fn records_of(rows: &Memtable, mut fresh: &[FreshZone], bytes: usize) -> Vec<RecordBuffer> {
    let mut records = Vec::new();
    let mut chunk: Vec<(Key, Option<&[u8]>)> = Vec::new();
    let mut size = 0;
    let mut rows = rows.rows().peekable();
    while let Some((key, value)) = rows.next() {
        chunk.push((key, value));
        size += ROW_BYTES + value.map_or(0, <[u8]>::len);
        if size >= bytes || rows.peek().is_none() {
            let mut record = RecordBuffer::new();
            put_fresh(record.body(), std::mem::take(&mut fresh));
            record.body().extend(encode_rows(chunk.drain(..)));
            records.push(record);
            size = 0;
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::furrow::sample::{counted, formatted};
    use crate::furrow::zones::Role;
    use crate::furrow::{Access, Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, SyncKind, WriteFlags};

    #[test]
    fn commit_leaves_table_to_worker_unless_behind() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.on_work(Arc::new(|| ()));
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        let limit = fs.tree.layout().journal_blocks;
        let blocks = || fs.log.committer.lock().unwrap().journal.blocks();
        let commit = |round: u64| {
            let set = SetAttr { size: Some(round), ..SetAttr::default() };
            fs.setattr(&Caller::ROOT, ino, &set).unwrap();
            fs.sync().unwrap();
        };
        (0..limit + 5).for_each(commit);
        assert!(blocks() > limit, "{} blocks: no worker came", blocks());
        fs.tick().unwrap();
        assert!(blocks() < 5, "{} blocks after the worker", blocks());
        // It never comes again.
        (0..5 * limit).for_each(commit);
        assert!(fs.log.committer.lock().unwrap().journal.pairs.len() < 3);
    }

    #[test]
    fn fsync_waits_for_device_three_times() {
        let (drive, clock) = counted(64, 64);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.sync().unwrap();
        fs.write(ino, 0, &[1; 4096], WriteFlags::empty()).unwrap();
        drive.clear();
        fs.fsync(ino, SyncKind::Data).unwrap();
        // The data, both copies of the record together, and a flush.
        assert_eq!((drive.requests(), drive.rounds()), (4, 3));
    }

    /// Two megabytes and more in the buffer: all of it leaves in one call of the device.
    #[test]
    fn commit_writes_buffer_as_one_batch() {
        let (drive, clock) = counted(64, 1024);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let inos = [&b"one"[..], b"two", b"three"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino);
        let content =
            |ino: Ino, block: u64| [u8::try_from((ino.get() + block) % 250 + 1).unwrap(); 4096];
        fs.sync().unwrap();
        for ino in inos {
            // Every other block: none is written past the buffer.
            for block in (0..400).step_by(2) {
                let written =
                    fs.write(ino, block * 4096, &content(ino, block), WriteFlags::empty());
                assert_eq!(written.unwrap().len, 4096);
            }
        }
        drive.clear();
        fs.sync().unwrap();
        // The data, a flush because there is much of it, both copies of the record, a flush.
        assert_eq!(drive.rounds(), 4, "{} requests", drive.requests());
        assert!(drive.deepest() >= 3, "{} at once", drive.deepest());
        for ino in inos {
            for block in 0..400 {
                let mut held = [0; 4096];
                fs.read(ino, block * 4096, &mut held).unwrap();
                let expected = if block % 2 == 0 { content(ino, block) } else { [0; 4096] };
                assert!(held == expected, "block {block} of {ino:?}");
            }
        }
    }

    #[test]
    fn commit_uses_one_journal_copy_when_other_pair_is_full() {
        let (drive, clock) = formatted(32, 64);
        let options = MountOptions::default();
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let create =
            |name: &str| fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap();
        let ino = create("one").ino;
        // The journal has rows that the table lacks.
        fs.sync().unwrap();
        // A copy has failed, other zones too, and the table has no room for the rows of the
        // journal.
        fs.log.committer.lock().unwrap().journal.failed[0] = true;
        fs.log.pairs.lock().unwrap().open = None;
        let taken = {
            let zones = &mut fs.tree.write_state().zones;
            let free = zones.ids().filter(|&zone| zones.slot(zone).role == Role::Free);
            let free: Vec<u32> = free.collect();
            for &zone in &free {
                zones.claim(zone);
            }
            free
        };
        for perm in [0o600, 0o421] {
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            fs.setattr(&Caller::ROOT, ino, &set).unwrap();
            fs.sync().unwrap();
            assert!(fs.log.committer.lock().unwrap().journal.is_impaired());
        }
        let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let seen = Furrow::mount(drive, clock, options).unwrap();
        assert_eq!(seen.lookup(Ino::ROOT, b"one").unwrap().perm, 0o421, "it was synced");
        // With room again the journal gets two good copies.
        for zone in taken {
            fs.tree.write_state().zones.release(zone);
        }
        create("two");
        fs.sync().unwrap();
        let committer = fs.log.committer.lock().unwrap();
        assert!(!committer.journal.is_impaired());
    }
}
