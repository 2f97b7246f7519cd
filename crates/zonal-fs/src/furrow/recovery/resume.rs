//! Resuming: makes a drive ready for writing after
//! [`recovery::read_base`](crate::furrow::recovery::read_base). A writable mount deletes unlinked
//! files, gives the journal a clean end, and resets zones without live blocks. It rewrites no rows
//! except rows with a bad copy.

use zonal::{Zone, ZoneCond};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::{Address, blocks_for};
use crate::furrow::invariant::Problems;
use crate::furrow::log::Log;
use crate::furrow::log::maintenance::StepBudget;
use crate::furrow::metadata::{Ending, State};
use crate::furrow::planted::{PlantedBug, mistake};
use crate::furrow::recovery::LoadedDrive;
use crate::furrow::table::key::RowKind;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::zones::Role;
use crate::vfs::Result;

/// Steps of truncation that a mount takes before it returns.
const ORPHANS_AT_MOUNT: usize = 64;

/// The pair that holds the manifest, which both zones can continue. After a power cut one zone may
/// have more blocks than the other, and parts that no manifest names.
#[derive(Clone, Copy)]
struct ManifestPair {
    zones: [u32; 2],
    /// The next block of each zone.
    next: [u32; 2],
}

/// The pair that holds the manifest, if both zones can be written.
fn open_pair(drive: &Drive, loaded: &LoadedDrive) -> Option<ManifestPair> {
    // The journal has the drive's few active zones unless it is about to get its next pair.
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
    Some(ManifestPair { zones: pointers.each_ref().map(|pointer| pointer.zone.get()), next })
}

/// Whether both copies of the journal end at the write pointers of their zones, so that the next
/// batch can follow.
fn journal_is_whole(drive: &Drive, loaded: &LoadedDrive) -> bool {
    let journal = &loaded.journal;
    let Some(pair) = journal.pairs.get(journal.end.index) else { return false };
    !journal.is_impaired()
        && pair.zones.iter().all(|&zone| {
            let Some(report) = loaded.zones.get(zone as usize) else { return false };
            let written = report.written().and_then(|written| drive.layout.whole_blocks(written));
            report.cond != ZoneCond::Full && written == Some(journal.end.block)
        })
}

/// Makes a file system ready for writing once its state was read.
pub(in crate::furrow) struct Recovery<'a> {
    drive: &'a Drive,
    tree: &'a Tree,
    writer: &'a Writer,
    log: &'a Log,
    truncator: &'a Truncator,
}

impl<'a> Recovery<'a> {
    /// Takes the highest part that it uses, which leads to the others.
    pub(in crate::furrow) fn of(truncator: &'a Truncator) -> Self {
        let log = &truncator.log;
        Self { drive: &log.drive, tree: &log.tree, writer: &log.writer, log, truncator }
    }

    /// Makes the drive ready for writing.
    pub(in crate::furrow) fn finish_recovery(&self, loaded: &mut RecoveryFacts) -> Result<()> {
        // If only the last process ended, blocks that recovery has read may still be in the drive's
        // cache.
        self.drive.flush()?;
        let mut whole = loaded.journal_is_whole;
        mistake!(self.tree, ContinueBehindTornRecord, whole = true);
        if self.tree.layout().few_active_zones {
            self.settle_superblocks(loaded)?;
        }
        if !whole {
            self.free_active_zone(loaded);
            let mut committer = self.log.lock_committer();
            committer.void_rest(self.drive)?;
            // The next batch would follow a torn one, or be in one copy only.
            committer.journal.failed = [true; 2];
        }
        let mut unfinished;
        {
            let mut state = self.tree.write_state();
            unfinished = self.settle_zones(&mut state, &loaded.zones);
            if self.tree.layout().few_active_zones {
                self.finish_metadata(&state, loaded);
                // The next pair of the journal needs their active resources.
                unfinished.drain(..).for_each(|zone| self.drive.finish(zone));
            }
            // F3: the flush above made the rows durable that recovery has read: none refers to
            // these zones.
            let emptied = state.zones.take_emptied(|_| true);
            drop(state);
            let is_active = |zone: u32| {
                loaded.zones.get(zone as usize).is_some_and(|zone| zone.cond.is_active())
            };
            let (active, others): (Vec<u32>, Vec<u32>) =
                emptied.into_iter().partition(|&zone| is_active(zone));
            // The mount needs every active zone; the resets of others can wait until later.
            for zone in active {
                self.writer.reset_zone(zone);
            }
            self.tree.write_accounts().zones.allow_resets(&others);
        }
        if let Some(ManifestPair { zones, next }) = loaded.open_pair {
            self.log.lock_pairs().resume(self.drive, zones, next);
        }
        // From here on there may be commits: a deleted file whose map is long needs several.
        if !self.tree.planted.has(PlantedBug::ForgetOrphans) {
            self.truncate_orphans();
        }
        if !(whole && loaded.copies_are_whole) {
            let mut committer = self.log.lock_committer();
            // Rebuilt rows are not durable yet: until then the table keeps its own rows of that
            // range.
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
            // Rebuilt rows must be durable before the table drops its own rows of that range.
            self.tree.write_state().mark(RowKind::Totals, 0, 0);
            self.log.commit(Ending::Record)?;
        }
        if !loaded.copies_are_whole {
            // Writes structures that have one good copy again.
            self.log.compact(StepBudget::All);
        }
        self.log.commit(Ending::Record)
    }

