//! Conventional, FDP or zones: how much is moved by the drive and how much by the host.

use serde::Deserialize;

use super::plan::{Plan, Values};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::error::Result;
use crate::report::{Axis, Bars, Cell, Picture, Table};

/// No settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ways {}

impl Measure for Ways {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        plan.drives.iter().map(|drive| Ok(Task::new(plan.config(drive, &[])?))).collect()
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let columns = ["drive", "op_nominal", "op_effective", "host_wa", "drive_wa", "wa"];
        let mut table = Table::new("ways", &columns);
        let mut values = Values::default();
        let mut groups = Vec::new();
        for (drive, report) in plan.drives.iter().zip(answers.iter().map(Answer::counted)) {
            values.add(format!("{} wa", drive.name), report.wa);
            values.add(format!("{} drive wa", drive.name), report.drive_wa);
            groups.push((drive.name.clone(), vec![report.drive_wa, report.wa]));
            let figures = [
                report.op_nominal,
                report.op_effective,
                report.host_wa,
                report.drive_wa,
                report.wa,
            ];
            let mut row: Vec<Cell> = vec![drive.name.as_str().into()];
            row.extend(figures.map(Cell::from));
            table.row(row);
        }
        let bars = Bars {
            title: "Write amplification: what the drive reports, and what the flash sees".into(),
            y: Axis::linear("write amplification"),
            names: vec!["of the drive".into(), "host × drive".into()],
            ranges: Vec::new(),
            groups,
        };
        Ok(Findings {
            pictures: vec![Picture::Bars(bars)],
            tables: vec![table],
            values,
            charts: Vec::new(),
        })
    }
}
