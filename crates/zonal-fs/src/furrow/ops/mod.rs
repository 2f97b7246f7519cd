//! [`FileSystem`] for [`Furrow`]: each method in a line or two. The files of this folder do the
//! work.

mod allocate;
pub(super) mod copy;
pub(super) mod dir;
mod extents;
pub(super) mod inode;
pub(super) mod read;
mod resize;
mod stats;
mod write;

use crate::FsError;
use crate::furrow::Furrow;
use crate::furrow::drive::layout::RowBytes;
use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::{Body, Ending};
use crate::furrow::ops::copy::CopyRange;
use crate::named::Named;
use crate::vfs::{
    Access, Attr, Caller, DirEntry, FileExtent, FileSystem, Ino, Listing, NAME_MAX, NewInode,
    ReadFlags, Remains, RenameFlags, Result, Seek, SetAttr, StatFs, SyncKind, Wake, WriteFlags,
    Written, XattrMode,
};

/// How often an unmount tries its failed commit again.
const LAST_COMMIT_RETRIES: usize = 3;

impl FileSystem for Furrow {
    fn atomic_write(&self) -> u64 {
        self.atomic_bytes()
    }

    fn access(&self) -> Access {
        if self.tree.is_read_only() { Access::ReadOnly } else { Access::ReadWrite }
    }

