//! Reclaim: live blocks move out of a victim, so that it can be reset.
//!
//! Blocks are copied without the lock. Then, under the lock, their owners are mapped to the copies;
//! blocks that were overwritten meanwhile are left out. Where blocks of one file went [a table of
//! moved blocks](crate::furrow::table::remaps) says, or the row of its map; where shared ones went,
//! the row of their extent, however many files share it. Where that makes many of them contiguous,
//! blocks are written in the order of files and offsets, and a file that was overwritten in pieces
//! takes fewer rows. A victim is reset after the commit that follows the last move (F3). This file
//! has the mechanism; [`Zones::find_victim`](crate::furrow::zones::Zones::find_victim) has the
//! policy and [`throttle`] the pace. Blocks are moved in steps, each of them a turn: a thread that
//! waits for its own turn gets it after one step of each thread before it. Where there are free
//! zones enough, some steps run at once, each with a [victim](crate::furrow::zones::victims) of its
//! own.

mod room;
pub(in crate::furrow) mod search;
pub(in crate::furrow) mod throttle;
pub(in crate::furrow) mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal_placement::pace::{BLOCK, STEP_BLOCKS};
use zonal_placement::streams::Whole;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::backref::{Backref, Owner};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::log::Log;
use crate::furrow::metadata::Ending;
use crate::furrow::metadata::backrefs::Piece;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::metadata::remaps::Noted;
use crate::furrow::meters::Meters;
use crate::furrow::planted::PlantedBug;
use crate::furrow::reclaim::search::Search;
use crate::furrow::reclaim::turns::{Turn, Turns};
use crate::furrow::sync::Mutex;
use crate::furrow::tree::Tree;
use crate::furrow::truncate::Truncator;
use crate::furrow::write::Writer;
use crate::furrow::zones::allocation::{Purpose, Wish};
use crate::furrow::zones::records::settle;
use crate::furrow::zones::victims::{Taken, Underway, Victim};
use crate::furrow::zones::{Listed, Urgency};
use crate::vfs::Result;

/// Blocks that the worker copies at once: 1 MiB.
pub(in crate::furrow) const COPY_BLOCKS: u32 = 256;

/// Records that a step looks at, about. Where nearly all is dead few of them lead to anything, and
/// each look takes a microsecond.
const LOOKS_MAX: u64 = 1024;

/// How blocks that are moved are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// All together, wherever they are cut.
    Any,
    /// All together, since there is an open zone that has room for them.
    Fits,
    /// By runs of files.
    Runs,
}

/// Runs longer than a zone divided by this are kept in one zone where they can be.
const RUN_SHARE: u32 = 64;

/// One in so many pieces is to become one with another before pieces are written in the order of
/// their files. Else they keep the order of the zone, in which a table says in fewest bytes where
/// they went.
const JOINED_SHARE: usize = 8;

/// Whether many pieces are neighbours in their files and not in the zone, which they are in the
/// order of files.
fn become_contiguous(batch: &[Piece]) -> bool {
    let mut pieces: Vec<&Piece> = batch.iter().collect();
    pieces.sort_unstable_by_key(|piece| piece.owner);
    let joined = pieces.windows(2).filter(|pair| pair[0].is_before_in_file(pair[1]));
    let joined = joined.filter(|pair| !pair[0].goes_on_with(pair[1]));
    joined.count() * JOINED_SHARE > batch.len()
}

/// What a step moves, in the unit of prices.
pub(in crate::furrow) const STEP: u64 = STEP_BLOCKS as u64 * BLOCK;

/// What writers have to pay for room, and have not yet.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Debt {
    /// In 256ths of a block that is moved.
    pub(in crate::furrow) owed: AtomicU64,
}

impl Debt {
    /// Pays with blocks that a thread has moved.
    pub(in crate::furrow) fn paid(&self, blocks: u64) {
        let less = |owed: u64| Some(owed.saturating_sub(blocks.saturating_mul(BLOCK)));
        let change = self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        change.expect("it always changes");
    }

    pub(in crate::furrow) fn is_step_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed) >= STEP
    }
}

