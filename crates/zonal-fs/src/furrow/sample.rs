//! Small drives, for tests.

use std::sync::Arc;
use std::time::Duration;

use zonal::layer::delay::Delay;
use zonal::{
    BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZoneKind, ZoneRuns, ZonedDevice,
};

use crate::furrow::{MkfsOptions, mkfs};

/// The shape of a drive of `zones` zones of `zone_blocks` 4 KiB blocks.
pub const fn shape(zones: u64, zone_blocks: u64) -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(zones * zone_blocks),
        zone_size: LbaCount::new(zone_blocks),
        zone_capacity: LbaCount::new(zone_blocks),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(14),
        max_active: Some(14),
        max_append: LbaCount::new(64),
    }
}

/// Such a drive in memory with an empty file system, and its clock.
pub fn formatted(zones: u64, zone_blocks: u64) -> (Arc<dyn ZonedDevice>, Arc<ManualClock>) {
    let (drive, clock) = counted(zones, zone_blocks);
    (drive, clock)
}

/// Such a drive, which counts the waits for its calls.
pub fn counted(zones: u64, zone_blocks: u64) -> (Arc<Delay<MemoryDrive>>, Arc<ManualClock>) {
    let below = MemoryDrive::new(shape(zones, zone_blocks)).expect("a valid shape");
    let drive = Arc::new(Delay::new(below, Duration::ZERO));
    let clock = Arc::new(ManualClock::new(0));
    mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("it is empty");
    (drive, clock)
}
