//! One method per FUSE request: arguments in, one call of the file system, reply out.

use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, Caller, FileKind, NewInode, SetAttr, XattrMode};
use zonal_fuse_transport::abi::Kstatfs;
use zonal_fuse_transport::request::{self, Create};
use zonal_fuse_transport::{Errno, Header, NodeId, Op, Reply, Serve};

use super::pages::HoldsNoPage;
use super::reply::ttl;
use super::{Front, convert, reply, rights};
use crate::latency::Operation;
use crate::unmount::{DAEMON_XATTR, STOPPED_XATTR};

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Whether the front end answers an attribute itself.
fn is_own_xattr(ino: NodeId, name: &[u8]) -> bool {
    ino == NodeId::ROOT && [DAEMON_XATTR, STOPPED_XATTR].iter().any(|own| own.as_bytes() == name)
}

impl Serve for Front {
    fn panicked(&self, message: &str) {
        Self::panicked(self, message);
    }

    fn end(&self) {
        let mut closed = self.closed();
        if closed.is_none() {
            *closed = Some(self.close_now());
        }
    }

    fn serve(&self, header: &Header, op: Op<'_>, reply: Reply) {
        let node = header.node;
        match op {
            Op::Lookup { name } => self.lookup(node, name, reply),
            Op::Forget { lookups } => self.forget_lookups(self.ino(node), lookups),
            Op::BatchForget(forgets) => {
                for (node, lookups) in forgets {
                    self.forget_lookups(self.ino(node), lookups);
                }
            }
            Op::Getattr { open: false } => self.getattr(node, reply),
            Op::Getattr { open: true } => self.getattr_of_open(node, reply),
            Op::Statx => self.statx(node, reply),
            Op::Setattr(set) => self.setattr(header, &set, reply),
            Op::Readlink => self.readlink(node, reply),
            Op::Symlink { name, target } => {
                let new = NewInode { kind: FileKind::Symlink, perm: 0o777, rdev: 0, target };
                self.add(header, (name, 0), &new, reply);
            }
            Op::Mknod { name, mode, rdev, umask } => match convert::node_kind(mode) {
                Some(kind) => {
                    let new = NewInode { kind, perm: convert::perm(mode), rdev, target: &[] };
                    self.add(header, (name, umask), &new, reply);
                }
                None => reply.error(Errno::INVAL),
            },
            Op::Mkdir { name, mode, umask } => {
                let perm = convert::perm(mode);
                let new = NewInode { kind: FileKind::Directory, perm, rdev: 0, target: &[] };
                self.add(header, (name, umask), &new, reply);
            }
            Op::Unlink { name } => self.unlink(node, name, reply),
            Op::Rmdir { name } => {
                let outcome = self.run(Operation::Rmdir, node, |fs, dir| fs.rmdir(dir, name));
                reply::empty(reply, outcome);
            }
            Op::Rename { name, new_parent, new_name, flags } => {
                self.rename((node, name), (new_parent, new_name), flags, reply);
            }
            Op::Link { source, name } => self.link(source, (node, name), reply),
            Op::Open { flags } => match self.open_file(node, flags) {
                Ok(opened) => reply.opened(&opened),
                Err(error) => reply.error(error),
            },
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
                let caller = rights::acl_setter(header, caller, self.agreed());
                self.setxattr(&caller, (node, name), (value, flags), reply);
            }
            Op::Getxattr { name, size } => self.getxattr(node, name, size, reply),
            Op::Listxattr { size } => self.listxattr(header, size, reply),
            Op::Removexattr { name } => self.removexattr(header, name, reply),
            Op::Ioctl { command, input } => match self.control(header, node, command, input) {
                Ok(answer) => reply.ioctl(&answer),
                Err(error) => reply.error(error),
            },
            op => self.serve_data(header, &op, reply),
        }
    }
}

