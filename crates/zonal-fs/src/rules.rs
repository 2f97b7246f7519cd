//! The rules of POSIX and Linux that do not depend on how a file system stores anything: pure
//! functions from attributes to attributes. Furrow and the reference
//! tree call the same ones, so they cannot differ here.
//!
//! The kernel, or the program that calls the library, has already checked permissions, with sticky
//! bit and ownership. These functions decide the rest:
//!
//! | event | function |
//! | --- | --- |
//! | a new inode's owner, mode and ACLs | [`new_inode`] |
//! | `chmod`, `chown`, `truncate`: the mode afterwards | [`perm_after`] |
//! | a write or truncation that clears setuid and setgid | [`kill_privileges`] |
//! | a change of content or owner: capabilities go | [`takes_capability`], [`CAPABILITY_XATTR`] |
//! | setting an ACL | [`set_access_acl`], [`set_default_acl`] |
//! | names of entries and attributes | [`check_name`], [`check_xattr_name`], [`check_xattr`] |
//! | which entry may replace which in a rename | [`check_rename`] |
//! | whether a read is to move the access time | [`atime_is_due`] |
//!
//! Which times an operation sets to now:
//!
//! | operation | inode | parent directories |
//! | --- | --- | --- |
//! | create | all four | mtime, ctime |
//! | link | ctime | mtime, ctime |
//! | unlink, rmdir | ctime | mtime, ctime |
//! | rename | ctime of the moved and of the replaced inode | mtime, ctime of both |
//! | write, `copy_range` of at least one byte; truncate, also to the same size | mtime, ctime | |
//! | fallocate | mtime, ctime | |
//! | any other `setattr` that sets something; setting or removing an attribute | ctime | |
//! | read, readdir, readlink | atime, if it is due | |

use crate::FsError;
use crate::acl::{self, Acl};
use crate::lifetime::{LIFETIME_XATTR, WriteLifetime};
use crate::vfs::{
    Attr, Caller, FileKind, FileSystem, Ino, NAME_MAX, Privilege, RenameFlags, Result, SYMLINK_MAX,
    SetAttr, Timestamp, XATTR_VALUE_MAX,
};

/// Setuid bit.
pub const SETUID: u16 = 0o4000;
/// Setgid bit.
pub const SETGID: u16 = 0o2000;
/// Execution by the group: only with it does setgid mean "run as this group".
const GROUP_EXECUTE: u16 = 0o0010;
/// All bits of [`Attr::perm`].
pub const PERM_MASK: u16 = 0o7777;

/// The attribute with the capabilities of a program. It was granted to one content and one owner,
/// so a write, a truncation, an allocation, a copy into the file and `chown` remove it.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Longest name of an extended attribute (Linux `XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;

/// Largest size of a file: 8 EiB less a byte, the largest signed offset.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Attributes of a new inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialAttrs {
    /// Permission bits, setuid, setgid, sticky.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its extended attributes: the access ACL, unless the mode is equivalent, and inherited ones.
    pub xattrs: Vec<(&'static [u8], Vec<u8>)>,
}

