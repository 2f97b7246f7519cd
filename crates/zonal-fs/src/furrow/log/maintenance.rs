//! Maintenance of the table in steps: flush the memtable, compact runs, empty pairs of zones.
//!
//! A thread plans a step under the committer's lock, writes its parts with no lock that commits or
//! readers need, and installs it under the committer's lock: parts and manifest → *flush* →
//! superblock → *flush* → reset of zones without live parts (F3). Until the superblock is durable,
//! everything that the earlier manifest names stays on the drive.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, TryLockError};

use zerocopy::byteorder::little_endian::{U32, U64};

use crate::furrow::drive::Drive;
use crate::furrow::drive::layout::Layout;
use crate::furrow::log::Log;
use crate::furrow::log::committer::Committer;
use crate::furrow::log::reserve::{MountedZones, Sparse, Supply};
use crate::furrow::metadata::Ending;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::sync::{Mutex, MutexGuard};
use crate::furrow::table::compaction::Compaction;
use crate::furrow::table::key::Key;
use crate::furrow::table::levels::{CompactionKind, Levels, TableStep};
use crate::furrow::table::lost::Remade;
use crate::furrow::table::memtable::{Frozen, Memtable};
use crate::furrow::table::pairs::{MetaZones, PairNeed, Pairs, give_back};
use crate::furrow::table::part::RefusedSections;
use crate::furrow::table::part_store::PartStore;
use crate::furrow::table::store::{AppliedRemaps, DriveStore, Judge, PartTarget};
use crate::furrow::table::view::View;
use crate::furrow::tree::bell::StepProgress;
use crate::vfs::Result;

/// Bytes of parts that one commit writes, about, at most, unless compaction is behind: a fraction
/// of a second. It is one part of the largest size, so that steps keep up with commits.
const STEP_BYTES: u64 = 8 << 20;

/// A step and its input.
pub(super) struct StepPlan {
    step: TableStep,
    uuid: [u8; 16],
    pub(super) need: PairNeed,
    levels: Arc<Levels>,
    next_part: u64,
    remade: Option<Remade>,
    view: Arc<View>,
    /// Remaps below this number are durable, so new parts may apply them.
    moved_below: u64,
}

/// Functions that a step calls beside its work.
#[derive(Clone, Copy)]
struct StepHelp<'a> {
    /// See [`PartStore::meanwhile`].
    meanwhile: &'a dyn Fn(),
    judge: &'a Judge<'a>,
    planted: Planted,
}

/// The result of a step that has written its parts.
struct StepOutcome {
    /// Where the rows of the frozen memtable are, if there is one.
    frozen: Frozen,
    levels: Levels,
    next_part: u64,
    bytes: u64,
    bad: BTreeSet<u64>,
}

impl Committer {
    /// Writes the next superblock and makes it durable.
    pub(in crate::furrow) fn write_superblock(
        &mut self,
        drive: &Drive,
        ending: Ending,
    ) -> Result<()> {
        self.superblock.epoch += U64::new(1);
        self.superblock.last_batch = U64::new(self.durable_record);
        self.superblock.clean = U32::new(u32::from(ending == Ending::Clean));
        self.superlog.write(drive, &self.superblock)
    }

    /// Writes a superblock that voids all records behind the last one that was read. Until then no
    /// zone may be finished or reset: a finished zone reads as zeroes behind its data, and zeroes
    /// may be the very bytes that complete a torn record, or the data of a refused batch. A
    /// recovery after a power cut would then count that batch, although this one has reset zones
    /// that hold its data.
    pub(in crate::furrow) fn void_rest(&mut self, drive: &Drive) -> Result<()> {
        self.superblock.first_void = U64::new(self.journal.end.last + 1);
        self.write_superblock(drive, Ending::Record)
    }

    /// Resets metadata zones that hold nothing of these levels, nor of any that readers have.
    pub(super) fn release(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        pairs: &Pairs,
        levels: &Levels,
    ) {
        if self.is_unnamed {
            // Either of two manifests may be the one that counts.
            return;
        }
        let mut live = self.table.zones(levels);
        live.extend(self.journal.zones());
        live.extend(self.table.zones_of_readers());
        for zone in zones.taken() {
            if live.contains(&zone) || pairs.holds(zone) {
                continue;
            }
            give_back(drive, zones, zone);
        }
    }

