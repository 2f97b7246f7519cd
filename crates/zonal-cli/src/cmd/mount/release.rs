//! A device whose last mount is about to end.
//!
//! umount(8) without our helper returns while the daemon still commits, and a script may mount again while it unmounts. For a file
//! system of the kernel, mount(2) waits then; so do we, for a while.

use std::thread;
use std::time::Duration;

use anyhow::{Error, Result};
use zonal::DeviceError;

use crate::clock::now;
use crate::device::{self, OpenMode, Stack};

/// How long a device may be held by another process: enough for a last commit.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is tried again.
const INTERVAL: Duration = Duration::from_millis(20);

/// Opens `spec` once no other process holds it.
#[expect(clippy::disallowed_methods, reason = "nothing tells of a lock that is let go")]
pub(super) fn open_when_released(spec: &str, mode: OpenMode) -> Result<Stack> {
    let deadline = now() + RELEASE_TIMEOUT;
    loop {
        match device::open_stack(spec, mode) {
            Err(error) if is_held(&error) && now() < deadline => thread::sleep(INTERVAL),
            opened => return opened,
        }
    }
}

fn is_held(error: &Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref::<DeviceError>(), Some(DeviceError::Locked { .. }))
    })
}
