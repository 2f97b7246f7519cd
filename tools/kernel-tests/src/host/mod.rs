//! The host's side: makes the image of the virtual machine, boots it, and counts the results that
//! the guest reports.
//!
//! `debian.rs` takes packages, `image.rs` makes a kernel and a root of them, `boot.rs` runs it with
//! a directory of `share.rs`. The programs of the guest lie in `target/vm/share`: `cargo xtask`
//! puts them there. `packages.rs` boots another Debian, to use the packages of `cargo xtask dist`
//! in it.

mod boot;
mod cpio;
mod debian;
mod image;
mod packages;
mod share;

use std::collections::VecDeque;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bench_support::Results;
use clap::{Parser, Subcommand};
use xtask::run;
use xtask::share::Share;
use xtask::tally::{Tally, now, tallied, timed};
use xtask::tools;
use xtask::watch::Limits;

use self::boot::{Accelerator, GuestClock, Job, Output};
use self::image::Image;
use crate::guest::{MACHINES, Machine, Part};

/// Without an action, everything that is tested with a real kernel.
#[derive(Parser)]
#[command(name = "cargo xtask vm", bin_name = "cargo xtask vm")]
#[command(about = "Compare with a real kernel in a virtual machine")]
struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only these subjects of `guest/mod.rs`
    #[arg(long, value_name = "SUBJECT")]
    only: Vec<String>,
    /// Only this part of the subjects
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Only this share of the machines: `2/3` is the second third
    #[arg(long, default_value = "all")]
    share: Share,
    /// What runs the machine: KVM where it works, unless this says otherwise
    #[arg(long, global = true, value_enum)]
    accelerator: Option<Accelerator>,
}

#[derive(Subcommand)]
enum Action {
    /// Make the image of the machine, unless it is there
    Prepare,
    /// Install these packages in a fresh Debian, and use them there
    #[command(hide = true)]
    Packages { files: Vec<PathBuf> },
    /// Run one command in the machine, as root; its output and exit code are this command's
    Run(Run),
    /// Measure what a served drive costs the kernel that uses it, as ratios
    Bench(Bench),
}

#[derive(clap::Args)]
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
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct Bench {
    /// The guest's clock counts instructions: ratios of work, however busy the host is
    #[arg(long, conflicts_with = "subject")]
    icount: bool,
    /// Instead of served drives
    subject: Option<BenchSubject>,
    /// Write the figures to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The subject of a benchmark in the guest.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BenchSubject {
    /// The tables of the talk about zone sizes (Linux Plumbers 2022) beside ours, by a clock that
    /// counts instructions
    Lpc,
    /// Bytes that dm-zoned and a disk write to the same drive
    DmZoned,
}

impl BenchSubject {
    /// The guest's command, which leaves its figures in a file of this name.
    fn command(self) -> &'static str {
        match self {
            Self::Lpc => "lpc",
            Self::DmZoned => "dm-zoned",
        }
    }
}

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let root = xtask::root();
    let accelerator = args.accelerator;
    let outcome = match &args.action {
        Some(Action::Prepare) => prepare(&root).map(|_| ExitCode::SUCCESS),
        Some(Action::Packages { files }) => {
            Ok(tallied(|tally| packages::test(&root, files, tally)))
        }
        Some(Action::Run(run)) => run_command(&root, run, accelerator),
        Some(Action::Bench(bench)) => run_bench(&root, bench, accelerator),
        None => Ok(tallied(|tally| {
            let wanted = Wanted { subjects: &args.only, part: args.part, share: args.share };
            all(&root, &wanted, accelerator, tally);
        })),
    };
    outcome.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Which subjects to run; nothing is everything.
struct Wanted<'a> {
    subjects: &'a [String],
    part: Option<Part>,
    share: Share,
}

