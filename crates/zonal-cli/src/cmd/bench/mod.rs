//! `zonal bench`: access patterns on a device, each compared with the limit of the machine, which
//! the same run measures.

mod limit;
mod queued;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::workload::{self, Latency, Measured, Pattern, Workload};
use zonal::{
    Clock, LbaCount, Select, SystemClock, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice,
};
use zonal_fs::furrow::Overwrite;
use zonal_sim::disk::account::HeadShares;

use self::limit::Limit;
use crate::args::{Bench, Global, Op};
use crate::device::{self, Base, Stack};
use crate::output::table::Table;
use crate::output::{count, size};
use crate::output::{head, json};

/// Bytes used of each zone, and zones of each thread: larger than a processor's cache together,
/// small enough for any machine's memory.
const SPAN_BYTES: u64 = 32 << 20;
const ZONES_PER_THREAD: u32 = 2;

/// Parts of the time: for latencies, whose measuring slows small operations down, and for the
/// limit.
const LATENCY_SHARE: f64 = 0.25;
const LIMIT_SHARE: f64 = 0.25;

/// One measurement.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Row {
    /// The operation: `write`, `append`, `read` or `randread`.
    operation: &'static str,
    /// Bytes of one operation.
    operation_bytes: u64,
    /// Threads that did it.
    threads: u32,
    /// Operations a second.
    iops: f64,
    /// 10^6 bytes a second.
    mb_per_s: f64,
    /// Mean time of an operation.
    mean_us: f64,
    /// Half of the operations took no longer.
    p50_us: f64,
    /// 99 of 100 operations took no longer.
    p99_us: f64,
    /// 999 of 1,000 operations took no longer.
    p999_us: f64,
    /// Time of the longest operation.
    max_us: f64,
    /// Processor time of an operation.
    cpu_us_per_op: f64,
    /// The limit of the machine: `memcpy`, `plain file` or `none`.
    limit: &'static str,
    /// Operations a second of the limit; 0 without a limit.
    limit_iops: f64,
    /// `iops` divided by `limit_iops`; 0 without a limit.
    ratio_to_limit: f64,
    /// The time and the head of a simulated disk; null of all else.
    head: Option<HeadShares>,
}

/// Measures and prints.
pub(crate) fn run(global: &Global, args: &Bench) -> Result<()> {
    let overwrite = if args.force { Overwrite::Force } else { Overwrite::Refuse };
    let Stack { device, base, .. } = device::open_to_change(&args.device, overwrite, &[])?;
    if device.virtual_queue().is_some() {
        return print(global, &queued::measure_all(&*device, args)?, "virtual time");
    }
    if queued::is_asked(args) {
        bail!(
            "{} is no simulated drive without layers, so --queue-depth, --zones, --beside-writes and \
             --beside-resets are not possible: --threads keeps several operations in flight",
            args.device
        );
    }
    let zones = choose_zones(&*device, args)?;
    let limit = Limit::of(&base)?;
    let system = SystemClock::new();
    let clock: &dyn Clock = match &base {
        Base::Simulated(clock) => &**clock,
        Base::Memory | Base::File(_) | Base::Device => &system,
    };
    let subject = Subject { device: &*device, clock, zones: &zones, limit: &limit };
    let measured = measure_each(&*device, args, |op, blocks| subject.measure(args, op, blocks));
    for zone in &zones {
        device
            .manage(Select::One(*zone), ZoneAction::Reset)
            .with_context(|| format!("emptying zone {zone} again"))?;
    }
    let note = match (&limit, &base) {
        (_, Base::Simulated(_)) => "virtual time, one call at a time".to_owned(),
        (Limit::None, _) => "no limit to compare a device with".to_owned(),
        (Limit::Memory | Limit::File(_), _) => {
            format!("limit: {} with the same operations, in the same run", limit.name())
        }
    };
    print(global, &measured?, &note)
}

fn print(global: &Global, rows: &[Row], note: &str) -> Result<()> {
    if global.json {
        return json::document(&rows);
    }
    say!("{}", table(rows));
    if let Some(table) = heads(rows) {
        say!("\n{table}");
    }
    sayln!("\n{note}");
    Ok(())
}

/// Measures each operation with each size.
fn measure_each(
    device: &dyn ZonedDevice,
    args: &Bench,
    measure: impl Fn(Op, LbaCount) -> Result<Row>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for op in &args.op {
        for bytes in &args.block_size {
            let mut blocks = device.geometry().blocks(usize::try_from(bytes.get())?)?;
            if *op == Op::Append {
                // The row has the size that the device takes.
                blocks = blocks.min(device.geometry().max_append());
            }
            rows.push(measure(*op, blocks)?);
        }
    }
    Ok(rows)
}

/// A device that is measured with real operations, and its limit.
struct Subject<'a> {
    device: &'a dyn ZonedDevice,
    clock: &'a dyn Clock,
    zones: &'a [ZoneId],
    limit: &'a Limit,
}

