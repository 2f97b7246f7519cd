//! Superblocks and journal in conventional zones: append-only, without a pointer of the drive's.
//!
//! Some zones are set apart: four for superblocks, of which only the first [`log_blocks`] blocks are used,
//! and four for the journal. They are written like sequential zones, each block once until the zone is
//! emptied, and what a power cut has torn is never written over. Three rules stand for the pointer:
//!
//! - A zone is emptied by zeroes and a flush before it is used again. For superblocks that is one write;
//!   a zone of the journal is *wiped* in steps, from its end to its start, and its first
//!   [`TORN_BLOCKS_MAX`] blocks last, when all others are durable: if these are zero, all are.
//! - A power cut may keep any of the blocks that no flush covers. So each record is flushed before the
//!   next is written, and is no longer than that many blocks: behind the end of what was written, all of
//!   what may be there is within them. The journal goes on behind its last record only if they are zero.
//! - The log of superblocks is read as a whole, and goes on behind its last block that is not zero.
//!
//! Where no such zone is to be had the journal is in sequential ones, as on drives without any.
//!
//! [`log_blocks`]: super::layout::Layout::log_blocks

use super::log::Log;
use zonal::{DeviceError, Zone, ZoneCond};

use super::alloc::{JournalUse, Role, Zones};
use super::format::{Address, BLOCK_BYTES};
use super::io::Drive;
use super::layout::TORN_BLOCKS_MAX;

/// Blocks that are wiped in one step: 4 MiB.
const WIPED_AT_ONCE: u32 = 1024;

/// Times that a zone is tried to be wiped.
const TRIES_MAX: u8 = 3;

/// Blocks that are read at once: 1 MiB.
const READ_AT_ONCE: u32 = 256;

pub(super) fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

impl Drive {
    /// Whether what may be written at `at` in a conventional zone, or may have been written there when the power
    /// failed, is zero.
    pub(super) fn is_blank(&self, at: Address) -> bool {
        let end = at.block + TORN_BLOCKS_MAX.min(self.blocks_after(at));
        self.are_zero(at, end).unwrap_or(false)
    }

    /// Whether the blocks from `at` to `end` are zero.
    fn are_zero(&self, at: Address, end: u32) -> Result<bool, DeviceError> {
        let mut buffer = vec![0; READ_AT_ONCE as usize * BLOCK_BYTES];
        let mut block = at.block;
        while block < end {
            let count = READ_AT_ONCE.min(end - block);
            let buffer = &mut buffer[..count as usize * BLOCK_BYTES];
            self.read(Address { block, ..at }, buffer)?;
            if !is_zero(buffer) {
                return Ok(false);
            }
            block += count;
        }
        Ok(true)
    }

    /// Whether a zone of the journal's own can be written, and holds nothing.
    pub(super) fn is_wiped(&self, zone: &Zone) -> bool {
        let start = Address { zone: zone.id.get(), block: 0 };
        zone.cond == ZoneCond::NotWp && self.is_blank(start)
    }

    /// Empties a zone of the superblock log.
    pub(super) fn wipe_log(&self, zone: u32) -> Result<(), DeviceError> {
        let zeroes = vec![0; self.layout.log_blocks(zone) as usize * BLOCK_BYTES];
        self.write(Address { zone, block: 0 }, &zeroes)?;
        self.flush()
    }

    /// Does a step of wiping a zone of which all blocks from `end` on are zero, and returns from where on they are
    /// then. The first ones are zero only if all are, and that is durable.
    pub(super) fn wipe(&self, zone: u32, end: u32) -> Result<u32, DeviceError> {
        let is_last = end <= TORN_BLOCKS_MAX;
        let first =
            if is_last { 0 } else { end.saturating_sub(WIPED_AT_ONCE).max(TORN_BLOCKS_MAX) };
        let at = Address { zone, block: first };
        if is_last {
            self.flush()?;
        }
        // Blocks that cannot be read can often be written. Zeroes are not written again: a drive file would keep them.
        if !self.are_zero(at, end).unwrap_or(false) {
            let zeroes = vec![0; (end - first) as usize * BLOCK_BYTES];
            self.write(at, &zeroes)?;
        }
        if is_last {
            self.flush()?;
        }
        Ok(first)
    }
}

impl Zones {
    fn journal_zones(&self) -> impl Iterator<Item = u32> + use<> {
        self.limits.journal.into_iter().flatten()
    }

    /// Takes two of the journal's own zones that hold nothing, if there are two.
    pub(super) fn take_journal(&mut self) -> Option<[u32; 2]> {
        let blank = |zone: &u32| self.slot(*zone).role == Role::Journal(JournalUse::Blank);
        let mut blank = self.journal_zones().filter(blank);
        let pair = [blank.next()?, blank.next()?];
        for zone in pair {
            let slot = self.slot_mut(zone);
            slot.role = Role::Journal(JournalUse::Taken);
            slot.written = slot.capacity;
        }
        Some(pair)
    }

