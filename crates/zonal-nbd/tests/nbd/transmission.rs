//! Tests of requests and of their replies.

use std::sync::Barrier;
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::wait::wait_until;
use zonal::{BlockSize, Lba, repeat};
use zonal_nbd::Address;
use zonal_nbd::export::Access;
use zonal_nbd::server::MEMORY_MAX;
use zonal_nbd::wire::{Command, command_flag, option};

use crate::client::{Client, Style, context};
use crate::disk::TestDisk;
use crate::{Served, serve, serve_as, serve_with, settings, small};

const STYLES: [Style; 2] = [Style::Simple, Style::Structured];
/// So little memory that large requests are performed in pieces.
const LITTLE: usize = 1 << 20;

#[test]
fn random_requests_give_what_a_model_gives() {
    let (seed, count) = (repeat::seed(1), repeat::count(400));
    let mut hole_bytes = 0;
    for (turn, memory_max) in [(0, MEMORY_MAX), (1, LITTLE)] {
        for (style, block_size) in [
            (Style::Simple, BlockSize::B512),
            (Style::Structured, BlockSize::B4096),
            (Style::Structured, BlockSize::B512),
        ] {
            let blocks = 4 << 20 >> block_size.shift();
            let served = serve_with(TestDisk::new(block_size, blocks), settings(memory_max, None));
            let mut client = Client::open(&served.address, "disk", style);
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (turn << 32));
            let mut model = vec![0_u8; 4 << 20];
            for step in 0..count {
                hole_bytes += one_step(&mut client, &mut model, &mut rng, block_size, step);
            }
            let everything = client.read(0, 4 << 20);
            assert!(everything.data == model, "{style:?} {block_size:?} {memory_max}");
        }
    }
    assert!(hole_bytes > 1 << 20, "holes were found: {hole_bytes}");
}

fn one_step(
    client: &mut Client,
    model: &mut [u8],
    rng: &mut ChaCha8Rng,
    block_size: BlockSize,
    step: u64,
) -> usize {
    let shift = block_size.shift();
    let all = model.len() >> shift;
    let count_max = all.min(1 << rng.random_range(0..=13));
    let count = rng.random_range(1..=count_max);
    let start = rng.random_range(0..=all - count);
    let range = start << shift..(start + count) << shift;
    let (offset, length) = (range.start as u64, u32::try_from(range.len()).unwrap());
    let fua = rng.random_range(0..2) * command_flag::FUA;
    match rng.random_range(0..6) {
        0 | 1 => {
            let found = client.read(offset, length);
            assert!(found.error == 0 && found.data == model[range], "step {step}");
            return found.hole_bytes;
        }
        2 | 3 => {
            let mut data = vec![0; range.len()];
            rng.fill(&mut data[..]);
            assert_eq!(client.write(offset, &data, fua).error, 0, "step {step}");
            model[range].copy_from_slice(&data);
        }
        4 => {
            let flags = fua | (rng.random_range(0..2) * command_flag::NO_HOLE);
            let answer = client.ask(Command::WriteZeroes, flags, offset, length);
            assert_eq!(answer.error, 0, "step {step}");
            model[range].fill(0);
        }
        _ => {
            assert_eq!(client.ask(Command::Trim, fua, offset, length).error, 0, "step {step}");
            model[range].fill(0);
        }
    }
    0
}

#[test]
fn status_gives_data_holes_and_zeroes_that_take_space() {
    let served = serve(small());
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    client.write(8192, &[1; 8192], 0);
    client.write(16384, &[1; 4096], 0);
    client.ask(Command::WriteZeroes, command_flag::NO_HOLE, 20480, 4096);
    let all = client.ask(Command::BlockStatus, 0, 0, 40960);
    assert_eq!(all.extents, [(8192, 3), (12288, 0), (4096, 2), (16384, 3)]);
    let one = client.ask(Command::BlockStatus, command_flag::REQ_ONE, 12288, 12288);
    assert_eq!(one.extents, [(8192, 0)]);
    assert_eq!(client.ask(Command::BlockStatus, 0, 0, 0).error, 22);
}

#[test]
fn status_without_context_of_the_export_is_refused() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    client.option(option::STRUCTURED_REPLY, &[]).unwrap();
    client.option(option::SET_META_CONTEXT, &context("disk", &["base:allocation"])).unwrap();
    client.option(option::SET_META_CONTEXT, &context("disk", &[])).unwrap();
    client.style = Style::Simple;
    client.go("disk", Style::Simple);
    client.style = Style::Structured;
    assert_eq!(client.ask(Command::BlockStatus, 0, 0, 4096).error, 22);
}

