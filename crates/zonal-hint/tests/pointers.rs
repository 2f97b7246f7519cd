//! Pointers that programs pass with a hint: right ones, and wrong ones, which the kernel answers
//! with an error.
#![allow(clippy::unwrap_used, reason = "this is test code")]
#![allow(unsafe_code, reason = "the functions are those of C")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

const F_GET_RW_HINT: c_int = 1035;
const F_SET_RW_HINT: c_int = 1036;
const F_SET_FILE_RW_HINT: c_int = 1038;

const PAGE: usize = 4096;

/// Two pages, of which only the first can be read.
struct Edge(*mut c_void);

impl Edge {
    fn new() -> Self {
        let (access, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free place.
        let start = unsafe { libc::mmap(null_mut(), 2 * PAGE, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the first page is ours.
        let outcome = unsafe { libc::mprotect(start, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(outcome, 0);
        Self(start)
    }

    /// The address of the second page, which cannot be read.
    fn address(&self) -> usize {
        self.0 as usize + PAGE
    }

    /// Puts an enum of 4 bytes at the end of the first page; its address.
    fn put(&self, hint: u32) -> usize {
        let place = self.address() - size_of::<u32>();
        // SAFETY: these are the last bytes of the first page, which is ours.
        unsafe { (place as *mut u32).write(hint) };
        place
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: both pages are ours, and no reference to them exists.
        unsafe { libc::munmap(self.0, 2 * PAGE) };
    }
}

type Fcntl = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

const FUNCTIONS: [Fcntl; 2] = [zonal_hint::fcntl, zonal_hint::fcntl64];

fn call(function: Fcntl, fd: c_int, command: c_int, argument: usize) -> io::Result<()> {
    // SAFETY: wrong pointers are the subject of the tests: only the kernel follows them.
    match unsafe { function(fd, command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn errno(result: io::Result<()>) -> Option<c_int> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn hint_at_wrong_pointer_is_efault_and_changes_nothing() {
    let file = tempfile::tempfile().unwrap();
    let edge = Edge::new();
    for function in FUNCTIONS {
        let kept = 3_u64;
        call(function, file.as_raw_fd(), F_SET_RW_HINT, &raw const kept as usize).unwrap();
        for wrong in [0, 8, usize::MAX - 7, edge.address(), edge.address() - 2] {
            let refused = call(function, file.as_raw_fd(), F_SET_RW_HINT, wrong);
            assert_eq!(errno(refused), Some(libc::EFAULT), "{wrong:#x}");
            // Linux from 5.17 on has no hints of open files.
            let refused = errno(call(function, file.as_raw_fd(), F_SET_FILE_RW_HINT, wrong));
            assert!(matches!(refused, Some(libc::EFAULT | libc::EINVAL)), "{wrong:#x}");
        }
        assert_eq!(hint_of(&file), 3);
    }
}

#[test]
fn hint_on_wrong_file_is_ebadf_with_any_pointer() {
    let right = 2_u64;
    for function in FUNCTIONS {
        for pointer in [8, &raw const right as usize] {
            assert_eq!(errno(call(function, -1, F_SET_RW_HINT, pointer)), Some(libc::EBADF));
        }
    }
}

#[test]
fn hint_of_four_bytes_at_memory_end_is_taken() {
    let file = tempfile::tempfile().unwrap();
    let edge = Edge::new();
    for (function, hint) in FUNCTIONS.into_iter().zip([5, 2]) {
        call(function, file.as_raw_fd(), F_SET_RW_HINT, edge.put(hint)).unwrap();
        assert_eq!(hint_of(&file), u64::from(hint));
    }
}

/// The hint that the kernel keeps.
fn hint_of(file: &File) -> u64 {
    let mut hint = 0_u64;
    // SAFETY: the pointer is to 8 bytes that the kernel may write to.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), F_GET_RW_HINT, &raw mut hint) };
    assert_eq!(outcome, 0);
    hint
}
