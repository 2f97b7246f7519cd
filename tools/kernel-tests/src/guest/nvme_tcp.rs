//! Drives that `zonal serve nvme-tcp` serves, attached by the guest's own kernel: it finds the
//! zones, and makes and uses a zonefs on them. The kernel is spoken to through /dev/nvme-fabrics.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

use super::export::{Export, queue_attribute};
use xtask::run;
use xtask::tally::Tally;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for (name, device, options) in [
        ("plainly", "po2:mem:zone=3M,zones=32,open=8,active=12", ""),
        ("with digests", &format!("slice(2-):{MIXED}"), ",hdr_digest,data_digest"),
    ] {
        tally.check(&format!("the kernel attaches a served drive {name}"), || {
            attach(device, options)
        });
    }
}

/// A drive with conventional zones and a smaller last zone. `po2:` turns the three conventional
/// zones into two.
const MIXED: &str = "po2:mem:profile=smr,zone=3M,size=94M,conventional=3,open=8,active=12";

/// A served drive whose zones are a power of two only by an adapter, and the kernel's zonefs on it.
fn attach(device: &str, options: &str) -> Result<()> {
    let (export, disk) = Export::nvme_tcp(device, options)?;
    for (attribute, expected) in [
        ("zoned", "host-managed"),
        ("chunk_sectors", "8192"),
        ("max_open_zones", "8"),
        ("max_active_zones", "12"),
    ] {
        let found = queue_attribute(&disk, attribute)?;
        ensure!(found == expected, "{attribute} is {found}, not {expected}");
    }
    run::quietly(Command::new("mkzonefs").arg("-f").arg(&disk))?;
    fs::create_dir_all("/tmp/served")?;
    run::quietly(Command::new("mount").args(["-t", "zonefs"]).arg(&disk).arg("/tmp/served"))?;
    let used = use_zones();
    run::quietly(Command::new("umount").arg("/tmp/served"))?;
    used?;
    export.end()
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