    /// A zone to be wiped, and the block from which on it is.
    pub(super) fn next_wipe(&self) -> Option<(u32, u32)> {
        let is_used =
            |zone: &u32| matches!(self.slot(*zone).role, Role::Journal(JournalUse::Used(_)));
        self.journal_zones().find(is_used).map(|zone| (zone, self.slot(zone).written))
    }

    /// A zone is wiped from a block on.
    fn wiped(&mut self, zone: u32, from: u32) {
        let slot = self.slot_mut(zone);
        slot.written = from;
        let now = if from == 0 { JournalUse::Blank } else { JournalUse::Used(0) };
        slot.role = Role::Journal(now);
    }

    /// A zone was not wiped. After some times it is taken out of use.
    fn not_wiped(&mut self, zone: u32) {
        match self.slot(zone).role {
            Role::Journal(JournalUse::Used(tries)) if tries + 1 < TRIES_MAX => {
                self.slot_mut(zone).role = Role::Journal(JournalUse::Used(tries + 1));
            }
            _ => self.fail(zone),
        }
    }
}

impl Log {
    /// Takes two of the journal's own zones, if two hold nothing. On a drive that limits active zones others may be some
    /// too many: there this waits for two to be wiped.
    pub(super) fn take_journal(&self) -> Option<[u32; 2]> {
        loop {
            let pair = self.tree.write_accounts().zones.take_journal();
            let waits = pair.is_none() && self.tree.layout().limits_active();
            if !waits || !self.wipe_some() {
                return pair;
            }
        }
    }

    /// Does a step of wiping one of the journal's own zones that no manifest names any more, and says whether there
    /// was one.
    pub(super) fn wipe_some(&self) -> bool {
        // Looked at first, for it is called after each commit where there is no worker.
        if self.tree.layout().journal_zones.is_none()
            || self.tree.read_state().zones.next_wipe().is_none()
        {
            return false;
        }
        let _turn = self.writer.lock_resetting();
        let Some((zone, end)) = self.tree.read_state().zones.next_wipe() else { return false };
        let outcome = self.drive.wipe(zone, end);
        let zones = &mut self.tree.write_accounts().zones;
        match outcome {
            Ok(from) => zones.wiped(zone, from),
            Err(error) => {
                tracing::warn!(zone, %error, "a zone of the journal was not wiped");
                zones.not_wiped(zone);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::furrow::Furrow;
    use std::sync::Arc;

    use zonal::layer::fault::{Fault, FaultPlan};
    use zonal::{
        GeometrySpec, LbaCount, ManualClock, MemoryDrive, Select, ZoneAction, ZoneId, ZonedDevice,
    };

    use super::*;
    use crate::furrow::layout::Layout;
    use crate::furrow::sample::shape;
    use crate::furrow::table::maintenance::StepBudget;
    use crate::furrow::{DataCheck, MkfsOptions, MountOptions, Work, check, mkfs, superlog};
    use crate::mkfs::Overwrite;
    use crate::signature;
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode};

    /// Ten conventional zones of so many blocks, and 40 sequential ones.
    fn spec(zone_blocks: u64) -> GeometrySpec {
        GeometrySpec { conventional_zones: 10, ..shape(50, zone_blocks) }
    }

    fn format(drive: &Arc<dyn ZonedDevice>) {
        let options = MkfsOptions { overwrite: Overwrite::Force, ..MkfsOptions::default() };
        mkfs(drive.clone(), &ManualClock::new(0), &options, &mut |_| ()).unwrap();
    }

    fn mount(drive: &Arc<dyn ZonedDevice>) -> Furrow {
        Furrow::mount(drive.clone(), Arc::new(ManualClock::new(0)), MountOptions::default())
            .unwrap()
    }

    fn create(fs: &Furrow, name: &str) {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap();
        fs.sync().unwrap();
    }

    #[test]
    fn eight_conventional_zones_take_superblocks_and_journal_and_seven_do_not() {
        for (conventional, superblocks, journal) in [
            (7, [[7, 8], [28, 29]], None),
            (8, [[0, 1], [4, 5]], Some([2, 3, 6, 7])),
            (20, [[0, 1], [10, 11]], Some([2, 3, 12, 13])),
        ] {
            let spec = GeometrySpec { conventional_zones: conventional, ..shape(50, 64) };
            let drive = MemoryDrive::new(spec).unwrap();
            let layout = Layout::new(drive.geometry()).unwrap();
            assert_eq!((layout.superblock_pairs, layout.journal_zones), (superblocks, journal));
        }
    }

    #[test]
    fn metadata_in_conventional_zones_leaves_three_active_zones_more_for_data() {
        let [without, with] = [7, 10].map(|conventional_zones| {
            let shape = shape(u64::from(conventional_zones) + 40, 64);
            let limit = Some(9);
            let spec =
                GeometrySpec { conventional_zones, max_open: limit, max_active: limit, ..shape };
            Layout::new(&zonal::Geometry::new(spec).unwrap()).unwrap()
        });
        assert_eq!((without.open_zones, without.few_active_zones), (4, true));
        assert_eq!((with.open_zones, with.few_active_zones), (5, false));
        let mut drive = with;
        drive.expect_active_journal();
        assert_eq!(drive.open_zones, 4);
    }

    #[test]
    fn wiping_ends_with_the_first_blocks() {
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec(4096)).unwrap());
        format(&drive);
        let layout = Layout::new(drive.geometry()).unwrap();
        let start = layout.geometry.zone_start(ZoneId::new(2));
        for block in [0, 511, 512, 2000, 4095] {
            drive.write(start + LbaCount::new(block), &[3; BLOCK_BYTES]).unwrap();
        }
        let wiped = Drive::new(drive.clone(), layout);
        let mut ends = vec![4096];
        while *ends.last().unwrap() > 0 {
            let zone = drive.zone(ZoneId::new(2)).unwrap();
            assert!(!wiped.is_wiped(&zone), "{ends:?}");
            ends.push(wiped.wipe(2, *ends.last().unwrap()).unwrap());
        }
        assert_eq!(ends, [4096, 3072, 2048, 1024, 512, 0]);
        assert!(wiped.are_zero(Address { zone: 2, block: 0 }, 4096).unwrap());
    }

