//! Formatting: every sequential zone emptied, a super block, and its zone closed for good.

use std::fmt::Display;

use zonal::{Lba, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZonedDevice};

use super::format::{Aggregate, Label, SUPERBLOCK_BYTES, Superblock};
use crate::FsError;
use crate::mkfs::{Overwrite, Progress, reset_used};
use crate::signature;
use crate::vfs::Result;

/// Options of formatting.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Name, at most 63 bytes.
    pub label: String,
    /// Identity, which the caller chooses at random.
    pub uuid: [u8; 16],
    /// How conventional zones become files.
    pub aggregate: Aggregate,
    /// Owner of all files; the superuser if not named.
    pub uid: Option<u32>,
    /// Group of all files, likewise.
    pub gid: Option<u32>,
    /// Permission bits of all files; 0640 if not named.
    pub perm: Option<u32>,
    /// Whether to format a device that is not empty.
    pub overwrite: Overwrite,
}

/// Result of formatting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsReport {
    /// Zones of the device.
    pub zones: u32,
    /// Zones without a write pointer, the first zone among them if it is one.
    pub conventional: u32,
    /// Zones with a write pointer.
    pub sequential: u32,
    /// Zones that can only be read.
    pub read_only: u32,
    /// Zones that are offline.
    pub offline: u32,
    /// Zones that can be files: all but the first, which holds the super block, and offline ones.
    pub usable: u32,
    /// Bytes of the last zone, if it is smaller than the others.
    pub runt_bytes: Option<u64>,
    /// Zones with data that were reset.
    pub zones_reset: u32,
}

/// Formats a device.
pub fn mkfs(
    device: &dyn ZonedDevice,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<MkfsReport> {
    let superblock = superblock(options)?;
    let zones = device.report_all()?;
    let mut report = count(device, &zones)?;
    options.overwrite.check(device, &zones, signature::find(device)?.as_ref())?;
    report.zones_reset = reset_used(device, &zones, progress)?;
    signature::wipe(device)?;
    device.write(Lba::ZERO, &superblock.to_bytes())?;
    if device.geometry().kind(ZoneId::ZERO).is_sequential() {
        // A full zone takes no writes behind the super block, and is not active.
        device.manage(Select::One(ZoneId::ZERO), ZoneAction::Finish)?;
    }
    device.flush()?;
    Ok(report)
}

fn superblock(options: &MkfsOptions) -> Result<Superblock> {
    let &MkfsOptions { uuid, aggregate, uid, gid, perm, .. } = options;
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid { what: "an owner or group of all ones, which nobody has" });
    }
    Ok(Superblock { label: Label::new(&options.label)?, uuid, aggregate, uid, gid, perm })
}

