//! Drives that nobody uses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use serde_json::Value;
use zonal::{FileDrive, ManualClock, OpenMode};
use zonal_fs::furrow::{self, MkfsOptions};

use crate::Place;

/// A zone that holds data of the file, by the structures on the drive.
fn zone_with_data(place: &Place) -> u64 {
    let maps = place.run("dump drive.zns maps").stdout;
    let first = serde_json::Deserializer::from_slice(&maps).into_iter::<Value>().next();
    first.unwrap().unwrap()["zone"].as_u64().unwrap()
}

/// A drive with a file.
fn with_file() -> Place {
    let place = Place::new();
    place.make();
    fs::write(place.path("private-name"), vec![7; 2 << 20]).unwrap();
    place.must("cp private-name drive.zns:/private-name");
    place
}

#[test]
fn drives_that_are_well_raise_no_alarm() {
    let place = with_file();
    place.is_well("drive.zns");
    place.must("rm drive.zns:/private-name");
    place.is_well("drive.zns");
    place.must("create empty.zns --profile small");
    place.is_well("empty.zns");
    fs::write(place.path("block"), "block").unwrap();
    place.must("append empty.zns --zone 3 --input block");
    place.is_well("empty.zns");
    place.must("create zones.zns --zones 8 --zone-size 1MiB --conventional 1");
    place.must("mkzonefs zones.zns");
    place.is_well("zones.zns");
    place.must("create odd.zns --zones 40 --zone-size 3MiB --zone-capacity 2MiB");
    place.must("mkfs po2:odd.zns");
    place.is_well("po2:odd.zns");
}

#[test]
fn offline_and_read_only_zones_are_named() {
    let place = with_file();
    place.must("zone offline drive.zns 30 --force");
    place.names("drive.zns", "offline zones: 1");
    place.must("zone read-only drive.zns 31 --force");
    place.names("drive.zns", "read-only zones: 1");
    place.must(&format!("zone offline drive.zns {} --force", zone_with_data(&place)));
    place.names("drive.zns", "parts of files");
}

#[test]
fn foreign_writer_of_zones_with_data_is_named() {
    let place = with_file();
    let zone = zone_with_data(&place);
    place.must(&format!("zone reset drive.zns {zone} --force"));
    place.names("drive.zns", "a foreign writer");
    // It writes there too.
    fs::write(place.path("other"), vec![9; 4096]).unwrap();
    let lba = zone * 256;
    place.must(&format!("write drive.zns --lba {lba} --input other --force"));
    place.names("drive.zns", "a foreign writer");
}

#[test]
fn foreign_file_system_over_furrow_is_named() {
    let place = with_file();
    place.must("zone reset drive.zns 0 --force");
    let mut other = vec![0; 4096];
    other[..4].copy_from_slice(b"XFSB");
    fs::write(place.path("other"), other).unwrap();
    place.must("write drive.zns --lba 0 --input other --force");
    place.names("drive.zns", "its first zone holds xfs");
}

#[test]
fn full_drive_with_nothing_reclaimable_is_named() {
    let place = Place::new();
    place.make();
    fs::write(place.path("large"), vec![7; 40 << 20]).unwrap();
    let output = place.run("cp large drive.zns:/large");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no space left"), "{said}");
    // What did not fit is gone. Smaller files fill the rest.
    fs::write(place.path("small"), vec![7; 256 << 10]).unwrap();
    for file in 0..200 {
        if !place.run(&format!("cp small drive.zns:/small{file}")).status.success() {
            break;
        }
    }
    fs::write(place.path("least"), vec![7; 4096]).unwrap();
    for file in 0..100 {
        if !place.run(&format!("cp least drive.zns:/least{file}")).status.success() {
            break;
        }
    }
    place.names("drive.zns", "nothing is reclaimable");
}

#[test]
fn wrong_rights_are_named() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: needs root, to become another user");
        return;
    }
    let place = Place::new();
    place.make();
    fs::set_permissions(place.path("drive.zns"), fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = place.command("doctor drive.zns --json");
    let output = command.uid(65_534).gid(65_534).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["findings"][0]["consequence"].as_str().unwrap();
    assert!(found.contains("wrong rights"), "{report:#}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn drive_that_does_not_answer_is_named() {
    let place = with_file();
    // Each call takes a minute.
    place.names("delay(60000000):drive.zns", "it hangs");
}

#[test]
fn half_written_mkfs_is_named() {
    // It writes parts of the table, then a manifest, and the superblocks last.
    for writes in [3, 5] {
        let place = Place::new();
        place.must("create drive.zns --zones 40 --zone-size 1MiB");
        let output = place.run(&format!("mkfs fault(write,from={writes}):drive.zns"));
        assert!(!output.status.success(), "{output:?}");
        place.names("drive.zns", "a half-written file system");
    }
}

#[test]
fn clock_that_was_set_back_is_named() {
    let place = Place::new();
    place.must("create drive.zns --zones 40 --zone-size 1MiB");
    let drive = FileDrive::open(place.path("drive.zns"), OpenMode::ReadWrite).unwrap();
    // In the year 2100.
    let clock = ManualClock::new(4_102_444_800_000_000_000);
    let options = MkfsOptions::default();
    furrow::mkfs(std::sync::Arc::new(drive), &clock, &options, &mut |_| ()).unwrap();
    place.names("drive.zns", "the clock was set back");
}

#[test]
fn broken_report_of_fault_layer_is_named() {
    let place = with_file();
    let (report, _) = place.look("fault(read,from=1):drive.zns");
    assert_eq!(report["healthy"], false, "{report:#}");
}

#[test]
fn bundle_has_no_names_and_replaces_nothing() {
    let place = with_file();
    place.must("doctor drive.zns --bundle bundle.json");
    let text = fs::read_to_string(place.path("bundle.json")).unwrap();
    assert!(!text.contains("private-name"), "{text}");
    let bundle: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bundle["report"]["looked_at"], "drive.zns");
    assert!(bundle["machine"]["kernel"].as_str().is_some());
    let output = place.run("doctor drive.zns --bundle bundle.json");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("writing bundle.json"), "{said}");
    assert_eq!(fs::read_to_string(place.path("bundle.json")).unwrap(), text);
}
