//! The figures of one run of a sweep.

use crate::config::{Config, Mode};
use crate::counting;
use crate::error::Result;
use crate::ftl::Counters;
use crate::timed;

/// Figures of a run, by column. A figure is empty if the run's mode does not measure it.
pub const FIGURES: [&str; 33] = [
    "op_nominal",
    "op_effective",
    "wa",
    "host_wa",
    "drive_wa",
    "drive_writes",
    "asked_bytes",
    "host_bytes",
    "moved_bytes",
    "padded_bytes",
    "rewritten_bytes",
    "explicit_commits",
    "implicit_commits",
    "commit_padded_bytes",
    "saved_bytes",
    "flash_bytes",
    "trimmed_bytes",
    "erased",
    "erases_min",
    "erases_mean",
    "erases_max",
    "seconds",
    "write_mb_s",
    "read_mb_s",
    "write_mean_us",
    "write_p99_us",
    "commit_mean_us",
    "read_mean_us",
    "read_p50_us",
    "read_p99_us",
    "read_p999_us",
    "read_p9999_us",
    "read_max_us",
];

/// Runs a config. The same config gives the same text.
pub(super) fn figures(config: &Config) -> Result<Vec<String>> {
    match config.run.mode {
        Mode::Counting => counting(config),
        Mode::Timed => timed(config),
    }
}

fn counting(config: &Config) -> Result<Vec<String>> {
    let report = counting::run(config, &mut |_| {})?;
    let (measured, unit) = (&report.measured, report.layout.unit);
    let mut figures = Vec::from([
        report.op_nominal.to_string(),
        report.op_effective.to_string(),
        ratio(report.wa),
        ratio(report.host_wa),
        ratio(report.drive_wa),
        report.drive_writes.to_string(),
        report.asked_bytes.to_string(),
        (measured.host * unit).to_string(),
        (measured.moved * unit).to_string(),
    ]);
    figures.extend(zone_costs(&report.drive_counters, unit));
    figures.extend([
        (measured.trimmed * unit).to_string(),
        measured.erased.to_string(),
        report.erases.min.to_string(),
        report.erases.mean.to_string(),
        report.erases.max.to_string(),
    ]);
    figures.resize(FIGURES.len(), String::new());
    Ok(figures)
}

/// A ratio, empty where it is one of nothing.
fn ratio(number: f64) -> String {
    if number.is_nan() { String::new() } else { number.to_string() }
}

/// Costs of finished zones and random write areas for the flash, and the savings of areas.
fn zone_costs(drive: &Counters, unit: u64) -> [String; 7] {
    [
        (drive.padded * unit).to_string(),
        (drive.rewritten * unit).to_string(),
        drive.explicit_commits.to_string(),
        drive.implicit_commits.to_string(),
        (drive.commit_padded * unit).to_string(),
        (drive.saved() * unit.cast_signed()).to_string(),
        (drive.programs() * unit).to_string(),
    ]
}

fn timed(config: &Config) -> Result<Vec<String>> {
    let measured = timed::run(config)?;
    let (outcome, counters) = (&measured.outcome, &measured.outcome.counters);
    let (reads, writes) = (outcome.reads.summary(), outcome.writes.summary());
    let commits = outcome.commits.summary();
    let latency = |count: u64, us: f64| if count > 0 { us.to_string() } else { String::new() };
    let written = |us| latency(writes.count, us);
    let read = |us| latency(reads.count, us);
    let unit = measured.layout.unit;
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^53")]
    let drive_writes = outcome.written_bytes as f64 / measured.layout.user_bytes() as f64;
    let mut figures = vec![
        measured.op_nominal.to_string(),
        measured.op_effective.to_string(),
        ratio(outcome.wa()),
        ratio(outcome.amplification.host),
        ratio(outcome.amplification.drive),
        drive_writes.to_string(),
        outcome.written_bytes.to_string(),
        (counters.host * unit).to_string(),
        (counters.moved * unit).to_string(),
    ];
    figures.extend(zone_costs(&outcome.drive, unit));
    figures.extend([
        (counters.trimmed * unit).to_string(),
        counters.erased.to_string(),
        outcome.erases.min.to_string(),
        outcome.erases.mean.to_string(),
        outcome.erases.max.to_string(),
        outcome.seconds.to_string(),
        outcome.write_mb_s.to_string(),
        outcome.read_mb_s.to_string(),
        written(writes.mean_us),
        written(writes.p99_us),
        latency(commits.count, commits.mean_us),
        read(reads.mean_us),
        read(reads.p50_us),
        read(reads.p99_us),
        read(reads.p999_us),
        read(reads.p9999_us),
        read(reads.max_us),
    ]);
    Ok(figures)
}