impl Subject<'_> {
    fn measure(&self, args: &Bench, op: Op, blocks: LbaCount) -> Result<Row> {
        let (device, clock) = (self.device, self.clock);
        let geometry = device.geometry();
        let (name, pattern) = pattern(op);
        tracing::debug!(operation = %name, %blocks, "measuring");
        let time = Duration::from_secs_f64(args.seconds);
        let after =
            |share| u64::try_from(time.mul_f64(share).as_nanos()).map(workload::Stop::AfterNs);
        let span = LbaCount::new(SPAN_BYTES >> geometry.block_size().shift());
        let workload = Workload {
            pattern,
            blocks,
            threads: args.threads,
            zones: self.zones.to_vec(),
            span: span.min(geometry.spec().zone_capacity),
            stop: after(1.0 - LATENCY_SHARE - LIMIT_SHARE)?,
            latency: Latency::Skip,
            seed: 1,
        };
        let what = || format!("{name} on {}", args.device);
        workload::prepare(device, &workload).with_context(what)?;
        let cpu = cpu_seconds();
        let mut measured = workload::run(device, clock, &workload).with_context(what)?;
        let cpu = cpu_seconds() - cpu;
        let timed = Workload { stop: after(LATENCY_SHARE)?, latency: Latency::Measure, ..workload };
        workload::prepare(device, &timed).with_context(what)?;
        measured.latency_ns = workload::run(device, clock, &timed).with_context(what)?.latency_ns;
        let bytes = geometry.bytes(blocks).get();
        let per_thread = geometry.bytes(timed.span).get() * u64::from(ZONES_PER_THREAD);
        let limit_iops = self.limit.measure(
            pattern,
            usize::try_from(bytes)?,
            args.threads,
            usize::try_from(per_thread)?,
            time.mul_f64(LIMIT_SHARE),
        )?;
        let row = Row::new(name, bytes, args.threads, &measured, cpu);
        Ok(row.beside(self.limit.name(), limit_iops))
    }
}

impl Row {
    /// The figures of one measurement, without a limit.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn new(
        operation: &'static str,
        operation_bytes: u64,
        threads: u32,
        measured: &Measured,
        cpu: f64,
    ) -> Self {
        let latency_us = |quantile| measured.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            operation,
            operation_bytes,
            threads,
            iops: measured.iops(),
            mb_per_s: measured.mb_per_s(),
            mean_us: measured.latency_ns.mean() / 1e3,
            p50_us: latency_us(0.5),
            p99_us: latency_us(0.99),
            p999_us: latency_us(0.999),
            max_us: measured.latency_ns.max() as f64 / 1e3,
            cpu_us_per_op: cpu * 1e6 / measured.operations.max(1) as f64,
            limit: "none",
            limit_iops: 0.0,
            ratio_to_limit: 0.0,
            head: None,
        }
    }

    /// The same row, compared with a limit of `limit_iops` operations a second; 0 for no limit.
    fn beside(self, limit: &'static str, limit_iops: f64) -> Self {
        let ratio_to_limit = if limit_iops > 0.0 { self.iops / limit_iops } else { 0.0 };
        Self { limit, limit_iops, ratio_to_limit, ..self }
    }
}

fn pattern(op: Op) -> (&'static str, Pattern) {
    match op {
        Op::Write => ("write", Pattern::Write),
        Op::Append => ("append", Pattern::Append),
        Op::Read => ("read", Pattern::Read),
        Op::Randread => ("randread", Pattern::RandomRead),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
fn table(rows: &[Row]) -> String {
    let mut table = Table::new(
        1,
        &[
            "op",
            "block",
            "threads",
            "IOPS",
            "MB/s",
            "mean µs",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "CPU µs",
            "of limit",
        ],
    );
    for row in rows {
        table.row(vec![
            row.operation.to_owned(),
            size(row.operation_bytes),
            row.threads.to_string(),
            count(row.iops.round() as u64),
            count(row.mb_per_s.round() as u64),
            format!("{:.1}", row.mean_us),
            format!("{:.1}", row.p50_us),
            format!("{:.1}", row.p99_us),
            format!("{:.1}", row.p999_us),
            format!("{:.2}", row.cpu_us_per_op),
            if row.limit_iops > 0.0 {
                format!("{:.0} %", row.ratio_to_limit * 100.0)
            } else {
                "-".to_owned()
            },
        ]);
    }
    table.text()
}

/// The head of a simulated disk in each measurement.
fn heads(rows: &[Row]) -> Option<String> {
    let names = ["op", "block"].into_iter().chain(head::COLUMNS);
    let mut table = Table::new(1, &names.collect::<Vec<_>>());
    for row in rows {
        let cells = head::cells(row.head.as_ref()?);
        let names = [row.operation.to_owned(), size(row.operation_bytes)];
        table.row(names.into_iter().chain(cells).collect());
    }
    Some(table.text())
}

/// Zones to work on: empty ones, or with `--force` any sequential ones.
fn choose_zones(device: &dyn ZonedDevice, args: &Bench) -> Result<Vec<ZoneId>> {
    let wanted = args.threads.saturating_mul(ZONES_PER_THREAD) as usize;
    let usable = |zone: &Zone| match zone.cond {
        ZoneCond::Empty => true,
        ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed | ZoneCond::Full => {
            args.force
        }
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => false,
    };
    let zones = device::report(device)?;
    let mut chosen: Vec<&Zone> = zones.iter().filter(|zone| usable(zone)).collect();
    chosen.sort_by_key(|zone| zone.cond != ZoneCond::Empty);
    chosen.truncate(wanted);
    if args.threads == 0 || chosen.len() < wanted {
        let found = chosen.len();
        bail!(
            "{} has {found} empty zones and {} threads need {wanted}: use fewer threads, or \
             --force to reset zones that hold data",
            args.device,
            args.threads
        );
    }
    Ok(chosen.into_iter().map(|zone| zone.id).collect())
}

/// Processor time of this process.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
