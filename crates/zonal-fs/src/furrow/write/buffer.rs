//! The write buffer: blocks of files that are newer than the blocks on the drive.
//!
//! Small and unaligned writes gather here, a block at a time, so that a file written in pieces of a
//! hundred bytes does not get an extent for each piece, and many small files do not each cost a
//! write to the drive. A block stays here until its content has been placed on the drive and
//! mapped; if it is written again meanwhile, it stays with the newer content.

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};

use zonal_placement::streams::{Locality, Target};

use crate::furrow::drive::verify::StoredBlocks;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::place::{Crcs, MapEntry, Stored};
use crate::furrow::metadata::map::place::{Placed, checksums};
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::state::target::WrittenAs;
use crate::furrow::options::Seeks;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::furrow::write::Writer;
use crate::furrow::write::place::WriteRequest;
use crate::furrow::write::reservation::Reservation;
use crate::furrow::zones::allocation::Purpose;
use crate::vfs::{Ino, Result};

/// Blocks that gather in one write to the drive: 1 MiB.
pub(super) const GATHER_BLOCKS: usize = 256;

/// Such writes that the device gets as one batch: 8 MiB at most.
const WRITES_AT_ONCE: usize = 8;

/// Blocks that one lock of the state maps: a tenth of a millisecond.
const PUBLISH_BLOCKS: u32 = 64;

/// A block's bytes.
pub(in crate::furrow) type BlockData = [u8; BLOCK_BYTES];

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) struct FileBlock {
    pub(in crate::furrow) ino: Ino,
    pub(in crate::furrow) block: u64,
}

/// The stored content of a block, read before an operation replaces a part of it.
pub(in crate::furrow) struct BlockBase {
    pub(in crate::furrow) of: FileBlock,
    /// `None` where nothing is stored, or the buffer has the block.
    stored: Option<StoredData>,
}

struct StoredData {
    at: StoredAt,
    data: Box<BlockData>,
}

impl BlockBase {
    /// Whether the file still has this block there: if not, the caller reads it again.
    pub(in crate::furrow) fn is_current(&self, state: &State) -> Lookup<bool> {
        let at = self.stored.as_ref().map(|stored| stored.at);
        Ok(stored_at(state, self.of)? == at)
    }

    /// The content that a change of the block starts from: as it is stored, or zeroes.
    fn content(&self) -> BlockData {
        self.stored.as_ref().map_or([0; BLOCK_BYTES], |stored| *stored.data)
    }
}

/// Where a block is stored, and the resets of that zone: after another reset it is another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredAt {
    at: Address,
    resets: u32,
    crc: u32,
}

/// A buffered block on its way to the drive.
pub(super) struct Outgoing {
    pub(super) at: FileBlock,
    id: u64,
    data: Arc<BlockData>,
    target: Target,
}

