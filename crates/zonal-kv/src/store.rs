//! A store: a volume in this process, its commits, and what it does with names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use zonal::spec::{Base, Openers, Stack};
use zonal::{Clock, OpenMode, SystemClock};
use zonal_fs::FsError;
use zonal_fs::furrow::{self, AtimePolicy, Furrow, MkfsOptions, MountOptions};
use zonal_fs::signature::{self, Content};
use zonal_fs::vfs::{Attr, Caller, FileKind, FileSystem, Ino, SetAttr, StatFs, WriteFlags};
use zonal_fs::volume::{Entry, OpenFlags, Volume, VolumeOptions};
use zonal_fs::zonefs;

use crate::unsynced::{Change, Left, Note, Noted, Unsynced};
use crate::uri::{Address, Blank, Hints};
use crate::zones::ZoneStore;
use crate::{Error, Result, StoreFile};

/// Permission bits of new files, before the umask.
const FILE_PERM: u16 = 0o644;

/// An open drive. It is closed when the last handle goes.
pub struct Store {
    core: Arc<Core>,
    /// Commits when much is noted.
    committer: Mutex<Option<JoinHandle<()>>>,
    is_closed: AtomicBool,
    is_zonefs: bool,
}

/// What a store and its thread share.
struct Core {
    volume: Volume,
    clock: Arc<dyn Clock>,
    /// `None` where nothing outlives the process: the drive is in its memory, or the option is off.
    unsynced: Option<Mutex<Unsynced>>,
    counts: Option<Counts>,
    /// One commits at a time.
    committing: Mutex<()>,
    /// Commits that have begun, and the last one that has succeeded.
    begun: AtomicU64,
    done: AtomicU64,
    signal: Signal,
}

/// Whose writes are counted, and the file that gets the counts.
struct Counts {
    furrow: Arc<Furrow>,
    file: PathBuf,
}

impl Counts {
    /// Bytes written since the store was opened, in the format of `zonal mount --counts`.
    fn write(&self) -> std::io::Result<()> {
        self.furrow.live().since_mount.save(&self.file)
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

/// The stores of this process, by device: a drive is opened once, whoever asks.
static STORES: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which file systems a program can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Furrow alone: it needs more than zone files can do.
    Furrow,
    /// Also files with names on zonefs, which grow at their end.
    FurrowAndZonefs,
}

impl Store {
    /// Opens the drive that `uri` names, or takes the one of this process that is open already.
    pub fn open(uri: &str, accepts: Accepts) -> Result<Arc<Self>> {
        let address = Address::parse(uri)?;
        let path = Path::new(&address.device).canonicalize();
        let key = path.map_or_else(|_| address.device.clone(), |path| path.display().to_string());
        // Held while a store opens or closes: so nobody finds a drive that is still being closed.
        let mut stores = lock(&STORES);
        if let Some(store) = stores.get(&key).and_then(Weak::upgrade)
            && !store.is_closed.load(Ordering::Acquire)
        {
            return if store.is_zonefs && accepts == Accepts::Furrow {
                Err(Error::Zonefs { device: address.device })
            } else {
                Ok(store)
            };
        }
        let store = Self::mount(&address, accepts)?;
        stores.insert(key, Arc::downgrade(&store));
        Ok(store)
    }

    /// Gives a handle back. The last one closes the drive and leaves it clean.
    pub fn release(self: Arc<Self>) -> Result<()> {
        let _stores = lock(&STORES);
        Arc::into_inner(self).map_or(Ok(()), |store| store.close())
    }

    /// Closes all that is open: the process ends. Handles that are left only give errors.
    pub fn close_all() {
        let mut stores = lock(&STORES);
        for store in std::mem::take(&mut *stores).into_values().filter_map(|store| store.upgrade())
        {
            if let Err(error) = store.close() {
                tracing::error!(%error, "closing a store at the end of the process");
            }
        }
    }

