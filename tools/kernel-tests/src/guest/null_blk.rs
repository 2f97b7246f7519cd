//! Zoned block devices of the guest's kernel, in its memory: `null_blk`, set up through configfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use super::shape::Shape;

/// The kernel's settings of the driver.
const CONFIG: &str = "/sys/kernel/config/nullb";

/// A device that exists as long as this does.
pub(super) struct NullBlk {
    config: PathBuf,
    device: PathBuf,
}

impl NullBlk {
    /// Makes an empty one.
    pub(super) fn new(shape: &Shape) -> Result<Self> {
        Self::zoned(shape, 1)
    }

    /// Makes an empty one that has zones, but does not store data.
    pub(super) fn without_memory(shape: &Shape) -> Result<Self> {
        Self::zoned(shape, 0)
    }

    fn zoned(shape: &Shape, memory_backed: u32) -> Result<Self> {
        Self::with(&[
            ("memory_backed", memory_backed),
            ("zoned", 1),
            ("blocksize", shape.block),
            ("size", shape.size_mib),
            ("zone_size", shape.zone_mib),
            ("zone_capacity", shape.capacity_mib),
            ("zone_nr_conv", shape.conventional),
            ("zone_max_open", shape.open),
            ("zone_max_active", shape.active),
        ])
    }

    /// Makes one without zones, with blocks of 4096 bytes.
    pub(super) fn plain(size_mib: u32) -> Result<Self> {
        Self::with(&[("memory_backed", 1), ("blocksize", 4096), ("size", size_mib)])
    }

    fn with(attributes: &[(&str, u32)]) -> Result<Self> {
        // Each device has a new name, because removing an older one may have failed.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memory{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let config = Path::new(CONFIG).join(&name);
        fs::create_dir(&config).context("making a null_blk device")?;
        let device = Self { config, device: Path::new("/dev").join(name) };
        for (attribute, value) in attributes {
            device.set(attribute, *value)?;
        }
        device.set("power", 1)?;
        Ok(device)
    }

    /// Its node.
    pub(super) fn path(&self) -> &Path {
        &self.device
    }

    fn set(&self, attribute: &str, value: u32) -> Result<()> {
        fs::write(self.config.join(attribute), value.to_string())
            .with_context(|| format!("setting {attribute} of a null_blk device to {value}"))
    }
}

impl Drop for NullBlk {
    fn drop(&mut self) {
        // The guest ends soon anyway.
        let _ = self.set("power", 0);
        let _ = fs::remove_dir(&self.config);
    }
}
