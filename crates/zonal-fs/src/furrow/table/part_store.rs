//! The interface between the table's algorithms and the place where its parts lie.
//!
//! [`DriveStore`](super::store::DriveStore) implements it on a drive, tests in memory.

use super::key::Key;
use super::levels::Part;
use super::lost::Remade;
use super::part::{KeyRange, PartError, PartSource};
use crate::furrow::format::Address;
use crate::vfs::Result;

/// A place from which parts are read and to which they are written.
pub(in crate::furrow) trait PartStore {
    /// Both copies of a part.
    type Source: PartSource;

    /// The copies of a part, for reading.
    /// The copies of a part, for reading.
    fn source(&self, part: &Part) -> Self::Source;

    /// Identity of the file system.
    fn uuid(&self) -> [u8; 16];

    /// A new part number.
    fn next_number(&self) -> u64;

    /// Writes both copies of a part and returns their addresses.
    fn write(&self, bytes: &[u8]) -> Result<[Address; 2]>;

    /// Does work that must not wait for the end of a step, such as a commit. Compaction calls it
    /// every few hundred rows.
    fn meanwhile(&self) {}

    /// Notes a part of which one copy is bad, or which differs from its summary.
    fn note_bad(&self, _: &Part) {}

    /// Notes a section of a part that no copy gives.
    fn note_lost(&self, _: &PartError) {}

    /// Fails if the device has refused to read rows for this step that it may still return later.
    fn check_refused(&self) -> Result<()> {
        Ok(())
    }

    /// The value of a row with the present place of its blocks, if they were moved.
    fn moved_value(&self, _: Key, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// [`moved_value`](Self::moved_value) applies all remaps with a number below this one.
    fn moved_below(&self) -> u64 {
        0
    }

    /// The span of rows that the mount has rebuilt, if it has.
    fn remade(&self) -> Option<Remade> {
        None
    }

    /// The rest of a lost range of a part that the mount has not rebuilt.
    fn missed(&self, part: &Part, range: KeyRange) -> Option<KeyRange> {
        self.remade().map_or(Some(range), |remade| remade.rest(part.summary.number, range))
    }
}
