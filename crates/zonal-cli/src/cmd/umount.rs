//! `zonal umount`: ends a mount, and returns when the device is clean and released.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::UnmountFlags;
use schemars::JsonSchema;
use serde::Serialize;
use zonal::shown;
use zonal_fuse::unmount::{Unmounted, detach, unmount_and_wait};

use crate::args::{Global, Umount};
use crate::mounts;
use crate::output::json;

/// A mount that was taken away.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer<'a> {
    /// Mount point.
    mount: &'a Path,
}

/// Unmounts.
pub(crate) fn run(global: &Global, args: &Umount) -> Result<()> {
    let dir = &mounts::dir_of(&args.dir)?;
    tracing::debug!(mount = shown(dir), "unmounting");
    let mut flags = UnmountFlags::empty();
    flags.set(UnmountFlags::DETACH, args.lazy);
    flags.set(UnmountFlags::FORCE, args.force);
    let unmounted = if flags.is_empty() {
        unmount_and_wait(dir, Duration::from_secs(args.timeout)).map(Some)
    } else {
        detach(dir, flags).map(|()| None)
    };
    match unmounted.with_context(|| format!("cannot unmount {}", dir.display()))? {
        Some(Unmounted::DaemonWasDead) => tracing::warn!(
            "the process that served {} had died: the next mount recovers the device",
            dir.display()
        ),
        Some(Unmounted::Clean) => {
            tracing::info!(mount = shown(dir), "unmounted: the device is clean and released");
        }
        Some(Unmounted::MountedElsewhere) => {
            tracing::info!(mount = shown(dir), "unmounted: it is mounted elsewhere still");
        }
        None => tracing::info!(mount = shown(dir), "detached: nothing is waited for"),
    }
    if global.json {
        json::document(&Answer { mount: dir })?;
    }
    Ok(())
}
