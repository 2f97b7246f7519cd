//! `-o remount,rw` of what was mounted read-only: it is unmounted and mounted again.
//!
//! FUSE does not tell the daemon that the kernel's part has become writable, and the daemon has its
//! device open for reading, beside other readers. So there is another daemon, which opens the
//! device for writing. That needs a moment in which nothing of the mount is in use; a file that is
//! open, or a directory that is somebody's own, refuses it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zonal_fs::vfs::Access;
use zonal_fuse::MountConfig;
use zonal_fuse::options::Options;
use zonal_fuse::unmount::{daemon_of, is_mounted_elsewhere, unmount_and_wait};

use super::in_background;
use crate::args::{Global, Mount};

/// How long the daemon may take to end: it has nothing to write.
const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(1);

/// Said of every refusal.
const WHY: &str = "it was mounted read-only, so its device is not open for writing, and it has to be mounted anew";

/// Mounts what is mounted at the directory of `args` again, writable, with these options.
pub(super) fn run(global: &Global, args: &Mount, options: &Options) -> Result<()> {
    let dir = &args.dir;
    let global = Global { log: global.log.clone().or_else(|| log_of(dir)), ..global.clone() };
    let new = Mount {
        device: options.mount.source.clone(),
        dir: dir.clone(),
        kind: None,
        read_only: false,
        options: Vec::new(),
        foreground: false,
        counts: None,
        quiet: true,
    };
    let mount = |access| {
        let mount = MountConfig { access, ..options.mount.clone() };
        in_background(&global, &new, Some(&Options { mount, ..options.clone() }))
    };
    if is_mounted_elsewhere(dir) {
        bail!("{WHY}: but it is mounted at another place as well, by `mount --bind`");
    }
    unmount_and_wait(dir, UNMOUNT_TIMEOUT).context(WHY)?;
    let Err(refused) = mount(Access::ReadWrite) else { return Ok(()) };
    mount(Access::ReadOnly).with_context(|| {
        format!("{} is not mounted any more; {refused:#}; then read-only", dir.display())
    })?;
    Err(refused.context("it is mounted read-only as before"))
}

/// The file to which the daemon of the mount at `dir` logs, if it does: the next one goes on there.
fn log_of(dir: &Path) -> Option<PathBuf> {
    let daemon = daemon_of(dir).ok()?;
    let log = std::fs::read_link(format!("/proc/{daemon}/fd/2")).ok()?;
    log.is_file().then_some(log)
}
