//! A Furrow by the command: requests that are refused while it is in use, and `-o remount` under
//! the name by which mount(8) starts the command.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use zonal::wait::wait_until;
use zonal::{FileDrive, OpenMode};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn zonal(arguments: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_zonal")), arguments)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn must(output: &Output) {
    assert!(output.status.success(), "{}", errors(output));
}

/// A drive with a Furrow, in a directory that has a mount point too.
fn drive() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("drive.zns");
    must(&zonal(&["create", text(&drive), "--zones", "40", "--zone-size", "1MiB"]));
    must(&zonal(&["mkfs", text(&drive)]));
    fs::create_dir(folder.path().join("mnt")).unwrap();
    (folder, drive)
}

/// A drive, its mount point and a place for the log; `None` if nothing can be mounted.
#[expect(clippy::print_stdout, reason = "why a test does nothing is a part of its result")]
fn mountable() -> Option<(TempDir, PathBuf, PathBuf, PathBuf)> {
    if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
        println!("SKIP: mounting and remounting needs root and /dev/fuse");
        return None;
    }
    let (folder, drive) = drive();
    let (dir, log) = (folder.path().join("mnt"), folder.path().join("log"));
    Some((folder, drive, dir, log))
}

/// Unmounts at the end of a test, also of one that fails.
struct Unmounts<'a>(&'a Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        drop(zonal(&["umount", "--lazy", text(self.0)]));
    }
}

/// The process that serves a mount.
fn daemon(dir: &Path) -> Pid {
    let daemon = zonal_fuse::unmount::daemon_of(dir).unwrap();
    Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap()
}

/// The helper that mount(8) starts for this kind of file system.
fn helper(folder: &TempDir) -> PathBuf {
    let helper = folder.path().join("mount.fuse.furrow");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zonal"), &helper).unwrap();
    helper
}

#[test]
fn drive_in_use_is_neither_checked_nor_dumped() {
    let (_folder, drive) = drive();
    let (check, dump) = (["check", text(&drive)], ["dump", text(&drive), "superblock"]);
    let user = FileDrive::open(&drive, OpenMode::ReadWrite).unwrap();
    for (arguments, code) in [(&check[..], 8), (&dump, 1)] {
        let refused = zonal(arguments);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}");
        assert!(errors(&refused).contains("in use by another process"), "{}", errors(&refused));
    }
    must(&zonal(&["zones", text(&drive)]));
    drop(user);
    must(&zonal(&check));
    must(&zonal(&dump));
}

#[test]
fn error_on_missing_file_system_says_how_to_create_it() {
    let (folder, drive) = drive();
    let blank = folder.path().join("blank.zns");
    must(&zonal(&["create", text(&blank), "--zones", "40", "--zone-size", "3MiB"]));
    let (dir, log) = (folder.path().join("mnt"), folder.path().join("log"));
    let layered = format!("po2:{}", text(&blank));
    let mount = |device| ["mount", device, text(&dir), "--log", text(&log), "--type", "zonefs"];
    must(&zonal(&["mkfs", &layered]));
    for (arguments, what, advice) in [
        (&["check", text(&blank)][..], "made on another device", "the layers it was made through"),
        (
            &mount(text(&drive)),
            "no zonefs on the device",
            "`zonal info DEVICE` tells what it holds",
        ),
        (&["mkfs", text(&drive)], "the device already holds furrow", "--force to overwrite it"),
    ] {
        let errors = errors(&zonal(arguments));
        assert!(errors.contains(what) && errors.contains(advice), "{arguments:?}: {errors}");
    }
    must(&zonal(&["create", text(&blank), "--zones", "40", "--force"]));
    let errors = errors(&zonal(&["check", text(&blank)]));
    assert!(
        errors.contains("no Furrow on the device") && errors.contains("`zonal mkfs"),
        "{errors}"
    );
}

