//! Space of the host below a drive file.
//!
//! Another program, or the drive itself, may fill the file system that holds the file. Then new
//! data of users fails with ENOSPC, and so do operations that add rows. Everything that frees space
//! goes on: metadata and the write buffer go to the device's reserve, so that commits succeed and
//! zones are reset. When that has given the host room again, the device keeps its reserve again and
//! writers go on.

use std::sync::atomic::{AtomicBool, Ordering};

use zonal::DeviceError;

use super::{Drive, Result};

/// The answer of a write to a full host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum OnFullHost {
    /// It fails.
    Fail,
    /// It uses the reserve.
    UseReserve,
}

/// Whether the host has space.
#[derive(Debug, Default)]
pub(super) struct HostSpace {
    /// It has refused a write, and has not kept a reserve since.
    is_full: AtomicBool,
    /// It has refused one that could use the reserve.
    is_exhausted: AtomicBool,
}

impl Drive {
    /// Whether the host below the drive was full at the last look.
    pub(in crate::furrow) fn is_host_full(&self) -> bool {
        self.host.is_full.load(Ordering::Acquire)
    }

    /// Looks whether the host has room for new data, if it was full; the error of the device if it
    /// has none.
    pub(in crate::furrow) fn check_host(&self) -> Result<()> {
        if !self.is_host_full() {
            return Ok(());
        }
        self.device.keep_reserve()?;
        if self.host.is_full.swap(false, Ordering::AcqRel) {
            self.host.is_exhausted.store(false, Ordering::Release);
            tracing::info!("the file system that holds the drive file has room again");
        }
        Ok(())
    }

    /// Has the device keep a reserve. A mount without one takes no new data.
    pub(in crate::furrow) fn keep_reserve(&self) {
        match self.device.keep_reserve() {
            Ok(()) => {}
            Err(error @ DeviceError::NoSpace { .. }) => self.note_full(&error),
            Err(error) => tracing::warn!(%error, "no reserve for the case that the host is full"),
        }
    }

    /// Runs a call of the device, and again with the reserve if the host refuses it.
    pub(super) fn on_host<T>(
        &self,
        on_full: OnFullHost,
        mut call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let error = match call() {
            Err(error @ DeviceError::NoSpace { .. }) => error,
            outcome => return outcome,
        };
        self.note_full(&error);
        if on_full == OnFullHost::Fail {
            return Err(error);
        }
        if let Err(error) = self.device.use_reserve() {
            tracing::warn!(%error, "the reserve stays where it is");
        }
        call().inspect_err(|error| {
            let is_full = matches!(error, DeviceError::NoSpace { .. });
            if is_full && !self.host.is_exhausted.swap(true, Ordering::AcqRel) {
                tracing::error!(
                    %error,
                    "the reserve is used up as well: nothing becomes durable before other files on \
                     that file system are deleted"
                );
            }
        })
    }

    fn note_full(&self, error: &DeviceError) {
        if !self.host.is_full.swap(true, Ordering::AcqRel) {
            tracing::error!(
                %error,
                "the file system that holds the drive file is full: new data fails with ENOSPC. \
                 Delete files there, or on the drive"
            );
        }
    }
}
