//! `zonal mount`: a Furrow file system at a directory, served in the background or in front.
//!
//! In the background, this process starts itself again with `--foreground` and returns when that
//! one says that the mount can be used, or why not.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use zonal_fs::furrow::{AtimePolicy, Furrow, MountOptions, Stats};
use zonal_serve::daemon::{self, Parent};
use zonal_serve::options::{Access, Atime};
use zonal_serve::{MountConfig, serve};

use crate::args::{Global, Mount};
use crate::clock::SystemClock;
use crate::device::{self, OpenMode};
use crate::output::json;
use crate::{advice, log};

#[derive(Serialize)]
struct Mounted<'a> {
    device: &'a str,
    dir: &'a Path,
    process: u32,
    log: &'a Path,
}

/// Mounts.
pub(crate) fn run(global: &Global, args: &Mount) -> Result<ExitCode> {
    if !args.foreground {
        return in_background(global, args).map(|()| ExitCode::SUCCESS);
    }
    // In the background, standard error moves to the log once the parent has its answer.
    let parent = Parent::inherited().context("answering the process that waits for the mount")?;
    match parent {
        None => in_foreground(args, || ()).map(|()| ExitCode::SUCCESS),
        Some(parent) => serve_and_tell(global, args, parent),
    }
}

/// Serves, and tells `parent` when the mount is ready, or why it is not.
fn serve_and_tell(global: &Global, args: &Mount, parent: Parent) -> Result<ExitCode> {
    let parent = Cell::new(Some(parent));
    let served = in_foreground(args, || {
        let log = global.log.as_deref().and_then(|path| log::open(path).ok());
        if let Some(Err(error)) = parent.take().map(|parent| parent.ready(log)) {
            tracing::error!(%error, "the process that waits for the mount is gone");
        }
    });
    match (served, parent.take()) {
        (Err(error), Some(parent)) => {
            parent.failed(&advice::text(&error)).context("telling why there is no mount")?;
            Ok(ExitCode::FAILURE)
        }
        (served, _) => {
            if let Err(error) = &served {
                tracing::error!("{}", advice::text(error));
            }
            served.map(|()| ExitCode::SUCCESS)
        }
    }
}

fn in_background(global: &Global, args: &Mount) -> Result<()> {
    let log = match &global.log {
        Some(path) => std::path::absolute(path).context("finding the log")?,
        None => log::of_mount(&args.dir)?,
    };
    log::open(&log)?;
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--foreground").arg("--log").arg(&log);
    command.args(std::iter::repeat_n("-v", global.verbose.into()));
    if args.read_only {
        command.arg("--read-only");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(path) = &args.counts {
        command.arg("--counts").arg(std::path::absolute(path).context("finding the counts")?);
    }
    command.arg("--").arg(&args.device).arg(&args.dir);
    let process = daemon::spawn(&mut command)
        .map_err(|error| anyhow!("{error}"))
        .with_context(|| format!("cannot mount {} at {}", args.device, args.dir.display()))?;
    if global.json {
        let mounted = Mounted { device: &args.device, dir: &args.dir, process, log: &log };
        return json::document(&mounted);
    }
    if !args.quiet {
        let dir = args.dir.display();
        sayln!("{} mounted at {dir}, served by process {process}", args.device);
        sayln!("log: {}", log.display());
    }
    Ok(())
}

fn in_foreground(args: &Mount, ready: impl FnOnce()) -> Result<()> {
    abort_on_panic();
    let mut config = MountConfig::new(&device::source(&args.device), &args.dir);
    if args.read_only {
        config.access = Access::ReadOnly;
    }
    for options in &args.options {
        config.apply(options)?;
    }
    let mode = match config.access {
        Access::ReadWrite => OpenMode::ReadWrite,
        Access::ReadOnly => OpenMode::ReadOnly,
    };
    let atime = match config.atime {
        Atime::Relative => AtimePolicy::Relative,
        Atime::Never => AtimePolicy::Never,
        Atime::Always => AtimePolicy::Always,
    };
    let device = device::open(&args.device, mode)?;
    let options = MountOptions { access: config.access, atime, ..MountOptions::default() };
    let fs = Furrow::mount(device, Arc::new(SystemClock::new()), options)
        .with_context(|| format!("the file system on {}", args.device))?;
    for loss in fs.losses() {
        let (ino, zone) = (loss.ino.get(), loss.zone.get());
        let (offset, bytes) = (loss.offset, loss.len);
        tracing::warn!(ino, offset, bytes, zone, "the drive lost what was durable");
    }
    let fs = Arc::new(fs);
    let served = serve(Arc::clone(&fs) as _, &config, ready);
    if let Some(path) = &args.counts {
        Counts::of(&fs.stats()).write(path)?;
    }
    Ok(served?)
}

/// Bytes that one mount wrote to its device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// File data, as programs wrote it.
    pub(crate) user: u64,
    /// Journal, checkpoints, superblocks.
    pub(crate) metadata: u64,
    /// Data that reclaim moved.
    pub(crate) reclaim: u64,
}

impl Counts {
    /// The counts of a file system that has been closed.
    pub(crate) fn of(stats: &Stats) -> Self {
        Self { user: stats.user_bytes, metadata: stats.meta_bytes, reclaim: stats.reclaim_bytes }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("turning the counts into JSON")?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The counts that a mount left in a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no count", path.display()))
    }

    /// Bytes written below per byte written above.
    #[expect(clippy::cast_precision_loss, reason = "for people, who read three digits")]
    pub(crate) fn write_amplification(&self) -> f64 {
        let below = self.user + self.metadata + self.reclaim;
        if self.user == 0 { 1.0 } else { below as f64 / self.user as f64 }
    }
}

/// Makes a panic end the process: the thread that should have answered a request is gone, and who
/// asked would wait for ever. The drive is left as after a power cut, which the next mount recovers.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        tracing::error!("{panic}");
        std::process::abort();
    }));
}
