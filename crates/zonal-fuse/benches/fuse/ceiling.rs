//! The least that a FUSE server can do: nothing but the copy, to memory or to the end of a log.
//!
//! As large requests, as many threads and the same options for open files as our file systems have,
//! through the same library. There is one directory.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustix::mount::MountFlags;
use zonal_fuse_transport::abi::{Attr, FopenFlags, InitFlags};
use zonal_fuse_transport::answer::{Entry, Opened};
use zonal_fuse_transport::init::{InitRequest, UseRings};
use zonal_fuse_transport::mount::{Audience, MountSpec, MountType};
use zonal_fuse_transport::request::{Read, Write};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve, Session};

use crate::content::{Content, Log};

const TTL: Duration = Duration::from_hours(1);
const O_DIRECT: i32 = 0o40000;
const O_ACCMODE: i32 = 3;

type File = Arc<RwLock<Content>>;

#[derive(Default)]
struct Directory {
    names: BTreeMap<Vec<u8>, NodeId>,
    files: BTreeMap<NodeId, File>,
    made: u64,
    log: Option<Arc<Log>>,
}

struct Ceiling {
    directory: RwLock<Directory>,
}

/// Serves an empty directory until unmounted.
pub(crate) fn serve(point: &Path, log: Option<Log>) -> io::Result<()> {
    let spec = MountSpec {
        point: point.canonicalize()?,
        source: "ceiling".to_owned(),
        kind: MountType::Fuse,
        subtype: "ceiling".to_owned(),
        flags: MountFlags::NODEV | MountFlags::NOSUID,
        audience: Audience::Everyone,
    };
    let request = InitRequest {
        required: InitFlags::empty(),
        optional: InitFlags::ASYNC_DIO | InitFlags::HANDLE_KILLPRIV_V2,
        request_max: 1 << 20,
        background_max: 64,
        rings: UseRings::Never,
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from) + 2;
    let session = Session::new(&spec, &request, threads)?;
    println!("READY");
    let directory = Directory { log: log.map(Arc::new), ..Directory::default() };
    session.run(&(Arc::new(Ceiling { directory: RwLock::new(directory) }) as _))
}

impl Directory {
    fn create(&mut self, name: &[u8]) -> NodeId {
        self.made += 1;
        let node = NodeId(NodeId::ROOT.0 + self.made);
        self.names.insert(name.to_vec(), node);
        self.files.insert(node, Arc::new(RwLock::new(Content::new(self.log.as_ref()))));
        node
    }

    fn remove(&mut self, name: &[u8]) -> Result<(), Errno> {
        let node = self.names.remove(name).ok_or(Errno::NOENT)?;
        self.files.remove(&node);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let node = self.names.remove(from).ok_or(Errno::NOENT)?;
        if let Some(replaced) = self.names.insert(to.to_vec(), node) {
            self.files.remove(&replaced);
        }
        Ok(())
    }
}

impl Ceiling {
    fn read_directory<T>(&self, with: impl FnOnce(&Directory) -> T) -> T {
        with(&self.directory.read().expect("no holder panicked"))
    }

    fn change_directory<T>(&self, with: impl FnOnce(&mut Directory) -> T) -> T {
        with(&mut self.directory.write().expect("no holder panicked"))
    }

    fn file(&self, node: NodeId) -> Option<File> {
        self.read_directory(|directory| directory.files.get(&node).cloned())
    }

    fn attr(&self, node: NodeId) -> Attr {
        let file = self.file(node);
        let len = |file: &File| file.read().expect("no holder panicked").len();
        let size = file.as_ref().map_or(0, len);
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

    /// Zone files are written directly, others only if their program wants that.
    fn opened(&self, flags: i32) -> Opened {
        let is_logged = self.read_directory(|directory| directory.log.is_some());
        let direct_flags = if is_logged { O_DIRECT } else { O_DIRECT | O_ACCMODE };
        let common = FopenFlags::NOFLUSH | FopenFlags::KEEP_CACHE;
        let direct = FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES;
        let flags = if flags & direct_flags == 0 { common } else { common | direct };
        Opened { handle: 0, flags, backing: None }
    }

    fn entry(&self, node: NodeId) -> Entry {
        Entry { node, attr: self.attr(node), ttl: TTL }
    }
}

fn done(change: Result<(), Errno>, reply: Reply) {
    match change {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Serve for Ceiling {
    fn panicked(&self, message: &str) {
        panic!("{message}");
    }

    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let node = header.node;
        match op {
            Op::Lookup { name } => match self.read_directory(|all| all.names.get(name).copied()) {
                Some(node) => reply.entry(&self.entry(node)),
                None => reply.error(Errno::NOENT),
            },
            Op::Create { name, how } => {
                let node = self.change_directory(|all| all.create(name));
                reply.created(&self.entry(node), &self.opened(how.flags));
            }
            Op::Unlink { name } => done(self.change_directory(|all| all.remove(name)), reply),
            Op::Rename { name, new_name, .. } => {
                done(self.change_directory(|all| all.rename(name, new_name)), reply);
            }
            Op::Forget { .. } | Op::BatchForget(_) => {}
            Op::Getattr { .. } => reply.attr(&self.attr(node), TTL),
            Op::Setattr(set) => {
                if let (Some(size), Some(file)) = (set.size, self.file(node)) {
                    file.write().expect("no holder panicked").resize(size);
                }
                reply.attr(&self.attr(node), TTL);
            }
            Op::Open { flags } => reply.opened(&self.opened(flags)),
            Op::Release { .. } | Op::Flush | Op::Fsync { .. } => reply.ok(),
            Op::Read(read) => self.read(node, read, reply),
            Op::Write(write) => self.write(node, &write, reply),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

impl Ceiling {
    fn read(&self, node: NodeId, Read { offset, size, .. }: Read, reply: Reply) {
        let Some(file) = self.file(node) else { return reply.error(Errno::IO) };
        let content = file.read().expect("no holder panicked");
        // The ceiling has no error answer: a failed read ends the mount.
        content.read(offset, size.into(), |bytes| reply.bytes(bytes)).expect("the log can be read");
    }

    fn write(&self, node: NodeId, write: &Write<'_>, reply: Reply) {
        let Some(file) = self.file(node) else { return reply.error(Errno::IO) };
        let outcome = file.write().expect("no holder panicked").write(write.offset, write.data);
        match outcome {
            Ok(()) => reply.written(u32::try_from(write.data.len()).expect("one request")),
            Err(_) => reply.error(Errno::INVAL),
        }
    }
}
