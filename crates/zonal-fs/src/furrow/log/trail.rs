//! The trail: records that the second copy of the journal lacks, where a jump costs time.
//!
//! An fsync on a disk would wait for the head twice if it wrote both copies. So a batch is durable
//! by its first copy, and the records for the second one gather in memory, for as long as changes
//! wait for a commit or up to a mebibyte, and leave in one run. A power cut may thus leave the last
//! batches in one copy; their records say that this is no damage. A first copy that fails brings
//! the second one up to date at once.

use std::fmt;

use zonal::DeviceError;

use crate::furrow::drive::Drive;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::log::Log;
use crate::furrow::log::committer::Committer;
use crate::furrow::log::journal::{Journal, Position};
use crate::furrow::options::Seeks;

/// Bytes of records that the second copy may lack.
pub(super) const TRAIL_BYTES_MAX: usize = 1 << 20;

/// Sealed records that the second copy lacks so far, in their order.
#[derive(Clone, Default)]
pub(in crate::furrow) struct Trail {
    at: Address,
    bytes: Vec<u8>,
}

impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trail").field("at", &self.at).field("bytes", &self.bytes.len()).finish()
    }
}

impl Journal {
    /// Writes a record to the first copy, and leaves it to the trail of the second one, unless the
    /// first copy fails.
    pub(super) fn append_first(
        &mut self,
        drive: &Drive,
        at: [Address; 2],
        [first, second]: [Vec<u8>; 2],
    ) -> [Option<std::result::Result<(), DeviceError>>; 2] {
        if self.trail.bytes.len() + second.len() > TRAIL_BYTES_MAX {
            self.catch_up(drive);
        }
        let outcome = drive.write(at[0], &first);
        match outcome {
            Ok(()) if !self.failed[1] => {
                if self.trail.bytes.is_empty() {
                    self.trail.at = at[1];
                }
                self.trail.bytes.extend(second);
                [Some(outcome), None]
            }
            Ok(()) | Err(DeviceError::NoSpace { .. }) => [Some(outcome), None],
            Err(_) => {
                self.catch_up(drive);
                let second = (!self.failed[1]).then(|| drive.write(at[1], &second));
                [Some(outcome), second]
            }
        }
    }

    /// Whether the second copy lacks records.
    pub(super) fn has_trail(&self) -> bool {
        !self.trail.bytes.is_empty()
    }

    /// Writes the records that the second copy lacks. They are not durable before the next flush.
    /// If the host below the drive is full they stay.
    pub(super) fn catch_up(&mut self, drive: &Drive) {
        let Trail { at, bytes } = std::mem::take(&mut self.trail);
        if bytes.is_empty() || self.failed[1] {
            return;
        }
        match drive.write(at, &bytes) {
            Ok(()) => {}
            Err(DeviceError::NoSpace { .. }) => self.trail = Trail { at, bytes },
            Err(error) => {
                tracing::warn!(zone = at.zone, %error, "a copy of the journal has failed");
                self.failed[1] = true;
            }
        }
    }

    /// The same, but for the records behind `end`, which are about to be rolled back.
    pub(super) fn catch_up_to(&mut self, drive: &Drive, end: Position) {
        let is_same_pair = end.index == self.end.index;
        let kept = end.block.saturating_sub(self.trail.at.block) as usize * BLOCK_BYTES;
        self.trail.bytes.truncate(if is_same_pair { kept } else { 0 });
        self.catch_up(drive);
    }

    /// Writes no more to the last pair: the next manifest gives the journal another one.
    pub(super) fn give_up_pair(&mut self, drive: &Drive) {
        self.catch_up(drive);
        self.failed = [true; 2];
    }
}

impl Log {
    /// Notes since when the second copy of the journal trails. Without a worker it brings it up to
    /// date in time.
    pub(super) fn note_trail(&self, committer: &mut Committer) {
        match (committer.journal.has_trail(), committer.trails_since_ns) {
            (false, _) => committer.trails_since_ns = None,
            (true, None) => committer.trails_since_ns = Some(self.clock.monotonic_ns()),
            (true, Some(_)) if self.tree.bell.has_worker() => {}
            (true, Some(_)) => self.catch_up_if_old(committer),
        }
    }

