//! The work of the threads: operations on one tree, and their answers.

use std::sync::{Arc, Mutex, MutexGuard};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use zonal_fs::FsError;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, Listing, NewInode, Result, Seek, SetAttr, SetTime,
    SyncKind, Timestamp, WriteFlags,
};

use crate::choice::{self, Known, Taste};
use crate::drive::Drive;
use crate::history::{Health, History};
use crate::model::{Change, Op, ROOT, Reply, State};
use crate::node::{BLOCK, Node, Own, content, hash_of, mix};
use crate::ops::drives::StepClock;

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

/// A mount, its drive, and all that was done.
pub(crate) struct World {
    pub(crate) drive: Arc<Drive>,
    pub(crate) clock: Arc<StepClock>,
    now_ns: Mutex<u64>,
    known: Mutex<Known>,
    history: Mutex<History>,
    taste: Taste,
    pub(crate) health: Mutex<Health>,
    /// Whether several threads run.
    pub(crate) races: Mutex<bool>,
}

impl World {
    pub(crate) fn new(drive: Arc<Drive>, clock: Arc<StepClock>, taste: Taste) -> Self {
        Self {
            drive,
            clock,
            now_ns: Mutex::new(1),
            known: Mutex::new(Known::default()),
            history: Mutex::default(),
            taste,
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
        self.known().note(op, &reply);
        self.history().end(len(), index, reply.clone(), self.health());
        reply
    }

    /// The reply that an error stands for. Some errors may never come.
    fn reply_of(&self, op: Op, error: &FsError) -> Reply {
        let frees = matches!(
            op,
            Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::RemoveXattr { .. }
                | Op::Fsync { .. }
                | Op::Sync
                | Op::Tick
                | Op::Allocate { how: Allocate::Punch | Allocate::PunchLater, .. }
                | Op::Truncate { .. }
        );
        match error {
            FsError::NoSpace if frees && !self.is_faulty() => panic!("{op:?}: no space"),
            FsError::NoSpace => Reply::Full,
            FsError::Checksum { .. } | FsError::Corrupt { .. } | FsError::Missing { .. } => {
                panic!("{op:?}: {error}")
            }
            FsError::Device(_) | FsError::Refused { .. } | FsError::ReadsHang { .. }
                if !self.is_faulty() =>
            {
                panic!("{op:?}: {error}")
            }
            FsError::Device(_) | FsError::Refused { .. } | FsError::ReadsHang { .. } => {
                Reply::Broken(error.to_string())
            }
            other => Reply::Refused(other.to_string()),
        }
    }

    /// After a kill nothing is held open.
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
        let races = *self.races.lock().expect("no panic");
        choice::choose(&mut self.known(), (self.taste, races), random)
    }

    /// Files that there were, and may still be.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.known().files.clone()
    }

    /// The file that fills the drive.
    pub(crate) fn ballast(&self) -> Option<u64> {
        self.known().ballast
    }

    /// How many blocks it had.
    pub(crate) fn ballast_blocks(&self) -> u64 {
        self.known().ballast_blocks
    }

    /// Remembers it.
    pub(crate) fn note_ballast(&self, ino: u64, blocks: u64) {
        let mut known = self.known();
        (known.ballast, known.ballast_blocks) = (Some(ino), blocks);
    }
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
        Op::SetAttr { ino, what } => {
            let Change { perm, owner, atime, mtime } = what;
            let (uid, gid) = owner.unzip();
            let time = |seconds: u32| {
                let time = Timestamp::new(seconds.into(), 0).expect("no nanoseconds");
                SetTime::To(time)
            };
            let (atime, mtime) = (atime.map(time), mtime.map(time));
            let set = SetAttr { perm, uid, gid, atime, mtime, ..SetAttr::default() };
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
            Ok(Reply::Attr { size, nlink, own: Own::of(&attr) })
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
    read_state_with(fs, &mut |_, _| None)
}

/// The same, where another content takes the place of blocks that cannot be read: `instead` gives
/// it, if they may be lost.
pub(crate) fn read_state_with(fs: &dyn FileSystem, instead: Instead<'_>) -> Result<State> {
    let mut state = State::new();
    let mut next = vec![ROOT];
    let mut seen = vec![ROOT];
    while let Some(ino) = next.pop() {
        let attr = fs.getattr(Ino::new(ino))?;
        let mut node = Node::new(attr.kind, Own::of(&attr), attr.nlink);
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
                read_content(fs, &mut node, attr.ino, instead)?;
            }
        }
        state.put(ino, node);
    }
    Ok(state)
}

/// The content of a block of an inode.
pub(crate) type Instead<'a> = &'a mut dyn FnMut(u64, u64) -> Option<Vec<u8>>;

fn read_content(
    fs: &dyn FileSystem,
    node: &mut Node,
    ino: Ino,
    instead: Instead<'_>,
) -> Result<()> {
    let mut buffer = vec![0; 16 << 12];
    let mut offset = 0;
    while offset < node.size {
        match fs.seek(ino, Seek::Data, offset) {
            Ok(start) => offset = start / BLOCK * BLOCK,
            Err(FsError::SeekBeyondEnd) => return Ok(()),
            Err(error) => return Err(error),
        }
        buffer.fill(0);
        match fs.read(ino, offset, &mut buffer) {
            // Zeroes may follow the bytes that were read.
            Ok(count) => buffer[count..].fill(0),
            Err(FsError::Device(_)) => {
                for (block, bytes) in (offset / BLOCK..).zip(buffer.chunks_mut(1 << 12)) {
                    bytes.fill(0);
                    match fs.read(ino, block * BLOCK, bytes) {
                        Ok(count) => bytes[count..].fill(0),
                        Err(error) => match instead(ino.get(), block) {
                            Some(other) => bytes.copy_from_slice(&other),
                            None => return Err(error),
                        },
                    }
                }
            }
            Err(error) => return Err(error),
        }
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
