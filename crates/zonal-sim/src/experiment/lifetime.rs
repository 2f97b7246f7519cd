//! How much can be written before the flash is worn out: TBW and DWPD.

use serde::Deserialize;

use super::plan::{Plan, Values};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::counting::Report;
use crate::error::Result;
use crate::report::{Axis, Bars, Cell, Picture, Table};

/// The time that a drive should last.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lifetime {
    /// Years of warranty.
    years: f64,
}

/// The lifetime of a drive.
struct Life {
    raw_tb: f64,
    user_tb: f64,
    tbw: f64,
    dwpd: f64,
}

impl Measure for Lifetime {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        plan.drives.iter().map(|drive| Ok(Task::new(plan.config(drive, &[])?))).collect()
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let columns = [
            "drive",
            "raw_tb",
            "user_tb",
            "op_nominal",
            "op_effective",
            "host_wa",
            "drive_wa",
            "wa",
            "pe_cycles",
            "tbw_tb",
            "dwpd",
            "superblock_erases_least",
            "superblock_erases_mean",
            "superblock_erases_most",
        ];
        let mut table = Table::new("lifetime", &columns);
        let mut values = Values::default();
        let mut groups = Vec::new();
        for (drive, report) in plan.drives.iter().zip(answers.iter().map(Answer::counted)) {
            let life = plan.life(report);
            values.add(format!("{} wa", drive.name), report.wa);
            values.add(format!("{} tbw", drive.name), life.tbw);
            values.add(format!("{} dwpd", drive.name), life.dwpd);
            groups.push((drive.name.clone(), vec![life.dwpd]));
            let mut row: Vec<Cell> = vec![drive.name.as_str().into()];
            let figures = [
                life.raw_tb,
                life.user_tb,
                report.op_nominal,
                report.op_effective,
                report.host_wa,
                report.drive_wa,
                report.wa,
            ];
            row.extend(figures.map(Cell::from));
            row.extend([report.config.flash.pe_cycles.into(), life.tbw.into(), life.dwpd.into()]);
            let erases = &report.erases;
            row.extend([erases.min.into(), erases.mean.into(), erases.max.into()]);
            table.row(row);
        }
        let bars = Bars {
            title: format!("Drive writes per day over {} years", plan.measure.years),
            y: Axis::linear("drive writes per day"),
            names: vec!["DWPD".into()],
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

impl Plan<Lifetime> {
    /// TBW = cycles × raw ÷ wa; DWPD = cycles × raw ÷ user ÷ (wa × days). Of the drive that the
    /// simulated one is a smaller copy of.
    #[expect(clippy::cast_precision_loss, reason = "capacities for people")]
    fn life(&self, report: &Report) -> Life {
        let scale = self.scale(&report.config);
        let raw = report.config.flash.raw_bytes() as f64 * scale / 1e12;
        let user = report.layout.user_bytes() as f64 * scale / 1e12;
        let tbw = f64::from(report.config.flash.pe_cycles) * raw / report.wa;
        let dwpd = tbw / user / (self.measure.years * 365.0);
        Life { raw_tb: raw, user_tb: user, tbw, dwpd }
    }
}
