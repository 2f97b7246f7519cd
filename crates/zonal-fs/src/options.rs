//! Options of mount(8) that only one of the file systems has.

/// Outcome of offering an option to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The file system has the option, and has taken it.
    Yes,
    /// The file system does not have the option.
    No,
    /// The file system has the option, but the value is invalid.
    Bad,
}
