//! Rights of the caller of a request, decided by the fields of the request alone.
//!
//! A request carries user and group of the caller, numbered as in the user namespace of the mount,
//! and flags of FUSE about set-id bits. From these follows:
//!
//! - User 0 is root, and no other user is: in a namespace of its own any process can have all
//!   capabilities.
//! - The owner of a file is the user with the owner's number.
//! - A change of content or owner clears set-id bits if a FUSE flag says so; if FUSE has no such
//!   flag, it does unless the caller is root.
//! - Membership in the group of a file is known only for the group in the request. Other groups of
//!   the caller are unknown: if they would matter, setgid is cleared, unless FUSE says that it may
//!   stay.
//!
//! `/proc` would say more, but about the process at the time of reading, perhaps after an exec, and
//! as its own namespaces see it. So it is not read.

use std::sync::{Mutex, PoisonError};

use zonal_fs::rules::{CAPABILITY_XATTR, take_setid};
use zonal_fs::vfs::{Attr, Caller, FileSystem, Ino, InodeFlags, Privilege, Result, WriteFlags};
use zonal_fuse_transport::abi::{self, InitFlags, SetxattrFlags};
use zonal_fuse_transport::{Header, NodeId, request};

use super::convert;
use super::route::Route;

/// Inode flags that only root may change.
const GUARDED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND_ONLY);

/// Whether the caller is root.
pub(super) fn is_root(request: &Header) -> bool {
    request.uid == 0
}

/// Whether the caller is the owner of a file, or root.
pub(super) fn owns(request: &Header, file: &Attr) -> bool {
    is_root(request) || request.uid == file.uid
}

/// Whether the caller may set the flags of a file to these. Linux checks this itself from 5.13 on.
pub(super) fn may_set_flags(request: &Header, file: &Attr, flags: InodeFlags) -> bool {
    owns(request, file) && (is_root(request) || !(file.flags ^ flags).intersects(GUARDED))
}

/// Whether listxattr(2) may show an attribute to the caller.
pub(super) fn may_list(request: &Header, name: &[u8]) -> bool {
    is_root(request) || !name.starts_with(b"trusted.")
}

/// The caller of a request that makes an inode.
pub(super) fn creator(request: &Header, umask: u32, negotiated: InitFlags) -> Caller {
    // Linux strips setgid itself from 6.0 on, since it knows the groups of the caller. This flag
    // is newer.
    let is_stripped = negotiated.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
    caller(request, umask, if is_stripped { Privilege::Full } else { privilege(request) })
}

/// The caller of a request that sets attributes. From a new mode, the kernel has stripped a setgid
/// that the caller may not set.
pub(super) fn changer(request: &Header, what: &request::SetAttr) -> Caller {
    caller(request, 0, if what.mode.is_some() { Privilege::Full } else { privilege(request) })
}

/// The caller of a request that sets an extended attribute. An access ACL that is set by a caller
/// outside the group of the file clears setgid. Linux says from 5.14 on whether the caller is
/// outside.
pub(super) fn acl_setter(request: &Header, says: SetxattrFlags, negotiated: InitFlags) -> Caller {
    if !negotiated.contains(InitFlags::SETXATTR_EXT) {
        return caller(request, 0, privilege(request));
    }
    if says.contains(SetxattrFlags::ACL_KILL_SGID) {
        // The kernel has looked at all groups of the caller, so that in the request does not
        // matter.
        return Caller { gid: u32::MAX, ..caller(request, 0, Privilege::None) };
    }
    caller(request, 0, Privilege::Full)
}

