//! A position in the journal: where its next record goes, and what that record continues.

/// A place between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Position {
    /// Which pair the next record goes to.
    pub(in crate::furrow) index: usize,
    /// Its block there, in both zones.
    pub(in crate::furrow) block: u32,
    /// Number of the last record before.
    pub(in crate::furrow) last: u64,
    /// Chain value of that record.
    pub(in crate::furrow) chain: u32,
    /// Blocks of each copy before it, counted from where the mount began to read.
    pub(in crate::furrow) blocks: u64,
}
