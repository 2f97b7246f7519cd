//! The three tables of "Supporting zoned block devices with non-power-of-2 zone sizes" (Linux
//! Plumbers Conference 2022) next to ours: fio in the guest, operations of 4 KiB at depth 4 and 8.
//!
//! The talk measures the kernel's `null_blk` and `dm-po2zoned`. A kernel takes no zones of 96 MiB,
//! so for the talk's native column we measure zones of 128 MiB with a capacity of 96 MiB, and for
//! its `dm-po2zoned` column `po2:`: the same block device, without the layer and with it.
//!
//! The guest's clock counts instructions, a nanosecond each. By the host's clock a busy host stops
//! the guest's only processor for longer than a round, and fio then measures the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use bench_support::{Report, WarmUp, interleave};

use super::bench::Job;
use super::export::{self, Export};
use super::null_blk::NullBlk;
use super::shape::Shape;
use super::side::zonal;
use xtask::run;

const ROUNDS: usize = 3;

/// Short, since a guest whose clock counts instructions is slow; and so that no round writes more
/// than the zone that is reset before it.
const RUNTIME: &str = "100ms";

/// The unit of rates.
const UNIT: &str = "thousand a second";

/// The unit of processor time per operation.
const SERVER: &str = "µs of the server";

/// The file of figures for the host.
const JSON: &str = "/share/lpc.json";

/// Of the drives of 128 MiB: no limits, zones that are writable to their ends.
const SHAPE: Shape = Shape {
    name: "lpc",
    block: 4096,
    size_mib: 384,
    zone_mib: 128,
    capacity_mib: 128,
    conventional: 0,
    open: 0,
    active: 0,
};

/// Zones that hold 96 MiB, as `po2:` shows them, and zones of 96 MiB.
const GAPS: &str = "mem:zone=128M,capacity=96M,zones=4,open=none,active=none";
const UNEVEN: &str = "po2:mem:zone=96M,zones=4,open=none,active=none";

/// A pattern at a depth, and thousand operations a second that the talk's slides give for it.
struct Row {
    job: Job,
    /// Of `null_blk` with zones of 128 MiB, without and with the patches.
    regression: [f64; 2],
    /// Of zones of 128 and of 96 MiB.
    progression: [f64; 2],
    /// Of zones of 96 MiB, and through `dm-po2zoned`.
    mapped: [f64; 2],
}

/// In the order of the slides. The writes come first, because the reads need data to read.
const ROWS: [Row; 6] = [
    Row {
        job: Job { name: "sequential write, depth 4", rw: "write", block: "4k", depth: 4 },
        regression: [416., 417.],
        progression: [417., 417.],
        mapped: [417., 393.],
    },
    Row {
        job: Job { name: "sequential write, depth 8", rw: "write", block: "4k", depth: 8 },
        regression: [567., 568.],
        progression: [568., 566.],
        mapped: [566., 505.],
    },
    Row {
        job: Job { name: "sequential read, depth 4", rw: "read", block: "4k", depth: 4 },
        regression: [481., 480.],
        progression: [482., 483.],
        mapped: [483., 427.],
    },
    Row {
        job: Job { name: "sequential read, depth 8", rw: "read", block: "4k", depth: 8 },
        regression: [660., 661.],
        progression: [663., 662.],
        mapped: [666., 534.],
    },
    Row {
        job: Job { name: "random read, depth 4", rw: "randread", block: "4k", depth: 4 },
        regression: [440., 438.],
        progression: [438., 440.],
        mapped: [440., 404.],
    },
    Row {
        job: Job { name: "random read, depth 8", rw: "randread", block: "4k", depth: 8 },
        regression: [530., 529.],
        progression: [532., 533.],
        mapped: [533., 465.],
    },
];

/// A drive that is measured.
struct Drive {
    name: &'static str,
    node: PathBuf,
    /// The server, unless the kernel alone provides the drive.
    server: Option<Export>,
}

impl Drive {
    fn of_kernel(name: &'static str, disk: &NullBlk) -> Self {
        Self { name, node: disk.path().to_path_buf(), server: None }
    }

    fn served(name: &'static str, device: &str) -> Result<Self> {
        let (export, node) = Export::ublk(device, &[])?;
        Ok(Self { name, node, server: Some(export) })
    }

    /// Writes all of it: later rounds find memory that is in use already.
    fn fill(&self) -> Result<()> {
        let mut fio = Command::new("fio");
        fio.args(["--name=fill", "--rw=write", "--bs=1M", "--direct=1", "--ioengine=libaio"]);
        if self.is_zoned()? {
            fio.arg("--zonemode=zbd");
        }
        run::quietly(fio.arg(format!("--filename={}", self.node.display()))).map(drop)
    }

    fn is_zoned(&self) -> Result<bool> {
        Ok(export::queue_attribute(&self.node, "zoned")? != "none")
    }

