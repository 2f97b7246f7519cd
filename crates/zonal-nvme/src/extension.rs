//! Zone descriptor extensions: data that a host associates with an Empty zone, which becomes
//! Closed; a reset removes it (ZNS, sections 3.4.3.1.6 and 5.1).
//!
//! Drives have no place for extensions, so they are kept in memory and lost when the server stops.
//! The specification asks for more, so a namespace has none unless its creator wants them.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal::nvme::{NvmeStatus, status};
use zonal::{DeviceError, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

/// Size of zone descriptor extensions (ZDES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionSize(NonZeroU8);

impl ExtensionSize {
    /// The unit of ZDES.
    const UNIT_BYTES: u16 = 64;

    /// `None` if `bytes` is not a multiple of 64 from 64 to 16,320.
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
    /// Held while a zone changes from or to Empty, by zone number: a reset and a new extension of
    /// one zone follow each other, and other zones do not wait for the device.
    changes: [Mutex<()>; 16],
}

impl Extensions {
    pub(super) fn new(size: ExtensionSize) -> Self {
        Self { size, attached: Mutex::default(), changes: Default::default() }
    }

    fn attached(&self) -> MutexGuard<'_, BTreeMap<ZoneId, Box<[u8]>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, zone: ZoneId) -> MutexGuard<'_, ()> {
        let one = &self.changes[zone.get() as usize % self.changes.len()];
        one.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_all(&self) -> Vec<MutexGuard<'_, ()>> {
        let all = self.changes.iter();
        all.map(|one| one.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Sets the extension of an Empty zone. The zone is opened on the way to Closed, so this fails
    /// when as many zones are open explicitly as may be open.
    pub(super) fn attach(
        &self,
        device: &dyn ZonedDevice,
        zone: ZoneId,
        data: &[u8],
    ) -> Result<(), NvmeStatus> {
        let status = |error: DeviceError| error.nvme_status();
        let _changing = self.change(zone);
        if device.zone(zone).map_err(status)?.cond != ZoneCond::Empty {
            return Err(status::INVALID_TRANSITION);
        }
        device.manage(Select::One(zone), ZoneAction::Open).map_err(status)?;
        device.manage(Select::One(zone), ZoneAction::Close).map_err(status)?;
        self.attached().insert(zone, data.into());
        Ok(())
    }

    /// Resets zones, which removes their extensions.
    pub(super) fn reset(
        &self,
        device: &dyn ZonedDevice,
        zones: Select,
    ) -> zonal::error::Result<()> {
        match zones {
            Select::One(zone) => {
                let _changing = self.change(zone);
                device.manage(zones, ZoneAction::Reset)?;
                self.attached().remove(&zone);
                Ok(())
            }
            Select::All => {
                let _changing = self.change_all();
                let done = device.manage(zones, ZoneAction::Reset);
                // After a failure, some zones may have been reset: the ones that are Empty now.
                let known: Vec<ZoneId> = self.attached().keys().copied().collect();
                for zone in known {
                    if device.zone(zone).is_ok_and(|zone| zone.cond != ZoneCond::Empty) {
                        continue;
                    }
                    self.attached().remove(&zone);
                }
                done
            }
        }
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
    fn extension_size_is_multiple_of_64_in_byte() {
        let bytes = |bytes| ExtensionSize::from_bytes(bytes).map(ExtensionSize::bytes);
        assert_eq!(bytes(64), Some(64));
        assert_eq!(bytes(255 * 64), Some(16_320));
        for wrong in [0, 1, 63, 65, 256 * 64, u16::MAX] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
