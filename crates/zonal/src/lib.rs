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
//! Read `device` first, then `spec`, which turns one word into a device with its layers.
//! `docs/semantics.md` says what each operation promises. Files on a drive are the matter of the
//! crate `zonal-fs`.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `unit` | block addresses, counts and zone numbers as distinct types | |
//! | `clock`, `identity` | time, handed in; how a drive is known again under another name | |
//! | `crc32c`, `aligned` | checksums; memory that devices take without a copy | |
//! | `mounts`, `shown` | the mounts of this system; names of files in messages | |
//! | `retry` | when failed work is tried again | |
//! | `repeat`, `wait` | how tests repeat a random run, and wait for others | |
//! | `size` | sizes as people write and read them | `unit` |
//! | `budget` | the memory of all connections of a server | `aligned` |
//! | `listen` | the threads that accept connections, and the list of open ones | |
//! | `zone` | a zone as a device reports it, and the actions on it | `unit` |
//! | `nvme` | structures and status codes of NVMe | all above |
//! | `state` | the zone state machine | `unit`, `zone` |
//! | `error` | what fails, with errno and NVMe status | all above |
//! | `geometry` | the fixed shape of a device, and conversions of addresses | all above |
//! | `limits` | how many zones are open and active | `unit`, `zone`, `geometry` |
//! | `failure` | zones that fail | `unit`, `state`, `error` |
//! | `claim` | the users of a drive | `error` |
//! | `profile` | ready-made shapes, changed by name | all above |
//! | `disk` | the trait of an ordinary disk | `unit`, `nvme`, `error`, `geometry` |
//! | `device` | the trait of every drive and layer, and its batches: start here | all above |
//! | `workload` | access patterns on any device, measured | all above |
//! | `emulated` | the common part of all emulated drives | all above |
//! | `memory`, `file`, `image` | drives in memory, in files, as copies of others | all above |
//! | `output` | files that a program writes where its user says so | `file` |
//! | `layer` | devices that wrap a device, or join several | all above |
//! | `spec` | a device and its layers, by one word of a command line | all above |

#![forbid(unsafe_code)]

pub mod aligned;
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
pub mod listen;
pub mod memory;
pub mod mounts;
pub mod nvme;
pub mod output;
pub mod profile;
#[doc(hidden)]
pub mod repeat;
pub mod retry;
mod shown;
pub mod size;
pub mod spec;
pub mod state;
#[cfg(test)]
mod tests;
pub mod unit;
#[doc(hidden)]
pub mod wait;
pub mod workload;
pub mod zone;

pub use aligned::AlignedBytes;
pub use claim::{Claim, OpenMode};
pub use clock::{Clock, ManualClock, SystemClock};
pub use device::batch::{Io, Op};
pub use device::virtual_queue::{HeadWork, VirtualQueue};
pub use device::{Select, ZonedDevice};
pub use disk::{Disk, DiskError, DiskShape};
pub use error::DeviceError;
pub use failure::{FailZone, ZoneFailure};
pub use file::FileDrive;
pub use geometry::{BlockSize, Geometry, GeometrySpec, Stretch, ZoneRun, ZoneRuns, ZoneRunsError};
pub use identity::Identity;
pub use memory::MemoryDrive;
pub use profile::Profile;
pub use shown::shown;
pub use state::Rules;
pub use unit::{ByteCount, Lba, LbaCount, ZoneId};
pub use zone::{Zone, ZoneAction, ZoneCond, ZoneKind};
