//! What making a file system of either kind has in common.

/// What to do with a device that holds something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse it.
    #[default]
    Refuse,
    /// Destroy what it holds.
    Force,
}

/// How far a long operation has got, in zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Zones done.
    pub done: u64,
    /// Zones in all.
    pub total: u64,
}
