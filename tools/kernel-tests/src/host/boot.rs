//! One run of the virtual machine: boots, runs a command as root, and returns its output.
//!
//! QEMU uses KVM where the host lets it, and interprets the guest elsewhere; root is not needed.
//! The command's two streams and its exit code come through ports of their own, never mixed with
//! the kernel's console, which goes to a file that is shown when the guest dies.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use xtask::watch::{self, Limits};

use super::cpio::Cpio;
use super::image::Image;
use super::share::Daemon;
use crate::drives::{self, Drives};

/// How the guest's time passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestClock {
    /// Like the host's clock.
    Wall,
    /// A nanosecond per instruction, on one processor: measures work, however busy the host is.
    Instructions,
}

/// How the guest's instructions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accelerator {
    /// The processor, through the host's kernel.
    Kvm,
    /// QEMU, which translates them: slow, but it works everywhere.
    Tcg,
}

impl Accelerator {
    /// KVM, if a guest runs to its end on it. On hosts without virtualisation in hardware, KVM may
    /// start a machine but cannot run a kernel that was not built for it.
    pub(crate) fn detect(image: &Image, root: &Path) -> Self {
        if Self::likely() == Self::Tcg {
            return Self::Tcg;
        }
        let job = Job {
            command: b"#!/usr/bin/busybox sh\n".to_vec(),
            share: None,
            kernel_options: "",
            accelerator: Self::Kvm,
            clock: GuestClock::Wall,
            memory_mib: 512,
            // It is slow at the worst to take the interpreter for a KVM that works.
            limits: Limits {
                quiet: Duration::from_mins(2),
                idle: Duration::MAX,
                ..Limits::MACHINE
            },
        };
        match attempt(image, &job, &root.join("target/vm/trial")) {
            Ok(Outcome::Ended(output)) if output.code == 0 => Self::Kvm,
            Ok(_) => Self::Tcg,
            Err(error) => {
                println!("KVM runs no guest here: {error:#}");
                Self::Tcg
            }
        }
    }

    /// KVM, if the processor has virtualization and the kernel offers it.
    pub(crate) fn likely() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let hardware = processors.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
        if hardware && Path::new("/dev/kvm").exists() { Self::Kvm } else { Self::Tcg }
    }

    /// The options for QEMU's command line.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host", "-smp", "2"],
            // One processor: with two, an interpreted kernel that patches its code may see half a
            // patch. But the machine has room for a second processor: for a single one QEMU leaves
            // out memory barriers (7.2, `tcg_gen_mb`), although its own threads read memory that
            // the guest writes. Then the guest and the NVMe controller miss each other's stores,
            // and a doorbell is never rung.
            Self::Tcg => &["-accel", "tcg", "-cpu", "max", "-smp", "1,maxcpus=2"],
        }
    }

    /// The options for the kernel's command line.
    pub(crate) fn kernel_options(self) -> &'static str {
        match self {
            Self::Kvm => "",
            // On a busy interpreter the time stamp counter cannot calibrate a clock.
            Self::Tcg => " tsc=unstable clocksource=acpi_pm no_timer_check",
        }
    }
}

/// A command, and the machine for it.
pub(crate) struct Job<'a> {
    /// A program with a `#!` line, or a binary.
    pub(crate) command: Vec<u8>,
    /// A directory of the host, which the guest sees as `/share`.
    pub(crate) share: Option<&'a Path>,
    /// Added to the kernel's command line.
    pub(crate) kernel_options: &'a str,
    /// The accelerator; with a clock that counts instructions it has to be an interpreter.
    pub(crate) accelerator: Accelerator,
    /// How time passes.
    pub(crate) clock: GuestClock,
    /// Memory in MiB.
    pub(crate) memory_mib: u32,
    /// When the machine is ended.
    pub(crate) limits: Limits,
}

/// The output of the command.
pub(crate) struct Output {
    /// Its standard output.
    pub(crate) stdout: Vec<u8>,
    /// Its standard error.
    pub(crate) stderr: Vec<u8>,
    /// Its exit code.
    pub(crate) code: u8,
    /// The processor time of the machine.
    pub(crate) processor: Duration,
}

/// The first programs of the guest: in memory, and on its disk.
const INIT: &str = include_str!("../../vm/init");
const START: &str = include_str!("../../vm/start");

/// The line that the guest prints on its console when it starts the command: `vm/start`.
const READY: &str = "vm: ready";

/// Panics end the machine.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic \
     mitigations=off nokaslr random.trust_cpu=on";

/// Runs `job`. `folder` is for this run alone and is left with the console's text.
///
/// A machine that dies before it has come to the command is started once more: an interpreted
/// kernel on a busy host may fail to get its timers going.
pub(crate) fn run(image: &Image, job: &Job, folder: &Path) -> Result<Output> {
    match attempt(image, job, folder)? {
        Outcome::Ended(output) => Ok(output),
        Outcome::NeverReady(why) => {
            eprintln!("the machine died before it ran anything; once more\n{why}");
            match attempt(image, job, folder)? {
                Outcome::Ended(output) => Ok(output),
                Outcome::NeverReady(why) => bail!("the machine died before it ran anything\n{why}"),
            }
        }
    }
}

/// How a machine ended that was not ended by us.
enum Outcome {
    Ended(Output),
    /// With its last words.
    NeverReady(String),
}

