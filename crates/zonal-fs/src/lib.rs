//! File systems for zoned devices, as libraries.
//!
//! ```
//! use std::io::{Read, Seek, Write};
//! use std::sync::Arc;
//! use zonal::{OpenMode, SystemClock, spec};
//! use zonal_fs::furrow::{self, MkfsOptions};
//! use zonal_fs::volume::{Volume, VolumeOptions};
//!
//! // A drive in memory, and a file system on it. A path in place of `mem:...` is a drive file.
//! let clock = Arc::new(SystemClock::new());
//! let drive = spec::open("mem:zone=4M,zones=64", OpenMode::ReadWrite, clock.clone())?;
//! furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
//!
//! // Files by path, without a mount and without the kernel.
//! let volume = Volume::mount(drive, clock, &VolumeOptions::default())?;
//! volume.create_dir_all("notes/today")?;
//! let mut file = volume.create("notes/today/first")?;
//! writeln!(file, "written to zones only")?;
//! file.sync_data()?; // durable now
//!
//! let mut text = String::new();
//! file.rewind()?;
//! file.read_to_string(&mut text)?;
//! assert_eq!(text, "written to zones only\n");
//! volume.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs use files through [`volume`], by path and handle. Below it, [`vfs::FileSystem`] is what
//! front ends call, and two file systems implement it: [`furrow`], a POSIX file system that needs
//! nothing but zones, and [`zonefs`], where every zone is a file. [`signature`] recognises the
//! content of a device. [`disk`] has ordinary disks in a volume. Drives come from [`zonal::spec`],
//! and block devices of the kernel from the crate `zonal-linux`.

#![forbid(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the maps of modules are for readers of the source"
)]

pub mod acl;
pub mod disk;
pub mod error;
pub mod furrow;
pub mod lifetime;
pub mod mkfs;
pub mod named;
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
