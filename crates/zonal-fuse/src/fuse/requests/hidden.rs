//! Requests of the hidden mount: parallel direct reads of zone files, and mappings of them.
//!
//! The name of a file there is its node number, and its content is that of the file with this
//! number on the visible mount. It is longer than any zone, so the kernel sends every read and
//! learns from the answer how much there is. Reads that fill pages for a mapping are never short: a
//! short one would make the kernel take the file for shorter than it will become.

use std::sync::Arc;

use zonal_fs::vfs::FileKind;
use zonal_fuse_transport::abi::{Attr, FopenFlags, InitFlags, ReadFlags};
use zonal_fuse_transport::answer::{Entry, Opened};
use zonal_fuse_transport::hidden::HiddenMount;
use zonal_fuse_transport::init::{InitRequest, UseRings};
use zonal_fuse_transport::request::Read;
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve, Session};

use crate::fuse::convert;
use crate::fuse::kernel::{BACKGROUND_MAX, REQUEST_MAX};
use crate::fuse::server::{FuseServer, TTL};
use crate::latency::Operation;
use crate::options::AsyncDirect;

/// Length of every file: longer than any zone.
const LENGTH: u64 = 1 << 62;

/// Flags and sizes for the INIT of the hidden mount.
const INIT_REQUEST: InitRequest = InitRequest {
    required: InitFlags::ASYNC_DIO,
    optional: InitFlags::empty(),
    request_max: REQUEST_MAX,
    background_max: BACKGROUND_MAX,
    rings: UseRings::Never,
};

/// Server of the hidden mount.
struct HiddenFiles(FuseServer);

/// Makes the hidden mount, if the INIT of the visible one allows backing files.
pub(crate) fn make_hidden(session: &Session) -> Option<HiddenMount> {
    if !session.negotiated().contains(InitFlags::PASSTHROUGH) {
        return None;
    }
    let hidden = HiddenMount::new(&INIT_REQUEST);
    hidden.inspect_err(|error| tracing::info!(%error, "no hidden mount")).ok()
}

impl FuseServer {
    /// Serves the hidden mount with `threads` threads, until the visible one ends. Returns how
    /// asynchronous direct reads come.
    pub(crate) fn serve_hidden(
        &self,
        hidden: Option<HiddenMount>,
        session: &Session,
        threads: usize,
    ) -> AsyncDirect {
        if session.negotiated().contains(InitFlags::ASYNC_DIO) {
            return AsyncDirect::Together;
        }
        let Some(hidden) = hidden else { return AsyncDirect::InTurn };
        let server = Arc::new(HiddenFiles(self.clone())) as _;
        match hidden.serve(&server, session, threads) {
            Ok(backings) => {
                self.pages.passthrough.begin(backings);
                AsyncDirect::Together
            }
            Err(error) => {
                tracing::info!(%error, "no file can be read by a hidden mount");
                AsyncDirect::InTurn
            }
        }
    }
}

impl Serve for HiddenFiles {
    fn panicked(&self, message: &str) {
        self.0.fs.guarded.note(message);
    }

    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let (server, node) = (&self.0, header.node);
        let files = &server.pages.passthrough;
        match op {
            Op::Lookup { name } => match node_of(name) {
                Some(node) => reply.entry(&Entry { node, attr: attributes(node), ttl: TTL }),
                None => reply.error(Errno::NOENT),
            },
            Op::Forget { .. } | Op::BatchForget(_) => {}
            Op::Getattr { .. } => reply.attr(&attributes(node), TTL),
            Op::Open { flags } => {
                files.add_hidden(node);
                // Without KEEP_CACHE: each open drops cached pages.
                let mut how = FopenFlags::NOFLUSH;
                how.set(FopenFlags::DIRECT_IO, !reads_pages(flags));
                reply.opened(&Opened { handle: 0, flags: how, backing: None });
            }
            Op::Read(read) if read.how.contains(ReadFlags::LOCK_OWNER) => {
                server.read(node, read, reply);
            }
            Op::Read(read) => self.read_pages(node, read, reply),
            Op::Release { .. } => {
                files.remove_hidden(node);
                reply.ok();
            }
            _ => reply.error(Errno::NOSYS),
        }
    }
}

impl HiddenFiles {
    /// Fills pages of the page cache.
    fn read_pages(&self, node: NodeId, read: Read, reply: Reply) {
        let server = &self.0;
        // Before the read: every change of the file from now on drops them.
        server.pages.passthrough.add_pages(node);
        reply.filled(read.size, |target| {
            if read.offset >= convert::file_size(&server.fs.guarded, server.fs.ino(node)) {
                // An access to a mapping there gets SIGBUS.
                return Err(Errno::IO);
            }
            let read =
                server.fs.run(Operation::Read, node, |fs, ino| fs.read(ino, read.offset, target));
            let len = read.inspect_err(|_| server.after_failed_read(node))?;
            target[len..].fill(0);
            Ok(target.len())
        });
    }
}

/// Whether an open with these flags reads through the page cache, as a mapping does.
fn reads_pages(flags: i32) -> bool {
    flags & (convert::O_ACCMODE | convert::O_DIRECT) == convert::O_RDONLY
}

fn node_of(name: &[u8]) -> Option<NodeId> {
    let number = str::from_utf8(name).ok()?.parse().ok()?;
    (NodeId(number) != NodeId::ROOT).then_some(NodeId(number))
}

fn attributes(node: NodeId) -> Attr {
    let (kind, size) = match node {
        NodeId::ROOT => (FileKind::Directory, 0),
        _ => (FileKind::Regular, LENGTH),
    };
    Attr { ino: node.0, size, mode: kind.format() | 0o600, nlink: 1, ..Attr::default() }
}
