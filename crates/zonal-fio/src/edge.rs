//! The edge between fio and Rust: messages, errors and panics.

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// fio's function for its own messages.
type LogErr = unsafe extern "C" fn(*const c_char, ...) -> usize;

/// Looks a symbol up in the program that has loaded this library. fio exports all of its own.
pub(crate) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Prints a message the way fio prints its own.
pub(crate) fn say(text: &str) {
    let line = format!("zonal: {text}\n");
    let (Some(log), Ok(line)) = (symbol(c"log_err"), CString::new(line.as_str())) else {
        eprint!("{line}");
        return;
    };
    // SAFETY: fio's log.h declares it so, in all releases of the table.
    let log: LogErr = unsafe { std::mem::transmute(log) };
    // SAFETY: the format takes one text, which ends in a zero byte.
    unsafe { log(c"%s".as_ptr(), line.as_ptr()) };
}

/// Runs `action`; a panic becomes an error.
pub(crate) fn guard<T>(action: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(action))
        .unwrap_or_else(|panic| Err(Error::Panic(said(&*panic).to_owned())))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a panic without words",
    }
}

/// Runs `action` and returns its number, or the negative number of its error, which is also printed
/// and put into `errno`: some of fio's messages have it from there.
pub(crate) fn number(action: impl FnOnce() -> Result<c_int>) -> c_int {
    guard(action).unwrap_or_else(|error| {
        say(&error.to_string());
        // SAFETY: the address is that of this thread's number, always.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: as before.
        unsafe { place.write(error.errno()) };
        -error.errno()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_panic_becomes_negative_number() {
        assert_eq!(number(|| panic!("number {}", 7)), -libc::EIO);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        assert_eq!(number(|| Err(Error::Unlink)), -libc::EPERM);
        assert_eq!(number(|| Ok(3)), 3);
    }
}
