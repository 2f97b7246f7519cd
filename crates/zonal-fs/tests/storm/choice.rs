//! Which operation comes next.
//!
//! Each round has a profile: which operations its threads do most, and to how few files and blocks.
//! Mistakes of threads show where several operations meet in one block or at one end of a file, so
//! most rounds have two files of a few blocks.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use zonal_fs::vfs::{Allocate, FileKind, RenameFlags, WriteFlags, XattrMode};

use crate::model::{Change, Op, ROOT, Reply};
use crate::node::BLOCK;
use crate::world::below;

/// Names that there are.
const NAMES: u8 = 14;

/// The operations that the threads of a round do most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Anything, to any file.
    Mixed,
    /// Copies between files that are written and cut.
    Copies,
    /// Writes, truncations and holes where files end.
    Ends,
    /// Truncations that leave something behind, and files that grow over it.
    Cuts,
    /// Reads and overwrites of a file that fills the drive, with reclaim.
    Reclaim,
    /// Syncs.
    Commits,
    /// Writes to a drive that has hardly any room.
    Full,
    /// Copies, holes and overwrites of many blocks of a file of many pieces.
    Pieces,
    /// The same with deletions, while the drive refuses reads.
    Refusals,
}

/// The profile of a round, and how large its files are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    pub(crate) profile: Profile,
    /// Files that are used, where these are few.
    pub(crate) files: usize,
    /// Blocks that a file has at most, about.
    pub(crate) blocks: u64,
}

/// Inodes that the threads know of.
pub(crate) struct Known {
    pub(crate) files: Vec<u64>,
    pub(crate) dirs: Vec<u64>,
    pub(crate) pinned: Vec<u64>,
    /// The file that fills the drive.
    pub(crate) ballast: Option<u64>,
    /// How many blocks it had.
    pub(crate) ballast_blocks: u64,
    /// Where files end, about.
    ends: BTreeMap<u64, u64>,
    /// Tags that were used.
    tags: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            dirs: vec![ROOT],
            pinned: Vec::new(),
            ballast: None,
            ballast_blocks: 0,
            ends: BTreeMap::new(),
            tags: 0,
        }
    }
}

impl Known {
    /// Notes the answer of an operation.
    pub(crate) fn note(&mut self, op: Op, reply: &Reply) {
        match (op, reply) {
            (Op::Create { kind: FileKind::Regular, .. }, Reply::Ino(ino)) => self.files.push(*ino),
            (Op::Create { kind: FileKind::Directory, .. }, Reply::Ino(ino)) => self.dirs.push(*ino),
            (Op::Unnamed { .. }, Reply::Ino(ino)) => {
                self.files.push(*ino);
                self.pinned.push(*ino);
            }
            (Op::Pin { ino }, Reply::Done) => self.pinned.push(ino),
            (Op::Write { ino, len, .. }, Reply::At(offset)) => {
                let end = self.ends.entry(ino).or_default();
                *end = (*end).max(offset + len);
            }
            (Op::Truncate { ino, size }, Reply::Done) => _ = self.ends.insert(ino, size),
            (
                Op::Write { ino, .. } | Op::Truncate { ino, .. } | Op::Read { ino, .. },
                Reply::Refused(_),
            ) => self.files.retain(|file| *file != ino),
            // It may be gone.
            (Op::List { dir }, Reply::Refused(_)) if dir != ROOT => {
                self.dirs.retain(|known| *known != dir);
            }
            _ => {}
        }
    }

    fn end(&self, ino: u64) -> u64 {
        self.ends.get(&ino).copied().unwrap_or(0)
    }

    fn tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }
}

fn pick(random: &mut ChaCha8Rng, count: usize) -> usize {
    usize::try_from(below(random, count as u64)).expect("an index")
}

fn one_of<T: Copy>(random: &mut ChaCha8Rng, all: &[T]) -> T {
    all[pick(random, all.len())]
}

/// An operation, while several threads run or one does.
pub(crate) fn choose(
    known: &mut Known,
    (taste, races): (Taste, bool),
    random: &mut ChaCha8Rng,
) -> Op {
    let dir = one_of(random, &known.dirs);
    let name = u8::try_from(below(random, NAMES.into())).expect("small");
    if known.files.is_empty() {
        return Op::Create { dir, name, kind: FileKind::Regular };
    }
    let mut chooser = Chooser { known, taste, races, random };
    match taste.profile {
        Profile::Mixed => chooser.mixed((dir, name)),
        Profile::Copies => chooser.copies(),
        Profile::Ends => chooser.ends(),
        Profile::Cuts => chooser.cuts(),
        Profile::Reclaim => chooser.reclaim(),
        Profile::Commits => chooser.commits((dir, name)),
        Profile::Full => chooser.full((dir, name)),
        Profile::Pieces => chooser.pieces(),
        Profile::Refusals => chooser.refusals((dir, name)),
    }
}

