//! Options of mount(8) that only one of the file systems has.

/// What became of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is ours and in force.
    Yes,
    /// It is not ours.
    No,
    /// It is ours, but has no such value.
    Bad,
}
