//! `cargo xtask`: builds, tests and documents the workspace.
//!
//! - `check` looks at the source (`check/`), `test` runs it (`test.rs`); both count their results,
//!   and their last line is `N passed, N failed, N skipped`.
//! - `docs` prints the byte tables of `docs/format/` from the structs (`docs.rs`), and the table of
//!   `docs/compliance.md` from runs (`compliance.rs`).
//! - `vm` compares with a real kernel (`vm.rs` starts `tools/kernel-tests`).
//! - `dist` makes packages: it starts `tools/packaging`.
//! - `bench` starts the benchmarks, the ones of key-value stores in `tools/kv-bench`, and prints
//!   tables of their results (`figures.rs`).

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]

mod artifacts;
mod check;
mod compliance;
mod docs;
mod figures;
mod libtest;
mod printed;
mod record;
mod soak;
mod test;
mod vm;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use xtask::share::Share;
use xtask::{cargo, plugins, tools};

use crate::libtest::Tier;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests, benchmarks and documents of the workspace")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Look at the source: format, lints, dependency arrows, licences, sizes, documents
    Check,
    /// Run all that finds a broken change: check, tests, suites through a mount, a real kernel
    Test {
        /// Long tests too: a third of the virtual machines, another third after each commit
        #[arg(long)]
        all: bool,
        /// With all of the virtual machines: every test there is
        #[arg(long, requires = "all")]
        full: bool,
        /// Random tests with fresh seeds, power cuts and every fuzz target, for so long
        #[arg(long, value_name = "MINUTES", conflicts_with = "all")]
        soak: Option<u32>,
    },
    /// Refresh the byte tables of docs/format from the structs, and the table of
    /// docs/compliance.md from docs/compliance
    Docs {
        /// Only say whether the tables differ
        #[arg(long)]
        check: bool,
    },
    /// Compare with a real kernel in a virtual machine, or run a command in it
    #[command(disable_help_flag = true)]
    Vm {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make packages, the static archive, a wheel or an image, in target/dist
    #[command(disable_help_flag = true)]
    Dist {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the benchmarks, in release, or those of key-value stores; or print tables of their
    /// results
    #[command(args_conflicts_with_subcommands = true)]
    Bench {
        /// Only benchmarks whose name contains this
        filter: Option<String>,
        #[command(subcommand)]
        part: Option<Bench>,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// Refresh the tables of docs/performance.md and docs/performance from bench/results
    Report {
        /// Only say whether the tables differ
        #[arg(long)]
        check: bool,
    },
    /// Measure all figures of bench/results anew, on an idle machine: bench/commands.txt
    Record {
        /// Only lines of that file that contain this
        filter: Option<String>,
    },
    /// Zone sizes in a virtual machine: the tables of a talk (Linux Plumbers 2022) beside ours
    Lpc {
        /// As for `cargo xtask vm bench`: --json FILE
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// dm-zoned and a disk of Zonal on the same drive, in a virtual machine
    DmZoned {
        /// As for `cargo xtask vm bench`: --json FILE
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// LevelDB and RocksDB
    #[command(disable_help_flag = true)]
    Kv {
        /// `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let root = xtask::root();
    let outcome = match Args::parse().task {
        Task::Check => Ok(xtask::tally::tallied(|tally| check::all(&root, tally))),
        Task::Test { soak: Some(minutes), .. } => Ok(soak::main(&root, minutes)),
        Task::Test { all: false, .. } => Ok(test::main(&root, Tier::Standard, Share::All)),
        Task::Test { full: true, .. } => Ok(test::main(&root, Tier::All, Share::All)),
        Task::Test { .. } => {
            Share::of_commit(&root).map(|share| test::main(&root, Tier::All, share))
        }
        Task::Docs { check: false } => docs::refresh(&root)
            .and_then(|()| compliance::refresh(&root))
            .map(|()| ExitCode::SUCCESS),
        Task::Docs { check: true } => docs::compare(&root)
            .and_then(|()| compliance::compare(&root))
            .map(|()| ExitCode::SUCCESS),
        Task::Vm { arguments } => vm::main(&root, &arguments),
        Task::Dist { arguments } => dist(&root, &arguments),
        Task::Bench { part: Some(Bench::Kv { arguments }), .. } => kv_bench(&root, &arguments),
        Task::Bench { part: Some(Bench::Lpc { arguments }), .. } => {
            bench_in_guest(&root, "lpc", &arguments)
        }
        Task::Bench { part: Some(Bench::DmZoned { arguments }), .. } => {
            bench_in_guest(&root, "dm-zoned", &arguments)
        }
        Task::Bench { part: Some(Bench::Report { check: false }), .. } => {
            figures::refresh(&root).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench { part: Some(Bench::Report { check: true }), .. } => {
            figures::compare(&root).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench { part: Some(Bench::Record { filter }), .. } => {
            record::main(&root, filter.as_deref())
        }
        Task::Bench { filter, part: None } => bench(&root, filter.as_deref()),
    };
    outcome.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Measures a subject in the virtual machine.
fn bench_in_guest(root: &Path, subject: &str, arguments: &[String]) -> Result<ExitCode> {
    let bench = ["bench", subject].map(str::to_owned);
    vm::main(root, &[&bench, arguments].concat())
}

/// Builds the program that makes packages, and passes the arguments on to it.
fn dist(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let program = artifacts::program(root, "packaging")?;
    let status = Command::new(program).args(arguments).status().context("starting packaging")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the benchmarks of key-value stores and the libraries that they load, in release, and
/// passes the arguments on. Installs the headers of the plugins; the benchmarks install their
/// programs.
fn kv_bench(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    // Without headers the build leaves the plugins out.
    tools::require(&[tools::CPP_COMPILER, tools::ROCKSDB_HEADERS, tools::LEVELDB_HEADERS])?;
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--release"]);
    build.arg("--message-format=json-render-diagnostics");
    for package in ["kv-bench", "zonal-cli", "zonal-hint", "zonal-leveldb", "zonal-rocksdb"] {
        build.args(["--package", package]);
    }
    let programs = artifacts::built(&mut build)?;
    let program = artifacts::find(&programs, "kv-bench")?;
    let status = Command::new(program).args(arguments).status().context("starting kv-bench")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every benchmark whose name contains `filter`.
fn bench(root: &Path, filter: Option<&str>) -> Result<ExitCode> {
    let mut command = cargo(root);
    command.arg("bench").args(plugins::workspace(root)).args(["--bench", "*", "--"]);
    let status = command.args(filter).status();
    let status = status.context("could not start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
