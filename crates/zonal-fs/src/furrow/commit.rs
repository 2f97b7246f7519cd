//! The commit: what makes everything before it durable, and nothing in part.
//!
//! Order: buffered data to data zones → *flush* → the changed rows as one journal record, twice →
//! *flush* → zones in which nothing lives any more may be reset (F3), which [`step`](super::step)
//! does later. When the journal has no room, a
//! checkpoint takes the record's place. Who waits for the lock while another commits finds its
//! changes durable when it gets it: that is the group commit.
//!
//! The batch is the tree at one moment: from the last blocks that leave the buffer until the rows
//! are encoded nothing else changes it. Who reads goes on meanwhile, device I/O or not.

use std::sync::atomic::Ordering;

use super::Furrow;
use super::checkpoint::{CheckpointLog, Image, MountedZones};
use super::format::BLOCK_BYTES;
use super::format::record::{PaddedRecord, RecordBuffer};
use super::format::superblock::Superblock;
use super::journal::{Appended, Journal};
use super::planted::{Planted, PlantedBug};
use super::superlog::SuperLog;
use crate::FsError;
use crate::vfs::Result;

/// Passes over the write buffer before a commit holds off changes to finish it.
const PASSES: usize = 2;

/// Bytes of journal below which no checkpoint is written to shorten it: read in a fraction of a
/// second at mount.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;

/// What a commit writes to, behind one lock.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) superblock: Superblock,
    pub(super) superlog: SuperLog,
    pub(super) checkpoints: CheckpointLog,
    pub(super) journal: Journal,
    pub(super) needs_checkpoint: Need,
    pub(super) planted: Planted,
}

/// Whether the next commit must be a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// No.
    None,
    /// To shorten the journal, or to give it two good copies again. Where there is no room for one,
    /// the journal goes on: the commit may be what makes room.
    Soon,
    /// The last batch was taken but not written: only a checkpoint has it all.
    Now,
}

/// What a commit took from the state, in one moment.
struct Taken {
    batch: u64,
    record: RecordBuffer,
    image: Option<Image>,
    /// Zones to reset once the batch is durable.
    emptied: Vec<u32>,
}

/// What a commit ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A journal record if there is room.
    Record,
    /// A checkpoint, and a superblock that says the drive was left clean.
    Clean,
    /// A checkpoint.
    Checkpoint,
}

impl Furrow {
    /// Makes everything before this call durable.
    pub(super) fn commit(&self, ending: Ending) -> Result<()> {
        let wanted = {
            let state = self.read_state();
            let nothing = state.changes.rows.is_empty()
                && state.buffered.is_empty()
                && !state.zones.has_idle_emptied(|zone| self.is_idle(zone));
            if nothing { state.batch - 1 } else { state.batch }
        };
        let mut committer = self.committer.lock().expect("no holder panicked");
        let durable = self.durable_batch.load(Ordering::Acquire) >= wanted;
        if durable && ending == Ending::Record && committer.needs_checkpoint == Need::None {
            return Ok(());
        }
        self.check_writable()?;
        let taken = {
            let _turn = self.flushing.lock().expect("no holder panicked");
            let passes = if self.has_planted(PlantedBug::SkipWriteBack) { 0 } else { PASSES };
            for _ in 0..passes {
                self.write_back_all()?;
            }
            self.take(&committer, ending)?
        };
        let outcome = self.make_durable(&mut committer, taken, ending);
        if outcome.is_err() {
            committer.needs_checkpoint = Need::Now;
        }
        outcome
    }

    /// Takes the batch: from here on changes belong to the next one.
    fn take(&self, committer: &Committer, ending: Ending) -> Result<Taken> {
        let _unchanged = self.hold_off_changes();
        if !self.has_planted(PlantedBug::SkipWriteBack) {
            self.write_back_all()?;
        }
        let (changes, emptied, batch) = {
            let mut state = self.write_accounts();
            let changes = std::mem::take(&mut state.changes);
            let emptied = state.zones.take_emptied(|zone| self.is_idle(zone));
            state.batch += 1;
            (changes, emptied, state.batch - 1)
        };
        let state = self.read_state();
        let record = super::rows::batch(&state, &changes, self.options.planted);
        let whole = ending != Ending::Record || committer.needs_checkpoint != Need::None;
        let image = whole.then(|| Image::of(&state, &self.drive, self.options.planted));
        self.last_commit_ns.store(self.clock.monotonic_ns(), Ordering::Release);
        Ok(Taken { batch, record, image, emptied })
    }