/// Owner, mode and extended attributes of an inode of `kind` that `caller` creates with `perm` in
/// `parent`. `parent_xattr` looks up an extended attribute of `parent`.
///
/// A default ACL replaces the umask. An inode in a setgid directory gets its group, and a directory
/// also the bit. Files and directories inherit the lifetime hint of their directory. A symbolic
/// link has all permissions and no ACL.
pub fn new_inode<'a>(
    caller: &Caller,
    parent: &Attr,
    parent_xattr: impl Fn(&[u8]) -> Option<&'a [u8]>,
    kind: FileKind,
    perm: u16,
) -> Result<InitialAttrs> {
    let parent_gives_group = parent.perm & SETGID != 0;
    let gid = if parent_gives_group { parent.gid } else { caller.gid };
    let mut initial = InitialAttrs { perm: 0o777, uid: caller.uid, gid, xattrs: Vec::new() };
    if kind == FileKind::Symlink {
        return Ok(initial);
    }
    let mut perm = perm & PERM_MASK;
    let runs_as_group = perm & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
    if kind == FileKind::Directory {
        perm &= !SETGID;
        perm |= parent.perm & SETGID;
    } else if parent_gives_group && runs_as_group && !may_keep_setgid(caller, gid) {
        perm &= !SETGID;
    }
    let default = match parent_xattr(acl::DEFAULT) {
        Some(value) => Acl::decode(value)?,
        None => None,
    };
    if let Some(default) = default {
        let (access, allowed) = default.inherit(perm);
        perm = (perm & !0o777) | allowed;
        if !access.is_plain() {
            initial.xattrs.push((acl::ACCESS, access.encode()));
        }
        if kind == FileKind::Directory {
            initial.xattrs.push((acl::DEFAULT, default.encode()));
        }
    } else {
        perm &= !(caller.umask & 0o777);
    }
    let lifetime = LIFETIME_XATTR.as_bytes();
    if matches!(kind, FileKind::Regular | FileKind::Directory)
        && let Some(value) = parent_xattr(lifetime)
    {
        initial.xattrs.push((lifetime, value.to_vec()));
    }
    initial.perm = perm;
    Ok(initial)
}

/// The permission bits of an inode after `set`: `chown` of anything but a directory clears setuid
/// and setgid, `chmod` by someone outside the file's group clears setgid. A change that clears
/// bits, by someone outside the group, also clears a setgid without group execution (Linux,
/// `setattr_should_drop_sgid`).
pub fn perm_after(caller: &Caller, attr: &Attr, set: &SetAttr) -> u16 {
    let chown = set.uid.is_some() || set.gid.is_some();
    let mut perm = attr.perm;
    if chown || set.kill_privileges {
        perm = kill_privileges(attr.kind, perm);
        if attr.kind != FileKind::Directory && !may_keep_setgid(caller, attr.gid) {
            perm &= !SETGID;
        }
    }
    if let Some(asked) = set.perm {
        perm = asked & PERM_MASK;
        if !may_keep_setgid(caller, set.gid.unwrap_or(attr.gid)) {
            perm &= !SETGID;
        }
    }
    perm
}

/// Whether `set` takes [`CAPABILITY_XATTR`] away.
pub fn takes_capability(kind: FileKind, set: &SetAttr) -> bool {
    let chown = set.uid.is_some() || set.gid.is_some();
    kind != FileKind::Directory && (chown || set.size.is_some() || set.kill_privileges)
}

/// Clears setuid and setgid of a file before its content changes, as Linux does: content that an
/// unprivileged caller has changed never runs with the rights of another user. It reads the
/// attributes first and leaves a file without these bits alone.
pub fn take_setid(fs: &dyn FileSystem, caller: &Caller, ino: Ino) -> Result<()> {
    if has_setid(&fs.getattr(ino)?) {
        fs.setattr(caller, ino, &SetAttr { kill_privileges: true, ..SetAttr::default() })?;
    }
    Ok(())
}

/// Whether an inode has a bit that [`kill_privileges`] clears, or a write by someone outside its
/// group.
fn has_setid(attr: &Attr) -> bool {
    attr.kind != FileKind::Directory && attr.perm & (SETUID | SETGID) != 0
}

/// `perm` without setuid, and without setgid where the group may execute. Directories keep both.
pub const fn kill_privileges(kind: FileKind, perm: u16) -> u16 {
    if matches!(kind, FileKind::Directory) {
        return perm;
    }
    let keep_setgid = perm & GROUP_EXECUTE == 0;
    perm & !SETUID & if keep_setgid { PERM_MASK } else { !SETGID }
}

