//! Trees of files: the source of the copy, and the file system, mounted or used as a library. One
//! function reads them all, so their checksums can be compared.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Error, Result};
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};
use zonal::shown;
use zonal_fs::vfs::FileKind;
use zonal_fs::volume::{self, Volume};

use crate::interrupt;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Entries by name, each directory before its own entries.
pub(super) type Entries = Vec<(PathBuf, FileKind)>;

/// A tree of files. Paths are relative to its root.
pub(super) struct Tree {
    root: PathBuf,
    /// The file system as a library; `None` for a directory of this machine.
    library: Option<Volume>,
}

impl Tree {
    pub(super) fn new(root: impl Into<PathBuf>, library: Option<Volume>) -> Self {
        Self { root: root.into(), library }
    }

    /// The tree in one of its directories.
    pub(super) fn below(&self, path: &str) -> Self {
        Self::new(self.root.join(path), self.library.clone())
    }

    fn on<T>(
        &self,
        path: &Path,
        here: impl FnOnce(&Path) -> io::Result<T>,
        library: impl FnOnce(&Volume, &Path) -> volume::Result<T>,
    ) -> Result<T> {
        let path = self.root.join(path);
        match &self.library {
            Some(volume) => Ok(library(volume, &path)?),
            None => here(&path).with_context(|| shown(&path)),
        }
    }

    pub(super) fn make_dir(&self, path: &Path) -> Result<()> {
        self.on(path, |path| fs::create_dir(path), |volume, path| volume.create_dir(path))
    }

    fn make_link(&self, path: &Path, target: &Path) -> Result<()> {
        let here = |path: &Path| std::os::unix::fs::symlink(target, path);
        self.on(path, here, |volume, path| volume.symlink(target, path))
    }

    fn link_target(&self, path: &Path) -> Result<PathBuf> {
        self.on(path, |path| fs::read_link(path), |volume, path| volume.read_link(path))
    }

    /// Makes a file, or empties one.
    pub(super) fn create(&self, path: &Path) -> Result<Content> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let here = |path: &Path| Ok(Content::Here(options.open(path)?));
        self.on(path, here, |volume, path| volume.create(path).map(Content::Library))
    }

    fn open(&self, path: &Path) -> Result<Content> {
        let here = |path: &Path| Ok(Content::Here(fs::File::open(path)?));
        self.on(path, here, |volume, path| volume.open(path).map(Content::Library))
    }

    /// Moves an entry over another.
    pub(super) fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let to = self.root.join(target);
        self.on(source, |from| fs::rename(from, &to), |volume, from| volume.rename(from, &to))
    }

    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        self.on(path, |path| fs::remove_file(path), |volume, path| volume.remove_file(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<(OsString, FileKind)>> {
        let here = |path: &Path| {
            let entry = |entry: io::Result<fs::DirEntry>| {
                let (entry, kind) =
                    entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))?;
                Ok((
                    entry,
                    match () {
                        () if kind.is_dir() => FileKind::Directory,
                        () if kind.is_symlink() => FileKind::Symlink,
                        () if kind.is_file() => FileKind::Regular,
                        // Or another special one.
                        () => FileKind::Fifo,
                    },
                ))
            };
            fs::read_dir(path)?.map(entry).collect()
        };
        self.on(path, here, |volume, path| {
            volume.read_dir(path)?.map(|entry| entry.map(|it| (it.name, it.kind))).collect()
        })
    }

    /// Adds all entries below `dir`. `fail` decides about a directory that cannot be listed.
    pub(super) fn walk(
        &self,
        dir: &Path,
        entries: &mut Entries,
        fail: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<()> {
        let mut found = match self.list(dir) {
            Ok(found) => found,
            Err(error) => return fail(error),
        };
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, kind) in found {
            let path = dir.join(name);
            entries.push((path.clone(), kind));
            if kind == FileKind::Directory {
                self.walk(&path, entries, fail)?;
            }
        }
        Ok(())
    }

    /// Reads every byte of the tree.
    pub(super) fn sums(&self, bar: &ProgressBar) -> Result<Sums> {
        let mut entries = Entries::new();
        self.walk(Path::new(""), &mut entries, &mut Err)?;
        self.read(&entries, None, bar)
    }

    /// Reads `entries`, and copies them to another tree if there is one.
    pub(super) fn read(
        &self,
        entries: &Entries,
        copy: Option<&Self>,
        bar: &ProgressBar,
    ) -> Result<Sums> {
        let (mut sums, mut files) = (Sums::new(), Vec::new());
        for (path, kind) in entries {
            if *kind == FileKind::Directory {
                copy.map_or(Ok(()), |copy| copy.make_dir(path))?;
                sums.insert(path.clone(), Sum::Directory);
            } else if *kind == FileKind::Symlink {
                let target = self.link_target(path)?;
                copy.map_or(Ok(()), |copy| copy.make_link(path, &target))?;
                sums.insert(path.clone(), Sum::Link(target));
            } else if *kind == FileKind::Regular {
                files.push(path);
            }
        }
        let read = in_two_threads(files, |path| {
            let sum = self.read_file(path, copy, bar).with_context(|| shown(path))?;
            Ok((path.clone(), sum))
        });
        sums.extend(read?);
        Ok(sums)
    }

    fn read_file(&self, path: &Path, copy: Option<&Self>, bar: &ProgressBar) -> Result<Sum> {
        let file = self.open(path)?;
        let copy = copy.map(|copy| copy.create(path)).transpose()?;
        let (mut hash, mut buffer, mut bytes) = (Sha256::new(), vec![0; PIECE], 0);
        loop {
            let read = file.read_at(bytes, &mut buffer)?;
            if read == 0 {
                return Ok(Sum::File { bytes, sha256: hash.finalize().into() });
            }
            hash.update(&buffer[..read]);
            copy.as_ref().map_or(Ok(()), |copy| copy.write_at(bytes, &buffer[..read]))?;
            bytes += read as u64;
            bar.inc(read as u64);
        }
    }
}

