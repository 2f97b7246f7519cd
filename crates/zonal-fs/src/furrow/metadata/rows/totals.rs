//! Totals: sums over all files, and the space that running writes hold.
//!
//! A mount reads the sums from a drive, and they may be wrong. So subtractions from them saturate.
//! The space that running writes hold begins at 0 and is exact.

use zerocopy::byteorder::little_endian::U64;

use crate::furrow::drive::layout::RowBytes;
use crate::furrow::format::backref::ExtentId;
use crate::furrow::format::row::TotalsRow;
use crate::vfs::Ino;

/// Sums over everything, in blocks of 4 KiB unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::furrow) struct Totals {
    /// Inodes, those without a link too.
    inodes: u64,
    /// Stored (F2: the sum of all zones' live blocks).
    live: u64,
    /// Preallocated to files.
    preallocated: u64,
    /// Held for buffered or running writes that will add to `live`.
    reserved: u64,
    /// Buffered or running writes: room that must be found in open or free zones.
    pending: u64,
    /// Bytes of all rows, before they are compressed.
    row_bytes: u64,
    /// Of these, bytes of rows with places of data: rows of extents and of maps.
    place_bytes: u64,
    /// Written by users over the file system's life: the data clock.
    data_clock: u64,
}

impl Totals {
    /// As a row has them.
    pub(in crate::furrow::metadata) fn of_row(row: &TotalsRow) -> Self {
        Self {
            inodes: row.inodes.get(),
            live: row.live.get(),
            preallocated: row.preallocated.get(),
            row_bytes: row.row_bytes.get(),
            place_bytes: row.place_bytes.get(),
            data_clock: row.data_clock.get(),
            ..Self::default()
        }
    }

    /// The row of totals, with the next numbers.
    pub(in crate::furrow::metadata) fn row(&self, numbers: Numbers) -> TotalsRow {
        TotalsRow {
            next_ino: U64::new(numbers.ino),
            next_extent: U64::new(numbers.extent),
            inodes: U64::new(self.inodes),
            live: U64::new(self.live),
            preallocated: U64::new(self.preallocated),
            row_bytes: U64::new(self.row_bytes),
            place_bytes: U64::new(self.place_bytes),
            data_clock: U64::new(self.data_clock),
        }
    }

    pub(in crate::furrow) fn inodes(&self) -> u64 {
        self.inodes
    }

    pub(in crate::furrow) fn live(&self) -> u64 {
        self.live
    }

    pub(in crate::furrow) fn preallocated(&self) -> u64 {
        self.preallocated
    }

    /// Blocks that count as used: stored, promised to files, or about to be stored.
    pub(in crate::furrow) fn used(&self) -> u64 {
        self.live + self.preallocated + self.reserved
    }

    /// Bytes of all rows, before they are compressed.
    pub(in crate::furrow) fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Bytes of all rows, by purpose, if they take about `packed` bytes in a copy of the table.
    /// They never take more than uncompressed.
    pub(in crate::furrow) fn rows(&self, packed: u64) -> RowBytes {
        let packed = packed.min(self.row_bytes);
        let share = u128::from(packed) * u128::from(self.place_bytes);
        let places = share / u128::from(self.row_bytes.max(1));
        let places = u64::try_from(places).expect("no more than all").min(packed);
        RowBytes { places, others: packed - places }
    }

    /// Blocks that users have written over the file system's life.
    pub(in crate::furrow) fn data_clock(&self) -> u64 {
        self.data_clock
    }

    /// Users have written `blocks` more blocks.
    pub(in crate::furrow) fn advance_clock(&mut self, blocks: u64) {
        self.data_clock += blocks;
    }

    /// Blocks that buffered or running writes will add to the live ones.
    pub(in crate::furrow) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Reserves logical space for a write that will add live blocks.
    pub(in crate::furrow) fn reserve(&mut self, blocks: u64) {
        self.reserved += blocks;
    }

    /// Returns space that [`reserve`](Self::reserve) has reserved.
    pub(in crate::furrow) fn unreserve(&mut self, blocks: u64) {
        self.reserved -= blocks;
    }

    /// Blocks of buffered or running writes, for which room in zones is held.
    pub(in crate::furrow) fn pending(&self) -> u64 {
        self.pending
    }

    /// Holds room in zones for a write.
    pub(in crate::furrow) fn add_pending(&mut self, blocks: u64) {
        self.pending += blocks;
    }

    /// Returns room that [`add_pending`](Self::add_pending) has reserved.
    pub(in crate::furrow) fn remove_pending(&mut self, blocks: u64) {
        self.pending -= blocks;
    }

    pub(in crate::furrow::metadata) fn add_inode(&mut self) {
        self.inodes += 1;
    }

    pub(in crate::furrow::metadata) fn remove_inode(&mut self) {
        self.inodes = self.inodes.saturating_sub(1);
    }

    pub(in crate::furrow::metadata) fn add_live(&mut self, blocks: u32) {
        self.live += u64::from(blocks);
    }

    pub(in crate::furrow) fn remove_live(&mut self, blocks: u32) {
        self.live = self.live.saturating_sub(blocks.into());
    }

    pub(in crate::furrow::metadata) fn add_preallocated(&mut self, blocks: u64) {
        self.preallocated += blocks;
    }

    pub(in crate::furrow::metadata) fn remove_preallocated(&mut self, blocks: u64) {
        self.preallocated = self.preallocated.saturating_sub(blocks);
    }

    /// Counts a row that does not say where data lies.
    pub(in crate::furrow::metadata) fn add_row_bytes(&mut self, bytes: u64) {
        self.row_bytes += bytes;
    }

    /// Subtracts bytes that [`add_row_bytes`](Self::add_row_bytes) has added.
    pub(in crate::furrow::metadata) fn remove_row_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
    }

    /// Counts the row of an extent or of a map entry.
    pub(in crate::furrow::metadata) fn add_place_bytes(&mut self, bytes: u64) {
        self.row_bytes += bytes;
        self.place_bytes += bytes;
    }

    /// Subtracts bytes that [`add_place_bytes`](Self::add_place_bytes) has added.
    pub(in crate::furrow::metadata) fn remove_place_bytes(&mut self, bytes: u64) {
        self.row_bytes = self.row_bytes.saturating_sub(bytes);
        self.place_bytes = self.place_bytes.saturating_sub(bytes);
    }
}

/// The next numbers of inodes and shared extents: none is used twice.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct Numbers {
    ino: u64,
    extent: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { ino: Ino::ROOT.get() + 1, extent: 1 }
    }
}

impl Numbers {
    /// As the row of totals has them.
    pub(in crate::furrow::metadata) fn of_row(row: &TotalsRow) -> Self {
        Self { ino: row.next_ino.get(), extent: row.next_extent.get() }
    }

    /// The number of a new inode.
    pub(in crate::furrow) fn new_ino(&mut self) -> Ino {
        let ino = Ino::new(self.ino);
        self.ino += 1;
        ino
    }

    /// The number of a new shared extent.
    pub(in crate::furrow::metadata) fn new_extent(&mut self) -> ExtentId {
        let id = ExtentId(self.extent);
        self.extent += 1;
        id
    }
}
