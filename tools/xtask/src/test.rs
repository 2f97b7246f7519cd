//! `cargo xtask test`: everything that finds a broken change; with `--all`, long tests too.
//!
//! Three things run at the same time: cargo, which builds, lints and documents; the programs of
//! tests, as many as there are processors; the virtual machine, which compares with a real kernel.
//! With `--all` the other machines, or a share of them, start when the programs have ended.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, mpsc};
use std::thread;

use anyhow::{Context, Result};
use xtask::share::Share;
use xtask::tally::{Tally, now};
use xtask::{cargo, plugins, tools, watch};

use crate::artifacts::{self, Program};
use crate::libtest::{Tests, Tier};
use crate::{check, vm};

/// Minutes that `--all` adds to a run without it: docs/testing.md.
const ALL_ADDS_MINUTES: u32 = 15;

/// The place of the packages' machine in the list of machines: behind the ten of `kernel-tests`.
const PACKAGES: usize = 10;

/// Test programs that take long: they start first, so that none is left over at the end.
const LONG: [&str; 8] =
    ["space", "crash", "db", "programs", "zonefs", "suites", "experiments", "mounts"];

/// Runs the tests of a tier, with a share of the machines of `--all`, and prints the results.
pub(crate) fn main(root: &Path, tier: Tier, share: Share) -> ExitCode {
    let (start, mut tally) = (now(), Tally::default());
    if let Err(error) = all(root, tier, share, &mut tally) {
        tally.fail(format!("{error:#}"));
    }
    println!("\nThe longest parts; some of them run at the same time:\n{}", tally.longest());
    print!("{}", tally.names());
    println!("took {:.0} s", start.elapsed().as_secs_f64());
    if tier == Tier::Standard {
        let left = tally.left();
        println!("`--all` adds a third of {left} more tests, about {ALL_ADDS_MINUTES} minutes");
    } else if share != Share::All {
        println!("{share} of the machines of `--all` ran: `--all --full` runs every one");
    }
    println!("{}", tally.counts());
    tally.code()
}

fn all(root: &Path, tier: Tier, share: Share, tally: &mut Tally) -> Result<()> {
    check::quick(root, tally);
    tools::install_packages(root);
    tools::unpack(root);
    let kernel_tests = artifacts::program(root, "kernel-tests")?;
    let packaging = artifacts::program(root, "packaging")?;
    let environment = Environment::new(root)?;
    thread::scope(|scope| {
        let image = scope.spawn(|| vm::prepare(&kernel_tests));
        let suites = scope.spawn(|| tools::build(root));
        println!("building every program");
        let build = || artifacts::build(root, &["--lib", "--bins", "--tests"]);
        let programs = tally.timed("building every program", build).0?;
        vm::share(root, &programs)?;
        let (is_making, is_made) = mpsc::channel::<()>();
        let mut parts = vec![scope.spawn(|| {
            image.join().expect("it does not panic");
            drop(is_making);
            machines(&kernel_tests, "essential", Share::All)
        })];
        suites.join().expect("it does not panic");
        if tier == Tier::All && share.has(PACKAGES) {
            let name = "packages in a fresh Debian";
            parts.push(scope.spawn(move || vm::count(&packaging, &["--test"], name)));
        }
        parts.push(scope.spawn(|| compiled(root, &environment, tier)));
        let (environment, kernel_tests) = (&environment, &kernel_tests);
        parts.push(scope.spawn(move || {
            let mut tally = run_all(programs, environment, tier);
            // The other machines take the processors that the programs have left.
            if tier == Tier::All {
                is_made.recv().expect_err("nothing is sent");
                tally.join(machines(kernel_tests, "rest", share));
            }
            tally
        }));
        for part in parts {
            tally.join(part.join().expect("it does not panic"));
        }
        anyhow::Ok(())
    })?;
    tools::count_missing(root, tally);
    Ok(())
}

/// Runs the checks and examples that need cargo after the build of the programs.
fn compiled(root: &Path, environment: &Environment, tier: Tier) -> Tally {
    let mut tally = Tally::default();
    check::compiled(root, &mut tally);
    let command = || {
        let mut command = cargo(root);
        command.arg("test").args(plugins::workspace(root));
        command.args(["--doc", "--no-fail-fast", "--"]);
        environment.apply(&mut command);
        command
    };
    let (name, log) = ("examples in the documentation".to_owned(), environment.log("doc"));
    Tests { name, log, command: &command, until: None }.run(tier, &mut tally);
    tally
}

/// Compares with a real kernel, in a share of the virtual machines of a part.
fn machines(kernel_tests: &Path, part: &str, share: Share) -> Tally {
    let name = format!("comparison with a real kernel, {part}");
    vm::count(kernel_tests, &["--part", part, "--share", &share.to_string()], &name)
}

/// Runs all programs, as many at a time as there are processors.
fn run_all(programs: Vec<Program>, environment: &Environment, tier: Tier) -> Tally {
    let (waiting, mut tally) = (Mutex::new(queue(programs)), Tally::default());
    let processors = thread::available_parallelism().map_or(2, NonZeroUsize::get);
    thread::scope(|scope| {
        let worker = |_| scope.spawn(|| work(&waiting, environment, tier));
        let workers: Vec<_> = (0..processors).map(worker).collect();
        for worker in workers {
            tally.join(worker.join().expect("it does not panic"));
        }
    });
    tally
}

/// The test programs. Programs that start first are at the end.
fn queue(programs: Vec<Program>) -> Vec<Program> {
    let mut tests: Vec<Program> = programs.into_iter().filter(|program| program.tests).collect();
    let place = |program: &Program| LONG.iter().position(|name| *name == program.name);
    tests.sort_by_key(|program| Reverse(place(program).unwrap_or(LONG.len())));
    tests
}

/// Runs programs until none is left.
fn work(queue: &Mutex<Vec<Program>>, environment: &Environment, tier: Tier) -> Tally {
    let mut tally = Tally::default();
    let next = || queue.lock().expect("nothing panics with it").pop();
    while let Some(program) = next() {
        let name = format!("{} {}", program.package, program.name);
        let log = environment.log(&name.replace(' ', "-"));
        let command = || environment.command(&program);
        Tests { name, log, command: &command, until: None }.run(tier, &mut tally);
    }
    tally
}

/// The variables that tests run with.
pub(crate) struct Environment {
    path: OsString,
    logs: PathBuf,
}

impl Environment {
    /// With the programs that suites use.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let logs = root.join("target/test-logs");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        Ok(Self { path: tools::search_path(root), logs })
    }

    /// The file for the output of tests.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    /// Every run tries the same random tests, so that a failure is the change's and not the day's.
    /// `SEED` in the environment chooses others; `--soak` takes fresh ones.
    fn apply(&self, command: &mut Command) {
        command.env("PATH", &self.path);
        for name in ["SEED", "PROPTEST_RNG_SEED"] {
            if std::env::var_os(name).is_none() {
                command.env(name, "1");
            }
        }
    }

    /// A program as cargo starts it.
    pub(crate) fn command(&self, program: &Program) -> Command {
        let mut command = watch::command(&program.path);
        command.current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        command.env("CARGO_PKG_NAME", &program.package);
        self.apply(&mut command);
        command
    }
}
