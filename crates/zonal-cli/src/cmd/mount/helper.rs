//! Has umount(8) call our helper, which waits until the drive is clean.
//!
//! umount(8) asks statfs(2) for the type, which says `fuse` of every FUSE mount. It looks further
//! where a mount has options of its own in user space; `mount --fake` records one, `uhelper`.

use std::path::Path;
use std::process::Stdio;

use zonal_fuse::{Kind, MountConfig, program};

/// Records the helper, if there is one: a package installs it.
pub(super) fn record(config: &MountConfig, kind: Kind) {
    let kind = format!("{}.{}", kind.name(), config.kind);
    let helper = format!("/sbin/umount.{kind}");
    if !rustix::process::geteuid().is_root() || !Path::new(&helper).exists() {
        return;
    }
    let mut mount = program::command("mount");
    mount.args(["--internal-only", "--fake", "-t", &kind, "-o", &format!("uhelper={kind}")]);
    mount.arg(&config.source).arg(&config.mount_point).stdin(Stdio::null());
    match mount.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            tracing::warn!("umount(8) will not wait until the drive is clean: {}", said.trim());
        }
        Err(error) => tracing::warn!(%error, "umount(8) will not wait until the drive is clean"),
    }
}
