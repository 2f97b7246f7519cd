//! A drive that a test can hold: while it is held, no write begins and no read ends. A test can
//! also make it panic, as a mistake of ours would.
//!
//! Files next to the drive tell it what to do, because the daemon is another process than the test.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use zonal::wait::wait_until;
use zonal::{DeviceError, Lba, ZoneId, ZonedDevice};

/// The file whose presence holds back `what`, `read` or `write`.
pub(crate) fn hold(drive: &Path, what: &str) -> PathBuf {
    drive.with_extension(format!("hold-{what}"))
}

/// The file that appears when something is held back, a byte long for each that is.
pub(crate) fn held(drive: &Path, what: &str) -> PathBuf {
    drive.with_extension(format!("held-{what}"))
}

/// The file whose presence makes `what` panic, `read` or `write`.
pub(crate) fn panics(drive: &Path, what: &str) -> PathBuf {
    drive.with_extension(format!("panic-{what}"))
}

/// Between two looks at whether something has moved.
const LOOK: Duration = Duration::from_millis(1);

/// Looks without any progress after which something stands still: far more than a loaded machine
/// needs for a step.
const STILL_LOOKS: u32 = 60_000;

/// Waits until it is done, as long as `steps` grows. Whether it came to that: otherwise it stands
/// still.
pub(crate) fn until_or_still(steps: impl Fn() -> u64, done: impl Fn() -> bool) -> bool {
    let (mut last, mut looks) = (steps(), 0);
    while !done() {
        thread::park_timeout(LOOK);
        let now = steps();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        if looks == STILL_LOOKS {
            return false;
        }
    }
    true
}

/// The drive.
pub(crate) struct Held<D> {
    pub(crate) below: D,
    pub(crate) path: PathBuf,
}

impl<D> Held<D> {
    fn wait(&self, what: &str) {
        assert!(!panics(&self.path, what).exists(), "this {what} panics");
        let hold = hold(&self.path, what);
        if !hold.exists() {
            return;
        }
        let mut held_back = File::options();
        let held_back = held_back.create(true).append(true).open(held(&self.path, what));
        held_back.unwrap().write_all(b".").unwrap();
        wait_until(|| !hold.exists());
        // The first of several has removed it.
        let _ = fs::remove_file(held(&self.path, what));
    }
}

impl<D: ZonedDevice> ZonedDevice for Held<D> {
    zonal::pass_on!(below: geometry, report, manage, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let outcome = self.below.read(lba, buffer);
        self.wait("read");
        outcome
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.wait("write");
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba, DeviceError> {
        self.wait("write");
        self.below.append(zone, data)
    }
}
