//! Files of this machine as sides of a copy.
//!
//! A name is looked up in its directory, which is open, and no link on the way is followed: a link
//! that another user creates meanwhile leads nowhere else.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use zonal::shown;
use zonal_fs::vfs::{FileKind, Timestamp};
use zonal_fs::volume::Links;

use super::super::last_name;
use super::spot::{EmptyFile, FileAttributes, FileContent, Folder, Spot};
use crate::interrupt;
use crate::output::Stdout;

/// Bytes that a call shares: whole blocks.
const SHARED: usize = 1 << 30;

/// A name in a directory.
pub(super) struct HostSpot {
    folder: Rc<OwnedFd>,
    name: OsString,
    /// For messages.
    path: PathBuf,
}

impl HostSpot {
    /// A path as a user gives it: links on the way to its last part are followed. A slash behind
    /// the last part stays, so that the kernel follows that part too.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let (above, mut name) = match (path.parent(), last_name(path)) {
            (Some(above), Some(name)) if above.as_os_str().is_empty() => {
                (".".as_ref(), name.into())
            }
            (Some(above), Some(name)) => (above, name.to_owned()),
            // `/`, `.`, `..`: the directory in itself.
            (None, _) | (_, None) => (path, OsString::from(".")),
        };
        if path.as_os_str().as_bytes().ends_with(b"/") {
            name.push("/");
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder =
            rustix::fs::openat(CWD, above, flags, Mode::empty()).with_context(|| shown(above))?;
        Ok(Self { folder: Rc::new(folder), name, path: path.to_owned() })
    }

    fn open_with(&self, links: Links, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let follow = if links == Links::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = flags | follow | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(&self.folder, &self.name, flags, mode).with_context(|| self.shown())
    }

    /// A path that leads to the very file that stands here now.
    fn pinned<T>(&self, action: impl FnOnce(&Path) -> io::Result<T>) -> Result<T> {
        let file = self.open_with(Links::Keep, OFlags::PATH, Mode::empty())?;
        let number = rustix::fd::AsRawFd::as_raw_fd(&file);
        action(&PathBuf::from(format!("/proc/self/fd/{number}"))).with_context(|| self.shown())
    }
}

fn mode(perm: u16) -> Mode {
    Mode::from_raw_mode(perm.into())
}

impl Spot for HostSpot {
    fn shown(&self) -> String {
        shown(&self.path)
    }

    fn facts(&self, links: Links) -> Result<Option<FileAttributes>> {
        let flags = match links {
            Links::Follow => AtFlags::empty(),
            Links::Keep => AtFlags::SYMLINK_NOFOLLOW,
        };
        match rustix::fs::statat(&self.folder, &self.name, flags) {
            Ok(stat) => Ok(Some(facts(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).with_context(|| self.shown()),
        }
    }

    fn file_system(&self) -> Result<u64> {
        if let Some(found) = self.facts(Links::Follow)? {
            return Ok(found.id.0);
        }
        Ok(rustix::fs::fstat(&self.folder).with_context(|| self.shown())?.st_dev)
    }

    fn enter(&self, links: Links) -> Result<Box<dyn Folder + '_>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = Rc::new(self.open_with(links, flags, Mode::empty())?);
        Ok(Box::new(HostFolder { folder, path: self.path.clone() }))
    }

    fn is_below(&self, id: (u64, u64)) -> Result<bool> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut above: Option<OwnedFd> = None;
        let mut last = None;
        loop {
            let folder = above.as_ref().unwrap_or(&self.folder);
            let found = rustix::fs::fstat(folder).with_context(|| self.shown())?;
            let here = (found.st_dev, found.st_ino);
            if here == id {
                return Ok(true);
            }
            // The root is above itself.
            if last.replace(here) == Some(here) {
                return Ok(false);
            }
            let next = rustix::fs::openat(folder, "..", flags, Mode::empty());
            above = Some(next.with_context(|| self.shown())?);
        }
    }

