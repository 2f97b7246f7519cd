//! The common part of both kinds of mkfs: options, progress, and a check for data on the device.

use zonal::{Zone, ZonedDevice};

use crate::FsError;
use crate::signature::{self, Signature};
use crate::vfs::Result;

/// Whether to format a device that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse it.
    #[default]
    Refuse,
    /// Destroy its content.
    Force,
}

impl Overwrite {
    /// An error if the device holds something that may not be overwritten. `zones` is its report,
    /// `found` its signature.
    pub(crate) fn check(
        self,
        device: &dyn ZonedDevice,
        zones: &[Zone],
        found: Option<&Signature>,
    ) -> Result<()> {
        match self {
            Self::Force => Ok(()),
            Self::Refuse => match signature::held(device, zones, found)? {
                Some(what) => Err(FsError::Occupied { what }),
                None => Ok(()),
            },
        }
    }
}

/// Progress of a long operation, in zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Zones done.
    pub done: u64,
    /// Zones in all.
    pub total: u64,
}
