//! What several requests have in common, in terms of the file system.

use std::time::Duration;

use zonal_fs::FsError;
use zonal_fs::vfs::{
    Attr, Caller, DirEntry, FileKind, FileSystem, Ino, Listing, NewInode, ReadFlags,
};
use zonal_fuse_transport::listing::{self, Added, Name};
use zonal_fuse_transport::reply::{Entry, Opened};
use zonal_fuse_transport::request::Read;
use zonal_fuse_transport::{Errno, NodeId};

use super::reply::ttl;
use super::{Front, convert};
use crate::latency::Operation;

/// Least bytes of an entry in a READDIR reply, and in a READDIRPLUS reply.
const ENTRY_BYTES: u32 = 32;
const ENTRY_PLUS_BYTES: u32 = 160;

/// One entry of a directory, copied out of the file system.
struct Found {
    ino: Ino,
    kind: FileKind,
    name: Box<[u8]>,
    cookie: u64,
}

impl Found {
    /// As a listing has it, of an inode of this mode.
    fn name(&self, mode: u32) -> Name<'_> {
        Name { ino: self.ino.get(), cookie: self.cookie, kind: mode >> 12, name: &self.name }
    }
}

impl Front {
    /// An inode that the kernel will know from now on.
    pub(super) fn entered(&self, fs: &dyn FileSystem, attr: &Attr) -> Result<Entry, FsError> {
        self.shared.pins.add(fs, attr.ino)?;
        let node = self.shared.nodes.node(attr.ino);
        let attr = self.attr(attr);
        Ok(Entry { node, attr, ttl: ttl(&attr) })
    }

    /// Takes back lookups. A stopped front end has let go of everything already.
    pub(super) fn forget_lookups(&self, ino: Ino, lookups: u64) {
        let _ = self.run(Operation::Forget, self.shared.nodes.node(ino), |fs, ino| {
            self.shared.releases.note(|| self.shared.pins.forget(fs, ino, lookups));
            Ok(())
        });
    }

    pub(super) fn make(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Entry, Errno> {
        self.run(Operation::Create, parent, |fs, parent| {
            self.entered(fs, &fs.create(caller, parent, name, new)?)
        })
    }

    /// Makes a regular file and opens it. If it cannot be opened, the lookup is not counted.
    pub(super) fn create_and_open(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: Option<&[u8]>,
        (perm, flags): (u16, i32),
    ) -> Result<(Entry, Opened), Errno> {
        let new = NewInode { kind: FileKind::Regular, perm, rdev: 0, target: &[] };
        let entry = match name {
            Some(name) => self.make(caller, parent, name, &new)?,
            None => self.run(Operation::Create, parent, |fs, parent| {
                let attr = fs.create_unnamed(caller, parent, &new)?;
                let entered = self.entered(fs, &attr);
                // The pin that it came with; it has one of ours now.
                fs.unpin(attr.ino);
                entered
            })?,
        };
        match self.open_file(entry.node, flags) {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.forget_lookups(self.ino(entry.node), 1);
                Err(error)
            }
        }
    }

    pub(super) fn list(&self, ino: NodeId, read: Read) -> Result<listing::Listing, Errno> {
        let mut listing = listing::Listing::new(read.size);
        for found in self.entries(ino, read, ENTRY_BYTES)? {
            if listing.add(&found.name(found.kind.format())) == Added::Full {
                break;
            }
        }
        Ok(listing)
    }

    pub(super) fn list_plus(&self, ino: NodeId, read: Read) -> Result<listing::Listing, Errno> {
        let mut listing = listing::Listing::new(read.size);
        for found in self.entries(ino, read, ENTRY_PLUS_BYTES)? {
            // The kernel counts no lookup for these two.
            let dot = matches!(&*found.name, b"." | b"..");
            let entry = self.run(Operation::Readdirplus, ino, |fs, _| {
                let attr = fs.getattr(found.ino)?;
                if dot {
                    let attr = convert::attr(&attr, self.shared.blksize);
                    Ok(Entry { node: NodeId(0), attr, ttl: Duration::ZERO })
                } else {
                    self.entered(fs, &attr)
                }
            });
            // Deleted since it was listed: it is not in the directory any more.
            let Ok(entry) = entry else { continue };
            if listing.add_plus(&entry, &found.name(entry.attr.mode)) == Added::Full {
                if !dot {
                    self.forget_lookups(found.ino, 1);
                }
                break;
            }
        }
        Ok(listing)
    }

    /// Entries as a request asks for them: as many as it has room for, if they have so many bytes
    /// each.
    fn entries(&self, ino: NodeId, read: Read, entry_bytes: u32) -> Result<Vec<Found>, Errno> {
        let limit = usize::try_from(read.size / entry_bytes).unwrap_or(usize::MAX);
        let mut how = convert::read_flags(read.how, read.flags);
        if self.shared.nodiratime {
            how |= ReadFlags::NO_ATIME;
        }
        self.run(Operation::Readdir, ino, |fs, ino| {
            let mut entries = Vec::new();
            fs.readdir_with(ino, read.offset, how, &mut |entry: DirEntry<'_>| {
                if entries.len() == limit {
                    return Listing::Enough;
                }
                let DirEntry { ino, kind, name, cookie } = entry;
                entries.push(Found { ino, kind, name: name.into(), cookie });
                Listing::More
            })?;
            Ok(entries)
        })
    }
}
