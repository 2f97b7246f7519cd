//! Turns the failure of a command into an error that names the zone and its write pointer.

use std::io;

use zonal::nvme::{NvmeStatus, status};
use zonal::{DeviceError, Lba, LbaCount, ZoneAction, ZoneId, ZonedDevice};

use super::PassthroughDrive;
use super::command::Failure;
use crate::by_zone::Access;

/// SCT 2h: media and data integrity errors (Base, section 3.3.3.2.1).
const MEDIA: u8 = 2;

impl PassthroughDrive {
    /// The error for a failed access to blocks of `zone`. Reports the zone, which also refreshes
    /// the stored write pointer. The caller of a write still holds the lock of the zone.
    #[cold]
    pub(super) fn explain(
        &self,
        zone: ZoneId,
        lba: Lba,
        blocks: LbaCount,
        access: Access,
        failure: Failure,
    ) -> DeviceError {
        let now = match access {
            Access::Read => self.refresh_between_writes(zone),
            Access::Write => self.refresh(zone),
        };
        let status = match failure {
            Failure::Kernel(source) => {
                return DeviceError::Io { what: format!("block {lba} of {}", self.name()), source };
            }
            Failure::Drive(status) => status,
        };
        if let Some(error) = self.of_zone(zone, status) {
            return error;
        }
        match (status, access) {
            (status::ZONE_BOUNDARY, _) => DeviceError::CrossesZone { zone, lba, blocks },
            (status::LBA_OUT_OF_RANGE, _) => DeviceError::OutOfRange { lba, blocks },
            (status::ZONE_INVALID_WRITE, Access::Write) => match now.map(|now| now.wp) {
                Ok(Some(wp)) => DeviceError::NotAtWritePointer { zone, wp, lba },
                Ok(None) => DeviceError::Medium { lba },
                Err(error) => error,
            },
            (status, _) if status.kind == MEDIA => DeviceError::Medium { lba },
            (status, _) => plain(format!("block {lba} of {}", self.name()), Failure::Drive(status)),
        }
    }

    /// The error for a zone that was not opened, closed, finished or reset.
    #[cold]
    pub(super) fn explain_action(
        &self,
        zone: ZoneId,
        action: ZoneAction,
        failure: Failure,
    ) -> DeviceError {
        let now = self.refresh(zone);
        let what = || format!("zone {zone} of {}: {}", self.name(), action.name());
        match failure {
            Failure::Kernel(_) => plain(what(), failure),
            Failure::Drive(status::INVALID_TRANSITION) => match now {
                Ok(now) => DeviceError::Transition { zone, cond: now.cond, action },
                Err(error) => error,
            },
            Failure::Drive(status) => {
                self.of_zone(zone, status).unwrap_or_else(|| plain(what(), Failure::Drive(status)))
            }
        }
    }

    /// The error of a status that needs no more facts than the zone.
    fn of_zone(&self, zone: ZoneId, status: NvmeStatus) -> Option<DeviceError> {
        let limit = |limit: Option<u32>| limit.unwrap_or(0);
        match status {
            status::ZONE_FULL => Some(DeviceError::ZoneFull { zone }),
            status::ZONE_READ_ONLY => Some(DeviceError::ZoneReadOnly { zone }),
            status::ZONE_OFFLINE => Some(DeviceError::ZoneOffline { zone }),
            status::TOO_MANY_ACTIVE => {
                let limit = limit(self.geometry().max_active());
                Some(DeviceError::TooManyActive { zone, limit })
            }
            status::TOO_MANY_OPEN => {
                let limit = limit(self.geometry().max_open());
                Some(DeviceError::TooManyOpen { zone, limit })
            }
            _ => None,
        }
    }

    /// The error of a command that concerns no zone.
    #[cold]
    pub(super) fn failed(&self, what: &str, failure: Failure) -> DeviceError {
        plain(format!("{what} {}", self.name()), failure)
    }

    /// The error for an impossible answer of the drive.
    #[cold]
    pub(super) fn wrong(&self, what: String) -> DeviceError {
        DeviceError::Malformed { path: self.path.clone(), what }
    }

    fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }
}

/// The error of a failure about which no more is known.
pub(super) fn plain(what: String, failure: Failure) -> DeviceError {
    let source = match failure {
        Failure::Kernel(source) => source,
        Failure::Drive(NvmeStatus { kind, code }) => {
            io::Error::other(format!("the drive returned NVMe status {kind:x}{code:02x}h"))
        }
    };
    DeviceError::Io { what, source }
}
