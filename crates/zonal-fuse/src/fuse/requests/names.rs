//! Names in directories, and new inodes.

use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, Caller, FileKind, FileSystem, NewInode};
use zonal_fuse_transport::answer::Entry;
use zonal_fuse_transport::request::Create;
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use super::reply;
use crate::fuse::server::FuseServer;
use crate::fuse::{convert, rights};
use crate::latency::Operation;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct NameIn<'a> {
    pub(super) dir: NodeId,
    pub(super) name: &'a [u8],
}

impl FuseServer {
    pub(super) fn lookup(&self, parent: NodeId, name: &[u8], reply: Reply) {
        let found = self.fs.run(Operation::Lookup, parent, |fs, parent| {
            // Lookups of "." come from file handles, and for any inode, not only directories.
            if name == b"." {
                return self.entered(fs, &fs.getattr(parent)?);
            }
            match fs.lookup(parent, name) {
                Ok(attr) => self.entered(fs, &attr),
                Err(FsError::NotFound) => Ok(reply::absent()),
                Err(error) => Err(error),
            }
        });
        reply::entry(reply, found);
    }

    pub(super) fn readlink(&self, node: NodeId, reply: Reply) {
        let target = self.fs.run(Operation::Readlink, node, |fs, ino| fs.readlink(ino));
        reply::send(reply, target, |reply, target| reply.bytes(&target));
    }

    /// Makes an inode without opening it.
    pub(super) fn add(
        &self,
        header: &Header,
        name: &[u8],
        umask: u32,
        new: &NewInode<'_>,
        reply: Reply,
    ) {
        let caller = rights::creator(header, umask, self.kernel.negotiated());
        reply::entry(reply, self.make(&caller, header.node, name, new));
    }

    /// Makes a regular file, without a name if there is none, and opens it. If the open fails, the
    /// lookup does not count.
    pub(super) fn create(&self, header: &Header, name: Option<&[u8]>, how: Create, reply: Reply) {
        let caller = rights::creator(header, how.umask, self.kernel.negotiated());
        let perm = convert::perm(how.mode);
        let new = NewInode { kind: FileKind::Regular, perm, rdev: 0, target: &[] };
        let made = match name {
            Some(name) => self.make(&caller, header.node, name, &new),
            None => self.fs.run(Operation::Create, header.node, |fs, parent| {
                let attr = fs.create_unnamed(&caller, parent, &new)?;
                let entered = self.entered(fs, &attr);
                // `create_unnamed` pins it, and the lookup count has a pin of its own.
                fs.unpin(attr.ino);
                entered
            }),
        };
        let created = made.and_then(|entry| match self.open_file(entry.node, how.flags) {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.fs.forget_lookups(entry.node, 1);
                Err(error)
            }
        });
        // Not EEXIST: the kernel has locked the directory and knows that the name is free.
        reply::send(reply, created, |reply, (entry, opened)| reply.created(&entry, &opened));
    }

    pub(super) fn rename(&self, from: NameIn<'_>, to: NameIn<'_>, flags: u32, reply: Reply) {
        let result = convert::rename_flags(flags).and_then(|flags| {
            self.fs.run(Operation::Rename, from.dir, |fs, dir| {
                let target = (self.fs.ino(to.dir), to.name);
                // A file of the new name loses it, unless both names are exchanged.
                self.kernel
                    .lost_names
                    .around(fs, target.0, target.1, || fs.rename((dir, from.name), target, flags))
            })
        });
        reply::empty(reply, result);
    }

    pub(super) fn unlink(&self, node: NodeId, name: &[u8], reply: Reply) {
        let outcome = self.fs.run(Operation::Unlink, node, |fs, dir| {
            self.kernel.lost_names.around(fs, dir, name, || fs.unlink(dir, name))
        });
        reply::empty(reply, outcome);
    }

    pub(super) fn link(&self, source: NodeId, to: NameIn<'_>, reply: Reply) {
        self.kernel.lost_names.is_locked(self.fs.ino(source));
        let result = self.fs.run(Operation::Link, source, |fs, ino| {
            self.entered(fs, &fs.link(ino, self.fs.ino(to.dir), to.name)?)
        });
        reply::entry(reply, result);
    }

    /// Counts a lookup of an inode, and returns the entry for the answer.
    pub(super) fn entered(&self, fs: &dyn FileSystem, attr: &Attr) -> Result<Entry, FsError> {
        self.fs.lookup_counts.add(fs, attr.ino)?;
        let node = self.fs.nodes.node(attr.ino);
        let attr = self.kernel.attr(attr);
        Ok(Entry { node, attr, ttl: self.attr_ttl(node, &attr) })
    }

    fn make(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Entry, Errno> {
        self.fs.run(Operation::Create, parent, |fs, parent| {
            self.entered(fs, &fs.create(caller, parent, name, new)?)
        })
    }
}
