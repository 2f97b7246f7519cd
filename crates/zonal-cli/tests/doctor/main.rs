//! `zonal doctor` on real drives and mounts: seeded faults that it has to name, and set-ups that
//! are well; and `zonal map` on the same. The faults of machines are in `src/cmd/doctor/tests.rs`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod drives;
mod map;
mod mounts;
mod served;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const ZONAL: &str = env!("CARGO_BIN_EXE_zonal");

/// A directory with drives and mount points, whose mounts end when this is dropped.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        Self { folder }
    }

    /// `None`, with a word why, where nothing can be mounted.
    fn mountable() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        Some(Self::new())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(ZONAL);
        command.args(line.split(' ')).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed.
    fn must(&self, line: &str) {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A drive with a Furrow.
    fn make(&self) {
        self.must("create drive.zns --zones 40 --zone-size 1MiB");
        self.must("mkfs drive.zns");
    }

    fn mount(&self, options: &str) {
        self.must(&format!("mount drive.zns mnt --log log -o {options}"));
    }

    /// The report on `what`, and the exit code.
    fn look(&self, what: &str) -> (Value, Option<i32>) {
        let output = self.run(&format!("doctor {what} --json"));
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}\n{errors}"));
        (report, output.status.code())
    }

    /// The command names a fault by these words, and by its exit code.
    #[track_caller]
    fn names(&self, what: &str, words: &str) {
        let (report, code) = self.look(what);
        let findings = report["findings"].as_array().unwrap();
        let is_it = |found: &&Value| {
            let text = ["symptom", "consequence"].map(|part| found[part].as_str().unwrap());
            found["severity"] != "note" && text.concat().contains(words)
        };
        assert!(findings.iter().any(|found| is_it(&found)), "{words:?}: {report:#}");
        assert_eq!((code, &report["healthy"]), (Some(1), &Value::Bool(false)));
    }

    /// The command raises no alarm.
    #[track_caller]
    fn is_well(&self, what: &str) {
        let (report, code) = self.look(what);
        assert_eq!(code, Some(0), "{report:#}");
        assert_eq!(report["healthy"], true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.run("umount --force mnt"));
    }
}

#[test]
fn doctor_of_this_machine_prints_facts() {
    let place = Place::new();
    let (report, code) = place.look("--verbose");
    assert!(matches!(code, Some(0 | 1)), "{report:#}");
    assert_eq!(report["looked_at"], "machine");
    assert!(report["facts"]["kernel"].as_str().is_some(), "{report:#}");
}

#[test]
fn doctor_of_missing_device_or_plain_directory_fails() {
    let place = Place::new();
    for (what, words) in [("nothing.zns", "No such file"), ("mnt", "is a directory, not a device")]
    {
        let output = place.run(&format!("doctor {what}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(words), "{what}: {said}");
        assert!(output.stdout.is_empty(), "{what}");
    }
}
