//! Writes that the kernel asks for again, after their server was killed.
//!
//! The kernel cannot know whether such a write was done. On a zoned device it can not be done
//! again: the write pointer is beyond it. So the first write to each zone after a recovery, where
//! it begins below the pointer found then, is compared with what the zone holds: what is the same
//! is done, and what follows the pointer is written. The kernel has at most one write on its way in each
//! zone (zone write plugging, `block/blk-zoned.c`).
//!
//! An append that is asked for again may be done twice; what the first one wrote is then garbage
//! below the write pointer, as after any append that failed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zonal::{DeviceError, Lba, Select, ZoneId, ZonedDevice};

/// Zones that may hold a write that was not answered.
pub(super) struct Again {
    /// Whether there are any left: nearly never.
    any: AtomicBool,
    /// Their write pointers.
    found: Mutex<BTreeMap<ZoneId, Lba>>,
}

impl Again {
    /// Nothing was asked before.
    pub(super) fn nothing() -> Self {
        Self { any: AtomicBool::new(false), found: Mutex::default() }
    }

    /// Whatever the last server has left.
    pub(super) fn after_kill(device: &dyn ZonedDevice) -> Result<Self, DeviceError> {
        let zones = device.report_all()?;
        let written = zones.iter().filter_map(|zone| {
            let wp = zone.wp.filter(|wp| *wp > zone.start)?;
            Some((zone.id, wp))
        });
        Ok(Self { any: AtomicBool::new(true), found: Mutex::new(written.collect()) })
    }

    /// Writes, unless that is done already.
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

    /// What of `data` is not written yet; all of it, where something else is.
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
            tracing::info!(%lba, bytes = done, "written before the server was killed");
            return Ok(&data[done..]);
        }
        Ok(data)
    }

    /// The write pointer that was found in the zone of `lba`, if nothing changed the zone since.
    fn pointer_found(&self, device: &dyn ZonedDevice, lba: Lba) -> Option<Lba> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let zone = device.geometry().locate(lba).0;
        self.take(zone)
    }

    /// A zone is changed.
    pub(super) fn forget(&self, zone: ZoneId) {
        if self.any.load(Ordering::Acquire) {
            self.take(zone);
        }
    }

    /// One zone or all are changed.
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

    /// A drive with three blocks in zone 1, as a server found it that takes over.
    fn drive() -> (MemoryDrive, Again, Lba) {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let start = drive.append(ZoneId::new(1), &[7; 3 * 4096]).unwrap();
        let again = Again::after_kill(&drive).unwrap();
        (drive, again, start)
    }

    fn lba(start: Lba, blocks: u64) -> Lba {
        start + zonal::LbaCount::new(blocks)
    }

    fn wp(drive: &MemoryDrive, start: Lba) -> u64 {
        (drive.zone(ZoneId::new(1)).unwrap().wp.unwrap() - start).get()
    }

    #[test]
    fn what_was_written_is_not_written_again() {
        let (drive, again, start) = drive();
        again.write(&drive, lba(start, 1), &[7; 2 * 4096]).unwrap();
        assert_eq!(wp(&drive, start), 3);
        again.write(&drive, lba(start, 3), &[8; 4096]).unwrap();
        assert_eq!(wp(&drive, start), 4);
    }

    #[test]
    fn what_was_written_in_part_is_completed() {
        let (drive, again, start) = drive();
        let mut data = [7; 4 * 4096];
        data[4096..].fill(9);
        data[4096..2 * 4096].fill(7);
        again.write(&drive, lba(start, 1), &data).unwrap();
        let mut held = [0; 4096];
        drive.read(lba(start, 4), &mut held).unwrap();
        assert_eq!((wp(&drive, start), held), (5, [9; 4096]));
    }

    #[test]
    fn other_data_below_the_pointer_is_refused() {
        let (drive, again, start) = drive();
        let error = again.write(&drive, start, &[6; 4096]).unwrap_err();
        assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
    }

    #[test]
    fn only_the_first_change_of_a_zone_can_be_one_again() {
        let refused = |change: fn(&MemoryDrive, &Again, Lba)| {
            let (drive, again, start) = drive();
            change(&drive, &again, start);
            again.write(&drive, start, &[7; 4096]).is_err()
        };
        assert!(refused(|drive, again, start| {
            again.write(drive, lba(start, 3), &[7; 4096]).unwrap();
        }));
        assert!(refused(|_, again, _| again.forget(ZoneId::new(1))));
        assert!(refused(|_, again, _| again.forget_all(Select::All)));
        assert!(!refused(|_, again, _| again.forget(ZoneId::new(2))));
        assert!(!refused(|drive, again, _| {
            let zone = Select::One(ZoneId::new(2));
            again.forget_all(zone);
            drive.manage(zone, ZoneAction::Reset).unwrap();
        }));
    }

    #[test]
    fn without_a_recovery_nothing_is_compared() {
        let (drive, _, start) = drive();
        let again = Again::nothing();
        assert!(again.write(&drive, start, &[7; 4096]).is_err());
    }
}
