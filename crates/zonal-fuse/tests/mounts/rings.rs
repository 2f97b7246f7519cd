//! Requests by `io_uring`: no deadlock stops them, and a mount ends as any other does.
//!
//! All callers are on one processor, so that all requests are in one queue. The drive is held back
//! at the moments that matter, so that nothing here depends on time.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::mounted;
use crate::mounted::content::{O_DIRECT, aligned, open};
use crate::mounted::held::{held, hold};
use crate::mounted::{Mounted, NEVER, mapped, offer, tools};
use rustix::fs::{Advice, fadvise};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::{CpuSet, sched_setaffinity};
use zonal::wait::wait_until;
use zonal_fuse::unmount::{Unmounted, unmount_and_wait};
use zonal_fuse_transport::abi::InitFlags;
use zonal_fuse_transport::init::{InitRequest, UseRings};
use zonal_fuse_transport::mount::{Audience, MountSpec, MountType};
use zonal_fuse_transport::{Session, Transport};

/// A mount by `io_uring`; the kernel's switch is set back afterwards.
fn mount() -> Option<Mounted> {
    let _offer = offer::set("Y")?;
    mounted::mount_with("uring")
}

/// Runs `call` in a thread on the first processor.
fn there<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::spawn(|| {
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).unwrap();
        call()
    })
}

/// How many rings a process has.
fn rings_of(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = open.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("io_uring")).count()
}

#[test]
fn rings_exist_when_offered_and_wanted() {
    let Some(_offer) = offer::set("Y") else { return };
    for (options, has_rings) in [("uring", true), ("nouring", false), ("uring,nouring", false)] {
        let Some(mut mounted) = mounted::mount_with(options) else { return };
        fs::write(mounted.path("file"), "content").unwrap();
        assert_eq!(fs::read(mounted.path("file")).unwrap(), b"content");
        assert_eq!(rings_of(mounted.pid()) > 0, has_rings, "{options}");
        mounted.unmount();
    }
}

#[test]
fn rings_are_absent_when_processor_is_denied() {
    if thread::available_parallelism().unwrap().get() < 2 {
        return println!("SKIP: there is one processor");
    }
    if std::env::var("MOUNT_OPTIONS").is_ok_and(|options| options.contains("uring")) {
        return println!("SKIP: MOUNT_OPTIONS says how requests come");
    }
    let Some(_offer) = offer::set("Y") else { return };
    // It inherits where it may run.
    let Some(mut mounted) = there(|| mounted::mount_with("")).join().unwrap() else { return };
    fs::write(mounted.path("file"), "content").unwrap();
    assert_eq!(rings_of(mounted.pid()), 0);
    mounted.unmount();
}

#[test]
fn rings_not_offered_fail_mount_that_needs_them() {
    let Some(_offer) = offer::set("N") else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("SKIP: needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let spec = MountSpec {
        point: dir.path().canonicalize().unwrap(),
        source: "test".to_owned(),
        kind: MountType::Fuse,
        subtype: "test".to_owned(),
        flags: MountFlags::empty(),
        audience: Audience::Owner,
    };
    let session = |rings| {
        let (required, optional) = (InitFlags::empty(), InitFlags::empty());
        let request =
            InitRequest { required, optional, request_max: 1 << 20, background_max: 8, rings };
        Session::new(&spec, &request, 2)
    };
    assert_eq!(session(UseRings::IfOffered).unwrap().transport(), Transport::Device);
    let refused = session(UseRings::Required).map(drop).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    let said = refused.to_string();
    assert!(said.contains("io_uring") && said.contains("enable_uring"), "{said}");
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!table.contains(spec.point.to_str().unwrap()), "it is not mounted");
}

/// Eight direct writes, as many as have an entry, are held back in the drive. A reader then locks
/// pages that these writes have to drop before they are answered, and its request is the last in
/// the queue.
const CROSSED: &str = r"
path, hold, held = sys.argv[1:]
COUNT, SIZE = 8, 256 << 10
os.sched_setaffinity(0, {0})
direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
cached = os.open(path, os.O_RDONLY)
context = setup(COUNT)
new = mmap.mmap(-1, SIZE)
new.write(b'b' * SIZE)
assert os.pread(cached, COUNT * SIZE, 0) == b'a' * (COUNT * SIZE)
open(hold, 'x').close()
submit(context, [control(at, PWRITE, direct, address(new), SIZE, at * SIZE) for at in range(COUNT)])
wait_until(lambda: os.path.exists(held))
readers = [threading.Thread(target=os.pread, args=(cached, SIZE, at * SIZE)) for at in range(COUNT)]
for reader in readers:
    reader.start()
# Whether they are behind the writes already changes what is tested, but not what must hold.
time.sleep(0.3)
os.unlink(hold)
assert results(context, COUNT, COUNT) == {at: SIZE for at in range(COUNT)}
for reader in readers:
    reader.join()
assert os.pread(cached, COUNT * SIZE, 0) == b'b' * (COUNT * SIZE), 'old pages'
";

#[test]
fn direct_writes_end_with_awaited_reads_behind_in_queue() {
    let Some(mut python) = tools::aio(CROSSED) else { return };
    let Some(mut mounted) = mount() else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![b'a'; 2 << 20]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let (hold, held) = (hold(mounted.drive(), "write"), held(mounted.drive(), "write"));
    let ended = python.arg(&path).arg(&hold).arg(held).status().unwrap();
    let _ = fs::remove_file(hold);
    assert!(ended.success(), "{ended}");
    mounted.unmount();
}

