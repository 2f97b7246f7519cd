//! Presets of real drives, compared with measurements of these drives.

use serde::Deserialize;

use super::plan::{Plan, Values, Variant};
use super::pool::{Answer, Task};
use super::{Findings, Measure};
use crate::config::Config;
use crate::error::{Result, SimError};
use crate::measured::{self, Compared, Point, sn540};
use crate::preset::Preset;
use crate::report::page::{Claim, Deviation, Origin, PublishedChart};
use crate::report::{Axis, Chart, Form, Picture, Series, Table};

/// No settings: the data lists the points.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drives {}

const DOCUMENT: &str = "raw data of \"Performance Characterization of NVMe Flash Devices with Zoned \
                        Namespaces\" (arXiv 2310.19094), MIT licence";
const URL: &str = "https://github.com/stonet-research/NVMeBenchmarks";

/// A drive that was measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Model {
    Zn540,
    Sn540,
}

impl Model {
    fn of(variant: &Variant) -> Result<Self> {
        match variant.name.as_str() {
            "zn540" => Ok(Self::Zn540),
            "sn540" => Ok(Self::Sn540),
            name => {
                let what = format!("drives: name = {name:?} is not possible: zn540 or sn540");
                Err(SimError::Config { what })
            }
        }
    }

    const fn maker(self) -> &'static str {
        match self {
            Self::Zn540 => "WD Ultrastar DC ZN540",
            Self::Sn540 => "WD Ultrastar DC SN540",
        }
    }

    fn points(self) -> Result<Vec<Point>> {
        match self {
            Self::Zn540 => measured::points(),
            Self::Sn540 => sn540::points(),
        }
    }
}

impl Plan<Drives> {
    /// The preset of a drive, with the seed of the experiment.
    fn preset(&self, variant: &Variant) -> Result<Config> {
        let preset = Preset::find(&variant.name).expect("each model has a preset");
        let mut config = Config::parse_with(preset.text, &variant.set)?;
        config.seed = self.seed;
        Ok(config)
    }
}

impl Measure for Drives {
    fn tasks(plan: &Plan<Self>) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for variant in &plan.drives {
            let model = Model::of(variant)?;
            let config = plan.preset(variant)?;
            for point in model.points()? {
                let (config, point) = (Box::new(config.clone()), Box::new(point));
                tasks.push(Task::Point { config, point });
            }
            if model == Model::Sn540 {
                tasks.push(Task::new(sn540::overwrite_config(&config)?));
            }
        }
        Ok(tasks)
    }

    fn conclude(plan: &Plan<Self>, answers: &[Answer]) -> Result<Findings> {
        let (mut findings, mut rest) = (Findings::default(), answers);
        for variant in &plan.drives {
            let model = Model::of(variant)?;
            let points = model.points()?;
            let (own, others) = rest.split_at(points.len());
            let pairs = points.into_iter().zip(own.iter().map(Answer::point));
            let compared: Vec<_> = pairs.map(|(point, ours)| Compared { point, ours }).collect();
            findings.tables.push(table(&variant.name, &compared));
            findings.charts.extend(latency_charts(model, &compared));
            rest = others;
            if model == Model::Sn540 {
                let (run, others) = rest.split_first().expect("a run follows the points");
                overwritten(&mut findings, model, &sn540::tenths(run.timed())?);
                rest = others;
            }
        }
        findings.values = Values::default();
        Ok(findings)
    }
}

/// The mean latencies, by kind of operation.
fn latency_charts(model: Model, compared: &[Compared]) -> Vec<PublishedChart> {
    type Takes = fn(&str) -> bool;
    let beside = |name: &str| name.contains("beside");
    let groups: [(&str, Takes); 4] = [
        ("writes", |name| name.contains("write ") && !name.contains("beside")),
        ("appends", |name| name.starts_with("append")),
        ("random reads", |name| name.starts_with("randread")),
        ("random reads beside writes", beside),
    ];
    let charts = groups.map(|(title, takes)| {
        let rows = compared.iter().filter(|row| takes(&row.point.name));
        let claims = rows.map(latency_claim).collect();
        chart(format!("{}, mean latency of {title}", model.maker()), claims)
    });
    charts.into_iter().filter(|chart| !chart.claims.is_empty()).collect()
}

fn chart(title: String, claims: Vec<Claim>) -> PublishedChart {
    PublishedChart { title, document: DOCUMENT.into(), url: Some(URL.into()), claims }
}

fn latency_claim(row: &Compared) -> Claim {
    let (point, drive, ours) = (&row.point, row.point.drive, row.ours);
    let error = 100.0 * row.p99_error();
    Claim {
        what: point.name.clone(),
        published: format!("{:.1} µs", drive.mean_us),
        value: drive.mean_us,
        ours: ours.mean_us,
        unit: "µs".into(),
        error: Deviation::new(drive.mean_us, ours.mean_us, "µs"),
        basis: point.basis,
        place: point.place.into(),
        origin: Origin::Data,
        note: format!(
            "99th percentile: {:.1} µs, ours {:.1} µs, {error:+.1} %",
            drive.p99_us, ours.p99_us
        ),
    }
}

fn table(name: &str, compared: &[Compared]) -> Table {
    let columns =
        ["point", "mean_us_drive", "mean_us_ours", "p99_us_drive", "p99_us_ours", "iops_ours"];
    let mut table = Table::new(&format!("drives-{name}"), &columns);
    for Compared { point, ours } in compared {
        let drive = point.drive;
        let figures = [drive.mean_us, ours.mean_us, drive.p99_us, ours.p99_us, ours.iops];
        let cells = std::iter::once(point.name.as_str().into());
        table.row(cells.chain(figures.map(Into::into)).collect());
    }
    table
}

/// The rate of writes while a part of the drive is overwritten.
fn overwritten(findings: &mut Findings, model: Model, tenths: &[sn540::Tenth]) {
    let claims = tenths.iter().map(|tenth| Claim {
        what: format!("after {:.1} passes", tenth.passes),
        published: format!("{:.0} MB/s", tenth.drive_mb_s),
        value: tenth.drive_mb_s,
        ours: tenth.ours_mb_s,
        unit: "MB/s".into(),
        error: Deviation::new(tenth.drive_mb_s, tenth.ours_mb_s, "MB/s"),
        basis: tenth.basis,
        place: sn540::OVERWRITE_PLACE.into(),
        origin: Origin::Data,
        note: String::new(),
    });
    let title = format!("{}, writes while 400 GiB are overwritten", model.maker());
    let series = |name: &str, form, colour, value: fn(&sn540::Tenth) -> f64| {
        let points = tenths.iter().map(|tenth| (tenth.passes, value(tenth)));
        Series::new(name, form, colour, points.collect())
    };
    findings.pictures.push(Picture::Chart(Chart {
        title: title.clone(),
        x: Axis::linear("passes over 400 GiB"),
        y: Axis::linear("written, MB/s"),
        series: vec![
            series("ours", Form::Marked, 0, |tenth| tenth.ours_mb_s),
            series("published", Form::Published, 1, |tenth| tenth.drive_mb_s),
        ],
    }));
    findings.charts.push(chart(title, claims.collect()));
}