    fn path(&self, ino: Ino) -> Option<String> {
        self.tree.known_path(ino)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.find_entry(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attributes(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.truncator.with_truncated_space(|| self.set_attributes(caller, ino, set))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let target = self.tree.loaded(|| match &self.tree.read_state().inode(ino)?.body {
            Body::Symlink(target) => Ok(target.to_vec()),
            Body::File(_) | Body::Directory(_) | Body::Special => {
                Err(FsError::Invalid { what: "not a symbolic link" }.into())
            }
        })?;
        self.touch_atime(ino)?;
        Ok(target)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Attr> {
        self.throttle.with_rows_reserved(|| self.create_entry(caller, parent, name, new))
    }

    fn create_unnamed(&self, caller: &Caller, parent: Ino, new: &NewInode<'_>) -> Result<Attr> {
        self.throttle.with_rows_reserved(|| self.create_unentered(caller, parent, new))
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove_file(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove_directory(parent, name)
    }

    fn rename(&self, source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.throttle.with_rows_reserved(|| self.move_entry(source.into(), target.into(), flags))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.throttle.with_rows_reserved(|| self.add_link(ino, parent, name))
    }

    fn pin(&self, ino: Ino) -> Result<()> {
        self.pin_inode(ino)
    }

    fn unpin(&self, ino: Ino) {
        self.unpin_inode(ino);
    }

    fn read_with(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        flags: ReadFlags,
    ) -> Result<usize> {
        self.read_file(ino, offset, buffer, flags).inspect_err(|error| {
            if matches!(error, FsError::Checksum { .. } | FsError::Device(_)) {
                let file = Named::new(self, ino);
                tracing::error!(%file, offset, %error, "a read failed");
            }
        })
    }

    fn note_read(&self, ino: Ino) -> Result<bool> {
        self.touch_atime(ino)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        let offset = self.write_file(ino, offset, data, flags)?;
        Ok(Written { offset, len: data.len() as u64 })
    }

    fn fsync(&self, ino: Ino, _kind: SyncKind) -> Result<()> {
        let need = self.tree.loaded(|| {
            let state = self.tree.read_state();
            state.inode(ino)?;
            Ok(self.log.commit_need(&state, Ending::Record))
        })?;
        self.log.commit_needed(need, Ending::Record)
    }

    fn sync(&self) -> Result<()> {
        self.log.commit(Ending::Record)
    }

    fn readdir_with(
        &self,
        ino: Ino,
        cookie: u64,
        flags: ReadFlags,
        each: &mut dyn FnMut(DirEntry<'_>) -> Listing,
    ) -> Result<()> {
        self.list(ino, cookie, flags, each)
    }

    fn fallocate(&self, ino: Ino, how: crate::vfs::Allocate, offset: u64, len: u64) -> Result<()> {
        self.truncator.with_truncated_space(|| self.allocate(ino, how, offset, len))
    }

    fn seek(&self, ino: Ino, what: Seek, offset: u64) -> Result<u64> {
        self.seek_file(ino, what, offset)
    }

    fn extents(
        &self,
        start: (Ino, u64),
        end: Ino,
        each: &mut dyn FnMut(FileExtent) -> Listing,
    ) -> Result<()> {
        self.list_extents(start, end, each)
    }

    fn copy_range(
        &self,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
        flags: WriteFlags,
    ) -> Result<u64> {
        let ((source, from), (target, to)) = (source, target);
        let range = CopyRange { source, from, target, to, len, flags };
        self.throttle.with_rows_reserved(|| self.copy_blocks(range))
    }

    fn statfs(&self) -> Result<StatFs> {
        let state = self.tree.read_state();
        let totals = &state.rows.totals;
        let blocks = self.tree.space.user_blocks_with(&state, RowBytes::default());
        let free = self.tree.space.free_blocks(&state);
        let is_deleted = |ino: &&Ino| {
            state.inodes.peek(**ino).is_none_or(|inode| state.inodes.awaits_removal(**ino, inode))
        };
        let deleted = state.inodes.lives.truncating().iter().filter(is_deleted).count() as u64;
        Ok(StatFs {
            block_size: u32::try_from(BLOCK_BYTES).expect("4096"),
            name_max: NAME_MAX,
            blocks,
            blocks_free: free,
            inodes: totals.inodes().saturating_sub(deleted),
            // A small file takes a block; its rows have their own space.
            inodes_free: free,
            inodes_unlinked: state.inodes.lives.unlinked_count() as u64,
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr(ino, name)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.throttle.with_rows_reserved(|| self.put_xattr(caller, ino, name, value, mode))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.list_xattrs(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_xattr(ino, name)
    }

    fn tick(&self) -> Result<()> {
        self.meters.sample(&self.drive.counts, self.clock.monotonic_ns());
        if self.tree.is_read_only() {
            return Ok(());
        }
        self.worker.run_steps()
    }

    fn on_work(&self, wake: Wake) {
        self.tree.bell.set_wake(wake);
    }

    fn shutdown(&self) -> Result<()> {
        if self.tree.is_read_only() {
            // An error if changes are left from before a thread panicked.
            return self.log.commit(Ending::Record);
        }
        // So that a clean drive has no blocks of deleted files.
        while self.truncator.truncate_one() {}
        let mut outcome = self.log.commit(Ending::Clean);
        for _ in 0..LAST_COMMIT_RETRIES {
            // After this one nothing tries again.
            if outcome.is_err() {
                outcome = self.log.commit(Ending::Clean);
            }
        }
        self.tree.become_read_only();
        outcome
    }

    fn give_up(&self, _message: &str) -> Remains {
        self.tree.become_read_only();
        // A thread that panics during a change poisons one of these locks.
        let is_torn = self.tree.is_torn();
        if is_torn { Remains::Nothing } else { Remains::Readable }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{MountOptions, StepProgress};
    use crate::vfs::FileKind;

    #[test]
    fn state_lock_is_taken_few_times_by_create_overwrite_and_fsync() {
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        // The worker of a mount or a volume.
        fs.on_work(std::sync::Arc::new(|| ()));
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let takings = |operation: &mut dyn FnMut()| {
            let before = fs.tree.takings.load(Ordering::Relaxed);
            operation();
            fs.tree.takings.load(Ordering::Relaxed) - before
        };
        let mut ino = Ino::ROOT;
        let create = takings(&mut || {
            ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        });
        let mut write = || _ = fs.write(ino, 0, &[7; BLOCK_BYTES], WriteFlags::empty()).unwrap();
        write();
        fs.sync().unwrap();
        // The block is stored the first time, and buffered the second.
        let overwrites = [takings(&mut write), takings(&mut write)];
        let fsync = takings(&mut || fs.fsync(ino, SyncKind::Full).unwrap());
        assert!(create <= 3, "create: {create}");
        assert!(overwrites.iter().all(|&count| count <= 4), "overwrite: {overwrites:?}");
        assert!(fsync <= 6, "fsync of a block: {fsync}");
    }

    #[test]
    fn sync_after_panic_is_error_while_changes_are_left() {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        for is_left in [false, true] {
            let (drive, clock) = formatted(32, 64);
            let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
            let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            fs.sync().unwrap();
            if is_left {
                fs.write(ino, 0, &[7; BLOCK_BYTES], WriteFlags::empty()).unwrap();
            }
            assert_eq!(fs.give_up("a thread panicked"), Remains::Readable);
            let ends = [fs.fsync(ino, SyncKind::Full), fs.sync(), fs.shutdown()];
            for end in ends {
                assert_eq!(matches!(end, Err(FsError::ReadOnly)), is_left, "{end:?}");
            }
        }
    }

    #[test]
    fn tick_commits_when_reclaim_has_no_room() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        for offset in [0, 300 * 4096, 0] {
            fs.write(ino, offset, &vec![1; 150 * 4096], WriteFlags::empty()).unwrap();
        }
        fs.sync().unwrap();
        while fs.writer.reset_one() {}
        // There is a victim, and nowhere to move it to.
        while fs.tree.write_state().zones.take_meta(0).is_some() {}
        fs.setattr(&Caller::ROOT, ino, &SetAttr { perm: Some(0o421), ..SetAttr::default() })
            .unwrap();
        clock.advance_ns(10_000_000_000);
        assert!(!fs.tree.read_state().zones.has_emptied());
        assert_eq!(fs.worker.reclaim_step().unwrap(), StepProgress::Idle);
        fs.tick().unwrap();
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        assert_eq!(fs.getattr(ino).unwrap().perm, 0o421, "the tick has committed it");
    }
}