/// Moves blocks out of victims.
pub(in crate::furrow) struct Reclaimer {
    pub(in crate::furrow) tree: Arc<Tree>,
    pub(in crate::furrow) drive: Arc<Drive>,
    pub(in crate::furrow) writer: Arc<Writer>,
    pub(in crate::furrow) log: Arc<Log>,
    pub(in crate::furrow) truncator: Arc<Truncator>,
    pub(in crate::furrow) meters: Arc<Meters>,
    /// Turns of the threads that move blocks out of victims, one or some at once.
    reclaiming: Turns,
    /// Victims that are being emptied.
    pub(in crate::furrow) underway: Underway,
    /// Held by the thread that searches for back-references. The search under way.
    pub(in crate::furrow) searching: Mutex<Option<Search>>,
    pub(in crate::furrow) debt: Debt,
    /// Victims that may be emptied at once.
    victims_most: usize,
}

impl Reclaimer {
    pub(in crate::furrow) fn new(truncator: Arc<Truncator>, victims_most: usize) -> Self {
        let log = Arc::clone(&truncator.log);
        Self {
            tree: Arc::clone(&log.tree),
            drive: Arc::clone(&log.drive),
            meters: Arc::clone(&log.writer.meters),
            writer: Arc::clone(&log.writer),
            log,
            truncator,
            reclaiming: Turns::default(),
            underway: Underway::default(),
            searching: Mutex::new(None),
            debt: Debt::default(),
            victims_most,
        }
    }

    /// Moves about `budget` blocks of a victim, all of it at most, and returns how many moved.
    pub(in crate::furrow) fn reclaim_some(&self, budget: u32, urgency: Urgency) -> Result<u64> {
        let _turn = self.reclaim_turn(urgency);
        self.reclaim_in_turn(budget, urgency)
    }

