//! Zone descriptor extensions: some bytes that a host attaches to an Empty zone, which then is
//! Closed; a reset takes them away (ZNS, sections 3.4.3.1.6 and 5.1).
//!
//! Drives of ours have no place for them, so they live in memory: a server that ends forgets them.
//! That is less than the specification asks for, so a namespace has none unless it is told to.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal::nvme::{NvmeStatus, status};
use zonal::{DeviceError, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

/// How long extensions are: so many times 64 bytes (ZDES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionSize(NonZeroU8);

impl ExtensionSize {
    /// What it is counted in.
    const UNIT_BYTES: u16 = 64;

    /// So many bytes; `None` where that is no multiple of 64, or nothing, or more than 16,320.
    pub fn from_bytes(bytes: u16) -> Option<Self> {
        let units = bytes.is_multiple_of(Self::UNIT_BYTES).then_some(bytes / Self::UNIT_BYTES)?;
        u8::try_from(units).ok().and_then(NonZeroU8::new).map(Self)
    }

    /// ZDES.
    pub(crate) const fn units(self) -> u8 {
        self.0.get()
    }

    /// In bytes.
    pub(crate) const fn bytes(self) -> usize {
        self.0.get() as usize * Self::UNIT_BYTES as usize
    }
}

/// The extensions of a namespace.
#[derive(Debug)]
pub(super) struct Extensions {
    pub(super) size: ExtensionSize,
    attached: Mutex<BTreeMap<ZoneId, Box<[u8]>>>,
}

impl Extensions {
    pub(super) fn new(size: ExtensionSize) -> Self {
        Self { size, attached: Mutex::default() }
    }

    fn attached(&self) -> MutexGuard<'_, BTreeMap<ZoneId, Box<[u8]>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches `data` to an Empty zone. It is opened on the way to Closed, so at the open limit,
    /// with all open zones opened explicitly, this is one open zone too many.
    pub(super) fn attach(
        &self,
        device: &dyn ZonedDevice,
        zone: ZoneId,
        data: &[u8],
    ) -> Result<(), NvmeStatus> {
        let status = |error: DeviceError| error.nvme_status();
        // Resets wait, so what is attached belongs to the zone as it is.
        let mut attached = self.attached();
        if device.zone(zone).map_err(status)?.cond != ZoneCond::Empty {
            return Err(status::INVALID_TRANSITION);
        }
        device.manage(Select::One(zone), ZoneAction::Open).map_err(status)?;
        device.manage(Select::One(zone), ZoneAction::Close).map_err(status)?;
        attached.insert(zone, data.into());
        Ok(())
    }

    /// Resets zones, which takes their extensions away.
    pub(super) fn reset(
        &self,
        device: &dyn ZonedDevice,
        zones: Select,
    ) -> zonal::error::Result<()> {
        let mut attached = self.attached();
        let done = device.manage(zones, ZoneAction::Reset);
        match zones {
            Select::One(zone) if done.is_ok() => {
                attached.remove(&zone);
            }
            Select::One(_) => {}
            // Even one that failed has reset some zones: those that are Empty now.
            Select::All => attached.retain(|&zone, _| {
                device.zone(zone).is_ok_and(|zone| zone.cond != ZoneCond::Empty)
            }),
        }
        done
    }

    /// Copies the extension of a zone to `out`, if it has one.
    pub(super) fn copy(&self, zone: &Zone, out: &mut [u8]) -> Option<()> {
        let attached = self.attached();
        let data = attached.get(&zone.id).filter(|_| zone.cond != ZoneCond::Empty)?;
        out.copy_from_slice(data);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_a_byte_can_say() {
        let bytes = |bytes| ExtensionSize::from_bytes(bytes).map(ExtensionSize::bytes);
        assert_eq!(bytes(64), Some(64));
        assert_eq!(bytes(255 * 64), Some(16_320));
        for wrong in [0, 1, 63, 65, 256 * 64, u16::MAX] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