    /// Whether the memtable is due to become a run, which frees the journal before it.
    fn is_full(&self, layout: &Layout) -> bool {
        self.table.view.memtable_bytes() > layout.memtable_bytes
            || self.journal.blocks() > layout.journal_blocks
            || self.journal.pairs.len() > 1
    }

    /// How much maintenance is due.
    pub(super) fn backlog(&self, layout: &Layout) -> Backlog {
        let view = &self.table.view;
        let is_much = view.memtable_bytes() > 2 * layout.memtable_bytes
            || self.journal.pairs.len() > 1
            || view.levels().is_behind(&layout.table);
        if is_much {
            Backlog::Much
        } else if self.is_full(layout) {
            Backlog::Due
        } else {
            Backlog::None
        }
    }

    /// Plans the step that is due, if one is.
    fn plan(
        &mut self,
        layout: &Layout,
        row_bytes: u64,
        supply: &Supply,
        steps: Steps,
    ) -> Option<StepPlan> {
        if self.is_full(layout) {
            self.freeze();
        }
        let view = &self.table.view;
        let levels = view.levels();
        let flush = view.frozen().and_then(|frozen| supply.flush(frozen, &levels, layout));
        let sparse = |when| supply.sparse_pairs(&levels, layout, row_bytes, when);
        let step = if let Some(flush) = flush {
            flush
        } else if steps == Steps::Flush {
            return None;
        } else if let suspects = view.take_suspects(&levels)
            && !suspects.is_empty()
        {
            TableStep::Rewrite(suspects)
        } else if supply.is_short()
            && let Some(parts) = sparse(Sparse::Now)
        {
            TableStep::Rewrite(parts)
        } else if let Some(work) = supply.work(&levels, layout) {
            TableStep::Compact(work)
        } else if let Some(parts) = view.parts_before_remaps(&levels, layout.moved_bytes) {
            TableStep::Rewrite(parts)
        } else {
            TableStep::Rewrite(sparse(Sparse::BeyondShare)?)
        };
        Some(self.plan_of(step, levels, layout, supply))
    }

    /// Plans to write all rows of the journal as a run, however few they are.
    pub(super) fn plan_flush(&mut self, layout: &Layout, supply: &Supply) -> Option<StepPlan> {
        self.freeze();
        let step = TableStep::Flush(self.table.view.frozen()?);
        let levels = self.table.view.levels();
        Some(self.plan_of(step, levels, layout, supply))
    }

    /// Freezes the rows of the journal for a step to write them as a run. It does nothing if there
    /// are none, or if there is a frozen memtable.
    pub(super) fn freeze(&mut self) {
        if self.table.frozen_end.is_none() && !self.journal.is_in_table() {
            self.table.view.freeze();
            self.table.frozen_end = Some(self.journal.end);
        }
    }

    fn plan_of(
        &self,
        step: TableStep,
        levels: Arc<Levels>,
        layout: &Layout,
        supply: &Supply,
    ) -> StepPlan {
        let view = &self.table.view;
        let need = supply.need_of(&step, &levels, layout);
        let (next_part, remade) = (self.table.next_part, view.remade());
        let moved_below = view.durable_remap_end();
        let (uuid, view) = (self.journal.uuid, Arc::clone(view));
        StepPlan { step, uuid, need, levels, next_part, remade, view, moved_below }
    }

    /// Makes the levels of a step the present ones by a manifest. If writing that fails, the
    /// earlier levels stay.
    fn install(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        pairs: &mut Pairs,
        outcome: StepOutcome,
    ) -> Result<()> {
        let (levels, frozen) = (Arc::new(outcome.levels), outcome.frozen);
        let (manifest, journal) = (self.table.manifest, self.journal.clone());
        let next_part = std::mem::replace(&mut self.table.next_part, outcome.next_part);
        self.table.view.suspect(outcome.bad);
        if let Some(end) = self.table.frozen_end.filter(|_| outcome.frozen == Frozen::InLevels) {
            self.journal.begin_at(end);
        }
        mistake!(self, ReleaseMetaEarly, {
            pairs.end_step(zones);
            self.is_unnamed = false;
            self.release(drive, zones, pairs, &levels);
        });
        let outcome = self.write_manifest(drive, zones, pairs, &levels, Ending::Record);
        if outcome.is_err() && !self.is_unnamed {
            (self.table.manifest, self.table.next_part) = (manifest, next_part);
            self.journal = journal;
            return outcome;
        }
        if frozen == Frozen::InLevels {
            self.table.frozen_end = None;
        }
        self.table.install(levels, frozen);
        outcome
    }
}

