//! `zonal dump`: the structures of a Furrow file system, one line of JSON each.

use anyhow::{Context, Result};
use zonal_fs::furrow;

use crate::args::Dump;
use crate::device::OpenMode;
use crate::metadata;
use crate::output::json;

/// Prints one kind of structure.
pub(crate) fn run(args: &Dump) -> Result<()> {
    let drives = metadata::open(&args.device, OpenMode::ReadLocked)?;
    tracing::debug!(what = ?args.what, "dumping");
    let mut printed = Ok(());
    furrow::dump(drives, args.what, &mut |value| {
        if printed.is_ok() {
            printed = json::line(&value);
        }
    })
    .with_context(|| format!("cannot dump {}", args.device))?;
    printed
}
