//! The worker: does long work in short steps, so that no operation waits for it.
//!
//! An operation leaves some work for later, such as resets of zones. The caller of
//! [`step`](Worker::step) does it: the thread of a mount or of a volume, through `tick`, or a test.
//! A step holds locks that readers and writers need only for a part of its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::log::Log;
use crate::furrow::metadata::Ending;
use crate::furrow::reclaim::Reclaimer;
use crate::furrow::tree::Tree;
use crate::furrow::tree::bell::StepProgress;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::zones::{Role, Urgency};
use crate::vfs::Result;

/// Rounds of steps in one tick. An unmount waits for the tick that runs, so it is short.
const ROUNDS: usize = 64;

/// Steps of reclaim in one tick, 8 MiB in all. Even a disk moves as much in a fraction of the half
/// second between two ticks.
const RECLAIMS: usize = 8;

/// A kind of work that is done in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Commits when the last commit is as old as the options say, or earlier if much has changed.
    Commit,
    /// Resets a zone in which nothing lives.
    Reset,
    /// Removes up to 1,024 map entries of deleted or truncated files, or of discarded ranges.
    Truncate,
    /// Moves a mebibyte out of a victim if few zones are free, else out of a read-only zone.
    Reclaim,
    /// Makes rows of a sealed zone's back-references, for the next commit.
    Backrefs,
    /// Flushes the memtable to a run, or merges runs.
    Compact,
}

impl Work {
    /// Work that the worker does as soon as it can.
    const BACKGROUND: [Self; 5] =
        [Self::Truncate, Self::Reset, Self::Backrefs, Self::Reclaim, Self::Compact];
}

/// Does the work that operations leave behind, in steps.
pub(super) struct Worker {
    tree: Arc<Tree>,
    writer: Arc<Writer>,
    log: Arc<Log>,
    truncator: Arc<Truncator>,
    reclaimer: Arc<Reclaimer>,
    /// Reclaim in the background is paused.
    is_paused: AtomicBool,
}

impl Worker {
    pub(super) fn new(reclaimer: Arc<Reclaimer>) -> Self {
        Self {
            tree: Arc::clone(&reclaimer.tree),
            writer: Arc::clone(&reclaimer.writer),
            log: Arc::clone(&reclaimer.log),
            truncator: Arc::clone(&reclaimer.truncator),
            reclaimer,
            is_paused: AtomicBool::new(false),
        }
    }

    /// Does a step of some work.
    pub(super) fn step(&self, work: Work) -> Result<StepProgress> {
        if self.tree.is_read_only() {
            return Ok(StepProgress::Idle);
        }
        match work {
            Work::Commit => self.commit_step(),
            Work::Reset => {
                if self.tree.read_state().zones.refused_reset_count() > 0 {
                    let now = self.log.clock.monotonic_ns();
                    self.tree.write_accounts().zones.retry_due_resets(now);
                }
                self.writer.reset_one();
                let more = self.tree.read_state().zones.reset_count() > 0;
                Ok(if more { StepProgress::More } else { StepProgress::Idle })
            }
            Work::Truncate => {
                self.truncator.truncate_one();
                let more = self.truncator.is_due();
                Ok(if more { StepProgress::More } else { StepProgress::Idle })
            }
            Work::Backrefs => {
                let more = self.tree.make_backref_rows(Ending::Record);
                Ok(if more { StepProgress::More } else { StepProgress::Idle })
            }
            Work::Reclaim => self.reclaim_step(),
            Work::Compact => self.log.compact_step(),
        }
    }

    /// Runs a tick: the commit that is due, and a short time's worth of the other work.
    pub(super) fn run_steps(&self) -> Result<()> {
        self.tree.bell.has_come();
        let mut committed = Ok(StepProgress::Idle);
        let mut reclaims = RECLAIMS;
        for _ in 0..ROUNDS {
            // A commit that becomes due does not wait for the end of the tick.
            if committed.is_ok() {
                committed = self.step(Work::Commit);
            }
            let mut more = false;
            for work in Work::BACKGROUND {
                if work == Work::Reclaim {
                    let Some(left) = reclaims.checked_sub(1) else { continue };
                    reclaims = left;
                }
                match self.step(work) {
                    Ok(progress) => more |= progress == StepProgress::More,
                    Err(error) if error.is_host_full() => {}
                    // Only a failed commit breaks a promise to the user.
                    Err(error) => tracing::warn!(?work, %error, "work in the background failed"),
                }
            }
            if !more {
                return committed.map(drop).and(self.give_back());
            }
        }
        self.tree.bell.wake_worker();
        committed.map(drop)
    }