/// Counts the zones, or says why they cannot be a zonefs.
fn count(device: &dyn ZonedDevice, zones: &[Zone]) -> Result<MkfsReport> {
    let geometry = device.geometry();
    let number = |of: &dyn Fn(&Zone) -> bool| {
        u32::try_from(zones.iter().filter(|zone| of(zone)).count()).unwrap_or(u32::MAX)
    };
    let all = geometry.zone_count();
    let conventional = number(&|zone| zone.kind == ZoneKind::Conventional);
    let offline = number(&|zone| zone.cond == ZoneCond::Offline);
    let runt = zones.last().map(|zone| zone.size).filter(|&size| size < geometry.zone_size());
    let unsuitable = |why: &dyn Display| Err(FsError::Unsuitable { why: why.to_string() });
    let Some(first) = zones.first() else { return unsuitable(&"it has no zones") };
    if matches!(first.cond, ZoneCond::ReadOnly | ZoneCond::Offline) {
        let cond = first.cond.name();
        return unsuitable(&format!("zone 0 is {cond}: it has to hold the super block"));
    }
    if geometry.bytes(first.capacity).get() < SUPERBLOCK_BYTES as u64 {
        return unsuitable(&"its zones hold less than the 4096 bytes of a super block");
    }
    if offline >= all - 1 {
        return unsuitable(&"it has no usable zone besides the one for the super block");
    }
    Ok(MkfsReport {
        zones: all,
        conventional,
        sequential: all - conventional,
        read_only: number(&|zone| zone.cond == ZoneCond::ReadOnly),
        offline,
        usable: all - offline - 1,
        runt_bytes: runt.map(|size| geometry.bytes(size).get()),
        zones_reset: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Content;
    use zonal::layer::fault::Fault;
    use zonal::{DeviceError, MemoryDrive, ZoneFailure};

    fn drive(shape: &str) -> MemoryDrive {
        let changes: zonal::profile::Changes = shape.parse().unwrap();
        MemoryDrive::with_rules(changes.geometry().unwrap(), changes.profile.rules()).unwrap()
    }

    fn force() -> MkfsOptions {
        MkfsOptions { overwrite: Overwrite::Force, ..MkfsOptions::default() }
    }

    fn format(device: &dyn ZonedDevice, options: &MkfsOptions) -> Result<MkfsReport> {
        mkfs(device, options, &mut |_| ())
    }

    fn conditions(device: &dyn ZonedDevice) -> Vec<ZoneCond> {
        device.report_all().unwrap().iter().map(|zone| zone.cond).collect()
    }

    #[test]
    fn mkfs_fills_sequential_first_zone_and_empties_others() {
        for shape in ["zones=4,zone=3M,block=512", "zones=4,zone=4M,capacity=3M,block=4096"] {
            let drive = drive(shape);
            drive.append(ZoneId::new(2), &[1; 4096]).unwrap();
            drive.manage(Select::One(ZoneId::new(3)), ZoneAction::Finish).unwrap();
            let mut steps = Vec::new();
            let report = mkfs(&drive, &force(), &mut |step| steps.push((step.done, step.total)));
            assert_eq!(report.unwrap().zones_reset, 2);
            assert_eq!(steps, [(0, 2), (2, 2)]);
            let cond = conditions(&drive);
            assert_eq!(cond[0], ZoneCond::Full);
            assert!(cond[1..].iter().all(|&cond| cond == ZoneCond::Empty), "{cond:?}");
            assert_eq!(Superblock::read(&drive).unwrap().uuid, [0; 16]);
        }
    }

    #[test]
    fn mkfs_writes_conventional_first_zone_in_place() {
        let drive = drive("profile=smr,size=8704K,zone=1M,conventional=3,block=512");
        let mut btrfs = [0; 512];
        btrfs[64..72].copy_from_slice(b"_BHRfS_M");
        drive.write(Lba::new(128), &btrfs).unwrap();
        let found = signature::find(&drive).unwrap().map(|found| found.kind);
        assert_eq!(found, Some(Content::Foreign("btrfs")));
        drive.write(Lba::new(5000), &[9; 512]).unwrap();
        let options = MkfsOptions { label: "tape".into(), perm: Some(0o644), ..force() };
        let report = format(&drive, &options).unwrap();
        assert_eq!((report.conventional, report.sequential, report.usable), (3, 6, 8));
        assert_eq!(report.runt_bytes, Some(512 << 10));
        let superblock = Superblock::read(&drive).unwrap();
        assert_eq!((superblock.label.text().as_ref(), superblock.perm), ("tape", Some(0o644)));
        let mut kept = [0; 512];
        drive.read(Lba::new(128), &mut kept).unwrap();
        assert_eq!(kept, [0; 512], "nobody takes it for what it was");
        drive.read(Lba::new(5000), &mut kept).unwrap();
        assert_eq!(kept, [9; 512], "what conventional zones hold stays");
    }

    #[test]
    fn mkfs_names_and_refuses_existing_content() {
        let drive = drive("zones=4,zone=1M");
        let options = MkfsOptions { label: "tape".into(), ..MkfsOptions::default() };
        format(&drive, &options).unwrap();
        let error = format(&drive, &options).unwrap_err();
        assert_eq!(error.to_string(), "the device already holds zonefs, label \"tape\"");
        assert_eq!(error.errno(), 16, "EBUSY");
        format(&drive, &force()).unwrap();
        assert_eq!(Superblock::read(&drive).unwrap().label.text(), "");
    }

    #[test]
    fn mkfs_refuses_and_names_zone_with_raw_data() {
        let sequential = drive("zones=6,zone=1M");
        sequential.append(ZoneId::new(5), &[1; 4096]).unwrap();
        let conventional = drive("profile=smr,size=8M,zone=1M,conventional=3,block=512");
        conventional.write(Lba::new(2 * 2048 + 7), &[1; 512]).unwrap();
        for (drive, named) in [
            (sequential, "data: zone 5 is implicit-open"),
            (conventional, "data: conventional zone 2 is not zeroes"),
        ] {
            let before = conditions(&drive);
            let error = format(&drive, &MkfsOptions::default()).unwrap_err().to_string();
            assert_eq!(error, format!("the device already holds {named}"));
            assert_eq!(conditions(&drive), before);
            format(&drive, &force()).unwrap();
        }
    }

    #[test]
    fn mkfs_counts_and_leaves_failed_zones() {
        let drive = drive("zones=5,zone=1M");
        drive.append(ZoneId::new(2), &[1; 4096]).unwrap();
        drive.fail_zone(ZoneId::new(2), ZoneFailure::ReadOnly).unwrap();
        drive.fail_zone(ZoneId::new(4), ZoneFailure::Offline).unwrap();
        let report = format(&drive, &force()).unwrap();
        assert_eq!((report.read_only, report.offline, report.usable), (1, 1, 3));
        assert_eq!(conditions(&drive)[2], ZoneCond::ReadOnly);
        for zone in [1, 3] {
            drive.fail_zone(ZoneId::new(zone), ZoneFailure::Offline).unwrap();
        }
        format(&drive, &force()).unwrap();
        drive.fail_zone(ZoneId::new(2), ZoneFailure::Offline).unwrap();
        assert!(matches!(format(&drive, &force()), Err(FsError::Unsuitable { .. })));
    }

    #[test]
    fn mkfs_reports_unwritable_first_zone() {
        let drive = drive("zones=4,zone=1M");
        drive.fail_zone(ZoneId::ZERO, ZoneFailure::ReadOnly).unwrap();
        let error = format(&drive, &force()).unwrap_err().to_string();
        assert!(error.contains("zone 0 is read-only"), "{error}");
        let tiny = self::drive("zones=4,zone=512,block=512");
        assert!(matches!(format(&tiny, &force()), Err(FsError::Unsuitable { .. })));
    }

    #[test]
    fn mkfs_with_unmountable_options_changes_nothing() {
        let drive = drive("zones=4,zone=1M");
        drive.append(ZoneId::new(2), &[1; 4096]).unwrap();
        for options in [
            MkfsOptions { uid: Some(u32::MAX), ..force() },
            MkfsOptions { gid: Some(u32::MAX), ..force() },
            MkfsOptions { label: "x".repeat(64), ..force() },
        ] {
            assert_eq!(format(&drive, &options).unwrap_err().errno(), 22, "EINVAL");
        }
        assert_eq!(conditions(&drive)[2], ZoneCond::ImplicitOpen);
    }

    /// A device whose reset of all zones fails is emptied zone by zone.
    #[test]
    fn mkfs_resets_zones_singly_when_reset_all_fails() {
        let drive = drive("zones=4,zone=1M");
        for zone in [1, 2] {
            drive.append(ZoneId::new(zone), &[1; 4096]).unwrap();
        }
        let once = Fault::new(drive, "reset,nth=1".parse().unwrap());
        let report = format(&once, &force()).unwrap();
        assert_eq!(report.zones_reset, 2);
        assert_eq!(conditions(&once)[1..], [ZoneCond::Empty; 3]);
        let always = Fault::new(once, "reset".parse().unwrap());
        always.append(ZoneId::new(1), &[1; 4096]).unwrap();
        let error = format(&always, &force()).unwrap_err();
        assert!(matches!(error, FsError::Device(DeviceError::Medium { .. })), "{error}");
    }
}
