//! The control directory without a kernel.

use zonal::{ManualClock, OpenMode, ZoneCond, ZoneId, spec};
use zonal_fs::options::Taken;
use zonal_fs::vfs::{
    Access, Attr, Caller, DirEntry, FileKind, Listing, NewInode, OpenFor, Remains, Result,
    WriteFlags,
};
use zonal_fs::zonefs::{self, Group, ZoneFs};

use super::*;
use crate::names::CONTROL_DIR;
use crate::options::KindOptions;

const OPTIONS: zonefs::MkfsOptions = zonefs::MkfsOptions {
    label: String::new(),
    uuid: [0; 16],
    aggregate: zonefs::Aggregate::Separate,
    uid: None,
    gid: None,
    perm: None,
    overwrite: zonefs::Overwrite::Force,
};

struct Mount {
    control: Control,
    fs: Arc<ZoneFs>,
}

fn mount(shape: &str) -> Mount {
    mount_with(shape, zonefs::MountOptions::default())
}

fn mount_with(shape: &str, options: zonefs::MountOptions) -> Mount {
    let clock = Arc::new(ManualClock::new(7));
    let stack =
        spec::open_stack(&format!("mem:{shape}"), OpenMode::ReadWrite, clock.clone()).unwrap();
    zonefs::mkfs(&*stack.device, &OPTIONS, &mut |_| ()).unwrap();
    let device = Arc::clone(&stack.device);
    let fs = Arc::new(ZoneFs::mount(device, clock.clone(), options).unwrap());
    let latencies = Arc::new(Latencies::new(clock.clone()));
    let config = MountConfig { access: options.access, ..config("zonefs") };
    Mount { control: Control::new(Arc::clone(&fs), &stack, config, latencies, &*clock), fs }
}

fn config(kind: &str) -> MountConfig {
    let config = MountConfig::new("/srv/drive.zns", "/mnt/a mount".as_ref());
    MountConfig { kind: kind.to_owned(), ..config }
}

impl Mount {
    fn directory(&self) -> Attr {
        self.control.lookup(self.fs.root(), CONTROL_DIR.as_bytes()).unwrap()
    }

    fn find(&self, name: &str) -> Result<Attr> {
        self.control.lookup(self.directory().ino, name.as_bytes())
    }