/// Flags that make a write by `route` clear privileges.
pub(super) fn taken_by_write(
    request: &Header,
    how: abi::WriteFlags,
    route: Route,
    negotiated: InitFlags,
) -> WriteFlags {
    let mut flags = WriteFlags::empty();
    // The kernel removed capabilities when it collected these pages. The file may have new ones.
    flags.set(WriteFlags::KEEP_CAPABILITY, convert::is_collected(how));
    // Without this flag the kernel clears the bits itself, except at a write that bypasses its
    // pages.
    let is_silent = !negotiated.contains(InitFlags::HANDLE_KILLPRIV_V2) && route != Route::Cached;
    let kills = how.contains(abi::WriteFlags::KILL_SUIDGID) || is_silent && !is_root(request);
    flags.set(WriteFlags::KILL_PRIVILEGES, kills);
    flags
}

/// Flags that make a copy into a file clear privileges. Linux clears set-id bits itself from 5.3
/// on.
pub(super) fn taken_by_copy(request: &Header) -> WriteFlags {
    if is_root(request) { WriteFlags::empty() } else { WriteFlags::KILL_PRIVILEGES }
}

/// Clears set-id bits before a write that bypasses the pages of the kernel: there the kernel does
/// not check whether the caller is in the group of the file.
pub(super) fn take_before_direct_write(
    fs: &dyn FileSystem,
    request: &Header,
    ino: Ino,
) -> Result<()> {
    take_setid(fs, &caller(request, 0, privilege(request)), ino)
}

/// Clears set-id bits before an allocation. Linux does that itself from 6.1 on, and knows the
/// groups of the caller.
pub(super) fn take_before_allocation(
    fs: &dyn FileSystem,
    request: &Header,
    ino: Ino,
) -> Result<()> {
    if is_root(request) {
        Ok(())
    } else {
        take_setid(fs, &caller(request, 0, Privilege::Full), ino)
    }
}

fn caller(request: &Header, umask: u32, privilege: Privilege) -> Caller {
    let umask = convert::perm(umask & 0o777);
    Caller { uid: request.uid, gid: request.gid, umask, privilege }
}

fn privilege(request: &Header) -> Privilege {
    if is_root(request) { Privilege::Full } else { Privilege::None }
}

/// The last file capability that the kernel removed for root.
///
/// The kernel sends the same request, to clear set-id bits and nothing else, in two cases: at
/// `chown(-1, -1)`, which clears them for every caller, and at a write to a file with a capability,
/// where root keeps them. Before a write only, the same thread removes the capability. (So at
/// `chown(-1, -1)` of a file that had one, set-id bits stay too.)
#[derive(Default)]
pub(super) struct TakenCapability(Mutex<Option<(NodeId, u32)>>);

impl TakenCapability {
    /// A request has removed an attribute.
    pub(super) fn note(&self, request: &Header, name: &[u8]) {
        if is_root(request) && name == CAPABILITY_XATTR {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((request.node, request.pid));
        }
    }

