//! Files of a drive as sides of a copy.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use zonal::shown;
use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, FileKind, NewInode, Seek, SetAttr, SetTime, Timestamp, XattrMode};
use zonal_fs::volume::{self, Links, OpenFlags, Volume};

use super::spot::{EmptyFile, FileAttributes, FileContent, Folder, Spot};

/// A drive that is open for the copy.
pub(super) struct Drive {
    pub(super) device: String,
    pub(super) volume: Volume,
    /// The first part of the identity of its files. No other drive, and no file system of this
    /// machine, has this number.
    pub(super) number: u64,
}

/// A path on it.
pub(super) struct DriveSpot {
    drive: Rc<Drive>,
    path: PathBuf,
}

impl DriveSpot {
    pub(super) fn new(drive: Rc<Drive>, path: PathBuf) -> Self {
        Self { drive, path }
    }

    fn at(&self, path: PathBuf) -> Self {
        Self { drive: Rc::clone(&self.drive), path }
    }

    fn volume(&self) -> &Volume {
        &self.drive.volume
    }

    fn node(&self) -> volume::Result<volume::Node> {
        self.volume().node(&self.path, Links::Keep)
    }

    fn set(&self, set: &SetAttr) -> Result<()> {
        self.node()?.set_metadata(set)?;
        Ok(())
    }

    fn attr(&self, links: Links) -> volume::Result<Attr> {
        match links {
            Links::Follow => self.volume().metadata(&self.path),
            Links::Keep => self.volume().symlink_metadata(&self.path),
        }
    }

    fn flags(links: Links, flags: OpenFlags) -> OpenFlags {
        match links {
            Links::Follow => flags,
            Links::Keep => flags | OpenFlags::NO_FOLLOW,
        }
    }
}

impl Spot for DriveSpot {
    fn shown(&self) -> String {
        format!("{}:{}", self.drive.device, shown(&self.path))
    }

    fn facts(&self, links: Links) -> Result<Option<FileAttributes>> {
        match self.attr(links) {
            Ok(attr) => Ok(Some(FileAttributes {
                id: (self.drive.number, attr.ino.get()),
                kind: attr.kind,
                perm: attr.perm,
                has_links: attr.nlink > 1,
                uid: attr.uid,
                gid: attr.gid,
                rdev: attr.rdev,
                bytes: attr.size,
                accessed: attr.atime,
                modified: attr.mtime,
            })),
            Err(error) if matches!(error.reason(), FsError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn file_system(&self) -> Result<u64> {
        Ok(self.drive.number)
    }

    fn enter(&self, links: Links) -> Result<Box<dyn Folder + '_>> {
        if links == Links::Keep && self.attr(links)?.kind != FileKind::Directory {
            return Err(FsError::NotDirectory).with_context(|| self.shown());
        }
        Ok(Box::new(DriveFolder(self)))
    }

    fn is_below(&self, id: (u64, u64)) -> Result<bool> {
        let mut above = self.path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut last = None;
        loop {
            let ino = self.volume().metadata(&above)?.ino.get();
            if (self.drive.number, ino) == id {
                return Ok(true);
            }
            if last == Some(ino) {
                return Ok(false);
            }
            last = Some(ino);
            above.push("..");
        }
    }

    fn read_link(&self) -> Result<PathBuf> {
        Ok(self.volume().read_link(&self.path)?)
    }

    fn open(&self, links: Links) -> Result<Box<dyn FileContent>> {
        let flags = Self::flags(links, OpenFlags::READ);
        Ok(Box::new(DriveContent(self.volume().open_with(&self.path, flags, 0)?)))
    }

    fn create(&self, perm: u16) -> Result<Box<dyn FileContent>> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE_NEW;
        Ok(Box::new(DriveContent(self.volume().open_with(&self.path, flags, perm)?)))
    }

    fn replace(&self, links: Links) -> Result<Box<dyn FileContent>> {
        let flags = Self::flags(links, OpenFlags::WRITE | OpenFlags::TRUNCATE);
        Ok(Box::new(DriveContent(self.volume().open_with(&self.path, flags, 0)?)))
    }

    fn make(&self, made: &EmptyFile) -> Result<()> {
        let new = |kind, perm, rdev| NewInode { kind, perm, rdev, target: b"" };
        match made {
            EmptyFile::Directory { perm } => {
                self.volume().create_node(&self.path, &new(FileKind::Directory, *perm, 0))?;
            }
            EmptyFile::Symlink { target } => self.volume().symlink(target, &self.path)?,
            EmptyFile::Special { kind, perm, rdev } => {
                self.volume().create_node(&self.path, &new(*kind, *perm, *rdev))?;
            }
        }
        Ok(())
    }

    fn link(&self, original: &dyn Spot) -> Result<()> {
        let original: &Self = original.as_any().downcast_ref().context("a link to another side")?;
        Ok(self.volume().hard_link(&original.path, &self.path)?)
    }

    fn remove(&self) -> Result<()> {
        Ok(self.volume().remove_file(&self.path)?)
    }

    fn xattrs(&self) -> Result<Vec<(OsString, Vec<u8>)>> {
        let node = self.node()?;
        node.xattrs()?
            .into_iter()
            .map(|name| {
                let value = node.xattr(&name)?;
                Ok((name, value))
            })
            .collect()
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        Ok(self.node()?.set_xattr(name, value, XattrMode::Any)?)
    }

    fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        self.set(&SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() })
    }

    fn set_perm(&self, perm: u16) -> Result<()> {
        self.set(&SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    fn set_times(&self, accessed: Timestamp, modified: Timestamp) -> Result<()> {
        let (atime, mtime) = (Some(SetTime::To(accessed)), Some(SetTime::To(modified)));
        self.set(&SetAttr { atime, mtime, ..SetAttr::default() })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct DriveFolder<'a>(&'a DriveSpot);

impl Folder for DriveFolder<'_> {
    fn names(&self) -> Result<Vec<OsString>> {
        let entries = self.0.volume().read_dir(&self.0.path)?;
        let mut names: Vec<OsString> =
            entries.map(|entry| Ok(entry?.name)).collect::<volume::Result<_>>()?;
        names.sort_by(|left, right| left.as_bytes().cmp(right.as_bytes()));
        Ok(names)
    }

    fn child(&self, name: &OsStr) -> Box<dyn Spot> {
        Box::new(self.0.at(self.0.path.join(name)))
    }
}

struct DriveContent(volume::File);

impl FileContent for DriveContent {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.0.read_at(buffer, offset)?)
    }

    fn write(&mut self, data: &[u8], offset: u64) -> Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }

    fn data(&mut self, offset: u64) -> Result<Option<(u64, u64)>> {
        match self.0.seek(Seek::Data, offset) {
            Ok(start) => Ok(Some((start, self.0.seek(Seek::Hole, start)?))),
            Err(error) if matches!(error.reason(), FsError::SeekBeyondEnd) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_file(&self) -> bool {
        true
    }

    fn length(&self) -> Result<u64> {
        Ok(self.0.metadata()?.size)
    }

    fn set_len(&mut self, bytes: u64) -> Result<()> {
        Ok(self.0.set_len(bytes)?)
    }

    fn share(&mut self, source: &dyn FileContent) -> Result<()> {
        let source: &Self = source.as_any().downcast_ref().context("a file of another side")?;
        let end = source.length()?;
        let mut at = 0;
        while at < end {
            match source.0.copy_to(at..end, &self.0, at)? {
                // The file has become shorter.
                0 => break,
                shared => at += shared,
            }
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
