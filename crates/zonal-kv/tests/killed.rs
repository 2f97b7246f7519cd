//! A process is killed, and the store is opened again: nothing that a call has written is missing.
//!
//! The process is this test once more, which ends itself by SIGKILL.
#![allow(clippy::unwrap_used, reason = "this is test code")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Signal, getpid, kill_process};
use tempfile::TempDir;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::{Clock, Rules, SystemClock};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::vfs::{SetAttr, SetTime};
use zonal_fs::volume::{OpenFlags, Volume, VolumeOptions, WriteLifetime};
use zonal_fs::zonefs::{self, Overwrite::Force};
use zonal_kv::{Store, StoreFile};

const CHILD: &str = "ZONAL_KV_TEST_URI";

const RECORD: [u8; 1000] = [b'r'; 1000];

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        std::fs::create_dir(place.memory()).unwrap();
        let options = CreateOptions {
            geometry: "zone=4M,zones=64"
                .parse::<zonal::profile::Changes>()
                .unwrap()
                .geometry()
                .unwrap(),
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Refuse,
        };
        FileDrive::create(place.drive(), &options).unwrap();
        let drive = Arc::new(FileDrive::open(place.drive(), OpenMode::ReadWrite).unwrap());
        let options = MkfsOptions { uuid: [7; 16], ..MkfsOptions::default() };
        furrow::mkfs(drive, &SystemClock::new(), &options, &mut |_| ()).unwrap();
        place
    }

    fn drive(&self) -> std::path::PathBuf {
        self.folder.path().join("drive.zns")
    }

    fn memory(&self) -> std::path::PathBuf {
        self.folder.path().join("memory")
    }

    fn uri(&self) -> String {
        format!("zonal://{}?unsynced={}", self.drive().display(), self.memory().display())
    }

    fn open(&self) -> Arc<Store> {
        Store::open(&self.uri()).unwrap()
    }

    /// Mounts the drive, as another program would.
    fn mount(&self, clock: Arc<dyn Clock>) -> Volume {
        let drive = Arc::new(FileDrive::open(self.drive(), OpenMode::ReadWrite).unwrap());
        Volume::mount(drive, clock, &VolumeOptions::default()).unwrap()
    }

    /// Runs `test` of this file as a process that is killed.
    fn run_until_killed(&self, test: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test]).env(CHILD, self.uri()).output().unwrap();
        assert_eq!(output.status.code(), None, "{output:?}");
    }
}

/// The store of the process that is to be killed; `None` in the test itself.
fn doomed() -> Option<Arc<Store>> {
    let uri = std::env::var(CHILD).ok()?;
    Some(Store::open(&uri).unwrap())
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    unreachable!("it was killed");
}

fn content(store: &Arc<Store>, path: &str) -> Vec<u8> {
    let file = StoreFile::open(store, Path::new(path), OpenFlags::READ).unwrap();
    let mut content = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(file.read(&mut content, 0).unwrap(), content.len());
    content
}

const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNCATE);

