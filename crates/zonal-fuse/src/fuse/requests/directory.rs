//! Listings of directories.

use std::time::Duration;

use zonal_fs::vfs::{DirEntry, FileKind, Ino, Listing, ReadFlags};
use zonal_fuse_transport::abi::Attr;
use zonal_fuse_transport::answer::Entry;
use zonal_fuse_transport::listing::{Added, DirListing, ListedName};
use zonal_fuse_transport::request::Read;
use zonal_fuse_transport::{Errno, NodeId};

use crate::fuse::convert;
use crate::fuse::server::FuseServer;
use crate::latency::Operation;

/// Least size of an entry in the answer to READDIR, and to READDIRPLUS, in bytes.
const ENTRY_BYTES: u32 = 32;
const ENTRY_PLUS_BYTES: u32 = 160;

/// One entry of a directory, copied out of the file system.
struct CopiedEntry {
    ino: Ino,
    kind: FileKind,
    name: Box<[u8]>,
    cookie: u64,
}

impl CopiedEntry {
    /// The entry in an answer; `mode` is that of its inode.
    fn name(&self, mode: u32) -> ListedName<'_> {
        ListedName { ino: self.ino.get(), cookie: self.cookie, kind: mode >> 12, name: &self.name }
    }
}

impl FuseServer {
    pub(super) fn list(&self, node: NodeId, read: Read) -> Result<DirListing, Errno> {
        let mut listing = DirListing::new(read.size);
        for found in self.entries(node, read, ENTRY_BYTES)? {
            if listing.add(&found.name(found.kind.format())) == Added::Full {
                break;
            }
        }
        Ok(listing)
    }

    pub(super) fn list_plus(&self, node: NodeId, read: Read) -> Result<DirListing, Errno> {
        let mut listing = DirListing::new(read.size);
        for found in self.entries(node, read, ENTRY_PLUS_BYTES)? {
            // The kernel counts no lookup for "." and "..".
            let dot = matches!(&*found.name, b"." | b"..");
            let node = self.fs.nodes.node(found.ino);
            let entry = self.fs.run(Operation::Readdirplus, node, |fs, _| {
                let attr = fs.getattr(found.ino)?;
                if dot {
                    let attr = convert::attr(&attr, self.kernel.blksize);
                    Ok(Entry { node: NodeId(0), attr, ttl: Duration::ZERO })
                } else {
                    self.entered(fs, &attr)
                }
            });
            let entry = match entry {
                Ok(entry) => entry,
                // It was deleted since it was listed.
                Err(Errno::NOENT) => continue,
                // The name alone: the kernel asks for its inode when a program does, and the
                // program gets the error.
                Err(_) => {
                    let attr = Attr { mode: found.kind.format(), ..Attr::default() };
                    Entry { node: NodeId(0), attr, ttl: Duration::ZERO }
                }
            };
            if listing.add_plus(&entry, &found.name(entry.attr.mode)) == Added::Full {
                if entry.node != NodeId(0) {
                    self.fs.forget_lookups(node, 1);
                }
                break;
            }
        }
        Ok(listing)
    }

    /// Copies the entries for an answer: at most as many as fit if each has `entry_bytes`.
    fn entries(
        &self,
        node: NodeId,
        read: Read,
        entry_bytes: u32,
    ) -> Result<Vec<CopiedEntry>, Errno> {
        let limit = usize::try_from(read.size / entry_bytes).unwrap_or(usize::MAX);
        let mut how = convert::read_flags(read.how, read.flags);
        if self.nodiratime {
            how |= ReadFlags::NO_ATIME;
        }
        self.fs.run(Operation::Readdir, node, |fs, ino| {
            let mut entries = Vec::new();
            fs.readdir_with(ino, read.offset, how, &mut |entry: DirEntry<'_>| {
                if entries.len() == limit {
                    return Listing::Enough;
                }
                let DirEntry { ino, kind, name, cookie } = entry;
                entries.push(CopiedEntry { ino, kind, name: name.into(), cookie });
                Listing::More
            })?;
            Ok(entries)
        })
    }
}
