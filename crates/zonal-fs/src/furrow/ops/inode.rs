//! The POSIX actions on an inode other than on its content: attributes, extended attributes, pins
//! and deletion.

use crate::furrow::Furrow;
use crate::furrow::metadata::State;
use crate::furrow::metadata::inode::lives::Unpinned;
use crate::furrow::metadata::missing::Lookup;
use crate::vfs::{Attr, Caller, FileKind, Ino, Result, SetAttr, SetTime, Timestamp, XattrMode};
use crate::{FsError, acl, protect, rules};

impl Furrow {
    pub(super) fn set_attributes(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.tree.check_writable()?;
        self.tree.loaded(|| {
            Ok(protect::check_setattr(self.tree.read_state().inode(ino)?.flags, set)?)
        })?;
        let attr = if let Some(size) = set.size {
            self.tree.loaded(|| Ok(self.tree.read_state().inode(ino)?.file().map(drop)?))?;
            self.resize(caller, ino, size, set)?
        } else {
            self.tree.loaded(|| {
                let mut guard = self.tree.write_state();
                let change = plan_attributes(&guard, caller, ino, set)?;
                change_attributes(&mut guard, ino, change, self.now())?;
                // Under the same lock: another thread may delete the inode once this one releases
                // it.
                Ok(guard.inode(ino)?.attr(ino))
            })?
        };
        self.log.after_change();
        Ok(attr)
    }

    /// Checks that the root is a directory and its own parent.
    pub(in crate::furrow) fn check_root(&self) -> Result<()> {
        let root = self.tree.loaded(|| {
            let state = self.tree.read_state();
            let root = state.inode(Ino::ROOT)?;
            Ok((root.kind, root.directory().map_or(Ino::default(), |directory| directory.parent)))
        });
        match root {
            Ok((FileKind::Directory, Ino::ROOT)) => Ok(()),
            Ok(_) | Err(FsError::NotFound) => {
                let why = "inode 1 is no directory, or not its own parent".into();
                Err(FsError::Corrupt { what: "metadata", why })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn attributes(&self, ino: Ino) -> Result<Attr> {
        self.tree.loaded(|| Ok(self.tree.read_state().inode(ino)?.attr(ino)))
    }

    pub(super) fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            Ok(state.inode(ino)?.xattrs.names().map(<[u8]>::to_vec).collect())
        })
    }

    pub(super) fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        rules::check_xattr_name(name)?;
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let value = state.inode(ino)?.xattrs.get(name).ok_or(FsError::NoAttribute)?;
            Ok(value.to_vec())
        })
    }

    pub(super) fn put_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.tree.check_writable()?;
        rules::check_xattr(name, value)?;
        self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let inode = state.inode(ino)?;
            protect::check_inode(inode.flags)?;
            let exists = inode.xattrs.contains(name);
            match mode {
                XattrMode::Create if exists => return Err(FsError::Exists.into()),
                XattrMode::Replace if !exists => return Err(FsError::NoAttribute.into()),
                XattrMode::Any | XattrMode::Create | XattrMode::Replace => {}
            }
            let attr = inode.attr(ino);
            let (perm, stored) = if name == acl::ACCESS {
                rules::set_access_acl(caller, &attr, value)?
            } else if name == acl::DEFAULT {
                (attr.perm, rules::set_default_acl(&attr, value)?)
            } else {
                (attr.perm, Some(value.to_vec()))
            };
            let old = inode.xattrs.get(name).map_or(0, |old| old.len() + name.len());
            let new = stored.as_ref().map_or(0, |new| new.len() + name.len());
            // An empty value takes space too: without this check a full drive would take any
            // number.
            self.tree.space.check_growth(state, (new.saturating_sub(old) as u64).div_ceil(4096))?;
            if stored.is_some() || exists {
                state.set_xattr(ino, name, stored.as_deref())?;
            }
            let inode = state.change_inode(ino)?;
            (inode.perm, inode.ctime) = (perm, self.now());
            Ok(())
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(super) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.tree.check_writable()?;
        rules::check_xattr_name(name)?;
        self.tree.loaded(|| {
            let mut state = self.tree.write_state();
            protect::check_xattr_removal(state.inode(ino)?.flags, name)?;
            if !state.inode(ino)?.xattrs.contains(name) {
                return Err(FsError::NoAttribute.into());
            }
            state.set_xattr(ino, name, None)?;
            state.change_inode(ino)?.ctime = self.now();
            Ok(())
        })?;
        self.log.after_change();
        Ok(())
    }

    /// Removes a link, and the inode with the last link unless it is open.
    pub(super) fn drop_link(state: &mut State, ino: Ino, now: Timestamp) -> Lookup<()> {
        let inode = state.change_inode(ino)?;
        inode.ctime = now;
        inode.nlink = match inode.kind {
            FileKind::Directory => 0,
            _ => inode.nlink.saturating_sub(1),
        };
        if inode.nlink == 0 {
            state.learn_size(ino);
        }
        state.delete_if_unused(ino);
        Ok(())
    }

    pub(super) fn pin_inode(&self, ino: Ino) -> Result<()> {
        self.tree.loaded(|| {
            let mut state = self.tree.write_accounts();
            state.inode(ino)?;
            state.inodes.lives.pin(ino);
            Ok(())
        })
    }

    pub(super) fn unpin_inode(&self, ino: Ino) {
        let unpinned = self.tree.write_accounts().inodes.lives.unpin(ino);
        if unpinned == Unpinned::Unused && !self.tree.is_read_only() {
            self.delete_unused(ino);
            self.log.after_change();
        }
    }

    /// Deletes an inode without links and pins. The worker tries again to delete one that cannot be
    /// read.
    pub(super) fn delete_unused(&self, ino: Ino) {
        let outcome = self.tree.loaded(|| {
            let mut state = self.tree.write_state();
            state.inodes.stored(ino)?;
            state.delete_if_unused(ino);
            Ok(())
        });
        match outcome {
            // Another thread has deleted it.
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => {
                tracing::error!(inode = %ino, %error, "a deleted file stays until a retry succeeds");
                let now = self.clock.monotonic_ns();
                self.tree.write_accounts().inodes.lives.owe_deletion(ino, now);
            }
        }
    }
}

