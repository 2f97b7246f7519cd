//! A pass over rows, which reports its progress.

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::recovery::Opened;
use crate::furrow::table::key::{Key, KeySpan};
use crate::furrow::table::view::View;
use crate::furrow::table::view::scan::Scanned;
use crate::furrow::tools::check::{CheckPhase, CheckProgress};
use crate::vfs::Result;

/// Rows between two reports of progress.
const ROWS_AT_ONCE: u64 = 1 << 16;

/// An item that a pass reports.
pub(super) enum Item<'a> {
    /// A row, and the length of its value in bytes.
    Row(Key, Row<'a>, usize),
    /// A row that cannot be decoded, and why.
    Bad(String),
    /// A span whose rows no copy gives.
    Lost(KeySpan),
}

/// The source of rows for all passes of a check.
pub(super) struct RowSource<'a> {
    pub(super) drive: &'a Drive,
    pub(super) view: &'a View,
    /// Rows of all parts, with those that newer rows replace.
    rows: u64,
    progress: &'a mut dyn FnMut(CheckProgress),
}

impl<'a> RowSource<'a> {
    pub(super) fn new(
        drive: &'a Drive,
        opened: &'a Opened,
        progress: &'a mut dyn FnMut(CheckProgress),
    ) -> Self {
        let view = &*opened.table.view;
        let rows = view.levels().parts().map(|part| u64::from(part.summary.rows)).sum();
        Self { drive, view, rows, progress }
    }

    pub(super) fn report_progress(&mut self, phase: CheckPhase, done: u64, total: u64) {
        (self.progress)(CheckProgress { phase, done: done.min(total), total });
    }

    /// Calls `each` for the rows and lost ranges of a span, in order.
    pub(super) fn pass(
        &mut self,
        phase: CheckPhase,
        span: KeySpan,
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<()> {
        let (mut done, total) = (0, self.rows);
        self.report_progress(phase, done, total);
        let (view, drive) = (self.view, self.drive);
        view.scan(drive, span, &mut |scanned| {
            done += 1;
            if done % ROWS_AT_ONCE == 0 {
                self.report_progress(phase, done, total);
            }
            match scanned {
                Scanned::Lost(from, below) => each(Item::Lost(KeySpan::new(from, below))),
                Scanned::Row(key, value) => match decode(key, value) {
                    Ok(row) => each(Item::Row(key, row, value.len())),
                    Err(why) => each(Item::Bad(why)),
                },
            }
        })?;
        self.report_progress(phase, total, total);
        Ok(())
    }
}
