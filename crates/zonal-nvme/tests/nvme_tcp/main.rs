//! NVMe/TCP, spoken by a host in user space: everything that a host may do, and may not do.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared with other tests")]

#[path = "../../../zonal/tests/contract/mod.rs"]
mod contract;
mod depth;
#[path = "../../../zonal/tests/devices/mod.rs"]
mod devices;
mod disks;
mod hostile;
mod initiator;
mod memory;
mod remote;
mod silent;
mod slow;
#[path = "../../../zonal-nbd/tests/nbd/disk.rs"]
mod test_disk;
mod zones;

use std::net::SocketAddr;
use std::sync::Arc;

use zerocopy::FromBytes;
use zonal::nvme::decode::{BlockRange, Durability, Identify};
use zonal::nvme::identify::{IdentifyController, cns};
use zonal::nvme::{Nsid, Opcode, SubmissionEntry, status, text};
use zonal::spec::{Stack, open_stack};
use zonal::{
    Lba, LbaCount, ManualClock, MemoryDrive, OpenMode, Select, ZoneAction, ZoneCond, ZoneId,
    ZonedDevice,
};
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::{MEMORY_MAX, Server};
use zonal_nvme::wire::fabrics::{DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader};
use zonal_nvme::wire::feature;
use zonal_nvme::wire::log::{GetLogPage, LogRead, page};
use zonal_nvme::{Namespace, Subsystem};

use initiator::{HOST, Host, Move, Style};
use remote::{Remote, identify};

const NQN: &str = "nqn.2026-11.localhost:test";
const ONE: Nsid = Nsid::new(1);

/// A server of these devices, and the clock it goes by.
fn serve(stacks: Vec<Stack>, hosts: Hosts) -> (Server, SocketAddr, Arc<ManualClock>) {
    let namespaces = stacks
        .into_iter()
        .zip(1..)
        .map(|(stack, number)| Namespace::new(stack, "a device", [number; 16]).unwrap());
    serve_namespaces(namespaces.collect(), hosts)
}

fn serve_namespaces(
    namespaces: Vec<Namespace>,
    hosts: Hosts,
) -> (Server, SocketAddr, Arc<ManualClock>) {
    serve_at(namespaces, hosts, &["127.0.0.1:0".parse().unwrap()])
}

fn serve_at(
    namespaces: Vec<Namespace>,
    hosts: Hosts,
    addresses: &[SocketAddr],
) -> (Server, SocketAddr, Arc<ManualClock>) {
    start(Subsystem::new(NQN, namespaces, hosts).unwrap(), addresses)
}

fn serve_subsystem(subsystem: Subsystem) -> (Server, SocketAddr, Arc<ManualClock>) {
    start(subsystem, &["127.0.0.1:0".parse().unwrap()])
}

fn start(subsystem: Subsystem, addresses: &[SocketAddr]) -> (Server, SocketAddr, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(0));
    let server = Server::start(Arc::new(subsystem), addresses, MEMORY_MAX, clock.clone()).unwrap();
    let address = server.addresses()[0];
    (server, address, clock)
}

/// The entry of the discovery log page for an address: family, address, port.
fn discover(address: SocketAddr) -> (u8, String, String) {
    let mut host = Host::connect(address, DISCOVERY_NQN, Style::PLAIN);
    let log = log_page(&mut host, Nsid::NONE, page::DISCOVERY, 2048);
    let (header, rest) = DiscoveryHeader::read_from_prefix(&log).unwrap();
    assert_eq!(header.records.get(), 1);
    let entry = DiscoveryEntry::read_from_bytes(rest).unwrap();
    let text = |field| text(field).unwrap().to_owned();
    (entry.address_family, text(&entry.address), text(&entry.service))
}

fn stack(spec: &str) -> Stack {
    open_stack(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0))).unwrap()
}

