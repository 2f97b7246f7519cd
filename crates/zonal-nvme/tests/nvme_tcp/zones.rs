//! Requests of hosts about zones beyond the contract of all devices: descriptor extensions, every
//! report, every action with its select-all, zones that go offline, events.

use zerocopy::FromBytes;
use zonal::nvme::decode::{
    BlockRange, Durability, ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend,
    ZoneSendAction,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::nvme::{NvmeStatus, Opcode, SubmissionEntry, status};
use zonal::{Lba, LbaCount, Select, ZoneAction, ZoneCond, ZoneFailure, ZoneId, ZonedDevice};
use zonal_nvme::Namespace;
use zonal_nvme::extension::ExtensionSize;
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::wire::event::{Event, ZONE_NOTICES};
use zonal_nvme::wire::feature::{self, Lifetime, SetFeature};
use zonal_nvme::wire::log::{ChangedZones, ErrorEntry, GetLogPage, Health, LogRead, page};

use crate::initiator::{Host, Move, Queue, Style};
use crate::remote::Remote;
use crate::{NQN, ONE, log_page, serve, serve_namespaces, small, stack};

const ZONE: u64 = 768;

fn start(zone: u64) -> Lba {
    Lba::new(zone * ZONE)
}

fn send(queue: &mut Queue, action: ZoneSendAction, zones: SendTarget) -> Result<(), NvmeStatus> {
    queue.command(ZoneSend { action, zones }.encode(ONE), &Move::Nothing).map(drop)
}

fn manage(queue: &mut Queue, action: ZoneAction, zones: SendTarget) {
    send(queue, ZoneSendAction::Manage(action), zones).unwrap();
}

fn attach(queue: &mut Queue, zone: u64, data: &[u8]) -> Result<(), NvmeStatus> {
    let zones = SendTarget::Start(start(zone));
    let send = ZoneSend { action: ZoneSendAction::SetExtension, zones };
    queue.command(send.encode(ONE), &Move::Send(data)).map(drop)
}

/// The count of a report, and its descriptors, each with the bytes behind it.
fn report(queue: &mut Queue, asked: &ZoneReceive, stride: usize) -> (u64, Vec<Vec<u8>>) {
    let (_, mut answer) = queue.command(asked.encode(ONE), &Move::Receive(asked.bytes)).unwrap();
    answer.resize(asked.bytes.max(64), 0);
    let (header, rest) = ReportHeader::read_from_prefix(&answer).unwrap();
    (header.zone_count.get(), rest.chunks_exact(stride).map(<[u8]>::to_vec).collect())
}

fn everything(bytes: usize) -> ZoneReceive {
    let (form, count) = (ReportForm::Plain, ReportCount::Matching);
    ZoneReceive { first: Lba::ZERO, bytes, form, only: None, count }
}

#[test]
fn extensions_attach_to_empty_zones_until_reset() {
    let size = ExtensionSize::from_bytes(128).unwrap();
    let namespace = Namespace::new(stack("mem:zone=3M,zones=8,open=3,active=5"), "x", [1; 16]);
    let (server, address, _) =
        serve_namespaces(vec![namespace.unwrap().with_extensions(size)], Hosts::All);
    let host = Host::connect(address, NQN, Style::EVERYTHING);
    let mut queue = host.queue(1).unwrap();
    attach(&mut queue, 2, &[7; 128]).unwrap();
    assert_eq!(attach(&mut queue, 2, &[8; 128]), Err(status::INVALID_TRANSITION), "not Empty");
    assert_eq!(attach(&mut queue, 3, &[8; 64]), Err(status::SGL_LENGTH));
    let all = ZoneSend { action: ZoneSendAction::SetExtension, zones: SendTarget::All };
    let all = queue.command(all.encode(ONE), &Move::Send(&[8; 128]));
    assert_eq!(all.err(), Some(status::INVALID_FIELD));
    let extended = ZoneReceive { form: ReportForm::Extended, ..everything(64 + 8 * 192) };
    let mut found = |zone: usize| {
        let (count, zones) = report(&mut queue, &extended, 192);
        assert_eq!((count, zones.len()), (8, 8));
        let (descriptor, extension) = ZoneDescriptor::read_from_prefix(&zones[zone]).unwrap();
        let cond = ZoneCond::from_code(descriptor.cond >> 4).unwrap();
        (cond, (descriptor.attributes & 1 << 7 != 0).then(|| extension.to_vec()))
    };
    assert_eq!(found(2), (ZoneCond::Closed, Some(vec![7; 128])));
    assert_eq!(found(3), (ZoneCond::Empty, None));
    let mut other = host.queue(2).unwrap();
    manage(&mut other, ZoneAction::Finish, SendTarget::Start(start(2)));
    assert_eq!(found(2), (ZoneCond::Full, Some(vec![7; 128])));
    manage(&mut other, ZoneAction::Reset, SendTarget::Start(start(2)));
    assert_eq!(found(2), (ZoneCond::Empty, None));
    for zone in 0..5 {
        attach(&mut other, zone, &[9; 128]).unwrap();
    }
    assert_eq!(attach(&mut other, 5, &[9; 128]), Err(status::TOO_MANY_ACTIVE));
    assert_eq!(found(5), (ZoneCond::Empty, None));
    manage(&mut other, ZoneAction::Reset, SendTarget::All);
    for zone in 0..8 {
        assert_eq!(found(zone), (ZoneCond::Empty, None));
    }
    server.stop().unwrap();
}

#[test]
fn extensions_absent_make_their_commands_invalid_field() {
    let (server, address, _) = serve(small(), Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    assert_eq!(attach(&mut queue, 0, &[1; 64]), Err(status::INVALID_FIELD));
    let one = SendTarget::Start(Lba::ZERO);
    let flush = send(&mut queue, ZoneSendAction::FlushZrwa, one);
    assert_eq!(flush, Err(status::INVALID_FIELD));
    let asked = ZoneReceive { form: ReportForm::Extended, ..everything(4096) };
    let extended = queue.command(asked.encode(ONE), &Move::Receive(4096));
    assert_eq!(extended.err(), Some(status::INVALID_FIELD));
    server.stop().unwrap();
}

/// A zone in each condition, then each action for all zones.
#[test]
fn report_and_action_on_all_zones_work() {
    let stack = stack("mem:zone=3M,zones=16,open=6,active=8");
    let failing = stack.failing.clone().unwrap();
    let (server, address, _) = serve(vec![stack], Hosts::All);
    let remote = Remote::new(Host::connect(address, NQN, Style::PLAIN), ONE);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    let append = |zone| remote.append(ZoneId::new(zone), &[1; 4096]).unwrap();
    let (_, _) = (append(1), append(2));
    manage(&mut queue, ZoneAction::Open, SendTarget::Start(start(3)));
    append(4);
    manage(&mut queue, ZoneAction::Close, SendTarget::Start(start(4)));
    manage(&mut queue, ZoneAction::Finish, SendTarget::Start(start(5)));
    failing.fail_zone(ZoneId::new(6), ZoneFailure::ReadOnly).unwrap();
    failing.fail_zone(ZoneId::new(7), ZoneFailure::Offline).unwrap();
    let mut starts = |only, first: u64, bytes, count| {
        let asked = ZoneReceive { only, first: start(first), count, ..everything(bytes) };
        let (count, zones) = report(&mut queue, &asked, 64);
        let zones = zones.iter().map(|zone| ZoneDescriptor::read_from_bytes(zone).unwrap());
        let used = zones.filter(|zone| zone.kind != 0).map(|zone| zone.start.get() / ZONE);
        (count, used.collect::<Vec<_>>())
    };
    let (matching, reported) = (ReportCount::Matching, ReportCount::Reported);
    for (cond, zones) in [
        (ZoneCond::Empty, vec![0, 8, 9, 10, 11, 12, 13, 14, 15]),
        (ZoneCond::ImplicitOpen, vec![1, 2]),
        (ZoneCond::ExplicitOpen, vec![3]),
        (ZoneCond::Closed, vec![4]),
        (ZoneCond::Full, vec![5]),
        (ZoneCond::ReadOnly, vec![6]),
        (ZoneCond::Offline, vec![7]),
    ] {
        for count in [matching, reported] {
            let found = starts(Some(cond), 0, 4096, count);
            assert_eq!(found, (zones.len() as u64, zones.clone()), "{cond:?} {count:?}");
        }
    }
    assert_eq!(starts(None, 13, 4096, matching), (3, vec![13, 14, 15]));
    // Room for two of nine, and for none.
    let empty = Some(ZoneCond::Empty);
    assert_eq!(starts(empty, 0, 64 * 3 + 60, matching), (9, vec![0, 8]));
    assert_eq!(starts(empty, 0, 64 * 3 + 60, reported), (2, vec![0, 8]));
    assert_eq!(starts(empty, 8, 64, matching), (8, vec![]));
    assert_eq!(starts(empty, 8, 8, reported), (0, vec![]));
    let mut all = |action, expected: &[(u32, ZoneCond)]| {
        send(&mut queue, action, SendTarget::All).unwrap();
        for &(zone, cond) in expected {
            assert_eq!(remote.zone(ZoneId::new(zone)).unwrap().cond, cond, "{action:?} {zone}");
        }
    };
    all(
        ZoneSendAction::Manage(ZoneAction::Close),
        &[(0, ZoneCond::Empty), (1, ZoneCond::Closed), (3, ZoneCond::Closed)],
    );
    all(
        ZoneSendAction::Manage(ZoneAction::Open),
        &[(0, ZoneCond::Empty), (2, ZoneCond::ExplicitOpen), (5, ZoneCond::Full)],
    );
    all(
        ZoneSendAction::Manage(ZoneAction::Finish),
        &[(0, ZoneCond::Empty), (4, ZoneCond::Full), (6, ZoneCond::ReadOnly)],
    );
    all(
        ZoneSendAction::Manage(ZoneAction::Reset),
        &[(4, ZoneCond::Empty), (5, ZoneCond::Empty), (6, ZoneCond::ReadOnly)],
    );
    all(
        ZoneSendAction::Offline,
        &[(0, ZoneCond::Empty), (6, ZoneCond::Offline), (7, ZoneCond::Offline)],
    );
    drop((remote, queue, host));
    server.stop().unwrap();
}

/// Turns event requests and zone notices on; returns the request's identifier.
pub fn listen(host: &mut Host) -> u16 {
    let (id, lifetime) = (feature::id::ASYNC_EVENTS, Lifetime::UntilReset);
    let set = SetFeature { id, lifetime, value: ZONE_NOTICES };
    host.admin.command(set.encode(), &Move::Nothing).unwrap();
    assert_eq!(host.admin.command(feature::get(id), &Move::Nothing).unwrap().0, 1 << 27);
    host.admin
        .send(SubmissionEntry::new(Opcode::ASYNC_EVENT, zonal::nvme::Nsid::NONE), &Move::Nothing)
}

#[test]
fn zone_failure_is_event_and_logged_once() {
    let stack = stack("mem:zone=3M,zones=8");
    let failing = stack.failing.clone().unwrap();
    let (server, address, _) = serve(vec![stack], Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut other = Host::connect(address, NQN, Style::EVERYTHING);
    let mut queue = other.queue(1).unwrap();
    let id = listen(&mut host);
    let changed = |host: &mut Host| {
        let log = log_page(host, ONE, page::CHANGED_ZONES, 4096);
        ChangedZones::read_from_bytes(&log).unwrap().decode().unwrap()
    };
    assert_eq!(changed(&mut host), []);
    failing.fail_zone(ZoneId::new(3), ZoneFailure::ReadOnly).unwrap();
    // The device cannot report the failure before a host hits the zone.
    let (blocks, durability) = (LbaCount::new(1), Durability::Volatile);
    let write = BlockRange { first: start(3), blocks, durability }.encode(Opcode::WRITE, ONE);
    let refused = queue.command(write, &Move::Send(&[1; 4096]));
    assert_eq!(refused.err(), Some(status::ZONE_READ_ONLY));
    let (completion, _) = host.admin.wait_for(id);
    assert_eq!(Event::decode(completion.result.get()), Some(Event::ZonesChanged(ONE)));
    assert_eq!(changed(&mut host), [start(3)]);
    assert_eq!(changed(&mut host), []);
    assert_eq!(changed(&mut other), [start(3)], "each host is told");
    // A host's own actions are no events, and do not appear in the log.
    let id = listen(&mut host);
    send(&mut queue, ZoneSendAction::Offline, SendTarget::Start(start(3))).unwrap();
    assert_eq!(
        send(&mut queue, ZoneSendAction::Offline, SendTarget::Start(start(4))).err(),
        Some(status::INVALID_TRANSITION)
    );
    std::thread::park_timeout(std::time::Duration::from_millis(1500));
    assert_eq!((changed(&mut host), changed(&mut other)), (vec![], vec![]));
    failing.fail_zone(ZoneId::new(5), ZoneFailure::Offline).unwrap();
    let read = BlockRange { first: start(5), blocks, durability }.encode(Opcode::READ, ONE);
    assert_eq!(queue.command(read, &Move::Receive(4096)).err(), Some(status::ZONE_OFFLINE));
    let (completion, _) = host.admin.wait_for(id);
    assert_eq!(Event::decode(completion.result.get()), Some(Event::ZonesChanged(ONE)));
    let kept = log_retained(&mut host);
    assert_eq!((kept, changed(&mut host)), (vec![start(5)], vec![start(5)]));
    server.stop().unwrap();
}

fn log_retained(host: &mut Host) -> Vec<Lba> {
    let (read, offset, bytes) = (LogRead::Retain, 0, 4096);
    let (page, command_set) = (page::CHANGED_ZONES, 2);
    let entry = GetLogPage { page, read, offset, bytes, command_set };
    let (_, log) = host.admin.command(entry.encode(ONE), &Move::Receive(4096)).unwrap();
    ChangedZones::read_from_bytes(&log).unwrap().decode().unwrap()
}

#[test]
fn error_log_holds_failures_of_its_host() {
    let (server, address, _) = serve(small(), Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut other = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(3).unwrap();
    let (first, durability) = (Lba::new(5), Durability::Volatile);
    let write = BlockRange { first, blocks: LbaCount::new(1), durability };
    let refused = queue.command(write.encode(Opcode::WRITE, ONE), &Move::Send(&[1; 4096]));
    assert_eq!(refused.err(), Some(status::ZONE_INVALID_WRITE));
    let log = log_page(&mut host, zonal::nvme::Nsid::ALL, page::ERRORS, 128);
    let (newest, older) = ErrorEntry::read_from_prefix(&log).unwrap();
    assert_eq!((newest.count.get(), newest.queue.get(), newest.lba.get()), (1, 3, 5));
    assert_eq!(newest.nsid.get(), 1);
    assert_eq!(NvmeStatus::from_field(newest.status.get()), status::ZONE_INVALID_WRITE);
    assert!(older.iter().all(|&byte| byte == 0));
    let health = |host: &mut Host| {
        let log = log_page(host, zonal::nvme::Nsid::ALL, page::HEALTH, 512);
        Health::read_from_bytes(&log).unwrap()
    };
    assert_eq!(health(&mut host).errors.get(), 1);
    assert_eq!(health(&mut other).errors.get(), 0);
    server.stop().unwrap();
}

/// Every power cut after the answer finds the data (D4).
#[test]
fn fua_write_is_durable_when_answered() {
    use std::sync::Arc;
    use zonal::image::Image;
    use zonal::layer::record::{Outage, Recorder};

    let geometry = *stack("mem:zone=3M,zones=8,open=3,active=5").device.geometry();
    for (durability, flush) in
        [(Durability::Volatile, false), (Durability::Volatile, true), (Durability::Durable, false)]
    {
        let recorder = Arc::new(Recorder::new(Image::empty(&geometry)));
        let stack = zonal::spec::Stack::of_device(recorder.clone());
        let (server, address, _) = serve(vec![stack], Hosts::All);
        let host = Host::connect(address, NQN, Style::PLAIN);
        let mut queue = host.queue(1).unwrap();
        let blocks = LbaCount::new(2);
        for (opcode, zone) in [(Opcode::WRITE, 0), (Opcode::ZONE_APPEND, 1)] {
            let range = BlockRange { first: start(zone), blocks, durability };
            queue.command(range.encode(opcode, ONE), &Move::Send(&[3; 8192])).unwrap();
        }
        let zeroes = BlockRange { first: start(2), blocks, durability };
        queue.command(zeroes.encode(Opcode::WRITE_ZEROES, ONE), &Move::Nothing).unwrap();
        if flush {
            queue.command(SubmissionEntry::new(Opcode::FLUSH, ONE), &Move::Nothing).unwrap();
        }
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {}
        let written = |image: &Image| [0, 1, 2].map(|zone| image.written(ZoneId::new(zone)).get());
        let least = outage.states().map(|image| written(&image).into_iter().min().unwrap()).min();
        let durable = flush || durability == Durability::Durable;
        assert_eq!(least, Some(if durable { 2 } else { 0 }), "{durability:?} {flush}");
        drop((queue, host));
        server.stop().unwrap();
    }
}

#[test]
fn server_listens_on_both_address_families() {
    let six: Vec<std::net::SocketAddr> = vec!["[::1]:0".parse().unwrap()];
    let Ok(_) = std::net::TcpListener::bind(six[0]) else {
        println!("SKIP: this machine has no IPv6");
        return;
    };
    let mut addresses = six;
    addresses.push("127.0.0.1:0".parse().unwrap());
    let namespace = Namespace::new(small().remove(0), "x", [1; 16]).unwrap();
    let (server, _, _) = crate::serve_at(vec![namespace], Hosts::All, &addresses);
    let listening = server.addresses().to_vec();
    let [six, four] = listening[..] else { panic!("two addresses") };
    let one = Remote::new(
        Host::connect_as("nqn.2026-11.localhost:six", six, NQN, Style::EVERYTHING).unwrap(),
        ONE,
    );
    let other = Remote::new(Host::connect(four, NQN, Style::PLAIN), ONE);
    one.manage(Select::One(ZoneId::new(1)), ZoneAction::Open).unwrap();
    assert_eq!(other.zone(ZoneId::new(1)).unwrap().cond, ZoneCond::ExplicitOpen);
    let found = crate::discover(six);
    assert_eq!(found, (2, "::1".to_owned(), six.port().to_string()));
    let found = crate::discover(four);
    assert_eq!(found, (1, "127.0.0.1".to_owned(), four.port().to_string()));
    drop((one, other));
    server.stop().unwrap();
}