    /// Processor time of the server's threads until now: `/proc/PID/task/TID/schedstat`.
    fn server_ns(&self) -> Result<Option<f64>> {
        let Some(server) = &self.server else { return Ok(None) };
        let mut sum = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", server.pid()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_processor = text.split(' ').next().context("the first number")?;
            sum += on_processor.parse::<f64>()?;
        }
        Ok(Some(sum))
    }

    fn measure(&self, job: &Job) -> Result<Measured> {
        if job.rw == "write" && self.is_zoned()? {
            let reset = ["reset", "--offset=0", "--count=1"];
            run::quietly(Command::new("blkzone").args(reset).arg(&self.node))?;
        }
        let before = self.server_ns()?;
        let done = job.run(&self.node, RUNTIME)?;
        let times = before.zip(self.server_ns()?);
        let server_us = times.map(|(before, after)| (after - before) / 1000.0 / done.operations);
        Ok(Measured { rate: done.rate / 1000.0, server_us })
    }
}

/// The result of one round of a job on a drive.
struct Measured {
    rate: f64,
    server_us: Option<f64>,
}

/// The names of the drives in the tables.
const NULL_BLK: &str = "`null_blk`, 128 MiB";
const EVEN: &str = "ublk, 128 MiB";
const GAPPED: &str = "ublk, 96 of 128 MiB";
const MAPPED: &str = "ublk, `po2:` of 96 MiB";
const RAW: &str = "raw disk";
const VIRTUAL: &str = "virtual zones on it";

/// Measures, prints the tables, and leaves the figures for the host.
pub(super) fn run() -> Result<()> {
    let null_blk = NullBlk::new(&SHAPE)?;
    let [raw, below] = [NullBlk::plain(512)?, NullBlk::plain(512)?];
    let name = below.path().to_str().context("the name of a device")?;
    zonal(&["create", name, "--zone-size=96MiB", "--zones=4", "--max-open=0", "--force"])?;
    let drives = [
        Drive::of_kernel(NULL_BLK, &null_blk),
        Drive::served(EVEN, &SHAPE.memory_drive())?,
        Drive::served(GAPPED, GAPS)?,
        Drive::served(MAPPED, UNEVEN)?,
        Drive::of_kernel(RAW, &raw),
        Drive::served(VIRTUAL, &format!("po2:{name}"))?,
    ];
    drives.iter().try_for_each(Drive::fill)?;
    let mut arguments = ["--json", JSON].map(str::to_owned).to_vec();
    let mut report = Report::begin("cargo xtask bench lpc", &mut arguments);
    let mut rounds = Rounds::new();
    for row in &ROWS {
        let turn = |at: usize| Some(drives[at].measure(&row.job));
        let found = interleave(ROUNDS, drives.len(), WarmUp::None, turn);
        for (drive, found) in drives.iter().zip(found) {
            let found = found.into_iter().collect::<Result<_>>()?;
            rounds.insert(Place { job: row.job.name, drive: drive.name }, found);
        }
    }
    for table in &TABLES {
        table.add(&mut report, &rounds);
    }
    report.end();
    Ok(())
}

/// A job on a drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    job: &'static str,
    drive: &'static str,
}

type Rounds = BTreeMap<Place, Vec<Measured>>;

/// A table: two columns of the talk, the same of ours, and the ratio of both.
struct Table {
    subject: &'static str,
    /// The columns of the talk, if it has them.
    talk: Option<Slide>,
    /// The second is compared with the first.
    ours: [&'static str; 2],
}

/// A slide.
struct Slide {
    columns: [&'static str; 2],
    rates: fn(&Row) -> [f64; 2],
}

const TABLES: [Table; 4] = [
    Table {
        subject: "zones of 128 MiB",
        talk: Some(Slide {
            columns: ["talk: before", "talk: patched"],
            rates: |row| row.regression,
        }),
        ours: [NULL_BLK, EVEN],
    },
    Table {
        subject: "zones that hold 96 MiB",
        talk: Some(Slide {
            columns: ["talk: 128 MiB", "talk: 96 MiB"],
            rates: |row| row.progression,
        }),
        ours: [EVEN, GAPPED],
    },
    Table {
        subject: "a layer that rounds up",
        talk: Some(Slide {
            columns: ["talk: 96 MiB", "talk: dm-po2zoned"],
            rates: |row| row.mapped,
        }),
        ours: [GAPPED, MAPPED],
    },
    Table { subject: "virtual zones", talk: None, ours: [RAW, VIRTUAL] },
];

impl Table {
    fn add(&self, report: &mut Report, rounds: &Rounds) {
        report.subject(self.subject, ROUNDS);
        for row in &ROWS {
            let job = row.job.name;
            if let Some(slide) = &self.talk {
                let rates = (slide.rates)(row);
                for (column, rate) in slide.columns.iter().zip(rates) {
                    report.add_variant((job, column), UNIT, &[rate]);
                }
                report.add_variant((job, "talk: ratio"), "÷", &[rates[1] / rates[0]]);
            }
            let found = self.ours.map(|drive| &rounds[&Place { job, drive }]);
            let rates = found.map(|found| found.iter().map(|round| round.rate).collect::<Vec<_>>());
            for (drive, rates) in self.ours.iter().zip(&rates) {
                report.add_variant((job, drive), UNIT, rates);
            }
            let ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(of, to)| of / to).collect();
            report.add_variant((job, "ours: ratio"), "÷", &ratios);
            for (drive, found) in self.ours.iter().zip(found) {
                let times: Vec<f64> = found.iter().filter_map(|round| round.server_us).collect();
                if !times.is_empty() {
                    report.add_variant((job, drive), SERVER, &times);
                }
            }
        }
    }
}
