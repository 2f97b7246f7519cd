//! `zonal mount`: a file system at a directory, served in the background or in front.
//!
//! In the background, this process starts itself again with `--foreground` and returns when that
//! process reports that the mount can be used, or why not. `mount/kind.rs` has the differences
//! between the kinds of file system.

mod anew;
mod helper;
mod kind;
mod release;
mod remount;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::spec::Base;
use zonal::{SystemClock, output};
use zonal_fs::vfs::Access;
use zonal_fuse::control::Control;
use zonal_fuse::daemon::{self, Parent};
use zonal_fuse::exporter::Exporter;
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::{KindOptions, Options};
use zonal_fuse::{MountConfig, MountContent, Served, serve_on};

use crate::args::{Global, Mount};
use crate::device::OpenMode;
use crate::metadata::{self, Opened};
use crate::output::json;
use crate::{advice, log, mounts, notify};
use kind::Mounted;

/// Environment variable that hands a daemon the options in force of the mount that it replaces.
const IN_FORCE: &str = "ZONAL_OPTIONS_IN_FORCE";

/// A mount that can be used.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// Mount point.
    mount: &'a Path,
    /// Process that serves it.
    pid: u32,
    /// File to which that process logs.
    log: &'a Path,
}

/// Mounts.
pub(crate) fn run(global: &Global, args: &Mount) -> Result<ExitCode> {
    if remount::is_asked(args) {
        return remount::run(global, args).map(|()| ExitCode::SUCCESS);
    }
    if !args.foreground {
        return in_background(global, args, None).map(|()| ExitCode::SUCCESS);
    }
    // In the background, standard error moves to the log once the parent has its answer.
    let parent = Parent::inherited().context("connecting to the parent process")?;
    match parent {
        None => in_foreground(args, notify::ready).map(|()| ExitCode::SUCCESS),
        Some(parent) => serve_and_report(global, args, parent),
    }
}

