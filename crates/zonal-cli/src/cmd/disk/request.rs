//! The requests of `zonal disk`. Its own process performs them, or the server of the disks.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use zonal::ByteCount;
use zonal_fs::disk::{DiskName, DiskSettings, DiskSpace, Disks, ListedDisk};
use zonal_fs::vfs::Access;

use crate::output::size;

/// A command on the disks of a drive.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    /// `zonal disk list`.
    List,
    /// `zonal disk info`.
    Info(DiskName),
    /// `zonal disk create`.
    Create { name: DiskName, bytes: u64, settings: DiskSettings },
    /// `zonal disk resize`.
    Resize { name: DiskName, bytes: u64, shrink: Shrink },
    /// `zonal disk snapshot`.
    Snapshot { name: DiskName, snapshot: DiskName },
    /// `zonal disk clone`.
    Clone { name: DiskName, new: DiskName, space: DiskSpace },
    /// `zonal disk rm`.
    Remove(DiskName),
}

/// Whether a disk may lose the data behind its new end.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shrink {
    Refused,
    Allowed,
}

impl Request {
    /// Whether it changes the drive.
    pub(super) const fn access(&self) -> Access {
        match self {
            Self::List | Self::Info(_) => Access::ReadOnly,
            Self::Create { .. }
            | Self::Resize { .. }
            | Self::Snapshot { .. }
            | Self::Clone { .. }
            | Self::Remove(_) => Access::ReadWrite,
        }
    }

    /// Performs the request. Returns the disks that it is about, which the command prints.
    pub(super) fn perform(&self, disks: &Disks) -> Result<Vec<ListedDisk>> {
        let about = match self {
            Self::List => return Ok(disks.list()?),
            Self::Info(name) => name,
            Self::Create { name, bytes, settings } => {
                disks.create(name, ByteCount::new(*bytes), *settings)?;
                name
            }
            Self::Resize { name, bytes, shrink } => {
                let old = disks.info(name)?.bytes;
                if *bytes < old && *shrink == Shrink::Refused {
                    let (old, new) = (size(old), size(*bytes));
                    bail!(
                        "{name} has {old}, and what lies behind {new} would be lost: shrink its file \
                         system first, then force it"
                    );
                }
                disks.resize(name, ByteCount::new(*bytes))?;
                name
            }
            Self::Snapshot { name, snapshot } => {
                disks.snapshot(name, snapshot)?;
                snapshot
            }
            Self::Clone { name, new, space } => {
                disks.clone_disk(name, new, *space)?;
                new
            }
            Self::Remove(name) => {
                disks.remove(name)?;
                return Ok(Vec::new());
            }
        };
        Ok(vec![ListedDisk::Disk(disks.info(about)?)])
    }
}
