//! File systems on simulated SSDs: the same files on each, and the wear of the flash under them.
//!
//! The simulator knows no file system and the file systems know no simulator; this crate is where
//! they meet. [`compare()`] runs one workload of files ([`zonal_sim::files`]) on every set-up:
//! Furrow and a log on zonefs on a ZNS SSD, and file systems that overwrite in place on ZNS,
//! conventional and FDP drives. The flash wears by the product of two write amplifications: bytes
//! to the drive per byte of the programs, and bytes to the flash per byte to the drive.
//!
//! | module | question |
//! | --- | --- |
//! | [`compare()`](mod@compare) | which set-ups are there, and how much did each write? |
//! | `furrow`, `zonefs` | how is a workload run on these file systems? |
//! | `content` | do reads return the data that was written last? |

#![forbid(unsafe_code)]

pub mod compare;
mod content;
mod furrow;
mod zonefs;

use zonal_fs::FsError;
use zonal_sim::SimError;

pub use compare::{Comparison, SET_UPS, Verify, compare};

/// An error of a comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The config cannot be simulated.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A file system refused something.
    #[error("{action}: {source}")]
    Fs {
        /// The action that failed.
        action: &'static str,
        /// The reason.
        source: FsError,
    },
    /// A drive or a file holds other data than it should.
    #[error("{what}")]
    Mismatch {
        /// The difference.
        what: String,
    },
    /// More files than the log on the zone files has room for.
    #[error("the log on the zone files is full")]
    LogFull,
    /// One set-up failed.
    #[error("{set_up}, workload.fill = {fill}: {source}")]
    SetUp {
        /// Its name.
        set_up: &'static str,
        /// How full its files make the drive.
        fill: f64,
        /// The reason.
        source: Box<EvalError>,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, EvalError>;

/// Adds the action to an error of a file system.
trait During<T> {
    fn during(self, action: &'static str) -> Result<T>;
}

impl<T> During<T> for std::result::Result<T, FsError> {
    fn during(self, action: &'static str) -> Result<T> {
        self.map_err(|source| EvalError::Fs { action, source })
    }
}

/// The error for a drive or a file that holds other data than it should.
fn mismatch(what: impl Into<String>) -> EvalError {
    EvalError::Mismatch { what: what.into() }
}
