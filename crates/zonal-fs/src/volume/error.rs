//! Errors with the path that they are about.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::FsError;

/// Result of an operation on a volume.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation, its path, and the reason.
#[derive(Debug)]
pub struct Error {
    doing: &'static str,
    path: PathBuf,
    source: FsError,
}

impl Error {
    pub(super) fn new(doing: &'static str, path: &Path, source: FsError) -> Self {
        Self { doing, path: path.to_owned(), source }
    }

    /// The path that the caller named; empty where the operation is about the whole volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The reason.
    pub fn reason(&self) -> &FsError {
        &self.source
    }

    /// The errno that a program would see on a mount.
    pub fn errno(&self) -> i32 {
        self.source.errno()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.doing)?;
        if !self.path.as_os_str().is_empty() {
            write!(f, " {}", zonal::shown(&self.path))?;
        }
        write!(f, ": {}", self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Drops the path, for callers that handle one kind of error.
impl From<Error> for FsError {
    fn from(error: Error) -> Self {
        error.source
    }
}

/// Only the errno remains, without path and text: `raw_os_error` is [`Error::errno`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        error.source.into()
    }
}