    fn mount(address: &Address, accepts: Accepts) -> Result<Arc<Self>> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let stack = open_device(&address.device, &clock)?;
        let failed = |source| Error::Mount { device: address.device.clone(), source };
        if accepts == Accepts::Furrow && is_zonefs(&stack, address).map_err(failed)? {
            // Before anything is written to it.
            return Err(Error::Zonefs { device: address.device.clone() });
        }
        let files = mount_files(&stack, &clock, address).map_err(failed)?;
        let is_zonefs = matches!(files, Files::Zones(_));
        let is_in_memory = match stack.base {
            Base::Memory | Base::Simulated(_) => true,
            Base::File(_) | Base::Device => false,
        };
        let folder = address.unsynced.as_deref().filter(|_| !is_in_memory);
        let unsynced = folder.map(|folder| open_unsynced(&files, folder)).transpose()?;
        let counts = match (&files, &address.counts) {
            (Files::Furrow(furrow), Some(file)) => {
                Some(Counts { furrow: Arc::clone(furrow), file: file.clone() })
            }
            (Files::Furrow(_) | Files::Zones(_), _) => None,
        };
        let core = Arc::new(Core {
            counts,
            volume: Volume::new(files.into_fs(), &volume_options()),
            clock,
            unsynced: unsynced.map(Mutex::new),
            committing: Mutex::default(),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            signal: Signal::default(),
        });
        let committer = core.unsynced.as_ref().and_then(|_| start_committer(&core));
        let is_closed = AtomicBool::new(false);
        Ok(Arc::new(Self { core, committer: Mutex::new(committer), is_closed, is_zonefs }))
    }

    fn close(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(committer) = lock(&self.committer).take() {
            self.core.signal.set(Want::End);
            // It can only have panicked, and then it has said so.
            let _ = committer.join();
        }
        self.core.volume.clone().close()?;
        if let Some(counts) = &self.core.counts
            && let Err(error) = counts.write()
        {
            tracing::warn!(%error, "writing the counts to {}", counts.file.display());
        }
        if let Some(unsynced) = &self.core.unsynced
            && let Err(error) = lock(unsynced).remove()
        {
            tracing::warn!(%error, "removing the memory of a store that is closed");
        }
        Ok(())
    }

    /// Makes everything durable that was done before this call.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Keeps a change that was made for the case that the process is killed.
    pub(crate) fn keep(&self, ino: Ino, change: Change<'_>) -> Result<()> {
        self.core.keep(ino, change)
    }

    /// Opens a file as `flags` say. A new one, or one that was emptied, is committed.
    pub fn open_file(self: &Arc<Self>, path: &Path, flags: OpenFlags) -> Result<StoreFile> {
        let changes = flags.intersects(OpenFlags::TRUNCATE | OpenFlags::CREATE_NEW)
            || (flags.contains(OpenFlags::CREATE) && self.core.volume.metadata(path).is_err());
        let file = self.core.volume.open_with(path, flags, FILE_PERM)?;
        if changes {
            // What is noted of the bytes before must not come back.
            self.keep(file.ino(), Change::Size(file.metadata()?.size))?;
            self.sync()?;
        }
        Ok(StoreFile::new(Arc::clone(self), file))
    }

    /// Attributes of what `path` leads to.
    pub fn metadata(&self, path: &Path) -> Result<Attr> {
        Ok(self.core.volume.metadata(path)?)
    }

    /// The entries of a directory.
    pub fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let entries = self.core.volume.read_dir(path)?;
        Ok(entries.collect::<zonal_fs::volume::Result<_>>()?)
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        self.core.volume.remove_file(path)?;
        self.sync()
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: &Path) -> Result<()> {
        self.core.volume.create_dir(path)?;
        self.sync()
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> Result<()> {
        self.core.volume.remove_dir(path)?;
        self.sync()
    }

    /// Moves an entry, over what may stand at `to`.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.core.volume.rename(from, to)?;
        self.sync()
    }

    /// Gives a file one more name.
    pub fn hard_link(&self, original: &Path, link: &Path) -> Result<()> {
        self.core.volume.hard_link(original, link)?;
        self.sync()
    }

    /// Space and inodes, used and free.
    pub fn space(&self) -> Result<StatFs> {
        Ok(self.core.volume.space()?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing a store that was not closed");
        }
    }
}

impl Core {
    fn sync(&self) -> Result<()> {
        let wanted = self.begun.load(Ordering::Acquire) + 1;
        let _turn = lock(&self.committing);
        if self.done.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(unsynced) = &self.unsynced {
            lock(unsynced).begin_commit();
        }
        self.volume.sync()?;
        if let Some(unsynced) = &self.unsynced {
            lock(unsynced).end_commit();
        }
        self.done.store(number, Ordering::Release);
        Ok(())
    }