fn small() -> Vec<Stack> {
    vec![stack("mem:zone=3M,zones=8,open=3,active=5")]
}

#[test]
fn namespace_keeps_device_contract() {
    let mut count = 0;
    for (shape, spec) in devices::shapes() {
        let whole = spec.block_count.get().is_multiple_of(spec.zone_size.get());
        if !spec.conventional_zones.is_empty() || !whole {
            continue;
        }
        for style in [Style::PLAIN, Style::EVERYTHING] {
            for (what, check) in contract::CHECKS {
                let drive = MemoryDrive::new(spec).unwrap();
                let (server, address, _) = serve(vec![drive.into()], Hosts::All);
                let remote = Remote::new(Host::connect(address, NQN, style), ONE);
                contract::run(&remote, &format!("{style:?} of shape {shape:?}"), what, *check);
                drop(remote);
                server.stop().unwrap();
                count += 1;
            }
        }
    }
    println!("{count} checks");
    assert!(count > 300);
}

#[test]
fn write_large_comes_in_parts_and_reads_back() {
    for style in [Style::PLAIN, Style::EVERYTHING] {
        let (server, address, _) = serve(small(), Hosts::All);
        let remote = Remote::new(Host::connect(address, NQN, style), ONE);
        let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
        remote.write(Lba::ZERO, &data).unwrap();
        let mut found = vec![0; data.len()];
        remote.read(Lba::ZERO, &mut found).unwrap();
        assert!(found == data);
        drop(remote);
        server.stop().unwrap();
    }
}

#[test]
fn discovery_names_subsystem_to_permitted_hosts() {
    let hosts = Hosts::Named(vec![HOST.to_owned()]);
    let (server, address, _) = serve(small(), hosts);
    for (host, records) in [(HOST, 1), ("nqn.2026-11.localhost:stranger", 0)] {
        let mut host = Host::connect_as(host, address, DISCOVERY_NQN, Style::PLAIN).unwrap();
        let controller = identify(&mut host, Nsid::NONE, cns::CONTROLLER, 0);
        assert_eq!(IdentifyController::read_from_bytes(&controller).unwrap().kind, 2);
        let log = log_page(&mut host, Nsid::NONE, page::DISCOVERY, 2048);
        let (header, rest) = DiscoveryHeader::read_from_prefix(&log).unwrap();
        assert_eq!(header.records.get(), records);
        if records == 1 {
            let entry = DiscoveryEntry::read_from_bytes(rest).unwrap();
            assert_eq!(text(&entry.subsystem), Some(NQN));
            assert_eq!(text(&entry.address), Some("127.0.0.1"));
            assert_eq!(text(&entry.service), Some(address.port().to_string().as_str()));
        }
    }
    let refused = Host::connect_as("nqn.2026-11.localhost:stranger", address, NQN, Style::PLAIN);
    assert_eq!(refused.err(), Some(status::CONNECT_HOST));
    let unknown = Host::connect_as(HOST, address, "nqn.2026-11.localhost:other", Style::PLAIN);
    assert_eq!(unknown.err(), Some(status::CONNECT_PARAMETERS));
    server.stop().unwrap();
}

#[test]
fn host_without_name_connects_unless_hosts_are_named() {
    let (server, address, _) = serve(small(), Hosts::All);
    let host = Host::connect_as("", address, NQN, Style::PLAIN).unwrap();
    host.queue(1).unwrap().command(read(1, ONE), &Move::Receive(4096)).unwrap();
    drop(host);
    server.stop().unwrap();
    let (server, address, _) = serve(small(), Hosts::Named(vec![HOST.to_owned()]));
    let refused = Host::connect_as("", address, NQN, Style::PLAIN);
    assert_eq!(refused.err(), Some(status::CONNECT_HOST));
    server.stop().unwrap();
}

