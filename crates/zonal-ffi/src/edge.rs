//! The edge between C and Rust: errors, panics, and the addresses that C hands over.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rustix::io::Errno;
use zonal::DeviceError;
use zonal::spec::OpenError;
use zonal_fs::FsError;

/// Why a call fails.
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno: errno.raw_os_error(), text: text.into() }
    }

    /// The negative errno that a function returns for it.
    pub(crate) fn code(&self) -> i64 {
        -i64::from(self.errno)
    }

    /// Makes it the last error of the calling thread.
    pub(crate) fn remember(self) {
        remember(self.text);
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self { errno: error.errno().raw_os_error(), text: error.to_string() }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let errno = match &error {
            OpenError::Device(error) => error.errno(),
            // A specification that cannot be parsed, and errors that a later version adds.
            _ => Errno::INVAL,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<zonal_fs::volume::UnusableFlags> for Failure {
    fn from(error: zonal_fs::volume::UnusableFlags) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

impl From<zonal_fs::volume::Error> for Failure {
    fn from(error: zonal_fs::volume::Error) -> Self {
        Self { errno: error.errno(), text: error.to_string() }
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The message of the last function that failed in this thread; an empty string if none did. The
/// text is valid until the next call of this thread that fails. It never fails itself.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// The version of the library, as "0.1.0". It never fails.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

/// Runs `action` and returns its count, or a negative errno: no error and no panic gets further.
pub(crate) fn count(action: impl FnOnce() -> Outcome<u64>) -> i64 {
    match catch_unwind(AssertUnwindSafe(action)) {
        Ok(Ok(count)) => i64::try_from(count).unwrap_or(i64::MAX),
        Ok(Err(failure)) => {
            let code = failure.code();
            failure.remember();
            code
        }
        Err(panic) => {
            remember(format!("internal error, please report it: {}", said(&*panic)));
            -i64::from(Errno::IO.raw_os_error())
        }
    }
}

/// The same for an action without a count: 0, or a negative errno.
pub(crate) fn status(action: impl FnOnce() -> Outcome<()>) -> c_int {
    let status = count(|| action().map(|()| 0));
    c_int::try_from(status).expect("an errno is small")
}

fn remember(text: String) {
    let bytes = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect::<Vec<_>>();
    LAST_ERROR.set(CString::new(bytes).unwrap_or_default());
}

/// The message of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a panic without words",
    }
}

fn missing(what: &str) -> Failure {
    Failure::new(Errno::FAULT, format!("{what} is NULL"))
}

/// The object of a handle or an address.
///
/// # Safety
///
/// `pointer` is NULL, or valid for reading as long as the result is used.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, what: &str) -> Outcome<&'a T> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(what))
}

/// Takes back an object from [`give`].
///
/// # Safety
///
/// `pointer` is NULL or comes from [`give`], and is used for the last time.
pub(crate) unsafe fn take<T>(pointer: *mut T, what: &str) -> Outcome<Box<T>> {
    if pointer.is_null() {
        return Err(missing(what));
    }
    // SAFETY: it comes from `Box::into_raw`, and this is its last use.
    Ok(unsafe { Box::from_raw(pointer) })
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
/// `place` is NULL or valid for writing.
pub(crate) unsafe fn put<T>(value: T, place: *mut T, what: &str) -> Outcome<()> {
    if place.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the caller says so.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses an address that is missing, before anything is done.
pub(crate) fn needs<T>(pointer: *const T, what: &str) -> Outcome<()> {
    if pointer.is_null() { Err(missing(what)) } else { Ok(()) }
}

/// A string.
///
/// # Safety
///
/// `text` is NULL, or ends in a zero byte and stays unchanged as long as the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a CStr> {
    needs(text, what)?;
    // SAFETY: it is not NULL; the rest the caller says.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The name of an extended attribute.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn name<'a>(name: *const c_char) -> Outcome<&'a OsStr> {
    // SAFETY: the caller says so.
    Ok(OsStr::from_bytes(unsafe { text(name, "the name") }?.to_bytes()))
}

/// A path.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: the caller says so.
    let bytes = unsafe { text(path, "the path") }?.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The bytes of a buffer to read from.
///
/// # Safety
///
/// `data` is valid for reading `len` bytes, or NULL, and stays unchanged as long as the result is
/// used.
pub(crate) unsafe fn data<'a>(data: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    check_buffer(data, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: it is not NULL and not too long; the rest the caller says.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// The bytes of a buffer to write to.
///
/// # Safety
///
/// `buffer` is valid for writing `len` bytes, or NULL, and nothing else accesses it meanwhile.
/// Every byte is a valid `u8`, whatever it was before.
pub(crate) unsafe fn buffer<'a>(buffer: *mut c_void, len: usize) -> Outcome<&'a mut [u8]> {
    check_buffer(buffer, len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: it is not NULL and not too long; the rest the caller says.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) })
}

/// Copies `bytes` to a buffer that has room for them and returns how many they are. With a `size`
/// of 0 it copies nothing: the caller asks how much room there has to be.
///
/// # Safety
///
/// As for [`buffer()`].
pub(crate) unsafe fn fill(bytes: &[u8], place: *mut c_void, size: usize) -> Outcome<u64> {
    // SAFETY: the caller says so.
    let room = unsafe { buffer(place, size) }?;
    if size > 0 {
        let text = || format!("a buffer of {size} bytes for {}", bytes.len());
        let room = room.get_mut(..bytes.len()).ok_or_else(|| Failure::new(Errno::RANGE, text()))?;
        room.copy_from_slice(bytes);
    }
    Ok(bytes.len() as u64)
}

/// The elements of an array, to be read and written.
///
/// # Safety
///
/// `array` is valid for reading and writing `len` elements, or NULL, and nothing else accesses it
/// as long as the result is used.
pub(crate) unsafe fn array<'a, T>(array: *mut T, len: usize, what: &str) -> Outcome<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    needs(array, what)?;
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Failure::new(Errno::INVAL, format!("{what} are more than memory has")));
    }
    // SAFETY: it is not NULL and not too long; the rest the caller says.
    Ok(unsafe { std::slice::from_raw_parts_mut(array, len) })
}

