//! Opening the device that a command line names.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow};
pub(crate) use zonal::OpenMode;
use zonal::spec::Stack;
use zonal::{Zone, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::signature::{self, Content};

use crate::clock::SystemClock;

/// Opens `spec`.
pub(crate) fn open(spec: &str, mode: OpenMode) -> Result<Arc<dyn ZonedDevice>> {
    open_stack(spec, mode).map(|stack| stack.device)
}

/// Opens `spec`, and keeps hold of what can be asked of its layers.
pub(crate) fn open_stack(spec: &str, mode: OpenMode) -> Result<Stack> {
    zonal::spec::open_stack_with(spec, mode, Arc::new(SystemClock::new()), &zonal_linux::open)
        .with_context(|| format!("opening {spec}"))
}

/// The device as the mount table shows it: a plain file by its absolute path.
pub(crate) fn source(spec: &str) -> String {
    let path: PathBuf = spec.into();
    path.canonicalize().map_or_else(|_| spec.to_owned(), |path| path.display().to_string())
}

/// Why no Furrow was found on a device: where it holds something else, that.
pub(crate) fn without_furrow(device: &dyn ZonedDevice, error: FsError) -> Error {
    match (&error, signature::find(device)) {
        (FsError::Corrupt { what: "superblock", .. }, Ok(Some(found)))
            if found.kind != Content::Furrow =>
        {
            anyhow!("it holds {found}, not a Furrow")
        }
        _ => error.into(),
    }
}

/// Every zone.
pub(crate) fn report(device: &dyn ZonedDevice) -> Result<Vec<Zone>> {
    device.report_all().context("reporting the zones")
}
