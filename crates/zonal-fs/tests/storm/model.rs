//! What the tree may hold: states, and what an operation makes of one. [`history`](crate::history)
//! goes through all that the answers allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zonal_fs::rules::{self, RenameAction, RenameTarget};
use zonal_fs::vfs::{Allocate, FileKind, RenameFlags, WriteFlags, XattrMode};

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

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
    Chmod { ino: u64, perm: u16 },
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

/// What it answered.
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
        perm: u16,
    },
    Names(Vec<(u8, u64)>),
    /// By the rules of POSIX.
    Refused(String),
    /// No space.
    Full,
    /// A fault of the drive.
    Broken(String),
}

/// Mixes numbers.
pub(crate) const fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x7f4a_7c15_bf58_476d);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The hash of bytes, 0 if all are zero.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    let (hash, any) = words.fold((1, 0), |(hash, any): (u64, u64), word| {
        ((hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95), any | word)
    });
    if any == 0 { 0 } else { hash }
}

/// What a write with this tag puts there. Tag 0 is zeroes.
pub(crate) fn content(tag: u64, offset: u64, len: u64) -> Vec<u8> {
    if tag == 0 {
        return vec![0; usize::try_from(len).expect("in memory")];
    }
    let words = offset / 8..(offset + len).div_ceil(8);
    let bytes: Vec<u8> = words.flat_map(|word| (mix(tag, word) | 1).to_le_bytes()).collect();
    let skip = usize::try_from(offset % 8).expect("below 8");
    bytes[skip..][..usize::try_from(len).expect("in memory")].to_vec()
}

/// A block of content that is not all zero.
#[derive(Clone, Debug)]
struct Block {
    bytes: Arc<[u8]>,
    hash: u64,
}

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    blocks: BTreeMap<u64, Block>,
    pub(crate) xattrs: BTreeMap<u8, u64>,
    pub(crate) entries: BTreeMap<u8, u64>,
    /// It was made without a name and can get one.
    linkable: bool,
    hash: u64,
}

impl Node {
    pub(crate) const fn new(kind: FileKind, perm: u16, nlink: u32) -> Self {
        Self {
            kind,
            perm,
            nlink,
            size: 0,
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            linkable: false,
            hash: 0,
        }
    }

    fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Puts a block there.
    pub(crate) fn put(&mut self, block: u64, bytes: &[u8]) {
        match hash_of(bytes) {
            0 => _ = self.blocks.remove(&block),
            hash => _ = self.blocks.insert(block, Block { bytes: bytes.into(), hash }),
        }
    }

