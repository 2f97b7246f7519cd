//! Whole NVMe/TCP sessions that were recorded, with mistakes in them, and hosts that do not read:
//! the server answers or ends the connection, and keeps neither threads nor memory.
//!
//! A process of its own, so that its threads and memory can be counted at the end. `SEED=n COUNT=n`
//! choose the mistakes and how many sessions there are.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared with other tests")]

#[path = "../nvme_tcp/initiator.rs"]
mod initiator;
mod mutate;
#[path = "../../../../fuzz/sessions.rs"]
mod sessions;
#[path = "../../../zonal-nbd/tests/nbd/disk.rs"]
mod test_disk;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use zerocopy::IntoBytes;
use zonal::nvme::decode::{
    BlockRange, DatasetManagement, Deallocate, Durability, Identify, ReportCount, ReportForm,
    SendTarget, ZoneReceive, ZoneSend, ZoneSendAction,
};
use zonal::nvme::identify::{BYTES, cns};
use zonal::nvme::status::CONNECT_BUSY;
use zonal::nvme::{Nsid, Opcode, SubmissionEntry};
use zonal::spec::open_stack;
use zonal::wait::wait_until;
use zonal::{BlockSize, Lba, LbaCount, ManualClock, OpenMode, ZoneAction, repeat};
use zonal_nvme::extension::ExtensionSize;
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::pdu::{self, DataPdu, PduType};
use zonal_nvme::tcp::{MEMORY_MAX, Server};
use zonal_nvme::wire::fabrics::FlowControl;
use zonal_nvme::wire::feature;
use zonal_nvme::wire::log::{GetLogPage, LogRead, page};
use zonal_nvme::{Namespace, Subsystem};

use initiator::{Host, Move, Placement, Queue, Style};
use mutate::Random;
use test_disk::TestDisk;

const NQN: &str = "nqn.2026-11.localhost:test";
const ONE: Nsid = Nsid::new(1);
/// An ordinary disk.
const TWO: Nsid = Nsid::new(2);
/// Bytes of the controller's identifier in the PDU that connects a queue: header, host identifier.
const CONTROLLER_AT: usize = 72 + 16;

/// Panics of any thread.
static PANICS: AtomicU32 = AtomicU32::new(0);

fn serve() -> (Server, Arc<Subsystem>, SocketAddr, Arc<ManualClock>) {
    serve_within(MEMORY_MAX)
}

fn serve_within(memory_max: usize) -> (Server, Arc<Subsystem>, SocketAddr, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(0));
    let spec = "mem:zone=3M,zones=8,open=3,active=5";
    let stack = open_stack(spec, OpenMode::ReadWrite, clock.clone()).unwrap();
    let namespace = Namespace::new(stack, "a device", [1; 16]).unwrap();
    let namespace = namespace.with_extensions(ExtensionSize::from_bytes(64).unwrap());
    let disk = Arc::new(TestDisk::new(BlockSize::B4096, 256));
    let namespaces = vec![namespace, Namespace::of_disk(disk, [2; 16])];
    let subsystem = Arc::new(Subsystem::new(NQN, namespaces, Hosts::All).unwrap());
    let anywhere = ["127.0.0.1:0".parse().unwrap()];
    let server =
        Server::start(Arc::clone(&subsystem), &anywhere, memory_max, clock.clone()).unwrap();
    let address = server.addresses()[0];
    (server, subsystem, address, clock)
}

fn range(opcode: Opcode, lba: u64, blocks: u64) -> SubmissionEntry {
    let (first, durability) = (Lba::new(lba), Durability::Volatile);
    BlockRange { first, blocks: LbaCount::new(blocks), durability }.encode(opcode, ONE)
}