impl Front {
    fn lookup(&self, parent: NodeId, name: &[u8], reply: Reply) {
        let found = self.run(Operation::Lookup, parent, |fs, parent| {
            // Only file handles ask for ".", and of any inode, not only of directories.
            if name == b"." {
                return self.entered(fs, &fs.getattr(parent)?);
            }
            match fs.lookup(parent, name) {
                Ok(attr) => self.entered(fs, &attr),
                Err(FsError::NotFound) => Ok(convert::absent()),
                Err(error) => Err(error),
            }
        });
        reply::entry(reply, found);
    }

    fn getattr(&self, ino: NodeId, reply: Reply) {
        reply::attr(reply, self.attributes(ino).map(|attr| self.attr(&attr)));
        self.have_writes_ask(ino);
    }

    /// The kernel may ask on behalf of a write(2).
    fn getattr_of_open(&self, ino: NodeId, reply: Reply) {
        match self.refusal_of_writes(ino) {
            Some(error) => reply.error(error),
            None => self.getattr(ino, reply),
        }
    }

    /// Those of the root are there even when all else is stopped, so that it can be unmounted.
    fn attributes(&self, ino: NodeId) -> Result<Attr, Errno> {
        match self.shared.stopped_root.get() {
            Some(root) if ino == NodeId::ROOT => Ok(*root),
            Some(_) | None => self.run(Operation::Getattr, ino, |fs, ino| fs.getattr(ino)),
        }
    }

    fn statx(&self, ino: NodeId, reply: Reply) {
        match self.attributes(ino) {
            Ok(attr) => {
                let ttl = ttl(&self.attr(&attr));
                reply.statx(&convert::statx(&attr, self.shared.blksize), ttl);
            }
            Err(error) => reply.error(error),
        }
        self.have_writes_ask(ino);
    }

    fn setattr(&self, header: &Header, what: &request::SetAttr, reply: Reply) {
        let ino = header.node;
        let request::SetAttr { mode, uid, gid, size, atime, mtime, handle, kill_suidgid, .. } =
            *what;
        if handle.is_some() && size == Some(0) && self.takes_back_write(header, ino) {
            return reply.error(Errno::IO);
        }
        let mut set = SetAttr {
            perm: mode.map(convert::perm),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: None,
            kill_privileges: kill_suidgid || uid.is_some() || gid.is_some(),
            flags: None,
        };
        if set == SetAttr::default() {
            // With nothing to set, the kernel wants setuid and setgid cleared: chown(-1, -1),
            // or a change of the content by an unprivileged process.
            // A write(2) comes without a time, where times come.
            let is_write = self.shared.taken_capability.is_all(header) && what.ctime.is_none();
            set.kill_privileges = !is_write;
        }
        self.take_kept_times(what, &mut set);
        let caller = rights::changer(header, what);
        let result = self.run(Operation::Setattr, ino, |fs, ino| {
            fs.setattr(&caller, ino, &set).map(|attr| self.attr(&attr))
        });
        if size.is_some() {
            let answered = HoldsNoPage::of_setattr();
            self.settle(ino, answered, move || reply::attr(reply, result));
        } else {
            reply::attr(reply, result);
        }
    }

    fn readlink(&self, ino: NodeId, reply: Reply) {
        match self.run(Operation::Readlink, ino, |fs, ino| fs.readlink(ino)) {
            Ok(target) => reply.bytes(&target),
            Err(error) => reply.error(error),
        }
    }

    /// Anything but a regular file that is opened at once.
    fn add(&self, header: &Header, (name, umask): (&[u8], u32), new: &NewInode<'_>, reply: Reply) {
        let caller = rights::creator(header, umask, self.agreed());
        reply::entry(reply, self.make(&caller, header.node, name, new));
    }

