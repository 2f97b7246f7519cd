//! `cargo xtask test`: everything that finds a broken change; with `--all`, every test there is.
//!
//! Three things go on at the same time: cargo builds, lints and documents; the programs of tests run,
//! as many as there are processors; the virtual machine compares with a real kernel.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};
use xtask::tally::{Tally, now};
use xtask::{cargo, tools};

use crate::artifacts::{self, Program};
use crate::libtest::{Tests, Tier};
use crate::{check, dist, vm};

/// Minutes that `--all` takes beside what it also runs without: docs/testing.md.
const ALL_ADDS_MINUTES: u32 = 15;

/// Programs of tests that take long: they start first, so that none is left over at the end.
const LONG: [&str; 6] = ["space", "crash", "zonefs", "suite_programs", "experiments", "suite_fsx"];

/// A program of tests is ended after this many seconds.
const SECONDS_MAX: u64 = 2400;

/// Runs the tests of a tier, and says how it went.
pub(crate) fn main(root: &Path, tier: Tier) -> ExitCode {
    let start = now();
    let mut tally = Tally::default();
    if let Err(error) = all(root, tier, &mut tally) {
        tally.fail(format!("{error:#}"));
    }
    print!("\n{}", tally.names());
    println!("took {:.0} s", start.elapsed().as_secs_f64());
    if tier == Tier::Standard {
        let left = tally.left();
        println!("`--all` adds {left} more tests, about {ALL_ADDS_MINUTES} minutes");
    }
    println!("{}", tally.counts());
    tally.code()
}

fn all(root: &Path, tier: Tier, tally: &mut Tally) -> Result<()> {
    check::quick(root, tally);
    tools::install_packages(root);
    let kernel_tests = vm::program(root)?;
    let (environment, queue) = (Environment::new(root)?, Queue::default());
    let parts = thread::scope(|scope| {
        let image = scope.spawn(|| prepare_machine(&kernel_tests));
        let suites = scope.spawn(|| tools::build(root));
        println!("building every program");
        let programs = artifacts::build(root, &["--lib", "--bins", "--tests"])?;
        vm::share(root, &programs)?;
        let machine = scope.spawn(|| {
            image.join().expect("it does not panic");
            machine(&kernel_tests, tier)
        });
        suites.join().expect("it does not panic");
        queue.fill(programs);
        let packages = scope.spawn(|| dist::tests(root, tier));
        let processors = thread::available_parallelism().map_or(2, NonZeroUsize::get);
        let workers: Vec<_> =
            (0..processors).map(|_| scope.spawn(|| queue.work(&environment, tier))).collect();
        let mut parts = vec![compiled(root, &environment, tier)];
        parts.extend(workers.into_iter().map(|worker| worker.join().expect("it does not panic")));
        parts.push(machine.join().expect("it does not panic"));
        parts.push(packages.join().expect("it does not panic"));
        anyhow::Ok(parts)
    })?;
    for part in parts {
        tally.join(part);
    }
    tools::count_missing(root, tally);
    Ok(())
}

/// What takes cargo beside the build of the programs.
fn compiled(root: &Path, environment: &Environment, tier: Tier) -> Tally {
    let mut tally = Tally::default();
    check::compiled(root, &mut tally);
    let name = "examples in the documentation".to_owned();
    let command = || {
        let mut command = cargo(root);
        command.args(["test", "--workspace", "--doc", "--no-fail-fast", "--"]);
        environment.apply(&mut command);
        command
    };
    Tests { name, log: environment.log("doc"), command: &command, until: None }
        .run(tier, &mut tally);
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

    /// Where the output of tests is kept.
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
}

/// Programs of tests that wait for a processor.
#[derive(Default)]
struct Queue(Mutex<Vec<Program>>);

impl Queue {
    fn fill(&self, programs: Vec<Program>) {
        let mut tests: Vec<Program> =
            programs.into_iter().filter(|program| program.tests).collect();
        // They are taken from the end.
        let place = |program: &Program| LONG.iter().position(|name| *name == program.name);
        tests.sort_by_key(|program| std::cmp::Reverse(place(program).unwrap_or(LONG.len())));
        *self.0.lock().expect("nothing panics with it") = tests;
    }

    fn next(&self) -> Option<Program> {
        self.0.lock().expect("nothing panics with it").pop()
    }

    /// Runs programs until none is left.
    fn work(&self, environment: &Environment, tier: Tier) -> Tally {
        let mut tally = Tally::default();
        while let Some(program) = self.next() {
            let name = format!("{} {}", program.package, program.name);
            let log = environment.log(&name.replace(' ', "-"));
            let command = || program.command(environment, SECONDS_MAX);
            Tests { name, log, command: &command, until: None }.run(tier, &mut tally);
        }
        tally
    }
}

impl Program {
    /// As cargo starts it, and ended after so many seconds.
    pub(crate) fn command(&self, environment: &Environment, seconds_max: u64) -> Command {
        let mut command = ends_with_us("timeout");
        command.args(["--kill-after=10", &seconds_max.to_string()]);
        command.arg(&self.path).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        environment.apply(&mut command);
        command
    }
}

/// A command that ends when this program does, however that ends.
fn ends_with_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=TERM", "--"]).arg(program);
    command
}

/// Makes the image of the virtual machine; what is wrong is told when it is to boot.
fn prepare_machine(kernel_tests: &Path) {
    let status = Command::new(kernel_tests).arg("prepare").status();
    if !status.is_ok_and(|status| status.success()) {
        println!("the virtual machine is not ready");
    }
}

/// Compares with a real kernel.
fn machine(kernel_tests: &Path, tier: Tier) -> Tally {
    let mut tally = Tally::default();
    let parts: &[&str] = match tier {
        Tier::Standard => &["essential"],
        Tier::All | Tier::Soak => &["essential", "rest"],
    };
    for part in parts {
        let start = now();
        let mut own = Tally::default();
        let mut command = ends_with_us(kernel_tests);
        let (output, error) = match compare(command.args(["--part", part]), &mut own) {
            Ok(output) => (output, None),
            Err(error) => (String::new(), Some(error)),
        };
        if let Some(error) = error {
            own.fail(format!("comparison with a real kernel, {part}: {error:#}"));
        }
        let (counts, seconds) = (own.counts(), start.elapsed().as_secs_f64());
        println!("\n== comparison with a real kernel, {part}: {counts} ({seconds:.1} s)\n{output}");
        tally.join(own);
    }
    tally
}

fn compare(command: &mut Command, tally: &mut Tally) -> Result<String> {
    let output = command.output().context("could not start kernel-tests")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if let Err(error) = tally.add(&printed) {
        bail!("{error:#}\n{printed}{errors}");
    }
    // The counts of a part are no last line of ours.
    Ok(format!("  {}", printed.trim_end().replace('\n', "\n  ")))
}
