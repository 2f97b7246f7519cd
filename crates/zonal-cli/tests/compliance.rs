//! `zonal compliance`: devices that it refuses, its exit codes, and the page in HTML.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn zonal(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(line.split(' ')).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that has to end with `code`; returns its output on both streams.
fn ends(folder: &Path, code: i32, line: &str) -> String {
    let output = zonal(folder, line);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {printed}");
    printed
}

const CREATE: &str = "create drive.zns --profile small --zones 16";

#[test]
fn compliance_without_force_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    ends(folder, 0, CREATE);
    fs::write(folder.join("words"), "one two three").unwrap();
    ends(folder, 0, "append drive.zns --zone 1 --input words");
    let before = ends(folder, 0, "zones drive.zns");
    let refused = ends(folder, 1, "compliance drive.zns --zones 0-3");
    let why = "already holds data: zone 1 is implicit-open";
    assert!(refused.contains(why) && refused.contains("--force"), "{refused}");
    ends(folder, 2, "compliance drive.zns --force");
    ends(folder, 0, "compliance drive.zns");
    assert_eq!(ends(folder, 0, "zones drive.zns"), before);
}

#[test]
fn compliance_of_empty_zones_needs_no_force() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    ends(folder, 0, "create drive.zns --zones 40 --zone-size 1MiB");
    let said = ends(folder, 0, "compliance drive.zns --zones 4-9");
    assert!(said.contains("not tried because"), "{said}");
    ends(folder, 0, "mkfs drive.zns");
    let refused = ends(folder, 1, "compliance drive.zns --zones 4-9");
    assert!(refused.contains("holds furrow, which this could destroy"), "{refused}");
}

#[test]
fn compliance_of_missing_zones_names_last_zone() {
    let place = tempfile::tempdir().unwrap();
    ends(place.path(), 0, CREATE);
    let said = ends(place.path(), 1, "compliance drive.zns --zones 4-16 --force");
    assert!(said.contains("has no zone 16: its last one is 15"), "{said}");
    let said = ends(place.path(), 2, "compliance drive.zns --zones 9-4 --force");
    assert!(said.contains("zone 9 is behind zone 4"), "{said}");
}

#[test]
fn compliance_range_leaves_data_of_other_zones() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    ends(folder, 0, CREATE);
    fs::write(folder.join("words"), "one two three").unwrap();
    ends(folder, 0, "append drive.zns --zone 1 --input words");
    ends(folder, 0, "compliance drive.zns --zones 4-15 --force");
    let read = ends(folder, 0, "read drive.zns --lba 256 --blocks 1");
    assert!(read.starts_with("one two three"), "{read}");
}

#[test]
fn compliance_page_has_rules_and_no_markup_of_names() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let device = "mem:zone=64K,zones=8,open=2,active=3";
    let said = ends(
        folder,
        4,
        &format!("compliance {device} --zones 0-7 --force --rules zbc --html report.html"),
    );
    assert!(said.contains("BROKEN "), "{said}");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for part in ["<!DOCTYPE html>", device, "range.outside", "class=\"fail\"", "</html>"] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    let rules = page.matches("<tr><td><code>").count();
    assert!(rules > 500, "{rules} rules");
}

#[test]
fn compliance_output_onto_its_device_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    ends(folder, 0, CREATE);
    let before = fs::metadata(folder.join("drive.zns")).unwrap().len();
    for option in ["--html", "--before-cut"] {
        let line = format!("compliance drive.zns --zones 0-15 --force {option} drive.zns");
        ends(folder, 1, &line);
    }
    assert_eq!(fs::metadata(folder.join("drive.zns")).unwrap().len(), before);
    ends(folder, 0, "info drive.zns");
}