    fn text(&self, name: &str) -> String {
        let mut buffer = vec![0; 1 << 20];
        let len = self.control.read(self.find(name).unwrap().ino, 0, &mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    fn command(&self, line: &str) -> std::result::Result<(), i32> {
        let ino = self.find("command").unwrap().ino;
        self.control.write(ino, line.as_bytes()).map_err(|error| error.errno())
    }

    /// Applies options to the options in force, and sends the result to the mount.
    fn remount(&self, options: &str) -> std::result::Result<(), i32> {
        remount(&self.control, options)
    }

    fn cond(&self, zone: u32) -> ZoneCond {
        self.control.device.zone(ZoneId::new(zone)).unwrap().cond
    }
}

/// Reads the options in force, applies some, and sends them back.
fn remount(control: &Control, options: &str) -> std::result::Result<(), i32> {
    let directory = control.lookup(control.fs.root(), CONTROL_DIR.as_bytes()).unwrap().ino;
    let [file, command] =
        ["options", "command"].map(|name| control.lookup(directory, name.as_bytes()).unwrap().ino);
    let mut buffer = vec![0; 1 << 20];
    let len = control.read(file, 0, &mut buffer).unwrap();
    let mut new: Options = serde_json::from_slice(&buffer[..len]).unwrap();
    for option in options.split(',') {
        if new.kind.take(option) == Taken::No {
            new.mount.apply(option).unwrap();
        }
    }
    let line = format!("remount {}\n", serde_json::to_string(&new).unwrap());
    control.write(command, line.as_bytes()).map_err(|error| error.errno())
}

#[test]
fn control_shows_panic_with_message() {
    let mount = mount("zones=6,zone=1M");
    assert!(!mount.text("stats").contains("panicked"));
    assert_eq!(mount.fs.give_up("the first"), Remains::Readable);
    for message in ["the first", "the second"] {
        mount.control.set_panicked(message);
    }
    let stats: serde_json::Value = serde_json::from_str(&mount.text("stats")).unwrap();
    assert_eq!((&stats["panicked"], &stats["access"]), (&"the first".into(), &"read-only".into()));
    assert!(mount.text("page").contains("because it panicked: the first"));
}

#[test]
fn control_is_found_but_never_listed() {
    let mount = mount("zones=6,zone=1M,conventional=2");
    let root = mount.fs.root();
    let names = |ino| {
        let mut names = Vec::new();
        let mut each = |entry: DirEntry<'_>| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            Listing::More
        };
        if ino == root {
            mount.fs.readdir(ino, 0, &mut each).unwrap();
        } else {
            mount.control.list(ino, 0, &mut each).unwrap();
        }
        names
    };
    assert_eq!(names(root), [".", "..", "cnv", "seq"]);
    let directory = mount.directory();
    assert_eq!((directory.kind, directory.perm), (FileKind::Directory, 0o555));
    let files = names(directory.ino);
    let always = [".", "..", "stats", "zones", "command", "page", "metrics", "map", "options"];
    assert_eq!(files[..9], always);
    for name in &files[2..] {
        let attr = mount.find(name).unwrap();
        let perm = if name == "command" { 0o200 } else { 0o444 };
        assert_eq!((attr.kind, attr.perm), (FileKind::Regular, perm), "{name}");
        assert_eq!(mount.control.getattr(attr.ino).unwrap(), attr);
    }
    assert_eq!(mount.control.lookup(directory.ino, b"..").unwrap().ino, root);
    assert_eq!(mount.find("nothing").unwrap_err().errno(), 2, "ENOENT");
}

#[test]
fn control_listing_continues_where_it_stopped() {
    let mount = mount("zones=6,zone=1M");
    let directory = mount.directory().ino;
    let (mut cookie, mut count) = (0, 0);
    loop {
        let mut taken = None;
        let mut each = |entry: DirEntry<'_>| {
            if taken.is_some() {
                return Listing::Enough;
            }
            taken = Some(entry.cookie);
            Listing::More
        };
        mount.control.list(directory, cookie, &mut each).unwrap();
        let Some(next) = taken else { break };
        (cookie, count) = (next, count + 1);
    }
    assert_eq!(count, 2 + 7 + 4);
}

#[test]
fn control_counters_are_current() {
    let mount = mount("zones=6,zone=1M,open=3,active=4");
    let counter = |name| mount.text(name).trim_end().parse::<u32>().unwrap();
    assert_eq!((counter("max_wro_seq_files"), counter("max_active_seq_files")), (3, 4));
    assert_eq!((counter("nr_wro_seq_files"), counter("nr_active_seq_files")), (0, 0));
    let file = mount.fs.file(Group::Sequential, 2).unwrap();
    mount.fs.open(file, OpenFor::Writing).unwrap();
    mount.fs.write(file, 0, &[1; 4096], WriteFlags::DIRECT).unwrap();
    assert_eq!((counter("nr_wro_seq_files"), counter("nr_active_seq_files")), (1, 1));
    let stats = mount.text("stats");
    for line in ["\"type\": \"zonefs\"", "\"errors\": \"remount-ro\"", "\"used_bytes\": 4096"] {
        assert!(stats.contains(line), "{stats}");
    }
    mount.fs.close(file, OpenFor::Writing);
    assert_eq!(counter("nr_wro_seq_files"), 0);
}

