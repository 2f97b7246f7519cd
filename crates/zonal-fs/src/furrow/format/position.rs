//! A position in the journal: where its next record goes, and which record that one continues.

/// A position between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct Position {
    /// Index of the pair that gets the next record.
    pub(in crate::furrow) index: usize,
    /// Block of the next record, in both zones of the pair.
    pub(in crate::furrow) block: u32,
    /// Number of the last record before the position.
    pub(in crate::furrow) last: u64,
    /// Chain value of that record.
    pub(in crate::furrow) chain: u32,
    /// Blocks of each copy between the start of replay and the position.
    pub(in crate::furrow) blocks: u64,
}
