//! The turns of files while a full write buffer empties.
//!
//! Where a jump costs nothing, the files take turns by a mebibyte, so that a writer waits for no
//! more than that. On a disk the buffer writes up to 32 MiB to one zone before it turns to the
//! next: first the blocks of the target that has the most of them. One thread writes at a time, so
//! the head moves only between these runs.

use std::collections::{BTreeMap, VecDeque};

use zonal_placement::streams::Target;

use crate::furrow::metadata::State;
use crate::furrow::metadata::state::target::WrittenAs;
use crate::furrow::write::buffer::{GATHER_BLOCKS, Outgoing, outgoing};
use crate::vfs::Ino;

/// Blocks of a run to one zone of a disk: 32 MiB take 130 ms or more, and the jump before them 8.
const RUN_BLOCKS: usize = 8192;

/// The turns of files while a full buffer empties.
#[derive(Debug, Default)]
pub(in crate::furrow) struct WriteOrder {
    /// The file whose turn is next, where a jump costs nothing.
    next: Ino,
    /// Files of the run under way, the next one first.
    run: VecDeque<Ino>,
    /// Blocks until the run is long enough.
    left: usize,
}

impl WriteOrder {
    /// Some blocks of the file whose turn is next, and of those after it.
    pub(super) fn of_next_file(&mut self, state: &State) -> Vec<Outgoing> {
        let files = state.maps.buffered.files_from(self.next);
        let blocks = files.flat_map(|ino| outgoing(state, ino));
        let blocks: Vec<_> = blocks.take(GATHER_BLOCKS).collect();
        self.next = blocks.last().map_or(Ino::default(), |last| Ino::new(last.at.ino.get() + 1));
        blocks
    }

    /// Some blocks of the run under way. When that ends, the next one is of the target that has the
    /// most blocks in the buffer.
    pub(super) fn of_longest_run(&mut self, state: &State) -> Vec<Outgoing> {
        loop {
            let files = self.run.iter();
            let blocks = files.flat_map(|&ino| outgoing(state, ino));
            let blocks: Vec<_> = blocks.take(self.left.min(GATHER_BLOCKS)).collect();
            if let Some(last) = blocks.last() {
                // The last one may have more.
                while self.run.front().is_some_and(|&ino| ino != last.at.ino) {
                    self.run.pop_front();
                }
                self.left -= blocks.len();
                return blocks;
            }
            self.run = longest_run(state);
            self.left = RUN_BLOCKS;
            if self.run.is_empty() {
                return Vec::new();
            }
        }
    }
}

/// The files of the target with the most buffered blocks, in their order.
fn longest_run(state: &State) -> VecDeque<Ino> {
    let mut runs: BTreeMap<Target, (usize, VecDeque<Ino>)> = BTreeMap::new();
    for ino in state.maps.buffered.files() {
        let Some(dirty) = state.inodes.peek_file(ino).map(|file| &file.dirty) else { continue };
        let Some((&first, _)) = dirty.into_iter().next() else { continue };
        let target = state.target_of(ino, first, WrittenAs::Buffered);
        let (blocks, files) = runs.entry(target).or_default();
        *blocks += dirty.len();
        files.push_back(ino);
    }
    let longest = runs.into_values().max_by_key(|(blocks, _)| *blocks);
    longest.map(|(_, files)| files).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::options::Seeks;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, NewInode, WriteFlags};

    const MIB: u64 = 1 << 20;

    /// Writes files of 4 MiB side by side, 64 KiB of each by turns, and returns the jumps.
    fn jumps(seeks: Seeks, files: u64) -> u64 {
        let (drive, clock) = formatted(64, 1024);
        let options =
            MountOptions { rotational: Some(seeks == Seeks::Cost), ..MountOptions::default() };
        let fs = Furrow::mount(drive, clock, options).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let inos: Vec<Ino> = (0..files)
            .map(|number| fs.create(&Caller::ROOT, Ino::ROOT, number.to_string().as_bytes(), &new))
            .map(|attr| attr.unwrap().ino)
            .collect();
        fs.sync().unwrap();
        let before = fs.stats().jumps;
        let content =
            |ino: Ino, piece: u64| vec![(ino.get() + piece).to_le_bytes()[0] | 1; 64 << 10];
        for piece in 0..64 {
            for &ino in &inos {
                let data = content(ino, piece);
                fs.write(ino, piece << 16, &data, WriteFlags::empty()).unwrap();
            }
        }
        let jumps = fs.stats().jumps - before;
        let mut found = vec![0; 64 << 10];
        for (piece, &ino) in (0..64).flat_map(|piece| inos.iter().map(move |ino| (piece, ino))) {
            fs.read(ino, piece << 16, &mut found).unwrap();
            assert!(found == content(ino, piece), "piece {piece} of {ino:?}");
        }
        fs.sync().unwrap();
        assert_eq!(fs.stats().user_bytes, files * 4 * MIB, "nothing is written twice");
        jumps
    }

    #[test]
    fn full_buffer_leaves_in_runs_of_one_zone_on_disk() {
        let (disk, flash) = (jumps(Seeks::Cost, 6), jumps(Seeks::Free, 6));
        assert!(disk * 20 < flash, "{disk} jumps on a disk, {flash} on flash");
    }

    #[test]
    fn conventional_zones_come_last_on_disk() {
        use crate::furrow::sample::shape;
        use crate::furrow::{MkfsOptions, mkfs};
        use std::sync::Arc;
        use zonal::{GeometrySpec, LbaCount, ManualClock, MemoryDrive};

        let first = |rotational| {
            let spec = shape(64, 256);
            let spec = GeometrySpec {
                conventional_zones: "8".parse().unwrap(),
                block_count: spec.block_count + LbaCount::new(8 * spec.zone_size.get()),
                ..spec
            };
            let drive = Arc::new(MemoryDrive::new(spec).unwrap());
            let clock = Arc::new(ManualClock::new(1));
            mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
            let options = MountOptions { rotational: Some(rotational), ..MountOptions::default() };
            let fs = Furrow::mount(drive, clock, options).unwrap();
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            fs.write(ino, 0, &vec![1; 1 << 16], WriteFlags::empty()).unwrap();
            fs.sync().unwrap();
            let state = fs.tree.read_state();
            let zone = state.zones.open_zones().iter().map(|open| open.zone).next();
            zone.expect("one is open")
        };
        assert_eq!((first(false), first(true) >= 8), (0, true));
    }
}
