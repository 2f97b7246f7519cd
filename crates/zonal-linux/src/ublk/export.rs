//! Answers the requests of the kernel from a device.

use std::sync::Arc;

use rustix::io::Errno;
use zonal::{
    DeviceError, Geometry, Io, Lba, LbaCount, Op, Select, Zone, ZoneAction, ZoneId, ZonedDevice,
};

use super::reissue::Reissue;

/// A device that is served, from several threads at once.
pub(super) struct Export {
    device: Arc<dyn ZonedDevice>,
    reissue: Reissue,
}

impl Export {
    pub(super) fn new(device: Arc<dyn ZonedDevice>, reissue: Reissue) -> Self {
        Self { device, reissue }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// Performs reads, writes and appends: one after the other as long as the kernel may reissue
    /// writes.
    pub(super) fn submit(&self, batch: &mut [Io<'_>]) {
        if !self.reissue.is_expected() {
            return self.device.submit(batch);
        }
        for io in batch {
            match io.op {
                Op::Write { lba, data } => {
                    let written = self.reissue.write(&*self.device, lba, data);
                    io.result = Some(written.map(|()| lba));
                }
                Op::Append { zone, .. } => {
                    self.reissue.forget(zone);
                    io.perform(&*self.device);
                }
                Op::Read { .. } | Op::Flush => io.perform(&*self.device),
            }
        }
    }

    /// Makes completed writes durable.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        self.device.flush().map_err(|error| errno(&error))
    }

    /// Changes the condition of one zone or of all.
    pub(super) fn manage(&self, zones: Select, action: ZoneAction) -> Result<(), Errno> {
        self.reissue.forget_all(zones);
        self.device.manage(zones, action).map_err(|error| errno(&error))
    }

    /// Deallocates blocks of one conventional zone.
    pub(super) fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<(), Errno> {
        self.device.deallocate(lba, blocks).map_err(|error| errno(&error))
    }

    /// Reads blocks some of which are behind a smaller last zone: zeroes for these.
    pub(super) fn read_at_end(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), Errno> {
        let blocks = self.geometry().block_count().saturating_sub(lba - Lba::ZERO);
        let bytes = usize::try_from(self.geometry().bytes(blocks).get()).unwrap_or(usize::MAX);
        let (data, gap) = buffer.split_at_mut(bytes.min(buffer.len()));
        gap.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        self.device.read(lba, data).map_err(|error| errno(&error))
    }

    /// Reports up to `limit` zones, all of one size.
    pub(super) fn report(&self, first: ZoneId, limit: usize) -> Result<Vec<Zone>, Errno> {
        let mut zones = Vec::new();
        self.device.report(first, &mut zones, limit).map_err(|error| errno(&error))?;
        for zone in &mut zones {
            zone.size = self.geometry().zone_size();
        }
        Ok(zones)
    }
}

/// The errno for the kernel, which `blk_errors[]` in `block/blk-core.c` maps.
pub(super) fn errno(error: &DeviceError) -> Errno {
    match error {
        DeviceError::Medium { .. } | DeviceError::Io { .. } | DeviceError::PowerCut => {
            tracing::error!(%error, "the device failed");
        }
        refused => tracing::debug!(%refused, "refused"),
    }
    error.errno()
}
