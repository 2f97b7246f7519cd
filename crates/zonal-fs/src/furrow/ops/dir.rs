//! The POSIX actions on directories.

use zonal_placement::learned::Context;

use crate::furrow::Furrow;
use crate::furrow::metadata::buckets::Named;
use crate::furrow::metadata::held::Used;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::xattrs::Xattrs;
use crate::furrow::metadata::{Body, Directory, File, Inode, State};
use crate::furrow::planted::PlantedBug;
use crate::rules::{self, RenameAction, RenameTarget};
use crate::vfs::{
    Attr, Caller, DirEntry, FileKind, Ino, InodeFlags, Listing, NewInode, ReadFlags, RenameFlags,
    Result, Timestamp,
};
use crate::{FsError, protect};

/// Cookies of `.` and `..`; entries follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// The first cookie of an entry.
pub(in crate::furrow) const FIRST_COOKIE: u64 = 3;

impl Furrow {
    pub(in crate::furrow) fn find_entry(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        if name.len() > crate::vfs::NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let directory = state.inode(parent)?.directory()?;
            let ino = match name {
                b"." => parent,
                b".." => directory.parent,
                _ => {
                    let hash = state.name_key.hash(name);
                    let entry = state.entry_in((parent, directory), (hash, name))?;
                    entry.ok_or(FsError::NotFound)?.ino
                }
            };
            Ok(state.inode(ino)?.attr(ino))
        })
    }

    pub(in crate::furrow) fn create_entry(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        self.tree.check_writable()?;
        rules::check_name(name)?;
        if new.kind == FileKind::Symlink {
            rules::check_symlink(new.target)?;
        }
        let (attr, upkeep) = self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            check_free(state, parent, name)?;
            protect::check_entry(state.inode(parent)?.flags)?;
            self.tree.space.check_growth(state, 1)?;
            let mut inode = self.new_inode(state, caller, parent, new)?;
            if new.kind == FileKind::Regular {
                inode.context = Some(Context::of(parent.get(), name, inode.uid));
            }
            let ino = Ino::new(state.next_ino);
            state.next_ino += 1;
            let now = inode.ctime;
            let attr = inode.attr(ino);
            state.insert_inode(ino, inode);
            state.insert_entry(parent, name, ino)?;
            let directory = state.change_inode(parent)?;
            touch(directory, now);
            if new.kind == FileKind::Directory {
                directory.nlink = directory.nlink.saturating_add(1);
            }
            Ok((attr, self.log.upkeep_due(state)))
        })?;
        self.log.do_upkeep(upkeep);
        Ok(attr)
    }

    /// Makes a file without a name, pinned once. A cut leaves nothing of it, as of any file whose
    /// last name is gone.
    pub(in crate::furrow) fn create_unentered(
        &self,
        caller: &Caller,
        parent: Ino,
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        self.tree.check_writable()?;
        let attr = self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let directory = state.inode(parent)?;
            directory.directory()?;
            protect::check_entry(directory.flags)?;
            self.tree.space.check_growth(state, 1)?;
            let mut inode = self.new_inode(state, caller, parent, new)?;
            inode.nlink = 0;
            let ino = Ino::new(state.next_ino);
            state.next_ino += 1;
            let attr = inode.attr(ino);
            state.insert_inode(ino, inode);
            state.pins.insert(ino, 1);
            state.linkable.insert(ino);
            state.delete_if_unused(ino);
            Ok(attr)
        })?;
        self.log.after_change();
        Ok(attr)
    }

    fn new_inode(
        &self,
        state: &State,
        caller: &Caller,
        parent: Ino,
        new: &NewInode<'_>,
    ) -> Lookup<Inode> {
        let directory = state.inode(parent)?;
        let xattr = |name: &[u8]| directory.xattrs.get(name);
        let initial = rules::new_inode(caller, &directory.attr(parent), xattr, new.kind, new.perm)?;
        let now = self.now();
        let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let body = match new.kind {
            FileKind::Regular => Body::File(File::empty()),
            FileKind::Directory => {
                let next_cookie = FIRST_COOKIE;
                let directory = Directory { parent, next_cookie, ..Directory::empty() };
                Body::Directory(Box::new(directory))
            }
            FileKind::Symlink => Body::Symlink(new.target.into()),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Body::Special
            }
        };
        let mut xattrs = Xattrs::default();
        for (name, value) in initial.xattrs {
            xattrs.set(name, Some(&value));
        }
        Ok(Inode {
            kind: new.kind,
            perm: initial.perm,
            nlink: if new.kind == FileKind::Directory { 2 } else { 1 },
            uid: initial.uid,
            gid: initial.gid,
            rdev: if is_device { new.rdev } else { 0 },
            size: new.target.len() as u64,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: match new.kind {
                FileKind::Regular | FileKind::Directory => directory.flags & InodeFlags::INHERITED,
                _ => InodeFlags::empty(),
            },
            context: None,
            xattrs,
            body,
            used: Used::default(),
        })
    }

    pub(in crate::furrow) fn remove_file(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.tree.check_writable()?;
        rules::check_name(name)?;
        self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let ino = entry_to_change(state, parent, name)?;
            if state.inode(ino)?.kind == FileKind::Directory {
                return Err(FsError::IsDirectory.into());
            }
            check_removal(state, parent, ino)?;
            state.check_deletion(ino)?;
            let now = self.now();
            state.remove_entry(parent, name)?;
            touch(state.change_inode(parent)?, now);
            Self::drop_link(state, ino, now)
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(in crate::furrow) fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.tree.check_writable()?;
        match name {
            b"." => return Err(FsError::Invalid { what: "`.` cannot be removed" }),
            b".." => return Err(FsError::NotEmpty),
            _ => rules::check_name(name)?,
        }
        self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let ino = entry_to_change(state, parent, name)?;
            check_removal(state, parent, ino)?;
            if state.inode(ino)?.directory()?.entries > 0 {
                return Err(FsError::NotEmpty.into());
            }
            let now = self.now();
            state.remove_entry(parent, name)?;
            let directory = state.change_inode(parent)?;
            touch(directory, now);
            directory.nlink = directory.nlink.saturating_sub(1);
            Self::drop_link(state, ino, now)
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(in crate::furrow) fn add_link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.tree.check_writable()?;
        rules::check_name(name)?;
        let attr = self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let inode = state.inode(ino)?;
            if inode.kind == FileKind::Directory {
                let what = "a second link to a directory";
                return Err(FsError::NotPermitted { what }.into());
            }
            if inode.nlink == 0 && !state.linkable.contains(&ino) {
                return Err(FsError::NotFound.into());
            }
            if inode.nlink == u32::MAX {
                return Err(FsError::TooManyLinks.into());
            }
            protect::check_inode(inode.flags)?;
            check_free(state, parent, name)?;
            protect::check_entry(state.inode(parent)?.flags)?;
            self.tree.space.check_growth(state, 1)?;
            let now = self.now();
            state.insert_entry(parent, name, ino)?;
            touch(state.change_inode(parent)?, now);
            let inode = state.change_inode(ino)?;
            inode.nlink += 1;
            inode.ctime = now;
            let attr = inode.attr(ino);
            if state.linkable.remove(&ino) && !self.tree.has_planted(PlantedBug::LinkStaysOrphan) {
                state.unlinked.remove(&ino);
                state.mark_orphan(ino);
            }
            Ok(attr)
        })?;
        self.log.after_change();
        Ok(attr)
    }

    pub(in crate::furrow) fn move_entry(
        &self,
        source: (Ino, &[u8]),
        target: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.tree.check_writable()?;
        rules::check_name(source.1)?;
        rules::check_name(target.1)?;
        self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let moved = entry_to_change(state, source.0, source.1)?;
            check_parent(state, target.0)?;
            let there = state.entry_to_change(target.0, target.1)?.map(|entry| entry.ino);
            let found = classify(state, moved, there)?;
            if found != RenameTarget::SameInode {
                check_removal(state, source.0, moved)?;
                match there {
                    Some(there) => {
                        check_removal(state, target.0, there)?;
                        state.check_deletion(there)?;
                    }
                    None => protect::check_entry(state.inode(target.0)?.flags)?,
                }
            }
            let kind = state.inode(moved)?.kind;
            let action = rules::check_rename(kind, found, flags);
            // Linux looks for a loop before it compares the kinds.
            if !matches!(action, Err(FsError::Exists | FsError::NotFound)) {
                check_no_loop(state, moved, target.0)?;
            }
            let action = action?;
            if let (RenameAction::Exchange, Some(there)) = (action, there) {
                check_no_loop(state, there, source.0)?;
            }
            let now = self.now();
            match (action, there) {
                (RenameAction::Nothing, _) => return Ok(()),
                (RenameAction::Exchange, Some(other)) => {
                    state.remove_entry(source.0, source.1)?;
                    state.remove_entry(target.0, target.1)?;
                    enter(state, moved, source.0, target)?;
                    enter(state, other, target.0, source)?;
                    state.change_inode(other)?.ctime = now;
                }
                (RenameAction::Replace, Some(replaced)) => {
                    state.remove_entry(target.0, target.1)?;
                    if state.inode(replaced)?.kind == FileKind::Directory {
                        let directory = state.change_inode(target.0)?;
                        directory.nlink = directory.nlink.saturating_sub(1);
                    }
                    if !self.tree.has_planted(PlantedBug::ReplaceKeepsLink) {
                        Self::drop_link(state, replaced, now)?;
                    }
                    move_link(state, moved, source, target)?;
                }
                (RenameAction::Move | RenameAction::Replace | RenameAction::Exchange, _) => {
                    move_link(state, moved, source, target)?;
                }
            }
            if flags.contains(RenameFlags::WHITEOUT) {
                leave_whiteout(state, source, now)?;
            }
            state.change_inode(moved)?.ctime = now;
            touch(state.change_inode(source.0)?, now);
            touch(state.change_inode(target.0)?, now);
            Ok(())
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(in crate::furrow) fn list(
        &self,
        ino: Ino,
        cookie: u64,
        flags: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let mut from = cookie.saturating_add(1);
        self.tree.loaded(|| {
            let state = self.tree.read_state();
            let directory = state.inode(ino)?.directory()?;
            let dots: [(u64, Ino, &[u8]); 2] =
                [(DOT, ino, b"."), (DOT_DOT, directory.parent, b"..")];
            for (at, ino, name) in dots {
                let entry = DirEntry { ino, kind: FileKind::Directory, name, cookie: at };
                if at >= from {
                    from = at + 1;
                    if each(entry) == Listing::Enough {
                        return Ok(());
                    }
                }
            }
            // As far as memory goes, and on from there when there is more.
            while let Some(end) = directory.known.end_of(from) {
                for &Named { ref name, ino, cookie, kind, .. } in directory.range(from..end) {
                    from = cookie + 1;
                    let entry = DirEntry { ino, kind, name, cookie };
                    if each(entry) == Listing::Enough {
                        return Ok(());
                    }
                }
                if end == u64::MAX {
                    return Ok(());
                }
                from = end;
            }
            Err(Stop::NotLoaded(Missing::Entries(ino, from)))
        })?;
        if flags.contains(ReadFlags::NO_ATIME) {
            return Ok(());
        }
        self.touch_atime(ino).map(drop)
    }
}

