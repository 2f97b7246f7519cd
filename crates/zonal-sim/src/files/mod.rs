//! Files as a workload for whole set-ups: the same creates, overwrites and deletes for every file
//! system and drive, and one form of result, so that they can be compared.
//!
//! [`FileLoad`] makes the operations; a [`FileStore`] performs them. This module also has the
//! baseline for file systems on zones: [`InPlace`], on a conventional or FDP drive. Stores on real
//! file systems are in `zonal-eval`, because this crate knows none.

mod in_place;
mod load;
mod space;

use serde::Serialize;

pub use in_place::{Discard, InPlace, Lifetimes};
pub use load::FileLoad;
pub use space::{Extent, Space};

use crate::config::Config;
use crate::error::{Result, refused};
use crate::ssd::Account;

/// Bytes of a block: every offset and length of an operation is a multiple.
pub const BLOCK_BYTES: u64 = 4096;

/// How long data is expected to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// Overwritten or deleted soon.
    Short,
    /// Kept.
    Long,
}

/// An operation on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Makes a file and writes all of it.
    Create {
        /// Its number: files are numbered in the order in which they are made.
        file: u32,
        /// Its size.
        bytes: u64,
        /// How long it will live.
        life: Life,
    },
    /// Overwrites a part of a file, in place as its owner sees it.
    Overwrite {
        /// The file.
        file: u32,
        /// The first byte.
        offset: u64,
        /// Bytes to overwrite.
        bytes: u64,
    },
    /// Deletes a file.
    Delete {
        /// The file.
        file: u32,
    },
    /// Makes everything before it durable.
    Sync,
}

impl FileOp {
    /// Bytes that the application writes with it.
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Create { bytes, .. } | Self::Overwrite { bytes, .. } => *bytes,
            Self::Delete { .. } | Self::Sync => 0,
        }
    }
}

/// Refuses a drive on which file systems cannot be compared: a block of theirs is a mapping unit.
pub fn check(config: &Config) -> Result<()> {
    if config.drive.unit.0 == BLOCK_BYTES {
        return Ok(());
    }
    Err(refused("drive.unit", config.drive.unit, "4KiB below a file system"))
}

/// A file system on a drive, which performs operations.
pub trait FileStore {
    /// The error of an operation.
    type Error: From<crate::SimError>;

    /// Performs an operation.
    fn apply(&mut self, op: &FileOp) -> std::result::Result<(), Self::Error>;

    /// Programs and erases of the drive's flash so far.
    fn account(&self) -> Account;
}

/// Results of a workload on a set-up, after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The set-up.
    pub name: String,
    /// Bytes the application wrote.
    pub app_bytes: u64,
    /// Bytes the file system wrote to the drive for them.
    pub fs_bytes: u64,
    /// Bytes programmed for these: the host's, moved ones and padding.
    pub flash_bytes: u64,
    /// Superblocks erased.
    #[serde(rename = "superblocks_erased")]
    pub erased: u64,
    /// Bytes of the superblocks erased.
    pub erased_bytes: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
}

impl Outcome {
    /// The difference of two measurements, for `app_bytes` of the application's.
    pub fn between(name: &str, app_bytes: u64, before: &Account, after: &Account) -> Self {
        let flash =
            |account: &Account| account.host_bytes + account.moved_bytes + account.padded_bytes;
        let erased = after.erased - before.erased;
        Self {
            name: name.to_owned(),
            app_bytes,
            fs_bytes: after.host_bytes - before.host_bytes,
            flash_bytes: flash(after) - flash(before),
            erased,
            erased_bytes: erased * after.superblock_bytes,
            virtual_ns: after.virtual_ns - before.virtual_ns,
        }
    }

    /// Bytes the file system wrote per byte of the application's.
    pub fn fs_wa(&self) -> f64 {
        ratio(self.fs_bytes, self.app_bytes)
    }

    /// Bytes programmed per byte the file system wrote.
    pub fn drive_wa(&self) -> f64 {
        ratio(self.flash_bytes, self.fs_bytes)
    }

    /// Bytes programmed per byte of the application's: the product of the other two.
    pub fn total_wa(&self) -> f64 {
        ratio(self.flash_bytes, self.app_bytes)
    }

    /// Bytes of flash erased per byte of the application's: the wear.
    pub fn wear(&self) -> f64 {
        ratio(self.erased_bytes, self.app_bytes)
    }

    /// Virtual seconds.
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    pub fn seconds(&self) -> f64 {
        self.virtual_ns as f64 / 1e9
    }
}

/// A ratio; NaN, which tables leave empty, where it is one of nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
fn ratio(above: u64, below: u64) -> f64 {
    if below == 0 { f64::NAN } else { above as f64 / below as f64 }
}

/// How much of a workload is run, in bytes of the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Written before anything is measured, the first filling included.
    pub warm_up: u64,
    /// Written in all.
    pub total: u64,
}

/// Runs a workload on a store and returns the figures after the warm-up.
pub fn run<S: FileStore>(
    name: &str,
    store: &mut S,
    load: &mut FileLoad,
    amount: Amount,
    progress: &mut dyn FnMut(crate::Progress),
) -> std::result::Result<Outcome, S::Error> {
    let mut written = 0;
    let mut advance = |store: &mut S, until: u64| {
        while written < until || !load.is_filled() {
            let op = load.next_op();
            store.apply(&op)?;
            written += op.bytes();
            progress(crate::Progress { done: written.min(amount.total), total: amount.total });
        }
        store.apply(&FileOp::Sync)?;
        Ok::<(u64, Account), S::Error>((written, store.account()))
    };
    let (written_before, before) = advance(store, amount.warm_up)?;
    let (written_after, after) = advance(store, amount.total)?;
    Ok(Outcome::between(name, written_after - written_before, &before, &after))
}
