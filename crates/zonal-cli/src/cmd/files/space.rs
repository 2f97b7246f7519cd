//! `zonal df`: the space of file systems that are not mounted.

use anyhow::{Context, Result};
use serde::Serialize;
use zonal_fs::vfs::Access;

use super::open;
use crate::args::Global;
use crate::args::files::Space;
use crate::output::table::Table;
use crate::output::{count, json, size};

#[derive(Serialize)]
struct Report {
    device: String,
    bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    inodes: u64,
    inodes_free: u64,
}

/// Prints the space of each.
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
            bytes: bytes(space.blocks),
            used_bytes: bytes(space.blocks - space.blocks_free),
            free_bytes: bytes(space.blocks_free),
            inodes: space.inodes,
            inodes_free: space.inodes_free,
        });
    }
    if global.json {
        return json::document(&reports);
    }
    let mut table = Table::new(1, &["device", "size", "used", "free", "inodes"]);
    for report in reports {
        let sizes = [report.bytes, report.used_bytes, report.free_bytes].map(size);
        let row = std::iter::once(report.device).chain(sizes).chain([count(report.inodes)]);
        table.row(row.collect());
    }
    say!("{}", table.text());
    Ok(())
}
