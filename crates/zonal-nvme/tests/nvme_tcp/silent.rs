//! Peers that say nothing, at once or after a while, or stop in the middle: none has a connection
//! for ever, or keeps others out.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use zerocopy::IntoBytes;
use zonal::nvme::command::DataPointer;
use zonal::nvme::{Nsid, Opcode, SubmissionEntry, status};
use zonal::wait::wait_until;
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::pdu::{self, COMMON_BYTES, ConnectionParams, PduType};

use crate::hostile::{has_ended, is_well, write};
use crate::initiator::{HOST, Host, Move, Placement, Queue, Style, connect, connect_data};
use crate::memory::{self, MIB};
use crate::{NQN, serve, small};

const SECOND_NS: u64 = 1_000_000_000;

/// A host that may be silent for as long as it likes.
const UNTIMED: Style = Style { keep_alive_ms: None, ..Style::PLAIN };

/// The capsule of a command.
fn capsule(entry: &SubmissionEntry, data: &[u8]) -> Vec<u8> {
    let mut header = [0; COMMON_BYTES + 64];
    header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, PduType::CapsuleCmd, 0, &header, data, ConnectionParams::default());
    bytes
}

/// A peer that has agreed on the parameters, and then sends this.
fn begun(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = Queue::open(address, Style::PLAIN).stream;
    stream.write_all(bytes).unwrap();
    stream
}

#[test]
fn peer_stopping_before_connect_goes_after_ten_seconds() {
    let (server, address, clock) = serve(small(), Hosts::All);
    let mut entry = connect(0, Style::PLAIN);
    entry.data = DataPointer::in_capsule(1024);
    let data = connect_data(HOST, NQN, 0xffff);
    let whole = capsule(&entry, data.as_bytes());
    let mut peers = vec![TcpStream::connect(address).unwrap()];
    // In the middle of ICReq: of its first bytes, and behind them.
    for length in [3, 20] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(&[&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 12]].concat()[..length])
            .unwrap();
        peers.push(stream);
    }
    // Behind it, and in the middle of Connect: of its first bytes, its header, its data.
    for length in [0, 5, 30, 500] {
        peers.push(begun(address, &whole[..length]));
    }
    let mut eager = Queue::open(address, Style::PLAIN);
    wait_until(|| server.connection_count() == peers.len() + 1);
    clock.advance_ns(8 * SECOND_NS);
    // Commands that it may not send yet win no time.
    let early = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    assert_eq!(eager.command(early, &Move::Nothing).err(), Some(status::SEQUENCE));
    peers.push(eager.stream);
    clock.advance_ns(3 * SECOND_NS);
    for peer in &peers {
        wait_until(|| has_ended(peer));
    }
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn peer_stopping_mid_capsule_or_data_goes() {
    let (server, address, clock) = serve(small(), Hosts::All);
    let half = capsule(&write(1), &[7; 4096]);
    let mut peers = Vec::new();
    let mut hosts = Vec::new();
    // On an admin queue and on an I/O queue: in the header, in the data. None has a timer.
    for length in [5, 40, 2000] {
        let host = Host::connect(address, NQN, UNTIMED);
        let mut queue = host.queue(1).unwrap();
        queue.stream.write_all(&half[..length]).unwrap();
        peers.push(queue.stream);
        hosts.push(host);
        let mut host = Host::connect(address, NQN, UNTIMED);
        host.admin.stream.write_all(&half[..length]).unwrap();
        peers.push(host.admin.stream);
    }
    // In the middle of requested data.
    let host = Host::connect(address, NQN, Style { placement: Placement::Request, ..UNTIMED });
    let mut queue = host.queue(1).unwrap();
    queue.send(write(2), &Move::Send(&[7; 8192]));
    assert_eq!(queue.receive().unwrap().0.kind, PduType::R2T);
    queue.stream.write_all(&[6, 4, 24, 0]).unwrap();
    peers.push(queue.stream);
    // Time passes from when each is read for the first time.
    for peer in &peers {
        wait_until(|| {
            clock.advance_ns(SECOND_NS);
            has_ended(peer)
        });
    }
    drop((hosts, host));
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn hosts_without_timer_yield_to_queues_oldest_first() {
    // Room for two queues.
    let (server, address, clock) = memory::serve(7 * MIB);
    let silent = Host::connect(address, NQN, UNTIMED);
    clock.advance_ns(SECOND_NS);
    let mut other = Host::connect(address, NQN, UNTIMED);
    let refused =
        || Host::connect_as("nqn.2026-11.localhost:new", address, NQN, Style::PLAIN).err();
    assert_eq!(refused(), Some(status::CONNECT_BUSY), "nobody is silent for long");
    clock.advance_ns(20 * SECOND_NS);
    let alive = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    other.admin.command(alive, &Move::Nothing).unwrap();
    // It may take another attempt until the memory is free.
    let mut new = None;
    wait_until(|| {
        new = Host::connect_as(HOST, address, NQN, Style::PLAIN).ok();
        new.is_some()
    });
    assert!(has_ended(&silent.admin.stream));
    other.admin.command(alive, &Move::Nothing).unwrap();
    assert_eq!(refused(), Some(status::CONNECT_BUSY), "all others were heard");
    drop((silent, other, new));
    wait_until(|| server.connection_count() == 0);
    server.stop().unwrap();
}

#[test]
fn hosts_with_timer_keep_queues_while_it_runs() {
    let (server, address, clock) = memory::serve(7 * MIB);
    let timed = Style { keep_alive_ms: Some(60_000), ..Style::PLAIN };
    let mut hosts = [(); 2].map(|()| Host::connect(address, NQN, timed));
    clock.advance_ns(50 * SECOND_NS);
    let refused = Host::connect_as(HOST, address, NQN, Style::PLAIN).err();
    assert_eq!(refused, Some(status::CONNECT_BUSY));
    let alive = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    for host in &mut hosts {
        host.admin.command(alive, &Move::Nothing).unwrap();
    }
    // The timer closes them.
    clock.advance_ns(62 * SECOND_NS);
    wait_until(|| hosts.iter().all(|host| has_ended(&host.admin.stream)));
    server.stop().unwrap();
}

#[test]
fn peers_silent_yield_connections() {
    // Room for one queue and some connections.
    let (server, address, clock) = memory::serve(4 * MIB);
    let strangers: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    // The server has met them all: one that it met later would not be silent yet.
    let closed = || strangers.iter().filter(|stream| has_ended(stream)).count();
    wait_until(|| closed() + server.connection_count() == strangers.len());
    let count = server.connection_count();
    assert!(count < strangers.len(), "there is no room for {count} connections");
    clock.advance_ns(2 * SECOND_NS);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let left = strangers.len() - closed();
    assert!(left < count, "{left} of {count} are left");
    drop((strangers, host));
    wait_until(|| server.connection_count() == 0);
    server.stop().unwrap();
}
