//! `zonal df`: the space of file systems that are not mounted.

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_fs::vfs::Access;

use super::open;
use crate::args::Global;
use crate::args::files::Space;
use crate::output::table::Table;
use crate::output::{count, json, size};

/// Space of a file system.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The device, as the command line names it.
    device: String,
    /// Space for files.
    size_bytes: u64,
    /// Space that files take.
    used_bytes: u64,
    /// Space that files may still fill.
    available_bytes: u64,
    /// Number of inodes.
    inodes: u64,
    /// Number of inodes that exist or can still be made, as `df -i` counts them.
    inodes_max: u64,
    /// Inodes that can still be made.
    inodes_free: u64,
}

/// Prints the space of each file system.
pub(crate) fn run(global: &Global, args: &Space) -> Result<()> {
    let mut reports = Vec::new();
    for device in &args.devices {
        let device = device.to_str().context("a device's name is not UTF-8")?;
        // As `ls` has it, so that one command line can become the other.
        let device = device.strip_suffix(":/").unwrap_or(device);
        let space = open(device, Access::ReadOnly)?.space()?;
        let bytes = |blocks: u64| blocks * u64::from(space.block_size);
        reports.push(Report {
            device: device.to_owned(),
            size_bytes: bytes(space.blocks),
            used_bytes: bytes(space.blocks - space.blocks_free),
            available_bytes: bytes(space.blocks_free),
            inodes: space.inodes,
            inodes_max: space.inodes.saturating_add(space.inodes_free),
            inodes_free: space.inodes_free,
        });
    }
    if global.json {
        return json::document(&reports);
    }
    let mut table = Table::new(1, &["device", "size", "used", "free", "inodes"]);
    for report in reports {
        let sizes = [report.size_bytes, report.used_bytes, report.available_bytes].map(size);
        let row = std::iter::once(report.device).chain(sizes).chain([count(report.inodes)]);
        table.row(row.collect());
    }
    say!("{}", table.text());
    Ok(())
}