/// The PDUs of an admin queue and of an I/O queue that do a bit of everything.
fn record(address: SocketAddr, style: Style) -> [Vec<Vec<u8>>; 2] {
    let mut host = Host::connect(address, NQN, style);
    for (what, command_set) in
        [(cns::CONTROLLER, 0), (cns::ACTIVE_NAMESPACES, 0), (cns::COMMAND_SET_NAMESPACE, 2)]
    {
        let nsid = if what == cns::COMMAND_SET_NAMESPACE { ONE } else { Nsid::NONE };
        let entry = Identify { what, command_set }.encode(nsid);
        host.admin.command(entry, &Move::Receive(BYTES)).unwrap();
    }
    for (page, bytes) in [(page::HEALTH, 512), (page::CHANGED_ZONES, 4096), (page::EFFECTS, 4096)] {
        let (read, offset, command_set) = (LogRead::Clear, 0, 2);
        let entry = GetLogPage { page, read, offset, bytes, command_set }.encode(ONE);
        host.admin.command(entry, &Move::Receive(usize::try_from(bytes).unwrap())).unwrap();
    }
    host.admin.command(feature::get(feature::id::QUEUES), &Move::Nothing).unwrap();
    host.admin.send(SubmissionEntry::new(Opcode::ASYNC_EVENT, Nsid::NONE), &Move::Nothing);
    let mut queue = host.queue(1).unwrap();
    let data: Vec<u8> = (0..300 * 1024_u32).map(|at| at.to_le_bytes()[0]).collect();
    let manage =
        |action, zones| ZoneSend { action: ZoneSendAction::Manage(action), zones }.encode(ONE);
    let zone = SendTarget::Start(Lba::new(768));
    queue.command(manage(ZoneAction::Reset, SendTarget::All), &Move::Nothing).unwrap();
    queue.command(range(Opcode::WRITE, 0, 2), &Move::Send(&data[..8192])).unwrap();
    queue.command(range(Opcode::WRITE, 2, 75), &Move::Send(&data)).unwrap();
    queue.command(range(Opcode::ZONE_APPEND, 768, 3), &Move::Send(&data[..12288])).unwrap();
    queue.command(range(Opcode::READ, 0, 20), &Move::Receive(81920)).unwrap();
    queue.command(range(Opcode::WRITE_ZEROES, 77, 4), &Move::Nothing).unwrap();
    queue.command(manage(ZoneAction::Finish, zone), &Move::Nothing).unwrap();
    queue.command(manage(ZoneAction::Reset, zone), &Move::Nothing).unwrap();
    for (opcode, data) in [
        (Opcode::WRITE, Move::Send(&data[..12288])),
        (Opcode::WRITE_ZEROES, Move::Nothing),
        (Opcode::READ, Move::Receive(12288)),
        (Opcode::FLUSH, Move::Nothing),
    ] {
        let entry = SubmissionEntry { nsid: TWO.get().into(), ..range(opcode, 40, 3) };
        queue.command(entry, &data).unwrap();
    }
    let ranges = DatasetManagement { ranges: 2, deallocate: Deallocate::Wanted };
    let both = [[0, 0, 0, 0, 3, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]; 2].concat();
    queue.command(ranges.encode(TWO), &Move::Send(&both)).unwrap();
    let extension = ZoneSend { action: ZoneSendAction::SetExtension, zones: zone }.encode(ONE);
    queue.command(extension, &Move::Send(&data[..64])).unwrap();
    for form in [ReportForm::Plain, ReportForm::Extended] {
        let (first, bytes, count) = (Lba::ZERO, 4096, ReportCount::Reported);
        let entry = ZoneReceive { first, bytes, form, only: None, count }.encode(ONE);
        queue.command(entry, &Move::Receive(bytes)).unwrap();
    }
    queue.command(SubmissionEntry::new(Opcode::FLUSH, ONE), &Move::Nothing).unwrap();
    [std::mem::take(&mut host.admin.sent), std::mem::take(&mut queue.sent)]
}

/// Sends everything, and reads until the server ends the connection.
fn play(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    let sending = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server may have ended it already.
            let _ = (&sending).write_all(bytes);
            let _ = sending.shutdown(Shutdown::Write);
        });
        let mut answer = vec![0; 65536];
        loop {
            match stream.read(&mut answer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it ends: {error}");
                    break;
                }
            }
        }
    });
}

/// A number from /proc/self/status.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until nothing is left of any connection.
fn settle(server: &Server, subsystem: &Subsystem) {
    wait_until(|| server.connection_count() == 0 && subsystem.controller_count() == 0);
}

