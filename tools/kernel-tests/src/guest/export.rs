//! A drive that `zonal serve` serves, and the disk that the guest's own kernel makes of it.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::side;
use xtask::run;

const HOST: &str = "nqn.2026-11.localhost:guest";
const HOST_ID: &str = "7b1f0f0e-7c5b-4ed5-9d0e-35d2e0f3a001";

/// How a drive is served.
#[derive(Clone, Copy)]
pub(super) enum Way {
    NvmeTcp,
    Ublk,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::NvmeTcp, Self::Ublk];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NvmeTcp => "NVMe/TCP",
            Self::Ublk => "ublk",
        })
    }
}

/// A server, and the kernel's device of it. Dropping this ends both.
pub(super) struct Export {
    process: Child,
    /// Kept, since it may have more to say.
    output: Words,
    nqn: String,
    port: String,
    /// `nvme0`.
    controller: Option<String>,
    /// The number of a ublk device, which outlives its server where that is killed.
    ublk: Option<u32>,
}

impl Export {
    /// Serves `device`, and returns the disk that the kernel makes of it.
    pub(super) fn start(way: Way, device: &str) -> Result<(Self, PathBuf)> {
        match way {
            Way::NvmeTcp => Self::nvme_tcp(device, ""),
            Way::Ublk => Self::ublk(device, &[]),
        }
    }

    /// Serves `device`, lets the kernel attach it with `options` of its own (each with a comma in
    /// front), and returns the disk.
    pub(super) fn nvme_tcp(device: &str, options: &str) -> Result<(Self, PathBuf)> {
        let mut export = Self::serve(&[device])?;
        let port = export.port.clone();
        export.connect(&port, options)?;
        let disk = export.disk(1)?;
        Ok((export, disk))
    }

    /// Serves devices with `arguments`; the caller connects to the server. Without a `--listen`
    /// argument the server listens on any free port.
    pub(super) fn serve(arguments: &[&str]) -> Result<Self> {
        let nqn = format!("nqn.2026-11.localhost:vm{}", side::next_number());
        Self::serve_as(&nqn, arguments)
    }

    /// The same under a name that hosts know already.
    pub(super) fn serve_as(nqn: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(side::ZONAL);
        command.args(["serve", "nvme-tcp", "--nqn", nqn]).args(arguments);
        if !arguments.iter().any(|argument| argument.starts_with("--listen")) {
            command.arg("--listen=127.0.0.1:0");
        }
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().context("its output")?;
        let nqn = nqn.to_owned();
        let (port, output) = (String::new(), BufReader::new(output).lines());
        let mut export = Self { process, output, nqn, port, controller: None, ublk: None };
        for line in export.output.by_ref() {
            if let Some((_, rest)) = line?.split_once("--trsvcid=") {
                rest.split(' ').next().unwrap_or(rest).clone_into(&mut export.port);
                return Ok(export);
            }
        }
        bail!("zonal serve nvme-tcp {arguments:?} did not say where it listens")
    }

    /// The NQN of the subsystem.
    pub(super) fn nqn(&self) -> &str {
        &self.nqn
    }

    /// The port of the first address.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// Serves `device` as a ublk device, with `options` of the command, and returns the disk.
    pub(super) fn ublk(device: &str, options: &[&str]) -> Result<(Self, PathBuf)> {
        let (process, output, number) = serve_ublk(device, options)?;
        let (nqn, port) = (String::new(), String::new());
        let export = Self { process, output, nqn, port, controller: None, ublk: Some(number) };
        Ok((export, format!("/dev/ublkb{number}").into()))
    }

