//! Requests about the control directory. They never reach the file system, and no latency counts
//! them.

use std::sync::Arc;
use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::vfs::{DirEntry, FileModel, Ino, Listing};
use zonal_fuse_transport::answer::Entry;
use zonal_fuse_transport::listing::{Added, DirListing, ListedName};
use zonal_fuse_transport::request::{Read, SetAttr};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, abi};

use super::ioctl::SHUTDOWN;
use super::reply;
use crate::control::Control;
use crate::fuse::convert;
use crate::fuse::route::Route;
use crate::fuse::server::FuseServer;
use crate::names::{CONTROL_DIR, is_control};

impl FuseServer {
    /// The control directory, if a request is about it: about one of its inodes, or its name in the
    /// root.
    pub(super) fn control_for(&self, node: NodeId, op: &Op<'_>) -> Option<Arc<Control>> {
        let control = self.control.as_ref()?;
        let is_inside = |node: NodeId| is_control(self.fs.ino(node));
        let is_named = |dir: NodeId, name: &[u8]| {
            is_inside(dir) || (dir == NodeId::ROOT && name == CONTROL_DIR.as_bytes())
        };
        let is_about_it = match *op {
            Op::Lookup { name }
            | Op::Symlink { name, .. }
            | Op::Mknod { name, .. }
            | Op::Mkdir { name, .. }
            | Op::Create { name, .. }
            | Op::Unlink { name }
            | Op::Rmdir { name } => is_named(node, name),
            Op::Link { source, name } => is_inside(source) || is_named(node, name),
            Op::Rename { name, new_parent, new_name, .. } => {
                is_named(node, name) || is_named(new_parent, new_name)
            }
            Op::CopyFileRange(ref range) => is_inside(node) || is_inside(range.target),
            _ => is_inside(node),
        };
        is_about_it.then(|| Arc::clone(control))
    }

    /// Answers a request about the control directory.
    pub(super) fn serve_control(
        &self,
        control: &Control,
        header: &Header,
        op: &Op<'_>,
        reply: Reply,
    ) {
        let (node, ino) = (header.node, self.fs.ino(header.node));
        let attr = || self.in_control(|| control.getattr(ino));
        let send_attr = |reply| {
            reply::send(reply, attr(), |reply: Reply, attr| {
                reply.attr(&convert::attr(&attr, self.kernel.blksize), Duration::ZERO);
            });
        };
        match *op {
            Op::Forget { .. } | Op::BatchForget(_) => {}
            Op::Lookup { name } => reply::entry(reply, self.control_entry(control, ino, name)),
            Op::Getattr { .. } => send_attr(reply),
            Op::Statx => reply::send(reply, attr(), |reply, attr| {
                reply.statx(&convert::statx(&attr, self.kernel.blksize), Duration::ZERO);
            }),
            // A shell truncates the file to which it redirects output.
            Op::Setattr(ref set) if truncates(set) => send_attr(reply),
            Op::Open { .. } => reply::send(reply, attr(), |reply, _| {
                reply.opened(&reply::opened(Route::Direct, None, FileModel::Posix, self.atime));
            }),
            Op::Release { .. } => reply.ok(),
            Op::Flush => self.flush(reply),
            Op::Read(read) => reply.filled(read.size, |target| {
                self.in_control(|| control.read(ino, read.offset, target))
            }),
            Op::Write(ref write) => {
                let written = self.in_control(|| control.write(ino, write.data));
                let len = u32::try_from(write.data.len()).expect("one request");
                reply::send(reply, written, |reply, ()| reply.written(len));
            }
            // Lets a program that is about to unmount find out whether everything is durable.
            Op::Fsync { .. } | Op::Fsyncdir { .. } | Op::Syncfs => {
                self.sync_all_then(move |synced| reply::empty(reply, synced));
            }
            Op::Readdir(read) | Op::Readdirplus(read) => {
                let is_plus = matches!(op, Op::Readdirplus(_));
                let listing = self.list_control(control, ino, read, is_plus.then(node_zero));
                reply::listing(reply, listing);
            }
            Op::Opendir => self.serve_data(header, op, reply),
            Op::Statfs => self.statfs(node, reply),
            Op::Getxattr { size, .. } => reply::xattr(reply, size, Err(Errno::NODATA)),
            Op::Listxattr { size } => reply::xattr(reply, size, Ok(Vec::new())),
            Op::Ioctl { command: SHUTDOWN, input } => self.ioctl(header, SHUTDOWN, input, reply),
            _ => reply.error(self.control_refusal(op)),
        }
    }

    /// Error of a request that the control directory does not serve. Its names never change.
    fn control_refusal(&self, op: &Op<'_>) -> Errno {
        match *op {
            Op::Setattr(_)
            | Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. } => Errno::PERM,
            Op::Link { source, .. } if !is_control(self.fs.ino(source)) => Errno::PERM,
            Op::Ioctl { .. } => Errno::NOTTY,
            _ => Errno::OPNOTSUPP,
        }
    }

    fn control_entry(&self, control: &Control, dir: Ino, name: &[u8]) -> Result<Entry, Errno> {
        match self.in_control(|| control.lookup(dir, name)) {
            Err(Errno::NOENT) => Ok(reply::absent()),
            found => found.map(|found| {
                let attr = convert::attr(&found, self.kernel.blksize);
                Entry { node: self.fs.nodes.node(found.ino), attr, ttl: Duration::ZERO }
            }),
        }
    }

    /// Entries of the control directory; for READDIRPLUS each comes with `inode`.
    fn list_control(
        &self,
        control: &Control,
        ino: Ino,
        read: Read,
        inode: Option<Entry>,
    ) -> Result<DirListing, Errno> {
        let mut listing = DirListing::new(read.size);
        self.in_control(|| {
            control.list(ino, read.offset, &mut |entry: DirEntry<'_>| {
                let DirEntry { ino, kind, name, cookie } = entry;
                let name = ListedName { ino: ino.get(), cookie, kind: kind.format() >> 12, name };
                let added = match &inode {
                    Some(inode) => listing.add_plus(inode, &name),
                    None => listing.add(&name),
                };
                if added == Added::Full { Listing::Enough } else { Listing::More }
            })
        })?;
        Ok(listing)
    }

    /// Calls the control directory, unless the server is stopped.
    fn in_control<T>(&self, call: impl FnOnce() -> Result<T, FsError>) -> Result<T, Errno> {
        self.fs.inside(|_| call()).ok_or(Errno::IO)?.map_err(|error| {
            let errno = Errno::from_raw_os_error(error.errno());
            if errno == Errno::IO {
                tracing::error!(%error, "the control directory answered EIO");
            }
            errno
        })
    }
}

/// An entry without an inode: the kernel takes only its name, and counts no lookup.
fn node_zero() -> Entry {
    Entry { node: NodeId(0), attr: abi::Attr::default(), ttl: Duration::ZERO }
}

/// Whether a SETATTR only sets the length to 0. A kernel that keeps times sends them too.
fn truncates(set: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, atime, .. } = *set;
    let others = [mode, uid, gid].iter().all(Option::is_none) && atime.is_none();
    others && size == Some(0)
}
