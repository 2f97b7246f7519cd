//! Where on the drive an address of a trace is. Traces come from disks of other sizes, and often
//! touch little of them.

use std::collections::BTreeMap;

use crate::config::Fit;

/// Bytes that stay together in a compact trace: requests that are sequential stay so for this long.
/// Assumed.
const REGION: u64 = 1 << 20;

/// Largest request: longer ones are split.
const REQUEST_MAX: u64 = 1 << 30;

/// Turns addresses of a trace into addresses of a drive.
pub(super) struct Fitting {
    fit: Fit,
    user_bytes: u64,
    /// Volume and region → region on the drive; with `Fit::Modulo`, only to count regions.
    regions: BTreeMap<(u32, u64), u64>,
}

/// A piece of a request: offset on the drive, bytes.
pub(super) type DriveRange = (u64, u32);

impl Fitting {
    pub(super) const fn new(fit: Fit, user_bytes: u64) -> Self {
        Self { fit, user_bytes, regions: BTreeMap::new() }
    }

    /// The first piece of a request of `bytes` at `offset`, and how many bytes are left after it.
    pub(super) fn piece(&mut self, volume: u32, offset: u64, bytes: u64) -> (DriveRange, u64) {
        let (at, room) = match self.fit {
            Fit::Modulo => {
                self.touch(volume, offset, bytes);
                let at = offset % self.user_bytes;
                (at, self.user_bytes - at)
            }
            Fit::Compact => {
                let region = self.region_bytes();
                let next = self.regions.len() as u64;
                let found = *self.regions.entry((volume, offset / region)).or_insert(next);
                let at = found % (self.user_bytes / region) * region + offset % region;
                (at, region - offset % region)
            }
        };
        let count = bytes.min(room).min(REQUEST_MAX);
        ((at, u32::try_from(count).expect("at most REQUEST_MAX")), bytes - count)
    }

    fn touch(&mut self, volume: u32, offset: u64, bytes: u64) {
        let (region, limit) = (self.region_bytes(), offset + bytes.min(REQUEST_MAX));
        for number in offset / region..limit.div_ceil(region) {
            let next = self.regions.len() as u64;
            self.regions.entry((volume, number)).or_insert(next);
        }
    }

    /// Bytes that the trace has touched, in whole regions.
    pub(super) fn touched(&self) -> u64 {
        self.regions.len() as u64 * self.region_bytes()
    }

    /// A drive may be smaller than a region.
    fn region_bytes(&self) -> u64 {
        REGION.min(self.user_bytes)
    }

    /// Bytes of the drive that the trace has reached, and regions that found no room of their own.
    pub(super) fn reached(&self) -> (u64, u64) {
        if self.fit == Fit::Modulo {
            return (0, 0);
        }
        let (regions, region) = (self.regions.len() as u64, self.region_bytes());
        let limit = self.user_bytes / region;
        (regions.min(limit) * region, regions.saturating_sub(limit))
    }
}
