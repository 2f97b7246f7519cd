//! Truncation in steps: removes the map entries that large deletions and truncations leave behind.
//!
//! Deleting or truncating a file of many extents takes effect at once for every caller, but most of
//! its map entries stay, and the truncate worker removes them in steps. Until then the file is
//! marked, in memory and in its row, so that a mount after a crash continues. No caller sees the
//! entries that are left: reads end at the file's size, lookups do not find a deleted file, and a
//! write that would grow the file over such entries first waits until they are removed.
//!
//! It removes the entries of [discarded ranges](crate::furrow::metadata::map::discards) likewise.

pub(super) mod lost_blocks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::retry::Attempt;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::log::Log;
use crate::furrow::metadata::State;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::planted::PlantedBug;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::refused::REFUSED_NS_MAX;
use crate::furrow::table::view::Refused;
use crate::furrow::tree::Tree;
use crate::vfs::{Ino, Result};

/// Failed removals that a caller without space tries again, at most.
const RETRIES_MAX: usize = 4;

/// Entries that wait to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// Entries of a truncated or deleted file.
    Truncation(Ino),
    /// Entries of a file's discarded ranges.
    Discard(Ino),
    /// No entries: blocks of a deleted file that no row names are still to be freed.
    LostBlocks(Ino),
}

/// Removes the map entries that truncations and deletions leave behind.
pub(super) struct Truncator {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) log: Arc<Log>,
    /// Steps so far.
    steps: AtomicU64,
}

