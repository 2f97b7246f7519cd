//! The points of a conventional drive, the SN540, and its rate while it is overwritten.
//!
//! Timed mode measures the points on a smaller copy of the preset's drive: fewer programs in an
//! erase block, the same over-provisioning and speed.

use std::fmt::Write as _;

use serde::Deserialize;

use super::{
    Compared, Figures, How, MIXED_PLACE, MixedRow, Point, basis_in, mean_and_worst, points_page,
    rows,
};
use crate::config::{Config, Mode, Pattern, Permutation};
use crate::error::{Result, SimError};
use crate::report::page::Basis;
use crate::size::Size;
use crate::timed::{self, Latency, Measured};

const POINTS: &str = include_str!("../../data/sn540.csv");
const MIXED: &str = include_str!("../../data/sn540-mixed.csv");
const OVERWRITE: &str = include_str!("../../data/sn540-overwrite.csv");

/// Programs of an erase block of the copy.
const PROGRAMS: u32 = 16;

/// Simulated time of a point.
const SECONDS: f64 = 2.0;

/// Bytes of the writes beside reads.
const BESIDE: Size = Size(128 << 10);

/// The points that calibrate the preset, in addition to [`CALIBRATED_TENTH`].
const CALIBRATED: [&str; 7] = [
    "write 4096 q1",
    "write 4096 q4",
    "write 131072 q1",
    "write 131072 q32",
    "read 4096 q1 beside 0 MiB/s",
    "read 4096 q1 beside 250 MiB/s",
    "read 4096 q1 beside 1000 MiB/s",
];

/// The first tenth of the second pass in which GC works.
const CALIBRATED_TENTH: usize = 13;

/// Bytes that are overwritten at random, of all that the drive holds.
const REGION_BYTES: f64 = 400.0 * 1_073_741_824.0;

/// Passes over them before the measured ones; how many are measured.
const PASSES_BEFORE: f64 = 3.0;
const PASSES: f64 = 2.01; // the last tenth ends before the run does

/// Where in the raw data the overwrites are.
pub const OVERWRITE_PLACE: &str = "data/custom/zns-a/long3, nvme_1_1115";

#[derive(Deserialize)]
struct Row {
    op: String,
    bytes: u64,
    depth: u32,
    iops: f64,
    mean_us: f64,
    p99_us: f64,
}

#[derive(Deserialize)]
struct TenthRow {
    passes: f64,
    mb_s: f64,
}

/// The requests of the host at a point.
#[derive(Clone, Debug)]
pub(super) struct Load {
    kind: Pattern,
    io: Size,
    write_depth: u32,
    write_mb_s: f64,
    read_depth: u32,
}

/// The rate of writes in a tenth of a pass over the region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenth {
    /// Passes before it.
    pub passes: f64,
    /// Rate of the drive, 10^6 bytes a second.
    pub drive_mb_s: f64,
    /// Rate of the simulator.
    pub ours_mb_s: f64,
    /// Whether the preset is calibrated on it, or predicts it.
    pub basis: Basis,
}

impl Tenth {
    /// The error, as a share of the measured rate.
    pub fn error(&self) -> f64 {
        self.ours_mb_s / self.drive_mb_s - 1.0
    }
}

/// All points of the SN540, in the order of the data.
pub fn points() -> Result<Vec<Point>> {
    let plain = rows::<Row>(POINTS)?.into_iter().map(Row::point);
    let mixed = rows::<MixedRow>(MIXED)?.into_iter().map(|row| Ok(row.timed_point()));
    plain.chain(mixed).collect()
}

impl Row {
    fn point(self) -> Result<Point> {
        let kind = match self.op.as_str() {
            "write" => Pattern::Sequential,
            "randwrite" => Pattern::Uniform,
            op => return Err(SimError::Config { what: format!("no operation is called {op}") }),
        };
        let (io, write_depth) = (Size(self.bytes), self.depth);
        let load = Load { kind, io, write_depth, write_mb_s: 0.0, read_depth: 0 };
        let name = format!("{} {} q{write_depth}", self.op, self.bytes);
        let drive = Figures { iops: self.iops, mean_us: self.mean_us, p99_us: self.p99_us };
        Ok(point(name, load, drive, "data/spdk/nvme-a/lbaf3"))
    }
}

impl MixedRow {
    fn timed_point(self) -> Point {
        let write_mb_s = f64::from(self.write_mib_s_asked) * 1.048_576;
        let (kind, read_depth) = (Pattern::Sequential, self.read_depth);
        let write_depth = u32::from(self.write_mib_s_asked > 0);
        let load = Load { kind, io: BESIDE, write_depth, write_mb_s, read_depth };
        point(self.name(), load, self.figures(), MIXED_PLACE)
    }
}

fn point(name: String, load: Load, drive: Figures, place: &'static str) -> Point {
    let basis = basis_in(&CALIBRATED, &name);
    Point { name, how: How::Timed(load), drive, basis, place }
}

