//! Files that the command writes: every command refuses to overwrite drives, devices and its own
//! inputs, under any of their names.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Every command that writes a file, and the name of that file. `OUT` stands for it.
const COMMANDS: [(&str, &str); 11] = [
    ("read mem: --lba 0 --output OUT", "out"),
    ("read trace(OUT):mem: --lba 0", "out"),
    ("bench trace(OUT,data):mem: --op write --block-size 4KiB --seconds 0.01", "out"),
    ("info mem: --log OUT", "out"),
    ("mount furrow.zns mnt --log OUT", "out"),
    ("mount furrow.zns mnt --log log --counts OUT", "out"),
    ("sim sweep config.toml --over op=20,40 --out OUT", "out"),
    ("sim fs files.toml --out dir", "dir/fs.csv"),
    ("sim experiment cost --quick --out dir", "dir/cost.json"),
    ("sim reproduce --quick --out dir", "dir/index.html"),
    ("man dir", "dir/zonal-read.1"),
];

/// Commands whose output is a file that they also read.
const SAME: [(&str, &str); 9] = [
    ("read sim:config.toml --lba 0 --output OUT", "config.toml"),
    ("read trace(OUT):sim:config.toml --lba 0", "config.toml"),
    ("read trace(trace):mem: --lba 0 --output OUT", "trace"),
    ("trace replay trace trace(OUT):mem:profile=small", "trace"),
    ("write trace(OUT):mem:profile=small --lba 0 --input words", "words"),
    ("append trace(OUT):mem:profile=small --zone 4 --input words", "words"),
    ("sim sweep config.toml --over op=20,40 --out OUT", "config.toml"),
    ("sim fs dir/fs.toml --out dir", "dir/fs.toml"),
    ("sim experiment cost --quick --config dir/cost.toml --out dir", "dir/cost.toml"),
];

/// Commands that change a device below any file system.
const CHANGES: [&str; 15] = [
    "zone reset DEVICE --all",
    "zone reset DEVICE 0 1",
    "zone finish DEVICE 40",
    "zone open DEVICE 40",
    "zone close DEVICE 0",
    "zone read-only DEVICE 40",
    "zone offline DEVICE 41",
    "write DEVICE --lba 0 --input words",
    "append DEVICE --zone 40 --input words",
    "bench DEVICE --op write --block-size 4KiB --seconds 0.01",
    "bench DEVICE --op read --block-size 4KiB --seconds 0.01",
    "trace replay recorded DEVICE",
    "compliance DEVICE --zones 40-43",
    "mkfs DEVICE",
    "mkzonefs DEVICE",
];

