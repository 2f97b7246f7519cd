//! Reservation of zones for metadata: a step, commit or recovery reserves its zones before it
//! changes anything, so that none ends half-way for lack of a zone.
//!
//! A step of the table knows how many zones it needs and reserves them before the journal pauses
//! for it. A manifest has its room before the journal gets another pair. A recovery that finds a
//! torn batch, and few free zones, puts the rows of the journal into the table and begins the
//! journal again, with one pair: so it does not matter how often it is cut off. Where there is no
//! pair for the journal, the manifest names none, and the zones of the one before are the next
//! one's. [`Zones`](crate::furrow::zones::Zones) keeps [`SPARE_ZONES_MIN`] zones free for all this,
//! and where there are fewer, the table makes itself smaller before it does anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::drive::layout::Layout;
use crate::furrow::log::Log;
use crate::furrow::log::committer::Committer;
use crate::furrow::metadata::Ending;
use crate::furrow::table::levels::{CompactionKind, Levels, TableStep};
use crate::furrow::table::memtable::Memtable;
use crate::furrow::table::pairs::{MetaZones, OpenPair, PairNeed, take_two};
use crate::furrow::zones::{RECOVERY_ZONES, Role, SPARE_ZONES_MIN};
use crate::vfs::Result;

/// Free zones that a merge of runs leaves to commits, which continue meanwhile.
const MERGE_LEAVES: usize = 2;

/// Free zones that a flush leaves to the first merge after refused reads.
const MERGE_NEEDS: usize = 2;

/// 1/8 of a pair is a margin: for the end of a zone that no part fits into, and for parts that
/// become longer when they are written again.
const UNUSED_SHARE: u64 = 8;

/// The zones that metadata can write to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) open: Option<OpenPair>,
    /// Free zones and zones that can be reset.
    pub(super) free: usize,
    /// Bytes of room in the open pair, less a manifest.
    pub(super) room: u64,
    /// Bytes of a zone, less a manifest.
    pub(super) zone: u64,
    /// Zones that a flush leaves. While the device refuses reads, no merge frees any, and the first
    /// one afterwards needs them.
    pub(super) kept: usize,
}

/// When to write parts again so that they take fewer pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sparse {
    /// If parts take more pairs than were planned for their rows.
    BeyondShare,
    /// Whenever that frees a pair.
    Now,
}

impl Supply {
    /// Pairs that parts of `bytes` bytes need in addition to the open pair.
    pub(super) fn need(&self, bytes: u64) -> PairNeed {
        let bytes = bytes + bytes / UNUSED_SHARE;
        let more = bytes.saturating_sub(self.room);
        PairNeed {
            pairs: usize::try_from(more.div_ceil(self.zone.max(1))).unwrap_or(usize::MAX / 4),
        }
    }

    /// Whether there are zones for a need, with `left` more.
    fn has(&self, need: PairNeed, left: usize) -> bool {
        need.pairs == 0 || 2 * need.pairs + left <= self.free
    }

    /// Whether so few zones are free that the table must shrink first.
    pub(super) fn is_short(&self) -> bool {
        self.free < SPARE_ZONES_MIN
    }

    /// Pairs that a step needs, about.
    pub(super) fn need_of(&self, step: &TableStep, levels: &Levels, layout: &Layout) -> PairNeed {
        self.need(match step {
            TableStep::Flush(rows) => flush_bytes(levels, rows, layout),
            TableStep::Compact(CompactionKind::Tier(tier)) => tier_bytes(levels, *tier),
            // It ends after it has written a part, but cannot tell how many rows it has to merge.
            TableStep::Compact(CompactionKind::Sweep) => 2 * layout.table.part_bytes as u64,
            TableStep::Rewrite(numbers) => {
                let parts = levels.parts().map(|part| &part.summary);
                let parts = parts.filter(|part| numbers.contains(&part.number));
                parts.map(|part| u64::from(part.bytes)).sum()
            }
        })
    }

    /// A flush of the memtable, if there are zones for it.
    pub(super) fn flush(
        &self,
        rows: Arc<Memtable>,
        levels: &Levels,
        layout: &Layout,
    ) -> Option<TableStep> {
        let need = self.need(flush_bytes(levels, &rows, layout));
        self.has(need, self.kept).then_some(TableStep::Flush(rows))
    }

