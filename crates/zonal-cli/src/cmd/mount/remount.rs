//! `-o remount`: other options for a mount. Options that the command line does not name stay; on
//! Linux a remount of a zonefs that does not name `explicit-open` drops it.
//!
//! The command reads the options in force from the control directory, applies the options of its
//! command line to a copy as a new mount does, and sends the copy back. The daemon changes the
//! options of the file system, the kernel the options of the mount, such as `ro` and `nodev`. A
//! read-only mount takes no commands, so the kernel makes a mount writable before the daemon acts,
//! and read-only after it. A mount that began read-only is mounted anew to become writable:
//! `anew.rs`.
//!
//! mount(8) starts this command by the type in the mount table, such as `fuse.zonefs` or
//! `fuseblk.furrow`, so by a link such as `mount.fuse.zonefs`. Without such a link it starts
//! `mount.fuse` of the package fuse3, which looks for a program `zonefs`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::Access;
use zonal_fuse::MountConfig;
use zonal_fuse::options::{Options, Restrict};

use super::{anew, items, kind};
use crate::args::{Global, Mount};
use crate::control;

/// Options to change.
struct Change {
    /// The options in force, as the daemon has them: sent again if the kernel refuses its part.
    before: Options,
    /// The options to be in force.
    after: Options,
    /// Flags of the mount, before and after.
    flags: [MountFlags; 2],
}

/// Whether these arguments ask for a remount.
pub(super) fn is_asked(args: &Mount) -> bool {
    items(args).any(|option| option == "remount")
}

/// Changes the mount at the directory.
pub(super) fn run(global: &Global, args: &Mount) -> Result<()> {
    let dir = &args.dir;
    let before = control::options(dir)?;
    let mut now = before.clone();
    look(dir, &mut now.mount)?;
    let new = asked(args, &now)?;
    let changed = if new.mount.access == Access::ReadWrite && now.device == Access::ReadOnly {
        anew::run(global, args, &new)
    } else {
        Change::new(before, &now, new).apply(dir)
    };
    changed.with_context(|| format!("cannot remount {}", dir.display()))
}

/// Of statfs(2): symbolic links are not followed (`include/linux/statfs.h`).
const ST_NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);

/// Fills in the options that only the kernel knows.
fn look(dir: &Path, config: &mut MountConfig) -> Result<()> {
    let stat = statvfs(dir).with_context(|| format!("looking at {}", dir.display()))?;
    for (theirs, ours) in [
        (StatVfsMountFlags::NOSUID, Restrict::NOSUID),
        (StatVfsMountFlags::NODEV, Restrict::NODEV),
        (StatVfsMountFlags::NOEXEC, Restrict::NOEXEC),
        (ST_NOSYMFOLLOW, Restrict::NOSYMFOLLOW),
        (StatVfsMountFlags::SYNCHRONOUS, Restrict::SYNC),
    ] {
        config.restrict.set(ours, stat.f_flag.contains(theirs));
    }
    let is_read_only = stat.f_flag.contains(StatVfsMountFlags::RDONLY);
    config.access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
    Ok(())
}

/// The options that hold now, changed by the command line.
fn asked(args: &Mount, now: &Options) -> Result<Options> {
    let mut new = now.clone();
    if args.read_only {
        new.mount.access = Access::ReadOnly;
    }
    for option in items(args).filter(|option| !is_repeated(option, now)) {
        kind::apply(&mut new, option)?;
        if !now.can_become(&new) {
            bail!(
                "mount option {option:?}: it cannot be changed while it is mounted; unmount it first"
            );
        }
    }
    Ok(new)
}

/// Options that mount(8) repeats from the mount table, where FUSE has put them. The table shows
/// `strictatime` as an empty word.
fn is_repeated(option: &str, now: &Options) -> bool {
    const NAMES: [&str; 3] = ["remount", "", "allow_other"];
    const PREFIXES: [&str; 4] = ["user_id=", "group_id=", "max_read=", "blksize="];
    NAMES.contains(&option)
        || PREFIXES.iter().any(|prefix| option.starts_with(prefix))
        || (option == "relatime" && now.mount.atime == AtimePolicy::Always)
}

impl Change {
    fn new(before: Options, now: &Options, mut after: Options) -> Self {
        let flags = [now.mount.flags(), after.mount.flags()];
        // Access that a failure has taken away returns only with `rw`.
        if after.mount.access == now.mount.access {
            after.mount.access = before.mount.access;
        }
        Self { before, after, flags }
    }

    fn apply(&self, dir: &Path) -> Result<()> {
        let Self { before, after, flags: [now, flags] } = self;
        let was_read_only = now.contains(MountFlags::RDONLY);
        let asks_daemon = before.kind != after.kind || before.mount.access != after.mount.access;
        if asks_daemon {
            if was_read_only {
                // The file system itself stays read-only until the daemon has changed it.
                mount_remount(dir, *flags - MountFlags::RDONLY, "")?;
            }
            if let Err(error) = send(dir, after) {
                if was_read_only {
                    mount_remount(dir, *now, "")?;
                }
                return Err(error);
            }
        }
        if flags == now && !(asks_daemon && was_read_only) {
            return Ok(());
        }
        if let Err(error) = mount_remount(dir, *flags, "") {
            if asks_daemon {
                // The kernel refuses while a file is open for writing: the options stay as they
                // were.
                send(dir, before)?;
            }
            return Err(error.into());
        }
        Ok(())
    }
}

/// Sends options to the daemon.
fn send(dir: &Path, options: &Options) -> Result<()> {
    control::command(dir, &format!("remount {}", serde_json::to_string(options)?))
        .context("sending the options to the daemon")
}
