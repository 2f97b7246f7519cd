//! Ordinary disks inside a file system: blocks that can be written anywhere, on zones alone.
//!
//! A disk is a file of Furrow in the directory [`DIRECTORY`], with settings in an extended
//! attribute. So it lies among the files of a mount, and has all that files have: checksums,
//! reclaim, safety after power cuts.
//!
//! ```
//! use std::sync::Arc;
//! use zonal::disk::{Disk, Durability};
//! use zonal::{ByteCount, Lba, ManualClock, OpenMode, spec};
//! use zonal_fs::disk::{DiskSettings, Disks};
//! use zonal_fs::furrow::{self, MkfsOptions};
//! use zonal_fs::volume::{Volume, VolumeOptions};
//!
//! let clock = Arc::new(ManualClock::new(0));
//! let drive = spec::open("mem:zone=4M,zones=64", OpenMode::ReadWrite, clock.clone())?;
//! furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
//! let disks = Disks::new(Volume::mount(drive, clock, &VolumeOptions::default())?)?;
//!
//! let name = "root".parse()?;
//! disks.create(&name, ByteCount::new(16 << 20), DiskSettings::default())?;
//! let disk = disks.open(&name)?;
//! disk.write(Lba::new(1000), &[7; 4096], Durability::AtOnce)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A disk is *thick* unless its settings say otherwise: its space is preallocated, so a write never
//! fails because the drive is full. A snapshot or a clone shares the blocks of its original, and
//! the space for a copy of them is preallocated to each thick disk among the two, or there is no
//! snapshot.
//!
//! Other threads may make disks, snapshots and clones while disks are open, and make open ones
//! larger. A snapshot has all writes to its original that had returned before, and none that begin
//! afterwards; writes wait while it is made.
//!
//! Changes of the set of disks are durable when they return. A power cut leaves a disk as it was
//! before or as it is afterwards. A file that a cut, or a failure of the drive, has left behind has
//! a name that begins with a dot: opening the set for writing, and each change of it, removes such
//! files, and a failure to do so stops no other disk from being made or removed.

mod error;
mod file;
mod name;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use zonal::{BlockSize, ByteCount, Disk};

pub use self::error::{Error, Result};
pub use self::file::FurrowDisk;
pub use self::name::DiskName;
pub use self::settings::{DISK_XATTR, DiskSettings, DiskSpace};
use crate::FsError;
use crate::vfs::{Access, Allocate, FileKind, FileModel, RenameFlags, XattrMode};
use crate::volume::{self, File, OpenFlags, Volume};

/// The directory of the disks in the file system.
pub const DIRECTORY: &str = "disks";

/// Permission bits of a disk's file: only its owner reads and writes the content.
const FILE_PERM: u16 = 0o600;

/// Bytes that one step of a long operation works on.
const STEP: u64 = 64 << 20;

/// A disk, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskInfo {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    #[serde(rename = "size_bytes")]
    pub bytes: u64,
    /// Bytes that it takes on the drive, shared ones included.
    pub allocated_bytes: u64,
    /// Bytes of the blocks that requests name.
    #[serde(rename = "block_size_bytes")]
    pub block_bytes: u64,
    /// Whether it has space for all blocks.
    #[serde(rename = "provisioning")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub space: DiskSpace,
    /// Whether it refuses writes.
    #[serde(rename = "read_only")]
    pub is_read_only: bool,
}

/// A line of the list of disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ListedDisk {
    /// A disk.
    Disk(DiskInfo),
    /// A disk that cannot be read.
    Unreadable {
        /// Its name.
        name: String,
        /// The failure.
        error: DiskFailure,
    },
}

/// Why a disk cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskFailure {
    /// What failed, on what, and why.
    pub message: String,
}

impl ListedDisk {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Disk(DiskInfo { name, .. }) | Self::Unreadable { name, .. } => name,
        }
    }
}