/// A directory in which the commands run.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        for dir in ["dir", "mnt"] {
            fs::create_dir(place.path(dir)).unwrap();
        }
        for drive in ["furrow.zns", "kept.zns"] {
            place.must(&format!("create {drive} --zones 60 --zone-size 1MiB"));
            place.must(&format!("mkfs {drive}"));
        }
        fs::write(place.path("words"), "one two three").unwrap();
        for (preset, name) in
            [("small", "config.toml"), ("files", "dir/fs.toml"), ("cost", "dir/cost.toml")]
        {
            let text = place.must(&format!("sim config {preset}"));
            fs::write(place.path(name), text).unwrap();
        }
        fs::copy(place.path("dir/fs.toml"), place.path("files.toml")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn zonal(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(line.split(' ')).current_dir(self.folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn must(&self, line: &str) -> String {
        let output = self.zonal(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command, which must be refused for `why`.
    fn refused(&self, line: &str, why: &str) {
        let output = self.zonal(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        assert!(error.contains(why), "{line}: {error}");
        assert!(error.contains("try: name another file"), "{line}: {error}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The test may have mounted something that should have been refused.
        let _ = self.zonal("umount mnt");
    }
}

/// A file that must not become an output.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    HardLink,
    SymbolicLink,
    CharacterDevice,
    BlockDevice,
}

impl Obstacle {
    const ALL: [Self; 4] =
        [Self::HardLink, Self::SymbolicLink, Self::CharacterDevice, Self::BlockDevice];

    /// Makes it at a path. Returns why it is refused, or `None` without the right to make it.
    fn put(self, place: &Place, path: &Path) -> Option<&'static str> {
        match self {
            Self::HardLink => fs::hard_link(place.path("kept.zns"), path).unwrap(),
            Self::SymbolicLink => symlink(place.path("kept.zns"), path).unwrap(),
            Self::CharacterDevice => symlink("/dev/random", path).unwrap(),
            Self::BlockDevice => {
                // The number of a device that is not there: nothing can be lost.
                let number = makedev(259, 1_048_575);
                mknodat(CWD, path, FileType::BlockDevice, Mode::RWXU, number).ok()?;
            }
        }
        Some(match self {
            Self::HardLink | Self::SymbolicLink => "it is a zoned drive",
            Self::CharacterDevice => "it is a device, not a file",
            Self::BlockDevice => "it is a block device",
        })
    }
}

#[test]
fn output_never_goes_to_drive_or_device() {
    let place = Place::new();
    let before = fs::read(place.path("kept.zns")).unwrap();
    for (line, name) in COMMANDS {
        for obstacle in Obstacle::ALL {
            let path = place.path(name);
            if let Some(why) = obstacle.put(&place, &path) {
                place.refused(&line.replace("OUT", name), why);
                fs::remove_file(&path).unwrap();
            }
            assert!(fs::read(place.path("kept.zns")).unwrap() == before, "{line}");
        }
    }
}

#[test]
fn output_never_overwrites_input_of_command() {
    let place = Place::new();
    place.must("write trace(trace):mem:profile=small --lba 0 --input words");
    for (line, name) in SAME {
        let before = fs::read(place.path(name)).unwrap();
        for out in ["same", "link", name] {
            let path = place.path(out);
            match out {
                "same" => fs::hard_link(place.path(name), &path).unwrap(),
                "link" => symlink(place.path(name), &path).unwrap(),
                _ => {}
            }
            // The trace layer makes its file anew before the refusal.
            let rewritten = line.starts_with("read trace(trace)");
            place.refused(&line.replace("OUT", out), "it is read as well");
            assert!(rewritten || fs::read(place.path(name)).unwrap() == before, "{line}, {out}");
            if out != name {
                fs::remove_file(&path).unwrap();
            }
        }
    }
}

#[test]
fn output_goes_to_ordinary_files_and_sinks() {
    let place = Place::new();
    fs::write(place.path("old"), "old").unwrap();
    for name in ["old", "new"] {
        place.must(&format!("read mem: --lba 0 --output {name} --log log"));
        assert_eq!(fs::read(place.path(name)).unwrap(), [0; 4096]);
    }
    assert_eq!(place.must("read mem: --lba 0 --output /dev/stdout").len(), 4096);
    place.must("read trace(/dev/null):mem: --lba 0 --output /dev/null --log /dev/null");
    place.must("man dir");
    assert!(place.path("dir/zonal-sim-sweep.1").is_file());
}

/// Commands that print a result, and whether a trace, drives and a file on them are there.
const PRINTING: [&str; 30] = [
    "info kept.zns",
    "zones kept.zns",
    "zones kept.zns --map",
    "read mem: --lba 0 --blocks 300",
    "write mem:profile=small --lba 0 --input words",
    "append mem:profile=small --zone 4 --input words",
    "create new.zns --zones 40 --zone-size 1MiB --force",
    "mkfs kept.zns --dry-run",
    "mkzonefs new.zns --force",
    "check kept.zns",
    "dump kept.zns superblock",
    "ls kept.zns:/",
    "ls -l kept.zns:/",
    "cat kept.zns:/words",
    "cp kept.zns:/words -",
    "stat kept.zns:/words",
    "df kept.zns",
    "bench mem: --op write --block-size 4KiB --seconds 0.01",
    "compliance mem:zone=1M,zones=8,open=2,active=3",
    "trace print trace",
    "trace print trace --summary",
    "disk list furrow.zns",
    "sim run config.toml --set run.drive_writes=1 --set run.warm_up=0",
    "sim show config.toml",
    "sim config",
    "sim config small",
    "sim fields",
    "completions bash",
    "--version",
    "help",
];

/// Runs a command with this standard output.
fn printed(place: &Place, line: &str, output: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(line.split(' ')).current_dir(place.folder.path()).stdin(Stdio::null());
    command.stdout(output).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// The commands, and the help of each.
fn printing() -> impl Iterator<Item = String> {
    PRINTING.into_iter().flat_map(|line| {
        let name: Vec<_> = line.split(' ').take(1).filter(|word| !word.starts_with('-')).collect();
        let help = [name, vec!["--help"]].concat().join(" ");
        [line.to_owned(), help].into_iter().filter(|line| line != "help --help")
    })
}

fn printing_place() -> Place {
    let place = Place::new();
    place.must("write trace(trace):mem:profile=small --lba 0 --input words");
    place.must("cp words kept.zns:/");
    place.must("disk create furrow.zns data --size 4MiB");
    place
}

#[test]
fn output_to_full_device_is_one_error() {
    let place = printing_place();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for line in printing() {
        let output = printed(&place, &line, full());
        let said = String::from_utf8(output.stderr).unwrap();
        let code = if line.starts_with("check kept") { 8 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        let wanted = "zonal: writing to standard output: No space left on device (os error 28)\n  \
                      try: send standard output to another place\n";
        assert_eq!(said, wanted, "{line}");
    }
    for line in ["info", "zones", "ls", "df", "dump", "check"] {
        let rest = if line == "dump" { "kept.zns superblock" } else { "kept.zns" };
        let output = printed(&place, &format!("{line} --json {rest}"), full());
        let failure: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(failure["error"]["errno"], 28, "{line}: {failure}");
    }
}

#[test]
fn output_into_closed_pipe_ends_by_sigpipe() {
    let place = printing_place();
    let closed = || std::io::pipe().unwrap().1;
    for line in printing() {
        let output = printed(&place, &line, closed());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.signal(), &*said), (Some(13), ""), "{line}");
        // The same where standard error goes there too, also for commands that fail.
        for line in [&*line, "info none.zns", "sparkle"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
            command.args(line.split(' ')).current_dir(place.folder.path()).stdin(Stdio::null());
            let status = command.stdout(closed()).stderr(closed()).status().unwrap();
            assert_eq!(status.signal(), Some(13), "{line} 2>&1 |");
        }
    }
}

#[test]
fn serve_goes_on_where_nobody_reads_what_it_prints() {
    let place = printing_place();
    for full in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args("serve nbd furrow.zns//data --unix socket".split(' '));
        command.current_dir(place.folder.path()).stdin(Stdio::null());
        if full {
            let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            command.stdout(full()).stderr(full());
        } else {
            let closed = || std::io::pipe().unwrap().1;
            command.stdout(closed()).stderr(closed());
        }
        let child = command.spawn().unwrap();
        let socket = place.path("socket");
        zonal::wait::wait_until(|| UnixStream::connect(&socket).is_ok());
        rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
        let _ = fs::remove_file(socket);
    }
}

#[test]
fn read_output_dash_is_standard_output() {
    let place = Place::new();
    assert_eq!(place.must("read mem: --lba 0 --output -").len(), 4096);
    assert_eq!(place.must("read mem: --lba 0 --count 2 --output -").len(), 8192);
    assert!(!place.path("-").exists());
}

#[test]
fn man_and_schemas_need_directory() {
    let place = Place::new();
    let before = fs::read_dir(place.folder.path()).unwrap().count();
    for line in ["man", "schemas"] {
        assert_eq!(place.zonal(line).status.code(), Some(2), "{line}");
    }
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), before);
}

#[test]
fn file_system_is_kept_by_all_commands_without_force() {
    let place = Place::new();
    place.must("create zonefs.zns --zones 60 --zone-size 1MiB --conventional 3");
    place.must("mkzonefs zonefs.zns");
    place.must("write trace(recorded):mem:profile=small --lba 0 --input words");
    let layers = "trace(run):po2:furrow.zns";
    for (device, drive, held) in [
        ("furrow.zns", "furrow.zns", "holds furrow"),
        ("zonefs.zns", "zonefs.zns", "holds zonefs"),
        (layers, "furrow.zns", "holds furrow"),
        // A slice in the middle shows nothing of the file system.
        ("slice(5-59):furrow.zns", "furrow.zns", "holds furrow"),
    ] {
        let before = place.must(&format!("zones {drive}"));
        for change in CHANGES {
            let line = change.replace("DEVICE", device);
            let output = place.zonal(&line);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{line}: {error}");
            // A part may lack the zones that a command needs, or hold data in them.
            let is_why =
                error.contains(held) || device.contains("slice") && error.contains("holds data");
            assert!(is_why && error.contains("--force"), "{line}: {error}");
            assert_eq!(place.must(&format!("zones {drive}")), before, "{line}");
        }
    }
    place.must("check furrow.zns --data");
    place.must("append furrow.zns --zone 40 --input words --force");
    place.must("zone reset furrow.zns --all -f");
    assert!(!place.must("info furrow.zns").contains("holds"));
    // A file system on one part leaves the other parts alone.
    place.must("mkfs slice(0-39):furrow.zns");
    place.must("append slice(40-59):furrow.zns --zone 1 --input words");
    place.must("zone reset furrow.zns --all --force");
    // Without a file system no force is needed, and the search for one leaves no record in the
    // trace.
    place.must("append trace(run):furrow.zns --zone 40 --input words");
    place.must("append trace(run):furrow.zns --zone 40 --input words");
    let recorded = place.must("trace print run --json");
    assert!(recorded.lines().next().unwrap().contains("\"append\""), "{recorded}");
}

#[test]
fn file_that_is_no_drive_is_named_by_its_content() {
    let place = Place::new();
    let mut ext4 = vec![0; 70_000];
    ext4[1080..1082].copy_from_slice(&[0x53, 0xef]);
    ext4[1120] = 0x40;
    let zip = b"PK\x03\x04 and more".to_vec();
    for (name, bytes, held) in [
        ("image", ext4, "it holds ext4"),
        ("zip", zip, "it holds a zip archive"),
        ("empty", vec![], "it holds nothing"),
    ] {
        fs::write(place.path(name), bytes).unwrap();
        for line in [format!("info {name}"), format!("check po2:{name}"), format!("mkfs -f {name}")]
        {
            let output = place.zonal(&line);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_ne!(output.status.code(), Some(0), "{line}: {error}");
            let why = format!("{name} is not a zoned drive: {held}");
            assert!(error.contains(&why) && !error.contains("try:"), "{line}: {error}");
        }
    }
}

/// The names in the directory.
fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn create_beyond_limit_of_file_size_changes_nothing() {
    let place = Place::new();
    let (before, kept) = (names(&place), fs::read(place.path("kept.zns")).unwrap());
    for line in ["create new.zns --zones 60", "create kept.zns --zones 60 --force"] {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -f 100; exec {} {line}", env!("CARGO_BIN_EXE_zonal"));
        let output = shell.args(["-c", &script]).current_dir(place.folder.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {error}");
        for words in
            ["the drive needs a file of 7.5 GiB", "`ulimit -f`", "try: `ulimit -f unlimited`"]
        {
            assert!(error.contains(words), "{line}: {error}");
        }
        assert_eq!(names(&place), before, "{line}");
        assert!(fs::read(place.path("kept.zns")).unwrap() == kept, "{line}");
    }
}

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn create_on_full_host_leaves_nothing() {
    let place = Place::new();
    let host = place.path("mnt");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&host)
        .output()
        .unwrap();
    if !mount.status.success() {
        println!("SKIP: no tmpfs can be mounted here");
        return;
    }
    let tried = ["", " --force"].map(|force| place.zonal(&format!("create mnt/new.zns{force}")));
    let left = fs::read_dir(&host).unwrap().count();
    assert!(Command::new("umount").arg(&host).status().unwrap().success());
    for output in tried {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("no space left on the host"), "{error}");
    }
    assert_eq!(left, 0);
}
