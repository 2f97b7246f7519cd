//! What a writable mount does after [`recovery::read_base`](crate::furrow::recovery::read_base): it
//! deletes unlinked files, gives the journal a clean end, and empties zones in which nothing lives.
//! It writes no rows again, except those that have a bad copy.

use zonal::{Zone, ZoneCond};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::{Address, blocks_for};
use crate::furrow::invariant::Problems;
use crate::furrow::log::Log;
use crate::furrow::log::maintenance::StepBudget;
use crate::furrow::metadata::{Ending, State};
use crate::furrow::planted::PlantedBug;
use crate::furrow::recovery::Loaded;
use crate::furrow::table::key::RowKind;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::zones::Role;
use crate::vfs::Result;

/// Deleted files that a mount finishes with before it returns, or steps of that.
const ORPHANS_AT_MOUNT: usize = 64;

/// The pair that holds the manifest and where both its zones can be written, if they can. More
/// parts may lie behind it, which no manifest names.
fn open_pair(drive: &Drive, loaded: &Loaded) -> Option<([u32; 2], [u32; 2])> {
    // The journal has none of the few active zones only where it is to get its next pair.
    if drive.layout.few_open_pairs && !loaded.journal.pairs.is_empty() {
        return None;
    }
    let pointers = &loaded.superblock.manifest;
    let mut next = [0; 2];
    for (next, pointer) in next.iter_mut().zip(pointers) {
        let report = loaded.zones.get(pointer.zone.get() as usize)?;
        let is_writable =
            !matches!(report.cond, ZoneCond::Full | ZoneCond::ReadOnly | ZoneCond::Offline);
        let end = blocks_for(pointer.bytes.get() as usize) + pointer.block.get() as usize;
        let written = drive.layout.whole_blocks(report.written()?)?;
        if !is_writable || (written as usize) < end {
            return None;
        }
        *next = written;
    }
    Some((pointers.each_ref().map(|pointer| pointer.zone.get()), next))
}

/// Whether both copies of the journal end where their zones' pointers are, so that it can go on.
fn journal_is_whole(drive: &Drive, loaded: &Loaded) -> bool {
    let journal = &loaded.journal;
    let Some(pair) = journal.pairs.get(journal.end.index) else { return false };
    !journal.is_impaired()
        && pair.zones.iter().all(|&zone| {
            let Some(report) = loaded.zones.get(zone as usize) else { return false };
            let written = report.written().and_then(|written| drive.layout.whole_blocks(written));
            report.cond != ZoneCond::Full && written == Some(journal.end.block)
        })
}

/// Makes a file system that was read ready for writing.
pub(in crate::furrow) struct Recovery<'a> {
    drive: &'a Drive,
    tree: &'a Tree,
    writer: &'a Writer,
    log: &'a Log,
    truncator: &'a Truncator,
}

impl<'a> Recovery<'a> {
    /// With the highest part that it uses, which leads to the others.
    pub(in crate::furrow) fn of(truncator: &'a Truncator) -> Self {
        let log = &truncator.log;
        Self { drive: &log.drive, tree: &log.tree, writer: &log.writer, log, truncator }
    }