/// The disks of a volume.
pub struct Disks {
    volume: Volume,
    /// The disks that are open, and some that were.
    open: Mutex<BTreeMap<DiskName, Weak<FurrowDisk>>>,
    /// Held while the set of disks changes, or a disk is opened.
    changing: Mutex<()>,
    /// Disks that may have space for copies of blocks that are shared no more.
    to_release: Mutex<BTreeSet<DiskName>>,
}

impl Disks {
    /// The disks of a volume of Furrow.
    pub fn new(volume: Volume) -> Result<Self> {
        if volume.model()? == FileModel::Zones {
            return Err(Error::NotFurrow);
        }
        let (open, changing, to_release) = Default::default();
        let disks = Self { volume, open, changing, to_release };
        if disks.volume.access()? == Access::ReadWrite {
            disks.sweep();
        }
        Ok(disks)
    }

    /// Ends the volume: see [`Volume::close`].
    pub fn close(&self) -> Result<()> {
        Ok(self.volume.clone().close()?)
    }

    /// All disks, by name. A disk that cannot be read has its failure.
    pub fn list(&self) -> Result<Vec<ListedDisk>> {
        let mut disks = Vec::new();
        for name in self.names()? {
            match self.info(&name) {
                Ok(disk) => disks.push(ListedDisk::Disk(disk)),
                Err(Error::NotADisk { .. }) => {}
                Err(error) => {
                    let (name, error) =
                        (name.to_string(), DiskFailure { message: error.to_string() });
                    disks.push(ListedDisk::Unreadable { name, error });
                }
            }
        }
        disks.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        Ok(disks)
    }

    /// One disk.
    pub fn info(&self, name: &DiskName) -> Result<DiskInfo> {
        let file = self.file(name, OpenFlags::READ)?;
        let settings = settings_of(name, &file)?;
        let attr = file.metadata()?;
        Ok(DiskInfo {
            name: name.to_string(),
            bytes: attr.size,
            allocated_bytes: attr.blocks * 512,
            block_bytes: settings.block_size.bytes(),
            space: settings.space,
            is_read_only: settings.is_read_only,
        })
    }

    /// A name of a disk that no disk of another drive has.
    pub fn unique_name(&self, name: &DiskName) -> Result<String> {
        let uuid = self.volume.uuid()?.unwrap_or_default();
        let mut unique = String::new();
        for byte in uuid {
            write!(unique, "{byte:02x}").expect("a string takes all that is written to it");
        }
        Ok(format!("{unique}//{name}"))
    }

    /// Opens a disk. Nothing else opens, shrinks or removes it until it is dropped.
    pub fn open(&self, name: &DiskName) -> Result<Arc<FurrowDisk>> {
        let _changing = self.changing();
        self.open_disk(name, None)
    }

    /// The same for clients that address sectors of 512 bytes, regardless of the disk's settings.
    pub fn open_in_sectors(&self, name: &DiskName) -> Result<Arc<FurrowDisk>> {
        let _changing = self.changing();
        self.open_disk(name, Some(BlockSize::B512))
    }

    /// Makes a disk. It reads as zeroes.
    pub fn create(&self, name: &DiskName, size: ByteCount, settings: DiskSettings) -> Result<()> {
        refuse_snapshot_name(name)?;
        check_size(size)?;
        let _changing = self.changing();
        let made = self.make(name, settings, |file| match settings.space {
            DiskSpace::Thick => file.allocate(Allocate::Extend, 0..size.get()),
            DiskSpace::Thin => file.set_len(size.get()),
        });
        made.map_err(|error| self.explain(name, size.get(), error))
    }