#[test]
fn advice_never_suggests_mkfs_over_possible_file_system() {
    let (folder, drive) = drive();
    let (dir, log) = (folder.path().join("mnt"), folder.path().join("log"));
    let place = format!("{}:/", text(&drive));
    // All superblocks are lost, and everything else is intact.
    for zone in ["0", "1", "20", "21"] {
        must(&zonal(&["zone", "reset", text(&drive), zone, "--force"]));
    }
    for arguments in [
        &["check", text(&drive)][..],
        &["mount", text(&drive), text(&dir), "--log", text(&log)],
        &["dump", text(&drive), "superblock"],
        &["ls", &place],
        &["df", text(&drive)],
    ] {
        let errors = errors(&zonal(arguments));
        assert!(errors.contains("it holds data: zone "), "{arguments:?}: {errors}");
        assert!(!errors.contains("mkfs") && !errors.contains("mkzonefs"), "{errors}");
    }
}

/// Remounts with the arguments that mount(8) passes on.
fn remount(helper: &Path, (drive, dir): (&Path, &Path), options: &str) -> Output {
    let options =
        format!("{options},relatime,remount,user_id=0,group_id=0,default_permissions,allow_other");
    run(helper, &[text(drive), text(dir), "-o", &options])
}

#[test]
fn memory_option_is_size_of_furrow_only() {
    let (folder, drive) = drive();
    let (dir, log) = (folder.path().join("mnt"), folder.path().join("log"));
    let mount = |kind: &str, option: &str| {
        let arguments = ["mount", text(&drive), text(&dir), "--log", text(&log), "-o", option];
        errors(&zonal(&[&arguments[..], &["--type", kind]].concat()))
    };
    for option in ["memory", "memory=much", "memory=63MiB"] {
        let errors = mount("furrow", option);
        assert!(errors.contains(option) && errors.contains("64MiB or more"), "{errors}");
    }
    for (option, advice) in [
        ("max_open_zones=0", "a number, 1 or more"),
        ("commit=0", "seconds, from 1 to 3600"),
        ("nolifetime=1", "no value"),
    ] {
        let errors = mount("furrow", option);
        assert!(errors.contains(option) && errors.contains(advice), "{errors}");
    }
    let errors = mount("zonefs", "memory=64MiB");
    assert!(errors.contains("an option of furrow, not of zonefs"), "{errors}");
}

