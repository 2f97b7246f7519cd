//! What several requests have in common, in terms of the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request,
};
use zonal_fs::rules::{SETGID, SETUID};
use zonal_fs::vfs::{
    Attr, Caller, DirEntry, FileKind, FileSystem, Ino, Listing, NewInode, Privilege,
};
use zonal_fs::{FsError, rules};

use super::process::Credentials;
use super::reply::{GENERATION, ttl};
use super::{Front, convert};
use crate::latency::Operation;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Bytes of the largest directory reply that is filled in one go.
const REPLY_BYTES: usize = 128 << 10;

/// Least bytes of an entry in a READDIR reply, and in a READDIRPLUS reply.
const ENTRY_BYTES: usize = 32;
const ENTRY_PLUS_BYTES: usize = 160;

/// One entry of a directory, copied out of the file system.
struct Entry {
    ino: Ino,
    kind: FileKind,
    name: Box<[u8]>,
    cookie: u64,
}

impl Front {
    /// An inode that the kernel will know from now on.
    pub(super) fn entered(&self, fs: &dyn FileSystem, attr: &Attr) -> Result<FileAttr, FsError> {
        self.shared.pins.add(fs, attr.ino)?;
        Ok(FileAttr { ino: self.shared.nodes.node(attr.ino), ..self.attr(attr) })
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
        parent: INodeNo,
        name: &OsStr,
        new: &NewInode<'_>,
    ) -> Result<FileAttr, Errno> {
        self.run(Operation::Create, parent, |fs, parent| {
            self.entered(fs, &fs.create(caller, parent, name.as_bytes(), new)?)
        })
    }

    /// Makes a regular file and opens it. If it cannot be opened, the lookup is not counted.
    pub(super) fn create_and_open(
        &self,
        caller: &Caller,
        parent: INodeNo,
        name: &OsStr,
        perm: u16,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle, FopenFlags), Errno> {
        let new = NewInode { kind: FileKind::Regular, perm, rdev: 0, target: &[] };
        let attr = self.make(caller, parent, name, &new)?;
        match self.open_file(attr.ino, flags) {
            Ok((handle, flags)) => Ok((attr, handle, flags)),
            Err(error) => {
                self.forget_lookups(self.ino(attr.ino), 1);
                Err(error)
            }
        }
    }

    pub(super) fn list(
        &self,
        ino: INodeNo,
        cookie: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Errno> {
        for entry in self.entries(ino, cookie, REPLY_BYTES / ENTRY_BYTES)? {
            let kind = convert::file_type(entry.kind);
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(INodeNo(entry.ino.get()), entry.cookie, kind, name) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn list_plus(
        &self,
        ino: INodeNo,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Errno> {
        for entry in self.entries(ino, cookie, REPLY_BYTES / ENTRY_PLUS_BYTES)? {
            let name = OsStr::from_bytes(&entry.name);
            // The kernel counts no lookup for these two. Nor can one be had for an inode whose node
            // has another number: fuser has one field for both, and a listing shows the inode's. The
            // kernel lists a node that cannot be, but does not enter it.
            let dot = matches!(&*entry.name, b"." | b"..");
            let only_listed = dot || self.shared.nodes.node(entry.ino).0 != entry.ino.get();
            let found = self.run(Operation::Readdirplus, ino, |fs, _| {
                let attr = fs.getattr(entry.ino)?;
                if only_listed {
                    Ok(convert::attr(&attr, self.shared.blksize))
                } else {
                    self.entered(fs, &attr)
                }
            });
            // Deleted since it was listed: it is not in the directory any more.
            let Ok(attr) = found else { continue };
            if reply.add(attr.ino, entry.cookie, name, &ttl(&attr), &attr, GENERATION) {
                if !only_listed {
                    self.forget_lookups(entry.ino, 1);
                }
                break;
            }
        }
        Ok(())
    }

    /// Up to `limit` entries from `cookie` on.
    fn entries(&self, ino: INodeNo, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        self.run(Operation::Readdir, ino, |fs, ino| {
            let mut entries = Vec::new();
            fs.readdir(ino, cookie, &mut |entry: DirEntry<'_>| {
                if entries.len() == limit {
                    return Listing::Enough;
                }
                let DirEntry { ino, kind, name, cookie } = entry;
                entries.push(Entry { ino, kind, name: name.into(), cookie });
                Listing::More
            })?;
            Ok(entries)
        })
    }
}

/// The permission bits after this caller has changed the content of a file, if they are others:
/// setuid goes, and setgid where the group may execute or the caller is not in it, as in Linux
/// (`fs/attr.c`, `setattr_should_drop_suidgid`). The kernel sees to it for writes; for truncate and
/// fallocate fuser does not pass the flag on.
pub(super) fn perm_after_change(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
) -> Result<Option<u16>, FsError> {
    let attr = fs.getattr(ino)?;
    if attr.kind != FileKind::Regular || attr.perm & (SETUID | SETGID) == 0 {
        return Ok(None);
    }
    let credentials = Credentials::of(request.pid());
    if credentials.keeps_setid() {
        return Ok(None);
    }
    let mut perm = rules::kill_privileges(attr.kind, attr.perm);
    if !credentials.is_in(attr.gid) {
        perm &= !SETGID;
    }
    Ok((perm != attr.perm).then_some(perm))
}

/// Who sets an attribute. The one setgid rule that the kernel leaves to us: an access ACL set by
/// somebody outside the file's group takes setgid away.
pub(super) fn xattr_caller(
    fs: &dyn FileSystem,
    request: &Request,
    ino: Ino,
    name: &[u8],
) -> Result<Caller, FsError> {
    let mut caller = convert::caller(request, 0);
    if name != ACCESS_ACL {
        return Ok(caller);
    }
    let attr = fs.getattr(ino)?;
    if attr.perm & SETGID != 0 {
        // The request's group says nothing: on an idmapped mount it is none.
        let credentials = Credentials::of(request.pid());
        if !credentials.is_in(attr.gid) && !credentials.keeps_setid() {
            caller.privilege = Privilege::None;
        }
    }
    Ok(caller)
}
