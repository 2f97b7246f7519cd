//! A new drive file: it has its name when it is complete, and a failure leaves nothing.
//!
//! It is made without a name (`O_TMPFILE`) where the host's file system can do that, so that not
//! even a kill leaves a part. Elsewhere a failure removes it. A file that is replaced keeps its
//! content if the new drive is too large for the host.
//!
//! A drive that is longer than the host's files becomes [pieces] in a directory. It
//! has another name until it is complete, so a kill may leave it under that name.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use zerocopy::IntoBytes;

use super::backing::{Backing, HostFile};
use super::format::{self, Description, Layout};
use super::pieces::{self, Pieces};
use super::{Overwrite, io_error};
use crate::claim::{self, OpenMode};
use crate::error::{FileLimit, Result};
use crate::{ByteCount, DeviceError};

/// How exactly the largest length of a file is found.
const LENGTH_STEP: u64 = 1 << 20;

/// Pieces that may be longer than this have a multiple of it.
const PIECE_STEP: u64 = 1 << 30;

/// Makes a drive file at `path`: in pieces of `piece` bytes if the caller names that, or if the
/// host's file system takes no file of the drive's length.
pub(super) fn create(
    path: &Path,
    overwrite: Overwrite,
    piece: Option<ByteCount>,
    drive: &Description,
) -> Result<()> {
    let is_there = path.symlink_metadata().is_ok();
    if is_there && overwrite == Overwrite::Refuse {
        return Err(io_error("creating", path, Errno::EXIST.into()));
    }
    let old = if path.is_dir() { Some(Pieces::open(path, OpenMode::ReadWrite)?) } else { None };
    let piece = piece.or(old.as_ref().map(|_| ByteCount::new(Layout::new(drive).file_len)));
    let piece = match piece {
        Some(piece) => Some(piece.get()),
        None => match if is_there { replace(path, drive) } else { create_new(path, drive) } {
            Err(DeviceError::FileTooLarge { by: FileLimit::FileSystem, limit, .. }) => {
                Some(limit.get())
            }
            done => done.map(|()| None)?,
        },
    };
    if let Some(most) = piece {
        create_pieces(path, overwrite, most, drive)?;
    }
    // The name has to survive too.
    let synced = File::open(folder(path)).and_then(|folder| folder.sync_all());
    synced.map_err(|source| io_error("creating", path, source))
}

/// Makes a directory of pieces of `most` bytes or a little less, and removes a drive file or pieces
/// that are there.
fn create_pieces(path: &Path, overwrite: Overwrite, most: u64, drive: &Description) -> Result<()> {
    let failed = |source| io_error("creating", path, source);
    let name = path.file_name().ok_or_else(|| failed(Errno::INVAL.into()))?;
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = path.with_file_name(unfinished);
    DirBuilder::new().mode(0o700).create(&unfinished).map_err(failed)?;
    let made = fill_pieces(&unfinished, most, drive).map_err(failed);
    let put = made.and_then(|_locked| put(&unfinished, path, overwrite));
    if put.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    put
}

/// Makes new pieces a new drive: all zeroes but the two headers. The lock lasts as long as they are
/// open.
fn fill_pieces(dir: &Path, most: u64, drive: &Description) -> io::Result<Pieces> {
    let layout = Layout::new(drive);
    // An ordinary length is easier to copy and to compare.
    let step = if most > PIECE_STEP { PIECE_STEP } else { pieces::STEP };
    let piece_len = match layout.file_len.next_multiple_of(pieces::STEP) {
        whole if whole <= most => whole,
        _ => most / step * step,
    };
    if piece_len == 0 {
        let what = "pieces of less than a MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let pieces = Pieces::create(dir, layout.file_len, piece_len)?;
    pieces.first().try_lock()?;
    write_head(&pieces, pieces.first(), layout.data_at.min(piece_len), drive)?;
    pieces.sync_all()?;
    File::open(dir)?.sync_all()?;
    Ok(pieces)
}

/// Gives finished pieces their name, and removes the drive that had it.
fn put(finished: &Path, path: &Path, overwrite: Overwrite) -> Result<()> {
    let failed = |source| io_error("creating", path, source);
    let rename = |flags| rustix::fs::renameat_with(CWD, finished, CWD, path, flags);
    match rename(RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) if overwrite == Overwrite::Replace => {}
        done => return done.map_err(|errno| failed(errno.into())),
    }
    // A drive file that another process has open stays. The caller has locked that of pieces.
    let old = if path.is_dir() { None } else { Some(File::open(path).map_err(failed)?) };
    if let Some(file) = &old {
        claim::lock(file, path, OpenMode::ReadWrite)?;
    }
    rename(RenameFlags::EXCHANGE).map_err(|errno| failed(errno.into()))?;
    // By the other name now.
    let removed =
        if old.is_some() { fs::remove_file(finished) } else { fs::remove_dir_all(finished) };
    removed.map_err(failed)
}