impl Load {
    /// Measures it on a small copy of a drive.
    pub(super) fn run(&self, config: &Config) -> Result<Figures> {
        let op = config.layout()?.op_nominal();
        let mut config = small(config);
        config.drive.op = op;
        let workload = &mut config.workload;
        (workload.kind, workload.io) = (self.kind, self.io);
        (workload.write_depth, workload.read_depth) = (self.write_depth, self.read_depth);
        workload.write_mb_s = self.write_mb_s;
        (config.run.warm_up, config.run.drive_writes) = (1.0, 1.0);
        config.run.seconds = SECONDS;
        let outcome = timed::run(&config)?.outcome;
        let latency = if self.read_depth > 0 { &outcome.reads } else { &outcome.writes };
        Ok(figures(latency, outcome.seconds))
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn figures(latency: &Latency, seconds: f64) -> Figures {
    Figures {
        iops: latency.summary().count as f64 / seconds,
        mean_us: latency.mean_us(),
        p99_us: latency.quantile_us(0.99),
    }
}

/// A smaller drive of the same speed, in timed mode, that maps blocks.
fn small(config: &Config) -> Config {
    let mut config = config.clone();
    config.flash = config.flash.shrunk(PROGRAMS);
    config.drive.user = None;
    config.drive.unit = Size(4096);
    config.run.mode = Mode::Timed;
    config
}

/// The run in which 400 GiB of a full drive are overwritten in pieces of 1 MiB, at random but each
/// once in a pass, as fast as the drive takes them. The rest of its data never moves, so the copy
/// leaves out that data and the flash under it.
pub fn overwrite_config(config: &Config) -> Result<Config> {
    let layout = config.layout()?;
    let user = to_f64(layout.user_bytes());
    let raw = user * (1.0 + layout.op_nominal());
    let mut config = small(config);
    let rest = (user - REGION_BYTES).max(0.0);
    config.flash.superblocks = whole(f64::from(config.flash.superblocks) * (1.0 - rest / raw));
    config.drive.op = (raw - rest) / REGION_BYTES - 1.0;
    config.drive.unit = BESIDE;
    let workload = &mut config.workload;
    workload.kind = Pattern::Zones;
    (workload.io, workload.zone) = (BESIDE, Size(1 << 20));
    (workload.open_zones, workload.permutation) = (1, Permutation::EachOnce);
    // 4 jobs, each with 32 requests of 1 MiB.
    (workload.write_depth, workload.write_mb_s, workload.read_depth) = (1024, 0.0, 0);
    let run = &mut config.run;
    (run.warm_up, run.drive_writes) = (PASSES_BEFORE, PASSES_BEFORE + PASSES);
    (run.seconds, run.sample) = (0.0, 0.1);
    config.check()?;
    Ok(config)
}

/// The rates of that run, compared with the drive's.
pub fn tenths(run: &Measured) -> Result<Vec<Tenth>> {
    let drive = rows::<TenthRow>(OVERWRITE)?;
    let samples = run.outcome.samples.iter().map(|sample| sample.mb_s);
    let pairs = drive.iter().zip(samples).enumerate().map(|(at, (row, ours_mb_s))| Tenth {
        passes: row.passes,
        drive_mb_s: row.mb_s,
        ours_mb_s,
        basis: if at == CALIBRATED_TENTH { Basis::Calibrated } else { Basis::Predicted },
    });
    Ok(pairs.collect())
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
const fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32")]
fn whole(number: f64) -> u32 {
    number.round() as u32
}

/// The comparison as a page in Markdown.
pub fn page(compared: &[Compared], tenths: &[Tenth]) -> String {
    let mut text = String::from(HEAD);
    text += &points_page(compared);
    text += OVERWRITES;
    for tenth in tenths {
        let mark = tenth.basis.words();
        let Tenth { passes, drive_mb_s, ours_mb_s, .. } = tenth;
        let error = 100.0 * tenth.error();
        writeln!(
            text,
            "| {passes:.1} | {mark} | {drive_mb_s:.0} | {ours_mb_s:.0} | {error:+.1} % |"
        )
        .expect("a string takes all text");
    }
    let (mean, worst) = mean_and_worst(
        tenths.iter().filter(|tenth| tenth.basis == Basis::Predicted).map(Tenth::error),
    );
    let (mean, worst) = (100.0 * mean, 100.0 * worst);
    writeln!(
        text,
        "\nThe predicted tenths are off by {mean:.1} % on average and by {worst:.1} % at worst."
    )
    .expect("a string takes all text");
    text
}

/// The head of the page.
const HEAD: &str = "\
# The preset sn540 beside the drive

The authors of \"Performance Characterization of NVMe Flash Devices with Zoned Namespaces\" (arXiv 2310.19094, raw data under the MIT licence)
measured a conventional drive, their `nvme-a`; an earlier commit of theirs has its model, WUS4B7696DSP303, a WD Ultrastar DC SN540 of
960 GB. The points below are a part of the data ([sn540.csv](../../crates/zonal-sim/data/sn540.csv),
[sn540-mixed.csv](../../crates/zonal-sim/data/sn540-mixed.csv), [sn540-overwrite.csv](../../crates/zonal-sim/data/sn540-overwrite.csv)). The
preset ([sn540.toml](../../crates/zonal-sim/configs/sn540.toml)) is calibrated on eight of them; most constants are those of
[zn540](zn540.md), chosen with all points in view. `q` is the queue depth; the simulator runs a smaller copy of the drive.
`WRITE_PAGE=1 cargo test -p zonal-sim --test sn540` prints this page.

## Latencies

The state of the drive before `randwrite` is not published; the simulator assumes a drive that was written in order, whose spare flash takes
all of it.

";

const OVERWRITES: &str = "
## Overwriting a part of a full drive

Four jobs overwrite 400 GiB of a full drive for 20 minutes, in pieces of 1 MiB, in random order but each once in a pass. The drive first
programs its spare flash, then GC works until the pass has left superblocks without valid data. Ours slows down at the same tenth of a pass;
while GC works it is mostly faster.

| passes | | MB/s, drive | ours | error |
| --- | --- | --: | --: | --: |
";
