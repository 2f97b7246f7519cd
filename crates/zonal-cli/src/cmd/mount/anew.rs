//! `-o remount,rw` of a mount that began read-only: it is unmounted and mounted again.
//!
//! FUSE does not tell the daemon that the mount has become writable, and the daemon has opened its
//! device for reading only, as others may have. So another daemon opens the device for writing. No
//! program may use the mount at that moment: the unmount fails if a file is open, or if a program
//! works in one of the directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use zonal_fs::vfs::Access;
use zonal_fuse::MountConfig;
use zonal_fuse::daemon;
use zonal_fuse::options::Options;
use zonal_fuse::unmount::{daemon_of, is_mounted_elsewhere, unmount_and_wait};

use super::in_background;
use crate::args::{Cli, Command, Global, Mount};

/// How long the daemon may take to end: it has nothing to write.
const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(1);

/// The reason that every refusal gives.
const WHY: &str = "it was mounted read-only, so its device is not open for writing, and it has to be mounted anew";

/// Mounts the file system at the directory of `args` again, writable, with these options.
pub(super) fn run(global: &Global, args: &Mount, options: &Options) -> Result<()> {
    let dir = &args.dir;
    let old = Daemon::of(dir)?;
    if old.stays == Stays::InForeground {
        bail!(
            "{WHY}: but process {} serves it in the foreground and would end; unmount it, and \
             mount it again without ro",
            old.process
        );
    }
    let global = Global {
        log: global.log.clone().or(old.log),
        verbose: global.verbose.max(old.verbose),
        ..global.clone()
    };
    let new = Mount {
        device: options.mount.source.clone(),
        dir: dir.clone(),
        kind: None,
        read_only: false,
        options: Vec::new(),
        foreground: false,
        counts: args.counts.clone().or(old.counts),
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

/// The daemon of a mount, with the settings of its command line that the mount's options lack.
struct Daemon {
    process: u32,
    /// The file to which it logs, if it does: the next one goes on there.
    log: Option<PathBuf>,
    verbose: u8,
    counts: Option<PathBuf>,
    stays: Stays,
}

/// Whether a daemon serves in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    InBackground,
    /// The program that started it waits for its end.
    InForeground,
}

impl Daemon {
    /// The daemon of the mount at `dir`, by its command line.
    fn of(dir: &Path) -> Result<Self> {
        let process = daemon_of(dir)?;
        let read = |name| {
            let path = format!("/proc/{process}/{name}");
            std::fs::read(&path).with_context(|| format!("reading {path}"))
        };
        let (arguments, environment) = (read("cmdline")?, read("environ")?);
        let log = std::fs::read_link(format!("/proc/{process}/fd/2")).ok();
        let mut daemon = Self {
            process,
            log: log.filter(|log| log.is_file()),
            verbose: 0,
            counts: None,
            stays: if daemon::is_of_spawn(&environment) {
                Stays::InBackground
            } else {
                Stays::InForeground
            },
        };
        let arguments = split(&arguments).map(|argument| OsStr::from_bytes(argument).to_owned());
        // A library or another version may serve it.
        if let Ok(Cli { global, command: Command::Mount(args) }) = Cli::try_parse_from(arguments) {
            daemon.verbose = global.verbose;
            daemon.counts = args.counts;
        }
        Ok(daemon)
    }
}

/// The strings of a file of `/proc`, each of which ends with a zero.
fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == 0).filter(|argument| !argument.is_empty())
}
