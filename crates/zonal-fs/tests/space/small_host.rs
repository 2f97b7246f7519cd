//! A drive in a sparse file of a host with few blocks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use zonal::error::Result;
use zonal::{
    DeviceError, GeometrySpec, Lba, LbaCount, MemoryDrive, Select, ZoneAction, ZoneId, ZonedDevice,
};

/// The host's blocks.
struct Blocks {
    /// Free for any use.
    free: u64,
    /// In the reserve.
    reserve: u64,
    /// Taken by each zone.
    zones: BTreeMap<ZoneId, u64>,
    /// Of zones that were reset since the last flush.
    reset: u64,
}

/// A drive in memory, for which a host of few blocks counts what each zone takes.
pub(crate) struct SmallHost {
    inner: MemoryDrive,
    blocks: Mutex<Blocks>,
    reserve: u64,
}

impl SmallHost {
    /// A host with `free` blocks, of which the drive keeps `reserve`.
    pub(crate) fn new(spec: GeometrySpec, free: u64, reserve: u64) -> Arc<Self> {
        let inner = MemoryDrive::new(spec).unwrap();
        let blocks = Blocks { free, reserve: 0, zones: BTreeMap::new(), reset: 0 };
        Arc::new(Self { inner, blocks: Mutex::new(blocks), reserve })
    }

    /// Blocks that the host has free.
    pub(crate) fn free(&self) -> u64 {
        self.blocks().free
    }

    /// Blocks that it has free or in the reserve.
    pub(crate) fn free_or_kept(&self) -> u64 {
        let blocks = self.blocks();
        blocks.free + blocks.reserve
    }

    /// Another file takes blocks.
    pub(crate) fn take(&self, blocks: u64) {
        self.blocks().free -= blocks;
    }

    /// It is deleted.
    pub(crate) fn give(&self, blocks: u64) {
        self.blocks().free += blocks;
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap()
    }

    fn allocate(&self, zone: ZoneId, count: LbaCount) -> Result<()> {
        let mut blocks = self.blocks();
        let what = || "writing".into();
        let rest = blocks.free.checked_sub(count.get());
        blocks.free = rest.ok_or_else(|| DeviceError::NoSpace { what: what() })?;
        *blocks.zones.entry(zone).or_default() += count.get();
        Ok(())
    }
}

impl ZonedDevice for SmallHost {
    zonal::pass_on!(inner: geometry, report, read);

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let count = self.geometry().blocks(data.len())?;
        self.allocate(self.geometry().locate(lba).0, count)?;
        self.inner.write(lba, data)
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.allocate(zone, self.geometry().blocks(data.len())?)?;
        self.inner.append(zone, data)
    }
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.inner.manage(zones, action)?;
        if let (Select::One(zone), ZoneAction::Reset) = (zones, action) {
            let mut blocks = self.blocks();
            blocks.reset += blocks.zones.remove(&zone).unwrap_or_default();
        }
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        let mut blocks = self.blocks();
        blocks.free += std::mem::take(&mut blocks.reset);
        self.inner.flush()
    }
    fn keep_reserve(&self) -> Result<()> {
        let mut blocks = self.blocks();
        let missing = self.reserve - blocks.reserve;
        // A margin beside it, as for a drive file.
        if blocks.free < missing + self.reserve / 8 {
            return Err(DeviceError::NoSpace { what: "keeping a reserve".into() });
        }
        blocks.free -= missing;
        blocks.reserve = self.reserve;
        Ok(())
    }
    fn use_reserve(&self) -> Result<()> {
        let mut blocks = self.blocks();
        blocks.free += std::mem::take(&mut blocks.reserve);
        Ok(())
    }
}