impl Wanted<'_> {
    /// The wanted subjects of the machine with this number.
    fn of(&self, number: usize, machine: &Machine) -> Vec<&'static str> {
        if self.part.is_some_and(|part| part != machine.part) || !self.share.has(number) {
            return Vec::new();
        }
        let names = machine.subjects.iter().map(|subject| subject.name);
        names.filter(|name| self.subjects.is_empty() || self.names(name)).collect()
    }

    fn names(&self, name: &str) -> bool {
        self.subjects.iter().any(|wanted| wanted == name)
    }
}

/// Compares with the kernel, and counts the checks that a partial run skips.
fn all(root: &Path, wanted: &Wanted, accelerator: Option<Accelerator>, tally: &mut Tally) {
    match prepare(root) {
        Ok(image) => {
            if let Err(error) = compare(root, &image, wanted, accelerator, tally) {
                tally.fail(format!("the virtual machine: {error:#}"));
            }
        }
        Err(error) => tally.skip("comparison with a real kernel", &format!("{error:#}")),
    }
    if wanted.part == Some(Part::Essential) {
        let rest = MACHINES.iter().filter(|machine| machine.part == Part::Rest);
        tally.leave(rest.flat_map(|machine| machine.subjects).map(|subject| subject.checks).sum());
        tally.leave(packages::COUNT);
    }
}

/// A machine to boot.
struct Boot {
    kernel_options: &'static str,
    subjects: Vec<&'static str>,
    folder: PathBuf,
}

fn compare(
    root: &Path,
    image: &Image,
    wanted: &Wanted,
    accelerator: Option<Accelerator>,
    tally: &mut Tally,
) -> Result<()> {
    let share = fill_share(root, image)?;
    let boots: VecDeque<Boot> = MACHINES
        .iter()
        .enumerate()
        .map(|(number, machine)| Boot {
            kernel_options: machine.kernel_options,
            subjects: wanted.of(number, machine),
            folder: root.join(format!("target/vm/run{number}")),
        })
        .filter(|boot| !boot.subjects.is_empty())
        .collect();
    ensure!(!boots.is_empty(), "no subject {}", wanted.subjects.join(", "));
    let accelerator = accelerator.unwrap_or_else(|| Accelerator::detect(image, root));
    for (boot, output) in run_all(image, &share, accelerator, boots) {
        let counted = output.and_then(|output| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            tally.add(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
                format!("the guest's command ended with {}\n{stderr}", output.code)
            })
        });
        if let Err(error) = counted {
            tally.fail(format!("the virtual machine for {}: {error:#}", boot.subjects.join(", ")));
        }
    }
    Ok(())
}

/// Runs the machines, as many at a time as this one has processors: an interpreted guest uses one.
fn run_all(
    image: &Image,
    share: &Path,
    accelerator: Accelerator,
    boots: VecDeque<Boot>,
) -> Vec<(Boot, Result<Output>)> {
    let processors = thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let waiting = Mutex::new(boots);
    let outputs = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("nothing panics with it").pop_front();
    let work = || {
        while let Some(boot) = next() {
            let names = boot.subjects.join(", ");
            println!("booting {} on {accelerator:?} for {names}", image.version);
            let job = Job {
                command: guest_command(&boot.subjects),
                share: Some(share),
                kernel_options: boot.kernel_options,
                accelerator,
                clock: GuestClock::Wall,
                memory_mib: 2048,
                limits: Limits::MACHINE,
            };
            let (output, seconds) = timed(|| boot::run(image, &job, &boot.folder));
            if let Ok(output) = &output {
                let used = output.processor.as_secs();
                println!("the machine for {names}: {seconds:.0} s, {used} s of processor time");
            }
            outputs.lock().expect("nothing panics with it").push((boot, output));
        }
    };
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(work);
        }
    });
    outputs.into_inner().expect("nothing panics with it")
}

