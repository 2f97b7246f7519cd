//! `cargo xtask vm`: a real kernel to compare with.
//!
//! Debian's newest backported kernel with a few programs, in QEMU without hardware support: slow,
//! but the same everywhere, and no business of the host's kernel. What it needs comes from the
//! Debian mirror of this machine and is kept under `target/vm`.
//!
//! - `debian.rs` takes packages, `image.rs` makes a kernel and a root of them, `boot.rs` runs it
//!   with the drives of `drives.rs`.
//! - `guest.rs` runs in it: `superblock.rs`, `differ.rs` and `warts.rs` compare our zonefs with the
//!   kernel's.
//! - `cargo xtask vm run -- COMMAND` runs anything in it.

mod bench;
mod boot;
mod contents;
mod cpio;
mod debian;
mod differ;
mod drives;
mod export;
mod file_systems;
mod guest;
mod image;
mod mounted;
mod null_blk;
mod nvme_cli;
mod nvme_tcp;
mod refused;
mod shape;
mod share;
mod side;
mod side_by_side;
mod superblock;
mod ublk;
mod virtual_zones;
mod warts;
mod zbd;
mod zone_files;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};

use self::boot::{GuestClock, Job};
use self::image::Image;
use crate::check::cargo;
use crate::run;
use crate::tally::Tally;
use crate::tools::{self, Program};

/// Without an action, everything that is tested with a real kernel.
#[derive(Args)]
pub(crate) struct Vm {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only these subjects of `guest.rs`
    #[arg(long, value_name = "SUBJECT")]
    only: Vec<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Run one command in the machine, as root; its output and exit code are this command's
    Run(Run),
    /// Measure what a served drive costs the kernel that uses it, as ratios
    Bench(Bench),
    /// The measurements themselves
    #[command(hide = true)]
    GuestBench,
    /// The comparisons themselves: what the machine runs
    #[command(hide = true)]
    Guest { subjects: Vec<String> },
}

#[derive(Args)]
struct Run {
    /// A directory that the guest sees as /share
    #[arg(long, value_name = "DIR")]
    share: Option<PathBuf>,
    /// The guest's clock counts instructions, one nanosecond each: the same on any host
    #[arg(long)]
    icount: bool,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// End the machine after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u32,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Args)]
struct Bench {
    /// The guest's clock counts instructions: ratios of work, however busy the host is
    #[arg(long)]
    icount: bool,
}

/// Programs of tests that the guest runs: a package, and its test.
const TESTS: [(&str, &str); 4] = [
    ("zonal-linux", "null_blk"),
    ("zonal-linux", "passthrough"),
    ("zonal-linux", "side_by_side"),
    ("zonal-linux", "ublk"),
];

/// Does what the command line asks for.
pub(crate) fn main(root: &Path, vm: &Vm) -> Result<ExitCode> {
    match &vm.action {
        Some(Action::Run(run)) => run_command(root, run),
        Some(Action::Bench(bench)) => run_bench(root, bench),
        Some(Action::GuestBench) => bench::run().map(|()| ExitCode::SUCCESS),
        Some(Action::Guest { subjects }) => {
            Ok(crate::tallied(|tally| guest::checks(subjects, tally)))
        }
        None => Ok(crate::tallied(|tally| all(root, &vm.only, tally))),
    }
}

/// Everything that is compared with the kernel, or only some subjects.
pub(crate) fn all(root: &Path, only: &[String], tally: &mut Tally) {
    match prepare(root) {
        Ok(image) => {
            if let Err(error) = compare(root, &image, only, tally) {
                tally.fail(format!("the virtual machine: {error:#}"));
            }
        }
        Err(error) => tally.skip("comparison with a real kernel", &format!("{error:#}")),
    }
}

fn compare(root: &Path, image: &Image, only: &[String], tally: &mut Tally) -> Result<()> {
    let share = share_programs(root, image)?;
    let wanted = |name: &&str| only.is_empty() || only.iter().any(|only| only == name);
    let machines: Vec<(&str, Vec<&str>)> = guest::MACHINES
        .iter()
        .map(|machine| {
            let names = machine.subjects.iter().map(|(name, _)| *name);
            (machine.kernel_options, names.filter(wanted).collect())
        })
        .filter(|(_, subjects): &(_, Vec<_>)| !subjects.is_empty())
        .collect();
    ensure!(!machines.is_empty(), "no subject {}", only.join(", "));
    let outputs = thread::scope(|scope| {
        let start = |(number, &(kernel_options, ref subjects)): (usize, &(_, Vec<_>))| {
            println!("booting {} for {}", image.version, subjects.join(", "));
            let command = guest_command(subjects);
            let folder = root.join(format!("target/vm/run{number}"));
            let share = &share;
            scope.spawn(move || {
                let job = Job {
                    command,
                    share: Some(share),
                    kernel_options,
                    clock: GuestClock::Wall,
                    memory_mib: 2048,
                    seconds_max: 3600,
                };
                boot::run(image, &job, &folder)
            })
        };
        let running: Vec<_> = machines.iter().enumerate().map(start).collect();
        running.into_iter().map(|run| run.join().expect("it returns errors")).collect::<Vec<_>>()
    });
    for (output, (_, subjects)) in outputs.into_iter().zip(&machines) {
        let told = output.and_then(|output| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            tally.add(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
                format!("the guest's command ended with {}\n{stderr}", output.code)
            })
        });
        if let Err(error) = told {
            tally.fail(format!("the virtual machine for {}: {error:#}", subjects.join(", ")));
        }
    }
    Ok(())
}