#[test]
fn direct_reads_into_own_mapping_end() {
    let mounted = offer::set("Y").and_then(|_offer| mounted::mount_with("uring,threads=1"));
    let Some(mut mounted) = mounted else { return };
    mapped::read_into_a_mapping(&mounted);
    mounted.unmount();
}

#[test]
fn read_is_answered_while_many_await_commit() {
    const WAITING: usize = 24;
    let Some(mut mounted) = mount() else { return };
    let path = mounted.path("read");
    fs::write(&path, "content").unwrap();
    let files: Vec<File> = (0..WAITING)
        .map(|nth| {
            let file = File::create(mounted.path(&format!("file{nth}"))).unwrap();
            file.write_all_at(&[7; 4096], 0).unwrap();
            file
        })
        .collect();
    File::create(hold(mounted.drive(), "write")).unwrap();
    // The mount may have committed all the rest by now.
    files[0].set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let syncs: Vec<_> = files.into_iter().map(|file| there(move || file.sync_all())).collect();
    wait_until(|| held(mounted.drive(), "write").exists());
    let reader = there(move || {
        let file = open(&path, O_DIRECT);
        let (mut buffer, range) = aligned(4096, 0);
        let len = file.read_at(&mut buffer[range.clone()], 0).unwrap();
        buffer[range][..len].to_vec()
    });
    assert_eq!(reader.join().unwrap(), b"content");
    assert!(syncs.iter().any(|sync| !sync.is_finished()), "they wait still");
    fs::remove_file(hold(mounted.drive(), "write")).unwrap();
    for sync in syncs {
        sync.join().unwrap().unwrap();
    }
    mounted.unmount();
}

/// A thread with a direct write that the drive holds back.
fn write_that_waits(mounted: &Mounted) -> JoinHandle<io::Result<()>> {
    File::create(hold(mounted.drive(), "write")).unwrap();
    let path = mounted.path("file");
    let writer = there(move || {
        let (buffer, range) = aligned(1 << 18, 7);
        open(&path, O_DIRECT).write_all_at(&buffer[range], 0)
    });
    wait_until(|| held(mounted.drive(), "write").exists());
    writer
}

#[test]
fn kill_of_daemon_gives_callers_errors() {
    let Some(mut mounted) = mount() else { return };
    let writer = write_that_waits(&mounted);
    mounted.kill_daemon();
    assert!(writer.join().unwrap().is_err());
    assert!(fs::write(mounted.path("other"), "content").is_err());
    let unmounted = unmount_and_wait(&mounted.root(), NEVER).unwrap();
    assert_eq!(unmounted, Unmounted::DaemonWasDead);
    assert!(!mounted.is_mounted());
}

#[test]
fn abort_gives_callers_errors_and_ends_daemon() {
    let Some(mut mounted) = mount() else { return };
    fs::write(mounted.path("kept"), "content").unwrap();
    let writer = write_that_waits(&mounted);
    rustix::mount::unmount(mounted.root(), UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    assert!(writer.join().unwrap().is_err());
    fs::remove_file(hold(mounted.drive(), "write")).unwrap();
    mounted.wait();
    mounted.start("");
    assert_eq!(fs::read(mounted.path("kept")).unwrap(), b"content");
    mounted.unmount();
}

const TURNS: u64 = 40;
const SIZE: usize = 128 << 10;

/// Where the piece of a turn lies.
fn at(turn: u64) -> u64 {
    (turn % 8) * SIZE as u64
}

fn read_pieces(path: &Path) {
    let file = open(path, 0);
    for turn in 0..TURNS {
        file.read_exact_at(&mut vec![0; SIZE], at(turn)).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn write_pieces(path: &Path) {
    let (file, (buffer, range)) = (open(path, O_DIRECT), aligned(SIZE, 7));
    for turn in 0..TURNS {
        file.write_all_at(&buffer[range.clone()], at(turn)).unwrap();
    }
}

fn sync_pieces(path: &Path) {
    let file = open(path, 0);
    for turn in 0..TURNS / 4 {
        file.write_all_at(&[9; 4096], at(turn)).unwrap();
        file.sync_all().unwrap();
    }
}

/// Readers, writers of both kinds and syncs of a few files at once, most of them on one processor.
#[test]
fn load_on_one_queue_ends() {
    const FILES: usize = 3;
    const JOBS: [fn(&Path); 3] = [read_pieces, write_pieces, sync_pieces];
    let Some(mut mounted) = mount() else { return };
    let paths: Vec<_> = (0..FILES).map(|nth| mounted.path(&format!("file{nth}"))).collect();
    for path in &paths {
        fs::write(path, vec![0; 8 * SIZE]).unwrap();
    }
    let mut threads = Vec::new();
    for (nth, path) in paths.iter().cycle().take(8 * FILES * JOBS.len()).enumerate() {
        let (path, job) = (path.clone(), JOBS[nth / FILES % JOBS.len()]);
        let run = move || job(&path);
        threads.push(if nth % 4 == 0 { thread::spawn(run) } else { there(run) });
    }
    for thread in threads {
        thread.join().unwrap();
    }
    mounted.unmount();
}
