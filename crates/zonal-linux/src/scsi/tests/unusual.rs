//! Drives that are unusual: some zones that Zonal cannot use, realms, sense data that comes late, a
//! disk that stands still or takes no writes, and the drive without our checks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zonal::nvme::decode::ReportCount;
use zonal::{
    DeviceError, GeometrySpec, Lba, LbaCount, MemoryDrive, OpenMode, Rules, Select, ZoneAction,
    ZoneCond, ZoneId, ZoneRuns, ZonedDevice,
};

use super::super::cdb::Command;
use super::super::channel::{Channel, Dialect};
use super::super::raw::RawScsi;
use super::super::sense::Sense;
use super::super::zones::{Descriptor, ZoneType};
use super::super::{facts, realms};
use super::target::{Adapter, Kind, Target, Trouble, When};
use super::{BLOCK, SPEC, ZONE, open, plain, rig, sense};

fn target(spec: GeometrySpec, shift: u32, adapter: Adapter) -> Arc<Target> {
    let memory = Arc::new(MemoryDrive::with_rules(spec, Rules::Zbc).unwrap());
    Target::new(memory, shift, adapter)
}

/// Blocks of the drive that commands of data and of single zones went to.
fn touched(target: &Target) -> Vec<Lba> {
    let log = target.log.lock().unwrap();
    let place = |command: &Command| match *command {
        Command::Read(range) | Command::Write(range) => Some(range.first),
        Command::ManageZones { zones: zonal::nvme::decode::SendTarget::Start(start), .. } => {
            Some(start)
        }
        _ => None,
    };
    log.iter().filter_map(place).collect()
}

#[test]
fn zones_that_zonal_cannot_use_are_left_out() {
    let target = target(SPEC, 3, Adapter::Scsi);
    // Zone 2 is inactive, zone 4 takes writes by other rules.
    *target.disguise.lock().unwrap() = Some(|zone: &mut Descriptor| match zone.start.get() {
        960 => zone.cond = None,
        1920 => zone.kind = ZoneType::SequentialOrBeforeRequired,
        _ => {}
    });
    let drive = open(&target, OpenMode::ReadWrite).unwrap();
    let zones = drive.report_all().unwrap();
    let offline: Vec<u32> = zones
        .iter()
        .filter(|zone| zone.cond == ZoneCond::Offline)
        .map(|zone| zone.id.get())
        .collect();
    assert_eq!(offline, [2, 4]);
    assert_eq!((zones.len(), drive.geometry().zone_count()), (6, 6));
    for zone in [ZoneId::new(2), ZoneId::new(4)] {
        let start = drive.geometry().zone_start(zone);
        let refused = [
            drive.append(zone, &[1; BLOCK]).map(drop),
            drive.write(start, &[1; BLOCK]),
            drive.read(start, &mut [0; BLOCK]),
            drive.manage(Select::One(zone), ZoneAction::Reset),
        ];
        for result in refused {
            assert!(matches!(result, Err(DeviceError::ZoneOffline { .. })), "{result:?}");
        }
    }
    assert_eq!(touched(&target), []);
    drive.append(ZoneId::new(3), &[3; BLOCK]).unwrap();
    drive.append(ZoneId::new(5), &[5; BLOCK]).unwrap();
    assert_eq!(touched(&target), [Lba::new(3 * 480), Lba::new(5 * 480)]);
    let raw = RawScsi::over(drive);
    let start = raw.geometry().zone_start(ZONE);
    assert!(matches!(raw.write(start, &[1; BLOCK]), Err(DeviceError::ZoneOffline { .. })));
    let mut channel = Channel::new(Box::new(Arc::clone(&target)));
    let said = facts::of(&mut channel).unwrap().left_out;
    assert_eq!(
        said,
        [
            "1 zones from block 960 on are inactive: no active realm has them",
            "1 zones from block 1920 on are of type sequential or before required",
        ]
    );
}

/// Two realms: zones 0 and 1 are conventional, 2 and 3 belong to realm 0, 4 and 5 to realm 1.
fn hybrid() -> Arc<Target> {
    let target =
        target(GeometrySpec { conventional_zones: ZoneRuns::leading(2), ..SPEC }, 0, Adapter::Scsi);
    *target.realms.lock().unwrap() = vec![1, 0];
    target
}

