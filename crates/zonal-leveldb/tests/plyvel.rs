//! Debian's python3-plyvel on a drive file, with the library loaded into it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use zonal::file::{CreateOptions, FileDrive, OpenMode, Overwrite};
use zonal::profile::Changes;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, CheckOptions, DataCheck, MkfsOptions, MountOptions};
use zonal_fs::volume::{Volume, VolumeOptions, WriteLifetime};

/// Debian's own: another Python that is first on the path does not have its modules.
const PYTHON: &str = "/usr/bin/python3";

/// The library; `None` where it cannot be used, after saying why.
fn library() -> Option<PathBuf> {
    if !zonal_leveldb::HAS_LEVELDB {
        println!("SKIP: built without LevelDB's headers (libleveldb-dev) or a C++ compiler");
        return None;
    }
    let import = Command::new(PYTHON).args(["-c", "import plyvel"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        println!("SKIP: there is no python3-plyvel");
        return None;
    }
    // Beside the tests: cargo builds the library for them.
    let test = std::env::current_exe().unwrap();
    Some(test.parent().unwrap().join("libzonal_leveldb.so"))
}

struct Place {
    folder: TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        let library = library()?;
        let place = Self { folder: tempfile::tempdir().unwrap(), library };
        std::fs::create_dir(place.path("memory")).unwrap();
        let options = CreateOptions {
            geometry: "zone=4M,zones=64".parse::<Changes>().unwrap().geometry().unwrap(),
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Refuse,
        };
        FileDrive::create(place.path("drive.zns"), &options).unwrap();
        let options = MkfsOptions { uuid: [8; 16], ..MkfsOptions::default() };
        let clock = SystemClock::new();
        furrow::mkfs(Arc::new(place.drive()), &clock, &options, &mut |_| ()).unwrap();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn drive(&self) -> FileDrive {
        FileDrive::open(self.path("drive.zns"), OpenMode::ReadWrite).unwrap()
    }

    /// Python with the library.
    fn python(&self, script: &str) -> Command {
        let memory = self.path("memory");
        let address = format!("{}?unsynced={}", self.path("drive.zns").display(), memory.display());
        let mut command = Command::new(PYTHON);
        command.env("LD_PRELOAD", &self.library).env("ZONAL_LEVELDB", address);
        command.current_dir(self.folder.path()).args(["-c", script]);
        command
    }

    /// What a script prints.
    fn run(&self, script: &str) -> String {
        let output = self.python(script).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn check(&self) {
        let options = CheckOptions { data: DataCheck::Read, memory: MountOptions::MEMORY.get() };
        let report = furrow::check(Arc::new(self.drive()), options, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{:?} {:?}", report.problems, report.losses);
    }
}

const FILL: &str = "
import plyvel
db = plyvel.DB('/kv', create_if_missing=True, write_buffer_size=1 << 20)
for round in range(2):
    for n in range(20000):
        db.put(b'%08d' % n, b'%d-' % round + b'v' * 300)
db.delete(b'00000007')
db.close()
";

const READ: &str = "
import plyvel
db = plyvel.DB('/kv')
print(sum(1 for _ in db), db.get(b'00000007'), db.get(b'00019999')[:4])
db.close()
";

#[test]
fn an_unmodified_program_runs_on_a_drive() {
    let Some(place) = Place::new() else { return };
    place.run(FILL);
    assert_eq!(place.run(READ), "19999 None b'1-vv'\n");
    assert_eq!(std::fs::read_dir(place.path("memory")).unwrap().count(), 0, "it was closed");
    place.check();
    let clock = Arc::new(SystemClock::new());
    let volume = Volume::mount(Arc::new(place.drive()), clock, &VolumeOptions::default()).unwrap();
    let entries = volume.read_dir("/kv").unwrap();
    let names: Vec<String> =
        entries.map(|entry| entry.unwrap().name.into_string().unwrap()).collect();
    for (ending, lifetime) in [(".ldb", WriteLifetime::Medium), (".log", WriteLifetime::Short)] {
        let name = names.iter().find(|name| name.ends_with(ending)).unwrap();
        let file = volume.open(format!("/kv/{name}")).unwrap();
        assert_eq!(file.write_lifetime().unwrap(), lifetime, "{name}");
    }
    assert!(names.iter().any(|name| name == "CURRENT"), "{names:?}");
}

#[test]
fn what_was_put_is_there_after_a_kill() {
    let Some(place) = Place::new() else { return };
    let mut child = place
        .python(
            "
import plyvel
db = plyvel.DB('/kv', create_if_missing=True, write_buffer_size=1 << 18)
n = 0
while True:
    db.put(b'%08d' % n, b'v' * 500)
    n += 1
    print(n, flush=True)
",
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut puts = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0;
    while last < 5000 {
        last = puts.next().expect("it runs until it is killed").unwrap().parse::<u64>().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // A number that was cut off is less than those before it.
    let more = puts.map_while(|line| line.ok()?.parse().ok());
    let last = more.chain([last]).max().unwrap();
    let count = "
import plyvel
keys = [int(key) for key in plyvel.DB('/kv').iterator(include_value=False)]
assert keys == list(range(len(keys)))
print(len(keys))
";
    let found: u64 = place.run(count).trim().parse().unwrap();
    assert!(found >= last, "{found} of {last}");
    place.check();
}

#[test]
fn without_a_drive_files_are_where_they_always_were() {
    let Some(place) = Place::new() else { return };
    let script = FILL.replace("/kv", "kv");
    let output = place.python(&script).env_remove("ZONAL_LEVELDB").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(place.path("kv/CURRENT").exists());
}

#[test]
fn a_drive_that_cannot_be_opened_fails_with_the_reason() {
    let Some(place) = Place::new() else { return };
    let refused = |address: Option<&str>, why: &str| {
        let mut command = place.python(FILL);
        if let Some(address) = address {
            command.env("ZONAL_LEVELDB", address);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
    };
    let drive = place.drive();
    refused(None, "in use by another process");
    drop(drive);
    refused(Some("/nonexistent"), "No such file");
    refused(Some("mem:zone=4M,zones=64"), "no Furrow on the device");
}
