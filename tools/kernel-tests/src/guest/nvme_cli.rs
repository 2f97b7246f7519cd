//! nvme-cli, the usual program to look at NVMe drives, on drives that `zonal serve nvme-tcp`
//! serves: every command that makes sense for a zoned namespace, several hosts, several namespaces,
//! a server that crashes and comes back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use super::export::{self, Export};
use super::side;
use xtask::run;
use xtask::tally::Tally;

const ONE: &str = "nqn.2026-11.localhost:one";
const OTHER: &str = "nqn.2026-11.localhost:other";
/// Patterns that are written.
const DATA: &str = "/tmp/nvme-data";
const EXTENSION: &str = "/tmp/nvme-extension";

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    let prepared = prepare();
    tally.check("nvme-cli: something to write", || prepared);
    tally.check("nvme-cli: discovery, over IPv4 and IPv6, and hosts that may not connect", found);
    tally.check("nvme-cli: what it tells about a controller and a namespace", told);
    tally.check("nvme-cli: every command on zones", zones);
    tally.check("nvme-cli: two hosts, three namespaces, queues", two_hosts);
    tally.check("nvme-cli: a server that crashed and came back", crashed);
}

fn prepare() -> Result<()> {
    let bytes: Vec<u8> = (0..2048_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(DATA, &bytes)?;
    fs::write(EXTENSION, &bytes[..64])?;
    Ok(())
}

/// A host that is connected, until this ends.
struct Host {
    /// `nvme1`.
    controller: String,
}

impl Host {
    fn connect(export: &Export, name: &str, more: &[&str]) -> Result<Self> {
        let (nqn, port) =
            (format!("--nqn={}", export.nqn()), format!("--trsvcid={}", export.port()));
        let id = if name == ONE { "2" } else { "3" };
        let (host, id) = (
            format!("--hostnqn={name}"),
            format!("--hostid=7b1f0f0e-7c5b-4ed5-9d0e-35d2e0f3a00{id}"),
        );
        let mut words = vec!["connect", "--transport=tcp", &nqn, &port, &host, &id];
        if !more.iter().any(|word| word.starts_with("--traddr")) {
            words.push("--traddr=127.0.0.1");
        }
        words.extend(more);
        let said = run::quietly(Command::new("nvme").args(words))?;
        let controller = said.split_whitespace().last().context("which controller")?.to_owned();
        ensure!(controller.starts_with("nvme"), "it said {said:?}");
        Ok(Self { controller })
    }

    /// Its node.
    fn node(&self) -> String {
        format!("/dev/{}", self.controller)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The server may be gone, and the controller with it.
        let device = format!("--device={}", self.controller);
        let _ = run::quietly(Command::new("nvme").args(["disconnect", &device]));
    }
}

/// The node for passthrough of a namespace, which exists even where Linux makes no disk.
pub(super) fn generic(disk: &Path) -> Result<String> {
    let name = disk.file_name().and_then(|name| name.to_str()).context("a disk's name")?;
    Ok(format!("/dev/ng{}", name.trim_start_matches("nvme")))
}

/// Runs nvme with the words of a command line, without checking its result.
fn nvme(words: &str) -> Result<Output> {
    Command::new("nvme").args(words.split(' ')).output().context("starting nvme")
}

/// Runs nvme, which has to succeed and print all of `expected`, on either output.
fn says(words: &str, expected: &[&str]) -> Result<()> {
    let output = nvme(words)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success(), "nvme {words} ended with {}\n{said}", output.status);
    for part in expected {
        ensure!(said.contains(part), "nvme {words}: no {part:?} in\n{said}");
    }
    Ok(())
}

/// Runs nvme, which has to fail with this status.
fn fails(words: &str, status: &str) -> Result<()> {
    let output = nvme(words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "nvme {words} succeeded");
    ensure!(said.contains(status), "nvme {words}: no {status:?} in\n{said}");
    Ok(())
}

fn found() -> Result<()> {
    let allowed = format!("--allow-host={ONE}");
    let export = Export::serve(&[
        "mem:zone=4M,zones=8",
        "--listen=127.0.0.1:0",
        "--listen=[::1]:4499",
        &allowed,
    ])?;
    let port = export.port();
    for (place, port, family) in [("127.0.0.1", port, "ipv4"), ("::1", "4499", "ipv6")] {
        let discover = format!("discover --transport=tcp --traddr={place} --trsvcid={port}");
        let words = format!("{discover} --hostnqn={ONE}");
        let family = format!("adrfam:  {family}");
        says(&words, &["Number of Records 1", export.nqn(), &family, port, place])?;
        says(&format!("{discover} --hostnqn={OTHER}"), &["Number of Records 0"])?;
    }
    ensure!(Host::connect(&export, OTHER, &[]).is_err(), "a host that may not connected");
    let host = Host::connect(&export, ONE, &[])?;
    export.disk(1)?;
    drop(host);
    export.end()
}

