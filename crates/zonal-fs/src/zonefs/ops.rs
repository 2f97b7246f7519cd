//! [`FileSystem`] for [`ZoneFs`].
//!
//! Names are fixed. As in Linux, creating a name fails with ENOENT and removing one with EPERM.

use std::sync::MutexGuard;
use std::sync::PoisonError;

use super::ZoneFs;
use super::file::{Group, Health, Held, Owned, ZoneFile};
use super::io::Alignment;
use super::tree::{NAME_MAX, TreeNode};
use crate::FsError;
use crate::vfs::{
    Access, Allocate, Attr, Caller, DirEntry, FileExtent, FileKind, FileModel, FileSystem, Ino,
    InodeFlags, Listing, NewInode, OpenFor, ReadFlags, Remains, RenameFlags, Result, Seek, SetAttr,
    SetTime, StatFs, SyncKind, Timestamp, WriteFlags, Written, XattrMode,
};

/// Unit of `st_blocks`, in bytes.
const STAT_BLOCK: u64 = 512;

const FIXED: FsError = FsError::NotPermitted { what: "the files of zonefs are fixed" };
const NO_XATTR: FsError = FsError::Unsupported { what: "extended attributes in zonefs" };

impl FileSystem for ZoneFs {
    fn model(&self, ino: Ino) -> FileModel {
        match self.tree.file(ino).map(|file| file.group) {
            Ok(Group::Conventional) => FileModel::Posix,
            Ok(Group::Sequential) | Err(_) => FileModel::Zones,
        }
    }

    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn access(&self) -> Access {
        self.access.get()
    }

    fn path(&self, ino: Ino) -> Option<String> {
        match self.tree.node(ino).ok()? {
            TreeNode::Root => Some("/".to_owned()),
            TreeNode::Group(group) => Some(format!("/{}", group.name())),
            TreeNode::File(file) => Some(self.tree.path(file)),
        }
    }

    fn open(&self, ino: Ino, purpose: OpenFor) -> Result<()> {
        match self.tree.node(ino)? {
            TreeNode::File(file) => self.open_file(file, purpose),
            TreeNode::Root | TreeNode::Group(_) => Ok(()),
        }
    }

