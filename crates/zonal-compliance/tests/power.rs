//! The two runs of a power cut: a drive that keeps D4 follows every rule, other drives break the
//! rules that they should break.

#![expect(clippy::unwrap_used, reason = "a test")]

use zonal::{
    GeometrySpec, Lba, LbaCount, MemoryDrive, Profile, Rules, Select, ZoneAction, ZoneId,
    ZonedDevice,
};
use zonal_compliance::power::{Role, after_cut, before_cut};
use zonal_compliance::{Interface, Report, Scope, Target};

fn target(device: &dyn ZonedDevice) -> Target<'_> {
    Target {
        name: "a device",
        device,
        interface: Interface::Library,
        rules: Rules::Zns,
        transfer: LbaCount::new(256),
        filters: None,
    }
}

fn scope() -> Scope {
    Scope::Zones { first: ZoneId::new(4), last: ZoneId::new(20) }
}

fn drive() -> MemoryDrive {
    let small = Profile::Small.geometry();
    let limits = GeometrySpec { max_open: Some(8), max_active: Some(8), ..small };
    MemoryDrive::new(limits).unwrap()
}

fn broken(report: &Report) -> Vec<&str> {
    let broken = report.outcomes.iter().filter(|one| one.verdict == "fail");
    broken.map(|one| one.rule_name.as_str()).collect()
}

/// Closes open zones as a power cut does; zones without data become Empty.
fn close_all(drive: &MemoryDrive) {
    for zone in drive.report_all().unwrap() {
        if zone.cond.is_open() {
            let empty = zone.wp == Some(zone.start);
            let action = if empty { ZoneAction::Reset } else { ZoneAction::Close };
            drive.manage(Select::One(zone.id), action).unwrap();
        }
    }
}

#[test]
fn drive_that_closes_zones_follows_power_rules() {
    let drive = drive();
    let record = before_cut(&target(&drive), scope(), 7).unwrap();
    assert_eq!(record.zones.len(), 8);
    close_all(&drive);
    let report = after_cut(&target(&drive), &record).unwrap();
    assert_eq!(broken(&report), Vec::<&str>::new());
    assert_eq!(report.totals.passed, 9);
}

#[test]
fn drive_that_keeps_zones_open_is_found() {
    let drive = drive();
    let record = before_cut(&target(&drive), scope(), 7).unwrap();
    let report = after_cut(&target(&drive), &record).unwrap();
    assert_eq!(broken(&report), ["power.not-open", "power.active-closed", "power.empty-stays"]);
}

#[test]
fn drive_that_loses_flushed_data_is_found() {
    let drive = drive();
    let record = before_cut(&target(&drive), scope(), 7).unwrap();
    close_all(&drive);
    let zone = record.zones.iter().find(|zone| zone.role == Role::Closed).unwrap();
    let id = ZoneId::new(zone.zone);
    drive.manage(Select::One(id), ZoneAction::Reset).unwrap();
    drive.write(drive.geometry().zone_start(id), &[9; 2 * 4096]).unwrap();
    drive.manage(Select::One(id), ZoneAction::Close).unwrap();
    let report = after_cut(&target(&drive), &record).unwrap();
    assert_eq!(broken(&report), ["power.flushed", "power.data"]);
}

#[test]
fn power_record_of_other_device_is_refused() {
    let drive = drive();
    let mut record = before_cut(&target(&drive), scope(), 7).unwrap();
    record.block_count += 1;
    assert!(after_cut(&target(&drive), &record).unwrap_err().contains("another device"));
    assert_ne!(drive.geometry().zone_start(ZoneId::new(4)), Lba::ZERO);
}