/// Serves, and reports to `parent` when the mount is ready, or why it is not.
fn serve_and_report(global: &Global, args: &Mount, parent: Parent) -> Result<ExitCode> {
    let parent = Cell::new(Some(parent));
    let served = in_foreground(args, || {
        let log = global.log.as_deref().and_then(|path| log::open(path).ok());
        if let Some(Err(error)) = parent.take().map(|parent| parent.ready(log)) {
            tracing::error!(%error, "the process that waits for the mount is gone");
        }
    });
    match (served, parent.take()) {
        (Err(error), Some(parent)) => {
            parent
                .failed(&advice::text(&error))
                .context("reporting the failure to the parent process")?;
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

/// Starts a daemon that mounts. Options in force take the place of the options in `args`.
fn in_background(global: &Global, args: &Mount, in_force: Option<&Options>) -> Result<()> {
    let log = match &global.log {
        Some(path) => std::path::absolute(path).context("resolving the path of the log")?,
        None => log::of_mount(&args.dir)?,
    };
    log::open(&log)?;
    let mut command = daemon::this_program("zonal");
    command.arg("mount").arg("--foreground").arg("--log").arg(&log);
    command.args(std::iter::repeat_n("-v", global.verbose.into()));
    if let Some(kind) = args.kind {
        command.arg("--type").arg(kind.name());
    }
    if args.read_only {
        command.arg("--read-only");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    if let Some(options) = in_force {
        command.env(IN_FORCE, serde_json::to_string(options)?);
    }
    if let Some(path) = &args.counts {
        command
            .arg("--counts")
            .arg(std::path::absolute(path).context("resolving the path of the counts")?);
    }
    command.arg("--").arg(&args.device).arg(&args.dir);
    let pid = daemon::spawn(&mut command)
        .map_err(|error| anyhow!("{error}"))
        .with_context(|| format!("cannot mount {} at {}", args.device, args.dir.display()))?;
    if global.json {
        let answer = Answer { device: &args.device, mount: &args.dir, pid, log: &log };
        return json::document(&answer);
    }
    if !args.quiet {
        let dir = args.dir.display();
        sayln!("{} mounted at {dir}, served by process {pid}", args.device);
        sayln!("log: {}", log.display());
    }
    Ok(())
}

/// The options that mount(8) and users give, one by one.
fn items(args: &Mount) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|options| options.split(','))
}

fn in_foreground(args: &Mount, ready: impl FnOnce()) -> Result<()> {
    log_panics();
    let in_force: Option<Options> =
        std::env::var(IN_FORCE).ok().map(|json| serde_json::from_str(&json)).transpose()?;
    let (of_kind, of_all): (Vec<_>, Vec<_>) =
        items(args).partition(|option| kind::owner(option).is_some());
    let mut config = match &in_force {
        Some(Options { transport, mount, .. }) => {
            MountConfig { transport: *transport, ..mount.clone() }
        }
        None => MountConfig::new(&mounts::source(&args.device), &args.dir),
    };
    config.mount_point = args.dir.canonicalize().unwrap_or(args.dir.clone());
    if args.read_only {
        config.access = Access::ReadOnly;
    }
    config.apply(&of_all.join(","))?;
    let mode = match config.access {
        Access::ReadWrite => OpenMode::ReadWrite,
        Access::ReadOnly => OpenMode::ReadLocked,
    };
    let stack = release::open_when_released(&args.device, mode)
        .map_err(|error| release::named(error, &config.mount_point))?;
    let Opened { drives, files } = metadata::drives(&stack, mode, config.metadata.as_deref())
        .with_context(|| format!("mounting {}", args.device))?;
    let files: Vec<_> = stack.files.iter().cloned().chain(files).collect();
    release::refuse_hiding(&config.mount_point, &files)?;
    if let Some(path) = &args.counts {
        output::check(path, &files).with_context(|| format!("writing {}", path.display()))?;
    }
    if let Base::Device = stack.base {
        config.use_blocking_device_threads();
    }
    let mut options = match &in_force {
        Some(options) => Options::new(config, options.kind.clone()),
        None => kind::options(args.kind, &*stack.device, config)?,
    };
    for option in of_kind {
        kind::apply(&mut options, option)?;
    }
    if matches!(options.kind, KindOptions::Zonefs(_)) && args.counts.is_some() {
        bail!("--counts: zonefs has none, since it writes nothing of its own");
    }
    let mounted = Mounted::mount(&stack, drives, &options)
        .with_context(|| format!("the file system on {}", args.device))?;
    let (config, latencies) = (options.mount, Latencies::new(Arc::new(SystemClock::new())));
    let latencies = Arc::new(latencies);
    let control = mounted.controlled(&stack, config.clone(), Arc::clone(&latencies));
    // Before the mount is ready: a port that is in use is an error.
    let exporter = config.metrics.map(|address| export(address, &control)).transpose()?;
    let shown = Arc::clone(&control);
    let mut record = None;
    let content = MountContent { fs: mounted.fs(), control: Some(control), latencies };
    let served = serve_on(&*stack.device, content, &config, |served| {
        shown.set_served(served);
        let kept = in_force.iter().flat_map(Options::unshown);
        let given = items(args).map(ToOwned::to_owned).chain(kept);
        log_mount(given, &config, served, &shown);
        record = helper::record(&config, served.mount_type, &shown.options().unshown());
        ready();
    });
    if let Some(record) = record {
        record.forget();
    }
    drop(exporter);
    if let (Some(path), Some(counts)) = (&args.counts, mounted.counts()) {
        counts.save(path).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(served?)
}

/// Logs the device, the mount point and the options of a mount. `serve_on` logs its end.
fn log_mount(
    given: impl Iterator<Item = String>,
    config: &MountConfig,
    served: Served,
    control: &Control,
) {
    let access = match config.access {
        Access::ReadWrite => "rw",
        Access::ReadOnly => "ro",
    };
    let given = given.filter(|option| !["", "ro", "rw"].contains(&option.as_str()));
    let options = [access.to_owned()].into_iter().chain(given).collect::<Vec<_>>().join(",");
    tracing::info!(
        device = zonal::shown(&config.source),
        point = zonal::shown(&config.mount_point),
        kind = format!("{}.{}", served.mount_type.name(), config.kind),
        uuid = control.report().setting("uuid"),
        options,
        version = env!("CARGO_PKG_VERSION"),
        "mounted"
    );
}

/// Serves metrics for as long as the file system exists.
fn export(address: SocketAddr, control: &Arc<Control>) -> Result<Exporter> {
    let weak = Arc::downgrade(control);
    let source = move |dialect| weak.upgrade().map(|control| control.metrics(dialect));
    let exporter = Exporter::start(address, Arc::new(SystemClock::new()), Box::new(source))?;
    control.set_metrics(exporter.address());
    tracing::info!(address = %exporter.address(), "metrics are served");
    Ok(exporter)
}

/// Logs a panic and its place. The mount goes on, and is read-only from then on.
fn log_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        tracing::error!("{panic}");
    }));
}