    /// Brings the second copy of the journal up to date once it has trailed as long as changes wait
    /// for a commit.
    fn catch_up_if_old(&self, committer: &mut Committer) {
        let Some(since) = committer.trails_since_ns else { return };
        let age_ns = self.clock.monotonic_ns().saturating_sub(since);
        if u128::from(age_ns) >= self.commit_age.as_nanos() {
            committer.journal.catch_up(&self.drive);
            committer.trails_since_ns = None;
        }
    }

    /// The same for the worker. If a commit is under way, the next tick does it.
    pub(in crate::furrow) fn tend_journal(&self) {
        if self.tree.layout().seeks == Seeks::Cost
            && let Ok(mut committer) = self.committer.try_lock()
        {
            self.catch_up_if_old(&mut committer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{ManualClock, MemoryDrive, ZoneFailure, ZoneId};

    use crate::furrow::sample::{counted, shape};
    use crate::furrow::{DataCheck, Furrow, MkfsOptions, MountOptions, check, mkfs};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SyncKind, WriteFlags};

    fn disk() -> MountOptions {
        MountOptions { rotational: Some(true), ..MountOptions::default() }
    }

    fn synced(fs: &Furrow, name: &[u8], byte: u8) {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino;
        fs.write(ino, 0, &[byte; 4096], WriteFlags::empty()).unwrap();
        fs.fsync(ino, SyncKind::Full).unwrap();
    }

    fn has_trail(fs: &Furrow) -> bool {
        fs.log.committer.lock().unwrap().journal.has_trail()
    }

    #[test]
    fn second_copy_of_journal_follows_in_one_run() {
        let (drive, clock) = counted(64, 64);
        let fs = Furrow::mount(drive.clone(), clock.clone(), disk()).unwrap();
        fs.sync().unwrap();
        drive.clear();
        for (name, byte) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            synced(&fs, name, byte);
        }
        // Each time the data, one copy of the record, and a flush.
        assert_eq!(drive.requests(), 9);
        assert!(has_trail(&fs));
        clock.advance_ns(6_000_000_000);
        drive.clear();
        fs.tick().unwrap();
        assert!(!has_trail(&fs) && drive.requests() == 1, "{} requests", drive.requests());
        drop(fs);
        let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        // With one copy only, after a power cut.
        let fs = Furrow::mount(drive.clone(), clock.clone(), disk()).unwrap();
        synced(&fs, b"d", 4);
        assert!(has_trail(&fs));
        drop(fs);
        let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let fs = Furrow::mount(drive, clock, disk()).unwrap();
        assert_eq!(fs.lookup(Ino::ROOT, b"d").unwrap().size, 4096);
    }

    #[test]
    fn second_copy_is_whole_when_journal_changes_its_pair() {
        let (drive, clock) = counted(64, 64);
        let fs = Furrow::mount(drive.clone(), clock, disk()).unwrap();
        let pair = || {
            let committer = fs.log.committer.lock().unwrap();
            committer.journal.pairs.last().map(|pair| pair.zones)
        };
        let (mut last, mut changes) = (pair(), 0);
        for number in 0..300_u32 {
            synced(&fs, number.to_string().as_bytes(), 1);
            if pair() != last {
                (last, changes) = (pair(), changes + 1);
                let report = check(drive.clone(), DataCheck::Skip, &mut |_| ()).unwrap();
                assert!(report.problems.is_empty(), "{number}: {:?}", report.problems);
            }
        }
        assert!(changes >= 3, "{changes} changes of the pair");
    }

    #[test]
    fn failure_of_first_copy_brings_second_up_to_date() {
        let drive = Arc::new(MemoryDrive::new(shape(64, 64)).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock.clone(), disk()).unwrap();
        synced(&fs, b"a", 1);
        synced(&fs, b"b", 2);
        assert!(has_trail(&fs));
        let zone = {
            let committer = fs.log.committer.lock().unwrap();
            let journal = &committer.journal;
            journal.pairs[journal.end.index].zones[0]
        };
        drive.fail_zone(ZoneId::new(zone), ZoneFailure::Offline).unwrap();
        synced(&fs, b"c", 3);
        assert!(!has_trail(&fs));
        drop(fs);
        let fs = Furrow::mount(drive, clock, disk()).unwrap();
        for name in [b"a", b"b", b"c"] {
            assert_eq!(fs.lookup(Ino::ROOT, name).unwrap().size, 4096);
        }
    }
}
