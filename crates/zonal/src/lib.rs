//! Zoned devices in user space: drives in memory and in plain files, and layers in front of any.
//!
//! ```
//! use std::sync::Arc;
//! use zonal::{Lba, OpenMode, Select, SystemClock, ZoneAction, ZoneCond, ZoneId, spec};
//!
//! // Ten zones of 3 MiB in memory. A path in place of `mem:...` is a drive file.
//! let clock = Arc::new(SystemClock::new());
//! let drive = spec::open("mem:zone=3M,zones=10", OpenMode::ReadWrite, clock)?;
//! let (zone, block) = (ZoneId::new(1), [7; 4096]);
//!
//! // A write goes to the write pointer; for an append the drive says where the data went.
//! drive.write(drive.geometry().zone_start(zone), &block)?;
//! let at: Lba = drive.append(zone, &block)?;
//! drive.flush()?; // both survive a power cut now
//! let mut found = [0; 4096];
//! drive.read(at, &mut found)?;
//! assert_eq!(found, block);
//!
//! // Written elsewhere than at the write pointer, a zone refuses.
//! let refused = drive.write(at, &block).unwrap_err();
//! assert_eq!(refused.to_string(), "write at 769, but zone 1 has its write pointer at 770");
//!
//! assert_eq!(drive.zone(zone)?.cond, ZoneCond::ImplicitOpen);
//! drive.manage(Select::One(zone), ZoneAction::Reset)?;
//! assert_eq!(drive.zone(zone)?.cond, ZoneCond::Empty);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate is the device model: units, geometry, the zone state machine, the [`ZonedDevice`]
//! trait, emulated drives, and layers that wrap a device. Read [`device`] first, then [`spec`],
//! which turns one word into a device with its layers, and [`batch`] for several requests at once.
//! `docs/semantics.md` says what each operation promises. Files on a drive are the matter of the
//! crate `zonal-fs`.

#![forbid(unsafe_code)]

pub mod aligned;
pub mod batch;
pub mod budget;
pub mod claim;
pub mod clock;
pub mod crc32c;
pub mod device;
pub mod disk;
mod emulated;
pub mod error;
pub mod failure;
pub mod file;
pub mod geometry;
pub mod identity;
pub mod image;
pub mod layer;
mod limits;
pub mod memory;
pub mod mounts;
pub mod nvme;
pub mod output;
pub mod profile;
#[doc(hidden)]
pub mod repeat;
mod shown;
pub mod size;
pub mod spec;
pub mod state;
#[cfg(test)]
mod tests;
pub mod unit;
pub mod virtual_queue;
#[doc(hidden)]
pub mod wait;
pub mod workload;
pub mod zone;

pub use aligned::AlignedBytes;
pub use batch::{Io, Op};
pub use claim::Claim;
pub use clock::{Clock, ManualClock, SystemClock};
pub use device::{Select, ZoneAction, ZonedDevice};
pub use disk::{Disk, DiskError, DiskShape};
pub use error::DeviceError;
pub use failure::{FailZone, ZoneFailure};
pub use file::{FileDrive, OpenMode};
pub use geometry::{BlockSize, Geometry, GeometrySpec, Stretch, ZoneRun, ZoneRuns, ZoneRunsError};
pub use identity::Identity;
pub use memory::MemoryDrive;
pub use profile::Profile;
pub use shown::shown;
pub use state::Rules;
pub use unit::{ByteCount, Lba, LbaCount, ZoneId};
pub use virtual_queue::VirtualQueue;
pub use zone::{Zone, ZoneCond, ZoneKind};
