//! `zonal umount`: ends a mount, and returns when the device is clean and released.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::UnmountFlags;
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{mounts::Mount, shown};
use zonal_fuse::unmount::{
    Daemon, Kept, Unmounted, detach, force, unmount_and_watch, wait_for_release,
};
use zonal_fuse::users;

use crate::args::{Global, Umount};
use crate::mounts::{self, Target};
use crate::output::{json, shell};

/// A mount that the command ended or detached.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer<'a> {
    /// Mount point, or the device if it was not mounted here any more.
    mount: &'a Path,
}

/// Unmounts.
pub(crate) fn run(global: &Global, args: &Umount) -> Result<()> {
    let target = mounts::target_of(&args.dir)?;
    let (Target::Here(named) | Target::Daemon { device: named, .. }) = &target;
    tracing::debug!(mount = shown(named), "unmounting");
    let ended = match &target {
        Target::Here(dir) => end_mount(args, dir),
        Target::Daemon { device, process } => end_daemon(args, device, *process),
    };
    match ended.with_context(|| format!("cannot unmount {}", shown(named)))? {
        Some(Unmounted::DaemonWasDead) => tracing::warn!(
            "the process that served {} had died: the next mount recovers the device",
            shown(named)
        ),
        Some(Unmounted::Clean) => {
            tracing::info!(mount = shown(named), "unmounted: the device is clean and released");
        }
        Some(Unmounted::MountedElsewhere) => {
            tracing::info!(mount = shown(named), "unmounted: it is mounted elsewhere still");
        }
        None => tracing::info!(mount = shown(named), "detached: nothing is waited for"),
    }
    if global.json {
        json::document(&Answer { mount: named })?;
    }
    Ok(())
}

/// Ends the mount at a directory; `None` if the command does not wait.
fn end_mount(args: &Umount, dir: &Path) -> Result<Option<Unmounted>> {
    if args.force {
        force(dir)?;
        return Ok(None);
    }
    if args.lazy {
        detach(dir, UnmountFlags::DETACH)?;
        return Ok(None);
    }
    let drive = mounts::drive_at(dir);
    let told = |kept: &Kept| {
        // Without users, the daemon is making its last commit.
        if !kept.users.is_empty() {
            tell(dir, drive.as_deref(), kept);
        }
    };
    Ok(Some(unmount_and_watch(dir, Duration::from_secs(args.timeout), told)?))
}

/// Waits for the end of the daemon of a device that is not mounted here; with `--force`, asks it to
/// end.
fn end_daemon(args: &Umount, device: &Path, process: u32) -> Result<Option<Unmounted>> {
    if args.lazy {
        bail!("it is not mounted here; process {process} serves it still");
    }
    let daemon = Daemon::new(process)?;
    // Another process may have this number by now.
    ensure!(mounts::daemon_of(device) == Some(process), "process {process} has just ended");
    let is_it = |mount: &Mount| mounts::is_of(mount, device);
    if args.force {
        daemon.end(is_it)?;
    }
    let told = |kept: &Kept| match kept.users.is_empty() {
        _ if args.force => {}
        false => tell(device, Some(device), kept),
        true => tracing::warn!(
            "{} is not mounted here; waiting for the end of process {process}, which serves it \
             still: programs may have files of a detached mount open; `zonal umount --force {}` \
             ends it",
            shown(device),
            shell::word(device)
        ),
    };
    let timeout = Duration::from_secs(args.timeout);
    Ok(Some(wait_for_release(device, &daemon, is_it, timeout, told)?))
}

/// Names the processes that keep the device, and the command that ends their mount.
fn tell(named: &Path, drive: Option<&Path>, kept: &Kept) {
    let durable = match &kept.synced {
        Ok(()) => "everything written so far is durable".to_owned(),
        Err(error) => format!("what was written elsewhere since could not be synced ({error})"),
    };
    let drive = drive.map_or_else(|| "DEVICE".to_owned(), shell::word);
    tracing::warn!(
        "{} is unmounted here, and {durable}; but the device is not released, since other mount \
         namespaces have the mount: {}; waiting for their end, which ^C may break off; \
         `zonal umount --force {drive}` ends the mount there too",
        shown(named),
        users::listed(&kept.users)
    );
}
