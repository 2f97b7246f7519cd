//! Throughput over successive full drive writes: from an empty drive, and in the steady state.

use serde::Deserialize;

use super::plan::{Plan, Values, Variant};
use super::pool::{Answer, Task};
use super::{Findings, Measure, slug};
use crate::error::Result;
use crate::report::{Axis, Bars, Chart, Form, Picture, Series, Table, zbdbench};
use crate::timed::Measured;

/// How long to write.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throughput {
    /// Drive writes from empty.
    drive_writes: f64,
    /// Drive writes that are only counted before the steady state is measured.
    steady_after: f64,
    /// Drive writes over which it is measured.
    steady: f64,
}

impl Measure for Throughput {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        let Throughput { drive_writes, steady_after, steady } = plan.measure;
        let mut tasks = Vec::new();
        for drive in &plan.drives {
            for (warm_up, last) in [(0.0, drive_writes), (steady_after, steady_after + steady)] {
                let more = [
                    ("run.mode", "timed".to_owned()),
                    ("run.warm_up", warm_up.to_string()),
                    ("run.drive_writes", last.to_string()),
                ];
                tasks.push(Task::new(plan.config(drive, &more)?));
            }
        }
        Ok(tasks)
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let pairs = || plan.drives.iter().zip(answers.chunks_exact(2));
        let courses = pairs().map(|(drive, pair)| (drive, pair[0].timed()));
        let states = pairs().map(|(drive, pair)| (drive, pair[1].timed()));
        let mut values = Values::default();
        for (drive, state) in states.clone() {
            values.add(drive.name.clone(), state.outcome.write_mb_s);
            values.add(format!("{} wa", drive.name), state.outcome.wa());
        }
        let mut chart = Chart {
            title: "Throughput over successive full drive writes".into(),
            x: Axis::linear("drive writes"),
            y: Axis::linear("written, MB/s"),
            series: courses
                .clone()
                .enumerate()
                .map(|(at, (drive, run))| line(at, drive, run))
                .collect(),
        };
        chart.series.extend(plan.overlays().chain(plan.published()));
        let steady = Bars {
            title: "Throughput in the steady state".into(),
            y: Axis::linear("written, MB/s"),
            names: vec!["ours".into()],
            ranges: Vec::new(),
            groups: states
                .clone()
                .map(|(drive, state)| (drive.name.clone(), vec![state.outcome.write_mb_s]))
                .collect(),
        };
        let mut tables = vec![course_table(courses.clone()), steady_table(states)];
        tables.extend(courses.map(|(drive, run)| plan.as_zbdbench(drive, run)));
        let pictures = vec![Picture::Chart(chart), Picture::Bars(steady)];
        Ok(Findings { pictures, tables, values, charts: Vec::new() })
    }
}

impl Plan<Throughput> {
    /// The time series in the form of zbdbench's `fio_zone_write`, of the drive that this one is a
    /// smaller copy of.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bytes of a few drive writes"
    )]
    fn as_zbdbench(&self, drive: &Variant, run: &Measured) -> Table {
        let scale = self.scale(&run.config);
        let mut before = 0;
        let stretches = run.outcome.samples.iter().map(|sample| {
            let begin = std::mem::replace(&mut before, sample.written_bytes);
            let written_bytes = (begin as f64 * scale) as u64;
            zbdbench::Stretch { written_bytes, bytes_per_s: sample.mb_s * 1e6 }
        });
        let mut table = zbdbench::zone_write(&stretches.collect::<Vec<_>>());
        table.name = format!("{}-{}", table.name, slug(&drive.name));
        table
    }
}

fn line(colour: usize, drive: &Variant, run: &Measured) -> Series {
    let points = run.table().points("drive_writes", "mb_s");
    Series::new(&drive.name, Form::Line, colour, points)
}

fn course_table<'a>(courses: impl Iterator<Item = (&'a Variant, &'a Measured)>) -> Table {
    let columns = ["drive", "seconds", "drive_writes", "written_bytes", "mb_s", "wa"];
    let mut table = Table::new("throughput", &columns);
    for (drive, run) in courses {
        for row in run.table().rows {
            let mut cells = vec![drive.name.as_str().into()];
            cells.extend(row);
            table.row(cells);
        }
    }
    table
}

fn steady_table<'a>(states: impl Iterator<Item = (&'a Variant, &'a Measured)>) -> Table {
    let columns = ["drive", "op_nominal", "op_effective", "mb_s", "wa", "write_mean_us"];
    let mut table = Table::new("throughput-steady", &columns);
    for (drive, state) in states {
        let outcome = &state.outcome;
        table.row(vec![
            drive.name.as_str().into(),
            state.op_nominal.into(),
            state.op_effective.into(),
            outcome.write_mb_s.into(),
            outcome.wa().into(),
            outcome.writes.mean_us().into(),
        ]);
    }
    table
}