#[test]
fn control_report_reads_same_in_any_pieces() {
    let mount = mount("zones=40,zone=1M");
    mount.command("write 7 8192").unwrap();
    let whole = mount.text("zones");
    assert_eq!(whole.lines().count(), 41);
    assert!(whole.lines().next().unwrap().starts_with("zone "));
    assert!(whole.lines().nth(8).unwrap().ends_with(" 2"), "{whole}");
    let ino = mount.find("zones").unwrap().ino;
    for piece in [1, 68, 69, 70, 1000] {
        let (mut text, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            let len = mount.control.read(ino, text.len() as u64, &mut buffer).unwrap();
            if len == 0 {
                break;
            }
            text.extend_from_slice(&buffer[..len]);
        }
        assert_eq!(text, whole.as_bytes(), "pieces of {piece}");
    }
    assert_eq!(mount.control.read(ino, u64::MAX, &mut [0; 10]).unwrap(), 0);
}

#[test]
fn control_commands_reach_drive() {
    let mount = mount("zones=9,zone=1M,conventional=2,open=2,active=2");
    mount.command("open 3").unwrap();
    assert_eq!(mount.cond(3), ZoneCond::ExplicitOpen);
    mount.command("write 3 1048576").unwrap();
    assert_eq!(mount.cond(3), ZoneCond::Full);
    mount.command("write 4 4096\n").unwrap();
    mount.command("close 4").unwrap();
    assert_eq!(mount.cond(4), ZoneCond::Closed);
    mount.command("open 5").unwrap();
    assert_eq!(mount.command("open 6"), Err(75), "EOVERFLOW: two zones are active");
    mount.command("finish 4").unwrap();
    mount.command("reset 5").unwrap();
    mount.command("read-only 6").unwrap();
    mount.command("offline 7").unwrap();
    let conditions = [4, 5, 6, 7].map(|zone| mount.cond(zone));
    let expected = [ZoneCond::Full, ZoneCond::Empty, ZoneCond::ReadOnly, ZoneCond::Offline];
    assert_eq!(conditions, expected);
}

#[test]
fn control_failures_have_their_errno() {
    let mut mount = mount("zones=9,zone=1M,conventional=2");
    for (line, errno) in [
        ("", 22),
        ("explode 3", 22),
        ("reset 9", 22),
        ("offline 9", 22),
        ("write 9 4096", 22),
        ("write 1 4096", 22),
        ("write 3 0", 22),
        ("write 3 100", 22),
        ("write 3 1052672", 5),
        ("reset 1", 22),
        ("remount sparkle", 22),
        ("remount {}", 22),
    ] {
        assert_eq!(mount.command(line), Err(errno), "{line}");
    }
    assert_eq!(mount.cond(3), ZoneCond::Empty);
    mount.control.failing = None;
    assert_eq!(mount.command("offline 3"), Err(95), "EOPNOTSUPP");
}

#[test]
fn control_remount_keeps_unnamed_options() {
    let mount = mount("zones=9,zone=1M,open=3");
    mount.remount("errors=repair,explicit-open").unwrap();
    mount.remount("errors=zone-ro").unwrap();
    let options = mount.fs.options();
    assert_eq!(options.errors, zonefs::ErrorPolicy::ZoneRo);
    assert_eq!(options.open, zonefs::OpenPolicy::Explicit);
    mount.remount("ro").unwrap();
    mount.remount("errors=repair").unwrap();
    assert_eq!(mount.fs.access(), Access::ReadOnly);
    mount.remount("rw,implicit-open").unwrap();
    assert_eq!(mount.fs.access(), Access::ReadWrite);
    assert_eq!(mount.fs.options().open, zonefs::OpenPolicy::Implicit);
}

#[test]
fn control_never_writes_to_device_opened_read_only() {
    let read_only = zonefs::MountOptions { access: Access::ReadOnly, ..Default::default() };
    let mount = mount_with("zones=6,zone=1M", read_only);
    assert_eq!(mount.remount("rw"), Err(30), "EROFS");
    assert_eq!(mount.fs.access(), Access::ReadOnly);
}