    /// Gives the host below the drive the space of zones that were reset. While changes wait for a
    /// commit, its flush does that, unless the host is full.
    fn give_back(&self) -> Result<()> {
        let drive = &self.log.drive;
        if drive.is_host_full() {
            return match self.reclaimer.check_host() {
                Err(error) if error.is_host_full() => Ok(()),
                outcome => outcome,
            };
        }
        if !drive.has_unflushed_resets() {
            return Ok(());
        }
        let has_changes = {
            let state = self.tree.read_state();
            !state.rows.batch.is_empty() || !state.maps.buffered.is_empty()
        };
        if has_changes { Ok(()) } else { Ok(drive.flush()?) }
    }

    /// Commits if it is due.
    fn commit_step(&self) -> Result<StepProgress> {
        let is_due = self.log.is_commit_due();
        if is_due {
            self.log.commit(Ending::Record)?;
        }
        self.log.tend_journal();
        Ok(if is_due { StepProgress::Idle } else { StepProgress::Wait })
    }

    /// Moves some blocks before a writer has to wait for room.
    pub(super) fn reclaim_step(&self) -> Result<StepProgress> {
        if self.is_reclaim_paused() {
            return Ok(StepProgress::Idle);
        }
        let now = self.log.clock.monotonic_ns();
        let (urgency, needs_scan) = {
            let state = self.tree.read_state();
            let is_low = state.zones.free_blocks() < 2 * self.tree.space.low_mark(&state);
            let (urgency, role) = if is_low {
                (Urgency::Normal, Role::Sealed)
            } else {
                (Urgency::Rescue, Role::Failed)
            };
            (urgency, state.zones.need_scan(role, now))
        };
        let scans_on = needs_scan && self.reclaimer.scan_on();
        let moved = self.reclaimer.reclaim_some(self.reclaimer.copy_blocks(), urgency)?;
        self.reclaimer.free_emptied()?;
        Ok(if moved > 0 || scans_on { StepProgress::More } else { StepProgress::Idle })
    }

    /// Reclaims ahead of need, by a step: resets a zone, or commits so that a zone becomes empty,
    /// or moves up to a mebibyte out of the best victim by cost and benefit. `Idle` if no victim is
    /// worth it.
    pub(super) fn reclaim_ahead(&self) -> Result<StepProgress> {
        if self.tree.is_read_only() {
            return Err(FsError::ReadOnly);
        }
        if self.writer.reset_one() {
            return Ok(StepProgress::More);
        }
        let now = self.log.clock.monotonic_ns();
        let (is_emptied, needs_scan) = {
            let zones = &self.tree.read_state().zones;
            (zones.has_emptied(), zones.need_scan(Role::Sealed, now))
        };
        if is_emptied {
            self.log.commit(Ending::Record)?;
            return Ok(StepProgress::More);
        }
        let scans_on = needs_scan && self.reclaimer.scan_on();
        let moved = self.reclaimer.reclaim_some(self.reclaimer.copy_blocks(), Urgency::Ahead)?;
        Ok(if moved > 0 || scans_on { StepProgress::More } else { StepProgress::Idle })
    }

    /// Pauses reclaim in the background, until [`resume_reclaim`](Self::resume_reclaim) or the end
    /// of the mount. Writers that find little room still reclaim.
    pub(super) fn pause_reclaim(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }

    /// Resumes reclaim in the background.
    pub(super) fn resume_reclaim(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
        self.tree.bell.wake_worker();
    }

    /// Whether reclaim in the background is paused.
    pub(super) fn is_reclaim_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }
}

impl Furrow {
    /// Does a step of some work.
    pub fn step(&self, work: Work) -> Result<StepProgress> {
        self.worker.step(work)
    }

    /// Reclaims ahead of need, by a step: resets a zone, or commits so that a zone becomes empty,
    /// or moves up to a mebibyte out of the best victim by cost and benefit. `Idle` if no victim is
    /// worth it.
    pub fn reclaim_ahead(&self) -> Result<StepProgress> {
        self.worker.reclaim_ahead()
    }

    /// Pauses reclaim in the background, until [`resume_reclaim`](Self::resume_reclaim) or the end
    /// of the mount. Writers that find little room still reclaim.
    pub fn pause_reclaim(&self) {
        self.worker.pause_reclaim();
    }

    /// Resumes reclaim in the background.
    pub fn resume_reclaim(&self) {
        self.worker.resume_reclaim();
    }

