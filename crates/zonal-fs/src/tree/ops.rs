//! [`FileSystem`] for [`Tree`]. Nothing is changed before everything was checked.

use super::{Body, Content, Directory, Inode, State, Tree};
use crate::vfs::{
    Allocate, Attr, Caller, DirEntry, FileKind, FileSystem, Ino, InodeFlags, Listing, NAME_MAX,
    NewInode, ReadFlags, RenameFlags, Result, Seek, SetAttr, SetTime, StatFs, SyncKind, Timestamp,
    WriteFlags, Written, XattrMode,
};
use crate::{FsError, acl, protect, rules};

/// Size that `statfs` returns: tests do not reach it.
const BLOCKS: u64 = 1 << 40;

impl FileSystem for Tree {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let state = self.state();
        Ok(state.inode(state.find(parent, name)?)?.attr)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.state().inode(ino)?.attr)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        if *set == SetAttr::default() {
            return Ok(inode.attr);
        }
        protect::check_setattr(inode.attr.flags, set)?;
        if let Some(size) = set.size {
            rules::check_range(size, 0)?;
            inode.content_mut()?.truncate(size);
            inode.changed(now);
        }
        let perm = rules::perm_after(caller, &inode.attr, set);
        if rules::takes_capability(inode.attr.kind, set) {
            inode.xattrs.remove(rules::CAPABILITY_XATTR);
        }
        if set.perm.is_some()
            && let Some(value) = inode.xattrs.get(acl::ACCESS)
        {
            let value = rules::chmod_acl(value, perm)?;
            inode.put_xattr(acl::ACCESS, value);
        }
        let attr = &mut inode.attr;
        attr.perm = perm;
        attr.flags = set.flags.unwrap_or(attr.flags);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.ctime = set.ctime.unwrap_or(now);
        let time = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => now,
            Some(SetTime::To(time) | SetTime::Written(time)) => time,
        };
        attr.atime = time(set.atime, attr.atime);
        attr.mtime = time(set.mtime, attr.mtime);
        Ok(inode.attr)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        let Body::Symlink(target) = &inode.body else {
            return Err(FsError::Invalid { what: "not a symbolic link" });
        };
        let target = target.clone();
        accessed(inode, now);
        Ok(target)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        let now = self.now();
        let mut state = self.state();
        state.check_new(parent, name)?;
        let attr = state.make_inode(caller, parent, new, now)?.attr;
        state.enter(parent, name, attr.ino, now)?;
        Ok(attr)
    }

    fn create_unnamed(&self, caller: &Caller, parent: Ino, new: &NewInode<'_>) -> Result<Attr> {
        let now = self.now();
        let mut state = self.state();
        state.inode(parent)?.directory()?;
        let inode = state.make_inode(caller, parent, new, now)?;
        (inode.attr.nlink, inode.pins, inode.is_unnamed) = (0, 1, true);
        Ok(inode.attr)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let ino = state.find(parent, name)?;
        if state.inode(ino)?.attr.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        state.check_removal(parent, ino)?;
        state.leave(parent, name, now)?;
        state.drop_link(ino, now)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        match name {
            b"." => return Err(FsError::Invalid { what: "removing `.`" }),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let ino = state.find(parent, name)?;
        state.check_removal(parent, ino)?;
        if !state.inode(ino)?.directory()?.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        state.leave(parent, name, now)?;
        state.drop_link(ino, now)
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        rename(&mut state, source, target, flags, now)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let now = self.now();
        let mut state = self.state();
        let attr = state.inode(ino)?.attr;
        if attr.kind == FileKind::Directory {
            return Err(FsError::NotPermitted { what: "a second link to a directory" });
        }
        protect::check_inode(attr.flags)?;
        state.check_new(parent, name)?;
        protect::check_entry(state.inode(parent)?.attr.flags)?;
        let inode = state.inode_mut(ino)?;
        if attr.nlink == 0 && !inode.is_unnamed {
            return Err(FsError::NotFound);
        }
        inode.is_unnamed = false;
        inode.attr.nlink = attr.nlink.checked_add(1).ok_or(FsError::TooManyLinks)?;
        inode.attr.ctime = now;
        let attr = inode.attr;
        state.enter(parent, name, ino, now)?;
        Ok(attr)
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        self.state().inode_mut(ino)?.pins += 1;
        Ok(())
    }

    fn unpin(&self, ino: Ino) {
        let mut state = self.state();
        if let Ok(inode) = state.inode_mut(ino) {
            inode.pins = inode.pins.saturating_sub(1);
            state.delete_if_unused(ino);
        }
    }

    fn read_with(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        let len = inode.content()?.read(offset, buffer);
        if !flags.contains(ReadFlags::NO_ATIME) {
            accessed(inode, now);
        }
        Ok(len)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        let append = flags.contains(WriteFlags::APPEND);
        let content = inode.content_mut()?;
        let offset = if append { content.size() } else { offset };
        let len = data.len() as u64;
        rules::check_range(offset, len)?;
        if data.is_empty() {
            return Ok(Written { offset, len });
        }
        content.write(offset, data);
        written(inode, flags, now);
        Ok(Written { offset, len })
    }

    fn fsync(&self, ino: Ino, _kind: SyncKind) -> Result<()> {
        self.state().inode(ino).map(|_| ())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        flags: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let directory = state.inode(ino)?.directory()?;
        let dots = [(1, &b"."[..], ino), (Directory::DOT_DOT_COOKIE, b"..", directory.parent)];
        let names = directory.cookies.iter();
        let names = names.map(|(&at, name)| (at, name.as_slice(), directory.entries[name].ino));
        for (at, name, ino) in dots.into_iter().chain(names).filter(|entry| entry.0 > cookie) {
            // A removed directory that is still open may have a parent that is gone.
            let kind = state.inode(ino).map_or(FileKind::Directory, |inode| inode.attr.kind);
            match each(DirEntry { ino, kind, name, cookie: at }) {
                Listing::More => {}
                Listing::Enough => break,
            }
        }
        if !flags.contains(ReadFlags::NO_ATIME) {
            accessed(state.inode_mut(ino)?, now);
        }
        Ok(())
    }

    fn fallocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        let protected = protect::check_allocate(inode.attr.flags, how);
        let content = inode.content_mut()?;
        if len == 0 {
            return Err(FsError::Invalid { what: "a range of no bytes" });
        }
        let end = rules::check_range(offset, len)?;
        protected?;
        match how {
            Allocate::Extend | Allocate::KeepSize => {}
            Allocate::Punch
            | Allocate::Zero
            | Allocate::ZeroKeepSize
            | Allocate::PunchLater
            | Allocate::ZeroLater => {
                content.punch(offset, end);
            }
        }
        match how {
            Allocate::Extend | Allocate::Zero => content.truncate(end.max(content.size())),
            Allocate::KeepSize
            | Allocate::Punch
            | Allocate::ZeroKeepSize
            | Allocate::PunchLater
            | Allocate::ZeroLater => {}
        }
        inode.xattrs.remove(rules::CAPABILITY_XATTR);
        inode.changed(now);
        Ok(())
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        let state = self.state();
        state.inode(ino)?.content()?.seek(what, offset).ok_or(FsError::SeekBeyondEnd)
    }

    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        let now = self.now();
        let mut state = self.state();
        let content = state.inode(source.0)?.content()?.clone();
        let inode = state.inode_mut(target.0)?;
        inode.content()?;
        protect::check_copy(inode.attr.flags)?;
        let len = len.min(content.size().saturating_sub(source.1));
        rules::check_range(target.1, len)?;
        if source.0 == target.0 && source.1.abs_diff(target.1) < len {
            return Err(FsError::Invalid { what: "a copy onto itself" });
        }
        if len == 0 {
            return Ok(0);
        }
        copy(&content, source.1, inode.content_mut()?, target.1, len);
        written(inode, flags, now);
        Ok(len)
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = self.state();
        let used: u64 = state.inodes.values().map(|inode| inode.attr.blocks / 8).sum();
        let inodes = state.inodes.len() as u64;
        Ok(StatFs {
            block_size: super::content::BLOCK_SIZE,
            name_max: NAME_MAX,
            blocks: BLOCKS,
            blocks_free: BLOCKS - used.min(BLOCKS),
            inodes,
            inodes_free: BLOCKS,
            inodes_unlinked: state.inodes.values().filter(|inode| inode.attr.nlink == 0).count()
                as u64,
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        rules::check_xattr_name(name)?;
        let state = self.state();
        state.inode(ino)?.xattrs.get(name).cloned().ok_or(FsError::NoAttribute)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        rules::check_xattr(name, value)?;
        protect::check_inode(inode.attr.flags)?;
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            (XattrMode::Any, _) | (XattrMode::Create, false) | (XattrMode::Replace, true) => {}
        }
        let value = match name {
            acl::ACCESS => {
                let (perm, value) = rules::set_access_acl(caller, &inode.attr, value)?;
                inode.attr.perm = perm;
                value
            }
            acl::DEFAULT => rules::set_default_acl(&inode.attr, value)?,
            _ => Some(value.to_vec()),
        };
        inode.put_xattr(name, value);
        inode.attr.ctime = now;
        Ok(())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.state().inode(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        rules::check_xattr_name(name)?;
        let now = self.now();
        let mut state = self.state();
        let inode = state.inode_mut(ino)?;
        protect::check_xattr_removal(inode.attr.flags, name)?;
        inode.xattrs.remove(name).ok_or(FsError::NoAttribute)?;
        inode.attr.ctime = now;
        Ok(())
    }

    fn tick(&self) -> Result<()> {
        Ok(())
    }

    fn shutdown(&self) -> Result<()> {
        Ok(())
    }
}

