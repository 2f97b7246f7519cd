//! Hosts that mean harm or are broken: the server ends their connections and serves the others.
//!
//! `SEED=n COUNT=n` choose the garbage and how much of it there is.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use zerocopy::IntoBytes;
use zonal::nvme::decode::{BlockRange, Durability};
use zonal::nvme::{NvmeStatus, Opcode, status};
use zonal::wait::wait_until;
use zonal::{Lba, LbaCount, repeat};
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::Server;
use zonal_nvme::tcp::pdu::{self, COMMON_BYTES, ConnectionParams, DataPdu, PduType, flag};

use crate::initiator::{Host, Move, Placement, Queue, Style};
use crate::{NQN, ONE, serve, small};

/// The generator of `SplitMix64`: enough for garbage.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// Checks that the server works, and lets go of every connection that has ended.
pub fn is_well(server: &Server, address: SocketAddr) {
    let host = Host::connect(address, NQN, Style::EVERYTHING);
    let mut queue = host.queue(1).unwrap();
    queue.command(write(1), &Move::Send(&[1; 4096])).ok();
    drop((queue, host));
    wait_until(|| server.connection_count() == 0);
}

pub fn write(blocks: u64) -> zonal::nvme::SubmissionEntry {
    let (first, durability) = (Lba::ZERO, Durability::Volatile);
    BlockRange { first, blocks: LbaCount::new(blocks), durability }.encode(Opcode::WRITE, ONE)
}

/// Whether the server has closed a connection that it sends nothing to.
pub fn has_ended(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.peek(&mut [0]), Ok(0))
}

/// Sends bytes and reads until the server ends the connection.
fn send_and_end(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    // The server may have closed already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    answer
}

