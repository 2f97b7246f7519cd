//! Requests that the kernel reissues after their server was killed.
//!
//! The kernel cannot know whether such a write was done, and on a zoned device a write cannot be
//! repeated: the write pointer is beyond it. So the first write to each zone after a recovery, if
//! it starts below the write pointer found then, is compared with the data in the zone: a part that
//! is the same is done, and the part behind the write pointer is written. The kernel has at most
//! one write outstanding in each zone (zone write plugging, `block/blk-zoned.c`).
//!
//! A reissued append may be done twice. The data of the first one is then garbage below the write
//! pointer, as after any append that failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal::{DeviceError, Lba, Select, ZoneId, ZonedDevice};

/// Zones that may hold a write whose completion the kernel never got.
pub(super) struct Reissue {
    /// Whether there are any left; nearly always false.
    any: AtomicBool,
    /// Their write pointers when the server started.
    found: Mutex<BTreeMap<ZoneId, Lba>>,
}

impl Reissue {
    /// For a new device: nothing is reissued.
    pub(super) fn none() -> Self {
        Self { any: AtomicBool::new(false), found: Mutex::default() }
    }

    /// For a recovered device: any written zone may be concerned.
    pub(super) fn after_kill(device: &dyn ZonedDevice) -> Result<Self, DeviceError> {
        let zones = device.report_all()?;
        let written = zones.iter().filter_map(|zone| {
            let wp = zone.wp.filter(|wp| *wp > zone.start)?;
            Some((zone.id, wp))
        });
        Ok(Self { any: AtomicBool::new(true), found: Mutex::new(written.collect()) })
    }

    /// Whether a write may be a reissued one.
    pub(super) fn is_expected(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Writes the part of `data` that is not in the zone yet.
    pub(super) fn write(
        &self,
        device: &dyn ZonedDevice,
        lba: Lba,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let rest = match self.pointer_found(device, lba) {
            Some(wp) if lba < wp => Self::rest(device, lba, data, wp)?,
            _ => data,
        };
        match device.geometry().blocks(data.len() - rest.len())? {
            _ if rest.is_empty() => Ok(()),
            done => device.write(lba + done, rest),
        }
    }

    /// The part of `data` that is not written yet; all of it if the zone holds other data.
    fn rest<'a>(
        device: &dyn ZonedDevice,
        lba: Lba,
        data: &'a [u8],
        wp: Lba,
    ) -> Result<&'a [u8], DeviceError> {
        let done = device.geometry().bytes(wp - lba).get();
        let done = usize::try_from(done).unwrap_or(usize::MAX).min(data.len());
        let mut held = vec![0; done];
        device.read(lba, &mut held)?;
        if held == data[..done] {
            tracing::info!(%lba, bytes = done, "a reissued write was already done");
            return Ok(&data[done..]);
        }
        Ok(data)
    }

    /// The write pointer of the zone of `lba` when the server started, if the zone has not changed
    /// since.
    fn pointer_found(&self, device: &dyn ZonedDevice, lba: Lba) -> Option<Lba> {
        if !self.is_expected() {
            return None;
        }
        let zone = device.geometry().locate(lba).0;
        self.take(zone)
    }

    /// Notes that a zone changes: no later write to it is a reissued one.
    pub(super) fn forget(&self, zone: ZoneId) {
        if self.is_expected() {
            self.take(zone);
        }
    }

    /// Notes that one zone or all change.
    pub(super) fn forget_all(&self, zones: Select) {
        match zones {
            Select::One(zone) => self.forget(zone),
            Select::All => {
                self.lock().clear();
                self.any.store(false, Ordering::Release);
            }
        }
    }

    fn take(&self, zone: ZoneId) -> Option<Lba> {
        let mut found = self.lock();
        let wp = found.remove(&zone);
        if found.is_empty() {
            self.any.store(false, Ordering::Release);
        }
        wp
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ZoneId, Lba>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use zonal::{MemoryDrive, Profile, ZoneAction};

    use super::*;

    /// A drive with three blocks in zone 1, as the next server finds it.
    fn drive() -> (MemoryDrive, Reissue, Lba) {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let start = drive.append(ZoneId::new(1), &[7; 3 * 4096]).unwrap();
        let reissue = Reissue::after_kill(&drive).unwrap();
        (drive, reissue, start)
    }

    fn lba(start: Lba, blocks: u64) -> Lba {
        start + zonal::LbaCount::new(blocks)
    }

    fn wp(drive: &MemoryDrive, start: Lba) -> u64 {
        (drive.zone(ZoneId::new(1)).unwrap().wp.unwrap() - start).get()
    }

    #[test]
    fn reissue_does_not_repeat_done_write() {
        let (drive, reissue, start) = drive();
        reissue.write(&drive, lba(start, 1), &[7; 2 * 4096]).unwrap();
        assert_eq!(wp(&drive, start), 3);
        reissue.write(&drive, lba(start, 3), &[8; 4096]).unwrap();
        assert_eq!(wp(&drive, start), 4);
    }

    #[test]
    fn reissue_completes_partly_done_write() {
        let (drive, reissue, start) = drive();
        let mut data = [7; 4 * 4096];
        data[4096..].fill(9);
        data[4096..2 * 4096].fill(7);
        reissue.write(&drive, lba(start, 1), &data).unwrap();
        let mut held = [0; 4096];
        drive.read(lba(start, 4), &mut held).unwrap();
        assert_eq!((wp(&drive, start), held), (5, [9; 4096]));
    }

    #[test]
    fn reissue_refuses_other_data_below_pointer() {
        let (drive, reissue, start) = drive();
        let error = reissue.write(&drive, start, &[6; 4096]).unwrap_err();
        assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
    }

    #[test]
    fn reissue_applies_to_first_change_of_zone_only() {
        let refused = |change: fn(&MemoryDrive, &Reissue, Lba)| {
            let (drive, reissue, start) = drive();
            change(&drive, &reissue, start);
            reissue.write(&drive, start, &[7; 4096]).is_err()
        };
        assert!(refused(|drive, reissue, start| {
            reissue.write(drive, lba(start, 3), &[7; 4096]).unwrap();
        }));
        assert!(refused(|_, reissue, _| reissue.forget(ZoneId::new(1))));
        assert!(refused(|_, reissue, _| reissue.forget_all(Select::All)));
        assert!(!refused(|_, reissue, _| reissue.forget(ZoneId::new(2))));
        assert!(!refused(|drive, reissue, _| {
            let zone = Select::One(ZoneId::new(2));
            reissue.forget_all(zone);
            drive.manage(zone, ZoneAction::Reset).unwrap();
        }));
    }

    #[test]
    fn reissue_without_recovery_compares_nothing() {
        let (drive, _, start) = drive();
        let reissue = Reissue::none();
        assert!(reissue.write(&drive, start, &[7; 4096]).is_err());
    }
}
