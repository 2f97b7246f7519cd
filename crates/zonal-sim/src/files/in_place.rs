//! A file system that overwrites in place, as ext4 and XFS do: the baseline for file systems on
//! zones. On a zoned drive it needs the host's log below it.
//!
//! The model: files lie in extents, found first-fit, and a write overwrites a block where it lies.
//! Inodes, directories and the block bitmap have fixed places; a sync writes their changed blocks
//! first to a circular journal, then in place. With [`Discard::Online`] the sync that frees extents
//! also trims them. The model leaves out delayed allocation (all data is written directly), extent
//! trees (a file's extents fit into its inode and one more block), and keeping journalled blocks
//! back for longer than a sync. Real file systems may write a little less metadata, or more.

use std::collections::{BTreeMap, BTreeSet};

use super::space::{Extent, Space};
use super::{BLOCK_BYTES, FileOp, FileStore, Life};
use crate::config::Config;
use crate::error::{Result, SimError, refused};
use crate::ssd::{Account, BlockSsd};

/// Blocks per inode, inodes in a block, and entries in a block of a directory: ext4's defaults of
/// 16 KiB and 256 bytes, and names of some 50 bytes.
const INODE_BLOCKS: u32 = 4;
const INODES_PER_BLOCK: u32 = 16;
const ENTRIES_PER_BLOCK: u32 = 64;

/// Blocks that one block of the bitmap stands for.
const BITMAP_BLOCKS: u32 = 32_768;

/// The journal is this part of the drive. Assumed, as for ext4 on a drive of this size.
const JOURNAL_PART: u32 = 128;

/// Blocks of a write that fills the drive: 1 MiB.
const FILL_BLOCKS: u32 = 256;

/// Whether freed blocks are trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// At the sync that frees them (`-o discard`).
    Online,
    /// Never.
    Never,
}

/// Whether the file system tells the drive about lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetimes {
    /// By handle: 0 for metadata, 1 for short lives, 2 for long ones.
    Handles,
    /// No.
    Unknown,
}

struct StoredFile {
    life: Life,
    inode: u32,
    extents: Vec<Extent>,
}

/// A file system that overwrites in place, on a drive.
pub struct InPlace {
    drive: BlockSsd,
    discard: Discard,
    lifetimes: Lifetimes,
    layout: InPlaceLayout,
    space: Space,
    /// Extents that the next sync frees.
    freed: Vec<Extent>,
    files: BTreeMap<u32, StoredFile>,
    /// Inodes without a file, the lowest first, and the first that never had one.
    inodes_free: BTreeSet<u32>,
    inodes_used: u32,
    /// Blocks of metadata that have changed.
    dirty: BTreeSet<u32>,
    /// Where the journal goes on.
    journal_next: u32,
    /// Share of the capacity that the workload fills: named in the error when space runs out.
    fill: f64,
}

/// Where things lie: journal, bitmap, inodes, directories, data.
struct InPlaceLayout {
    journal: u32,
    bitmap: u32,
    inodes: u32,
    directories: u32,
    data: u32,
    limit: u32,
}

impl InPlaceLayout {
    fn new(units: u32) -> Self {
        let journal = (units / JOURNAL_PART).max(16);
        let inodes = units / INODE_BLOCKS;
        let bitmap_blocks = units.div_ceil(BITMAP_BLOCKS);
        let inode_blocks = inodes.div_ceil(INODES_PER_BLOCK);
        let directory_blocks = inodes.div_ceil(ENTRIES_PER_BLOCK);
        let (bitmap, inodes) = (journal, journal + bitmap_blocks);
        let directories = inodes + inode_blocks;
        let data = directories + directory_blocks;
        Self { journal, bitmap, inodes, directories, data, limit: units }
    }
}

impl InPlace {
    /// An empty file system on a drive without data.
    pub fn new(config: &Config, discard: Discard, lifetimes: Lifetimes) -> Result<Self> {
        super::check(config)?;
        let drive = BlockSsd::new(config)?;
        let layout = InPlaceLayout::new(drive.units());
        let space = Space::new(layout.data..layout.limit);
        Ok(Self {
            drive,
            discard,
            lifetimes,
            layout,
            space,
            fill: config.workload.fill,
            freed: Vec::new(),
            files: BTreeMap::new(),
            inodes_free: BTreeSet::new(),
            inodes_used: 0,
            dirty: BTreeSet::new(),
            journal_next: 0,
        })
    }

    fn handle(&self, life: Option<Life>) -> u8 {
        match (self.lifetimes, life) {
            (Lifetimes::Unknown, _) | (Lifetimes::Handles, None) => 0,
            (Lifetimes::Handles, Some(Life::Short)) => 1,
            (Lifetimes::Handles, Some(Life::Long)) => 2,
        }
    }

