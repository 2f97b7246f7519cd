//! Measured points of real drives, compared with the points of their presets.
//!
//! The points are of a WD Ultrastar DC ZN540 and an SN540, from the public raw data of "Performance
//! Characterization of NVMe Flash Devices with Zoned Namespaces" (arXiv 2310.19094, MIT licence),
//! in `data/`. Ten of the first calibrate the preset `zn540`; the preset predicts the others. The
//! times of open, close, finish and reset, and the effect of resets on other commands, are in
//! `manage.rs`. The conventional drive is in `sn540.rs`.

mod manage;
pub mod sn540;

use std::fmt::Write as _;

use serde::Deserialize;
use zonal::LbaCount;
use zonal::workload::Pattern;
use zonal::workload::queued::{self, Beside, Outcome, Workload};

use crate::config::Config;
use crate::error::{Result, SimError};
use crate::report::page::Basis;
use crate::ssd::SimSsd;

const POINTS: &str = include_str!("../../data/zn540.csv");
const MIXED: &str = include_str!("../../data/zn540-mixed.csv");

pub use manage::{Managed, managed};

/// Bytes of a block of the drive.
const BLOCK_BYTES: u64 = 4096;

/// Blocks of the writes beside reads: 128 KiB.
const BESIDE_BLOCKS: u64 = 32;

/// Virtual time of a point.
const POINT_NS: u64 = 2_000_000_000;

/// The place in the raw data of reads beside writes, for both drives.
const MIXED_PLACE: &str = "data/custom/zns-a/rate_inteference";

/// The points that calibrate the preset.
const CALIBRATED: [&str; 10] = [
    "write 4096 z1 q1",
    "write 4096 z4 q1",
    "write 131072 z1 q1",
    "append 4096 z1 q1",
    "append 4096 z1 q4",
    "append 131072 z1 q32",
    "randread 4096 z1 q1",
    "randread 16384 z1 q32",
    "read 4096 q1 beside 250 MiB/s",
    "read 4096 q32 beside 100 MiB/s",
];

/// A point that was measured on the drive.
#[derive(Clone, Debug)]
pub struct Point {
    /// The operation, in words.
    pub name: String,
    /// The operation for the simulator.
    how: How,
    /// Figures of the drive.
    pub drive: Figures,
    /// Whether the preset is calibrated on it, or predicts it.
    pub basis: Basis,
    /// Where in the raw data it is.
    pub place: &'static str,
}

/// How the simulator measures a point.
#[derive(Clone, Debug)]
enum How {
    /// Requests to a zoned drive.
    Queued(Workload),
    /// A run in timed mode.
    Timed(sn540::Load),
}

/// Figures of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Operations a second.
    pub iops: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Latency that 99 of 100 stay within.
    pub p99_us: f64,
}

/// A point of the drive, and of the simulator.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The point.
    pub point: Point,
    /// Figures of the simulator.
    pub ours: Figures,
}

#[derive(Deserialize)]
struct Row {
    op: String,
    bytes: u64,
    zones: u32,
    depth_per_zone: u32,
    iops: f64,
    mean_us: f64,
    p99_us: f64,
}

#[derive(Deserialize)]
struct MixedRow {
    write_mib_s_asked: u32,
    read_depth: u32,
    read_iops: f64,
    read_mean_us: f64,
    read_p99: f64,
}

/// All points of the ZN540, in the order of the data.
pub fn points() -> Result<Vec<Point>> {
    let plain = rows::<Row>(POINTS)?.into_iter().map(Row::point);
    let mixed = rows::<MixedRow>(MIXED)?.into_iter().map(|row| Ok(row.point()));
    plain.chain(mixed).collect()
}

fn rows<T: for<'a> Deserialize<'a>>(text: &str) -> Result<Vec<T>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let rows = reader.deserialize().collect::<std::result::Result<_, _>>();
    rows.map_err(|error| SimError::Config { what: format!("the measured points: {error}") })
}

impl Row {
    fn point(self) -> Result<Point> {
        let Self { op, bytes, zones, depth_per_zone: depth, .. } = self;
        let name = format!("{op} {bytes} z{zones} q{depth}");
        let pattern = match op.as_str() {
            "write" => Pattern::Write,
            "append" => Pattern::Append,
            "randread" => Pattern::RandomRead,
            _ => return Err(SimError::Config { what: format!("no operation is called {op}") }),
        };
        let blocks = LbaCount::new(bytes / BLOCK_BYTES);
        let workload = workload(pattern, blocks, zones, depth, Beside::Nothing);
        let drive = Figures { iops: self.iops, mean_us: self.mean_us, p99_us: self.p99_us };
        let basis = basis_in(&CALIBRATED, &name);
        let place = "data/spdk/zns-a/lbaf2";
        Ok(Point { name, how: How::Queued(workload), drive, basis, place })
    }
}

impl MixedRow {
    fn point(self) -> Point {
        let (rate, depth) = (self.write_mib_s_asked, self.read_depth);
        let name = self.name();
        let beside = if rate == 0 {
            Beside::Nothing
        } else {
            let bytes_s = f64::from(rate) * f64::from(1 << 20);
            Beside::Writes { blocks: LbaCount::new(BESIDE_BLOCKS), bytes_s }
        };
        let workload = workload(Pattern::RandomRead, LbaCount::new(1), 1, depth, beside);
        let basis = basis_in(&CALIBRATED, &name);
        let (how, drive) = (How::Queued(workload), self.figures());
        Point { name, how, drive, basis, place: MIXED_PLACE }
    }

    fn name(&self) -> String {
        format!("read 4096 q{} beside {} MiB/s", self.read_depth, self.write_mib_s_asked)
    }

