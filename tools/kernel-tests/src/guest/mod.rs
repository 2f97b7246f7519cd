//! The guest's side: every comparison with its kernel, in subjects.
//!
//! The host puts `zonal`, programs of tests and the table of differences into `/share`, and finds
//! logs there.

mod bench;
mod compliance;
mod contents;
mod differ;
mod dm_zoned;
mod drive_with_disk;
mod export;
mod file_systems;
mod fuseblk;
mod kernel_quirks;
mod libtest;
mod lpc;
mod mounted;
mod nbd_disk;
mod null_blk;
mod nvme_cli;
mod nvme_disk;
mod nvme_tcp;
mod plain_fs;
mod refused;
mod scsi_debug;
mod scsi_generic;
mod shape;
mod side;
mod side_by_side;
mod superblock;
mod swap;
mod ublk;
mod ublk_disk;
mod virtual_zones;
mod zbd;
mod zone_files;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use xtask::tally::{Tally, tallied};

use crate::calls::compare::{self, Row};
use crate::calls::{self, Calls};
use crate::drives;

/// Where the differences that are meant are listed.
const DOCUMENT: &str = "/share/semantics.md";

/// The heading of their table.
const HEADING: &str = "### Where it differs from the kernel";

/// What to do in the guest.
#[derive(Parser)]
#[command(name = "kernel-tests-guest", about = "The guest's side of `cargo xtask vm`")]
enum Args {
    /// Make the comparisons of these subjects
    Subjects {
        /// Their names
        names: Vec<String>,
    },
    /// Make random calls on a mounted zonefs and print what each returned
    Calls(Calls),
    /// Measure what served drives cost, and print a table
    Bench,
    /// Measure what the talk about zone sizes measured, and print its tables beside ours
    Lpc,
    /// Count what dm-zoned and a disk write to the same drive
    DmZoned,
    /// Use so much memory, and read all of it back
    Hog {
        /// MiB
        mib: usize,
    },
}

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    let outcome = match Args::parse() {
        Args::Subjects { names } => return tallied(|tally| checks(&names, tally)),
        Args::Calls(arguments) => calls::run(&arguments, &mut std::io::stdout().lock()),
        Args::Bench => bench::run(),
        Args::Lpc => lpc::run(),
        Args::DmZoned => dm_zoned::run(),
        Args::Hog { mib } => swap::hog(mib),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Which of the two test commands runs a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// `cargo xtask test`.
    Essential,
    /// Only `cargo xtask test --all`, a share of the machines in each run.
    Rest,
}

/// Checks that belong together.
pub(crate) struct Subject {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// The number of checks: `--all` counts the checks it adds before it runs them.
    pub(crate) checks: u64,
    run: fn(&mut Tally),
}

/// A virtual machine.
pub(crate) struct Machine {
    /// When it is booted.
    pub(crate) part: Part,
    /// For its kernel's command line.
    pub(crate) kernel_options: &'static str,
    /// The subjects that run in the machine, in this order.
    pub(crate) subjects: &'static [Subject],
}

/// fio's tests want an I/O scheduler, which a disk of several paths has not.
const ONE_PATH: &str = "nvme_core.multipath=N";

/// So that a little more than this has to be swapped out.
const LITTLE_MEMORY: &str = "mem=512M";

