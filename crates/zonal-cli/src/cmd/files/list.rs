//! `zonal ls` and `zonal stat`: the entries of directories, and the attributes of files.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use zonal::shown;
use zonal_fs::vfs::{Access, Attr, FileKind};
use zonal_fs::volume::Volume;

use super::{Place, open};
use crate::args::Global;
use crate::args::files::{List, Stat};
use crate::output::table::{Table, properties};
use crate::output::{Stdout, json, size};

/// The attributes of a file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// Path: `ls` prints it from its argument on, `stat` from the root on. A replacement character
    /// stands for bytes that are not UTF-8.
    #[serde(serialize_with = "lossy")]
    #[schemars(with = "String")]
    path: PathBuf,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `char-device` or `block-device`.
    file_type: &'static str,
    /// Permission bits, in octal digits.
    mode: String,
    /// Names that lead to it.
    links: u32,
    /// Owner.
    uid: u32,
    /// Group.
    gid: u32,
    /// Length of the content.
    size_bytes: u64,
    /// Space that it takes on the drive.
    allocated_bytes: u64,
    /// Last access, since 1970.
    accessed_seconds: i64,
    /// Last change of the content, since 1970.
    modified_seconds: i64,
    /// Last change of the inode, since 1970.
    changed_seconds: i64,
    /// Number of the file.
    inode: u64,
    /// Target of a symbolic link; null of others.
    #[serde(serialize_with = "lossy_if_there")]
    #[schemars(with = "Option<String>")]
    target: Option<PathBuf>,
}

/// JSON has no names that are not UTF-8.
fn lossy<S: Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
pub(crate) fn lossy_if_there<S: Serializer>(
    path: &Option<PathBuf>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
}

/// Prints the entries of a directory by name, or one file.
pub(crate) fn run(global: &Global, args: &List) -> Result<()> {
    // A device alone means its root.
    let place = match Place::of(&args.place) {
        Some(place) => place,
        None => {
            let device = args.place.to_str().context("a device's name is not UTF-8")?;
            Place { device: device.to_owned(), path: "/".into() }
        }
    };
    let volume = open(&place.device, Access::ReadOnly)?;
    let mut found = Vec::new();
    let is_directory = |attr: &Attr| attr.kind == FileKind::Directory;
    let attr = volume.symlink_metadata(&place.path)?;
    // As ls(1): with -l, a link is shown and not the directory that it leads to.
    let leads_to_directory = || volume.metadata(&place.path).is_ok_and(|attr| is_directory(&attr));
    if is_directory(&attr) || !args.long && leads_to_directory() {
        gather(&volume, &place.path, Path::new(""), args, &mut found)?;
    } else {
        let name = place.path.file_name().map_or_else(|| place.path.clone(), PathBuf::from);
        found.push(listed(&volume, &place.path, &name)?);
    }
    if global.json {
        return json::document(&found);
    }
    if args.long {
        long(&found, args)?;
    } else {
        found.iter().try_for_each(|file| line(b"", file))?;
    }
    Ok(())
}

/// Prints all attributes of files.
pub(crate) fn stat(global: &Global, args: &Stat) -> Result<()> {
    let places =
        args.places.iter().map(|text| Place::required(text)).collect::<Result<Vec<_>>>()?;
    let mut found = Vec::new();
    for place in &places {
        let volume = open(&place.device, Access::ReadOnly)?;
        let file = if args.dereference {
            Listed::new(&place.path, &volume.metadata(&place.path)?, None)
        } else {
            listed(&volume, &place.path, &place.path)?
        };
        found.push((place, file));
    }
    if global.json {
        return json::document(&found.into_iter().map(|(_, file)| file).collect::<Vec<_>>());
    }
    for (place, file) in found {
        let target = file.target.as_ref().map(|target| format!(" -> {}", shown(target)));
        let pairs = [
            ("file", place.shown() + &target.unwrap_or_default()),
            ("kind", file.file_type.to_owned()),
            ("mode", file.mode),
            ("owner", format!("{}:{}", file.uid, file.gid)),
            ("links", file.links.to_string()),
            ("size", format!("{} bytes, {} allocated", file.size_bytes, file.allocated_bytes)),
            ("inode", file.inode.to_string()),
            ("accessed", date(file.accessed_seconds)),
            ("modified", date(file.modified_seconds)),
            ("changed", date(file.changed_seconds)),
        ];
        say!("{}", properties(&pairs));
    }
    Ok(())
}