fn touch(directory: &mut Inode, now: Timestamp) {
    (directory.mtime, directory.ctime) = (now, now);
}

fn entry_to_change(state: &State, parent: Ino, name: &[u8]) -> Lookup<Ino> {
    Ok(state.entry_to_change(parent, name)?.ok_or(FsError::NotFound)?.ino)
}

/// A directory that can take entries: one that is removed cannot.
fn check_parent(state: &State, parent: Ino) -> Lookup<()> {
    let inode = state.inode(parent)?;
    inode.directory()?;
    if inode.nlink == 0 { Err(FsError::NotFound.into()) } else { Ok(()) }
}

/// Whether the flags of a directory and of what an entry leads to let the entry go.
fn check_removal(state: &State, parent: Ino, ino: Ino) -> Lookup<()> {
    Ok(protect::check_removal(state.inode(parent)?.flags, state.inode(ino)?.flags)?)
}

/// Enters a whiteout where something was moved away.
fn leave_whiteout(state: &mut State, (parent, name): (Ino, &[u8]), now: Timestamp) -> Lookup<()> {
    let ino = Ino::new(state.next_ino);
    state.next_ino += 1;
    let whiteout = Inode {
        kind: FileKind::CharDevice,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        flags: InodeFlags::empty(),
        context: None,
        xattrs: Xattrs::default(),
        body: Body::Special,
        used: Used::default(),
    };
    state.insert_inode(ino, whiteout);
    state.insert_entry(parent, name, ino)
}

