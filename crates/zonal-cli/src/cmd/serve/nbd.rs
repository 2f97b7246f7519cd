//! `zonal serve nbd`: ordinary disks for QEMU, libnbd, nbdkit, fio and other kernels.

use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{Disk, SystemClock, shown};
use zonal_fs::disk::Disks;
use zonal_nbd::export::Access;
use zonal_nbd::server::{self, PORT, TlsFiles, TlsPolicy};
use zonal_nbd::{Address, Export, Exports, Settings, Tls};

use super::disks::{DiskSpec, Drives};
use crate::args::Global;
use crate::args::serve::Nbd;
use crate::notify;
use crate::output::{self, json};

/// The exports, printed when clients can connect.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer<'a> {
    /// Where it listens, as `ADDRESS:PORT` or `unix:PATH`.
    addresses: Vec<String>,
    /// The disks that are served, as `DEVICE//NAME`.
    disks: &'a [String],
}

/// Serves.
pub(super) fn run(global: &Global, args: &Nbd) -> Result<()> {
    let clock = Arc::new(SystemClock::new());
    let memory_max = usize::try_from(args.memory.get()).unwrap_or(usize::MAX);
    let settings = Settings { addresses: addresses(args), tls: tls(args)?, memory_max };
    let access = if args.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut drives = Drives::default();
    let mut exports = Vec::new();
    for spec in &args.disks {
        let parsed = DiskSpec::parse(spec)?;
        // Linux's client does not ask for the block size, and then blocks are sectors.
        let disk = drives.open_by(&parsed, Disks::open_in_sectors)?;
        // NBD has no message about a new size.
        let name = shown(spec);
        disk.on_resize(Box::new(move |shape| {
            let bytes = shape.bytes();
            tracing::info!(disk = name, bytes, "a disk has grown: clients that connect now see it");
        }));
        exports.push(Export::new(&parsed.name.to_string(), spec, disk, access)?);
    }
    let served = server::serve(Exports::new(exports)?, settings, clock, |addresses| {
        notify::ready();
        if let Err(error) = tell(global, args, addresses) {
            tracing::warn!("{error:#}");
        }
    })
    .context("serving over NBD");
    drives.close()?;
    served
}

/// The addresses to listen on.
fn addresses(args: &Nbd) -> Vec<Address> {
    let tcp = args.listen.iter().copied().map(Address::Tcp);
    let unix = args.unix.iter().cloned().map(Address::Unix);
    let all: Vec<Address> = tcp.chain(unix).collect();
    if all.is_empty() { vec![Address::Tcp(([127, 0, 0, 1], PORT).into())] } else { all }
}

/// TLS, if the arguments name a certificate.
fn tls(args: &Nbd) -> Result<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) else {
        return Ok(None);
    };
    let files = TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_authorities: args.tls_clients.clone(),
    };
    let policy = if args.tls_required { TlsPolicy::Required } else { TlsPolicy::Offered };
    Tls::load(&files, policy, Arc::new(SystemClock::new()))
        .map(Some)
        .context("reading the files of TLS")
}

fn tell(global: &Global, args: &Nbd, addresses: &[Address]) -> Result<()> {
    tracing::info!(?addresses, "serving over NBD");
    let mut text = String::new();
    if global.json {
        let addresses = addresses.iter().map(Address::to_string).collect();
        text = json::text(&Answer { addresses, disks: &args.disks })?;
    } else {
        let scheme = if args.tls_required { "nbds" } else { "nbd" };
        for spec in &args.disks {
            let DiskSpec { name, .. } = DiskSpec::parse(spec)?;
            for address in addresses {
                match address {
                    Address::Tcp(address) => {
                        writeln!(text, "{spec} is {scheme}://{address}/{name}")?;
                    }
                    Address::Unix(path) => {
                        let path = path.display();
                        writeln!(text, "{spec} is {scheme}+unix:///{name}?socket={path}")?;
                    }
                }
            }
        }
    }
    output::announce(&text);
    Ok(())
}