/// The command that the guest runs.
fn guest_command(subjects: &[&str]) -> Vec<u8> {
    let settings = ["SEED", "COUNT"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")));
    let mut words: Vec<String> = std::iter::once("env".to_owned()).chain(settings).collect();
    words.extend(["/share/kernel-tests-guest", "subjects"].map(str::to_owned));
    words.extend(subjects.iter().map(ToString::to_string));
    script(&words)
}

/// Adds the other files that the guest reads to the programs in `target/vm/share`.
fn fill_share(root: &Path, image: &Image) -> Result<PathBuf> {
    let share = root.join("target/vm/share");
    ensure!(share.join("zonal").exists(), "nothing for the guest to run: use cargo xtask vm");
    let copy = |from: &Path, name: &str| {
        // A guest of another run may read the old one: this makes a new file.
        let new = share.join(format!("{name}.{}", std::process::id()));
        fs::copy(from, &new).with_context(|| format!("copying {}", from.display()))?;
        fs::rename(&new, share.join(name)).with_context(|| format!("making {name}"))
    };
    for document in ["semantics.md", "compliance.md"] {
        copy(&root.join("docs").join(document), document)?;
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

/// Makes everything that booting a machine needs; an error names the missing part.
fn prepare(root: &Path) -> Result<Image> {
    tools::require(&[("qemu-system-x86_64", "qemu-system-x86")])?;
    share::require()?;
    Image::prepare(root)
}

fn run_command(root: &Path, run: &Run, accelerator: Option<Accelerator>) -> Result<ExitCode> {
    let image = prepare(root).context("the virtual machine cannot be had")?;
    let job = Job {
        command: script(&run.command),
        share: run.share.as_deref(),
        kernel_options: "",
        accelerator: accelerator.unwrap_or_else(|| Accelerator::detect(&image, root)),
        clock: if run.icount { GuestClock::Instructions } else { GuestClock::Wall },
        memory_mib: run.memory,
        limits: Limits {
            until: run.timeout.map(|seconds| now() + Duration::from_secs(seconds)),
            ..Limits::MACHINE
        },
    };
    let folder = root.join("target/vm").join(format!("run-{}", std::process::id()));
    let output = boot::run(&image, &job, &folder);
    if output.is_ok() {
        fs::remove_dir_all(&folder)?;
    }
    Ok(ExitCode::from(output?.code))
}

fn run_bench(root: &Path, bench: &Bench, accelerator: Option<Accelerator>) -> Result<ExitCode> {
    prepare(root).context("the virtual machine cannot be had")?;
    let share = root.join("target/vm/share-bench");
    fs::create_dir_all(&share)?;
    println!("building what is measured");
    let programs = ["--package=zonal-cli", "--package=kernel-tests", "--bins"];
    run::quietly(xtask::cargo(root).args(["build", "--quiet", "--release"]).args(programs))?;
    for program in ["zonal", "kernel-tests-guest"] {
        fs::copy(root.join("target/release").join(program), share.join(program))?;
    }
    let subcommand = bench.subject.map_or("bench", BenchSubject::command);
    let figures = share.join(subcommand).with_extension("json");
    // Of an earlier run.
    if figures.exists() {
        fs::remove_file(&figures)?;
    }
    let is_lpc = bench.subject == Some(BenchSubject::Lpc);
    let memory = if is_lpc { 4096 } else { 2048 };
    let command = ["/share/kernel-tests-guest", subcommand].map(str::to_owned).to_vec();
    let icount = bench.icount || is_lpc;
    let run = Run { share: Some(share), icount, memory, timeout: None, command };
    let code = run_command(root, &run, accelerator)?;
    if let Some(target) = bench.json.as_ref().filter(|_| code == ExitCode::SUCCESS) {
        let mut results = Results::read(&figures)?;
        let commit = bench_support::commit().context("git names no commit")?;
        results.runs.iter_mut().for_each(|run| run.commit.clone_from(&commit));
        fs::write(target, results.to_json())
            .with_context(|| format!("writing {}", target.display()))?;
    }
    Ok(code)
}

/// A script that starts `command`; its words may contain any characters.
fn script(command: &[String]) -> Vec<u8> {
    let words: Vec<String> =
        command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    format!("#!/usr/bin/busybox sh\nexec {}\n", words.join(" ")).into_bytes()
}