/// How much maintenance is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    /// Nothing.
    None,
    /// The memtable is full.
    Due,
    /// A commit has to help.
    Much,
}

/// How many of the due steps a caller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum StepBudget {
    /// Steps of about [`STEP_BYTES`] bytes, as a commit does; all of them if compaction is behind.
    Bounded,
    /// All that a commit waits for: none that read while the device refuses reads.
    Commit,
    /// All of them.
    All,
}

/// Steps that a caller can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// All.
    All,
    /// Only the flush of the memtable, which needs no read: the device has just refused one.
    Flush,
}

impl Log {
    /// Runs steps that are due.
    pub(in crate::furrow) fn compact(&self, budget: StepBudget) {
        let mut bytes = 0;
        loop {
            let limits = self.tree.layout().table;
            let is_behind = self.tree.view.levels().is_behind(&limits)
                || self.tree.view.memtable_bytes() > 2 * self.tree.layout().memtable_bytes;
            let must = budget != StepBudget::Bounded || is_behind;
            if bytes >= STEP_BYTES && !must {
                return;
            }
            let _turn = match self.stepping.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::WouldBlock) if must => {
                    self.stepping.lock().expect("no holder panicked")
                }
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => panic!("no holder panicked"),
            };
            let steps = if budget == StepBudget::All { Steps::All } else { self.readable_steps() };
            let Some(written) = self.try_step(steps) else { return };
            bytes += written;
        }
    }

    /// Writes all rows of the journal as a run and then runs all due steps. While only the journal
    /// knows that rows are deleted, these keep their zones.
    pub(in crate::furrow) fn compact_with_journal(&self) {
        {
            let _turn = self.stepping.lock().expect("no holder panicked");
            self.lock_committer().freeze();
        }
        self.compact(StepBudget::All);
    }

    /// Runs due steps one by one while `is_wanted` returns true.
    pub(in crate::furrow) fn compact_while(&self, is_wanted: impl Fn() -> bool) {
        while is_wanted() {
            let _turn = self.stepping.lock().expect("no holder panicked");
            // A step of another thread may have been enough.
            if !is_wanted() || self.try_step(Steps::All).is_none() {
                return;
            }
        }
    }

    /// Runs one step, if one is due, and returns the bytes that it wrote. Commits are durable
    /// without it, so it only logs an error; a later step tries again.
    fn try_step(&self, steps: Steps) -> Option<u64> {
        match self.step_table(steps) {
            Ok(written) => Some(written?.max(1)),
            Err(error) => {
                tracing::warn!(%error, "a step of the table failed; it is tried again");
                None
            }
        }
    }

    /// Runs one step in the background, unless another thread runs one. After a failure it waits: a
    /// step writes all its parts before it knows whether it has succeeded.
    pub(in crate::furrow) fn compact_step(&self) -> Result<StepProgress> {
        let Ok(mut failed) = self.stepping.try_lock() else { return Ok(StepProgress::Idle) };
        if !failed.is_due((), self.clock.monotonic_ns()) {
            return Ok(StepProgress::Wait);
        }
        let outcome = self.step_table(Steps::All);
        match &outcome {
            Ok(_) => failed.settle(()),
            Err(_) => drop(failed.put_off((), self.clock.monotonic_ns())),
        }
        let is_done = outcome?.is_none();
        Ok(if is_done { StepProgress::Idle } else { StepProgress::More })
    }

    pub(in crate::furrow) fn lock_committer(&self) -> MutexGuard<'_, Committer> {
        self.committer.lock().expect("no holder panicked")
    }

    pub(in crate::furrow) fn lock_pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().expect("no holder panicked")
    }

    /// Runs one step, if one is due, and returns the bytes that it wrote.
    fn step_table(&self, steps: Steps) -> Result<Option<u64>> {
        let mut committer = self.lock_committer();
        if !committer.table.earlier.is_empty() {
            // Readers held these levels when a step replaced them; they may be done by now.
            let pairs = self.lock_pairs();
            committer.release(
                &self.drive,
                &mut MountedZones(self),
                &pairs,
                &self.tree.view.levels(),
            );
        }
        let Some(plan) = self.plan(&mut committer, steps) else { return Ok(None) };
        let outcome = if self.tree.layout().few_open_pairs {
            self.run_in_one_pair(&mut committer, plan)
        } else {
            self.lock_pairs().reserve(&mut MountedZones(self), plan.need)?;
            drop(committer);
            let outcome = self.run_plan(plan, &self.committing_meanwhile());
            self.end_step(&mut self.lock_committer(), outcome)
        };
        outcome.map(Some)
    }

    /// Plans the step that is due, if one is.
    fn plan(&self, committer: &mut Committer, steps: Steps) -> Option<StepPlan> {
        let supply = self.supply(committer);
        committer.plan(self.tree.layout(), self.row_bytes(), &supply, steps)
    }

    /// Steps that a commit may wait for: a merge would fail again during the pause after a refused
    /// read.
    fn readable_steps(&self) -> Steps {
        if self.is_reading_refused() { Steps::Flush } else { Steps::All }
    }

    /// Bytes of all rows, uncompressed: metadata has zones reserved for as many.
    fn row_bytes(&self) -> u64 {
        self.tree.space.rows_wanted(&self.tree.read_state())
    }

    /// Runs a planned step and those due after it on a drive with few active zones: the journal
    /// pauses meanwhile and lends its two zones for the parts. One step alone would leave most of a
    /// pair unused.
    pub(super) fn run_in_one_pair(
        &self,
        committer: &mut Committer,
        first: StepPlan,
    ) -> Result<u64> {
        // Reserve before the journal closes: a paused journal needs zones to continue, too.
        self.lock_pairs().reserve(&mut MountedZones(self), first.need)?;
        committer.journal.close(&self.drive);
        let mut next = Some(first);
        let mut outcome = Ok(0);
        while let (Some(plan), Ok(bytes)) = (next, &outcome) {
            let before = *bytes;
            let reserved = self.lock_pairs().reserve(&mut MountedZones(self), plan.need);
            let written = reserved.and_then(|()| self.run_plan(plan, &|| ()));
            outcome = self.end_step(committer, written).map(|written| before + written);
            let is_enough = outcome.as_ref().map_or(true, |bytes| *bytes >= STEP_BYTES);
            next = if is_enough { None } else { self.plan(committer, self.readable_steps()) };
        }
        if committer.journal.pairs.is_empty() {
            // The zones of the earlier manifest are free by now.
            let named = self.name_journal(committer);
            outcome = outcome.and_then(|bytes| named.map(|()| bytes));
        }
        let mut pairs = self.lock_pairs();
        if self.tree.layout().few_open_pairs {
            pairs.seal(&self.drive, &mut MountedZones(self));
        }
        self.note_parts(&pairs, committer);
        outcome
    }

    /// Writes the parts of a planned step, which do not count before it is installed.
    fn run_plan(&self, plan: StepPlan, meanwhile: &dyn Fn()) -> Result<StepOutcome> {
        let (zones, planted) = (&mut MountedZones(self), self.drive.planted);
        let suspects = match &plan.step {
            TableStep::Rewrite(numbers) => numbers.clone(),
            TableStep::Flush(_) | TableStep::Compact(_) => BTreeSet::new(),
        };
        let view = &self.tree.view;
        let judge = |refused: RefusedSections| {
            mistake!(self.drive, RefusedIsLost, return Ok(()));
            view.refusals.judge(refused, self.clock.monotonic_ns())
        };
        let help = StepHelp { meanwhile, judge: &judge, planted };
        let outcome = run_plan(&self.drive, zones, &self.pairs, plan, help);
        if outcome.is_err() {
            // A later step is to write them again.
            view.suspect(suspects);
        }
        outcome
    }

    fn end_step(&self, committer: &mut Committer, outcome: Result<StepOutcome>) -> Result<u64> {
        let mut pairs = self.lock_pairs();
        let mut zones = MountedZones(self);
        let installed = outcome.and_then(|outcome| {
            let bytes = outcome.bytes;
            committer.install(&self.drive, &mut zones, &mut pairs, outcome).map(|()| bytes)
        });
        pairs.end_step(&mut zones);
        committer.release(&self.drive, &mut zones, &pairs, &self.tree.view.levels());
        self.note_parts(&pairs, committer);
        drop(pairs);
        self.note_journal(committer);
        self.drop_unneeded_remaps(committer);
        installed
    }

    /// Lets the next batch delete remap tables that no row needs any more.
    fn drop_unneeded_remaps(&self, committer: &Committer) {
        let mut unneeded = committer.table.unneeded_remaps();
        mistake!(self.tree, DropMovedEarly, {
            unneeded = self.tree.view.remaps_below(self.tree.view.durable_remap_end());
        });
        if !unneeded.is_empty() {
            let state = &mut *self.tree.write_accounts();
            state.rows.drop_remaps(&unneeded, self.tree.view.moved_bytes(), &mut state.zones);
        }
    }
}

