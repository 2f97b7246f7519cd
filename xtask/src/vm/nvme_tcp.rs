//! Drives that `zonal serve nvme-tcp` serves, attached by the guest's own kernel: it finds the
//! zones, and makes and uses a zonefs on them. The kernel is spoken to through /dev/nvme-fabrics.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::run;
use crate::tally::Tally;

const NQN: &str = "nqn.2026-11.localhost:vm";
const HOST: &str = "nqn.2026-11.localhost:guest";
const HOST_ID: &str = "7b1f0f0e-7c5b-4ed5-9d0e-35d2e0f3a001";

/// Everything.
pub(super) fn checks(tally: &mut Tally) {
    for (name, options) in [("plainly", ""), ("with digests", ",hdr_digest,data_digest")] {
        tally.check(&format!("the kernel attaches a served drive {name}"), || attach(options));
    }
}

/// A served drive whose zones are a power of two only by an adapter, and the kernel's zonefs on it.
fn attach(options: &str) -> Result<()> {
    run::quietly(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let server = Server::start("po2:mem:zone=3M,zones=32,open=8,active=12")?;
    let disk = server.connect(options)?;
    let queue = Path::new("/sys/block").join(disk.file_name().context("a disk's name")?);
    for (attribute, expected) in [
        ("zoned", "host-managed"),
        ("chunk_sectors", "8192"),
        ("max_open_zones", "8"),
        ("max_active_zones", "12"),
    ] {
        let found = fs::read_to_string(queue.join("queue").join(attribute))?;
        ensure!(found.trim() == expected, "{attribute} is {found}, not {expected}");
    }
    run::quietly(Command::new("mkzonefs").arg("-f").arg(&disk))?;
    fs::create_dir_all("/tmp/served")?;
    run::quietly(Command::new("mount").args(["-t", "zonefs"]).arg(&disk).arg("/tmp/served"))?;
    let used = use_zones();
    run::quietly(Command::new("umount").arg("/tmp/served"))?;
    used?;
    server.disconnect()
}

/// Writes a zone file, full to its capacity, and reads it back.
fn use_zones() -> Result<()> {
    let bytes: Vec<u8> = (0..786_432_u32).flat_map(u32::to_le_bytes).collect();
    fs::write("/tmp/data", &bytes)?;
    let copy = ["if=/tmp/data", "of=/tmp/served/seq/1", "bs=128k", "conv=notrunc", "oflag=direct"];
    run::quietly(Command::new("busybox").arg("dd").args(copy))?;
    ensure!(fs::read("/tmp/served/seq/1")? == bytes, "the zone holds something else");
    ensure!(fs::metadata("/tmp/served/seq/2")?.len() == 0, "the next zone is empty");
    Ok(())
}

/// A server of one drive, and the kernel's connection to it.
struct Server {
    process: Child,
    port: String,
}

impl Server {
    fn start(device: &str) -> Result<Self> {
        let mut process = Command::new("/share/zonal")
            .args(["serve", "nvme-tcp", device, "--listen=127.0.0.1:0", "--nqn", NQN])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("its output")?;
        for line in BufReader::new(output).lines() {
            if let Some((_, rest)) = line?.split_once("--trsvcid=") {
                let port = rest.split(' ').next().unwrap_or(rest).to_owned();
                return Ok(Self { process, port });
            }
        }
        bail!("it did not say where it listens")
    }

    /// Lets the kernel connect, and returns the disk.
    fn connect(&self, options: &str) -> Result<PathBuf> {
        let mut fabrics = File::options().read(true).write(true).open("/dev/nvme-fabrics")?;
        let port = &self.port;
        let request = format!(
            "transport=tcp,traddr=127.0.0.1,trsvcid={port},nqn={NQN},hostnqn={HOST},hostid={HOST_ID}{options}"
        );
        fabrics.write_all(request.as_bytes()).context("the kernel refuses to connect")?;
        let mut answer = String::new();
        fabrics.read_to_string(&mut answer)?;
        let number = answer.split(',').find_map(|part| part.strip_prefix("instance="));
        let disk = format!("/dev/nvme{}n1", number.context("the kernel's answer")?.trim());
        for _ in 0..200 {
            if Path::new(&disk).exists() {
                return Ok(disk.into());
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        bail!("{disk} did not appear")
    }

    /// Lets the kernel disconnect, and ends the server, which has to end well.
    fn disconnect(mut self) -> Result<()> {
        for controller in fs::read_dir("/sys/class/nvme")? {
            fs::write(controller?.path().join("delete_controller"), "1")?;
        }
        let process = self.process.id().to_string();
        run::quietly(Command::new("kill").arg(process))?;
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, if nothing went wrong.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