/// A Furrow, where files share zones.
fn furrow() -> (Control, Arc<zonal_fs::furrow::Furrow>) {
    use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};

    let clock = Arc::new(ManualClock::new(7));
    let shape = "mem:zones=40,zone=1M,conventional=0";
    let stack = spec::open_stack(shape, OpenMode::ReadWrite, clock.clone()).unwrap();
    mkfs(stack.device.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = Furrow::mount(stack.device.clone(), clock.clone(), MountOptions::default()).unwrap();
    let (fs, latencies) = (Arc::new(fs), Arc::new(Latencies::new(clock.clone())));
    latencies.record(crate::latency::Operation::Write, 0);
    (Control::new(Arc::clone(&fs), &stack, config("furrow"), latencies, &*clock), fs)
}

#[test]
fn control_live_view_agrees_in_every_form() {
    let (control, fs) = furrow();
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: &[] };
    let ino = fs.create(&Caller::ROOT, fs.root(), b"file", &new).unwrap().ino;
    fs.write(ino, 0, &vec![1; 300 * 4096], WriteFlags::DIRECT).unwrap();
    let directory = control.lookup(fs.root(), CONTROL_DIR.as_bytes()).unwrap().ino;
    let read = |name: &str| {
        let ino = control.lookup(directory, name.as_bytes()).unwrap().ino;
        let mut buffer = vec![0; 1 << 20];
        let len = control.read(ino, 0, &mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let report: Report = serde_json::from_str(&read("stats")).unwrap();
    let live = report.live.as_ref().unwrap();
    assert_eq!(live.blocks.used, 300);
    assert_eq!(report.counter("user_bytes"), 300 * 4096);
    assert_eq!(report.setting("access"), "read-write");
    assert_eq!(report.operations[0].operation, "write");
    let page = read("page");
    assert!(page.contains("  used") && page.contains(" 300 ") && page.contains("write"), "{page}");
    let uuid = "00000000-0000-0000-0000-000000000000";
    let labels = format!("use=\"used\",mount=\"/mnt/a mount\",uuid=\"{uuid}\"");
    let used = format!("zonal_space_bytes{{{labels}}} 1228800\n");
    assert!(read("metrics").contains(&used), "{}", read("metrics"));
    assert_eq!(report.setting("uuid"), uuid);
    assert_eq!((report.counter("open_zones"), report.counter("open_zones_max")), (1, 5));
    assert!(!report.named.contains_key("max_open_zones"), "the option was not given");
    assert!(page.contains("\nopen zones           1 of at most 5 for data\n"), "{page}");
    let zones = map::parse(&read("map"));
    assert_eq!(zones.len(), 40);
    let full = map::Line { role: b'd', written: 100, used: 100 };
    assert!(zones.contains(&full), "{zones:?}");
    // A read in pieces gives the same text.
    let ino = control.lookup(directory, b"map").unwrap().ino;
    let mut piece = [0; 7];
    for offset in [0, 3, 9, 395] {
        let len = control.read(ino, offset, &mut piece).unwrap();
        let at = usize::try_from(offset).unwrap();
        assert_eq!(piece[..len], read("map").as_bytes()[at..at + len]);
    }
    assert_eq!(control.read(ino, 400, &mut piece).unwrap(), 0);
}

#[test]
fn control_changes_or_refuses_furrow_options() {
    let (control, _fs) = furrow();
    let remount = |options: &str| remount(&control, options);
    let lifetime = || control.report().setting("lifetime").to_owned();
    assert_eq!(lifetime(), "followed");
    remount("nolifetime").unwrap();
    assert_eq!(lifetime(), "ignored");
    remount("memory=256MiB").unwrap();
    assert_eq!(lifetime(), "ignored", "what is not named stays");
    remount("lifetime,memory=256MiB").unwrap();
    assert_eq!(lifetime(), "followed");
    for refused in [
        "memory=1GiB",
        "max_open_zones=3",
        "nolifetime,memory=1GiB",
        "commit=7",
        "writeback",
        "noatime",
        "nodiratime",
        "threads=3",
    ] {
        assert_eq!(remount(refused), Err(22), "{refused}");
        assert_eq!(lifetime(), "followed");
    }
}

#[test]
fn control_options_are_read_back_as_written() {
    let (control, _fs) = furrow();
    let served = Served {
        transport: Transport::Rings,
        async_direct: AsyncDirect::InTurn,
        mount_type: crate::MountType::Fuse,
    };
    control.set_served(served);
    control.set_metrics(std::net::SocketAddr::from(([127, 0, 0, 1], 9464)));
    let mut options = control.options();
    options.mount.apply("ro,noatime,nodev,nosymfollow,dirsync,warm-cache,threads=5").unwrap();
    for option in ["memory=96MiB", "commit=7", "max_open_zones=2", "nolifetime"] {
        assert_eq!(options.kind.take(option), Taken::Yes);
    }
    let text = serde_json::to_string(&options).unwrap();
    let mut read: Options = serde_json::from_str(&text).unwrap();
    assert_eq!(read.unshown(), options.unshown());
    read.mount.mount_point.clone_from(&options.mount.mount_point);
    // `access` and `atime` belong to the mount, so a reader fills in the mount's values.
    if let (KindOptions::Furrow(read), KindOptions::Furrow(now)) = (&mut read.kind, &options.kind) {
        (read.access, read.atime) = (now.access, now.atime);
    }
    assert_eq!(read, options, "{text}");
    let zones = "warm-cache noasync-dio uring threads=5 metrics=127.0.0.1:9464 memory=96MiB";
    assert_eq!(options.unshown().join(" "), format!("{zones} max_open_zones=2 commit=7"));
    let unknown = text.replace("\"commit_seconds\"", "\"commit_minutes\"");
    assert!(serde_json::from_str::<Options>(&unknown).is_err());
}

/// Names of metrics in an expression of Prometheus.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("zonal_"))
}

