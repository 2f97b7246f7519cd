//! Logging: to standard error, to a file with `--log`, and for a background mount to a file of its
//! own.
//!
//! Every writer of a log file opens it for appending and keeps it open, so logrotate can copy and
//! truncate it (`copytruncate`). `log/limit.rs` limits errors that repeat themselves.

mod limit;

use std::fs::{DirBuilder, File};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tracing::level_filters::LevelFilter;
use zonal::SystemClock;
use zonal::output::{self, Existing};

use crate::args::{Command, Global};
use crate::output::Stderr;
use limit::{Limit, Limited, Times};

/// The log of this program. Dropping it logs how many messages were omitted.
pub(crate) struct Log(Arc<Limit>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Starts logging as the options ask for.
pub(crate) fn start(global: &Global, command: &Command) -> Result<Log> {
    let level = match (global.verbose, command) {
        (0, Command::Mount(_)) | (1, _) => LevelFilter::INFO,
        (0, _) => LevelFilter::WARN,
        (2, _) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    let times = if global.log.is_some() { Times::Shown } else { Times::Hidden };
    let log = Log(Limit::new(Arc::new(SystemClock::new()), times));
    let limit = Arc::clone(&log.0);
    if let Some(path) = &global.log {
        let builder = builder.with_ansi(false).with_writer(Arc::new(open(path)?));
        builder.map_event_format(|inner| Limited { inner, limit }).init();
    } else {
        let builder = builder.with_writer(|| Stderr).without_time().with_ansi(has_colours());
        builder.map_event_format(|inner| Limited { inner, limit }).init();
    }
    Ok(log)
}

/// Whether standard error shows colours: a capable terminal does, unless `NO_COLOR` says otherwise.
fn has_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    rustix::stdio::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Opens a log file, making it and its directory if they are not there.
pub(crate) fn open(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
    }
    output::open(path, Existing::Append, &[])
        .with_context(|| format!("opening the log {}", path.display()))
}

/// Makes a directory of this user alone, in a place where another user may have put one before.
fn make_own(folder: &Path) -> Result<()> {
    let failed = || format!("creating {}", folder.display());
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(failed);
        }
        Ok(()) | Err(_) => {}
    }
    let found = folder.symlink_metadata().with_context(failed)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    bail!("{} is not a directory of this user alone; --log names another log", folder.display())
}

/// Where the background mount at `dir` logs: below /var/log for root, below the user's state
/// directory for others. The file is named after the directory.
pub(crate) fn of_mount(dir: &Path) -> Result<PathBuf> {
    let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
    let name: Vec<_> = dir.iter().skip(1).map(|part| part.to_string_lossy()).collect();
    let user = rustix::process::geteuid();
    let folder = if user.is_root() {
        PathBuf::from("/var/log")
    } else if let Some(state) = std::env::var_os("XDG_STATE_HOME") {
        state.into()
    } else if let Some(home) = std::env::var_os("HOME") {
        PathBuf::from(home).join(".local/state")
    } else {
        let folder = std::env::temp_dir().join(format!("zonal-{}", user.as_raw()));
        make_own(&folder)?;
        return Ok(folder.join(format!("{}.log", name.join("-"))));
    };
    Ok(folder.join("zonal").join(format!("{}.log", name.join("-"))))
}