/// What the guest runs.
fn guest_command(subjects: &[&str]) -> Vec<u8> {
    let settings = ["SEED", "COUNT"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")));
    let mut words: Vec<String> = std::iter::once("env".to_owned()).chain(settings).collect();
    words.extend(["/share/xtask", "vm", "guest"].map(str::to_owned));
    words.extend(subjects.iter().map(ToString::to_string));
    script(&words)
}

/// Builds what the guest runs, and returns the directory that it sees as `/share`.
fn share_programs(root: &Path, image: &Image) -> Result<PathBuf> {
    run::quietly(cargo(root).args(["build", "--quiet", "--package=zonal-cli"]))?;
    let share = root.join("target/vm/share");
    fs::create_dir_all(&share)?;
    let copy = |from: &Path, name: &str| {
        fs::copy(from, share.join(name)).with_context(|| format!("copying {}", from.display()))
    };
    // By this name even when a build has replaced it.
    copy(Path::new("/proc/self/exe"), "xtask")?;
    copy(&root.join("target/debug/zonal"), "zonal")?;
    copy(&root.join("docs/semantics.md"), "semantics.md")?;
    for (package, test) in TESTS {
        copy(&block_test(root, package, test)?, test)?;
    }
    if image.zbd.exists() {
        fs::create_dir_all(share.join("zbd"))?;
        for script in fs::read_dir(&image.zbd)? {
            let script = script?;
            copy(&script.path(), &format!("zbd/{}", script.file_name().display()))?;
        }
    }
    Ok(share)
}

/// A program of tests with block devices, built and not run.
fn block_test(root: &Path, package: &str, name: &str) -> Result<PathBuf> {
    let built = run::quietly(
        cargo(root)
            .args(["test", "--quiet", "--package", package, "--test", name])
            .args(["--no-run", "--message-format=json"]),
    )?;
    let mut programs = built.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    programs.next_back().context("cargo named no program of the tests of block devices")
}

/// Everything there is before a machine can be booted; an error says what is missing.
fn prepare(root: &Path) -> Result<Image> {
    tools::require(&[Program { name: "qemu-system-x86_64", package: "qemu-system-x86" }])?;
    share::require()?;
    Image::prepare(root)
}

fn run_command(root: &Path, run: &Run) -> Result<ExitCode> {
    let image = prepare(root).context("the virtual machine cannot be had")?;
    let job = Job {
        command: script(&run.command),
        share: run.share.as_deref(),
        kernel_options: "",
        clock: if run.icount { GuestClock::Instructions } else { GuestClock::Wall },
        memory_mib: run.memory,
        seconds_max: run.timeout,
    };
    let folder = root.join("target/vm").join(format!("run-{}", std::process::id()));
    let output = boot::run(&image, &job, &folder);
    if output.is_ok() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(ExitCode::from(output?.code))
}

fn run_bench(root: &Path, bench: &Bench) -> Result<ExitCode> {
    prepare(root).context("the virtual machine cannot be had")?;
    let share = root.join("target/vm/share-bench");
    fs::create_dir_all(&share)?;
    println!("building what is measured");
    run::quietly(cargo(root).args(["build", "--quiet", "--release", "--package=zonal-cli"]))?;
    fs::copy("/proc/self/exe", share.join("xtask"))?;
    fs::copy(root.join("target/release/zonal"), share.join("zonal"))?;
    let command = ["/share/xtask", "vm", "guest-bench"].map(str::to_owned).to_vec();
    let run =
        Run { share: Some(share), icount: bench.icount, memory: 2048, timeout: 3600, command };
    run_command(root, &run)
}

/// A script that starts `command`, whatever is in its words.
fn script(command: &[String]) -> Vec<u8> {
    let words: Vec<String> =
        command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    format!("#!/usr/bin/busybox sh\nexec {}\n", words.join(" ")).into_bytes()
}
