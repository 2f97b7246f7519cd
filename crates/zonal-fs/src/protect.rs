//! The effect of [`InodeFlags::IMMUTABLE`] and [`InodeFlags::APPEND_ONLY`], for all users: pure
//! functions as in [`rules`](crate::rules), after Linux's VFS.
//!
//! | | immutable | append-only |
//! | --- | --- | --- |
//! | open for writing | no | only with `O_APPEND` |
//! | mode, owner, length, times, attributes | no | no; times may become now, capabilities go |
//! | a new link to it, renaming or removing it | no | no |
//! | a new entry in the directory | no | yes |
//! | removing or renaming an entry of the directory | no | no |
//! | fallocate | no | only more space |
//!
//! A file that is open for writing when it gets a flag may still be written, as in XFS: the page
//! cache may have accepted data already. Its modification time may change with it.

use crate::FsError;
use crate::rules::CAPABILITY_XATTR;
use crate::vfs::{Allocate, InodeFlags, Result, SetAttr, SetTime, WriteFlags};

const LOCKED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND_ONLY);

const IMMUTABLE: &str = "the inode is immutable";
const APPEND_ONLY: &str = "the inode is append-only";

fn refuse(flags: InodeFlags, forbidding: InodeFlags) -> Result<()> {
    let held = flags & forbidding;
    if held.contains(InodeFlags::IMMUTABLE) {
        Err(FsError::NotPermitted { what: IMMUTABLE })
    } else if held.contains(InodeFlags::APPEND_ONLY) {
        Err(FsError::NotPermitted { what: APPEND_ONLY })
    } else {
        Ok(())
    }
}

/// Whether a file may be opened for writing: with `APPEND` in `how`, only at its end.
pub fn check_open(flags: InodeFlags, how: WriteFlags) -> Result<()> {
    let appends = how.contains(WriteFlags::APPEND);
    refuse(flags, if appends { InodeFlags::IMMUTABLE } else { LOCKED })
}

/// Whether attributes may be set. Flags may always be set: the caller has checked the permission.
pub fn check_setattr(flags: InodeFlags, set: &SetAttr) -> Result<()> {
    if set.perm.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
        return refuse(flags, LOCKED);
    }
    let forbidding = |time| match time {
        SetTime::Written(_) => InodeFlags::empty(),
        SetTime::Now => InodeFlags::IMMUTABLE,
        SetTime::To(time) if set.ctime == Some(time) => InodeFlags::IMMUTABLE,
        SetTime::To(_) => LOCKED,
    };
    let times = [set.atime, set.mtime].into_iter().flatten();
    refuse(flags, times.map(forbidding).collect())
}

/// Whether extended attributes may be set, and links to the inode made.
pub fn check_inode(flags: InodeFlags) -> Result<()> {
    refuse(flags, LOCKED)
}

/// Whether an extended attribute may be removed. Linux removes `security.capability` before each
/// write to a file, also before an append to one that is append-only.
pub fn check_xattr_removal(flags: InodeFlags, name: &[u8]) -> Result<()> {
    let forbidding = if name == CAPABILITY_XATTR { InodeFlags::IMMUTABLE } else { LOCKED };
    refuse(flags, forbidding)
}

/// Whether a directory takes a new entry.
pub fn check_entry(directory: InodeFlags) -> Result<()> {
    refuse(directory, InodeFlags::IMMUTABLE)
}

/// Whether the entry of a directory that leads to an inode may go.
pub fn check_removal(directory: InodeFlags, inode: InodeFlags) -> Result<()> {
    refuse(directory | inode, LOCKED)
}

/// Whether space may be allocated or zeroed.
pub fn check_allocate(flags: InodeFlags, how: Allocate) -> Result<()> {
    match how {
        Allocate::Extend | Allocate::KeepSize => refuse(flags, InodeFlags::IMMUTABLE),
        Allocate::Punch
        | Allocate::Zero
        | Allocate::ZeroKeepSize
        | Allocate::PunchLater
        | Allocate::ZeroLater => refuse(flags, LOCKED),
    }
}

/// Whether `copy_range` may change a file, which has been opened for writing.
pub fn check_copy(flags: InodeFlags) -> Result<()> {
    refuse(flags, InodeFlags::IMMUTABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::Timestamp;

    /// The answers for each kind of inode: a plain one, an immutable one, an append-only one.
    fn row(check: impl Fn(InodeFlags) -> Result<()>) -> [bool; 3] {
        [InodeFlags::NO_ATIME, InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY]
            .map(|flags| check(flags).is_ok())
    }

    #[test]
    fn protect_flags_match_table() {
        let nothing = SetAttr::default();
        let none = InodeFlags::empty();
        for (name, allowed, expected) in [
            ("open", row(|f| check_open(f, WriteFlags::empty())), [true, false, false]),
            ("append", row(|f| check_open(f, WriteFlags::APPEND)), [true, false, true]),
            (
                "mode",
                row(|f| check_setattr(f, &SetAttr { perm: Some(0), ..nothing })),
                [true, false, false],
            ),
            (
                "length",
                row(|f| check_setattr(f, &SetAttr { size: Some(9), ..nothing })),
                [true, false, false],
            ),
            (
                "touch",
                row(|f| check_setattr(f, &SetAttr { mtime: Some(SetTime::Now), ..nothing })),
                [true, false, true],
            ),
            (
                "time",
                row(|f| {
                    let time = Some(SetTime::To(Timestamp::default()));
                    check_setattr(f, &SetAttr { atime: time, ..nothing })
                }),
                [true, false, false],
            ),
            (
                "touch by who keeps the times",
                row(|f| {
                    let now = Timestamp::new(5, 7);
                    let mtime = now.map(SetTime::To);
                    check_setattr(f, &SetAttr { mtime, ctime: now, ..nothing })
                }),
                [true, false, true],
            ),
            (
                "time by who keeps the times",
                row(|f| {
                    let time = Some(SetTime::To(Timestamp::default()));
                    let ctime = Timestamp::new(5, 7);
                    check_setattr(f, &SetAttr { atime: time, mtime: time, ctime, ..nothing })
                }),
                [true, false, false],
            ),
            (
                "written",
                row(|f| {
                    let mtime = Some(SetTime::Written(Timestamp::default()));
                    check_setattr(f, &SetAttr { mtime, ..nothing })
                }),
                [true; 3],
            ),
            (
                "flags",
                row(|f| check_setattr(f, &SetAttr { flags: Some(none), ..nothing })),
                [true; 3],
            ),
            ("attribute", row(check_inode), [true, false, false]),
            ("new entry", row(check_entry), [true, false, true]),
            ("removal", row(|f| check_removal(f, none)), [true, false, false]),
            ("removed", row(|f| check_removal(none, f)), [true, false, false]),
            ("allocate", row(|f| check_allocate(f, Allocate::KeepSize)), [true, false, true]),
            ("punch", row(|f| check_allocate(f, Allocate::Punch)), [true, false, false]),
            ("copy", row(check_copy), [true, false, true]),
        ] {
            assert_eq!(allowed, expected, "{name}");
        }
    }
}
