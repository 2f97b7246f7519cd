//! The sources of a map: a mount, which answers by extended attributes, or the file system of a
//! device that is not mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use zonal::{ZonedDevice, shown};
use zonal_fs::vfs::{Access, FileExtent, FileKind, Ino, Listing};
use zonal_fs::volume::Volume;
use zonal_fuse::control::map::Line;
use zonal_fuse::extents;
use zonal_fuse::names::CONTROL_DIR;

use crate::cmd::files;
use crate::device::{self, OpenMode};
use crate::mounts;
use crate::top::{Spot, zones_of_mount};

/// Bytes of an answer: as many as an extended attribute can have.
const ANSWER_BYTES: usize = 65_536;

/// Extents of one call of a file system that is not mounted.
const EXTENTS_AT_ONCE: usize = 4096;

/// Behind the last inode of a file system.
const INO_END: u64 = 1 << 63;

/// Where a map comes from.
pub(super) enum Source {
    /// The mount at a directory.
    Mount(PathBuf),
    /// A file system that is not mounted.
    Volume { device: Arc<dyn ZonedDevice>, volume: Volume },
}

/// The target of the command: all files, or one of them, with its path in the file system.
pub(super) struct Target {
    pub(super) source: Source,
    pub(super) file: Option<(u64, PathBuf)>,
}

impl Target {
    /// The target that a user names.
    pub(super) fn of(what: &Path) -> Result<Self> {
        if let Ok(path) = what.canonicalize()
            && let Some(point) = mounts::around(&path)
        {
            return Self::in_mount(point, &path);
        }
        if mounts::is_folder(what) {
            bail!("{} is a directory outside every mount of Zonal", shown(what));
        }
        if let Some(point) = mounts::place_of(what) {
            return Self::in_mount(point.clone(), &point);
        }
        let (spec, path) = match files::Place::of(what.as_os_str()) {
            Some(place) => (place.device, place.path),
            None => (what.to_str().context("a device's name is not UTF-8")?.to_owned(), "/".into()),
        };
        let device = device::open(&spec, OpenMode::ReadLocked)?;
        let volume = files::open_on(&device, &spec, Access::ReadOnly)?;
        let attr = volume.metadata(&path)?;
        let file = match attr.kind {
            FileKind::Regular => Some((attr.ino.get(), path)),
            FileKind::Directory if path == Path::new("/") => None,
            _ => bail!("{}:{} is no regular file", shown(&spec), shown(&path)),
        };
        Ok(Self { source: Source::Volume { device, volume }, file })
    }

    fn in_mount(point: PathBuf, path: &Path) -> Result<Self> {
        let meta = path.metadata().with_context(|| format!("looking at {}", shown(path)))?;
        let file = if meta.is_file() {
            // Blocks that are still in memory have no place.
            let file = fs::File::open(path).with_context(|| format!("opening {}", shown(path)))?;
            file.sync_all().with_context(|| format!("syncing {}", shown(path)))?;
            let inside = path.strip_prefix(&point).expect("it lies in the mount");
            Some((meta.ino(), Path::new("/").join(inside)))
        } else if path == point {
            let dir = fs::File::open(&point).with_context(|| format!("opening {}", shown(path)))?;
            rustix::fs::syncfs(&dir).with_context(|| format!("syncing {}", shown(path)))?;
            None
        } else {
            bail!("{} is neither a regular file nor a mount point", shown(path));
        };
        Ok(Self { source: Source::Mount(point), file })
    }

    /// Every extent of the file, or of all files.
    pub(super) fn each_extent(&self, mut each: impl FnMut(FileExtent)) -> Result<()> {
        let mut at = self.file.as_ref().map_or((0, 0), |(ino, _)| (*ino, 0));
        loop {
            let found = match &self.source {
                Source::Mount(point) => self.ask_mount(point, at)?,
                Source::Volume { volume, .. } => {
                    let end = self.file.as_ref().map_or(INO_END, |(ino, _)| ino + 1);
                    some_of(volume, at, end)?
                }
            };
            let Some(last) = found.last() else { return Ok(()) };
            let mut least = at;
            for extent in &found {
                let here = (extent.ino.get(), extent.offset);
                let is_other = self.file.as_ref().is_some_and(|(ino, _)| *ino != here.0);
                if extent.len == 0 || here < least || is_other {
                    bail!("the list of extents is wrong at byte {} of inode {}", here.1, here.0);
                }
                least = here;
            }
            at = (last.ino.get(), last.end());
            found.into_iter().for_each(&mut each);
        }
    }

