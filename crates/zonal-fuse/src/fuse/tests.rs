//! The server without a kernel.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use zonal_fs::vfs::{
    self, Allocate, Attr, Caller, DirEntry, FileKind, FileSystem, Ino, InodeFlags, Listing,
    NewInode, OpenFor, RenameFlags, Result, Seek, SetAttr, StatFs, SyncKind, Timestamp, Written,
    XattrMode,
};

use zonal_fs::FsError;
use zonal_fuse_transport::abi::{InitFlags, ReadFlags, SetxattrFlags, WriteFlags};
use zonal_fuse_transport::answer::ReplySink;
use zonal_fuse_transport::notify::Notifier;
use zonal_fuse_transport::request::{self, Read, Write};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve};

use super::enospc_retry::ReleaseCount;
use super::*;
use crate::control::Control;
use crate::latency::{Latencies, Operation};
use crate::names::{CONTROL_DIR, CONTROL_INO};
use crate::options::{MountConfig, WriteCache};

fn latencies() -> Arc<Latencies> {
    Arc::new(Latencies::new(Arc::new(zonal::ManualClock::new(0))))
}

/// A server, and the messages that it sends to the kernel.
struct Mount {
    server: FuseServer,
    kernel: Arc<Kernel>,
}

/// Keeps messages to the kernel.
struct Kernel(Mutex<Vec<Vec<u8>>>);

impl ReplySink for Kernel {
    fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.lock().unwrap().push(parts.iter().flat_map(|part| part.to_vec()).collect());
        Ok(())
    }
}

impl Mount {
    fn new(fs: Arc<dyn FileSystem>, control: Option<Arc<Control>>, config: &MountConfig) -> Self {
        let content = MountContent { fs, control, latencies: latencies() };
        let kernel = Arc::new(Kernel(Mutex::default()));
        Self { server: FuseServer::new(content, config), kernel }
    }

    fn of(fs: &Arc<Closed>) -> Self {
        Self::new(Arc::clone(fs) as _, None, &MountConfig::new("", Path::new("/")))
    }

    /// Serves a request, and returns the messages meanwhile.
    fn serve(&self, node: NodeId, op: Op<'_>) -> Vec<Vec<u8>> {
        let header = Header { unique: 5, node, uid: 0, gid: 0, pid: 1 };
        self.server.serve(&header, op, Reply::new(5, Arc::clone(&self.kernel) as _));
        std::mem::take(&mut *self.kernel.0.lock().unwrap())
    }

    /// The error of the answer to a request, and the bytes after its header.
    fn answer(&self, node: NodeId, op: Op<'_>) -> (i32, Vec<u8>) {
        let [message] = &self.serve(node, op)[..] else { panic!("one answer") };
        (-i32::from_le_bytes(message[4..8].try_into().unwrap()), message[16..].to_vec())
    }

    fn error(&self, node: NodeId, op: Op<'_>) -> i32 {
        self.answer(node, op).0
    }

    /// The node that a lookup finds; 0 for none.
    fn lookup(&self, dir: NodeId, name: &str) -> NodeId {
        let (error, entry) = self.answer(dir, Op::Lookup { name: name.as_bytes() });
        assert_eq!(error, 0, "{name}");
        NodeId(u64::from_le_bytes(entry[..8].try_into().unwrap()))
    }

    fn connect(&self, negotiated: InitFlags) {
        self.server.kernel.connect(Notifier::new(Arc::clone(&self.kernel) as _), negotiated);
    }

    /// Starts the thread that commits.
    fn committer(&self) -> thread::JoinHandle<()> {
        let (server, queue) = (self.server.clone(), self.server.fsync_queue.open());
        thread::spawn(move || server.commit_queued(&queue))
    }
}

/// Files of [`Closed`]: one whose inode cannot be read, one deleted since it was listed, and one
/// that is well.
const UNREADABLE: Ino = Ino::new(101);
const DELETED: Ino = Ino::new(102);
const WELL: Ino = Ino::new(103);