#[test]
fn read_unfragmented_is_one_chunk() {
    let served = serve(small());
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    client.write(65536, &[5; 4096], 0);
    let parts = client.read(0, 1 << 20);
    assert_eq!((parts.chunks, parts.hole_bytes), (3, (1 << 20) - 4096));
    let whole = client.ask(Command::Read, command_flag::DF, 0, 1 << 20);
    assert_eq!((whole.chunks, whole.hole_bytes), (1, 0));
    assert!(whole.data == parts.data);
}

#[test]
fn read_unfragmented_without_memory_overflows() {
    let served = serve_with(small(), settings(LITTLE, None));
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    let long = client.ask(Command::Read, command_flag::DF, 0, 1 << 20);
    assert_eq!((long.error, long.chunks), (75, 0));
    let short = client.ask(Command::Read, command_flag::DF, 0, 64 << 10);
    assert_eq!((short.error, short.chunks), (0, 1));
}

#[test]
fn requests_against_the_rules_have_their_errors() {
    let disk = TestDisk { bad: Some(Lba::new(7)), ..small() };
    let served = serve(disk);
    let end = 8 << 20;
    for style in STYLES {
        let mut client = Client::open(&served.address, "disk", style);
        let long_read = if style == Style::Structured { 75 } else { 22 };
        for (command, flags, offset, length, error) in [
            (Command::Read, 0, 1, 4096, 22),
            (Command::Read, 0, 0, 512, 22),
            (Command::Read, 0, end, 4096, 22),
            (Command::Read, 0, u64::MAX - 4095, 4096, 22),
            (Command::Read, command_flag::NO_HOLE, 0, 4096, 22),
            (Command::Read, 0, 0, 4096 * 9, 5),
            (Command::Flush, 0, 0, 4096, 22),
            (Command::Trim, 0, end, 4096, 22),
            (Command::Trim, 0, 0, 512, 22),
            (Command::WriteZeroes, 0, 512, 4096, 22),
            (Command::Trim, 1 << 15, 0, 4096, 22),
            (Command::WriteZeroes, 0, end, 4096, 28),
            (Command::WriteZeroes, command_flag::FAST_ZERO, 0, 4096, 0),
            (Command::WriteZeroes, command_flag::FAST_ZERO | command_flag::NO_HOLE, 0, 4096, 95),
            (Command::Read, 0, 0, 0, 0),
            (Command::Trim, 0, 0, 0, 0),
            (Command::Read, command_flag::FUA, 0, 4096, 0),
        ] {
            let answer = client.ask(command, flags, offset, length);
            let what = format!("{style:?} {command:?} {flags} {offset} {length}");
            assert_eq!(answer.error, error, "{what}: {}", answer.message);
            assert_eq!(answer.message.is_empty(), style == Style::Simple || error == 0, "{what}");
        }
        assert_eq!(client.write(end, &[0; 4096], 0).error, 28);
        assert_eq!(client.write(0, &[0; 100], 0).error, 22);
        assert_eq!(client.read(0, 4096).error, 0, "the data of refused writes was skipped");
        drop(client);
        let large = serve(TestDisk::new(BlockSize::B4096, 16384));
        let mut client = Client::open(&large.address, "disk", style);
        assert_eq!(client.read(0, (32 << 20) + 4096).error, long_read);
        assert_eq!(client.write(0, &vec![0; (32 << 20) + 4096], 0).error, 22);
        assert_eq!(client.read(0, 32 << 20).error, 0);
    }
}

#[test]
fn read_in_pieces_that_fails_ends_simple_reply() {
    let disk = || TestDisk { bad: Some(Lba::new(200)), ..small() };
    let served = serve_with(disk(), settings(LITTLE, None));
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    assert_eq!(client.read(0, 1 << 20).error, 5);
    assert_eq!(client.read(0, 4096).error, 0);
    drop(client);
    // There is memory for one connection.
    wait_until(|| served.server.connection_count() == 0);
    let mut client = Client::open(&served.address, "disk", Style::Simple);
    client.send(Command::Read, 0, 0, 1 << 20);
    assert!(client.answer().is_err(), "the reply had begun");
}

