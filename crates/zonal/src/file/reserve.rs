//! The reserve of a drive file: space of the host beyond the file's end, for metadata of a file
//! system on the drive while the host is full.
//!
//! The file is sparse, so the host can refuse any write. A file system frees space only after it
//! has written that data is dead, so without a reserve a full host would never get space back. The
//! reserve takes no bytes of the format and outlives the process: the next one finds it allocated.

use std::io;
use std::sync::Mutex;

use super::backing::Backing;
use super::format::{HostLen, Layout};
use super::table::lock;
use crate::Geometry;
use crate::error::Errno;

/// The reserve is this part of the drive's capacity. A file system with one zone of unwritten data
/// can have 24 zones or more: then the reserve takes that data, and metadata beside it.
const SHARE: u64 = 16;

/// More metadata than a few thousand commits write.
const LEN_MAX: u64 = 32 << 20;

/// The host has room again when it has this part of the reserve beside the reserve: so one write
/// does not fill it anew.
const MARGIN_SHARE: u64 = 8;

/// Whether the host has set the reserve aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Another process may have done it.
    Unknown,
    Yes,
    No,
}

/// Space of the host beyond the end of a drive file.
pub(super) struct Reserve {
    /// The file's length.
    end: u64,
    /// Bytes of the reserve; 0 for a disk, whose space is all its own.
    len: u64,
    kept: Mutex<Kept>,
}

impl Reserve {
    pub(super) fn new(geometry: &Geometry, layout: &Layout, host: HostLen) -> Self {
        let capacity: u64 =
            geometry.zones().map(|zone| geometry.bytes(geometry.capacity_of(zone)).get()).sum();
        let len = match host {
            HostLen::File(_) => (capacity / SHARE).min(LEN_MAX),
            HostLen::Disk(_) => 0,
        };
        Self { end: layout.file_len, len, kept: Mutex::new(Kept::Unknown) }
    }

    /// Sets the reserve aside. `ENOSPC` unless the host has a margin beside it.
    pub(super) fn keep(&self, backing: &dyn Backing) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let margin = self.len / MARGIN_SHARE;
        let mut kept = lock(&self.kept);
        let needed = match *kept {
            Kept::Unknown | Kept::Yes => 0,
            // An attempt that fails would take space from others for a moment.
            Kept::No => self.len + margin,
        };
        if backing.free_space()? < needed {
            return Err(Errno::NOSPC.into());
        }
        if *kept != Kept::Yes {
            *kept = Kept::No;
            if let Err(error) = backing.allocate(self.end, self.len) {
                // The host may have allocated a part.
                backing.cut(self.end)?;
                return Err(error);
            }
            *kept = Kept::Yes;
        }
        if backing.free_space()? < margin { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    /// Gives the reserve back to the host.
    pub(super) fn give_up(&self, backing: &dyn Backing) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        *lock(&self.kept) = Kept::No;
        backing.cut(self.end)
    }
}