    fn close(&self, ino: Ino, purpose: OpenFor) {
        if let Ok(TreeNode::File(file)) = self.tree.node(ino) {
            self.close_file(file, purpose);
        }
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.getattr(self.tree.lookup(parent, name)?)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(match self.tree.node(ino)? {
            TreeNode::File(file) => file_attr(file),
            node => self.directory_attr(ino, &node),
        })
    }

    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if self.access.get() == Access::ReadOnly {
            return Err(FsError::ReadOnly);
        }
        if set.flags.is_some() {
            return Err(FsError::Unsupported { what: "inode flags in zonefs" });
        }
        let node = self.tree.node(ino)?;
        let perm = crate::rules::perm_after(caller, &self.getattr(ino)?, set);
        match &node {
            TreeNode::File(file) => {
                if file.health() != Health::Good {
                    return Err(FsError::NotPermitted { what: "the zone is read-only or offline" });
                }
                if let Some(size) = set.size {
                    self.truncate(file, size)?;
                }
            }
            TreeNode::Root | TreeNode::Group(_) if set.size.is_some() => {
                return Err(FsError::IsDirectory);
            }
            TreeNode::Root | TreeNode::Group(_)
                if set.perm.is_some_and(|perm| perm & 0o222 != 0) =>
            {
                let what = "nothing can be made in the directories of zonefs";
                return Err(FsError::NotPermitted { what });
            }
            TreeNode::Root | TreeNode::Group(_) => {}
        }
        let now = Timestamp::from_ns(self.clock.wall_ns());
        change(&mut self.owned(&node), perm, set, now);
        self.getattr(ino)
    }

    fn readlink(&self, _: Ino) -> Result<Vec<u8>> {
        Err(FsError::Invalid { what: "not a symbolic link" })
    }

    fn create(&self, _: &Caller, parent: Ino, name: &[u8], _: &NewInode<'_>) -> Result<Attr> {
        self.tree.lookup(parent, name)?;
        Err(FsError::Exists)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.refuse_change(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.refuse_change(parent, name)
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), _: RenameFlags) -> Result<()> {
        self.tree.lookup(source.0, source.1)?;
        self.refuse_change(target.0, target.1)
    }

    fn link(&self, _: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.tree.lookup(parent, name)?;
        Err(FsError::Exists)
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        self.tree.node(ino).map(drop)
    }

    fn unpin(&self, _: Ino) {}

    /// Reads. It never moves the access time.
    fn read_with(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize> {
        let is_direct = flags.contains(ReadFlags::DIRECT);
        let alignment = if is_direct { Alignment::Blocks } else { Alignment::Any };
        self.read_file(self.tree.file(ino)?, offset, buffer, alignment)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        self.write_file(self.tree.file(ino)?, offset, data, flags)
    }

    fn fsync(&self, ino: Ino, _: SyncKind) -> Result<()> {
        match self.tree.node(ino)? {
            TreeNode::File(file) if file.health() != Health::Good => {
                Err(FsError::NotPermitted { what: "the zone is read-only or offline" })
            }
            TreeNode::File(_) => self.sync(),
            TreeNode::Root | TreeNode::Group(_) => {
                Err(FsError::Invalid { what: "directories of zonefs are not stored" })
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.flush()
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        _: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let node = self.tree.node(ino)?;
        if matches!(node, TreeNode::File(_)) {
            return Err(FsError::NotDirectory);
        }
        let groups: Vec<Group> = self.tree.groups().collect();
        let mut at = cookie;
        loop {
            let index = usize::try_from(at).unwrap_or(usize::MAX);
            let entry = match (index, &node) {
                (0, _) => Some((ino, FileKind::Directory, ".".to_owned())),
                (1, _) => Some((self.tree.root(), FileKind::Directory, "..".to_owned())),
                (_, TreeNode::Root) => groups.get(index - 2).map(|group| {
                    (self.tree.directory(*group), FileKind::Directory, group.name().to_owned())
                }),
                (_, TreeNode::Group(group)) => self
                    .tree
                    .files_of(*group)
                    .get(index - 2)
                    .map(|file| (file.ino(), FileKind::Regular, (index - 2).to_string())),
                (_, TreeNode::File(_)) => None,
            };
            let Some((ino, kind, name)) = entry else { return Ok(()) };
            at += 1;
            if each(DirEntry { ino, kind, name: name.as_bytes(), cookie: at }) == Listing::Enough {
                return Ok(());
            }
        }
    }

    fn fallocate(&self, _: Ino, _: Allocate, _: u64, _: u64) -> Result<()> {
        Err(FsError::Unsupported { what: "allocating space in zonefs" })
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        let size = self.tree.file(ino)?.size();
        match what {
            _ if offset >= size => Err(FsError::SeekBeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn extents(
        &self,
        start: (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        let mut files: Vec<&ZoneFile> = self.tree.files().iter().collect();
        files.sort_unstable_by_key(|file| file.ino());
        for file in files.into_iter().filter(|file| (start.0..end).contains(&file.ino())) {
            for extent in file.extents() {
                let is_before = (extent.ino, extent.offset) < start;
                if !is_before && each(extent) == Listing::Enough {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn copy_range(&self, _: (Ino, u64), _: (Ino, u64), _: u64, _: WriteFlags) -> Result<u64> {
        // The kernel then reads and writes, with the flags of the open files.
        Err(FsError::Unsupported { what: "copying without reading in zonefs" })
    }

    fn statfs(&self) -> Result<StatFs> {
        let stats = self.stats();
        let block_size = self.device.geometry().block_size().bytes();
        let files = u64::from(stats.conventional_files) + u64::from(stats.sequential_files);
        Ok(StatFs {
            block_size: u32::try_from(block_size).expect("512 or 4096"),
            name_max: NAME_MAX,
            blocks: stats.capacity_bytes / block_size,
            blocks_free: (stats.capacity_bytes - stats.used_bytes) / block_size,
            inodes: files + self.tree.groups().count() as u64,
            inodes_free: 0,
            inodes_unlinked: 0,
        })
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(NO_XATTR)
    }

    fn setxattr(&self, _: &Caller, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Err(NO_XATTR)
    }

    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(NO_XATTR)
    }

    fn tick(&self) -> Result<()> {
        self.close_when_due();
        self.write_out_when_due();
        Ok(())
    }

    fn give_up(&self, _message: &str) -> Remains {
        self.become_read_only();
        // Readers only use atomics, which a panic leaves valid.
        Remains::Readable
    }

    fn shutdown(&self) -> Result<()> {
        // Zones are open only if their files are, whose users have lost the mount.
        for file in self.tree.files_of(Group::Sequential) {
            let mut writer = file.settled();
            if writer.held == Held::Open {
                self.let_go(file, &mut writer);
            }
        }
        // Not the present access: a failure makes the file system read-only after others wrote.
        match self.options().access {
            Access::ReadWrite => self.sync(),
            Access::ReadOnly => Ok(()),
        }
    }
}

impl ZoneFs {
    fn refuse_change(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.tree.lookup(parent, name)?;
        Err(FIXED)
    }

    fn owned<'a>(&'a self, node: &TreeNode<'a>) -> MutexGuard<'a, Owned> {
        let nth = match node {
            TreeNode::File(file) => return file.owned(),
            TreeNode::Root => 0,
            TreeNode::Group(Group::Conventional) => 1,
            TreeNode::Group(Group::Sequential) => 2,
        };
        self.directories[nth].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory_attr(&self, ino: Ino, node: &TreeNode<'_>) -> Attr {
        let groups = u32::try_from(self.tree.groups().count()).expect("two");
        let (nlink, size) = match node {
            TreeNode::Group(group) => (2, self.tree.files_of(*group).len() as u64),
            TreeNode::Root | TreeNode::File(_) => (2 + groups, 2 + u64::from(groups)),
        };
        attr(ino, FileKind::Directory, *self.owned(node), nlink, size, 0)
    }
}

fn file_attr(file: &ZoneFile) -> Attr {
    let (size, blocks) = (file.size(), file.capacity / STAT_BLOCK);
    let mut attr = attr(file.ino(), FileKind::Regular, *file.owned(), 1, size, blocks);
    let (denied, flags) = match file.health() {
        Health::Good => (0, InodeFlags::empty()),
        Health::ReadOnly => (0o222, InodeFlags::IMMUTABLE),
        Health::Offline => (0o777, InodeFlags::IMMUTABLE),
    };
    attr.perm &= !denied;
    attr.flags = flags;
    attr
}

/// Attributes of an inode: `size` in bytes, `blocks` in units of 512 bytes.
fn attr(ino: Ino, kind: FileKind, owned: Owned, nlink: u32, size: u64, blocks: u64) -> Attr {
    let Owned { perm, uid, gid, atime, mtime, ctime } = owned;
    let (rdev, btime, flags) = (0, Timestamp::default(), InodeFlags::empty());
    Attr { ino, kind, perm, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime, flags }
}

/// Changes all attributes but the size, which the caller has changed.
fn change(owned: &mut Owned, perm: u16, set: &SetAttr, now: Timestamp) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) | SetTime::Written(time) => time,
    };
    owned.perm = perm;
    owned.uid = set.uid.unwrap_or(owned.uid);
    owned.gid = set.gid.unwrap_or(owned.gid);
    owned.atime = set.atime.map_or(owned.atime, time);
    let touched = set.size.map(|_| SetTime::Now);
    owned.mtime = set.mtime.or(touched).map_or(owned.mtime, time);
    owned.ctime = set.ctime.unwrap_or(now);
}