    fn read_link(&self) -> Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.folder, &self.name, Vec::new());
        let target = target.with_context(|| self.shown())?;
        Ok(OsStr::from_bytes(target.as_bytes()).into())
    }

    fn open(&self, links: Links) -> Result<Box<dyn FileContent>> {
        HostContent::boxed(self.open_with(links, OFlags::RDONLY, Mode::empty())?, &self.path)
    }

    fn create(&self, perm: u16) -> Result<Box<dyn FileContent>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        HostContent::boxed(self.open_with(Links::Keep, flags, mode(perm))?, &self.path)
    }

    fn replace(&self, links: Links) -> Result<Box<dyn FileContent>> {
        let flags = OFlags::WRONLY | OFlags::TRUNC;
        HostContent::boxed(self.open_with(links, flags, Mode::empty())?, &self.path)
    }

    fn make(&self, made: &EmptyFile) -> Result<()> {
        let (folder, name) = (&self.folder, &self.name);
        let outcome = match made {
            EmptyFile::Directory { perm } => rustix::fs::mkdirat(folder, name, mode(*perm)),
            EmptyFile::Symlink { target } => rustix::fs::symlinkat(target, folder, name),
            EmptyFile::Special { kind, perm, rdev } => {
                let kind = match kind {
                    FileKind::Fifo => FileType::Fifo,
                    FileKind::Socket => FileType::Socket,
                    FileKind::CharDevice => FileType::CharacterDevice,
                    FileKind::BlockDevice => FileType::BlockDevice,
                    FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                        unreachable!("they are not special")
                    }
                };
                rustix::fs::mknodat(folder, name, kind, mode(*perm), decoded(*rdev))
            }
        };
        outcome.with_context(|| self.shown())
    }

    fn link(&self, original: &dyn Spot) -> Result<()> {
        let original: &Self = original.as_any().downcast_ref().context("a link to another side")?;
        let (from, to) = (&original.folder, &self.folder);
        rustix::fs::linkat(from, &original.name, to, &self.name, AtFlags::empty())
            .with_context(|| self.shown())
    }

    fn remove(&self) -> Result<()> {
        rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())
            .with_context(|| self.shown())
    }

    fn xattrs(&self) -> Result<Vec<(OsString, Vec<u8>)>> {
        self.pinned(|path| {
            let names = match whole(|buffer| rustix::fs::listxattr(path, buffer)) {
                Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    return Ok(Vec::new());
                }
                names => names?,
            };
            let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            names
                .map(|name| {
                    let name = OsStr::from_bytes(name);
                    let value = whole(|buffer| rustix::fs::getxattr(path, name, buffer))?;
                    Ok((name.to_owned(), value))
                })
                .collect()
        })
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        self.pinned(|path| Ok(rustix::fs::setxattr(path, name, value, XattrFlags::empty())?))
    }

    fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        rustix::fs::chownat(&self.folder, &self.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| self.shown())
    }

    fn set_perm(&self, perm: u16) -> Result<()> {
        let perm = fs::Permissions::from_mode(perm.into());
        self.pinned(|path| fs::set_permissions(path, perm))
    }

    fn set_times(&self, accessed: Timestamp, modified: Timestamp) -> Result<()> {
        let spec = |time: Timestamp| Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() };
        let times = Timestamps { last_access: spec(accessed), last_modification: spec(modified) };
        rustix::fs::utimensat(&self.folder, &self.name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| self.shown())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct HostFolder {
    folder: Rc<OwnedFd>,
    path: PathBuf,
}

impl Folder for HostFolder {
    fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder).with_context(|| shown(&self.path))? {
            let entry = entry.with_context(|| shown(&self.path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_by(|left, right| left.as_bytes().cmp(right.as_bytes()));
        Ok(names)
    }

    fn child(&self, name: &OsStr) -> Box<dyn Spot> {
        let (folder, path) = (Rc::clone(&self.folder), self.path.join(name));
        Box::new(HostSpot { folder, name: name.to_owned(), path })
    }
}

/// The kind of file that holds a content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A file, read and written anywhere.
    File,
    /// A pipe or a device, read and written from where it is.
    Stream,
    /// Standard output, whose failures have rules of their own.
    Stdout,
}

/// A file, a pipe or a device.
pub(super) struct HostContent {
    file: File,
    holder: Holder,
    path: PathBuf,
}

