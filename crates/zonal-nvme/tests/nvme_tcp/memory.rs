//! The memory that hosts can take together is bounded: the server refuses further queues with a
//! clear status, closes further connections, and goes on serving the others.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use zonal::nvme::decode::{BlockRange, Durability};
use zonal::nvme::{Opcode, SubmissionEntry, status};
use zonal::wait::wait_until;
use zonal::{Lba, LbaCount, ManualClock};
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::Server;
use zonal_nvme::tcp::pdu::PduType;
use zonal_nvme::{Namespace, Subsystem};

use crate::initiator::{Host, Move, Placement, Queue, Style};
use crate::{NQN, ONE, small};

pub const MIB: usize = 1 << 20;

/// A server with `memory_max` bytes for connections, and the clock it goes by.
pub fn serve(memory_max: usize) -> (Server, SocketAddr, Arc<ManualClock>) {
    let stack = small().into_iter().next().unwrap();
    let namespace = Namespace::new(stack, "a device", [1; 16]).unwrap();
    let subsystem = Arc::new(Subsystem::new(NQN, vec![namespace], Hosts::All).unwrap());
    let (anywhere, clock) = (["127.0.0.1:0".parse().unwrap()], Arc::new(ManualClock::new(0)));
    let server = Server::start(subsystem, &anywhere, memory_max, clock.clone()).unwrap();
    let address = server.addresses()[0];
    (server, address, clock)
}

/// The write of 1 MiB with this number; the first is at the start of the drive.
fn write(number: u64) -> SubmissionEntry {
    let (blocks, durability) = (LbaCount::new(256), Durability::Volatile);
    BlockRange { first: Lba::new(number * 256), blocks, durability }.encode(Opcode::WRITE, ONE)
}

#[test]
fn queues_beyond_memory_budget_are_busy_until_others_end() {
    let (server, address, _) = serve(16 * MIB);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queues = Vec::new();
    let refused = (1..=64).find_map(|number| match host.queue(number) {
        Ok(queue) => {
            queues.push(queue);
            None
        }
        Err(status) => Some((number, status)),
    });
    let (number, status) = refused.expect("not all 64 queues fit");
    assert_eq!((number, status), (5, status::CONNECT_BUSY), "16 MiB: admin queue and 4 others");
    let other = Host::connect_as("nqn.2026-11.localhost:other", address, NQN, Style::PLAIN);
    assert_eq!(other.err(), Some(status::CONNECT_BUSY));
    // Connected queues are served.
    for (number, queue) in (0..).zip(&mut queues).take(3) {
        queue.command(write(number), &Move::Send(&vec![7; MIB])).unwrap();
    }
    drop(queues.pop());
    // There is room again, once the server has seen its end.
    wait_until(|| host.queue(number).is_ok());
    server.stop().unwrap();
}

#[test]
fn connections_beyond_memory_budget_are_closed() {
    let (server, address, _) = serve(4 * MIB);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut strangers: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    // 4 MiB less one queue is room for some 20 connections.
    let last = strangers.last_mut().unwrap();
    assert!(matches!(last.read(&mut [0]), Ok(0)), "it is closed at once");
    let count = server.connection_count();
    assert!((10..40).contains(&count), "{count} connections");
    drop((strangers, host));
    server.stop().unwrap();
}

#[test]
fn queue_without_spare_memory_gets_data_one_by_one() {
    // Room for an admin queue and one more; and for a good deal more.
    for (memory_max, together) in [(6 * MIB, 1), (64 * MIB, 2)] {
        let (server, address, _) = serve(memory_max);
        let style = Style { placement: Placement::Request, ..Style::PLAIN };
        let host = Host::connect(address, NQN, style);
        let mut queue = host.queue(1).unwrap();
        let data = vec![7; MIB];
        let ids: Vec<u16> =
            (0..3).map(|number| queue.send(write(number), &Move::Send(&data))).collect();
        let mut requests: Vec<_> = (0..together).map(|_| request(&mut queue)).collect();
        assert!(queue.is_silent(), "{together} at once");
        for (turn, id) in ids.into_iter().enumerate() {
            let request = requests.remove(0);
            assert_eq!(request.command.get(), id);
            queue.send_data(id, &request, &data);
            // The data's command is completed before more is requested.
            let (frame, pdu) = queue.receive().unwrap();
            assert_eq!(frame.kind, PduType::CapsuleResp);
            assert_eq!(pdu[22..24], [0, 0], "success");
            if turn + together < 3 {
                requests.push(self::request(&mut queue));
            }
        }
        server.stop().unwrap();
    }
}

fn request(queue: &mut Queue) -> zonal_nvme::tcp::pdu::DataPdu {
    let (frame, pdu) = queue.receive().unwrap();
    assert_eq!(frame.kind, PduType::R2T);
    zerocopy::FromBytes::read_from_bytes(&pdu[..24]).unwrap()
}
