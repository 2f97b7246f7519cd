//! Open files of a store.

use std::sync::Arc;

use zonal_fs::volume::{File, WriteLifetime};

use crate::unsynced::Change;
use crate::{Result, Store};

/// An open file. It keeps its store open.
pub struct StoreFile {
    // Dropped first: a file is closed before its volume.
    file: File,
    store: Arc<Store>,
}

impl StoreFile {
    pub(crate) fn new(store: Arc<Store>, file: File) -> Self {
        Self { file, store }
    }

    /// Closes it. The error is that of a store whose last handle this was.
    pub fn close(self) -> Result<()> {
        let Self { file, store } = self;
        drop(file);
        store.release()
    }

    /// Reads into `buffer` from `offset` on and returns how much: less only at the end of file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.file.read_at(buffer, offset)?)
    }

    /// Writes at the end.
    pub fn append(&self, data: &[u8]) -> Result<()> {
        let written = self.file.append(data)?;
        self.store.keep(self.file.ino(), Change::Bytes { offset: written.offset, data })
    }

    /// Writes at `offset`.
    pub fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset)?;
        self.store.keep(self.file.ino(), Change::Bytes { offset, data })
    }

    /// Cuts it, or lengthens it with zeroes.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.file.set_len(size)?;
        self.store.keep(self.file.ino(), Change::Size(size))
    }

    /// Makes it durable, and with it everything else.
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Says how long what is written will live. It is kept with the file, and durable with its data.
    pub fn set_write_lifetime(&self, lifetime: WriteLifetime) -> Result<()> {
        Ok(self.file.set_write_lifetime(lifetime)?)
    }

    /// Locks it for this handle; fails if another handle has it.
    pub fn try_lock(&self) -> Result<()> {
        Ok(self.file.try_lock()?)
    }

    /// Its length in bytes.
    pub fn size(&self) -> Result<u64> {
        Ok(self.file.metadata()?.size)
    }

    /// The number of its inode, which no other file ever gets.
    pub fn id(&self) -> u64 {
        self.file.ino().get()
    }
}
