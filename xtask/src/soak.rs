//! `cargo xtask test --soak MINUTES`: random tests with fresh seeds, long runs of power cuts, and every
//! fuzz target, until the time is up.
//!
//! What it finds is repeated with the seed that it prints: `SEED=N cargo xtask test`, or the fuzz
//! target on the input that it keeps in `target/fuzz`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xtask::tally::{Tally, now};
use xtask::{cargo, tools};

use crate::artifacts::{self, Program};
use crate::libtest::{Tests, Tier};
use crate::test::Environment;

/// What libFuzzer needs of the compiler: it counts edges and sees comparisons. No nightly compiler is
/// needed, because Rust checks memory itself where the targets are.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
     -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// With a target of its own, the flags do not reach build scripts.
const FUZZ_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs for so many minutes after the build, and says how it went.
pub(crate) fn main(root: &Path, minutes: u32) -> ExitCode {
    xtask::tally::tallied(|tally| {
        if let Err(error) = soak(root, minutes, tally) {
            tally.fail(format!("{error:#}"));
        }
    })
}

fn soak(root: &Path, minutes: u32, tally: &mut Tally) -> Result<()> {
    let seed = seed()?;
    println!("SEED={seed}");
    tools::install_packages(root);
    tools::build(root);
    let programs = artifacts::build(root, &["--lib", "--bins", "--tests"])?;
    let targets = fuzz_targets(root)?;
    let environment = Environment::new(root)?;
    let time = Duration::from_secs(u64::from(minutes) * 60);
    let until = now() + time;
    let fuzzed = thread::scope(|scope| {
        let fuzzed = scope.spawn(|| {
            let mut tally = Tally::default();
            let share = time / u32::try_from(targets.len().max(1)).unwrap_or(u32::MAX);
            for target in &targets {
                let name = format!("fuzz {}, {} s", target.name, share.as_secs());
                tally.check(&name, || fuzz(root, target, share, seed));
            }
            tally
        });
        rounds(&programs, &environment, seed, until, tally);
        fuzzed.join().expect("it returns errors")
    });
    tally.join(fuzzed);
    tools::count_missing(root, tally);
    Ok(())
}

/// From the environment, or one that nobody has tried.
fn seed() -> Result<u32> {
    if let Ok(seed) = std::env::var("SEED") {
        return seed.parse().context("SEED is no number below 2^32");
    }
    let mut bytes = [0; 4];
    File::open("/dev/urandom")?.read_exact(&mut bytes).context("taking a fresh seed")?;
    Ok(u32::from_le_bytes(bytes))
}

/// All tests again and again, each time with another seed; those of power cuts first.
fn rounds(
    programs: &[Program],
    environment: &Environment,
    first: u32,
    until: Instant,
    tally: &mut Tally,
) {
    let is_crash = |program: &&Program| program.name == "crash";
    for round in 0.. {
        let seed = first.wrapping_add(round).to_string();
        println!("round {round}: SEED={seed}");
        let tests = || programs.iter().filter(|program| program.tests);
        for program in tests().filter(is_crash).chain(tests().filter(|program| !is_crash(program)))
        {
            let left = until.saturating_duration_since(now()).as_secs();
            if left == 0 {
                return;
            }
            let name = format!("{} {}, SEED={seed}", program.package, program.name);
            let command = || {
                let mut command = program.command(environment, left);
                command.env("SEED", &seed).env("PROPTEST_RNG_SEED", &seed);
                command
            };
            let log = environment.log("soak");
            Tests { name, log, command: &command, until: Some(until) }.run(Tier::Soak, tally);
        }
    }
}

/// Builds every target of `fuzz/`.
fn fuzz_targets(root: &Path) -> Result<Vec<Program>> {
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--release", "--manifest-path=fuzz/Cargo.toml"]);
    build.args(["--message-format=json-render-diagnostics", "--target", FUZZ_TARGET]);
    build.env("RUSTFLAGS", FUZZ_FLAGS).env("CARGO_TARGET_DIR", root.join("target/fuzz/build"));
    let targets = artifacts::built(&mut build).context("building the fuzz targets")?;
    ensure!(!targets.is_empty(), "fuzz/ has no target");
    Ok(targets)
}

/// Runs one target for a while, on what is in the repository and what earlier runs have found.
fn fuzz(root: &Path, target: &Program, time: Duration, seed: u32) -> Result<()> {
    let folder = root.join("target/fuzz");
    let corpus = folder.join("corpus").join(&target.name);
    fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
    let mut command = Command::new(&target.path);
    command.arg(&corpus);
    let given = root.join("fixtures/corpus").join(&target.name);
    if given.exists() {
        command.arg(given);
    }
    // 0 would be another seed each time.
    command.arg(format!("-seed={}", seed.max(1)));
    command.arg(format!("-max_total_time={}", time.as_secs().max(1)));
    command.args(["-timeout=60", "-rss_limit_mb=4096", "-print_final_stats=1"]);
    command.arg(format!("-artifact_prefix={}/{}-", folder.display(), target.name));
    let log = folder.join(format!("{}.log", target.name));
    let file = File::create(&log)?;
    command.stderr(file.try_clone()?).stdout(file);
    let status = command.status().context("could not start it")?;
    let output = fs::read(&log).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    ensure!(status.success(), "ended with {status}\n{output}");
    let executed =
        output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!("fuzz {}: {} inputs", target.name, executed.unwrap_or("no count of").trim());
    Ok(())
}