    /// Makes the drive ready for writing.
    pub(in crate::furrow) fn finish_recovery(&self, loaded: &mut RecoveryFacts) -> Result<()> {
        // What was read may be in a cache of the drive, if only the process before has ended.
        self.drive.flush()?;
        let whole =
            loaded.journal_is_whole || self.tree.has_planted(PlantedBug::ContinueBehindTornRecord);
        if self.tree.layout().few_active_zones {
            self.settle_superblocks(loaded)?;
        }
        if !whole {
            self.free_active_zone(loaded);
            self.log.lock_committer().void_rest(self.drive)?;
        }
        let mut unfinished;
        {
            let mut state = self.tree.write_state();
            unfinished = self.settle_zones(&mut state, &loaded.zones);
            if self.tree.layout().few_active_zones {
                self.finish_metadata(&state, loaded);
                // Another pair of the journal needs them.
                unfinished.drain(..).for_each(|zone| self.drive.finish(zone));
            }
            // F3: what was read is durable by now, so nothing durable refers to them.
            let emptied = state.zones.take_emptied(|_| true);
            drop(state);
            let is_active = |zone: u32| {
                loaded.zones.get(zone as usize).is_some_and(|zone| zone.cond.is_active())
            };
            let (active, others): (Vec<u32>, Vec<u32>) =
                emptied.into_iter().partition(|&zone| is_active(zone));
            // Active zones are few, and each is needed; the others can wait until after the mount.
            for zone in active {
                self.writer.reset_zone(zone);
            }
            self.tree.write_accounts().zones.allow_resets(&others);
        }
        if !self.tree.has_planted(PlantedBug::ForgetOrphans) {
            self.reap_orphans();
        }
        if let Some((zones, next)) = loaded.open_pair {
            let mut pairs = self.log.pairs.lock().expect("no holder panicked");
            pairs.open = crate::furrow::table::pairs::resume(self.drive, zones, next);
        }
        if !(whole && loaded.copies_are_whole) {
            let mut committer = self.log.lock_committer();
            if !whole {
                // The next batch would be behind a torn one, or in one copy only.
                committer.journal.failed = [true; 2];
            }
            // Rows that were made anew are not durable yet: until then the table keeps what it has
            // of them.
            let outcome = if self.tree.view.has_unwritten() || self.log.has_zones_to_recover_again()
            {
                self.log.name_journal(&mut committer)
            } else {
                self.log.begin_journal_again(&mut committer)
            };
            match outcome {
                Err(FsError::NoSpace) if whole => {
                    tracing::warn!("no room to copy what has one good copy: it stays so for now");
                    committer.write_superblock(self.drive, Ending::Record)?;
                }
                outcome => outcome?,
            }
        }
        if self.log.lacks_metadata_zones() && !self.tree.view.has_unwritten() {
            self.log.compact(StepBudget::All);
        }
        for zone in unfinished {
            self.drive.finish(zone);
        }
        if self.tree.view.has_unwritten() {
            // Rows that were lost have been made anew. Not before they are durable may the table go
            // on without those.
            self.tree.write_state().mark(RowKind::Totals, 0, 0);
            self.log.commit(Ending::Record)?;
        }
        if !loaded.copies_are_whole {
            // What has one good copy gets another.
            self.log.compact(StepBudget::All);
        }
        self.log.commit(Ending::Record)
    }

    /// Begins to remove what was deleted. Most of it goes in the background.
    fn reap_orphans(&self) {
        {
            let mut state = self.tree.write_state();
            let orphans = std::mem::take(&mut state.unlinked);
            state.reaping.extend(orphans);
        }
        for _ in 0..ORPHANS_AT_MOUNT {
            if !self.truncator.reap_one() {
                break;
            }
        }
    }

    /// Gives up the active zones of superblocks, since the next one needs such a zone. One with a
    /// torn record is reset: finished, it would read as zeroes behind what was written, which may
    /// be all that the record lacks. Then it would be the newest superblock, and lead to what is no
    /// more.
    fn settle_superblocks(&self, loaded: &mut RecoveryFacts) -> Result<()> {
        for zone in loaded.zones.iter_mut().filter(|zone| zone.cond.is_active()) {
            let number = zone.id.get();
            if !self.tree.layout().is_superblock(number) {
                continue;
            }
            if loaded.superblock_zones.contains(&number) {
                self.drive.finish(number);
                zone.cond = ZoneCond::Full;
            } else {
                self.drive.reset(number)?;
                zone.cond = ZoneCond::Empty;
            }
        }
        Ok(())
    }

    /// Finishes zones until there is an active one for the superblock that says what does not
    /// count, but none that could make it count: where a batch lacks data, zones of the journal,
    /// which has all of the batch; else any others, those of data last.
    fn free_active_zone(&self, loaded: &mut RecoveryFacts) {
        let geometry = &self.tree.layout().geometry;
        let limit = geometry.max_active().into_iter().chain(geometry.max_open()).min();
        let active = loaded.zones.iter().filter(|zone| zone.cond.is_active());
        let mut active: Vec<u32> = active.map(|zone| zone.id.get()).collect();
        let Some(limit) = limit else { return };
        let journal: Vec<u32> = self.log.lock_committer().journal.zones().collect();
        let state = self.tree.read_state();
        active.sort_by_key(|&zone| {
            let may_go = journal.contains(&zone) == loaded.is_refused;
            (!may_go, state.zones.slot(zone).live > 0)
        });
        let surplus = (active.len() + 1).saturating_sub(limit as usize);
        for &zone in active.iter().take(surplus) {
            self.drive.finish(zone);
            loaded.zones[zone as usize].cond = ZoneCond::Full;
        }
    }