/// A file system whose files cannot be opened.
#[derive(Default)]
struct Closed {
    pins: AtomicI64,
    /// Commits so far. A commit waits until the test unlocks this.
    commits: Mutex<u32>,
}

fn unsupported<T>() -> Result<T> {
    Err(FsError::Unsupported { what: "this, in a test" })
}

impl FileSystem for Closed {
    fn open(&self, _: Ino, _: OpenFor) -> Result<()> {
        Err(FsError::NotPermitted { what: "opening" })
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        match ino {
            UNREADABLE => return Err(zonal::DeviceError::Medium { lba: zonal::Lba::ZERO }.into()),
            DELETED => return Err(FsError::NotFound),
            _ => {}
        }
        let time = Timestamp::default();
        Ok(Attr {
            ino,
            kind: FileKind::Regular,
            perm: 0o644,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags: InodeFlags::empty(),
        })
    }
    fn create(&self, _: &Caller, _: Ino, _: &[u8], _: &NewInode<'_>) -> Result<Attr> {
        self.getattr(Ino::new(7))
    }
    fn pin(&self, _: Ino) -> Result<()> {
        self.pins.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn unpin(&self, _: Ino) {
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }
    fn lookup(&self, _: Ino, _: &[u8]) -> Result<Attr> {
        self.getattr(Ino::new(7))
    }
    fn setattr(&self, _: &Caller, ino: Ino, _: &SetAttr) -> Result<Attr> {
        self.getattr(ino)
    }
    fn readlink(&self, _: Ino) -> Result<Vec<u8>> {
        unsupported()
    }
    fn unlink(&self, _: Ino, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn rmdir(&self, _: Ino, _: &[u8]) -> Result<()> {
        unsupported()
    }
    fn rename(&self, _: (Ino, &[u8]), _: (Ino, &[u8]), _: RenameFlags) -> Result<()> {
        unsupported()
    }
    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> Result<Attr> {
        unsupported()
    }
    fn read_with(&self, _: Ino, _: u64, _: &mut [u8], _: vfs::ReadFlags) -> Result<usize> {
        unsupported()
    }
    fn write(&self, _: Ino, _: u64, _: &[u8], _: vfs::WriteFlags) -> Result<Written> {
        unsupported()
    }
    fn fsync(&self, _: Ino, _: SyncKind) -> Result<()> {
        self.sync()
    }
    fn sync(&self) -> Result<()> {
        *self.commits.lock().unwrap() += 1;
        Ok(())
    }
    fn readdir_with(
        &self,
        _: Ino,
        _: u64,
        _: vfs::ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let names: [(_, &[u8]); 3] = [(UNREADABLE, b"bad"), (DELETED, b"gone"), (WELL, b"well")];
        for ((ino, name), cookie) in names.into_iter().zip(1..) {
            each(DirEntry { ino, kind: FileKind::Regular, name, cookie });
        }
        Ok(())
    }
    fn fallocate(&self, _: Ino, _: Allocate, _: u64, _: u64) -> Result<()> {
        unsupported()
    }
    fn seek(&self, _: Ino, _: Seek, _: u64) -> Result<u64> {
        unsupported()
    }
    fn copy_range(&self, _: (Ino, u64), _: (Ino, u64), _: u64, _: vfs::WriteFlags) -> Result<u64> {
        unsupported()
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            name_max: 255,
            blocks: 1000,
            blocks_free: 0,
            inodes: 1,
            inodes_free: 0,
            inodes_unlinked: 0,
        })
    }
    fn getxattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        unsupported()
    }
    fn setxattr(&self, _: &Caller, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        unsupported()
    }
    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        unsupported()
    }
    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        unsupported()
    }
    fn tick(&self) -> Result<()> {
        Ok(())
    }
    fn shutdown(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn create_without_open_keeps_no_pin() {
    let fs = Arc::new(Closed::default());
    let how = request::Create { flags: 2, mode: 0o644, umask: 0 };
    let refused = Mount::of(&fs).error(NodeId::ROOT, Op::Create { name: b"file", how });
    assert_eq!(refused, 1, "EPERM");
    assert_eq!(fs.pins.load(Ordering::Relaxed), 0, "the kernel will not forget what it never knew");
}

#[test]
fn listing_has_name_whose_inode_cannot_be_read() {
    let fs = Arc::new(Closed::default());
    let read = Read { handle: 1, offset: 0, size: 4096, how: ReadFlags::empty(), flags: 0 };
    let (_, answer) = Mount::of(&fs).answer(NodeId::ROOT, Op::Readdirplus(read));
    // The inode (128 bytes), number and kind (24), and the name.
    let entries: Vec<_> = answer.chunks(160).collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let found = entries.iter().map(|at| (number(&at[..8]), number(&at[128..136]), at[148]));
    let regular = 8;
    let (bad, well) = (UNREADABLE.get(), WELL.get());
    assert_eq!(found.collect::<Vec<_>>(), [(0, bad, regular), (well, well, regular)]);
    assert_eq!((&entries[0][152..155], &entries[1][152..156]), (&b"bad"[..], &b"well"[..]));
    assert_eq!(fs.pins.load(Ordering::Relaxed), 1, "the kernel knows one of them");
}

#[test]
fn fsync_holds_no_thread_and_shares_commit() {
    const FSYNCS: usize = 100;
    let fs = Arc::new(Closed::default());
    let mount = Mount::of(&fs);
    let (server, thread) = (&mount.server, mount.committer());
    let (answer, answers) = channel();
    let ask = || {
        let answer = answer.clone();
        server.sync_then(NodeId(7), SyncKind::Full, move |outcome| answer.send(outcome).unwrap());
    };
    let device_hangs = fs.commits.lock().unwrap();
    // This one thread serves them all, and then others.
    (0..FSYNCS).for_each(|_| ask());
    assert!(server.fs.run(Operation::Getattr, NodeId(7), |fs, ino| fs.getattr(ino)).is_ok());
    assert!(answers.try_recv().is_err(), "none is durable yet");
    drop(device_hangs);
    for answered in 0..FSYNCS {
        assert_eq!(answers.recv().unwrap(), Ok(()), "{answered}");
    }
    let commits = *fs.commits.lock().unwrap();
    assert!((1..=2).contains(&commits), "the first may have gone alone: {commits} commits");
    server.end_threads();
    thread.join().unwrap();
    // At the end of the mount a sync waits for no commit.
    ask();
    assert!(answers.try_recv().unwrap().is_ok());
}

#[test]
fn syncfs_answers_once_all_is_durable() {
    let fs = Arc::new(Closed::default());
    let mount = Mount::of(&fs);
    let thread = mount.committer();
    let device_hangs = fs.commits.lock().unwrap();
    assert!(mount.serve(NodeId::ROOT, Op::Syncfs).is_empty(), "and this thread is free");
    drop(device_hangs);
    mount.server.end_threads();
    thread.join().unwrap();
    assert_eq!(*fs.commits.lock().unwrap(), 1);
    let done = [16_u32, 0, 5, 0].map(u32::to_le_bytes).concat();
    assert_eq!(*mount.kernel.0.lock().unwrap(), [done]);
}

#[test]
fn flush_is_disabled_if_kernel_writes_back_at_close() {
    const NOSYS: i32 = 38;
    for (negotiated, error) in [
        (None, 0),
        (Some(InitFlags::WRITEBACK_CACHE), 0),
        (Some(InitFlags::WRITEBACK_CACHE | InitFlags::HANDLE_KILLPRIV_V2), NOSYS),
    ] {
        let mount = Mount::of(&Arc::default());
        if let Some(negotiated) = negotiated {
            mount.connect(negotiated);
        }
        assert_eq!(mount.answer(NodeId(7), Op::Flush), (error, vec![]), "{negotiated:?}");
    }
}

#[test]
fn attributes_of_file_losing_name_are_not_cached() {
    let mount = Mount::of(&Arc::default());
    mount.connect(InitFlags::empty());
    let serve = |node, op| mount.serve(node, op);
    // Of a message of the kernel's, the number of the request, or that of the notification.
    let number = |message: &Vec<u8>| match &message[8..16] {
        [0, 0, 0, 0, 0, 0, 0, 0] => -i32::from_le_bytes(message[4..8].try_into().unwrap()),
        unique => i32::from(unique[0]),
    };
    let numbers = |messages: &[Vec<u8>]| messages.iter().map(number).collect::<Vec<_>>();
    let (file, look) = (NodeId(7), || Op::Getattr { open: false });
    let (answer, stale) = (5, -2);
    assert_eq!(numbers(&serve(file, look())), [answer]);
    assert_eq!(numbers(&serve(NodeId::ROOT, Op::Unlink { name: b"name" })), [answer]);
    for op in [look(), Op::Statx, look()] {
        assert_eq!(numbers(&serve(file, op)), [stale, answer]);
    }
    assert_eq!(numbers(&serve(NodeId::ROOT, Op::Lookup { name: b"other" })), [stale, answer]);
    assert_eq!(numbers(&serve(NodeId(8), look())), [answer], "another file");
    serve(NodeId::ROOT, Op::Link { source: file, name: b"more" });
    assert_eq!(numbers(&serve(file, look())), [answer], "the kernel knows");
}

#[test]
fn attributes_are_not_cached_while_write_must_fail() {
    let mut config = MountConfig::new("", Path::new("/"));
    config.write_cache = WriteCache::Back;
    let mount = Mount::new(Arc::new(Closed::default()), None, &config);
    let file = NodeId(7);
    mount.server.pages.writeback.add_writer(file);
    // For how many seconds the kernel may cache the attributes, and where the answer says so.
    let seconds = |node, op, at: usize| {
        let (error, answer) = mount.answer(node, op);
        assert_eq!(error, 0);
        u64::from_le_bytes(answer[at..8 + at].try_into().unwrap())
    };
    let cached = || {
        let set = request::SetAttr { mode: Some(0o600), ..Default::default() };
        [
            seconds(file, Op::Getattr { open: false }, 0),
            seconds(file, Op::Statx, 0),
            seconds(file, Op::Setattr(set), 0),
            seconds(NodeId::ROOT, Op::Lookup { name: b"name" }, 24),
        ]
    };
    assert!(cached().iter().all(|&seconds| seconds > 0), "{:?}", cached());
    mount.server.pages.writeback.note_failure(file, Errno::NOSPC);
    assert_eq!(cached(), [0; 4]);
}

#[test]
fn space_of_inode_being_released_is_awaited() {
    let releases = ReleaseCount::default();
    thread::scope(|scope| {
        let mut writer = None;
        // The file system has the space of the file already, and reports that a deleted file is
        // unused.
        releases.note(|| {
            let (ran, has_run) = channel();
            let releases = &releases;
            writer = Some(scope.spawn(move || {
                let mut full = true;
                releases.with_space(&Closed::default(), || {
                    let _ = ran.send(());
                    if std::mem::take(&mut full) { Err(FsError::NoSpace) } else { Ok(()) }
                })
            }));
            has_run.recv().unwrap();
            // The inode is not counted yet, so there is no second attempt, and no answer either.
            let again = has_run.recv_timeout(std::time::Duration::from_millis(5));
            assert!(again.is_err() && !writer.as_ref().unwrap().is_finished());
            lookup_counts::Forgotten::Wholly
        });
        writer.unwrap().join().unwrap().unwrap();
    });
}

/// A zonefs with a control directory.
fn controlled() -> Mount {
    use zonal::{ManualClock, OpenMode, spec};
    use zonal_fs::zonefs::{MkfsOptions, MountOptions, ZoneFs, mkfs};

    let clock = Arc::new(ManualClock::new(7));
    let shape = "mem:zones=6,zone=1M";
    let stack = spec::open_stack(shape, OpenMode::ReadWrite, clock.clone()).unwrap();
    mkfs(&*stack.device, &MkfsOptions::default(), &mut |_| ()).unwrap();
    let device = Arc::clone(&stack.device);
    let fs = Arc::new(ZoneFs::mount(device, clock.clone(), MountOptions::default()).unwrap());
    let config = MountConfig::new("", Path::new("/"));
    let control = Control::new(Arc::clone(&fs), &stack, config.clone(), latencies(), &*clock);
    Mount::new(fs, Some(Arc::new(control)), &config)
}

#[test]
fn control_directory_requests_never_reach_file_system() {
    let mount = controlled();
    let directory = mount.lookup(NodeId::ROOT, CONTROL_DIR);
    assert_eq!(directory, NodeId(CONTROL_INO.get()));
    let stats = mount.lookup(directory, "stats");
    assert_eq!(mount.lookup(directory, "nothing"), NodeId(0));
    assert_eq!(mount.lookup(stats, "."), stats, "as a file handle asks for it");
    let read = Read { handle: 1, offset: 0, size: 4096, how: ReadFlags::LOCK_OWNER, flags: 0 };
    let (error, text) = mount.answer(stats, Op::Read(read));
    assert!(error == 0 && text.starts_with(b"{\n  \"type\": \"zonefs\""), "{error}");
    let (error, listing) = mount.answer(directory, Op::Readdir(Read { offset: 2, ..read }));
    assert_eq!((error, &listing[24..29]), (0, &b"stats"[..]), "after . and ..");
    let command = mount.lookup(directory, "command");
    let write = |data| Op::Write(Write { handle: 1, offset: 0, data, how: NO_FLAGS, flags: 1 });
    assert_eq!(mount.answer(command, write(b"open 2")), (0, vec![6, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(mount.error(command, write(b"explode 2")), 22, "EINVAL");
    assert_eq!(mount.error(stats, write(b"x")), 1, "EPERM");
    assert_eq!(mount.error(directory, Op::Getxattr { name: b"user.a", size: 0 }), 61, "ENODATA");
    let all = mount.server.fs.latencies.all();
    assert_eq!(all, [], "no latency counts them");
}

const NO_FLAGS: WriteFlags = WriteFlags::empty();

#[test]
fn names_of_the_control_directory_do_not_change() {
    let mount = controlled();
    let directory = mount.lookup(NodeId::ROOT, CONTROL_DIR);
    let stats = mount.lookup(directory, "stats");
    let name = CONTROL_DIR.as_bytes();
    let rename = |name, new_parent, new_name| Op::Rename { name, new_parent, new_name, flags: 0 };
    let set = |set: request::SetAttr| Op::Setattr(set);
    let none = request::SetAttr::default();
    for (node, op) in [
        (directory, Op::Mknod { name: b"x", mode: 0o100_644, rdev: 0, umask: 0 }),
        (NodeId::ROOT, Op::Mknod { name, mode: 0o100_644, rdev: 0, umask: 0 }),
        (NodeId::ROOT, Op::Mkdir { name, mode: 0o755, umask: 0 }),
        (NodeId::ROOT, Op::Symlink { name, target: b"seq" }),
        (directory, Op::Unlink { name: b"stats" }),
        (NodeId::ROOT, Op::Rmdir { name }),
        (NodeId::ROOT, rename(b"seq", NodeId::ROOT, name)),
        (NodeId::ROOT, rename(name, NodeId::ROOT, b"seq")),
        (directory, rename(b"stats", NodeId::ROOT, b"x")),
        (NodeId::ROOT, Op::Link { source: NodeId(2), name }),
        (stats, set(request::SetAttr { mode: Some(0o777), ..none })),
        (stats, set(none)),
    ] {
        let what = format!("{op:?}");
        assert_eq!(mount.error(node, op), 1, "EPERM: {what}");
    }
    let emptied = request::SetAttr { size: Some(0), ..none };
    assert_eq!(mount.error(mount.lookup(directory, "command"), set(emptied)), 0, "by a shell");
    for op in [
        Op::Fallocate { offset: 0, len: 1, mode: 0 },
        Op::Link { source: stats, name: b"x" },
        Op::Setxattr { name: b"user.a", value: b"", flags: 0, caller: SetxattrFlags::empty() },
    ] {
        let what = format!("{op:?}");
        assert_eq!(mount.error(stats, op), 95, "EOPNOTSUPP: {what}");
    }
}
