//! `--json`: each command prints documents of its schema, some command prints every field of a
//! schema, and `docs/json.md` has every name.
#![expect(clippy::unwrap_used, reason = "a test")]

mod mounted;
mod names;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use schema::{Places, compare, declared};
use serde_json::{Deserializer, Value};
use tempfile::TempDir;
use zonal::{FileDrive, OpenMode, SystemClock};
use zonal_fs::vfs::XattrMode;
use zonal_fs::volume::{Volume, VolumeOptions};

/// Schemas of `serve ublk`, which needs a kernel with ublk, and of `serve nbd`, in `tests/nbd`.
const ELSEWHERE: [&str; 2] = ["serve-nbd", "serve-ublk"];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The schemas that `zonal schemas` writes, by command.
fn schemas() -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let output = zonal(folder.path(), "schemas .").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let schema = |path: &Path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    entries.map(|path| (name(&path), schema(&path))).collect()
}

fn zonal(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.args(line.split(' ')).arg("--json").current_dir(folder).stdin(Stdio::null());
    command
}

/// A directory in which commands run, and the fields that they have printed so far.
struct Place {
    folder: TempDir,
    schemas: BTreeMap<String, Value>,
    shown: BTreeMap<String, Places>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("words"), "one two three").unwrap();
        Self { folder, schemas: schemas(), shown: BTreeMap::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn output(&self, line: &str) -> Output {
        zonal(self.path(), line).output().unwrap()
    }

    /// Runs a command that ends with `code`, and compares all it prints with the schema of `name`.
    fn ends(&mut self, code: i32, name: &str, line: &str) -> Vec<Value> {
        let output = self.output(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {error}");
        let documents: Result<Vec<Value>, _> =
            Deserializer::from_slice(&output.stdout).into_iter().collect();
        let documents = documents.unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(!documents.is_empty(), "{line} prints nothing");
        for document in &documents {
            self.compare(name, document);
        }
        documents
    }

    fn must(&mut self, name: &str, line: &str) -> Vec<Value> {
        self.ends(0, name, line)
    }

    /// Runs a command that prints nothing.
    fn quiet(&self, line: &str) {
        let output = self.output(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    }

    fn compare(&mut self, name: &str, document: &Value) {
        let schema = self.schemas.get(name).unwrap_or_else(|| panic!("{name} has no schema"));
        let shown = compare(schema, document).unwrap_or_else(|why| panic!("{name}: {why}"));
        self.shown.entry(name.to_owned()).or_default().extend(shown);
    }

    /// Every field of the schemas that were used was printed, but those below `others`.
    fn assert_all_shown(&self, others: &[&str]) {
        for (name, shown) in &self.shown {
            let mut all = Places::new();
            declared(&self.schemas[name], "#", &mut all);
            all.retain(|place| !others.iter().any(|other| place.starts_with(other)));
            let hidden: Vec<_> = all.difference(shown).collect();
            assert!(hidden.is_empty(), "no command printed these of {name}: {hidden:#?}");
        }
    }
}

#[test]
fn json_schemas_are_all_compared_with_output() {
    let mut names: Vec<&str> = DRIVES.iter().map(|(name, _)| *name).collect();
    names.extend(SIMULATOR.iter().map(|(name, _)| *name));
    names.extend(mounted::COMMANDS);
    names.extend(ELSEWHERE);
    names.extend(["check", "doctor", "error", "map", "serve-nvme-tcp", "stat"]);
    let schemas = schemas();
    let missing: Vec<_> = schemas.keys().filter(|name| !names.contains(&&***name)).collect();
    assert!(missing.is_empty(), "no test runs {missing:?}");
}

/// Commands on drives: the name of the schema, and the command line.
const DRIVES: [(&str, &str); 35] = [
    ("create", "create drive.zns --zones 60 --zone-size 1MiB"),
    ("create", "create parts.zns --profile small --piece-size 2MiB"),
    ("mkfs", "mkfs drive.zns --dry-run"),
    ("mkfs", "mkfs drive.zns --label words"),
    ("info", "info drive.zns"),
    ("zones", "zones drive.zns"),
    ("df", "df drive.zns"),
    ("create", "create disks.zns --zones 60 --zone-size 1MiB"),
    ("mkfs", "mkfs disks.zns"),
    ("disk-create", "disk create disks.zns one --size 1MiB"),
    ("disk-resize", "disk resize disks.zns one --size 2MiB"),
    ("disk-snapshot", "disk snapshot disks.zns one monday"),
    ("disk-clone", "disk clone disks.zns one@monday two --thin"),
    ("disk-info", "disk info disks.zns two"),
    ("disk-list", "disk list disks.zns"),
    ("create", "create plain.zns --profile small"),
    ("info", "info plain.zns"),
    ("info", "info mem:zones=9,conventional=0-1,4"),
    ("write", "write plain.zns --lba 0 --input words"),
    ("append", "append plain.zns --zone 7 --input words"),
    ("read", "read plain.zns --lba 0 --blocks 3 --output out"),
    ("zones", "zones plain.zns"),
    ("zone", "zone open plain.zns 8"),
    ("zone", "zone close plain.zns 8"),
    ("zone", "zone finish plain.zns 8"),
    ("zone", "zone reset plain.zns --all"),
    ("zone", "zone read-only plain.zns 9"),
    ("zone", "zone offline plain.zns 10"),
    ("mkzonefs", "mkzonefs plain.zns --label words --force"),
    ("append", "append trace(trace):mem:profile=small --zone 7 --input words"),
    ("trace-replay", "trace replay trace mem:profile=small"),
    ("bench", "bench mem: --op write,append,read,randread --block-size 4KiB --seconds 0.02"),
    ("bench", "bench sim:hc620 --op randread --block-size 4KiB --seconds 0.1"),
    ("compliance", "compliance mem:profile=small --zones 0-15 --force --before-cut cut.json"),
    ("quickstart", "quickstart --no-mount --place quickstart --dir tree"),
];

/// Commands of the simulator, likewise.
const SIMULATOR: [(&str, &str); 17] = [
    ("sim-config", "sim config"),
    ("sim-config", "sim config small"),
    ("sim-fields", "sim fields"),
    ("sim-show", "sim show zns"),
    ("sim-show", "sim show conventional-7"),
    ("sim-show", "sim show hc620"),
    (
        "sim-run",
        "sim run small --set run.drive_writes=0.2 --set run.warm_up=0 --set run.sample=0.1",
    ),
    ("sim-run", "sim run small --set run.mode=timed --set run.seconds=0.001"),
    ("sim-fs", "sim fs --no-verify --set flash.superblocks=128 --set workload.fill=0.3"),
    (
        "sim-sweep",
        "sim sweep small --set run.drive_writes=0.1 --set run.warm_up=0 --over op=20,40 --out runs.csv",
    ),
    ("sim-experiment", "sim experiment cost --quick"),
    ("sim-experiment", "sim experiment throughput --quick"),
    ("sim-reproduce", "sim reproduce --quick --out reproduced"),
    ("sim-replay", "sim replay msr.csv"),
    ("sim-replay", "sim replay msr.csv --set run.mode=timed"),
    (
        "sim-run",
        "sim run small --set workload.kind=trace --set workload.trace=msr.csv --set trace.loops=1 --set run.warm_up=0",
    ),
    (
        "sim-run",
        "sim run small --set workload.kind=trace --set workload.trace=msr.csv --set trace.loops=1 --set run.warm_up=0 --set run.mode=timed",
    ),
];

#[test]
fn json_of_drive_commands_matches_schemas() {
    let mut place = Place::new();
    fs::create_dir(place.path().join("tree")).unwrap();
    fs::write(place.path().join("tree/words"), "one two three").unwrap();
    for (name, line) in DRIVES {
        place.must(name, line);
    }
    break_disk(&place.path().join("disks.zns"), "one");
    let found = place.must("disk-list", "disk list disks.zns");
    assert_eq!(found[0][0]["name"], "one", "{found:?}");
    let message = found[0][0]["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("one is no disk: "), "{found:?}");
    assert_eq!(found[0].as_array().unwrap().len(), 3, "the others are listed too: {found:?}");
    let mut list = Command::new(env!("CARGO_BIN_EXE_zonal"));
    let list = list.args(["disk", "list", "disks.zns"]).current_dir(place.path()).output().unwrap();
    let table = String::from_utf8(list.stdout).unwrap();
    assert!(table.contains(&format!("one cannot be read: {message}")), "{table}");
    place.quiet("cp words drive.zns:/words");
    place.quiet("ln -s words drive.zns:/soft");
    place.must("ls", "ls -l drive.zns:/");
    place.must("stat", "stat drive.zns:/words drive.zns:/soft");
    place.must("map", "map drive.zns");
    place.must("map", "map drive.zns:/words");
    place.must("check", "check drive.zns --data");
    // A zone with data of a file is lost.
    let maps = place.output("dump drive.zns maps").stdout;
    let map: Value = Deserializer::from_slice(&maps).into_iter().next().unwrap().unwrap();
    place.must("zone", &format!("zone offline drive.zns {} --force", map["zone"]));
    // A drive of NVMe, held to the rules of SCSI.
    let line = "compliance mem:zone=1M,zones=8,open=2,active=3 --zones 0-7 --force --rules zbc";
    let found = place.ends(4, "compliance", line);
    assert!(found[0]["totals"]["failed_must"].as_u64() > Some(0), "{found:?}");
    let found = place.ends(4, "check", "check drive.zns");
    assert_eq!(found[0]["losses"][0]["path"], "/words", "{found:?}");
    let found = place.ends(1, "doctor", "doctor drive.zns");
    assert_eq!(found[0]["findings"][0]["severity"], "broken", "{found:?}");
    serve(&mut place);
    // A step of quickstart has a note, which is left out where it is empty.
    place.assert_all_shown(&[]);
}

/// Gives a disk settings that nobody understands.
fn break_disk(drive: &Path, disk: &str) {
    let drive = Arc::new(FileDrive::open(drive, OpenMode::ReadWrite).unwrap());
    let clock = Arc::new(SystemClock::new());
    let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
    let file = volume.open(format!("disks/{disk}")).unwrap();
    file.set_xattr("user.zonal.disk", b"not settings", XattrMode::Any).unwrap();
    drop(file);
    volume.close().unwrap();
}

/// Serves a drive, compares the document that says it is ready, and ends the server.
fn serve(place: &mut Place) {
    let mut server = zonal(place.path(), "serve nvme-tcp plain.zns --listen 127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut text = String::new();
    while !text.ends_with("}\n") && stdout.read_line(&mut text).unwrap() > 0 {}
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let status = server.wait().unwrap();
    assert!(status.success(), "{status}");
    place.compare("serve-nvme-tcp", &serde_json::from_str(&text).unwrap());
}

#[test]
fn json_of_simulator_commands_matches_schemas() {
    let mut place = Place::new();
    let trace = docs().join("../fixtures/traces/msr.csv");
    fs::copy(trace, place.path().join("msr.csv")).unwrap();
    for (name, line) in SIMULATOR {
        place.must(name, line);
    }
    place.assert_all_shown(&[]);
}

/// Commands that fail: the line, its exit code, the errno, and whether there is something to try.
const FAILURES: [(&str, i32, Option<i32>, bool); 8] = [
    ("info nothing.zns", 1, Some(2), true),
    ("check nothing.zns", 8, Some(2), true),
    ("check drive.zns", 8, Some(22), true),
    ("ls drive.zns:/", 1, Some(22), true),
    ("create drive.zns", 1, Some(17), true),
    ("cp nothing other", 1, None, false),
    ("info", 2, None, false),
    ("check --nothing drive.zns", 16, None, false),
];

#[test]
fn json_failure_is_line_on_stderr_with_exit_code() {
    let mut place = Place::new();
    place.must("create", "create drive.zns --profile small");
    place.must("create", "create parts.zns --profile small --piece-size 2MiB");
    for (line, code, errno, is_hinted) in FAILURES {
        let output = place.output(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let document: Value = serde_json::from_str(text.lines().last().unwrap()).expect(&text);
        place.compare("error", &document);
        let facts = &document["error"];
        assert_eq!(facts["errno"].as_i64(), errno.map(i64::from), "{line}: {text}");
        assert_eq!(facts["hint"].is_string(), is_hinted, "{line}: {text}");
        assert!(!text.contains("try: ") && text.lines().count() == 1, "{line}: {text}");
        // Without it, the same is said in words.
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(line.split(' ')).current_dir(place.path());
        let plain = command.output().unwrap();
        assert_eq!(plain.status.code(), Some(code), "{line}");
        let words = String::from_utf8(plain.stderr).unwrap();
        let message = facts["message"].as_str().unwrap();
        assert!(words.contains(message.lines().next().unwrap()), "{line}: {words}");
    }
    place.assert_all_shown(&[]);
}
