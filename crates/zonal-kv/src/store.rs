//! A store: a volume in this process, its commits, and its operations on names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use zonal::spec::Base;
use zonal::{ByteCount, Clock, SystemClock};
use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, FileKind, Ino, StatFs};
use zonal_fs::volume::{self, Entry, File, OpenFlags, Volume};

use crate::cache::{CachedFile, ReadCache, Role};
use crate::changes::{Begun, Changes};
use crate::error::{Error, Result};
use crate::mount::{Files, mount_files, open_device, volume_options};
use crate::process::process;
use crate::replay::open_unsynced;
use crate::unsynced::{Change, Noted};
use crate::uri::Address;

/// Permission bits of new files, before the umask.
const FILE_PERM: u16 = 0o644;

/// An open drive. Dropping the last handle closes it.
pub struct Store {
    core: Arc<Core>,
    /// The thread that commits when half of the room for notes is used.
    committer: Mutex<Option<JoinHandle<()>>>,
    is_closed: AtomicBool,
    /// Bytes of a zone, on zonefs, where each file has zones of its own.
    zone: Option<ByteCount>,
}

/// The part of a store that its commit thread shares.
struct Core {
    /// The process that opened the store.
    opener: i32,
    volume: Volume,
    /// `None` if nothing needs to outlive the process: the drive is in its memory, or the option is
    /// off.
    changes: Option<Changes>,
    counts: Option<Counts>,
    cache: Arc<ReadCache>,
    /// Held during a commit.
    committing: Mutex<()>,
    /// The number of the last commit that has begun, and of the last one that has succeeded.
    begun: AtomicU64,
    done: AtomicU64,
    signal: Signal,
}

/// The file system whose writes are counted, and the file for the counts.
struct Counts {
    files: Files,
    file: PathBuf,
}

impl Counts {
    /// Saves the number of bytes written since the store was opened, in the format of
    /// `zonal mount --counts`.
    fn write(&self) -> std::io::Result<()> {
        self.files.traffic().save(&self.file)
    }
}

#[derive(Default)]
struct Signal {
    want: Mutex<Want>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Want {
    #[default]
    Nothing,
    Commit,
    End,
}

/// The stores of a process, by device: a process opens each drive only once.
struct Stores {
    process: i32,
    open: Mutex<BTreeMap<String, Weak<Store>>>,
}

/// The stores of the last process that opened one. A copy of that process, made by fork(2), gets a
/// new list: it has no store to close, and a thread that the copy does not have may hold the lock.
static STORES: AtomicPtr<Stores> = AtomicPtr::new(ptr::null_mut());

impl Stores {
    /// The stores of this process, if it has opened any.
    fn find() -> Option<&'static Self> {
        // SAFETY: a `Stores` in `STORES` is never freed.
        let last = unsafe { STORES.load(Ordering::Acquire).as_ref() };
        last.filter(|last| last.process == process())
    }