    /// Notes that the metadata of a file has changed: inode, directory, and bitmap of its extents.
    fn touch(&mut self, inode: u32, extents: &[Extent]) {
        self.dirty.insert(self.layout.inodes + inode / INODES_PER_BLOCK);
        self.dirty.insert(self.layout.directories + inode / ENTRIES_PER_BLOCK);
        for Extent { first, count } in extents {
            let bits = first / BITMAP_BLOCKS..=(first + count - 1) / BITMAP_BLOCKS;
            self.dirty.extend(bits.map(|block| self.layout.bitmap + block));
        }
    }

    /// Writes every block of the drive once, as a former user of the drive has done: without TRIM
    /// all blocks hold data for the drive.
    pub fn fill_drive(&mut self) {
        let units = self.layout.limit;
        for first in (0..units).step_by(FILL_BLOCKS as usize) {
            self.drive.write(first, FILL_BLOCKS.min(units - first), 0);
        }
    }

    /// When the last operation ended.
    pub const fn now_ns(&self) -> u64 {
        self.drive.now_ns()
    }

    /// The next operation begins at this time: on a drive with a
    /// [controller](crate::config::Controller) operations of several threads overlap.
    pub const fn begin_at(&mut self, at_ns: u64) {
        self.drive.begin_at(at_ns);
    }

    /// Makes a file and finds room for it, without a write: [`FileOp::Overwrite`] writes its parts.
    pub fn preallocate(&mut self, number: u32, bytes: u64, life: Life) -> Result<()> {
        self.add(number, bytes, life)?;
        Ok(())
    }

    /// Reads a part of a file.
    pub fn read(&mut self, number: u32, offset: u64, bytes: u64) {
        for Extent { first, count } in self.parts(number, offset, bytes) {
            self.drive.read(first, count);
        }
    }

    fn create(&mut self, number: u32, bytes: u64, life: Life) -> Result<()> {
        let handle = self.handle(Some(life));
        for extent in self.add(number, bytes, life)? {
            self.drive.write(extent.first, extent.count, handle);
        }
        Ok(())
    }

    /// Makes a file and finds room for it.
    fn add(&mut self, number: u32, bytes: u64, life: Life) -> Result<Vec<Extent>> {
        let count = blocks(bytes);
        let fill = self.fill;
        let full = || refused("workload.fill", fill, "less, the file system has no room left");
        let mut extents = self.space.allocate(count);
        if extents.is_none() {
            // A sync frees the blocks of the last deletes.
            self.sync();
            extents = self.space.allocate(count);
        }
        let extents = extents.ok_or_else(full)?;
        let inode = self.inodes_free.pop_first().unwrap_or_else(|| {
            self.inodes_used += 1;
            self.inodes_used - 1
        });
        if inode >= self.layout.limit / INODE_BLOCKS {
            return Err(full());
        }
        self.touch(inode, &extents);
        self.files.insert(number, StoredFile { life, inode, extents: extents.clone() });
        Ok(extents)
    }

    fn overwrite(&mut self, number: u32, offset: u64, bytes: u64) {
        let file = &self.files[&number];
        let (handle, inode) = (self.handle(Some(file.life)), file.inode);
        for Extent { first, count } in self.parts(number, offset, bytes) {
            self.drive.write(first, count, handle);
        }
        // Its times change.
        self.dirty.insert(self.layout.inodes + inode / INODES_PER_BLOCK);
    }

    /// Where a part of a file lies.
    fn parts(&self, number: u32, offset: u64, bytes: u64) -> Vec<Extent> {
        let (mut skip, mut left) = (blocks(offset), blocks(bytes));
        let mut parts = Vec::new();
        for extent in &self.files[&number].extents {
            let inside = skip.min(extent.count);
            let count = (extent.count - inside).min(left);
            if count > 0 {
                parts.push(Extent { first: extent.first + inside, count });
            }
            skip -= inside;
            left -= count;
        }
        assert_eq!(left, 0, "a part is inside its file");
        parts
    }

    fn delete(&mut self, number: u32) {
        let file = self.files.remove(&number).expect("operations name files that live");
        self.touch(file.inode, &file.extents);
        self.inodes_free.insert(file.inode);
        self.freed.extend(file.extents);
    }

    /// Writes metadata to the journal, then in place; then frees the extents of deleted files.
    fn sync(&mut self) {
        let handle = self.handle(None);
        if !self.dirty.is_empty() {
            // A descriptor before and a commit block after.
            let count = u32::try_from(self.dirty.len()).expect("blocks of the drive") + 2;
            self.write_journal(count, handle);
            self.drive.flush();
            for block in std::mem::take(&mut self.dirty) {
                self.drive.write(block, 1, handle);
            }
        }
        self.drive.flush();
        for extent in std::mem::take(&mut self.freed) {
            self.space.release(extent);
            if self.discard == Discard::Online {
                self.drive.trim(extent.first, extent.count);
            }
        }
    }

