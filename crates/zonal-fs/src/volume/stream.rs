//! A file as a stream of bytes: the traits of [`std::io`], at the position of the handle.
//!
//! As with [`std::fs::File`], `&File` has them too, and every handle has one position, which all
//! threads that use the handle move. Methods that take an offset do not move it.
//!
//! [`File`] has methods of its own under the names `seek` and `read_to_end`, which come first where
//! a method is called on a file. Code for any `Read` or `Seek` finds the traits' methods; other
//! code names the trait: `Seek::seek(&mut &file, SeekFrom::End(0))`.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::sync::{MutexGuard, PoisonError};

use rustix::io::Errno;

use super::{File, Result};
use crate::vfs::WriteFlags;

impl File {
    /// The position; no other thread moves it while the guard lives.
    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes at the position, or at the end of a file that was opened for appending. The position
    /// moves behind the data.
    fn write_here(&self, data: &[u8]) -> Result<usize> {
        let mut position = self.position();
        let written = self.put(data, *position, WriteFlags::empty())?;
        *position = written.offset + written.len;
        Ok(usize::try_from(written.len).unwrap_or(usize::MAX))
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position();
        let read = self.read_at(buffer, *position)?;
        *position += read as u64;
        Ok(read)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut position = self.position();
        let read = self.read_vectored_at(buffers, *position)?;
        *position += read as u64;
        Ok(read)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.write_here(data)?)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match buffers {
            [one] => self.write(one),
            several => {
                let parts: Vec<&[u8]> = several.iter().map(|part| &**part).collect();
                self.write(&parts.concat())
            }
        }
    }

    /// Does nothing: every reader sees written data already. [`File::sync_data`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    /// Moves the position, also behind the end of the file. A position before the start, or above
    /// `i64::MAX`, is EINVAL.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position();
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.metadata()?.size.checked_add_signed(offset),
        };
        match target {
            Some(target) if i64::try_from(target).is_ok() => {
                *position = target;
                Ok(target)
            }
            Some(_) | None => Err(Errno::INVAL.into()),
        }
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    /// Does nothing: every reader sees written data already. [`File::sync_data`] makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Seek::seek(&mut &*self, to)
    }
}
