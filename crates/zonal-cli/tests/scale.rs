//! A drive of 55,880 zones of 256 MiB, 524 of them conventional: a 15 TB SMR disk. Every command
//! takes seconds at most and little memory.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that prints its figures")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bounds that hold on a busy machine with an unoptimised build; the printed figures are the result.
const SECONDS_MAX: f64 = 20.0;
const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// Runs `zonal`, prints how long it took and its peak memory, and returns what it printed.
#[expect(clippy::disallowed_methods, reason = "this test is about time")]
fn zonal(name: &str, arguments: &[&str]) -> String {
    let start = Instant::now();
    // GNU time knows the peak of its child; without it only the time is measured.
    let program = env!("CARGO_BIN_EXE_zonal");
    let mut command = if Path::new("/usr/bin/time").exists() {
        let mut command = Command::new("/usr/bin/time");
        command.args(["-f", "peak %M", program]);
        command
    } else {
        Command::new(program)
    };
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "zonal {arguments:?}: {errors}");
    let peak: Option<u64> =
        errors.lines().find_map(|line| line.strip_prefix("peak ")?.trim().parse().ok());
    println!("{name:8} {seconds:6.3} s  peak {} MiB", peak.map_or(0, |kib| kib / 1024));
    assert!(seconds < SECONDS_MAX, "{name} took {seconds} s");
    assert!(peak.unwrap_or(0) < MEMORY_KIB_MAX, "{name} took {peak:?} KiB");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_drive_of_15_tb_is_quick_and_small() {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("smr.zns").display().to_string();
    let shape = ["--profile", "smr", "--zones", "55880", "--conventional", "524"];
    zonal("create", &[&["create", &drive], &shape[..]].concat());
    let zones = zonal("report", &["zones", &drive, "--json"]);
    assert_eq!(zones.lines().count(), 55_880);
    assert_eq!(zones.matches("\"not-wp\"").count(), 524);
    let picture = zonal("map", &["zones", &drive, "--map", "--width", "100"]);
    assert!(picture.lines().count() <= 18, "{picture}");
    zonal("mkfs", &["mkfs", &drive]);
    zonal("check", &["check", &drive]);
    let stored = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&drive).unwrap()) * 512;
    println!("the file takes {} MiB", stored >> 20);
    assert!(stored < 64 << 20, "{stored} bytes are stored for an empty file system");
    mount(&folder.path().join("mnt"), &drive);
}

fn mount(point: &Path, drive: &str) {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        println!("SKIP: /dev/fuse cannot be opened, so nothing is mounted");
        return;
    }
    fs::create_dir(point).unwrap();
    let dir = point.display().to_string();
    let log = point.with_extension("log").display().to_string();
    let mounted = zonal("mount", &["mount", drive, &dir, "--log", &log, "--json"]);
    print_peak(&mounted);
    fs::write(point.join("file"), "written").unwrap();
    zonal("umount", &["umount", &dir]);
    zonal("mount", &["mount", drive, &dir, "--log", &log, "--read-only"]);
    assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "written");
    zonal("umount", &["umount", &dir]);
}

/// Prints the peak memory of the daemon that `zonal mount --json` names.
fn print_peak(mounted: &str) {
    let process =
        mounted.lines().find_map(|line| line.trim().strip_prefix("\"process\": ")).unwrap();
    let path = format!("/proc/{}/status", process.trim_end_matches(','));
    let status = fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("daemon             peak {} MiB", kib / 1024);
    assert!(kib < MEMORY_KIB_MAX, "the daemon took {kib} KiB");
}
