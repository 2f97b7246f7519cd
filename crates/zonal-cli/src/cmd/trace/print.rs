//! `zonal trace print`: the operations of a trace, a line each, and their sums.

use std::borrow::Cow;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use zonal::error::NvmeStatus;
use zonal::layer::meter::OpKind;
use zonal::layer::trace::{TraceEnd, TraceOperation, TraceReader};
use zonal::{ByteCount, Lba, LbaCount, Select, shown};

use crate::args::Global;
use crate::args::trace::Print;
use crate::output::table::Table;
use crate::output::{Stdout, count, json, size};

/// An operation, as JSON has it. Addresses and lengths are in blocks.
#[derive(Serialize)]
struct Line {
    index: u64,
    operation: &'static str,
    zone: Option<u32>,
    /// Whether the operation acted on all zones.
    all_zones: bool,
    lba: Option<u64>,
    blocks: Option<u64>,
    /// `ok`, or NVMe's name of the failure.
    result: String,
}

/// How many operations there are of a kind.
#[derive(Serialize)]
struct Sum {
    operation: &'static str,
    operations: u64,
    failed: u64,
    /// Bytes of operations that did not fail.
    bytes: u64,
}

#[derive(Serialize)]
struct Summary<'a> {
    operations: &'a [Sum],
    /// Whether the recording process was stopped in the middle of a record.
    cut: bool,
}

/// Prints the operations, then the sums.
pub(crate) fn run(global: &Global, args: &Print) -> Result<()> {
    let mut trace = TraceReader::open(&args.trace)?;
    let mut out = Output { lines: BufWriter::new(Stdout), is_json: global.json };
    let mut sums =
        OpKind::ALL.map(|kind| Sum { operation: kind.name(), operations: 0, failed: 0, bytes: 0 });
    if !args.summary {
        out.head()?;
    }
    let mut read = 0;
    let end = loop {
        let operation = match trace.operation() {
            Ok(Ok(operation)) => operation,
            Ok(Err(end)) => break Ok(end),
            Err(error) => break Err(error),
        };
        read += 1;
        if !is_wanted(args, &operation) {
            continue;
        }
        let sum = &mut sums[operation.kind as usize];
        sum.operations += 1;
        if operation.failure.is_some() {
            sum.failed += 1;
        } else {
            sum.bytes = sum.bytes.saturating_add(moved(&trace, &operation).get());
        }
        if !args.summary {
            out.operation(&operation)?;
        }
    };
    out.lines.flush()?;
    let sums: Vec<Sum> = sums.into_iter().filter(|sum| sum.operations > 0).collect();
    let cut = matches!(end, Ok(TraceEnd::Cut));
    match (global.json, args.summary) {
        (true, true) => json::document(&Summary { operations: &sums, cut })?,
        (true, false) => {}
        (false, true) => print_sums(&sums),
        (false, false) => {
            sayln!("");
            print_sums(&sums);
        }
    }
    match end? {
        TraceEnd::Whole => Ok(()),
        TraceEnd::Cut => bail!(
            "{} ends in the middle of operation {read}: the recording was interrupted",
            shown(&args.trace)
        ),
    }
}

fn is_wanted(args: &Print, operation: &TraceOperation) -> bool {
    let of_zone = match operation.zones {
        _ if args.zone.is_empty() => true,
        Some(Select::One(zone)) => args.zone.contains(&zone.get()),
        Some(Select::All) => true,
        None => false,
    };
    of_zone && (args.op.is_empty() || args.op.contains(&operation.kind))
}

/// Bytes that an operation read or wrote.
fn moved(trace: &TraceReader<std::fs::File>, operation: &TraceOperation) -> ByteCount {
    match operation.kind {
        OpKind::Read | OpKind::Write | OpKind::Append => {
            trace.bytes(operation.blocks.unwrap_or(LbaCount::ZERO))
        }
        OpKind::Report
        | OpKind::Open
        | OpKind::Close
        | OpKind::Finish
        | OpKind::Reset
        | OpKind::Flush
        | OpKind::Deallocate => ByteCount::ZERO,
    }
}

fn print_sums(sums: &[Sum]) {
    let mut table = Table::new(1, &["operation", "count", "failed", "data"]);
    for sum in sums {
        let name = sum.operation.to_owned();
        let data = if sum.bytes > 0 { size(sum.bytes) } else { "-".to_owned() };
        table.row(vec![name, count(sum.operations), count(sum.failed), data]);
    }
    say!("{}", table.text());
}

/// Standard output, a line for each operation. A trace can have millions.
struct Output {
    lines: BufWriter<Stdout>,
    is_json: bool,
}

impl Output {
    fn head(&mut self) -> Result<()> {
        if self.is_json {
            return Ok(());
        }
        Ok(writeln!(
            self.lines,
            "{:>8}  {:<10}  {:>6}  {:>12}  {:>8}  result",
            "number", "operation", "zone", "lba", "blocks"
        )?)
    }

    fn operation(&mut self, operation: &TraceOperation) -> Result<()> {
        let TraceOperation { index, kind, zones, lba, blocks, failure } = operation;
        let result = failure.map_or(Cow::Borrowed("ok"), result_name);
        if self.is_json {
            let zone = match zones {
                Some(Select::One(zone)) => Some(zone.get()),
                Some(Select::All) | None => None,
            };
            let line = Line {
                index: *index,
                operation: kind.name(),
                zone,
                all_zones: *zones == Some(Select::All),
                lba: lba.map(Lba::get),
                blocks: blocks.map(LbaCount::get),
                result: result.into_owned(),
            };
            let line = serde_json::to_string(&line).context("turning the result into JSON")?;
            writeln!(self.lines, "{line}")?;
        } else {
            let zone = match zones {
                Some(Select::One(zone)) => zone.to_string(),
                Some(Select::All) => "all".to_owned(),
                None => "-".to_owned(),
            };
            let or_dash = |number: Option<u64>| {
                number.map_or_else(|| "-".to_owned(), |number| number.to_string())
            };
            let (lba, blocks) = (or_dash(lba.map(Lba::get)), or_dash(blocks.map(LbaCount::get)));
            writeln!(
                self.lines,
                "{index:>8}  {:<10}  {zone:>6}  {lba:>12}  {blocks:>8}  {result}",
                kind.name()
            )?;
        }
        Ok(())
    }
}

fn result_name(status: NvmeStatus) -> Cow<'static, str> {
    match status.name() {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("status {}:{:#04x}", status.kind, status.code)),
    }
}
