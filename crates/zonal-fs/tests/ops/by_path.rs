//! A volume as a [`FileSystem`]: each call on an inode uses the path by which it was looked up
//! last. So every test that is written for file systems tests volumes too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal_fs::FsError;
use zonal_fs::vfs::{
    Allocate, Attr, Caller, DirEntry, FileKind, FileSystem, Ino, Listing, NewInode, Privilege,
    ReadFlags, RenameFlags, Result, Seek, SetAttr, StatFs, SyncKind, WriteFlags, Written,
    XattrMode,
};
use zonal_fs::volume::{File, Links, Node, OpenFlags, Upkeep, Volume, VolumeOptions};

/// A volume, and where its inodes were seen.
pub(crate) struct ByPath {
    volume: Volume,
    known: Mutex<Known>,
}

struct Known {
    paths: BTreeMap<Ino, PathBuf>,
    /// Pinned inodes, each with the open files that pin it.
    held: BTreeMap<Ino, Vec<Arc<File>>>,
}

impl ByPath {
    /// Nothing happens by itself.
    pub(crate) fn new(fs: Arc<dyn FileSystem>) -> Self {
        let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
        let known = Known {
            paths: BTreeMap::from([(Ino::ROOT, PathBuf::from("/"))]),
            held: BTreeMap::new(),
        };
        Self { volume: Volume::new(fs, &options), known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, ino: Ino) -> Result<PathBuf> {
        self.known().paths.get(&ino).cloned().ok_or(FsError::NotFound)
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<PathBuf> {
        Ok(self.path(parent)?.join(OsStr::from_bytes(name)))
    }

    fn seen(&self, path: PathBuf, attr: Attr) -> Attr {
        self.known().paths.insert(attr.ino, path);
        attr
    }

    fn node(&self, caller: &Caller, ino: Ino) -> Result<Node> {
        Ok(self.volume.acting_as(*caller).node(self.path(ino)?, Links::Keep)?)
    }

    /// The file that is held, or one that is opened.
    fn file(&self, ino: Ino, flags: OpenFlags) -> Result<Arc<File>> {
        let held = self.known().held.get(&ino).and_then(|files| files.last().cloned());
        match held {
            Some(file) => Ok(file),
            None => self.open(&self.volume, ino, flags),
        }
    }

    fn open(&self, volume: &Volume, ino: Ino, flags: OpenFlags) -> Result<Arc<File>> {
        Ok(Arc::new(volume.open_with(self.path(ino)?, flags | OpenFlags::NO_FOLLOW, 0)?))
    }
}

const READ_WRITE: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

impl FileSystem for ByPath {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let path = self.child(parent, name)?;
        let attr = self.volume.symlink_metadata(&path)?;
        Ok(self.seen(path, attr))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let held = self.known().held.get(&ino).and_then(|files| files.last().cloned());
        match held {
            Some(file) => Ok(file.metadata()?),
            None => Ok(self.volume.symlink_metadata(self.path(ino)?)?),
        }
    }

    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if let Some(size) = set.size {
            self.file(ino, OpenFlags::WRITE)?.set_len(size)?;
            return self.getattr(ino);
        }
        Ok(self.node(caller, ino)?.set_metadata(set)?)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.volume.read_link(self.path(ino)?)?.into_os_string().into_vec())
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        let (volume, path) = (self.volume.acting_as(*caller), self.child(parent, name)?);
        let attr = match new.kind {
            FileKind::Regular => {
                volume.open_with(&path, READ_WRITE | OpenFlags::CREATE_NEW, new.perm)?.metadata()?
            }
            FileKind::Symlink => {
                volume.symlink(OsStr::from_bytes(new.target), &path)?;
                volume.symlink_metadata(&path)?
            }
            _ => volume.create_node(&path, new)?,
        };
        Ok(self.seen(path, attr))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.volume.remove_file(self.child(parent, name)?)?)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.volume.remove_dir(self.child(parent, name)?)?)
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        let (from, to) = (self.child(source.0, source.1)?, self.child(target.0, target.1)?);
        Ok(self.volume.rename_with(from, to, flags)?)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let path = self.child(parent, name)?;
        self.volume.hard_link(self.path(ino)?, &path)?;
        let attr = self.volume.symlink_metadata(&path)?;
        Ok(self.seen(path, attr))
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        let file = self.open(&self.volume, ino, READ_WRITE)?;
        self.known().held.entry(ino).or_default().push(file);
        Ok(())
    }

    fn unpin(&self, ino: Ino) {
        let mut known = self.known();
        let Some(files) = known.held.get_mut(&ino) else { return };
        files.pop();
        if files.is_empty() {
            known.held.remove(&ino);
        }
    }

    fn read_with(&self, ino: Ino, offset: u64, buffer: &mut [u8], _: ReadFlags) -> Result<usize> {
        Ok(self.file(ino, OpenFlags::READ)?.read_at(buffer, offset)?)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], how: WriteFlags) -> Result<Written> {
        if how.is_empty() {
            let len = self.file(ino, OpenFlags::WRITE)?.write_at(data, offset)? as u64;
            return Ok(Written { offset, len });
        }
        let mut flags = OpenFlags::WRITE;
        flags.set(OpenFlags::DIRECT, how.contains(WriteFlags::DIRECT));
        flags.set(OpenFlags::DURABLE, how.contains(WriteFlags::DURABLE));
        let kills = how.contains(WriteFlags::KILL_PRIVILEGES);
        let privilege = if kills { Privilege::None } else { Privilege::Full };
        let volume = self.volume.acting_as(Caller { privilege, ..Caller::ROOT });
        let file = self.open(&volume, ino, flags)?;
        if how.contains(WriteFlags::APPEND) {
            return Ok(file.append(data)?);
        }
        Ok(Written { offset, len: file.write_at(data, offset)? as u64 })
    }

    fn fsync(&self, ino: Ino, kind: SyncKind) -> Result<()> {
        let is_file = self.getattr(ino)?.kind == FileKind::Regular;
        let synced = match kind {
            SyncKind::Data if is_file => self.file(ino, OpenFlags::READ)?.sync_data(),
            SyncKind::Data | SyncKind::Full => self.node(&Caller::ROOT, ino)?.sync_all(),
        };
        Ok(synced?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.volume.sync()?)
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        _: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let mut entries = vec![(b".".to_vec(), FileKind::Directory, ino)];
        entries.push((b"..".to_vec(), FileKind::Directory, ino));
        for entry in self.volume.read_dir(self.path(ino)?)? {
            let entry = entry?;
            entries.push((entry.name.into_vec(), entry.kind, entry.ino));
        }
        for (index, (name, kind, ino)) in entries.into_iter().enumerate() {
            let next = index as u64 + 1;
            let entry = DirEntry { ino, kind, name: &name, cookie: next };
            if next > cookie && each(entry) == Listing::Enough {
                break;
            }
        }
        Ok(())
    }

    fn fallocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        Ok(self.file(ino, OpenFlags::WRITE)?.allocate(how, range)?)
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        Ok(self.file(ino, OpenFlags::READ)?.seek(what, offset)?)
    }

    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        _: WriteFlags,
    ) -> Result<u64> {
        let range = source.1..source.1.saturating_add(len);
        let source = self.file(source.0, OpenFlags::READ)?;
        let written = self.file(target.0, OpenFlags::WRITE)?;
        Ok(source.copy_to(range, &written, target.1)?)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.volume.space()?)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Ok(self.node(&Caller::ROOT, ino)?.xattr(OsStr::from_bytes(name))?)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        Ok(self.node(caller, ino)?.set_xattr(OsStr::from_bytes(name), value, mode)?)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let names = self.node(&Caller::ROOT, ino)?.xattrs()?;
        Ok(names.into_iter().map(OsStringExt::into_vec).collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        Ok(self.node(&Caller::ROOT, ino)?.remove_xattr(OsStr::from_bytes(name))?)
    }

    fn tick(&self) -> Result<()> {
        Ok(self.volume.tick()?)
    }

    fn shutdown(&self) -> Result<()> {
        Ok(self.volume.clone().close()?)
    }
}
