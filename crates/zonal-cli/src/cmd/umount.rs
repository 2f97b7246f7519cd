//! `zonal umount`: ends a mount, and returns when the device is clean and released.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use zonal_fuse::unmount::unmount_and_wait;

use crate::args::{Global, Umount};
use crate::output::json;

#[derive(Serialize)]
struct Unmounted<'a> {
    dir: &'a Path,
}

/// Unmounts.
pub(crate) fn run(global: &Global, args: &Umount) -> Result<()> {
    unmount_and_wait(&args.dir, Duration::from_secs(args.timeout))
        .with_context(|| format!("cannot unmount {}", args.dir.display()))?;
    if global.json {
        json::document(&Unmounted { dir: &args.dir })?;
    }
    Ok(())
}