#[test]
fn realm_is_activated_unless_prerequisites_are_missing() {
    let target = hybrid();
    let channel = || {
        let mut channel = Channel::new(Box::new(Arc::clone(&target)));
        channel.pause_ms = 0;
        channel
    };
    let offline = || {
        let zones = open(&target, OpenMode::ReadOnly).unwrap().report_all().unwrap();
        let offline = zones.iter().filter(|zone| zone.cond == ZoneCond::Offline);
        offline.map(|zone| zone.id.get()).collect::<Vec<_>>()
    };
    let activate =
        |realm, domain| realms::activate_over(&channel(), Path::new("sg9"), realm, domain);
    assert_eq!(offline(), [0, 4, 5]);
    let found = realms::realms(&channel()).unwrap();
    assert_eq!(found.iter().map(|realm| realm.active_domain).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(found[1].ranges[1], (Lba::new(240), Lba::new(359)));
    let domains = realms::domains(&channel()).unwrap();
    assert_eq!(domains.iter().map(|domain| domain.zones).collect::<Vec<_>>(), [2, 4]);
    activate(1, 1).unwrap();
    assert_eq!(offline(), [0, 1]);
    let refused = |realm, domain, why: &str| {
        let error = activate(realm, domain).unwrap_err();
        let text = format!("{error}: {:?}", std::error::Error::source(&error));
        assert!(text.contains(why), "{text}");
    };
    refused(1, 1, "a zone is not inactive");
    refused(9, 1, "no such realm");
    refused(1, 9, "no such zone domain");
    open(&target, OpenMode::ReadWrite).unwrap().append(ZONE, &[1; BLOCK]).unwrap();
    refused(0, 0, "a zone is not empty (zone at block 120)");
    assert_eq!(offline(), [0, 1], "it stays as it was");
    let none = self::target(SPEC, 0, Adapter::Scsi);
    let channel = Channel::new(Box::new(none));
    let error = realms::activate_over(&channel, Path::new("sg9"), 0, 0).unwrap_err();
    assert!(matches!(error, DeviceError::Io { .. }), "{error}");
}

#[test]
fn sense_data_that_comes_late_is_asked_for() {
    let rig = plain();
    rig.target.keeps_sense.store(true, Ordering::Release);
    rig.target.fail(Kind::Write, 2, When::Before, sense(6, 0x28, 0));
    assert_eq!(rig.append(1).unwrap(), rig.start(), "a unit attention is repeated");
    rig.target.fail(Kind::Read, 1, When::Before, sense(3, 0x11, 0));
    let error = rig.drive.read(rig.start(), &mut [0; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::Medium { .. }), "{error}");
    rig.target.keeps_sense.store(false, Ordering::Release);
    rig.target.fail(Kind::Read, 1, When::Before, Trouble::Status(2));
    let error = rig.drive.read(rig.start(), &mut [0; BLOCK]).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO, "nothing more is known: {error}");
    rig.target.has_descriptors.store(true, Ordering::Release);
    rig.target.fail(Kind::Read, 1, When::Before, sense(3, 0x11, 0));
    let error = rig.drive.read(rig.start(), &mut [0; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::Medium { .. }), "{error}");
}

#[test]
fn first_report_that_is_aborted_by_chance_is_repeated() {
    let target = target(SPEC, 0, Adapter::Scsi);
    let is_ata = |command: &Command| matches!(command, Command::Ata(_));
    let is_report = |command: &Command| matches!(command, Command::ReportZones(_));
    target.fail_if(is_ata, u32::MAX, When::Before, sense(5, 0x20, 0));
    target.fail_if(is_report, 2, When::Before, sense(0xb, 0, 0));
    let drive = open(&target, OpenMode::ReadOnly).unwrap();
    assert_eq!(drive.channel.dialect, Dialect::Scsi);
    target.fail_if(is_report, u32::MAX, When::Before, sense(0xb, 0, 0));
    assert!(open(&target, OpenMode::ReadOnly).is_err(), "the repetitions are bounded");
}

#[test]
fn drive_that_stands_still_is_started_once() {
    let target = target(SPEC, 0, Adapter::Scsi);
    let is_start = |command: &&Command| **command == Command::Start;
    let starts = || target.log.lock().unwrap().iter().filter(is_start).count();
    target.is_stopped.store(true, Ordering::Release);
    let drive = open(&target, OpenMode::ReadWrite).unwrap();
    assert_eq!(starts(), 1);
    target.is_stopped.store(true, Ordering::Release);
    drive.append(ZONE, &[1; BLOCK]).unwrap();
    assert_eq!(starts(), 2);
    // It says so again after it was started.
    target.fail(Kind::Write, u32::MAX, When::Before, sense(2, 4, 2));
    let error = drive.append(ZONE, &[2; BLOCK]).unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(text.contains("does not start"), "{text}");
    assert_eq!(starts(), 3);
    // A drive that never becomes ready gets a bounded number of commands.
    target.recover();
    let before = target.count(Kind::Write);
    target.fail(Kind::Write, u32::MAX, When::Before, sense(2, 4, 1));
    drive.append(ZONE, &[2; BLOCK]).unwrap_err();
    assert_eq!(target.count(Kind::Write) - before, 61);
}