#[test]
fn identify_tells_structure_unknown_from_namespace_unknown() {
    const KEY_VALUE: u8 = 1;
    let (server, address, _) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    for (what, command_set, nsid, expected) in [
        (cns::COMMAND_SET_CONTROLLER, KEY_VALUE, Nsid::NONE, status::INVALID_FIELD),
        (cns::COMMAND_SET_NAMESPACES, KEY_VALUE, Nsid::NONE, status::INVALID_FIELD),
        (cns::COMMAND_SET_NAMESPACE, KEY_VALUE, ONE, status::INVALID_FIELD),
        (0x55, 0, Nsid::NONE, status::INVALID_FIELD),
        (cns::NAMESPACE, 0, Nsid::new(9), status::INVALID_NAMESPACE),
        // Without Namespace Management there is nothing that all namespaces have in common.
        (cns::NAMESPACE, 0, Nsid::ALL, status::INVALID_NAMESPACE),
        (cns::DESCRIPTORS, 0, Nsid::NONE, status::INVALID_NAMESPACE),
    ] {
        let entry = Identify { what, command_set }.encode(nsid);
        let found = host.admin.command(entry, &Move::Receive(4096)).err();
        assert_eq!(found, Some(expected), "structure {what:#x} of {command_set}");
    }
    server.stop().unwrap();
}

fn log_page(host: &mut Host, nsid: Nsid, page: u8, bytes: u64) -> Vec<u8> {
    let (read, offset) = (LogRead::Clear, 0);
    let entry = GetLogPage { page, read, offset, bytes, command_set: 2 }.encode(nsid);
    host.admin.command(entry, &Move::Receive(usize::try_from(bytes).unwrap())).unwrap().1
}

#[test]
fn hosts_see_changes_of_each_other() {
    let stacks = vec![stack("mem:zone=3M,zones=8"), stack("po2:mem:zone=3M,zones=4")];
    let (server, address, _) = serve(stacks, Hosts::All);
    let open = |nsid| Remote::new(Host::connect(address, NQN, Style::PLAIN), Nsid::new(nsid));
    let (one, other, second) = (open(1), open(1), open(2));
    let zone = ZoneId::new(2);
    let at = one.append(zone, &[7; 8192]).unwrap();
    let mut found = [0; 8192];
    other.read(at, &mut found).unwrap();
    assert_eq!(found, [7; 8192]);
    other.manage(Select::One(zone), ZoneAction::Finish).unwrap();
    assert_eq!(one.zone(zone).unwrap().cond, ZoneCond::Full);
    assert_eq!(second.zone(zone).unwrap().cond, ZoneCond::Empty);
    assert_eq!(second.geometry().zone_size().get(), 1024);
    assert_eq!(one.geometry().zone_size().get(), 768);
    drop((one, other, second));
    server.stop().unwrap();
}

#[test]
fn namespace_last_zone_has_gap_other_kinds_are_refused() {
    let spec = devices::shapes().into_iter().find(|(name, _)| *name == "a runt of one block");
    let drive = MemoryDrive::new(spec.unwrap().1).unwrap();
    let last = ZoneId::new(drive.geometry().zone_count() - 1);
    let (server, address, _) = serve(vec![drive.into()], Hosts::All);
    let remote = Remote::new(Host::connect(address, NQN, Style::PLAIN), ONE);
    let zone = remote.zone(last).unwrap();
    assert_eq!((zone.size.get(), zone.capacity.get()), (24, 1));
    let too_much = remote.write(zone.start, &[1; 8192]);
    assert!(matches!(too_much, Err(zonal::DeviceError::CrossesZone { .. })), "{too_much:?}");
    remote.write(zone.start, &[1; 4096]).unwrap();
    let mut found = vec![9; 24 * 4096];
    remote.read(zone.start, &mut found).unwrap();
    assert!(found[..4096] == [1; 4096] && found[4096..].iter().all(|&byte| byte == 0));
    drop(remote);
    server.stop().unwrap();
    let refused = Namespace::new(stack("mem:zone=3M,zones=8,conventional=2"), "x", [0; 16]);
    assert!(refused.err().unwrap().to_string().contains("conventional"));
    let host_aware = "mem:profile=host-aware,zone=3M,zones=8,conventional=0";
    let refused = Namespace::new(stack(host_aware), "x", [0; 16]);
    assert!(refused.err().unwrap().to_string().contains("sequential write preferred"));
}

