//! The content of files, and its check after a read: every block names its file, its place and its
//! version.

use std::collections::BTreeMap;

use zonal_sim::files::{BLOCK_BYTES, FileOp};

use crate::{Result, mismatch};

/// For each file, the version of each of its blocks.
#[derive(Default)]
pub(super) struct Content {
    files: BTreeMap<u32, Vec<u64>>,
    version: u64,
}

/// Bytes of a block, in memory.
pub(super) const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES);

impl Content {
    /// The bytes that an operation writes; none for a delete or a sync.
    pub(super) fn bytes_of(&mut self, op: &FileOp) -> Vec<u8> {
        let (file, offset, bytes) = match *op {
            FileOp::Create { file, bytes, .. } => {
                self.files.insert(file, vec![0; count(bytes)]);
                (file, 0, bytes)
            }
            FileOp::Overwrite { file, offset, bytes } => (file, offset, bytes),
            FileOp::Delete { file } => {
                self.files.remove(&file);
                return Vec::new();
            }
            FileOp::Sync => return Vec::new(),
        };
        self.version += 1;
        let versions = self.files.get_mut(&file).expect("operations name files that live");
        let (first, mut data) = (count(offset), vec![0; count(bytes) * BLOCK]);
        for (at, block) in (first..).zip(data.chunks_exact_mut(BLOCK)) {
            versions[at] = self.version;
            block[..24].copy_from_slice(&stamp(file, at, self.version));
        }
        data
    }

    /// Live files, and their blocks.
    pub(super) fn files(&self) -> impl Iterator<Item = (u32, usize)> {
        self.files.iter().map(|(&file, versions)| (file, versions.len()))
    }

    /// Compares the data of a whole file with its last writes.
    pub(super) fn compare(&self, file: u32, data: &[u8]) -> Result<()> {
        let Some(versions) = self.files.get(&file) else {
            return Err(mismatch(format!("file {file} is deleted")));
        };
        if data.len() != versions.len() * BLOCK {
            return Err(mismatch(format!("file {file} has {} bytes", data.len())));
        }
        for (at, (block, &version)) in data.chunks_exact(BLOCK).zip(versions).enumerate() {
            let (head, rest) = block.split_at(24);
            let right = head == stamp(file, at, version) && rest.iter().all(|&byte| byte == 0);
            if !right {
                let what = format!("block {at} of file {file} is not what was written last");
                return Err(mismatch(what));
            }
        }
        Ok(())
    }
}

fn stamp(file: u32, block: usize, version: u64) -> [u8; 24] {
    let mut stamp = [0; 24];
    stamp[..8].copy_from_slice(&u64::from(file).to_le_bytes());
    stamp[8..16].copy_from_slice(&(block as u64).to_le_bytes());
    stamp[16..].copy_from_slice(&version.to_le_bytes());
    stamp
}

/// Blocks of so many bytes.
pub(super) fn count(bytes: u64) -> usize {
    usize::try_from(bytes / BLOCK_BYTES).expect("a file fits in memory")
}

#[cfg(test)]
mod tests {
    use zonal_sim::files::Life;

    use super::*;

    #[test]
    fn content_detects_old_and_misplaced_blocks() {
        let mut content = Content::default();
        let life = Life::Short;
        let old = content.bytes_of(&FileOp::Create { file: 7, bytes: 3 * BLOCK_BYTES, life });
        content.compare(7, &old).unwrap();
        let patch = FileOp::Overwrite { file: 7, offset: BLOCK_BYTES, bytes: BLOCK_BYTES };
        let patch = content.bytes_of(&patch);
        assert!(content.compare(7, &old).is_err(), "the old version");
        let mut new = old;
        new[BLOCK..2 * BLOCK].copy_from_slice(&patch);
        content.compare(7, &new).unwrap();
        assert!(content.compare(7, &new[BLOCK..]).is_err(), "too short");
        new.rotate_left(BLOCK);
        assert!(content.compare(7, &new).is_err(), "another order");
        assert!(content.bytes_of(&FileOp::Delete { file: 7 }).is_empty());
        assert!(content.compare(7, &new).is_err(), "deleted");
    }
}
