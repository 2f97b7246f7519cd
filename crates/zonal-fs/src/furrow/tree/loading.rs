//! Loading: brings metadata into memory when an operation needs it.
//!
//! An operation is a function of the state that looks first and changes afterwards. When it needs
//! something that is not resident, it returns [`Stop::NotLoaded`] and has changed nothing;
//! [`Tree::loaded`] [fetches](crate::furrow::tree::fetch) that from the table, with no lock held,
//! and runs the operation again.
//!
//! By the time a load ends, its rows may be outdated: another thread may have loaded the same rows,
//! changed, committed and evicted them. So loads are registered, and a commit that takes rows from
//! the range of a load makes that load start over.

use std::ops::Range;

use crate::FsError;
use crate::furrow::metadata::missing::{Lookup, Missing, Stop};
use crate::furrow::metadata::residency::loads::Operation;
use crate::furrow::planted::mistake;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::tree::Tree;
use crate::furrow::tree::fetch::broken;
use crate::vfs::Result;

/// Attempts after which a load makes commits wait for it.
const ATTEMPTS_MAX: usize = 8;

impl Tree {
    /// Runs an operation, and again each time a load has read metadata that it lacks.
    pub(in crate::furrow) fn loaded<T>(&self, run: impl FnMut() -> Lookup<T>) -> Result<T> {
        self.run_loaded(run)?.map_err(|missing| match missing {
            Missing::Extent(id) => {
                broken(Key::new(RowKind::Extent, id.0, 0), "a map names it, and it does not exist")
            }
            Missing::Inode(_)
            | Missing::Map(..)
            | Missing::Entries(..)
            | Missing::Name(..)
            | Missing::Discard(..) => FsError::NotFound,
        })
    }

    /// As [`loaded`](Self::loaded), for something that may no longer exist: `None` then.
    pub(in crate::furrow) fn loaded_if_there<T>(
        &self,
        run: impl FnMut() -> Lookup<T>,
    ) -> Result<Option<T>> {
        Ok(self.run_loaded(run)?.ok())
    }

    /// Returns the result of the operation, or the metadata that it lacks and that no row has.
    fn run_loaded<T>(
        &self,
        mut run: impl FnMut() -> Lookup<T>,
    ) -> Result<std::result::Result<T, Missing>> {
        let (mut operation, mut gone) = (None, None);
        loop {
            let missing = match run() {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::NotLoaded(missing)) => missing,
            };
            match self.load(&missing, &mut operation) {
                // Another thread may have dropped the last reference before the load. Then the
                // operation does not need it when it runs again.
                Err(FsError::NotFound)
                    if matches!(missing, Missing::Extent(_)) && gone.as_ref() != Some(&missing) =>
                {
                    gone = Some(missing);
                }
                Err(FsError::NotFound) => return Ok(Err(missing)),
                outcome => outcome?,
            }
        }
    }

    /// Loads something for an operation, which begins with its first load.
    fn load(&self, missing: &Missing, operation: &mut Option<Operation>) -> Result<()> {
        if let Missing::Discard(ino, block) = *missing {
            return self.loaded(|| self.write_state().end_discard_at(ino, block));
        }
        for _ in 0..ATTEMPTS_MAX {
            if self.try_load(missing, operation)? {
                return Ok(());
            }
        }
        let _no_commit = self.hold_off_changes();
        self.try_load(missing, operation).map(drop)
    }

    /// Loads something unless a commit has taken rows of it meanwhile; returns whether it did.
    fn try_load(&self, missing: &Missing, operation: &mut Option<Operation>) -> Result<bool> {
        let ticket = {
            let loads = &mut self.write_accounts().residency.loads;
            let ticket = loads.begin(keys_of(missing));
            operation.get_or_insert_with(|| loads.begin_operation(ticket));
            ticket
        };
        let found = self.fetch(missing);
        let mut state = self.write_accounts();
        let counts = state.residency.loads.end(ticket);
        if counts {
            mistake!(self, RefusedIsHole, {
                if let (&Missing::Map(ino, block), Err(_)) = (missing, &found) {
                    state.mark_hole(ino, block..block + 1);
                    return Ok(true);
                }
            });
            state.enter(missing, found?);
            self.trim(&mut state);
        }
        Ok(counts)
    }
}

