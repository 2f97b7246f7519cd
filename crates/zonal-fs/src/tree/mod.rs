//! A file system in memory that is obviously right rather than fast: the reference that others are
//! compared with, and a stand-in where a front end is tested without a drive.
//!
//! One lock, plain maps, no limit but memory. [`snapshot()`] tells all that can be seen of any
//! [`FileSystem`]; two are equal when their snapshots are.

mod content;
mod ops;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::Clock;

use crate::vfs::{
    Attr, Caller, FileKind, FileSystem, Ino, InodeFlags, NewInode, Result, Timestamp,
};
use crate::{FsError, protect, rules};

use content::Content;
pub use snapshot::{Node, NodeAttr, Snapshot, snapshot};

/// The reference file system. A clone is a copy of everything, pins included.
pub struct Tree {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl Tree {
    /// An empty file system whose root belongs to the superuser, with mode 755.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let now = Timestamp::from_ns(clock.wall_ns());
        let root = rules::InitialAttrs { perm: 0o755, uid: 0, gid: 0, xattrs: Vec::new() };
        let body = Body::Directory(Directory::new(Ino::ROOT));
        let root = Inode::new(Ino::ROOT, FileKind::Directory, &root, body, now);
        let state =
            State { inodes: BTreeMap::from([(Ino::ROOT, root)]), last_ino: Ino::ROOT.get() };
        Self { state: Mutex::new(state), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.clock.wall_ns())
    }
}

impl Clone for Tree {
    fn clone(&self) -> Self {
        Self { state: Mutex::new(self.state().clone()), clock: Arc::clone(&self.clock) }
    }
}

#[derive(Clone)]
struct State {
    inodes: BTreeMap<Ino, Inode>,
    last_ino: u64,
}

#[derive(Clone)]
struct Inode {
    attr: Attr,
    body: Body,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pins: u64,
    /// Created without a name, and without one still.
    is_unnamed: bool,
}

#[derive(Clone)]
enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Vec<u8>),
    Node,
}

#[derive(Clone)]
struct Directory {
    parent: Ino,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Names by cookie. A cookie is never used twice, so listing goes on where it stopped.
    cookies: BTreeMap<u64, Vec<u8>>,
    last_cookie: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    ino: Ino,
    cookie: u64,
}

impl Directory {
    /// `.` and `..` have cookies 1 and 2.
    const DOT_DOT_COOKIE: u64 = 2;

    fn new(parent: Ino) -> Self {
        let last_cookie = Self::DOT_DOT_COOKIE;
        Self { parent, entries: BTreeMap::new(), cookies: BTreeMap::new(), last_cookie }
    }

    fn insert(&mut self, name: &[u8], ino: Ino) {
        self.last_cookie += 1;
        let entry = Entry { ino, cookie: self.last_cookie };
        let old = self.entries.insert(name.to_vec(), entry);
        assert!(old.is_none(), "the name was free");
        self.cookies.insert(entry.cookie, name.to_vec());
    }

    fn remove(&mut self, name: &[u8]) {
        let entry = self.entries.remove(name).expect("the name was found");
        self.cookies.remove(&entry.cookie);
    }
}

impl Inode {
    fn new(
        ino: Ino,
        kind: FileKind,
        initial: &rules::InitialAttrs,
        body: Body,
        now: Timestamp,
    ) -> Self {
        let attr = Attr {
            ino,
            kind,
            perm: initial.perm,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid: initial.uid,
            gid: initial.gid,
            rdev: 0,
            size: if let Body::Symlink(target) = &body { target.len() as u64 } else { 0 },
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: InodeFlags::empty(),
        };
        let given = initial.xattrs.iter();
        let xattrs = given.map(|(name, value)| (name.to_vec(), value.clone())).collect();
        Self { attr, body, xattrs, pins: 0, is_unnamed: false }
    }

    fn put_xattr(&mut self, name: &[u8], value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.xattrs.insert(name.to_vec(), value),
            None => self.xattrs.remove(name),
        };
    }

    fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Node => Err(FsError::NotDirectory),
        }
    }

    fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::File(_) | Body::Symlink(_) | Body::Node => Err(FsError::NotDirectory),
        }
    }

    fn content(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Node => Err(FsError::Invalid { what: "not a regular file" }),
        }
    }

    fn content_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FsError::IsDirectory),
            Body::Symlink(_) | Body::Node => Err(FsError::Invalid { what: "not a regular file" }),
        }
    }

    /// After the content changed, or the entries of a directory.
    fn changed(&mut self, now: Timestamp) {
        self.resized();
        self.touch(now);
    }

    /// Tells the size and the space of the content.
    fn resized(&mut self) {
        if let Body::File(content) = &self.body {
            self.attr.size = content.size();
            self.attr.blocks = content.allocated() / 512;
        }
    }

    fn touch(&mut self, now: Timestamp) {
        self.attr.mtime = now;
        self.attr.ctime = now;
    }
}

