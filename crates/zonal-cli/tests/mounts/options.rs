//! The general options of mount(8), as the kernel then shows them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{Place, ZONAL, errors, run, text};

/// An option, words that the mount table then has, and words that it lacks.
const TABLE: [(&str, &[&str], &[&str]); 15] = [
    ("defaults", &["rw", "relatime"], &["nosuid", "nodev", "noexec", "sync"]),
    ("ro", &["ro"], &[]),
    ("nodev,nosuid,noexec", &["nodev", "nosuid", "noexec"], &[]),
    ("nodev,dev,nosuid,suid,noexec,exec", &["rw"], &["nodev", "nosuid", "noexec"]),
    ("noatime", &["noatime"], &["relatime"]),
    ("strictatime", &["rw"], &["relatime", "noatime"]),
    ("norelatime", &["relatime"], &[]),
    ("strictatime,nostrictatime", &["relatime"], &[]),
    ("nodiratime", &["nodiratime", "relatime"], &[]),
    ("lazytime", &["lazytime"], &[]),
    ("nosymfollow", &["nosymfollow"], &[]),
    ("sync", &["sync"], &[]),
    ("dirsync", &["dirsync"], &[]),
    ("mand,nomand,iversion,noiversion,silent,loud", &["rw"], &["mand"]),
    ("user,nofail,_netdev,noauto,x-systemd.automount,comment=a", &["rw"], &["nofail"]),
];

/// The options of the mount and those of its file system, in the kernel's table.
fn shown(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(text(dir)));
    let (of_mount, of_file_system) = line.unwrap().split_once(" - ").unwrap();
    let options = [of_mount.split(' ').nth(5), of_file_system.split(' ').nth(2)];
    options.into_iter().flatten().flat_map(|all| all.split(',')).map(str::to_owned).collect()
}

fn assert_shown(dir: &Path, options: &str, has: &[&str], lacks: &[&str]) {
    let shown = shown(dir);
    let is_shown = |option: &str| shown.iter().any(|other| other == option);
    for option in has {
        assert!(is_shown(option), "{options}: {option} is not in {shown:?}");
    }
    for option in lacks {
        assert!(!is_shown(option), "{options}: {option} is in {shown:?}");
    }
}

#[test]
fn mount_general_options_are_in_mount_table() {
    let Some(place) = Place::mountable() else { return };
    let dir = place.dir();
    // The name under which mount(8) starts the command.
    let helper = place.path("mount.fuse.furrow");
    symlink(ZONAL, &helper).unwrap();
    for (options, has, lacks) in TABLE {
        place.mount(options);
        assert_shown(&dir, options, has, lacks);
        place.umount();
        let log = place.path("log");
        let arguments = [text(&place.drive()).to_owned(), text(&dir).to_owned()];
        let by_mount = ["-n", "-o", options, "--log", text(&log)];
        let arguments = [&[arguments[0].as_str(), &arguments[1]], &by_mount[..]].concat();
        let output = run(&helper, &arguments);
        assert!(output.status.success(), "{options}: {}", errors(&output));
        assert_shown(&dir, options, has, lacks);
        place.umount();
    }
    for (options, named) in [("rw,sparkle", "sparkle"), ("noatime,lazy=1", "lazy=1")] {
        let refused = place.try_mount(options);
        let said = errors(&refused);
        assert!(!refused.status.success() && said.contains(named), "{said}");
        assert!(said.contains("not known"), "{said}");
    }
}

#[test]
fn remount_keeps_general_options_changes_nosymfollow() {
    let Some(place) = Place::mountable() else { return };
    let dir = place.dir();
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        run(Path::new(ZONAL), &["mount", "-o", &options, text(&place.drive()), text(&dir)])
    };
    place.mount("strictatime,nodiratime,lazytime,nosymfollow");
    let kept = ["nodiratime", "lazytime"];
    fs::write(dir.join("file"), "x").unwrap();
    symlink("file", dir.join("link")).unwrap();
    assert_eq!(fs::read(dir.join("link")).unwrap_err().raw_os_error(), Some(40), "ELOOP");
    for (options, has, lacks) in [
        ("ro", &["ro", "nosymfollow"][..], &["relatime"][..]),
        ("rw,symfollow", &["rw"], &["relatime", "nosymfollow", "ro"]),
        ("lazytime,nodiratime,nosuid", &["nosuid"], &["relatime", "nosymfollow"]),
    ] {
        let output = remount(options);
        assert!(output.status.success(), "{options}: {}", errors(&output));
        assert_shown(&dir, options, &[has, &kept[..]].concat(), lacks);
    }
    assert_eq!(fs::read(dir.join("link")).unwrap(), b"x");
    for refused in ["nolazytime", "diratime"] {
        let output = remount(refused);
        assert!(!output.status.success() && errors(&output).contains(refused), "{refused}");
    }
}

#[test]
fn nodiratime_keeps_access_time_of_listed_directory() {
    use std::os::unix::fs::MetadataExt;

    let Some(place) = Place::mountable() else { return };
    for (options, moves) in [("strictatime", true), ("strictatime,nodiratime", false)] {
        place.mount(options);
        let dir = place.dir();
        let accessed = || {
            let found = fs::metadata(&dir).unwrap();
            (found.atime(), found.atime_nsec())
        };
        let list = || fs::read_dir(&dir).unwrap().count();
        fs::write(dir.join("file"), options).unwrap();
        let before = accessed();
        // The clock of access times moves in steps.
        for _ in 0..50 {
            list();
            if accessed() != before {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(accessed() != before, moves, "{options}");
        place.umount();
    }
}
