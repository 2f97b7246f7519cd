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

mod boot;
mod cpio;
mod debian;
mod differ;
mod drives;
mod export;
mod guest;
mod image;
mod null_blk;
mod nvme_tcp;
mod shape;
mod share;
mod side;
mod side_by_side;
mod superblock;
mod warts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
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
    /// Only this subject of `guest.rs`
    #[arg(long, value_name = "SUBJECT", global = true)]
    only: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Run one command in the machine, as root; its output and exit code are this command's
    Run(Run),
    /// The comparisons themselves: what the machine runs
    #[command(hide = true)]
    Guest,
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

/// Does what the command line asks for.
pub(crate) fn main(root: &Path, vm: &Vm) -> Result<ExitCode> {
    match &vm.action {
        Some(Action::Run(run)) => run_command(root, run),
        Some(Action::Guest) => Ok(crate::tallied(|tally| guest::checks(vm.only.as_deref(), tally))),
        None => Ok(crate::tallied(|tally| all(root, vm.only.as_deref(), tally))),
    }
}

/// Everything that is compared with the kernel, or one subject, in one boot.
pub(crate) fn all(root: &Path, only: Option<&str>, tally: &mut Tally) {
    match prepare(root) {
        Ok(image) => {
            if let Err(error) = compare(root, &image, only, tally) {
                tally.fail(format!("the virtual machine: {error:#}"));
            }
        }
        Err(error) => tally.skip("comparison with a real kernel", &format!("{error:#}")),
    }
}

fn compare(root: &Path, image: &Image, only: Option<&str>, tally: &mut Tally) -> Result<()> {
    println!("booting {}", image.version);
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
    for test in ["null_blk", "passthrough", "side_by_side"] {
        copy(&block_test(root, test)?, test)?;
    }
    let settings = ["SEED", "COUNT"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")));
    let words = ["/share/xtask", "vm", "guest"].map(str::to_owned);
    let only = only.map(|subject| format!("--only={subject}"));
    let command: Vec<String> =
        std::iter::once("env".to_owned()).chain(settings).chain(words).chain(only).collect();
    let job = Job {
        command: script(&command),
        share: Some(&share),
        clock: GuestClock::Wall,
        memory_mib: 2048,
        seconds_max: 1800,
    };
    let output = boot::run(image, &job, &root.join("target/vm/run"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    tally
        .add(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("the guest's command ended with {}\n{stderr}", output.code))
}

/// A program of tests with block devices, built and not run.
fn block_test(root: &Path, name: &str) -> Result<PathBuf> {
    let built = run::quietly(
        cargo(root)
            .args(["test", "--quiet", "--package=zonal-linux", "--test", name])
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

/// A script that starts `command`, whatever is in its words.
fn script(command: &[String]) -> Vec<u8> {
    let words: Vec<String> =
        command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    format!("#!/usr/bin/busybox sh\nexec {}\n", words.join(" ")).into_bytes()
}