fn check_buffer(buffer: *const c_void, len: usize) -> Outcome<()> {
    if isize::try_from(len).is_err() {
        return Err(Failure::new(Errno::INVAL, "a buffer that is larger than memory"));
    }
    if len == 0 { Ok(()) } else { needs(buffer, "the buffer") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the text is ours and ends in a zero byte.
        let text = unsafe { CStr::from_ptr(zonal_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn edge_panic_becomes_error() {
        assert_eq!(status(|| panic!("number {}", 7)), -5);
        assert_eq!(last_error(), "internal error, please report it: number 7");
        assert_eq!(count(|| Ok(3)), 3);
    }

    #[test]
    fn edge_last_error_is_per_thread() {
        assert_eq!(status(|| Err(Failure::new(Errno::NOENT, "not\0here"))), -2);
        std::thread::spawn(|| assert_eq!(last_error(), "")).join().unwrap();
        assert_eq!(last_error(), "nothere");
    }

    #[test]
    fn edge_refuses_null_and_oversized_buffers() {
        let null = std::ptr::null();
        // SAFETY: a refused address is not dereferenced.
        let refused = unsafe { data(null, 1) };
        assert!(refused.is_err());
        // SAFETY: an empty slice needs no valid address.
        let empty = unsafe { data(null, 0) };
        assert!(empty.is_ok_and(<[u8]>::is_empty));
        // SAFETY: a refused address is not dereferenced.
        let refused = unsafe { data([0].as_ptr().cast(), usize::MAX) };
        assert!(refused.is_err());
        // SAFETY: a refused address is not dereferenced.
        let refused = unsafe { text(std::ptr::null(), "it") };
        assert!(refused.is_err());
    }
}
