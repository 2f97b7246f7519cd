//! libzonal: zoned drives, and the files on them, for C and for languages that call C.
//!
//! The header is `include/zonal.h`, made from this source; a test compares them. Two parts:
//!
//! - `device`: a drive, by handle, with the structures and numbers of libzbd. A descriptor could
//!   not stand for a drive file, a layer, or a drive that Linux refuses. `batch` gives it several
//!   requests in one call, `format` makes a file system on it.
//! - `volume`: the file system on a drive, which is [`zonal_fs::volume`]: `names` by path, `file`
//!   by handle, `attributes` by either.
//!
//! Rules for every function, in addition to its own documentation:
//!
//! - It returns 0 or a count, or a negative errno. [`zonal_last_error`](edge::zonal_last_error)
//!   then has the message, for the calling thread.
//! - No panic leaves it: one becomes `-EIO` and a message. `NULL` where something is needed is
//!   `-EFAULT`.
//! - Safety: the caller has to pass handles that an open function returned and that are not closed,
//!   strings that end in a zero byte, buffers of the given length, and addresses that are valid for
//!   writing the result. Several threads may use a handle at once, but closing it has to be its
//!   last use.

#![allow(unsafe_code, reason = "C hands over raw addresses")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all functions, stated above")]

pub mod attributes;
pub mod batch;
pub mod device;
pub mod edge;
pub mod file;
pub mod format;
pub mod names;
pub mod types;
pub mod volume;