    /// The stores of this process.
    fn get() -> &'static Self {
        let mut last = STORES.load(Ordering::Acquire);
        loop {
            if let Some(found) = Self::find() {
                return found;
            }
            let new = Box::leak(Box::new(Self { process: process(), open: Mutex::default() }));
            match STORES.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return new,
                // Another thread was first; the few bytes of ours are leaked.
                Err(other) => last = other,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens the drive that `uri` names, or returns the open store of that drive in this process.
    pub fn open(uri: &str) -> Result<Arc<Self>> {
        let address = Address::parse(uri)?;
        let path = Path::new(&address.device).canonicalize();
        let key = path.map_or_else(|_| address.device.clone(), |path| path.display().to_string());
        // Held while a store opens or closes, so that no thread finds a drive that is still being
        // closed.
        let mut stores = lock(&Stores::get().open);
        if let Some(store) = stores.get(&key).and_then(Weak::upgrade)
            && !store.is_closed.load(Ordering::Acquire)
        {
            return Ok(store);
        }
        let store = Self::mount(&address)?;
        stores.insert(key, Arc::downgrade(&store));
        Ok(store)
    }

    /// Releases a handle. Releasing the last one closes the drive and leaves it clean.
    pub fn release(self: Arc<Self>) -> Result<()> {
        if self.check_process().is_err() {
            // A thread of the original process may have held the lock at the fork.
            return Ok(());
        }
        let _stores = lock(&Stores::get().open);
        Arc::into_inner(self).map_or(Ok(()), |store| store.close())
    }

    /// Closes all open stores at the end of the process. Remaining handles only return errors.
    pub fn close_all() {
        let Some(stores) = Stores::find() else { return };
        let mut stores = lock(&stores.open);
        for store in std::mem::take(&mut *stores).into_values().filter_map(|store| store.upgrade())
        {
            if let Err(error) = store.close() {
                tracing::error!(%error, "closing a store at the end of the process");
            }
        }
    }

    fn mount(address: &Address) -> Result<Arc<Self>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let stack = open_device(&address.device, &clock)?;
        let failed = |source| Error::Mount { device: address.device.clone(), source };
        let files = mount_files(&stack, &clock, address).map_err(failed)?;
        let zone = match &files {
            Files::Furrow(_) => None,
            Files::Zones(zones) => Some(zones.zone_capacity()),
        };
        let is_in_memory = match stack.base {
            Base::Memory | Base::Simulated(_) => true,
            Base::File(_) | Base::Device => false,
        };
        let folder = address.unsynced.as_deref().filter(|_| !is_in_memory);
        let unsynced = folder.map(|folder| open_unsynced(&files, folder)).transpose()?;
        let counts = address.counts.clone().map(|file| Counts { files: files.clone(), file });
        let fs = files.into_fs();
        // Weak: the volume decides how long the file system lives.
        let changes = unsynced.map(|unsynced| Changes::new(unsynced, Arc::downgrade(&fs)));
        let core = Arc::new(Core {
            opener: process(),
            counts,
            volume: Volume::new(fs, &volume_options()),
            changes,
            cache: Arc::new(ReadCache::new(address.cache.get())),
            committing: Mutex::default(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            signal: Signal::default(),
        });
        let committer = core.changes.as_ref().and_then(|_| start_committer(&core));
        let is_closed = AtomicBool::new(false);
        Ok(Arc::new(Self { core, committer: Mutex::new(committer), is_closed, zone }))
    }

    fn close(&self) -> Result<()> {
        if self.check_process().is_err() || self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(committer) = lock(&self.committer).take() {
            self.core.signal.set(Want::End);
            // The thread can only have panicked, and the panic was reported.
            let _ = committer.join();
        }
        self.core.volume.clone().close()?;
        if let Some(counts) = &self.core.counts
            && let Err(error) = counts.write()
        {
            tracing::warn!(%error, "writing the counts to {}", counts.file.display());
        }
        if let Some(changes) = &self.core.changes
            && let Err(error) = changes.notes().remove()
        {
            tracing::warn!(%error, "removing the memory of a store that is closed");
        }
        Ok(())
    }

    /// Makes all changes before this call durable.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Fails unless this is the process that opened the store, as opposed to a copy made by
    /// fork(2).
    pub(crate) fn check_process(&self) -> Result<()> {
        self.core.check_process()
    }

    /// Changes a file, and notes the change, with `data` bytes, in case the process is killed.
    pub(crate) fn change<'a, T>(
        &self,
        ino: Ino,
        data: usize,
        act: impl FnOnce() -> volume::Result<T>,
        said: impl FnOnce(&T) -> Change<'a>,
    ) -> Result<T> {
        self.core.change(ino, data, act, said)
    }

    /// Opens a file of the volume, and its pieces in the cache, as `flags` say. Commits the file if
    /// it is new or was emptied.
    pub(crate) fn open_file(&self, path: &Path, flags: OpenFlags) -> Result<(File, CachedFile)> {
        let volume = self.core.volume()?;
        let old = existing(volume.metadata(path))?;
        let changes = flags.intersects(OpenFlags::TRUNCATE | OpenFlags::CREATE_NEW)
            || (flags.contains(OpenFlags::CREATE) && old.is_none());
        if !changes {
            let file = volume.open_with(path, flags, FILE_PERM)?;
            return Ok(self.opened(file, flags));
        }
        let begun = match old {
            Some(old) => self.core.begin(old.ino, 0)?,
            None => None,
        };
        let opened = volume.open_with(path, flags, FILE_PERM);
        // Notes about the old content must not be written again.
        let kept = match (&opened, begun) {
            (Ok(file), Some(begun)) => {
                let change =
                    file.metadata().map_or(Change::Size(0), |attr| Change::Size(attr.size));
                self.core.end(begun, change)
            }
            (Err(_), Some(begun)) => self.core.end(begun, Change::Attributes),
            (_, None) => Ok(()),
        };
        let file = self.opened(opened?, flags);
        kept?;
        self.sync()?;
        Ok(file)
    }

