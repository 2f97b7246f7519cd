//! The write buffer: blocks of files that are newer than what the drive holds.
//!
//! Small and unaligned writes gather here, a block at a time, so that a file written in pieces of a
//! hundred bytes does not get an extent for each piece, and many small files do not each cost a
//! write to the drive. A block stays here until its content has been placed on the drive and
//! mapped; if it is written again meanwhile, it stays with the newer content.

use std::sync::{Arc, TryLockError};

use zonal_placement::streams::{Target, Whole};

use crate::furrow::drive::verify::StoredBlocks;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::extent::{Placed, checksums};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::place::{Crcs, MapEntry, Stored};
use crate::furrow::metadata::target::WrittenAs;
use crate::furrow::metadata::{DirtyBlock, State};
use crate::furrow::planted::PlantedBug;
use crate::furrow::write::Writer;
use crate::furrow::write::admission::Admission;
use crate::furrow::zones::allocation::Purpose;
use crate::vfs::{Ino, Result};

/// Blocks that gather in one write to the drive: 1 MiB.
const GATHER_BLOCKS: usize = 256;

/// Such writes that the device gets as one batch: 8 MiB at most.
const WRITES_AT_ONCE: usize = 8;

/// Blocks that become part of their files while others wait: a tenth of a millisecond.
const PUBLISH_BLOCKS: u32 = 64;

/// A block's bytes.
pub(in crate::furrow) type BlockData = [u8; BLOCK_BYTES];

/// A stored block, read so that part of it can be replaced.
pub(in crate::furrow) struct Base {
    at: StoredAt,
    data: Box<BlockData>,
}

/// Where a block is stored, and since when: another one may lie there after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredAt {
    at: Address,
    resets: u32,
    crc: u32,
}

/// A buffered block on its way to the drive.
struct Outgoing {
    ino: Ino,
    block: u64,
    id: u64,
    data: Arc<BlockData>,
    target: Target,
}

