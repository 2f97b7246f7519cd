//! The cost of a served drive: fio in the guest, on `null_blk` and on drives that we and the
//! kernel's own target serve. Rounds go from drive to drive, so that a busy host slows all.
//!
//! Only ratios mean something, because QEMU interprets the guest. With a clock that counts
//! instructions, they are ratios of work.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use bench_support::{Report, WarmUp, interleave};

use super::export::{self, Export};
use super::null_blk::NullBlk;
use super::shape::Shape;
use xtask::run;

/// Of every drive: no limits, zones that are writable to their ends.
const SHAPE: Shape = Shape {
    name: "bench",
    block: 4096,
    size_mib: 128,
    zone_mib: 4,
    capacity_mib: 4,
    conventional: 0,
    open: 0,
    active: 0,
};

const ROUNDS: usize = 5;

/// Of the guest's time that one measurement takes, as fio reads it.
const RUNTIME: &str = "2s";

/// A job of fio.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) rw: &'static str,
    pub(super) block: &'static str,
    pub(super) depth: u32,
}

/// The write comes first, because the reads need data to read.
const JOBS: [Job; 4] = [
    Job { name: "sequential write of 128 KiB, depth 8", rw: "write", block: "128k", depth: 8 },
    Job { name: "random read of 4 KiB, depth 1", rw: "randread", block: "4k", depth: 1 },
    Job { name: "random read of 4 KiB, depth 32", rw: "randread", block: "4k", depth: 32 },
    Job { name: "random read of 128 KiB, depth 8", rw: "randread", block: "128k", depth: 8 },
];

/// Drives in the order of the table; each is compared with the first, but the last with the
/// kernel's target over the same.
const NAMES: [&str; 5] = [
    "`null_blk`",
    "ublk, memory",
    "NVMe/TCP, memory",
    "kernel's NVMe/TCP, `null_blk`",
    "NVMe/TCP, `null_blk`",
];

/// The host copies it.
const JSON: &str = "/share/bench.json";

/// Measures, prints a table, and leaves the figures for the host.
pub(super) fn run() -> Result<()> {
    let kernel: Vec<NullBlk> = (0..3).map(|_| NullBlk::new(&SHAPE)).collect::<Result<_>>()?;
    let memory = SHAPE.memory_drive();
    let (_ublk, ublk) = Export::ublk(&memory, &[])?;
    let (_tcp, tcp) = Export::nvme_tcp(&memory, "")?;
    let _target = KernelTarget::new(kernel[1].path())?;
    let below = kernel[2].path().to_str().context("the name of a device")?;
    let (_over, over) = Export::nvme_tcp(below, "")?;
    let drives = [kernel[0].path().to_path_buf(), ublk, tcp, export::disk(NQN, 1)?, over];
    let mut arguments = ["--json", JSON].map(str::to_owned).to_vec();
    let mut report = Report::begin("cargo xtask vm bench", &mut arguments);
    report.subject("served", ROUNDS);
    for job in &JOBS {
        let turns =
            interleave(ROUNDS, drives.len(), WarmUp::None, |at| Some(job.rate(&drives[at])));
        let rates = turns.into_iter().map(|rates| rates.into_iter().collect());
        let rates: Vec<Vec<f64>> = rates.collect::<Result<_>>()?;
        for (name, own) in NAMES.iter().zip(&rates) {
            let ratios: Vec<f64> =
                own.iter().zip(&rates[0]).map(|(own, first)| own / first).collect();
            report.add_variant((job.name, name), "÷ `null_blk`", &ratios);
        }
    }
    report.end();
    Ok(())
}

impl Job {
    /// Operations per second.
    fn rate(&self, drive: &Path) -> Result<f64> {
        self.run(drive, RUNTIME).map(|done| done.rate)
    }

