//! `zonal ls`: what is in a directory.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use zonal_fs::vfs::{Access, Attr, FileKind};
use zonal_fs::volume::Volume;

use super::{Place, open};
use crate::args::Global;
use crate::args::files::List;
use crate::output::json;
use crate::output::table::Table;

/// What is said about a file.
#[derive(Serialize)]
struct Listed {
    path: String,
    kind: &'static str,
    /// Permission bits, as chmod(1) has them.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    bytes: u64,
    allocated_bytes: u64,
    /// Last change of the content, seconds since 1970.
    modified: i64,
    inode: u64,
    /// Where a symbolic link leads.
    target: Option<String>,
}

/// Prints what is there: a directory's entries by name, or a file.
pub(crate) fn run(global: &Global, args: &List) -> Result<()> {
    // A device alone means its root.
    let whole = || Place { device: args.place.clone(), path: "/".into() };
    let place = Place::of(&args.place).unwrap_or_else(whole);
    let volume = open(&place.device, Access::ReadOnly)?;
    let mut found = Vec::new();
    let attr = volume.symlink_metadata(&place.path)?;
    if attr.kind == FileKind::Directory {
        gather(&volume, (&place.path, Path::new("")), args, &mut found)?;
    } else {
        let name = place.path.file_name().map_or_else(|| place.path.clone(), PathBuf::from);
        found.push(listed(&volume, &place.path, &name)?);
    }
    if global.json {
        return json::document(&found);
    }
    if args.long {
        say!("{}", table(&found));
    } else {
        for file in &found {
            sayln!("{}", file.path);
        }
    }
    Ok(())
}

/// Adds the entries of a directory, which is `shown` as far as it is below what was asked for.
fn gather(
    volume: &Volume,
    (path, shown): (&Path, &Path),
    args: &List,
    found: &mut Vec<Listed>,
) -> Result<()> {
    let mut entries = volume.read_dir(path)?.collect::<zonal_fs::volume::Result<Vec<_>>>()?;
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    for entry in entries {
        let (path, shown) = (path.join(&entry.name), shown.join(&entry.name));
        found.push(listed(volume, &path, &shown)?);
        if args.recursive && entry.kind == FileKind::Directory {
            gather(volume, (&path, &shown), args, found)?;
        }
    }
    Ok(())
}

fn listed(volume: &Volume, path: &Path, shown: &Path) -> Result<Listed> {
    let attr = volume.symlink_metadata(path)?;
    let target = match attr.kind {
        FileKind::Symlink => Some(volume.read_link(path)?.display().to_string()),
        FileKind::Regular
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => None,
    };
    Ok(Listed::new(shown, &attr, target))
}

impl Listed {
    fn new(path: &Path, attr: &Attr, target: Option<String>) -> Self {
        Self {
            path: path.display().to_string(),
            kind: kind(attr.kind),
            mode: format!("{:04o}", attr.perm),
            links: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            bytes: attr.size,
            allocated_bytes: attr.blocks * 512,
            modified: attr.mtime.secs(),
            inode: attr.ino.get(),
            target,
        }
    }
}

/// The word for a kind.
fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

fn table(found: &[Listed]) -> String {
    let mut table = Table::new(1, &["kind", "mode", "links", "uid", "gid", "bytes"]);
    for file in found {
        let numbers = [file.links.into(), file.uid.into(), file.gid.into(), file.bytes];
        let words = [file.kind.to_owned(), file.mode.clone()];
        table.row(words.into_iter().chain(numbers.map(|number: u64| number.to_string())).collect());
    }
    let names = found.iter().map(|file| match &file.target {
        Some(target) => format!("{} -> {target}", file.path),
        None => file.path.clone(),
    });
    let names = std::iter::once("path".to_owned()).chain(names);
    let mut text = String::new();
    for (line, name) in table.text().lines().zip(names) {
        text.extend([line, "  ", &name, "\n"]);
    }
    text
}
