//! Open files. `zonal.File` of the package makes files of Python's `io` of them.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use zonal_fs::vfs::Seek;
use zonal_fs::volume::{File, OpenFlags};

use crate::edge::{self, Buffer, Bytes, Failure, Name, Outcome};
use crate::volume::{self, Mounted, Volume};

/// An open file by positions, opened as os.open does. Of `flags`, this looks at O_RDONLY, O_WRONLY,
/// O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT, O_DSYNC, O_SYNC and O_NOFOLLOW.
#[pyclass(frozen, module = "zonal._zonal")]
pub(crate) struct RawFile {
    opened: Mutex<Option<Arc<Opened>>>,
}

struct Opened {
    file: File,
    /// Keeps the volume while the file is open. It goes after the file.
    _mounted: Arc<Mounted>,
}

impl RawFile {
    fn opened(&self) -> Outcome<Arc<Opened>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(|| Failure::closed("file"))
    }

    /// Runs `action` on the file while other threads of Python run.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&File) -> Outcome<T> + Send,
    ) -> Outcome<T> {
        let opened = self.opened()?;
        edge::detached(py, move || action(&opened.file))
    }
}

#[pymethods]
impl RawFile {
    #[new]
    #[pyo3(signature = (volume, path, flags, mode = 0o644))]
    fn new(
        py: Python<'_>,
        volume: &Bound<'_, Volume>,
        path: Name,
        flags: i32,
        mode: u32,
    ) -> Outcome<Self> {
        let mounted = volume.get().mounted()?;
        let flags = open_flags(flags)?;
        let opened = edge::detached(py, move || {
            let file = mounted.files.open_with(path, flags, volume::perm(mode))?;
            Ok(Opened { file, _mounted: mounted })
        })?;
        Ok(Self { opened: Mutex::new(Some(Arc::new(opened))) })
    }

    /// Closes the file and releases its lock. This makes nothing durable.
    fn close(&self, py: Python<'_>) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(opened));
    }

    /// Reads up to `length` bytes from byte `offset` on: less only at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> Outcome<Bound<'py, PyBytes>> {
        let data = self.run(py, |file| read(file, length, offset))?;
        Ok(PyBytes::new(py, &data))
    }

    /// Reads into a buffer from byte `offset` on, and returns how many bytes.
    fn preadinto(&self, py: Python<'_>, buffer: Buffer<'_>, offset: u64) -> Outcome<usize> {
        let length = buffer.len;
        let data = self.run(py, |file| read(file, length, offset))?;
        Ok(buffer.put(&data)?)
    }

    /// Writes at byte `offset` and returns how many bytes: less only where a zone of zonefs is
    /// full.
    fn pwrite(&self, py: Python<'_>, data: Bytes, offset: u64) -> Outcome<usize> {
        self.run(py, |file| Ok(file.write_at(&data, offset)?))
    }

    /// Writes all of the data at the end of the file and returns the byte where it went. Appends of
    /// several threads do not overlap.
    fn append(&self, py: Python<'_>, data: Bytes) -> Outcome<u64> {
        self.run(py, |file| {
            let written = file.append(&data)?;
            if written.len < data.len() as u64 {
                return Err(Failure::new(Errno::NOSPC, "the zone has no room for all of it"));
            }
            Ok(written.offset)
        })
    }

    /// Bytes of the file.
    fn size(&self, py: Python<'_>) -> Outcome<u64> {
        self.run(py, |file| Ok(file.metadata()?.size))
    }

    /// Cuts the file, or lengthens it with zeroes.
    fn truncate(&self, py: Python<'_>, size: u64) -> Outcome<()> {
        self.run(py, |file| Ok(file.set_len(size)?))
    }

    /// The next byte from `offset` on that is data. ENXIO where there is none.
    fn seek_data(&self, py: Python<'_>, offset: u64) -> Outcome<u64> {
        self.run(py, |file| Ok(file.seek(Seek::Data, offset)?))
    }

    /// The next byte from `offset` on of a hole; the end of the file is one.
    fn seek_hole(&self, py: Python<'_>, offset: u64) -> Outcome<u64> {
        self.run(py, |file| Ok(file.seek(Seek::Hole, offset)?))
    }

    /// Copies `count` bytes from byte `source` on to byte `to` of another file of the volume, which
    /// shares blocks where it can. Returns how many bytes: less only at the end of this file.
    fn copy_range(
        &self,
        py: Python<'_>,
        target: &Bound<'_, Self>,
        count: u64,
        source: u64,
        to: u64,
    ) -> Outcome<u64> {
        let target = target.get().opened()?;
        let range = source..source.saturating_add(count);
        self.run(py, move |file| Ok(file.copy_to(range, &target.file, to)?))
    }

    /// Makes content and attributes durable.
    fn sync(&self, py: Python<'_>) -> Outcome<()> {
        self.run(py, |file| Ok(file.sync_all()?))
    }

    /// Makes the content durable, with the metadata that is needed to read it back.
    fn datasync(&self, py: Python<'_>) -> Outcome<()> {
        self.run(py, |file| Ok(file.sync_data()?))
    }

    /// Attributes, as an os.stat_result.
    fn stat<'py>(&self, py: Python<'py>) -> Outcome<Bound<'py, PyAny>> {
        let attr = self.run(py, |file| Ok(file.metadata()?))?;
        Ok(volume::stat_result(py, &attr)?)
    }

    /// Locks the file against the other handles of this volume; EAGAIN if one of them has it
    /// locked.
    fn lock(&self, py: Python<'_>) -> Outcome<()> {
        self.run(py, |file| Ok(file.try_lock()?))
    }

    /// Gives the lock back.
    fn unlock(&self, py: Python<'_>) -> Outcome<()> {
        self.run(py, |file| {
            file.unlock();
            Ok(())
        })
    }

    /// The lifetime hint: "none", "short", "medium", "long" or "extreme".
    fn get_lifetime(&self, py: Python<'_>) -> Outcome<&'static str> {
        self.run(py, |file| Ok(file.write_lifetime()?.name()))
    }

    /// Says how long data that is written to the file will live.
    fn set_lifetime(&self, py: Python<'_>, lifetime: &str) -> Outcome<()> {
        let lifetime = volume::lifetime(lifetime)?;
        self.run(py, |file| Ok(file.set_write_lifetime(lifetime)?))
    }
}

/// Reads to the end of the file at most, with a buffer of no more than that.
fn read(file: &File, length: usize, offset: u64) -> Outcome<Vec<u8>> {
    let left = file.metadata()?.size.saturating_sub(offset);
    let mut data = edge::room(length.min(usize::try_from(left).unwrap_or(usize::MAX)))?;
    let read = file.read_at(&mut data, offset)?;
    data.truncate(read);
    Ok(data)
}

/// The flags of open(2), as a volume takes them.
fn open_flags(flags: i32) -> Outcome<OpenFlags> {
    let mut open = OpenFlags::try_from(flags)?;
    // Appending to or emptying a file takes write access.
    if !open.contains(OpenFlags::WRITE) {
        open.remove(OpenFlags::APPEND | OpenFlags::TRUNCATE);
    }
    Ok(open)
}