/// The longest first: they run side by side.
pub(crate) const MACHINES: [Machine; 10] = [
    Machine {
        part: Part::Essential,
        kernel_options: "",
        subjects: &[
            Subject { name: "block-devices", checks: 3, run: block_devices },
            Subject { name: "nvme-tcp", checks: 2, run: nvme_tcp::checks },
            Subject { name: "passthrough", checks: 6, run: passthrough },
            Subject { name: "ublk", checks: 23, run: ublk::checks },
            Subject { name: "virtual-zones", checks: 4, run: virtual_zones::checks },
            Subject { name: "kernel-quirks", checks: 1, run: kernel_quirks::checks },
            Subject { name: "zonefs", checks: 20, run: zonefs },
        ],
    },
    Machine {
        part: Part::Rest,
        kernel_options: ONE_PATH,
        subjects: &[Subject { name: "zbd-ublk", checks: 1, run: zbd::over_ublk }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: ONE_PATH,
        subjects: &[Subject { name: "zbd-nvme-tcp", checks: 1, run: zbd::over_nvme_tcp }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: ONE_PATH,
        subjects: &[Subject { name: "file-systems", checks: 6, run: file_systems::checks }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: "",
        subjects: &[
            Subject { name: "nvme-disk", checks: 8, run: nvme_disk::checks },
            Subject { name: "compliance", checks: 11, run: compliance::checks },
        ],
    },
    Machine {
        part: Part::Rest,
        kernel_options: ONE_PATH,
        subjects: &[
            Subject { name: "refused", checks: 12, run: refused::checks },
            Subject { name: "fuseblk", checks: 4, run: fuseblk::checks },
            Subject { name: "scsi", checks: 11, run: scsi_debug::checks },
        ],
    },
    Machine {
        part: Part::Rest,
        kernel_options: "",
        subjects: &[Subject { name: "scsi-generic", checks: 11, run: scsi_generic::checks }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: "",
        subjects: &[Subject { name: "ublk-disk", checks: 15, run: ublk_disk::checks }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: LITTLE_MEMORY,
        subjects: &[Subject { name: "swap", checks: 1, run: swap::checks }],
    },
    Machine {
        part: Part::Rest,
        kernel_options: "",
        subjects: &[
            Subject { name: "nvme-cli", checks: 6, run: nvme_cli::checks },
            Subject { name: "nbd", checks: 5, run: nbd_disk::checks },
            Subject { name: "side-by-side", checks: 7, run: side_by_side::checks },
        ],
    },
];

/// Runs the subjects of these names.
fn checks(names: &[String], tally: &mut Tally) {
    for name in names {
        let mut all = MACHINES.iter().flat_map(|machine| machine.subjects);
        let Some(subject) = all.find(|subject| subject.name == name) else {
            tally.fail(format!("{name} is no subject of the guest"));
            continue;
        };
        let before = tally.total();
        (subject.run)(tally);
        let (made, said) = (tally.total() - before, subject.checks);
        if made != said {
            tally.fail(format!("{name} made {made} checks, and its table says {said}"));
        }
    }
}

fn block_devices(tally: &mut Tally) {
    libtest::check_each(tally, "block devices of the kernel", "null_blk", &[]);
}

fn passthrough(tally: &mut Tally) {
    let namespaces = drives::SMALL.join(" ");
    let variables = [("NAMESPACES", namespaces.as_ref())];
    libtest::check_each(tally, "namespaces by passthrough", "passthrough", &variables);
    tally.check("namespaces by passthrough: without io_uring", without_io_uring);
}

/// A command that insists on `io_uring` fails with a reason; others do without.
fn without_io_uring() -> Result<()> {
    let switch = "/proc/sys/kernel/io_uring_disabled";
    let info = |device: &str| side::zonal(&["info", device]);
    fs::write(switch, "2")?;
    let (plain, insisting) =
        (info(drives::REFUSED), info(&format!("io_uring:{}", drives::REFUSED)));
    fs::write(switch, "0")?;
    let found = plain?;
    ensure!(found.contains("not a power of two"), "the wrong drive: {found}");
    let error = format!("{:#}", insisting.err().context("io_uring is switched off")?);
    ensure!(error.contains("setting up io_uring"), "{error}");
    info(&format!("io_uring:{}", drives::REFUSED)).map(drop)
}

fn zonefs(tally: &mut Tally) {
    let rows = match table() {
        Ok(rows) => rows,
        Err(error) => return tally.fail(format!("the table of differences: {error:#}")),
    };
    superblock::checks(&rows, tally);
    let used = differ::checks(&rows, tally);
    for (row, count) in &used {
        println!("{count:6} differences are meant: {row}");
    }
    let name = "every difference of the table is seen";
    if ["SEED", "COUNT"].iter().any(|name| std::env::var_os(name).is_some()) {
        return tally.skip(name, "other seeds may not show what is rare");
    }
    tally.check(name, || {
        let unseen: Vec<&Row> =
            rows.iter().filter(|row| row.is_common() && !used.contains_key(&row.name())).collect();
        ensure!(unseen.is_empty(), "no call showed: {unseen:#?}");
        Ok(())
    });
}

fn table() -> Result<Vec<Row>> {
    let document = fs::read_to_string(DOCUMENT).context("reading the document")?;
    compare::rows(&document, HEADING)
}
