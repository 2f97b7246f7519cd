//! Turns the failure of a command into an error that names the zone and its write pointer.

use zonal::{DeviceError, Lba, LbaCount, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

use super::ScsiDrive;
use super::sense::Meaning;
use super::transport::Failure;
use crate::Result;
use crate::by_zone::{Access, refusal};

impl ScsiDrive {
    /// The error for a failed access to blocks of `zone`, which a report now shows as `now`.
    #[cold]
    pub(super) fn explain(
        &self,
        zone: ZoneId,
        (lba, blocks): (Lba, LbaCount),
        access: Access,
        now: Result<Zone>,
        failure: Failure,
    ) -> DeviceError {
        let what = format!("block {lba} of {}", self.path.display());
        let Some(meaning) = failure.meaning() else { return plain(what, failure) };
        if let Some(error) = self.of_zone(zone, meaning) {
            return error;
        }
        // The reason that a report shows. A write may have been performed and still have failed, so
        // a zone whose pointer has moved is a reason only where the drive refused the write.
        let shown = match access {
            Access::Write => now.ok().and_then(|now| refusal(&now, lba)),
            Access::Read => {
                let is_offline = now.is_ok_and(|now| now.cond == ZoneCond::Offline);
                is_offline.then_some(DeviceError::ZoneOffline { zone })
            }
        };
        match meaning {
            Meaning::OutOfRange => DeviceError::OutOfRange { lba, blocks },
            Meaning::WriteBoundary | Meaning::ReadBoundary => {
                DeviceError::CrossesZone { zone, lba, blocks }
            }
            Meaning::GapZone => DeviceError::Gap { zone, lba },
            Meaning::Medium | Meaning::Hardware | Meaning::ReadInvalidData => {
                DeviceError::Medium { lba }
            }
            Meaning::UnalignedWrite => shown.unwrap_or(DeviceError::Medium { lba }),
            // ATA says of most errors only that the disk aborted the command.
            Meaning::InvalidField | Meaning::IllegalRequest | Meaning::Aborted => {
                shown.unwrap_or_else(|| plain(what, failure))
            }
            Meaning::Performed
            | Meaning::BecomingReady
            | Meaning::NeedsStart
            | Meaning::NotReady
            | Meaning::InvalidOpcode
            | Meaning::UnitAttention
            | Meaning::ZoneReadOnly
            | Meaning::ZoneOffline
            | Meaning::ZoneInactive
            | Meaning::ZoneResources
            | Meaning::WriteProtected
            | Meaning::Other => plain(what, failure),
        }
    }

    /// The error for a zone that was not opened, closed, finished or reset.
    #[cold]
    pub(super) fn explain_action(
        &self,
        zone: ZoneId,
        action: ZoneAction,
        now: Result<Zone>,
        failure: Failure,
    ) -> DeviceError {
        let what = format!("zone {zone} of {}: {}", self.path.display(), action.name());
        let Some(meaning) = failure.meaning() else { return plain(what, failure) };
        if let Some(error) = self.of_zone(zone, meaning) {
            return error;
        }
        match (meaning, now.map(|now| now.cond)) {
            (_, Ok(ZoneCond::ReadOnly)) => DeviceError::ZoneReadOnly { zone },
            (_, Ok(ZoneCond::Offline)) => DeviceError::ZoneOffline { zone },
            (Meaning::InvalidField, Ok(cond)) => DeviceError::Transition { zone, cond, action },
            (_, _) => plain(what, failure),
        }
    }

    /// The error of a meaning that needs no more facts than the zone.
    pub(super) fn of_zone(&self, zone: ZoneId, meaning: Meaning) -> Option<DeviceError> {
        match meaning {
            Meaning::ZoneReadOnly => Some(DeviceError::ZoneReadOnly { zone }),
            Meaning::ZoneOffline | Meaning::ZoneInactive => Some(DeviceError::ZoneOffline { zone }),
            Meaning::ZoneResources => {
                let limit = self.geometry().max_open().unwrap_or(0);
                Some(DeviceError::TooManyOpen { zone, limit })
            }
            _ => None,
        }
    }

    /// The error of a command that concerns no zone.
    #[cold]
    pub(super) fn failed(&self, what: &str, failure: Failure) -> DeviceError {
        plain(format!("{what} {}", self.path.display()), failure)
    }

    /// The error for an impossible answer of the drive.
    #[cold]
    pub(super) fn wrong(&self, what: String) -> DeviceError {
        DeviceError::Malformed { path: self.path.clone(), what }
    }
}

/// The error of a failure about which no more is known.
pub(super) fn plain(what: String, failure: Failure) -> DeviceError {
    DeviceError::Io { what, source: failure.into_io_error() }
}