    /// The compaction that is due, if there are zones for it. The sweep needs few zones and frees
    /// others, so with few free zones it replaces a merge, and continues until there are no upper
    /// runs.
    pub(super) fn work(&self, levels: &Levels, layout: &Layout) -> Option<CompactionKind> {
        let sweep = (self.is_short() && !levels.upper.is_empty()).then_some(CompactionKind::Sweep);
        match levels.due(&layout.table) {
            Some(CompactionKind::Tier(tier)) => {
                let has_zones = self.has(self.need(tier_bytes(levels, tier)), MERGE_LEAVES);
                Some(if has_zones && !self.is_short() {
                    CompactionKind::Tier(tier)
                } else {
                    CompactionKind::Sweep
                })
            }
            Some(CompactionKind::Sweep) => Some(CompactionKind::Sweep),
            None => sweep,
        }
    }

    /// The parts of the pair with the fewest live bytes, if parts take more pairs than they need.
    /// If no pair is open, the parts of two such pairs, whose parts fit into one.
    pub(super) fn sparse_pairs(
        &self,
        levels: &Levels,
        layout: &Layout,
        row_bytes: u64,
        when: Sparse,
    ) -> Option<BTreeSet<u64>> {
        let open = self.open.map(|pair| pair.zones[0]);
        let mut pairs: BTreeMap<u32, (u64, BTreeSet<u64>)> = BTreeMap::new();
        for part in levels.parts() {
            let (bytes, numbers) = pairs.entry(part.at[0].zone).or_default();
            *bytes += u64::from(part.summary.bytes);
            numbers.insert(part.summary.number);
        }
        // Metadata has zones for all rows uncompressed. Within these, half may be garbage: the
        // sweep makes most of it, and all of a pair once it has been round, so that no part has to
        // be written again.
        let bytes = levels.bytes();
        let room = (2 * bytes).min(row_bytes).max(bytes);
        if when == Sparse::BeyondShare && pairs.len() as u64 <= layout.pairs_for(room) {
            return None;
        }
        let mut pairs: Vec<_> = pairs
            .into_iter()
            .filter(|(zone, _)| Some(*zone) != open)
            .map(|(_, pair)| pair)
            .collect();
        pairs.sort_by_key(|(bytes, _)| *bytes);
        let count = if open.is_some() { 1 } else { 2 };
        let chosen = pairs.get(..count)?;
        let bytes: u64 = chosen.iter().map(|(bytes, _)| bytes).sum();
        // If even the emptiest pair is nearly full, writing it again gains nothing.
        let is_worth_it = 4 * bytes < 3 * layout.zone_bytes();
        is_worth_it.then(|| chosen.iter().flat_map(|(_, numbers)| numbers).copied().collect())
    }
}

fn flush_bytes(levels: &Levels, rows: &Memtable, layout: &Layout) -> u64 {
    let (all, new) = (levels.bytes(), rows.bytes() as u64);
    // A flush rewrites a small last level.
    if all + new <= layout.table.whole_bytes { all + new } else { new }
}

fn tier_bytes(levels: &Levels, tier: u32) -> u64 {
    let parts = levels.upper.iter().filter(|run| run.tier == tier).flat_map(|run| &run.parts);
    parts.map(|part| u64::from(part.summary.bytes)).sum()
}

impl Log {
    /// The zones that metadata can write to now.
    pub(super) fn supply(&self, committer: &Committer) -> Supply {
        let open = self.lock_pairs().open;
        let layout = self.tree.layout();
        let manifest = u64::from(committer.superblock.manifest[0].bytes.get()) + (16 << 10);
        let room = open.map_or(0, |pair| u64::from(pair.room(&self.drive)) << 12);
        Supply {
            open,
            free: self.free_for_metadata(),
            room: room.saturating_sub(manifest),
            zone: layout.zone_bytes().saturating_sub(manifest).max(layout.zone_bytes() / 4),
            kept: if self.is_reading_refused() { MERGE_NEEDS } else { 0 },
        }
    }

