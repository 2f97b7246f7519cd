//! Relocation: copies live blocks of a victim and maps their owners to the copies.
//!
//! A [remap table](crate::furrow::table::remaps) records where the blocks of one file went, or the
//! row of its map does; a shared extent has one row, however many files share it. Blocks are
//! written in the order of files and offsets where that makes many of them contiguous, so that a
//! file that was overwritten in pieces needs fewer rows.

use std::slice;
use std::sync::atomic::Ordering;

use zonal::DeviceError;
use zonal_placement::streams::Whole;

use super::Reclaimer;
use crate::FsError;
use crate::furrow::format::backref::{Backref, Owner};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::backrefs::LiveRun;
use crate::furrow::metadata::extent::Placed;
use crate::furrow::metadata::remaps::Noted;
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::place::DataWrite;
use crate::furrow::zones::Urgency;
use crate::furrow::zones::allocation::{Purpose, Wish};
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

/// Reads that the device may refuse before the rest of a batch stays where it is. A disk can spend
/// seconds on each; ten find the one unreadable block among 256.
const REFUSALS_MAX: u32 = 32;

/// Live blocks of a victim that the device has read.
struct Readable {
    batch: Vec<LiveRun>,
    data: Vec<u8>,
    /// Why other blocks of the batch are not among them.
    refused: Option<DeviceError>,
}

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
    /// Copies live blocks of a victim to the reclaim stream, and returns how many. Blocks that the
    /// device refuses to read stay, and [`Victim::unread`] says so.
    pub(super) fn move_blocks(
        &self,
        at: &mut Victim,
        batch: Vec<LiveRun>,
        urgency: Urgency,
    ) -> Result<u64> {
        let victim = at.zone;
        let (first, last) =
            (batch.first().map(|live| live.block), batch.last().map(|live| live.block));
        let Readable { batch, data: read, refused } = self.read_live(victim, batch);
        if let Some(error) = refused {
            let refused = FsError::Refused { what: "data", why: error.to_string() };
            if batch.is_empty() {
                return Err(refused);
            }
            at.unread = Some(refused);
        }
        let mut sources: Vec<Copied<'_>> = Vec::with_capacity(batch.len());
        let mut rest = &read[..];
        for live in &batch {
            let (bytes, later) = rest.split_at(live.crcs.len() * BLOCK_BYTES);
            sources.push((live, bytes));
            rest = later;
        }
        // Neighbours in a zone have about one age, or the zone has a mean of theirs.
        let middle = batch.get(batch.len() / 2).map_or(0, |live| live.block);
        let birth = self.tree.read_state().zones.slot(victim).birth_of(middle);
        let relocation = Relocation::of(victim, &batch);
        if relocation.noted == Noted::InRows {
            sources.sort_unstable_by_key(|(live, _)| live.owner);
        }
        let went = at.went.take();
        let purpose = Purpose::Reclaim { birth, urgency };
        let grouping = self.grouping_of(&sources, birth, at.rest_of_run());
        for part in self.grouped(&sources, grouping) {
            let has = |block| part.iter().any(|(live, _)| Some(live.block) == block);
            let data = part.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
            let is_run = part.is_sorted_by(|(left, _), (right, _)| left.goes_on_with(right));
            let mut whole = Whole::default();
            if grouping == Grouping::InOneZone || (grouping == Grouping::ByRun && is_run) {
                let rest = if has(last) { at.rest_of_run() } else { 0 };
                whole.blocks = (data.len() / BLOCK_BYTES) as u64 + rest;
                whole.near = went.filter(|_| has(first));
            }
            let placed = self.writer.place_data(DataWrite { purpose, data: &data }, whole)?;
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
        let whole = Whole { blocks: blocks + rest_of_run, near: None };
        let state = self.tree.read_state();
        let (wish, clock) = (Wish::Moved { birth }, state.totals.data_clock());
        if !sources.iter().any(|(live, _)| state.fits_a_zone(live.owner)) {
            Grouping::Together
        } else if state.zones.has_room_for(wish, whole, clock) {
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
            self.tree.write_accounts().zones.settle(part.zone, part.blocks);
        }
        outcome
    }

    fn relocate_part(&self, from: Relocation, copied: &Backref, to: Address) -> Result<()> {
        let relocate = || {
            let mut state = self.tree.write_state();
            let rows = self
                .tree
                .has_planted(PlantedBug::ForgetRelocation)
                .then(|| state.batch.changed().clone());
            state.relocate_runs(from.victim, copied, to, from.noted)?;
            if let Some(rows) = rows {
                state.batch.set_changed(rows);
            }
            Ok(())
        };
        // Blocks that died meanwhile have no owner to be mapped.
        self.tree.loaded_if_there(relocate).map(drop)
    }

    /// Reads live blocks of a victim, neighbours at once, and wrong ones again: the victim will be
    /// erased, so a block that another read returns well must not be lost with it. A block that
    /// stays wrong moves with its checksum, and its readers still find it wrong.
    fn read_live(&self, victim: u32, batch: Vec<LiveRun>) -> Readable {
        let mut data = vec![0; bytes_of(&batch)];
        let mut runs = runs_of(victim, &batch, &mut data);
        let outcome = self.drive.read_all(&mut runs);
        let mut read = match outcome {
            Ok(()) => Readable { batch, data, refused: None },
            Err(error) => self.read_in_pieces(victim, batch, error),
        };
        let runs = runs_of(victim, &read.batch, &mut read.data);
        for (run, (at, read)) in read.batch.chunk_by(LiveRun::is_before_in_zone).zip(runs) {
            self.read_wrong_again(run, at, read);
        }
        read
    }

    /// Reads the blocks that the device does not refuse: one unreadable block would keep all others
    /// of its batch. A run of a file that it refuses is halved; a shared extent moves as a whole.
    fn read_in_pieces(&self, zone: u32, batch: Vec<LiveRun>, error: DeviceError) -> Readable {
        let mut read = Readable { batch: Vec::new(), data: Vec::new(), refused: Some(error) };
        let (mut pieces, mut refusals) = (batch, 0);
        pieces.reverse();
        while refusals < REFUSALS_MAX
            && let Some(live) = pieces.pop()
        {
            let mut data = vec![0; bytes_of(slice::from_ref(&live))];
            match self.drive.read(Address { zone, block: live.block }, &mut data) {
                Ok(()) => {
                    read.data.extend(data);
                    read.batch.push(live);
                }
                Err(error) => {
                    read.refused = Some(error);
                    refusals += 1;
                    pieces.extend(live.halves().into_iter().flatten().rev());
                }
            }
        }
        read
    }

    /// Reads blocks again that are wrong, and reports each that stays wrong.
    fn read_wrong_again(&self, run: &[LiveRun], at: Address, read: &mut [u8]) {
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
                zone = at.zone,
                block,
                "reclaim moves a block that is wrong"
            );
        }
    }
}