impl State {
    fn inode(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(FsError::NotFound)
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(FsError::NotFound)
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        let directory = self.inode(parent)?.directory()?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(directory.parent),
            _ if name.len() > crate::vfs::NAME_MAX => Err(FsError::NameTooLong),
            _ => directory.entries.get(name).map(|entry| entry.ino).ok_or(FsError::NotFound),
        }
    }

    /// Checks that `name` can be entered in `parent`: a directory that has not been removed.
    fn check_new(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let inode = self.inode(parent)?;
        let directory = inode.directory()?;
        rules::check_name(name)?;
        if directory.entries.contains_key(name) {
            return Err(FsError::Exists);
        }
        if inode.attr.nlink == 0 { Err(FsError::NotFound) } else { Ok(()) }
    }

    /// Enters `ino` in `parent` under a free name. A directory's `..` follows.
    fn enter(&mut self, parent: Ino, name: &[u8], ino: Ino, now: Timestamp) -> Result<()> {
        let child = self.inode_mut(ino)?;
        let is_directory = child.attr.kind == FileKind::Directory;
        if let Body::Directory(directory) = &mut child.body {
            directory.parent = parent;
        }
        let inode = self.inode_mut(parent)?;
        inode.directory_mut()?.insert(name, ino);
        inode.attr.nlink += u32::from(is_directory);
        inode.changed(now);
        Ok(())
    }

    /// Removes an entry from `parent`; its inode keeps its links.
    fn leave(&mut self, parent: Ino, name: &[u8], now: Timestamp) -> Result<Ino> {
        let ino = self.find(parent, name)?;
        let is_directory = self.inode(ino)?.attr.kind == FileKind::Directory;
        let inode = self.inode_mut(parent)?;
        inode.directory_mut()?.remove(name);
        inode.attr.nlink -= u32::from(is_directory);
        inode.changed(now);
        Ok(ino)
    }

    /// Takes one link from `ino`, all from a directory, and deletes it unless it is held.
    fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<()> {
        let inode = self.inode_mut(ino)?;
        let is_directory = inode.attr.kind == FileKind::Directory;
        inode.attr.nlink = if is_directory { 0 } else { inode.attr.nlink - 1 };
        inode.attr.ctime = now;
        self.delete_if_unused(ino);
        Ok(())
    }

    /// Whether the flags of a directory and of an entry's inode let the entry go.
    fn check_removal(&self, parent: Ino, ino: Ino) -> Result<()> {
        protect::check_removal(self.inode(parent)?.attr.flags, self.inode(ino)?.attr.flags)
    }

    /// Makes an inode as `create` does, with no entry for it yet.
    fn make_inode(
        &mut self,
        caller: &Caller,
        parent: Ino,
        new: &NewInode<'_>,
        now: Timestamp,
    ) -> Result<&mut Inode> {
        let directory = self.inode(parent)?.attr.flags;
        protect::check_entry(directory)?;
        let body = match new.kind {
            FileKind::Regular => Body::File(Content::default()),
            FileKind::Directory => Body::Directory(Directory::new(parent)),
            FileKind::Symlink => {
                rules::check_symlink(new.target)?;
                Body::Symlink(new.target.to_vec())
            }
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Body::Node
            }
        };
        let initial = self.initial(caller, parent, new.kind, new.perm)?;
        self.last_ino += 1;
        let ino = Ino::new(self.last_ino);
        let mut inode = Inode::new(ino, new.kind, &initial, body, now);
        if matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            inode.attr.rdev = new.rdev;
        }
        if matches!(new.kind, FileKind::Regular | FileKind::Directory) {
            inode.attr.flags = directory & InodeFlags::INHERITED;
        }
        Ok(self.inodes.entry(ino).or_insert(inode))
    }

    fn enter_whiteout(&mut self, parent: Ino, name: &[u8], now: Timestamp) -> Result<()> {
        let initial = rules::InitialAttrs { perm: 0, uid: 0, gid: 0, xattrs: Vec::new() };
        self.last_ino += 1;
        let ino = Ino::new(self.last_ino);
        let whiteout = Inode::new(ino, FileKind::CharDevice, &initial, Body::Node, now);
        self.inodes.insert(ino, whiteout);
        self.enter(parent, name, ino, now)
    }

    fn delete_if_unused(&mut self, ino: Ino) {
        let unused = |inode: &Inode| inode.attr.nlink == 0 && inode.pins == 0;
        if self.inodes.get(&ino).is_some_and(unused) {
            self.inodes.remove(&ino);
        }
    }

    /// Whether `ino` is `directory` or above it.
    fn is_above(&self, ino: Ino, mut directory: Ino) -> Result<bool> {
        loop {
            if directory == ino {
                return Ok(true);
            }
            let parent = self.inode(directory)?.directory()?.parent;
            if parent == directory {
                return Ok(false);
            }
            directory = parent;
        }
    }

    fn rename_target(&self, source: Ino, target: Option<Ino>) -> Result<rules::RenameTarget> {
        let Some(target) = target else { return Ok(rules::RenameTarget::Free) };
        if target == source {
            return Ok(rules::RenameTarget::SameInode);
        }
        Ok(match &self.inode(target)?.body {
            Body::Directory(directory) if directory.entries.is_empty() => {
                rules::RenameTarget::EmptyDirectory
            }
            Body::Directory(_) => rules::RenameTarget::FullDirectory,
            Body::File(_) | Body::Symlink(_) | Body::Node => rules::RenameTarget::NotDirectory,
        })
    }

    fn initial(
        &self,
        caller: &Caller,
        parent: Ino,
        kind: FileKind,
        perm: u16,
    ) -> Result<rules::InitialAttrs> {
        let parent = self.inode(parent)?;
        let xattr = |name: &[u8]| parent.xattrs.get(name).map(Vec::as_slice);
        rules::new_inode(caller, &parent.attr, xattr, kind, perm)
    }
}

