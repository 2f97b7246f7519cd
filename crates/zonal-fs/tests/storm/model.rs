//! What the tree may hold: states, what an operation makes of one, and all states that the answers allow.
//!
//! Operations that ran side by side took effect in some order between their beginnings and their ends. [`History`]
//! goes through all orders that explain every answer; where operations did not race there is one. A file system that
//! comes back after a cut must show one of these states, whole, not older than the last promise.

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

    fn write(&mut self, offset: u64, bytes: &[u8]) {
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

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
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
    hidden: u64,
}

/// Why an operation cannot be done.
struct Refusal;

type Outcome = Result<Reply, Refusal>;

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

    fn file(&self, ino: u64) -> Result<Node, Refusal> {
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
    fn forget_pins(&mut self) {
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
    fn perform(&mut self, op: Op, made: u64) -> Outcome {
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

/// Whether calls of the drive may fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Sound,
    Faulty,
}

/// An operation as it went.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) op: Op,
    pub(crate) reply: Option<Reply>,
    pub(crate) drive: Health,
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Begin(usize),
    End(usize),
    /// The process was killed, and this is what the next mount showed.
    Kill(State),
    /// A clean end and the next mount.
    Remount,
}

/// A state that some order of the operations leads to.
struct Place {
    state: State,
    /// How far operations under way have come, of those that have begun to take effect.
    progress: BTreeMap<usize, u64>,
    born: usize,
    died: usize,
    parents: Vec<usize>,
    leads_on: bool,
}

/// What a call that returned has promised.
#[derive(Clone, Copy)]
struct Promise {
    /// The event at which it returned.
    at: usize,
    /// That at which it began: what ended before is durable.
    since: usize,
    /// An operation that is durable as well.
    with: Option<usize>,
}

impl Promise {
    /// Whether a place keeps it.
    fn is_kept(&self, place: &Place) -> bool {
        place.died > self.at
            || (place.died > self.since
                && self.with.is_none_or(|with| place.progress.get(&with) == Some(&DONE)))
    }
}

/// So many states at once are too many.
const ALIVE_MAX: usize = 1500;

/// An operation that has taken effect completely.
const DONE: u64 = u64::MAX;

/// Everything that happened, with all that it may have meant.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
    /// With the number of changes of the drive before each.
    pub(crate) events: Vec<(usize, Event)>,
    places: Vec<Place>,
    promises: Vec<Promise>,
    /// There were too many orders to go through.
    pub(crate) is_vague: bool,
}

impl History {
    pub(crate) fn begin(&mut self, at: usize, op: Op, drive: Health) -> usize {
        self.records.push(Record { op, reply: None, drive });
        self.events.push((at, Event::Begin(self.records.len() - 1)));
        self.records.len() - 1
    }

    pub(crate) fn end(&mut self, at: usize, index: usize, reply: Reply, drive: Health) {
        self.records[index].reply = Some(reply);
        if drive == Health::Faulty {
            self.records[index].drive = drive;
        }
        self.events.push((at, Event::End(index)));
    }

    /// Goes through all orders. `Err`: the answers fit none.
    pub(crate) fn explain(&mut self) -> Result<(), String> {
        self.places = vec![Place {
            state: State::new(),
            progress: BTreeMap::new(),
            born: 0,
            died: usize::MAX,
            parents: Vec::new(),
            leads_on: false,
        }];
        let mut alive = vec![0];
        let mut begun: Vec<(usize, usize)> = Vec::new();
        for at in 0..self.events.len() {
            let event = self.events[at].1.clone();
            match event {
                Event::Begin(index) => {
                    begun.push((index, at));
                    self.expand(&mut alive, &begun, at);
                    if alive.len() > ALIVE_MAX {
                        self.is_vague = true;
                        return Ok(());
                    }
                }
                Event::End(index) => {
                    alive = self.settle(&alive, index, at);
                    if alive.is_empty() {
                        return Err(self.unexplained(&begun, index));
                    }
                    let since = begun.iter().find(|(of, _)| *of == index).map_or(at, |(_, at)| *at);
                    if self.records[index].promises() {
                        let is_write = matches!(self.records[index].op, Op::Write { .. });
                        let with = is_write.then_some(index);
                        self.promises.push(Promise { at, since, with });
                    }
                    begun.retain(|(of, _)| *of != index);
                }
                Event::Kill(found) => alive = self.kill(&found, at)?,
                Event::Remount => {
                    for place in &alive {
                        self.places[*place].state.forget_pins();
                    }
                    self.promises.push(Promise { at, since: at, with: None });
                }
            }
        }
        for place in alive {
            self.places[place].leads_on = true;
        }
        for place in (0..self.places.len()).rev() {
            if self.places[place].leads_on {
                for parent in self.places[place].parents.clone() {
                    self.places[parent].leads_on = true;
                }
            }
        }
        Ok(())
    }

