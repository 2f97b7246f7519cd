//! Formatted drives in memory, for tests.

use std::sync::Arc;

use zonal::{BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZonedDevice};

use super::{MkfsOptions, mkfs};

/// A drive of so many zones of so many 4 KiB blocks with an empty file system, and its clock.
pub(super) fn formatted(zones: u64, zone_blocks: u64) -> (Arc<dyn ZonedDevice>, Arc<ManualClock>) {
    let spec = GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(zones * zone_blocks),
        zone_size: LbaCount::new(zone_blocks),
        zone_capacity: LbaCount::new(zone_blocks),
        conventional_zones: 0,
        max_open: Some(14),
        max_active: Some(14),
        max_append: LbaCount::new(64),
    };
    let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(spec).expect("a valid shape"));
    let clock = Arc::new(ManualClock::new(0));
    mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("it is empty");
    (drive, clock)
}
