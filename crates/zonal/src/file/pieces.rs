//! A drive file in pieces, in a directory of its own: for a host whose files end below the length
//! of the drive. Files of ext4 with blocks of 4 KiB end at 16 TiB.
//!
//! The directory has the files `0`, `1`, and so on, and nothing else. All but the last one have the
//! same length. The lock of the drive is that of the first one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::backing::{Backing, HostFile, host_len};
use super::{format, io_error};
use crate::DeviceError;
use crate::claim::{self, OpenMode};
use crate::error::Result;

/// Lengths of pieces are multiples of this, so that no page of the format lies in two.
pub(super) const STEP: u64 = 1 << 20;

/// Most pieces of a drive.
const COUNT_MAX: usize = 4096;

/// The files of a drive.
pub(super) struct Pieces {
    files: Vec<HostFile>,
    piece_len: u64,
}

/// The path of a piece.
fn path_of(dir: &Path, number: usize) -> PathBuf {
    dir.join(number.to_string())
}

/// Whether a path is the directory of a drive in pieces.
pub fn is_in_pieces(path: &Path) -> bool {
    path.is_dir() && File::open(path_of(path, 0)).is_ok_and(|first| format::has_header(&first))
}

impl Pieces {
    /// Opens and locks the pieces in `dir`.
    pub(super) fn open(dir: &Path, mode: OpenMode) -> Result<Self> {
        let malformed = |what: String| DeviceError::Malformed { path: dir.to_owned(), what };
        let names = fs::read_dir(dir).and_then(|names| names.take(COUNT_MAX + 1).collect());
        let names: Vec<_> = names.map_err(|source| io_error("opening", dir, source))?;
        let count = names.len();
        if !(1..=COUNT_MAX).contains(&count) || !is_in_pieces(dir) {
            return Err(malformed("is a directory, and no drive file in pieces".into()));
        }
        let mut files = Vec::with_capacity(count);
        for number in 0..count {
            let path = path_of(dir, number);
            let file = File::options().read(true).write(mode == OpenMode::ReadWrite).open(&path);
            let missing = |source: io::Error| match source.kind() {
                io::ErrorKind::NotFound => {
                    malformed(format!("has {count} files, and none is piece {number}"))
                }
                _ => io_error("opening", &path, source),
            };
            let file = HostFile(file.map_err(missing)?);
            if number == 0 {
                claim::lock(&file.0, dir, mode)?;
            }
            files.push(file);
        }
        Self::of(files).map_err(|source| io_error("opening", dir, source))?.map_err(malformed)
    }

    /// Makes pieces of `piece_len` bytes in `dir`, which is empty: `len` bytes together.
    pub(super) fn create(dir: &Path, len: u64, piece_len: u64) -> io::Result<Self> {
        let count = usize::try_from(len.div_ceil(piece_len)).unwrap_or(usize::MAX);
        if !(1..=COUNT_MAX).contains(&count) {
            let what = format!("{count} pieces, of {COUNT_MAX} at most");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut files = Vec::with_capacity(count);
        let mut left = len;
        for number in 0..count {
            let file = super::creation::options().create_new(true).open(path_of(dir, number))?;
            file.set_len(left.min(piece_len))?;
            left -= left.min(piece_len);
            files.push(HostFile(file));
        }
        Ok(Self { files, piece_len })
    }

    /// These files, if their lengths are those of pieces.
    fn of(files: Vec<HostFile>) -> io::Result<std::result::Result<Self, String>> {
        let lens = files.iter().map(|file| host_len(&file.0)).collect::<io::Result<Vec<u64>>>()?;
        let piece_len = lens[0];
        let (last, whole) = lens.split_last().expect("there is a piece");
        let wrong = whole.iter().position(|len| *len != piece_len);
        let wrong = wrong.or((*last > piece_len).then_some(whole.len()));
        if let Some(number) = wrong {
            let len = lens[number];
            return Ok(Err(format!("piece {number} has {len} bytes, piece 0 has {piece_len}")));
        }
        if !whole.is_empty() && (piece_len == 0 || !piece_len.is_multiple_of(STEP)) {
            return Ok(Err(format!("piece 0 has {piece_len} bytes, which are no whole MiB")));
        }
        Ok(Ok(Self { files, piece_len }))
    }

    /// The first piece, whose lock is that of the drive.
    pub(super) fn first(&self) -> &File {
        &self.files[0].0
    }

    /// Makes all pieces durable, their lengths too.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| file.0.sync_all())
    }

    /// The start of the last piece, and the piece.
    fn last(&self) -> (u64, &HostFile) {
        let before = self.files.len() as u64 - 1;
        (before * self.piece_len, self.files.last().expect("there is a piece"))
    }

    /// Calls `each` for the parts of a range: with the piece, the place in it, and the length.
    fn parts(
        &self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&HostFile, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut at, mut left) = (offset, len);
        while left > 0 {
            // The last one takes all beyond its end, and fails as a single file does.
            let number = usize::try_from(at / self.piece_len).unwrap_or(usize::MAX);
            let number = number.min(self.files.len() - 1);
            let within = at - number as u64 * self.piece_len;
            let is_last = number + 1 == self.files.len();
            let count = if is_last { left } else { left.min(self.piece_len - within) };
            each(&self.files[number], within, count)?;
            at += count;
            left -= count;
        }
        Ok(())
    }

    /// The same for data in memory.
    fn slices(
        &self,
        offset: u64,
        data: &[u8],
        each: impl Fn(&HostFile, u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rest = data;
        self.parts(offset, data.len() as u64, |file, at, count| {
            let (part, after) = rest.split_at(bytes(count));
            rest = after;
            each(file, at, part)
        })
    }
}

/// A length of a part of what is in memory.
fn bytes(count: u64) -> usize {
    usize::try_from(count).expect("it is a part of what is in memory")
}

impl Backing for Pieces {
    fn len(&self) -> io::Result<u64> {
        let (start, file) = self.last();
        Ok(start + file.len()?)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut rest = &mut buffer[..];
        self.parts(offset, rest.len() as u64, |file, at, count| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(bytes(count));
            rest = after;
            file.read_at(at, part)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.slices(offset, data, HostFile::write_at)
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.slices(offset, data, HostFile::write_durable_at)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.iter().try_for_each(HostFile::sync)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.parts(offset, len, HostFile::zero)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.parts(offset, len, HostFile::punch)
    }

    fn free_space(&self) -> io::Result<u64> {
        self.last().1.free_space()
    }

    fn allocate(&self, end: u64, len: u64) -> io::Result<()> {
        let (start, file) = self.last();
        file.allocate(end.saturating_sub(start), len)
    }

    fn cut(&self, end: u64) -> io::Result<()> {
        let (start, file) = self.last();
        file.cut(end.saturating_sub(start))
    }
}