    fn keep(&self, ino: Ino, change: Change<'_>) -> Result<()> {
        let Some(unsynced) = &self.unsynced else { return Ok(()) };
        let note = Note { ino: ino.get(), change };
        let noted = lock(unsynced).note(note, self.clock.wall_ns());
        match noted {
            Noted::Kept => Ok(()),
            Noted::HalfFull => {
                self.signal.set(Want::Commit);
                Ok(())
            }
            // It is part of the file already.
            Noted::NoRoom => self.sync(),
        }
    }
}

fn start_committer(core: &Arc<Core>) -> Option<JoinHandle<()>> {
    let core = Arc::clone(core);
    let thread = std::thread::Builder::new().name("zonal-commit".to_owned()).spawn(move || {
        while core.signal.wait() != Want::End {
            // A writer that finds no room commits itself, and gets the error.
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

    /// Says what is wanted. After the end there is nothing else.
    fn set(&self, what: Want) {
        let mut want = lock(&self.want);
        if *want != Want::End {
            *want = what;
        }
        self.changed.notify_all();
    }
}

fn open_device(spec: &str, clock: &Arc<dyn Clock>) -> Result<Stack> {
    let openers = Openers::builtin()
        .with_schemes(&[zonal_sim::SCHEME])
        .with_schemes(&zonal_linux::SCHEMES)
        .with_paths(zonal_linux::open);
    openers
        .open(spec, OpenMode::ReadWrite, Arc::clone(clock))
        .map_err(|source| Error::Open { device: spec.to_owned(), source })
}

/// The file system that a device holds.
enum Files {
    Furrow(Arc<Furrow>),
    Zones(Arc<ZoneStore>),
}

impl Files {
    fn fs(&self) -> &dyn FileSystem {
        match self {
            Self::Furrow(furrow) => &**furrow,
            Self::Zones(zones) => &**zones,
        }
    }

    fn into_fs(self) -> Arc<dyn FileSystem> {
        match self {
            Self::Furrow(furrow) => furrow,
            Self::Zones(zones) => zones,
        }
    }

    fn uuid(&self) -> [u8; 16] {
        match self {
            Self::Furrow(furrow) => furrow.uuid(),
            Self::Zones(zones) => zones.uuid(),
        }
    }

    /// When it was made, nanoseconds since 1970.
    fn created_ns(&self) -> zonal_fs::vfs::Result<i64> {
        let made = self.fs().getattr(self.fs().root())?.btime;
        Ok(made.secs().saturating_mul(1_000_000_000).saturating_add(made.nanos().into()))
    }

    /// Commits since it was made.
    fn commits(&self) -> u64 {
        match self {
            Self::Furrow(furrow) => furrow.stats().batches,
            Self::Zones(zones) => zones.commits(),
        }
    }
}

/// Whether the device holds a zonefs, or is to get one.
fn is_zonefs(stack: &Stack, address: &Address) -> zonal_fs::vfs::Result<bool> {
    let found = signature::find(&*stack.device)?.map(|found| found.kind);
    Ok(match found {
        Some(content) => matches!(content, Content::Zonefs),
        None => address.blank == Blank::Zonefs,
    })
}

fn mount_files(
    stack: &Stack,
    clock: &Arc<dyn Clock>,
    address: &Address,
) -> zonal_fs::vfs::Result<Files> {
    let device = || Arc::clone(&stack.device);
    let uuid = uuid::Uuid::new_v4().into_bytes();
    let found = signature::find(&*stack.device)?.map(|found| found.kind);
    let is_zonefs = match (&found, address.blank) {
        (Some(Content::Zonefs), _) => true,
        (None, Blank::Zonefs) => {
            let options = zonefs::MkfsOptions { uuid, ..zonefs::MkfsOptions::default() };
            zonefs::mkfs(&*stack.device, &options, &mut |_| ())?;
            true
        }
        (None, Blank::Furrow) => {
            let options = MkfsOptions { uuid, ..MkfsOptions::default() };
            furrow::mkfs(device(), &**clock, &options, &mut |_| ())?;
            false
        }
        // What Furrow says about it is the best there is to say.
        (None, Blank::Refuse) | (Some(Content::Furrow | Content::Foreign(_)), _) => false,
    };
    if is_zonefs {
        let zones = ZoneStore::mount(device(), Arc::clone(clock), address.memory)?;
        return Ok(Files::Zones(Arc::new(zones)));
    }
    let mut options = MountOptions {
        atime: AtimePolicy::Never,
        memory: address.memory,
        ..MountOptions::default()
    };
    options.evidence.hints = address.hints == Hints::Follow;
    Ok(Files::Furrow(Arc::new(Furrow::mount(device(), Arc::clone(clock), options)?)))
}

fn volume_options() -> VolumeOptions {
    VolumeOptions {
        caller: Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: 0o022,
            ..Caller::ROOT
        },
        ..VolumeOptions::default()
    }
}

/// Opens the memory that outlives the process, and writes again what is noted there.
fn open_unsynced(files: &Files, folder: &Path) -> Result<Unsynced> {
    let uuid = uuid::Uuid::from_bytes(files.uuid()).to_string();
    let failed = |source| {
        let path = folder.join(format!("zonal-{uuid}.unsynced"));
        Error::Unsynced { path, source }
    };
    let created_ns = files.created_ns().map_err(replaying)?;
    let mut unsynced = Unsynced::open(folder, &uuid, created_ns).map_err(failed)?;
    if let Some(left) = unsynced.left() {
        if let Some(why) = is_old(files, &unsynced, left)? {
            tracing::warn!("what a killed process has written is not written again: {why}");
        } else {
            unsynced.begin_replay();
            let count = write_again(files, &unsynced)?;
            tracing::info!(count, "wrote again what a killed process had written and not synced");
        }
        files.fs().sync().map_err(replaying)?;
    }
    unsynced.begin(files.commits());
    Ok(unsynced)
}

fn replaying(source: FsError) -> Error {
    Error::Mount { device: "writing again what a killed process had written".into(), source }
}

/// Why the notes are not about the files as they are, if they are not.
fn is_old(files: &Files, unsynced: &Unsynced, left: Left) -> Result<Option<String>> {
    if files.commits() < left.batch {
        return Ok(Some("the drive is as it was before that".to_owned()));
    }
    let Some(last_ns) = left.last_ns else { return Ok(None) };
    for note in unsynced.notes() {
        let Some(attr) = attributes(files.fs(), note.ino)? else { continue };
        let changed = i128::from(attr.mtime.secs()) * 1_000_000_000;
        if changed + i128::from(attr.mtime.nanos()) > i128::from(last_ns) {
            return Ok(Some(format!("inode {} was changed since", note.ino)));
        }
    }
    Ok(None)
}

/// Makes the changes again. Files that are gone stay so.
fn write_again(files: &Files, unsynced: &Unsynced) -> Result<u64> {
    let mut count = 0;
    for note in unsynced.notes() {
        let Some(attr) = attributes(files.fs(), note.ino)? else { continue };
        let ino = Ino::new(note.ino);
        let change = match files {
            Files::Furrow(_) => Some(note.change),
            Files::Zones(_) => beyond(note.change, attr.size),
        };
        match change {
            Some(Change::Bytes { offset, data }) => {
                files.fs().write(ino, offset, data, WriteFlags::empty()).map(drop)
            }
            Some(Change::Size(size)) => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                files.fs().setattr(&Caller::ROOT, ino, &set).map(drop)
            }
            None => Ok(()),
        }
        .map_err(replaying)?;
        count += 1;
    }
    Ok(count)
}

/// What is to be done about a file of `size` bytes that only grows: bytes that it has are as they were
/// written. Bytes behind a gap are of a file that was emptied since, as a later note says.
fn beyond(change: Change<'_>, size: u64) -> Option<Change<'_>> {
    match change {
        Change::Bytes { offset, data } => {
            let there = usize::try_from(size.checked_sub(offset)?).ok()?;
            let data = data.get(there..).filter(|data| !data.is_empty())?;
            Some(Change::Bytes { offset: size, data })
        }
        Change::Size(new) => (new < size).then_some(change),
    }
}

/// Of a regular file; `None` if there is none.
fn attributes(fs: &dyn FileSystem, ino: u64) -> Result<Option<Attr>> {
    match fs.getattr(Ino::new(ino)) {
        Ok(attr) if attr.kind == FileKind::Regular => Ok(Some(attr)),
        Ok(_) | Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(replaying(error)),
    }
}