    /// A turn at reclaim, of which several can run at once.
    pub(in crate::furrow) fn reclaim_turn(&self, urgency: Urgency) -> Turn<'_> {
        self.reclaiming.take(|| match urgency {
            Urgency::Ahead | Urgency::Normal => self.victims_max(),
            // It needs all that there is: none of it may be in the hands of another.
            Urgency::Emergency | Urgency::Rescue => 1,
        })
    }

    /// How many victims may be emptied at once. Each can fill a zone before its own is empty, and
    /// writers that were admitted may take as many: so none but one where there are few.
    fn victims_max(&self) -> usize {
        (self.spare_zones() / 2).clamp(1, self.victims_most)
    }

    /// The same for who has the turn. To have looked at many records without a move counts as a
    /// block.
    pub(in crate::furrow) fn reclaim_in_turn(&self, budget: u32, urgency: Urgency) -> Result<u64> {
        let (mut moved, mut looks) = (0, 0);
        while moved < u64::from(budget) {
            if looks >= LOOKS_MAX {
                return Ok(moved.max(1));
            }
            let room = self.tree.space.room_to_move(&self.tree.read_state(), urgency);
            if room == 0 {
                break;
            }
            let Some(mut at) = self.choose_victim(urgency)? else { break };
            let looks_before = at.looks;
            let rest = (u64::from(budget) - moved).min(room);
            let most = COPY_BLOCKS.min(u32::try_from(rest).unwrap_or(COPY_BLOCKS));
            let batch = self.look_at(&mut at, (most, urgency))?;
            looks += at.looks - looks_before;
            if let Some(batch) = batch {
                let early = self.tree.has_planted(PlantedBug::UnpinBeforeMove);
                if early {
                    self.drive.pins.unpin_zone(at.zone);
                }
                let outcome = self.move_blocks(&mut at, &batch, urgency);
                if !early {
                    self.drive.pins.unpin_zone(at.zone);
                }
                let blocks = outcome?;
                self.meters.moved(at.zone, blocks);
                self.debt.paid(blocks);
                moved += blocks;
            }
            if !self.is_over(&at) {
                at.put_back();
                continue;
            }
            self.meters.victim_is_over(at.zone, self.gained(&at, urgency));
            if moved > 0 {
                break;
            } else if at.found == 0 {
                self.miss_owners(&at);
            }
        }
        Ok(moved)
    }

    /// The zone to go on with: one that was begun, as long as it is worth it, or another.
    fn choose_victim(&self, urgency: Urgency) -> Result<Option<Taken<'_>>> {
        let use_of = |victim: &Victim| self.tree.read_state().zones.use_of(victim, urgency);
        if let Some(victim) = self.underway.take(use_of) {
            return Ok(Some(victim));
        }
        // By cost and benefit as long as reclaim has a zone to write to.
        let has_own_zone = self.tree.layout().open_zones > 1;
        let is_dire = !has_own_zone || !self.has_spare_zone();
        let victim = match urgency {
            Urgency::Emergency if !is_dire => self.find_victim(Urgency::Normal),
            Urgency::Ahead | Urgency::Normal | Urgency::Emergency | Urgency::Rescue => None,
        };
        let victim = match victim.or_else(|| self.find_victim(urgency)) {
            None if urgency == Urgency::Emergency => {
                self.search_all()?;
                self.find_victim(urgency)
            }
            victim => victim,
        };
        let Some(mut victim) = victim else { return Ok(None) };
        // Behind those in memory: what becomes rows meanwhile is seen twice, and not missed.
        match self.tree.owner_rows(victim.zone) {
            Ok(records) => victim.records.extend(records),
            Err(error) => {
                tracing::error!(zone = victim.zone, %error, "a zone's owners cannot be read");
            }
        }
        settle(&mut victim.records);
        Ok(Some(victim))
    }

    /// Whether a free zone is left beside those that metadata needs.
    fn has_spare_zone(&self) -> bool {
        self.spare_zones() > 0
    }

    /// Free zones beside those that metadata needs.
    fn spare_zones(&self) -> usize {
        self.tree.space.spare_zones(&self.tree.read_state())
    }

    /// The best victim that nobody empties, with the records of it that are in memory.
    fn find_victim(&self, urgency: Urgency) -> Option<Taken<'_>> {
        self.underway.choose(|others| {
            let state = self.tree.read_state();
            let zone = state.zones.find_victim(state.totals.data_clock, urgency, others)?;
            Some(Victim::new(zone, state.zones.slot(zone)))
        })
    }

    /// Whether there is nothing more to move out of a victim, as far as its records tell.
    fn is_over(&self, victim: &Victim) -> bool {
        victim.is_through() || self.tree.read_state().zones.slot(victim.zone).live == 0
    }

    /// Blocks that can be written again once a victim is reset.
    fn gained(&self, victim: &Victim, urgency: Urgency) -> u32 {
        let state = self.tree.read_state();
        let slot = state.zones.slot(victim.zone);
        match urgency {
            Urgency::Ahead | Urgency::Normal | Urgency::Emergency => {
                slot.capacity.saturating_sub(slot.live)
            }
            Urgency::Rescue => 0,
        }
    }

    /// Something lives in a victim, and no record leads to it: a mistake, or the rows cannot be
    /// read. It is searched; if even that has found nothing, it stays.
    fn miss_owners(&self, victim: &Victim) {
        let mut state = self.tree.write_accounts();
        let slot = state.zones.slot_mut(victim.zone);
        let is_same = slot.resets == victim.resets && slot.owners_mark() == victim.mark;
        if !is_same || slot.live == 0 {
            return;
        }
        tracing::error!(zone = victim.zone, live = slot.live, "owners of blocks are not listed");
        match slot.listed {
            Listed::Yes | Listed::No => slot.listed = Listed::No,
            Listed::Searched => slot.unreadable = true,
        }
    }

    /// The next blocks of a victim that live, up to `most` or a shared extent, in their order: of
    /// as many records as are looked at together. The zone is pinned then, so that it is not reset
    /// and written again while it is copied; `None` if it is no victim any more.
    fn look_at(
        &self,
        victim: &mut Victim,
        (most, urgency): (u32, Urgency),
    ) -> Result<Option<Vec<Piece>>> {
        {
            let state = self.tree.read_state();
            let is_same = state.zones.slot(victim.zone).resets == victim.resets;
            if !is_same || !state.zones.is_victim(victim.zone, urgency) {
                return Ok(None);
            }
            self.drive.pins.pin_zone(&*state, victim.zone);
        }
        let batch = self.next_pieces(victim, most);
        if batch.is_err() {
            self.drive.pins.unpin_zone(victim.zone);
        }
        batch.map(Some)
    }

    fn next_pieces(&self, victim: &mut Victim, most: u32) -> Result<Vec<Piece>> {
        let (mut batch, mut blocks) = (Vec::new(), 0);
        let looks_max = victim.looks + LOOKS_MAX;
        while let Some(record) = victim.next(most)
            && blocks < most
            && victim.looks < looks_max
        {
            // Others may change something meanwhile: each piece is looked at again at the end.
            let found = self
                .tree
                .loaded_if_there(|| self.tree.read_state().pieces_at(victim.zone, &record));
            let pieces = match found {
                Ok(pieces) => pieces.unwrap_or_default(),
                Err(error @ FsError::Corrupt { .. }) => {
                    tracing::error!(zone = victim.zone, %error, "blocks whose owner cannot be read stay");
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            let more: u32 = pieces.iter().map(Piece::blocks).sum();
            if blocks > 0 && blocks + more > most {
                break;
            }
            blocks += more;
            victim.found += u64::from(more);
            batch.extend(pieces);
            victim.pass(&record);
        }
        batch.sort_unstable_by_key(|piece: &Piece| piece.block);
        Ok(batch)
    }

    /// Copies live blocks of a victim to the reclaim stream.
    fn move_blocks(&self, at: &mut Victim, batch: &[Piece], urgency: Urgency) -> Result<u64> {
        let victim = at.zone;
        let read = match self.read_live(victim, batch) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(zone = victim, %error, "reclaim cannot read a zone; it stays");
                self.tree.write_state().zones.slot_mut(victim).unreadable = true;
                return Ok(1);
            }
        };
        let mut sources: Vec<(&Piece, &[u8])> = Vec::with_capacity(batch.len());
        let mut rest = &read[..];
        for live in batch {
            let (bytes, later) = rest.split_at(live.crcs.len() * BLOCK_BYTES);
            sources.push((live, bytes));
            rest = later;
        }
        // What lies together in a zone was written in a short time, or has a mean.
        let middle = batch.get(batch.len() / 2).map_or(0, |live| live.block);
        let birth = self.tree.read_state().zones.slot(victim).birth_of(middle);
        let noted = if become_contiguous(batch) { Noted::InRows } else { Noted::InTables };
        if noted == Noted::InRows {
            sources.sort_unstable_by_key(|(live, _)| live.owner);
        }
        let (first, last) =
            (batch.first().map(|live| live.block), batch.last().map(|live| live.block));
        let went = at.went.take();
        let (division, parts) = self.divided(&sources, birth, at.rest_of_run());
        for part in parts {
            let has = |block| part.iter().any(|(live, _)| Some(live.block) == block);
            let data = part.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
            let is_run = part.is_sorted_by(|(left, _), (right, _)| left.goes_on_with(right));
            let mut whole = Whole::default();
            if division == Division::Fits || (division == Division::Runs && is_run) {
                let rest = if has(last) { at.rest_of_run() } else { 0 };
                whole.blocks = (data.len() / BLOCK_BYTES) as u64 + rest;
                whole.near = went.filter(|_| has(first));
            }
            let placed =
                self.writer.place_data(Purpose::Reclaim { birth, urgency }, whole, &data)?;
            if has(last) {
                at.note_moved(placed.last().map(|last| last.zone));
            }
            let part = part.iter().map(|(live, _)| *live);
            self.relocate_batch((victim, noted), part, &joined(&placed))?;
        }
        Ok((read.len() / BLOCK_BYTES) as u64)
    }

    /// What is moved together. If files that fit in a zone would be cut, each long run of theirs is
    /// for itself, so that as few as can be are.
    fn divided<'a, 'b>(
        &self,
        sources: &'b [(&'a Piece, &'a [u8])],
        birth: u64,
        rest: u64,
    ) -> (Division, impl Iterator<Item = &'b [(&'a Piece, &'a [u8])]>) {
        let blocks: u64 = sources.iter().map(|(live, _)| u64::from(live.blocks())).sum();
        let whole = Whole { blocks: blocks + rest, near: None };
        let state = self.tree.read_state();
        let (wish, clock) = (Wish::Moved { birth }, state.totals.data_clock);
        let division = if !sources.iter().any(|(live, _)| state.fits_a_zone(live.owner)) {
            Division::Any
        } else if state.zones.has_room_for(wish, whole, clock) {
            Division::Fits
        } else {
            Division::Runs
        };
        // What is shorter fills the ends of zones, wherever it is cut.
        let run_min = self.tree.layout().zone_blocks / RUN_SHARE;
        let is_long = move |live: &Piece| live.blocks() > run_min;
        let parts = sources.chunk_by(move |(left, _), (right, _)| {
            division != Division::Runs
                || left.goes_on_with(right)
                || !(is_long(left) || is_long(right))
        });
        (division, parts)
    }

    /// Maps copied blocks to the places of their copies, and settles these.
    fn relocate_batch<'a>(
        &self,
        (victim, noted): (u32, Noted),
        sources: impl Iterator<Item = &'a Piece>,
        placed: &[Placed],
    ) -> Result<()> {
        let mut sources = sources.peekable();
        let mut outcome = Ok(());
        let mut used = 0;
        for part in placed {
            let mut filled = 0;
            while filled < part.blocks {
                let Some(live) = sources.peek() else { break };
                let blocks = (live.blocks() - used).min(part.blocks - filled);
                if let Some(copied) = live.part(used, blocks)
                    && outcome.is_ok()
                {
                    let to = (part.zone, part.block + filled);
                    outcome = self.relocate_part(victim, &copied, (to, noted));
                }
                filled += blocks;
                used += blocks;
                if used == live.blocks() {
                    sources.next();
                    used = 0;
                }
            }
            self.tree.write_accounts().zones.settle(part.zone, part.blocks);
        }
        outcome
    }

    fn relocate_part(&self, victim: u32, copied: &Backref, to: ((u32, u32), Noted)) -> Result<()> {
        let relocate = || {
            let mut state = self.tree.write_state();
            let rows = self
                .tree
                .has_planted(PlantedBug::ForgetRelocation)
                .then(|| state.changes.rows.clone());
            state.relocate_piece(victim, copied, to)?;
            if let Some(rows) = rows {
                state.changes.rows = rows;
            }
            Ok(())
        };
        // What is not there any more stays behind.
        self.tree.loaded_if_there(relocate).map(drop)
    }

    /// Reads blocks of a victim, which will be erased, neighbours at once: what a second look would
    /// have mended must not be lost with it. A block that stays wrong moves with its checksum, and
    /// stays wrong for its readers.
    fn read_live(&self, victim: u32, batch: &[Piece]) -> Result<Vec<u8>> {
        let total: usize = batch.iter().map(|live| live.crcs.len()).sum();
        let mut data = vec![0; total * BLOCK_BYTES];
        let is_next = |live: &Piece, next: &Piece| live.block + live.blocks() == next.block;
        let mut runs = Vec::new();
        let mut rest = &mut data[..];
        for run in batch.chunk_by(is_next) {
            let blocks: usize = run.iter().map(|live| live.crcs.len()).sum();
            let now = rest.split_off_mut(..blocks * BLOCK_BYTES).expect("it is as long as all");
            runs.push((Address { zone: victim, block: run[0].block }, now));
        }
        self.drive.read_all(&mut runs)?;
        for (run, (at, read)) in batch.chunk_by(is_next).zip(runs) {
            let crcs = run.iter().map(|live| &live.crcs[..]).collect::<Vec<_>>().concat();
            for index in self.drive.find_wrong(at, &crcs, read) {
                self.drive.counts.blocks_moved_wrong.fetch_add(1, Ordering::Relaxed);
                let block = at.block + index;
                let live = run.iter().rfind(|live| live.block <= block);
                let file = live.and_then(|live| match live.owner {
                    Owner::Entry(ino, _) => Some(self.tree.name_of(ino)),
                    Owner::Extent(_) => None,
                });
                tracing::error!(
                    file = file.map(tracing::field::display),
                    zone = victim,
                    block,
                    "reclaim moves a block that is wrong"
                );
            }
        }
        Ok(data)
    }
}

