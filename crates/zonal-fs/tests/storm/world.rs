//! What the threads do: operations on one tree, and what they answered.

use std::sync::{Arc, Mutex, MutexGuard};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use zonal_fs::FsError;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, Listing, NewInode, RenameFlags, Result, Seek,
    SetAttr, SyncKind, WriteFlags, XattrMode,
};

use crate::drive::Drive;
use crate::history::{Health, History};
use crate::model::{BLOCK, Node, Op, ROOT, Reply, State, content, hash_of, mix};
use crate::ops::drives::StepClock;

/// Names that there are.
const NAMES: u8 = 14;

/// The bytes of a name. Some are long.
pub(crate) fn name_of(name: u8) -> Vec<u8> {
    let mut text = format!("name {name:03}").into_bytes();
    if name.is_multiple_of(5) {
        text.resize(200, b'x');
    }
    text
}

fn name_from(bytes: &[u8]) -> Option<u8> {
    let digits = bytes.get(5..8)?;
    let name = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (name_of(name) == bytes).then_some(name)
}

fn xattr_name(name: u8) -> Vec<u8> {
    format!("user.{name:03}").into_bytes()
}

/// Numbers below a limit.
pub(crate) fn below(random: &mut ChaCha8Rng, limit: u64) -> u64 {
    random.next_u64() % limit.max(1)
}

/// Inodes that the threads know of.
#[derive(Default)]
struct Known {
    files: Vec<u64>,
    dirs: Vec<u64>,
    pinned: Vec<u64>,
    /// Tags that were used.
    tags: u64,
}

/// A mount, its drive, and all that was done.
pub(crate) struct World {
    pub(crate) drive: Arc<Drive>,
    pub(crate) clock: Arc<StepClock>,
    now_ns: Mutex<u64>,
    known: Mutex<Known>,
    pub(crate) history: Mutex<History>,
    /// Blocks that a file has at most, about.
    pub(crate) file_blocks: u64,
    pub(crate) health: Mutex<Health>,
    /// Whether several threads run.
    pub(crate) races: Mutex<bool>,
}

