//! File systems for zoned devices.
//!
//! [`vfs::FileSystem`] is what front ends call. Below it stand [`furrow`], a POSIX file system that
//! needs nothing but zones, and [`zonefs`], where every zone is a file. Programs use either through
//! [`volume`], by path and handle. [`signature`] tells what a device holds.

#![forbid(unsafe_code)]

pub mod acl;
pub mod error;
pub mod furrow;
pub mod lifetime;
pub mod mkfs;
pub mod options;
pub mod protect;
pub mod rules;
pub mod signature;
#[cfg(feature = "testing")]
pub mod tree;
pub mod vfs;
pub mod volume;
pub mod zonefs;

pub use error::FsError;
