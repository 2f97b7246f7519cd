//! The depth of a host's queue is the depth of the device.

use std::sync::Arc;
use std::time::Duration;

use zonal::layer::delay::Delay;
use zonal::nvme::decode::{BlockRange, Durability};
use zonal::nvme::{Opcode, SubmissionEntry, status};
use zonal::spec::Stack;
use zonal::{Lba, LbaCount, ZoneId, ZonedDevice};
use zonal_nvme::subsystem::Hosts;

use crate::initiator::{Host, Move, Style};
use crate::{NQN, ONE, serve, stack};

const BLOCK: usize = 4096;

/// A device that counts how often somebody waits for it.
fn counted() -> (Arc<Delay<Arc<dyn ZonedDevice>>>, Stack) {
    let stack = stack("mem:zone=3M,zones=8,open=3,active=5");
    let device = Arc::new(Delay::new(stack.device, Duration::ZERO));
    let served: Arc<dyn ZonedDevice> = device.clone();
    (device, Stack { device: served, ..stack })
}

fn command(opcode: Opcode, first: u64, durability: Durability) -> SubmissionEntry {
    let (first, blocks) = (Lba::new(first), LbaCount::new(1));
    BlockRange { first, blocks, durability }.encode(opcode, ONE)
}

#[test]
fn reads_that_arrive_together_are_one_batch() {
    for style in [Style::PLAIN, Style::EVERYTHING] {
        let (device, stack) = counted();
        let blocks: Vec<u8> = (0..32_u8).flat_map(|number| [number; BLOCK]).collect();
        device.append(ZoneId::ZERO, &blocks).unwrap();
        let (server, address, _) = serve(vec![stack], Hosts::All);
        let host = Host::connect(address, NQN, style);
        let mut queue = host.queue(1).unwrap();
        device.clear();
        let reads: Vec<_> = (0..32)
            .map(|at| command(Opcode::READ, at, Durability::Volatile))
            .map(|entry| (entry, Move::Receive(BLOCK)))
            .collect();
        let answers = queue.batch(&reads);
        for (answer, expected) in answers.iter().zip(blocks.chunks(BLOCK)) {
            assert!(answer.as_ref().is_ok_and(|(_, data)| data == expected), "{style:?}");
        }
        assert_eq!((device.requests(), device.rounds(), device.deepest()), (32, 1, 32));
        server.stop().unwrap();
    }
}

#[test]
fn durable_writes_that_arrive_together_take_one_flush() {
    let (device, stack) = counted();
    let (server, address, _) = serve(vec![stack], Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    let data = [7; BLOCK];
    let write = |zone: u64, skew: u64, durability| {
        (command(Opcode::WRITE, zone * 768 + skew, durability), Move::Send(&data[..]))
    };
    let answers = queue.batch(&[
        write(0, 0, Durability::Durable),
        write(1, 0, Durability::Volatile),
        // Not at the write pointer.
        write(2, 5, Durability::Durable),
        write(3, 0, Durability::Durable),
    ]);
    let ends: Vec<_> = answers.into_iter().map(|answer| answer.map(drop)).collect();
    assert_eq!(ends, [Ok(()), Ok(()), Err(status::ZONE_INVALID_WRITE), Ok(())]);
    assert_eq!((device.requests(), device.rounds()), (5, 1), "four writes and a flush");
    server.stop().unwrap();
}