    fn opened(&self, file: File, flags: OpenFlags) -> (File, CachedFile) {
        let is_writer = flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND);
        let role = if is_writer { Role::Writer } else { Role::Reader };
        let cached = CachedFile::open(Arc::clone(&self.core.cache), file.ino(), role);
        (file, cached)
    }

    /// Whether files take writes anywhere; on zonefs they take them only at their end.
    pub const fn overwrites(&self) -> bool {
        self.zone.is_none()
    }

    /// The least space of a file: a block, or on zonefs a zone.
    pub fn unit(&self) -> Result<ByteCount> {
        match self.zone {
            Some(zone) => Ok(zone),
            None => Ok(ByteCount::new(self.space()?.block_size.into())),
        }
    }

    /// Attributes of the file or directory at `path`.
    pub fn metadata(&self, path: &Path) -> Result<Attr> {
        Ok(self.core.volume()?.metadata(path)?)
    }

    /// The entries of a directory.
    pub fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let entries = self.core.volume()?.read_dir(path)?;
        Ok(entries.collect::<zonal_fs::volume::Result<_>>()?)
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        self.change_names(&[path], |volume| volume.remove_file(path))
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: &Path) -> Result<()> {
        self.core.volume()?.create_dir(path)?;
        self.sync()
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> Result<()> {
        self.core.volume()?.remove_dir(path)?;
        self.sync()
    }

    /// Moves an entry, and replaces a file at `to`.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names(&[from, to], |volume| volume.rename(from, to))
    }

    /// Gives a file one more name.
    pub fn hard_link(&self, original: &Path, link: &Path) -> Result<()> {
        self.change_names(&[original], |volume| volume.hard_link(original, link))
    }

    /// Changes names of files, which also changes the `ctime` of these files.
    fn change_names(
        &self,
        paths: &[&Path],
        act: impl FnOnce(&Volume) -> volume::Result<()>,
    ) -> Result<()> {
        let volume = self.core.volume()?;
        let mut files = Vec::new();
        for path in paths {
            files.extend(existing(volume.metadata(path))?);
        }
        files.retain(|attr| attr.kind == FileKind::Regular);
        let mut begun = Vec::new();
        let all = files.iter().try_for_each(|attr| {
            begun.extend(self.core.begin(attr.ino, 0)?);
            Ok(())
        });
        let outcome = all.and_then(|()| Ok(act(volume)?));
        let mut kept = Ok(());
        for begun in begun {
            kept = kept.and(self.core.end(begun, Change::Attributes));
        }
        outcome.and(kept)?;
        for attr in files {
            self.core.cache.forget(attr.ino);
        }
        self.sync()
    }

    /// Space and inodes, used and free.
    pub fn space(&self) -> Result<StatFs> {
        Ok(self.core.volume()?.space()?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // The drive, its threads and the notes belong to the process that opened the store: it
            // still uses everything that a drop would end here.
            std::mem::forget(Arc::clone(&self.core));
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a store that was not closed");
        }
    }
}

impl Core {
    fn check_process(&self) -> Result<()> {
        if self.opener == process() { Ok(()) } else { Err(Error::Forked { opener: self.opener }) }
    }

    /// The volume, in the process that opened it.
    fn volume(&self) -> Result<&Volume> {
        self.check_process().map(|()| &self.volume)
    }

    fn sync(&self) -> Result<()> {
        self.check_process()?;
        let wanted = self.begun.load(Ordering::Acquire) + 1;
        let _turn = lock(&self.committing);
        if self.done.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(changes) = &self.changes {
            changes.notes().begin_commit();
        }
        self.volume.sync()?;
        if let Some(changes) = &self.changes {
            changes.notes().end_commit();
        }
        self.done.store(number, Ordering::Release);
        Ok(())
    }

    fn change<'a, T>(
        &self,
        ino: Ino,
        data: usize,
        act: impl FnOnce() -> volume::Result<T>,
        said: impl FnOnce(&T) -> Change<'a>,
    ) -> Result<T> {
        let Some(begun) = self.begin(ino, data)? else { return Ok(act()?) };
        let outcome = act();
        // A failed action may have changed a part.
        let kept = self.end(begun, outcome.as_ref().map_or(Change::Attributes, said));
        let value = outcome?;
        kept.map(|()| value)
    }

    /// Begins a change of a file; `None` if the store keeps no notes.
    fn begin(&self, ino: Ino, data: usize) -> Result<Option<Begun>> {
        match &self.changes {
            Some(changes) => changes.begin(ino, data, || self.sync()),
            None => Ok(None),
        }
    }

    /// Ends a change, and notes it.
    fn end(&self, begun: Begun, change: Change<'_>) -> Result<()> {
        let Some(changes) = &self.changes else { return Ok(()) };
        if changes.end(begun, change, || self.sync())? == Noted::HalfFull {
            self.signal.set(Want::Commit);
        }
        Ok(())
    }
}

/// The attributes at a path; `None` if the path does not exist.
fn existing(found: volume::Result<Attr>) -> Result<Option<Attr>> {
    match found {
        Ok(attr) => Ok(Some(attr)),
        Err(error) if matches!(error.reason(), FsError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn start_committer(core: &Arc<Core>) -> Option<JoinHandle<()>> {
    let core = Arc::clone(core);
    let thread = std::thread::Builder::new().name("zonal-commit".to_owned()).spawn(move || {
        while core.signal.wait() != Want::End {
            // A writer that finds no room commits itself, and returns the error.
            if let Err(error) = core.sync() {
                tracing::error!(%error, "a commit in the background failed");
            }
        }
    });
    thread.inspect_err(|error| tracing::warn!(%error, "no thread for commits: writers commit")).ok()
}

impl Signal {
    fn wait(&self) -> Want {
        let want = lock(&self.want);
        let waited = self.changed.wait_while(want, |want| *want == Want::Nothing);
        let mut want = waited.unwrap_or_else(PoisonError::into_inner);
        let seen = *want;
        if seen == Want::Commit {
            *want = Want::Nothing;
        }
        seen
    }

    /// Tells the commit thread what to do. `End` is final.
    fn set(&self, what: Want) {
        let mut want = lock(&self.want);
        if *want != Want::End {
            *want = what;
        }
        self.changed.notify_all();
    }
}