/// Options of a new file, which its owner alone can open.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    }
}

fn create_new(path: &Path, drive: &Description) -> Result<()> {
    let unnamed = i32::try_from(OFlags::TMPFILE.bits()).expect("a flag of open(2)");
    if let Ok(file) = options().custom_flags(unnamed).open(folder(path)) {
        let file = HostFile(file);
        fill(&file, path, drive)?;
        let own = format!("/proc/self/fd/{}", file.0.as_raw_fd());
        match rustix::fs::linkat(CWD, &*own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => return Err(io_error("creating", path, Errno::EXIST.into())),
            // Without /proc, or where the file system gives no names later.
            Err(_) => {}
        }
    }
    let file = options().create_new(true).open(path);
    let file = HostFile(file.map_err(|source| io_error("creating", path, source))?);
    fill(&file, path, drive).inspect_err(|_| remove(path))
}

fn replace(path: &Path, drive: &Description) -> Result<()> {
    let failed = |source| io_error("creating", path, source);
    let file = HostFile(options().create(true).truncate(false).open(path).map_err(failed)?);
    claim::lock(&file.0, path, OpenMode::ReadWrite)?;
    let old_len = file.0.metadata().map_err(failed)?.len();
    let len = Layout::new(drive).file_len;
    // Before anything is lost.
    if let Err(error) = grow(&file.0, path, len.max(old_len)) {
        file.0.set_len(old_len).map_err(failed)?;
        return Err(error);
    }
    file.0.set_len(0).map_err(failed)?;
    fill(&file, path, drive).inspect_err(|_| {
        // Also where a link leads to it.
        let _ = file.0.set_len(0);
        remove(path);
    })
}

/// Removes a file that could not be completed. The caller reports the error that led here.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Makes an empty file a new drive: all zeroes but the two headers.
fn fill(file: &HostFile, path: &Path, drive: &Description) -> Result<()> {
    claim::lock(&file.0, path, OpenMode::ReadWrite)?;
    let layout = Layout::new(drive);
    grow(&file.0, path, layout.file_len)?;
    let filled = write_head(file, &file.0, layout.data_at, drive).and_then(|()| file.0.sync_all());
    filled.map_err(|source| io_error("creating", path, source))
}

/// Writes the two headers. Allocates the `table` bytes before the data in the first file, so that
/// the zone table cannot fail later because data has filled the host.
fn write_head(
    backing: &impl Backing,
    first: &File,
    table: u64,
    drive: &Description,
) -> io::Result<()> {
    match rustix::fs::fallocate(first, FallocateFlags::empty(), 0, table) {
        // A file system that cannot do it.
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    for copy in [1, 0] {
        let header = format::encode_header(drive, copy);
        backing.write_at(u64::from(copy) * format::PAGE, header.as_bytes())?;
    }
    Ok(())
}

/// Gives a file a length that the process and the host allow.
fn grow(file: &File, path: &Path, len: u64) -> Result<()> {
    let too_large = |limit, by| DeviceError::FileTooLarge {
        path: path.to_owned(),
        needed: ByteCount::new(len),
        limit: ByteCount::new(limit),
        by,
    };
    // The kernel ends a process that goes beyond its limit by a signal, SIGXFSZ.
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| len > *limit) {
        return Err(too_large(limit, FileLimit::Process));
    }
    match file.set_len(len) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::FBIG) => {
            let limit = largest_len(len, |len| file.set_len(len).is_ok());
            Err(too_large(limit, FileLimit::FileSystem))
        }
        grown => grown.map_err(|source| io_error("creating", path, source)),
    }
}

/// The largest length below `len`, which is too large, that a file can have.
fn largest_len(len: u64, can_have: impl Fn(u64) -> bool) -> u64 {
    let (mut possible, mut impossible) = (0, len);
    while impossible - possible > LENGTH_STEP {
        let middle = possible + (impossible - possible) / 2;
        if can_have(middle) {
            possible = middle;
        } else {
            impossible = middle;
        }
    }
    possible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_length_of_file_is_found_to_the_mebibyte() {
        for limit in [0, 5 << 20, (16 << 40) - 4096] {
            let found = largest_len(30 << 40, |len| len <= limit);
            assert!(found <= limit && limit - found <= LENGTH_STEP, "{limit}: {found}");
        }
    }
}