    pub(super) fn run(&self, drive: &Path, runtime: &str) -> Result<Done> {
        let mut fio = Command::new("fio");
        fio.args(["--name=bench", "--direct=1", "--ioengine=libaio"]);
        if export::queue_attribute(drive, "zoned")? != "none" {
            fio.arg("--zonemode=zbd");
        }
        fio.args(["--output-format=json", "--time_based", "--randseed=1"]);
        fio.arg(format!("--runtime={runtime}")).arg(format!("--filename={}", drive.display()));
        fio.arg(format!("--rw={}", self.rw)).arg(format!("--bs={}", self.block));
        let printed = run::quietly(fio.arg(format!("--iodepth={}", self.depth)))?;
        // It may say something before.
        let json = printed.find('{').map_or("", |start| &printed[start..]);
        let told: serde_json::Value = serde_json::from_str(json).context("what fio printed")?;
        let side = if self.rw == "write" { "write" } else { "read" };
        let figure = |name| told["jobs"][0][side][name].as_f64();
        let (rate, operations) = (figure("iops"), figure("total_ios"));
        let (rate, operations) = rate.zip(operations).context("fio told no rate")?;
        Ok(Done { rate, operations })
    }
}

/// The result of a job.
pub(super) struct Done {
    /// Operations per second.
    pub(super) rate: f64,
    pub(super) operations: f64,
}

const SUBSYSTEMS: &str = "/sys/kernel/config/nvmet/subsystems";
const PORT: &str = "/sys/kernel/config/nvmet/ports/1";
pub(super) const NQN: &str = "nqn.2026-11.localhost:kernel";

/// The kernel's own NVMe/TCP target, serving one disk or controller to the same kernel.
pub(super) struct KernelTarget;

impl KernelTarget {
    pub(super) fn new(disk: &Path) -> Result<Self> {
        Self::serve(|subsystem| {
            let namespace = subsystem.join("namespaces/1");
            fs::create_dir(&namespace)?;
            set(&namespace.join("device_path"), disk.to_str().context("the name of a device")?)?;
            set(&namespace.join("enable"), "1")
        })
    }

    /// Serves a whole controller: commands go to it as they are.
    pub(super) fn passthrough(controller: &Path) -> Result<Self> {
        Self::serve(|subsystem| {
            let passthrough = subsystem.join("passthru");
            set(&passthrough.join("device_path"), controller.to_str().context("a node's name")?)?;
            set(&passthrough.join("enable"), "1")
        })
    }

    fn serve(fill: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        run::quietly(Command::new("modprobe").arg("nvmet-tcp"))?;
        let subsystem = Path::new(SUBSYSTEMS).join(NQN);
        fs::create_dir(&subsystem).context("making a subsystem of the kernel's target")?;
        let target = Self;
        fill(&subsystem)?;
        fs::create_dir(PORT)?;
        set(&subsystem.join("attr_allow_any_host"), "1")?;
        for (file, value) in [
            ("addr_trtype", "tcp"),
            ("addr_adrfam", "ipv4"),
            ("addr_traddr", "127.0.0.1"),
            ("addr_trsvcid", "4421"),
        ] {
            set(&Path::new(PORT).join(file), value)?;
        }
        symlink(&subsystem, Path::new(PORT).join("subsystems").join(NQN))?;
        nvme(&["connect", "--transport=tcp", "--traddr=127.0.0.1", "--trsvcid=4421"])?;
        Ok(target)
    }
}

impl Drop for KernelTarget {
    fn drop(&mut self) {
        // Each kind of target has only some of these; a leftover would make the next target fail.
        let subsystem = Path::new(SUBSYSTEMS).join(NQN);
        let _ = nvme(&["disconnect"]);
        let _ = fs::remove_file(Path::new(PORT).join("subsystems").join(NQN));
        let _ = fs::remove_dir(PORT);
        let _ = fs::write(subsystem.join("passthru/enable"), "0");
        let _ = fs::remove_dir(subsystem.join("namespaces/1"));
        let _ = fs::remove_dir(&subsystem);
    }
}

fn set(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("{} = {value}", file.display()))
}

fn nvme(arguments: &[&str]) -> Result<String> {
    run::quietly(Command::new("nvme").args(arguments).arg(format!("--nqn={NQN}")))
}