impl HostContent {
    fn boxed(file: OwnedFd, path: &Path) -> Result<Box<dyn FileContent>> {
        let file = File::from(file);
        let is_file = file.metadata().with_context(|| shown(path))?.is_file();
        let holder = if is_file { Holder::File } else { Holder::Stream };
        Ok(Box::new(Self { file, holder, path: path.to_owned() }))
    }

    pub(super) fn stdin() -> Result<Self> {
        let file = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
        Ok(Self { file, holder: Holder::Stream, path: "standard input".into() })
    }

    pub(super) fn stdout() -> Result<Self> {
        let file = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        Ok(Self { file, holder: Holder::Stdout, path: "standard output".into() })
    }
}

impl FileContent for HostContent {
    fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = if self.is_file() {
            self.file.read_at(buffer, offset)
        } else {
            interrupt::wait_for_input(&self.file)?;
            self.file.read(buffer)
        };
        read.with_context(|| shown(&self.path))
    }

    fn write(&mut self, data: &[u8], offset: u64) -> Result<()> {
        let written = match self.holder {
            Holder::File => self.file.write_all_at(data, offset),
            Holder::Stream => self.file.write_all(data),
            Holder::Stdout => Stdout.write_all(data),
        };
        written.with_context(|| shown(&self.path))
    }

    fn data(&mut self, offset: u64) -> Result<Option<(u64, u64)>> {
        if !self.is_file() {
            return Ok(Some((offset, u64::MAX)));
        }
        let seek = |to| rustix::fs::seek(self.file.as_fd(), to);
        match seek(SeekFrom::Data(offset)) {
            Ok(start) => {
                let end = seek(SeekFrom::Hole(start)).with_context(|| shown(&self.path))?;
                Ok(Some((start, end)))
            }
            Err(Errno::NXIO) => Ok(None),
            // A file system without holes.
            Err(Errno::INVAL) => Ok(Some((offset, u64::MAX))),
            Err(error) => Err(error).with_context(|| shown(&self.path)),
        }
    }

    fn is_file(&self) -> bool {
        self.holder == Holder::File
    }

    fn length(&self) -> Result<u64> {
        let found = self.file.metadata().with_context(|| shown(&self.path))?;
        Ok(if self.is_file() { found.len() } else { 0 })
    }

    fn set_len(&mut self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).with_context(|| shown(&self.path))
    }

    /// By `copy_file_range`: the kernel then looks whether one file is open for reading and the
    /// other for writing. In an ioctl of ours the caller would name the source by a number, and the
    /// kernel would not look at its rights.
    fn share(&mut self, source: &dyn FileContent) -> Result<()> {
        let source: &Self = source.as_any().downcast_ref().context("a file of another side")?;
        let (mut from, mut to) = (0, 0);
        loop {
            let (read, written) = (Some(&mut from), Some(&mut to));
            let shared =
                rustix::fs::copy_file_range(&source.file, read, &self.file, written, SHARED);
            if shared.with_context(|| shown(&self.path))? == 0 {
                return Ok(());
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn facts(stat: &Stat) -> FileAttributes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    };
    let time = |secs: i64, nanos: u64| {
        Timestamp::new(secs, u32::try_from(nanos).unwrap_or(0)).unwrap_or_default()
    };
    FileAttributes {
        id: (stat.st_dev, stat.st_ino),
        kind,
        perm: u16::try_from(stat.st_mode & 0o7777).expect("twelve bits"),
        has_links: stat.st_nlink > 1,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: encoded(stat.st_rdev),
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// A device number in 32 bits: `new_encode_dev` of `include/linux/kdev_t.h`.
fn encoded(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// `new_decode_dev` of the same file.
fn decoded(device: u32) -> u64 {
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & !0xff));
    rustix::fs::makedev(major, minor)
}

/// The result of a system call that needs a large enough buffer.
fn whole(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let size = call(&mut buffer)?;
    buffer.truncate(size);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_number_encoding_round_trips() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (259, 256), (0xfff, 0xf_ffff)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(decoded(encoded(device)), device, "{major}:{minor}");
        }
    }
}