#[test]
fn drive_that_takes_no_writes_is_opened_for_reading() {
    let target = target(SPEC, 0, Adapter::Scsi);
    target.is_protected.store(true, Ordering::Release);
    let error = open(&target, OpenMode::ReadWrite).err().unwrap().to_string();
    assert!(error.contains("is write-protected"), "{error}");
    open(&target, OpenMode::ReadOnly).unwrap();
    let mut channel = Channel::new(Box::new(Arc::clone(&target)));
    assert_eq!(facts::of(&mut channel).unwrap().write_protected, Some(true));
    let rig = plain();
    rig.target.fail(Kind::Write, 1, When::Before, sense(7, 0x27, 0));
    let error = rig.append(1).unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(text.contains("is write-protected"), "{text}");
}

#[test]
fn drive_says_how_it_turns_and_queues() {
    for (adapter, rate) in [(Adapter::Scsi, 7200), (Adapter::AtaOnly, 5400)] {
        let mut channel = Channel::new(Box::new(target(SPEC, 3, adapter)));
        let found = facts::of(&mut channel).unwrap();
        assert_eq!((found.rotates, found.rotation_rate), (Some(true), Some(rate)));
        assert_eq!((found.write_cache, found.read_cache), (Some(true), Some(true)));
        assert_eq!((found.queue_depth, found.queue_priority), (Some(32), Some(true)));
        assert_eq!(found.write_protected, Some(false));
        assert!(found.left_out.is_empty() && found.realms.is_empty() && found.domains.is_empty());
    }
}

#[test]
fn raw_drive_sends_what_our_checks_refuse() {
    for (adapter, shift) in [(Adapter::Scsi, 0), (Adapter::Scsi, 3), (Adapter::AtaOnly, 3)] {
        let rig = rig(SPEC, shift, adapter);
        let (target, start, end) = (Arc::clone(&rig.target), rig.start(), SPEC.block_count);
        let raw = RawScsi::over(rig.drive);
        let commands = || target.count(Kind::Write) + target.count(Kind::Read);
        let sent = |run: &dyn Fn() -> Result<(), DeviceError>| {
            let before = commands();
            let result = run();
            // ATA says of most errors only that it aborted the command: a read is repeated.
            let most = if adapter == Adapter::AtaOnly { 4 } else { 1 };
            assert!((1..=most).contains(&(commands() - before)), "{result:?}");
            result.unwrap_err()
        };
        // Not at the write pointer.
        let error = sent(&|| raw.write(start + LbaCount::new(3), &[1; BLOCK]));
        assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
        // Over the end of the zone.
        raw.write(start, &vec![1; 10 * BLOCK]).unwrap();
        for at in 1..5 {
            raw.write(start + LbaCount::new(at * 10), &vec![1; 10 * BLOCK]).unwrap();
        }
        let error = sent(&|| raw.write(start + LbaCount::new(50), &vec![1; 11 * BLOCK]));
        if adapter == Adapter::Scsi {
            assert!(matches!(error, DeviceError::CrossesZone { .. }), "{error}");
        }
        // Beyond the write pointer, and beyond the end.
        let at = start + LbaCount::new(55);
        sent(&|| raw.read(at, &mut [0; BLOCK]));
        let error = sent(&|| raw.write(Lba::ZERO + end, &[1; BLOCK]));
        if adapter == Adapter::Scsi {
            assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
        }
        raw.flush().unwrap();
        raw.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
        let error = raw.append(ZONE, &[1; BLOCK]).unwrap_err().to_string();
        assert!(error.contains("appending"), "{error}");
    }
}

#[test]
fn raw_drive_never_wraps_address_of_ata() {
    let raw = RawScsi::over(rig(SPEC, 0, Adapter::AtaOnly).drive);
    // Its low 48 bits are the start of zone 2.
    let far = Lba::new((1 << 48) + 2 * SPEC.zone_size.get());
    let error = raw.write(far, &[1; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfRange { .. }), "{error}");
    assert_eq!(raw.zone(ZONE).unwrap().cond, ZoneCond::Empty);
}

#[test]
fn raw_drive_filters_reports() {
    let gaps = GeometrySpec { zone_capacity: LbaCount::new(50), ..SPEC };
    let rig = rig(gaps, 0, Adapter::Scsi);
    rig.append(1).unwrap();
    let raw = RawScsi::over(rig.drive);
    let open = Some(ZoneCond::ImplicitOpen);
    let matching = ReportCount::Matching;
    let (count, zones) = raw.filtered_report(Lba::ZERO, open, matching, 7).unwrap();
    assert_eq!((count, zones.len(), zones[0].id), (1, 1, ZONE));
    let (count, zones) = raw.filtered_report(Lba::ZERO, None, matching, 7).unwrap();
    assert_eq!((count, zones.len()), (6, 6), "without gap zones");
}

/// ZBC-2, ZONE IS INACTIVE: another program activated its realm in another domain.
#[test]
fn sense_of_inactive_zone_is_offline() {
    let rig = plain();
    rig.target.fail(Kind::Write, 1, When::Before, Trouble::Sense(Sense::new(7, 0x2c, 0x12)));
    assert!(matches!(rig.append(1), Err(DeviceError::ZoneOffline { zone: ZONE })));
}
