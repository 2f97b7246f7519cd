//! Disks of a machine, with and without a node: sysfs lists every SCSI device and NVMe namespace
//! that a bus has found, also one that no driver takes.

use std::fs;
use std::path::Path;

use super::{HOST_MANAGED, Machine, Node};

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// SAS, Fibre Channel, iSCSI and the like.
    Scsi,
    /// A SATA disk, which the kernel or a host adapter translates to SCSI.
    Ata,
    /// Behind a USB bridge.
    Usb,
    /// An NVMe namespace.
    Nvme,
    /// A block device of a driver in the kernel, such as ublk.
    Virtual,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its shortest name: `sda`, `sg0`, `nvme0n1`, `ng0n1`, or else its SCSI address.
    pub name: String,
    /// How it is attached.
    pub bus: Bus,
    /// Name of the adapter's driver, such as `ahci` or `uas`.
    pub adapter: Option<String>,
    /// Vendor and model, as the disk reports them.
    pub model: String,
    /// Type of a SCSI device; [`HOST_MANAGED`] for host-managed disks.
    pub scsi_type: Option<u64>,
    /// The block device.
    pub block: Option<Node>,
    /// The node for commands: `/dev/sgN` or `/dev/ngXnY`.
    pub generic: Option<Node>,
    /// Attributes of the block device.
    pub queue: Option<Queue>,
    /// Commands that the drive takes at once.
    pub queue_depth: Option<u64>,
    /// Lines of the kernel's log that name the disk and tell of trouble.
    pub log: Vec<String>,
}

/// Attributes of a block device: `Documentation/ABI/stable/sysfs-block`.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// `none`, `host-aware` or `host-managed`; empty if the kernel knows no zones.
    pub zoned: String,
    /// Sectors of 512 bytes; 0 for a drive that the kernel refuses.
    pub sectors: u64,
    /// Whether it has platters.
    pub is_rotational: bool,
    /// Whether it takes discards (TRIM).
    pub takes_discards: bool,
    /// The I/O scheduler in use.
    pub scheduler: Option<String>,
    /// Whether writes to all zones go out one after the other (`zoned_qd1_writes`).
    pub writes_in_turn: Option<bool>,
}

impl Disk {
    /// Whether it reports that it is host-managed.
    pub fn is_host_managed(&self) -> bool {
        let zoned = self.queue.as_ref().map(|queue| &*queue.zoned);
        self.scsi_type == Some(HOST_MANAGED) || zoned == Some("host-managed")
    }

    /// Whether the kernel shows its zones.
    pub fn has_zones(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| queue.zoned.starts_with("host-") && queue.sectors > 0)
    }
}

/// Every disk. `log` has the lines that tell of trouble.
pub(super) fn all(machine: &Machine, log: &[String]) -> Vec<Disk> {
    let mut disks = scsi(machine, log);
    disks.extend(nvme(machine, log));
    let known = |name: &str| {
        let node = Path::new("/dev").join(name);
        disks.iter().any(|disk| disk.block.as_ref().is_some_and(|block| block.path == node))
    };
    let others: Vec<Disk> = machine
        .names("sys/block")
        .into_iter()
        .filter(|name| !known(name))
        .map(|name| other(machine, name, log))
        .filter(Disk::has_zones)
        .collect();
    disks.extend(others);
    disks
}

/// SCSI disks, SATA and USB ones among them.
fn scsi(machine: &Machine, log: &[String]) -> Vec<Disk> {
    /// Type of a disk without zones, or with zones that need not be heeded.
    const DISK: u64 = 0;
    let mut found = Vec::new();
    for address in machine.names("sys/bus/scsi/devices") {
        let device = format!("sys/bus/scsi/devices/{address}");
        let Some(scsi_type) = machine.number(format!("{device}/type")) else { continue };
        if !matches!(scsi_type, DISK | HOST_MANAGED) {
            continue;
        }
        let host = address.split(':').next().unwrap_or_default();
        let adapter = machine.text(format!("sys/class/scsi_host/host{host}/proc_name"));
        let vendor = machine.text(format!("{device}/vendor")).unwrap_or_default();
        let model = machine.text(format!("{device}/model")).unwrap_or_default();
        let name_in = |class: &str| machine.names(format!("{device}/{class}")).into_iter().next();
        let (block, generic) = (name_in("block"), name_in("scsi_generic"));
        let bus = match adapter.as_deref() {
            Some("uas" | "usb-storage") => Bus::Usb,
            _ if vendor == "ATA" => Bus::Ata,
            Some(_) | None => Bus::Scsi,
        };
        let name = block.clone().or_else(|| generic.clone()).unwrap_or_else(|| address.clone());
        let mut names = vec![format!("sd {address}:"), format!("scsi {address}:")];
        names.extend(block.iter().cloned());
        names.extend(port(machine, &device));
        found.push(Disk {
            name,
            bus,
            adapter,
            model: format!("{vendor} {model}").trim().to_owned(),
            scsi_type: Some(scsi_type),
            queue: block.as_deref().map(|name| queue(machine, name)),
            block: block.map(|name| machine.node(format!("/dev/{name}"))),
            generic: generic.map(|name| machine.node(format!("/dev/{name}"))),
            queue_depth: machine.number(format!("{device}/queue_depth")),
            log: lines_of(log, &names),
        });
    }
    found
}

