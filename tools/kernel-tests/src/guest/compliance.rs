//! `zonal compliance` on drives of others and on ours, as the guest's kernel reaches them: each
//! breaks the rules that `docs/compliance.md` explains, and no others.
//!
//! Each run stays in `/share/compliance` as a file, which `docs/compliance` has a copy of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::bench::{KernelTarget, NQN};
use super::export::{self, Export};
use super::null_blk::NullBlk;
use super::scsi_debug;
use super::shape::{self, Shape};
use super::{nvme_cli, side};
use crate::drives;
use xtask::deviations;
use xtask::tally::Tally;

/// Where the rules that drives break are explained.
const DOCUMENT: &str = "/share/compliance.md";

/// The folder of the reports.
const RUNS: &str = "/share/compliance";

/// A drive in memory that we serve.
const SERVED: &str = "mem:zone=1M,zones=16,open=3,active=6";

/// The id of the last namespace of QEMU's controller, which is small, and of which Linux makes a
/// disk.
const SMALL_TWIN: u32 = 4;

/// Small ones, since rules fill zones many times.
const DISK: Shape = Shape { size_mib: 15, conventional: 2, ..shape::DISK };
const SSD: Shape = Shape { size_mib: 32, zone_mib: 2, capacity_mib: 1, ..shape::SSD };

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    let mut check = |drive: &str, run: &dyn Fn(&str) -> Result<()>| {
        tally.check(&format!("compliance: {drive}"), || run(drive));
    };
    check("null_blk with conventional zones", &|drive| {
        // NVMe has no conventional zones.
        explained(drive, NullBlk::new(&DISK)?.path(), &["--rules=zbc"])
    });
    check("null_blk with limits", &|drive| explained(drive, NullBlk::new(&SSD)?.path(), &[]));
    check("null_blk without memory", &|drive| {
        explained(drive, NullBlk::without_memory(&SSD)?.path(), &[])
    });
    check("QEMU 4 KiB", &|drive| explained(drive, Path::new(drives::SMALL[0]), &[]));
    check("QEMU 512 B", &|drive| explained(drive, Path::new(drives::SMALL[1]), &[]));
    check("scsi_debug 4Kn", &|drive| scsi(drive, scsi_debug::DRIVES[0].1));
    check("scsi_debug 512e", &|drive| scsi(drive, scsi_debug::DRIVES[1].1));
    check("nvmet over null_blk", &|drive| {
        let below = NullBlk::new(&SSD)?;
        let _target = KernelTarget::new(below.path())?;
        explained(drive, &generic(&export::disk(NQN, 1)?)?, &[])
    });
    check("nvmet passthrough to QEMU", &|drive| {
        let _target = KernelTarget::passthrough(&qemu_controller()?)?;
        explained(drive, &generic(&export::disk(NQN, SMALL_TWIN)?)?, &[])
    });
    check("zonal serve ublk", &|drive| {
        let (export, disk) = Export::ublk(SERVED, &[])?;
        explained(drive, &disk, &[])?;
        export.end()
    });
    check("zonal serve nvme-tcp", &|drive| {
        let (export, disk) = Export::nvme_tcp(SERVED, "")?;
        explained(drive, &generic(&disk)?, &[])?;
        export.end()
    });
}

fn scsi(drive: &str, options: &[&str]) -> Result<()> {
    let disk = scsi_debug::Drive::new(options)?;
    explained(drive, Path::new(disk.name()), &[])
}

/// The controller of QEMU's namespaces.
fn qemu_controller() -> Result<PathBuf> {
    for controller in fs::read_dir("/sys/class/nvme")? {
        let controller = controller?;
        let serial = fs::read_to_string(controller.path().join("serial"))?;
        if serial.trim() == "zns" {
            return Ok(Path::new("/dev").join(controller.file_name()));
        }
    }
    bail!("no controller has the serial number of QEMU's")
}

fn generic(disk: &Path) -> Result<PathBuf> {
    nvme_cli::generic(disk).map(PathBuf::from)
}

/// Checks a device that may be overwritten, and compares the rules that it breaks with the ones
/// that the document lists for `drive`.
pub(super) fn explained(drive: &str, node: &Path, options: &[&str]) -> Result<()> {
    let report = report(node, options)?;
    let run = run_of(drive, &report)?;
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = drive.chars().map(letter).collect();
    fs::create_dir_all(RUNS)?;
    let text = serde_json::to_string_pretty(&run)? + "\n";
    fs::write(Path::new(RUNS).join(name).with_extension("json"), text)?;
    let rules = run["broken"].as_array().context("the broken rules")?;
    let broken: Vec<&str> = rules.iter().filter_map(|rule| rule["rule_name"].as_str()).collect();
    let document = fs::read_to_string(DOCUMENT).context("reading the document")?;
    deviations::compare(&document, drive, &broken)?;
    let totals = &report["totals"];
    ensure!(totals["passed"].as_u64() > Some(300), "{drive}: few rules were tried: {totals}");
    Ok(())
}

/// Runs the command on all zones, with more options, and returns its report.
fn report(node: &Path, options: &[&str]) -> Result<Value> {
    let path = node.to_str().context("a node's name")?;
    let zones = side::zonal(&["zones", path, "--json"])?;
    let last = zones.lines().count().checked_sub(1).context("the device has no zones")?;
    let range = format!("--zones=0-{last}");
    let output = Command::new(side::ZONAL)
        .args(["compliance", path, &range, "--force", "--json"])
        .args(options)
        .output()
        .context("starting zonal")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("no report of {path}: {errors}"))
}

/// The part of a report that is kept.
fn run_of(drive: &str, report: &Value) -> Result<Value> {
    let outcomes = report["outcomes"].as_array().context("a list of outcomes")?;
    let broken: Vec<Value> = outcomes
        .iter()
        .filter(|outcome| outcome["verdict"] == "fail")
        .map(|outcome| {
            let fields = ["rule_name", "level", "clause", "expected", "observed"];
            fields.iter().map(|name| ((*name).to_owned(), outcome[*name].clone())).collect()
        })
        .collect();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(json!({
        "drive": drive,
        "kernel": kernel.trim(),
        "interface": report["interface"],
        "rules": report["rules"],
        "totals": report["totals"],
        "limits": report["limits"],
        "broken": broken,
    }))
}
