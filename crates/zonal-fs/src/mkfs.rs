//! The common part of both kinds of mkfs: options, progress, a check for data on the device, and
//! the reset of its zones.

use zonal::{Select, Zone, ZoneAction, ZoneCond, ZonedDevice};

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

/// Empties every zone that is not empty: all by one command, which takes a shingled disk of 14 TB
/// 2.5 s, or one by one where the device cannot. Returns how many were not empty.
pub(crate) fn reset_used(
    device: &dyn ZonedDevice,
    zones: &[Zone],
    progress: &mut dyn FnMut(Progress),
) -> Result<u32> {
    let used = || zones.iter().filter(|zone| zone.cond.is_active() || zone.cond == ZoneCond::Full);
    let total = used().count() as u64;
    progress(Progress { done: 0, total });
    if total > 0 && device.manage(Select::All, ZoneAction::Reset).is_err() {
        for (done, zone) in (0..).zip(used()) {
            progress(Progress { done, total });
            device.manage(Select::One(zone.id), ZoneAction::Reset)?;
        }
    }
    progress(Progress { done: total, total });
    Ok(u32::try_from(total).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use zonal::layer::fault::Fault;
    use zonal::{MemoryDrive, ZoneId};

    use super::*;

    /// The second command would fail.
    #[test]
    fn used_zones_are_reset_by_one_command() {
        let shape = "zones=4,zone=1M".parse::<zonal::profile::Changes>().unwrap();
        let drive = MemoryDrive::new(shape.geometry().unwrap()).unwrap();
        for zone in 1..4 {
            drive.append(ZoneId::new(zone), &[1; 4096]).unwrap();
        }
        let drive = Fault::new(drive, "reset,nth=2".parse().unwrap());
        let zones = drive.report_all().unwrap();
        assert_eq!(reset_used(&drive, &zones, &mut |_| ()).unwrap(), 3);
        let zones = drive.report_all().unwrap();
        assert!(zones.iter().all(|zone| zone.cond == ZoneCond::Empty), "{zones:?}");
    }
}
