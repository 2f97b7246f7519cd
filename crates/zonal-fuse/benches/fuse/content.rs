//! The content of a file of the ceiling: bytes in memory, or blocks in a log. The log is as long as
//! a drive, and all writes are appended to it, as a file system on zones does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

const BLOCK: u64 = 4096;
/// Bytes of a zone. The log empties a whole zone before it writes there again.
const ZONE: u64 = 96 << 20;
const ZONES: u64 = 42;

/// A file that is written in order, zone by zone, for ever.
pub(crate) struct Log {
    file: File,
    written: AtomicU64,
}

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(ZONES * ZONE)?;
        Ok(Self { file, written: AtomicU64::new(0) })
    }

    /// Appends whole blocks, and returns their position. Callers take turns; otherwise one could
    /// empty a zone after the write of another.
    fn append(&self, data: &[u8]) -> io::Result<u64> {
        let len = data.len() as u64;
        let start = self.written.fetch_add(len, Ordering::Relaxed);
        let at = |position: u64| position % (ZONES * ZONE);
        let first_of_zone = start.next_multiple_of(ZONE);
        if first_of_zone < start + len {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, flags, at(first_of_zone), ZONE)?;
        }
        let inside = (ZONES * ZONE - at(start)).min(len);
        let (inside, wrapped) = data.split_at(usize::try_from(inside).expect("one request"));
        self.file.write_all_at(inside, at(start))?;
        self.file.write_all_at(wrapped, 0)?;
        Ok(at(start))
    }
}

pub(crate) enum Content {
    Memory(Vec<u8>),
    /// Where each block lies; the file ends at one.
    Logged(Arc<Log>, Vec<u64>),
}

impl Content {
    pub(crate) fn new(log: Option<&Arc<Log>>) -> Self {
        log.map_or(Self::Memory(Vec::new()), |log| Self::Logged(Arc::clone(log), Vec::new()))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Logged(_, blocks) => blocks.len() as u64 * BLOCK,
        }
    }

    pub(crate) fn resize(&mut self, len: u64) {
        match self {
            Self::Memory(bytes) => bytes.resize(index(len), 0),
            Self::Logged(_, blocks) => blocks.truncate(index(len / BLOCK)),
        }
    }

    /// Passes the bytes of a range to `reply`.
    pub(crate) fn read(&self, offset: u64, len: u64, reply: impl FnOnce(&[u8])) -> io::Result<()> {
        let end = self.len().min(offset + len);
        let start = offset.min(end);
        match self {
            Self::Memory(bytes) => reply(&bytes[index(start)..index(end)]),
            Self::Logged(log, blocks) => {
                let mut buffer = vec![0; index(end - start)];
                let places = &blocks[index(start / BLOCK)..index(end / BLOCK)];
                let mut rest = &mut buffer[..];
                for run in places.chunk_by(|one, next| one + BLOCK == *next) {
                    let (piece, behind) = rest.split_at_mut(run.len() * index(BLOCK));
                    log.file.read_exact_at(piece, run[0])?;
                    rest = behind;
                }
                reply(&buffer);
            }
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                let start = index(offset);
                if bytes.len() < start {
                    bytes.resize(start, 0);
                }
                let inside = (bytes.len() - start).min(data.len());
                bytes[start..start + inside].copy_from_slice(&data[..inside]);
                bytes.extend_from_slice(&data[inside..]);
            }
            Self::Logged(log, blocks) => {
                let first = index(offset / BLOCK);
                let count = data.len() / index(BLOCK);
                let is_aligned = offset.is_multiple_of(BLOCK) && data.len() == count * index(BLOCK);
                if !is_aligned || first > blocks.len() {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let start = log.append(data)?;
                blocks.resize(blocks.len().max(first + count), 0);
                for (nth, place) in (0..).zip(&mut blocks[first..first + count]) {
                    *place = (start + nth * BLOCK) % (ZONES * ZONE);
                }
            }
        }
        Ok(())
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("it is in memory")
}