/// Checks that the server serves a good host.
fn is_well(address: SocketAddr) {
    let host = Host::connect(address, NQN, Style::EVERYTHING);
    let mut queue = host.queue(1).unwrap();
    let reset = ZoneSend {
        action: ZoneSendAction::Manage(ZoneAction::Reset),
        zones: SendTarget::Start(Lba::ZERO),
    };
    queue.command(reset.encode(ONE), &Move::Nothing).unwrap();
    queue.command(range(Opcode::WRITE, 0, 1), &Move::Send(&[7; 4096])).unwrap();
    let (_, found) = queue.command(range(Opcode::READ, 0, 1), &Move::Receive(4096)).unwrap();
    assert_eq!(found, [7; 4096]);
}

/// One test, because it counts the threads and the memory of the process.
#[test]
fn sessions_with_mistakes_and_non_readers_are_survived() {
    let inherited = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        inherited(info);
    }));
    corpus();
    mistakes();
    nobody_reads();
    everybody_is_greedy();
}

/// The fuzz target without a fuzzer.
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/corpus/nvme_tcp");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        sessions::nvme_tcp(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count} files");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

fn mistakes() {
    let (seed, count) = (repeat::seed(1), repeat::count(1500));
    let (server, subsystem, address, _) = serve();
    let plain = Style { placement: Placement::Request, ..Style::PLAIN };
    let digests = Style { flow_control: FlowControl::On, ..Style::EVERYTHING };
    let sessions: Vec<_> = [Style::PLAIN, plain, digests]
        .into_iter()
        .flat_map(|style| record(address, style))
        .collect();
    settle(&server, &subsystem);
    let (mut memory_kib, mut threads) = (0, 0);
    for turn in 0..count {
        if turn == count / 3 {
            settle(&server, &subsystem);
            (memory_kib, threads) = (status("VmRSS"), status("Threads"));
        }
        let mut random = Random::new(seed.wrapping_add(turn));
        let which = random.below(sessions.len());
        let mut pdus = sessions[which].clone();
        // An I/O queue needs the controller that it belongs to.
        let host = (which % 2 == 1).then(|| Host::connect(address, NQN, Style::PLAIN));
        if let Some(host) = &host {
            pdus[1][CONTROLLER_AT..][..2].copy_from_slice(&host.controller.to_le_bytes());
        }
        mutate::pdus(&mut random, &mut pdus);
        let mut bytes = pdus.concat();
        mutate::bytes(&mut random, &mut bytes);
        play(address, &bytes);
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "SEED={} COUNT=1", seed.wrapping_add(turn));
    }
    settle(&server, &subsystem);
    is_well(address);
    settle(&server, &subsystem);
    // A thread ends a moment after its connection.
    if count >= 300 {
        wait_until(|| status("Threads") <= threads);
    }
    let (memory_now_kib, threads_now) = (status("VmRSS"), status("Threads"));
    println!("{memory_kib} KiB, {threads} threads; at the end {memory_now_kib} KiB, {threads_now}");
    if count >= 300 {
        assert!(memory_now_kib < memory_kib + 16 * 1024, "memory grows");
    }
    server.stop().unwrap();
}

/// Hosts that ask for much and receive nothing: each costs a bounded amount of memory, until it
/// times out; the others are served.
fn nobody_reads() {
    let (server, subsystem, address, clock) = serve();
    is_well(address);
    let before_kib = status("VmRSS");
    let (host, count) = (Host::connect(address, NQN, Style::PLAIN), 8);
    let queues: Vec<Queue> = (1..=count).map(|number| greedy(&host, number)).collect();
    is_well(address);
    let taken_kib = status("VmRSS").saturating_sub(before_kib);
    println!("{count} hosts that do not read: {taken_kib} KiB");
    assert!(taken_kib < u64::from(count) * 4096, "bounded");
    // 31 s: longer than a host may take to receive a response. The keep alive timer of the admin
    // queue, 5 s, ends the connections as well.
    for _ in 0..31 {
        clock.advance_ns(1_000_000_000);
        std::thread::park_timeout(Duration::from_millis(10));
        let mut host = Host::connect(address, NQN, Style::PLAIN);
        host.admin
            .command(SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE), &Move::Nothing)
            .unwrap();
    }
    drop(host);
    for mut queue in queues {
        queue.stream.set_nonblocking(true).unwrap();
        let mut rest = vec![0; 65536];
        wait_until(|| {
            clock.advance_ns(1_000_000_000);
            loop {
                match queue.stream.read(&mut rest) {
                    Ok(0) => return true,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                        return true;
                    }
                }
            }
        });
    }
    settle(&server, &subsystem);
    server.stop().unwrap();
}

