//! `zonal serve`: devices and disks for other kernels and hosts.

mod disks;
pub(crate) mod nbd;
pub(crate) mod ublk;

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use zonal::SystemClock;
use zonal::layer::elevator::{self, Elevator};
use zonal_linux::own_disk::{self, LockedMemory};
use zonal_nvme::extension::ExtensionSize;
use zonal_nvme::subsystem::{Hosts, WriteCache};
use zonal_nvme::tcp;
use zonal_nvme::{Namespace, Subsystem};

use self::disks::{DiskSpec, Drives};
use crate::args::Global;
use crate::args::serve::{NvmeTcp, ServeCommand};
use crate::device::{self, OpenMode};
use crate::notify;
use crate::output::{self, json, shell};

/// The exported devices and disks, printed when hosts can connect.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer<'a> {
    /// NQN of the subsystem.
    nqn: &'a str,
    /// Where it listens, as `ADDRESS:PORT` or `unix:PATH`.
    #[schemars(with = "Vec<String>")]
    addresses: &'a [SocketAddr],
    /// The devices and disks, the first one as namespace 1.
    namespaces: &'a [String],
}

/// Serves.
pub(crate) fn run(global: &Global, command: &ServeCommand) -> Result<()> {
    protect(command);
    match command {
        ServeCommand::NvmeTcp(args) => serve_nvme_tcp(global, args),
        ServeCommand::Nbd(args) => nbd::run(global, args),
        ServeCommand::Ublk(args) => ublk::run(global, args),
    }
}

/// Protects the server against waiting for a disk of its own. This machine uses every ublk device,
/// so a server of one warns of a missing protection; the other servers log it with `-v`.
fn protect(command: &ServeCommand) {
    let (is_local, locked) = match command {
        ServeCommand::Ublk(args) => match &args.device {
            Some(spec) if disks::is_disk(spec) => (true, LockedMemory::Mapped),
            // A drive in memory takes memory as it is written.
            Some(_) => (true, LockedMemory::Touched),
            None => return,
        },
        ServeCommand::NvmeTcp(_) | ServeCommand::Nbd(_) => (false, LockedMemory::Touched),
    };
    for unprotected in own_disk::protect(locked) {
        if is_local {
            tracing::warn!("{unprotected}");
        } else {
            tracing::info!("{unprotected}");
        }
    }
}

fn serve_nvme_tcp(global: &Global, args: &NvmeTcp) -> Result<()> {
    let mut drives = Drives::default();
    let mut namespaces = Vec::new();
    for (spec, nsid) in args.devices.iter().zip(1..) {
        namespaces.push(namespace(args, spec, nsid, &mut drives)?);
    }
    let hosts = match args.allow_host.as_slice() {
        [] => Hosts::All,
        names => Hosts::Named(names.to_vec()),
    };
    let cache = if args.write_through { WriteCache::None } else { WriteCache::Volatile };
    let subsystem = Subsystem::new(&args.nqn, namespaces, hosts)?.with_write_cache(cache);
    let clock = Arc::new(SystemClock::new());
    let memory = usize::try_from(args.memory.get()).unwrap_or(usize::MAX);
    let served = tcp::serve(Arc::new(subsystem), &args.listen, memory, clock, |addresses| {
        notify::ready();
        if let Err(error) = tell(global, args, addresses) {
            tracing::warn!("{error:#}");
        }
    })
    .context("serving over NVMe/TCP");
    drives.close()?;
    served
}

/// A device or a disk as a namespace.
fn namespace(args: &NvmeTcp, spec: &str, nsid: u32, drives: &mut Drives) -> Result<Namespace> {
    if disks::is_disk(spec) {
        let spec = DiskSpec::parse(spec)?;
        let disk = drives.open(&spec)?;
        let place = format!("{}//{}", device::source(spec.device), spec.name);
        return Ok(Namespace::of_disk(disk, identity(&args.nqn, &place, nsid)));
    }
    let mut stack = device::open_stack(spec, OpenMode::ReadWrite)?;
    if stack.device.rotates() && !args.write_through {
        stack.device = Arc::new(Elevator::new(stack.device, elevator::BUFFER)?);
    }
    let unique = stack.device.identity().unique;
    let name = unique.unwrap_or_else(|| device::source(spec));
    let namespace = Namespace::new(stack, spec, identity(&args.nqn, &name, nsid))?;
    Ok(match args.zone_extension {
        Some(bytes) => namespace.with_extensions(extension_size(bytes)?),
        None => namespace,
    })
}

fn extension_size(bytes: u16) -> Result<ExtensionSize> {
    ExtensionSize::from_bytes(bytes)
        .with_context(|| format!("--zone-extension {bytes}: give a multiple of 64, at most 16320"))
}

/// The identity of a namespace, by which a host knows it again after a restart. It depends on the
/// name that the device gives itself, or on its place if it has none, and on the number of the
/// namespace: two copies of a drive file have the same name.
fn identity(nqn: &str, name: &str, nsid: u32) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [nqn.as_bytes(), name.as_bytes(), &nsid.to_le_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    *uuid::Builder::from_custom_bytes(bytes).into_uuid().as_bytes()
}

fn tell(global: &Global, args: &NvmeTcp, addresses: &[SocketAddr]) -> Result<()> {
    tracing::info!(nqn = args.nqn, ?addresses, "serving over NVMe/TCP");
    let mut text = String::new();
    if global.json {
        let (nqn, namespaces) = (&args.nqn, &args.devices);
        text = json::text(&Answer { nqn, addresses, namespaces })?;
    } else {
        for (spec, nsid) in args.devices.iter().zip(1..) {
            writeln!(text, "namespace {nsid}: {spec}")?;
        }
        for address in addresses {
            let (nqn, ip, port) = (&args.nqn, address.ip(), address.port());
            writeln!(text, "{nqn} is served at {address}; on a host:")?;
            let nqn = shell::word(nqn);
            writeln!(
                text,
                "  nvme connect --transport=tcp --traddr={ip} --trsvcid={port} --nqn={nqn}"
            )?;
        }
    }
    output::announce(&text);
    Ok(())
}