    /// The server's process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server. Its ublk device stays, for another that takes over.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop).context("waiting for the killed server")
    }

    /// Lets another server of `device` take over the ublk device.
    pub(super) fn recover(&mut self, device: &str) -> Result<()> {
        let number = self.ublk.context("a ublk device")?;
        let recovered;
        (self.process, self.output, recovered) =
            serve_ublk(device, &["--recover", &number.to_string()])?;
        ensure!(recovered == number, "{recovered} was recovered, not {number}");
        Ok(())
    }

    /// Waits until the server has ended by itself, which has to be well.
    pub(super) fn ended(mut self) -> Result<()> {
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        self.ublk = None;
        Ok(())
    }

    /// Lets the kernel connect, with `options` of its own (each with a comma in front).
    pub(super) fn connect(&mut self, port: &str, options: &str) -> Result<()> {
        let mut fabrics = File::options().read(true).write(true).open("/dev/nvme-fabrics")?;
        let nqn = &self.nqn;
        let request = format!(
            "transport=tcp,traddr=127.0.0.1,trsvcid={port},nqn={nqn},hostnqn={HOST},hostid={HOST_ID}{options}"
        );
        fabrics.write_all(request.as_bytes()).context("the kernel refuses to connect")?;
        let mut answer = String::new();
        fabrics.read_to_string(&mut answer)?;
        let number = answer.split(',').find_map(|part| part.strip_prefix("instance="));
        self.controller = Some(format!("nvme{}", number.context("the kernel's answer")?.trim()));
        Ok(())
    }

    /// The kernel's controller, `nvme0`; nothing if none is connected.
    pub(super) fn controller(&self) -> &str {
        self.controller.as_deref().unwrap_or_default()
    }

    /// Takes over the controller of a crashed server that this one replaces.
    pub(super) fn adopt(&mut self, controller: &str) {
        self.controller = Some(controller.to_owned());
    }

    /// The disk of a namespace.
    pub(super) fn disk(&self, namespace: u32) -> Result<PathBuf> {
        disk(&self.nqn, namespace)
    }

    /// Lets the kernel disconnect, and ends the server, which has to end well.
    pub(super) fn end(mut self) -> Result<()> {
        self.disconnect()?;
        let process = self.process.id().to_string();
        run::quietly(Command::new("kill").arg(process))?;
        self.ended()
    }

    /// Ends the server as a crash does; the kernel stays connected, and tries again and again.
    pub(super) fn crash(mut self) -> Result<()> {
        self.controller = None;
        self.process.kill()?;
        self.process.wait().map(drop).context("waiting for the server's end")
    }

    fn disconnect(&mut self) -> Result<()> {
        let Some(controller) = self.controller.take() else { return Ok(()) };
        let place = Path::new("/sys/class/nvme").join(controller);
        fs::write(place.join("delete_controller"), "1").context("disconnecting")
    }
}

/// The disk of a namespace of a subsystem, which the kernel makes a moment after it has connected.
pub(super) fn disk(nqn: &str, namespace: u32) -> Result<PathBuf> {
    let mut node = None;
    wait_for(|| {
        for disk in fs::read_dir("/sys/block")? {
            let disk = disk?.path();
            let says = |attribute: &str, expected: &str| {
                fs::read_to_string(disk.join(attribute)).is_ok_and(|found| found.trim() == expected)
            };
            // A path to a disk has the same attributes, and is hidden.
            if says("device/subsysnqn", nqn)
                && says("nsid", &namespace.to_string())
                && !says("hidden", "1")
            {
                let named = Path::new("/dev").join(disk.file_name().context("a name")?);
                if named.exists() {
                    node = Some(named);
                }
            }
        }
        Ok(node.is_some())
    })?;
    node.context("it has appeared")
}

/// The content of a file in a disk's `queue`. The kernel makes these files a moment after the
/// disk's node; on a busy host that takes longer.
pub(super) fn queue_attribute(disk: &Path, attribute: &str) -> Result<String> {
    let name = disk.file_name().context("a disk's name")?;
    let path = Path::new("/sys/block").join(name).join("queue").join(attribute);
    wait_for(|| Ok(path.exists()))?;
    let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(found.trim().to_owned())
}

/// Bytes written to a disk, as the kernel counts them: `Documentation/ABI/stable/sysfs-block`.
pub(super) fn bytes_written(disk: &Path) -> Result<u64> {
    let name = disk.file_name().context("a name")?;
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("stat"))?;
    Ok(text.split_whitespace().nth(6).context("the seventh number")?.parse::<u64>()? * 512)
}

/// Waits until something is so, as long as it takes.
pub(super) fn wait_for(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    while !is_so()? {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(())
}

impl Drop for Export {
    fn drop(&mut self) {
        // All has ended already, if nothing went wrong.
        let _ = self.disconnect();
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(number) = self.ublk {
            let _ = side::zonal(&["serve", "ublk", "--remove", &number.to_string()]);
        }
    }
}

/// The output of a server.
type Words = Lines<BufReader<ChildStdout>>;

/// Starts a server of a ublk device, and returns the device's number when it is live.
fn serve_ublk(device: &str, options: &[&str]) -> Result<(Child, Words, u32)> {
    run::quietly(Command::new("modprobe").arg("ublk_drv"))?;
    let mut process = Command::new(side::ZONAL)
        .args(["serve", "ublk", device])
        .args(options)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut words = BufReader::new(process.stdout.take().context("its output")?).lines();
    let line = words.next().transpose()?.unwrap_or_default();
    let number = line.strip_prefix("/dev/ublkb").and_then(|rest| rest.split(' ').next());
    match number.and_then(|number| number.parse().ok()) {
        Some(number) => Ok((process, words, number)),
        // It has ended without a word on this stream.
        None => bail!("zonal serve ublk {device} ended with {}", process.wait()?),
    }
}
