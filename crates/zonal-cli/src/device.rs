//! Opening the device that a command line names.

use std::sync::Arc;

use anyhow::{Context, Result};
pub(crate) use zonal::OpenMode;
use zonal::{Zone, ZonedDevice};

use crate::clock::SystemClock;

/// Opens `spec`.
pub(crate) fn open(spec: &str, mode: OpenMode) -> Result<Arc<dyn ZonedDevice>> {
    zonal::spec::open(spec, mode, Arc::new(SystemClock::new()))
        .with_context(|| format!("opening {spec}"))
}

/// Every zone.
pub(crate) fn report(device: &dyn ZonedDevice) -> Result<Vec<Zone>> {
    device.report_all().context("reporting the zones")
}