    fn write_journal(&mut self, mut count: u32, handle: u8) {
        while count > 0 {
            let now = count.min(self.layout.journal - self.journal_next);
            self.drive.write(self.journal_next, now, handle);
            self.journal_next = (self.journal_next + now) % self.layout.journal;
            count -= now;
        }
    }
}

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES).expect("a file is smaller than the drive")
}

impl FileStore for InPlace {
    type Error = SimError;

    fn apply(&mut self, op: &FileOp) -> Result<()> {
        match *op {
            FileOp::Create { file, bytes, life } => self.create(file, bytes, life)?,
            FileOp::Overwrite { file, offset, bytes } => self.overwrite(file, offset, bytes),
            FileOp::Delete { file } => self.delete(file),
            FileOp::Sync => self.sync(),
        }
        Ok(())
    }

    fn account(&self) -> Account {
        self.drive.account()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Kind;
    use crate::files::{self, FileLoad};

    /// 64 MiB of flash in 256 superblocks.
    fn config(kind: Kind) -> Config {
        let mut config = Config::default();
        config.flash.channels = 2;
        config.flash.dies_per_channel = 2;
        config.flash.planes = 1;
        config.flash.pages_per_program = 1;
        config.flash.programs_per_block = 4;
        config.flash.superblocks = 256;
        config.drive.kind = kind;
        config.drive.op = 0.15;
        config.workload.fill = 0.85;
        config.check().expect("a config");
        config
    }

    fn outcome(kind: Kind, discard: Discard, lifetimes: Lifetimes) -> files::Outcome {
        let config = config(kind);
        let mut store = InPlace::new(&config, discard, lifetimes).expect("a store");
        let user = u64::from(store.drive.units()) * BLOCK_BYTES;
        let mut load = FileLoad::new(&config, user).expect("a load");
        let amount = files::Amount { warm_up: 2 * user, total: 5 * user };
        let outcome = files::run("", &mut store, &mut load, amount, &mut |_| ()).expect("it fits");
        let files: u64 = store.files.values().flat_map(|file| &file.extents).map(length).sum();
        let freed: u64 = store.freed.iter().map(length).sum();
        let free = store.space.free();
        let all = u64::from(store.layout.limit - store.layout.data);
        assert_eq!(files + freed + free, all, "every block is free or in one file");
        assert_eq!(files * BLOCK_BYTES, load.live_bytes());
        outcome
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "for map")]
    fn length(extent: &Extent) -> u64 {
        extent.count.into()
    }

    #[test]
    fn trim_and_handles_lower_drive_amplification() {
        let never = outcome(Kind::Conventional, Discard::Never, Lifetimes::Unknown);
        let online = outcome(Kind::Conventional, Discard::Online, Lifetimes::Unknown);
        let fdp = outcome(Kind::Fdp, Discard::Online, Lifetimes::Handles);
        let log = outcome(Kind::Zns, Discard::Online, Lifetimes::Unknown);
        assert!((log.drive_wa() - 1.0).abs() < 0.01, "a zoned drive moves nothing: {log:?}");
        let (log, same) = (log.total_wa(), online.total_wa());
        assert!(
            (log / same - 1.0).abs() < 0.1,
            "the host's log costs {log}, the drive's GC {same}"
        );
        for outcome in [&never, &online, &fdp] {
            assert!((1.0..1.6).contains(&outcome.fs_wa()), "metadata is little: {outcome:?}");
            let product = outcome.fs_wa() * outcome.drive_wa();
            assert!((product - outcome.total_wa()).abs() < 1e-9, "{outcome:?}");
        }
        let (never, online, fdp) = (never.drive_wa(), online.drive_wa(), fdp.drive_wa());
        assert!(never > 1.1 * online, "without TRIM {never}, with {online}");
        assert!(online > fdp, "conventional {online}, FDP {fdp}");
        assert!(fdp > 1.0, "{fdp}");
    }

    #[test]
    fn handles_separate_lives_and_metadata() {
        let store = |lifetimes| {
            InPlace::new(&config(Kind::Fdp), Discard::Online, lifetimes).expect("a store")
        };
        let lives = [None, Some(Life::Short), Some(Life::Long)];
        assert_eq!(lives.map(|life| store(Lifetimes::Handles).handle(life)), [0, 1, 2]);
        assert_eq!(lives.map(|life| store(Lifetimes::Unknown).handle(life)), [0, 0, 0]);
    }
}
