//! The least that a FUSE server can do: files in memory, and nothing but the copy.
//!
//! As large requests, as many threads and the same options for open files as zonefs has, through
//! the same library.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL,
    TimeOrNow, WriteFlags,
};

const TTL: Duration = Duration::from_hours(1);
const O_DIRECT: i32 = 0o40000;
const O_ACCMODE: i32 = 3;

struct File {
    size: AtomicU64,
    bytes: RwLock<Vec<u8>>,
}

/// Files `0`, `1` and so on, of a fixed capacity.
struct Ceiling {
    files: Vec<File>,
}

/// Serves `count` files of `capacity` bytes until unmounted.
pub(crate) fn serve(point: &Path, count: usize, capacity: usize) -> io::Result<()> {
    let file = |_| File { size: AtomicU64::new(0), bytes: RwLock::new(vec![1; capacity]) };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("ceiling".to_owned()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(std::thread::available_parallelism().map_or(2, usize::from) + 2);
    config.clone_fd = true;
    let session = Session::new(Ceiling { files: (0..count).map(file).collect() }, point, &config)?;
    println!("READY");
    session.run()
}

impl Ceiling {
    fn file(&self, ino: INodeNo) -> Option<&File> {
        self.files.get(usize::try_from(ino.0.checked_sub(2)?).ok()?)
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let file = self.file(ino);
        let size = file.map_or(0, |file| file.size.load(Ordering::Acquire));
        let kind = if file.is_some() { FileType::RegularFile } else { FileType::Directory };
        FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Ceiling {
    fn init(&mut self, _: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        // Whatever the kernel does not have, it does without.
        let _ = kernel.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = kernel.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        let _ = kernel.set_max_write(1 << 20);
        let _ = kernel.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let found =
            number.map(|number| INodeNo(number + 2)).filter(|ino| self.file(*ino).is_some());
        match found {
            Some(ino) => reply.entry(&TTL, &self.attr(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let (Some(size), Some(file)) = (size, self.file(ino)) {
            file.size.store(size, Ordering::Release);
        }
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let common = FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE;
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        let is_direct = flags.0 & (O_DIRECT | O_ACCMODE) != 0;
        reply.opened(FileHandle(0), if is_direct { common | direct } else { common });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(ino) else { return reply.error(Errno::EIO) };
        let bytes = file.bytes.read().expect("no holder panicked");
        let end = file.size.load(Ordering::Acquire).min(offset + u64::from(size));
        let range = usize::try_from(offset.min(end)).expect("in memory")
            ..usize::try_from(end).expect("in memory");
        reply.data(&bytes[range]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(ino) else { return reply.error(Errno::EIO) };
        let start = usize::try_from(offset).expect("in memory");
        let mut bytes = file.bytes.write().expect("no holder panicked");
        bytes[start..start + data.len()].copy_from_slice(data);
        file.size.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
        reply.written(u32::try_from(data.len()).expect("one request"));
    }
}
