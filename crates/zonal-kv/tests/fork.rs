//! A program with an open store makes a copy of itself by fork(2), as for a backup in the
//! background: the copy can do nothing to the store, and its end leaves the store as it is.
#![allow(clippy::unwrap_used, reason = "this is test code")]
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::wait::wait_until;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::volume::OpenFlags;
use zonal_fs::zonefs;
use zonal_kv::{Store, StoreFile};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
}

const NEW: OpenFlags = OpenFlags::WRITE.union(OpenFlags::CREATE).union(OpenFlags::TRUNCATE);

#[derive(Clone, Copy)]
enum Holds {
    Furrow,
    Zonefs,
}

/// A drive in a file; its URI.
fn drive(folder: &Path, holds: Holds) -> String {
    let path = folder.join("drive.zns");
    let shape = "zone=4M,zones=64".parse::<zonal::profile::Changes>().unwrap();
    let options = CreateOptions {
        geometry: shape.geometry().unwrap(),
        rules: Rules::Zns,
        uuid: [1; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(&path, &options).unwrap();
    let drive = Arc::new(FileDrive::open(&path, OpenMode::ReadWrite).unwrap());
    match holds {
        Holds::Furrow => {
            let options = MkfsOptions { uuid: [7; 16], ..MkfsOptions::default() };
            furrow::mkfs(drive, &SystemClock::new(), &options, &mut |_| ()).unwrap();
        }
        Holds::Zonefs => {
            zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ()).unwrap();
        }
    }
    format!("zonal://{}?unsynced={}", path.display(), folder.display())
}

/// The work of the copy: it tries every operation, and exits normally. Returns a description of a
/// failure.
fn as_the_copy(store: Arc<Store>, log: StoreFile, uri: &str) -> Result<(), String> {
    let refused = [
        log.append(b"by the copy").map_err(|error| error.errno()),
        log.sync().map_err(|error| error.errno()),
        store.sync().map_err(|error| error.errno()),
        store.remove_file(Path::new("/log")).map_err(|error| error.errno()),
    ];
    let opened = Store::open(uri).map(drop);
    log.close().map_err(|error| format!("closing a file: {error}"))?;
    Store::close_all();
    store.release().map_err(|error| format!("closing the store: {error}"))?;
    let busy = opened.map_err(|error| error.errno());
    match (refused, busy) {
        ([Err(1), Err(1), Err(1), Err(1)], Err(16)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn check(holds: Holds) {
    let folder = tempfile::tempdir().unwrap();
    let uri = drive(folder.path(), holds);
    let store = Store::open(&uri).unwrap();
    let log = StoreFile::open(&store, Path::new("/log"), NEW).unwrap();
    log.append(b"before ").unwrap();
    let (mut result, said) = std::io::pipe().unwrap();
    // SAFETY: the copy goes on in this function alone, and ends in it.
    let child = unsafe { fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let all = std::panic::AssertUnwindSafe(move || as_the_copy(store, log, &uri));
        let outcome = std::panic::catch_unwind(all);
        let text = match outcome {
            Ok(Ok(())) => "ok".to_owned(),
            Ok(Err(error)) => error,
            Err(_) => "a panic".to_owned(),
        };
        let _ = std::io::Write::write_all(&mut &said, text.as_bytes());
        // SAFETY: the copy has nothing else to do.
        unsafe { _exit(0) }
    }
    drop(said);
    let mut text = String::new();
    result.read_to_string(&mut text).unwrap();
    let pid = rustix::process::Pid::from_raw(child);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(text, "ok");
    // The store is as it was, with its notes and its lock.
    let notes = || std::fs::read_dir(folder.path()).unwrap().count() - 1;
    assert_eq!(notes(), 1);
    log.append(b"after").unwrap();
    log.sync().unwrap();
    let again = FileDrive::open(folder.path().join("drive.zns"), OpenMode::ReadWrite);
    assert!(again.is_err(), "the copy has let go of the drive");
    log.close().unwrap();
    store.release().unwrap();
    assert_eq!(notes(), 0);
    let store = Store::open(&uri).unwrap();
    let log = StoreFile::open(&store, Path::new("/log"), OpenFlags::READ).unwrap();
    let mut content = vec![0; 12];
    assert_eq!((log.read(&mut content, 0).unwrap(), &content[..]), (12, &b"before after"[..]));
}

/// A thread opens a store when the process is copied, and the copy opens another one.
fn check_copy_during_open() {
    let folder = tempfile::tempdir().unwrap();
    let uri = drive(folder.path(), Holds::Furrow);
    // Opening this device waits until a process reads the trace.
    let trace = folder.path().join("trace");
    mknodat(CWD, &trace, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let waiting = format!("zonal://trace({}):mem:zones=9", trace.display());
    let (tell, thread) = std::sync::mpsc::channel();
    let opener = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        Store::open(&waiting).map(drop)
    });
    let place = format!("/proc/self/task/{}", thread.recv().unwrap());
    wait_until(|| {
        let read = |name| std::fs::read_to_string(format!("{place}/{name}")).unwrap();
        // Some kernels do not tell where.
        let is_there = ["wait_for_partner", "fifo_open", "0"].contains(&read("wchan").as_str());
        is_there && read("status").contains("State:\tS")
    });
    // SAFETY: the copy goes on in this block alone, and ends in it.
    let child = unsafe { fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let opened = std::panic::catch_unwind(|| Store::open(&uri).and_then(Store::release));
        // SAFETY: the copy has nothing else to do.
        unsafe { _exit(i32::from(!matches!(opened, Ok(Ok(()))))) }
    }
    let pid = rustix::process::Pid::from_raw(child);
    let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(ended.unwrap().1.exit_status(), Some(0));
    drop(std::fs::File::open(&trace).unwrap());
    assert!(opener.join().unwrap().is_err(), "there is no file system");
}

/// One test for both: a lock that another thread held would be locked for ever in the copy.
#[test]
fn fork_leaves_open_store_alone() {
    for holds in [Holds::Furrow, Holds::Zonefs] {
        check(holds);
    }
    check_copy_during_open();
}