fn told() -> Result<()> {
    let device = "mem:zone=4M,zones=32,open=8,active=12";
    let export = Export::serve(&[device, "--zone-extension=64"])?;
    let host = Host::connect(&export, ONE, &[])?;
    let (controller, namespace) = (host.node(), generic(&export.disk(1)?)?);
    for (words, expected) in [
        ("id-ctrl CTRL", &["mn        : Zonal", "cntrltype : 1", "oaes      : 0x8000100"][..]),
        ("id-iocs CTRL", &["I/O Command Set Combination[0]:5"]),
        ("list-ns CTRL", &["[   0]:0x1"]),
        ("show-regs CTRL", &["version : 0x20000", "cc      : 0x460061", "csts    : 0x1"]),
        ("smart-log CTRL", &["25 °C", "available_spare\t\t\t\t: 100%"]),
        ("fw-log CTRL", &["afi  : 0x1"]),
        ("effects-log CTRL", &["Zone Append", "Zone Management Send"]),
        ("supported-log-pages CTRL", &["LID 0x1 -", "LID 0xbf - Changed Zone List"]),
        ("changed-ns-list-log CTRL", &["no ns changed"]),
        ("get-feature CTRL --feature-id=5", &["Error Recovery"]),
        ("get-feature CTRL --feature-id=6", &["value:0x00000001"]),
        ("get-feature CTRL --feature-id=7", &["value:0x003f003f"]),
        ("get-feature CTRL --feature-id=11", &["value:0x00000100"]),
        ("get-feature CTRL --feature-id=15", &["value:0x00001388"]),
        ("id-ns NODE", &["nsze    : 0x8000", "nmic    : 0x1"]),
        ("ns-descs NODE", &["csi     : 0x2", "uuid"]),
        ("cmdset-ind-id-ns NODE", &["nstat   : 0x1"]),
        ("zns id-ctrl NODE", &["zasl    : 8"]),
        ("zns id-ns NODE", &["mar     : 0xb", "mor     : 0x7", "zsze:0x400 zdes:1 (in use)"]),
        ("zns changed-zone-list NODE", &["nrzid:  0"]),
    ] {
        says(&words.replace("CTRL", &controller).replace("NODE", &namespace), expected)?;
    }
    says("zns list", &["Zonal"])?;
    fails(&format!("get-feature {controller} --feature-id=129"), "Invalid Field")?;
    fails(&format!("persistent-event-log {controller} --action=0"), "Invalid Log Page")?;
    drop(host);
    export.end()
}

fn zones() -> Result<()> {
    let device = "mem:zone=4M,zones=32,open=8,active=12";
    let export = Export::serve(&[device, "--zone-extension=64"])?;
    let host = Host::connect(&export, ONE, &[])?;
    let node = generic(&export.disk(1)?)?;
    let reports = |cond: u8, count: u32| {
        says(&format!("zns report-zones {node} --state={cond}"), &[&format!("nr_zones: {count}\n")])
    };
    // An option that it does not know is a page of help, and no failure.
    let does = |words: &str| says(&words.replace("NODE", &node), &["uccess"]);
    does(&format!("zns zone-append NODE --zslba=0 --data-size=8192 --data={DATA}"))?;
    let append = format!("zns zone-append {node} --zslba=0 --data-size=8192 --data={DATA}");
    says(&append, &["appended data to LBA 2"])?;
    does("zns open-zone NODE --start-lba=0x400")?;
    does("zns open-zone NODE --start-lba=0x800")?;
    does("zns close-zone NODE --start-lba=0x800")?;
    does("zns finish-zone NODE --start-lba=0xc00")?;
    does(&format!("zns set-zone-desc NODE --start-lba=0x1000 --data={EXTENSION}"))?;
    for (cond, count) in [(0, 32), (1, 27), (2, 1), (3, 1), (4, 2), (5, 1), (6, 0), (7, 0)] {
        reports(cond, count)?;
    }
    let extended = format!("zns report-zones {node} --descs=5 --extended");
    says(&extended, &["Attrs: 0x80", "0000: 00 00 00 00 01 00 00 00"])?;
    fails(&format!("zns open-zone {node} --start-lba=0x1400 --zrwaa"), "Invalid Field")?;
    fails(&format!("zns zrwa-flush-zone {node} --lba=0x10"), "Invalid Field")?;
    fails(&format!("zns offline-zone {node} --start-lba=0"), "Invalid Zone State Transition")?;
    does("zns offline-zone NODE --select-all")?;
    // Open, close, finish and reset all; each skips zones in a condition that it does not take.
    for (action, cond, count) in [(3, 3, 3), (1, 4, 4), (2, 5, 5), (4, 1, 32)] {
        does(&format!("zns zone-mgmt-send NODE --select-all --zsa={action}"))?;
        reports(cond, count)?;
    }
    does("zns zone-mgmt-recv NODE --data-len=256 --zra=0")?;
    does("write-zeroes NODE --start-block=0 --block-count=3")?;
    let blocks = "--start-block=4 --block-count=1 --data-size=8192";
    does(&format!("write NODE {blocks} --data={DATA} --force-unit-access"))?;
    does(&format!("read NODE {blocks} --data=/tmp/nvme-found"))?;
    ensure!(fs::read(DATA)? == fs::read("/tmp/nvme-found")?, "something else was read");
    does("flush NODE")?;
    fails(&format!("write {node} {blocks} --data={DATA}"), "Zone Invalid Write")?;
    let log = format!("error-log {} --log-entries=1", host.node());
    says(&log, &["(Zone Invalid Write", "sqid\t\t: 1", "lba\t\t: 0x4", "opcode\t\t: 0x1"])?;
    fails(&format!("compare {node} {blocks} --data={DATA}"), "Invalid Command Opcode")?;
    run::quietly(Command::new("nvme").args(["reset", &host.node()]))?;
    reports(2, 1)?;
    drop(host);
    export.end()
}

