//! `zonal serve nbd`: disks of a drive file, as clients of other projects see them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod live;
mod programs;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use zonal::{BlockSize, ByteCount, OpenMode, SystemClock, spec};
use zonal_fs::disk::{DiskSettings, Disks};
use zonal_fs::volume::{Volume, VolumeOptions};

/// A folder with a drive that has the disks `root` and, with blocks of 512 bytes, `small`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self::with_zones(64);
        let clock = Arc::new(SystemClock::new());
        let path = place.file("drive.zns");
        let drive = spec::open(path.to_str().unwrap(), OpenMode::ReadWrite, clock.clone()).unwrap();
        let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
        let disks = Disks::new(volume).unwrap();
        let small = DiskSettings { block_size: BlockSize::B512, ..DiskSettings::default() };
        for (name, settings) in [("root", DiskSettings::default()), ("small", small)] {
            disks.create(&name.parse().unwrap(), ByteCount::new(32 << 20), settings).unwrap();
        }
        disks.close().unwrap();
        place
    }

    /// A folder with a drive that has no disks.
    fn with_zones(zones: u32) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.must(&format!("create drive.zns --zones {zones} --zone-size 4MiB"));
        place.must("mkfs drive.zns");
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn zonal(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.current_dir(self.0.path()).args(line.split(' ')).stdin(Stdio::null());
        command
    }

    fn must(&self, line: &str) -> String {
        text(&self.zonal(line).output().unwrap())
    }

    /// The error of arguments that are refused.
    fn refused(&self, line: &str) -> String {
        let output = self.zonal(line).output().unwrap();
        assert!(!output.status.success(), "{line}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Serves, and waits until clients can connect.
    fn serve(&self, line: &str) -> Served {
        let line = format!("serve nbd --json --unix socket {line}");
        let mut child = self.zonal(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut answer = String::new();
        while !answer.ends_with("}\n") {
            assert!(stdout.read_line(&mut answer).unwrap() > 0, "it ended: {answer}");
        }
        let answer = serde_json::from_str(&answer).unwrap();
        Served { child, answer, stdout: Box::new(stdout) }
    }

    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.file("socket").display())
    }
}

/// A server, which ends with the test at the latest.
struct Served {
    child: Child,
    answer: Value,
    stdout: Box<dyn Read>,
}

impl Served {
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && rest.is_empty(), "{status}: {rest}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

/// Whether a program is installed; prints a message if it is not.
fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.any(|folder| folder.join(name).is_file());
    if !found {
        println!("SKIP: {name} is not installed");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> String {
    text(&Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap())
}

/// A file of the size of a disk: data, with holes between.
fn sparse_file(path: &Path) {
    let mut content = vec![0; 32 << 20];
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for piece in content.chunks_mut(1 << 20).step_by(3) {
        rng.fill(&mut piece[..700 << 10]);
    }
    fs::write(path, content).unwrap();
}

#[test]
fn disks_keep_what_clients_write_over_restarts() {
    if !has("qemu-img") || !has("qemu-io") {
        return;
    }
    let place = Place::new();
    let file = place.file("file");
    sparse_file(&file);
    let file = file.to_str().unwrap();
    let served = place.serve("drive.zns//root drive.zns//small");
    for name in ["root", "small"] {
        let there = ["-n", file, &place.uri(name)];
        run("qemu-img", &[&["convert", "-f", "raw", "-O", "raw"][..], &there].concat());
    }
    served.stop();
    let served = place.serve("drive.zns//root drive.zns//small --read-only");
    for name in ["root", "small"] {
        let uri = place.uri(name);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", file, &uri]);
        let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri]);
        assert!(map.matches("\"zero\": true").count() >= 10, "{map}");
        let write = ["-f", "raw", "-c", "write 0 4k", &uri];
        let refused = Command::new("qemu-io").args(write).output().unwrap();
        assert!(!refused.status.success(), "{refused:?}");
    }
    served.stop();
    let served = place.serve("drive.zns//root");
    let work = ["discard 3M 1M", "write -z 6M 1M", "write -f -P 7 9M 8k", "flush"];
    let look = ["read -P 0 3M 1M", "read -P 0 6M 1M", "read -P 7 9M 8k"];
    for commands in [&work[..], &look] {
        let mut line = vec!["-f", "raw", "-d", "unmap"];
        line.extend(commands.iter().flat_map(|command| ["-c", *command]));
        let uri = place.uri("root");
        line.push(&uri);
        let said = run("qemu-io", &line);
        assert!(!said.contains("failed"), "{said}");
    }
    served.stop();
    let checked = place.must("check drive.zns");
    assert!(checked.contains("clean"), "{checked}");
}

#[test]
fn server_says_where_it_is_and_holds_its_drive() {
    let place = Place::new();
    let served = place.serve("drive.zns//root --listen 127.0.0.1:0");
    let addresses = served.answer["addresses"].as_array().unwrap();
    assert!(addresses[0].as_str().unwrap().starts_with("127.0.0.1:"), "{addresses:?}");
    assert_eq!(addresses[1], "unix:socket");
    assert_eq!(served.answer["disks"], json!(["drive.zns//root"]));
    let busy = place.refused("serve nbd drive.zns//small --unix other");
    assert!(busy.contains("drive.zns"), "{busy}");
    served.stop();
    assert!(!place.file("socket").exists());
}

#[test]
fn arguments_that_name_no_disk_are_refused() {
    let place = Place::new();
    for (line, why) in [
        ("drive.zns//home --unix s", "home"),
        ("drive.zns --unix s", "names no disk: DEVICE//NAME"),
        ("drive.zns//root drive.zns//root --unix s", "root"),
        ("drive.zns//root --tls-required", "--tls-certificate"),
        ("drive.zns//root --tls-certificate a --tls-key b --unix s", "reading the files of TLS"),
        ("drive.zns//root --unix drive.zns", "no socket"),
    ] {
        let said = place.refused(&format!("serve nbd {line}"));
        assert!(said.contains(why), "{line}: {said}");
    }
    assert!(!place.file("s").exists());
}

/// Runs commands of qemu-io on a disk.
fn qemu_io(uri: &str, commands: &[&str]) {
    let mut line = vec!["-f", "raw"];
    if commands.iter().all(|command| command.starts_with("read")) {
        line.push("-r");
    }
    line.extend(commands.iter().flat_map(|command| ["-c", *command]));
    line.push(uri);
    let said = run("qemu-io", &line);
    assert!(!said.contains("failed"), "{said}");
}
