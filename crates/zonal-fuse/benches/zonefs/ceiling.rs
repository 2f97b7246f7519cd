//! The least that a FUSE server can do: files in memory, and nothing but the copy.
//!
//! As large requests, as many threads and the same options for open files as zonefs has, through
//! the same library.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustix::mount::MountFlags;
use zonal_fuse_transport::abi::{Attr, FopenFlags, InitFlags};
use zonal_fuse_transport::init::Wishes;
use zonal_fuse_transport::mount::{Audience, MountSpec};
use zonal_fuse_transport::reply::Entry;
use zonal_fuse_transport::request::{Read, Write};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve, Session};

const TTL: Duration = Duration::from_hours(1);
const O_DIRECT: i32 = 0o40000;
const O_ACCMODE: i32 = 3;

struct File {
    size: AtomicU64,
    bytes: RwLock<Vec<u8>>,
}

/// Files `0`, `1` and so on, of a fixed capacity.
#[derive(Clone)]
struct Ceiling {
    files: Arc<[File]>,
}

/// Serves `count` files of `capacity` bytes until unmounted.
pub(crate) fn serve(point: &Path, count: usize, capacity: usize) -> io::Result<()> {
    let file = |_| File { size: AtomicU64::new(0), bytes: RwLock::new(vec![1; capacity]) };
    let spec = MountSpec {
        point: point.canonicalize()?,
        source: "ceiling".to_owned(),
        subtype: "ceiling".to_owned(),
        flags: MountFlags::NODEV | MountFlags::NOSUID,
        audience: Audience::Everyone,
    };
    let wishes = Wishes {
        needed: InitFlags::empty(),
        wished: InitFlags::ASYNC_DIO | InitFlags::HANDLE_KILLPRIV_V2,
        request_max: 1 << 20,
        background_max: 64,
    };
    let session = Session::new(&spec, &wishes)?;
    println!("READY");
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 2;
    session.run(&Ceiling { files: (0..count).map(file).collect() }, threads)
}

impl Ceiling {
    fn file(&self, node: NodeId) -> Option<&File> {
        self.files.get(usize::try_from(node.0.checked_sub(2)?).ok()?)
    }

    fn attr(&self, node: NodeId) -> Attr {
        let file = self.file(node);
        let size = file.map_or(0, |file| file.size.load(Ordering::Acquire));
        let format = if file.is_some() { 0o100_000 } else { 0o040_000 };
        Attr {
            ino: node.0,
            size,
            blocks: size / 512,
            mode: format | 0o755,
            nlink: 1,
            blksize: 4096,
            ..Attr::default()
        }
    }
}

impl Serve for Ceiling {
    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let node = header.node;
        match op {
            Op::Lookup { name } => {
                let number = str::from_utf8(name).ok().and_then(|name| name.parse::<u64>().ok());
                let found = number.map(|number| NodeId(number + 2));
                match found.filter(|node| self.file(*node).is_some()) {
                    Some(node) => reply.entry(&Entry { node, attr: self.attr(node), ttl: TTL }),
                    None => reply.error(Errno::NOENT),
                }
            }
            Op::Forget { .. } | Op::BatchForget(_) => {}
            Op::Getattr => reply.attr(&self.attr(node), TTL),
            Op::Setattr(set) => {
                if let (Some(size), Some(file)) = (set.size, self.file(node)) {
                    file.size.store(size, Ordering::Release);
                }
                reply.attr(&self.attr(node), TTL);
            }
            Op::Open { flags } => {
                let common = FopenFlags::NOFLUSH | FopenFlags::KEEP_CACHE;
                let direct = FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES;
                let is_direct = flags & (O_DIRECT | O_ACCMODE) != 0;
                reply.opened(0, if is_direct { common | direct } else { common });
            }
            Op::Release { .. } | Op::Flush => reply.ok(),
            Op::Read(read) => self.read(node, read, reply),
            Op::Write(write) => self.write(node, &write, reply),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

impl Ceiling {
    fn read(&self, node: NodeId, Read { offset, size, .. }: Read, reply: Reply) {
        let Some(file) = self.file(node) else { return reply.error(Errno::IO) };
        let bytes = file.bytes.read().expect("no holder panicked");
        let end = file.size.load(Ordering::Acquire).min(offset + u64::from(size));
        let range = usize::try_from(offset.min(end)).expect("in memory")
            ..usize::try_from(end).expect("in memory");
        reply.bytes(&bytes[range]);
    }

    fn write(&self, node: NodeId, write: &Write<'_>, reply: Reply) {
        let Some(file) = self.file(node) else { return reply.error(Errno::IO) };
        let (offset, data) = (write.offset, write.data);
        let start = usize::try_from(offset).expect("in memory");
        let mut bytes = file.bytes.write().expect("no holder panicked");
        bytes[start..start + data.len()].copy_from_slice(data);
        file.size.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
        reply.written(u32::try_from(data.len()).expect("one request"));
    }
}
