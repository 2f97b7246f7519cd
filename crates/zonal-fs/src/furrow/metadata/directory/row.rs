//! Rows of directory entries and of the name index.
//!
//! Rows come from a drive and may say anything.

use zerocopy::byteorder::little_endian::U64;

use crate::furrow::format::row::{EntryRow, Row, encode, kind_of, number_of};
use crate::furrow::metadata::directory::{Directory, Entry};
use crate::furrow::table::memtable::Value;
use crate::vfs::Ino;

impl Directory {
    /// The row of the entry with a cookie.
    pub(in crate::furrow::metadata) fn entry_row(&self, cookie: u64) -> Value {
        assert!(self.resident.end_of(cookie).is_some(), "the entry at {cookie} is not in memory");
        let &hash = self.by_cookie.get(&cookie)?;
        let named = self.by_hash.get(hash, cookie)?;
        let row = EntryRow { ino: U64::new(named.ino.get()), kind: number_of(named.kind) };
        Some(encode(&Row::Entry(row, &named.name)))
    }

    /// The row of the name index for a hash.
    pub(in crate::furrow::metadata) fn name_row(&self, hash: u64) -> Value {
        self.index.as_ref()?;
        let cookies = self.by_hash.cookies(hash).into_iter().map(U64::new);
        let cookies: Vec<U64> = cookies.collect();
        (!cookies.is_empty()).then(|| encode(&Row::Name(&cookies)))
    }
}

/// The entry that a row describes.
pub(in crate::furrow) fn directory_entry(cookie: u64, row: &EntryRow) -> Option<Entry> {
    Some(Entry { ino: Ino::new(row.ino.get()), cookie, kind: kind_of(row.kind)? })
}