fn attempt(image: &Image, job: &Job, folder: &Path) -> Result<Outcome> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let files = Files::new(folder);
    files.write_archive(image, job)?;
    let drives = Drives::new(folder)?;
    // Ends with the machine: its only client is gone then.
    let daemon = job.share.map(|shared| Daemon::start(shared, folder)).transpose()?;
    let mut command = machine(image, job, &files, daemon.as_ref());
    drives.attach(&mut command);
    let mut child = command.spawn().context("starting QEMU")?;
    let passed = AtomicU64::new(0);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, err) = (out.expect("stdout is piped"), err.expect("stderr is piped"));
    let (stdout, stderr, ended) = thread::scope(|scope| {
        let stdout = scope.spawn(|| pass(out, io::stdout(), &passed));
        let stderr = scope.spawn(|| pass(err, io::stderr(), &passed));
        let console = || fs::metadata(&files.console).map_or(0, |console| console.len());
        let printed = || passed.load(Ordering::Relaxed) + console();
        let ended = watch::wait(&mut child, job.limits, &printed);
        let joined = "passing bytes does not panic";
        (stdout.join().expect(joined), stderr.join().expect(joined), ended)
    });
    let stdout = stdout.context("reading the guest's output")?;
    let stderr = stderr.context("reading the guest's errors")?;
    let watch::Ended { status, stuck, processor } = ended.context("waiting for QEMU")?;
    if let Some(stuck) = stuck {
        bail!("the guest did not end: {}\n{}", stuck.why(), files.console_tail());
    }
    let code = fs::read_to_string(&files.status).unwrap_or_default();
    if let Ok(code) = code.trim().parse() {
        return Ok(Outcome::Ended(Output { stdout, stderr, code, processor }));
    }
    let errors = String::from_utf8_lossy(&stderr);
    let why = format!("({status})\n{errors}\n{}", files.console_tail());
    if files.was_ready() || !status.success() {
        bail!("the guest died {why}");
    }
    Ok(Outcome::NeverReady(why))
}

/// The files of a run.
struct Files {
    archive: PathBuf,
    console: PathBuf,
    status: PathBuf,
}

impl Files {
    fn new(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        Self { archive: at("boot.cpio"), console: at("console"), status: at("status") }
    }

    /// Writes the image's archive, and behind it an archive with the files of this run.
    fn write_archive(&self, image: &Image, job: &Job) -> Result<()> {
        fs::copy(&image.archive, &self.archive).context("copying the guest's archive")?;
        let end = File::options().append(true).open(&self.archive)?;
        let mut cpio = Cpio::new(io::BufWriter::new(end));
        cpio.program("init", INIT.as_bytes())?;
        cpio.program("run/start", START.as_bytes())?;
        cpio.program("run/command", &job.command)?;
        cpio.file("run/drives", Drives::names().as_bytes())?;
        if job.share.is_some() {
            cpio.file("run/share", b"")?;
        }
        cpio.finish()?;
        // An earlier run's code is not this one's.
        match fs::remove_file(&self.status) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether the guest came to the command.
    fn was_ready(&self) -> bool {
        fs::read(&self.console).is_ok_and(|text| String::from_utf8_lossy(&text).contains(READY))
    }

    fn console_tail(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

fn machine(image: &Image, job: &Job, files: &Files, daemon: Option<&Daemon>) -> Command {
    let memory = format!("{}M", job.memory_mib);
    let mut command = watch::command("qemu-system-x86_64");
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "q35", "-m", &memory]);
    let accelerator = match job.clock {
        GuestClock::Wall => job.accelerator,
        GuestClock::Instructions => {
            command.args(["-icount", "shift=0,sleep=off"]);
            Accelerator::Tcg
        }
    };
    command.args(accelerator.options());
    command.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&files.archive);
    let kernel_options =
        format!("{KERNEL_COMMAND_LINE}{} {}", accelerator.kernel_options(), job.kernel_options);
    command.args(["-append", &kernel_options, "-device", "virtio-rng-pci"]);
    command.arg("-serial").arg(format!("file:{}", files.console.display()));
    drives::drive(&mut command, "root", &image.root, ",snapshot=on");
    command.args(["-device", "virtio-blk-pci,drive=root,serial=root"]);
    command.args(["-device", "virtio-serial-pci"]);
    let status = files.status.display().to_string();
    for (name, path) in [("out", "/dev/fd/1"), ("err", "/dev/fd/2"), ("status", &status)] {
        command.arg("-chardev").arg(format!("file,id={name},path={path}"));
        command.arg("-device").arg(format!("virtserialport,chardev={name},name={name}"));
    }
    if let Some(daemon) = daemon {
        // The daemon reads and writes the guest's memory.
        let object = format!("memory-backend-memfd,id=memory,size={memory},share=on");
        command.args(["-object", &object, "-numa", "node,memdev=memory"]);
        let socket = format!("socket,id=share,path={}", daemon.socket().display());
        command.args(["-chardev", &socket]);
        command.args(["-device", "vhost-user-fs-pci,chardev=share,tag=share"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A stream to its end, passed through and counted as its lines come: several machines write at the
/// same time.
fn pass(from: impl Read, mut to: impl Write, passed: &AtomicU64) -> io::Result<Vec<u8>> {
    let (mut all, mut from) = (Vec::new(), BufReader::new(from));
    loop {
        let start = all.len();
        if from.read_until(b'\n', &mut all)? == 0 {
            return Ok(all);
        }
        to.write_all(&all[start..])?;
        to.flush()?;
        passed.fetch_add((all.len() - start) as u64, Ordering::Relaxed);
    }
}