/// A `setattr` with its outcome for mode and ACL, worked out before anything changes.
pub(super) struct AttrChange<'a> {
    set: &'a SetAttr,
    perm: u16,
    acl: AclChange,
}

/// How a `setattr` changes the access ACL.
enum AclChange {
    Stays,
    /// The mode alone says the same.
    Goes,
    Becomes(Vec<u8>),
}

/// Works out mode and ACL after `set`, and changes nothing.
pub(super) fn plan_attributes<'a>(
    state: &State,
    caller: &Caller,
    ino: Ino,
    set: &'a SetAttr,
) -> Lookup<AttrChange<'a>> {
    let inode = state.inode(ino)?;
    let perm = rules::perm_after(caller, &inode.attr(ino), set);
    let acl = match inode.xattrs.get(acl::ACCESS) {
        Some(value) if set.perm.is_some() => {
            rules::chmod_acl(value, perm)?.map_or(AclChange::Goes, AclChange::Becomes)
        }
        Some(_) | None => AclChange::Stays,
    };
    Ok(AttrChange { set, perm, acl })
}

/// Removes the file capabilities of a program when its content or owner changes.
pub(super) fn take_capability(state: &mut State, ino: Ino) -> Lookup<()> {
    if state.inode(ino)?.xattrs.contains(rules::CAPABILITY_XATTR) {
        state.set_xattr(ino, rules::CAPABILITY_XATTR, None)?;
    }
    Ok(())
}

/// Makes the changes that [`plan_attributes`] has worked out.
pub(super) fn change_attributes(
    state: &mut State,
    ino: Ino,
    change: AttrChange<'_>,
    now: Timestamp,
) -> Lookup<()> {
    let set = change.set;
    if *set == SetAttr::default() {
        return Ok(());
    }
    match change.acl {
        AclChange::Stays => {}
        AclChange::Goes => state.set_xattr(ino, acl::ACCESS, None)?,
        AclChange::Becomes(value) => state.set_xattr(ino, acl::ACCESS, Some(&value))?,
    }
    if rules::takes_capability(state.inode(ino)?.kind, set) {
        take_capability(state, ino)?;
    }
    let inode = state.change_inode(ino)?;
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) | SetTime::Written(time) => time,
    };
    inode.perm = change.perm;
    inode.flags = set.flags.unwrap_or(inode.flags);
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    inode.atime = set.atime.map_or(inode.atime, time);
    inode.mtime = set.mtime.map_or(inode.mtime, time);
    inode.ctime = set.ctime.unwrap_or(now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{ManualClock, MemoryDrive, Profile, ZonedDevice};

    use super::*;
    use crate::furrow::{MkfsOptions, MountOptions, mkfs};
    use crate::vfs::{FileSystem, NewInode, WriteFlags};

    #[test]
    fn truncate_that_fails_midway_changes_nothing() {
        let drive: Arc<dyn ZonedDevice> =
            Arc::new(MemoryDrive::new(Profile::Small.geometry()).unwrap());
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        fs.write(ino, 0, &[1; 9000], WriteFlags::empty()).unwrap();
        // An ACL that no setxattr would let in, as damage might leave it.
        fs.tree.write_state().set_xattr(ino, acl::ACCESS, Some(b"damaged")).unwrap();
        let set = SetAttr { size: Some(100), perm: Some(0o644), ..SetAttr::default() };
        assert!(fs.setattr(&Caller::ROOT, ino, &set).is_err());
        assert_eq!(fs.getattr(ino).unwrap().size, 9000);
        let mut buffer = [0; 9000];
        fs.read(ino, 0, &mut buffer).unwrap();
        assert_eq!(buffer, [1; 9000]);
    }
}
