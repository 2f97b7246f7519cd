//! The zoned device model: units, geometry, the zone state machine, the [`ZonedDevice`] trait,
//! emulated drives in memory and in plain files, and layers that wrap a device.
//!
//! Read [`device`] first; `docs/semantics.md` says what each operation promises.

#![forbid(unsafe_code)]

pub mod aligned;
pub mod batch;
pub mod claim;
pub mod clock;
pub mod crc32c;
pub mod device;
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
pub mod placement;
pub mod profile;
mod shown;
pub mod size;
pub mod spec;
pub mod state;
pub mod unit;
pub mod victim;
#[doc(hidden)]
pub mod wait;
pub mod workload;
pub mod zone;

pub use aligned::AlignedBytes;
pub use batch::{Io, Op};
pub use claim::Claim;
pub use clock::{Clock, ManualClock, SystemClock};
pub use device::{Select, ZoneAction, ZonedDevice};
pub use error::DeviceError;
pub use failure::{FailZone, ZoneFailure};
pub use file::{FileDrive, OpenMode};
pub use geometry::{BlockSize, Geometry, GeometrySpec};
pub use identity::Identity;
pub use memory::MemoryDrive;
pub use profile::Profile;
pub use shown::shown;
pub use state::Rules;
pub use unit::{ByteCount, Lba, LbaCount, ZoneId};
pub use zone::{Zone, ZoneCond, ZoneKind};
