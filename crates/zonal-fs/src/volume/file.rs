//! Open files.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::{Deref, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Error, Node, OpenFlags, Result};
use crate::FsError;
use crate::rules;
use crate::vfs::{
    Allocate, FileModel, Privilege, ReadFlags, Seek, SetAttr, SyncKind, WriteFlags, Written,
};

/// An open file. It stays usable while it lives, even when its name is removed.
///
/// Dropping it closes it and releases its lock. It makes nothing durable.
///
/// It is a [`Read`](std::io::Read), [`Write`](std::io::Write) and [`Seek`](std::io::Seek), and so
/// is `&File`. These read and write at the position of the handle, which is 0 at first.
pub struct File {
    node: Node,
    flags: OpenFlags,
    model: FileModel,
    /// Offset at which the traits of [`std::io`] read and write next.
    pub(super) position: Mutex<u64>,
    is_open: AtomicBool,
    is_locked: AtomicBool,
}

impl File {
    pub(super) fn opened(node: Node, flags: OpenFlags, model: FileModel) -> Self {
        let (is_open, is_locked) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { node, flags, model, position: Mutex::new(0), is_open, is_locked }
    }

    /// Opens the inode in the file system, and truncates it with [`OpenFlags::TRUNCATE`].
    pub(super) fn open(&self) -> Result<()> {
        self.run("opening", |fs, ino| fs.open(ino, self.flags.purpose()))?;
        self.is_open.store(true, Ordering::Release);
        if self.flags.contains(OpenFlags::TRUNCATE) { self.set_len(0) } else { Ok(()) }
    }

