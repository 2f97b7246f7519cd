//! The list of orphans, read along with the inodes: both are in the order of inode numbers, so only
//! a part of the list is in memory.

use std::collections::VecDeque;

use crate::furrow::drive::Drive;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::View;

/// Rows of one read.
const ROWS_AT_ONCE: usize = 4096;

pub(super) struct Orphans<'a> {
    drive: &'a Drive,
    view: &'a View,
    next: Key,
    read: VecDeque<u64>,
}

impl<'a> Orphans<'a> {
    pub(super) fn new(drive: &'a Drive, view: &'a View) -> Self {
        Self { drive, view, next: Key::MIN, read: VecDeque::new() }
    }

    /// Takes the next inode off the list if it is below `ino`. The list ends where it cannot be
    /// read.
    pub(super) fn next_below(&mut self, ino: u64) -> Option<u64> {
        while self.read.is_empty() && self.next < Key::BASE_END {
            let span = KeySpan::new(self.next, Key::BASE_END);
            let found = self.view.rows(self.drive, span, ROWS_AT_ONCE);
            let Ok(found) = found else {
                self.next = Key::BASE_END;
                break;
            };
            let keys = found.rows.iter().map(|(key, _)| key);
            self.read
                .extend(keys.filter(|key| key.kind() == RowKind::Orphan).map(|key| key.owner()));
            self.next = found.end;
        }
        if self.read.front().is_some_and(|next| *next < ino) { self.read.pop_front() } else { None }
    }
}