fn two_hosts() -> Result<()> {
    let devices = ["mem:zone=4M,zones=16", "po2:mem:zone=3M,zones=8", "mem:zone=3M,zones=4"];
    let export = Export::serve(&devices)?;
    let queues = ["--nr-write-queues=1", "--nr-poll-queues=1"];
    let one = Host::connect(&export, ONE, &queues)?;
    let other = Host::connect(&export, OTHER, &["--hdr-digest", "--data-digest"])?;
    let count = |host: &Host| {
        let place = Path::new("/sys/class/nvme").join(&host.controller).join("queue_count");
        fs::read_to_string(place).context("counting queues").map(|count| count.trim().to_owned())
    };
    // The admin queue, and one each to read, to write and to poll.
    ensure!(count(&one)? == "4", "{} has {} queues", one.controller, count(&one)?);
    let disks: Vec<PathBuf> =
        [1, 2].map(|nsid| export.disk(nsid)).into_iter().collect::<Result<_>>()?;
    let size = |disk: &Path| run::quietly(Command::new("blockdev").arg("--getsize64").arg(disk));
    ensure!(size(&disks[0])?.trim() == (64 << 20).to_string(), "namespace 1");
    ensure!(size(&disks[1])?.trim() == (32 << 20).to_string(), "namespace 2");
    let node = generic(&disks[0])?;
    says(&format!("list-ns {}", one.node()), &["0x1", "0x2", "0x3"])?;
    let zone = "--start-lba=0x800";
    says(&format!("zns zone-append {node} --zslba=0 --data-size=8192 --data={DATA}"), &[])?;
    says(&format!("zns open-zone {node} {zone}"), &[])?;
    // The kernel has two ways to one disk. With the first gone, the other host's is taken.
    drop(one);
    let report = format!("zns report-zones {node} --descs=3");
    says(&report, &["WP: 0x2 ", "SLBA: 0x800      WP: 0x800      Cap: 0x400      State: 0x30"])?;
    let blocks = "--start-block=0 --block-count=1 --data-size=8192";
    says(&format!("read {node} {blocks} --data=/tmp/nvme-found"), &[])?;
    ensure!(fs::read(DATA)? == fs::read("/tmp/nvme-found")?, "the other host reads something else");
    says(&format!("zns finish-zone {node} {zone}"), &[])?;
    let one = Host::connect(&export, ONE, &[])?;
    drop(other);
    says(&format!("zns report-zones {node} --state=5"), &["nr_zones: 1\n", "SLBA: 0x800 "])?;
    drop(one);
    export.end()
}

/// All flushed data is there when the server is back, and the kernel reconnects by itself.
fn crashed() -> Result<()> {
    let drive = "/tmp/nvme-crashed.zns";
    side::zonal(&["create", drive, "--size=32M", "--zone-size=4M"])?;
    let export = Export::serve(&[drive])?;
    let (nqn, port) = (export.nqn().to_owned(), format!("--listen=127.0.0.1:{}", export.port()));
    let host = Host::connect(&export, ONE, &["--reconnect-delay=1", "--ctrl-loss-tmo=36000"])?;
    let node = generic(&export.disk(1)?)?;
    says(&format!("zns zone-append {node} --zslba=0 --data-size=8192 --data={DATA}"), &[])?;
    says(&format!("flush {node}"), &[])?;
    export.crash()?;
    let export = Export::serve_as(&nqn, &[drive, &port])?;
    let place = Path::new("/sys/class/nvme").join(&host.controller).join("state");
    export::wait_for(|| {
        let found = fs::read_to_string(&place).context("the kernel has given up")?;
        // It may not have noticed yet.
        Ok(found.trim() == "live" && nvme(&format!("flush {node}"))?.status.success())
    })?;
    let blocks = "--start-block=0 --block-count=1 --data-size=8192";
    says(&format!("read {node} {blocks} --data=/tmp/nvme-found"), &[])?;
    ensure!(fs::read(DATA)? == fs::read("/tmp/nvme-found")?, "something else was read");
    says(&format!("zns report-zones {node} --descs=1"), &["WP: 0x2 "])?;
    drop(host);
    export.end()?;
    fs::remove_file(drive).context("removing the drive")
}
