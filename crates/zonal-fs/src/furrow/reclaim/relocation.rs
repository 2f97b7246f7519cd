//! Relocation: copies live blocks of a victim and maps their owners to the copies.
//!
//! A [remap table](crate::furrow::table::remaps) records where the blocks of one file went, or the
//! row of its map does; a shared extent has one row, however many files share it. Blocks are
//! written in the order of files and offsets where that makes many of them contiguous, so that a
//! file that was overwritten in pieces needs fewer rows.

use std::sync::atomic::Ordering;

use zonal_placement::streams::Locality;

use super::Reclaimer;
use crate::FsError;
use crate::furrow::drive::reads::Wanted;
use crate::furrow::format::backref::{Backref, Owner};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::map::place::Placed;
use crate::furrow::metadata::state::relocation::LiveRun;
use crate::furrow::metadata::state::relocation::Noted;
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::place::WriteRequest;
use crate::furrow::zones::Urgency;
use crate::furrow::zones::allocation::Purpose;
use crate::furrow::zones::victims::Victim;
use crate::vfs::Result;

/// How moved blocks are grouped into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grouping {
    /// All together, wherever zones end.
    Together,
    /// All together, since an open zone has room for them.
    InOneZone,
    /// By runs of files, so that each long run can find a zone for itself.
    ByRun,
}

/// Runs longer than a zone divided by this are kept in one zone where they can be.
const RUN_SHARE: u32 = 64;

/// One in this many runs has to join another one before runs are written in the order of their
/// files. Otherwise they keep the order of the zone, which takes the fewest bytes in a remap table.
const JOINED_SHARE: usize = 8;

/// Live blocks of a victim and their bytes.
type Copied<'a> = (&'a LiveRun, &'a [u8]);

/// Where relocated blocks come from, and which rows record the move.
#[derive(Clone, Copy)]
struct Relocation {
    victim: u32,
    noted: Noted,
}

impl Relocation {
    /// Records moves of these runs, in the order of the zone, in the rows that take less.
    fn of(victim: u32, batch: &[LiveRun]) -> Self {
        let noted = if become_contiguous(batch) { Noted::InRows } else { Noted::InTables };
        Self { victim, noted }
    }
}

/// Whether many runs that lie apart in the zone are neighbours in their files.
fn become_contiguous(batch: &[LiveRun]) -> bool {
    let mut runs: Vec<&LiveRun> = batch.iter().collect();
    runs.sort_unstable_by_key(|run| run.owner);
    let joined = runs.windows(2).filter(|pair| pair[0].is_before_in_file(pair[1]));
    let joined = joined.filter(|pair| !pair[0].goes_on_with(pair[1]));
    joined.count() * JOINED_SHARE > batch.len()
}

impl Reclaimer {
    /// Copies live blocks of a victim to the reclaim stream, and returns how many. If the device
    /// refuses to read one, none moves: the zone could not be reset, and the copies would take free
    /// zones that other victims need.
    pub(super) fn move_blocks(
        &self,
        at: &mut Victim,
        batch: &[LiveRun],
        urgency: Urgency,
    ) -> Result<u64> {
        let victim = at.zone;
        let refused = |error: FsError| FsError::Refused { what: "data", why: error.to_string() };
        let read = self.read_live(victim, batch).map_err(refused)?;
        let mut sources: Vec<Copied<'_>> = Vec::with_capacity(batch.len());
        let mut rest = &read[..];
        for live in batch {
            let (bytes, later) = rest.split_at(live.crcs.len() * BLOCK_BYTES);
            sources.push((live, bytes));
            rest = later;
        }
        // Neighbours in a zone have about one age, or the zone has a mean of theirs.
        let middle = batch.get(batch.len() / 2).map_or(0, |live| live.block);
        let birth = self.tree.read_state().zones.slot(victim).birth_of(middle);
        let relocation = Relocation::of(victim, batch);
        if relocation.noted == Noted::InRows {
            sources.sort_unstable_by_key(|(live, _)| live.owner);
        }
        let (first, last) =
            (batch.first().map(|live| live.block), batch.last().map(|live| live.block));
        let went = at.went.take();
        let purpose = Purpose::Reclaim { birth, urgency };
        let grouping = self.grouping_of(&sources, birth, at.rest_of_run());
        for part in self.grouped(&sources, grouping) {
            let has = |block| part.iter().any(|(live, _)| Some(live.block) == block);
            let data = part.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
            let is_run = part.is_sorted_by(|(left, _), (right, _)| left.goes_on_with(right));
            let mut locality = Locality::default();
            if grouping == Grouping::InOneZone || (grouping == Grouping::ByRun && is_run) {
                let rest = if has(last) { at.rest_of_run() } else { 0 };
                locality.blocks = (data.len() / BLOCK_BYTES) as u64 + rest;
                locality.near = went.filter(|_| has(first));
            }
            let placed = self.writer.place_data(WriteRequest { purpose, data: &data, locality })?;
            if has(last) {
                at.note_moved(placed.last().map(|last| last.zone));
            }
            let part = part.iter().map(|(live, _)| *live);
            self.relocate_batch(relocation, part, &joined(&placed))?;
        }
        Ok((read.len() / BLOCK_BYTES) as u64)
    }