#[test]
fn writes_to_read_only_export_are_refused() {
    let read_only_disk = TestDisk { is_read_only: true, ..small() };
    // A disk that takes writes, and is served without them.
    for (disk, access) in [(read_only_disk, Access::ReadWrite), (small(), Access::ReadOnly)] {
        let served = serve_as(disk, access);
        let mut client = Client::open(&served.address, "disk", Style::Structured);
        assert_eq!(client.flags, 0x18f);
        assert_eq!(client.write(0, &[1; 4096], 0).error, 1);
        assert_eq!(client.ask(Command::Trim, 0, 0, 4096).error, 1);
        assert_eq!(client.ask(Command::WriteZeroes, 0, 0, 4096).error, 1);
        assert_eq!(client.ask(Command::Flush, 0, 0, 0).error, 0);
        assert_eq!(client.read(0, 4096).data, [0; 4096]);
    }
}

#[test]
fn fua_and_flush_reach_the_disk() {
    let Served { server, address, disk, .. } = serve(small());
    let mut client = Client::open(&address, "disk", Style::Simple);
    let counts = || (disk.forced.load(Ordering::Relaxed), disk.flushes.load(Ordering::Relaxed));
    client.write(0, &[1; 4096], 0);
    assert_eq!(counts(), (0, 0));
    client.write(0, &[1; 4096], command_flag::FUA);
    client.ask(Command::WriteZeroes, command_flag::FUA, 0, 4096);
    assert_eq!(counts(), (2, 0));
    client.ask(Command::Trim, command_flag::FUA, 0, 4096);
    client.ask(Command::Flush, 0, 0, 0);
    assert_eq!(counts(), (2, 2));
    drop(client);
    server.stop().unwrap();
    assert_eq!(counts(), (2, 3), "the end makes everything durable");
}

#[test]
fn requests_of_a_connection_are_performed_at_once() {
    // Each read waits until all sixteen have come.
    let served = serve(TestDisk { meeting: Some(Barrier::new(16)), ..small() });
    for style in STYLES {
        let mut client = Client::open(&served.address, "disk", style);
        let mut sent: Vec<u64> =
            (0..32).map(|block| client.send(Command::Read, 0, block * 4096, 4096)).collect();
        let answers = (0..32).map(|_| client.answer().unwrap());
        let mut cookies: Vec<u64> = answers.map(|answer| answer.cookie).collect();
        cookies.sort_unstable();
        sent.sort_unstable();
        assert_eq!(cookies, sent);
    }
}

#[test]
fn disk_that_grows_takes_requests_up_to_its_end() {
    let served = serve(small());
    let mut old = Client::open(&served.address, "disk", Style::Structured);
    assert_eq!(old.write(8 << 20, &[7; 4096], 0).error, 28);
    served.disk.blocks.store(4096, Ordering::Relaxed);
    assert_eq!(old.write(8 << 20, &[7; 4096], 0).error, 0);
    let mut new = Client::open(&served.address, "disk", Style::Structured);
    assert_eq!(new.bytes, 16 << 20);
    assert_eq!(new.read(8 << 20, 4096).data, [7; 4096]);
    served.disk.blocks.store(2048, Ordering::Relaxed);
    assert_eq!(old.read(8 << 20, 4096).error, 22);
}

#[test]
fn disconnect_answers_what_came_before() {
    let served = serve(small());
    let mut client = Client::open(&served.address, "disk", Style::Simple);
    let cookie = client.send(Command::Read, 0, 0, 4096);
    client.send(Command::Disconnect, 0, 0, 0);
    assert_eq!(client.answer().unwrap().cookie, cookie);
    assert!(client.has_ended());
}

#[test]
fn stop_answers_requests_that_are_performed() {
    let Served { server, address, .. } =
        serve(TestDisk { meeting: Some(Barrier::new(2)), ..small() });
    let mut first = Client::open(&address, "disk", Style::Simple);
    let mut second = Client::open(&address, "disk", Style::Simple);
    let cookie = first.send(Command::Read, 0, 0, 4096);
    let waits = std::thread::scope(|scope| {
        let reads = scope.spawn(|| second.read(0, 4096).error);
        let answer = first.answer().unwrap();
        assert_eq!((answer.cookie, answer.error), (cookie, 0));
        reads.join().unwrap()
    });
    assert_eq!(waits, 0);
    server.stop().unwrap();
    assert!(first.has_ended() && second.has_ended());
}

#[test]
fn unix_socket_serves_like_tcp() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let mut settings = settings(MEMORY_MAX, None);
    settings.addresses.push(Address::Unix(path.clone()));
    let Served { server, address, .. } = serve_with(small(), settings);
    let mut tcp = Client::open(&address, "disk", Style::Simple);
    let mut unix = Client::open(&Address::Unix(path.clone()), "disk", Style::Structured);
    unix.write(0, &[9; 8192], 0);
    assert_eq!(tcp.read(4096, 4096).data, [9; 4096]);
    server.stop().unwrap();
    assert!(unix.has_ended() && !path.exists());
}
