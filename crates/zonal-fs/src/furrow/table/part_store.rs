//! The interface between the table's algorithms and the place where its parts lie.
//!
//! [`DriveStore`](super::store::DriveStore) implements it on a drive, tests in memory.

use super::key::Key;
use super::levels::Part;
use super::lost::Remade;
use super::part::{KeyRange, PartError, PartSource};
use crate::furrow::format::Address;
use crate::vfs::Result;

/// Where parts are read from and written to.
pub(in crate::furrow) trait PartStore {
    /// Both copies of a part.
    type Source: PartSource;

    fn source(&self, part: &Part) -> Self::Source;

    /// Identity of the file system.
    fn uuid(&self) -> [u8; 16];

    /// A number that no part has had.
    fn next_number(&self) -> u64;

    /// Writes both copies of a part.
    fn write(&self, bytes: &[u8]) -> Result<[Address; 2]>;

    /// Does what must not wait until all parts are written. Called again and again.
    fn meanwhile(&self) {}

    /// A copy of a part is bad, and was read from the other one; or it is not what its summary says.
    fn note_bad(&self, _: &Part) {}

    /// No copy gives something of a part.
    fn note_lost(&self, _: &PartError) {}

    /// The value of a row with its blocks where they are, if they were moved.
    fn moved_value(&self, _: Key, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Moves with a number below this one are in what [`moved_value`](Self::moved_value) says.
    fn moved_below(&self) -> u64 {
        0
    }

    /// Rows that the mount has made anew.
    fn remade(&self) -> Option<Remade> {
        None
    }

    /// What of a range that a part has lost is still missed.
    fn missed(&self, part: &Part, range: KeyRange) -> Option<KeyRange> {
        self.remade().map_or(Some(range), |remade| remade.rest(part.summary.number, range))
    }
}
