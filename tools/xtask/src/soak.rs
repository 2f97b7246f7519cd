//! `cargo xtask test --soak MINUTES`: random tests with fresh seeds, long runs of power cuts, and
//! every fuzz target, until the time is up.
//!
//! A failure can be repeated with the seed that it prints: `SEED=N cargo xtask test`, or the fuzz
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

/// Runs for this many minutes after the build, and prints the results.
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
    tools::unpack(root);
    tools::build(root);
    let mut programs = artifacts::build(root, &["--lib", "--bins", "--tests"])?;
    programs.retain(|program| program.tests);
    programs.sort_by_key(|program| program.name != "crash");
    // Its `.cargo/config.toml` says how they are compiled.
    let targets = artifacts::built(cargo(&root.join("fuzz")).args([
        "build",
        "--quiet",
        "--release",
        "--message-format=json-render-diagnostics",
    ]))?;
    ensure!(!targets.is_empty(), "fuzz/ has no target");
    let environment = Environment::new(root)?;
    let time = Duration::from_secs(u64::from(minutes) * 60);
    let until = now() + time;
    let fuzzed = thread::scope(|scope| {
        let fuzzed = scope.spawn(|| {
            let mut tally = Tally::default();
            let share = time.as_secs() / targets.len() as u64;
            for target in &targets {
                let name = format!("fuzz {}, {share} s", target.name);
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

/// The seed from the environment, or a new one.
fn seed() -> Result<u32> {
    if let Ok(seed) = std::env::var("SEED") {
        return seed.parse().context("SEED is no number below 2^32");
    }
    let mut bytes = [0; 4];
    File::open("/dev/urandom")?.read_exact(&mut bytes).context("taking a fresh seed")?;
    Ok(u32::from_le_bytes(bytes))
}

/// All tests again and again, each time with another seed.
fn rounds(
    programs: &[Program],
    environment: &Environment,
    first: u32,
    until: Instant,
    tally: &mut Tally,
) {
    for round in 0.. {
        let seed = first.wrapping_add(round).to_string();
        println!("round {round}: SEED={seed}");
        for program in programs {
            // A program that has no second left would be ended as it starts.
            if now() + Duration::from_secs(1) > until {
                return;
            }
            let name = format!("{} {}, SEED={seed}", program.package, program.name);
            let command = || {
                let mut command = environment.command(program);
                command.env("SEED", &seed).env("PROPTEST_RNG_SEED", &seed);
                command
            };
            let log = environment.log("soak");
            Tests { name, log, command: &command, until: Some(until) }.run(Tier::Soak, tally);
        }
    }
}

/// Runs one target for a while, on the inputs in the repository and the findings of earlier runs.
fn fuzz(root: &Path, target: &Program, seconds: u64, seed: u32) -> Result<()> {
    let folder = root.join("target/fuzz");
    let corpus = folder.join("corpus").join(&target.name);
    fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
    let given = root.join("fixtures/corpus").join(&target.name);
    let log = folder.join(format!("{}.log", target.name));
    let file = File::create(&log)?;
    let mut command = Command::new(&target.path);
    command.arg(&corpus).args(given.exists().then_some(given));
    // 0 would be another seed each time, and no limit of time.
    command.arg(format!("-seed={}", seed.max(1)));
    command.arg(format!("-max_total_time={}", seconds.max(1)));
    // An input that hangs takes longer than any on a busy machine.
    command.args(["-timeout=1200", "-rss_limit_mb=4096", "-print_final_stats=1"]);
    command.arg(format!("-artifact_prefix={}/{}-", folder.display(), target.name));
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