fn accessed(inode: &mut Inode, now: Timestamp) {
    let moves = !inode.attr.flags.contains(InodeFlags::NO_ATIME);
    if moves && rules::atime_is_due(&inode.attr, now) {
        inode.attr.atime = now;
    }
}

fn written(inode: &mut Inode, flags: WriteFlags, now: Timestamp) {
    if !flags.contains(WriteFlags::KEEP_CAPABILITY) {
        inode.xattrs.remove(rules::CAPABILITY_XATTR);
    }
    if flags.contains(WriteFlags::KILL_PRIVILEGES) {
        inode.attr.perm = rules::kill_privileges(inode.attr.kind, inode.attr.perm);
    }
    inode.resized();
    if !flags.contains(WriteFlags::KEEP_TIMES) {
        inode.touch(now);
    }
}

/// Copies data as data and holes as holes.
fn copy(source: &Content, from: u64, target: &mut Content, to: u64, len: u64) {
    let size = target.size();
    target.punch(to, to + len);
    let mut at = from;
    while let Some(start) = source.seek(Seek::Data, at).filter(|&start| start < from + len) {
        let end = source.seek(Seek::Hole, start).map_or(from + len, |hole| hole.min(from + len));
        let len = usize::try_from(end - start).expect("what is in memory fits in memory");
        let mut buffer = vec![0; len];
        source.read(start, &mut buffer);
        target.write(to + (start - from), &buffer);
        at = end;
    }
    target.truncate(size.max(to + len));
}