/// As many queues as there can be, each with data on its way in and out that it never completes:
/// the server refuses them when the memory budget is used up, and serves a connected one.
fn everybody_is_greedy() {
    const BUDGET: usize = 24 << 20;
    let (server, subsystem, address, _) = serve_within(BUDGET);
    let good = Host::connect(address, NQN, Style::EVERYTHING);
    let mut queue = good.queue(1).unwrap();
    let (before_kib, mut refused) = (status("VmRSS"), 0);
    let mut queues = Vec::new();
    let host = Host::connect(address, NQN, Style::PLAIN);
    for number in 1..=64 {
        match host.queue(number) {
            Ok(queue) => queues.push(hoarder(queue)),
            Err(status) => {
                assert_eq!(status, CONNECT_BUSY);
                refused += 1;
            }
        }
    }
    let strangers: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    let taken_kib = status("VmRSS").saturating_sub(before_kib);
    println!("{} hoarders, {refused} refused: {taken_kib} KiB", queues.len());

    assert!((4..10).contains(&queues.len()) && refused > 0);
    // The allocator, and this side's ends.
    assert!(taken_kib * 1024 < (BUDGET + BUDGET / 2) as u64, "bounded by the budget");
    let zone = SendTarget::Start(Lba::ZERO);
    let reset = ZoneSend { action: ZoneSendAction::Manage(ZoneAction::Reset), zones: zone };
    queue.command(reset.encode(ONE), &Move::Nothing).unwrap();
    let data = vec![9; 1 << 20];
    queue.command(range(Opcode::WRITE, 0, 256), &Move::Send(&data)).unwrap();
    let (_, found) = queue.command(range(Opcode::READ, 0, 256), &Move::Receive(1 << 20)).unwrap();
    assert!(found == data);
    drop((strangers, queues, host, queue, good));
    settle(&server, &subsystem);
    server.stop().unwrap();
}

/// Sends most of the requested data, and reads without receiving the answers.
fn hoarder(mut queue: Queue) -> Queue {
    const PART: usize = 1 << 18;
    let data = vec![3; 1 << 20];
    for _ in 0..2 {
        let id = queue.send(range(Opcode::WRITE, 0, 256), &Move::Send(&data));
        // The second write waits if there is no memory to spare.
        if queue.is_silent() {
            break;
        }
        let (_, r2t) = queue.receive().unwrap();
        let tag = u16::from_le_bytes([r2t[10], r2t[11]]);
        for at in [0, PART, 2 * PART] {
            let header = DataPdu::new(id, tag, &(at..at + PART));
            let (mut bytes, kind) = (Vec::new(), PduType::H2CData);
            pdu::put(&mut bytes, kind, 0, header.as_bytes(), &data[..PART], queue.params);
            queue.stream.write_all(&bytes).unwrap();
        }
    }
    fill_with_reads(&mut queue);
    queue
}

/// Sends reads of 1 MiB until the server takes no more.
fn greedy(host: &Host, number: u16) -> Queue {
    let mut queue = host.queue(number).unwrap();
    fill_with_reads(&mut queue);
    queue
}

fn fill_with_reads(queue: &mut Queue) {
    queue.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut entry = range(Opcode::READ, 0, 256);
    entry.data = zonal::nvme::command::DataPointer::transport(1 << 20);
    let pdu = mutate::capsule(&entry);
    for _ in 0..2_000_000 {
        if queue.stream.write_all(&pdu).is_err() {
            return;
        }
    }
    panic!("the server takes commands without end");
}
