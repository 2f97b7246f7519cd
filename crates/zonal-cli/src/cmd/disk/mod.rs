//! `zonal disk`: ordinary disks on a drive.
//!
//! Each command opens the drive as a mount does, so a drive that is mounted, or whose disks are
//! served, is refused; changes are durable when the command ends.

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fs::disk::{DiskInfo, DiskName, DiskSettings, DiskSpace, Disks};
use zonal_fs::vfs::Access;

use super::files::open;
use crate::args::Global;
use crate::args::disk::{
    CloneDisk, CreateDisk, DiskCommand, ListDisks, OneDisk, ResizeDisk, SnapshotDisk,
};
use crate::output::table::Table;
use crate::output::{json, size};

/// Does what the arguments say.
pub(crate) fn run(global: &Global, command: &DiskCommand) -> Result<()> {
    match command {
        DiskCommand::Create(args) => create(global, args),
        DiskCommand::List(args) => list(global, args),
        DiskCommand::Info(args) => {
            let disks = disks(&args.device, Access::ReadOnly)?;
            print(global, &disks.info(&args.name).with_context(|| shown(&args.device))?)
        }
        DiskCommand::Resize(args) => resize(global, args),
        DiskCommand::Snapshot(args) => snapshot(global, args),
        DiskCommand::Clone(args) => clone(global, args),
        DiskCommand::Rm(args) => remove(args),
    }
}

fn create(global: &Global, args: &CreateDisk) -> Result<()> {
    let (block_size, space) = (args.block_size, args.provisioning.space());
    let settings = DiskSettings { block_size, space, is_read_only: false };
    change(global, &args.device, &args.name, |disks| {
        Ok(disks.create(&args.name, args.size, settings)?)
    })
}

fn list(global: &Global, args: &ListDisks) -> Result<()> {
    let disks = disks(&args.device, Access::ReadOnly)?;
    let found = disks.list().with_context(|| shown(&args.device))?;
    if global.json {
        return json::document(&found);
    }
    if found.is_empty() {
        sayln!("no disks on {}; `zonal disk create` makes one", shown(&args.device));
        return Ok(());
    }
    let mut table = Table::new(1, &["disk", "size", "allocated", "block", "space"]);
    for disk in found {
        let sizes = [disk.bytes, disk.allocated_bytes, disk.block_bytes].map(size);
        let space = provisioning(&disk).to_owned();
        table.row(std::iter::once(disk.name).chain(sizes).chain([space]).collect());
    }
    say!("{}", table.text());
    Ok(())
}

fn resize(global: &Global, args: &ResizeDisk) -> Result<()> {
    change(global, &args.device, &args.name, |disks| {
        let bytes = disks.info(&args.name)?.bytes;
        if args.size.get() < bytes && !args.force {
            let (old, new) = (size(bytes), size(args.size.get()));
            bail!(
                "{} has {old}, and what lies behind {new} would be lost: shrink its file system \
                 first, then repeat this with --force",
                args.name
            );
        }
        Ok(disks.resize(&args.name, args.size)?)
    })
}

fn snapshot(global: &Global, args: &SnapshotDisk) -> Result<()> {
    let snapshot = args.name.snapshot(&args.snapshot)?;
    change(global, &args.device, &snapshot, |disks| Ok(disks.snapshot(&args.name, &snapshot)?))
}

fn clone(global: &Global, args: &CloneDisk) -> Result<()> {
    change(global, &args.device, &args.new, |disks| {
        Ok(disks.clone_disk(&args.name, &args.new, args.provisioning.space())?)
    })
}

fn remove(args: &OneDisk) -> Result<()> {
    let disks = disks(&args.device, Access::ReadWrite)?;
    let outcome = disks.remove(&args.name).with_context(|| shown(&args.device));
    disks.close()?;
    outcome
}

/// Changes a disk and prints what it is then.
fn change(
    global: &Global,
    device: &str,
    name: &DiskName,
    action: impl FnOnce(&Disks) -> Result<()>,
) -> Result<()> {
    let disks = disks(device, Access::ReadWrite)?;
    let outcome = action(&disks).and_then(|()| Ok(disks.info(name)?));
    disks.close().with_context(|| format!("making changes of {} durable", shown(device)))?;
    print(global, &outcome.with_context(|| shown(device))?)
}

/// The disks of a drive.
pub(crate) fn disks(device: &str, access: Access) -> Result<Disks> {
    Disks::new(open(device, access)?).with_context(|| shown(device))
}

const fn provisioning(disk: &DiskInfo) -> &'static str {
    match (disk.is_read_only, disk.space) {
        (true, _) => "read-only",
        (false, DiskSpace::Thick) => "thick",
        (false, DiskSpace::Thin) => "thin",
    }
}

fn print(global: &Global, disk: &DiskInfo) -> Result<()> {
    if global.json {
        return json::document(disk);
    }
    sayln!(
        "{}: {}, {}, blocks of {}; {} allocated",
        disk.name,
        size(disk.bytes),
        provisioning(disk),
        size(disk.block_bytes),
        size(disk.allocated_bytes)
    );
    Ok(())
}