fn bytes_of(batch: &[LiveRun]) -> usize {
    batch.iter().map(|live| live.crcs.len()).sum::<usize>() * BLOCK_BYTES
}

/// The reads of a batch, one for neighbours in the zone.
fn runs_of<'a>(
    zone: u32,
    batch: &[LiveRun],
    mut data: &'a mut [u8],
) -> Vec<(Address, &'a mut [u8])> {
    let runs = batch.chunk_by(LiveRun::is_before_in_zone);
    runs.map(|run| {
        let now = data.split_off_mut(..bytes_of(run)).expect("it is as long as all");
        (Address { zone, block: run[0].block }, now)
    })
    .collect()
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use zonal::{Lba, ManualClock, MemoryDrive, ZonedDevice, crc32c};

    use super::*;
    use crate::furrow::metadata::place::ExtentId;
    use crate::furrow::sample::{counted, shape};
    use crate::furrow::{DataCheck, Furrow, MkfsOptions, MountOptions, check, mkfs};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    /// A drive that refuses reads of one block.
    struct Scratched {
        drive: MemoryDrive,
        lba: AtomicU64,
        refusals: AtomicU64,
    }

    impl ZonedDevice for Scratched {
        zonal::pass_on!(drive: geometry, report, write, append, manage, flush);

        fn read(&self, lba: Lba, buffer: &mut [u8]) -> zonal::error::Result<()> {
            let scratch = self.lba.load(Ordering::Relaxed);
            if (lba.get()..lba.get() + (buffer.len() / BLOCK_BYTES) as u64).contains(&scratch) {
                self.refusals.fetch_add(1, Ordering::Relaxed);
                return Err(DeviceError::Medium { lba: Lba::new(scratch) });
            }
            self.drive.read(lba, buffer)
        }
    }

    fn create(fs: &Furrow, name: &[u8]) -> Ino {
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, name, &new).unwrap().ino
    }

    #[test]
    fn one_unreadable_block_stays_and_all_others_move() {
        const BLOCKS: u32 = 1000;
        let drive = MemoryDrive::new(shape(32, 1024)).unwrap();
        let (lba, refusals) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let drive = Arc::new(Scratched { drive, lba, refusals });
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let file = create(&fs, b"file");
        fs.write(file, 0, &vec![1; BLOCKS as usize * BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        let zone = fs.tree.read_state().zones.open_zones()[0].zone;
        fs.tree.write_state().zones.seal(zone);
        fs.writer.finish_zone(zone);
        // A hole makes the zone worth emptying.
        fs.fallocate(file, crate::vfs::Allocate::Punch, 0, 4 * BLOCK_BYTES as u64).unwrap();
        fs.sync().unwrap();
        let live = || fs.tree.read_state().zones.slot(zone).live;
        assert_eq!(live(), BLOCKS - 4);
        let scratch = fs.drive.lba(Address { zone, block: 300 }).get();
        drive.lba.store(scratch, Ordering::Relaxed);
        while fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap() > 0 {}
        assert_eq!(live(), 1, "the block that cannot be read");
        assert_eq!(fs.stats().zones_unread, 1);
        let refusals = drive.refusals.load(Ordering::Relaxed);
        assert!(refusals <= 16, "{refusals} reads were refused");
        drive.lba.store(u64::MAX, Ordering::Relaxed);
        clock.advance_ns(64_000_000_000);
        assert_eq!(fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap(), 1);
        assert_eq!((live(), fs.stats().zones_unread), (0, 0));
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn run_is_halved_and_shared_extent_is_not() {
        let run = |owner| LiveRun { owner, block: 8, crcs: vec![1, 2, 3] };
        let [left, right] = run(Owner::Entry(Ino::ROOT, 5)).halves().unwrap();
        assert_eq!((left.owner, left.block), (Owner::Entry(Ino::ROOT, 5), 8));
        assert_eq!((right.owner, right.block), (Owner::Entry(Ino::ROOT, 6), 9));
        assert_eq!((left.crcs, &right.crcs[..]), (vec![1], &[2, 3][..]));
        assert!(right.halves().unwrap().iter().all(|half| half.halves().is_none()));
        assert!(run(Owner::Extent(ExtentId(7))).halves().is_none());
    }

    #[test]
    fn reclaim_reads_scattered_blocks_at_once() {
        let (drive, clock) = counted(32, 64);
        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let ino = create(&fs, b"file");
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
        let read = fs.reclaimer.read_live(victim, runs);
        assert!(read.refused.is_none() && read.data.iter().all(|&byte| byte == 1));
        assert_eq!((drive.requests(), drive.rounds()), (30, 1));
    }
}
