//! A Furrow whose metadata is on another drive, by the command: made, found by its UUID, refused
//! where it is another one's or missing, and read without it.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn zonal(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn must(output: &Output) {
    assert!(output.status.success(), "{}", errors(output));
}

#[track_caller]
fn refused(output: &Output, why: &str) {
    let errors = errors(output);
    assert!(!output.status.success() && errors.contains(why), "{errors}");
}

/// A folder with a drive for data and one for metadata, formatted.
fn drives() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [data, metadata] = ["data.zns", "metadata.zns"].map(|name| folder.path().join(name));
    must(&zonal(&["create", text(&data), "--zones", "40", "--zone-size", "1MiB"]));
    must(&zonal(&["create", text(&metadata), "--zones", "10", "--zone-size", "1MiB"]));
    must(&zonal(&["mkfs", text(&data), "--metadata", text(&metadata), "-L", "pair"]));
    (folder, data, metadata)
}

#[test]
fn metadata_drive_is_found_by_its_uuid() {
    let (folder, data, metadata) = drives();
    must(&zonal(&["check", text(&data)]));
    // Under another name, among other drives.
    let other = folder.path().join("a.zns");
    must(&zonal(&["create", text(&other), "--zones", "10", "--zone-size", "1MiB"]));
    fs::rename(&metadata, folder.path().join("b.zns")).unwrap();
    must(&zonal(&["check", text(&data)]));
    let info = zonal(&["info", text(&data), "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["division"]["metadata_drive_bytes"], 10 << 20, "{info}");
    fs::rename(folder.path().join("b.zns"), folder.path().join("b.txt")).unwrap();
    must(&zonal(&["check", text(&data)]));
    fs::remove_file(folder.path().join("b.txt")).unwrap();
    refused(&zonal(&["check", text(&data)]), "is not found: name it with -o metadata=DEVICE");
}

#[test]
fn metadata_drive_refuses_to_be_overwritten_or_too_small() {
    let (folder, data, metadata) = drives();
    let again = ["mkfs", text(&data), "--metadata", text(&metadata)];
    refused(&zonal(&again), "already holds furrow, label \"pair\"");
    must(&zonal(&["mkfs", text(&data), "--metadata", text(&metadata), "--force"]));
    let one = folder.path().join("one.zns");
    must(&zonal(&["create", text(&one), "--zones", "40", "--zone-size", "1MiB"]));
    // The drive for data is empty, the other one is not.
    refused(&zonal(&["mkfs", text(&one), "--metadata", text(&metadata)]), "already holds");
    let small = folder.path().join("small.zns");
    must(&zonal(&["create", text(&small), "--zones", "5", "--zone-size", "1MiB"]));
    let small = ["mkfs", text(&one), "--metadata", text(&small)];
    refused(&zonal(&small), "5 sequential zones; 6 are needed");
    let wide = folder.path().join("wide.zns");
    must(&zonal(&["create", text(&wide), "--zones", "10", "--zone-size", "2MiB"]));
    refused(&zonal(&["mkfs", text(&one), "--metadata", text(&wide)]), "zones of 2 MiB");
}

#[test]
fn mount_names_metadata_drive_or_goes_without() {
    if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
        return;
    }
    let (folder, data, metadata) = drives();
    let dir = folder.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let log = folder.path().join("log");
    let mount = |options: &str| {
        zonal(&["mount", "--log", text(&log), "-o", options, text(&data), text(&dir)])
    };
    let unmount = || must(&zonal(&["umount", text(&dir)]));
    refused(&zonal(&["mount", text(&metadata), text(&dir)]), "it holds the metadata of");
    must(&mount("rw"));
    fs::write(dir.join("file"), "what is written").unwrap();
    unmount();
    let away = tempfile::tempdir().unwrap();
    let away = away.path().join("metadata.zns");
    fs::rename(&metadata, &away).unwrap();
    refused(&mount("rw"), "is not found");
    refused(&mount("metadata=missing"), "mount for reading only");
    let other = folder.path().join("other.zns");
    must(&zonal(&["create", text(&other), "--zones", "10", "--zone-size", "1MiB"]));
    refused(&mount(&format!("metadata={}", other.display())), "is not the metadata drive");
    for options in ["ro,metadata=missing", &format!("metadata={}", away.display())] {
        must(&mount(options));
        let found = fs::read_to_string(dir.join("file"));
        unmount();
        assert_eq!(found.unwrap(), "what is written", "{options}");
    }
}
