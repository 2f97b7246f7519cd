//! `zonal sim run`: one config, counting or timed.

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::Config;
use zonal_sim::config::Mode;
use zonal_sim::counting::Report;
use zonal_sim::ftl::Counters;
use zonal_sim::report::number;
use zonal_sim::timed::{self, LatencySummary, Measured, Summary};

use crate::args::Global;
use crate::args::sim::SimRun;
use crate::output::{count, json, progress, size, table};

/// The output of a run, by its mode.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, which is printed")]
pub(crate) enum Ran<'a> {
    /// Mode `counting`.
    Counted(&'a Report),
    /// Mode `timed`.
    Timed(Summary),
}

/// Runs the simulation and prints its results.
pub(crate) fn run(global: &Global, args: &SimRun) -> Result<()> {
    let config = super::load(&args.simulated)?;
    match config.run.mode {
        Mode::Counting => {
            let bar = progress::bar(0, progress::Unit::Share, "simulating");
            let report = zonal_sim::counting::run(&config, &mut |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.done);
            })?;
            bar.finish_and_clear();
            super::replay::warn(report.trace.as_ref(), &report.layout);
            match (global.json, args.csv) {
                (true, _) => json::document(&Ran::Counted(&report))?,
                (_, true) => say!("{}", report.table().csv()),
                _ => say!("{}", counted(&report)),
            }
        }
        Mode::Timed => {
            let measured = watched(&config)?;
            super::replay::warn(measured.outcome.trace.as_ref(), &measured.layout);
            match (global.json, args.csv) {
                (true, _) => json::document(&Ran::Timed(measured.summary()))?,
                (_, true) => say!("{}", measured.table().csv()),
                _ => say!("{}", timed(&measured)),
            }
        }
    }
    Ok(())
}

/// Runs a config in timed mode, with a progress bar.
pub(super) fn watched(config: &Config) -> Result<Measured> {
    let bar = progress::bar(0, progress::Unit::Share, "simulating");
    let measured = timed::run_watched(config, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    Ok(measured?)
}

fn percent(share: f64) -> String {
    format!("{:.1} % of the user capacity", 100.0 * share)
}

/// Padding of finished zones, bytes that the host wrote again in random write areas, and the
/// commits of these areas.
pub(super) fn zone_costs(drive: &Counters, unit: u64) -> Vec<(&'static str, String)> {
    let lines = [("padded", drive.padded), ("rewritten", drive.rewritten)];
    let lines = lines.into_iter().filter(|(_, units)| *units > 0);
    let mut lines: Vec<_> = lines.map(|(name, units)| (name, size(units * unit))).collect();
    let Counters { explicit_commits, implicit_commits, commit_padded, .. } = *drive;
    if explicit_commits + implicit_commits > 0 {
        let (explicit, implicit) = (count(explicit_commits), count(implicit_commits));
        let padding = size(commit_padded * unit);
        let text = format!("{explicit} explicit, {implicit} implicit; padded {padding}");
        lines.push(("commits", text));
    }
    lines
}

/// A write amplification, or why there is none.
pub(super) fn amplification(wa: f64) -> String {
    if wa.is_nan() {
        "– (nothing was written while measuring)".into()
    } else {
        format!("{wa:.3}")
    }
}

/// Bytes of flash for each byte that the host asked to write; `None` if that is about the write
/// amplification.
fn per_asked_byte(wa: f64, flash: f64) -> Option<(&'static str, String)> {
    let differs = (flash / wa - 1.0).abs() > 0.01;
    differs.then(|| ("per byte", format!("{flash:.3} bytes of flash per byte asked for")))
}

fn counted(report: &Report) -> String {
    let (measured, unit) = (&report.measured, report.layout.unit);
    let erases = &report.erases;
    let mut lines = vec![
        ("name", report.config.name.clone()),
        ("nominal OP", percent(report.op_nominal)),
        ("effective OP", percent(report.op_effective)),
        ("measured", format!("{} drive writes", number(report.drive_writes))),
        ("written", size(measured.host * unit)),
        ("moved", size(measured.moved * unit)),
    ];
    lines.extend(zone_costs(&report.drive_counters, unit));
    lines.push(("wa", amplification(report.wa)));
    lines.extend(per_asked_byte(report.wa, report.flash_per_asked_byte));
    let erased = format!(
        "{} superblocks; each {} to {} times since the beginning, {} in the mean",
        count(measured.erased),
        erases.min,
        erases.max,
        number(erases.mean)
    );
    lines.push(("erases", erased));
    table::properties(&lines)
}

pub(super) fn timed(measured: &Measured) -> String {
    let outcome = &measured.outcome;
    let mut lines = vec![
        ("name", measured.config.name.clone()),
        ("nominal OP", percent(measured.op_nominal)),
        ("effective OP", percent(measured.op_effective)),
        ("measured", format!("{} s of simulated time", number(outcome.seconds))),
    ];
    if outcome.written_bytes > 0 {
        lines.push(("writes", format!("{:.1} MB/s", outcome.write_mb_s)));
        lines.push(("latency", latency(&outcome.writes.summary())));
        if outcome.commits.count() > 0 {
            lines.push(("commit time", latency(&outcome.commits.summary())));
        }
        lines.extend(zone_costs(&outcome.drive, measured.layout.unit));
        lines.push(("wa", amplification(outcome.wa())));
        lines.extend(per_asked_byte(outcome.wa(), measured.flash_per_asked()));
    }
    if outcome.read_bytes > 0 {
        lines.push(("reads", format!("{:.1} MB/s", outcome.read_mb_s)));
        lines.push(("latency", latency(&outcome.reads.summary())));
    }
    table::properties(&lines)
}

fn latency(summary: &LatencySummary) -> String {
    format!(
        "{} µs in the mean; 50 % within {}, 99 % {}, 99.9 % {}, all {}",
        number(summary.mean_us),
        number(summary.p50_us),
        number(summary.p99_us),
        number(summary.p999_us),
        number(summary.max_us)
    )
}
