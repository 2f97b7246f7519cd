//! Options and progress that both kinds of mkfs have in common.

/// Whether to format a device that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse it.
    #[default]
    Refuse,
    /// Destroy its content.
    Force,
}

/// Progress of a long operation, in zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Zones done.
    pub done: u64,
    /// Zones in all.
    pub total: u64,
}
