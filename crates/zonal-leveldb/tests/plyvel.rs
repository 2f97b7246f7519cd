//! Debian's python3-plyvel on a drive file, with the library loaded into it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::layer::meter::OpKind;
use zonal::layer::trace::TraceReader;
use zonal::profile::Changes;
use zonal::{LbaCount, Rules, Select, SystemClock, ZoneAction, ZoneId, ZonedDevice};
use zonal_fs::furrow::{self, CheckOptions, DataCheck, MkfsOptions, MountOptions};
use zonal_fs::volume::{Volume, VolumeOptions, WriteLifetime};
use zonal_fs::zonefs;

/// Debian's own: another Python that is first on the path does not have its modules.
const PYTHON: &str = "/usr/bin/python3";

/// The library; `None`, after a message, where it cannot be used.
fn library() -> Option<PathBuf> {
    let import = Command::new(PYTHON).args(["-c", "import plyvel"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        println!("SKIP: there is no python3-plyvel");
        return None;
    }
    // Next to the tests: cargo builds the library for them.
    let test = std::env::current_exe().unwrap();
    Some(test.parent().unwrap().join("libzonal_leveldb.so"))
}

struct Place {
    folder: TempDir,
    library: PathBuf,
}

impl Place {
    /// A drive with Furrow.
    fn new() -> Option<Self> {
        Self::shaped("zone=4M,zones=64")
    }

    /// A drive of this shape with Furrow.
    fn shaped(shape: &str) -> Option<Self> {
        let place = Self::blank(shape)?;
        let options = MkfsOptions { uuid: [8; 16], ..MkfsOptions::default() };
        let clock = SystemClock::new();
        furrow::mkfs(Arc::new(place.drive()), &clock, &options, &mut |_| ()).unwrap();
        Some(place)
    }

    /// A drive with zonefs.
    fn zonefs(shape: &str) -> Option<Self> {
        let place = Self::blank(shape)?;
        let options = zonefs::MkfsOptions { uuid: [8; 16], ..zonefs::MkfsOptions::default() };
        zonefs::mkfs(&place.drive(), &options, &mut |_| ()).unwrap();
        Some(place)
    }

    fn blank(shape: &str) -> Option<Self> {
        let library = library()?;
        let place = Self { folder: tempfile::tempdir().unwrap(), library };
        std::fs::create_dir(place.path("memory")).unwrap();
        let options = CreateOptions {
            geometry: shape.parse::<Changes>().unwrap().geometry().unwrap(),
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Refuse,
        };
        FileDrive::create(place.path("drive.zns"), &options).unwrap();
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

    /// The output of a script.
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
fn plyvel_runs_unmodified_on_drive() {
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
fn kill_keeps_what_was_put() {
    let Some(place) = Place::new() else { return };
    kill(&place);
    place.check();
}

#[test]
fn kill_keeps_what_was_put_on_zonefs() {
    let Some(place) = Place::zonefs("zone=4M,zones=32") else { return };
    // The second time there is something to write again, and tables to keep.
    for _ in 0..2 {
        kill(&place);
        place.run("import plyvel; plyvel.destroy_db('/kv')");
    }
}

/// Kills a program that puts, and counts the keys that it has put.
fn kill(place: &Place) {
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
    // A number that was cut off is less than the numbers before it.
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
}

#[test]
fn files_without_drive_stay_on_host() {
    let Some(place) = Place::new() else { return };
    let script = FILL.replace("/kv", "kv");
    let output = place.python(&script).env_remove("ZONAL_LEVELDB").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(place.path("kv/CURRENT").exists());
}

#[test]
fn open_failure_is_reported_with_reason() {
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

#[test]
fn variable_without_drive_fails_and_writes_nothing() {
    let Some(place) = Place::new() else { return };
    // As from a shell where the variable that was to name the drive is not set.
    let script = FILL.replace("/kv", "kv");
    let output = place.python(&script).env("ZONAL_LEVELDB", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("it names no device"), "{said}");
    assert!(!place.path("kv").exists());
}

#[test]
fn plyvel_runs_unmodified_on_zonefs() {
    // Tables of 2 MiB, one in a zone; and zones smaller than a table and no power of two.
    for shape in ["zone=4M,zones=48", "zone=1M,capacity=768K,zones=200", "zone=3M,zones=64"] {
        let Some(place) = Place::zonefs(shape) else { return };
        place.run(FILL);
        assert_eq!(place.run(READ), "19999 None b'1-vv'\n", "{shape}");
        place.run("import plyvel; plyvel.DB('/kv').compact_range()");
        assert_eq!(place.run(READ), "19999 None b'1-vv'\n", "{shape}");
        assert_eq!(std::fs::read_dir(place.path("memory")).unwrap().count(), 0, "it was closed");
        // It is a zonefs, and most of it is empty.
        let device = Arc::new(place.drive());
        let clock = Arc::new(SystemClock::new());
        let zones = zonefs::ZoneFs::mount(device, clock, zonefs::MountOptions::default()).unwrap();
        let stats = zones.stats();
        assert!(stats.used_bytes < stats.capacity_bytes / 2, "{shape}: {stats:?}");
    }
}

#[test]
fn memory_drive_gets_zonefs_for_process() {
    let Some(place) = Place::zonefs("zone=4M,zones=32") else { return };
    for address in ["po2:mem:zone=3M,zones=64?format=zonefs", "mem:zone=4M,zones=64?format=zonefs"]
    {
        let output = place.python(FILL).env("ZONAL_LEVELDB", address).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn tables_are_written_whole_and_read_from_memory() {
    let Some(place) = Place::zonefs("zone=4M,zones=32") else { return };
    let script = format!("{FILL}{READ}").replace("'/kv'", "'/kv', compression=None");
    let address = "trace(run.trace):mem:zone=4M,zones=64?format=zonefs";
    let output = place.python(&script).env("ZONAL_LEVELDB", address).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "19999 None b'1-vv'\n", "{output:?}");
    let mut trace = TraceReader::open(place.path("run.trace")).unwrap();
    let (mut largest, mut read) = (LbaCount::ZERO, LbaCount::ZERO);
    while let Ok(operation) = trace.operation().unwrap() {
        match operation.kind {
            OpKind::Write | OpKind::Append => largest = largest.max(operation.blocks.unwrap()),
            OpKind::Read if largest > LbaCount::ZERO => read += operation.blocks.unwrap(),
            _ => {}
        }
    }
    assert!(trace.bytes(largest).get() >= 1 << 20, "{largest} blocks at once");
    // The second database reads the log of the first one, of at most 1 MiB.
    assert!(trace.bytes(read).get() < 2 << 20, "{read} blocks of 6 MiB");
}

/// Puts and deletes with a sync each, and prints each finished operation.
const SYNCED: &str = "
import plyvel
db = plyvel.DB('/kv', create_if_missing=True, write_buffer_size=1 << 17)
n = 0
while True:
    db.put(b'%08d' % n, b'v' * 700, sync=True)
    print(n, flush=True)
    if n >= 10:
        db.delete(b'%08d' % (n - 10), sync=True)
        print(-(n - 10) - 1, flush=True)
    n += 1
";

#[test]
fn power_cut_keeps_synced_puts_on_zonefs() {
    let mut most = 0;
    for (seed, nth) in [(1, 30), (2, 101), (3, 222), (4, 450), (5, 777), (6, 1100), (7, 1501)] {
        let Some(place) = Place::zonefs("zone=1M,zones=64") else { return };
        let drive = place.path("drive.zns");
        let layer = format!("fault(write,nth={nth},power-cut;seed={seed})");
        let mut command = place.python(SYNCED);
        command.env("ZONAL_LEVELDB", format!("{layer}:{}?unsynced=off", drive.display()));
        let ended = command.output().unwrap();
        assert!(!ended.status.success(), "the power was not cut");
        let said = String::from_utf8(ended.stdout).unwrap();
        let done: Vec<i64> = said.lines().map(|line| line.parse().unwrap()).collect();
        let put = done.iter().copied().max().unwrap_or(-1);
        let deleted = -done.iter().copied().min().unwrap_or(0).min(0) - 1;
        let found = place.run(
            "
import plyvel
db = plyvel.DB('/kv', create_if_missing=True, paranoid_checks=True)
print(*[int(key) for key in db.iterator(include_value=False)])
",
        );
        let keys: Vec<i64> = found.split_whitespace().map(|key| key.parse().unwrap()).collect();
        for key in deleted + 1..=put {
            // One deletion may have been on its way.
            assert!(keys.contains(&key) || key == deleted + 1, "seed {seed}: {key} is missing");
        }
        assert!(keys.iter().all(|key| *key > deleted), "seed {seed}: {keys:?} up to {deleted}");
        most = most.max(put);
    }
    assert!(most > 200, "only {most} puts before any cut");
}

#[test]
fn full_zonefs_is_reported_and_takes_more_after_delete() {
    let Some(place) = Place::zonefs("zone=2M,zones=40") else { return };
    let fill = "
import plyvel, os
db = plyvel.DB(PATH, create_if_missing=True, write_buffer_size=1 << 20, max_file_size=1 << 20)
n = 0
while n < COUNT:
    db.put(b'%08d' % n, os.urandom(1000))
    n += 1
";
    let some = fill.replace("PATH", "'/ballast'").replace("COUNT", "8000");
    place.run(&some);
    let many = fill.replace("PATH", "'/kv'").replace("COUNT", "60000");
    let refused = place.python(&many).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no space left"), "{said}");
    place.run("import plyvel; plyvel.destroy_db('/ballast')");
    let more = "
import plyvel
db = plyvel.DB('/kv')
before = sum(1 for _ in db)
db.put(b'more', b'value', sync=True)
assert before > 5000 and sum(1 for _ in db) == before + 1
for key in list(db.iterator(include_value=False)):
    db.delete(key)
db.compact_range()
db.close()
";
    place.run(more);
    // When LevelDB deletes tables that a compaction has replaced depends on its threads.
    place.run("import plyvel; plyvel.destroy_db('/kv')");
    // Everything was deleted: there is room for as much again.
    place.run(&some);
}

/// Fills a drive until a put is refused, twice: at once, and when the store was opened again. Then
/// it goes on in the room that another store has left.
const FULL: &str = "
import hashlib, plyvel

def value(n):
    return hashlib.shake_128(b'%d' % n).digest(3000)

def opened(path):
    return plyvel.DB(path, create_if_missing=True, write_buffer_size=1 << 20, max_file_size=1 << 20)

def check(db, end):
    number = 0
    for key, found in db.iterator(verify_checksums=True):
        assert key == b'%08d' % number, (key, number)
        assert found == value(number), number
        number += 1
    assert number == end, (number, end)

def fill(db, end):
    try:
        while True:
            db.put(b'%08d' % end, value(end))
            end += 1
    except plyvel.IOError as error:
        assert 'no space left on device' in str(error), error
    return end

ballast = opened('/ballast')
for n in range(6000):
    ballast.put(b'%08d' % n, value(n))
ballast.close()

db = opened('/kv')
end = fill(db, 0)
assert end > 5000, end
for again in range(3):
    check(db, end)
    db.close()
    db = opened('/kv')
    check(db, end)
    end = fill(db, end)
    print('full', end)
db.close()
plyvel.destroy_db('/ballast')
db = opened('/kv')
check(db, end)
for n in range(3000):
    db.put(b'%08d' % end, value(end))
    end += 1
for n in range(end - 100, end):
    db.delete(b'%08d' % n)
end -= 100
db.compact_range()
check(db, end)
db.close()
db = opened('/kv')
check(db, end)
db.close()
";

#[test]
fn filled_drive_opens_again_and_goes_on_with_room() {
    for place in [Place::shaped("zone=1M,zones=96"), Place::zonefs("zone=1M,zones=96")] {
        let Some(place) = place else { return };
        let said = place.run(FULL);
        assert_eq!(said.matches("full").count(), 3, "{said}");
        println!("{said}");
    }
}

#[test]
fn zonefs_in_use_or_damaged_is_refused_with_reason() {
    let Some(place) = Place::zonefs("zone=4M,zones=32") else { return };
    let refused = |why: &str| {
        let output = place.python(FILL).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
    };
    let drive = place.drive();
    refused("in use by another process");
    drop(drive);
    place.run(FILL);
    // Of the map in use, the first record: others follow it.
    let drive = place.drive();
    let maps = [1, 2].map(|zone| drive.zone(ZoneId::new(zone)).unwrap());
    let map = maps.iter().max_by_key(|zone| zone.written().unwrap()).unwrap();
    let mut content = vec![0; usize::try_from(map.written().unwrap().get()).unwrap() * 4096];
    drive.read(map.start, &mut content).unwrap();
    assert!(content.len() > 3 * 4096);
    content[90] ^= 1;
    for zone in &maps {
        drive.manage(Select::One(zone.id), ZoneAction::Reset).unwrap();
    }
    drive.write(map.start, &content).unwrap();
    drop(drive);
    refused("the name map is damaged");
}