    /// Lets operations that have begun take effect in every order.
    fn expand(&mut self, alive: &mut Vec<usize>, begun: &[(usize, usize)], at: usize) {
        let key = |place: &Place| (place.state.hash, place.state.hidden, place.progress.clone());
        let mut known: BTreeMap<_, usize> =
            alive.iter().map(|place| (key(&self.places[*place]), *place)).collect();
        let mut next = 0;
        while next < alive.len() {
            let from = alive[next];
            next += 1;
            for (index, _) in begun {
                for (state, progress) in self.steps(from, *index) {
                    let mut all = self.places[from].progress.clone();
                    all.insert(*index, progress);
                    let place = Place {
                        state,
                        progress: all,
                        born: at,
                        died: usize::MAX,
                        parents: vec![from],
                        leads_on: false,
                    };
                    if let Some(same) = known.get(&key(&place)) {
                        self.places[*same].parents.push(from);
                    } else {
                        known.insert(key(&place), self.places.len());
                        alive.push(self.places.len());
                        self.places.push(place);
                    }
                }
            }
        }
    }

    /// What the next step of an operation can make of a state, in accordance with its answer.
    fn steps(&self, from: usize, index: usize) -> Vec<(State, u64)> {
        let place = &self.places[from];
        let Record { op, ref reply, drive } = self.records[index];
        let progress = place.progress.get(&index).copied().unwrap_or(0);
        if progress == DONE {
            return Vec::new();
        }
        if let Op::Copy { .. } = op {
            return copy_steps(&place.state, op, reply.as_ref(), progress);
        }
        let mut state = place.state.clone();
        let made = if let Some(Reply::Ino(made)) = reply { *made } else { 0 };
        let outcome = state.perform(op, made);
        let before = (place.state.clone(), DONE);
        match (outcome, reply) {
            // Its end was never seen, or names came and went while they were listed.
            (Ok(_), None) | (Ok(Reply::Names(_)), Some(Reply::Done)) => vec![(state, DONE)],
            (Ok(outcome), Some(reply)) if outcome == *reply => vec![(state, DONE)],
            // It has failed, before or after it took effect.
            (Ok(_), Some(Reply::Full | Reply::Broken(_))) if drive == Health::Faulty => {
                vec![before, (state, DONE)]
            }
            (Err(Refusal), Some(Reply::Refused(_))) | (_, Some(Reply::Full | Reply::Broken(_))) => {
                vec![before]
            }
            _ => Vec::new(),
        }
    }

    /// Keeps the states in which an operation that ends has taken effect.
    fn settle(&mut self, alive: &[usize], index: usize, at: usize) -> Vec<usize> {
        let mut kept = Vec::new();
        for &place in alive {
            if self.places[place].progress.get(&index) == Some(&DONE) {
                self.places[place].progress.remove(&index);
                kept.push(place);
            } else {
                self.places[place].died = at;
            }
        }
        kept
    }

    fn unexplained(&self, begun: &[(usize, usize)], index: usize) -> String {
        let racing = begun.iter().map(|(of, _)| format!("{:?}", self.records[*of]));
        format!(
            "no order explains the answer to {:?}; it ran beside\n    {}",
            self.records[index],
            racing.collect::<Vec<_>>().join("\n    ")
        )
    }

    /// After a kill the tree is what it was at some moment after the last promise.
    fn kill(&mut self, found: &State, at: usize) -> Result<Vec<usize>, String> {
        let is_it = |place: &Place| {
            place.state.hash == found.hash
                && self.promises.iter().all(|promise| promise.is_kept(place))
        };
        let parents: Vec<usize> =
            (0..self.places.len()).filter(|place| is_it(&self.places[*place])).collect();
        let Some(parent) = parents.first() else {
            let near = self.places.iter().rev().take(3);
            let near = near.filter_map(|place| found.difference(&place.state));
            let near = near.collect::<Vec<_>>().join("\n    ");
            return Err(format!("a kill leaves what never was; from the newest on:\n    {near}"));
        };
        let mut state = self.places[*parent].state.clone();
        state.forget_pins();
        for place in &mut self.places {
            place.died = place.died.min(at);
        }
        self.places.push(Place {
            state,
            progress: BTreeMap::new(),
            born: at,
            died: usize::MAX,
            parents,
            leads_on: false,
        });
        Ok(vec![self.places.len() - 1])
    }

