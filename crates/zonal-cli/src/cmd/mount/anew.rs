//! `-o remount,rw` of what was mounted read-only: it is unmounted and mounted again.
//!
//! FUSE does not tell the daemon that the kernel's part has become writable, and the daemon has its
//! device open for reading, beside other readers. So there is another daemon, which opens the
//! device for writing. That needs a moment in which nothing of the mount is in use; a file that is
//! open, or a directory that is somebody's own, refuses it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zonal_fuse::options::AsyncDirect;
use zonal_fuse::unmount::{daemon_of, is_mounted_elsewhere, unmount_and_wait};

use super::{FsKind, in_background};
use crate::args::{Global, Mount};
use crate::cmd::stats;
use crate::mounts;

/// How long the daemon may take to end: it has nothing to write.
const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(1);

/// Said of every refusal.
const WHY: &str = "it was mounted read-only, so its device is not open for writing, and it has to be mounted anew";

/// Mounts what is mounted at the directory of `args` again, writable, with the options that it has
/// and `named`, which come last.
pub(super) fn run(global: &Global, args: &Mount, named: &[String]) -> Result<()> {
    let dir = &args.dir;
    let kind = if stats::text(dir, "type")? == FsKind::Zonefs.name() {
        FsKind::Zonefs
    } else {
        FsKind::Furrow
    };
    let device = mounts::source_at(dir)
        .with_context(|| format!("{} is not in the table of mounts", dir.display()))?;
    let mut options = in_force(dir, kind);
    options.extend(named.iter().cloned());
    let global = Global { log: global.log.clone().or_else(|| log_of(dir)), ..global.clone() };
    let mount = |last: &str| Mount {
        device: device.clone(),
        dir: dir.clone(),
        kind: Some(kind),
        read_only: last == "ro",
        options: vec![
            options.iter().map(String::as_str).chain([last]).collect::<Vec<_>>().join(","),
        ],
        foreground: false,
        counts: None,
        quiet: true,
    };
    if is_mounted_elsewhere(dir) {
        bail!("{WHY}: but it is mounted at another place as well, by `mount --bind`");
    }
    unmount_and_wait(dir, UNMOUNT_TIMEOUT).context(WHY)?;
    let Err(refused) = in_background(&global, &mount("rw")) else { return Ok(()) };
    in_background(&global, &mount("ro")).with_context(|| {
        format!("{} is not mounted any more; {refused:#}; then read-only", dir.display())
    })?;
    Err(refused.context("it is mounted read-only as before"))
}

/// The options of the mount at `dir`, as mount(8) writes them.
fn in_force(dir: &Path, kind: FsKind) -> Vec<String> {
    let text = |name: &str| stats::text(dir, name).ok().filter(|text| !text.is_empty());
    let valued =
        |option: &str, value: Option<String>| value.map(|value| format!("{option}={value}"));
    let number = |name: &str| stats::number(dir, name).ok().map(|number| number.to_string());
    let mut options = vec![text("mount_options")];
    options.push(valued("metrics", text("metrics")));
    options.push(valued("threads", number("threads")));
    let is_in_turn =
        text("async_direct_reads").is_some_and(|how| how == AsyncDirect::InTurn.name());
    options.push(is_in_turn.then(|| "noasync-dio".to_owned()));
    match kind {
        FsKind::Furrow => {
            options.push(valued("memory", number("memory")));
            let is_ignored = text("lifetime").is_some_and(|how| how == "ignored");
            options.push(is_ignored.then(|| "nolifetime".to_owned()));
        }
        FsKind::Zonefs => {
            options.push(valued("errors", text("errors")));
            let is_explicit = text("open").is_some_and(|how| how == "explicit");
            options.push(is_explicit.then(|| "explicit-open".to_owned()));
        }
    }
    options.into_iter().flatten().collect()
}

/// The file to which the daemon of the mount at `dir` logs, if it does: the next one goes on there.
fn log_of(dir: &Path) -> Option<PathBuf> {
    let daemon = daemon_of(dir).ok()?;
    let log = std::fs::read_link(format!("/proc/{daemon}/fd/2")).ok()?;
    log.is_file().then_some(log)
}
