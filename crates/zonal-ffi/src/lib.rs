//! libzonal: zoned drives, and the files on them, for C and for whatever calls C.
//!
//! The header is `include/zonal.h`, made from this source; a test compares them. Two parts:
//!
//! - `device`: a drive, by handle, with the structures and numbers of libzbd. A descriptor could
//!   not stand for a drive file, a layer, or a drive that Linux refuses. `batch` gives it several
//!   requests in one call, `format` makes a file system on it.
//! - `volume`: the file system on a drive, which is [`zonal_fs::volume`]: `names` by path, `file`
//!   by handle, `attributes` by either.
//!
//! What holds for every function, beside what its own documentation says:
//!
//! - It returns 0 or a count, or a negative errno. [`zonal_last_error`](edge::zonal_last_error) then
//!   has the sentence, for the calling thread.
//! - No panic leaves it: one becomes `-EIO` and a message. `NULL` where something is needed is
//!   `-EFAULT`.
//! - Safety, the caller's part: a handle comes from its open function and has not been closed; a
//!   string ends in a zero byte; a buffer has the length that is given; an address to write a result
//!   to is valid for that. Handles may be used from several threads at once, but closing one must be
//!   the last use of it.

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