fn rename(
    state: &mut State,
    (source_parent, source_name): (Ino, &[u8]),
    (target_parent, target_name): (Ino, &[u8]),
    flags: RenameFlags,
    now: Timestamp,
) -> Result<()> {
    rules::check_name(source_name)?;
    rules::check_name(target_name)?;
    let source = state.find(source_parent, source_name)?;
    let target = match state.find(target_parent, target_name) {
        Ok(target) => Some(target),
        Err(FsError::NotFound) if state.inode(target_parent)?.attr.nlink > 0 => None,
        Err(error) => return Err(error),
    };
    let kind = state.inode(source)?.attr.kind;
    if target != Some(source) {
        state.check_removal(source_parent, source)?;
        match target {
            Some(target) => state.check_removal(target_parent, target)?,
            None => protect::check_entry(state.inode(target_parent)?.attr.flags)?,
        }
    }
    let action = rules::check_rename(kind, state.rename_target(source, target)?, flags);
    // Linux looks for a loop before it compares the kinds.
    let looks = !matches!(action, Err(FsError::Exists | FsError::NotFound));
    if looks && kind == FileKind::Directory && state.is_above(source, target_parent)? {
        return Err(FsError::Invalid { what: "a directory cannot move below itself" });
    }
    match action? {
        rules::RenameAction::Nothing => return Ok(()),
        rules::RenameAction::Move => {
            state.leave(source_parent, source_name, now)?;
        }
        rules::RenameAction::Replace => {
            state.leave(source_parent, source_name, now)?;
            let target = state.leave(target_parent, target_name, now)?;
            state.drop_link(target, now)?;
        }
        rules::RenameAction::Exchange => {
            let target = target.expect("there is something to exchange with");
            let target_is_dir = state.inode(target)?.attr.kind == FileKind::Directory;
            if target_is_dir && state.is_above(target, source_parent)? {
                return Err(FsError::Invalid { what: "a directory cannot move below itself" });
            }
            state.leave(source_parent, source_name, now)?;
            state.leave(target_parent, target_name, now)?;
            state.enter(source_parent, source_name, target, now)?;
            state.inode_mut(target)?.attr.ctime = now;
        }
    }
    if flags.contains(RenameFlags::WHITEOUT) {
        state.enter_whiteout(source_parent, source_name, now)?;
    }
    state.enter(target_parent, target_name, source, now)?;
    state.inode_mut(source)?.attr.ctime = now;
    Ok(())
}