    const fn figures(&self) -> Figures {
        Figures { iops: self.read_iops, mean_us: self.read_mean_us, p99_us: self.read_p99 }
    }
}

fn workload(
    pattern: Pattern,
    blocks: LbaCount,
    zones: u32,
    depth: u32,
    beside: Beside,
) -> Workload {
    Workload { pattern, blocks, zones, depth, time_ns: POINT_NS, seed: 1, beside }
}

/// Whether a point of this name calibrates a preset, or the preset predicts it.
fn basis_in(calibrated: &[&str], name: &str) -> Basis {
    if calibrated.contains(&name) { Basis::Calibrated } else { Basis::Predicted }
}

impl Figures {
    /// The figures of a run.
    #[expect(clippy::cast_precision_loss, reason = "times for people")]
    pub fn of(outcome: &Outcome) -> Self {
        let main = &outcome.main;
        Self {
            iops: main.iops(),
            mean_us: main.latency_ns.mean() / 1e3,
            p99_us: main.latency_ns.value_at_quantile(0.99) as f64 / 1e3,
        }
    }
}

impl Point {
    /// Measures it on a new drive of a config.
    pub fn run(&self, config: &Config) -> Result<Figures> {
        match &self.how {
            How::Queued(workload) => queued::run(&SimSsd::new(config)?, workload)
                .map(|outcome| Figures::of(&outcome))
                .map_err(|error| SimError::Config { what: format!("{}: {error}", self.name) }),
            How::Timed(load) => load.run(config),
        }
    }
}

impl Compared {
    /// The error of the mean latency, as a share of the measured one.
    pub fn mean_error(&self) -> f64 {
        self.ours.mean_us / self.point.drive.mean_us - 1.0
    }

    /// The same of the 99th percentile.
    pub fn p99_error(&self) -> f64 {
        self.ours.p99_us / self.point.drive.p99_us - 1.0
    }
}

/// Measures points on drives of a config.
pub fn compare(config: &Config, points: Vec<Point>) -> Result<Vec<Compared>> {
    let compared = points.into_iter().map(|point| Ok(Compared { ours: point.run(config)?, point }));
    compared.collect()
}

/// The mean and the largest of some errors, without their signs.
#[expect(clippy::cast_precision_loss, reason = "a few")]
pub fn mean_and_worst(errors: impl Iterator<Item = f64>) -> (f64, f64) {
    let errors: Vec<f64> = errors.map(f64::abs).collect();
    let sum: f64 = errors.iter().sum();
    (sum / errors.len().max(1) as f64, errors.iter().copied().fold(0.0, f64::max))
}

/// The comparison as a page in Markdown.
pub fn page(compared: &[Compared], managed: &[Managed]) -> String {
    let mut text = String::from(HEAD);
    text += &points_page(compared);
    text += "\n## Zones, and commands beside resets\n\n\
             Open, close, first writes, finish of an empty zone, and reset of an empty and of a full \
             one are parameters of the preset.\n\n\
             | what | drive, µs | ours | error |\n| --- | --: | --: | --: |\n";
    for row in managed {
        let error = 100.0 * row.error();
        writeln!(
            text,
            "| {} | {:.1} | {:.1} | {error:+.1} % |",
            row.name, row.drive_us, row.ours_us
        )
        .expect("a string takes all text");
    }
    text
}

/// The head of the page.
const HEAD: &str = "\
# The preset zn540 beside the drive

The authors of \"Performance Characterization of NVMe Flash Devices with Zoned Namespaces\" (arXiv 2310.19094) measured a WD Ultrastar DC
ZN540, and published their raw data under the MIT licence. The points below are a part of it
([zn540.csv](../../crates/zonal-sim/data/zn540.csv), [zn540-mixed.csv](../../crates/zonal-sim/data/zn540-mixed.csv)). The preset
([zn540.toml](../../crates/zonal-sim/configs/zn540.toml)) is calibrated on ten of them; constants that no single point gives were chosen
with all points in view. `z` is the number of zones, `q` the queue depth in each. `WRITE_PAGE=1 cargo test -p zonal-sim --test zn540`
prints this page.

## Latencies

";

fn points_page(compared: &[Compared]) -> String {
    let mut text = String::from(
        "| point | | mean µs, drive | ours | error | p99 µs, drive | ours | error |\n\
         | --- | --- | --: | --: | --: | --: | --: | --: |\n",
    );
    for row in compared {
        let (drive, ours) = (row.point.drive, row.ours);
        let mark = row.point.basis.words();
        let (mean, p99) = (100.0 * row.mean_error(), 100.0 * row.p99_error());
        writeln!(
            text,
            "| {} | {mark} | {:.1} | {:.1} | {mean:+.1} % | {:.1} | {:.1} | {p99:+.1} % |",
            row.point.name, drive.mean_us, ours.mean_us, drive.p99_us, ours.p99_us
        )
        .expect("a string takes all text");
    }
    for basis in [Basis::Calibrated, Basis::Predicted] {
        let rows = || compared.iter().filter(|row| row.point.basis == basis);
        let what = basis.words();
        let (mean, worst) = mean_and_worst(rows().map(Compared::mean_error));
        let (p99_mean, p99_worst) = mean_and_worst(rows().map(Compared::p99_error));
        writeln!(
            text,
            "\n{} {what} points: the mean latency is off by {:.1} % on average and by {:.1} % at \
             worst, the 99th percentile by {:.1} % and {:.1} %.",
            rows().count(),
            100.0 * mean,
            100.0 * worst,
            100.0 * p99_mean,
            100.0 * p99_worst
        )
        .expect("a string takes all text");
    }
    text
}
