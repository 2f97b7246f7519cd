//! A zonefs mounted with the command: its control directory, `zonal stats`, its commands, the
//! options that `-o remount` changes, and the names under which mount(8) starts it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SHAPE: [&str; 10] = [
    "--zones",
    "24",
    "--zone-size",
    "3M",
    "--conventional",
    "4",
    "--max-open",
    "4",
    "--max-active",
    "6",
];

/// A drive with a zonefs, mounted until it is dropped.
struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    /// `None`, with a word why, where nothing can be mounted.
    fn new(options: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting and remounting needs root and /dev/fuse");
            return None;
        }
        let mount = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(mount.dir()).unwrap();
        let drive = mount.drive();
        zonal(&[&["create", &drive], &SHAPE[..]].concat());
        zonal(&["mkzonefs", &drive]);
        mount.mount(options);
        Some(mount)
    }

    fn mount(&self, options: &str) {
        let (drive, dir, log) = (self.drive(), self.dir(), self.folder.path().join("log"));
        zonal(&["mount", &drive, text(&dir), "--log", text(&log), "-o", options]);
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    fn drive(&self) -> String {
        text(&self.folder.path().join("drive.zns")).to_owned()
    }

    fn control(&self, name: &str) -> PathBuf {
        self.dir().join(".zonal").join(name)
    }

    fn command(&self, line: &str) -> std::io::Result<()> {
        fs::write(self.control("command"), line)
    }

    /// One member of `zonal stats --json`, as text.
    fn stat(&self, name: &str) -> String {
        let stats = zonal(&["stats", text(&self.dir()), "--json"]);
        let line = stats.lines().find(|line| line.contains(&format!("\"{name}\"")));
        let (_, value) = line.expect(name).split_once(": ").unwrap();
        value.trim_matches([',', '"']).to_owned()
    }

    fn remount(&self, options: &str) -> Output {
        let options = format!("remount,{options}");
        run(&["mount", "-o", &options, &self.drive(), text(&self.dir())])
    }

    /// Whether the mount table shows the mount as writable.
    fn is_writable_by_table(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let dir = format!(" {} ", self.dir().display());
        let line = table.lines().find(|line| line.contains(&dir)).unwrap();
        let options = line.split(' ').nth(3).unwrap();
        options.split(',').any(|option| option == "rw")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let output = run(&["umount", text(&self.dir())]);
        assert!(output.status.success() || std::thread::panicking(), "not unmounted: {output:?}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn zonal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "zonal {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn control_is_reachable_by_name_but_not_counted() {
    let Some(mount) = Mount::new("rw") else { return };
    let dir = mount.dir();
    let mut listed: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    listed.sort();
    assert_eq!(listed, ["cnv", "seq"]);
    assert_eq!(fs::metadata(&dir).unwrap().size(), 4, "., .., cnv and seq");
    let perm =
        |name: &str| fs::metadata(mount.control(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((perm(""), perm("stats"), perm("command")), (0o555, 0o444, 0o200));
    assert_eq!(fs::read_to_string(mount.control("max_wro_seq_files")).unwrap(), "4\n");
    assert_eq!(fs::read_to_string(mount.control("max_active_seq_files")).unwrap(), "6\n");
    // A read shows the present state, however often it was read before.
    for files in 1..=3 {
        mount.command(&format!("write {} 4096", 4 + files)).unwrap();
        let zones = fs::read_to_string(mount.control("zones")).unwrap();
        assert_eq!(zones.matches("implicit-open").count(), files);
    }
    for denied in [fs::remove_file(mount.control("stats")), fs::write(mount.control("new"), "")] {
        assert_eq!(denied.unwrap_err().raw_os_error(), Some(1), "EPERM");
    }
}

#[test]
fn zones_changed_behind_mount_are_handled() {
    let Some(mount) = Mount::new("errors=repair") else { return };
    for zone in [6, 7, 8] {
        mount.command(&format!("write {zone} 8192")).unwrap();
    }
    mount.command("offline 9").unwrap();
    for (line, errno) in [("offline 99", 22), ("no such thing", 22), ("write 2 4096", 22)] {
        let error = mount.command(line).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{line}");
    }
    zonal(&["umount", text(&mount.dir())]);
    mount.mount("errors=repair");
    assert_eq!(mount.stat("nr_active_seq_files"), "3", "as the next mount finds them");
    assert_eq!(mount.stat("offline_files"), "1");
    assert_eq!(fs::metadata(mount.dir().join("seq/2")).unwrap().size(), 8192);
    assert_eq!(fs::metadata(mount.dir().join("seq/5")).unwrap().mode() & 0o777, 0);
}

#[test]
fn transport_is_shown_and_survives_remount() {
    let Some(mount) = Mount::new("nouring") else { return };
    assert_eq!(mount.stat("transport"), "/dev/fuse");
    let page = zonal(&["stats", text(&mount.dir())]);
    let heading = "zonefs, read-write, by /dev/fuse, asynchronous direct reads ";
    assert!(page.starts_with(heading), "{page}");
    assert!(mount.remount("nouring").status.success(), "as /etc/fstab repeats it");
    let refused = mount.remount("uring");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("uring"), "{refused:?}");
    zonal(&["umount", text(&mount.dir())]);
    mount.mount("nouring,noasync-dio");
    assert_eq!(mount.stat("async_direct_reads"), "in turn");
    let page = zonal(&["stats", text(&mount.dir())]);
    assert!(page.contains("by /dev/fuse, asynchronous direct reads in turn\n"), "{page}");
    assert!(mount.remount("noasync-dio").status.success(), "as /etc/fstab repeats it");
}

#[test]
fn remount_changes_named_options_only() {
    let Some(mount) = Mount::new("errors=zone-ro,explicit-open") else { return };
    let settings = || ["access", "errors", "open"].map(|name| mount.stat(name)).join(" ");
    assert_eq!(settings(), "read-write zone-ro explicit");
    assert!(mount.remount("errors=repair").status.success());
    assert_eq!(settings(), "read-write repair explicit", "what is not named stays");
    assert!(mount.remount("ro").status.success());
    assert_eq!(
        (settings().as_str(), mount.is_writable_by_table()),
        ("read-only repair explicit", false)
    );
    assert!(mount.remount("errors=zone-offline").status.success());
    assert_eq!(
        (settings().as_str(), mount.is_writable_by_table()),
        ("read-only zone-offline explicit", false)
    );
    assert!(mount.remount("rw,implicit-open").status.success());
    assert_eq!(
        (settings().as_str(), mount.is_writable_by_table()),
        ("read-write zone-offline implicit", true)
    );
    for bad in ["errors=ignore", "sparkle", "writeback", "dirsync"] {
        let output = mount.remount(bad);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(bad), "{output:?}");
    }
    let open = fs::OpenOptions::new().write(true).open(mount.dir().join("cnv/0")).unwrap();
    assert!(!mount.remount("ro").status.success(), "a file is open for writing");
    assert_eq!(
        (settings().as_str(), mount.is_writable_by_table()),
        ("read-write zone-offline implicit", true)
    );
    drop(open);
}

#[test]
fn mount_detects_type_and_refuses_other_options() {
    let Some(mount) = Mount::new("rw") else { return };
    let (dir, drive) = (mount.dir(), mount.drive());
    zonal(&["umount", text(&dir)]);
    for (arguments, what) in [
        (&["-t", "furrow"][..], "it holds zonefs, not Furrow"),
        (&["-t", "ext4"], "possible values: furrow, zonefs"),
        (&["-o", "errors=ignore"], "errors=ignore"),
        (&["-o", "explicit_open"], "explicit_open"),
    ] {
        let output = run(&[&["mount", &drive, text(&dir)], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(what), "{arguments:?}: {errors}");
    }
    // Under the name of mount(8)'s helper, with arguments that mount(8) passes on.
    let helper = mount.folder.path().join("mount.zonefs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zonal"), &helper).unwrap();
    let arguments = [&drive, text(&dir), "-n", "-o", "rw,errors=repair"];
    let output = Command::new(&helper).args(arguments).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(mount.stat("errors"), "repair");
}

/// Asks for the metrics, as Prometheus does.
fn scrape(port: u16) -> String {
    use std::io::{Read, Write};

    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_while_mounted() {
    // The kernel gives ports from 32,768 on to connections of other programs.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = first..32_768;
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = ports.find(is_free).unwrap();
    let option = format!("metrics={port}");
    let Some(mount) = Mount::new(&option) else { return };
    fs::read(mount.dir().join("seq/0")).unwrap();
    let answer = scrape(port);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mounted = "zonal_mount{type=\"zonefs\",access=\"read-write\",transport=\"";
    assert!(answer.contains(mounted), "{answer}");
    assert!(
        answer.contains("zonal_operation_duration_seconds_count{operation=\"open\",mount=\"/"),
        "{answer}"
    );
    assert_eq!(mount.stat("metrics"), format!("127.0.0.1:{port}"));
    // mount(8) repeats the option from fstab.
    assert!(mount.remount(&option).status.success());
    let output = mount.remount("metrics=1");
    assert!(String::from_utf8_lossy(&output.stderr).contains("metrics=1"), "{output:?}");
    // A port on which another program listens makes the mount fail.
    let second = tempfile::tempdir().unwrap();
    let drive = second.path().join("drive.zns");
    zonal(&[&["create", text(&drive)], &SHAPE[..]].concat());
    zonal(&["mkzonefs", text(&drive)]);
    let (log, dir) = (second.path().join("log"), second.path().join("mnt"));
    fs::create_dir(&dir).unwrap();
    let arguments = ["mount", text(&drive), text(&dir), "--log", text(&log), "-o", &option];
    let output = run(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("serving metrics at"), "{errors}");
    drop(mount);
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens any more");
}