impl World {
    pub(crate) fn new(drive: Arc<Drive>, clock: Arc<StepClock>, file_blocks: u64) -> Self {
        let known = Known { dirs: vec![ROOT], ..Known::default() };
        Self {
            drive,
            clock,
            now_ns: Mutex::new(1),
            known: Mutex::new(known),
            history: Mutex::default(),
            file_blocks,
            health: Mutex::default(),
            races: Mutex::new(false),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic")
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panic")
    }

    pub(crate) fn health(&self) -> Health {
        *self.health.lock().expect("no panic")
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.health() == Health::Faulty
    }

    /// Time goes on.
    pub(crate) fn pass_time(&self, ns: u64) {
        let mut now = self.now_ns.lock().expect("no panic");
        *now += ns;
        self.clock.set(*now);
    }

    /// Does an operation and remembers it.
    pub(crate) fn perform(&self, fs: &Furrow, op: Op) -> Reply {
        let len = || self.drive.recorder.len();
        let index = self.history().begin(len(), op, self.health());
        let reply = match act(fs, op) {
            // Names may come and go while they are listed.
            Ok(Reply::Names(_)) if *self.races.lock().expect("no panic") => Reply::Done,
            Ok(reply) => reply,
            Err(error) => self.reply_of(op, &error),
        };
        self.note(op, &reply);
        self.history().end(len(), index, reply.clone(), self.health());
        reply
    }

    /// What an error means. Some may never be.
    fn reply_of(&self, op: Op, error: &FsError) -> Reply {
        let frees = matches!(
            op,
            Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::RemoveXattr { .. }
                | Op::Fsync { .. }
                | Op::Sync
                | Op::Tick
                | Op::Allocate { how: Allocate::Punch, .. }
                | Op::Truncate { .. }
        );
        match error {
            FsError::NoSpace if frees && !self.is_faulty() => panic!("{op:?}: no space"),
            FsError::NoSpace => Reply::Full,
            FsError::Checksum { .. } | FsError::Corrupt { .. } | FsError::Missing { .. } => {
                panic!("{op:?}: {error}")
            }
            FsError::Device(_) | FsError::ReadsHang { .. } if !self.is_faulty() => {
                panic!("{op:?}: {error}")
            }
            FsError::Device(_) | FsError::ReadsHang { .. } => Reply::Broken(error.to_string()),
            other => Reply::Refused(other.to_string()),
        }
    }

    fn note(&self, op: Op, reply: &Reply) {
        let mut known = self.known();
        match (op, reply) {
            (Op::Create { kind: FileKind::Regular, .. }, Reply::Ino(ino)) => known.files.push(*ino),
            (Op::Create { kind: FileKind::Directory, .. }, Reply::Ino(ino)) => {
                known.dirs.push(*ino);
            }
            (Op::Unnamed { .. }, Reply::Ino(ino)) => {
                known.files.push(*ino);
                known.pinned.push(*ino);
            }
            (Op::Pin { ino }, Reply::Done) => known.pinned.push(ino),
            (
                Op::Write { ino, .. } | Op::Truncate { ino, .. } | Op::Read { ino, .. },
                Reply::Refused(_),
            ) => known.files.retain(|file| *file != ino),
            (Op::Create { dir, .. } | Op::List { dir } | Op::Lookup { dir, .. }, reply)
                if dir != ROOT && matches!(reply, Reply::Refused(_)) =>
            {
                // It may be gone.
                if matches!(op, Op::List { .. }) {
                    known.dirs.retain(|known| *known != dir);
                }
            }
            _ => {}
        }
    }

    /// What a mount after a kill knows: nothing is held open.
    pub(crate) fn forget_pins(&self) {
        self.known().pinned.clear();
    }

    /// Lets go of everything.
    pub(crate) fn unpin_all(&self, fs: &Furrow) {
        let pinned = std::mem::take(&mut self.known().pinned);
        for ino in pinned {
            self.perform(fs, Op::Unpin { ino });
        }
    }

    /// An operation by chance.
    pub(crate) fn choose(&self, random: &mut ChaCha8Rng) -> Op {
        let mut known = self.known();
        let dir = known.dirs[pick(random, known.dirs.len())];
        let name = u8::try_from(below(random, NAMES.into())).expect("small");
        if known.files.is_empty() {
            return Op::Create { dir, name, kind: FileKind::Regular };
        }
        // The newest most of all.
        let recent = known.files.len().saturating_sub(8);
        let file = |random: &mut ChaCha8Rng| {
            let from = if below(random, 3) == 0 { 0 } else { recent };
            known.files[from + pick(random, known.files.len() - from)]
        };
        let (ino, source) = (file(random), file(random));
        let to = known.dirs[pick(random, known.dirs.len())];
        known.tags += 1;
        let tag = known.tags;
        match below(random, 64) {
            0..16 => of_names(random, ino, (dir, name), to),
            16..44 => self.of_content(random, ino, tag),
            44..52 => self.copy(random, (source, ino)),
            52..58 => of_inode(random, ino, (name, tag)),
            58 => known.pinned.pop().map_or(Op::Sync, |ino| Op::Unpin { ino }),
            59 => Op::Lookup { dir, name },
            60 => Op::List { dir },
            61 => Op::Fsync { ino },
            62 => Op::Sync,
            _ => Op::Tick,
        }
    }

    /// One that reads or changes what is in a file.
    fn of_content(&self, random: &mut ChaCha8Rng, ino: u64, tag: u64) -> Op {
        let (offset, len) = self.range(random);
        match below(random, 28) {
            0..14 => {
                let flags = [
                    WriteFlags::empty(),
                    WriteFlags::empty(),
                    WriteFlags::DIRECT,
                    WriteFlags::APPEND,
                    WriteFlags::DURABLE,
                    WriteFlags::DIRECT | WriteFlags::APPEND,
                ][pick(random, 6)];
                let tag = if below(random, 24) == 0 { 0 } else { tag };
                Op::Write { ino, offset, len, tag, flags }
            }
            14..19 => {
                let size = match below(random, 8) {
                    0 => (1 << 40) + below(random, 10_000),
                    1 => 0,
                    _ => below(random, self.file_blocks * BLOCK),
                };
                Op::Truncate { ino, size }
            }
            19..24 => {
                let how = [
                    Allocate::Extend,
                    Allocate::KeepSize,
                    Allocate::Punch,
                    Allocate::Punch,
                    Allocate::Zero,
                    Allocate::ZeroKeepSize,
                ][pick(random, 6)];
                Op::Allocate { ino, how, offset, len }
            }
            _ => Op::Read { ino, offset, len: len * 2 },
        }
    }

    fn copy(&self, random: &mut ChaCha8Rng, (source, target): (u64, u64)) -> Op {
        let races = *self.races.lock().expect("no panic");
        let blocks = 1 + below(random, if races { 3 } else { self.file_blocks });
        let from = below(random, self.file_blocks) * BLOCK * below(random, 2);
        let mut to = below(random, self.file_blocks) * BLOCK * below(random, 2);
        if source == target {
            to = from + (blocks + below(random, 4)) * BLOCK;
        }
        let len = blocks * BLOCK - [0, 0, 100][pick(random, 3)];
        Op::Copy { source, from, target, to, len }
    }

    /// A range of a file that one call writes as a whole.
    fn range(&self, random: &mut ChaCha8Rng) -> (u64, u64) {
        let blocks = self.file_blocks;
        let block = below(random, blocks);
        let (offset, len) = match below(random, 6) {
            0 => (block * BLOCK + below(random, BLOCK), 1 + below(random, 3 * BLOCK)),
            1 => (block * BLOCK, BLOCK),
            2 => (block * BLOCK, (1 + below(random, blocks)) * BLOCK),
            3 => ((1 << 40) + block * BLOCK, 1 + below(random, 2 * BLOCK)),
            4 => (below(random, 200), 1 + below(random, 200)),
            _ => (block * BLOCK, 1 + below(random, 4 * BLOCK)),
        };
        (offset, len.min((1 << 20) - offset % (1 << 20)))
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

/// One that changes what else an inode has.
fn of_inode(random: &mut ChaCha8Rng, ino: u64, (name, tag): (u8, u64)) -> Op {
    let name = name % 4;
    match below(random, 7) {
        0 => Op::Chmod { ino, perm: 0o600 + u16::from(name) },
        1 => Op::Stat { ino },
        2 | 3 => {
            let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace][pick(random, 3)];
            Op::SetXattr { ino, name, len: [40, 300, 3000][pick(random, 3)], tag, mode }
        }
        4 => Op::RemoveXattr { ino, name },
        5 => Op::GetXattr { ino, name },
        _ => Op::Pin { ino },
    }
}

fn pick(random: &mut ChaCha8Rng, count: usize) -> usize {
    usize::try_from(below(random, count as u64)).expect("an index")
}

/// Calls the file system.
fn act(fs: &Furrow, op: Op) -> Result<Reply> {
    let root = &Caller::ROOT;
    let file = Ino::new;
    match op {
        Op::Create { dir, name, kind } => {
            let target: &[u8] = if kind == FileKind::Symlink { b"target" } else { b"" };
            let perm = if kind == FileKind::Directory { 0o755 } else { 0o644 };
            let new = NewInode { kind, perm, rdev: 0, target };
            let attr = fs.create(root, file(dir), &name_of(name), &new)?;
            return Ok(Reply::Ino(attr.ino.get()));
        }
        Op::Unnamed { dir } => {
            let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
            return Ok(Reply::Ino(fs.create_unnamed(root, file(dir), &new)?.ino.get()));
        }
        Op::Link { ino, dir, name } => drop(fs.link(file(ino), file(dir), &name_of(name))?),
        Op::Unlink { dir, name } => fs.unlink(file(dir), &name_of(name))?,
        Op::Rmdir { dir, name } => fs.rmdir(file(dir), &name_of(name))?,
        Op::Rename { from, to, flags } => {
            let (one, two) = (name_of(from.1), name_of(to.1));
            fs.rename((file(from.0), &one), (file(to.0), &two), flags)?;
        }
        Op::Write { ino, offset, len, tag, flags } => {
            let base = if flags.contains(WriteFlags::APPEND) { 0 } else { offset };
            let written = fs.write(file(ino), offset, &content(tag, base, len), flags)?;
            assert_eq!(written.len, len, "a write is whole");
            return Ok(Reply::At(written.offset));
        }
        Op::Truncate { ino, size } => {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(root, file(ino), &set)?;
        }
        Op::Chmod { ino, perm } => {
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            fs.setattr(root, file(ino), &set)?;
        }
        Op::Allocate { ino, how, offset, len } => fs.fallocate(file(ino), how, offset, len)?,
        Op::Copy { source, from, target, to, len } => {
            let (source, target) = ((file(source), from), (file(target), to));
            return Ok(Reply::At(fs.copy_range(source, target, len, WriteFlags::empty())?));
        }
        Op::SetXattr { ino, name, len, tag, mode } => {
            let value = content(tag, 0, len);
            fs.setxattr(root, file(ino), &xattr_name(name), &value, mode)?;
        }
        Op::RemoveXattr { ino, name } => fs.removexattr(file(ino), &xattr_name(name))?,
        Op::Pin { ino } => fs.pin(file(ino))?,
        Op::Unpin { ino } => fs.unpin(file(ino)),
        Op::Fsync { ino } => fs.fsync(file(ino), SyncKind::Full)?,
        Op::Sync => fs.sync()?,
        Op::Tick => fs.tick()?,
        Op::Read { .. }
        | Op::Lookup { .. }
        | Op::List { .. }
        | Op::Stat { .. }
        | Op::GetXattr { .. } => return look(fs, op),
    }
    Ok(Reply::Done)
}

/// Calls that change nothing.
fn look(fs: &Furrow, op: Op) -> Result<Reply> {
    let file = Ino::new;
    match op {
        Op::Read { ino, offset, len } => {
            let mut buffer = vec![0; usize::try_from(len).expect("in memory")];
            let count = fs.read(file(ino), offset, &mut buffer)?;
            Ok(Reply::Bytes(count as u64, hash_of(&buffer[..count])))
        }
        Op::Lookup { dir, name } => Ok(Reply::Ino(fs.lookup(file(dir), &name_of(name))?.ino.get())),
        Op::List { dir } => {
            let mut names: Vec<(u8, u64)> =
                list(fs, dir)?.into_iter().map(|(name, ino, _)| (name, ino)).collect();
            names.sort_unstable();
            Ok(Reply::Names(names))
        }
        Op::Stat { ino } => {
            let attr = fs.getattr(file(ino))?;
            let is_dir = attr.kind == FileKind::Directory;
            let (size, nlink) = if is_dir { (0, 0) } else { (attr.size, attr.nlink) };
            Ok(Reply::Attr { size, nlink, perm: attr.perm })
        }
        Op::GetXattr { ino, name } => {
            let value = fs.getxattr(file(ino), &xattr_name(name))?;
            Ok(Reply::At(mix(value.len() as u64, hash_of(&value))))
        }
        _ => Ok(Reply::Done),
    }
}

fn list(fs: &dyn FileSystem, dir: u64) -> Result<Vec<(u8, u64, FileKind)>> {
    let mut entries = Vec::new();
    fs.readdir(Ino::new(dir), 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            let name = name_from(entry.name).expect("a name of ours");
            entries.push((name, entry.ino.get(), entry.kind));
        }
        Listing::More
    })?;
    Ok(entries)
}