#[test]
fn garbage_ends_its_connection_only() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    let (server, address, _) = serve(small(), Hosts::All);
    let mut random = Random(seed);
    for turn in 0..count {
        let mut bytes: Vec<u8> = (0..random.below(600)).map(|_| random.byte()).collect();
        let stream = match turn % 3 {
            // Nothing but garbage.
            0 => TcpStream::connect(address).unwrap(),
            // Garbage after a good start.
            1 => Queue::open(address, Style::PLAIN).stream,
            // Commands on a connected queue, with a few wrong bytes in them.
            _ => {
                let host = Host::connect(address, NQN, Style::PLAIN);
                let mut header = [0; COMMON_BYTES + 64];
                bytes.clear();
                for _ in 0..4 {
                    header[COMMON_BYTES..].copy_from_slice(write(2).as_bytes());
                    header[COMMON_BYTES + random.below(64)] = random.byte();
                    header[COMMON_BYTES] = random.byte();
                    pdu::put(
                        &mut bytes,
                        PduType::CapsuleCmd,
                        0,
                        &header,
                        &[3; 8192],
                        ConnectionParams::default(),
                    );
                    let wrong = random.below(bytes.len());
                    if random.below(2) == 0 {
                        bytes[wrong] ^= random.byte();
                    }
                }
                bytes.truncate(bytes.len() - random.below(100));
                host.admin.stream
            }
        };
        send_and_end(stream, &bytes);
    }
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn digests_wrong_fail_header_or_command() {
    let (server, address, _) = serve(small(), Hosts::All);
    let style = Style { placement: Placement::Capsule, ..Style::EVERYTHING };
    let host = Host::connect(address, NQN, style);
    let mut queue = host.queue(1).unwrap();
    let mut entry = write(1);
    entry.data = zonal::nvme::command::DataPointer::in_capsule(4096);
    let mut header = [0; COMMON_BYTES + 64];
    header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, PduType::CapsuleCmd, 0, &header, &[3; 4096], queue.params);
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    queue.stream.write_all(&damaged).unwrap();
    let (_, response) = queue.receive().unwrap();
    let found = u16::from_le_bytes([response[22], response[23]]);
    assert_eq!(NvmeStatus::from_field(found), status::TRANSIENT_TRANSPORT);
    bytes[20] ^= 1;
    queue.stream.write_all(&bytes).unwrap();
    let (frame, term_req) = queue.receive().unwrap();
    assert_eq!((frame.kind, term_req[8]), (PduType::C2HTermReq, 3));
    assert!(queue.receive().is_none());
    drop((queue, host));
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn data_unrequested_ends_connection() {
    let (server, address, _) = serve(small(), Hosts::All);
    let wrong: [(Option<u16>, u32, u8, u8); 4] = [
        // Another tag; another place; before its end "last"; at its end not "last".
        (Some(77), 0, flag::LAST, 1),
        (None, 4096, flag::LAST, 4),
        (None, 0, flag::LAST, 1),
        (None, 0, 0, 0),
    ];
    for (tag, offset, flags, expected) in wrong {
        let style = Style { placement: Placement::Request, ..Style::PLAIN };
        let host = Host::connect(address, NQN, style);
        let mut queue = host.queue(1).unwrap();
        let data = vec![5; 8192];
        let id = queue.send(write(2), &Move::Send(&data));
        let (frame, request) = queue.receive().unwrap();
        assert_eq!(frame.kind, PduType::R2T);
        let tag = tag.unwrap_or(u16::from_le_bytes([request[10], request[11]]));
        let offset = offset as usize;
        let header = DataPdu::new(id, tag, &(offset..offset + 4096));
        let mut bytes = Vec::new();
        pdu::put(
            &mut bytes,
            PduType::H2CData,
            flags,
            header.as_bytes(),
            &data[..4096],
            queue.params,
        );
        queue.stream.write_all(&bytes).unwrap();
        if expected == 0 {
            // That part was right; the rest never comes.
            continue;
        }
        let (frame, term_req) = queue.receive().unwrap();
        assert_eq!((frame.kind, term_req[8]), (PduType::C2HTermReq, expected));
        assert!(queue.receive().is_none());
    }
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn peer_too_slow_is_disconnected() {
    let (server, address, clock) = serve(small(), Hosts::All);
    let silent = TcpStream::connect(address).unwrap();
    let mut slow = Queue::open(address, Style::PLAIN).stream;
    slow.write_all(&[4, 0, 72]).unwrap();
    // This one stops before it connects to a controller.
    let unconnected = Queue::open(address, Style::PLAIN).stream;
    while server.connection_count() < 3 {
        std::thread::yield_now();
    }
    // Time passes from when each is read for the first time.
    for stream in [silent, slow, unconnected] {
        wait_until(|| {
            clock.advance_ns(1_000_000_000);
            has_ended(&stream)
        });
    }
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn connections_by_thousand_are_served_or_closed() {
    let (server, address, _) = serve(small(), Hosts::All);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // Each connection has two ends in this process, and the test has files of its own.
    let room = limit.current.unwrap_or(u64::MAX).saturating_sub(64) / 2;
    let count = room.min(1000);
    println!("{count} connections");
    let streams: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    queue.command(write(1), &Move::Send(&[1; 4096])).unwrap();
    drop((streams, queue, host));
    is_well(&server, address);
    server.stop().unwrap();
}

#[test]
fn command_repeated_is_conflict_only_while_running() {
    let (server, address, _) = serve(small(), Hosts::All);
    let style = Style { placement: Placement::Request, ..Style::PLAIN };
    let host = Host::connect(address, NQN, style);
    let mut queue = host.queue(1).unwrap();
    let data = [6; 8192];
    let id = queue.send(write(2), &Move::Send(&data));
    let (frame, request) = queue.receive().unwrap();
    assert_eq!(frame.kind, PduType::R2T);
    let again = queue.sent.last().unwrap().clone();
    // The same command before its data has come, and after it has ended.
    queue.stream.write_all(&again).unwrap();
    let answer = |queue: &mut Queue| {
        let (frame, pdu) = queue.receive().unwrap();
        let status = NvmeStatus::from_field(u16::from_le_bytes([pdu[22], pdu[23]]));
        (frame.kind, u16::from_le_bytes([pdu[20], pdu[21]]), status)
    };
    assert_eq!(answer(&mut queue), (PduType::CapsuleResp, id, status::ID_CONFLICT));
    let send_data = |queue: &mut Queue, tag: u16| {
        let header = DataPdu::new(id, tag, &(0..8192));
        let mut bytes = Vec::new();
        pdu::put(&mut bytes, PduType::H2CData, flag::LAST, header.as_bytes(), &data, queue.params);
        queue.stream.write_all(&bytes).unwrap();
    };
    let tag = u16::from_le_bytes([request[10], request[11]]);
    send_data(&mut queue, tag);
    assert_eq!(answer(&mut queue), (PduType::CapsuleResp, id, status::SUCCESS));
    queue.stream.write_all(&again).unwrap();
    let (_, request) = queue.receive().unwrap();
    send_data(&mut queue, u16::from_le_bytes([request[10], request[11]]));
    assert_eq!(answer(&mut queue), (PduType::CapsuleResp, id, status::ZONE_INVALID_WRITE));
    // The data itself, sent twice, ends the connection.
    send_data(&mut queue, tag);
    assert_eq!(queue.receive().unwrap().0.kind, PduType::C2HTermReq);
    drop((queue, host));
    is_well(&server, address);
    server.stop().unwrap();
}
