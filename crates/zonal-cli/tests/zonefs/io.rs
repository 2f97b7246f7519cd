//! Direct I/O on zone files.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Direct I/O needs buffers that start on a page.
const PAGE: usize = 4096;

/// Bytes at an address that direct I/O takes.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Zeroes.
    pub(crate) fn new(len: u64) -> Self {
        let len = usize::try_from(len).unwrap();
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, len }
    }

    /// The bytes of [`content`] from `offset` on.
    pub(crate) fn content(offset: u64, len: u64) -> Self {
        let mut buffer = Self::new(len);
        for (word, at) in buffer.chunks_exact_mut(8).zip((offset..).step_by(8)) {
            word.copy_from_slice(&content(at).to_le_bytes());
        }
        buffer
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Eight bytes that are different at every offset.
fn content(offset: u64) -> u64 {
    (offset + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Opens a file that exists.
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens for direct writing.
pub(crate) fn open_direct(path: &Path) -> OwnedFd {
    open(path, OFlags::WRONLY | OFlags::DIRECT).unwrap()
}

/// Opens and writes at `offset`; returns how many bytes.
pub(crate) fn write_at(path: &Path, flags: OFlags, offset: u64, len: u64) -> Result<u64, Errno> {
    let file = open(path, flags | OFlags::WRONLY)?;
    let written = rustix::io::pwrite(&file, &Aligned::content(offset, len), offset)?;
    Ok(written as u64)
}

/// Writes at the end of a sequential file: the content that belongs there.
pub(crate) fn append(path: &Path, len: u64) -> Result<u64, Errno> {
    write_at(path, OFlags::DIRECT, size(path), len)
}

/// Opens and reads as much as there is, up to `len`.
pub(crate) fn read_at(path: &Path, flags: OFlags, offset: u64, len: u64) -> Result<Aligned, Errno> {
    let file = open(path, flags | OFlags::RDONLY)?;
    let mut buffer = Aligned::new(len);
    buffer.len = rustix::io::pread(&file, &mut *buffer, offset)?;
    Ok(buffer)
}

/// The file holds the bytes of [`Aligned::content`] from its start, and nothing else.
pub(crate) fn assert_content(path: &Path, len: u64) {
    assert_eq!(size(path), len);
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        let mut offset = 0;
        while offset < len {
            let part = (len - offset).min(1 << 20);
            let read = read_at(path, flags, offset, part).unwrap();
            assert!(*read == *Aligned::content(offset, part), "content at {offset}, {flags:?}");
            offset += part;
        }
    }
}

/// `truncate(2)`.
pub(crate) fn truncate(path: &Path, len: u64) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY)?;
    rustix::fs::ftruncate(&file, len)
}

/// `st_size`.
pub(crate) fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// The low twelve bits of `st_mode`.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().mode() & 0o7777
}
