//! Drives of 55,880 and of 111,760 zones of 256 MiB: SMR disks of 15 and 30 TB. Every command takes
//! seconds of the processor at most and little memory.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that prints its figures")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bounds of processor time and memory for an unoptimised build; the printed figures are the
/// result.
const SECONDS_MAX: f64 = 20.0;
const MEBIBYTES_MAX: f64 = 96.0;

const SHAPE: [&str; 6] = ["--profile", "smr", "--zones", "55880", "--conventional", "524"];

/// Runs `zonal`, prints its processor time and its peak memory, and returns its output.
fn zonal(name: &str, arguments: &[&str]) -> String {
    measured(name, env!("CARGO_BIN_EXE_zonal"), arguments)
}

fn measured(name: &str, program: &str, arguments: &[&str]) -> String {
    // GNU time measures its child; without it nothing is measured.
    let mut command = if Path::new("/usr/bin/time").exists() {
        let mut command = Command::new("/usr/bin/time");
        command.args(["-f", "took %U %S %M", program]);
        command
    } else {
        Command::new(program)
    };
    command.env("LC_ALL", "C");
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    if let Some(took) = errors.lines().find_map(|line| line.strip_prefix("took ")) {
        let took: Vec<f64> = took.split(' ').map(|number| number.parse().unwrap()).collect();
        let (seconds, mebibytes) = (took[0] + took[1], took[2] / 1024.0);
        println!("{name:8} {seconds:6.2} s  peak {mebibytes:.0} MiB");
        assert!(seconds < SECONDS_MAX, "{name} took {seconds} s of the processor");
        assert!(mebibytes < MEBIBYTES_MAX, "{name} took {mebibytes} MiB");
    }
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn scale_30_tb_drive_is_quick_and_small() {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("smr.zns").display().to_string();
    let shape = ["--profile", "smr", "--zones", "111760", "--conventional", "1048"];
    zonal("create", &[&["create", &drive], &shape[..]].concat());
    let zones = zonal("report", &["zones", &drive, "--json"]);
    assert_eq!(zones.lines().count(), 111_760);
    assert_eq!(zones.matches("\"not-wp\"").count(), 1048);
    let picture = zonal("map", &["zones", &drive, "--map", "--width", "100"]);
    assert!(picture.lines().count() <= 18, "{picture}");
    zonal("mkfs", &["mkfs", &drive]);
    zonal("info", &["info", &drive]);
    zonal("check", &["check", &drive]);
    zonal("map", &["map", &drive]);
    let stored = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&drive).unwrap()) * 512;
    println!("the file takes {} MiB", stored >> 20);
    assert!(stored < 64 << 20, "{stored} bytes are stored for an empty file system");
    mount(&folder.path().join("mnt"), &drive);
}

/// A drive of half the size with a file for each zone: 523 conventional files, since the first zone
/// holds the super block, or one of them all, and 55,356 sequential ones.
#[test]
fn scale_zonefs_of_55_356_files_is_quick_and_small() {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("smr.zns").display().to_string();
    zonal("create", &[&["create", &drive], &SHAPE[..]].concat());
    for (features, conventional) in [("perm=640", 523), ("aggr_cnv", 1)] {
        println!("-o {features}");
        let made = zonal("mkzonefs", &["mkzonefs", "--force", "-o", features, &drive]);
        for line in ["29297213440 512-byte sectors (13970 GiB)", "55879 usable zones"] {
            assert!(made.contains(line), "{made}");
        }
        if !can_mount() {
            continue;
        }
        let point = folder.path().join(features);
        fs::create_dir(&point).unwrap();
        let (dir, log) = (point.display().to_string(), folder.path().join("log"));
        let mount = ["mount", &drive, &dir, "--log", &log.display().to_string(), "--json"];
        print_peak(&zonal("mount", &mount));
        list(&dir, "cnv", conventional, 523 << 18);
        list(&dir, "seq", 55_356, 55_356 << 18);
        assert_eq!(fs::metadata(point.join("cnv/0")).unwrap().len(), (524 - conventional) << 28);
        zonal("umount", &["umount", &dir]);
    }
    let stored = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&drive).unwrap()) * 512;
    println!("the file takes {} MiB", stored >> 20);
    assert!(stored < 64 << 20, "{stored} bytes are stored for empty zones");
}

/// `ls -lv`: as many lines as there are files, in the order of the zones, and the capacity in KiB
/// as the total.
fn list(dir: &str, group: &str, files: u64, total_kib: u64) {
    for turn in ["first", "again"] {
        let group = format!("{dir}/{group}");
        let listing = measured(&format!("ls {turn}"), "ls", &["-lv", &group]);
        assert_eq!(listing.lines().next(), Some(&*format!("total {total_kib}")));
        let names = listing.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap());
        assert!(names.eq((0..files).map(|number| number.to_string())), "{}", &listing[..300]);
    }
}

fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        println!("SKIP: /dev/fuse cannot be opened, so nothing is mounted");
    }
    can
}

fn mount(point: &Path, drive: &str) {
    if !can_mount() {
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
    let process = mounted.lines().find_map(|line| line.trim().strip_prefix("\"pid\": ")).unwrap();
    let path = format!("/proc/{}/status", process.trim_end_matches(','));
    let status = fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: f64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("daemon             peak {:.0} MiB", kib / 1024.0);
    assert!(kib / 1024.0 < MEBIBYTES_MAX, "the daemon took {kib} KiB");
}
