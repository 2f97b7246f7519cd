//! The hidden mount: zone files for those who read them directly, many reads at once.
//!
//! A file there is found by the number of its node, and its content is that of the file of this number on the mount that
//! programs see. It is longer than any zone: the kernel asks for all that is read, and hears how much there is. Where
//! it reads for a mapping that would make it take the file for shorter than it will be, so pages are always whole.

use std::sync::Arc;

use zonal_fs::vfs::FileKind;
use zonal_fuse_transport::abi::{Attr, FopenFlags, InitFlags, ReadFlags};
use zonal_fuse_transport::hidden::Hidden;
use zonal_fuse_transport::init::{Choice, Wishes};
use zonal_fuse_transport::reply::{Entry, Opened};
use zonal_fuse_transport::request::Read;
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve, Session};

use super::zone_files::size;
use super::{BACKGROUND_MAX, Front, REQUEST_MAX, TTL, convert};
use crate::latency::Operation;
use crate::options::AsyncDirect;

/// How long a file is.
const LENGTH: u64 = 1 << 62;

/// What is wanted of the kernel.
const WISHES: Wishes = Wishes {
    needed: InitFlags::ASYNC_DIO,
    wished: InitFlags::empty(),
    request_max: REQUEST_MAX,
    background_max: BACKGROUND_MAX,
    rings: Choice::Never,
};

/// Serves the files of a front end on the hidden mount.
struct HiddenFiles(Front);

/// Makes the hidden mount, if there is to be one and the kernel agrees.
pub(crate) fn make_hidden(session: &Session) -> Option<Hidden> {
    if !session.agreed().contains(InitFlags::PASSTHROUGH) {
        return None;
    }
    let hidden = Hidden::new(&WISHES);
    hidden.inspect_err(|error| tracing::info!(%error, "no hidden mount")).ok()
}

impl Front {
    /// Has the hidden mount served by so many threads, until [`end_hidden`](Self::end_hidden). How asynchronous
    /// direct reads then come.
    pub(crate) fn serve_hidden(
        &self,
        hidden: Option<Hidden>,
        session: &Session,
        threads: usize,
    ) -> AsyncDirect {
        if session.agreed().contains(InitFlags::ASYNC_DIO) {
            return AsyncDirect::Together;
        }
        let Some(hidden) = hidden else { return AsyncDirect::InTurn };
        let server = Arc::new(HiddenFiles(self.clone())) as _;
        match hidden.serve(&server, session, threads) {
            Ok(backings) => {
                self.shared.openings.begin(backings);
                AsyncDirect::Together
            }
            Err(error) => {
                tracing::info!(%error, "no file can be read by a hidden mount");
                AsyncDirect::InTurn
            }
        }
    }

    /// Ends the hidden mount, if there is one: the mount that programs see has ended.
    pub(crate) fn end_hidden(&self) {
        self.shared.openings.end();
    }
}

impl Serve for HiddenFiles {
    fn panicked(&self, message: &str) {
        self.0.panicked(message);
    }

    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let (front, node) = (&self.0, header.node);
        let openings = &front.shared.openings;
        match op {
            Op::Lookup { name } => match node_of(name) {
                Some(node) => reply.entry(&Entry { node, attr: attributes(node), ttl: TTL }),
                None => reply.error(Errno::NOENT),
            },
            Op::Forget { .. } | Op::BatchForget(_) => {}
            Op::Getattr { .. } => reply.attr(&attributes(node), TTL),
            Op::Open { flags } => {
                openings.add_hidden(front.ino(node));
                // Pages come anew with each: none is kept.
                let mut how = FopenFlags::NOFLUSH;
                how.set(FopenFlags::DIRECT_IO, !reads_pages(flags));
                reply.opened(&Opened { handle: 0, flags: how, backing: None });
            }
            Op::Read(read) if read.how.contains(ReadFlags::LOCK_OWNER) => {
                front.read(node, read, reply);
            }
            Op::Read(read) => self.read_pages(node, read, reply),
            Op::Release { .. } => {
                openings.remove_hidden(front.ino(node));
                reply.ok();
            }
            _ => reply.error(Errno::NOSYS),
        }
    }
}

impl HiddenFiles {
    /// Fills pages of the page cache.
    fn read_pages(&self, node: NodeId, read: Read, reply: Reply) {
        let front = &self.0;
        // Before it is read: who changes the file from now on drops them.
        front.shared.openings.add_pages(front.ino(node));
        reply.filled(read.size, |target| {
            if read.offset >= size(&*front.shared.fs, front.ino(node)) {
                // Who touches a mapping there gets SIGBUS.
                return Err(Errno::IO);
            }
            let read =
                front.run(Operation::Read, node, |fs, ino| fs.read(ino, read.offset, target));
            let len = read.inspect_err(|_| front.after_failed_read(node))?;
            target[len..].fill(0);
            Ok(target.len())
        });
    }
}

/// Whether a file that is opened so can be mapped as it is read through the page cache.
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
