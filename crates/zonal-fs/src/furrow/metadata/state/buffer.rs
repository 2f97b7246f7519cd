//! Buffered blocks: they come, leave for a zone, or are dropped, and the totals count them.

use std::sync::Arc;

use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::map::DirtyBlock;
use crate::furrow::metadata::missing::Lookup;
use crate::furrow::metadata::state::State;
use crate::furrow::planted::{PlantedBug, mistake};
use crate::vfs::Ino;

impl State {
    /// Puts a block into the buffer that is not there yet, and holds logical space for it.
    pub(in crate::furrow) fn insert_buffered(
        &mut self,
        ino: Ino,
        block: u64,
        data: Arc<[u8; BLOCK_BYTES]>,
    ) -> Lookup<()> {
        let mut reserved = self.growth(ino, block, block + 1)?;
        mistake!(self, BufferUnreserved, reserved = 0);
        let over = self.inode(ino)?.file()?.covering(block).and_then(|(_, entry)| entry.shared());
        if let Some(extent) = over {
            self.maps.shared.keep_below(extent);
        }
        self.rows.totals.reserve(reserved);
        let id = self.maps.buffered.add(ino);
        let file = self.inode_mut(ino)?.file_mut()?;
        file.growing += reserved;
        file.dirty.insert(block, DirtyBlock { id, data, reserved, over });
        Ok(())
    }

    /// Removes blocks of a file from the buffer once they are placed and mapped. A block that was
    /// written again meanwhile stays.
    pub(in crate::furrow) fn clear_buffered<'a>(
        &mut self,
        ino: Ino,
        placed: impl Iterator<Item = (u64, &'a Arc<[u8; BLOCK_BYTES]>)>,
    ) {
        let Some(file) = self.inodes.file_mut(ino) else { return };
        for (block, data) in placed {
            let Some(dirty) = file.dirty.get_mut(&block) else { continue };
            self.rows.totals.unreserve(dirty.reserved);
            file.growing -= dirty.reserved;
            dirty.reserved = 0;
            if let Some(extent) = dirty.over.take() {
                self.maps.shared.let_go_below(extent);
            }
            let forgets = self.planted.has(PlantedBug::WriteBackForgetsNewer);
            if forgets || Arc::ptr_eq(&dirty.data, data) {
                file.dirty.remove(&block);
                self.rows.totals.remove_pending(1);
            }
        }
        if file.dirty.is_empty() {
            self.maps.buffered.remove(ino);
        }
    }

    /// Forgets buffered blocks in `first..limit` of a file.
    pub(super) fn drop_buffered(&mut self, ino: Ino, first: u64, limit: u64) {
        let Some(file) = self.inodes.file_mut(ino) else { return };
        let blocks: Vec<u64> = file.dirty.range(first..limit).map(|(&block, _)| block).collect();
        for block in &blocks {
            let Some(dirty) = file.dirty.remove(block) else { continue };
            file.growing -= dirty.reserved;
            self.rows.totals.unreserve(dirty.reserved);
            self.rows.totals.remove_pending(1);
            if let Some(extent) = dirty.over {
                self.maps.shared.let_go_below(extent);
            }
        }
        if !blocks.is_empty() && file.dirty.is_empty() {
            self.maps.buffered.remove(ino);
        }
    }
}
