//! Open files of a store.

use std::path::Path;
use std::sync::Arc;

use zonal_fs::vfs::{Ino, Written};
use zonal_fs::volume::{File, OpenFlags, WriteLifetime};

use crate::cache::CachedFile;
use crate::error::Result;
use crate::store::Store;
use crate::unsynced::Change;

/// An open file. It keeps its store open.
pub struct StoreFile {
    ino: Ino,
    // Dropped first: a file is closed before its volume.
    open: Option<Open>,
    store: Arc<Store>,
}

/// A file of the volume, and its pieces in the cache.
struct Open {
    file: File,
    cached: CachedFile,
}

impl StoreFile {
    /// Opens a file as `flags` say. Commits the file if it is new or was emptied.
    pub fn open(store: &Arc<Store>, path: &Path, flags: OpenFlags) -> Result<Self> {
        let (file, cached) = store.open_file(path, flags)?;
        let store = Arc::clone(store);
        Ok(Self { ino: file.ino(), open: Some(Open { file, cached }), store })
    }

    /// The file, in the process that opened it.
    fn parts(&self) -> Result<&Open> {
        self.store.check_process()?;
        Ok(self.open.as_ref().expect("it is there until it is dropped"))
    }

    fn file(&self) -> Result<&File> {
        self.parts().map(|open| &open.file)
    }

    /// Closes the file. If it was the last user of the store, closes the store too, and returns the
    /// error of that.
    pub fn close(self) -> Result<()> {
        let store = Arc::clone(&self.store);
        drop(self);
        store.release()
    }

    /// Reads into `buffer` from `offset` on and returns the number of bytes: fewer only at the end
    /// of file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let open = self.parts()?;
        open.cached.read(&open.file, buffer, offset)
    }

    /// `len` bytes from `offset` on, fewer at the end of file, in memory that does not change until
    /// the file is closed. `None` if they are not contiguous in memory: [`read`](Self::read) copies
    /// them.
    pub fn lend(&self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        let open = self.parts()?;
        open.cached.lend(&open.file, offset, len)
    }

    /// Writes at the end.
    pub fn append(&self, data: &[u8]) -> Result<()> {
        let Open { file, cached } = self.parts()?;
        let said = |written: &Written| Change::Bytes { offset: written.offset, data };
        let written = self.store.change(self.ino, data.len(), || file.append(data), said);
        let written = written.inspect_err(|_| cached.failed())?;
        cached.wrote(file, written.offset, data);
        Ok(())
    }

    /// Writes at `offset`.
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        let Open { file, cached } = self.parts()?;
        let said = |(): &()| Change::Bytes { offset, data };
        let written =
            self.store.change(self.ino, data.len(), || file.write_all_at(data, offset), said);
        written.inspect_err(|_| cached.failed())?;
        cached.wrote(file, offset, data);
        Ok(())
    }

    /// Cuts the file, or lengthens it with zeroes.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let Open { file, cached } = self.parts()?;
        let set = || file.set_len(size);
        let resized = self.store.change(self.ino, 0, set, |(): &()| Change::Size(size));
        resized.inspect_err(|_| cached.failed())?;
        cached.resized(size);
        Ok(())
    }

    /// Makes the file durable, and with it the whole store.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Sets the expected lifetime of the file's data. It is stored with the file, and durable with
    /// its data.
    pub fn set_write_lifetime(&self, lifetime: WriteLifetime) -> Result<()> {
        let file = self.file()?;
        let set = || file.set_write_lifetime(lifetime);
        self.store.change(self.ino, 0, set, |(): &()| Change::Attributes)
    }

    /// Locks the file for this handle; fails if another handle has the lock.
    pub fn try_lock(&self) -> Result<()> {
        Ok(self.file()?.try_lock()?)
    }

    /// The length in bytes.
    pub fn size(&self) -> Result<u64> {
        Ok(self.file()?.metadata()?.size)
    }

    /// The number of the file's inode, which no other file ever gets.
    pub fn id(&self) -> u64 {
        self.ino.get()
    }
}

/// In a copy of the process that fork(2) has made, the file is not closed: the original still has
/// it open.
impl Drop for StoreFile {
    fn drop(&mut self) {
        if self.store.check_process().is_err() {
            std::mem::forget(self.open.take());
        }
    }
}
