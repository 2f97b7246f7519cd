//! File systems for zoned devices.
//!
//! [`vfs::FileSystem`] is what front ends call. Below it stands [`furrow`], a POSIX file system that
//! needs nothing but zones.

pub mod acl;
pub mod error;
pub mod furrow;
pub mod protect;
pub mod rules;
pub mod tree;
pub mod vfs;

pub use error::FsError;