impl Truncator {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let (tree, drive) = (Arc::clone(&log.tree), Arc::clone(&log.drive));
        Self { tree, drive, log, steps: AtomicU64::new(0) }
    }

    /// Takes one step for one file, and returns whether any file had entries left. A file whose
    /// last step has failed waits for the end of its pause. A writer without space calls it too.
    pub(super) fn truncate_one(&self) -> bool {
        let Some(removal) = self.next_removal() else { return false };
        // After a failure the file waits, and the next step is for another one.
        let _ = self.step(removal);
        true
    }

    /// Whether a step has something to do.
    pub(super) fn is_due(&self) -> bool {
        self.next_removal().is_some()
    }

    fn next_removal(&self) -> Option<Removal> {
        let now = self.log.clock.monotonic_ns();
        let state = self.tree.read_state();
        let truncation = state.inodes.lives.next_truncation(now).map(Removal::Truncation);
        let discard = || state.maps.discards.next_file(now).map(Removal::Discard);
        let lost = || state.inodes.lives.lost_blocks.due(now).next().map(Removal::LostBlocks);
        truncation.or_else(discard).or_else(lost)
    }

    /// Tries failed removals again whose pause is not over, until one succeeds: for a caller that
    /// finds no space. Returns whether one did.
    pub(super) fn retry_failed(&self) -> bool {
        let failed = self.tree.read_state().failed_removals();
        failed.into_iter().take(RETRIES_MAX).any(|removal| self.step(removal).is_ok())
    }

    /// Removes a step's worth of entries. If the device refuses a read, the entries stay owed, and
    /// the worker tries again after a pause.
    fn step(&self, removal: Removal) -> Result<()> {
        let mut outcome = match removal {
            Removal::Truncation(ino) => self.remove_entries(|state| state.truncate_step(ino)),
            Removal::Discard(ino) => self.remove_entries(|state| state.end_some_discard(ino)),
            Removal::LostBlocks(ino) => self.give_back_lost(ino),
        };
        match (&outcome, removal) {
            (Err(FsError::NotFound), Removal::Truncation(ino)) => {
                // It has a row for recovery, and none of its own.
                let mut state = self.tree.write_state();
                state.end_orphan(ino);
                outcome = Ok(());
            }
            (Err(error), Removal::Truncation(ino)) if self.skip_lost(ino, error) => {
                tracing::error!(inode = %ino, %error, "a deleted file is removed without what is lost of it");
                // Its age stays: the rows behind may have been refused for as long.
                self.tree.write_accounts().inodes.lives.end_pause(ino);
                self.log.after_change();
                return Ok(());
            }
            (Err(_), Removal::Truncation(ino))
                if self.tree.planted.has(PlantedBug::ForgetFailedTruncation) =>
            {
                self.tree.write_accounts().inodes.lives.end_truncation(ino);
            }
            (Ok(()) | Err(_), _) => {}
        }
        self.note_step(removal, &outcome);
        self.log.after_change();
        outcome
    }

    fn remove_entries(&self, remove: impl Fn(&mut State) -> Lookup<()>) -> Result<()> {
        self.tree.loaded(|| {
            let mut state = self.tree.write_state();
            remove(&mut state)?;
            // Under the state lock: see `with_truncated_space`.
            self.steps.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })
    }

    /// Frees the blocks that a deleted file has lost, or owes that.
    fn free_lost(&self, ino: Ino) {
        let outcome = self.give_back_lost(ino);
        self.note_step(Removal::LostBlocks(ino), &outcome);
    }

    fn note_step(&self, removal: Removal, outcome: &Result<()>) {
        let now = self.log.clock.monotonic_ns();
        let attempt = if outcome.is_ok() { Attempt::Succeeded } else { Attempt::Failed };
        if outcome.is_ok() && !self.tree.read_state().owes_removal(removal) {
            return;
        }
        let age_ns = self.tree.write_accounts().note_removal(removal, attempt, now);
        if let Err(error) = outcome
            && age_ns == 0
        {
            tracing::error!(?removal, %error, "blocks of a file stay in use until a retry succeeds");
        }
    }

    /// After a failed step: marks the next lost range of a deleted file's map as a hole, or removes
    /// entries of lost extents, and returns whether there is something to skip. Rows that the
    /// device has refused to read count as lost only after ten minutes.
    fn skip_lost(&self, ino: Ino, error: &FsError) -> bool {
        let now = self.log.clock.monotonic_ns();
        let (from, refused) = {
            let state = self.tree.read_state();
            let age_ns = state.inodes.lives.failed().age_ns(ino, now);
            let is_old = age_ns.is_some_and(|age_ns| age_ns >= REFUSED_NS_MAX);
            let refused = if is_old { Refused::IsLost } else { Refused::MayReturn };
            if matches!(error, FsError::Refused { .. }) && refused == Refused::MayReturn {
                return false;
            }
            let inode = state.inodes.peek(ino).filter(|inode| inode.nlink == 0);
            let file = inode.and_then(|inode| inode.file().ok());
            let Some(file) = file.filter(|file| file.truncate_from == Some(0)) else {
                return false;
            };
            (file.resident.first_missing(0..u64::MAX), refused)
        };
        if self.skip_lost_extents(ino, refused) {
            return true;
        }
        let key = |at| Key::new(RowKind::Map, ino.get(), at);
        let span = from.map(|from| KeySpan::new(key(from), key(u64::MAX)));
        let past = span.and_then(|span| self.tree.view.past_lost(&self.drive, span, refused));
        let Some(from) = from else { return false };
        let Some(past) = past else { return self.skip_lost_entries(ino, from) };
        // The last lost entry may reach up to the next entry.
        let end = if past >= key(u64::MAX) {
            u64::MAX
        } else if let Ok(found) = self.tree.rows(past, key(u64::MAX), 1) {
            found.rows.first().map_or(found.end, |(key, _)| *key).at()
        } else {
            // The next rows are lost as well.
            past.at()
        };
        self.tree.write_accounts().mark_hole(ino, from..end);
        self.free_lost(ino);
        true
    }

    /// Takes steps until no entries below `limit` of a file are left to be removed. If one fails,
    /// the caller must not go on: it would uncover old content.
    pub(super) fn wait_for_truncation(&self, ino: Ino, limit: u64) -> Result<()> {
        while self.tree.read_state().awaits_truncation(ino, limit) {
            self.step(Removal::Truncation(ino))?;
        }
        Ok(())
    }

    /// Runs an operation again as long as it finds no space, which changes nothing, and truncation
    /// still frees some.
    pub(super) fn with_truncated_space<T>(&self, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let before = self.steps.load(Ordering::Acquire);
            // Another thread may have freed the space since.
            let others_did = || self.steps.load(Ordering::Acquire) != before;
            match run() {
                Err(FsError::NoSpace)
                    if self.truncate_one() || others_did() || self.retry_failed() => {}
                outcome => return outcome,
            }
        }
    }
}

impl State {
    /// Whether a removal has failed and is owed.
    fn owes_removal(&self, removal: Removal) -> bool {
        match removal {
            Removal::Truncation(ino) => self.inodes.lives.failed().has(ino),
            Removal::Discard(ino) => self.maps.discards.failed().has(ino),
            Removal::LostBlocks(ino) => self.inodes.lives.lost_blocks.has(ino),
        }
    }

