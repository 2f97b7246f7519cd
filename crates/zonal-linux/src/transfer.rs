//! Direct I/O from and to memory anywhere.
//!
//! Direct I/O needs memory at a multiple of the alignment of the device's DMA: the kernel reports
//! it, often 4 or 512 bytes. Memory elsewhere is copied through a buffer of the thread, piece by
//! piece.
//!
//! A server of swap space moves no more than [`INLINE_PAGES`] pages at once.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, StatxFlags};
use zonal::AlignedBytes;
use zonal::aligned::ALIGNMENT;

use crate::own_disk;

/// Bytes of the buffer of a thread: the largest piece that is copied.
const BUFFER_BYTES: usize = 1 << 20;

/// Pages of memory that a read or write of a block device may touch without an allocation of the
/// kernel: `DIO_INLINE_BIO_VECS` of `block/fops.c`. For more, `__blkdev_direct_IO_simple` waits
/// until there is memory, which a server of swap space would have to free itself.
const INLINE_PAGES: usize = 4;

thread_local! {
    static BUFFER: RefCell<Option<AlignedBytes>> = const { RefCell::new(None) };
}

/// Runs `step` with the thread's buffer.
fn with_buffer<T>(step: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        step(buffer.get_or_insert_with(|| AlignedBytes::zeroed(BUFFER_BYTES)))
    })
}

/// The alignment that direct I/O on `file` needs, if the kernel reports it (`STATX_DIOALIGN`, Linux
/// 6.1, not on every file system), but at least a block: `null_blk` says that it takes any memory,
/// and returns wrong data when a page of it ends inside a block.
fn memory_alignment(file: &File) -> Option<usize> {
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let bytes = found.stx_dio_mem_align.max(found.stx_dio_offset_align);
    let bytes = usize::try_from(bytes).ok()?;
    // 0 stands for no direct I/O at all.
    (found.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && bytes.is_power_of_two()).then_some(bytes)
}

/// A file or device that is open for direct I/O.
pub(crate) struct DirectFile {
    file: File,
    memory_alignment: usize,
    /// Whether the kernel allocates no memory for a transfer.
    spares_memory: bool,
}

impl DirectFile {
    /// `file`, which was opened with `O_DIRECT`.
    pub(crate) fn new(file: File) -> Self {
        let told = memory_alignment(&file).unwrap_or(ALIGNMENT);
        let memory_alignment = told.min(ALIGNMENT);
        Self { file, memory_alignment, spares_memory: own_disk::serves_swap() }
    }

    /// The file itself.
    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }

    /// Whether direct I/O takes this memory without a copy.
    pub(crate) fn takes(&self, memory: &[u8]) -> bool {
        memory.as_ptr().addr().is_multiple_of(self.memory_alignment)
    }

    /// Most bytes at once from or to `memory`, which direct I/O takes without a copy: whole blocks.
    fn piece_bytes(&self, memory: &[u8]) -> usize {
        match (self.spares_memory, memory.as_ptr().addr().is_multiple_of(ALIGNMENT)) {
            (false, _) => usize::MAX,
            (true, true) => INLINE_PAGES * ALIGNMENT,
            // It begins and ends inside a page.
            (true, false) => (INLINE_PAGES - 1) * ALIGNMENT,
        }
    }

    fn read_pieces(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in target.chunks_mut(self.piece_bytes(target)) {
            self.file.read_exact_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_pieces(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in data.chunks(self.piece_bytes(data)) {
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Fills `target` from byte `offset` on.
    pub(crate) fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<()> {
        if self.takes(target) {
            return self.read_pieces(offset, target);
        }
        with_buffer(|buffer| {
            let mut at = offset;
            for piece in target.chunks_mut(BUFFER_BYTES) {
                let buffer = &mut buffer[..piece.len()];
                self.read_pieces(at, buffer)?;
                piece.copy_from_slice(buffer);
                at += piece.len() as u64;
            }
            Ok(())
        })
    }

    /// Writes `data` from byte `offset` on.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.takes(data) {
            return self.write_pieces(offset, data);
        }
        with_buffer(|buffer| {
            let mut at = offset;
            for piece in data.chunks(BUFFER_BYTES) {
                let buffer = &mut buffer[..piece.len()];
                buffer.copy_from_slice(piece);
                self.write_pieces(at, buffer)?;
                at += piece.len() as u64;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    use super::*;

    /// A file for direct I/O, where the file system of temporary files has that.
    fn file() -> DirectFile {
        let named = tempfile::NamedTempFile::new().unwrap();
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let open = |flags| File::options().read(true).write(true).custom_flags(flags).open(&named);
        DirectFile::new(open(direct).or_else(|_| open(0)).unwrap())
    }

    #[test]
    fn transfer_takes_memory_anywhere() {
        let mut file = file();
        let data: Vec<u8> = (0..3 << 20).map(|at: usize| at.to_le_bytes()[1] ^ 0x33).collect();
        for (shift, spares_memory) in
            [0, 1, 512, 513].into_iter().flat_map(|shift| [(shift, false), (shift, true)])
        {
            file.spares_memory = spares_memory;
            let part = &data[shift..shift + (2 << 20) + 4096];
            file.write(4096, part).unwrap();
            let mut back = vec![0; part.len() + 4096];
            for shift in [0, 7] {
                let back = &mut back[shift..shift + part.len()];
                back.fill(0);
                file.read(4096, back).unwrap();
                assert!(back == part);
            }
        }
    }

    #[test]
    fn transfer_that_spares_memory_touches_four_pages() {
        let mut file = file();
        let memory = AlignedBytes::zeroed(1 << 20);
        assert_eq!(file.piece_bytes(&memory), usize::MAX);
        file.spares_memory = true;
        for (shift, expected) in [(0, 16 << 10), (1, 12 << 10), (512, 12 << 10), (8192, 16 << 10)] {
            assert_eq!(file.piece_bytes(&memory[shift..]), expected);
            for start in [shift, shift + expected] {
                let pages = start / ALIGNMENT..(start + expected).div_ceil(ALIGNMENT);
                assert!(pages.len() <= INLINE_PAGES, "{pages:?}");
            }
        }
    }

    /// This test's thread makes its buffer when it copies for the first time.
    #[test]
    fn transfer_copies_no_aligned_memory() {
        let file = file();
        let mut memory = vec![7; 4 * 4096];
        let told = memory_alignment(file.as_file()).unwrap_or(4096);
        let skip = memory.as_ptr().align_offset(4096) + told;
        let part = &mut memory[skip..skip + 8192];
        file.write(0, part).unwrap();
        file.read(0, part).unwrap();
        assert!(part.iter().all(|byte| *byte == 7));
        assert!(BUFFER.with_borrow(Option::is_none), "copied");
        let odd = &mut memory[skip + 1..skip + 8193];
        file.write(0, odd).unwrap();
        assert!(BUFFER.with_borrow(Option::is_some));
    }
}
