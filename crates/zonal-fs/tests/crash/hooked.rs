//! A device on which a test can hold an append back, and spoil the bytes of a read.

use std::sync::Arc;

use zonal::{DeviceError, Lba, ZoneId, ZonedDevice};

type Result<T> = std::result::Result<T, DeviceError>;

/// Hooks of a test into the calls of a device. By default they do nothing.
pub(crate) trait Hook: Send + Sync {
    /// Before an append reaches the device.
    fn before_append(&self, _zone: ZoneId) -> Result<()> {
        Ok(())
    }

    /// Before a write reaches the device.
    fn before_write(&self, _lba: Lba) -> Result<()> {
        Ok(())
    }

    /// Before a flush reaches the device.
    fn before_flush(&self) -> Result<()> {
        Ok(())
    }

    /// After a read, whose bytes can be changed.
    fn after_read(&self, _lba: Lba, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// The device.
pub(crate) struct Hooked<H> {
    below: Arc<dyn ZonedDevice>,
    pub(crate) hook: H,
}

impl<H: Hook> Hooked<H> {
    pub(crate) fn new(below: Arc<dyn ZonedDevice>, hook: H) -> Arc<Self> {
        Arc::new(Self { below, hook })
    }
}

impl<H: Hook> ZonedDevice for Hooked<H> {
    zonal::pass_on!(below: geometry, report, manage);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.below.read(lba, buffer)?;
        self.hook.after_read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.hook.before_write(lba)?;
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.hook.before_append(zone)?;
        self.below.append(zone, data)
    }

    fn flush(&self) -> Result<()> {
        self.hook.before_flush()?;
        self.below.flush()
    }
}