    /// Zones that metadata can take now.
    pub(in crate::furrow) fn free_for_metadata(&self) -> usize {
        self.tree.read_state().zones.takeable_for_metadata()
    }

    /// Whether the pause after a refused read of a merge goes on.
    pub(super) fn is_reading_refused(&self) -> bool {
        self.tree.view.refusals.is_pausing(self.clock.monotonic_ns())
    }

    /// Whether metadata has so few zones left that the table must shrink before it gets more rows.
    pub(in crate::furrow) fn lacks_metadata_zones(&self) -> bool {
        self.free_for_metadata() < SPARE_ZONES_MIN
    }

    /// Whether there are zones for another pair of the journal and one for the manifest, and then
    /// still enough for the next recovery and the table.
    pub(in crate::furrow) fn has_zones_to_recover_again(&self) -> bool {
        self.free_for_metadata() >= 2 * SPARE_ZONES_MIN
    }

    /// Gives the journal another pair before a commit writes a batch. If too few zones would be
    /// left to write the rows of the journal to the table, it first writes these rows, which frees
    /// the zones of the journal.
    pub(super) fn renew_journal(&self, committer: &mut Committer) -> Result<()> {
        let needed = self.tree.space.pair_room.zones_for(usize::MAX) + RECOVERY_ZONES;
        let is_needless = committer.journal.is_in_table() || self.free_for_metadata() >= needed;
        // Rebuilt rows are not durable yet: until then the table keeps its own rows of that span.
        if is_needless || self.tree.view.remade().is_some() {
            return self.name_journal(committer);
        }
        // On a drive with few active zones a step holds the committer's lock to its end.
        let turn = self.stepping.try_lock();
        if turn.is_ok() || self.tree.layout().few_open_pairs {
            self.begin_journal_again(committer)
        } else {
            self.name_journal(committer)
        }
    }

    /// Writes the rows of a journal that ends in void records to the table, and starts the journal
    /// again.
    pub(in crate::furrow) fn begin_journal_again(&self, committer: &mut Committer) -> Result<()> {
        let supply = self.supply(committer);
        let Some(plan) = committer.plan_flush(self.tree.layout(), &supply) else {
            return self.name_journal(committer);
        };
        if supply.kept > 0 && !supply.has(plan.need, supply.kept) {
            return Err(FsError::NoSpace);
        }
        match self.run_in_one_pair(committer, plan) {
            Ok(_) => {}
            Err(FsError::NoSpace) => {
                tracing::warn!("no room for the rows of the journal: they stay");
            }
            Err(error @ FsError::Refused { .. }) if committer.journal.is_in_table() => {
                // Only steps after the first one read. The worker tries them again.
                tracing::warn!(%error, "a step of the table failed; it is tried again");
            }
            // Do not give the journal another pair: the next attempt may need it.
            Err(error) => return Err(error),
        }
        if committer.journal.is_impaired() { self.name_journal(committer) } else { Ok(()) }
    }

    /// Writes a manifest that names the zones of the journal: new ones if the journal is impaired.
    pub(in crate::furrow) fn name_journal(&self, committer: &mut Committer) -> Result<()> {
        let outcome = self.name_journal_now(committer);
        if self.tree.layout().few_open_pairs {
            self.lock_pairs().seal(&self.drive, &mut MountedZones(self));
        }
        let pairs = self.lock_pairs();
        self.note_parts(&pairs, committer);
        outcome
    }