    /// Changes the size of a disk. A smaller one loses the content behind its new end; a disk that
    /// is open can only grow.
    pub fn resize(&self, name: &DiskName, size: ByteCount) -> Result<()> {
        check_size(size)?;
        let _changing = self.changing();
        let open = self.find_open(name);
        if open.as_ref().is_some_and(|disk| size.get() < disk.bytes()) {
            return Err(Error::InUse { name: name.clone() });
        }
        let disk = open.map_or_else(|| self.open_disk(name, None), Ok)?;
        if disk.settings().is_read_only {
            return Err(Error::ReadOnly { name: name.clone() });
        }
        let bytes = disk.bytes();
        if size.get() > bytes && disk.settings().space == DiskSpace::Thick {
            // The size changes last: a failure leaves the file as long as the disk says.
            if let Err(error) = disk.file.allocate(Allocate::KeepSize, bytes..size.get()) {
                if let Err(error) = self.undo_growth(&disk, size.get()) {
                    tracing::warn!(disk = %name, %error, "the disk keeps space for a later growth");
                }
                return Err(self.explain(name, size.get() - bytes, error.into()));
            }
        }
        disk.file.set_len(size.get())?;
        disk.set_bytes(size.get());
        Ok(disk.file.sync_all()?)
    }

    /// Gives back the space behind the end of a disk that did not grow to `size` bytes.
    fn undo_growth(&self, disk: &FurrowDisk, size: u64) -> Result<()> {
        // No more was allocated than the volume has.
        let space = self.volume.space()?;
        let most = disk.bytes().saturating_add(space.blocks * u64::from(space.block_size));
        Ok(disk.file.allocate(Allocate::Punch, disk.bytes()..size.min(most))?)
    }

    /// Removes a disk. Blocks that cannot be freed now are freed later.
    pub fn remove(&self, name: &DiskName) -> Result<()> {
        let _changing = self.changing();
        self.sweep();
        let disk = self.open_disk(name, None)?;
        let hidden = name.hidden_path();
        self.volume.rename_with(name.path(), &hidden, RenameFlags::NOREPLACE)?;
        drop(disk);
        self.discard(&hidden);
        self.release_copies();
        Ok(self.volume.sync()?)
    }

    /// Makes a disk `snapshot`, a [name](DiskName::snapshot) of a snapshot of `name`, with the
    /// present content of that. It takes no writes.
    pub fn snapshot(&self, name: &DiskName, snapshot: &DiskName) -> Result<()> {
        if !snapshot.is_snapshot_of(name) {
            return Err(Error::NotASnapshotName { disk: name.clone(), name: snapshot.clone() });
        }
        let settings = |DiskSettings { block_size, .. }| DiskSettings {
            block_size,
            space: DiskSpace::Thin,
            is_read_only: true,
        };
        self.copy(name, snapshot, settings)
    }

    /// Makes a disk `clone` with the present content of `name`, which may be a snapshot. It is as
    /// thick as `space` says.
    pub fn clone_disk(&self, name: &DiskName, clone: &DiskName, space: DiskSpace) -> Result<()> {
        refuse_snapshot_name(clone)?;
        self.copy(name, clone, |settings| DiskSettings { space, is_read_only: false, ..settings })
    }

    /// Makes a disk with the present content of `name`, and settings that follow from the
    /// original's.
    fn copy(
        &self,
        name: &DiskName,
        copy: &DiskName,
        settings: impl FnOnce(DiskSettings) -> DiskSettings,
    ) -> Result<()> {
        let _changing = self.changing();
        let original = self.find_open(name).map_or_else(|| self.open_disk(name, None), Ok)?;
        let settings = settings(original.settings());
        // Most of it becomes durable before writes have to wait.
        original.flush().map_err(|source| Error::Flush { name: name.clone(), source })?;
        // Also while a copy that failed is removed: until then the original may lack space.
        let _frozen = original.freeze();
        let bytes = original.bytes();
        let made = self.make(copy, settings, |file| {
            file.set_len(bytes)?;
            let mut at = 0;
            while at < bytes {
                // It copies less than it should where a step fails, and then the next call fails.
                match original.file.copy_to(at..bytes, file, at)? {
                    0 => break,
                    copied => at += copied,
                }
            }
            for (file, settings) in [(file, settings), (&original.file, original.settings())] {
                if settings.space == DiskSpace::Thick && bytes > 0 {
                    file.allocate(Allocate::KeepSize, 0..bytes)?;
                }
            }
            Ok(())
        });
        made.map_err(|error| self.explain(copy, bytes, error))
    }