    /// Gives up the active zones of metadata that is not continued: the power may have gone
    /// between writing and finishing them, and each one is needed.
    fn finish_metadata(&self, state: &State, loaded: &RecoveryFacts) {
        for zone in loaded.zones.iter().filter(|zone| zone.cond.is_active()) {
            let number = zone.id.get();
            let is_meta = state.zones.slot(number).role == Role::Meta;
            if is_meta && !loaded.continues_in(number) {
                self.drive.finish(number);
            }
        }
    }

    /// Decides what becomes of each zone that is neither free nor metadata: writing goes on in
    /// zones that have room, the others are sealed. Returns those of them that are active, to be
    /// finished.
    fn settle_zones(&self, state: &mut State, zones: &[Zone]) -> Vec<u32> {
        let mut unfinished = Vec::new();
        for zone in zones {
            let number = zone.id.get();
            let layout = self.tree.layout();
            match state.zones.slot(number).role {
                Role::Sealed => {}
                Role::Free if layout.is_conventional(number) => {
                    Self::settle_conventional(state, number);
                    continue;
                }
                Role::Free if state.zones.slot(number).live > 0 => {
                    // It has lost all that it held. To write there again would give those who still
                    // refer to it what belongs to others.
                    state.zones.claim(number);
                    state.zones.seal(number);
                    continue;
                }
                Role::Super
                | Role::Meta
                | Role::Free
                | Role::Failed
                | Role::PendingReset
                | Role::Open(_) => continue,
            }
            let written = zone.written().and_then(|written| layout.whole_blocks(written));
            let has_data = state.zones.slot(number).live > 0;
            let resumed = match written {
                Some(written) if zone.cond != ZoneCond::Full && has_data => {
                    let clock = state.totals.data_clock;
                    state.zones.slot(number).end <= written
                        && state.zones.resume(number, written, clock)
                }
                _ => false,
            };
            if !resumed {
                if zone.cond.is_active() && has_data {
                    unfinished.push(number);
                }
                state.zones.seal(number);
            }
        }
        unfinished
    }

    /// A conventional zone has no pointer: what lies behind the last extent is free.
    fn settle_conventional(state: &mut State, zone: u32) {
        if state.zones.slot(zone).live == 0 {
            return;
        }
        let end = state.zones.slot(zone).end;
        state.zones.claim(zone);
        if !state.zones.resume(zone, end, state.totals.data_clock) {
            state.zones.seal(zone);
        }
    }
}

/// What [`Recovery::finish_recovery`] needs to know of what was read.
pub(in crate::furrow) struct RecoveryFacts {
    pub(in crate::furrow) zones: Vec<Zone>,
    /// Those that the journal goes on in.
    journal_zones: Option<[u32; 2]>,
    /// Zones that hold a superblock and nothing torn behind it.
    superblock_zones: Vec<u32>,
    /// The pair that parts go on in, and the next block of each zone.
    open_pair: Option<([u32; 2], [u32; 2])>,
    journal_is_whole: bool,
    copies_are_whole: bool,
    /// The newest batch is whole and lacks data.
    is_refused: bool,
}

impl RecoveryFacts {
    pub(in crate::furrow) fn of(drive: &Drive, loaded: &Loaded, problems: &Problems) -> Self {
        let journal = &loaded.journal;
        let journal_is_whole = journal_is_whole(drive, loaded);
        let pair = journal.pairs.get(journal.end.index).filter(|_| journal_is_whole);
        let is_last = |at: &Address| {
            let written = loaded.zones.get(at.zone as usize).and_then(Zone::written);
            written.and_then(|written| drive.layout.whole_blocks(written)) == Some(at.block + 1)
        };
        let superblocks = loaded.found.iter().map(|found| found.at).filter(is_last);
        Self {
            superblock_zones: superblocks.map(|at| at.zone).collect(),
            zones: loaded.zones.clone(),
            journal_zones: pair.map(|pair| pair.zones),
            open_pair: open_pair(drive, loaded),
            journal_is_whole,
            is_refused: loaded.newest.is_refused,
            copies_are_whole: problems.found.is_empty()
                && !loaded.newest.is_single
                && !loaded.table.view.has_suspects(),
        }
    }

    /// Whether writing goes on in a zone of metadata.
    fn continues_in(&self, zone: u32) -> bool {
        let open = self.open_pair.map(|(zones, _)| zones);
        [self.journal_zones, open].into_iter().flatten().any(|zones| zones.contains(&zone))
    }
}
