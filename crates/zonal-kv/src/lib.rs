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
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `error` | what fails, with its errno | |
//! | `process` | whether this is the process that opened the store | |
//! | `unsynced` | keeps changes in memory that survives the process | |
//! | `zones` | files with names on zonefs | |
//! | `uri`, `edge`, `cache` | addresses of stores; the edge to C++; pieces of files | `error` |
//! | `mount` | mounts the file system that a device holds | `error`, `uri`, `zones` |
//! | `replay` | writes the changes of a killed process again | `error`, `unsynced`, `mount` |
//! | `changes` | notes a change of a file, so that it survives the process | all above |
//! | `store` | opens, closes and commits; works on names | all above |
//! | `file` | open files | all above |
//! | `abi` | the C interface, `include/zonal_kv.h` | all above |

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