/// Writes the parts of a planned step, which do not count before it is installed.
fn run_plan(
    drive: &Drive,
    zones: &mut dyn MetaZones,
    pairs: &Mutex<Pairs>,
    plan: StepPlan,
    help: StepHelp<'_>,
) -> Result<StepOutcome> {
    let StepHelp { meanwhile, judge, planted } = help;
    let StepPlan { step, uuid, levels, next_part, remade, view, moved_below, need: _ } = plan;
    let frozen = match step {
        TableStep::Flush(_) => Frozen::InLevels,
        TableStep::Compact(_) | TableStep::Rewrite(_) => Frozen::Stays,
    };
    let writer = PartTarget {
        pairs,
        zones: RefCell::new(zones),
        next_part: Cell::new(next_part),
        bytes: Cell::new(0),
        meanwhile,
    };
    let lookup = |key: Key, value: &[u8]| view.moved_value(key, value, moved_below);
    let (writer, remaps) =
        (Some(writer), Some(AppliedRemaps { lookup: &lookup, below: moved_below }));
    let judge = Some(judge);
    let store = DriveStore { writer, remade, remaps, judge, ..DriveStore::new(drive, uuid) };
    let compaction = Compaction { store: &store, limits: drive.layout.table, planted };
    let levels = match step {
        TableStep::Flush(rows) => compaction.flush(&levels, &rows)?,
        TableStep::Compact(CompactionKind::Tier(tier)) => compaction.merge_tier(&levels, tier)?,
        TableStep::Compact(CompactionKind::Sweep) => compaction.sweep(&levels)?,
        TableStep::Rewrite(numbers) => compaction.rewrite(&levels, &numbers)?,
    };
    store.check_refused()?;
    let bad = store.bad.take();
    let (next_part, bytes) =
        store.writer.map_or((next_part, 0), |w| (w.next_part.get(), w.bytes.get()));
    Ok(StepOutcome { frozen, levels, next_part, bytes, bad })
}

