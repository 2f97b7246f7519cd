//! `zonal trace`: prints the record of the `trace(FILE):` layer, or repeats it and compares
//! results.

mod print;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::ZonedDevice;
use zonal::layer::trace::{TraceEnd, TraceReader, replay};

use crate::args::{Global, Replay, TraceCommand};
use crate::device;
use crate::output::{count, json, size};

/// A replay in which every result was as recorded.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    /// Requests of the trace.
    requests: u64,
    /// Bytes that they read and wrote.
    bytes: u64,
    /// Whether the recording process was stopped in the middle of a record.
    cut: bool,
}

/// Runs the subcommand.
pub(crate) fn run(global: &Global, command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Print(args) => print::run(global, args),
        TraceCommand::Replay(args) => replay_file(global, args),
    }
}

fn replay_file(global: &Global, args: &Replay) -> Result<()> {
    let name = args.trace.display();
    let mut trace = TraceReader::open(&args.trace)?;
    let inputs = [args.trace.clone()];
    let device = device::open_to_change(&args.device, args.force.overwrite(), &inputs)?.device;
    tracing::debug!(trace = %name, "replaying");
    let done = replay(&mut trace, &*device)
        .with_context(|| format!("replaying {name} on {}", args.device))?;
    device.flush().with_context(|| format!("flushing {}", args.device))?;
    tracing::info!(trace = %name, operations = done.operations, "replayed");
    let cut = done.end == TraceEnd::Cut;
    if global.json {
        let (requests, bytes) = (done.operations, done.bytes.get());
        return json::document(&Done { requests, bytes, cut });
    }
    let operations = count(done.operations);
    sayln!("{operations} operations, {}: every result as recorded", size(done.bytes.get()));
    if cut {
        sayln!("the trace ends in the middle of a record: the recording was interrupted");
    }
    Ok(())
}