/// Everything that a mount shows.
pub(crate) fn read_state(fs: &dyn FileSystem) -> Result<State> {
    let mut state = State::new();
    let mut next = vec![ROOT];
    let mut seen = vec![ROOT];
    while let Some(ino) = next.pop() {
        let attr = fs.getattr(Ino::new(ino))?;
        let mut node = Node::new(attr.kind, attr.perm, attr.nlink);
        for name in fs.listxattr(attr.ino)? {
            let value = fs.getxattr(attr.ino, &name)?;
            let digits = std::str::from_utf8(&name[5..]).expect("a name of ours");
            let name = digits.parse().expect("a name of ours");
            node.xattrs.insert(name, mix(value.len() as u64, hash_of(&value)));
        }
        match attr.kind {
            FileKind::Directory => {
                for (name, child, _) in list(fs, ino)? {
                    node.entries.insert(name, child);
                    if !seen.contains(&child) {
                        seen.push(child);
                        next.push(child);
                    }
                }
            }
            FileKind::Symlink => {
                assert_eq!(fs.readlink(attr.ino)?, b"target", "what it leads to");
                node.size = attr.size;
            }
            _ => {
                node.size = attr.size;
                read_content(fs, &mut node, attr.ino)?;
            }
        }
        state.put(ino, node);
    }
    Ok(state)
}

fn read_content(fs: &dyn FileSystem, node: &mut Node, ino: Ino) -> Result<()> {
    let mut buffer = vec![0; 16 << 12];
    let mut offset = 0;
    while offset < node.size {
        match fs.seek(ino, Seek::Data, offset) {
            Ok(start) => offset = start / BLOCK * BLOCK,
            Err(FsError::SeekBeyondEnd) => return Ok(()),
            Err(error) => return Err(error),
        }
        buffer.fill(0);
        let count = fs.read(ino, offset, &mut buffer)?;
        // Zeroes may follow what is there.
        buffer[count..].fill(0);
        for (block, bytes) in (offset / BLOCK..).zip(buffer.chunks(1 << 12)) {
            node.put(block, bytes);
        }
        offset += buffer.len() as u64;
    }
    Ok(())
}

/// Deletes everything.
pub(crate) fn delete_all(fs: &dyn FileSystem, dir: u64) -> Result<()> {
    for (name, ino, kind) in list(fs, dir)? {
        if kind == FileKind::Directory {
            delete_all(fs, ino)?;
            fs.rmdir(Ino::new(dir), &name_of(name))?;
        } else {
            fs.unlink(Ino::new(dir), &name_of(name))?;
        }
    }
    Ok(())
}