/// The reference is a file system like any other: see [`FileSystem`].
const _: fn(Tree) -> Box<dyn FileSystem> = |tree| Box::new(tree);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{NewInode, RenameFlags, SetAttr, WriteFlags};
    use zonal::ManualClock;

    fn tree() -> Tree {
        Tree::new(Arc::new(ManualClock::new(1_000)))
    }

    fn make(tree: &Tree, parent: Ino, name: &[u8], kind: FileKind) -> Ino {
        let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"t" };
        tree.create(&Caller::ROOT, parent, name, &new).unwrap().ino
    }

    #[test]
    fn tree_keeps_pinned_file() {
        let tree = tree();
        let file = make(&tree, Ino::ROOT, b"a", FileKind::Regular);
        tree.pin(file).unwrap();
        tree.write(file, 3, b"abc", WriteFlags::empty()).unwrap();
        tree.unlink(Ino::ROOT, b"a").unwrap();
        assert_eq!(tree.getattr(file).unwrap().nlink, 0);
        let mut buffer = [9; 8];
        assert_eq!(tree.read(file, 1, &mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"\0\0abc");
        tree.unpin(file);
        assert!(matches!(tree.getattr(file), Err(FsError::NotFound)));
    }

    #[test]
    fn tree_refuses_directory_below_itself() {
        let tree = tree();
        let a = make(&tree, Ino::ROOT, b"a", FileKind::Directory);
        let b = make(&tree, a, b"b", FileKind::Directory);
        let error = tree.rename((Ino::ROOT, b"a"), (b, b"c"), RenameFlags::empty()).unwrap_err();
        assert!(matches!(error, FsError::Invalid { .. }));
        make(&tree, Ino::ROOT, b"f", FileKind::Regular);
        tree.rename((a, b"b"), (Ino::ROOT, b"f"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(tree.lookup(Ino::ROOT, b"f").unwrap().ino, b);
        assert_eq!(tree.lookup(b, b"..").unwrap().ino, Ino::ROOT);
        assert_eq!(tree.getattr(Ino::ROOT).unwrap().nlink, 4);
        assert_eq!(tree.getattr(a).unwrap().nlink, 2);
    }

    #[test]
    fn tree_snapshots_report_differences() {
        let first = tree();
        let file = make(&first, Ino::ROOT, b"a", FileKind::Regular);
        first.link(file, Ino::ROOT, b"b").unwrap();
        first.write(file, 1 << 62, b"end", WriteFlags::empty()).unwrap();
        let second = first.clone();
        let before = snapshot(&first).unwrap();
        assert_eq!(before.first_difference(&snapshot(&second).unwrap()), None);
        first.write(file, 1 << 62, b"End", WriteFlags::empty()).unwrap();
        let difference = before.first_difference(&snapshot(&first).unwrap());
        assert!(difference.unwrap().starts_with("/a: attributes"), "the times");
        let attr = first.getattr(file).unwrap();
        let times =
            SetAttr { mtime: Some(crate::vfs::SetTime::To(attr.btime)), ..SetAttr::default() };
        for tree in [&first, &second] {
            tree.setattr(&Caller::ROOT, file, &times).unwrap();
            tree.state().inode_mut(file).unwrap().attr.ctime = attr.ctime;
        }
        let (first, second) = (snapshot(&first).unwrap(), snapshot(&second).unwrap());
        let difference = first.first_difference(&second).unwrap();
        assert_eq!(
            difference,
            format!("/a: 1 chunks of 4096 bytes differ, the first at Some({})", 1u64 << 62)
        );
    }
}
