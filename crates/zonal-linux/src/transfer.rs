//! Reads and writes from memory that direct I/O takes.
//!
//! Direct I/O wants its memory at an address that is a multiple of the block size. Memory that is
//! elsewhere is copied by way of a buffer of the thread, piece by piece.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Addresses that are multiples of this will do for every device.
const ALIGNMENT: usize = 4096;

/// Bytes of the buffer of a thread: the largest piece that is copied.
const BUFFER_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn is_aligned(memory: &[u8]) -> bool {
    memory.as_ptr().align_offset(ALIGNMENT) == 0
}

/// Runs `step` with the thread's buffer.
fn with_buffer<T>(step: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(BUFFER_BYTES + ALIGNMENT, 0);
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        let aligned: Range<usize> = start..start + BUFFER_BYTES;
        step(&mut buffer[aligned])
    })
}

/// Fills `target` from byte `offset` on.
pub(crate) fn read(file: &File, offset: u64, target: &mut [u8]) -> io::Result<()> {
    if is_aligned(target) {
        return file.read_exact_at(target, offset);
    }
    with_buffer(|buffer| {
        let mut at = offset;
        for piece in target.chunks_mut(BUFFER_BYTES) {
            let buffer = &mut buffer[..piece.len()];
            file.read_exact_at(buffer, at)?;
            piece.copy_from_slice(buffer);
            at += piece.len() as u64;
        }
        Ok(())
    })
}

/// Writes `data` from byte `offset` on.
pub(crate) fn write(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    if is_aligned(data) {
        return file.write_all_at(data, offset);
    }
    with_buffer(|buffer| {
        let mut at = offset;
        for piece in data.chunks(BUFFER_BYTES) {
            let buffer = &mut buffer[..piece.len()];
            buffer.copy_from_slice(piece);
            file.write_all_at(buffer, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_anywhere_is_taken() {
        let file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..3 << 20).map(|at: usize| at.to_le_bytes()[1] ^ 0x33).collect();
        for shift in [0, 1, 513] {
            let part = &data[shift..shift + (2 << 20) + 512];
            write(&file, 4096, part).unwrap();
            let mut back = vec![0; part.len() + 4096];
            for shift in [0, 7] {
                let back = &mut back[shift..shift + part.len()];
                back.fill(0);
                read(&file, 4096, back).unwrap();
                assert!(back == part);
            }
        }
    }
}