/// The value of the access ACL once the inode's mode has become `perm`; `value` is the present one.
pub fn chmod_acl(value: &[u8], perm: u16) -> Result<Option<Vec<u8>>> {
    let Some(mut acl) = Acl::decode(value)? else { return Ok(None) };
    acl.set_perm(perm);
    Ok((!acl.is_plain()).then(|| acl.encode()))
}

/// Effect of setting [`acl::ACCESS`] to `value`: the new permission bits, and the value to store,
/// or `None` if the bits are equivalent.
pub fn set_access_acl(
    caller: &Caller,
    attr: &Attr,
    value: &[u8],
) -> Result<(u16, Option<Vec<u8>>)> {
    if attr.kind == FileKind::Symlink {
        return Err(FsError::Unsupported { what: "an ACL on a symbolic link" });
    }
    let Some(acl) = Acl::decode(value)? else { return Ok((attr.perm, None)) };
    let mut perm = (attr.perm & !0o777) | acl.perm();
    if !may_keep_setgid(caller, attr.gid) {
        perm &= !SETGID;
    }
    Ok((perm, (!acl.is_plain()).then(|| acl.encode())))
}

/// The value to store when [`acl::DEFAULT`] is set to `value`; none for an empty one.
pub fn set_default_acl(attr: &Attr, value: &[u8]) -> Result<Option<Vec<u8>>> {
    if attr.kind != FileKind::Directory {
        return Err(FsError::Invalid { what: "a default ACL on something other than a directory" });
    }
    Ok(Acl::decode(value)?.map(|acl| acl.encode()))
}

/// Whether `name` can be given to an entry.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(FsError::Invalid { what: "an empty name, `.` or `..`" });
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid { what: "a name with a slash or a zero byte" });
    }
    Ok(())
}

/// Whether `target` can be the target of a symbolic link.
pub fn check_symlink(target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(FsError::Invalid { what: "an empty link target or one with a zero byte" });
    }
    if target.len() > SYMLINK_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// Whether an attribute can have this name: as Linux, which looks at the length first and then
/// at the name space.
pub fn check_xattr_name(name: &[u8]) -> Result<()> {
    const SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(FsError::AttributeNameLength);
    }
    if name.contains(&0) || SPACES.contains(&name) {
        return Err(FsError::Invalid { what: "an attribute without a name, or with a zero byte" });
    }
    let in_space = SPACES.iter().any(|space| name.starts_with(space));
    if !in_space && name != acl::ACCESS && name != acl::DEFAULT {
        return Err(FsError::Unsupported { what: "attributes of this name space" });
    }
    Ok(())
}

/// Whether an attribute can have this name and value.
pub fn check_xattr(name: &[u8], value: &[u8]) -> Result<()> {
    check_xattr_name(name)?;
    if value.len() > XATTR_VALUE_MAX {
        return Err(FsError::AttributeTooLarge);
    }
    if name == LIFETIME_XATTR.as_bytes() && WriteLifetime::from_name(value).is_none() {
        return Err(FsError::Invalid {
            what: "a lifetime that is none of none, short, medium, long, extreme",
        });
    }
    Ok(())
}

/// The end of a range of `len` bytes at `offset`, if a file can reach that far.
pub fn check_range(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(end),
        _ => Err(FsError::FileTooLarge),
    }
}

/// The target of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameTarget {
    /// Nothing.
    Free,
    /// The moved inode itself, under another name or the same.
    SameInode,
    /// A directory without entries.
    EmptyDirectory,
    /// A directory with entries.
    FullDirectory,
    /// Anything else.
    NotDirectory,
}

/// The action of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameAction {
    /// Nothing: both names are of one inode and stay.
    Nothing,
    /// Move to a free name.
    Move,
    /// Move, and unlink the entry at the target.
    Replace,
    /// Swap the two entries.
    Exchange,
}

