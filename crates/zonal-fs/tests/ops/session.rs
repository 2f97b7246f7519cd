//! Does operations on a file system and returns the answers as text that can be compared.

use std::fmt::Write as _;
use std::sync::Arc;

use zonal::crc32c;
use zonal_fs::FsError;
use zonal_fs::acl;
use zonal_fs::tree::NodeAttr;
use zonal_fs::vfs::{
    Attr, Caller, FileKind, FileSystem, Ino, Listing, NewInode, Result, SetAttr, SetTime,
    Timestamp, WriteFlags,
};

use super::{Op, Pick, content};

/// The existing paths, in a fixed order: the meaning of each [`Pick`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Every path with its kind, the root first.
    all: Vec<(Vec<Vec<u8>>, FileKind)>,
    files: Vec<usize>,
    dirs: Vec<usize>,
    held: usize,
}

impl Names {
    /// Lists a file system.
    pub(crate) fn of(fs: &dyn FileSystem, held: usize) -> Self {
        let mut names = Self { held, ..Self::default() };
        names.enter(fs, Ino::ROOT, &mut Vec::new());
        for (index, (_, kind)) in names.all.iter().enumerate() {
            match kind {
                FileKind::Regular => names.files.push(index),
                FileKind::Directory => names.dirs.push(index),
                _ => {}
            }
        }
        names
    }

    /// These paths, whether or not they exist: each [`Pick`] means one path for ever. Everything
    /// but the root, which comes first, counts as a file and as a directory.
    pub(crate) fn fixed(paths: &[&str]) -> Self {
        let parts = |path: &&str| {
            path.split('/').filter(|part| !part.is_empty()).map(Into::into).collect::<Vec<_>>()
        };
        let all: Vec<_> = paths.iter().map(|path| (parts(path), FileKind::Regular)).collect();
        let indexes: Vec<_> = (0..all.len()).collect();
        Self { files: indexes.clone(), dirs: indexes, all, held: 0 }
    }

    /// The same names with `held` files held.
    pub(crate) fn with_held(&self, held: usize) -> Self {
        Self { held, ..self.clone() }
    }

    fn enter(&mut self, fs: &dyn FileSystem, ino: Ino, path: &mut Vec<Vec<u8>>) {
        self.all.push((path.clone(), FileKind::Directory));
        let mut entries = Vec::new();
        fs.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            Listing::More
        })
        .expect("a directory can be listed");
        entries.sort();
        for (name, ino, kind) in entries {
            path.push(name);
            if kind == FileKind::Directory {
                self.enter(fs, ino, path);
            } else {
                self.all.push((path.clone(), kind));
            }
            path.pop();
        }
    }

    fn path(&self, from: &[usize], pick: Pick) -> Option<&[Vec<u8>]> {
        let index = from.get(usize::from(pick).checked_rem(from.len())?)?;
        Some(&self.all[*index].0)
    }

    fn file(&self, pick: Pick) -> Option<&[Vec<u8>]> {
        self.path(&self.files, pick)
    }

    fn dir(&self, pick: Pick) -> Option<&[Vec<u8>]> {
        self.path(&self.dirs, pick)
    }

    /// Anything, the root included.
    fn any(&self, pick: Pick) -> &[Vec<u8>] {
        &self.all[usize::from(pick) % self.all.len()].0
    }

    /// Anything but the root.
    fn entry(&self, pick: Pick) -> Option<&[Vec<u8>]> {
        let count = self.all.len() - 1;
        Some(&self.all[1 + usize::from(pick).checked_rem(count)?].0)
    }

    fn held(&self, pick: Pick) -> Option<usize> {
        usize::from(pick).checked_rem(self.held)
    }
}

/// A mounted file system and the files that are held open on it.
#[derive(Clone)]
pub(crate) struct Session<F: FileSystem + ?Sized> {
    pub(crate) fs: Arc<F>,
    held: Vec<Ino>,
}

/// The answer of an operation, as text. An error is its variant's name.
pub(crate) type Reply = std::result::Result<String, String>;

impl<F: FileSystem + ?Sized> Session<F> {
    pub(crate) fn new(fs: Arc<F>) -> Self {
        Self { fs, held: Vec::new() }
    }

