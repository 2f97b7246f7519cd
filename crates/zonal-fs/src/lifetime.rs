//! The lifetime hint of a file: its writer sets it, and placement reads it.
//!
//! The hint is an extended attribute, [`LIFETIME_XATTR`], so any program can set it, and tools
//! copy, save and show it like any other. New files and directories inherit the hint of their
//! directory.

pub use zonal_placement::lifetime::WriteLifetime;

/// The extended attribute with the hint: one of the words `short`, `medium`, `long`, `extreme`,
/// `none`. A file without the attribute has no hint.
pub const LIFETIME_XATTR: &str = "user.zonal.lifetime";
