//! `zonal dump`: the structures of a Furrow file system, one line of JSON each.

use std::sync::Arc;

use anyhow::{Context, Result};
use zonal_fs::furrow;

use crate::args::Dump;
use crate::device::{self, OpenMode};
use crate::output::json;

/// Prints one kind of structure.
pub(crate) fn run(args: &Dump) -> Result<()> {
    let device = device::open(&args.device, OpenMode::ReadLocked)?;
    tracing::debug!(what = ?args.what, "dumping");
    let mut printed = Ok(());
    furrow::dump(Arc::clone(&device), args.what, &mut |value| {
        if printed.is_ok() {
            printed = json::line(&value);
        }
    })
    .with_context(|| format!("cannot dump {}", args.device))?;
    printed
}
