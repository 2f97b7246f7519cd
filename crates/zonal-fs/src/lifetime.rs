//! Where the lifetime hint of a file is kept, which its writer gives and placement reads.
//!
//! The hint of a file is its extended attribute [`LIFETIME_XATTR`], so every program can set it, and it
//! is copied, saved and shown like any other. A directory hands its own down to what is created in it.

pub use zonal_placement::lifetime::WriteLifetime;

/// The extended attribute that keeps the hint: one of the words `short`, `medium`, `long`,
/// `extreme`, `none`; without it there is no hint.
pub const LIFETIME_XATTR: &str = "user.zonal.lifetime";
