//! The names under which mount(8), mkfs(8) and fsck(8) start the command.
//!
//! - `mount.furrow DEVICE DIR [-sfnv] [-o OPTIONS]`, as mount(8) calls `mount.TYPE`;
//! - `mount.zonefs` likewise, and `mount.fuse.zonefs`, `mount.fuse.furrow`, and both with
//!   `fuseblk`;
//! - `umount.fuse.furrow DIR [-lfnrv]`, `umount.fuse.zonefs`, and both with `fuseblk`, as umount(8)
//!   calls `umount.TYPE`;
//! - `mkfs.furrow [OPTIONS] DEVICE`;
//! - `mkzonefs [OPTIONS] DEVICE`, or `mkfs.zonefs`, with the options of zonefs-tools;
//! - `fsck.furrow [-aApynfrt...] DEVICE`: repairs nothing, so the options that ask for it are taken
//!   and ignored.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The arguments as `zonal` takes them.
pub(crate) fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let given: Vec<OsString> = given.collect();
    let name = given.first().and_then(|name| Path::new(name).file_name()).and_then(OsStr::to_str);
    let rest = given.get(1..).unwrap_or_default();
    match name {
        Some("mount.furrow" | "mount.fuse.furrow" | "mount.fuseblk.furrow") => {
            with("mount", mount("furrow", rest))
        }
        Some("mount.zonefs" | "mount.fuse.zonefs" | "mount.fuseblk.zonefs") => {
            with("mount", mount("zonefs", rest))
        }
        Some(
            "umount.fuse.furrow"
            | "umount.fuse.zonefs"
            | "umount.fuseblk.furrow"
            | "umount.fuseblk.zonefs",
        ) => with("umount", umount(rest)),
        Some("mkzonefs" | "mkfs.zonefs") if rest.iter().any(is_version) => {
            ["zonal", "--version"].map(OsString::from).into()
        }
        Some("mkzonefs" | "mkfs.zonefs") => with("mkzonefs", rest.to_vec()),
        Some("mkfs.furrow") => with("mkfs", rest.to_vec()),
        Some("fsck.furrow") => {
            with("check", rest.iter().filter(|arg| !is_repair(arg)).cloned().collect())
        }
        _ => given,
    }
}

fn with(command: &str, rest: Vec<OsString>) -> Vec<OsString> {
    ["zonal", command].map(OsString::from).into_iter().chain(rest).collect()
}

/// Drops arguments of mount(8) that have no meaning here: `-n` (no mtab), `-s` (sloppy), `-t TYPE`,
/// `-N NAMESPACE`.
fn mount(kind: &str, rest: &[OsString]) -> Vec<OsString> {
    let mut kept = ["--quiet", "--type", kind].map(OsString::from).to_vec();
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-n" | "-s" | "-sn" | "-ns") => {}
            Some("-t" | "-N") => {
                rest.next();
            }
            _ => kept.push(backing_file(arg).unwrap_or_else(|| arg.clone())),
        }
    }
    kept
}

/// Drops arguments of umount(8) that have no meaning here: `-n` (no mtab), `-v`, `-r` (make it
/// read-only if it is busy), `-t TYPE`, `-N NAMESPACE`.
fn umount(rest: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-n" | "-v" | "-r") => {}
            Some("-t" | "-N") => {
                rest.next();
            }
            _ => kept.push(arg.clone()),
        }
    }
    kept
}

/// The file behind a loop device: mount(8) puts one in front of a drive file where it knows the
/// type, as it does zonefs, and takes it away again when it ends.
fn backing_file(arg: &OsString) -> Option<OsString> {
    let name = arg.to_str()?.strip_prefix("/dev/loop")?;
    let path = format!("/sys/block/loop{name}/loop/backing_file");
    Some(std::fs::read_to_string(path).ok()?.trim_end_matches('\n').into())
}

fn is_version(arg: &OsString) -> bool {
    matches!(arg.to_str(), Some("--version" | "-V"))
}

fn is_repair(arg: &OsString) -> bool {
    matches!(
        arg.to_str(),
        Some("-a" | "-A" | "-p" | "-y" | "-n" | "-f" | "-r" | "-t" | "-T" | "-M")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_text(given: &[&str]) -> String {
        let arguments = arguments(given.iter().map(OsString::from));
        arguments.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn alias_names_become_subcommands() {
        let mount = ["/sbin/mount.furrow", "/srv/a.zns", "/mnt", "-n", "-o", "rw,noatime"];
        assert_eq!(
            as_text(&mount),
            "zonal mount --quiet --type furrow /srv/a.zns /mnt -o rw,noatime"
        );
        assert_eq!(as_text(&["mkfs.furrow", "-L", "x", "a.zns"]), "zonal mkfs -L x a.zns");
        let mount = ["mount.fuse.zonefs", "/srv/a.zns", "/mnt", "-o", "rw", "-t", "fuse.zonefs"];
        assert_eq!(as_text(&mount), "zonal mount --quiet --type zonefs /srv/a.zns /mnt -o rw");
        let umount = ["/sbin/umount.fuse.furrow", "/mnt", "-n", "-l", "-v", "-r", "-N", "x"];
        assert_eq!(as_text(&umount), "zonal umount /mnt -l");
        for name in ["/usr/sbin/mkzonefs", "mkfs.zonefs"] {
            let features = "aggr_cnv,perm=600";
            let given = as_text(&[name, "-f", "-o", features, "a.zns"]);
            assert_eq!(given, format!("zonal mkzonefs -f -o {features} a.zns"));
            assert_eq!(as_text(&[name, "--version"]), "zonal --version");
        }
        assert_eq!(as_text(&["fsck.furrow", "-a", "a.zns"]), "zonal check a.zns");
    }

    #[test]
    fn alias_keeps_own_name() {
        assert_eq!(
            as_text(&["target/debug/zonal", "info", "mem:"]),
            "target/debug/zonal info mem:"
        );
    }
}