/// All texts of a JSON document that are called `name`.
fn texts_of<'a>(value: &'a serde_json::Value, name: &str, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(members) => {
            for (key, value) in members {
                found.extend(value.as_str().filter(|_| key == name));
                texts_of(value, name, found);
            }
        }
        serde_json::Value::Array(values) => {
            for value in values {
                texts_of(value, name, found);
            }
        }
        _ => {}
    }
}

#[test]
fn control_exports_every_dashboard_metric() {
    let (control, fs) = furrow();
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: &[] };
    let ino = fs.create(&Caller::ROOT, fs.root(), b"file", &new).unwrap().ino;
    fs.write(ino, 0, &vec![1; 300 * 4096], WriteFlags::DIRECT).unwrap();
    // Enough blocks are dead for reclaim to move others.
    fs.fallocate(ino, zonal_fs::vfs::Allocate::Punch, 0, 200 * 4096).unwrap();
    while fs.reclaim_ahead().unwrap() == zonal_fs::furrow::StepProgress::More {}
    let text = control.metrics(crate::control::metrics::Dialect::Prometheus);
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/grafana.json")).unwrap();
    let mut expressions = Vec::new();
    texts_of(&dashboard, "expr", &mut expressions);
    let names: Vec<&str> = expressions.into_iter().flat_map(metrics_in).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let is_sample =
            |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        assert!(text.lines().any(is_sample), "{name} is not exported:\n{text}");
    }
}

#[test]
fn control_pieces_belong_to_one_text() {
    let (control, fs) = furrow();
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: &[] };
    let file = fs.create(&Caller::ROOT, fs.root(), b"file", &new).unwrap().ino;
    let directory = control.lookup(fs.root(), CONTROL_DIR.as_bytes()).unwrap().ino;
    let stats = control.lookup(directory, b"stats").unwrap().ino;
    let (mut text, mut piece) = (Vec::new(), [0; 100]);
    loop {
        let len = control.read(stats, text.len() as u64, &mut piece).unwrap();
        text.extend_from_slice(&piece[..len]);
        if len == 0 {
            break;
        }
        // All numbers get longer between the reads.
        fs.write(file, 0, &vec![1; 1 << 20], WriteFlags::DIRECT).unwrap();
    }
    let report: Report = serde_json::from_slice(&text).unwrap();
    assert_eq!(report.counter("user_bytes"), 0, "as it was when the first byte was read");
}
