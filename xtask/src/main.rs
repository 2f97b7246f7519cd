//! `cargo xtask`: everything that is done to the workspace rather than by it.
//!
//! - `check` looks at the source (`check/`), `test` runs it (`test.rs`), both count into one
//!   [`tally::Tally`], whose last line is `N passed, N failed, N skipped`.
//! - `docs` prints the byte tables of `docs/format/` from the structs (`docs.rs`).
//! - `vm` boots a real kernel and compares with it (`vm/`).
//! - `crash` and `bench` start the long runs (`long.rs`).

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]

mod calls;
mod check;
mod docs;
mod long;
mod run;
mod tally;
mod test;
mod tools;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::tally::Tally;

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
    /// Run everything: check, all tests, the guide, the suites through a real mount
    Test {
        /// Leave out what needs root, tools or minutes
        #[arg(long)]
        quick: bool,
    },
    /// Refresh the byte tables of docs/format from the structs
    Docs {
        /// Only say whether they differ
        #[arg(long)]
        check: bool,
    },
    /// Try many power cuts, in release: SEED and COUNT in the environment choose which
    Crash,
    /// Make random calls on a mounted zonefs and print what each returned
    Calls(calls::Calls),
    /// Compare with a real kernel in a virtual machine, or run a command in it
    Vm(vm::Vm),
    /// Run the benchmarks of the device and the file system, in release
    Bench {
        /// Only benchmarks whose name contains this
        filter: Option<String>,
    },
}

fn main() -> ExitCode {
    let root = root();
    let outcome = match Args::parse().task {
        Task::Check => Ok(tallied(|tally| check::all(&root, tally))),
        Task::Test { quick } => {
            let scope = if quick { test::Scope::Quick } else { test::Scope::Everything };
            Ok(tallied(|tally| test::all(&root, scope, tally)))
        }
        Task::Docs { check: false } => docs::refresh(&root).map(|()| ExitCode::SUCCESS),
        Task::Docs { check: true } => docs::compare(&root).map(|()| ExitCode::SUCCESS),
        Task::Crash => long::crash(&root),
        Task::Calls(calls) => {
            calls::run(&calls, &mut std::io::stdout().lock()).map(|()| ExitCode::SUCCESS)
        }
        Task::Vm(arguments) => vm::main(&root, &arguments),
        Task::Bench { filter } => long::bench(&root, filter.as_deref()),
    };
    outcome.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs `work`, prints what it counted and turns that into an exit code.
fn tallied(work: impl FnOnce(&mut Tally)) -> ExitCode {
    let mut tally = Tally::default();
    work(&mut tally);
    tally.print();
    if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The workspace's root, whatever directory the command is started in.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one directory below the root")
        .to_path_buf()
}
