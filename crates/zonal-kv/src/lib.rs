//! Files on a zoned drive for key-value stores: the common part of the plugins for RocksDB and
//! LevelDB, behind a C interface that their C++ shims call.
//!
//! A [`Store`] is a file system in the process of the database: Furrow, or files with names on
//! zonefs, depending on the content of the drive. It keeps the promises of POSIX:
//!
//! - Data survives the death of the process once the call that wrote it has returned. In a library
//!   the process *is* the file system, so uncommitted changes are also kept in memory that outlives
//!   the process, [`unsynced`]. The next process that opens the drive writes them again.
//! - Synced data survives a power cut. A call that makes, moves or removes a name commits it before
//!   it returns, so names survive both.
//!
//! A copy of the process that fork(2) has made cannot use the store, and leaves it alone when it
//! ends. It can open other stores.
//!
//! | module | question |
//! | --- | --- |
//! | [`uri`] | which device, and which options? |
//! | [`store`] | opening, closing, committing; names |
//! | `mount` | which file system does the device hold? |
//! | [`file`](mod@file) | open files |
//! | `cache` | which pieces of files stay in memory? |
//! | `process` | is this the process that opened the store? |
//! | `changes` | how is a change of a file noted, so that it survives the process? |
//! | [`unsynced`] | which changes survive the process? |
//! | `replay` | when are they written again, and when are they too old for that? |
//! | [`zones`] | files with names on zonefs |
//! | [`abi`] | the C interface, `include/zonal_kv.h` |

#![allow(unsafe_code, reason = "C++ hands over raw addresses, and memory is mapped")]

pub mod abi;
mod cache;
mod changes;
mod edge;
pub mod error;
pub mod file;
mod mount;
mod process;
mod replay;
pub mod store;
pub mod unsynced;
pub mod uri;
pub mod zones;

pub use error::{Error, Result};
pub use file::StoreFile;
pub use store::Store;