#[test]
fn reclaim_command_empties_zones() {
    let Some((folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    must(&zonal(&["mount", text(&drive), text(&dir), "--log", text(&log)]));
    let file = |number: u32| dir.join(format!("file{number}"));
    let content = |number: u32| vec![u8::try_from(number).unwrap(); 100_000];
    // The file is on the drive at once: a file that is deleted before costs no space there.
    let write = |number: u32| {
        let mut to = fs::File::create(file(number)).unwrap();
        to.write_all(&content(number)).unwrap();
        to.sync_all().unwrap();
    };
    let remove = |number: u32| {
        fs::remove_file(file(number)).unwrap();
        fs::File::open(&dir).unwrap().sync_all().unwrap();
    };
    (0..120).for_each(write);
    (0..120).filter(|number| number % 3 > 0).for_each(remove);
    let reclaim = |arguments: &[&str]| {
        let output = zonal(&[&["reclaim", text(&dir), "--json"], arguments].concat());
        must(&output);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let number = |answer: &serde_json::Value, name: &str| answer[name].as_u64().unwrap();
    let percent = |answer: &serde_json::Value| {
        let (free, other) = (number(answer, "free_bytes"), number(answer, "reclaimable_bytes"));
        free * 100 / (free + other)
    };
    let some = reclaim(&["--until", "85"]);
    assert_eq!(some["end"], "reached", "{some}");
    assert!(number(&some, "moved_bytes") > 0 && percent(&some) >= 85, "{some}");
    let most = reclaim(&[]);
    assert!(number(&most, "free_bytes") > number(&some, "free_bytes"), "{some}, then {most}");
    // Reclaim leaves zones alone that are open for writes.
    (120..123).for_each(write);
    remove(121);
    let none = reclaim(&[]);
    assert_eq!((number(&none, "moved_bytes"), &none["end"]), (0, &"nothing worth it".into()));
    assert!(number(&none, "reclaimable_bytes") > 0, "{none}");
    let stats = || String::from_utf8(zonal(&["stats", text(&dir)]).stdout).unwrap();
    assert!(!stats().contains("paused"));
    must(&zonal(&["reclaim", text(&dir), "--pause"]));
    assert!(stats().contains("reclaim paused"), "{}", stats());
    must(&zonal(&["reclaim", text(&dir), "--resume"]));
    assert!(!stats().contains("paused"));
    let refused = errors(&zonal(&["reclaim", text(folder.path()), "--pause"]));
    assert!(refused.contains("is not a mount served by zonal"), "{refused}");
    for number in (0..120).step_by(3) {
        assert!(fs::read(file(number)).unwrap() == content(number), "{number}");
    }
    must(&zonal(&["umount", text(&dir)]));
    must(&zonal(&["check", text(&drive), "--data"]));
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the file is to be closed while another process waits"
)]
fn mount_waits_for_end_of_previous_mount() {
    let Some((_folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    let mount = ["mount", text(&drive), text(&dir), "--log", text(&log)];
    must(&zonal(&mount));
    fs::write(dir.join("file"), "kept").unwrap();
    // Like umount(8) without our helper: the mount goes at once, and the daemon still commits.
    let file = fs::File::open(dir.join("file")).unwrap();
    must(&zonal(&["umount", "--lazy", text(&dir)]));
    let closes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(file);
    });
    // On a slow machine the mount gives up, and the test repeats it.
    wait_until(|| zonal(&mount).status.success());
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "kept");
    closes.join().unwrap();
    let refused = errors(&zonal(&mount));
    assert!(refused.contains("in use by another process"), "{refused}");
    must(&zonal(&["umount", text(&dir)]));
}

#[test]
fn mount_is_named_by_device_but_not_reverse() {
    let Some((folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    let said = errors(&zonal(&["info", text(&dir)]));
    assert!(said.contains("is a directory, not a device"), "{said}");
    let mount = ["mount", text(&drive), text(&dir), "--log", text(&log)];
    must(&zonal(&mount));
    for arguments in [&["stats"][..], &["reclaim", "--pause"], &["reclaim", "--resume"]] {
        must(&zonal(&[arguments, &[text(&drive)]].concat()));
    }
    for command in ["info", "zones", "check", "ls", "df"] {
        let said = errors(&zonal(&[command, text(&dir)]));
        let wanted = format!("is where {} is mounted", text(&drive.canonicalize().unwrap()));
        assert!(said.contains(&wanted), "{command}: {said}");
    }
    must(&zonal(&["umount", text(&drive)]));
    let said = errors(&zonal(&["umount", text(&drive)]));
    assert!(said.contains("is not mounted"), "{said}");
    // A link leads to the mount, as for umount(8).
    must(&zonal(&mount));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    must(&zonal(&["umount", text(&link)]));
    must(&zonal(&["check", text(&drive)]));
}

#[test]
fn umount_removes_mount_of_hanging_process() {
    let Some((_folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    must(&zonal(&["mount", text(&drive), text(&dir), "--log", text(&log)]));
    let daemon = daemon(&dir);
    kill_process(daemon, Signal::STOP).unwrap();
    must(&zonal(&["umount", "--lazy", text(&dir)]));
    kill_process(daemon, Signal::CONT).unwrap();
    wait_until(|| zonal(&["check", text(&drive)]).status.success());
}

#[test]
fn mount_of_dead_process_is_reported_with_remedy() {
    let Some((_folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    let mount = ["mount", text(&drive), text(&dir), "--log", text(&log)];
    must(&zonal(&mount));
    kill_process(daemon(&dir), Signal::KILL).unwrap();
    wait_until(|| fs::metadata(&dir).is_err());
    for arguments in [&mount[..], &["stats", text(&dir)], &["reclaim", text(&dir)]] {
        let said = errors(&zonal(arguments));
        assert!(said.contains("has died"), "{arguments:?}: {said}");
        assert!(said.contains(&format!("`zonal umount {}`", text(&dir))), "{arguments:?}: {said}");
    }
    must(&zonal(&["umount", text(&dir)]));
    must(&zonal(&mount));
    must(&zonal(&["umount", text(&dir)]));
}

#[test]
fn remount_changes_kernel_options() {
    let Some((folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    let helper = helper(&folder);
    let write = |name: &str| fs::write(dir.join(name), "content");
    let mount = |options: &str| {
        must(&zonal(&["mount", text(&drive), text(&dir), "--log", text(&log), "-o", options]));
    };
    mount("rw,memory=96MiB,max_open_zones=3,commit=3");
    let what = (drive.as_path(), dir.as_path());
    write("before").unwrap();
    must(&remount(&helper, what, "ro"));
    assert_eq!(write("while").unwrap_err().raw_os_error(), Some(30), "EROFS");
    // mount(8) repeats the options of fstab.
    must(&remount(&helper, what, "rw,nosuid,memory=96MiB,max_open_zones=3,commit=3,nolifetime"));
    write("after").unwrap();
    let stats = || String::from_utf8(zonal(&["stats", text(&dir), "--json"]).stdout).unwrap();
    assert!(stats().contains("\"lifetime\": \"ignored\""), "{}", stats());
    must(&remount(&helper, what, "ro"));
    // The daemon takes the option although the mount was read-only until now.
    must(&remount(&helper, what, "rw,lifetime"));
    assert!(stats().contains("\"lifetime\": \"followed\""), "{}", stats());
    for other in [
        "rw,noatime",
        "rw,writeback",
        "rw,sparkle",
        "rw,zone_pick=lowest",
        "rw,memory=1GiB",
        "rw,memory=1",
        "rw,max_open_zones=4",
        "rw,commit=1",
    ] {
        let refused = remount(&helper, what, other);
        assert!(!refused.status.success(), "{other}");
        assert!(errors(&refused).contains(&other[3..]), "{}", errors(&refused));
    }
    let open = fs::OpenOptions::new().append(true).open(dir.join("after")).unwrap();
    let refused = remount(&helper, what, "ro,nolifetime");
    assert!(errors(&refused).contains("busy"), "{}", errors(&refused));
    assert!(stats().contains("\"lifetime\": \"followed\""), "what is refused changes nothing");
    drop(open);
    must(&zonal(&["umount", text(&dir)]));
    mount("ro");
    must(&remount(&helper, what, "ro,nolifetime"));
    must(&zonal(&["umount", text(&dir)]));
    mount("threads=3");
    assert!(stats().contains("\"threads\": 3"), "{}", stats());
    must(&remount(&helper, what, "rw,threads=3"));
    let refused = remount(&helper, what, "rw,threads=4");
    assert!(errors(&refused).contains("threads=4"), "{}", errors(&refused));
    must(&zonal(&["umount", text(&dir)]));
}

#[test]
fn remount_makes_writable_when_nothing_is_open() {
    let Some((_folder, drive, dir, log)) = mountable() else { return };
    let _end = Unmounts(&dir);
    let mount = |options: &str| {
        must(&zonal(&["mount", text(&drive), text(&dir), "--log", text(&log), "-o", options]));
    };
    mount("rw");
    fs::write(dir.join("before"), "content").unwrap();
    must(&zonal(&["umount", text(&dir)]));
    mount("ro,noatime,noexec,memory=96MiB,threads=5,commit=7,max_open_zones=2,nolifetime");
    let remount = || zonal(&["mount", "-o", "remount,rw,noatime", text(&drive), text(&dir)]);
    let write = |name: &str| fs::write(dir.join(name), "content");
    let stats = || String::from_utf8(zonal(&["stats", text(&dir), "--json"]).stdout).unwrap();
    // All options that a remount does not change.
    let in_force = || {
        let json = fs::read(dir.join(".zonal/options")).unwrap();
        let mut options: serde_json::Value = serde_json::from_slice(&json).unwrap();
        for member in ["/device", "/mount/access", "/mount/restrict"] {
            options.pointer_mut(member).unwrap().take();
        }
        options
    };
    let before = in_force();
    let open = fs::File::open(dir.join("before")).unwrap();
    let refused = errors(&remount());
    assert!(refused.contains("mounted read-only") && refused.contains("busy"), "{refused}");
    let (me, file) = (format!("process {} (", std::process::id()), dir.join("before"));
    assert!(refused.contains(&me) && refused.contains(text(&file)), "{refused}");
    assert_eq!(write("while").unwrap_err().raw_os_error(), Some(30), "EROFS");
    drop(open);
    // Another reader has the drive, so the mount stays read-only.
    let reader = FileDrive::open(&drive, OpenMode::ReadLocked).unwrap();
    let refused = errors(&remount());
    assert!(refused.contains("in use by another process"), "{refused}");
    assert_eq!(fs::read_to_string(dir.join("before")).unwrap(), "content", "mounted as before");
    assert_eq!(write("while").unwrap_err().raw_os_error(), Some(30), "EROFS");
    drop(reader);
    must(&remount());
    write("after").unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(text(&dir))).unwrap();
    assert!(line.contains("rw,") && line.contains("noexec") && line.contains("noatime"), "{line}");
    assert_eq!(in_force(), before);
    for (name, value) in [("memory", "100663296"), ("commit", "7"), ("max_open_zones", "2")] {
        let kept = format!("\"{name}\": {value}");
        assert!(stats().contains(&kept), "{kept} in {}", stats());
    }
    assert!(fs::read_to_string(&log).unwrap().matches("requests come").count() > 3, "one log");
    must(&zonal(&["umount", text(&dir)]));
    // The same for a zonefs.
    must(&zonal(&["mkzonefs", "--force", text(&drive)]));
    mount("ro,errors=repair,nouring,noasync-dio,warm-cache,strictatime,dirsync");
    let before = in_force();
    must(&zonal(&["mount", "-o", "remount,rw", text(&drive), text(&dir)]));
    assert_eq!(in_force(), before);
    assert!(stats().contains("\"errors\": \"repair\""), "{}", stats());
    fs::File::options().write(true).open(dir.join("seq/0")).unwrap().set_len(0).unwrap();
    must(&zonal(&["umount", text(&dir)]));
}

#[test]
fn drive_has_many_readers_or_one_writer() {
    use std::os::unix::fs::PermissionsExt;
    let Some((folder, drive, dir, log)) = mountable() else { return };
    let mode = fs::metadata(&drive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "who can open it can lock it");
    let (second, third) = (folder.path().join("second"), folder.path().join("third"));
    fs::create_dir(&second).unwrap();
    fs::create_dir(&third).unwrap();
    let _end = [&dir, &second, &third].map(|dir| Unmounts(dir));
    let mount = |dir: &Path, options: &str| {
        zonal(&["mount", text(&drive), text(dir), "--log", text(&log), "-o", options])
    };
    let looks_on = || {
        for command in ["info", "zones"] {
            must(&zonal(&[command, text(&drive)]));
        }
    };
    must(&mount(&dir, "rw"));
    fs::write(dir.join("file"), "content").unwrap();
    let place = format!("drive.zns is mounted at {}", text(&dir));
    for options in ["ro", "rw"] {
        let refused = errors(&mount(&second, options));
        assert!(refused.contains(&place) && refused.contains("mount --bind"), "{refused}");
    }
    looks_on();
    must(&zonal(&["umount", text(&dir)]));
    must(&mount(&dir, "ro"));
    must(&mount(&second, "ro"));
    for place in [&dir, &second] {
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "content");
    }
    must(&zonal(&["check", text(&drive)]));
    looks_on();
    must(&zonal(&["umount", text(&dir)]));
    let refused = errors(&mount(&third, "rw"));
    assert!(refused.contains(&format!("is mounted at {}", text(&second))), "{refused}");
    must(&zonal(&["umount", text(&second)]));
    must(&mount(&third, "rw"));
    must(&zonal(&["umount", text(&third)]));
}

#[test]
fn remount_accepts_repeated_options() {
    let Some((folder, drive, dir, log)) = mountable() else { return };
    let _unmounts = Unmounts(&dir);
    let helper = helper(&folder);
    let what = (drive.as_path(), dir.as_path());
    for (options, others) in [
        ("writeback", "dirsync"),
        ("dirsync,strictatime", "writeback"),
        ("writeback,strictatime,warm-cache,dirsync", "uring,nouring"),
    ] {
        let arguments = ["mount", text(&drive), text(&dir), "--log", text(&log), "-o", options];
        must(&zonal(&arguments));
        must(&remount(&helper, what, &format!("ro,{options}")));
        assert_eq!(fs::write(dir.join("file"), "").unwrap_err().raw_os_error(), Some(30), "EROFS");
        must(&remount(&helper, what, &format!("rw,{options}")));
        fs::write(dir.join("file"), options).unwrap();
        let refused = remount(&helper, what, &format!("rw,{others}"));
        assert!(!refused.status.success(), "{options}, then {others}");
        must(&zonal(&["umount", text(&dir)]));
    }
}
