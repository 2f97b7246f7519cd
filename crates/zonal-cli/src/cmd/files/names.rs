//! `zonal rm|mv|ln|mkdir`: entries of directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fs::FsError;
use zonal_fs::vfs::FileKind;
use zonal_fs::volume::Volume;

use super::{Place, change, each, last_name};
use crate::args::files::{Link, MakeDir, Remove, Rename};
use crate::interrupt;

/// Removes files, and with `--recursive` directories.
pub(crate) fn remove(args: &Remove) -> Result<()> {
    let places = places(&args.places)?;
    change(&places, |volume| each(&places, |place| remove_operand(volume, place, args)))
}

fn remove_operand(volume: &Volume, place: &Place, args: &Remove) -> Result<()> {
    let (path, shown) = (&place.path, place.shown());
    // POSIX has rm refuse these: their names do not say what would go.
    let name = last_name(path);
    let name = name.with_context(|| format!("{shown} stays: rm takes no root, `.` or `..`"))?;
    // Without a slash at its end, so that a link is looked at and not the directory behind it.
    let found = volume.symlink_metadata(path.with_file_name(name));
    let attr = match found {
        Err(error) if args.force && matches!(error.reason(), FsError::NotFound) => return Ok(()),
        found => found?,
    };
    tracing::info!(place = shown, "removing");
    if attr.kind != FileKind::Directory {
        volume.remove_file(path)?;
    } else if args.recursive {
        remove_tree(volume, path)?;
    } else {
        bail!("{shown} is a directory: --recursive removes it");
    }
    Ok(())
}

fn remove_tree(volume: &Volume, path: &Path) -> Result<()> {
    for entry in volume.read_dir(path)?.collect::<zonal_fs::volume::Result<Vec<_>>>()? {
        interrupt::check()?;
        let path = path.join(&entry.name);
        tracing::debug!(path = shown(&path), "removing what is in a directory");
        if entry.kind == FileKind::Directory {
            remove_tree(volume, &path)?;
        } else {
            volume.remove_file(&path)?;
        }
    }
    Ok(volume.remove_dir(path)?)
}

/// Moves an entry within a drive.
pub(crate) fn rename(args: &Rename) -> Result<()> {
    let source = Place::required(&args.source)?;
    let target = on_drive_of(&source, &args.target)?;
    change(&[source.clone(), target.clone()], |volume| {
        let target = Place { path: into(volume, &source.path, target.path)?, ..target };
        // The file system renames a file to itself without an error. A user who took that for a
        // move and removed the source would lose the file.
        let [from, to] =
            [&source.path, &target.path].map(|path| volume.symlink_metadata(path).ok());
        let is_file = from.as_ref().is_some_and(|from| from.kind != FileKind::Directory);
        if is_file && from.map(|from| from.ino) == to.map(|to| to.ino) {
            bail!("{} and {} are the same file", source.shown(), target.shown());
        }
        Ok(volume.rename(&source.path, &target.path)?)
    })
}

/// Links an entry.
pub(crate) fn link(args: &Link) -> Result<()> {
    let link = Place::required(&args.place)?;
    if args.symbolic {
        return change(std::slice::from_ref(&link), |volume| {
            let target = Path::new(&args.target);
            Ok(volume.symlink(target, into(volume, target, link.path.clone())?)?)
        });
    }
    let target = Place::required(&args.target)?;
    change(&[target.clone(), link.clone()], |volume| {
        Ok(volume.hard_link(&target.path, into(volume, &target.path, link.path)?)?)
    })
}

/// Makes directories.
pub(crate) fn make_dir(args: &MakeDir) -> Result<()> {
    let places = places(&args.places)?;
    change(&places, |volume| {
        each(&places, |place| {
            if args.parents {
                volume.create_dir_all(&place.path)?;
            } else {
                volume.create_dir(&place.path)?;
            }
            Ok(())
        })
    })
}

fn places(texts: &[OsString]) -> Result<Vec<Place>> {
    texts.iter().map(|text| Place::required(text)).collect()
}

/// A second place of a command: `/PATH` is on the same drive.
fn on_drive_of(first: &Place, text: &OsStr) -> Result<Place> {
    if text.as_bytes().starts_with(b"/") && Place::of(text).is_none() {
        return Ok(Place { device: first.device.clone(), path: text.into() });
    }
    Place::required(text)
}

/// The new path of a file called `name`: in `target`, if that is a directory, else `target` itself.
fn into(volume: &Volume, name: &Path, target: PathBuf) -> Result<PathBuf> {
    match volume.metadata(&target) {
        Ok(attr) if attr.kind == FileKind::Directory => {
            let nameless = || format!("{} has no name to be put into a directory by", shown(name));
            Ok(target.join(last_name(name).with_context(nameless)?))
        }
        Ok(_) | Err(_) => Ok(target),
    }
}