    fn bytes(&self, block: u64) -> Vec<u8> {
        let zeroes = || vec![0; usize::try_from(BLOCK).expect("small")];
        self.blocks.get(&block).map_or_else(zeroes, |block| block.bytes.to_vec())
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let index = |position: u64| usize::try_from(position).expect("in memory");
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            if to - from == BLOCK {
                self.put(block, &bytes[index(from - offset)..index(to - offset)]);
                continue;
            }
            let mut now = self.bytes(block);
            now[index(from - block * BLOCK)..index(to - block * BLOCK)]
                .copy_from_slice(&bytes[index(from - offset)..index(to - offset)]);
            self.put(block, &now);
        }
        self.size = self.size.max(end);
    }

    fn zero(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> =
            self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).map(|(at, _)| *at).collect();
        let index = |position: u64| usize::try_from(position).expect("in memory");
        for block in touched {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            if to - from == BLOCK {
                self.blocks.remove(&block);
                continue;
            }
            let mut now = self.bytes(block);
            now[index(from - block * BLOCK)..index(to - block * BLOCK)].fill(0);
            self.put(block, &now);
        }
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(BLOCK));
        }
        self.size = size;
    }

    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.size);
        let mut bytes = Vec::new();
        let index = |position: u64| usize::try_from(position).expect("in memory");
        let mut at = offset;
        while at < end {
            let block = at / BLOCK;
            let to = end.min((block + 1) * BLOCK);
            bytes.extend(&self.bytes(block)[index(at - block * BLOCK)..index(to - block * BLOCK)]);
            at = to;
        }
        bytes
    }

    fn rehash(&mut self, ino: u64) {
        let size = if self.is_dir() { 0 } else { self.size };
        let nlink = if self.is_dir() { 0 } else { self.nlink };
        let mut hash = mix(mix(ino, size), mix(u64::from(self.perm), u64::from(nlink)));
        hash = mix(hash, u64::from(self.kind.format()));
        for (at, block) in &self.blocks {
            hash = mix(hash, mix(*at, block.hash));
        }
        for (name, value) in &self.xattrs {
            hash = mix(hash, mix(u64::from(*name) + 1_000_000, *value));
        }
        for (name, ino) in &self.entries {
            hash = mix(hash, mix(u64::from(*name) + 2_000_000, *ino));
        }
        self.hash = hash;
    }

    /// How another one differs, in words.
    fn difference(&self, other: &Self) -> String {
        let mut words = Vec::new();
        let mut note = |what: &str, one: String, two: String| {
            if one != two {
                words.push(format!("{what} {one}, not {two}"));
            }
        };
        note("size", self.size.to_string(), other.size.to_string());
        note("perm", self.perm.to_string(), other.perm.to_string());
        note("links", self.nlink.to_string(), other.nlink.to_string());
        note("xattrs", format!("{:?}", self.xattrs), format!("{:?}", other.xattrs));
        note("entries", format!("{:?}", self.entries), format!("{:?}", other.entries));
        for at in self.blocks.keys().chain(other.blocks.keys()) {
            let hash = |node: &Self| node.blocks.get(at).map_or(0, |block| block.hash);
            if hash(self) != hash(other) {
                words.push(format!("block {at} is {:x}, not {:x}", hash(self), hash(other)));
            }
        }
        words.truncate(6);
        words.join(", ")
    }
}

/// The whole tree, with what is held open.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    nodes: BTreeMap<u64, Arc<Node>>,
    pins: BTreeMap<u64, u32>,
    /// Of what has a name.
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
        state.put(ROOT, Node::new(FileKind::Directory, 0o755, 2));
        state
    }

    /// What a node adds to the two hashes.
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

    /// What a crash of the process leaves: nothing is held open.
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
        self.put(dir, node);
        Ok(())
    }

    fn leave(&mut self, dir: u64, name: u8) -> Result<u64, Refusal> {
        let mut node = self.dir(dir)?;
        let ino = node.entries.remove(&name).ok_or(Refusal)?;
        self.put(dir, node);
        Ok(ino)
    }

    fn drop_link(&mut self, ino: u64) -> Result<(), Refusal> {
        let mut node = self.node(ino)?;
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
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
        if matches!(how, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize) {
            node.zero(offset, offset + len);
        }
        if matches!(how, Allocate::Extend | Allocate::Zero) {
            node.size = node.size.max(offset + len);
        }
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
                let mut node = Node::new(kind, perm, nlink);
                node.size = if kind == FileKind::Symlink { 6 } else { 0 };
                self.put(made, node);
                self.enter(dir, name, made)?;
                Ok(Reply::Ino(made))
            }
            Op::Unnamed { dir } => {
                self.dir(dir)?;
                self.set_pins(made, 1);
                let linkable = true;
                self.put(made, Node { linkable, ..Node::new(FileKind::Regular, 0o644, 0) });
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

    /// Does what changes one inode.
    fn change_inode(&mut self, op: Op) -> Outcome {
        match op {
            Op::Write { ino, offset, len, tag, flags } => {
                let mut node = self.file(ino)?;
                let offset = if flags.contains(WriteFlags::APPEND) { node.size } else { offset };
                // What is written at an end that moves cannot depend on where that is.
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
            Op::Chmod { ino, perm } => {
                let mut node = self.node(ino)?;
                node.perm = perm;
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

    /// What an operation sees that changes nothing.
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
                Ok(Reply::Attr { size, nlink, perm: node.perm })
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
