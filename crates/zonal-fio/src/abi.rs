//! The part of fio's structures that an engine needs, for each release that we know.
//!
//! Facts from fio's sources, tags fio-3.28 to fio-3.42: `ioengines.h` (the version and the order of
//! the functions), `io_u.h`, `file.h`, `fio.h`, `io_ddir.h`, `zbd_types.h`. A C compiler printed
//! the offsets for each release on x86-64. Fields that fio's configuration changes lie behind all
//! of them, and pointers and integers are the same on other machines of 64 bits.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::edge;

/// Offsets of the fields that differ between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `FIO_IOOPS_VERSION`: the version that an engine announces.
    pub version: c_int,
    /// Of `struct io_u`.
    unit: UnitFields,
    /// `zbd_info` of `struct fio_file`.
    zone_info: usize,
}

/// Offsets of the fields of `struct io_u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitFields {
    offset: usize,
    buffer: usize,
    length: usize,
    error: usize,
}

const EARLY: UnitFields = UnitFields { offset: 64, buffer: 96, length: 104, error: 136 };
const MIDDLE: UnitFields = UnitFields { offset: 72, buffer: 104, length: 112, error: 144 };
const LATE: UnitFields = UnitFields { offset: 80, buffer: 112, length: 120, error: 152 };

/// The releases whose structures we know: 3.28 is in Ubuntu 22.04, 3.33 in Debian 12, 3.36 in
/// Ubuntu 24.04, 3.39 in Debian 13.
const RELEASES: [(&str, Layout); 15] = [
    ("fio-3.28", layout(30, EARLY, 72)),
    ("fio-3.29", layout(30, EARLY, 72)),
    ("fio-3.30", layout(31, MIDDLE, 72)),
    ("fio-3.31", layout(31, MIDDLE, 72)),
    ("fio-3.32", layout(31, MIDDLE, 72)),
    ("fio-3.33", layout(31, MIDDLE, 72)),
    ("fio-3.34", layout(32, MIDDLE, 80)),
    ("fio-3.35", layout(32, MIDDLE, 80)),
    ("fio-3.36", layout(33, MIDDLE, 80)),
    ("fio-3.37", layout(33, MIDDLE, 80)),
    ("fio-3.38", layout(36, MIDDLE, 88)),
    ("fio-3.39", layout(36, MIDDLE, 88)),
    ("fio-3.40", layout(37, MIDDLE, 88)),
    ("fio-3.41", layout(39, LATE, 88)),
    ("fio-3.42", layout(39, LATE, 88)),
];

const fn layout(version: c_int, unit: UnitFields, zone_info: usize) -> Layout {
    Layout { version, unit, zone_info }
}

/// Fields that are at the same place in all of these releases.
const UNIT_FILE: usize = 32;
const UNIT_DIRECTION: usize = 44;
const FILE_TYPE: usize = 16;
const FILE_NAME: usize = 40;
const FILE_SIZE: usize = 48;
const THREAD_DIRECTIONS: usize = 176;

/// `enum fio_filetype`: a character device. fio asks it for zones and for nothing else; it would
/// lay out a file, and send ioctls to a block device.
const CHARACTER_DEVICE: c_uint = 3;

/// `enum td_ddir`: a job that writes, or trims.
const WRITES: c_uint = 1 << 1 | 1 << 3;

/// A fio whose structures we do not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// Its version is not in the table.
    #[error("this is {found}; supported are {}", releases())]
    Release {
        /// The version that it reports.
        found: String,
    },
    /// It has no version.
    #[error("the program is no fio, or does not say its version; supported are {}", releases())]
    Unknown,
}

fn releases() -> String {
    let [(first, _), .., (last, _)] = RELEASES;
    format!("the releases {first} to {last}")
}

/// The layout of a release, by the version that fio reports. A build of a commit between two
/// releases has the commit in its version, and is not known.
pub fn release(version: &str) -> Result<Layout, Unsupported> {
    let found = RELEASES.iter().find(|(name, _)| *name == version);
    found
        .map(|(_, layout)| *layout)
        .ok_or_else(|| Unsupported::Release { found: version.to_owned() })
}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

/// The layout of the fio that has loaded this library, from here on used for all structures.
pub(crate) fn running() -> Result<&'static Layout, Unsupported> {
    if let Some(layout) = LAYOUT.get() {
        return Ok(layout);
    }
    let version = edge::symbol(c"fio_version_string").ok_or(Unsupported::Unknown)?;
    // SAFETY: fio has it as an array of characters that ends in a zero byte.
    let version = unsafe { CStr::from_ptr(version.cast::<c_char>()) };
    let layout = release(&version.to_string_lossy())?;
    Ok(LAYOUT.get_or_init(|| layout))
}

fn known() -> &'static Layout {
    LAYOUT.get().expect("only a fio that is known gets the engine")
}

/// Reads a field.
///
/// # Safety
///
/// `base` leads to a structure that has a `T` at `offset`.
unsafe fn get<T: Copy>(base: *const c_void, offset: usize) -> T {
    // SAFETY: the caller says so.
    unsafe { base.wrapping_byte_add(offset).cast::<T>().read() }
}