    /// How to group blocks that are moved together. If a zone's end would cut files that fit into
    /// a zone, each of their long runs is a write of its own, so that few of them are cut.
    fn grouping_of(&self, sources: &[Copied<'_>], birth: u64, rest_of_run: u64) -> Grouping {
        let blocks: u64 = sources.iter().map(|(live, _)| u64::from(live.blocks())).sum();
        let locality = Locality { blocks: blocks + rest_of_run, near: None };
        let state = self.tree.read_state();
        let clock = state.rows.totals.data_clock();
        if !sources.iter().any(|(live, _)| state.fits_a_zone(live.owner)) {
            Grouping::Together
        } else if state.zones.has_room_for(birth, locality, clock) {
            Grouping::InOneZone
        } else {
            Grouping::ByRun
        }
    }

    /// The groups. Short runs stay together: they fill the ends of zones, wherever these cut them.
    fn grouped<'a, 'b>(
        &self,
        sources: &'b [Copied<'a>],
        grouping: Grouping,
    ) -> impl Iterator<Item = &'b [Copied<'a>]> + use<'a, 'b> {
        let run_min = self.tree.layout().zone_blocks / RUN_SHARE;
        let is_long = move |live: &LiveRun| live.blocks() > run_min;
        sources.chunk_by(move |(left, _), (right, _)| {
            grouping != Grouping::ByRun
                || left.goes_on_with(right)
                || !(is_long(left) || is_long(right))
        })
    }

    /// Maps copied blocks to their copies, which are not in flight any more then.
    fn relocate_batch<'a>(
        &self,
        relocation: Relocation,
        sources: impl Iterator<Item = &'a LiveRun>,
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
                    let to = Address { zone: part.zone, block: part.block + filled };
                    outcome = self.relocate_part(relocation, &copied, to);
                }
                filled += blocks;
                used += blocks;
                if used == live.blocks() {
                    sources.next();
                    used = 0;
                }
            }
            self.tree.write_accounts().zones.complete(part.zone, part.blocks);
        }
        outcome
    }

    fn relocate_part(&self, from: Relocation, copied: &Backref, to: Address) -> Result<()> {
        let relocate = || {
            let mut state = self.tree.write_state();
            let before = || state.rows.batch.changed().clone();
            let rows = self.tree.planted.has(PlantedBug::ForgetRelocation).then(before);
            state.relocate_runs(from.victim, copied, to, from.noted)?;
            if let Some(rows) = rows {
                state.rows.batch.set_changed(rows);
            }
            Ok(())
        };
        // Blocks that died meanwhile have no owner to be mapped.
        self.tree.loaded_if_there(relocate).map(drop)
    }

    /// Reads live blocks of a victim, neighbours at once, and wrong ones again: the victim will be
    /// erased, so a block that another read returns well must not be lost with it. A block that
    /// stays wrong moves with its checksum, and its readers still find it wrong.
    fn read_live(&self, victim: u32, batch: &[LiveRun]) -> Result<Vec<u8>> {
        let total: usize = batch.iter().map(|live| live.crcs.len()).sum();
        let mut data = vec![0; total * BLOCK_BYTES];
        let is_next = |live: &LiveRun, next: &LiveRun| live.block + live.blocks() == next.block;
        let mut runs = Vec::new();
        let mut rest = &mut data[..];
        for run in batch.chunk_by(is_next) {
            let blocks: usize = run.iter().map(|live| live.crcs.len()).sum();
            let now = rest.split_off_mut(..blocks * BLOCK_BYTES).expect("it is as long as all");
            let at = Address { zone: victim, block: run[0].block };
            runs.push(Wanted { at, buffer: now, readable: 0 });
        }
        self.drive.read_all(&mut runs)?;
        for (run, Wanted { at, buffer, .. }) in batch.chunk_by(is_next).zip(runs) {
            let crcs = run.iter().map(|live| &live.crcs[..]).collect::<Vec<_>>().concat();
            for index in self.drive.find_wrong(at, &crcs, buffer) {
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

/// Placed runs, with neighbours joined: so no extent is cut without need.
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

#[cfg(test)]
mod tests {
    use zonal::crc32c;

    use super::*;
    use crate::furrow::sample::counted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    #[test]
    fn reclaim_reads_scattered_blocks_at_once() {
        let (drive, clock) = counted(32, 64);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.write(ino, 0, &vec![1; 60 * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        let victim = fs.tree.read_state().zones.open_zones()[0].zone;
        for block in (0..60).step_by(2) {
            fs.write(ino, block * BLOCK_BYTES as u64, &[2; BLOCK_BYTES], WriteFlags::DIRECT)
                .unwrap();
        }
        fs.sync().unwrap();
        let crcs = vec![crc32c::crc32c(&[1; BLOCK_BYTES])];
        let live = |block: u32| LiveRun {
            owner: Owner::Entry(ino, u64::from(block)),
            block,
            crcs: crcs.clone(),
        };
        let runs: Vec<LiveRun> = (0..30).map(|number| live(2 * number + 1)).collect();
        drive.clear();
        let data = fs.reclaimer.read_live(victim, &runs).unwrap();
        assert!(data.iter().all(|&byte| byte == 1));
        assert_eq!((drive.requests(), drive.rounds()), (30, 1));
    }
}
