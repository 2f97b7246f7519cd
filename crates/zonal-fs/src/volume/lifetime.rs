//! How long what is written to a file will live.
//!
//! The hint is kept with the file, as the extended attribute [`LIFETIME_XATTR`]. Furrow does not
//! act on it yet: it is there so that placement by lifetime finds it, on the drives that exist.

use super::{File, Result};
use crate::FsError;
use crate::vfs::XattrMode;

/// The extended attribute that keeps the hint: one of the words `short`, `medium`, `long`,
/// `extreme`; absent for none.
pub const LIFETIME_XATTR: &str = "user.zonal.lifetime";

/// How long what is written to a file will live: the scale of Linux's `F_SET_RW_HINT` and of
/// RocksDB's `WriteLifeTimeHint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteLifetime {
    /// Nothing is known.
    #[default]
    None,
    /// It is deleted soon, like a write-ahead log.
    Short,
    /// Longer than short.
    Medium,
    /// Longer than medium.
    Long,
    /// Like the lowest level of an LSM tree.
    Extreme,
}

impl WriteLifetime {
    /// Every lifetime, the shortest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Short, Self::Medium, Self::Long, Self::Extreme];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
            Self::Extreme => "extreme",
        }
    }
}

impl File {
    /// Keeps the hint with the file. zonefs, which has no attributes, refuses.
    pub fn set_write_lifetime(&self, lifetime: WriteLifetime) -> Result<()> {
        if lifetime != WriteLifetime::None {
            return self.set_xattr(LIFETIME_XATTR, lifetime.name().as_bytes(), XattrMode::Any);
        }
        match self.remove_xattr(LIFETIME_XATTR) {
            Err(error) if matches!(error.reason(), FsError::NoAttribute) => Ok(()),
            outcome => outcome,
        }
    }

    /// The hint that is kept with the file; none where the attribute holds no word that is known.
    pub fn write_lifetime(&self) -> Result<WriteLifetime> {
        match self.xattr(LIFETIME_XATTR) {
            Ok(value) => {
                let known = WriteLifetime::ALL.into_iter();
                let mut known = known.filter(|lifetime| lifetime.name().as_bytes() == value);
                Ok(known.next().unwrap_or_default())
            }
            Err(error) if matches!(error.reason(), FsError::NoAttribute) => Ok(WriteLifetime::None),
            Err(error) => Err(error),
        }
    }
}
