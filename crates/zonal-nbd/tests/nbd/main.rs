//! The NBD server against a client of the tests, and against clients of other projects.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod client;
mod disk;
mod handshake;
mod hostile;
#[path = "../../../../fuzz/mutants.rs"]
mod mutants;
mod programs;
mod tls;
mod transmission;

use std::sync::Arc;

use zonal::{BlockSize, ManualClock};
use zonal_nbd::export::Access;
use zonal_nbd::server::MEMORY_MAX;
use zonal_nbd::{Address, Export, Exports, Server, Settings, Tls};

use disk::TestDisk;

/// A server of tests, with its address, clock and disk.
struct Served {
    server: Server,
    address: Address,
    clock: Arc<ManualClock>,
    disk: Arc<TestDisk>,
}

/// A disk of 8 MiB in blocks of 4 KiB.
fn small() -> TestDisk {
    TestDisk::new(BlockSize::B4096, 2048)
}

fn settings(memory_max: usize, tls: Option<Tls>) -> Settings {
    let addresses = vec![Address::Tcp("127.0.0.1:0".parse().unwrap())];
    Settings { addresses, tls, memory_max }
}

/// Serves one disk as "disk".
fn serve(disk: TestDisk) -> Served {
    serve_as(disk, Access::ReadWrite)
}

fn serve_as(disk: TestDisk, access: Access) -> Served {
    start(disk, access, settings(MEMORY_MAX, None))
}

fn serve_with(disk: TestDisk, settings: Settings) -> Served {
    start(disk, Access::ReadWrite, settings)
}

fn start(disk: TestDisk, access: Access, settings: Settings) -> Served {
    let disk = Arc::new(disk);
    let export = Export::new("disk", "of a test", disk.clone(), access).unwrap();
    let clock = Arc::new(ManualClock::new(0));
    let exports = Exports::new(vec![export]).unwrap();
    let server = Server::start(exports, settings, clock.clone()).unwrap();
    let address = server.addresses()[0].clone();
    Served { server, address, clock, disk }
}
