//! The depth of a host's queue is the depth of the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zonal::aligned::ALIGNMENT;
use zonal::error::Result;
use zonal::layer::delay::Delay;
use zonal::nvme::decode::{BlockRange, Durability};
use zonal::nvme::{Opcode, SubmissionEntry, status};
use zonal::spec::Stack;
use zonal::{Lba, LbaCount, ZoneId, ZonedDevice};
use zonal_nvme::subsystem::Hosts;

use crate::initiator::{Host, Move, Style};
use crate::{NQN, ONE, serve, stack};

const BLOCK: usize = 4096;

/// A device that counts its requests and how often a caller waited for it.
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
fn reads_arriving_together_are_one_batch() {
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
fn durable_writes_arriving_together_share_flush() {
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

/// A device that notes whether it got memory at an address that direct I/O does not take.
struct Strict {
    below: Arc<dyn ZonedDevice>,
    has_copied: AtomicBool,
}

impl Strict {
    fn look(&self, memory: &[u8]) {
        if !memory.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            self.has_copied.store(true, Ordering::Relaxed);
        }
    }
}

impl ZonedDevice for Strict {
    zonal::pass_on!(below: geometry, report, manage, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.look(buffer);
        self.below.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.look(data);
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.look(data);
        self.below.append(zone, data)
    }
}

#[test]
fn data_is_aligned_for_direct_io_without_copy() {
    let in_capsule = Style { digests: 3, ..Style::PLAIN };
    for style in [Style::PLAIN, in_capsule, Style::EVERYTHING] {
        let stack = stack("mem:zone=3M,zones=8,open=3,active=5");
        let device = Arc::new(Strict { below: stack.device, has_copied: AtomicBool::new(false) });
        let served: Arc<dyn ZonedDevice> = device.clone();
        let (server, address, _) = serve(vec![Stack { device: served, ..stack }], Hosts::All);
        let host = Host::connect(address, NQN, style);
        let mut queue = host.queue(1).unwrap();
        let [first, other] = [[7; BLOCK], [8; BLOCK]];
        let write = |at| command(Opcode::WRITE, at, Durability::Volatile);
        let answers = queue.batch(&[
            (write(0), Move::Send(&first)),
            (write(768), Move::Send(&other)),
            (command(Opcode::ZONE_APPEND, 1536, Durability::Volatile), Move::Send(&first)),
        ]);
        assert!(answers.iter().all(std::result::Result::is_ok), "{style:?}");
        let read = |at| (command(Opcode::READ, at, Durability::Volatile), Move::Receive(BLOCK));
        let answers = queue.batch(&[read(0), read(768), read(1536)]);
        let found: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().1).collect();
        assert!(found == [first, other, first], "{style:?}");
        assert!(!device.has_copied.load(Ordering::Relaxed), "{style:?}");
        server.stop().unwrap();
    }
}