/// The name of the ATA port in the path of a device, as the kernel's log has it: `ata3`.
fn port(machine: &Machine, device: &str) -> Option<String> {
    let place = fs::canonicalize(machine.path(device)).ok()?;
    let mut parts = place.iter().filter_map(|part| part.to_str());
    parts.find(|part| is_numbered(part, "ata")).map(str::to_owned)
}

/// Whether a name is a word with a number behind it.
fn is_numbered(name: &str, word: &str) -> bool {
    let number = name.strip_prefix(word).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// NVMe namespaces, with a block device or with a node for commands alone.
fn nvme(machine: &Machine, log: &[String]) -> Vec<Disk> {
    let blocks = machine.names("sys/block").into_iter();
    let mut names: Vec<String> =
        blocks.filter_map(|name| name.strip_prefix("nvme").map(str::to_owned)).collect();
    for name in machine.names("sys/class/nvme-generic") {
        let number = name.strip_prefix("ng").unwrap_or(&name).to_owned();
        if !names.contains(&number) {
            names.push(number);
        }
    }
    let disk = |number: String| {
        let (block, generic) = (format!("nvme{number}"), format!("ng{number}"));
        let is_block = machine.path(format!("sys/block/{block}")).exists();
        let is_hidden = machine.number(format!("sys/block/{block}/hidden")) == Some(1);
        let has_block = is_block && !is_hidden;
        let controller = number.split('n').next().unwrap_or_default();
        let model = machine.text(format!("sys/class/nvme/nvme{controller}/model"));
        let generic_dir = machine.path(format!("sys/class/nvme-generic/{generic}"));
        Disk {
            name: if has_block { block.clone() } else { generic.clone() },
            bus: Bus::Nvme,
            adapter: Some("nvme".into()),
            model: model.unwrap_or_default(),
            scsi_type: None,
            queue: is_block.then(|| queue(machine, &block)),
            block: has_block.then(|| machine.node(format!("/dev/{block}"))),
            generic: generic_dir.exists().then(|| machine.node(format!("/dev/{generic}"))),
            queue_depth: None,
            log: lines_of(log, &[block, format!("nvme nvme{controller}:")]),
        }
    };
    // The paths of a namespace that has several are hidden, and have no node.
    let has_node = |disk: &Disk| disk.block.is_some() || disk.generic.is_some();
    names.into_iter().map(disk).filter(has_node).collect()
}

/// A block device of another driver.
fn other(machine: &Machine, name: String, log: &[String]) -> Disk {
    Disk {
        bus: Bus::Virtual,
        adapter: None,
        model: String::new(),
        scsi_type: None,
        block: Some(machine.node(format!("/dev/{name}"))),
        generic: None,
        queue: Some(queue(machine, &name)),
        queue_depth: None,
        log: lines_of(log, std::slice::from_ref(&name)),
        name,
    }
}

fn queue(machine: &Machine, block: &str) -> Queue {
    let dir = format!("sys/block/{block}");
    let text = |name: &str| machine.text(format!("{dir}/queue/{name}"));
    let number = |name: &str| machine.number(format!("{dir}/queue/{name}"));
    // The one in use is in brackets.
    let scheduler = text("scheduler").and_then(|all| {
        let (_, behind) = all.split_once('[')?;
        Some(behind.split_once(']')?.0.to_owned())
    });
    Queue {
        zoned: text("zoned").unwrap_or_default(),
        sectors: machine.number(format!("{dir}/size")).unwrap_or(0),
        is_rotational: number("rotational") == Some(1),
        takes_discards: number("discard_granularity").is_some_and(|bytes| bytes > 0),
        scheduler,
        writes_in_turn: number("zoned_qd1_writes").map(|on| on == 1),
    }
}

/// The lines that have one of the names as a word of their own.
fn lines_of(log: &[String], names: &[String]) -> Vec<String> {
    let has = |line: &str, name: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let behind = line[at + name.len()..].chars().next();
            let is_inside =
                |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
            !is_inside(before) && (name.ends_with(':') || !is_inside(behind))
        })
    };
    let lines = log.iter().filter(|line| names.iter().any(|name| has(line, name)));
    lines.cloned().collect()
}