    fn create(&self, header: &Header, name: Option<&[u8]>, how: Create, reply: Reply) {
        let caller = rights::creator(header, how.umask, self.agreed());
        let file = (convert::perm(how.mode), how.flags);
        match self.create_and_open(&caller, header.node, name, file) {
            Ok((entry, opened)) => reply.created(&entry, &opened),
            // The kernel holds the directory and knows that the name is free.
            Err(error) => reply.error(error),
        }
    }

    fn rename(
        &self,
        (parent, name): (NodeId, &[u8]),
        (new_parent, new_name): (NodeId, &[u8]),
        flags: u32,
        reply: Reply,
    ) {
        let result = convert::rename_flags(flags).and_then(|flags| {
            self.run(Operation::Rename, parent, |fs, parent| {
                let target = (self.ino(new_parent), new_name);
                // What has that name loses it, unless it gets the other one.
                self.losing_name(fs, target, || fs.rename((parent, name), target, flags))
            })
        });
        reply::empty(reply, result);
    }

    fn unlink(&self, node: NodeId, name: &[u8], reply: Reply) {
        let outcome = self.run(Operation::Unlink, node, |fs, dir| {
            self.losing_name(fs, (dir, name), || fs.unlink(dir, name))
        });
        reply::empty(reply, outcome);
    }

    fn link(&self, source: NodeId, (parent, name): (NodeId, &[u8]), reply: Reply) {
        self.shared.links.is_locked(self.ino(source));
        let result = self.run(Operation::Link, source, |fs, ino| {
            self.entered(fs, &fs.link(ino, self.ino(parent), name)?)
        });
        reply::entry(reply, result);
    }

    fn statfs(&self, ino: NodeId, reply: Reply) {
        match self.run(Operation::Statfs, ino, |fs, _| fs.statfs()) {
            Ok(stat) => reply.statfs(&Kstatfs {
                blocks: stat.blocks,
                bfree: stat.blocks_free,
                bavail: stat.blocks_free,
                files: stat.inodes.saturating_add(stat.inodes_free),
                ffree: stat.inodes_free,
                bsize: stat.block_size,
                namelen: u32::try_from(stat.name_max).unwrap_or(u32::MAX),
                frsize: stat.block_size,
                ..Kstatfs::default()
            }),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        caller: &Caller,
        (ino, name): (NodeId, &[u8]),
        (value, flags): (&[u8], i32),
        reply: Reply,
    ) {
        if is_own_xattr(ino, name) {
            return reply.error(Errno::PERM);
        }
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::INVAL),
        };
        let result = self
            .run(Operation::Setxattr, ino, |fs, ino| fs.setxattr(caller, ino, name, value, mode));
        reply::empty(reply, result);
    }

    fn getxattr(&self, ino: NodeId, name: &[u8], size: u32, reply: Reply) {
        let value = if !is_own_xattr(ino, name) {
            self.run(Operation::Getxattr, ino, |fs, ino| fs.getxattr(ino, name))
        } else if name == DAEMON_XATTR.as_bytes() {
            Ok(std::process::id().to_string().into_bytes())
        } else if self.is_stopped() {
            Ok(b"1".to_vec())
        } else {
            Err(Errno::NODATA)
        };
        reply::xattr(reply, size, value);
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply) {
        let names = self.run(Operation::Listxattr, header.node, |fs, ino| fs.listxattr(ino));
        let names = names.map(|names| {
            let mut list = Vec::new();
            for name in names.iter().filter(|name| rights::may_list(header, name)) {
                list.extend_from_slice(name);
                list.push(0);
            }
            list
        });
        reply::xattr(reply, size, names);
    }

    fn removexattr(&self, header: &Header, name: &[u8], reply: Reply) {
        let ino = header.node;
        if is_own_xattr(ino, name) {
            return reply.error(Errno::PERM);
        }
        let result = self.run(Operation::Removexattr, ino, |fs, ino| fs.removexattr(ino, name));
        self.shared.taken_capability.note(header, name);
        reply::empty(reply, result);
    }
}