    /// Whether reclaim in the background is paused.
    pub fn is_reclaim_paused(&self) -> bool {
        self.worker.is_reclaim_paused()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::furrow::format::BLOCK_BYTES;
    use crate::furrow::sample::formatted;
    use crate::furrow::table::memtable::ROW_BYTES;
    use crate::furrow::tree::CHANGES_MAX;
    use crate::furrow::{DataCheck, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    #[test]
    fn commit_of_many_changes_comes_early() {
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        fs.on_work(Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let changes = || fs.tree.read_state().rows.batch.changed().len();
        change_rows(&fs, CHANGES_MAX);
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        drop(fs.tree.write_state());
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        fs.tick().unwrap();
        assert_eq!(changes(), 0);
        let new = NewInode { kind: FileKind::Fifo, perm: 0o644, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, b"another", &new).unwrap();
        fs.tick().unwrap();
        assert!(changes() > 0, "it is not time yet");
    }

    /// Rows of inodes that are gone again.
    fn change_rows(fs: &Furrow, count: usize) {
        let inos = (1 << 40..).map(Ino::new).take(count);
        let mut state = fs.tree.write_state();
        inos.for_each(|ino| state.delete_unknown(ino));
    }

    #[test]
    fn commit_by_ticks_meets_interval_option() {
        for seconds in [1, 2, 5, 30] {
            let (drive, clock) = formatted(64, 64);
            let commit_seconds = NonZeroU32::new(seconds).unwrap();
            let options = MountOptions { commit_seconds, ..MountOptions::default() };
            let fs = Furrow::mount(drive, clock.clone(), options).unwrap();
            fs.on_work(Arc::new(|| ()));
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            fs.sync().unwrap();
            let is_committed = || {
                let state = fs.tree.read_state();
                state.rows.batch.is_empty() && state.maps.buffered.is_empty()
            };
            // Half a second is between two ticks of a mount. Changes come at any time after a
            // commit.
            for begin in [0, 1, 499, 500, 999, 1000, 4321] {
                clock.advance_ns(begin * 1_000_000);
                let batches = fs.stats().batches;
                fs.write(file, begin, b"x", WriteFlags::empty()).unwrap();
                let mut half_seconds = 0;
                while !is_committed() {
                    clock.advance_ns(500_000_000);
                    half_seconds += 1;
                    fs.tick().unwrap();
                }
                assert!(half_seconds <= 2 * seconds, "{half_seconds} of {seconds} s");
                assert_eq!(fs.stats().batches, batches + 1);
            }
            let batches = fs.stats().batches;
            clock.advance_ns(60_000_000_000);
            fs.tick().unwrap();
            assert_eq!(fs.stats().batches, batches, "nothing has changed");
        }
    }

    #[test]
    fn commit_due_does_not_wait_for_whole_table_step() {
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        fs.on_work(Arc::new(|| ()));
        let limit = fs.tree.layout().memtable_bytes;
        change_rows(&fs, limit * 3 / 2 / ROW_BYTES);
        fs.sync().unwrap();
        assert!(fs.tree.view.memtable_bytes() > limit, "it is to be written");
        change_rows(&fs, CHANGES_MAX);
        assert_eq!(fs.step(Work::Compact).unwrap(), StepProgress::More);
        assert!(fs.tree.read_state().rows.batch.is_empty());
    }

    #[test]
    fn backref_listing_is_done_by_worker_if_any() {
        for has_worker in [false, true] {
            let (drive, clock) = formatted(64, 64);
            let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
            if has_worker {
                fs.on_work(Arc::new(|| ()));
            }
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            let data = vec![7; 64 * BLOCK_BYTES];
            fs.write(file, 0, &data, WriteFlags::DIRECT).unwrap();
            let unlisted = || {
                let zones = &fs.tree.read_state().zones;
                let full = |zone: &u32| zones.slot(*zone).live == 64;
                zones
                    .ids()
                    .filter(full)
                    .filter(|&zone| !zones.slot(zone).is_listed_in_rows())
                    .count()
            };
            assert_eq!(unlisted(), 1);
            fs.sync().unwrap();
            assert_eq!(unlisted(), usize::from(has_worker));
            assert_eq!(fs.step(Work::Backrefs).unwrap() == StepProgress::More, has_worker);
            assert_eq!(fs.step(Work::Backrefs).unwrap(), StepProgress::Idle);
            fs.create(&Caller::ROOT, Ino::ROOT, b"another", &new).unwrap();
            fs.sync().unwrap();
            assert_eq!(unlisted(), 0);
        }
    }

    #[test]
    fn backref_listing_waits_for_worker_after_owner_change() {
        let (drive, clock) = formatted(64, 64);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        fs.on_work(Arc::new(|| ()));
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let create = |name| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino;
        let (file, copy) = (create(b"file"), create(b"copy"));
        fs.write(file, 0, &vec![7; 64 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        fs.step(Work::Backrefs).unwrap();
        fs.sync().unwrap();
        let len = 8 * BLOCK_BYTES as u64;
        fs.copy_range((file, 0), (copy, 0), len, WriteFlags::empty()).unwrap();
        fs.sync().unwrap();
        drop(fs);
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
    }
}
