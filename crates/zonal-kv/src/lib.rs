//! Files on a zoned drive for key-value stores: what the plugins for RocksDB and LevelDB have in
//! common, behind a C interface that their C++ shims call.
//!
//! A [`Store`] is a file system in the process of the database: Furrow, or files with names on zonefs,
//! whatever the drive holds. It keeps what POSIX promises:
//!
//! - What a call has written survives the death of the process when the call has returned. In a
//!   library the process *is* the file system, so what is not committed yet is also kept in memory
//!   that outlives the process, [`unsynced`], and written again when the drive is opened next.
//! - What was synced survives a power cut. Names that were made, moved or removed are committed
//!   before the call returns, so they survive both.
//!
//! A copy of the process that fork(2) has made can do nothing with the store, and its end leaves
//! the store alone. It can open others.
//!
//! | module | question |
//! | --- | --- |
//! | [`uri`] | which device, and which options? |
//! | [`store`] | opening, closing, committing; names |
//! | `mount` | which file system does the device hold? |
//! | [`file`](mod@file) | open files |
//! | `cache` | what is kept of what was read? |
//! | `process` | is this the process that has opened it? |
//! | `changes` | how is a change of a file noted, so that it survives the process? |
//! | [`unsynced`] | what survives the process? |
//! | `replay` | how is it written again, and when is it too old for that? |
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