fn read(blocks: u64, nsid: Nsid) -> SubmissionEntry {
    let (first, durability) = (Lba::ZERO, Durability::Volatile);
    BlockRange { first, blocks: LbaCount::new(blocks), durability }.encode(Opcode::READ, nsid)
}

#[test]
fn command_not_permitted_is_refused_and_queue_continues() {
    let (server, address, _) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    assert_eq!(host.queue(1).err(), Some(status::CONNECT_PARAMETERS), "a queue is connected once");
    assert_eq!(host.queue(65).err(), Some(status::CONNECT_PARAMETERS));
    let nothing = Move::Nothing;
    let mut fused = read(1, ONE);
    fused.flags |= 1;
    for (entry, data, expected) in [
        (read(1, Nsid::new(9)), Move::Receive(4096), status::INVALID_NAMESPACE),
        (read(2, ONE), Move::Receive(4096), status::SGL_LENGTH),
        (read(1, ONE), Move::Nothing, status::SGL_TYPE),
        (read(65_536, ONE), Move::Receive(4096), status::LBA_OUT_OF_RANGE),
        (read(300, ONE), Move::Receive(300 * 4096), status::INVALID_FIELD),
        (fused, Move::Receive(4096), status::INVALID_FIELD),
        (SubmissionEntry::new(Opcode(0x55), ONE), Move::Nothing, status::INVALID_OPCODE),
    ] {
        assert_eq!(queue.command(entry, &data).err(), Some(expected), "{entry:?}");
    }
    let mut fused = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    fused.flags |= 1;
    assert_eq!(host.admin.command(fused, &nothing).err(), Some(status::INVALID_FIELD));
    let unknown = SubmissionEntry::new(Opcode(0x55), ONE);
    assert_eq!(host.admin.command(unknown, &nothing).err(), Some(status::INVALID_OPCODE));
    queue.command(read(1, ONE), &Move::Receive(4096)).unwrap();
    server.stop().unwrap();
}

#[test]
fn queue_count_is_set_before_queues_only() {
    let (server, address, _) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let (lifetime, value) = (feature::Lifetime::UntilReset, 0x0003_0003);
    let set = feature::SetFeature { id: feature::id::QUEUES, lifetime, value }.encode();
    assert_eq!(host.admin.command(set, &Move::Nothing).unwrap().0, u64::from(value));
    let queue = host.queue(1).unwrap();
    assert_eq!(host.admin.command(set, &Move::Nothing).err(), Some(status::SEQUENCE));
    drop(queue);
    server.stop().unwrap();
}

#[test]
fn command_of_any_kind_keeps_controller_alive() {
    let (server, address, clock) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    for _ in 0..3 {
        clock.advance_ns(5_000_000_000);
        queue.command(read(1, ONE), &Move::Receive(4096)).unwrap();
        // The admin queue looks once a second, by a clock that this test does not advance.
        std::thread::park_timeout(std::time::Duration::from_millis(1_500));
    }
    let alive = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    host.admin.command(alive, &Move::Nothing).unwrap();
    server.stop().unwrap();
}

#[test]
fn host_silent_too_long_loses_controller() {
    let (server, address, clock) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    clock.advance_ns(5_900_000_000);
    host.admin
        .command(SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE), &Move::Nothing)
        .unwrap();
    clock.advance_ns(6_100_000_000);
    assert!(host.admin.receive().is_none() && queue.receive().is_none(), "both are closed");
    server.stop().unwrap();
}