    fn make_durable(&self, committer: &mut Committer, taken: Taken, ending: Ending) -> Result<()> {
        let Taken { batch, record, image, emptied } = taken;
        if self.has_planted(PlantedBug::ResetBeforeDurable) {
            for &zone in &emptied {
                self.reset_zone(zone);
            }
        }
        let outcome = match &image {
            // It writes both copies.
            Some(_) => Ok(()),
            None => committer.superlog.catch_up(&self.drive, &committer.superblock),
        };
        let outcome = outcome.and_then(|()| self.write_batch(committer, record, image, ending));
        if let Err(error) = outcome {
            self.write_accounts().zones.put_back_emptied(&emptied);
            tracing::error!(%error, "a commit failed");
            return Err(error);
        }
        self.durable_batch.store(batch, Ordering::Release);
        if !emptied.is_empty() && !self.has_planted(PlantedBug::ResetBeforeDurable) {
            self.write_accounts().zones.allow_resets(&emptied);
            self.wake_worker();
        }
        let journal_bytes = committer.journal.blocks * BLOCK_BYTES as u64;
        let is_long = journal_bytes > JOURNAL_BYTES_MIN.max(4 * self.read_state().totals.row_bytes);
        // A copy that failed gets a successor soon; what it lacks is durable in the other.
        let is_due = is_long || committer.journal.is_impaired();
        committer.needs_checkpoint = if is_due { Need::Soon } else { Need::None };
        Ok(())
    }

    fn write_batch(
        &self,
        committer: &mut Committer,
        record: RecordBuffer,
        image: Option<Image>,
        ending: Ending,
    ) -> Result<()> {
        if !self.has_planted(PlantedBug::SkipDataFlush) {
            self.drive.flush()?;
        }
        let may_wait = ending == Ending::Record && committer.needs_checkpoint == Need::Soon;
        let has_failed = image.is_some();
        if let Some(image) = image {
            match committer.checkpoint(&self.drive, &mut MountedZones(self), image, ending) {
                Err(FsError::NoSpace) if may_wait => {
                    tracing::warn!("no room for a checkpoint: the journal goes on");
                }
                outcome => return outcome,
            }
        }
        let mut record: PaddedRecord = record.pad();
        match committer.journal.append(&self.drive, &mut record) {
            Appended::Written if self.has_planted(PlantedBug::SkipRecordFlush) => Ok(()),
            Appended::Written => Ok(self.drive.flush()?),
            Appended::NoRoom if has_failed => Err(FsError::NoSpace),
            Appended::NoRoom => self.checkpoint_now(committer),
        }
    }

    /// A checkpoint of the present state, in place of a record that found no room. The state may
    /// be later than the batch; it is the state between two operations all the same.
    fn checkpoint_now(&self, committer: &mut Committer) -> Result<()> {
        let image = {
            let _turn = self.flushing.lock().expect("no holder panicked");
            let _unchanged = self.hold_off_changes();
            self.write_back_all()?;
            Image::of(&self.read_state(), &self.drive, self.options.planted)
        };
        self.drive.flush()?;
        committer.checkpoint(&self.drive, &mut MountedZones(self), image, Ending::Checkpoint)
    }

    /// An error if the mount does not write.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZonedDevice};

    use super::*;
    use crate::furrow::{Access, MkfsOptions, MountOptions, mkfs};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode};

    #[test]
    fn commits_go_on_in_one_copy_of_the_journal_while_no_checkpoint_finds_room() {
        let spec = GeometrySpec {
            block_size: BlockSize::B4096,
            block_count: LbaCount::new(32 * 64),
            zone_size: LbaCount::new(64),
            zone_capacity: LbaCount::new(64),
            conventional_zones: 0,
            max_open: Some(14),
            max_active: Some(14),
            max_append: LbaCount::new(64),
        };
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let options = MountOptions::default();
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        // A copy has failed, and other zones too.
        {
            let mut committer = fs.committer.lock().unwrap();
            committer.journal.failed[0] = true;
            committer.needs_checkpoint = Need::Soon;
        }
        let mut taken = Vec::new();
        while let Some(zone) = fs.write_state().zones.take_meta() {
            taken.push(zone);
        }
        for name in ["one", "two"] {
            fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap();
            fs.sync().unwrap();
            assert_eq!(fs.committer.lock().unwrap().needs_checkpoint, Need::Soon);
        }
        let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let seen = Furrow::mount(drive, clock, options).unwrap();
        assert!(seen.lookup(Ino::ROOT, b"two").is_ok(), "it was synced");
        // With room again the journal gets two good copies.
        fs.write_state().zones.end_checkpoint();
        for zone in taken {
            fs.write_state().zones.release(zone);
        }
        fs.create(&Caller::ROOT, Ino::ROOT, b"three", &new).unwrap();
        fs.sync().unwrap();
        let committer = fs.committer.lock().unwrap();
        assert_eq!(committer.needs_checkpoint, Need::None);
        assert!(!committer.journal.is_impaired());
    }
}
