//! The lifetime hint of a file of a volume: see [`WriteLifetime`].

use super::{File, Result};
use crate::FsError;
use crate::lifetime::{LIFETIME_XATTR, WriteLifetime};
use crate::vfs::XattrMode;

impl File {
    /// Stores the hint with the file. zonefs has no attributes and refuses.
    pub fn set_write_lifetime(&self, lifetime: WriteLifetime) -> Result<()> {
        if lifetime != WriteLifetime::None {
            return self.set_xattr(LIFETIME_XATTR, lifetime.name().as_bytes(), XattrMode::Any);
        }
        match self.remove_xattr(LIFETIME_XATTR) {
            Err(error) if matches!(error.reason(), FsError::NoAttribute) => Ok(()),
            outcome => outcome,
        }
    }

    /// The hint that is stored with the file.
    pub fn write_lifetime(&self) -> Result<WriteLifetime> {
        match self.xattr(LIFETIME_XATTR) {
            Ok(value) => Ok(WriteLifetime::from_name(&value).unwrap_or_default()),
            Err(error) if matches!(error.reason(), FsError::NoAttribute) => Ok(WriteLifetime::None),
            Err(error) => Err(error),
        }
    }
}
