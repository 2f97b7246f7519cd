//! The POSIX actions on directories.

use zonal_placement::learned::Context;

use crate::furrow::Furrow;
use crate::furrow::metadata::directory::buckets::Named;
use crate::furrow::metadata::inode::xattrs::Xattrs;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::residency::used::Used;
use crate::furrow::metadata::{Body, Directory, File, Inode, State};
use crate::furrow::planted::mistake;
use crate::rules::{self, RenameAction, RenameTarget};
use crate::vfs::{
    Attr, Caller, DirEntry, FileKind, Ino, InodeFlags, Listing, NewInode, ReadFlags, RenameFlags,
    Result, Timestamp,
};
use crate::{FsError, protect};

/// Cookies of `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// The first cookie of other entries.
pub(super) const FIRST_COOKIE: u64 = 3;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct EntryName<'a> {
    directory: Ino,
    name: &'a [u8],
}

impl<'a> From<(Ino, &'a [u8])> for EntryName<'a> {
    fn from((directory, name): (Ino, &'a [u8])) -> Self {
        Self { directory, name }
    }
}

impl Furrow {
    pub(super) fn find_entry(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
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
                    let entry = state.names.find(parent, directory, name)?;
                    entry.ok_or(FsError::NotFound)?.ino
                }
            };
            Ok(state.inode(ino)?.attr(ino))
        })
    }

    pub(super) fn create_entry(
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
            let ino = state.rows.numbers.new_ino();
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

    /// Makes an unlinked file with one pin (`O_TMPFILE`). After a power cut it is gone, like any
    /// file without a name.
    pub(super) fn create_unentered(
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
            let ino = state.rows.numbers.new_ino();
            let attr = inode.attr(ino);
            state.insert_inode(ino, inode);
            state.inodes.lives.add_unnamed(ino);
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

    pub(super) fn remove_file(&self, parent: Ino, name: &[u8]) -> Result<()> {
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
            let now = self.now();
            state.remove_entry(parent, name)?;
            touch(state.change_inode(parent)?, now);
            Self::drop_link(state, ino, now)
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(super) fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
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

    pub(super) fn add_link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
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
            if inode.nlink == 0 && !state.inodes.lives.is_unnamed(ino) {
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
            state.note_linked(ino);
            Ok(attr)
        })?;
        self.log.after_change();
        Ok(attr)
    }

    pub(super) fn move_entry(
        &self,
        source: EntryName<'_>,
        target: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.tree.check_writable()?;
        rules::check_name(source.name)?;
        rules::check_name(target.name)?;
        self.tree.loaded(|| {
            let mut guard = self.tree.write_state();
            let state = &mut *guard;
            let moved = entry_to_change(state, source.directory, source.name)?;
            check_parent(state, target.directory)?;
            let there =
                state.entry_to_change(target.directory, target.name)?.map(|entry| entry.ino);
            let found = classify(state, moved, there)?;
            if found != RenameTarget::SameInode {
                check_removal(state, source.directory, moved)?;
                match there {
                    Some(there) => {
                        check_removal(state, target.directory, there)?;
                    }
                    None => protect::check_entry(state.inode(target.directory)?.flags)?,
                }
            }
            let kind = state.inode(moved)?.kind;
            let action = rules::check_rename(kind, found, flags);
            // Linux checks for a loop before it compares the kinds.
            if !matches!(action, Err(FsError::Exists | FsError::NotFound)) {
                check_no_loop(state, moved, target.directory)?;
            }
            let action = action?;
            if let (RenameAction::Exchange, Some(there)) = (action, there) {
                check_no_loop(state, there, source.directory)?;
            }
            let now = self.now();
            match (action, there) {
                (RenameAction::Nothing, _) => return Ok(()),
                (RenameAction::Exchange, Some(other)) => {
                    state.remove_entry(source.directory, source.name)?;
                    state.remove_entry(target.directory, target.name)?;
                    enter(state, moved, source.directory, target)?;
                    enter(state, other, target.directory, source)?;
                    state.change_inode(other)?.ctime = now;
                }
                (RenameAction::Replace, Some(replaced)) => {
                    state.remove_entry(target.directory, target.name)?;
                    if state.inode(replaced)?.kind == FileKind::Directory {
                        let directory = state.change_inode(target.directory)?;
                        directory.nlink = directory.nlink.saturating_sub(1);
                    }
                    let mut drops_link = true;
                    mistake!(self.tree, ReplaceKeepsLink, drops_link = false);
                    if drops_link {
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
            touch(state.change_inode(source.directory)?, now);
            touch(state.change_inode(target.directory)?, now);
            Ok(())
        })?;
        self.log.after_change();
        Ok(())
    }

    pub(super) fn list(
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
            // Continues behind the resident range once the next one is loaded.
            while let Some(end) = directory.resident.end_of(from) {
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

/// Checks that a directory can take entries: a removed one cannot.
fn check_parent(state: &State, parent: Ino) -> Lookup<()> {
    let inode = state.inode(parent)?;
    inode.directory()?;
    if inode.nlink == 0 { Err(FsError::NotFound.into()) } else { Ok(()) }
}

/// Checks that the flags of a directory and of an inode allow removal of its entry.
fn check_removal(state: &State, parent: Ino, ino: Ino) -> Lookup<()> {
    Ok(protect::check_removal(state.inode(parent)?.flags, state.inode(ino)?.flags)?)
}

/// Enters a whiteout at the old place of a renamed entry.
fn leave_whiteout(state: &mut State, at: EntryName<'_>, now: Timestamp) -> Lookup<()> {
    let ino = state.rows.numbers.new_ino();
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
    state.insert_entry(at.directory, at.name, ino)
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

/// Checks that a directory does not move below itself.
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
/// a program can rename entries while it lists them and still reach the end.
fn move_link(
    state: &mut State,
    moved: Ino,
    source: EntryName<'_>,
    target: EntryName<'_>,
) -> Lookup<()> {
    let entry = state.remove_entry(source.directory, source.name)?;
    if source.directory == target.directory {
        return state.insert_entry_at(target.directory, target.name, entry);
    }
    enter(state, moved, source.directory, target)
}

/// Enters a moved inode at its new place. For a directory it updates the parent and both link
/// counts.
fn enter(state: &mut State, moved: Ino, from: Ino, target: EntryName<'_>) -> Lookup<()> {
    let to = target.directory;
    state.insert_entry(to, target.name, moved)?;
    if let Body::Directory(_) = &state.inode(moved)?.body {
        state.change_inode(moved)?.directory_mut()?.parent = to;
        let from = state.change_inode(from)?;
        from.nlink = from.nlink.saturating_sub(1);
        let to = state.change_inode(to)?;
        to.nlink = to.nlink.saturating_add(1);
    }
    Ok(())
}