    /// The journal goes on in another pair, and the rows of the one before are in the table then.
    fn next_pair(fs: &Furrow, name: &str) -> Vec<u32> {
        create(fs, name);
        fs.log.lock_committer().journal.failed = [true; 2];
        create(fs, &format!("{name} again"));
        fs.log.compact(StepBudget::All);
        fs.log.lock_committer().journal.zones().collect()
    }

    #[test]
    fn zones_that_the_journal_has_left_are_wiped_in_steps_and_used_again() {
        let spec = GeometrySpec { max_open: None, max_active: None, ..spec(2048) };
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec).unwrap());
        format(&drive);
        let fs = mount(&drive);
        // A worker wipes, not who commits.
        fs.on_work(Arc::new(|| ()));
        assert_eq!(next_pair(&fs, "one"), [7, 8]);
        assert_eq!(fs.tree.read_state().zones.next_wipe(), Some((2, 2048)));
        assert!(next_pair(&fs, "two").iter().all(|&zone| zone >= 10), "none is wiped");
        let mut steps = 0;
        while fs.tree.read_state().zones.next_wipe().is_some() {
            fs.step(Work::Reset).unwrap();
            steps += 1;
        }
        assert_eq!(steps, 4 * 3, "four zones, three steps each");
        assert_eq!(next_pair(&fs, "three"), [2, 3]);
        fs.shutdown().unwrap();
        drop(fs);
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }

    #[test]
    fn where_active_zones_are_few_the_journal_waits_for_a_zone_to_be_wiped() {
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec(2048)).unwrap());
        format(&drive);
        let fs = mount(&drive);
        fs.on_work(Arc::new(|| ()));
        for pair in [[7, 8], [2, 3], [7, 8]] {
            assert_eq!(next_pair(&fs, &format!("before {}", pair[0])), pair);
            fs.unlink(Ino::ROOT, format!("before {}", pair[0]).as_bytes()).unwrap();
            fs.unlink(Ino::ROOT, format!("before {} again", pair[0]).as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_zone_that_cannot_be_wiped_is_not_used_again() {
        let below = MemoryDrive::new(spec(64)).unwrap();
        let plan: FaultPlan = "write,medium,zone=2,from=4".parse().unwrap();
        let drive: Arc<dyn ZonedDevice> = Arc::new(Fault::new(below, plan));
        format(&drive);
        let fs = mount(&drive);
        for round in 0..200 {
            create(&fs, &format!("file {round}"));
            fs.tick().unwrap();
        }
        assert_eq!(fs.tree.read_state().zones.slot(2).role, Role::Failed);
        fs.shutdown().unwrap();
        drop(fs);
        let fs = mount(&drive);
        assert!(fs.lookup(Ino::ROOT, b"file 199").is_ok());
    }

    /// Another format takes the drive over: no superblock stays behind.
    #[test]
    fn what_mkfs_of_another_format_leaves_is_no_furrow() {
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec(64)).unwrap());
        format(&drive);
        drop(mount(&drive));
        drive.manage(Select::All, ZoneAction::Reset).unwrap();
        signature::wipe(&*drive).unwrap();
        assert_eq!(signature::find(&*drive).unwrap(), None);
        let layout = superlog::layout_of(&drive).unwrap();
        let found = superlog::find_all(&Drive::new(drive, layout));
        assert!(found.found.is_empty() && found.bad.is_empty(), "{found:?}");
    }
}
