//! The state that commits and steps of the table share: superblock, journal, table.

use super::format::superblock::Superblock;
use super::journal::Journal;
use super::planted::Planted;
use super::superlog::SuperLog;
use super::table::Table;

/// What a commit writes to, behind one lock.
#[derive(Debug)]
pub(super) struct Committer {
    pub(super) superblock: Superblock,
    pub(super) superlog: SuperLog,
    pub(super) journal: Journal,
    pub(super) table: Table,
    /// Number of the last record that is durable.
    pub(super) durable_record: u64,
    /// The last manifest may be durable or not: nothing is written before another one is.
    pub(super) is_unnamed: bool,
    pub(super) planted: Planted,
}

/// What a commit ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A journal record.
    Record,
    /// The same, and a superblock that says the drive was left clean.
    Clean,
}