    /// Notes the outcome of a step of a removal. After a failure, returns the nanoseconds since the
    /// first one.
    fn note_removal(&mut self, removal: Removal, attempt: Attempt, now_ns: u64) -> u64 {
        match removal {
            Removal::Truncation(ino) => self.inodes.lives.note_step(ino, attempt, now_ns),
            Removal::Discard(ino) => self.maps.discards.note_step(ino, attempt, now_ns),
            Removal::LostBlocks(ino) if attempt == Attempt::Succeeded => {
                self.inodes.lives.lost_blocks.settle(ino);
                0
            }
            Removal::LostBlocks(ino) => self.inodes.lives.lost_blocks.put_off(ino, now_ns),
        }
    }

    /// Removals that have failed, the longest untried first of each kind.
    fn failed_removals(&self) -> Vec<Removal> {
        let truncations = self.inodes.lives.failed().by_last_attempt().into_iter();
        let discards = self.maps.discards.failed().by_last_attempt().into_iter();
        let lost = self.inodes.lives.lost_blocks.by_last_attempt().into_iter();
        let entries = truncations.map(Removal::Truncation).chain(discards.map(Removal::Discard));
        entries.chain(lost.map(Removal::LostBlocks)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::metadata::state::truncation::ENTRIES_MAX;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Eviction, Furrow, MountOptions, StepProgress, Work, check};
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, NewInode, SetAttr, WriteFlags};

    /// A file of `count` map entries, which share one block, and the free blocks before it.
    fn many_entries(count: u64) -> (Furrow, Ino, u64) {
        let (drive, clock) = formatted(128, 4096);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino;
        let (source, file) = (create(b"source"), create(b"file"));
        fs.write(source, 0, &[1; 4096], WriteFlags::DIRECT).unwrap();
        fs.sync().unwrap();
        let free = fs.statfs().unwrap().blocks_free;
        for at in 0..count {
            fs.copy_range((source, 0), (file, at * 8192), 4096, WriteFlags::empty()).unwrap();
        }
        assert_eq!(entries(&fs, file), usize::try_from(count).unwrap());
        (fs, file, free)
    }

    fn entries(fs: &Furrow, ino: Ino) -> usize {
        let state = fs.tree.read_state();
        state.inodes.peek(ino).map_or(0, |inode| inode.file().unwrap().map.len())
    }

    /// Steps to the end. Each takes the lock once, and must not find much to do there.
    fn truncate_rest(fs: &Furrow, ino: Ino, keep: usize) {
        let mut free = fs.statfs().unwrap().blocks_free;
        loop {
            let before = entries(fs, ino);
            let progress = fs.step(Work::Truncate).unwrap();
            let removed = before - entries(fs, ino);
            assert!(removed <= ENTRIES_MAX, "{removed} entries in one step");
            let now = fs.statfs().unwrap().blocks_free;
            assert!(now >= free, "space comes back and does not go");
            free = now;
            if progress == StepProgress::Idle {
                assert_eq!(entries(fs, ino), keep);
                return;
            }
            assert_eq!(removed, ENTRIES_MAX, "a step does its part");
        }
    }

    #[test]
    fn space_freed_by_other_truncate_worker_is_found() {
        let (fs, _, _) = many_entries(3000);
        fs.unlink(Ino::ROOT, b"file").unwrap();
        assert!(
            !fs.tree.read_state().inodes.lives.truncating().is_empty(),
            "it is deleted in steps"
        );
        let mut calls = 0;
        let outcome = fs.truncator.with_truncated_space(|| {
            calls += 1;
            if calls > 1 {
                return Ok(());
            }
            while fs.truncator.truncate_one() {}
            Err(crate::FsError::NoSpace)
        });
        outcome.unwrap();
    }

    #[test]
    fn delete_of_100_000_extents_runs_in_steps() {
        let (fs, file, free) = many_entries(100_000);
        fs.pin(file).unwrap();
        fs.unlink(Ino::ROOT, b"file").unwrap();
        assert_eq!(fs.step(Work::Truncate).unwrap(), StepProgress::Idle, "it is in use");
        assert_eq!(entries(&fs, file), 100_000);
        let inodes = fs.statfs().unwrap().inodes;
        fs.unpin(file);
        assert!(fs.getattr(file).is_err() && fs.pin(file).is_err(), "nobody finds it");
        assert_eq!(fs.statfs().unwrap().inodes, inodes - 1);
        assert_eq!(entries(&fs, file), 100_000, "the deletion itself removes nothing");
        truncate_rest(&fs, file, 0);
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        assert!(fs.tree.read_state().inodes.peek(file).is_none());
    }