    /// Whether a request that only clears set-id bits follows the removal of a capability by a
    /// write.
    pub(super) fn is_all(&self, request: &Header) -> bool {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        is_root(request) && taken == Some((request.node, request.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_fs::vfs::{FileKind, Timestamp};

    fn by(uid: u32, gid: u32) -> Header {
        Header { unique: 1, node: NodeId(7), uid, gid, pid: 9 }
    }

    fn file(uid: u32, flags: InodeFlags) -> Attr {
        let time = Timestamp::default();
        Attr {
            ino: Ino::new(7),
            kind: FileKind::Regular,
            perm: 0o644,
            nlink: 1,
            uid,
            gid: 50,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags,
        }
    }

    #[test]
    fn owner_sets_flags_except_those_of_root() {
        let (none, no_dump) = (InodeFlags::empty(), InodeFlags::NO_DUMP);
        for (uid, before, after, may) in [
            (0, none, GUARDED, true),
            (0, GUARDED, none, true),
            (5, none, no_dump, true),
            (5, InodeFlags::IMMUTABLE, InodeFlags::IMMUTABLE | no_dump, true),
            (5, none, InodeFlags::IMMUTABLE, false),
            (5, InodeFlags::APPEND_ONLY, none, false),
            (6, none, no_dump, false),
            // No user: on a mount that maps users.
            (u32::MAX, none, no_dump, false),
        ] {
            let found = may_set_flags(&by(uid, 50), &file(5, before), after);
            assert_eq!(found, may, "{uid}: {before:?} to {after:?}");
        }
    }

    #[test]
    fn setgid_of_new_file_is_ours_on_old_kernel() {
        let new = InitFlags::DIRECT_IO_ALLOW_MMAP;
        let old = InitFlags::empty();
        for (uid, negotiated, privilege) in [
            (0, old, Privilege::Full),
            (5, old, Privilege::None),
            (0, new, Privilege::Full),
            (5, new, Privilege::Full),
        ] {
            let expected = Caller { uid, gid: 6, umask: 0o22, privilege };
            assert_eq!(creator(&by(uid, 6), 0o22, negotiated), expected);
        }
    }

    #[test]
    fn acl_clears_setgid_as_kernel_says_or_always() {
        let (kill, none) = (SetxattrFlags::ACL_KILL_SGID, SetxattrFlags::empty());
        let (says, silent) = (InitFlags::SETXATTR_EXT, InitFlags::empty());
        let keeps = |uid, gid, how, negotiated| {
            let caller = acl_setter(&by(uid, gid), how, negotiated);
            caller.privilege == Privilege::Full || caller.gid == 50
        };
        assert!(keeps(5, 6, none, says), "in the group, by another than its first");
        assert!(!keeps(5, 50, kill, says));
        assert!(keeps(0, 0, none, silent) && keeps(5, 50, none, silent));
        assert!(!keeps(5, 6, none, silent));
    }

    #[test]
    fn write_clears_privileges_as_kernel_says_or_all() {
        use WriteFlags as Taken;
        let none = abi::WriteFlags::empty();
        let (kill, cache) = (abi::WriteFlags::KILL_SUIDGID, abi::WriteFlags::CACHE);
        let (says, silent) = (InitFlags::HANDLE_KILLPRIV_V2, InitFlags::empty());
        for (uid, how, route, negotiated, taken) in [
            (5, kill, Route::Direct, says, Taken::KILL_PRIVILEGES),
            (0, kill, Route::Direct, says, Taken::KILL_PRIVILEGES),
            (5, none, Route::Direct, says, Taken::empty()),
            (5, none, Route::Direct, silent, Taken::KILL_PRIVILEGES),
            (0, none, Route::Direct, silent, Taken::empty()),
            (5, none, Route::Cached, silent, Taken::empty()),
            (0, cache, Route::Cached, says, Taken::KEEP_CAPABILITY),
        ] {
            assert_eq!(taken_by_write(&by(uid, 6), how, route, negotiated), taken, "{uid} {how:?}");
        }
    }

    #[test]
    fn capability_removed_just_before_is_all_that_goes() {
        let taken = TakenCapability::default();
        let root = by(0, 0);
        assert!(!taken.is_all(&root), "chown(-1, -1)");
        taken.note(&root, CAPABILITY_XATTR);
        assert!(taken.is_all(&root), "a write");
        assert!(!taken.is_all(&root), "once");
        for (other, name) in [
            (Header { pid: 8, ..root }, CAPABILITY_XATTR),
            (Header { node: NodeId(8), ..root }, CAPABILITY_XATTR),
            (by(5, 6), CAPABILITY_XATTR),
            (root, b"user.a"),
        ] {
            taken.note(&other, name);
            assert!(!taken.is_all(&root), "{other:?}");
        }
        let user = by(5, 6);
        taken.note(&user, CAPABILITY_XATTR);
        assert!(!taken.is_all(&user), "set-id bits go with it");
    }

    #[test]
    fn trusted_attributes_are_listed_to_root_only() {
        assert!(may_list(&by(0, 0), b"trusted.a"));
        assert!(!may_list(&by(5, 0), b"trusted.a"));
        assert!(may_list(&by(5, 0), b"user.trusted."));
    }
}
