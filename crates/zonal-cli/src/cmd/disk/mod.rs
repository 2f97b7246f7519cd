//! `zonal disk`: ordinary disks on a drive.
//!
//! Each command opens the drive as a mount does, so a drive that is mounted is refused. If the
//! drive is held by a process that serves its disks, the command has that process do the work.
//! Changes are durable when the command ends.

pub(crate) mod control;
mod request;

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fs::disk::{DiskFailure, DiskInfo, DiskSettings, DiskSpace, Disks, ListedDisk};
use zonal_fs::vfs::Access;

use self::control::Connection;
use self::request::{Request, Shrink};
use super::files::open;
use crate::args::Global;
use crate::args::disk::DiskCommand;
use crate::output::table::Table;
use crate::output::{json, size};

/// Performs the command.
pub(crate) fn run(global: &Global, command: &DiskCommand) -> Result<()> {
    let (device, request) = match command {
        DiskCommand::Create(args) => {
            let (block_size, space) = (args.block_size, args.provisioning.space());
            let settings = DiskSettings { block_size, space, is_read_only: false };
            let (name, bytes) = (args.name.clone(), args.size.get());
            (&args.device, Request::Create { name, bytes, settings })
        }
        DiskCommand::List(args) => {
            let disks = perform(&args.device, Request::List)?;
            return print_list(global, &args.device, disks);
        }
        DiskCommand::Info(args) => (&args.device, Request::Info(args.name.clone())),
        DiskCommand::Resize(args) => {
            let (name, bytes) = (args.name.clone(), args.size.get());
            let shrink = if args.force { Shrink::Allowed } else { Shrink::Refused };
            (&args.device, Request::Resize { name, bytes, shrink })
        }
        DiskCommand::Snapshot(args) => {
            let snapshot = args.name.snapshot(&args.snapshot)?;
            (&args.device, Request::Snapshot { name: args.name.clone(), snapshot })
        }
        DiskCommand::Clone(args) => {
            let (name, new, space) =
                (args.name.clone(), args.new.clone(), args.provisioning.space());
            (&args.device, Request::Clone { name, new, space })
        }
        DiskCommand::Rm(args) => (&args.device, Request::Remove(args.name.clone())),
    };
    perform(device, request)?.iter().try_for_each(|disk| match disk {
        ListedDisk::Disk(disk) => print(global, disk),
        ListedDisk::Unreadable { name, error } => bail!(unreadable(name, error)),
    })
}

/// Performs a request on a drive, or has the server of its disks perform it.
fn perform(device: &str, request: Request) -> Result<Vec<ListedDisk>> {
    let access = request.access();
    let disks = match disks(device, access) {
        Ok(disks) => disks,
        Err(error) => {
            let Some(server) = Connection::to_holder(&error) else { return Err(error) };
            return server.ask(device, request).with_context(|| shown(device));
        }
    };
    let outcome = request.perform(&disks);
    if access == Access::ReadWrite {
        // Changes that precede a failure stay.
        let closed = disks.close();
        closed.with_context(|| format!("making changes of {} durable", shown(device)))?;
    }
    outcome.with_context(|| shown(device))
}

/// The disks of a drive.
fn disks(device: &str, access: Access) -> Result<Disks> {
    Disks::new(open(device, access)?).with_context(|| shown(device))
}

fn print_list(global: &Global, device: &str, disks: Vec<ListedDisk>) -> Result<()> {
    if global.json {
        return json::document(&disks);
    }
    if disks.is_empty() {
        sayln!("no disks on {}; `zonal disk create` makes one", shown(device));
        return Ok(());
    }
    let mut table = Table::new(1, &["disk", "size", "allocated", "block", "space"]);
    let (all, mut unreadable_disks) = (disks.len(), Vec::new());
    for disk in disks {
        let disk = match disk {
            ListedDisk::Disk(disk) => disk,
            ListedDisk::Unreadable { name, error } => {
                unreadable_disks.push(unreadable(&name, &error));
                continue;
            }
        };
        let sizes = [disk.bytes, disk.allocated_bytes, disk.block_bytes].map(size);
        let space = provisioning(&disk).to_owned();
        table.row(std::iter::once(disk.name).chain(sizes).chain([space]).collect());
    }
    if unreadable_disks.len() < all {
        say!("{}", table.text());
    }
    for line in &unreadable_disks {
        sayln!("{line}");
    }
    Ok(())
}

/// The line about a disk that cannot be read.
fn unreadable(name: &str, error: &DiskFailure) -> String {
    format!("{name} cannot be read: {}", error.message)
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
