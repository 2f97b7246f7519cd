//! `zonal rm|mv|ln|mkdir`: entries of directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fs::FsError;
use zonal_fs::vfs::FileKind;
use zonal_fs::volume::Volume;

use super::{Place, change};
use crate::args::files::{Link, MakeDir, Remove, Rename};

/// Removes files, and with `--recursive` directories.
pub(crate) fn remove(args: &Remove) -> Result<()> {
    let places = places(&args.places)?;
    change(&places, |volume| {
        for place in &places {
            let attr = match volume.symlink_metadata(&place.path) {
                Err(error) if args.force && matches!(error.reason(), FsError::NotFound) => continue,
                attr => attr?,
            };
            tracing::info!(place = place.shown(), "removing");
            if attr.kind != FileKind::Directory {
                volume.remove_file(&place.path)?;
            } else if args.recursive {
                remove_tree(volume, &place.path)?;
            } else {
                bail!("{} is a directory: --recursive removes it", place.shown());
            }
        }
        Ok(())
    })
}

fn remove_tree(volume: &Volume, path: &Path) -> Result<()> {
    for entry in volume.read_dir(path)?.collect::<zonal_fs::volume::Result<Vec<_>>>()? {
        let path = path.join(&entry.name);
        tracing::debug!(path = shown(&path), "removing what is in a directory");
        if entry.kind == FileKind::Directory {
            remove_tree(volume, &path)?;
        } else {
            volume.remove_file(&path)?;
        }
    }
    // The root stays, empty.
    if path.components().any(|part| matches!(part, std::path::Component::Normal(_))) {
        volume.remove_dir(path)?;
    }
    Ok(())
}

/// Moves an entry within a drive.
pub(crate) fn rename(args: &Rename) -> Result<()> {
    let source = Place::required(&args.source)?;
    let target = on_drive_of(&source, &args.target)?;
    change(&[source.clone(), target.clone()], |volume| {
        Ok(volume.rename(&source.path, into(volume, &source.path, target.path)?)?)
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
        for place in &places {
            if args.parents {
                volume.create_dir_all(&place.path)?;
            } else {
                volume.create_dir(&place.path)?;
            }
        }
        Ok(())
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

/// Where something called `name` goes that is to go to `target`: into it, if it is a directory.
fn into(volume: &Volume, name: &Path, target: PathBuf) -> Result<PathBuf> {
    match volume.metadata(&target) {
        Ok(attr) if attr.kind == FileKind::Directory => {
            let name = name.file_name().with_context(|| format!("{} has no name", shown(name)))?;
            Ok(target.join(name))
        }
        Ok(_) | Err(_) => Ok(target),
    }
}
