//! Ordinary disks as namespaces of the NVM command set, alone and together with zoned ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};
use zonal::nvme::decode::{
    BlockRange, DatasetManagement, DatasetRange, Deallocate, Durability, ReportCount, ReportForm,
    SendTarget, ZoneReceive, ZoneSend, ZoneSendAction,
};
use zonal::nvme::identify::{
    BYTES, IdentifyCommon, IdentifyController, IdentifyNamespace, IdentifyNvmController, cns,
    descriptor,
};
use zonal::nvme::{Nsid, Opcode, SubmissionEntry, command_set, status};
use zonal::{BlockSize, Lba, LbaCount, ZoneAction, repeat};
use zonal_nvme::subsystem::{Hosts, WriteCache};
use zonal_nvme::wire::event::{Event, NAMESPACE_NOTICES};
use zonal_nvme::wire::feature::{self, Lifetime, SetFeature};
use zonal_nvme::wire::log::{Effects, GetLogPage, LogRead, page};
use zonal_nvme::{Namespace, Subsystem};

use crate::initiator::{Answer, Host, Move, Queue, Style};
use crate::remote::identify;
use crate::test_disk::TestDisk;
use crate::{NQN, ONE, log_page, serve_namespaces, serve_subsystem, stack};

const TWO: Nsid = Nsid::new(2);
const MIB: usize = 1 << 20;

fn of_disk(disk: &Arc<TestDisk>) -> Namespace {
    Namespace::of_disk(disk.clone(), [9; 16])
}

fn zoned() -> Namespace {
    Namespace::new(stack("mem:zone=3M,zones=8,open=3,active=5"), "a device", [1; 16]).unwrap()
}

fn range(opcode: Opcode, first: u64, blocks: u64, durability: Durability) -> SubmissionEntry {
    let (first, blocks) = (Lba::new(first), LbaCount::new(blocks));
    BlockRange { first, blocks, durability }.encode(opcode, ONE)
}

fn later(opcode: Opcode, first: u64, blocks: u64) -> SubmissionEntry {
    range(opcode, first, blocks, Durability::Volatile)
}

/// Dataset Management with these ranges.
fn deallocate(queue: &mut Queue, nsid: Nsid, ranges: &[(u64, u32)]) -> Answer {
    let list: Vec<DatasetRange> = ranges
        .iter()
        .map(|&(first, blocks)| DatasetRange {
            attributes: U32::ZERO,
            blocks: blocks.into(),
            first: first.into(),
        })
        .collect();
    let asked = DatasetManagement { ranges: list.len(), deallocate: Deallocate::Wanted };
    queue.command(asked.encode(nsid), &Move::Send(list.as_bytes()))
}

fn list(host: &mut Host, what: u8, command_set: u8) -> Vec<u32> {
    let list = identify(host, Nsid::NONE, what, command_set);
    let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
    ids.take_while(|&id| id != 0).collect()
}