    fn ask_mount(&self, point: &Path, at: (u64, u64)) -> Result<Vec<FileExtent>> {
        let (path, name) = match &self.file {
            Some((_, path)) => (below(point, path), extents::of_file(at.1)),
            None => (point.to_owned(), extents::of_root(at.0, at.1)),
        };
        let mut value = vec![0; ANSWER_BYTES];
        let len = rustix::fs::getxattr(&path, &*name, &mut value)
            .with_context(|| format!("asking for the extents of {}", shown(&path)))?;
        value.truncate(len);
        extents::parse(&value)
            .with_context(|| format!("{} is served by another version of zonal", shown(point)))
    }

    /// The zones, as `zonal top` shows them.
    pub(super) fn zones(&self) -> Result<Vec<Spot>> {
        match &self.source {
            Source::Mount(point) => zones_of_mount(point),
            Source::Volume { device, volume } => Ok(match volume.zone_uses()? {
                Some(uses) => uses.iter().map(|zone| Spot::of_line(Line::of(zone))).collect(),
                None => device::report(&**device)?.iter().map(Spot::of_zone).collect(),
            }),
        }
    }

    /// A path in the file system for each inode of a regular file that `wanted` has. Leaves out
    /// directories that this user may not list.
    pub(super) fn paths(&self, wanted: &dyn Fn(u64) -> bool) -> Result<BTreeMap<u64, PathBuf>> {
        if let Some((ino, path)) = &self.file {
            return Ok(BTreeMap::from([(*ino, path.clone())]));
        }
        let (mut paths, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let mut unread = vec![PathBuf::from("/")];
        while let Some(dir) = unread.pop() {
            let mut note = |ino: u64, kind: FileKind, path: PathBuf| match kind {
                // A damaged directory may lead back to one above it.
                FileKind::Directory if seen.insert(ino) => unread.push(path),
                FileKind::Regular if wanted(ino) => {
                    paths.entry(ino).or_insert(path);
                }
                _ => {}
            };
            match &self.source {
                Source::Mount(point) => list_mount(point, &dir, &mut note)?,
                Source::Volume { volume, .. } => list_volume(volume, &dir, &mut note),
            }
        }
        Ok(paths)
    }
}

/// The place of a path of the file system that is mounted at `point`.
fn below(point: &Path, path: &Path) -> PathBuf {
    point.join(path.strip_prefix("/").expect("it begins with /"))
}

/// Some extents of a file system that is not mounted.
fn some_of(volume: &Volume, at: (u64, u64), end: u64) -> Result<Vec<FileExtent>> {
    let mut found = Vec::new();
    volume.extents((Ino::new(at.0), at.1), Ino::new(end), &mut |extent| {
        if found.len() == EXTENTS_AT_ONCE {
            return Listing::Enough;
        }
        found.push(extent);
        Listing::More
    })?;
    Ok(found)
}

/// Notes the entries of a directory of a file system that is not mounted.
fn list_volume(volume: &Volume, dir: &Path, note: &mut dyn FnMut(u64, FileKind, PathBuf)) {
    let listed = volume.read_dir(dir).and_then(|mut entries| {
        entries.try_for_each(|entry| {
            let entry = entry?;
            note(entry.ino.get(), entry.kind, dir.join(&entry.name));
            Ok(())
        })
    });
    if let Err(error) = listed {
        tracing::warn!(directory = shown(dir), %error, "left out");
    }
}

/// Notes the entries of a directory of a mount.
fn list_mount(
    point: &Path,
    dir: &Path,
    note: &mut dyn FnMut(u64, FileKind, PathBuf),
) -> Result<()> {
    let here = below(point, dir);
    let entries = match fs::read_dir(&here) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(directory = shown(&here), %error, "left out");
            return Ok(());
        }
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", shown(&here)))?;
        let name = entry.file_name();
        if here == point && name == CONTROL_DIR {
            continue;
        }
        let kind = match entry.file_type() {
            Ok(kind) if kind.is_dir() => FileKind::Directory,
            Ok(kind) if kind.is_file() => FileKind::Regular,
            Ok(_) | Err(_) => continue,
        };
        // Another file system may be mounted on a directory of this one.
        let is_other = |dir: &Path| {
            let number = |path: &Path| path.symlink_metadata().map(|meta| meta.dev());
            !matches!((number(dir), number(point)), (Ok(one), Ok(other)) if one == other)
        };
        if kind == FileKind::Directory && is_other(&entry.path()) {
            continue;
        }
        note(entry.ino(), kind, dir.join(&name));
    }
    Ok(())
}