/// Writes a field.
///
/// # Safety
///
/// `base` leads to a structure that has a `T` at `offset`, and only this thread uses it.
unsafe fn set<T>(base: *mut c_void, offset: usize, value: T) {
    // SAFETY: the caller says so.
    unsafe { base.wrapping_byte_add(offset).cast::<T>().write(value) };
}

/// A job of fio: `struct thread_data`. Like files and requests it comes from fio, which keeps it
/// while it is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Thread(*mut c_void);

// SAFETY: only the threads to which fio gives the job read behind the pointer.
unsafe impl Send for Thread {}

impl Thread {
    /// Whether the job changes its files.
    pub(crate) fn writes(self) -> bool {
        // SAFETY: it is fio's, and the offset is that of `o.td_ddir`.
        let directions: c_uint = unsafe { get(self.0, THREAD_DIRECTIONS) };
        directions & WRITES != 0
    }
}

/// A file of a job: `struct fio_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct File(*mut c_void);

impl File {
    /// `file_name`: one of the names in `filename`.
    pub(crate) fn name(self) -> Option<String> {
        // SAFETY: it is fio's, and the offset is that of `file_name`.
        let name: *const c_char = unsafe { get(self.0, FILE_NAME) };
        // SAFETY: it ends in a zero byte.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().ok().map(str::to_owned)
    }

    /// Says how large it is, and that it is no file that fio could make.
    pub(crate) fn set_size(self, bytes: u64) {
        // SAFETY: it is fio's, which has asked for its size, and the offset is that of `filetype`.
        unsafe { set(self.0, FILE_TYPE, CHARACTER_DEVICE) };
        // SAFETY: the same, and `real_file_size`.
        unsafe { set(self.0, FILE_SIZE, bytes) };
    }

    /// Whether fio looks after the zones: `zonemode=zbd`.
    pub(crate) fn has_zones(self) -> bool {
        // SAFETY: it is fio's, and the offset is that of `zbd_info`.
        let info: *const c_void = unsafe { get(self.0, known().zone_info) };
        !info.is_null()
    }
}

/// The operation of a request: `enum fio_ddir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    Trim,
    /// Sync and all of its kin.
    Sync,
}

/// A request: `struct io_u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Unit(*mut c_void);

// SAFETY: other threads carry it; the job's own thread uses it.
unsafe impl Send for Unit {}

impl Unit {
    /// Tells fio that there is no request.
    pub(crate) const NONE: Self = Self(std::ptr::null_mut());

    pub(crate) fn file(self) -> File {
        // SAFETY: it is fio's, and the offset is that of `file`.
        File(unsafe { get(self.0, UNIT_FILE) })
    }

    pub(crate) fn direction(self) -> Direction {
        // SAFETY: it is fio's, and the offset is that of `ddir`.
        let direction: c_int = unsafe { get(self.0, UNIT_DIRECTION) };
        match direction {
            0 => Direction::Read,
            1 => Direction::Write,
            2 => Direction::Trim,
            _ => Direction::Sync,
        }
    }

    /// `offset`: the first byte.
    pub(crate) fn offset(self) -> u64 {
        // SAFETY: it is fio's, and the offset is that of `offset`.
        unsafe { get(self.0, known().unit.offset) }
    }

    /// `xfer_buf`.
    pub(crate) fn buffer(self) -> *mut u8 {
        // SAFETY: it is fio's, and the offset is that of `xfer_buf`.
        unsafe { get(self.0, known().unit.buffer) }
    }

    /// `xfer_buflen`: bytes.
    pub(crate) fn length(self) -> u64 {
        // SAFETY: it is fio's, and the offset is that of `xfer_buflen`.
        unsafe { get(self.0, known().unit.length) }
    }

    /// Says that it has failed.
    pub(crate) fn fail(self, errno: c_int) {
        // SAFETY: it is fio's, which waits for it, and the offset is that of `error`.
        unsafe { set(self.0, known().unit.error, errno) };
    }
}

/// A zone as fio has it: `struct zbd_zone`, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ZoneReport {
    pub(crate) start: u64,
    pub(crate) wp: u64,
    pub(crate) len: u64,
    pub(crate) capacity: u64,
    pub(crate) kind: c_uint,
    pub(crate) cond: c_uint,
}

const _: () = assert!(size_of::<ZoneReport>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_releases_have_their_announced_versions() {
        for (name, version) in
            [("fio-3.28", 30), ("fio-3.33", 31), ("fio-3.36", 33), ("fio-3.39", 36)]
        {
            assert_eq!(release(name).unwrap().version, version, "{name}");
        }
    }

    #[test]
    fn fio_release_unknown_is_refused_by_name() {
        for name in ["fio-3.27", "fio-3.43", "fio-3.33-12-gabcdef", "fio-4.0", "3.33", ""] {
            let refused = release(name).unwrap_err().to_string();
            let expected =
                format!("this is {name}; supported are the releases fio-3.28 to fio-3.42");
            assert_eq!(refused, expected);
        }
    }

    #[test]
    fn fio_engine_refuses_program_that_is_not_fio() {
        let mut engine = std::ptr::dangling_mut::<c_void>();
        // SAFETY: there is room for it.
        unsafe { crate::get_ioengine(&raw mut engine) };
        assert!(engine.is_null());
        assert_eq!(running(), Err(Unsupported::Unknown));
    }
}