#[test]
fn disk_beside_zones_has_own_command_set() {
    let disk = Arc::new(TestDisk::new(BlockSize::B4096, 1000));
    let (server, address, _) = serve_namespaces(vec![zoned(), of_disk(&disk)], Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    assert_eq!(list(&mut host, cns::ACTIVE_NAMESPACES, 0), [1, 2]);
    assert_eq!(list(&mut host, cns::COMMAND_SET_NAMESPACES, command_set::ZNS), [1]);
    assert_eq!(list(&mut host, cns::COMMAND_SET_NAMESPACES, command_set::NVM), [2]);
    for (nsid, expected) in [(ONE, command_set::ZNS), (TWO, command_set::NVM)] {
        let list = identify(&mut host, nsid, cns::DESCRIPTORS, 0);
        assert_eq!(descriptor::find(&list, descriptor::COMMAND_SET), Some(&[expected][..]));
    }
    let wrong = zonal::nvme::decode::Identify {
        what: cns::COMMAND_SET_NAMESPACE,
        command_set: command_set::ZNS,
    };
    let refused = host.admin.command(wrong.encode(TWO), &Move::Receive(BYTES));
    assert_eq!(refused.err(), Some(status::INVALID_FIELD));
    let of_nvm = identify(&mut host, TWO, cns::COMMAND_SET_NAMESPACE, command_set::NVM);
    assert!(of_nvm.iter().all(|&byte| byte == 0), "no protection information");
    for (command_set, opcode, is_there) in [
        (command_set::NVM, Opcode::DATASET_MANAGEMENT, true),
        (command_set::NVM, Opcode::ZONE_APPEND, false),
        (command_set::ZNS, Opcode::DATASET_MANAGEMENT, false),
        (command_set::ZNS, Opcode::ZONE_APPEND, true),
    ] {
        let (read, offset, bytes) = (LogRead::Clear, 0, 4096);
        let log = GetLogPage { page: page::EFFECTS, read, offset, bytes, command_set };
        let log = host.admin.command(log.encode(Nsid::NONE), &Move::Receive(4096)).unwrap().1;
        let effects = Effects::read_from_bytes(&log).unwrap();
        let found = effects.io[usize::from(opcode.0)].get();
        assert_eq!(found & 1 == 1, is_there, "{opcode:?} of {command_set}");
    }
    server.stop().unwrap();
}

#[test]
fn identify_tells_what_disk_promises() {
    for (block_size, blocks, unit, atomic, write_zeroes) in
        [(BlockSize::B4096, 1000, 0, 255, 16), (BlockSize::B512, 8000, 7, 2047, 13)]
    {
        let mut disk = TestDisk::new(block_size, blocks);
        disk.is_read_only = block_size == BlockSize::B512;
        let is_read_only = u8::from(disk.is_read_only);
        let (server, address, _) = serve_namespaces(vec![of_disk(&Arc::new(disk))], Hosts::All);
        let mut host = Host::connect(address, NQN, Style::PLAIN);
        let found = identify(&mut host, ONE, cns::NAMESPACE, 0);
        let found = IdentifyNamespace::read_from_bytes(&found).unwrap();
        assert_eq!((found.size.get(), found.capacity.get()), (blocks, blocks));
        assert_eq!(u32::from(found.block_formats[0].block_shift), block_size.shift());
        // NSFEAT, DLFEAT.
        assert_eq!((found.features, found.deallocation), (0b1_0010, 0b1001));
        assert_eq!((found.atomic.get(), found.atomic_power.get()), (atomic, atomic));
        assert_eq!((found.atomic_fused.get(), found.atomic_offset.get()), (0, 0));
        assert_eq!((found.write_unit.get(), found.write_alignment.get()), (unit, unit));
        assert_eq!((found.free_unit.get(), found.free_alignment.get()), (unit, unit));
        assert_eq!(found.write_optimal.get(), unit);
        let common = identify(&mut host, ONE, cns::COMMON_NAMESPACE, 0);
        let common = IdentifyCommon::read_from_bytes(&common).unwrap();
        assert_eq!((found.attributes, common.attributes), (is_read_only, is_read_only));
        let controller = identify(&mut host, Nsid::NONE, cns::CONTROLLER, 0);
        let controller = IdentifyController::read_from_bytes(&controller).unwrap();
        assert_eq!((controller.commands.get(), controller.write_cache), (0b1100, 0b111));
        let limits = identify(&mut host, Nsid::NONE, cns::COMMAND_SET_CONTROLLER, 0);
        let limits = IdentifyNvmController::read_from_bytes(&limits).unwrap();
        assert_eq!(limits.write_zeroes_max, write_zeroes);
        let ranges = (limits.ranges_max, limits.range_max.get(), limits.deallocate_max.get());
        assert_eq!(ranges, (0, 0, 0), "no limits");
        server.stop().unwrap();
    }
}

#[test]
fn command_not_for_disk_is_refused() {
    let disk = Arc::new(TestDisk::new(BlockSize::B4096, 1000));
    let (server, address, _) = serve_namespaces(vec![of_disk(&disk), zoned()], Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    let page = [7; 4096];
    let reset =
        ZoneSend { action: ZoneSendAction::Manage(ZoneAction::Reset), zones: SendTarget::All };
    let (first, bytes, form) = (Lba::ZERO, 4096, ReportForm::Plain);
    let report = ZoneReceive { first, bytes, form, only: None, count: ReportCount::Matching };
    let hint = DatasetManagement { ranges: 257 - 1, deallocate: Deallocate::No };
    for (entry, data, expected) in [
        (later(Opcode::READ, 1000, 1), Move::Receive(4096), status::LBA_OUT_OF_RANGE),
        (later(Opcode::READ, u64::MAX, 1), Move::Receive(4096), status::LBA_OUT_OF_RANGE),
        (later(Opcode::READ, 0, 257), Move::Receive(257 * 4096), status::INVALID_FIELD),
        (later(Opcode::WRITE, 999, 2), Move::Send(&page), status::LBA_OUT_OF_RANGE),
        (later(Opcode::WRITE_ZEROES, 900, 101), Move::Nothing, status::LBA_OUT_OF_RANGE),
        (later(Opcode::ZONE_APPEND, 0, 1), Move::Send(&page), status::INVALID_OPCODE),
        (reset.encode(ONE), Move::Nothing, status::INVALID_OPCODE),
        (report.encode(ONE), Move::Receive(4096), status::INVALID_OPCODE),
        (hint.encode(ONE), Move::Send(&page[..4080]), status::SGL_LENGTH),
        (hint.encode(ONE), Move::Send(&[7; 8192]), status::SGL_LENGTH),
        (hint.encode(ONE), Move::Send(&page), status::LBA_OUT_OF_RANGE),
        (hint.encode(TWO), Move::Send(&page), status::INVALID_OPCODE),
    ] {
        assert_eq!(queue.command(entry, &data).err(), Some(expected), "{entry:?}");
    }
    // A range behind the end: none of them is deallocated.
    queue.command(later(Opcode::WRITE, 0, 1), &Move::Send(&page)).unwrap();
    let refused = deallocate(&mut queue, ONE, &[(0, 1), (999, 2)]);
    assert_eq!(refused.err(), Some(status::LBA_OUT_OF_RANGE));
    let (_, found) = queue.command(later(Opcode::READ, 0, 1), &Move::Receive(4096)).unwrap();
    assert_eq!(found, page);
    server.stop().unwrap();

    let mut disk = TestDisk::new(BlockSize::B4096, 1000);
    disk.is_read_only = true;
    let (server, address, _) = serve_namespaces(vec![of_disk(&Arc::new(disk))], Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    let protected = Some(status::WRITE_PROTECTED);
    let write = queue.command(later(Opcode::WRITE, 0, 1), &Move::Send(&page));
    assert_eq!(write.err(), protected);
    let zeroes = queue.command(later(Opcode::WRITE_ZEROES, 0, 1), &Move::Nothing);
    assert_eq!(zeroes.err(), protected);
    assert_eq!(deallocate(&mut queue, ONE, &[(0, 1)]).err(), protected);
    queue.command(later(Opcode::FLUSH, 0, 1), &Move::Nothing).unwrap();
    queue.command(later(Opcode::READ, 0, 1), &Move::Receive(4096)).unwrap();
    server.stop().unwrap();
}

/// One command of the model test, and the expected answer.
struct Step {
    entry: SubmissionEntry,
    data: Vec<u8>,
    expected: Vec<u8>,
}

/// A disk as bytes.
struct Model {
    bytes: Vec<u8>,
    block: usize,
}

impl Model {
    fn step(&mut self, rng: &mut ChaCha8Rng) -> Step {
        let blocks = self.bytes.len() / self.block;
        let most = if rng.random_bool(0.1) { MIB / self.block } else { 40 };
        let count = rng.random_range(1..=most);
        let first = rng.random_range(0..=blocks - count);
        let bytes = first * self.block..(first + count) * self.block;
        let fua = if rng.random_bool(0.2) { Durability::Durable } else { Durability::Volatile };
        let command = |opcode| range(opcode, first as u64, count as u64, fua);
        let (mut data, mut expected) = (Vec::new(), Vec::new());
        let entry = match rng.random_range(0..10) {
            0..4 => {
                data.resize(bytes.len(), 0);
                rng.fill(&mut data[..]);
                self.bytes[bytes].copy_from_slice(&data);
                command(Opcode::WRITE)
            }
            4..8 => {
                expected = self.bytes[bytes].to_vec();
                command(Opcode::READ)
            }
            8 => {
                self.bytes[bytes].fill(0);
                let mut entry = command(Opcode::WRITE_ZEROES);
                let deallocate = rng.random_bool(0.5);
                if deallocate { Deallocate::Wanted } else { Deallocate::No }.add_to(&mut entry);
                entry
            }
            _ => {
                let ranges = rng.random_range(1..=256);
                for _ in 0..ranges {
                    let blocks = rng.random_range(0..=4_u32);
                    let first = rng.random_range(0..self.bytes.len() / self.block - 4);
                    let range = DatasetRange {
                        attributes: U32::new(rng.random()),
                        blocks: blocks.into(),
                        first: (first as u64).into(),
                    };
                    data.extend_from_slice(range.as_bytes());
                    self.bytes[first * self.block..][..blocks as usize * self.block].fill(0);
                }
                // As Linux does it: it sends a page.
                if rng.random_bool(0.5) {
                    data.resize(4096, 0xff);
                }
                DatasetManagement { ranges, deallocate: Deallocate::Wanted }.encode(ONE)
            }
        };
        Step { entry, data, expected }
    }
}

#[test]
fn random_commands_do_what_model_does() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    for (block_size, style) in
        [(BlockSize::B512, Style::PLAIN), (BlockSize::B4096, Style::EVERYTHING)]
    {
        let block = 1 << block_size.shift();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = Model { bytes: vec![0; 4 * MIB], block };
        let disk = Arc::new(TestDisk::new(block_size, (4 * MIB / block) as u64));
        let (server, address, _) = serve_namespaces(vec![of_disk(&disk)], Hosts::All);
        let host = Host::connect(address, NQN, style);
        let mut queue = host.queue(1).unwrap();
        for turn in 0..count {
            let step = model.step(&mut rng);
            let data = match (step.data.as_slice(), step.expected.len()) {
                ([], 0) => Move::Nothing,
                ([], bytes) => Move::Receive(bytes),
                (data, _) => Move::Send(data),
            };
            let answer = queue.command(step.entry, &data);
            let (_, found) = answer.unwrap_or_else(|status| panic!("turn {turn}: {status:?}"));
            assert!(found == step.expected, "SEED={seed}, turn {turn}: {:?}", step.entry);
        }
        server.stop().unwrap();
    }
}

#[test]
fn writes_of_batch_are_made_durable_by_one_flush() {
    for (cache, fua, flushes) in [
        (WriteCache::Volatile, Durability::Volatile, 0),
        (WriteCache::Volatile, Durability::Durable, 1),
        (WriteCache::None, Durability::Volatile, 1),
    ] {
        let disk = Arc::new(TestDisk::new(BlockSize::B4096, 1000));
        let subsystem = Subsystem::new(NQN, vec![of_disk(&disk)], Hosts::All).unwrap();
        let (server, address, _) = serve_subsystem(subsystem.with_write_cache(cache));
        let mut host = Host::connect(address, NQN, Style::PLAIN);
        let controller = identify(&mut host, Nsid::NONE, cns::CONTROLLER, 0);
        let controller = IdentifyController::read_from_bytes(&controller).unwrap();
        assert_eq!(controller.write_cache & 1 == 1, cache == WriteCache::Volatile);
        let feature = feature::get(feature::id::WRITE_CACHE);
        let feature = host.admin.command(feature, &Move::Nothing).map(|(value, _)| value);
        let expected = match cache {
            WriteCache::Volatile => Ok(1),
            WriteCache::None => Err(status::INVALID_FIELD),
        };
        assert_eq!(feature, expected);
        let mut queue = host.queue(1).unwrap();
        let data = [[1; 4096], [2; 4096], [3; 4096]];
        let write =
            |at| range(Opcode::WRITE, at, 1, if at == 0 { Durability::Volatile } else { fua });
        let batch = queue.batch(&[
            (write(0), Move::Send(&data[0])),
            (write(1), Move::Send(&data[1])),
            (write(2), Move::Send(&data[2])),
        ]);
        assert!(batch.iter().all(Result::is_ok), "{batch:?}");
        assert_eq!(disk.flushes.load(Ordering::Relaxed), flushes, "{cache:?} {fua:?}");
        let zeroes = range(Opcode::WRITE_ZEROES, 0, 1, fua);
        queue.command(zeroes, &Move::Nothing).unwrap();
        assert_eq!(disk.forced.load(Ordering::Relaxed), flushes);
        deallocate(&mut queue, ONE, &[(2, 1)]).unwrap();
        let of_trim = u64::from(cache == WriteCache::None);
        assert_eq!(disk.flushes.load(Ordering::Relaxed), flushes + of_trim);
        let every = SubmissionEntry::new(Opcode::FLUSH, Nsid::ALL);
        queue.command(every, &Move::Nothing).unwrap();
        assert_eq!(disk.flushes.load(Ordering::Relaxed), flushes + of_trim + 1);
        server.stop().unwrap();
    }
}

#[test]
fn disk_that_grows_is_event_until_log_is_read() {
    let disk = Arc::new(TestDisk::new(BlockSize::B4096, 1000));
    let (server, address, _) = serve_namespaces(vec![zoned(), of_disk(&disk)], Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let value = NAMESPACE_NOTICES;
    let notices =
        SetFeature { id: feature::id::ASYNC_EVENTS, lifetime: Lifetime::UntilReset, value };
    host.admin.command(notices.encode(), &Move::Nothing).unwrap();
    let wait = SubmissionEntry::new(Opcode::ASYNC_EVENT, Nsid::NONE);
    for blocks in [2000, 500] {
        let id = host.admin.send(wait, &Move::Nothing);
        disk.blocks.store(blocks, Ordering::Relaxed);
        let completion = host.admin.next_completion();
        assert_eq!(completion.id.get(), id);
        assert_eq!(Event::decode(completion.result.get()), Some(Event::NamespacesChanged));
        let found = identify(&mut host, TWO, cns::NAMESPACE, 0);
        assert_eq!(IdentifyNamespace::read_from_bytes(&found).unwrap().size.get(), blocks);
        let changed = log_page(&mut host, Nsid::ALL, page::CHANGED_NAMESPACES, 4096);
        assert_eq!(changed[..8], [2, 0, 0, 0, 0, 0, 0, 0], "only the disk");
        let changed = log_page(&mut host, Nsid::ALL, page::CHANGED_NAMESPACES, 4096);
        assert!(changed.iter().all(|&byte| byte == 0), "read once");
    }
    server.stop().unwrap();
}
