//! Both sides of a copy by one name: a directory tree of this machine or of a drive.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use zonal_fs::vfs::{FileKind, SetAttr, SetTime, Timestamp};
use zonal_fs::volume::{self, Links, OpenFlags, Volume};

/// Where files are.
pub(super) enum Tree {
    /// On this machine.
    Here,
    /// On a drive.
    Drive { device: String, volume: Volume },
}

/// What is to be known of a file to copy it.
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) perm: u16,
    pub(super) bytes: u64,
    pub(super) modified: Timestamp,
}

/// What can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// A device node, a pipe or a socket.
    Special,
}

/// A file open for one side of a copy.
pub(super) enum Open {
    Here(fs::File),
    Drive(volume::File),
}

impl Tree {
    /// A path as messages have it.
    pub(super) fn name(&self, path: &Path) -> String {
        match self {
            Self::Here => path.display().to_string(),
            Self::Drive { device, .. } => format!("{device}:{}", path.display()),
        }
    }

    /// What stands at `path`, which may be a symbolic link; `None` if nothing does.
    pub(super) fn facts(&self, path: &Path) -> Result<Option<Facts>> {
        match self {
            Self::Here => match fs::symlink_metadata(path) {
                Ok(found) => Ok(Some(facts_here(&found))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).with_context(|| path.display().to_string()),
            },
            Self::Drive { volume, .. } => match volume.symlink_metadata(path) {
                Ok(attr) => Ok(Some(Facts {
                    kind: kind_on_drive(attr.kind),
                    perm: attr.perm,
                    bytes: attr.size,
                    modified: attr.mtime,
                })),
                Err(error) if matches!(error.reason(), zonal_fs::FsError::NotFound) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Whether `path` leads to a directory.
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        match self {
            Self::Here => path.is_dir(),
            Self::Drive { volume, .. } => {
                volume.metadata(path).is_ok_and(|attr| attr.kind == FileKind::Directory)
            }
        }
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut names: Vec<PathBuf> = match self {
            Self::Here => fs::read_dir(path)
                .with_context(|| path.display().to_string())?
                .map(|entry| Ok(entry?.file_name().into()))
                .collect::<Result<_>>()?,
            Self::Drive { volume, .. } => {
                volume.read_dir(path)?.map(|entry| Ok(entry?.name.into())).collect::<Result<_>>()?
            }
        };
        names.sort();
        Ok(names)
    }

    pub(super) fn create_dir(&self, path: &Path) -> Result<()> {
        match self {
            Self::Here => fs::create_dir(path).with_context(|| path.display().to_string()),
            Self::Drive { volume, .. } => Ok(volume.create_dir(path)?),
        }
    }

    pub(super) fn read_link(&self, path: &Path) -> Result<PathBuf> {
        match self {
            Self::Here => fs::read_link(path).with_context(|| path.display().to_string()),
            Self::Drive { volume, .. } => Ok(volume.read_link(path)?),
        }
    }

    /// Makes a symbolic link, in place of another one.
    pub(super) fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let replaces = self.facts(path)?.is_some_and(|found| found.kind == Kind::Symlink);
        match self {
            Self::Here => {
                if replaces {
                    fs::remove_file(path).with_context(|| path.display().to_string())?;
                }
                std::os::unix::fs::symlink(target, path).with_context(|| path.display().to_string())
            }
            Self::Drive { volume, .. } => {
                if replaces {
                    volume.remove_file(path)?;
                }
                Ok(volume.symlink(target, path)?)
            }
        }
    }

    pub(super) fn open(&self, path: &Path) -> Result<Open> {
        match self {
            Self::Here => {
                Ok(Open::Here(fs::File::open(path).with_context(|| path.display().to_string())?))
            }
            Self::Drive { volume, .. } => Ok(Open::Drive(volume.open(path)?)),
        }
    }

    /// Makes a file, or empties an existing one. Only its owner reads it until it is complete.
    pub(super) fn create(&self, path: &Path) -> Result<Open> {
        match self {
            Self::Here => {
                let mut options = fs::OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                Ok(Open::Here(options.open(path).with_context(|| path.display().to_string())?))
            }
            Self::Drive { volume, .. } => {
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
                Ok(Open::Drive(volume.open_with(path, flags, 0o600)?))
            }
        }
    }

    /// Gives a copy the mode and the time of what it was copied from.
    pub(super) fn finish(&self, path: &Path, facts: &Facts) -> Result<()> {
        match self {
            Self::Here => {
                let perm = fs::Permissions::from_mode(u32::from(facts.perm));
                let set = || -> std::io::Result<()> {
                    fs::set_permissions(path, perm)?;
                    fs::File::open(path)?.set_modified(system_time(facts.modified))
                };
                set().with_context(|| path.display().to_string())
            }
            Self::Drive { volume, .. } => {
                let set = SetAttr {
                    perm: Some(facts.perm),
                    mtime: Some(SetTime::To(facts.modified)),
                    ..SetAttr::default()
                };
                volume.node(path, Links::Keep)?.set_metadata(&set)?;
                Ok(())
            }
        }
    }

    /// Makes all copies durable, and ends.
    pub(super) fn close(self) -> Result<()> {
        match self {
            Self::Here => Ok(()),
            Self::Drive { device, volume } => {
                volume.close().with_context(|| format!("making changes of {device} durable"))
            }
        }
    }
}

impl Open {
    pub(super) fn read(&mut self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Self::Here(file) => {
                file.seek(SeekFrom::Start(offset))?;
                Ok(file.read(buffer)?)
            }
            Self::Drive(file) => Ok(file.read_at(buffer, offset)?),
        }
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Self::Here(file) => {
                file.seek(SeekFrom::Start(offset))?;
                Ok(file.write_all(data)?)
            }
            Self::Drive(file) => Ok(file.write_all_at(data, offset)?),
        }
    }
}

fn facts_here(found: &fs::Metadata) -> Facts {
    let kind = match found.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        _ => Kind::Special,
    };
    let nanos = u32::try_from(found.mtime_nsec()).unwrap_or(0);
    Facts {
        kind,
        perm: u16::try_from(found.mode() & 0o7777).expect("twelve bits"),
        bytes: found.len(),
        modified: Timestamp::new(found.mtime(), nanos).unwrap_or_default(),
    }
}

fn kind_on_drive(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            Kind::Special
        }
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.secs().unsigned_abs());
    let second = if time.secs() < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    let nanos = Duration::from_nanos(time.nanos().into());
    second.and_then(|second| second.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}
