//! States of the tree, and how an operation changes one. [`history`](crate::history) goes through
//! all states that the answers allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonal_fs::rules::{self, RenameAction, RenameTarget};
use zonal_fs::vfs::{Allocate, FileKind, RenameFlags, WriteFlags, XattrMode};

use crate::node::{Node, Own, content, hash_of, mix};

/// The root's number.
pub(crate) const ROOT: u64 = 1;

/// An operation, on inodes by number and names by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Create { dir: u64, name: u8, kind: FileKind },
    Unnamed { dir: u64 },
    Link { ino: u64, dir: u64, name: u8 },
    Unlink { dir: u64, name: u8 },
    Rmdir { dir: u64, name: u8 },
    Rename { from: (u64, u8), to: (u64, u8), flags: RenameFlags },
    Write { ino: u64, offset: u64, len: u64, tag: u64, flags: WriteFlags },
    Truncate { ino: u64, size: u64 },
    SetAttr { ino: u64, what: Change },
    Allocate { ino: u64, how: Allocate, offset: u64, len: u64 },
    Copy { source: u64, from: u64, target: u64, to: u64, len: u64 },
    Read { ino: u64, offset: u64, len: u64 },
    Lookup { dir: u64, name: u8 },
    List { dir: u64 },
    Stat { ino: u64 },
    SetXattr { ino: u64, name: u8, len: u64, tag: u64, mode: XattrMode },
    RemoveXattr { ino: u64, name: u8 },
    GetXattr { ino: u64, name: u8 },
    Pin { ino: u64 },
    Unpin { ino: u64 },
    Fsync { ino: u64 },
    Sync,
    Tick,
}

impl Op {
    /// Whether it changes nothing that can be seen.
    pub(crate) const fn only_looks(self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Lookup { .. }
                | Self::List { .. }
                | Self::Stat { .. }
                | Self::GetXattr { .. }
                | Self::Fsync { .. }
                | Self::Sync
                | Self::Tick
        )
    }
}

/// New values of an inode's attributes; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) perm: Option<u16>,
    pub(crate) owner: Option<(u32, u32)>,
    /// In seconds since 1970, before all that the clock of the round gives.
    pub(crate) atime: Option<u32>,
    pub(crate) mtime: Option<u32>,
}

/// The answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    /// An inode.
    Ino(u64),
    /// Where a write went, or how much was copied.
    At(u64),
    /// Bytes, by their number and hash.
    Bytes(u64, u64),
    Attr {
        size: u64,
        nlink: u32,
        own: Own,
    },
    Names(Vec<(u8, u64)>),
    /// By the rules of POSIX.
    Refused(String),
    /// No space.
    Full,
    /// A fault of the drive.
    Broken(String),
}

/// The whole tree, and which inodes are held open.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    nodes: BTreeMap<u64, Arc<Node>>,
    pins: BTreeMap<u64, u32>,
    /// Of nodes with a name.
    pub(crate) hash: u64,
    /// Of the rest.
    pub(crate) hidden: u64,
}

/// Why an operation cannot be done.
pub(crate) struct Refusal;

pub(crate) type Outcome = Result<Reply, Refusal>;

impl State {
    /// A root directory alone.
    pub(crate) fn new() -> Self {
        let mut state = Self::default();
        let own = Own { perm: 0o755, ..Own::default() };
        state.put(ROOT, Node::new(FileKind::Directory, own, 2));
        state
    }

    /// The share of a node in the two hashes.
    fn weights(ino: u64, node: &Node) -> (u64, u64) {
        if node.nlink > 0 {
            (mix(ino, node.hash), 0)
        } else {
            (0, mix(ino, node.hash.wrapping_add(1)))
        }
    }

    /// Puts an inode there.
    pub(crate) fn put(&mut self, ino: u64, mut node: Node) {
        self.take(ino);
        node.rehash(ino);
        if node.nlink == 0 && !self.pins.contains_key(&ino) {
            return;
        }
        let (named, hidden) = Self::weights(ino, &node);
        self.hash = self.hash.wrapping_add(named);
        self.hidden = self.hidden.wrapping_add(hidden);
        self.nodes.insert(ino, Arc::new(node));
    }

    fn take(&mut self, ino: u64) {
        if let Some(node) = self.nodes.remove(&ino) {
            let (named, hidden) = Self::weights(ino, &node);
            self.hash = self.hash.wrapping_sub(named);
            self.hidden = self.hidden.wrapping_sub(hidden);
        }
    }

    fn node(&self, ino: u64) -> Result<Node, Refusal> {
        self.nodes.get(&ino).map(|node| Node::clone(node)).ok_or(Refusal)
    }

    pub(crate) fn file(&self, ino: u64) -> Result<Node, Refusal> {
        self.node(ino).and_then(|node| if node.is_file() { Ok(node) } else { Err(Refusal) })
    }

    fn dir(&self, ino: u64) -> Result<Node, Refusal> {
        self.node(ino).and_then(|node| if node.is_dir() { Ok(node) } else { Err(Refusal) })
    }