/// An open file.
pub(super) enum Content {
    Here(fs::File),
    Library(volume::File),
}

impl Content {
    /// Reads at an offset; 0 at the end.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self {
            Self::Here(file) => Ok(file.read_at(buffer, offset)?),
            Self::Library(file) => Ok(file.read_at(buffer, offset)?),
        }
    }

    /// Writes all of `data` at an offset.
    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Here(file) => Ok(file.write_all_at(data, offset)?),
            Self::Library(file) => Ok(file.write_all_at(data, offset)?),
        }
    }

    /// Makes the file durable.
    pub(super) fn sync(&self) -> Result<()> {
        match self {
            Self::Here(file) => Ok(file.sync_all()?),
            Self::Library(file) => Ok(file.sync_all()?),
        }
    }
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Directory,
    Link(PathBuf),
    File { bytes: u64, sha256: [u8; 32] },
}

/// Every path of a tree, with its content.
pub(super) type Sums = BTreeMap<PathBuf, Sum>;

/// Number and bytes of the files.
pub(super) fn totals(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |(files, sum), content| match content {
        Sum::File { bytes, .. } => (files + 1, sum + bytes),
        Sum::Directory | Sum::Link(_) => (files, sum),
    })
}

/// An error with at most five lines about the differences between two trees, if there are any.
pub(super) fn compare(what: &str, expected: &Sums, found: &Sums) -> Result<()> {
    let missing = expected.iter().filter_map(|(path, sum)| match found.get(path) {
        None => Some(format!("{} is missing", path.display())),
        Some(other) if other != sum => Some(format!("{} differs", path.display())),
        Some(_) => None,
    });
    let surplus = found.keys().filter(|path| !expected.contains_key(*path));
    let surplus = surplus.map(|path| format!("{} came from nowhere", path.display()));
    let differences: Vec<_> = missing.chain(surplus).take(5).collect();
    let list = differences.join(", ");
    anyhow::ensure!(list.is_empty(), "{what} differ, which must not happen: {list}");
    Ok(())
}

/// Does `work` for each item, until one fails or a signal comes.
pub(super) fn in_two_threads<I: Send, O: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let (first, second): (Vec<_>, Vec<_>) =
        items.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
    let half = |items: Vec<(usize, I)>| -> Result<Vec<O>> {
        let work = |(_, item)| interrupt::check().and_then(|()| work(item));
        items.into_iter().map(work).collect()
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| half(second));
        let mut done = half(first)?;
        done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_equals_source_until_one_byte_changes() {
        let bar = ProgressBar::hidden();
        let [source, target] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(source.path().join("d")).unwrap();
        fs::write(source.path().join("d/f"), vec![7; 3 << 20]).unwrap();
        std::os::unix::fs::symlink("f", source.path().join("d/l")).unwrap();
        let [from, to] = [&source, &target].map(|dir| Tree::new(dir.path(), None));
        let mut entries = Entries::new();
        from.walk(Path::new(""), &mut entries, &mut Err).unwrap();
        let sums = from.read(&entries, Some(&to), &bar).unwrap();
        assert_eq!(totals(&sums), (1, 3 << 20));
        compare("both", &sums, &to.sums(&bar).unwrap()).unwrap();
        let mut changed = vec![7; 3 << 20];
        changed[2 << 20] = 8;
        fs::write(target.path().join("d/f"), changed).unwrap();
        fs::write(target.path().join("d/new"), "").unwrap();
        let error = compare("both", &sums, &to.sums(&bar).unwrap()).unwrap_err().to_string();
        assert!(error.ends_with(": d/f differs, d/new came from nowhere"), "{error}");
    }
}