/// Adds the entries of a directory. `shown` is its path from the argument of the command on.
fn gather(
    volume: &Volume,
    path: &Path,
    shown: &Path,
    args: &List,
    found: &mut Vec<Listed>,
) -> Result<()> {
    let mut entries = volume.read_dir(path)?.collect::<zonal_fs::volume::Result<Vec<_>>>()?;
    entries.retain(|entry| args.all || !entry.name.as_bytes().starts_with(b"."));
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    for entry in entries {
        let (path, shown) = (path.join(&entry.name), shown.join(&entry.name));
        found.push(listed(volume, &path, &shown)?);
        if args.recursive && entry.kind == FileKind::Directory {
            gather(volume, &path, &shown, args, found)?;
        }
    }
    Ok(())
}

fn listed(volume: &Volume, path: &Path, shown: &Path) -> Result<Listed> {
    let attr = volume.symlink_metadata(path)?;
    let target = match attr.kind {
        FileKind::Symlink => Some(volume.read_link(path)?),
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
    fn new(path: &Path, attr: &Attr, target: Option<PathBuf>) -> Self {
        Self {
            path: path.to_owned(),
            file_type: kind(attr.kind),
            mode: format!("{:04o}", attr.perm),
            links: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size,
            allocated_bytes: attr.blocks * 512,
            accessed_seconds: attr.atime.secs(),
            modified_seconds: attr.mtime.secs(),
            changed_seconds: attr.ctime.secs(),
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

/// Prints a line for each file.
fn long(found: &[Listed], args: &List) -> Result<()> {
    let mut table =
        Table::new(1, &["kind", "mode", "links", "uid", "gid", "size", "modified (UTC)"]);
    for file in found {
        let bytes = file.size_bytes;
        let bytes = if args.human_readable { size(bytes) } else { bytes.to_string() };
        let numbers = [u64::from(file.links), file.uid.into(), file.gid.into()];
        let words = [file.file_type.to_owned(), file.mode.clone()];
        let words = words.into_iter().chain(numbers.map(|number| number.to_string()));
        table.row(words.chain([bytes, date(file.modified_seconds)]).collect());
    }
    let text = table.text();
    let mut lines = text.lines();
    sayln!("{}  path", lines.next().unwrap_or_default());
    lines.zip(found).try_for_each(|(columns, file)| line(format!("{columns}  ").as_bytes(), file))
}

/// Prints the name of a file behind `columns`: on a terminal with control characters escaped, else
/// its bytes.
fn line(columns: &[u8], file: &Listed) -> Result<()> {
    let is_terminal = rustix::stdio::stdout().is_terminal();
    let bytes = |name: &OsStr| {
        if is_terminal { shown(name).into_bytes() } else { name.as_bytes().to_vec() }
    };
    let mut line = [columns, &bytes(file.path.as_ref())].concat();
    if let Some(target) = file.target.as_ref().filter(|_| !columns.is_empty()) {
        line.extend(b" -> ");
        line.extend(bytes(target.as_ref()));
    }
    line.push(b'\n');
    Ok(Stdout.write_all(&line)?)
}

/// A time as people read it, in UTC.
fn date(time: i64) -> String {
    let date = chrono::DateTime::from_timestamp(time, 0);
    date.map_or_else(|| format!("{time} s"), |date| date.format("%Y-%m-%d %H:%M:%S").to_string())
}
