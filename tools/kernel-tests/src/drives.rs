//! The drives that every guest has in addition to its root: QEMU's own, not made by our code.
//!
//! - an NVMe controller with two zoned namespaces: one with zones of 3 MiB, which Linux hides
//!   because that is no power of two, and its twin, whose zones end after 3 MiB of 4 MiB;
//! - on the same controller, two of the same kinds that are small: for checks that use all of a
//!   drive;
//! - a plain disk.
//!
//! They are sparse files of one run. The guest finds each as `/dev/drives/NAME`: `vm/start`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The namespace that Linux hides: only passthrough reaches it.
pub(crate) const REFUSED: &str = "/dev/drives/zns1-generic";

/// The zoned namespace that Linux takes, and its node for passthrough.
pub(crate) const TWIN: &str = "/dev/drives/zns2";
const TWIN_GENERIC: &str = "/dev/drives/zns2-generic";

/// The small namespaces, for passthrough.
pub(crate) const SMALL: [&str; 2] = ["/dev/drives/zns3-generic", "/dev/drives/zns4-generic"];

/// The disk without zones.
pub(crate) const PLAIN: &str = "/dev/drives/plain";

/// Of both large namespaces.
pub(crate) const BLOCK: u32 = 4096;
pub(crate) const ZONES: u32 = 96;
pub(crate) const OPEN_MAX: u32 = 14;
pub(crate) const ACTIVE_MAX: u32 = 28;

/// The writable part of a zone: the whole zone in the namespace that Linux hides.
pub(crate) const CAPACITY_MIB: u32 = 3;

/// The size of the twin's zones.
pub(crate) const TWIN_ZONE_MIB: u32 = 4;

/// The size of the disk.
const PLAIN_MIB: u32 = 1024;

/// Zone append takes the controller's page, 4 KiB, times two to this power: 128 KiB.
const APPEND_LIMIT_POWER: u32 = 5;

/// A zoned namespace: its name here, and its shape.
struct Namespace {
    name: &'static str,
    block: u32,
    zones: u32,
    zone_kib: u32,
    capacity_kib: u32,
    open: u32,
    active: u32,
}

const CAPACITY_KIB: u32 = CAPACITY_MIB << 10;

/// In the order of their identifiers, from 1 on.
const NAMESPACES: [Namespace; 4] = [
    large("refused", CAPACITY_KIB),
    large("twin", TWIN_ZONE_MIB << 10),
    small("small", 4096, 192),
    small("small-twin", 512, 256),
];

const fn large(name: &'static str, zone_kib: u32) -> Namespace {
    let (zones, open, active) = (ZONES, OPEN_MAX, ACTIVE_MAX);
    Namespace { name, block: BLOCK, zones, zone_kib, capacity_kib: CAPACITY_KIB, open, active }
}

const fn small(name: &'static str, block: u32, zone_kib: u32) -> Namespace {
    Namespace { name, block, zones: 16, zone_kib, capacity_kib: 192, open: 3, active: 5 }
}

/// Files of one run.
pub(crate) struct Drives {
    namespaces: Vec<PathBuf>,
    plain: PathBuf,
}

impl Drives {
    /// Makes empty ones in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let make = |name: &str, kib: u32| {
            let path = folder.join(name).with_extension("img");
            let file = File::create(&path)
                .with_context(|| format!("making a drive of the guest, {}", path.display()))?;
            file.set_len(u64::from(kib) << 10)?;
            anyhow::Ok(path)
        };
        let namespaces = NAMESPACES
            .iter()
            .map(|namespace| make(namespace.name, namespace.zones * namespace.zone_kib))
            .collect::<Result<_>>()?;
        Ok(Self { namespaces, plain: make("plain", PLAIN_MIB << 10)? })
    }

    /// Names in `/dev/drives` that the guest waits for, one per line.
    pub(crate) fn names() -> String {
        let name = |path: &str| path.rsplit('/').next().map(|name| format!("{name}\n"));
        [REFUSED, TWIN, TWIN_GENERIC, PLAIN].into_iter().chain(SMALL).filter_map(name).collect()
    }

    /// Adds them to a machine.
    pub(crate) fn attach(&self, command: &mut Command) {
        let controller = format!("nvme,id=zns,serial=zns,zoned.zasl={APPEND_LIMIT_POWER}");
        command.args(["-device", &controller]);
        for (nsid, (file, namespace)) in (1..).zip(self.namespaces.iter().zip(&NAMESPACES)) {
            let Namespace { name, block, zone_kib, capacity_kib, open, active, .. } = namespace;
            drive(command, name, file, "");
            let shape = format!(
                "nvme-ns,bus=zns,drive={name},nsid={nsid},zoned=on,\
                 logical_block_size={block},physical_block_size={block},\
                 zoned.zone_size={zone_kib}K,zoned.zone_capacity={capacity_kib}K,\
                 zoned.max_open={open},zoned.max_active={active}"
            );
            command.args(["-device", &shape]);
        }
        drive(command, "plain", &self.plain, "");
        command.args(["-device", "virtio-blk-pci,drive=plain,serial=plain"]);
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        for file in self.namespaces.iter().chain([&self.plain]) {
            // The run's folder may be kept for its log, but not the guest's data.
            let _ = fs::remove_file(file);
        }
    }
}

/// Adds a device of a machine, backed by a file. The file does not outlive the run, so no flush
/// needs to reach the host's disk.
pub(crate) fn drive(command: &mut Command, id: &str, file: &Path, options: &str) {
    let file = file.display();
    let drive = format!("file={file},if=none,id={id},format=raw,cache=unsafe{options}");
    command.args(["-drive", &drive]);
}
