//! Contents of a device, in words: the reason why it holds no Furrow, or the data that `mkfs`
//! would overwrite.

use zonal::{Lba, Zone, ZoneCond};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::log::superblock_log;
use crate::furrow::planted::Planted;
use crate::signature::{self, Content, Signature};
use crate::vfs::Result;

/// The contents of the device, if there are any, for messages.
pub(in crate::furrow) fn contents_of(
    drive: &Drive,
    zones: &[Zone],
    found: Option<&Signature>,
) -> Result<Option<String>> {
    let superblocks = superblock_log::find_all(drive).found;
    if let Ok(superblock) = superblock_log::newest(&superblocks, &[], Planted::default()) {
        let label = String::from_utf8_lossy(&superblock.label);
        let label = label.trim_end_matches('\0');
        return Ok(Some(format!("a Furrow file system, label {label:?}")));
    }
    if let Some(found) = found {
        return Ok(Some(found.to_string()));
    }
    let holds = |zone: &&Zone| {
        !matches!(
            zone.cond,
            ZoneCond::Empty | ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline
        )
    };
    if let Some(zone) = zones.iter().find(holds) {
        return Ok(Some(format!("data: zone {} is {}", zone.id, zone.cond.name())));
    }
    if zones.first().is_some_and(|zone| zone.cond == ZoneCond::NotWp) {
        let mut block = vec![0; 4096];
        drive.device.read(Lba::ZERO, &mut block)?;
        if block.iter().any(|&byte| byte != 0) {
            return Ok(Some("data: its first block is not zero".into()));
        }
    }
    Ok(None)
}

/// Why there is no Furrow: [`FsError::Blank`] where nothing else is there either, else what is.
pub(in crate::furrow) fn missing_error(drive: &Drive, error: FsError) -> FsError {
    let FsError::Missing { what, why } = error else { return error };
    let held = || -> Result<Option<String>> {
        let found = signature::find(&drive.device)?;
        let held = contents_of(drive, &drive.device.report_all()?, found.as_ref())?;
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