/// Placed parts with neighbours made one, so that no extent is cut without need.
fn joined(placed: &[Placed]) -> Vec<Placed> {
    let mut parts: Vec<Placed> = Vec::new();
    for part in placed {
        match parts.last_mut() {
            Some(last) if last.zone == part.zone && last.block + last.blocks == part.block => {
                last.blocks += part.blocks;
            }
            _ => parts.push(*part),
        }
    }
    parts
}

impl Reclaimer {
    /// Commits if zones in which nothing lives are needed, and resets one.
    pub(in crate::furrow) fn free_emptied(&self) -> Result<()> {
        let awaits = self
            .tree
            .space
            .awaits_commit(&self.tree.read_state(), |zone| self.drive.pins.is_idle(zone));
        if awaits {
            self.log.commit(Ending::Record)?;
            self.writer.reset_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use zonal::crc32c;

    use super::*;
    use crate::furrow::format::backref::Owner;
    use crate::furrow::sample::{counted, formatted};
    use crate::furrow::zones::victims::Use;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    const BLOCKS: u64 = 1024;

    fn runs(fs: &Furrow) -> usize {
        let state = fs.tree.read_state();
        state.inodes.values().filter_map(|inode| inode.file().ok()).map(|file| file.map.len()).sum()
    }

    #[test]
    fn reclaim_reads_scattered_blocks_at_once() {
        let (drive, clock) = counted(32, 64);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.write(ino, 0, &vec![1; 60 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        let victim = fs.tree.read_state().zones.streams.zones()[0].zone;
        for block in (0..60).step_by(2) {
            fs.write(ino, block * BLOCK_BYTES as u64, &[2; BLOCK_BYTES], WriteFlags::DIRECT)
                .unwrap();
        }
        fs.sync().unwrap();
        let crcs = vec![crc32c::crc32c(&[1; BLOCK_BYTES])];
        let live = |block: u32| Piece {
            owner: Owner::Entry(ino, u64::from(block)),
            block,
            crcs: crcs.clone(),
        };
        let pieces: Vec<Piece> = (0..30).map(|number| live(2 * number + 1)).collect();
        drive.clear();
        let data = fs.reclaimer.read_live(victim, &pieces).unwrap();
        assert!(data.iter().all(|&byte| byte == 1));
        assert_eq!((drive.requests(), drive.rounds()), (30, 1));
    }

    /// A zone of which each of 4,000 blocks has a record, and only the last 100 live.
    fn nearly_dead() -> Furrow {
        let (drive, clock) = formatted(32, 4096);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        // 37 has no divisor in common with the size.
        for turn in 0..4000 {
            let at = turn * 37 % 4000 * BLOCK_BYTES as u64;
            fs.write(ino, at, &[1; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        let open = fs.tree.read_state().zones.streams.zones().to_vec();
        for open in open {
            fs.tree.write_state().zones.seal(open.zone);
            fs.writer.finish_zone(open.zone);
        }
        // The records become rows, of all blocks.
        fs.sync().unwrap();
        for turn in 0..3900 {
            let at = turn * 37 % 4000 * BLOCK_BYTES as u64;
            fs.write(ino, at, &[2; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        fs
    }

    /// How many records of the victim that waits were looked at.
    fn looks(fs: &Furrow) -> Option<u64> {
        let victim = fs.reclaimer.underway.take(|_| Use::Now)?;
        let looks = victim.looks;
        victim.put_back();
        Some(looks)
    }

    #[test]
    fn reclaim_step_scans_few_dead_backrefs() {
        let fs = nearly_dead();
        let (mut steps, mut seen) = (0, 0);
        while fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Normal).unwrap() > 0 {
            steps += 1;
            if let Some(looks) = looks(&fs) {
                assert!(looks - seen <= 2 * LOOKS_MAX, "{seen} to {looks} in a step");
                seen = looks;
            }
        }
        assert!((4..=8).contains(&steps), "{steps} steps for 4,000 records, {seen} seen");
    }

    #[test]
    fn reclaim_resumes_victim_after_failed_zone_scan() {
        let fs = nearly_dead();
        assert_eq!(fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Normal).unwrap(), 1);
        let before = looks(&fs);
        assert!(before.is_some());
        assert_eq!(fs.reclaimer.reclaim_some(STEP_BLOCKS, Urgency::Rescue).unwrap(), 0);
        assert_eq!(looks(&fs), before);
    }

    #[test]
    fn reclaim_reduces_extents_of_randomly_written_file() {
        let (drive, clock) = formatted(32, 512);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        // 37 has no divisor in common with the size: every block once, far from the one before.
        let content = |block: u64| [u8::try_from(block % 251).unwrap(); BLOCK_BYTES];
        for turn in 0..BLOCKS {
            let block = turn * 37 % BLOCKS;
            let at = block * BLOCK_BYTES as u64;
            fs.write(ino, at, &content(block), WriteFlags::DIRECT).unwrap();
        }
        // A hole in the middle makes the zones worth emptying.
        let other = fs.create(&Caller::ROOT, Ino::ROOT, b"other", &new).unwrap().ino;
        fs.write(other, 0, &vec![1; 64 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        fs.fallocate(ino, crate::vfs::Allocate::Punch, 0, 64 * BLOCK_BYTES as u64).unwrap();
        fs.sync().unwrap();
        let before = runs(&fs);
        assert!(before > 900, "{before} extents");
        let open = fs.tree.read_state().zones.streams.zones().to_vec();
        for open in open {
            fs.tree.write_state().zones.seal(open.zone);
            fs.writer.finish_zone(open.zone);
        }
        let none = BTreeSet::new();
        while fs.tree.read_state().zones.find_victim(0, Urgency::Emergency, &none).is_some() {
            let moved = fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap();
            assert!(moved > 0);
            fs.sync().unwrap();
        }
        let after = runs(&fs);
        assert!(after < before / 2, "{before} extents before reclaim, {after} after it");
        let mut data = vec![0; BLOCK_BYTES];
        for block in 64..BLOCKS {
            fs.read(ino, block * BLOCK_BYTES as u64, &mut data).unwrap();
            assert_eq!(data, content(block), "block {block}");
        }
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