/// Writes the rows of a new file system as its first parts. The caller then writes the manifest.
pub(in crate::furrow) fn flush_once(
    drive: &Drive,
    zones: &mut dyn MetaZones,
    pairs: &Mutex<Pairs>,
    committer: &mut Committer,
    rows: &Memtable,
) -> Result<()> {
    let step = TableStep::Flush(Arc::new(rows.clone()));
    let levels = committer.table.view.levels();
    let (next_part, view) = (committer.table.next_part, Arc::clone(&committer.table.view));
    let need = PairNeed::default();
    let uuid = committer.journal.uuid;
    let plan = StepPlan { step, uuid, need, levels, next_part, remade: None, view, moved_below: 0 };
    let help = StepHelp { meanwhile: &|| (), judge: &|_| Ok(()), planted: Planted::default() };
    let outcome = run_plan(drive, zones, pairs, plan, help)?;
    committer.table.view.install(Arc::new(outcome.levels), outcome.frozen);
    committer.table.next_part = outcome.next_part;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode};

    #[test]
    fn table_step_is_skipped_if_other_thread_did_it() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap();
        fs.sync().unwrap();
        fs.log.lock_committer().freeze();
        let is_due = || fs.log.lock_committer().table.frozen_end.is_some();
        fs.log.compact_while(|| false);
        assert!(is_due(), "no step was wanted");
        let asked = Cell::new(0);
        fs.log.compact_while(|| asked.replace(asked.get() + 1) == 0);
        assert_eq!((asked.get(), is_due()), (2, true), "wanted before the turn, not in it");
        fs.log.compact_while(is_due);
        assert!(!is_due(), "steps are taken as long as they are wanted");
    }
}
