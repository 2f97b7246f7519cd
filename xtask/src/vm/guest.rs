//! What runs in the guest: every comparison with its kernel, in one boot.
//!
//! The host puts `xtask`, `zonal` and the table of differences into `/share`, and finds logs there.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{
    differ, drives, file_systems, nvme_cli, nvme_tcp, refused, side, side_by_side, superblock,
    ublk, virtual_zones, warts, zbd,
};
use crate::calls::compare::{self, Row};
use crate::run;
use crate::tally::Tally;

/// Where the differences that are meant are listed.
pub(super) const DOCUMENT: &str = "/share/semantics.md";

/// The heading of their table.
const HEADING: &str = "### Where it differs from the kernel";

/// A subject: what it is called, and its checks.
pub(super) type Subject = (&'static str, fn(&mut Tally));

/// A machine.
pub(super) struct Machine {
    /// For its kernel's command line.
    pub(super) kernel_options: &'static str,
    /// What runs in it, one after the other.
    pub(super) subjects: &'static [Subject],
}

/// They run side by side: a host has two processors or more, and a machine uses one.
pub(super) const MACHINES: [Machine; 2] = [
    Machine {
        kernel_options: "",
        subjects: &[
            ("block-devices", block_devices),
            ("nvme-cli", nvme_cli::checks),
            ("nvme-tcp", nvme_tcp::checks),
            ("passthrough", passthrough),
            ("side-by-side", side_by_side::checks),
            ("ublk", ublk::checks),
            ("virtual-zones", virtual_zones::checks),
            ("warts", warts::checks),
            ("zonefs", zonefs),
        ],
    },
    Machine {
        // fio's tests want an I/O scheduler, which a disk of several paths has not.
        kernel_options: "nvme_core.multipath=N",
        subjects: &[
            ("zbd", zbd::checks),
            ("file-systems", file_systems::checks),
            ("refused", refused::checks),
        ],
    },
];

/// Runs the subjects of these names.
pub(super) fn checks(names: &[String], tally: &mut Tally) {
    for name in names {
        let mut all = MACHINES.iter().flat_map(|machine| machine.subjects);
        match all.find(|(known, _)| known == name) {
            Some((_, checks)) => checks(tally),
            None => tally.fail(format!("{name} is no subject of the guest")),
        }
    }
}

fn block_devices(tally: &mut Tally) {
    for name in ["contract", "somebody_else", "zones_fail"] {
        tally.check(&format!("block devices of the kernel: {name}"), || {
            let tests = ["--ignored", "--test-threads=1", name];
            run::quietly(Command::new("/share/null_blk").args(tests)).map(drop)
        });
    }
}

fn passthrough(tally: &mut Tally) {
    for name in ["contract", "split", "appends", "somebody_else", "one_writes"] {
        tally.check(&format!("namespaces by passthrough: {name}"), || {
            let tests = ["--ignored", "--test-threads=1", name];
            let namespaces = drives::SMALL.join(" ");
            let mut command = Command::new("/share/passthrough");
            run::quietly(command.args(tests).env("NAMESPACES", namespaces)).map(drop)
        });
    }
    tally.check("namespaces by passthrough: without io_uring", without_io_uring);
}

/// Whoever insists on `io_uring` is told; others do without.
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
    // Other seeds may not show what is rare.
    if ["SEED", "COUNT"].iter().all(|name| std::env::var_os(name).is_none()) {
        tally.check("every difference of the table is seen", || {
            let unseen: Vec<&Row> = rows
                .iter()
                .filter(|row| row.is_common() && !used.contains_key(&row.name()))
                .collect();
            ensure!(unseen.is_empty(), "no call showed: {unseen:#?}");
            Ok(())
        });
    }
}

fn table() -> Result<Vec<Row>> {
    let document = fs::read_to_string(DOCUMENT).context("reading the document")?;
    compare::rows(&document, HEADING)
}