struct Chooser<'a> {
    known: &'a mut Known,
    taste: Taste,
    races: bool,
    random: &'a mut ChaCha8Rng,
}

impl Chooser<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        below(self.random, limit)
    }

    /// One of all files, the newest most of all.
    fn any_file(&mut self) -> u64 {
        let files = &self.known.files;
        let recent = files.len().saturating_sub(8);
        let from = if below(self.random, 3) == 0 { 0 } else { recent };
        files[from + pick(self.random, files.len() - from)]
    }

    /// One of the few files of a round.
    fn file(&mut self) -> u64 {
        let few = self.known.files.len().min(self.taste.files);
        self.known.files[pick(self.random, few)]
    }

    fn block(&mut self) -> u64 {
        self.below(self.taste.blocks)
    }

    fn write(&mut self, ino: u64, (offset, len): (u64, u64), flags: WriteFlags) -> Op {
        let tag = self.known.tag();
        let tag = if self.below(24) == 0 { 0 } else { tag };
        Op::Write { ino, offset, len, tag, flags }
    }

    /// Anything.
    fn mixed(&mut self, (dir, name): (u64, u8)) -> Op {
        let (ino, source) = (self.any_file(), self.any_file());
        if let Some(&ino) = self.known.pinned.last()
            && self.below(24) == 0
        {
            // It may have no name.
            return Op::Link { ino, dir, name };
        }
        let to = one_of(self.random, &self.known.dirs);
        match self.below(64) {
            0..16 => of_names(self.random, ino, (dir, name), to),
            16..44 => self.of_content(ino),
            44..52 => self.copy((source, ino)),
            52..58 => self.of_inode(ino, name),
            58 => self.known.pinned.pop().map_or(Op::Sync, |ino| Op::Unpin { ino }),
            59 => Op::Lookup { dir, name },
            60 => Op::List { dir },
            61 => Op::Fsync { ino },
            62 => Op::Sync,
            _ => Op::Tick,
        }
    }

    /// An operation that reads or changes the content of a file.
    fn of_content(&mut self, ino: u64) -> Op {
        let (offset, len) = self.range();
        match self.below(28) {
            0..14 => {
                let flags = [
                    WriteFlags::empty(),
                    WriteFlags::empty(),
                    WriteFlags::DIRECT,
                    WriteFlags::APPEND,
                    WriteFlags::DURABLE,
                    WriteFlags::DIRECT | WriteFlags::APPEND,
                ];
                let flags = one_of(self.random, &flags);
                self.write(ino, (offset, len), flags)
            }
            14..19 => {
                let size = match self.below(8) {
                    0 => (1 << 40) + self.below(10_000),
                    1 => 0,
                    _ => self.below(self.taste.blocks * BLOCK),
                };
                Op::Truncate { ino, size }
            }
            19..24 => self.allocate(ino, (offset, len)),
            _ => Op::Read { ino, offset, len: len * 2 },
        }
    }

    fn allocate(&mut self, ino: u64, (offset, len): (u64, u64)) -> Op {
        let ways = [
            Allocate::Extend,
            Allocate::KeepSize,
            Allocate::Punch,
            Allocate::Punch,
            Allocate::Zero,
            Allocate::ZeroKeepSize,
            Allocate::PunchLater,
            Allocate::ZeroLater,
        ];
        let len = if self.races { len.min(3 * BLOCK) } else { len };
        Op::Allocate { ino, how: one_of(self.random, &ways), offset, len }
    }

    fn copy(&mut self, (source, target): (u64, u64)) -> Op {
        let most = if self.races { 3 } else { self.taste.blocks };
        let blocks = 1 + self.below(most);
        let from = self.block() * BLOCK * self.below(2);
        let mut to = self.block() * BLOCK * self.below(2);
        if source == target {
            to = from + (blocks + self.below(4)) * BLOCK;
        }
        let len = blocks * BLOCK - one_of(self.random, &[0, 0, 0, 0, 0, 100]);
        Op::Copy { source, from, target, to, len }
    }

    /// A range of a file that one call writes as a whole.
    fn range(&mut self) -> (u64, u64) {
        let block = self.block();
        let (offset, len) = match self.below(6) {
            0 => (block * BLOCK + self.below(BLOCK), 1 + self.below(3 * BLOCK)),
            1 => (block * BLOCK, BLOCK),
            2 => (block * BLOCK, (1 + self.block()) * BLOCK),
            3 => ((1 << 40) + block * BLOCK, 1 + self.below(2 * BLOCK)),
            4 => (self.below(200), 1 + self.below(200)),
            _ => (block * BLOCK, 1 + self.below(4 * BLOCK)),
        };
        (offset, len.min((1 << 20) - offset % (1 << 20)))
    }

    /// Copies between few blocks, and operations that change these.
    fn copies(&mut self) -> Op {
        let (ino, source) = (self.file(), self.file());
        let block = self.block();
        match self.below(16) {
            // Mostly from the first to the second.
            0..4 if self.known.files.len() > 1 && self.below(4) > 0 => {
                self.copy((self.known.files[0], self.known.files[1]))
            }
            0..4 => self.copy((source, ino)),
            // The source changes, and then the target.
            4..9 => {
                let range = (block * BLOCK + self.below(BLOCK), 1 + self.below(BLOCK));
                self.write(ino, range, WriteFlags::empty())
            }
            9..11 => {
                let len = (1 + self.below(2)) * BLOCK + one_of(self.random, &[0, 0, 1000]);
                self.write(ino, (block * BLOCK, len), WriteFlags::DIRECT)
            }
            11 | 12 => {
                let size = (2 + block) * BLOCK + one_of(self.random, &[0, 0, 0, 1500]);
                Op::Truncate { ino, size }
            }
            13 => {
                let len = (1 + self.below(2)) * BLOCK;
                self.allocate(ino, (block * BLOCK, len))
            }
            14 => Op::Read { ino, offset: block * BLOCK, len: 3 * BLOCK },
            _ => one_of(self.random, &[Op::Fsync { ino }, Op::Tick, Op::Sync]),
        }
    }

    /// Operations that move the end of a file, or happen at it.
    fn ends(&mut self) -> Op {
        let ino = self.file();
        let end = self.known.end(ino);
        if end > 3 * self.taste.blocks * BLOCK {
            return Op::Truncate { ino, size: self.below(2 * self.taste.blocks * BLOCK) };
        }
        let near = (end + self.below(2 * BLOCK)).saturating_sub(self.below(2 * BLOCK));
        match self.below(16) {
            0 | 1 => {
                let flags = [WriteFlags::APPEND, WriteFlags::APPEND | WriteFlags::DIRECT];
                let (flags, len) = (one_of(self.random, &flags), 1 + self.below(2 * BLOCK));
                self.write(ino, (0, len), flags)
            }
            // Up to a little behind the end, and some more behind that.
            2..5 => {
                let start = (end / BLOCK).saturating_sub(self.below(2)) * BLOCK;
                let len = (end + BLOCK / 2 - start).max(BLOCK) + self.below(BLOCK);
                self.write(ino, (start, len), WriteFlags::DIRECT)
            }
            5 | 6 => {
                let range = (end + self.below(BLOCK), 1 + self.below(BLOCK));
                self.write(ino, range, WriteFlags::empty())
            }
            7 | 8 => {
                let len = 1 + self.below(BLOCK);
                self.write(ino, (near, len), WriteFlags::empty())
            }
            9 | 10 => Op::Truncate { ino, size: near },
            11 | 12 => {
                let len = 1 + self.below(2 * BLOCK);
                self.allocate(ino, (near, len))
            }
            13 => Op::Read { ino, offset: near / BLOCK * BLOCK, len: 3 * BLOCK },
            14 => Op::Read { ino, offset: 0, len: end + BLOCK },
            _ => one_of(self.random, &[Op::Fsync { ino }, Op::Tick, Op::Sync]),
        }
    }

    /// Operations that cut files of many pieces off, and that grow them again.
    fn cuts(&mut self) -> Op {
        let (ino, source) = (self.file(), self.file());
        let block = self.block();
        match self.below(16) {
            0..3 => {
                Op::Truncate { ino, size: block / 2 * BLOCK + one_of(self.random, &[0, 0, 900]) }
            }
            3..7 => self.write(ino, (block * BLOCK, BLOCK), WriteFlags::DIRECT),
            7 | 8 => {
                let range = (block * BLOCK + self.below(BLOCK), 1 + self.below(BLOCK));
                self.write(ino, range, WriteFlags::empty())
            }
            9..12 => self.copy((source, ino)),
            12 | 13 => self.allocate(ino, (block * BLOCK, BLOCK)),
            14 => Op::Read { ino, offset: 0, len: 2 * self.taste.blocks * BLOCK },
            _ => one_of(self.random, &[Op::Fsync { ino }, Op::Tick, Op::Tick]),
        }
    }

    /// Writes that bring reclaim about, and reads meanwhile: in one part of a file for a while, so
    /// that the zones which hold it are soon reclaimed.
    fn reclaim(&mut self) -> Op {
        let ballast = self.known.ballast.unwrap_or(self.known.files[0]);
        let blocks = self.known.ballast_blocks.max(1);
        let part = self.known.tags / 48 * 61;
        let at = (part + self.below(96)) % blocks;
        match self.below(16) {
            0..3 => {
                let len = (1 + self.below(32)) * BLOCK;
                Op::Read { ino: ballast, offset: at * BLOCK, len }
            }
            3..7 => {
                // Of two blocks only a part is written.
                let range = (at * BLOCK + 100 + self.below(3000), BLOCK);
                self.write(ballast, range, WriteFlags::empty())
            }
            7..12 => {
                let count = one_of(self.random, &[1, 4, 16, 40, 64]).min(blocks - at);
                self.write(ballast, (at * BLOCK, count * BLOCK), WriteFlags::DIRECT)
            }
            12 => {
                let ino = self.file();
                let range = (self.block() * BLOCK, 1 + self.below(3 * BLOCK));
                self.write(ino, range, WriteFlags::empty())
            }
            // Zones die without a write that has to make room for that.
            13 => {
                let end = self.known.end(ballast) / BLOCK;
                Op::Truncate { ino: ballast, size: end.saturating_sub(96) * BLOCK }
            }
            14 => Op::Tick,
            _ => one_of(self.random, &[Op::Fsync { ino: ballast }, Op::Tick, Op::Sync]),
        }
    }

    /// Syncs, with a little to sync.
    fn commits(&mut self, (dir, name): (u64, u8)) -> Op {
        let ino = self.file();
        let range = (self.block() * BLOCK + self.below(BLOCK), 1 + self.below(2 * BLOCK));
        match self.below(16) {
            0..4 => Op::Fsync { ino },
            4..6 => Op::Sync,
            6..8 => self.write(ino, range, WriteFlags::DURABLE),
            8..12 => self.write(ino, range, WriteFlags::empty()),
            12 => of_names(self.random, ino, (dir, name), ROOT),
            13 => self.of_inode(ino, name),
            14 => Op::Tick,
            _ => Op::Read { ino, offset: 0, len: 3 * BLOCK },
        }
    }

    /// An operation that takes or gives back room.
    fn full(&mut self, (dir, name): (u64, u8)) -> Op {
        let (ino, source) = (self.file(), self.file());
        let block = self.block();
        match self.below(16) {
            0..4 => {
                let range = (block * BLOCK + self.below(BLOCK), 1 + self.below(4 * BLOCK));
                self.write(ino, range, WriteFlags::empty())
            }
            // Until no more fits.
            4..7 => {
                let (offset, len) = (self.below(512) * BLOCK, (8 + self.below(32)) * BLOCK);
                self.write(ino, (offset, len), WriteFlags::DIRECT)
            }
            7 => self.copy((source, ino)),
            8 => Op::Truncate { ino, size: self.below(self.taste.blocks * BLOCK) },
            9 => self.allocate(ino, (block * BLOCK, (1 + block) * BLOCK)),
            10 => of_names(self.random, ino, (dir, name), ROOT),
            11 => self.of_inode(ino, name),
            _ => self.reclaim(),
        }
    }

    /// An operation on many blocks of a file of many pieces, or one that makes pieces.
    fn pieces(&mut self) -> Op {
        let (ino, other) = (self.file(), self.any_file());
        let ballast = self.known.ballast.unwrap_or(ino);
        let blocks = self.known.ballast_blocks.max(1);
        let at = self.below(blocks);
        let count = one_of(self.random, &[1, 2, 8, 40, 160]).min(blocks - at);
        let range = (at * BLOCK, count * BLOCK);
        match self.below(16) {
            0..3 => {
                let ways = [Allocate::Punch, Allocate::Punch, Allocate::PunchLater];
                let how = one_of(self.random, &ways);
                Op::Allocate { ino: ballast, how, offset: range.0, len: range.1 }
            }
            3 => Op::Truncate { ino: ballast, size: (blocks - count) * BLOCK },
            // Ranges of one file may overlap.
            4..7 if ino != ballast => {
                let (from, to) = (at * BLOCK, self.block() * BLOCK);
                Op::Copy { source: ballast, from, target: ino, to, len: range.1.min(40 * BLOCK) }
            }
            7..10 => {
                let range = (self.block_at(), BLOCK);
                self.write(ino, range, WriteFlags::DIRECT)
            }
            10 | 11 => self.write(ballast, (at * BLOCK, BLOCK), WriteFlags::DIRECT),
            12 => self.write(ballast, (at * BLOCK, count.min(40) * BLOCK), WriteFlags::DIRECT),
            13 => Op::Read { ino: ballast, offset: range.0, len: range.1 },
            14 => Op::Truncate { ino: other, size: self.block_at() },
            _ => one_of(self.random, &[Op::Fsync { ino: ballast }, Op::Tick, Op::Sync]),
        }
    }

    fn block_at(&mut self) -> u64 {
        self.below(40) * BLOCK
    }

    /// An operation that reads metadata from the drive.
    fn refusals(&mut self, (dir, name): (u64, u8)) -> Op {
        let ino = self.any_file();
        match self.below(24) {
            0..7 => self.pieces(),
            7..11 => self.cuts(),
            11..14 => self.reclaim(),
            14..16 => Op::Unlink { dir, name },
            // The first ones have no name.
            16 | 18 if !self.known.pinned.is_empty() => {
                Op::Unpin { ino: self.known.pinned.remove(0) }
            }
            16..19 => Op::Pin { ino },
            19 if self.below(2) > 0 => of_names(self.random, ino, (dir, name), ROOT),
            19 => self.of_inode(ino, name),
            20 => {
                let offset = self.block_at();
                Op::Allocate { ino, how: Allocate::PunchLater, offset, len: 20 * BLOCK }
            }
            21 => Op::Truncate { ino, size: self.block_at() },
            _ => one_of(self.random, &[Op::Sync, Op::Tick, Op::Tick]),
        }
    }

    /// An operation that changes attributes of an inode.
    fn of_inode(&mut self, ino: u64, name: u8) -> Op {
        let (name, tag) = (name % 4, self.known.tag());
        let small = u32::try_from(tag % 1000).expect("small");
        match self.below(9) {
            0 => {
                let perm = 0o600 + one_of(self.random, &[0, 1, 2, 3, 0o6110, 0o2060]);
                Op::SetAttr { ino, what: Change { perm: Some(perm), ..Change::default() } }
            }
            1 => {
                let what = Change { owner: Some((small, small + 1)), ..Change::default() };
                Op::SetAttr { ino, what }
            }
            2 => {
                let (atime, mtime) = (Some(1 + small), (self.below(3) > 0).then_some(2 + small));
                Op::SetAttr { ino, what: Change { atime, mtime, ..Change::default() } }
            }
            3 => Op::Stat { ino },
            4 | 5 => {
                let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                let (mode, len) =
                    (one_of(self.random, &mode), one_of(self.random, &[40, 300, 3000]));
                Op::SetXattr { ino, name, len, tag, mode }
            }
            6 => Op::RemoveXattr { ino, name },
            7 => Op::GetXattr { ino, name },
            _ => Op::Pin { ino },
        }
    }
}

/// One that changes names.
fn of_names(random: &mut ChaCha8Rng, ino: u64, (dir, name): (u64, u8), to: u64) -> Op {
    let other = u8::try_from(below(random, NAMES.into())).expect("small");
    match below(random, 16) {
        0..5 => {
            let kinds = [FileKind::Directory, FileKind::Symlink, FileKind::Regular];
            let kind = kinds[pick(random, 8).min(2)];
            Op::Create { dir: if kind == FileKind::Directory { ROOT } else { dir }, name, kind }
        }
        5 => Op::Unnamed { dir },
        6..8 => Op::Link { ino, dir, name },
        8..11 => Op::Unlink { dir, name },
        11 => Op::Rmdir { dir: ROOT, name },
        _ => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE]
                [pick(random, 3)];
            // A directory stays below the root, so that it cannot get below itself.
            let to = match (dir == ROOT, flags == RenameFlags::EXCHANGE) {
                (true, _) => ROOT,
                (false, true) => dir,
                (false, false) => to,
            };
            Op::Rename { from: (dir, name), to: (to, other), flags }
        }
    }
}
