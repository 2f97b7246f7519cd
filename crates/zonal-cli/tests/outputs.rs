//! Files that the command writes: what writing would destroy is refused, by every command and
//! under every name.
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

    /// Runs a command that has to be refused for `why`.
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
        // A mount that should have been refused.
        let _ = self.zonal("umount mnt");
    }
}

/// What no output may be.
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

    /// Puts it at a path; `None` without the right to do so, else why it is refused.
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
            // The trace layer makes its file anew.
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
        // The same where messages go there too, also of what fails.
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
