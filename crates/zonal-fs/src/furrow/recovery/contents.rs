//! The reason why a device holds no Furrow.

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::signature::{self, Content};
use crate::vfs::Result;

/// Why there is no Furrow: [`FsError::Blank`] if the device is empty, otherwise its content.
pub(in crate::furrow) fn missing_error(drive: &Drive, error: FsError) -> FsError {
    let FsError::Missing { what, why } = error else { return error };
    let held = || -> Result<Option<String>> {
        let found = signature::find(&drive.device)?;
        let zones = drive.device.report_all()?;
        let held = signature::held(&drive.device, &zones, found.as_ref())?;
        Ok(held.map(|held| match found.as_ref().map(|found| found.kind) {
            // The error of reading a superblock does not matter on the drive of another system.
            Some(Content::Zonefs | Content::Foreign(_)) => format!("it holds {held}, not {what}"),
            Some(Content::Furrow) | None => format!("it holds {held}; {why}"),
        }))
    };
    match held() {
        Ok(None) => FsError::Blank { what },
        Ok(Some(why)) => FsError::Missing { what, why },
        Err(_) => FsError::Missing { what, why },
    }
}