impl Writer {
    /// Reads the stored content of a block, which the caller is about to replace in part.
    pub(in crate::furrow) fn read_base(&self, of: FileBlock) -> Result<BlockBase> {
        let stored = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let stored = stored_at(&state, of)?;
            if let Some(stored) = stored {
                self.drive.pins.pin_zone(&*state, stored.at.zone);
            }
            Ok(stored)
        })?;
        let Some(stored) = stored else { return Ok(BlockBase { of, stored: None }) };
        let StoredAt { at, crc, .. } = stored;
        let source =
            StoredBlocks { at, crcs: vec![crc], ino: of.ino, first: of.block, readable: 0 };
        let mut data = Box::new([0; BLOCK_BYTES]);
        let early = self.tree.planted.has(PlantedBug::UnpinBeforeBase);
        if early {
            self.drive.pins.unpin_zone(at.zone);
        }
        let outcome = self.drive.read_blocks(&source, &mut data[..]);
        if !early {
            self.drive.pins.unpin_zone(at.zone);
        }
        if !self.tree.planted.has(PlantedBug::PadRefusedBase) {
            outcome?;
        }
        Ok(BlockBase { of, stored: Some(StoredData { at: stored, data }) })
    }

    /// Changes a block in the buffer. One that is new there begins as `base`, or as zeroes.
    pub(in crate::furrow) fn buffer_block(
        state: &mut State,
        at: FileBlock,
        base: Option<&BlockBase>,
        reservation: &mut Reservation<'_>,
        change: impl FnOnce(&mut BlockData),
    ) -> Lookup<()> {
        let FileBlock { ino, block } = at;
        if let Some(dirty) = state.inode_mut(ino)?.file_mut()?.dirty.get_mut(&block) {
            change(Arc::make_mut(&mut dirty.data));
            return Ok(());
        }
        let mut data = Arc::new(base.map_or([0; BLOCK_BYTES], BlockBase::content));
        change(Arc::make_mut(&mut data));
        state.insert_buffered(ino, block, data)?;
        reservation.hand_to_buffer(1);
        Ok(())
    }

    /// Places every buffered block of every file, and returns how many there were. The caller holds
    /// [`flushing`](Writer::flushing), as a commit does while it takes a batch: so no other thread
    /// maps buffered blocks meanwhile.
    pub(in crate::furrow) fn write_back_all(&self) -> Result<usize> {
        let outgoing = {
            let state = self.tree.read_state();
            state.maps.buffered.files().flat_map(|ino| outgoing(&state, ino)).collect::<Vec<_>>()
        };
        let blocks = outgoing.len();
        self.place_outgoing(outgoing)?;
        Ok(blocks)
    }

    /// Places some blocks of a full buffer, as many as fit into one write: so a writer of one block
    /// does not wait for all that others have written.
    pub(in crate::furrow) fn relieve_buffer(&self) -> Result<()> {
        // If another thread empties it, wait only if it has grown to twice its size. On a disk it
        // has much of the memory, and takes long to leave.
        let seeks = self.drive.layout.seeks;
        let tolerated = match seeks {
            Seeks::Free => 2 * self.buffer_max,
            Seeks::Cost => self.buffer_max + self.buffer_max / 8,
        };
        let is_overfull = tolerated < self.tree.read_state().rows.totals.pending();
        let mut turn = match self.flushing.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::WouldBlock) if !is_overfull => return Ok(()),
            Err(_) => self.flushing.lock().expect("no holder panicked"),
        };
        let mut placed = 0;
        // Another thread may have made room meanwhile.
        while placed < GATHER_BLOCKS && self.is_buffer_full() {
            let group = {
                let state = self.tree.read_state();
                match seeks {
                    Seeks::Free => turn.of_next_file(&state),
                    // The rest of a run may be short.
                    Seeks::Cost => turn.of_longest_run(&state),
                }
            };
            placed += match seeks {
                Seeks::Free => GATHER_BLOCKS,
                Seeks::Cost if group.is_empty() => GATHER_BLOCKS,
                Seeks::Cost => group.len(),
            };
            self.place_outgoing(group)?;
        }
        Ok(())
    }

    /// Keeps the buffer from growing while the drive refuses its blocks: the writer that finds it
    /// full gets the drive's error.
    pub(in crate::furrow) fn bound_buffer(&self) -> Result<()> {
        if self.has_refused.load(Ordering::Acquire) { self.relieve_buffer() } else { Ok(()) }
    }

    /// Logs why blocks stay in the buffer after an operation that has succeeded.
    pub(in crate::furrow) fn note_held(outcome: Result<()>) {
        // The next commit fails, and reports it to its caller.
        if let Err(error) = outcome
            && !error.is_host_full()
        {
            tracing::warn!(%error, "writing back failed; the data is still held");
        }
    }

    /// Places the buffered blocks of a growing file once they are enough for a write of their own.
    /// If another thread empties the buffer at that moment, they stay until the next write to the
    /// file.
    pub(in crate::furrow) fn release_gathered(&self, ino: Ino) {
        let Ok(_turn) = self.flushing.try_lock() else { return };
        let blocks = {
            let state = self.tree.read_state();
            let end = state.gathered(ino).unwrap_or_default();
            outgoing(&state, ino).filter(|outgoing| outgoing.at.block < end).collect()
        };
        Self::note_held(self.place_outgoing(blocks));
    }

    /// Places every buffered block of some files, many small files in one write. The caller holds
    /// [`flushing`](Writer::flushing), as for [`write_back_all`](Self::write_back_all).
    pub(in crate::furrow) fn write_back(&self, files: &[Ino]) -> Result<()> {
        let outgoing = {
            let state = self.tree.read_state();
            files.iter().flat_map(|&ino| outgoing(&state, ino)).collect::<Vec<_>>()
        };
        self.place_outgoing(outgoing)
    }

    /// Places blocks, together if they have the same target.
    fn place_outgoing(&self, mut outgoing: Vec<Outgoing>) -> Result<()> {
        if outgoing.is_empty() {
            return Ok(());
        }
        // A stable sort: it keeps the order of files and blocks.
        outgoing.sort_by_key(|block| block.target);
        let same = outgoing.chunk_by(|left, right| left.target == right.target);
        let groups: Vec<&[Outgoing]> = same.flat_map(|same| same.chunks(GATHER_BLOCKS)).collect();
        let outcome =
            groups.chunks(WRITES_AT_ONCE).try_for_each(|groups| self.place_groups(groups));
        self.has_refused.store(outcome.is_err(), Ordering::Release);
        outcome
    }

    /// Places groups of blocks side by side.
    fn place_groups(&self, groups: &[&[Outgoing]]) -> Result<()> {
        let content = |group: &&[Outgoing]| {
            let mut data = Vec::with_capacity(group.len() * BLOCK_BYTES);
            for block in *group {
                data.extend_from_slice(&block.data[..]);
            }
            data
        };
        let contents: Vec<Vec<u8>> = groups.iter().map(content).collect();
        let writes = groups.iter().zip(&contents).map(|(group, data)| {
            let purpose = Purpose::WriteBack(group[0].target);
            WriteRequest { purpose, data, locality: Locality::default() }
        });
        let writes: Vec<WriteRequest<'_>> = writes.collect();
        let placed = match &writes[..] {
            [_] => vec![None],
            several => self.place_together(several),
        };
        // Maps the groups that were placed even if another group has failed.
        let mut outcome = Ok(());
        for ((group, placed), &write) in groups.iter().zip(placed).zip(&writes) {
            let alone = || self.place_data(write);
            match placed.map_or_else(alone, Ok) {
                Ok(placed) => self.publish_group(group, &placed, &checksums(write.data)),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Maps a group that was placed.
    fn publish_group(&self, group: &[Outgoing], placed: &[Placed], crcs: &[u32]) {
        // The map entries that a buffered block replaces stay resident as long as it is buffered.
        // No commit takes a batch between two steps: it holds `flushing` first.
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
        self.tree.read_state().rows.totals.pending() > self.buffer_max
    }
}

/// Where a block is stored; `None` if nowhere, or if the buffer has it.
fn stored_at(state: &State, of: FileBlock) -> Lookup<Option<StoredAt>> {
    let FileBlock { ino, block } = of;
    let file = state.mapped_file(ino, block, block + 1)?;
    if file.dirty.contains_key(&block) {
        return Ok(None);
    }
    let Some((start, entry)) = file.covering(block) else { return Ok(None) };
    let within = u32::try_from(block - start).expect("inside the entry");
    Ok(state.maps.shared.stored(&entry).map(|Stored { zone, block, crcs }| StoredAt {
        at: Address { zone, block: block + within },
        resets: state.zones.slot(zone).resets,
        crc: crcs[within as usize],
    }))
}

/// The buffered blocks of a file, in order.
pub(super) fn outgoing(state: &State, ino: Ino) -> impl Iterator<Item = Outgoing> {
    let file = state.inodes.peek_file(ino);
    file.into_iter().flat_map(|file| &file.dirty).map(move |(&block, dirty)| Outgoing {
        at: FileBlock { ino, block },
        id: dirty.id,
        data: Arc::clone(&dirty.data),
        target: state.target_of(ino, block, WrittenAs::Buffered),
    })
}

/// Maps placed blocks that the buffer still holds, run by run of each file, and removes those from
/// the buffer that no write has changed meanwhile.
fn publish(state: &mut State, group: &[Outgoing], placed: Placed, crcs: &[u32]) {
    let wanted: Vec<(&Outgoing, bool)> =
        group.iter().map(|block| (block, is_wanted(state, block))).collect();
    let is_run = |(left, left_is): &(&Outgoing, bool), (right, right_is): &(&Outgoing, bool)| {
        left.at.ino == right.at.ino && left.at.block + 1 == right.at.block && left_is == right_is
    };
    let mut from = 0;
    for run in wanted.chunk_by(is_run) {
        let to = from + run.len();
        if run[0].1 {
            let narrow = |count| u32::try_from(count).expect("inside a zone");
            let block = placed.block + narrow(from);
            let place = Placed { zone: placed.zone, block, blocks: narrow(to - from) };
            map_run(state, &group[from..to], place, &crcs[from..to]);
        }
        from = to;
    }
    state.zones.complete(placed.zone, placed.blocks);
}

/// Whether the buffer still holds the placed block, with the same or a later content.
fn is_wanted(state: &State, outgoing: &Outgoing) -> bool {
    let FileBlock { ino, block } = outgoing.at;
    let file = state.inodes.peek_file(ino);
    file.is_some_and(|file| {
        mistake!(state, WriteBackUnwanted, return true);
        file.dirty.get(&block).is_some_and(|dirty| dirty.id == outgoing.id)
    })
}

/// Maps a run of blocks of one file.
fn map_run(state: &mut State, run: &[Outgoing], place: Placed, crcs: &[u32]) {
    let FileBlock { ino, block: first } = run[0].at;
    state.unmap_stored(ino, first, first + run.len() as u64);
    let Placed { zone, block, .. } = place;
    state.map(ino, first, MapEntry::At { zone, block, crcs: Crcs::from(crcs) });
    state.clear_buffered(ino, run.iter().map(|outgoing| (outgoing.at.block, &outgoing.data)));
}
