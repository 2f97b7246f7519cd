//! Clients that break the rules, or do nothing.

use std::io::{Read, Write};
use std::panic;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use zerocopy::IntoBytes;
use zonal::wait::wait_until;
use zonal::{Lba, repeat};
use zonal_nbd::wire::{Command, ContextQuery, ExportQuery, Request, option};

use crate::client::{Client, Style, connect, context, query};
use crate::disk::TestDisk;
use crate::mutants::mutate;
use crate::{serve, serve_with, settings, small};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn fuzz_bytes_never_panic_parser() {
    let (seed, count) = (repeat::seed(1), repeat::count(3000));
    let request = Request { command: Ok(Command::Read), flags: 1, cookie: 2, offset: 3, length: 4 };
    let corpus = [
        query("disk", &[1, 2, 3]),
        context("disk", &["base:allocation", "qemu:"]),
        request.header().as_bytes().to_vec(),
    ];
    for (index, bytes) in (0_u64..).zip(&corpus) {
        for turn in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (index << 40) ^ turn);
            let mut mutant = bytes.clone();
            mutate(&mut rng, &mut mutant);
            let outcome = panic::catch_unwind(|| {
                let _ = ExportQuery::parse(&mutant);
                let _ = ContextQuery::parse(&mutant);
                let mut header = [0; 28];
                let length = mutant.len().min(28);
                header[..length].copy_from_slice(&mutant[..length]);
                if let Some(request) = Request::parse(&header) {
                    assert_eq!(request.header().as_bytes(), header, "it is read as it was made");
                }
            });
            assert!(outcome.is_ok(), "SEED={seed}, mutation {turn}: {mutant:?}");
        }
    }
}

/// Everything that a polite client sends, up to its end.
fn conversation() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    let option = |number: u8, data: &[u8]| {
        let length = u8::try_from(data.len()).unwrap();
        [b"IHAVEOPT", &[0, 0, 0, number, 0, 0, 0, length][..], data].concat()
    };
    bytes.extend(option(3, &[]));
    bytes.extend(option(8, &[]));
    bytes.extend(option(10, &context("disk", &["base:allocation"])));
    bytes.extend(option(7, &query("disk", &[3])));
    for (command, length) in [
        (Command::Read, 65536),
        (Command::Write, 4096),
        (Command::Flush, 0),
        (Command::Trim, 4096),
        (Command::WriteZeroes, 8192),
        (Command::BlockStatus, 65536),
        (Command::Disconnect, 0),
    ] {
        let request = Request { command: Ok(command), flags: 0, cookie: 1, offset: 0, length };
        bytes.extend_from_slice(request.header().as_bytes());
        if command == Command::Write {
            bytes.extend_from_slice(&[1; 4096]);
        }
    }
    bytes
}

#[test]
fn fuzz_conversation_never_stops_server() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    let served = serve(small());
    let polite = conversation();
    for turn in 0..count {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ turn);
        let mut mutant = polite.clone();
        mutate(&mut rng, &mut mutant);
        let stream = std::net::TcpStream::connect(match &served.address {
            zonal_nbd::Address::Tcp(address) => *address,
            zonal_nbd::Address::Unix(_) => unreachable!("tests use TCP"),
        });
        let mut stream = stream.unwrap();
        // The server may have ended the connection.
        let _ = stream.write_all(&mutant);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answers = Vec::new();
        let _ = stream.read_to_end(&mut answers);
        assert!(answers.starts_with(b"NBDMAGICIHAVEOPT"), "SEED={seed}, mutation {turn}");
    }
    wait_until(|| served.server.connection_count() == 0);
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    assert_eq!(client.read(0, 4096).error, 0);
}

#[test]
fn client_with_unknown_flags_is_closed() {
    let served = serve(small());
    let mut client = Client::over(connect(&served.address));
    client.answer_greeting(4).unwrap();
    assert!(client.has_ended());
}

#[test]
fn option_of_many_megabytes_is_closed() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    client.stream.write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").unwrap();
    assert!(client.has_ended());
}

#[test]
fn client_that_chooses_nothing_is_closed_in_time() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    client.option(option::LIST, &[]).unwrap();
    served.clock.advance_ns(29 * SECOND_NS);
    client.option(option::LIST, &[]).unwrap();
    served.clock.advance_ns(2 * SECOND_NS);
    assert!(client.has_ended());
}

#[test]
fn client_that_sends_half_a_request_is_closed_in_time() {
    let served = serve(small());
    let mut idle = Client::open(&served.address, "disk", Style::Simple);
    let mut half = Client::open(&served.address, "disk", Style::Simple);
    half.send(Command::Write, 0, 0, 8192);
    half.stream.write_all(&[0; 4096]).unwrap();
    let mut header = Client::open(&served.address, "disk", Style::Simple);
    header.stream.write_all(&[0x25, 0x60]).unwrap();
    // The server has begun to receive both.
    let mut other = Client::open(&served.address, "disk", Style::Simple);
    assert_eq!(other.read(0, 4096).error, 0);
    wait_until(|| {
        served.clock.advance_ns(20 * SECOND_NS);
        served.server.connection_count() == 2
    });
    assert!(half.has_ended() && header.has_ended());
    // One that is silent between requests stays.
    assert_eq!(idle.read(0, 4096).error, 0);
}

#[test]
fn client_that_reads_no_answers_is_closed_in_time() {
    let served = serve(small());
    let mut deaf = Client::open(&served.address, "disk", Style::Simple);
    deaf.write(0, &vec![1; 8 << 20], 0);
    for _ in 0..16 {
        deaf.send(Command::Read, 0, 0, 8 << 20);
    }
    // Others are served meanwhile.
    let mut other = Client::open(&served.address, "disk", Style::Simple);
    assert_eq!(other.read(0, 4096).error, 0);
    wait_until(|| {
        served.clock.advance_ns(60 * SECOND_NS);
        served.server.connection_count() == 1
    });
    assert_eq!(other.read(0, 4096).error, 0);
}

#[test]
fn clients_without_memory_are_refused_and_others_go_on() {
    let served = serve_with(small(), settings(2 << 20, None));
    let mut clients: Vec<Client> = Vec::new();
    let refused = loop {
        let mut client = Client::over(connect(&served.address));
        if client.answer_greeting(3).is_err() {
            break clients.len();
        }
        client.go("disk", Style::Structured);
        clients.push(client);
    };
    assert!((1..8).contains(&refused), "{refused}");
    for client in &mut clients {
        assert_eq!(client.write(0, &vec![3; 4 << 20], 0).error, 0);
        assert!(client.read(0, 4 << 20).data == vec![3; 4 << 20]);
    }
    drop(clients);
    wait_until(|| served.server.connection_count() == 0);
    Client::open(&served.address, "disk", Style::Simple);
}

#[test]
fn request_without_magic_is_closed() {
    let served = serve(small());
    let mut client = Client::open(&served.address, "disk", Style::Simple);
    client.stream.write_all(&[0; 28]).unwrap();
    assert!(client.has_ended());
}

#[test]
fn disk_that_panics_ends_one_connection() {
    let served = serve(TestDisk { trap: Some(Lba::new(7)), ..small() });
    let mut other = Client::open(&served.address, "disk", Style::Structured);
    let mut client = Client::open(&served.address, "disk", Style::Structured);
    client.send(Command::Read, 0, 7 * 4096, 4096);
    assert!(client.answer().is_err());
    assert_eq!(other.read(0, 4096).error, 0);
    wait_until(|| served.server.connection_count() == 1);
}
