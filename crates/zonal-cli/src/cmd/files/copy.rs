//! `zonal cp`: files between this machine and drives, in every direction.
//!
//! Content, holes, mode and time of change are copied, symbolic links as links. Owners are not: a copy
//! belongs to who makes it, as with cp(1).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use zonal_fs::vfs::Access;

use super::tree::{Facts, Kind, Tree};
use super::{Place, open};
use crate::args::files::Copy;
use crate::output::progress;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Copies.
pub(crate) fn run(args: &Copy) -> Result<()> {
    let (target_device, target_path) = side(&args.target);
    let target = match &target_device {
        None => Tree::Here,
        Some(device) => on_drive(device, Access::ReadWrite)?,
    };
    let outcome = args.sources.iter().try_for_each(|source| {
        let (device, path) = side(source);
        let both = device.is_some() && device == target_device;
        // A drive is opened once.
        let other = match &device {
            None => Some(Tree::Here),
            Some(_) if both => None,
            Some(device) => Some(on_drive(device, Access::ReadOnly)?),
        };
        let from = other.as_ref().unwrap_or(&target);
        let to = if target.is_dir(&target_path) {
            let name = path.file_name();
            // All of a drive goes into the directory itself.
            name.map_or_else(|| target_path.clone(), |name| target_path.join(name))
        } else if args.sources.len() > 1 {
            bail!("{} is not a directory", target.name(&target_path));
        } else {
            target_path.clone()
        };
        if both && (to == path || to.starts_with(&path)) {
            bail!("{} would be copied into itself", from.name(&path));
        }
        copy_one(args, (from, &path), (&target, &to))
    });
    // What was copied before a failure stays.
    target.close()?;
    outcome
}

/// A side of a copy: its drive, if it is on one, and the path there.
fn side(text: &str) -> (Option<String>, PathBuf) {
    match Place::of(text) {
        Some(place) => (Some(place.device), place.path),
        None => (None, text.into()),
    }
}

fn on_drive(device: &str, access: Access) -> Result<Tree> {
    Ok(Tree::Drive { device: device.to_owned(), volume: open(device, access)? })
}

fn copy_one(args: &Copy, from: (&Tree, &Path), to: (&Tree, &Path)) -> Result<()> {
    let (tree, path) = from;
    let found = tree.facts(path)?;
    let facts = found.with_context(|| format!("{}: no such file or directory", tree.name(path)))?;
    if facts.kind == Kind::Directory && !args.recursive {
        bail!("{} is a directory: --recursive copies it", tree.name(path));
    }
    let bar = progress::bar(0, progress::Unit::Bytes, "copying");
    count(from, &facts, &bar)?;
    let mut buffer = vec![0; PIECE];
    let outcome = copy(from, &facts, to, &mut (&mut buffer, &bar));
    bar.finish_and_clear();
    outcome
}

/// Adds up what there is to copy.
fn count((tree, path): (&Tree, &Path), facts: &Facts, bar: &ProgressBar) -> Result<()> {
    match facts.kind {
        Kind::File => bar.inc_length(facts.bytes),
        Kind::Directory => {
            for name in tree.names(path)? {
                let path = path.join(name);
                if let Some(facts) = tree.facts(&path)? {
                    count((tree, &path), &facts, bar)?;
                }
            }
        }
        Kind::Symlink | Kind::Special => {}
    }
    Ok(())
}

fn copy(
    (tree, path): (&Tree, &Path),
    facts: &Facts,
    (target, to): (&Tree, &Path),
    work: &mut (&mut Vec<u8>, &ProgressBar),
) -> Result<()> {
    match facts.kind {
        Kind::File => {
            copy_content((tree, path), facts.bytes, (target, to), work)
                .with_context(|| format!("copying {} to {}", tree.name(path), target.name(to)))?;
            target.finish(to, facts)
        }
        Kind::Directory => {
            if !target.is_dir(to) {
                target.create_dir(to)?;
            }
            for name in tree.names(path)? {
                let (path, to) = (path.join(&name), to.join(&name));
                // What goes away meanwhile is not copied.
                if let Some(facts) = tree.facts(&path)? {
                    copy((tree, &path), &facts, (target, &to), work)?;
                }
            }
            // The root of a drive and a directory that existed keep what they have.
            if path.file_name().is_some() { target.finish(to, facts) } else { Ok(()) }
        }
        Kind::Symlink => target.symlink(&tree.read_link(path)?, to),
        Kind::Special => {
            eprintln!("zonal: {}: not copied, it is no file, directory or link", tree.name(path));
            Ok(())
        }
    }
}

fn copy_content(
    (tree, path): (&Tree, &Path),
    bytes: u64,
    (target, to): (&Tree, &Path),
    (buffer, bar): &mut (&mut Vec<u8>, &ProgressBar),
) -> Result<()> {
    let (mut source, mut copy) = (tree.open(path)?, target.create(to)?);
    let mut at = 0;
    loop {
        let read = source.read(buffer, at)?;
        if read == 0 {
            break;
        }
        let data = &buffer[..read];
        let next = at + read as u64;
        // Zeroes become a hole, but for the last piece, which gives the file its length.
        if next >= bytes || data.iter().any(|byte| *byte != 0) {
            copy.write(data, at)?;
        }
        bar.inc(read as u64);
        at = next;
    }
    Ok(())
}
