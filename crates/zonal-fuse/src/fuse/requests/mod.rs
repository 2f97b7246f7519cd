//! Handlers of requests: each takes the arguments of a request, calls the file system once, and
//! answers.
//!
//! - `names`: names in directories, and new inodes. `directory`: listings.
//! - `attributes`, `xattr`, `ioctl`: attributes and flags of inodes.
//! - `open`: opening and closing. `write`: WRITE. `data`: other requests about content.
//! - `sync`: durability.
//! - `control`: everything about the control directory.
//! - `hidden`: requests of the hidden mount.
//! - `reply`: answers from results.

mod attributes;
mod control;
mod data;
mod directory;
mod hidden;
mod ioctl;
mod names;
mod open;
mod reply;
mod sync;
mod write;
mod xattr;

use zonal_fs::vfs::{FileKind, NewInode};
use zonal_fuse_transport::{Errno, Header, Op, Reply, Serve};

use super::server::FuseServer;
use super::{convert, rights};
use crate::latency::Operation;
use names::NameIn;
use xattr::NewXattr;

pub(crate) use hidden::make_hidden;

impl Serve for FuseServer {
    fn panicked(&self, message: &str) {
        self.fs.guarded.note(message);
    }

    fn end(&self) {
        self.fs.close_early();
    }

    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        match self.control_for(header.node, &op) {
            Some(control) => self.serve_control(&control, header, &op, reply),
            None => self.serve_files(header, op, reply),
        }
    }
}

impl FuseServer {
    fn serve_files(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let node = header.node;
        match op {
            Op::Lookup { name } => self.lookup(node, name, reply),
            Op::Forget { lookups } => self.fs.forget_lookups(node, lookups),
            Op::BatchForget(forgets) => {
                for (node, lookups) in forgets {
                    self.fs.forget_lookups(node, lookups);
                }
            }
            Op::Getattr { open: false } => self.getattr(node, reply),
            Op::Getattr { open: true } => self.getattr_of_open(node, reply),
            Op::Statx => self.statx(node, reply),
            Op::Setattr(set) => self.setattr(header, &set, reply),
            Op::Readlink => self.readlink(node, reply),
            Op::Symlink { name, target } => {
                let new = NewInode { kind: FileKind::Symlink, perm: 0o777, rdev: 0, target };
                self.add(header, name, 0, &new, reply);
            }
            Op::Mknod { name, mode, rdev, umask } => match convert::node_kind(mode) {
                Some(kind) => {
                    let new = NewInode { kind, perm: convert::perm(mode), rdev, target: &[] };
                    self.add(header, name, umask, &new, reply);
                }
                None => reply.error(Errno::INVAL),
            },
            Op::Mkdir { name, mode, umask } => {
                let perm = convert::perm(mode);
                let new = NewInode { kind: FileKind::Directory, perm, rdev: 0, target: &[] };
                self.add(header, name, umask, &new, reply);
            }
            Op::Unlink { name } => self.unlink(node, name, reply),
            Op::Rmdir { name } => {
                let outcome = self.fs.run(Operation::Rmdir, node, |fs, dir| fs.rmdir(dir, name));
                reply::empty(reply, outcome);
            }
            Op::Rename { name, new_parent, new_name, flags } => {
                let from = NameIn { dir: node, name };
                let to = NameIn { dir: new_parent, name: new_name };
                self.rename(from, to, flags, reply);
            }
            Op::Link { source, name } => self.link(source, NameIn { dir: node, name }, reply),
            Op::Open { flags } => {
                let opened = self.open_file(node, flags);
                reply::send(reply, opened, |reply, opened| reply.opened(&opened));
            }
            Op::Create { name, how } => self.create(header, Some(name), how, reply),
            Op::Tmpfile(how) => self.create(header, None, how, reply),
            Op::Release { handle, flags } => {
                self.close_file(node, handle, flags);
                reply.ok();
            }
            Op::Flush => self.flush(reply),
            Op::Readdir(read) => reply::listing(reply, self.list(node, read)),
            Op::Readdirplus(read) => reply::listing(reply, self.list_plus(node, read)),
            Op::Statfs => self.statfs(node, reply),
            Op::Setxattr { name, value, flags, caller } => {
                let caller = rights::acl_setter(header, caller, self.kernel.negotiated());
                self.setxattr(&caller, node, NewXattr { name, value, flags }, reply);
            }
            Op::Getxattr { name, size } => self.getxattr(header, name, size, reply),
            Op::Listxattr { size } => self.listxattr(header, size, reply),
            Op::Removexattr { name } => self.removexattr(header, name, reply),
            Op::Ioctl { command, input } => self.ioctl(header, command, input, reply),
            op => self.serve_data(header, &op, reply),
        }
    }
}
