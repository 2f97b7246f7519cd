//! `zonal sim replay`: a block trace on a simulated drive.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use zonal_sim::config::{Layout, Mode, Pattern};
use zonal_sim::counting::{self, Report};
use zonal_sim::trace::{self, BadLines, Fit, ReplayTimes, Seen};
use zonal_sim::{Config, SimError};

use super::run::{Ran, amplification};
use crate::args::Global;
use crate::args::simulated::Simulated;
use crate::args::sweep::{DRIVE_WRITES_MAX, SimReplay, TraceFit};
use crate::output::{count, json, progress, size, table};

/// Replays the trace and prints the results.
pub(crate) fn run(global: &Global, args: &SimReplay) -> Result<()> {
    let config = config(args)?;
    replay(global, args, &config).map_err(|error| match (args.fit, error.downcast::<SimError>()) {
        (Some(TraceFit::Drive { op }), Ok(error)) => trace::of_fit(error, op).into(),
        (_, Ok(error)) => error.into(),
        (_, Err(error)) => error,
    })
}

fn replay(global: &Global, args: &SimReplay, config: &Config) -> Result<()> {
    if config.run.mode == Mode::Timed {
        let measured = super::run::watched(config)?;
        warn(measured.outcome.trace.as_ref(), &measured.layout);
        match (global.json, args.csv) {
            (true, _) => json::document(&Ran::Timed(measured.summary()))?,
            (_, true) => say!("{}", measured.table().csv()),
            _ => say!("{}", super::run::timed(&measured)),
        }
        return Ok(());
    }
    let bar = progress::bar(0, progress::Unit::Share, "replaying");
    let report = counting::run(config, &mut |progress| {
        if args.drive_writes.is_some() {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    });
    bar.finish_and_clear();
    let report = report?;
    warn(report.trace.as_ref(), &report.layout);
    if global.json {
        return json::document(&Ran::Counted(&report));
    }
    if args.csv {
        say!("{}", report.table().csv());
    } else {
        say!("{}", text(&report));
    }
    Ok(())
}

/// The config of the drive, with the trace of the arguments.
fn config(args: &SimReplay) -> Result<Config> {
    let (config, set, seed) = (args.config.clone(), args.set.clone(), args.seed);
    let mut config = super::load(&Simulated { config, set, seed })?;
    let path = args.trace.to_str().context("the name of the trace is not UTF-8")?;
    config.workload.kind = Pattern::Trace;
    path.clone_into(&mut config.workload.trace);
    let trace = &mut config.trace;
    trace.format = args.format.or(trace.format);
    if let Some(volume) = &args.volume {
        trace.volume.clone_from(volume);
    }
    trace.speed = args.speed.unwrap_or(trace.speed);
    if args.closed {
        trace.times = ReplayTimes::Closed;
    }
    match args.fit {
        Some(TraceFit::Addresses(fit)) => trace.fit = fit,
        Some(TraceFit::Drive { .. }) => trace.fit = Fit::Compact,
        None => {}
    }
    if args.skip_bad {
        trace.bad_lines = BadLines::Skip;
    }
    let run = &mut config.run;
    if run.mode == Mode::Counting || args.drive_writes.is_none() {
        run.warm_up = 0.0;
    }
    (trace.loops, run.drive_writes) = match (args.loops, args.drive_writes) {
        (_, Some(drive_writes)) => (0, run.warm_up + drive_writes),
        (loops, None) => (loops.unwrap_or(1), DRIVE_WRITES_MAX),
    };
    if let Some(TraceFit::Drive { op }) = args.fit {
        let touched = trace::touched_bytes(&args.trace, &config.trace)?;
        trace::size_drive(&mut config, touched, op)?;
    }
    config.check()?;
    Ok(config)
}

/// Warns of a trace that needs more room than the drive has.
pub(super) fn warn(seen: Option<&Seen>, layout: &Layout) {
    let Some(seen) = seen else { return };
    let holds = layout.user_bytes();
    if seen.touched_bytes > holds {
        let [touched, rest, holds] =
            [seen.touched_bytes, seen.touched_bytes - holds, holds].map(size);
        tracing::warn!(
            "the trace touches {touched}, the drive holds {holds}: {rest} have no addresses of \
             their own and overwrite other data of the trace; `--fit 7%` replays it on a drive of \
             its size"
        );
    }
}

fn text(report: &Report) -> String {
    let (counters, unit) = (&report.counters, report.layout.unit);
    let op = |share: f64| format!("{:.1} % of the user capacity", share * 100.0);
    let mut lines = VecDeque::from([
        ("nominal OP", op(report.op_nominal)),
        ("effective OP", op(report.op_effective)),
        ("asked to write", size(report.asked_bytes)),
        ("written", format!("{} in units of {}", size(counters.host * unit), size(unit))),
        ("drive writes", format!("{:.2}", report.drive_writes)),
        ("moved", size(counters.moved * unit)),
        ("trimmed", size(counters.trimmed * unit)),
        ("host wa", amplification(report.host_wa)),
        ("drive wa", amplification(report.drive_wa)),
        ("wa", amplification(report.wa)),
        ("erases", count(counters.erased)),
    ]);
    lines.extend(super::run::zone_costs(&report.drive_counters, unit));
    if let Some(seen) = &report.trace {
        let requests = format!("{}, {} of them reads", count(seen.requests), count(seen.reads));
        let mut first = vec![("requests", requests), ("loops", count(seen.loops.into()))];
        if seen.bad_lines > 0 {
            first.push(("bad lines", count(seen.bad_lines)));
        }
        first.push(("touched", size(seen.touched_bytes)));
        if seen.reached_bytes > 0 {
            first.push(("reached", format!("{} of the drive", size(seen.reached_bytes))));
        }
        if seen.shared > 0 {
            first.push(("shared", format!("{} MiB had no room of their own", count(seen.shared))));
        }
        for line in first.into_iter().rev() {
            lines.push_front(line);
        }
    }
    table::properties(lines.make_contiguous())
}