    /// Reads into `buffer` from `offset` on and returns the number of bytes: fewer than the buffer
    /// has only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.needs(OpenFlags::READ, "reading")?;
        let mut how = ReadFlags::empty();
        how.set(ReadFlags::DIRECT, self.flags.contains(OpenFlags::DIRECT));
        self.run("reading", |fs, ino| fs.read_with(ino, offset, buffer, how))
    }

    /// Fills `buffer` from `offset` on; fails if the file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if self.read_at(buffer, offset)? == buffer.len() {
            return Ok(());
        }
        let error = FsError::Invalid { what: "the file ends before the buffer is full" };
        Err(Error::new("reading", self.path(), error))
    }

    /// Fills the buffers one after the other from `offset` on and returns the number of bytes. It
    /// is not atomic: another thread may write between two buffers.
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let mut done = 0;
        for buffer in buffers {
            let read = self.read_at(buffer, offset + done as u64)?;
            done += read;
            if read < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Reads the whole content.
    pub fn read_to_end(&self) -> Result<Vec<u8>> {
        /// Least bytes of a read, also if the file is longer than its size said.
        const PIECE: usize = 64 << 10;
        let size = usize::try_from(self.metadata()?.size).unwrap_or(usize::MAX);
        let mut content = Vec::new();
        loop {
            let have = content.len();
            let room = size.saturating_sub(have).clamp(PIECE, 16 << 20);
            content.resize(have + room, 0);
            let read = self.read_at(&mut content[have..], have as u64)?;
            content.truncate(have + read);
            if read < room {
                return Ok(content);
            }
        }
    }

    /// Writes at `offset` and returns the number of bytes: fewer than given only at the end of a
    /// zone's capacity in zonefs. A file that was opened for appending is written at its end.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.put(data, offset, WriteFlags::empty())
            .map(|written| usize::try_from(written.len).unwrap_or(usize::MAX))
    }

    /// Writes all of `data` at `offset`.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.needs_all(data.len(), self.write_at(data, offset)?)
    }

    /// Writes the buffers one after the other at `offset`, as one write.
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        match buffers {
            [one] => self.write_at(one, offset),
            several => {
                let parts: Vec<&[u8]> = several.iter().map(|part| &**part).collect();
                self.write_at(&parts.concat(), offset)
            }
        }
    }

    /// Writes at the end of the file and returns the offset of the data. Appends of several threads
    /// do not overlap.
    pub fn append(&self, data: &[u8]) -> Result<Written> {
        self.put(data, 0, WriteFlags::APPEND)
    }

    /// Writes with the flags of the file and those of `how`.
    pub(crate) fn put(&self, data: &[u8], offset: u64, mut how: WriteFlags) -> Result<Written> {
        self.needs(OpenFlags::WRITE | OpenFlags::APPEND, "writing")?;
        let is_direct = self.flags.contains(OpenFlags::DIRECT) || self.model == FileModel::Zones;
        how.set(WriteFlags::DIRECT, is_direct);
        how.set(WriteFlags::DURABLE, self.flags.contains(OpenFlags::DURABLE));
        if self.flags.contains(OpenFlags::APPEND) {
            how |= WriteFlags::APPEND;
        }
        how.set(WriteFlags::KILL_PRIVILEGES, self.kills_privileges());
        self.run("writing", |fs, ino| fs.write(ino, offset, data, how))
    }

    fn kills_privileges(&self) -> bool {
        self.caller().privilege == Privilege::None
    }

    /// Cuts the file, or lengthens it with zeroes.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.needs(OpenFlags::WRITE | OpenFlags::APPEND, "truncating")?;
        let kill_privileges = self.kills_privileges();
        let set = SetAttr { size: Some(size), kill_privileges, ..SetAttr::default() };
        self.run("truncating", |fs, ino| fs.setattr(self.caller(), ino, &set)).map(drop)
    }

    /// Allocates, punches or zeroes a range (`fallocate`).
    pub fn allocate(&self, how: Allocate, range: Range<u64>) -> Result<()> {
        self.needs(OpenFlags::WRITE | OpenFlags::APPEND, "allocating")?;
        let len = range.end.saturating_sub(range.start);
        self.run("allocating", |fs, ino| {
            if self.kills_privileges() {
                rules::take_setid(fs, self.caller(), ino)?;
            }
            fs.fallocate(ino, how, range.start, len)
        })
    }

    /// Finds data or a hole from `offset` on. [`Seek::seek`](std::io::Seek::seek), which moves the
    /// position, is called by its full name.
    pub fn seek(&self, what: Seek, offset: u64) -> Result<u64> {
        self.run("seeking in", |fs, ino| fs.seek(ino, what, offset))
    }

    /// Copies `range` to `offset` of another file of the volume, sharing blocks where it can.
    /// Returns the number of bytes: fewer only at the end of this file.
    pub fn copy_to(&self, range: Range<u64>, target: &Self, offset: u64) -> Result<u64> {
        self.needs(OpenFlags::READ, "copying")?;
        target.needs(OpenFlags::WRITE | OpenFlags::APPEND, "copying to")?;
        if !std::ptr::eq(self.shared(), target.shared()) {
            let error = FsError::Invalid { what: "a copy from one volume to another" };
            return Err(Error::new("copying", self.path(), error));
        }
        let len = range.end.saturating_sub(range.start);
        let mut how = WriteFlags::empty();
        how.set(WriteFlags::DURABLE, target.flags.contains(OpenFlags::DURABLE));
        how.set(WriteFlags::KILL_PRIVILEGES, target.kills_privileges());
        self.run("copying", |fs, ino| {
            fs.copy_range((ino, range.start), (target.ino(), offset), len, how)
        })
    }

    /// Makes the content durable, with the metadata that a read of it needs (`fdatasync`).
    pub fn sync_data(&self) -> Result<()> {
        self.run("syncing", |fs, ino| fs.fsync(ino, SyncKind::Data))
    }

    /// Makes a range of the content durable. The file systems here sync whole files, so it does the
    /// same as [`sync_data`](Self::sync_data).
    pub fn sync_range(&self, _range: Range<u64>) -> Result<()> {
        self.sync_data()
    }

    /// Locks the file for this handle. Fails with EAGAIN if another handle of this volume has the
    /// lock; does nothing if this one has it. The lock is advisory and ends with the handle.
    pub fn try_lock(&self) -> Result<()> {
        if self.is_locked.load(Ordering::Acquire) {
            return Ok(());
        }
        if !self.shared().locks.take(self.ino()) {
            let error = FsError::WouldBlock { what: "another handle has locked the file" };
            return Err(Error::new("locking", self.path(), error));
        }
        self.is_locked.store(true, Ordering::Release);
        Ok(())
    }

    /// Releases the lock, if this handle has it.
    pub fn unlock(&self) {
        if self.is_locked.swap(false, Ordering::AcqRel) {
            self.shared().locks.release(self.ino());
        }
    }

    /// Whether the file was opened in one of these ways.
    fn needs(&self, ways: OpenFlags, doing: &'static str) -> Result<()> {
        if self.flags.intersects(ways) {
            return Ok(());
        }
        let what = if ways.contains(OpenFlags::READ) {
            "the file is not open for reading"
        } else {
            "the file is not open for writing"
        };
        Err(Error::new(doing, self.path(), FsError::BadHandle { what }))
    }

    fn needs_all(&self, given: usize, written: usize) -> Result<()> {
        if written == given {
            return Ok(());
        }
        Err(Error::new("writing", self.path(), FsError::NoSpace))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut file = f.debug_struct("File");
        file.field("path", &self.path())
            .field("ino", &self.ino().get())
            .field("flags", &self.flags);
        file.finish_non_exhaustive()
    }
}

impl Deref for File {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.unlock();
        if *self.is_open.get_mut() {
            let purpose = self.flags.purpose();
            // A closed volume has closed its files.
            let _ = self.run("closing", |fs, ino| {
                fs.close(ino, purpose);
                Ok(())
            });
        }
    }
}
