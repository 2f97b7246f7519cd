//! Measurements on a device in virtual time, with many operations in flight.

use anyhow::{Context, Result, bail};
use zonal::workload::queued::{self, Beside, Workload};
use zonal::{LbaCount, ZonedDevice};
use zonal_sim::disk::account::HeadShares;

use super::{Row, pattern};
use crate::args::{Bench, Op};

/// Bytes of a write during the operations.
const BESIDE_BYTES: u64 = 128 << 10;

/// Whether the arguments need a device in virtual time.
pub(super) fn is_asked(args: &Bench) -> bool {
    args.queue_depth > 1
        || args.zones.is_some()
        || args.beside_writes.is_some()
        || args.beside_resets
}

/// Measures each operation with each size.
pub(super) fn measure_all(device: &dyn ZonedDevice, args: &Bench) -> Result<Vec<Row>> {
    if args.queue_depth == 0 || args.zones == Some(0) || args.threads == 0 {
        bail!("nothing is measured with a queue depth, zones or threads of 0");
    }
    super::measure_each(device, args, |op, blocks| measure(device, args, op, blocks))
}

fn measure(device: &dyn ZonedDevice, args: &Bench, op: Op, blocks: LbaCount) -> Result<Row> {
    let (name, pattern) = pattern(op);
    tracing::debug!(operation = %name, %blocks, depth = args.queue_depth, "measuring");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time saturates at centuries"
    )]
    let time_ns = (args.seconds * 1e9) as u64;
    let workload = Workload {
        pattern,
        blocks,
        zones: args.zones.unwrap_or(args.threads),
        depth: args.queue_depth,
        time_ns,
        seed: 1,
        beside: beside(device, args),
    };
    let cpu = super::cpu_seconds();
    let measured =
        queued::run(device, &workload).with_context(|| format!("{name} on {}", args.device))?;
    let cpu = super::cpu_seconds() - cpu;
    let bytes = device.geometry().bytes(blocks).get();
    let head = measured.head.map(|work| HeadShares::new(work, measured.main.time_ns));
    Ok(Row { head, ..Row::new(name, bytes, args.threads, &measured.main, cpu) })
}

fn beside(device: &dyn ZonedDevice, args: &Bench) -> Beside {
    match args.beside_writes {
        Some(bytes) => {
            let blocks = LbaCount::new(BESIDE_BYTES >> device.geometry().block_size().shift());
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let bytes_s = bytes.get() as f64;
            Beside::Writes { blocks, bytes_s }
        }
        None if args.beside_resets => Beside::Resets,
        None => Beside::Nothing,
    }
}