/// The action for a source of `kind` and this target. The caller has looked up both, and has
/// refused with [`FsError::Invalid`] to move a directory below itself (in an exchange: either of
/// them).
pub fn check_rename(
    kind: FileKind,
    target: RenameTarget,
    flags: RenameFlags,
) -> Result<RenameAction> {
    let is_dir = kind == FileKind::Directory;
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if exchange && flags.contains(RenameFlags::WHITEOUT) {
        return Err(FsError::Invalid { what: "a rename that swaps and leaves a whiteout" });
    }
    if flags.contains(RenameFlags::NOREPLACE) {
        return match target {
            _ if exchange => {
                Err(FsError::Invalid { what: "a rename without replacing that swaps" })
            }
            RenameTarget::Free => Ok(RenameAction::Move),
            _ => Err(FsError::Exists),
        };
    }
    match target {
        RenameTarget::Free if exchange => Err(FsError::NotFound),
        RenameTarget::Free => Ok(RenameAction::Move),
        RenameTarget::SameInode => Ok(RenameAction::Nothing),
        _ if exchange => Ok(RenameAction::Exchange),
        RenameTarget::EmptyDirectory if is_dir => Ok(RenameAction::Replace),
        RenameTarget::FullDirectory if is_dir => Err(FsError::NotEmpty),
        RenameTarget::EmptyDirectory | RenameTarget::FullDirectory => Err(FsError::IsDirectory),
        RenameTarget::NotDirectory if is_dir => Err(FsError::NotDirectory),
        RenameTarget::NotDirectory => Ok(RenameAction::Replace),
    }
}

/// Whether a read at `now` moves the access time, by the rule of Linux's `relatime`: it is not
/// later than a change, or a day old.
pub fn atime_is_due(attr: &Attr, now: Timestamp) -> bool {
    const DAY: i64 = 24 * 3600;
    let day_later = Timestamp::new(attr.atime.secs().saturating_add(DAY), attr.atime.nanos());
    attr.atime <= attr.mtime
        || attr.atime <= attr.ctime
        || day_later.is_none_or(|day_later| now >= day_later)
}