fn check_free(state: &State, parent: Ino, name: &[u8]) -> Lookup<()> {
    check_parent(state, parent)?;
    let exists = state.entry(parent, name)?.is_some();
    if exists { Err(FsError::Exists.into()) } else { Ok(()) }
}

fn classify(state: &State, moved: Ino, there: Option<Ino>) -> Lookup<RenameTarget> {
    let Some(there) = there else { return Ok(RenameTarget::Free) };
    if there == moved {
        return Ok(RenameTarget::SameInode);
    }
    Ok(match &state.inode(there)?.body {
        Body::Directory(directory) if directory.entries == 0 => RenameTarget::EmptyDirectory,
        Body::Directory(_) => RenameTarget::FullDirectory,
        Body::File(_) | Body::Symlink(_) | Body::Special => RenameTarget::NotDirectory,
    })
}

/// A directory must not move below itself.
fn check_no_loop(state: &State, moved: Ino, target: Ino) -> Lookup<()> {
    if state.inode(moved)?.kind != FileKind::Directory {
        return Ok(());
    }
    let mut at = target;
    loop {
        if at == moved {
            let what = "a directory moved below itself";
            return Err(FsError::Invalid { what }.into());
        }
        if at == Ino::ROOT {
            return Ok(());
        }
        at = state.inode(at)?.directory()?.parent;
    }
}

/// Moves an entry to a free name. In the same directory it keeps its place in the listing, so that
/// a program that renames what it lists comes to an end.
fn move_link(
    state: &mut State,
    moved: Ino,
    source: (Ino, &[u8]),
    target: (Ino, &[u8]),
) -> Lookup<()> {
    let entry = state.remove_entry(source.0, source.1)?;
    if source.0 == target.0 {
        return state.insert_entry_at(target.0, target.1, entry);
    }
    enter(state, moved, source.0, target)
}

/// Enters a moved inode at its new place; a directory learns its parent, and the parents count it.
fn enter(state: &mut State, moved: Ino, from: Ino, (to, name): (Ino, &[u8])) -> Lookup<()> {
    state.insert_entry(to, name, moved)?;
    if let Body::Directory(_) = &state.inode(moved)?.body {
        state.change_inode(moved)?.directory_mut()?.parent = to;
        let from = state.change_inode(from)?;
        from.nlink = from.nlink.saturating_sub(1);
        let to = state.change_inode(to)?;
        to.nlink = to.nlink.saturating_add(1);
    }
    Ok(())
}
