//! zonefs: every zone a file, as Linux has it.
//!
//! The super block is all there is on disk ([`mod@format`]); [`mkfs()`] writes it. Everything else
//! is what the device reports.

pub mod format;
mod mkfs;

pub use self::format::{Aggregate, Label, MAGIC, Superblock, SuperblockError};
pub use self::mkfs::{MkfsOptions, MkfsReport, mkfs};
pub use crate::mkfs::{Overwrite, Progress};
