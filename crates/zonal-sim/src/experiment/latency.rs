//! Latency of random reads while something writes at a limited rate.

use serde::Deserialize;

use super::plan::{Plan, Values, Variant};
use super::pool::{Answer, Task};
use super::{Findings, Measure, slug};
use crate::error::Result;
use crate::report::{Axis, Cell, Chart, Form, Picture, Series, Table, zbdbench};
use crate::timed::Measured;

/// The rates to measure at.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Latency {
    /// Writes, 10^6 bytes a second.
    rates_mb_s: Vec<f64>,
    /// Simulated seconds at each.
    seconds: f64,
    /// Name of the drive that the others are compared with.
    reference: String,
}

impl Measure for Latency {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for drive in &plan.drives {
            for rate in &plan.measure.rates_mb_s {
                let mut more = vec![
                    ("run.mode", "timed".to_owned()),
                    ("run.seconds", plan.measure.seconds.to_string()),
                    ("run.drive_writes", plan.drive_writes(drive)?),
                    ("workload.write_mb_s", rate.to_string()),
                ];
                if *rate <= 0.0 {
                    more.push(("workload.write_depth", "0".into()));
                }
                tasks.push(Task::new(plan.config(drive, &more)?));
            }
        }
        Ok(tasks)
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let rates = &plan.measure.rates_mb_s;
        let runs = || plan.drives.iter().zip(answers.chunks_exact(rates.len().max(1)));
        let mut values = Values::default();
        for (drive, answers) in runs() {
            for (rate, run) in points(rates, answers) {
                values.add(format!("{} at {rate}", drive.name), run.outcome.reads.mean_us());
            }
        }
        let mut better = Chart {
            title: format!("Mean read latency: by how much {} is better", plan.measure.reference),
            x: Axis::linear("writes, MB/s"),
            y: Axis::linear("lower mean latency, %"),
            series: Vec::new(),
        };
        let reference = runs().find(|(drive, _)| drive.name == plan.measure.reference);
        if let Some((_, reference)) = reference {
            let others = runs().filter(|(drive, _)| drive.name != plan.measure.reference);
            better.series.extend(others.enumerate().map(|(at, (drive, answers))| {
                improvement(at + 1, drive, &points(rates, reference), &points(rates, answers))
            }));
        }
        better.series.extend(plan.published());
        let mut mean =
            chart("Mean latency of 4 KiB random reads, one at a time", &runs, rates, None);
        mean.series.extend(plan.overlays());
        let tail = chart("99 % of the reads are faster", &runs, rates, Some(0.99));
        Ok(Findings {
            pictures: [mean, better, tail].map(Picture::Chart).into(),
            tables: std::iter::once(table(runs(), rates))
                .chain(runs().map(|(drive, answers)| as_zbdbench(drive, rates, answers)))
                .collect(),
            values,
            charts: Vec::new(),
        })
    }
}

impl Plan<Latency> {
    /// All drive writes are warm-up: the measured part is given in seconds.
    fn drive_writes(&self, drive: &Variant) -> Result<String> {
        let config = self.config(drive, &[("run.drive_writes", "1000".into())])?;
        Ok(config.run.warm_up.to_string())
    }
}

/// The runs in which the drive took the writes at the rate that was asked for: only they count.
fn points<'a>(rates: &[f64], answers: &'a [Answer]) -> Vec<(f64, &'a Measured)> {
    let runs = rates.iter().copied().zip(answers.iter().map(Answer::timed));
    runs.filter(|(_, run)| run.reaches_rate()).collect()
}

/// By how many percent the reference's mean is below another drive's, where both have one.
fn improvement(
    colour: usize,
    drive: &Variant,
    reference: &[(f64, &Measured)],
    other: &[(f64, &Measured)],
) -> Series {
    let mean = |run: &Measured| run.outcome.reads.mean_us();
    let pairs = reference.iter().filter_map(|(rate, run)| {
        let (_, other) = other.iter().find(|(other, _)| other.total_cmp(rate).is_eq())?;
        Some((*rate, 100.0 * (1.0 - mean(run) / mean(other))))
    });
    Series::new(&drive.name, Form::Marked, colour, pairs.collect())
}

fn chart<'a, R>(title: &str, runs: &dyn Fn() -> R, rates: &[f64], share: Option<f64>) -> Chart
where
    R: Iterator<Item = (&'a Variant, &'a [Answer])>,
{
    let value = |run: &Measured| match share {
        None => run.outcome.reads.mean_us(),
        Some(share) => run.outcome.reads.quantile_us(share),
    };
    let series = runs().enumerate().map(|(at, (drive, answers))| {
        let points = points(rates, answers);
        let points = points.iter().map(|(rate, run)| (*rate, value(run)));
        Series::new(&drive.name, Form::Marked, at, points.collect())
    });
    Chart {
        title: title.into(),
        x: Axis::linear("writes, MB/s"),
        y: Axis::linear("read latency, µs"),
        series: series.collect(),
    }
}

/// The runs as zbdbench's `fio_zone_mixed` has them. Its rates are 2^20 bytes a second, ours 10^6.
fn as_zbdbench(drive: &Variant, rates: &[f64], answers: &[Answer]) -> Table {
    let mix = |(rate, run): (&f64, &Measured)| {
        let (outcome, reads) = (&run.outcome, &run.outcome.reads);
        zbdbench::Mix {
            write_target_mib_s: rate * 1e6 / 1_048_576.0,
            write_bytes_per_s: outcome.write_mb_s * 1e6,
            read_bytes_per_s: outcome.read_mb_s * 1e6,
            read_mean_us: reads.mean_us(),
            read_us: zbdbench::PERCENTILES.map(|percent| reads.quantile_us(percent / 100.0)),
        }
    };
    let runs = rates.iter().zip(answers.iter().map(Answer::timed));
    let mut table = zbdbench::zone_mixed(&runs.map(mix).collect::<Vec<_>>());
    table.name = format!("{}-{}", table.name, slug(&drive.name));
    table
}

fn table<'a>(runs: impl Iterator<Item = (&'a Variant, &'a [Answer])>, rates: &[f64]) -> Table {
    let columns = [
        "drive",
        "write_mb_s_target",
        "write_mb_s",
        "valid",
        "reads",
        "mean_us",
        "p50_us",
        "p99_us",
        "p999_us",
        "p9999_us",
        "max_us",
        "wa",
    ];
    let mut table = Table::new("latency", &columns);
    for (drive, answers) in runs {
        for (rate, run) in rates.iter().zip(answers.iter().map(Answer::timed)) {
            let (outcome, reads) = (&run.outcome, run.outcome.reads.summary());
            let mut row: Vec<Cell> = vec![drive.name.as_str().into(), (*rate).into()];
            row.push(outcome.write_mb_s.into());
            row.push(if run.reaches_rate() { "yes" } else { "no" }.into());
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            row.push((reads.count as f64).into());
            let figures =
                [reads.mean_us, reads.p50_us, reads.p99_us, reads.p999_us, reads.p9999_us];
            row.extend(figures.map(Cell::from));
            row.extend([reads.max_us, outcome.wa()].map(Cell::from));
            table.row(row);
        }
    }
    table
}