    /// Makes the file of a disk under a hidden name, and gives it its own when it is complete.
    fn make(
        &self,
        name: &DiskName,
        settings: DiskSettings,
        fill: impl FnOnce(&File) -> volume::Result<()>,
    ) -> Result<()> {
        self.volume.create_dir_all(DIRECTORY)?;
        self.sweep();
        if self.volume.symlink_metadata(name.path()).is_ok() {
            return Err(Error::Exists { name: name.clone() });
        }
        let hidden = name.hidden_path();
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE_NEW;
        let made = (|| {
            let file = self.volume.open_with(&hidden, flags, FILE_PERM)?;
            let value = serde_json::to_vec(&settings).expect("settings become JSON");
            file.set_xattr(DISK_XATTR, &value, XattrMode::Any)?;
            fill(&file)?;
            file.sync_all()?;
            self.volume.rename_with(&hidden, name.path(), RenameFlags::NOREPLACE)?;
            Ok(self.volume.sync()?)
        })();
        if made.is_err() {
            self.discard(&hidden);
            self.release_copies();
        }
        made
    }

    /// Says of a failure for want of space how much disk `name` needs, and how much there is.
    fn explain(&self, name: &DiskName, needed: u64, error: Error) -> Error {
        let Error::Volume(cause) = &error else { return error };
        if !matches!(cause.reason(), FsError::NoSpace) {
            return error;
        }
        let Ok(space) = self.volume.space() else { return error };
        Error::NoRoom {
            name: name.clone(),
            needed: ByteCount::new(needed),
            free: ByteCount::new(space.blocks_free * u64::from(space.block_size)),
        }
    }

    /// Finishes what earlier changes or a power cut have left: removes the files of no disk, and
    /// gives back the space for copies of their blocks. The next change tries again what fails now.
    fn sweep(&self) {
        match self.file_names() {
            Ok(names) => {
                for name in names.iter().filter(|name| name::is_hidden(name)) {
                    self.discard(&format!("{DIRECTORY}/{name}"));
                }
            }
            Err(error) => tracing::warn!(%error, "cannot look for files of removed disks"),
        }
        self.release_copies();
    }

    /// Removes a file of no disk. When it returns its blocks are free, unless the drive refuses to
    /// return a part of its map, or has lost it: those become free in the background, or later.
    fn discard(&self, path: &str) {
        match self.names() {
            Ok(names) => self.to_release().extend(names),
            Err(error) => tracing::warn!(%error, "disks may keep space for copies of blocks"),
        }
        if let Err(error) = self.free_blocks(path) {
            tracing::warn!(path, %error, "cannot free all blocks of a removed disk at once");
        }
        match self.volume.remove_file(path) {
            Err(error) if !matches!(error.reason(), FsError::NotFound) => {
                tracing::warn!(path, %error, "the next change of disks tries to remove it again");
            }
            _ => {}
        }
    }

