//! The extents of files without a writer, so that a read of one does not wait while the drive takes
//! the writes of another.
//!
//! A zone is reset only after every read that may use it has ended: the commit waits for these
//! reads, and a later read finds the extents after the change.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Inode;
use super::format::{Extent, Kind};

type Places = BTreeMap<u64, Box<[Extent]>>;

/// The files whose bytes are all in zones, by inode number. Every read from zones holds the lock,
/// and takes no other lock meanwhile. Entries are changed with the store's state locked.
#[derive(Default)]
pub(super) struct PlacedFiles(RwLock<Places>);

/// A read in progress.
pub(super) struct Reading<'a>(RwLockReadGuard<'a, Places>);

impl Reading<'_> {
    /// The extents of a file, if its bytes are all in zones.
    pub(super) fn extents(&self, ino: u64) -> Option<&[Extent]> {
        self.0.get(&ino).map(|extents| &**extents)
    }
}

impl PlacedFiles {
    /// Adds a file, if it has bytes, all of them in zones, and no writer.
    pub(super) fn insert(&self, ino: u64, inode: &Inode) {
        let is_placed = inode.buffer.is_empty() && !inode.extents.is_empty();
        if inode.kind == Kind::File && inode.writers == 0 && is_placed {
            self.change().insert(ino, inode.extents.as_slice().into());
        }
    }

    /// Removes a file that changes or is deleted.
    pub(super) fn remove(&self, ino: u64) {
        // The write lock waits for all reads, so it is taken only when there is an entry to remove.
        if self.begin_read().extents(ino).is_some() {
            self.change().remove(&ino);
        }
    }

    /// Begins a read from zones: no zone is reset until the guard is dropped.
    pub(super) fn begin_read(&self) -> Reading<'_> {
        Reading(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when every read that began before has ended.
    pub(super) fn wait_for_reads(&self) {
        drop(self.change());
    }

    fn change(&self) -> RwLockWriteGuard<'_, Places> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use zonal::profile::Changes;
    use zonal::{ManualClock, MemoryDrive, ZonedDevice};
    use zonal_fs::vfs::{Access, Caller, FileKind, FileSystem, Ino, NewInode, OpenFor, WriteFlags};
    use zonal_fs::zonefs::{MkfsOptions, mkfs};

    use super::super::{ROOT, ZoneStore, lock};

    const LEN: usize = 64 << 10;

    fn store() -> ZoneStore {
        let shape = "zone=64K,zones=16,block=4096,active=14,open=14".parse::<Changes>().unwrap();
        let device: Arc<dyn ZonedDevice> =
            Arc::new(MemoryDrive::new(shape.geometry().unwrap()).unwrap());
        mkfs(&*device, &MkfsOptions::default(), &mut |_| ()).unwrap();
        ZoneStore::mount(device, Arc::new(ManualClock::new(1_000)), Access::ReadWrite).unwrap()
    }

    fn closed_file(store: &ZoneStore, name: &[u8]) -> Ino {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: &[] };
        let ino = store.create(&Caller::ROOT, Ino::new(ROOT), name, &new).unwrap().ino;
        store.pin(ino).unwrap();
        store.open(ino, OpenFor::Writing).unwrap();
        store.write(ino, 0, &vec![7; LEN], WriteFlags::empty()).unwrap();
        store.close(ino, OpenFor::Writing);
        ino
    }

    #[test]
    fn read_of_closed_file_does_not_wait_for_state() {
        let store = store();
        let ino = closed_file(&store, b"table");
        let mut buffer = vec![0; LEN];
        // Held as during a write of another file: a read that needed this lock would never end.
        let state = lock(&store.state);
        assert_eq!(store.read_file(ino.get(), 0, &mut buffer).unwrap(), LEN);
        drop(state);
        assert!(buffer.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn zone_of_deleted_file_is_reset_after_reads_that_know_it() {
        let store = store();
        let ino = closed_file(&store, b"table");
        store.sync().unwrap();
        thread::scope(|scope| {
            let reading = store.placed.begin_read();
            let zone = reading.extents(ino.get()).unwrap()[0].zone;
            let deleting = scope.spawn(|| {
                store.unlink(Ino::new(ROOT), b"table").unwrap();
                store.unpin(ino);
                store.sync().unwrap();
            });
            // A thread that waits for the write lock lets no further reader in.
            while store.placed.0.try_read().is_ok() && !deleting.is_finished() {
                thread::yield_now();
            }
            assert!(store.written(zone).unwrap() > 0, "reset while a read may need it");
            drop(reading);
            deleting.join().unwrap();
            assert_eq!(store.written(zone).unwrap(), 0);
        });
    }
}