    fn name_journal_now(&self, committer: &mut Committer) -> Result<()> {
        let mut pairs = self.lock_pairs();
        let mut zones = MountedZones(self);
        let levels = self.tree.view.levels();
        // A first attempt frees zones for a second one: pairs whose first record failed, the pair
        // of the earlier manifest, and pairs of a journal whose rows are in the table.
        for _ in 0..2 {
            let outcome = committer.write_manifest(
                &self.drive,
                &mut zones,
                &mut pairs,
                &levels,
                Ending::Record,
            );
            committer.release(&self.drive, &mut zones, &pairs, &levels);
            match outcome {
                Ok(()) if !committer.journal.is_impaired() => return Ok(()),
                Ok(()) | Err(FsError::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Err(FsError::NoSpace)
    }
}

impl Committer {
    /// Gives the journal its next pair, which a commit needs before it writes. Without zones for
    /// one, the manifest still names the pairs whose rows the table lacks, and so frees the zones
    /// of all others.
    pub(super) fn take_journal_pair(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
    ) -> Result<()> {
        match take_two(zones) {
            Ok(taken) => {
                // Only now: without zones for a pair it may have to continue in one copy.
                self.journal.finish(drive);
                self.journal.push_pair(taken);
                Ok(())
            }
            Err(FsError::NoSpace) if self.journal.is_in_table() => {
                self.journal.finish(drive);
                self.journal.give_up_pairs();
                Ok(())
            }
            Err(FsError::NoSpace) if self.journal.is_impaired() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The zones of a mounted file system, for metadata.
pub(super) struct MountedZones<'a>(pub(super) &'a Log);

impl MetaZones for MountedZones<'_> {
    fn take(&mut self, copy: usize) -> Option<u32> {
        loop {
            let zone = self.0.tree.write_accounts().zones.take_meta(copy);
            if zone.is_some() || !(self.0.writer.reset_one() || self.0.writer.reset_again()) {
                return zone;
            }
        }
    }

    fn taken(&self) -> Vec<u32> {
        let zones = &self.0.tree.read_state().zones;
        zones.ids().filter(|&zone| zones.slot(zone).role == Role::Meta).collect()
    }

    fn reset_refused(&mut self, zone: u32) {
        let cond = self.0.drive.cond(zone);
        let now = self.0.clock.monotonic_ns();
        self.0.tree.write_accounts().zones.reset_refused(zone, cond, now);
    }

    fn release(&mut self, zone: u32) {
        self.0.tree.write_accounts().zones.release(zone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SetAttr};

    /// A mount with a file, and with `count` free zones.
    fn with_free_zones(count: usize) -> (Furrow, Ino) {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.sync().unwrap();
        {
            let zones = &mut fs.tree.write_state().zones;
            let free = zones.ids().filter(|&zone| zones.slot(zone).role == Role::Free);
            let free: Vec<u32> = free.collect();
            free.iter().skip(count).for_each(|&zone| zones.claim(zone));
        }
        (fs, ino)
    }

    #[test]
    fn journal_restarts_after_torn_batch_with_one_free_pair() {
        let (fs, ino) = with_free_zones(2);
        for round in 0..20 {
            let perm = Some(0o400 + round);
            fs.setattr(&Caller::ROOT, ino, &SetAttr { perm, ..SetAttr::default() }).unwrap();
            fs.sync().unwrap();
            let mut committer = fs.log.lock_committer();
            committer.journal.failed = [true; 2];
            fs.log.begin_journal_again(&mut committer).unwrap();
            let journal = &committer.journal;
            assert!(journal.is_in_table() && !journal.is_impaired() && journal.pairs.len() == 1);
            assert!(
                fs.log.free_for_metadata() >= 2,
                "round {round}: {}",
                fs.log.free_for_metadata()
            );
        }
    }

    #[test]
    fn reserve_without_zones_refuses_create_but_not_delete() {
        let (fs, _) = with_free_zones(1);
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let refused = fs.create(&Caller::ROOT, Ino::ROOT, b"other", &new);
        assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
        fs.unlink(Ino::ROOT, b"file").unwrap();
        fs.sync().unwrap();
    }

    #[test]
    fn reserve_need_never_exceeds_existing_pairs() {
        let (fs, _) = with_free_zones(SPARE_ZONES_MIN);
        let supply = Supply { open: None, free: 4, room: 0, zone: 1000, kept: 0 };
        assert_eq!(supply.need(0), PairNeed { pairs: 0 });
        assert_eq!(supply.need(800), PairNeed { pairs: 1 });
        assert!(supply.has(supply.need(800), MERGE_LEAVES));
        assert!(!supply.has(supply.need(900), MERGE_LEAVES));
        // There is nothing to be swept.
        assert_eq!(supply.work(&fs.tree.view.levels(), fs.tree.layout()), None);
    }
}
