//! `zonal serve ublk`: serves a device or a disk as a block device of this machine, and lists or
//! removes such block devices.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::shown;
use zonal_linux::own_disk;
use zonal_linux::ublk::{self, NamedDisk, Number, Queues, Source};

use crate::args::Global;
use crate::args::serve::Ublk;
use crate::device::{self, OpenMode};
use crate::notify;
use crate::output::table::Table;
use crate::output::{self, json};

use super::disks::{self, DiskSpec, Drives};

/// Most queues of a device, unless an option sets their number.
const QUEUES_USUAL: usize = 4;

/// The output: one device when it exists, or with `--list` all of them.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer<'a> {
    /// The device that is served.
    Served(Served<'a>),
    /// All ublk devices of this machine.
    Listed(Vec<Line>),
}

/// A device that is served.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Served<'a> {
    /// The block device.
    node: &'a Path,
    /// The device or the disk, as the command line names it.
    device: &'a str,
}

/// A ublk device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Line {
    /// The block device.
    node: PathBuf,
    /// Its state: `live`, `dead`, `waiting` or `failing`.
    state: &'static str,
    /// Whether it has zones.
    zoned: bool,
    /// Process that serves it; null without one.
    pid: Option<u32>,
}

/// Serves, lists or removes.
pub(super) fn run(global: &Global, args: &Ublk) -> Result<()> {
    match (&args.device, args.remove) {
        (Some(spec), _) => serve(global, args, spec),
        (None, Some(id)) => {
            ublk::remove(id).with_context(|| format!("removing {}", ublk::node(id).display()))
        }
        (None, None) => list(global),
    }
}

fn serve(global: &Global, args: &Ublk, spec: &str) -> Result<()> {
    let served = |source| {
        ublk::serve(source, number(args), queues(args), |node| {
            notify::ready();
            if let Err(error) = tell(global, node, spec) {
                tracing::warn!("{error:#}");
            }
        })
        .with_context(|| format!("serving {spec}"))
    };
    if !disks::is_disk(spec) {
        ensure!(!args.swap, "--swap is for disks, DEVICE//NAME; {} is a device", shown(spec));
        return served(Source::Device(device::open(spec, OpenMode::ReadWrite)?));
    }
    if args.swap {
        own_disk::serve_swap();
    }
    let mut drives = Drives::default();
    let parsed = DiskSpec::parse(spec)?;
    let disk = drives.open(&parsed)?;
    ensure!(
        !args.swap || drives.is_on_block_device(&parsed),
        "a disk on {} cannot be swap space: when memory is short, the kernel waits for itself; use a \
         block device with zones, such as /dev/nvme0n2, or leave --swap out",
        shown(parsed.device)
    );
    let unique = drives.unique_name(&parsed)?;
    let outcome = served(Source::Disk(NamedDisk { disk, unique }));
    drives.close()?;
    outcome
}

fn number(args: &Ublk) -> Number {
    match (args.recover, args.id) {
        (Some(id), _) => Number::Recovered(id),
        (None, Some(id)) => Number::New(id),
        (None, None) => Number::Any,
    }
}

fn queues(args: &Ublk) -> Queues {
    let usual = || thread::available_parallelism().map_or(1, usize::from).min(QUEUES_USUAL);
    let count = args.queues.unwrap_or_else(|| u16::try_from(usual()).expect("at most four"));
    Queues { count, depth: args.depth, threads: args.threads }
}

fn tell(global: &Global, node: &Path, spec: &str) -> Result<()> {
    output::announce(&if global.json {
        json::text(&Answer::Served(Served { node, device: spec }))?
    } else {
        format!("{} is {spec}\n", node.display())
    });
    Ok(())
}

fn list(global: &Global) -> Result<()> {
    let devices = ublk::list()?;
    let lines = devices.iter().map(|device| Line {
        node: ublk::node(device.id),
        state: device.state.name(),
        zoned: device.zoned,
        pid: device.server,
    });
    if global.json {
        return json::document(&Answer::Listed(lines.collect()));
    }
    let mut table = Table::new(3, &["device", "state", "zoned", "server"]);
    for line in lines {
        let zoned = if line.zoned { "yes" } else { "no" };
        let server = line.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let node = line.node.display().to_string();
        table.row(vec![node, line.state.into(), zoned.into(), server]);
    }
    say!("{}", table.text());
    Ok(())
}
