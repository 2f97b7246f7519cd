//! A drive that `zonal serve` serves, and the disk that the guest's own kernel makes of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::side;
use crate::run;

const HOST: &str = "nqn.2026-11.localhost:guest";
const HOST_ID: &str = "7b1f0f0e-7c5b-4ed5-9d0e-35d2e0f3a001";

/// How often something that is to appear is looked for, a tenth of a second apart.
const TRIES: u32 = 300;

/// A server over NVMe/TCP, and the kernel's connection to it. Both end with this.
pub(super) struct Export {
    process: Child,
    nqn: String,
    /// `nvme0`.
    controller: Option<String>,
}

impl Export {
    /// Serves `device`, lets the kernel attach it with `options` of its own (each with a comma in
    /// front), and returns the disk.
    pub(super) fn nvme_tcp(device: &str, options: &str) -> Result<(Self, PathBuf)> {
        run::quietly(Command::new("ip").args(["link", "set", "lo", "up"]))?;
        let nqn = format!("nqn.2026-11.localhost:vm{}", side::next_number());
        let mut process = Command::new(side::ZONAL)
            .args(["serve", "nvme-tcp", device, "--listen=127.0.0.1:0", "--nqn", &nqn])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("its output")?;
        let mut export = Self { process, nqn, controller: None };
        for line in BufReader::new(output).lines() {
            if let Some((_, rest)) = line?.split_once("--trsvcid=") {
                let port = rest.split(' ').next().unwrap_or(rest).to_owned();
                export.connect(&port, options)?;
                let disk = export.disk(1)?;
                return Ok((export, disk));
            }
        }
        bail!("zonal serve nvme-tcp {device} did not say where it listens")
    }

    fn connect(&mut self, port: &str, options: &str) -> Result<()> {
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

    /// The disk of a namespace, which the kernel makes a moment after it has connected.
    pub(super) fn disk(&self, namespace: u32) -> Result<PathBuf> {
        for _ in 0..TRIES {
            for disk in fs::read_dir("/sys/block")? {
                let disk = disk?.path();
                let says = |attribute: &str, expected: &str| {
                    fs::read_to_string(disk.join(attribute))
                        .is_ok_and(|found| found.trim() == expected)
                };
                // A path to a disk has the same attributes, and is hidden.
                if says("device/subsysnqn", &self.nqn)
                    && says("nsid", &namespace.to_string())
                    && !says("hidden", "1")
                {
                    let node = Path::new("/dev").join(disk.file_name().context("a name")?);
                    if node.exists() {
                        return Ok(node);
                    }
                }
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        bail!("no disk of namespace {namespace} of {} appeared", self.nqn)
    }

    /// Lets the kernel disconnect, and ends the server, which has to end well.
    pub(super) fn end(mut self) -> Result<()> {
        self.disconnect()?;
        let process = self.process.id().to_string();
        run::quietly(Command::new("kill").arg(process))?;
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        let Some(controller) = self.controller.take() else { return Ok(()) };
        let place = Path::new("/sys/class/nvme").join(controller);
        fs::write(place.join("delete_controller"), "1").context("disconnecting")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // All has ended already, if nothing went wrong.
        let _ = self.disconnect();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