    /// Begins to remove deleted files. The worker removes the rest.
    fn truncate_orphans(&self) {
        self.tree.write_state().inodes.lives.truncate_unlinked();
        for _ in 0..ORPHANS_AT_MOUNT {
            if !self.truncator.truncate_one() {
                break;
            }
        }
    }

    /// Finishes the active zones of the superblock log, since the next superblock needs one. A zone
    /// with a torn record is reset instead: a finished zone reads as zeroes behind its data, which
    /// may be all that the record lacks. That record would then be the newest superblock, and lead
    /// to zones that Furrow has reset.
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

    /// Finishes zones until one more can be active, for the superblock that rejects torn records.
    /// It must not finish a zone whose zeroes could complete them: if the newest batch lacks data,
    /// it takes zones of the journal, which has all of that batch; otherwise it takes others first,
    /// those with data last.
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

    /// Finishes active metadata zones that no write continues: the power may have failed before
    /// they were finished, and the mount needs every active zone.
    fn finish_metadata(&self, state: &State, loaded: &RecoveryFacts) {
        for zone in loaded.zones.iter().filter(|zone| zone.cond.is_active()) {
            let number = zone.id.get();
            let is_meta = state.zones.slot(number).role == Role::Meta;
            if is_meta && !loaded.continues_in(number) {
                self.drive.finish(number);
            }
        }
    }

    /// Opens again each data zone that has room, and seals the others. Returns the sealed zones
    /// that are active, which the caller finishes.
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
                    // It has lost all its data. A write there would give new data to the rows that
                    // still name the old blocks.
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
                    let clock = state.rows.totals.data_clock();
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

    /// Opens a conventional zone behind its last extent, since it has no write pointer.
    fn settle_conventional(state: &mut State, zone: u32) {
        if state.zones.slot(zone).live == 0 {
            return;
        }
        let end = state.zones.slot(zone).end;
        state.zones.claim(zone);
        if !state.zones.resume(zone, end, state.rows.totals.data_clock()) {
            state.zones.seal(zone);
        }
    }
}

/// Facts about the drive for [`Recovery::finish_recovery`].
pub(in crate::furrow) struct RecoveryFacts {
    pub(super) zones: Vec<Zone>,
    /// The pair in which the journal continues.
    journal_zones: Option<[u32; 2]>,
    /// Zones that end with a superblock and no torn record.
    superblock_zones: Vec<u32>,
    /// The pair in which parts continue.
    open_pair: Option<ManifestPair>,
    journal_is_whole: bool,
    copies_are_whole: bool,
    /// The newest batch is whole, but its data is not there.
    is_refused: bool,
}

impl RecoveryFacts {
    pub(in crate::furrow) fn of(drive: &Drive, loaded: &LoadedDrive, problems: &Problems) -> Self {
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

    /// Whether a metadata zone will be written again.
    fn continues_in(&self, zone: u32) -> bool {
        let open = self.open_pair.map(|pair| pair.zones);
        [self.journal_zones, open].into_iter().flatten().any(|zones| zones.contains(&zone))
    }
}
