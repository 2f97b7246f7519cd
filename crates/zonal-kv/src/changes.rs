//! Changes of files: each is noted in memory that outlives the process before its call returns.
//!
//! A note needs room, and the time of the file before the change. Both are obtained first, so that
//! a change that cannot be noted is refused before it changes anything.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use zonal_fs::FsError;
use zonal_fs::vfs::{self, Attr, FileSystem, Ino};

use crate::replay::changed_ns;
use crate::unsynced::{Change, Note, Noted, Pending, Times, Unsynced};
use crate::{Error, Result};

/// The notes, and a way to read the attributes of a file by its inode number.
pub(crate) struct Changes {
    unsynced: Mutex<Unsynced>,
    attributes: Box<dyn Fn(Ino) -> vfs::Result<Attr> + Send + Sync>,
}

/// A change of a file that has begun.
pub(crate) struct Begun {
    ino: Ino,
    before_ns: i64,
    pending: Pending,
}

impl Changes {
    /// Notes changes of the files of `fs`. The weak reference does not keep `fs` alive.
    pub(crate) fn new(unsynced: Unsynced, fs: Weak<dyn FileSystem>) -> Self {
        let attributes = move |ino| fs.upgrade().ok_or(FsError::NotFound)?.getattr(ino);
        Self { unsynced: Mutex::new(unsynced), attributes: Box::new(attributes) }
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Unsynced> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a file was last changed; `None` if it is gone.
    fn changed_ns(&self, ino: Ino) -> Result<Option<i64>> {
        match (self.attributes)(ino) {
            Ok(attr) => Ok(Some(changed_ns(&attr))),
            Err(FsError::NotFound) => Ok(None),
            Err(source) => Err(Error::Time { ino: ino.get(), source }),
        }
    }

    /// Begins a change of a file whose note will have `data` bytes; `None` if the file is gone. If
    /// there is no room for the note, `commit` makes some.
    pub(crate) fn begin(
        &self,
        ino: Ino,
        data: usize,
        commit: impl Fn() -> Result<()>,
    ) -> Result<Option<Begun>> {
        loop {
            let mut notes = self.notes();
            if notes.has_room(data) {
                let before_ns = match notes.take_changed_ns(ino.get()) {
                    Some(known) => Some(known),
                    None => self.changed_ns(ino)?,
                };
                return Ok(before_ns.map(|before_ns| {
                    let pending = notes.begin_change(ino.get(), data);
                    Begun { ino, before_ns, pending }
                }));
            }
            drop(notes);
            commit()?;
        }
    }

    /// Ends a change: notes it. If that is impossible, `commit` makes it durable instead: the
    /// change may be larger than the memory, or the time of the file cannot be read.
    pub(crate) fn end(
        &self,
        begun: Begun,
        change: Change<'_>,
        commit: impl Fn() -> Result<()>,
    ) -> Result<Noted> {
        let Begun { ino, before_ns, pending } = begun;
        let after_ns = self.changed_ns(ino);
        let mut notes = self.notes();
        let noted = match after_ns {
            Ok(Some(after_ns)) => {
                let times = Times { before_ns, after_ns };
                notes.note(Note { ino: ino.get(), change, times })
            }
            // A file that is gone needs no note.
            Ok(None) => Noted::Kept,
            Err(error) => {
                tracing::warn!(%error, "a change is committed, since it cannot be noted");
                Noted::NoRoom
            }
        };
        if noted == Noted::NoRoom {
            drop(notes);
            let committed = commit();
            self.notes().end_change(pending);
            return committed.map(|()| Noted::Kept);
        }
        notes.end_change(pending);
        Ok(noted)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use zonal::{ManualClock, MemoryDrive, ZonedDevice};
    use zonal_fs::vfs::Access;
    use zonal_fs::zonefs::{MkfsOptions, mkfs};

    use super::*;
    use crate::zones::ZoneStore;

    const ROOT: Ino = Ino::new(1);

    /// Changes of a root directory, whose attributes cannot be read while the flag is set.
    fn changes(folder: &Path, fails: &Arc<AtomicBool>) -> Changes {
        let shape = "zone=64K,zones=16".parse::<zonal::profile::Changes>().unwrap();
        let drive: Arc<dyn ZonedDevice> =
            Arc::new(MemoryDrive::new(shape.geometry().unwrap()).unwrap());
        mkfs(&*drive, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let store = ZoneStore::mount(drive, Arc::new(ManualClock::new(1)), Access::ReadWrite);
        let (store, fails) = (store.unwrap(), Arc::clone(fails));
        let attributes = move |ino| {
            if fails.load(Ordering::Relaxed) { Err(FsError::NoSpace) } else { store.getattr(ino) }
        };
        let unsynced = Unsynced::open(folder, "9f1c0000-0000-4000-8000-00000000abcd", 1).unwrap();
        Changes { unsynced: Mutex::new(unsynced), attributes: Box::new(attributes) }
    }

    fn never() -> Result<()> {
        panic!("nothing to commit")
    }

    #[test]
    fn change_of_file_without_known_time_is_refused_first() {
        let (folder, fails) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(true)));
        let changes = changes(folder.path(), &fails);
        let error = changes.begin(ROOT, 3, never).err().unwrap();
        assert_eq!(error.errno(), 28, "{error}");
        assert_eq!(changes.notes().pending().count(), 0);
        fails.store(false, Ordering::Relaxed);
        assert!(changes.begin(Ino::new(99), 3, never).unwrap().is_none(), "a file that is gone");

        // The time after the change cannot be read, so only a commit can keep the change.
        let begun = changes.begin(ROOT, 3, never).unwrap().unwrap();
        fails.store(true, Ordering::Relaxed);
        let commits = Cell::new(0);
        let commit = || {
            commits.set(commits.get() + 1);
            Ok(())
        };
        let change = Change::Bytes { offset: 0, data: b"abc" };
        assert_eq!(changes.end(begun, change, commit).unwrap(), Noted::Kept);
        assert_eq!((commits.get(), changes.notes().notes().count()), (1, 0));
        assert_eq!(changes.notes().pending().count(), 0);
    }

    #[test]
    fn change_without_room_for_note_is_refused_first() {
        let (folder, fails) = (tempfile::tempdir().unwrap(), Arc::default());
        let changes = changes(folder.path(), &fails);
        let data = vec![7; 1 << 20];
        let refused = || Err(Error::argument("no commit"));
        let mut begun = Vec::new();
        let error = loop {
            match changes.begin(ROOT, data.len(), refused) {
                Ok(one) => begun.push(one.unwrap()),
                Err(error) => break error,
            }
        };
        assert_eq!((error.to_string().as_str(), begun.len()), ("no commit", 15));
        // All changes that have begun have room for their notes.
        for one in begun {
            let change = Change::Bytes { offset: 0, data: &data };
            assert_ne!(changes.end(one, change, never).unwrap(), Noted::NoRoom);
        }
        assert_eq!(changes.notes().notes().count(), 15);
        let commit = || {
            let mut notes = changes.notes();
            notes.begin_commit();
            notes.end_commit();
            Ok(())
        };
        changes.begin(ROOT, data.len(), commit).unwrap().unwrap();
        // No commit makes room for this.
        changes.begin(ROOT, 1 << 25, never).unwrap().unwrap();
    }
}
