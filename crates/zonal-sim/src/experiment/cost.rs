//! Flash and DRAM of a usable TB, and their cost: products of a few numbers, without a simulation.

use serde::Deserialize;

use super::plan::{Plan, Values};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::config::{Config, Kind};
use crate::error::Result;
use crate::ftl::ZoneMapped;
use crate::report::{Axis, Bars, Cell, Picture, Table};

/// Prices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cost {
    /// A TB (10^12 bytes) of raw flash, in dollars.
    flash_dollars_per_tb: f64,
    /// A GB (10^9 bytes) of DRAM, in dollars.
    dram_dollars_per_gb: f64,
    /// Bytes of an entry of a page-mapped table. 4: the talk.
    entry_bytes: f64,
    /// Bytes that an entry stands for. 4096: the talk.
    mapped_bytes: f64,
    /// Drives whose host keeps a page-mapped table of its own, by name.
    #[serde(default)]
    host_maps: Vec<String>,
}

/// Flash and DRAM of a usable TB.
#[derive(Default)]
struct Needs {
    flash_tb: f64,
    drive_dram_gb: f64,
    host_dram_gb: f64,
}

impl Measure for Cost {
    fn tasks(_plan: &Plan<Self>) -> Result<Vec<Task>> {
        Ok(Vec::new())
    }

    fn conclude(plan: &Plan<Self>, _answers: &[Answer]) -> Result<Findings> {
        let prices = &plan.measure;
        let columns = [
            "drive",
            "op_nominal",
            "flash_tb_per_usable_tb",
            "drive_dram_gb_per_usable_tb",
            "host_dram_gb_per_usable_tb",
            "flash_dollars",
            "dram_dollars",
            "dollars_per_usable_tb",
        ];
        let mut table = Table::new("cost", &columns);
        let mut values = Values::default();
        let mut groups = Vec::new();
        for drive in &plan.drives {
            let config = plan.config(drive, &[])?;
            let host_map = prices.host_maps.contains(&drive.name);
            let needs = prices.needs(&config, host_map.then_some(prices.map_gb_per_tb()))?;
            let flash = needs.flash_tb * prices.flash_dollars_per_tb;
            let dram_gb = needs.drive_dram_gb + needs.host_dram_gb;
            let dram = dram_gb * prices.dram_dollars_per_gb;
            values.add(format!("{} flash", drive.name), needs.flash_tb);
            values.add(format!("{} dram", drive.name), needs.drive_dram_gb);
            values.add(format!("{} dollars", drive.name), flash + dram);
            groups.push((drive.name.clone(), vec![flash, dram, flash + dram]));
            let mut row: Vec<Cell> = vec![drive.name.as_str().into()];
            row.push((needs.flash_tb - 1.0).into());
            let figures = [
                needs.flash_tb,
                needs.drive_dram_gb,
                needs.host_dram_gb,
                flash,
                dram,
                flash + dram,
            ];
            row.extend(figures.map(Cell::from));
            table.row(row);
        }
        let bars = Bars {
            title: "Flash and DRAM of a usable TB".into(),
            y: Axis::linear("dollars per usable TB"),
            names: vec!["flash".into(), "DRAM".into(), "both".into()],
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

impl Cost {
    /// GB of a page-mapped table for a TB.
    fn map_gb_per_tb(&self) -> f64 {
        1000.0 * self.entry_bytes / self.mapped_bytes
    }

    #[expect(clippy::cast_precision_loss, reason = "capacities for people")]
    fn needs(&self, config: &Config, host_dram_gb: Option<f64>) -> Result<Needs> {
        let user = config.layout()?.user_bytes() as f64;
        let drive_dram_gb = match config.drive.kind {
            Kind::Conventional | Kind::Fdp => self.map_gb_per_tb(),
            Kind::Zns => 1000.0 * ZoneMapped::new(config)?.table_bytes() as f64 / user,
        };
        // A log of the host over zones needs room to spare, as any other.
        let (flash_tb, shown) = match (host_dram_gb, config.drive.user) {
            (Some(_), Some(size)) => {
                (config.flash.raw_bytes() as f64 / size.0 as f64, size.0 as f64 / user)
            }
            (Some(_), None) => (1.0 + config.drive.op, 1.0 / (1.0 + config.drive.op)),
            (None, _) => (config.flash.raw_bytes() as f64 / user, 1.0),
        };
        let host_dram_gb = host_dram_gb.unwrap_or(0.0);
        Ok(Needs { flash_tb, drive_dram_gb: drive_dram_gb / shown, host_dram_gb })
    }
}
