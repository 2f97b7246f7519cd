//! Extents of files: which bytes of which zone hold them.

use zonal::ZoneId;

use super::Ino;

/// A run of bytes of a file that lie one behind the other in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// The file.
    pub ino: Ino,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length in bytes, never 0. The last extent of a file may reach beyond the end of the
    /// file, to the end of a block.
    pub len: u64,
    /// The zone.
    pub zone: ZoneId,
    /// Its first byte in the zone.
    pub zone_offset: u64,
    /// Whether other files, or other ranges of the file, may have the same bytes.
    pub shared: bool,
}

impl FileExtent {
    /// The byte of the file behind it.
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Both as one, if `next` goes on where this ends, in the file and in the zone.
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let Self { ino, zone, shared, .. } = *self;
        let goes_on = (next.ino, next.zone, next.shared) == (ino, zone, shared)
            && next.offset == self.end()
            && next.zone_offset == self.zone_offset + self.len;
        goes_on.then_some(Self { len: self.len + next.len, ..*self })
    }
}
