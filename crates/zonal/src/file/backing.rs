//! The plain file or disk that stores a drive, behind a trait: tests put a file there whose host
//! loses power.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};

/// A file that can be read and written anywhere, from any thread.
pub(crate) trait Backing: Send + Sync {
    /// Bytes of the file or disk.
    fn len(&self) -> io::Result<u64>;

    /// Reads all of `buffer`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data`. It survives the end of the process, not a power cut.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Writes all of `data`, durable on return. Says nothing about other writes.
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes every write that returned before this call durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes a range read as zeroes. It survives the end of the process, not a power cut.
    fn zero(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives the space of a range back; it reads as zeroes afterwards, or as before.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Bytes that the host has free for this file.
    fn free_space(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Allocates space beyond the file's end, which stays where it is. A failure may leave a part.
    fn allocate(&self, _end: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Gives back all space beyond the file's end.
    fn cut(&self, _end: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of a file or disk. The metadata of a disk has no length.
pub(super) fn host_len(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// A file of the host, and its lock, if it has one.
pub(crate) struct HostFile(pub(crate) File);

impl HostFile {
    /// Gives the space of a range back; it reads as zeroes afterwards.
    fn punch_hole(&self, offset: u64, len: u64) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.0, flags, offset, len)
    }
}

/// Unlocks it. A program that another thread starts at this moment has a copy of every descriptor
/// until it runs (`O_CLOEXEC` closes them no earlier), and such a copy would keep the lock beyond
/// our close. Unlocking takes the lock from all copies (flock(2)).
impl Drop for HostFile {
    fn drop(&mut self) {
        // Where there is no lock, nothing is lost.
        let _ = self.0.unlock();
    }
}

impl Backing for HostFile {
    fn len(&self) -> io::Result<u64> {
        host_len(&self.0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    /// `RWF_DSYNC` writes back this range alone: about a third of the time of an `fdatasync`.
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            match rustix::io::pwritev2(&self.0, &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    at += count as u64;
                    rest = &rest[count..];
                }
                Err(Errno::INTR) => {}
                // A file system without the flag, or an emulator of processors without the call.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.0.write_all_at(rest, at)?;
                    return self.0.sync_data();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// Without writing zeroes, where the host can do that.
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.punch_hole(offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::BUSY) => {
                let zeroes = vec![0; 1 << 20];
                let (mut at, end) = (offset, offset + len);
                while at < end {
                    let count = zeroes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                    self.write_at(at, &zeroes[..count])?;
                    at += count as u64;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.punch_hole(offset, len) {
            // The space stays taken; nothing else depends on it. A disk takes only whole blocks of
            // its own, which may be larger than the drive's.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            // The kernel has the disk mounted for us, and drops no page of it that is not written.
            Err(Errno::BUSY) => {
                self.sync()?;
                match self.punch_hole(offset, len) {
                    Ok(()) | Err(Errno::BUSY) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// With the blocks that a host keeps for root. So it may be too much, never too little.
    fn free_space(&self) -> io::Result<u64> {
        let host = rustix::fs::fstatvfs(&self.0)?;
        Ok(host.f_bfree.saturating_mul(host.f_frsize))
    }

    fn allocate(&self, end: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, end, len) {
            // A host that cannot do it, or a file of the largest length.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::FBIG) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// By setting the length that the file has: ext4 punches no holes beyond the end.
    fn cut(&self, end: u64) -> io::Result<()> {
        self.0.set_len(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copy is that of a program which another thread starts and which does not run yet.
    #[test]
    fn file_close_unlocks_despite_duplicate_descriptor() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = HostFile(file.reopen().unwrap());
        held.0.try_lock().unwrap();
        let copy = held.0.try_clone().unwrap();
        assert!(file.as_file().try_lock().is_err());
        drop(held);
        file.as_file().try_lock().unwrap();
        drop(copy);
    }
}
