//! Arguments of `zonal serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use zonal::{ByteCount, size};

#[derive(Subcommand)]
pub(crate) enum ServeCommand {
    /// Export devices and disks as namespaces over NVMe/TCP, until SIGTERM or SIGINT
    NvmeTcp(NvmeTcp),
    /// Export ordinary disks over NBD, until SIGTERM or SIGINT
    Nbd(Nbd),
    /// Export a device or a disk as a local block device, /dev/ublkbN, until SIGTERM or SIGINT
    Ublk(Ublk),
}

#[derive(Args)]
pub(crate) struct NvmeTcp {
    /// Devices, as zoned namespaces, and disks of devices, as namespaces without zones; the first
    /// becomes namespace 1
    #[arg(required = true, value_name = "DEVICE[//NAME]")]
    pub(crate) devices: Vec<String>,
    /// Address to listen on. Traffic is neither encrypted nor authenticated: use addresses other
    /// than 127.0.0.1 only on a trusted network
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    pub(crate) listen: Vec<SocketAddr>,
    /// NQN of the subsystem
    #[arg(long, default_value = "nqn.2026-11.localhost:zonal")]
    pub(crate) nqn: String,
    /// Accept only hosts with these NQNs [default: all]
    #[arg(long, value_name = "NQN", value_delimiter = ',')]
    pub(crate) allow_host: Vec<String>,
    /// Size of zone descriptor extensions, a multiple of 64; held in memory and lost when the
    /// server stops [default: no extensions]
    #[arg(long, value_name = "BYTES")]
    pub(crate) zone_extension: Option<u16>,
    /// Complete writes only when they are durable: without a volatile write cache, a server that is
    /// killed loses nothing, and one of a disk that rotates gathers no writes in memory
    #[arg(long)]
    pub(crate) write_through: bool,
    /// Memory limit for all connections; each queue uses 2.9 MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse)]
    pub(crate) memory: ByteCount,
}

#[derive(Args)]
pub(crate) struct Nbd {
    /// Disks: a device with a Furrow file system, and the name of a disk on it
    #[arg(required = true, value_name = "DEVICE//NAME")]
    pub(crate) disks: Vec<String>,
    /// Address to listen on. Without TLS, use addresses other than 127.0.0.1 only on a trusted
    /// network [default: 127.0.0.1:10809, unless --unix is given]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Unix socket to listen on; the permissions of its file say who may connect
    #[arg(long, value_name = "PATH")]
    pub(crate) unix: Vec<PathBuf>,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Offer TLS with this certificate, followed by the chain of its issuers, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept TLS only of clients with certificates of these authorities [default: of all]
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_clients: Option<PathBuf>,
    /// Refuse clients without TLS
    #[arg(long, requires = "tls_certificate")]
    pub(crate) tls_required: bool,
    /// Memory limit for all connections; each uses 0.7 MiB, and its requests their data
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse)]
    pub(crate) memory: ByteCount,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Ublk {
    /// Device: a path or a specification, see `zonal --help`; or a disk on it, DEVICE//NAME
    #[arg(group = "what")]
    pub(crate) device: Option<String>,
    /// Number of the new device, /dev/ublkbN [default: any that is free]
    #[arg(long, value_name = "N", requires = "device")]
    pub(crate) id: Option<u32>,
    /// Take over /dev/ublkbN, whose server was killed; I/O waits until then
    #[arg(long, value_name = "N", requires = "device", conflicts_with_all = ["id", "queues", "depth"])]
    pub(crate) recover: Option<u32>,
    /// Number of queues [default: one for each processor, at most four]
    #[arg(long, value_name = "COUNT", requires = "device", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) queues: Option<u16>,
    /// Depth of each queue
    #[arg(long, value_name = "COUNT", requires = "device", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) depth: u16,
    /// Threads for each queue; a slow request delays only the other requests of its thread
    #[arg(long, value_name = "COUNT", requires = "device", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) threads: u16,
    /// Let this machine use the disk as swap space; its drive has to be a block device, and gets
    /// requests of at most 16 KiB
    #[arg(long, requires = "device")]
    pub(crate) swap: bool,
    /// List the ublk devices of this machine
    #[arg(long, group = "what")]
    pub(crate) list: bool,
    /// Remove /dev/ublkbN, even if another program made it; I/O that waits for its server fails
    #[arg(long, value_name = "N", group = "what")]
    pub(crate) remove: Option<u32>,
}
