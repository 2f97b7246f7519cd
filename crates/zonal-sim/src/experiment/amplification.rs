//! Write amplification against over-provisioning, compared with theory.

use serde::Deserialize;

use super::plan::{Plan, Values};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::config::{Config, Kind, Pattern};
use crate::counting::Report;
use crate::error::Result;
use crate::ftl::Victim;
use crate::report::{Axis, Cell, Chart, Form, Picture, Series, Table};
use crate::theory;

/// The points to measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Amplification {
    /// Nominal over-provisioning, in percent of the user capacity.
    op_percent: Vec<f64>,
}

impl Measure for Amplification {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for drive in &plan.drives {
            for percent in &plan.measure.op_percent {
                let op = (percent / 100.0).to_string();
                tasks.push(Task::new(plan.config(drive, &[("drive.op", op)])?));
            }
        }
        Ok(tasks)
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let percents = &plan.measure.op_percent;
        let mut values = Values::default();
        let mut table = Table::new("amplification", &COLUMNS);
        let (mut series, mut lines) = (Vec::new(), Vec::new());
        let runs = plan.drives.iter().zip(answers.chunks_exact(percents.len().max(1)));
        for (colour, (drive, answers)) in runs.enumerate() {
            let (mut points, mut line) = (Vec::new(), Vec::new());
            for (percent, report) in percents.iter().zip(answers.iter().map(Answer::counted)) {
                values.add(format!("{} at {percent} %", drive.name), report.wa);
                let theory = theory(report);
                points.push((*percent, report.wa));
                line.extend(theory.map(|theory| (*percent, theory)));
                table.row(row(&drive.name, report, theory));
            }
            if !line.is_empty() {
                let name = format!("theory: {}", drive.name);
                lines.push(Series::new(&name, Form::Dashed, colour, line));
            }
            series.push(Series::new(&drive.name, Form::Marked, colour, points));
        }
        series.extend(lines);
        series.extend(plan.published());
        let chart = Chart {
            title: "Write amplification against over-provisioning".into(),
            x: Axis::log("over-provisioning, % of the user capacity (physical)"),
            y: Axis::linear("flash programs per host write"),
            series,
        };
        Ok(Findings {
            pictures: vec![Picture::Chart(chart)],
            tables: vec![table],
            values,
            charts: Vec::new(),
        })
    }
}

const COLUMNS: [&str; 9] = [
    "workload",
    "op_nominal",
    "op_effective",
    "wa",
    "theory",
    "difference_percent",
    "agarwal_marrow",
    "drive_writes",
    "superblock_units",
];

fn row(name: &str, report: &Report, theory: Option<f64>) -> Vec<Cell> {
    vec![
        name.into(),
        report.op_nominal.into(),
        report.op_effective.into(),
        report.wa.into(),
        theory.into(),
        theory.map(|theory| 100.0 * (report.wa / theory - 1.0)).into(),
        is_uniform(&report.config).then(|| theory::agarwal_marrow(report.op_effective)).into(),
        report.drive_writes.into(),
        report.layout.block_units.into(),
    ]
}

fn is_uniform(config: &Config) -> bool {
    config.workload.kind == Pattern::Uniform && config.drive.kind == Kind::Conventional
}

/// The prediction of theory, which covers uniform writes of independent places.
fn theory(report: &Report) -> Option<f64> {
    let config = &report.config;
    // The units of one write die together, so theory counts writes and not units.
    let together = u32::try_from(config.workload.io.0.max(report.layout.unit) / report.layout.unit);
    let places = report.layout.block_units / together.ok()?.max(1);
    let op = report.op_effective;
    if !is_uniform(config) {
        return None;
    }
    match config.gc.victim {
        Victim::Greedy => Some(theory::greedy(op, places)),
        Victim::Fifo => Some(theory::fifo(op)),
        Victim::Random => Some(theory::random(op)),
        Victim::Choices(d) => Some(theory::choices(op, places, d)),
        Victim::CostBenefit | Victim::Windowed(_) => None,
    }
}