impl Writer {
    /// Reads the stored content of a block that is to be replaced in part; `None` where nothing
    /// is stored or the block is buffered.
    pub(in crate::furrow) fn read_base(&self, ino: Ino, block: u64) -> Result<Option<Base>> {
        let source = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let Some(at) = stored_at(&state, ino, block)? else { return Ok(None) };
            self.drive.pins.pin_zone(&*state, at.at.zone);
            Ok(Some((at, StoredBlocks { at: at.at, crcs: vec![at.crc], ino, first: block })))
        })?;
        let Some(source) = source else { return Ok(None) };
        let mut data = Box::new([0; BLOCK_BYTES]);
        let early = self.tree.has_planted(PlantedBug::UnpinBeforeBase);
        if early {
            self.drive.pins.unpin_zone(source.1.at.zone);
        }
        let outcome = self.drive.read_blocks(&source.1, &mut data[..]);
        if !early {
            self.drive.pins.unpin_zone(source.1.at.zone);
        }
        outcome?;
        Ok(Some(Base { at: source.0, data }))
    }

    /// Whether `base` is still what is stored for a block: if not, it must be read again.
    pub(in crate::furrow) fn is_current(
        state: &State,
        ino: Ino,
        block: u64,
        base: Option<&Base>,
    ) -> Lookup<bool> {
        Ok(stored_at(state, ino, block)? == base.map(|base| base.at))
    }

    /// Replaces bytes of a block in the buffer, where it begins as `base` or as zeroes.
    pub(in crate::furrow) fn buffer_block(
        state: &mut State,
        (ino, block): (Ino, u64),
        base: Option<&Base>,
        admission: &mut Admission<'_>,
        change: impl FnOnce(&mut BlockData),
    ) -> Lookup<()> {
        if let Some(dirty) = state.inode_mut(ino)?.file_mut()?.dirty.get_mut(&block) {
            change(Arc::make_mut(&mut dirty.data));
            return Ok(());
        }
        let mut data = Arc::new(base.map_or([0; BLOCK_BYTES], |base| *base.data));
        change(Arc::make_mut(&mut data));
        let growth = state.growth(ino, block, block + 1)?;
        let reserved = if state.planted.has(PlantedBug::BufferUnreserved) { 0 } else { growth };
        let over = state.inode(ino)?.file()?.covering(block).and_then(|(_, entry)| entry.shared());
        let id = state.next_dirty;
        state.next_dirty += 1;
        if let Some(extent) = over {
            state.extents.keep_below(extent);
        }
        state.totals.reserved += reserved;
        admission.hand_over(1);
        state.buffered.insert(ino);
        let dirty = DirtyBlock { id, data, reserved, over };
        let file = state.inode_mut(ino)?.file_mut()?;
        file.growing += reserved;
        file.dirty.insert(block, dirty);
        Ok(())
    }

    /// Places every buffered block of every file, and returns how many blocks these were. The
    /// caller has its turn at [`flushing`](Writer::flushing), as a commit has while it takes a
    /// batch: so no other thread maps buffered blocks in between.
    pub(in crate::furrow) fn write_back_all(&self) -> Result<usize> {
        let outgoing = {
            let state = self.tree.read_state();
            state.buffered.iter().flat_map(|&ino| outgoing(&state, ino)).collect::<Vec<_>>()
        };
        let blocks = outgoing.len();
        self.place_outgoing(outgoing)?;
        Ok(blocks)
    }

    /// Places some blocks of a full buffer, as many as go to the drive in one write: so a writer of
    /// one block never waits for everything that others have written.
    pub(in crate::furrow) fn relieve_buffer(&self) -> Result<()> {
        // Another thread empties it as long as it has not grown to twice that.
        let is_overfull = self.buffer_max < self.tree.read_state().totals.pending / 2;
        let mut next = match self.flushing.try_lock() {
            Ok(next) => next,
            Err(TryLockError::WouldBlock) if !is_overfull => return Ok(()),
            Err(_) => self.flushing.lock().expect("no holder panicked"),
        };
        // Another thread may have made room meanwhile.
        if !self.is_buffer_full() {
            return Ok(());
        }
        let group = {
            let state = self.tree.read_state();
            // Those whose turn it is first.
            let files = state.buffered.range(*next..).chain(state.buffered.range(..*next));
            let blocks = files.flat_map(|&ino| outgoing(&state, ino));
            blocks.take(GATHER_BLOCKS).collect::<Vec<_>>()
        };
        *next = group.last().map_or(Ino::default(), |last| Ino::new(last.ino.get() + 1));
        self.place_outgoing(group)
    }

    /// Places the blocks that have gathered of a file that grows, once they are enough for a write
    /// of their own. If another thread empties the buffer at that moment, they stay there until the
    /// next write to the file.
    pub(in crate::furrow) fn release_gathered(&self, ino: Ino) {
        let Ok(_turn) = self.flushing.try_lock() else { return };
        let blocks = {
            let state = self.tree.read_state();
            let end = state.gathered(ino).unwrap_or_default();
            outgoing(&state, ino).filter(|block| block.block < end).collect()
        };
        if let Err(error) = self.place_outgoing(blocks) {
            // As in `after_change`: the next commit reports it.
            tracing::warn!(%error, "writing back failed; the data is still held");
        }
    }

    /// Places every buffered block of some files, those of many small ones in one write. The
    /// caller has its turn at [`flushing`](Writer::flushing), as for
    /// [`write_back_all`](Self::write_back_all).
    pub(in crate::furrow) fn write_back(&self, files: &[Ino]) -> Result<()> {
        let outgoing = {
            let state = self.tree.read_state();
            files.iter().flat_map(|&ino| outgoing(&state, ino)).collect::<Vec<_>>()
        };
        self.place_outgoing(outgoing)
    }

    /// Places blocks, those together that belong together.
    fn place_outgoing(&self, mut outgoing: Vec<Outgoing>) -> Result<()> {
        // The order of files and blocks stays.
        outgoing.sort_by_key(|block| block.target);
        let same = outgoing.chunk_by(|left, right| left.target == right.target);
        let groups: Vec<&[Outgoing]> = same.flat_map(|same| same.chunks(GATHER_BLOCKS)).collect();
        groups.chunks(WRITES_AT_ONCE).try_for_each(|groups| self.place_groups(groups))
    }

    /// Places groups of blocks side by side.
    fn place_groups(&self, groups: &[&[Outgoing]]) -> Result<()> {
        let content = |group: &&[Outgoing]| {
            let mut data = Vec::with_capacity(group.len() * BLOCK_BYTES);
            for block in *group {
                data.extend_from_slice(&block.data[..]);
            }
            (Purpose::WriteBack(group[0].target), data)
        };
        let contents: Vec<(Purpose, Vec<u8>)> = groups.iter().map(content).collect();
        let pieces: Vec<(Purpose, &[u8])> =
            contents.iter().map(|(purpose, data)| (*purpose, &data[..])).collect();
        let placed = match &pieces[..] {
            [_] => vec![None],
            several => self.place_together(several),
        };
        // What is placed becomes part of its files, though another group may fail.
        let mut outcome = Ok(());
        for ((group, placed), &(purpose, data)) in groups.iter().zip(placed).zip(&pieces) {
            let alone = || self.place_data(purpose, Whole::default(), data);
            match placed.map_or_else(alone, Ok) {
                Ok(placed) => self.publish_group(group, &placed, &checksums(data)),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Maps what was placed.
    fn publish_group(&self, group: &[Outgoing], placed: &[Placed], crcs: &[u32]) {
        // What a buffered block replaces is in memory as long as it is buffered. No batch is taken
        // between two steps: who takes one has the turn at `flushing` first.
        let mut from = 0;
        for part in placed {
            for skip in (0..part.blocks).step_by(PUBLISH_BLOCKS as usize) {
                let blocks = PUBLISH_BLOCKS.min(part.blocks - skip);
                let step = Placed { zone: part.zone, block: part.block + skip, blocks };
                let to = from + blocks as usize;
                publish(&mut self.tree.write_accounts(), &group[from..to], step, &crcs[from..to]);
                from = to;
            }
        }
    }

    fn is_buffer_full(&self) -> bool {
        self.tree.read_state().totals.pending > self.buffer_max
    }
}

/// Where a block is stored; `None` if nowhere, or if the buffer has it.
fn stored_at(state: &State, ino: Ino, block: u64) -> Lookup<Option<StoredAt>> {
    let file = state.mapped_file(ino, block, block + 1)?;
    if file.dirty.contains_key(&block) {
        return Ok(None);
    }
    let Some((start, entry)) = file.covering(block) else { return Ok(None) };
    let within = u32::try_from(block - start).expect("inside the entry");
    Ok(state.stored(entry).map(|Stored { zone, block, crcs }| StoredAt {
        at: Address { zone, block: block + within },
        resets: state.zones.slot(zone).resets,
        crc: crcs[within as usize],
    }))
}

/// The buffered blocks of a file, in order.
fn outgoing(state: &State, ino: Ino) -> impl Iterator<Item = Outgoing> {
    let file = state.inodes.get(&ino).and_then(|inode| inode.file().ok());
    file.into_iter().flat_map(|file| &file.dirty).map(move |(&block, dirty)| Outgoing {
        ino,
        block,
        id: dirty.id,
        data: Arc::clone(&dirty.data),
        target: state.target_of(ino, block, WrittenAs::Buffered),
    })
}

/// Maps what was placed, run by run of each file, where it is still what the buffer holds, and
/// clears the buffer of what was not changed meanwhile.
fn publish(state: &mut State, group: &[Outgoing], placed: Placed, crcs: &[u32]) {
    let wanted: Vec<(&Outgoing, bool)> =
        group.iter().map(|block| (block, is_wanted(state, block))).collect();
    let is_run = |(left, left_is): &(&Outgoing, bool), (right, right_is): &(&Outgoing, bool)| {
        left.ino == right.ino && left.block + 1 == right.block && left_is == right_is
    };
    let mut from = 0;
    for run in wanted.chunk_by(is_run) {
        let to = from + run.len();
        if run[0].1 {
            let narrow = |count| u32::try_from(count).expect("inside a zone");
            let block = placed.block + narrow(from);
            let place = Placed { zone: placed.zone, block, blocks: narrow(to - from) };
            map_run(state, &group[from..to], (place, &crcs[from..to]));
        }
        from = to;
    }
    state.zones.settle(placed.zone, placed.blocks);
}

/// Whether the buffer still holds the block that was placed, or a later content of it.
fn is_wanted(state: &State, outgoing: &Outgoing) -> bool {
    let file = state.inodes.get(&outgoing.ino).and_then(|inode| inode.file().ok());
    let any = state.planted.has(PlantedBug::WriteBackUnwanted);
    file.is_some_and(|file| {
        any || file.dirty.get(&outgoing.block).is_some_and(|dirty| dirty.id == outgoing.id)
    })
}

/// Maps a run of blocks of one file.
fn map_run(state: &mut State, run: &[Outgoing], (place, crcs): (Placed, &[u32])) {
    let Outgoing { ino, block: first, .. } = run[0];
    state.unmap_stored(ino, first, first + run.len() as u64);
    let Placed { zone, block, .. } = place;
    state.map(ino, first, MapEntry::At { zone, block, crcs: Crcs::from(crcs) });
    let Some(file) = state.inodes.get_mut(&ino).and_then(|inode| inode.file_mut().ok()) else {
        return;
    };
    for outgoing in run {
        let Some(dirty) = file.dirty.get_mut(&outgoing.block) else { continue };
        state.totals.reserved -= dirty.reserved;
        file.growing -= dirty.reserved;
        dirty.reserved = 0;
        if let Some(extent) = dirty.over.take() {
            state.extents.let_go_below(extent);
        }
        let forgets = state.planted.has(PlantedBug::WriteBackForgetsNewer);
        if forgets || Arc::ptr_eq(&dirty.data, &outgoing.data) {
            file.dirty.remove(&outgoing.block);
            state.totals.pending -= 1;
        }
    }
    if file.dirty.is_empty() {
        state.buffered.remove(&ino);
    }
}
