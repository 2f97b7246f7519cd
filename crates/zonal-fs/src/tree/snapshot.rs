//! Everything a program can see of a file system, in a form that can be compared: walked through
//! [`FileSystem`], so the same function serves every implementation.
//!
//! Left out, because implementations may differ: inode numbers (hard links are told by the first
//! path), access times, allocated space, the size of directories, where holes are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::FsError;
use crate::vfs::{Attr, FileKind, FileSystem, Ino, InodeFlags, Listing, Result, Seek, Timestamp};
use zonal::crc32c;

/// Bytes that are hashed together.
const CHUNK: usize = 4096;

/// Bytes that are read at once, at most.
const BUFFER: u64 = 64 * CHUNK as u64;

/// The visible part of one inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The first path, in walking order, that leads to it.
    pub first_path: String,
    /// Attributes that implementations must agree on.
    pub attr: NodeAttr,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// CRC-32C of each chunk of content that is not all zero, by offset.
    pub data: BTreeMap<u64, u32>,
}

/// The comparable part of [`Attr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of Attr")]
pub struct NodeAttr {
    pub kind: FileKind,
    pub perm: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub flags: InodeFlags,
}

impl From<Attr> for NodeAttr {
    fn from(attr: Attr) -> Self {
        Self {
            kind: attr.kind,
            perm: attr.perm,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: if attr.kind == FileKind::Directory { 0 } else { attr.size },
            mtime: attr.mtime,
            ctime: attr.ctime,
            btime: attr.btime,
            flags: attr.flags,
        }
    }
}

/// Everything visible, by path; the root is `/`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    nodes: BTreeMap<String, Node>,
}

/// Takes a snapshot. Fails where anything cannot be read.
pub fn snapshot(fs: &dyn FileSystem) -> Result<Snapshot> {
    let mut walk = Walk { fs, snapshot: Snapshot::default(), first_paths: BTreeMap::new() };
    walk.enter(fs.getattr(Ino::ROOT)?, "/".into())?;
    Ok(walk.snapshot)
}

struct Walk<'a> {
    fs: &'a dyn FileSystem,
    snapshot: Snapshot,
    first_paths: BTreeMap<Ino, String>,
}

impl Walk<'_> {
    fn enter(&mut self, attr: Attr, path: String) -> Result<()> {
        if let Some(first) = self.first_paths.get(&attr.ino) {
            let node = self.snapshot.nodes[first].clone();
            self.snapshot.nodes.insert(path, node);
            return Ok(());
        }
        self.first_paths.insert(attr.ino, path.clone());
        let mut node = Node {
            first_path: path.clone(),
            attr: attr.into(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            data: BTreeMap::new(),
        };
        for name in self.fs.listxattr(attr.ino)? {
            let value = self.fs.getxattr(attr.ino, &name)?;
            node.xattrs.insert(name, value);
        }
        match attr.kind {
            FileKind::Regular => node.data = hash_data(self.fs, attr.ino, attr.size)?,
            FileKind::Symlink => node.target = self.fs.readlink(attr.ino)?,
            FileKind::Directory => self.enter_directory(attr.ino, &path)?,
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {}
        }
        self.snapshot.nodes.insert(path, node);
        Ok(())
    }

    fn enter_directory(&mut self, ino: Ino, path: &str) -> Result<()> {
        let mut names = Vec::new();
        self.fs.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            Listing::More
        })?;
        names.sort();
        for (name, child, kind) in names {
            let attr = self.fs.lookup(ino, &name)?;
            if (attr.ino, attr.kind) != (child, kind) {
                let why =
                    format!("{}: listed as {child}, found as {}", name.escape_ascii(), attr.ino);
                return Err(FsError::Corrupt { what: "directory", why });
            }
            let slash = if path == "/" { "" } else { "/" };
            self.enter(attr, format!("{path}{slash}{}", name.escape_ascii()))?;
        }
        Ok(())
    }
}

/// Hashes the chunks that are not all zero, and jumps over holes.
fn hash_data(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<BTreeMap<u64, u32>> {
    let mut data = BTreeMap::new();
    let chunks = size.min(BUFFER).next_multiple_of(CHUNK as u64);
    let mut buffer = vec![0; usize::try_from(chunks).expect("below the limit")];
    let mut offset = 0;
    while offset < size {
        let start = match fs.seek(ino, Seek::Data, offset) {
            Ok(start) => start / CHUNK as u64 * CHUNK as u64,
            Err(FsError::SeekBeyondEnd) => break,
            Err(error) => return Err(error),
        };
        offset = offset.max(start);
        let len = fs.read(ino, offset, &mut buffer)?;
        if len == 0 {
            let why = format!("inode {ino}: no data at {offset} of {size}");
            return Err(FsError::Corrupt { what: "file", why });
        }
        for (index, chunk) in buffer[..len].chunks(CHUNK).enumerate() {
            if chunk.iter().any(|&byte| byte != 0) {
                data.insert(offset + (index * CHUNK) as u64, crc32c::crc32c(chunk));
            }
        }
        offset += len as u64;
    }
    Ok(data)
}

impl Snapshot {
    /// The inodes by path.
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// How many inodes there are: hard links count once.
    pub fn inode_count(&self) -> u64 {
        self.nodes.iter().filter(|(path, node)| **path == node.first_path).count() as u64
    }

    /// The first difference, in words; `None` where both are equal.
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        for (path, ours) in &self.nodes {
            match other.nodes.get(path) {
                None => return Some(format!("{path}: only in the first")),
                Some(theirs) if ours != theirs => {
                    return Some(format!("{path}: {}", node_difference(ours, theirs)));
                }
                Some(_) => {}
            }
        }
        let extra = other.nodes.keys().find(|path| !self.nodes.contains_key(*path));
        extra.map(|path| format!("{path}: only in the second"))
    }
}

fn node_difference(ours: &Node, theirs: &Node) -> String {
    if ours.attr != theirs.attr {
        return format!("attributes {:?} and {:?}", ours.attr, theirs.attr);
    }
    if ours.first_path != theirs.first_path {
        return format!("a link of {} and of {}", ours.first_path, theirs.first_path);
    }
    if ours.target != theirs.target {
        let (ours, theirs) = (ours.target.escape_ascii(), theirs.target.escape_ascii());
        return format!("target {ours} and {theirs}");
    }
    let name = ours.xattrs.keys().chain(theirs.xattrs.keys());
    let mut name = name.filter(|name| ours.xattrs.get(*name) != theirs.xattrs.get(*name));
    if let Some(name) = name.next() {
        let (ours, theirs) = (ours.xattrs.get(name), theirs.xattrs.get(name));
        return format!("attribute {}: {ours:?} and {theirs:?}", name.escape_ascii());
    }
    let offsets = ours.data.keys().chain(theirs.data.keys()).copied();
    let offsets: BTreeSet<u64> =
        offsets.filter(|at| ours.data.get(at) != theirs.data.get(at)).collect();
    format!("{} chunks of {CHUNK} bytes differ, the first at {:?}", offsets.len(), offsets.first())
}

/// Prints the tree, one inode a line.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, node) in &self.nodes {
            let NodeAttr { kind, perm, nlink, size, .. } = node.attr;
            writeln!(f, "{path}: {kind:?} {perm:o} links {nlink} size {size} {:x?}", node.data)?;
        }
        Ok(())
    }
}
