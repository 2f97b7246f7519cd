//! Presets of spinning disks, compared with published figures of such disks.

use serde::Deserialize;

use super::plan::{Plan, Values};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::config::Config;
use crate::disk::load::{Figures, Load};
use crate::error::{Result, SimError};
use crate::preset::Preset;
use crate::report::{Axis, Cell, Chart, Form, Picture, Series, Table};

/// The loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disks {
    /// The preset of the disk.
    preset: String,
    loads: Vec<Load>,
    /// Names of the loads whose arm is drawn.
    arms: Vec<String>,
}

impl Measure for Disks {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        let preset = Preset::find(&plan.measure.preset).ok_or_else(|| {
            let what =
                format!("measure.preset = {:?} is not possible: no preset", plan.measure.preset);
            SimError::Config { what }
        })?;
        for variant in &plan.drives {
            let mut config = Config::parse_with(preset.text, &variant.set)?;
            config.seed = plan.seed;
            for load in &plan.measure.loads {
                let (config, load) = (Box::new(config.clone()), Box::new(load.clone()));
                tasks.push(Task::Disk { config, load });
            }
        }
        Ok(tasks)
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let loads = &plan.measure.loads;
        let mut table = Table::new("disks", &COLUMNS);
        let (mut values, mut pictures) = (Values::default(), Vec::new());
        for (variant, answers) in plan.drives.iter().zip(answers.chunks_exact(loads.len().max(1))) {
            for (load, answer) in loads.iter().zip(answers) {
                let figures = answer.disk();
                let name = format!("{}, {}", variant.name, load.name);
                values.add(format!("{name}: MB/s"), figures.mb_s);
                values.add(format!("{name}: IOPS"), figures.iops);
                values.add(format!("{name}: s"), figures.seconds);
                table.row(row(&variant.name, load, figures));
                if plan.measure.arms.contains(&load.name) {
                    pictures.push(Picture::Chart(arm(&name, figures)));
                }
            }
        }
        Ok(Findings { pictures, tables: vec![table], values, ..Findings::default() })
    }
}

const COLUMNS: [&str; 11] = [
    "disk",
    "load",
    "mb_s",
    "iops",
    "mean_ms",
    "p99_ms",
    "seconds",
    "jumps",
    "seek_percent",
    "turn_percent",
    "transfer_percent",
];

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn row(disk: &str, load: &Load, figures: &Figures) -> Vec<Cell> {
    let account = &figures.account;
    let percent = |ns: u64| 100.0 * ns as f64 / (figures.seconds * 1e9);
    let numbers = [
        figures.mb_s,
        figures.iops,
        figures.mean_ms,
        figures.p99_ms,
        figures.seconds,
        account.jumps as f64,
        percent(account.seek_ns),
        percent(account.turn_ns),
        percent(account.transfer_ns),
    ];
    let words = [disk, &load.name].map(Into::into);
    words.into_iter().chain(numbers.map(Into::into)).collect()
}

/// The position of the arm in the first second of a load.
#[expect(clippy::cast_precision_loss, reason = "times for people")]
fn arm(name: &str, figures: &Figures) -> Chart {
    let positions = &figures.account.positions;
    let start = positions.first().map_or(0, |position| position.at_ns);
    let in_second = positions.iter().take_while(|position| position.at_ns - start < 1_000_000_000);
    let points =
        in_second.map(|position| ((position.at_ns - start) as f64 / 1e6, 100.0 * position.share));
    Chart {
        title: format!("Position of the arm: {name}"),
        x: Axis::linear("time, ms"),
        y: Axis::linear("way from the outer edge to the inner one, %"),
        series: vec![Series::new("operations", Form::Marked, 0, points.collect())],
    }
}
