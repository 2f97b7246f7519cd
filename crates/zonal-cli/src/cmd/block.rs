//! `zonal read`, `write` and `append`: blocks as they are, for scripts and tests.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::output::{self, Existing};
use zonal::{Lba, LbaCount, ZoneId, ZonedDevice};

use crate::args::{Append, Global, Read, Write};
use crate::device::{self, OpenMode, Stack};
use crate::output::{Stdout, json};

/// Bytes that are held in memory at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Blocks that were read, written or appended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    /// Address of the first block.
    lba: u64,
    /// Number of blocks.
    blocks: u64,
}

/// Reads blocks to a file or to standard output.
pub(crate) fn read(global: &Global, args: &Read) -> Result<()> {
    let Stack { device, files, .. } = device::open_stack(&args.device, OpenMode::ReadOnly)?;
    let mut out: Box<dyn io::Write> = match args.output.as_deref() {
        Some(path) if path != Path::new("-") => {
            let file = output::open(path, Existing::Replace, &files);
            Box::new(file.with_context(|| format!("creating {}", path.display()))?)
        }
        _ if global.json => bail!("--json needs --output FILE for the data"),
        _ => Box::new(Stdout),
    };
    let block_bytes = device.geometry().block_size().bytes();
    let piece = PIECE_BYTES / block_bytes;
    let (mut lba, limit) = (args.lba, args.lba.saturating_add(args.blocks));
    while lba < limit {
        let blocks = piece.min(limit - lba);
        let mut buffer = vec![0; usize::try_from(blocks * block_bytes)?];
        device
            .read(Lba::new(lba), &mut buffer)
            .with_context(|| format!("reading {blocks} blocks at {lba} of {}", args.device))?;
        tracing::debug!(lba, blocks, "read");
        out.write_all(&buffer).context("writing the data")?;
        lba += blocks;
    }
    out.flush().context("writing the data")?;
    if global.json {
        json::document(&Done { lba: args.lba, blocks: args.blocks })?;
    }
    Ok(())
}

/// Writes blocks at an address.
pub(crate) fn write(global: &Global, args: &Write) -> Result<()> {
    let inputs = args.input.as_slice();
    let device = device::open_to_change(&args.device, args.force.overwrite(), inputs)?.device;
    let mut lba = Lba::new(args.lba);
    each_piece(&*device, args.input.as_deref(), PIECE_BYTES, |data, blocks| {
        device
            .write(lba, data)
            .with_context(|| format!("writing {blocks} blocks at {lba} of {}", args.device))?;
        tracing::debug!(%lba, %blocks, "written");
        lba += blocks;
        Ok(())
    })?;
    device.flush().with_context(|| format!("flushing {}", args.device))?;
    let blocks = (lba - Lba::new(args.lba)).get();
    if global.json {
        return json::document(&Done { lba: args.lba, blocks });
    }
    sayln!("{blocks} blocks at {}", args.lba);
    Ok(())
}

/// Appends blocks to a zone, in pieces as large as the device takes.
pub(crate) fn append(global: &Global, args: &Append) -> Result<()> {
    let inputs = args.input.as_slice();
    let device = device::open_to_change(&args.device, args.force.overwrite(), inputs)?.device;
    let geometry = device.geometry();
    let zone = ZoneId::new(args.zone);
    let piece_bytes = geometry.bytes(geometry.max_append()).get().min(PIECE_BYTES);
    each_piece(&*device, args.input.as_deref(), piece_bytes, |data, blocks| {
        let lba = device.append(zone, data).with_context(|| {
            format!("appending {blocks} blocks to zone {zone} of {}", args.device)
        })?;
        tracing::debug!(%zone, %lba, %blocks, "appended");
        if global.json {
            return json::line(&Done { lba: lba.get(), blocks: blocks.get() });
        }
        sayln!("{blocks} blocks at {lba}");
        Ok(())
    })?;
    device.flush().with_context(|| format!("flushing {}", args.device))
}

/// Reads the input in pieces of whole blocks, the last one padded with zeroes.
fn each_piece(
    device: &dyn ZonedDevice,
    input: Option<&Path>,
    piece_bytes: u64,
    mut each: impl FnMut(&[u8], LbaCount) -> Result<()>,
) -> Result<()> {
    let (mut source, name): (Box<dyn io::Read>, String) = match input {
        Some(path) => {
            let name = path.display().to_string();
            (Box::new(File::open(path).with_context(|| format!("opening {name}"))?), name)
        }
        None => (Box::new(io::stdin().lock()), "standard input".to_owned()),
    };
    let block_bytes = usize::try_from(device.geometry().block_size().bytes())?;
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        source
            .by_ref()
            .take(piece_bytes)
            .read_to_end(&mut buffer)
            .with_context(|| format!("reading {name}"))?;
        if buffer.is_empty() {
            return Ok(());
        }
        buffer.resize(buffer.len().next_multiple_of(block_bytes), 0);
        each(&buffer, device.geometry().blocks(buffer.len())?)?;
    }
}
