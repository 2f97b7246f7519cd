//! libmount's table /run/mount/utab, in which mount(8) and umount(8) find facts about root's mount
//! that the kernel does not keep. `mount --fake` writes it.
//!
//! - `uhelper` has umount(8) call our helper, which waits until the drive is clean. umount(8) asks
//!   statfs(2) for the type, which says `fuse` of every FUSE mount, and looks further only where a
//!   mount has options of its own in the table.
//! - `x-zonal.OPTION` for each option that holds until the unmount and that FUSE has no word for:
//!   mount(8) and `findmnt --mtab` list them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use zonal::mounts;
use zonal_fuse::{MountConfig, MountType, program};

/// libmount's table of facts that the kernel does not keep.
const TABLE: &str = "/run/mount/utab";

/// A row of libmount's table, which is ours to remove.
pub(super) struct Record {
    point: PathBuf,
}

/// Records the helper, if a package has installed it, and these options. Removes the row of an
/// earlier mount there.
pub(super) fn record(
    config: &MountConfig,
    mount_type: MountType,
    options: &[String],
) -> Option<Record> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let point = config.mount_point.canonicalize().ok()?;
    if is_in(&std::fs::read_to_string(TABLE).unwrap_or_default(), &point) {
        remove(&point);
    }
    let kind = format!("{}.{}", mount_type.name(), config.kind);
    let helper = Path::new(&format!("/sbin/umount.{kind}")).exists();
    let helper = helper.then(|| format!("uhelper={kind}"));
    let options = options.iter().map(|option| format!("x-zonal.{option}"));
    let options: Vec<String> = helper.into_iter().chain(options).collect();
    if options.is_empty() {
        return None;
    }
    let mut mount = program::command("mount");
    mount.args(["--internal-only", "--fake", "-t", &kind, "-o", &options.join(",")]);
    mount.arg(&config.source).arg(&point).stdin(Stdio::null());
    warn("umount(8) may not wait until the drive is clean", mount.output());
    Some(Record { point })
}

impl Record {
    /// Removes the row once the mount has ended, unless umount(8) has. The row of a later mount at
    /// the directory stays.
    pub(super) fn forget(self) {
        let is_mounted =
            |all: Vec<mounts::Mount>| all.iter().any(|mount| mount.point == self.point);
        let is_used = mounts::all().is_ok_and(is_mounted);
        if !is_used && is_in(&std::fs::read_to_string(TABLE).unwrap_or_default(), &self.point) {
            remove(&self.point);
        }
    }
}

/// Removes the row of a directory.
fn remove(point: &Path) {
    let mut umount = program::command("umount");
    umount.args(["--internal-only", "--fake"]).arg(point).stdin(Stdio::null());
    warn("mount(8) may list options of an earlier mount", umount.output());
}

fn warn(what: &str, outcome: std::io::Result<Output>) {
    match outcome {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            tracing::warn!("{what}: {}", said.trim());
        }
        Err(error) => tracing::warn!(%error, "{what}"),
    }
}

/// Whether the table has a row of this directory.
fn is_in(table: &str, point: &Path) -> bool {
    let mut target = String::from("TARGET=");
    for letter in point.to_string_lossy().chars() {
        match letter {
            ' ' | '\t' | '\n' | '\\' => {
                let _ = write!(target, "\\{:03o}", u32::from(letter));
            }
            other => target.push(other),
        }
    }
    table.lines().any(|row| row.split(' ').any(|field| field == target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_row_matches_whole_directory() {
        let table = "SRC=/srv/a\\040b.zns TARGET=/mnt/a\\040b ROOT=/ OPTS=uhelper=fuse.furrow\n";
        assert!(is_in(table, Path::new("/mnt/a b")));
        assert!(!is_in(table, Path::new("/mnt/a")));
        assert!(!is_in(table, Path::new("/srv/a b.zns")));
    }
}
