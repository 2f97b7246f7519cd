//! The edge between C++ and Rust: errors, panics, and addresses from C++.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::{Error, Result};

/// errno of a panic.
const EIO: c_int = 5;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The message of the last call of this thread that failed.
pub(crate) fn last_error() -> *const c_char {
    // Destructors of C++ may still call after the thread-local data of the main thread is gone.
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs `action` and returns 0 or its errno. Neither an error nor a panic reaches the caller.
pub(crate) fn status(action: impl FnOnce() -> Result<()>) -> c_int {
    let (errno, text) = match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => (error.errno(), error.to_string()),
        Err(panic) => (EIO, format!("internal error, please report it: {}", said(&*panic))),
    };
    let bytes = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect::<Vec<_>>();
    let text = CString::new(bytes).unwrap_or_default();
    let _ = LAST_ERROR.try_with(|last| last.replace(text));
    errno
}

fn said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a panic without words",
    }
}

/// Borrows the object of a handle.
///
/// # Safety
///
/// `handle` is NULL, or comes from this library, is not closed, and stays open while the result is
/// used.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller says so.
    unsafe { handle.as_ref() }.ok_or_else(|| Error::argument("a handle is NULL"))
}

/// Takes back an object from [`give`].
///
/// # Safety
///
/// `handle` is NULL or comes from [`give`], and is used for the last time.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Result<T> {
    if handle.is_null() {
        return Err(Error::argument("a handle is NULL"));
    }
    // SAFETY: it comes from `Box::into_raw`, and this is its last use.
    Ok(*unsafe { Box::from_raw(handle) })
}

/// Writes a new handle to `place`.
///
/// # Safety
///
/// `place` is valid for writing.
pub(crate) unsafe fn give<T>(value: T, place: *mut *mut T) {
    // SAFETY: the caller says so.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
}

/// Writes a result to `place`.
///
/// # Safety
///
/// `place` is valid for writing.
pub(crate) unsafe fn put<T>(value: T, place: *mut T) {
    // SAFETY: the caller says so.
    unsafe { place.write(value) };
}

/// Bytes to read from.
///
/// # Safety
///
/// `data` is valid for reading `len` bytes, which stay unchanged as long as the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    check(data, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: `data` is not NULL and `len` not too large; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Bytes to write to.
///
/// # Safety
///
/// `buffer` is valid for writing `len` bytes, and nothing else accesses it meanwhile.
pub(crate) unsafe fn buffer<'a>(buffer: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    check(buffer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: `buffer` is not NULL and `len` not too large; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer, len) })
}

fn check(data: *const u8, len: usize) -> Result<()> {
    if isize::try_from(len).is_err() || (data.is_null() && len > 0) {
        return Err(Error::argument("a buffer is NULL, or larger than memory"));
    }
    Ok(())
}

/// A path.
///
/// # Safety
///
/// As for [`bytes`].
pub(crate) unsafe fn path<'a>(path: Text) -> Result<&'a Path> {
    // SAFETY: the caller says so.
    let bytes = unsafe { bytes(path.data, path.len) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A string that the caller owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    /// Its first byte.
    pub data: *const u8,
    /// Its bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn said_last() -> String {
        // SAFETY: the text is ours and ends in a zero byte.
        unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn edge_panic_becomes_error() {
        assert_eq!(status(|| panic!("number {}", 7)), 5);
        assert_eq!(said_last(), "internal error, please report it: number 7");
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(status(|| Err(Error::argument("not\0here"))), 22);
        assert_eq!(said_last(), "nothere");
    }

    #[test]
    fn edge_refuses_null() {
        // SAFETY: a refused address is not dereferenced.
        assert!(unsafe { bytes(std::ptr::null(), 1) }.is_err());
        // SAFETY: an empty slice needs no valid address.
        assert!(unsafe { bytes(std::ptr::null(), 0) }.is_ok_and(<[u8]>::is_empty));
        // SAFETY: as before.
        assert!(unsafe { buffer(std::ptr::null_mut(), usize::MAX) }.is_err());
    }
}