    fn set_pins(&mut self, ino: u64, pins: u32) {
        let before = self.pins.get(&ino).copied().unwrap_or(0);
        self.hidden = self.hidden.wrapping_sub(u64::from(before).wrapping_mul(mix(ino, 77)));
        self.hidden = self.hidden.wrapping_add(u64::from(pins).wrapping_mul(mix(ino, 77)));
        if pins == 0 {
            self.pins.remove(&ino);
        } else {
            self.pins.insert(ino, pins);
        }
    }

    /// A kill of the process: nothing is held open afterwards.
    pub(crate) fn forget_pins(&mut self) {
        let pinned: Vec<u64> = self.pins.keys().copied().collect();
        for ino in pinned {
            self.set_pins(ino, 0);
            if self.nodes.get(&ino).is_some_and(|node| node.nlink == 0) {
                self.take(ino);
            }
        }
    }

    fn enter(&mut self, dir: u64, name: u8, ino: u64) -> Result<(), Refusal> {
        let mut node = self.dir(dir)?;
        node.entries.insert(name, ino);
        node.own.mtime = 0;
        self.put(dir, node);
        Ok(())
    }

    fn leave(&mut self, dir: u64, name: u8) -> Result<u64, Refusal> {
        let mut node = self.dir(dir)?;
        let ino = node.entries.remove(&name).ok_or(Refusal)?;
        node.own.mtime = 0;
        self.put(dir, node);
        Ok(ino)
    }

    fn drop_link(&mut self, ino: u64) -> Result<(), Refusal> {
        let mut node = self.node(ino)?;
        // Creations that failed have no number of their own, so two of them may share an inode
        // here.
        node.nlink = if node.is_dir() { 0 } else { node.nlink.checked_sub(1).ok_or(Refusal)? };
        self.put(ino, node);
        Ok(())
    }

    fn rename(&mut self, from: (u64, u8), to: (u64, u8), flags: RenameFlags) -> Outcome {
        let moved = *self.dir(from.0)?.entries.get(&from.1).ok_or(Refusal)?;
        let there = self.dir(to.0)?.entries.get(&to.1).copied();
        let kind = self.node(moved)?.kind;
        let found = match there {
            None => RenameTarget::Free,
            Some(there) if there == moved => RenameTarget::SameInode,
            Some(there) => {
                let node = self.node(there)?;
                match (node.is_dir(), node.entries.is_empty()) {
                    (true, true) => RenameTarget::EmptyDirectory,
                    (true, false) => RenameTarget::FullDirectory,
                    (false, _) => RenameTarget::NotDirectory,
                }
            }
        };
        let action = rules::check_rename(kind, found, flags).map_err(|_| Refusal)?;
        if action == RenameAction::Nothing {
            return Ok(Reply::Done);
        }
        self.leave(from.0, from.1)?;
        if let Some(there) = there {
            self.leave(to.0, to.1)?;
            if action == RenameAction::Exchange {
                self.enter(from.0, from.1, there)?;
            } else {
                self.drop_link(there)?;
            }
        }
        self.enter(to.0, to.1, moved)?;
        Ok(Reply::Done)
    }

    fn allocate(&mut self, ino: u64, how: Allocate, offset: u64, len: u64) -> Outcome {
        let mut node = self.file(ino)?;
        if !matches!(how, Allocate::Extend | Allocate::KeepSize) {
            node.zero(offset, offset + len);
        }
        if matches!(how, Allocate::Extend | Allocate::Zero) {
            node.size = node.size.max(offset + len);
        }
        node.own.mtime = 0;
        self.put(ino, node);
        Ok(Reply::Done)
    }

    fn change_xattr(&mut self, ino: u64, name: u8, value: Option<u64>, mode: XattrMode) -> Outcome {
        let mut node = self.node(ino)?;
        let exists = node.xattrs.contains_key(&name);
        match mode {
            XattrMode::Create if exists => return Err(Refusal),
            XattrMode::Replace if !exists => return Err(Refusal),
            XattrMode::Any | XattrMode::Create | XattrMode::Replace => {}
        }
        match value {
            Some(value) => _ = node.xattrs.insert(name, value),
            None => _ = node.xattrs.remove(&name),
        }
        self.put(ino, node);
        Ok(Reply::Done)
    }

