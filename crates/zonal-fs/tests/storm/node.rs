//! The content of an inode: attributes, blocks, entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonal_fs::rules;
use zonal_fs::vfs::{Attr, FileKind, Timestamp};

use crate::model::Change;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// Blocks of a file that states share until one of them changes.
const CHUNK: u64 = 16;

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

/// The bytes that a write with this tag puts there. Tag 0 is zeroes.
pub(crate) fn content(tag: u64, offset: u64, len: u64) -> Vec<u8> {
    if tag == 0 {
        return vec![0; usize::try_from(len).expect("in memory")];
    }
    let words = offset / 8..(offset + len).div_ceil(8);
    let bytes: Vec<u8> = words.flat_map(|word| (mix(tag, word) | 1).to_le_bytes()).collect();
    let skip = usize::try_from(offset % 8).expect("below 8");
    bytes[skip..][..usize::try_from(len).expect("in memory")].to_vec()
}

/// A time that an operation has set, in seconds; 0 for one that the clock of the round gave.
pub(crate) fn set_time(time: Timestamp) -> u64 {
    u64::try_from(time.secs()).ok().filter(|seconds| *seconds < 1_000_000_000).unwrap_or(0)
}

/// A block of content that is not all zero.
#[derive(Clone, Debug)]
struct Block {
    bytes: Arc<[u8]>,
    hash: u64,
}

/// Attributes that are not counted from anything else. Of times, only the ones that calls set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: u64,
    pub(crate) mtime: u64,
}

impl Own {
    pub(crate) fn of(attr: &Attr) -> Self {
        let Attr { perm, uid, gid, .. } = *attr;
        Self { perm, uid, gid, atime: set_time(attr.atime), mtime: set_time(attr.mtime) }
    }
}

/// An inode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: FileKind,
    pub(crate) own: Own,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    chunks: BTreeMap<u64, Arc<BTreeMap<u64, Block>>>,
    /// Of the blocks.
    sum: u64,
    pub(crate) xattrs: BTreeMap<u8, u64>,
    pub(crate) entries: BTreeMap<u8, u64>,
    /// It was made without a name and can get one.
    pub(crate) linkable: bool,
    pub(crate) hash: u64,
}

impl Node {
    pub(crate) const fn new(kind: FileKind, own: Own, nlink: u32) -> Self {
        Self {
            kind,
            own,
            nlink,
            size: 0,
            chunks: BTreeMap::new(),
            sum: 0,
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            linkable: false,
            hash: 0,
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Sets attributes, as root does.
    pub(crate) fn change(&mut self, what: Change) {
        let Change { perm, owner, atime, mtime } = what;
        let own = &mut self.own;
        if let Some((uid, gid)) = owner {
            own.perm = rules::kill_privileges(self.kind, own.perm);
            (own.uid, own.gid) = (uid, gid);
        }
        own.perm = perm.unwrap_or(own.perm);
        own.atime = atime.map_or(own.atime, u64::from);
        own.mtime = mtime.map_or(own.mtime, u64::from);
    }

    fn get(&self, block: u64) -> Option<&Block> {
        self.chunks.get(&(block / CHUNK))?.get(&block)
    }

    fn set(&mut self, at: u64, block: Option<Block>) {
        let weight = |block: &Block| mix(at, block.hash);
        let before = self.get(at).map_or(0, weight);
        let now = block.as_ref().map_or(0, weight);
        self.sum = self.sum.wrapping_sub(before).wrapping_add(now);
        match block {
            Some(block) => {
                let chunk = self.chunks.entry(at / CHUNK).or_default();
                Arc::make_mut(chunk).insert(at, block);
            }
            None if before != 0 => {
                let chunk = self.chunks.entry(at / CHUNK).or_default();
                Arc::make_mut(chunk).remove(&at);
            }
            None => {}
        }
    }

    /// Puts a block there.
    pub(crate) fn put(&mut self, block: u64, bytes: &[u8]) {
        let hash = hash_of(bytes);
        self.set(block, (hash != 0).then(|| Block { bytes: bytes.into(), hash }));
    }

    pub(crate) fn bytes(&self, block: u64) -> Vec<u8> {
        let zeroes = || vec![0; usize::try_from(BLOCK).expect("small")];
        self.get(block).map_or_else(zeroes, |block| block.bytes.to_vec())
    }

    /// Blocks of a range that are not all zero.
    fn blocks(&self, blocks: std::ops::Range<u64>) -> Vec<u64> {
        let chunks = self.chunks.range(blocks.start / CHUNK..blocks.end.div_ceil(CHUNK));
        let all = chunks.flat_map(|(_, chunk)| chunk.keys().copied());
        all.filter(|block| blocks.contains(block)).collect()
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
        self.own.mtime = 0;
    }

    pub(crate) fn zero(&mut self, offset: u64, end: u64) {
        let index = |position: u64| usize::try_from(position).expect("in memory");
        for block in self.blocks(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = (offset.max(block * BLOCK), end.min((block + 1) * BLOCK));
            if to - from == BLOCK {
                self.set(block, None);
                continue;
            }
            let mut now = self.bytes(block);
            now[index(from - block * BLOCK)..index(to - block * BLOCK)].fill(0);
            self.put(block, &now);
        }
    }

    pub(crate) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size.next_multiple_of(BLOCK));
        }
        self.size = size;
        self.own.mtime = 0;
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

    pub(crate) fn rehash(&mut self, ino: u64) {
        let size = if self.is_dir() { 0 } else { self.size };
        let nlink = if self.is_dir() { 0 } else { self.nlink };
        let Own { perm, uid, gid, atime, mtime } = self.own;
        let mut hash = mix(mix(ino, size), mix(u64::from(perm), u64::from(nlink)));
        hash = mix(hash, mix(u64::from(self.kind.format()), self.sum));
        hash = mix(hash, mix(mix(uid.into(), gid.into()), mix(atime, mtime)));
        for (name, value) in &self.xattrs {
            hash = mix(hash, mix(u64::from(*name) + 1_000_000, *value));
        }
        for (name, ino) in &self.entries {
            hash = mix(hash, mix(u64::from(*name) + 2_000_000, *ino));
        }
        self.hash = hash;
    }

    /// How another one differs, in words.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut words = Vec::new();
        let mut note = |what: &str, one: String, two: String| {
            if one != two {
                words.push(format!("{what} {one}, not {two}"));
            }
        };
        note("size", self.size.to_string(), other.size.to_string());
        note("attributes", format!("{:?}", self.own), format!("{:?}", other.own));
        note("links", self.nlink.to_string(), other.nlink.to_string());
        note("xattrs", format!("{:?}", self.xattrs), format!("{:?}", other.xattrs));
        note("entries", format!("{:?}", self.entries), format!("{:?}", other.entries));
        for at in self.blocks(0..u64::MAX).into_iter().chain(other.blocks(0..u64::MAX)) {
            let hash = |node: &Self| node.get(at).map_or(0, |block| block.hash);
            if hash(self) != hash(other) {
                words.push(format!("block {at} is {:x}, not {:x}", hash(self), hash(other)));
            }
        }
        words.truncate(6);
        words.join(", ")
    }
}
