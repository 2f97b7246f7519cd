//! [`FileSystem`] for [`ZoneStore`].

use zonal::ZoneId;
use zonal_fs::FsError;
use zonal_fs::vfs::{
    Access, Allocate, Attr, Caller, DirEntry, FileExtent, FileKind, FileSystem, Ino, InodeFlags,
    Listing, NAME_MAX, NewInode, OpenFor, ReadFlags, RenameFlags, Result, Seek, SetAttr, StatFs,
    SyncKind, Timestamp, WriteFlags, Written, XattrMode,
};
use zonal_fs::zonefs::Health;

use super::data::{file, memory};
use super::format::{Extent, Kind};
use super::owed::{ATTEMPTS, at_once};
use super::{Inode, MAP_ZONES, ROOT, State, ZoneStore, lock};

/// Changes are committed after this time at the latest.
const COMMIT_NS: i64 = 5_000_000_000;

const NO_XATTR: FsError = FsError::Unsupported { what: "extended attributes of files on zonefs" };

impl FileSystem for ZoneStore {
    fn access(&self) -> Access {
        self.zones.access()
    }

    fn open(&self, ino: Ino, purpose: OpenFor) -> Result<()> {
        if purpose == OpenFor::Writing {
            let mut state = lock(&self.state);
            file(&mut state, ino.get())?.writers += 1;
            state.seals.settle(ino.get());
        }
        Ok(())
    }

    fn close(&self, ino: Ino, purpose: OpenFor) {
        if purpose == OpenFor::Reading {
            return;
        }
        let mut state = lock(&self.state);
        let Ok(inode) = file(&mut state, ino.get()) else { return };
        inode.writers -= 1;
        if inode.writers > 0 {
            return;
        }
        self.seal_or_owe(&mut state, ino.get());
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let state = lock(&self.state);
        directory(&state, parent)?;
        let ino = match name {
            b"." => parent.get(),
            b".." => parent_of(&state, parent.get()),
            _ => *state.names.get(&key(parent, name)).ok_or(FsError::NotFound)?,
        };
        self.attr(&state, ino)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attr(&lock(&self.state), ino.get())
    }

    fn setattr(&self, _: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.check_writable()?;
        let mut state = lock(&self.state);
        if let Some(size) = set.size
            && file(&mut state, ino.get())?.size() != size
        {
            self.cut(&mut state, ino.get(), size)?;
        }
        self.attr(&state, ino.get())
    }

    fn readlink(&self, _: Ino) -> Result<Vec<u8>> {
        Err(FsError::Invalid { what: "not a symbolic link" })
    }

