//! The operands of a copy: which side each is on, and operands that are on neither.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use zonal::file::is_in_pieces;
use zonal::output::is_drive;
use zonal::shown;

use super::super::{Place, last_name};

/// Where an operand is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// On a drive.
    Drive(Place),
    /// On this machine.
    Here(PathBuf),
    /// Standard input, or output.
    Stream,
}

impl Side {
    /// Takes an operand as a user gives it. A drive itself is no operand; its files are.
    pub(super) fn of(operand: &OsStr) -> Result<Self> {
        if operand == "-" {
            return Ok(Self::Stream);
        }
        if let Some(place) = Place::of(operand) {
            return Ok(Self::Drive(place));
        }
        let path = PathBuf::from(operand);
        if holds_drive(&path) {
            let name = shown(&path);
            bail!("{name} is a drive, and its files are copied by name: is {name}:/ meant?");
        }
        Ok(Self::Here(path))
    }

    /// The name of its copy in a directory.
    pub(super) fn last_name(&self) -> Option<&OsStr> {
        match self {
            Self::Drive(place) => last_name(&place.path),
            Self::Here(path) => last_name(path),
            Self::Stream => None,
        }
    }

    /// The operand as messages show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Drive(place) => place.shown(),
            Self::Here(path) => shown(path),
            Self::Stream => "-".to_owned(),
        }
    }
}

/// Whether a path is a block device, or a file or directory that holds a drive.
fn holds_drive(path: &Path) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|found| {
        let is_block = found.file_type().is_block_device();
        is_block || found.is_file() && is_drive(path) || is_in_pieces(path)
    })
}

/// Refuses a copy of which no side is on a drive.
pub(super) fn check_pair(source: &Side, target: &Side) -> Result<()> {
    let is_on_drive = |side: &Side| matches!(side, Side::Drive(_));
    if is_on_drive(source) || is_on_drive(target) {
        return Ok(());
    }
    bail!(
        "neither {} nor {} is on a drive, DEVICE:/PATH: cp(1) copies files of this machine",
        source.shown(),
        target.shown()
    )
}

/// Whether two names lead to one device, which can be open only once.
pub(super) fn is_same_device(one: &str, other: &str) -> bool {
    let id = |name: &str| {
        let found = fs::metadata(name).ok()?;
        let is_disk = found.file_type().is_block_device() || found.file_type().is_char_device();
        Some(if is_disk { (0, found.rdev()) } else { (found.dev(), found.ino()) })
    };
    one == other || id(one).is_some_and(|found| id(other) == Some(found))
}