    /// The same files held on a copy of the file system.
    pub(crate) fn with(&self, fs: Arc<F>) -> Self {
        Self { fs, held: self.held.clone() }
    }

    /// The paths that exist now.
    pub(crate) fn names(&self) -> Names
    where
        F: Sized,
    {
        Names::of(&*self.fs, self.held.len())
    }

    /// How many files are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Lets go of everything, as programs do before an unmount.
    pub(crate) fn release_all(&mut self) {
        for ino in self.held.drain(..) {
            self.fs.unpin(ino);
        }
    }

    /// Does an operation; `Remount` only lets go of held files. `None` if its object does not
    /// exist.
    pub(crate) fn perform(&mut self, op: &Op, names: &Names) -> Option<Result<String>> {
        match op {
            Op::Sync => Some(self.fs.sync().map(|()| String::new())),
            Op::Tick => Some(self.fs.tick().map(|()| String::new())),
            Op::Remount => {
                self.release_all();
                Some(Ok(String::new()))
            }
            Op::Fsync { file, kind } => {
                let path = names.any(*file);
                Some(
                    self.find(path)
                        .and_then(|ino| self.fs.fsync(ino, *kind))
                        .map(|()| String::new()),
                )
            }
            Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::RenameOver { .. }
            | Op::Link { .. }
            | Op::List { .. } => self.change_names(op, names),
            Op::Write { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::Read { .. }
            | Op::Churn { .. } => self.change_content(op, names),
            Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::SetTimes { .. }
            | Op::NoteWritten { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetAcl { .. } => self.change_attr(op, names),
            Op::Hold { .. }
            | Op::CreateUnnamed { .. }
            | Op::LinkHeld { .. }
            | Op::WriteHeld { .. }
            | Op::Release { .. } => self.use_held(op, names),
        }
    }

    /// [`perform`](Self::perform), with the answer made comparable.
    pub(crate) fn reply(&mut self, op: &Op, names: &Names) -> Option<Reply> {
        Some(self.perform(op, names)?.map_err(|error| error_name(&error)))
    }

    fn find(&self, path: &[Vec<u8>]) -> Result<Ino> {
        path.iter().try_fold(Ino::ROOT, |ino, name| Ok(self.fs.lookup(ino, name)?.ino))
    }

    /// The directory and the name of a path.
    fn find_parent<'a>(&self, path: &'a [Vec<u8>]) -> Result<(Ino, &'a [u8])> {
        let (name, dirs) = path.split_last().ok_or(FsError::Invalid { what: "the root" })?;
        Ok((self.find(dirs)?, name))
    }

    fn change_names(&self, op: &Op, names: &Names) -> Option<Result<String>> {
        let fs = &self.fs;
        let done = String::new();
        Some(match op {
            Op::Create { dir, name, kind, perm, caller } => {
                let path = names.dir(*dir)?;
                let name = name_of(*name);
                let target: &[u8] = if *kind == FileKind::Symlink { &name } else { b"" };
                let new = NewInode { kind: *kind, perm: *perm, rdev: 0x0103, target };
                self.find(path)
                    .and_then(|dir| fs.create(caller, dir, &name, &new))
                    .map(|attr| show(&attr))
            }
            Op::Unlink { entry } => {
                let path = names.entry(*entry)?;
                self.find_parent(path).and_then(|(dir, name)| fs.unlink(dir, name)).map(|()| done)
            }
            Op::Rmdir { dir } => {
                let path = names.dir(*dir)?;
                self.find_parent(path).and_then(|(dir, name)| fs.rmdir(dir, name)).map(|()| done)
            }
            Op::Rename { source, dir, name, flags } => {
                let (source, dir) = (names.entry(*source)?, names.dir(*dir)?);
                let name = name_of(*name);
                self.find_parent(source)
                    .and_then(|source| fs.rename(source, (self.find(dir)?, &name), *flags))
                    .map(|()| done)
            }
            Op::RenameOver { source, target, flags } => {
                let (source, target) = (names.entry(*source)?, names.entry(*target)?);
                self.find_parent(source)
                    .and_then(|source| fs.rename(source, self.find_parent(target)?, *flags))
                    .map(|()| done)
            }
            Op::Link { source, dir, name } => {
                let (source, dir) = (names.entry(*source)?, names.dir(*dir)?);
                self.find(source)
                    .and_then(|ino| fs.link(ino, self.find(dir)?, &name_of(*name)))
                    .map(|attr| show(&attr))
            }
            Op::List { dir } => {
                let path = names.dir(*dir)?;
                self.find(path).and_then(|dir| self.list(dir))
            }
            _ => return None,
        })
    }

    /// Lists a directory three entries at a time.
    fn list(&self, dir: Ino) -> Result<String> {
        let mut found = Vec::new();
        let mut cookie = 0;
        loop {
            let before = found.len();
            self.fs.readdir(dir, cookie, &mut |entry| {
                if found.len() == before + 3 {
                    return Listing::Enough;
                }
                found.push((entry.name.to_vec(), entry.kind));
                cookie = entry.cookie;
                Listing::More
            })?;
            if found.len() == before {
                break;
            }
        }
        found.sort();
        Ok(format!("{found:?}"))
    }

    fn change_content(&self, op: &Op, names: &Names) -> Option<Result<String>> {
        let fs = &self.fs;
        Some(match *op {
            Op::Write { file, offset, len, seed, flags } => {
                let path = names.file(file)?;
                let data = content(seed, offset, len as usize);
                self.find(path)
                    .and_then(|ino| fs.write(ino, offset, &data, flags))
                    .map(|written| format!("{}+{}", written.offset, written.len))
            }
            Op::Truncate { file, size } => {
                let path = names.file(file)?;
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.set(path, &Caller::ROOT, &set)
            }
            Op::Fallocate { file, how, offset, len } => {
                let path = names.file(file)?;
                self.find(path)
                    .and_then(|ino| fs.fallocate(ino, how, offset, len))
                    .map(|()| String::new())
            }
            Op::CopyRange { source, from, target, to, len } => {
                let (source, target) = (names.file(source)?, names.file(target)?);
                let copy = |source| {
                    let target = (self.find(target)?, to);
                    fs.copy_range((source, from), target, len, WriteFlags::empty())
                };
                self.find(source).and_then(copy).map(|count| count.to_string())
            }
            Op::Read { file, offset, len } => {
                let path = names.file(file)?;
                let mut buffer = vec![0xee; len as usize];
                let read = |ino| fs.read(ino, offset, &mut buffer);
                let count = self.find(path).and_then(read);
                count.map(|count| format!("{count} {:08x}", crc32c::crc32c(&buffer[..count])))
            }
            Op::Churn { file, seed } => {
                let path = names.file(file)?;
                self.find(path).and_then(|ino| self.churn(ino, seed)).map(|()| String::new())
            }
            _ => return None,
        })
    }

    /// 24 blocks, then every third of them again, a few times.
    fn churn(&self, ino: Ino, seed: u16) -> Result<()> {
        let block = 4096;
        self.fs.write(ino, 0, &content(seed, 0, 24 * 4096), WriteFlags::empty())?;
        for round in 1..4 {
            for at in (0..24).filter(|at| (at + round) % 3 == 0) {
                let seed = seed.wrapping_add(round as u16);
                let data = content(seed, at * block, 4096);
                self.fs.write(ino, at * block, &data, WriteFlags::DIRECT)?;
            }
        }
        Ok(())
    }

    fn set(&self, path: &[Vec<u8>], caller: &Caller, set: &SetAttr) -> Result<String> {
        self.find(path).and_then(|ino| self.fs.setattr(caller, ino, set)).map(|attr| show(&attr))
    }

    fn change_attr(&self, op: &Op, names: &Names) -> Option<Result<String>> {
        let fs = &self.fs;
        let nothing = SetAttr::default();
        Some(match *op {
            Op::Chmod { entry, perm, caller } => {
                self.set(names.any(entry), &caller, &SetAttr { perm: Some(perm), ..nothing })
            }
            Op::Chown { entry, uid, gid } => {
                let set = SetAttr { uid: Some(uid), gid: Some(gid), ..nothing };
                self.set(names.any(entry), &Caller::ROOT, &set)
            }
            Op::SetTimes { entry, mtime: (secs, nanos) } => {
                let mtime = Timestamp::new(secs, nanos).map(SetTime::To);
                let set = SetAttr { mtime, atime: Some(SetTime::Now), ..nothing };
                self.set(names.any(entry), &Caller::ROOT, &set)
            }
            Op::NoteWritten { entry, secs } => {
                let mtime = Timestamp::new(secs, 0).map(SetTime::Written);
                self.set(names.any(entry), &Caller::ROOT, &SetAttr { mtime, ..nothing })
            }
            Op::SetXattr { entry, name, len, seed, mode } => {
                let path = names.any(entry);
                let value = content(seed, 0, usize::from(len));
                let set = |ino| fs.setxattr(&Caller::ROOT, ino, &xattr_name(name), &value, mode);
                self.find(path).and_then(set).map(|()| String::new())
            }
            Op::RemoveXattr { entry, name } => {
                let path = names.any(entry);
                let remove = |ino| fs.removexattr(ino, &xattr_name(name));
                self.find(path).and_then(remove).map(|()| String::new())
            }
            Op::SetAcl { entry, default, perms, caller } => {
                let path = names.any(entry);
                let name = if default { acl::DEFAULT } else { acl::ACCESS };
                let value = super::acl(perms);
                let set = |ino| {
                    fs.setxattr(&caller, ino, name, &value, zonal_fs::vfs::XattrMode::Any)?;
                    fs.getattr(ino)
                };
                self.find(path).and_then(set).map(|attr| show(&attr))
            }
            _ => return None,
        })
    }

    fn use_held(&mut self, op: &Op, names: &Names) -> Option<Result<String>> {
        Some(match *op {
            Op::Hold { file } => {
                let path = names.file(file)?;
                let pinned = self.find(path).and_then(|ino| self.fs.pin(ino).map(|()| ino));
                pinned.map(|ino| {
                    self.held.push(ino);
                    String::new()
                })
            }
            Op::CreateUnnamed { dir } => {
                let path = names.dir(dir)?;
                let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
                let created = self
                    .find(path)
                    .and_then(|dir| self.fs.create_unnamed(&Caller::ROOT, dir, &new));
                created.map(|attr| {
                    self.held.push(attr.ino);
                    show(&attr)
                })
            }
            Op::LinkHeld { held, dir, name } => {
                let (ino, dir) = (self.held[names.held(held)?], names.dir(dir)?);
                self.find(dir)
                    .and_then(|dir| self.fs.link(ino, dir, &name_of(name)))
                    .map(|attr| show(&attr))
            }
            Op::WriteHeld { held, offset, len, seed } => {
                let ino = self.held[names.held(held)?];
                let data = content(seed, offset, len as usize);
                let mut back = vec![0; data.len()];
                let written = self.fs.write(ino, offset, &data, WriteFlags::empty());
                written.and_then(|at| self.fs.read(ino, at.offset, &mut back)).map(|count| {
                    let mut text = show(&self.fs.getattr(ino).expect("it is held"));
                    let _ = write!(text, " {count} {}", back == data);
                    text
                })
            }
            Op::Release { held } => {
                let ino = self.held.remove(names.held(held)?);
                self.fs.unpin(ino);
                Ok(String::new())
            }
            _ => return None,
        })
    }
}

fn name_of(name: u8) -> Vec<u8> {
    match name {
        10 => vec![b'n'; 255],
        11 => b"\xffodd \n".to_vec(),
        _ => format!("n{name}").into_bytes(),
    }
}

fn xattr_name(name: u8) -> Vec<u8> {
    match name {
        // The one that changes of content and owner take away.
        3 => b"security.capability".to_vec(),
        _ => format!("user.x{name}").into_bytes(),
    }
}

fn show(attr: &Attr) -> String {
    format!("{:?}", NodeAttr::from(*attr))
}

/// The variant's name: programs see only the errno.
pub(crate) fn error_name(error: &FsError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}
