//! `kernel-tests-guest calls DIR`: random calls on a mounted zonefs, and the result of each.
//!
//! The log of one mount is compared with that of another: the kernel's zonefs against ours. All
//! that the program needs is a mount point and a seed. `plan.rs` chooses the calls, `session.rs`
//! makes them, `compare.rs` compares two logs.

mod backing_device;
pub(crate) mod compare;
mod plan;
mod result;
mod session;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use self::backing_device::BackingDevice;
use self::plan::{Call, Finish, Peace, Planner, View};
use self::session::Session;

/// What to do on which mount.
#[derive(Args)]
pub(crate) struct Calls {
    /// The mount point
    pub(crate) dir: PathBuf,
    /// Chooses the calls
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many
    #[arg(long, default_value_t = 1000)]
    pub(crate) count: u32,
    /// Finish only files that hold something and are open: whether finishing others counts against
    /// the limits of open and active zones differs from drive to drive
    #[arg(long)]
    pub(crate) limited: bool,
    /// Let zones fail and be written past the file system: through the control
    /// directory of this mount, or through this `null_blk` device
    #[arg(long, value_name = "PATH")]
    pub(crate) device: Option<PathBuf>,
}

/// How many of the sequential files take part: few, so that calls meet.
const SEQUENTIAL_FIRST: u32 = 4;

/// Where zones fail, more.
const SEQUENTIAL_FAILING: u32 = 10;

/// Lists everything, then makes the calls; a line each.
pub(crate) fn run(calls: &Calls, log: &mut impl Write) -> Result<()> {
    let device = calls.device.as_deref().map(BackingDevice::new).transpose()?;
    let (peace, count) = match device {
        None => (Peace::Kept, SEQUENTIAL_FIRST),
        Some(_) => (Peace::Broken, SEQUENTIAL_FAILING),
    };
    let mut session = Session::new(&calls.dir, device);
    let (dirs, files) = tree(&calls.dir)?;
    let stats = dirs.iter().chain(&files).map(|path| Call::Stat { path: path.clone() });
    let lists = dirs.iter().map(|dir| Call::List { dir: dir.clone() });
    for call in lists.chain(stats).chain([Call::Statfs]) {
        writeln!(log, "{call:?} = {}", session.make(&call))?;
    }
    let files = chosen(&files, count);
    let finish = if calls.limited { Finish::OpenAndWritten } else { Finish::Any };
    let mut planner = Planner { rng: ChaCha8Rng::seed_from_u64(calls.seed), finish, peace };
    for _ in 0..calls.count {
        let open = session.open_slots();
        let view = View { files: &files, dirs: &dirs, open: &open };
        let call = planner.next(&view, |slot| session.shape(slot));
        let file = session.slot_path(&call).map(|file| format!(" on {file}")).unwrap_or_default();
        let answer = session.make(&call);
        writeln!(log, "{call:?}{file} = {answer}")?;
    }
    log.flush().context("writing the log")
}

/// Directories and files, as the names go.
fn tree(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let (mut dirs, mut files) = (vec![String::new()], Vec::new());
    for dir in ["cnv", "seq"] {
        let path = root.join(dir);
        if !path.is_dir() {
            continue;
        }
        dirs.push(dir.to_owned());
        let count = std::fs::read_dir(&path).context("listing the mount")?.count();
        files.extend((0..count).map(|number| format!("{dir}/{number}")));
    }
    Ok((dirs, files))
}

/// All conventional files, the first sequential ones and the last, which may be smaller.
fn chosen(files: &[String], count: u32) -> Vec<String> {
    let first: Vec<String> = (0..count).map(|number| format!("seq/{number}")).collect();
    let last = files.last();
    files
        .iter()
        .filter(|path| path.starts_with("cnv/") || first.contains(path) || last == Some(path))
        .cloned()
        .collect()
}