    /// Empties a file, and returns when its blocks are free.
    fn free_blocks(&self, path: &str) -> volume::Result<()> {
        let file = match self.volume.open_with(path, OpenFlags::WRITE, 0) {
            Err(error) if matches!(error.reason(), FsError::NotFound) => return Ok(()),
            file => file?,
        };
        let bytes = file.metadata()?.size;
        file.set_len(0)?;
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + STEP);
            // Furrow truncates in steps, and a change of the range waits for them.
            file.allocate(Allocate::Punch, at..end)?;
            at = end;
        }
        Ok(())
    }

    /// Gives back the space for copies of blocks that are shared no more.
    fn release_copies(&self) {
        let names = std::mem::take(&mut *self.to_release());
        for name in names {
            match self.release_copies_of(&name) {
                Ok(())
                | Err(Error::NotFound { .. } | Error::NotADisk { .. } | Error::Settings { .. }) => {
                }
                Err(error) => {
                    tracing::warn!(disk = %name, %error, "it keeps space for copies of blocks");
                    self.to_release().insert(name);
                }
            }
        }
    }

    fn release_copies_of(&self, name: &DiskName) -> Result<()> {
        let disk = self.info(name)?;
        if disk.space == DiskSpace::Thick && !disk.is_read_only && disk.bytes > 0 {
            self.file(name, OpenFlags::WRITE)?.allocate(Allocate::KeepSize, 0..disk.bytes)?;
        }
        Ok(())
    }

    fn to_release(&self) -> MutexGuard<'_, BTreeSet<DiskName>> {
        self.to_release.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of the files that can be disks.
    fn names(&self) -> Result<Vec<DiskName>> {
        Ok(self.file_names()?.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Names of the regular files in the directory of the disks, as far as they are UTF-8.
    fn file_names(&self) -> Result<Vec<String>> {
        let entries = match self.volume.read_dir(DIRECTORY) {
            Err(error) if matches!(error.reason(), FsError::NotFound) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.kind == FileKind::Regular {
                names.extend(entry.name.into_string().ok());
            }
        }
        Ok(names)
    }

    fn file(&self, name: &DiskName, flags: OpenFlags) -> Result<File> {
        match self.volume.open_with(name.path(), flags | OpenFlags::NO_FOLLOW, 0) {
            Err(error) if matches!(error.reason(), FsError::NotFound) => {
                Err(Error::NotFound { name: name.clone() })
            }
            file => Ok(file?),
        }
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk, if it is open.
    fn find_open(&self, name: &DiskName) -> Option<Arc<FurrowDisk>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(name).and_then(Weak::upgrade)
    }

    /// Opens a disk that nothing else has open. Requests are in blocks of `block_size`, or in those
    /// of its settings.
    fn open_disk(&self, name: &DiskName, block_size: Option<BlockSize>) -> Result<Arc<FurrowDisk>> {
        let access = self.volume.access()?;
        let flags = match access {
            Access::ReadOnly => OpenFlags::READ,
            Access::ReadWrite => OpenFlags::READ | OpenFlags::WRITE,
        };
        let file = self.file(name, flags)?;
        let settings = settings_of(name, &file)?;
        file.try_lock().map_err(|_| Error::InUse { name: name.clone() })?;
        let atomic = ByteCount::new(self.volume.atomic_write()?);
        let disk = Arc::new(FurrowDisk::new(file, settings, block_size, access, atomic)?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, disk| disk.strong_count() > 0);
        open.insert(name.clone(), Arc::downgrade(&disk));
        Ok(disk)
    }
}

fn settings_of(name: &DiskName, file: &volume::File) -> Result<DiskSettings> {
    let value = match file.xattr(DISK_XATTR) {
        Err(error) if matches!(error.reason(), FsError::NoAttribute) => {
            return Err(Error::NotADisk { name: name.clone() });
        }
        value => value?,
    };
    serde_json::from_slice(&value)
        .map_err(|error| Error::Settings { name: name.clone(), why: error.to_string() })
}

/// A disk that takes writes would pass for a snapshot by its name.
fn refuse_snapshot_name(name: &DiskName) -> Result<()> {
    if name.is_snapshot() { Err(Error::SnapshotName { name: name.clone() }) } else { Ok(()) }
}

/// A size in whole units of 4096 bytes, so that a disk with blocks of 512 bytes ends with one too.
fn check_size(size: ByteCount) -> Result<()> {
    let unit = BlockSize::B4096.bytes();
    if size.get() == 0 || !size.get().is_multiple_of(unit) {
        return Err(Error::Size { size });
    }
    Ok(())
}