fn may_keep_setgid(caller: &Caller, gid: u32) -> bool {
    caller.privilege == Privilege::Full || caller.gid == gid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{Entry, Who};
    use crate::vfs::Ino;

    const USER: Caller = Caller { uid: 1000, gid: 100, umask: 0o022, privilege: Privilege::None };

    fn attr(kind: FileKind, perm: u16) -> Attr {
        let time = Timestamp::from_ns(1);
        Attr {
            ino: Ino::new(7),
            kind,
            perm,
            nlink: 1,
            uid: 1,
            gid: 50,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags: crate::vfs::InodeFlags::empty(),
        }
    }

    #[test]
    fn setgid_directory_passes_group_on() {
        let parent = attr(FileKind::Directory, 0o2777);
        let file = new_inode(&USER, &parent, |_| None, FileKind::Regular, 0o2775).unwrap();
        assert_eq!(
            (file.perm, file.gid),
            (0o755, 50),
            "setgid goes: the caller is not in group 50"
        );
        let quiet = new_inode(&USER, &parent, |_| None, FileKind::Regular, 0o2664).unwrap();
        assert_eq!(quiet.perm, 0o2644, "without group execution it is only a lock mark");
        let directory = new_inode(&USER, &parent, |_| None, FileKind::Directory, 0o777).unwrap();
        assert_eq!((directory.perm, directory.gid), (0o2755, 50));
        let elsewhere = attr(FileKind::Directory, 0o777);
        let file = new_inode(&USER, &elsewhere, |_| None, FileKind::Regular, 0o2775).unwrap();
        assert_eq!((file.perm, file.gid), (0o2755, 100));
    }

    #[test]
    fn acl_default_replaces_umask() {
        let entry = |who, perm| Entry { who, perm };
        let default = Acl::from_entries(vec![
            entry(Who::Owner, 7),
            entry(Who::User(5), 6),
            entry(Who::OwningGroup, 5),
            entry(Who::Mask, 6),
            entry(Who::Other, 6),
        ]);
        let default = default.unwrap().encode();
        let parent = attr(FileKind::Directory, 0o755);
        let having = |name: &[u8]| (name == acl::DEFAULT).then_some(&default[..]);
        let made = |kind, perm| new_inode(&USER, &parent, having, kind, perm).unwrap();
        let names = |made: &InitialAttrs| -> Vec<&[u8]> {
            made.xattrs.iter().map(|(name, _)| *name).collect()
        };
        let file = made(FileKind::Regular, 0o666);
        assert_eq!(file.perm, 0o666);
        assert_eq!(names(&file), [acl::ACCESS]);
        let directory = made(FileKind::Directory, 0o700);
        assert_eq!(names(&directory), [acl::ACCESS, acl::DEFAULT]);
        assert_eq!(directory.xattrs[1].1, default);
        let link = made(FileKind::Symlink, 0);
        assert_eq!((link.perm, link.xattrs), (0o777, Vec::new()));
        let broken = |name: &[u8]| (name == acl::DEFAULT).then_some(&b"x"[..]);
        assert!(new_inode(&USER, &parent, broken, FileKind::Regular, 0).is_err());
    }

    #[test]
    fn lifetime_is_inherited_from_directory() {
        let parent = attr(FileKind::Directory, 0o755);
        let lifetime = LIFETIME_XATTR.as_bytes();
        let having = |name: &[u8]| (name == lifetime).then_some(&b"short"[..]);
        for (kind, inherits) in [
            (FileKind::Regular, true),
            (FileKind::Directory, true),
            (FileKind::Symlink, false),
            (FileKind::Fifo, false),
        ] {
            let made = new_inode(&USER, &parent, having, kind, 0o644).unwrap();
            let expected = inherits.then(|| (lifetime, b"short".to_vec()));
            assert_eq!(made.xattrs, Vec::from_iter(expected), "{kind:?}");
        }
        assert!(check_xattr(lifetime, b"short").is_ok());
        assert_eq!(check_xattr(lifetime, b"brief").unwrap_err().errno(), 22);
    }

    #[test]
    fn chown_clears_setuid_and_foreign_chmod_setgid() {
        let file = attr(FileKind::Regular, 0o6755);
        let chown = SetAttr { uid: Some(2), ..SetAttr::default() };
        assert_eq!(perm_after(&Caller::ROOT, &file, &chown), 0o755);
        assert_eq!(perm_after(&USER, &attr(FileKind::Directory, 0o6755), &chown), 0o6755);
        assert_eq!(perm_after(&USER, &attr(FileKind::Regular, 0o2644), &chown), 0o644);
        let member = Caller { gid: 50, ..USER };
        for keeps in [member, Caller::ROOT] {
            assert_eq!(perm_after(&keeps, &attr(FileKind::Regular, 0o6644), &chown), 0o2644);
        }
        let chmod = SetAttr { perm: Some(0o6711), ..SetAttr::default() };
        assert_eq!(perm_after(&USER, &file, &chmod), 0o4711);
        assert_eq!(perm_after(&Caller::ROOT, &file, &chmod), 0o6711);
        let nothing = SetAttr::default();
        assert_eq!(perm_after(&USER, &file, &nothing), 0o6755);
        let truncate = SetAttr { size: Some(0), kill_privileges: true, ..nothing };
        assert_eq!(perm_after(&USER, &file, &truncate), 0o755);
    }

    #[test]
    fn capability_is_taken_by_listed_changes() {
        let nothing = SetAttr::default();
        for (set, takes) in [
            (SetAttr { uid: Some(1), ..nothing }, true),
            (SetAttr { gid: Some(1), ..nothing }, true),
            (SetAttr { size: Some(1), ..nothing }, true),
            (SetAttr { kill_privileges: true, ..nothing }, true),
            (
                SetAttr { perm: Some(0o777), mtime: Some(crate::vfs::SetTime::Now), ..nothing },
                false,
            ),
        ] {
            assert_eq!(takes_capability(FileKind::Regular, &set), takes, "{set:?}");
            assert!(!takes_capability(FileKind::Directory, &set));
        }
    }

    #[test]
    fn acl_plain_becomes_mode_bits() {
        let entry = |who, perm| Entry { who, perm };
        let plain =
            [entry(Who::Owner, 6), entry(Who::OwningGroup, 4), entry(Who::Other, 0)].to_vec();
        let plain = Acl::from_entries(plain).unwrap().encode();
        let file = attr(FileKind::Regular, 0o2777);
        assert_eq!(set_access_acl(&USER, &file, &plain).unwrap(), (0o640, None));
        assert_eq!(set_access_acl(&Caller::ROOT, &file, &plain).unwrap(), (0o2640, None));
        assert!(set_default_acl(&file, &plain).is_err());
        assert!(set_access_acl(&USER, &attr(FileKind::Symlink, 0o777), &plain).is_err());
    }

    #[test]
    fn rename_matches_table() {
        use RenameTarget::{EmptyDirectory, Free, FullDirectory, NotDirectory, SameInode};
        let word = |kind, target, flags| match check_rename(kind, target, flags) {
            Ok(action) => format!("{action:?}"),
            Err(error) => format!("{error:?}"),
        };
        let (none, both) = (RenameFlags::empty(), RenameFlags::all());
        let (noreplace, exchange) = (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
        let (file, dir) = (FileKind::Regular, FileKind::Directory);
        for (kind, target, flags, expected) in [
            (file, Free, none, "Move"),
            (file, Free, exchange, "NotFound"),
            (file, Free, noreplace, "Move"),
            (file, SameInode, none, "Nothing"),
            (file, SameInode, noreplace, "Exists"),
            (file, NotDirectory, none, "Replace"),
            (file, NotDirectory, exchange, "Exchange"),
            (file, NotDirectory, noreplace, "Exists"),
            (file, EmptyDirectory, none, "IsDirectory"),
            (file, FullDirectory, exchange, "Exchange"),
            (dir, NotDirectory, none, "NotDirectory"),
            (dir, EmptyDirectory, none, "Replace"),
            (dir, FullDirectory, none, "NotEmpty"),
            (dir, FullDirectory, exchange, "Exchange"),
        ] {
            assert_eq!(word(kind, target, flags), expected, "{kind:?} {target:?} {flags:?}");
        }
        assert!(word(file, Free, both).starts_with("Invalid"));
    }

    #[test]
    fn names_and_ranges_are_checked() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(check_name(bad).is_err());
        }
        for good in [&b"..."[..], b" ", b"\xff", &[b'x'; 255]] {
            assert!(check_name(good).is_ok());
        }
        let long = [&b"user."[..], &[b'x'; 251]].concat();
        for (bad, errno) in [
            (&b"user."[..], 22),
            (b"trusted.", 22),
            (b"security.", 22),
            (b"", 34),
            (&long, 34),
            (b"system.posix_acl_other", 95),
            (b"plain", 95),
            (b"user", 95),
        ] {
            assert_eq!(check_xattr(bad, b"").unwrap_err().errno(), errno, "{bad:?}");
        }
        assert!(check_xattr(&long[..255], b"").is_ok());
        assert!(check_xattr(b"user.a", &vec![0; XATTR_VALUE_MAX]).is_ok());
        assert!(check_xattr(b"user.a", &vec![0; XATTR_VALUE_MAX + 1]).is_err());
        assert!(check_range(FILE_SIZE_MAX, 0).is_ok());
        assert!(check_range(FILE_SIZE_MAX, 1).is_err());
        assert!(check_range(u64::MAX, 1).is_err());
    }
}