#[test]
fn kill_keeps_what_was_written() {
    if let Some(store) = doomed() {
        store.create_dir(Path::new("/kv")).unwrap();
        let log = StoreFile::open(&store, Path::new("/kv/log"), NEW).unwrap();
        for _ in 0..500 {
            log.append(&RECORD).unwrap();
        }
        // A table, cut to its length as RocksDB does it.
        let direct = NEW | OpenFlags::DIRECT;
        let table = StoreFile::open(&store, Path::new("/kv/table"), direct).unwrap();
        table.write(&vec![3; 1 << 20], 0).unwrap();
        table.set_len(1_000_001).unwrap();
        let current = StoreFile::open(&store, Path::new("/kv/new"), NEW).unwrap();
        current.append(b"MANIFEST-1\n").unwrap();
        store.rename(Path::new("/kv/new"), Path::new("/kv/CURRENT")).unwrap();
        let gone = StoreFile::open(&store, Path::new("/kv/gone"), NEW).unwrap();
        gone.append(b"deleted").unwrap();
        store.remove_file(Path::new("/kv/gone")).unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("kill_keeps_what_was_written");
    let store = place.open();
    assert_eq!(content(&store, "/kv/log"), RECORD.repeat(500));
    assert_eq!(content(&store, "/kv/table"), vec![3; 1_000_001]);
    assert_eq!(content(&store, "/kv/CURRENT"), b"MANIFEST-1\n");
    assert_eq!(store.list(Path::new("/kv")).unwrap().len(), 3);
    store.release().unwrap();
    let left = std::fs::read_dir(place.memory()).unwrap().count();
    assert_eq!(left, 0, "a store that is closed leaves nothing in memory");
}

#[test]
fn kill_keeps_large_unsynced_data() {
    if let Some(store) = doomed() {
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        // Several times the size of the memory.
        for number in 0..100_u8 {
            log.append(&vec![number; 900_000]).unwrap();
        }
        die();
    }
    let place = Place::new();
    place.run_until_killed("kill_keeps_large_unsynced_data");
    let found = content(&place.open(), "/log");
    let wanted: Vec<u8> = (0..100_u8).flat_map(|number| vec![number; 900_000]).collect();
    assert!(found == wanted, "{} bytes", found.len());
}

#[test]
fn kill_during_recovery_loses_nothing() {
    if let Some(store) = doomed() {
        if store.metadata(Path::new("/log")).is_err() {
            let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
            log.append(&RECORD).unwrap();
        }
        let log = OpenFlags::WRITE | OpenFlags::APPEND;
        StoreFile::open(&store, Path::new("/log"), log).unwrap().append(&RECORD).unwrap();
        die();
    }
    let place = Place::new();
    for _ in 0..3 {
        place.run_until_killed("kill_during_recovery_loses_nothing");
    }
    assert_eq!(content(&place.open(), "/log"), RECORD.repeat(4));
}

#[test]
fn file_changed_by_others_since_stays() {
    if let Some(store) = doomed() {
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        log.append(b"never synced").unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("file_changed_by_others_since_stays");
    let volume = place.mount(Arc::new(SystemClock::new()));
    volume.write("/log", b"by another").unwrap();
    volume.close().unwrap();
    assert_eq!(content(&place.open(), "/log"), b"by another");
}

/// Programs that restore a file give it its old times: `cp -p`, `rsync --inplace -t`.
#[test]
fn file_restored_with_old_times_stays() {
    if let Some(store) = doomed() {
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        log.append(b"backed up, ").unwrap();
        log.sync().unwrap();
        log.append(b"never synced").unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("file_restored_with_old_times_stays");
    let volume = place.mount(Arc::new(SystemClock::new()));
    let flags = OpenFlags::WRITE | OpenFlags::READ;
    let file = volume.open_with("/log", flags, 0).unwrap();
    let old = file.metadata().unwrap().btime;
    file.write_all_at(b"restored", 0).unwrap();
    file.set_len(8).unwrap();
    let times = SetAttr { mtime: Some(SetTime::To(old)), ..SetAttr::default() };
    file.set_metadata(&times).unwrap();
    drop(file);
    volume.close().unwrap();
    assert_eq!(content(&place.open(), "/log"), b"restored");
}

#[test]
fn file_changed_by_others_stays_despite_clock_set_back() {
    if let Some(store) = doomed() {
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        log.append(b"never synced").unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("file_changed_by_others_stays_despite_clock_set_back");
    let volume = place.mount(Arc::new(NoTime(SystemClock::new())));
    volume.write("/log", b"by another").unwrap();
    volume.close().unwrap();
    assert_eq!(content(&place.open(), "/log"), b"by another");
}

/// A new name and an attribute change a file, too.
#[test]
fn kill_keeps_writes_despite_new_names_and_attributes() {
    if let Some(store) = doomed() {
        let path = Path::new("/log");
        let log = StoreFile::open(&store, Path::new("/new"), NEW).unwrap();
        log.append(b"one ").unwrap();
        store.rename(Path::new("/new"), path).unwrap();
        log.append(b"two ").unwrap();
        log.set_write_lifetime(WriteLifetime::Short).unwrap();
        store.sync().unwrap();
        log.append(b"three ").unwrap();
        log.set_write_lifetime(WriteLifetime::Long).unwrap();
        store.hard_link(path, Path::new("/other")).unwrap();
        log.append(b"four ").unwrap();
        store.remove_file(Path::new("/other")).unwrap();
        log.append(b"five").unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("kill_keeps_writes_despite_new_names_and_attributes");
    assert_eq!(content(&place.open(), "/log"), b"one two three four five");
}

#[test]
fn kill_keeps_writes_on_zonefs() {
    if let Some(store) = doomed() {
        if store.metadata(Path::new("/log")).is_ok() {
            let log = OpenFlags::WRITE | OpenFlags::APPEND;
            StoreFile::open(&store, Path::new("/log"), log).unwrap().append(b"again").unwrap();
            die();
        }
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        for number in 0..60_u8 {
            log.append(&vec![number; 900_001]).unwrap();
        }
        // Emptied: notes about its old bytes must not be written again.
        let text = StoreFile::open(&store, Path::new("/LOG"), NEW).unwrap();
        text.append(&[b'o'; 10_000]).unwrap();
        let text = StoreFile::open(&store, Path::new("/LOG"), NEW).unwrap();
        text.append(b"new").unwrap();
        let table = StoreFile::open(&store, Path::new("/table"), NEW).unwrap();
        table.append(&RECORD.repeat(2000)).unwrap();
        table.close().unwrap();
        die();
    }
    let place = Place::new();
    let drive = FileDrive::open(place.drive(), OpenMode::ReadWrite).unwrap();
    let options = zonefs::MkfsOptions { overwrite: Force, ..zonefs::MkfsOptions::default() };
    zonefs::mkfs(&drive, &options, &mut |_| ()).unwrap();
    drop(drive);
    for _ in 0..3 {
        place.run_until_killed("kill_keeps_writes_on_zonefs");
    }
    let store = place.open();
    let mut wanted: Vec<u8> = (0..60_u8).flat_map(|number| vec![number; 900_001]).collect();
    wanted.extend(b"againagain");
    assert!(content(&store, "/log") == wanted);
    assert_eq!(content(&store, "/LOG"), b"new");
    assert_eq!(content(&store, "/table"), RECORD.repeat(2000));
}

#[test]
fn notes_of_old_file_system_are_not_applied_to_new() {
    if let Some(store) = doomed() {
        let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
        log.append(b"of the one before").unwrap();
        die();
    }
    let place = Place::new();
    place.run_until_killed("notes_of_old_file_system_are_not_applied_to_new");
    // With the same UUID, and a file with the same number.
    let drive = Arc::new(FileDrive::open(place.drive(), OpenMode::ReadWrite).unwrap());
    let options = MkfsOptions { uuid: [7; 16], overwrite: Force, ..MkfsOptions::default() };
    furrow::mkfs(Arc::clone(&drive), &SystemClock::new(), &options, &mut |_| ()).unwrap();
    let clock = Arc::new(NoTime(SystemClock::new()));
    let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
    for name in ["/log", "/b", "/c"] {
        volume.write(name, b"new").unwrap();
        volume.sync().unwrap();
    }
    volume.close().unwrap();
    assert_eq!(content(&place.open(), "/log"), b"new");
}

/// A clock on which files never seem to have changed.
struct NoTime(SystemClock);

impl Clock for NoTime {
    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns()
    }

    fn wall_ns(&self) -> i64 {
        1
    }
}

#[test]
fn append_that_cannot_be_kept_leaves_nothing_in_file() {
    let place = Place::new();
    // Commits fail, so the notes stay until there is no more room.
    let store = Store::open(&place.uri().replace("zonal://", "zonal://fault(flush,from=12):"));
    let store = store.unwrap();
    let file = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
    let (mut size, mut refused) = (0, 0);
    for _ in 0..200 {
        match file.append(&vec![7; 1 << 20]) {
            Ok(()) => size += 1 << 20,
            Err(_) => refused += 1,
        }
        assert_eq!(file.size().unwrap(), size);
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3);
    store.sync().unwrap_err();
}

#[test]
fn drive_is_opened_once_per_process() {
    let place = Place::new();
    let (first, second) = (place.open(), place.open());
    assert!(Arc::ptr_eq(&first, &second));
    StoreFile::open(&first, Path::new("/LOCK"), NEW).unwrap().try_lock().unwrap();
    let lock = StoreFile::open(&first, Path::new("/LOCK"), NEW).unwrap();
    lock.try_lock().unwrap();
    let other = StoreFile::open(&second, Path::new("/LOCK"), NEW).unwrap();
    assert_eq!(other.try_lock().unwrap_err().errno(), 11);
    drop((lock, other));
    first.release().unwrap();
    second.release().unwrap();
    let drive = FileDrive::open(place.drive(), OpenMode::ReadWrite).unwrap();
    let error = Store::open(&place.uri()).err().unwrap();
    assert_eq!(error.errno(), 16, "{error}");
    drop(drive);
    place.open();
}