/// The keys that a load reads.
fn keys_of(missing: &Missing) -> Range<Key> {
    match *missing {
        Missing::Name(ino, _) => {
            let last = Key::new(RowKind::Entry, ino.get(), u64::MAX);
            Key::new(RowKind::Name, ino.get(), 0)..last
        }
        Missing::Inode(ino) => {
            let last = Key::new(RowKind::Entry, ino.get(), u64::MAX);
            Key::new(RowKind::Inode, ino.get(), 0)..last.successor()
        }
        Missing::Map(ino, _) | Missing::Discard(ino, _) => {
            Key::new(RowKind::Map, ino.get(), 0)..Key::new(RowKind::Map, ino.get(), u64::MAX)
        }
        Missing::Entries(ino, cookie) => {
            Key::new(RowKind::Entry, ino.get(), cookie)
                ..Key::new(RowKind::Entry, ino.get(), u64::MAX)
        }
        Missing::Extent(id) => {
            let key = Key::new(RowKind::Extent, id.0, 0);
            key..key.successor()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::BLOCK_BYTES;
    use crate::furrow::metadata::map::place::ExtentId;
    use crate::furrow::sample::formatted;
    use crate::furrow::tree::fetch::MAP_ROWS;
    use crate::furrow::{Eviction, Furrow, MountOptions};
    use crate::vfs::{Allocate, Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, WriteFlags};

    const FILE: NewInode<'_> =
        NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };

    /// Another thread takes the last reference after an operation has seen that it needs the
    /// extent, and before that is loaded.
    #[test]
    fn load_of_vanished_shared_extent_is_no_damage() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let needs_it = || Stop::NotLoaded(Missing::Extent(ExtentId(7)));
        let mut looks = 0;
        let outcome = fs.tree.loaded(|| {
            looks += 1;
            if looks == 1 { Err(needs_it()) } else { Ok(()) }
        });
        outcome.unwrap();
        // It is still named.
        let outcome = fs.tree.loaded::<()>(|| Err(needs_it()));
        assert!(matches!(outcome, Err(FsError::Corrupt { .. })), "{outcome:?}");
    }

    #[test]
    fn load_overlapping_commit_starts_over() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let [one, two] = [&b"one"[..], b"two"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &FILE).unwrap().ino);
        fs.sync().unwrap();
        let [of_one, of_two] = [one, two].map(|ino| {
            fs.tree.write_accounts().residency.loads.begin(keys_of(&Missing::Inode(ino)))
        });
        fs.setattr(&Caller::ROOT, one, &SetAttr { perm: Some(0o640), ..SetAttr::default() })
            .unwrap();
        fs.sync().unwrap();
        assert!(
            !fs.tree.write_accounts().residency.loads.end(of_one),
            "it may have read what was before"
        );
        assert!(fs.tree.write_accounts().residency.loads.end(of_two));
    }

    #[test]
    fn load_does_not_revive_uncommitted_delete() {
        let (drive, clock) = formatted(32, 64);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        fs.sync().unwrap();
        fs.unlink(Ino::ROOT, b"file").unwrap();
        assert!(fs.tree.row(Key::new(RowKind::Inode, ino.get(), 0)).unwrap().is_some());
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
        assert!(matches!(fs.lookup(Ino::ROOT, b"file"), Err(FsError::NotFound)));
        // Not even through its number.
        fs.tree.load(&Missing::Inode(ino), &mut None).unwrap();
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
        fs.sync().unwrap();
        assert!(matches!(fs.getattr(ino), Err(FsError::NotFound)));
    }

    /// If a load ended inside an extent, the rest of it would lie outside the resident range.
    #[test]
    fn load_of_map_covers_its_last_extent() {
        const PIECES: u64 = 3 * MAP_ROWS as u64;
        let (drive, clock) = formatted(64, 256);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        let piece = [7; 2 * BLOCK_BYTES];
        // From the end on, so that each piece has a row of its own.
        for number in (0..PIECES).rev() {
            fs.write(ino, number * piece.len() as u64, &piece, WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        let known_end = || {
            let state = fs.tree.read_state();
            state.inodes.peek(ino).unwrap().file().unwrap().resident.end_of(0).unwrap()
        };
        fs.getattr(ino).unwrap();
        let end = known_end();
        assert!(end < 2 * PIECES && end % 2 == 0, "{end} blocks are resident with the inode");
        let mut found = [0; BLOCK_BYTES];
        fs.read(ino, end * BLOCK_BYTES as u64, &mut found).unwrap();
        let more = known_end();
        assert!(more > end && more % 2 == 0, "{more} blocks are resident after a load");
    }

    /// So few pieces take one step: a power cut between two would leave the call half done.
    #[test]
    fn step_over_few_extents_continues_past_loaded_map() {
        const PIECES: u64 = 20 * MAP_ROWS as u64;
        let (drive, clock) = formatted(64, 256);
        let options = MountOptions { eviction: Eviction::AtEveryLock, ..MountOptions::default() };
        let fs = Furrow::mount(drive.clone(), clock.clone(), options).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        for number in (0..PIECES).rev() {
            let at = number * BLOCK_BYTES as u64;
            fs.write(ino, at, &[7; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, options).unwrap();
        let end = fs.tree.loaded(|| fs.tree.read_state().step_end(ino, 3, PIECES));
        assert_eq!(end.unwrap(), PIECES);
    }

    #[test]
    fn read_of_hole_with_many_deleted_rows_succeeds() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let (drive, clock) = formatted(64, 256);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &FILE).unwrap().ino;
        // From the end on, so that each block has a row of its own.
        for block in (0..3000).rev() {
            fs.write(ino, block * BLOCK, &[7; BLOCK_BYTES], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        fs.fallocate(ino, Allocate::Punch, 10 * BLOCK, 2900 * BLOCK).unwrap();
        fs.sync().unwrap();
        drop(fs);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        for (block, content) in [(2909, 0), (2910, 7), (1500, 0), (9, 7)] {
            let mut found = [1; BLOCK_BYTES];
            fs.read(ino, block * BLOCK, &mut found).unwrap();
            assert_eq!(found, [content; BLOCK_BYTES], "block {block}");
        }
    }
}