    fn create(&self, _: &Caller, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Result<Attr> {
        self.check_writable()?;
        let kind = match new.kind {
            FileKind::Regular => Kind::File,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => {
                return Err(FsError::Unsupported { what: "files on zonefs of this kind" });
            }
        };
        let mut state = lock(&self.state);
        self.check_new(&state, parent, name)?;
        let ino = state.next_ino;
        state.next_ino += 1;
        let mut inode = Inode::new(kind, self.clock.wall_ns());
        inode.links = 1;
        state.inodes.insert(ino, inode);
        self.touch(&mut state, ino);
        self.name(&mut state, key(parent, name), Some(ino));
        self.attr(&state, ino)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        let mut state = lock(&self.state);
        let ino = *state.names.get(&key(parent, name)).ok_or(FsError::NotFound)?;
        file(&mut state, ino)?;
        self.name(&mut state, key(parent, name), None);
        self.unlinked(&mut state, ino);
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        let mut state = lock(&self.state);
        let ino = *state.names.get(&key(parent, name)).ok_or(FsError::NotFound)?;
        directory(&state, Ino::new(ino))?;
        if children(&state, ino).next().is_some() {
            return Err(FsError::NotEmpty);
        }
        self.name(&mut state, key(parent, name), None);
        self.unlinked(&mut state, ino);
        Ok(())
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.check_writable()?;
        if !(flags - RenameFlags::NOREPLACE).is_empty() {
            return Err(FsError::Unsupported { what: "exchanging names on zonefs" });
        }
        let mut state = lock(&self.state);
        let (from, to) = (key(source.0, source.1), key(target.0, target.1));
        let ino = *state.names.get(&from).ok_or(FsError::NotFound)?;
        directory(&state, target.0)?;
        let old = state.names.get(&to).copied();
        if from == to || old == Some(ino) {
            return Ok(());
        }
        if state.inodes[&ino].kind == Kind::Directory {
            return self.rename_directory(&mut state, ino, from, (to, old));
        }
        match old {
            None => self.check_new(&state, target.0, target.1)?,
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(FsError::Exists),
            Some(old) => drop(file(&mut state, old)?),
        }
        self.name(&mut state, from, None);
        self.name(&mut state, to, Some(ino));
        if let Some(old) = old {
            self.unlinked(&mut state, old);
        }
        Ok(())
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.check_writable()?;
        let mut state = lock(&self.state);
        self.check_new(&state, parent, name)?;
        file(&mut state, ino.get())?.links += 1;
        self.touch(&mut state, ino.get());
        self.name(&mut state, key(parent, name), Some(ino.get()));
        self.attr(&state, ino.get())
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        lock(&self.state).inodes.get_mut(&ino.get()).ok_or(FsError::NotFound)?.pins += 1;
        Ok(())
    }

    fn unpin(&self, ino: Ino) {
        let mut state = lock(&self.state);
        if let Some(inode) = state.inodes.get_mut(&ino.get()) {
            inode.pins -= 1;
            self.bury(&mut state, ino.get());
        }
    }

    fn read_with(&self, ino: Ino, offset: u64, buffer: &mut [u8], _: ReadFlags) -> Result<usize> {
        self.read_file(ino.get(), offset, buffer)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        self.check_writable()?;
        let grow = || {
            let mut state = lock(&self.state);
            let end = file(&mut state, ino.get())?.size();
            if !flags.contains(WriteFlags::APPEND) && offset != end {
                return Err(FsError::Unsupported { what: "writes on zonefs but at the end" });
            }
            self.grow(&mut state, ino.get(), data)?;
            Ok(end)
        };
        let offset = match grow() {
            Err(FsError::NoSpace) => {
                let made = self.make_room();
                grow().or_else(|error| made.and(Err(error)))?
            }
            outcome => outcome?,
        };
        if flags.contains(WriteFlags::DURABLE) {
            self.commit()?;
        }
        Ok(Written { offset, len: data.len() as u64 })
    }

    fn fsync(&self, _: Ino, _: SyncKind) -> Result<()> {
        self.commit()
    }

    fn sync(&self) -> Result<()> {
        self.commit()
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        _: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        let entries = {
            let state = lock(&self.state);
            directory(&state, ino)?;
            let own =
                [(1, b".".to_vec(), ino.get()), (2, b"..".to_vec(), parent_of(&state, ino.get()))];
            // Cookies 1 and 2 are `.` and `..`. The other cookies are inode numbers plus 2, so they
            // never change.
            let others =
                children(&state, ino.get()).map(|(name, ino)| (ino + 2, name.to_vec(), ino));
            let mut entries: Vec<_> = own.into_iter().chain(others).collect();
            entries.sort();
            let kinds = entries.into_iter().map(|(cookie, name, ino)| {
                (
                    cookie,
                    name,
                    ino,
                    state.inodes.get(&ino).map_or(Kind::Directory, |inode| inode.kind),
                )
            });
            kinds.collect::<Vec<_>>()
        };
        for (at, name, ino, kind) in entries.iter().filter(|entry| entry.0 > cookie) {
            let entry = DirEntry { ino: Ino::new(*ino), kind: kind_of(*kind), name, cookie: *at };
            if each(entry) == Listing::Enough {
                break;
            }
        }
        Ok(())
    }

    fn fallocate(&self, _: Ino, _: Allocate, _: u64, _: u64) -> Result<()> {
        Err(FsError::Unsupported { what: "allocating space on zonefs" })
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        let size = file(&mut lock(&self.state), ino.get())?.size();
        match what {
            _ if offset >= size => Err(FsError::SeekBeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn extents(
        &self,
        start: (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        let state = lock(&self.state);
        let inodes = state.inodes.range(start.0.get()..).take_while(|(ino, _)| **ino < end.get());
        for (&number, inode) in inodes {
            let (ino, mut offset) = (Ino::new(number), 0);
            for &Extent { zone, start: zone_offset, len } in &inode.extents {
                // A zone file has the inode number of its zone.
                let zone = u32::try_from(self.zone(zone).get()).expect("a zone");
                let zone = ZoneId::new(zone);
                let extent = FileExtent { ino, offset, len, zone, zone_offset, shared: false };
                offset += len;
                if (ino, extent.offset) >= start && each(extent) == Listing::Enough {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        let mut data = vec![0; memory(len).min(1 << 20)];
        let read = self.read(source.0, source.1, &mut data)?;
        self.write(target.0, target.1, &data[..read], flags).map(|written| written.len)
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = lock(&self.state);
        let count = self.zones.stats().sequential_files;
        let good = |number: &u32| {
            self.zones.health(self.zone(*number)).is_ok_and(|health| health == Health::Good)
        };
        let blocks = |number: u32| self.capacity(number) / self.block;
        let free = state.free.iter().chain(&state.doomed).copied();
        Ok(StatFs {
            block_size: u32::try_from(self.block).unwrap_or(u32::MAX),
            name_max: NAME_MAX,
            blocks: (MAP_ZONES..count).filter(good).map(blocks).sum(),
            blocks_free: free.filter(good).map(blocks).sum(),
            inodes: state.inodes.len() as u64,
            inodes_free: self.map_room(&state) / MAP_BYTES_MIN,
            inodes_unlinked: state.inodes.values().filter(|inode| inode.links == 0).count() as u64,
        })
    }

    fn getxattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(FsError::NoAttribute)
    }

    fn setxattr(&self, _: &Caller, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> Result<()> {
        Err(NO_XATTR)
    }

    fn listxattr(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(NO_XATTR)
    }

    fn tick(&self) -> Result<()> {
        let is_due = {
            let mut state = lock(&self.state);
            let now_ns = self.clock.monotonic_ns();
            self.retry(&mut state, now_ns);
            let oldest = state.dirty_since_ns.unwrap_or(i64::MAX);
            let is_wanted = !state.doomed.is_empty()
                || !state.commits.is_empty()
                || oldest.saturating_add(COMMIT_NS) <= self.clock.wall_ns();
            is_wanted && state.commits.is_due((), now_ns)
        };
        if is_due { self.commit() } else { Ok(()) }
    }

    fn shutdown(&self) -> Result<()> {
        {
            let mut state = lock(&self.state);
            let growing: Vec<u64> = state
                .inodes
                .iter()
                .filter(|inode| inode.1.writers > 0)
                .map(|inode| *inode.0)
                .collect();
            for ino in growing {
                self.seal_or_owe(&mut state, ino);
            }
            self.retry(&mut state, u64::MAX);
        }
        // This is the last chance: the store does not try again later. The next mount does the rest
        // of the owed work.
        let mut committed = self.commit();
        for _ in 1..ATTEMPTS {
            if committed.is_err() && self.zones.access() == Access::ReadWrite {
                committed = self.commit();
            }
        }
        if self.rights == Access::ReadWrite
            && committed.is_ok()
            && let Err(error) = self.close_map()
        {
            tracing::warn!(%error, "the name map has no record that says that it was closed");
        }
        let closed = self.zones.shutdown();
        committed.and(closed)
    }
}

/// Bytes of a map entry with a short name and one extent.
const MAP_BYTES_MIN: u64 = 128;

impl ZoneStore {
    fn attr(&self, state: &State, ino: u64) -> Result<Attr> {
        let inode = state.inodes.get(&ino).ok_or(FsError::NotFound)?;
        let (kind, size) = (kind_of(inode.kind), inode.size());
        let mtime = Timestamp::from_ns(inode.mtime_ns);
        Ok(Attr {
            ino: Ino::new(ino),
            kind,
            perm: if inode.kind == Kind::File { 0o644 } else { 0o755 },
            nlink: inode.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: inode.placed().next_multiple_of(self.block) / 512,
            atime: mtime,
            mtime,
            ctime: mtime,
            btime: Timestamp::from_ns(inode.btime_ns),
            flags: InodeFlags::empty(),
        })
    }

    /// Frees zones for a write that found no space: zones of deleted files, and zones that closed
    /// files keep until they are written out. Returns the error that keeps zones of deleted files
    /// from becoming free.
    fn make_room(&self) -> Result<()> {
        let has_doomed = {
            let mut state = lock(&self.state);
            for ino in at_once(&state.seals) {
                self.seal_or_owe(&mut state, ino);
            }
            !state.doomed.is_empty()
        };
        let committed = if has_doomed { self.commit() } else { Ok(()) };
        if lock(&self.state).doomed.is_empty() { Ok(()) } else { committed }
    }

    /// Sets or removes a name.
    fn name(&self, state: &mut State, key: (u64, Vec<u8>), ino: Option<u64>) {
        match ino {
            Some(ino) => drop(state.names.insert(key.clone(), ino)),
            None => drop(state.names.remove(&key)),
        }
        state.dirty_names.insert(key);
        state.dirty_since_ns.get_or_insert_with(|| self.clock.wall_ns());
    }

    /// Refuses a name that exists, that is invalid, or for which the map has no room.
    fn check_new(&self, state: &State, parent: Ino, name: &[u8]) -> Result<()> {
        directory(state, parent)?;
        match name {
            b"" | b"." | b".." => Err(FsError::Exists),
            _ if name.len() > NAME_MAX => Err(FsError::NameTooLong),
            _ if state.names.contains_key(&key(parent, name)) => Err(FsError::Exists),
            _ if self.map_room(state) < MAP_BYTES_MIN + NAME_MAX as u64 => Err(FsError::NoSpace),
            _ => Ok(()),
        }
    }

    /// Bytes by which a snapshot of the map may still grow: it takes half of its zone at most, so
    /// that the other half remains for changes.
    fn map_room(&self, state: &State) -> u64 {
        let half = self.capacity(0).min(self.capacity(1)) / 2;
        let names: u64 = state.names.keys().map(|key| 24 + key.1.len() as u64).sum();
        let inodes = state.inodes.values();
        let inodes: u64 = inodes.map(|inode| 64 + self.block.min(inode.buffer.len() as u64)).sum();
        half.saturating_sub(names + inodes)
    }

    /// Moves a directory to an unused name, but not into itself.
    fn rename_directory(
        &self,
        state: &mut State,
        ino: u64,
        from: (u64, Vec<u8>),
        (to, old): ((u64, Vec<u8>), Option<u64>),
    ) -> Result<()> {
        if old.is_some() {
            return Err(FsError::Exists);
        }
        self.check_new(state, Ino::new(to.0), &to.1)?;
        let mut above = to.0;
        while above != ROOT {
            if above == ino {
                return Err(FsError::Invalid { what: "moving a directory into itself" });
            }
            above = parent_of(state, above);
        }
        self.name(state, from, None);
        self.name(state, to, Some(ino));
        Ok(())
    }

    /// Removes one link of an inode.
    fn unlinked(&self, state: &mut State, ino: u64) {
        if let Some(inode) = state.inodes.get_mut(&ino) {
            inode.links -= 1;
            self.bury(state, ino);
        }
    }

    /// Drops a file without names and handles. The next record no longer has its name, so its zones
    /// are reset after that record.
    fn bury(&self, state: &mut State, ino: u64) {
        if state.inodes.get(&ino).is_some_and(|inode| inode.links == 0 && inode.pins == 0) {
            let inode = state.inodes.remove(&ino).expect("it was there just now");
            for zone in inode.extents.iter().map(|extent| extent.zone).chain(inode.current) {
                state.doom(zone);
            }
            state.free.extend(inode.reserved);
            state.dirty_inodes.remove(&ino);
            state.seals.settle(ino);
            self.placed.remove(ino);
        }
    }
}

fn key(parent: Ino, name: &[u8]) -> (u64, Vec<u8>) {
    (parent.get(), name.to_vec())
}

fn kind_of(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
    }
}

fn directory(state: &State, ino: Ino) -> Result<()> {
    match state.inodes.get(&ino.get()).ok_or(FsError::NotFound)?.kind {
        Kind::Directory => Ok(()),
        Kind::File => Err(FsError::NotDirectory),
    }
}

/// The names in a directory, and their inodes.
fn children(state: &State, ino: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let from = (ino, Vec::new());
    let named = state.names.range(from..).take_while(move |(key, _)| key.0 == ino);
    named.map(|(key, ino)| (&key.1[..], *ino))
}

/// The parent directory; the root is its own parent.
fn parent_of(state: &State, ino: u64) -> u64 {
    let found = state.names.iter().find(|(_, named)| **named == ino);
    found.map_or(ROOT, |(key, _)| key.0)
}