    /// Whether a cut after so many changes of the drive may leave this; else how it differs.
    pub(crate) fn check(&self, cut: usize, found: &State) -> Result<(), String> {
        if self.is_vague {
            return Ok(());
        }
        let limit = self.events.partition_point(|(at, _)| *at <= cut);
        let promises: Vec<Promise> =
            self.promises.iter().filter(|promise| promise.at < limit).copied().collect();
        let promised = promises.iter().map(|promise| promise.since).max().unwrap_or(0);
        let is_legal = |place: &&Place| {
            place.leads_on
                && place.born < limit
                && promises.iter().all(|promise| promise.is_kept(place))
        };
        let legal: Vec<&Place> = self.places.iter().filter(is_legal).collect();
        if legal.iter().any(|place| place.state.hash == found.hash) {
            return Ok(());
        }
        let mut near: Vec<String> = legal
            .iter()
            .map(|place| {
                let what = found.difference(&place.state).unwrap_or_else(|| "nothing?".into());
                format!("event {}: {what}", place.born)
            })
            .collect();
        near.sort_by_key(String::len);
        near.truncate(3);
        let near = near.join("\n    ");
        let events = self.events[promised..limit].iter().map(|(at, event)| match event {
            Event::Begin(index) => format!("{at}: begin {index} {:?}", self.records[*index].op),
            Event::End(index) => format!("{at}: end {index} {:?}", self.records[*index].reply),
            Event::Kill(_) => format!("{at}: kill"),
            Event::Remount => format!("{at}: remount"),
        });
        let events: Vec<String> = events.collect();
        let events = events[events.len().saturating_sub(60)..].join("\n      ");
        Err(format!(
            "it is none of {} states that may be there; found, then each from the nearest on:\n    \
             {near}\n  since the last promise:\n      {events}",
            legal.len()
        ))
    }

    /// What the tree may be now, when nothing is lost.
    pub(crate) fn is_now(&self, found: &State) -> Result<(), String> {
        let alive = self.places.iter().filter(|place| place.died == usize::MAX);
        if self.is_vague {
            return Ok(());
        }
        let mut near = String::new();
        for place in alive {
            if place.state.hash == found.hash {
                return Ok(());
            }
            near = found.difference(&place.state).unwrap_or_default();
        }
        Err(format!("the tree is not what the operations made of it: {near}"))
    }
}

impl Record {
    /// Whether what was done before is durable.
    fn promises(&self) -> bool {
        let durable = match self.op {
            Op::Sync | Op::Fsync { .. } => true,
            Op::Write { flags, .. } => flags.contains(WriteFlags::DURABLE),
            _ => false,
        };
        durable && matches!(self.reply, Some(Reply::Done | Reply::At(_)))
    }
}

/// A copy takes effect block by block. First it finds out how much there is.
fn copy_steps(state: &State, op: Op, reply: Option<&Reply>, progress: u64) -> Vec<(State, u64)> {
    let Op::Copy { source, from, target, to, len } = op else { return Vec::new() };
    let ended = |reply: &Reply| matches!(reply, Reply::Full | Reply::Broken(_));
    let (Ok(source_node), Ok(target_node)) = (state.file(source), state.file(target)) else {
        let refused = matches!(reply, Some(Reply::Refused(_))) || reply.is_some_and(ended);
        return if refused { vec![(state.clone(), DONE)] } else { Vec::new() };
    };
    let mut steps = Vec::new();
    let whole = match reply {
        Some(Reply::At(copied)) => *copied,
        Some(reply) if ended(reply) => {
            steps.push((state.clone(), DONE));
            len
        }
        // In the middle a file may be deleted.
        _ => len.min(source_node.size.saturating_sub(from)),
    };
    let at = if progress == 0 {
        // It ends early where the source ends, or at what fails when a part is done.
        if whole == 0 && source_node.size > from {
            return steps;
        }
        0
    } else {
        progress - 1
    };
    if at >= whole {
        if matches!(reply, Some(Reply::At(_)) | None) {
            steps.push((state.clone(), DONE));
        }
        return steps;
    }
    let end = (at + BLOCK).min(whole);
    if source_node.size < from + end {
        return steps;
    }
    let bytes = source_node.read(from + at, end - at);
    let mut node = target_node;
    if source == target {
        node = source_node;
    }
    node.write(to + at, &bytes);
    let mut next = state.clone();
    next.put(target, node);
    let is_over = end == whole && matches!(reply, Some(Reply::At(_)) | None);
    steps.push((next, if is_over { DONE } else { end + 1 }));
    steps
}