    /// Does an operation that takes effect at once. `made` is the number that a new inode got.
    pub(crate) fn perform(&mut self, op: Op, made: u64) -> Outcome {
        match op {
            Op::Create { dir, name, kind } => {
                if self.dir(dir)?.entries.contains_key(&name) {
                    return Err(Refusal);
                }
                let (perm, nlink) = match kind {
                    FileKind::Directory => (0o755, 2),
                    FileKind::Symlink => (0o777, 1),
                    _ => (0o644, 1),
                };
                let mut node = Node::new(kind, Own { perm, ..Own::default() }, nlink);
                node.size = if kind == FileKind::Symlink { 6 } else { 0 };
                self.put(made, node);
                self.enter(dir, name, made)?;
                Ok(Reply::Ino(made))
            }
            Op::Unnamed { dir } => {
                self.dir(dir)?;
                self.set_pins(made, 1);
                let own = Own { perm: 0o644, ..Own::default() };
                let mut node = Node::new(FileKind::Regular, own, 0);
                node.linkable = true;
                self.put(made, node);
                Ok(Reply::Ino(made))
            }
            Op::Link { ino, dir, name } => {
                let mut node = self.node(ino)?;
                let is_free = !self.dir(dir)?.entries.contains_key(&name);
                if node.is_dir() || (node.nlink == 0 && !node.linkable) || !is_free {
                    return Err(Refusal);
                }
                node.nlink += 1;
                node.linkable = false;
                self.put(ino, node);
                self.enter(dir, name, ino)?;
                Ok(Reply::Done)
            }
            Op::Unlink { dir, name } => {
                let ino = *self.dir(dir)?.entries.get(&name).ok_or(Refusal)?;
                if self.node(ino)?.is_dir() {
                    return Err(Refusal);
                }
                self.leave(dir, name)?;
                self.drop_link(ino)?;
                Ok(Reply::Done)
            }
            Op::Rmdir { dir, name } => {
                let ino = *self.dir(dir)?.entries.get(&name).ok_or(Refusal)?;
                if !self.dir(ino)?.entries.is_empty() {
                    return Err(Refusal);
                }
                self.leave(dir, name)?;
                self.drop_link(ino)?;
                Ok(Reply::Done)
            }
            Op::Rename { from, to, flags } => self.rename(from, to, flags),
            _ => self.change_inode(op),
        }
    }

    /// Does an operation that changes one inode.
    fn change_inode(&mut self, op: Op) -> Outcome {
        match op {
            Op::Write { ino, offset, len, tag, flags } => {
                let mut node = self.file(ino)?;
                let offset = if flags.contains(WriteFlags::APPEND) { node.size } else { offset };
                // The bytes of an append cannot depend on the end of the file, which moves.
                let base = if flags.contains(WriteFlags::APPEND) { 0 } else { offset };
                node.write(offset, &content(tag, base, len));
                self.put(ino, node);
                Ok(Reply::At(offset))
            }
            Op::Truncate { ino, size } => {
                let mut node = self.file(ino)?;
                node.resize(size);
                self.put(ino, node);
                Ok(Reply::Done)
            }
            Op::SetAttr { ino, what } => {
                let mut node = self.node(ino)?;
                node.change(what);
                self.put(ino, node);
                Ok(Reply::Done)
            }
            Op::Allocate { ino, how, offset, len } => self.allocate(ino, how, offset, len),
            Op::SetXattr { ino, name, len, tag, mode } => {
                let value = mix(len, hash_of(&content(tag, 0, len)));
                self.change_xattr(ino, name, Some(value), mode)
            }
            Op::RemoveXattr { ino, name } => self.change_xattr(ino, name, None, XattrMode::Replace),
            Op::Pin { ino } => {
                self.node(ino)?;
                let pins = self.pins.get(&ino).copied().unwrap_or(0);
                self.set_pins(ino, pins + 1);
                Ok(Reply::Done)
            }
            Op::Unpin { ino } => {
                let node = self.node(ino)?;
                let pins = self.pins.get(&ino).copied().ok_or(Refusal)?;
                self.set_pins(ino, pins - 1);
                self.put(ino, node);
                Ok(Reply::Done)
            }
            _ => self.look(op),
        }
    }

    /// The answer of an operation that changes nothing.
    fn look(&self, op: Op) -> Outcome {
        match op {
            Op::Read { ino, offset, len } => {
                let bytes = self.file(ino)?.read(offset, len);
                Ok(Reply::Bytes(bytes.len() as u64, hash_of(&bytes)))
            }
            Op::Lookup { dir, name } => {
                self.dir(dir)?.entries.get(&name).map(|ino| Reply::Ino(*ino)).ok_or(Refusal)
            }
            Op::List { dir } => {
                let entries = self.dir(dir)?.entries;
                Ok(Reply::Names(entries.into_iter().collect()))
            }
            Op::Stat { ino } => {
                let node = self.node(ino)?;
                let (size, nlink) = if node.is_dir() { (0, 0) } else { (node.size, node.nlink) };
                Ok(Reply::Attr { size, nlink, own: node.own })
            }
            Op::GetXattr { ino, name } => {
                self.node(ino)?.xattrs.get(&name).map(|hash| Reply::At(*hash)).ok_or(Refusal)
            }
            Op::Fsync { ino } => self.node(ino).map(|_| Reply::Done),
            _ => Ok(Reply::Done),
        }
    }

    /// How another state differs, in words.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut words = Vec::new();
        let all: BTreeSet<u64> = self.nodes.keys().chain(other.nodes.keys()).copied().collect();
        for ino in &all {
            let named = |state: &Self| state.nodes.get(ino).filter(|node| node.nlink > 0).cloned();
            match (named(self), named(other)) {
                (Some(one), Some(two)) if one.hash != two.hash => {
                    words.push(format!("inode {ino}: {}", one.difference(&two)));
                }
                (Some(_), None) => words.push(format!("inode {ino} is there")),
                (None, Some(_)) => words.push(format!("inode {ino} is not there")),
                _ => {}
            }
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}