    #[test]
    fn truncate_of_100_000_extents_runs_in_steps() {
        let (fs, file, _) = many_entries(100_000);
        let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, file, &set(100 * 8192 + 5)).unwrap();
        assert!(entries(&fs, file) >= 100_000 - ENTRIES_MAX);
        assert_eq!(fs.getattr(file).unwrap().size, 100 * 8192 + 5);
        // Cut further while it goes on.
        assert_eq!(fs.step(Work::Truncate).unwrap(), StepProgress::More);
        fs.setattr(&Caller::ROOT, file, &set(10 * 8192)).unwrap();
        truncate_rest(&fs, file, 10);
    }

    /// Its row says that the blocks behind its end wait to be removed. After a mount all its blocks
    /// wait, and shared ones are loaded before they go.
    #[test]
    fn delete_after_mount_frees_front_and_pending_end() {
        let (drive, clock) = formatted(64, 1024);
        let options = MountOptions { eviction: Eviction::AtEveryLock, ..MountOptions::default() };
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let create = |name: &[u8]| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino;
        let (source, file) = (create(b"source"), create(b"file"));
        let content = vec![1; 8 * 4096];
        fs.write(source, 0, &content, WriteFlags::DIRECT).unwrap();
        let free = fs.statfs().unwrap().blocks_free;
        fs.copy_range((source, 0), (file, 0), 4 * 4096, WriteFlags::empty()).unwrap();
        fs.copy_range((source, 4 * 4096), (file, 5 * 4096), 4 * 4096, WriteFlags::empty()).unwrap();
        // More than one step removes.
        for block in (10..4000).step_by(2) {
            fs.fallocate(file, Allocate::Extend, block * 4096, 4096).unwrap();
        }
        let set = SetAttr { size: Some(9 * 4096), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, file, &set).unwrap();
        assert!(!fs.tree.read_state().inodes.lives.truncating().is_empty(), "its end waits");
        fs.unlink(Ino::ROOT, b"file").unwrap();
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive.clone(), clock, options).unwrap();
        while fs.truncator.truncate_one() {}
        fs.sync().unwrap();
        let mut found = vec![0; content.len()];
        fs.read(source, 0, &mut found).unwrap();
        assert!(found == content);
        assert!(fs.statfs().unwrap().blocks_free >= free);
        assert_eq!(fs.statfs().unwrap().inodes, 2);
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn growth_over_pending_truncate_reads_zeroes() {
        for how in ["truncate", "write", "allocate", "copy"] {
            let (fs, file, _) = many_entries(5000);
            let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(&Caller::ROOT, file, &set(3)).unwrap();
            assert!(entries(&fs, file) > 3000);
            let end = 4000 * 8192;
            let source = fs.lookup(Ino::ROOT, b"source").unwrap().ino;
            match how {
                "truncate" => drop(fs.setattr(&Caller::ROOT, file, &set(end)).unwrap()),
                "write" => drop(fs.write(file, end, b"end", WriteFlags::empty()).unwrap()),
                "allocate" => {
                    fs.fallocate(file, crate::vfs::Allocate::Extend, end - 100, 100).unwrap();
                }
                _ => drop(fs.copy_range((source, 0), (file, end), 4096, WriteFlags::empty())),
            }
            assert!(fs.getattr(file).unwrap().size >= end, "{how}");
            for block in [0, 2, 1000, 4096, 7998] {
                let mut found = [9; 4096];
                fs.read(file, block * 4096, &mut found).unwrap();
                let old = if block == 0 { 3 } else { 0 };
                assert!(found[..old].iter().all(|byte| *byte == 1), "{how}, block {block}");
                assert!(found[old..].iter().all(|byte| *byte == 0), "{how}, block {block}");
            }
        }
    }

    /// Gives a file another size, as damage could, and mounts again. The check must find it.
    fn damage_size(fs: Furrow, ino: Ino, size: u64) -> Furrow {
        fs.tree.write_state().change_inode(ino).unwrap_or_else(|_| panic!("it is loaded")).size =
            size;
        fs.sync().unwrap();
        let (drive, clock) = (fs.drive.device.clone(), fs.log.clock.clone());
        drop(fs);
        let report = check(drive.clone(), DataCheck::Skip, &mut |_| ()).unwrap();
        assert!(report.problems.iter().all(|problem| problem.ino == Some(ino)), "{report:?}");
        assert!(report.problems.iter().any(|problem| problem.invariant.id == "C26"), "{report:?}");
        Furrow::mount(drive, clock, MountOptions::default()).unwrap()
    }

    /// No way to grow a damaged file must show old content. A truncation mends it.
    fn check_growth_fails(fs: &Furrow, ino: Ino, end: u64) {
        let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let resize = |size| fs.setattr(&Caller::ROOT, ino, &set(size));
        let source = fs.lookup(Ino::ROOT, b"source").unwrap().ino;
        let is_damaged = |error: FsError| matches!(error, FsError::Corrupt { .. });
        assert!(is_damaged(resize(end).unwrap_err()));
        assert!(is_damaged(fs.write(ino, end, &[3; 4096], WriteFlags::empty()).unwrap_err()));
        assert!(is_damaged(fs.fallocate(ino, Allocate::Extend, 0, end).unwrap_err()));
        let copy = fs.copy_range((source, 0), (ino, end), 4096, WriteFlags::empty());
        assert!(is_damaged(copy.unwrap_err()));
        let mut found = [0; 4096];
        fs.read(ino, 0, &mut found).unwrap();
        assert_eq!(found[0], 1, "what is left reads as before");
        resize(1).unwrap();
        resize(end).unwrap();
        for block in (1..end / 4096).step_by(7) {
            fs.read(ino, block * 4096, &mut found).unwrap();
            assert_eq!(found, [0; 4096], "block {block}");
        }
        while fs.truncator.truncate_one() {}
        fs.sync().unwrap();
        let report = check(fs.drive.device.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn size_over_pending_truncate_is_found_and_shows_nothing() {
        let (fs, file, _) = many_entries(5000);
        let set = SetAttr { size: Some(4 * 8192), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, file, &set).unwrap();
        assert_eq!(fs.step(Work::Truncate).unwrap(), StepProgress::More);
        let fs = damage_size(fs, file, 4000 * 8192);
        for block in [3000, 7000] {
            assert!(fs.read(file, block * 4096, &mut [0; 4096]).is_err(), "block {block}");
        }
        let left = fs.statfs().unwrap().blocks_free;
        fs.step(Work::Truncate).unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, left, "nothing of it is freed");
        check_growth_fails(&fs, file, 4100 * 8192);
    }

    #[test]
    fn data_beyond_size_is_found_and_shows_nothing() {
        for (count, size) in [(50, 10 * 8192), (3000, 5)] {
            let (fs, file, _) = many_entries(count);
            let fs = damage_size(fs, file, size);
            check_growth_fails(&fs, file, (count + 1) * 8192);
        }
    }

    #[test]
    fn damaged_files_can_be_deleted() {
        for damage in ["size over truncation", "data beyond size"] {
            let (fs, file, _) = many_entries(5000);
            if damage == "size over truncation" {
                let set = SetAttr { size: Some(1), ..SetAttr::default() };
                fs.setattr(&Caller::ROOT, file, &set).unwrap();
            }
            let fs = damage_size(fs, file, 2000 * 8192);
            fs.unlink(Ino::ROOT, b"file").unwrap();
            while fs.truncator.truncate_one() {}
            fs.sync().unwrap();
            assert!(fs.tree.read_state().inodes.peek(file).is_none(), "{damage}");
            let report = check(fs.drive.device.clone(), DataCheck::Read, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "{damage}: {report:?}");
        }
    }

    #[test]
    fn allocation_without_space_runs_truncate_worker() {
        let (fs, file, _) = many_entries(1);
        let other = fs.lookup(Ino::ROOT, b"source").unwrap().ino;
        let allocate = |ino, first: u64, blocks: u64| {
            fs.fallocate(ino, crate::vfs::Allocate::Extend, first * 4096, blocks * 4096)
        };
        for piece in 0..5000 {
            allocate(file, 20 * piece, 10).unwrap();
        }
        let free = fs.statfs().unwrap().blocks_free;
        fs.unlink(Ino::ROOT, b"file").unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, free, "nothing is back yet");
        allocate(other, 1, free + 40_000).unwrap();
        let left = entries(&fs, file);
        assert!((1..=1000).contains(&left), "as much as it needs: {left} entries are left");
    }
}
