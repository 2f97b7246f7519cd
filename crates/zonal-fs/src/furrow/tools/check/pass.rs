//! A pass over rows, with the progress of it.

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::recovery::Opened;
use crate::furrow::table::key::Key;
use crate::furrow::table::view::View;
use crate::furrow::table::view::scan::Scanned;
use crate::furrow::tools::check::{CheckPhase, CheckProgress};
use crate::vfs::Result;

/// Rows after which progress is told.
const ROWS_AT_ONCE: u64 = 1 << 16;

/// What a pass comes to.
pub(in crate::furrow) enum Item<'a> {
    /// A row, and the bytes of its value.
    Row(Key, Row<'a>, usize),
    /// One that makes no sense.
    Bad(String),
    /// From this key on, and below the other, no copy gives the rows.
    Lost(Key, Key),
}

/// Where rows come from.
pub(in crate::furrow) struct Source<'a> {
    pub(in crate::furrow) drive: &'a Drive,
    pub(in crate::furrow) view: &'a View,
    /// Rows in all, those that newer ones replace too.
    rows: u64,
    progress: &'a mut dyn FnMut(CheckProgress),
}

impl<'a> Source<'a> {
    pub(in crate::furrow) fn new(
        drive: &'a Drive,
        opened: &'a Opened,
        progress: &'a mut dyn FnMut(CheckProgress),
    ) -> Self {
        let view = &*opened.table.view;
        let rows = view.levels().parts().map(|part| u64::from(part.summary.rows)).sum();
        Self { drive, view, rows, progress }
    }

    pub(in crate::furrow) fn tell(&mut self, phase: CheckPhase, done: u64, total: u64) {
        (self.progress)(CheckProgress { phase, done: done.min(total), total });
    }

    /// Hands on the rows from one key on, below another.
    pub(in crate::furrow) fn pass(
        &mut self,
        phase: CheckPhase,
        range: (Key, Key),
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<()> {
        let (mut done, total) = (0, self.rows);
        self.tell(phase, done, total);
        let (view, drive) = (self.view, self.drive);
        view.scan(drive, range, &mut |scanned| {
            done += 1;
            if done % ROWS_AT_ONCE == 0 {
                self.tell(phase, done, total);
            }
            match scanned {
                Scanned::Lost(from, below) => each(Item::Lost(from, below)),
                Scanned::Row(key, value) => match decode(key, value) {
                    Ok(row) => each(Item::Row(key, row, value.len())),
                    Err(why) => each(Item::Bad(why)),
                },
            }
        })?;
        self.tell(phase, total, total);
        Ok(())
    }
}
