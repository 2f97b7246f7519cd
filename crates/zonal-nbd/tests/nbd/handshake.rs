//! Tests of the handshake: the answers to a client that has not chosen an export yet.

use std::io::Read;
use std::sync::Arc;

use zonal::{BlockSize, ManualClock};
use zonal_nbd::export::Access;
use zonal_nbd::server::MEMORY_MAX;
use zonal_nbd::wire::{client_flag, info, option, reply};
use zonal_nbd::{Export, Exports, Server};

use crate::client::{Client, Reply, Style, connect, context, query};
use crate::disk::TestDisk;
use crate::{serve, settings, small};

const BOTH: u32 = client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES;

fn kinds(replies: &[Reply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

#[test]
fn go_gives_size_flags_and_block_sizes() {
    let served = serve(TestDisk::new(BlockSize::B512, 100));
    // The only export needs no name.
    for (name, style, flags) in [("disk", Style::Simple, 0x96d), ("", Style::Structured, 0x9ed)] {
        let client = Client::open(&served.address, name, style);
        assert_eq!((client.bytes, client.flags), (51_200, flags), "{style:?}");
        let sizes = client.sizes.unwrap();
        assert_eq!((sizes.minimum.get(), sizes.preferred.get()), (512, 4096));
        assert_eq!(sizes.payload_max.get(), 32 << 20);
    }
}

#[test]
fn info_gives_name_and_description_on_request() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    let infos = [info::NAME, info::DESCRIPTION, 77];
    let replies = client.option(option::INFO, &query("", &infos)).unwrap();
    let has = |data: &[u8]| replies.iter().any(|one| one.kind == reply::INFO && one.data == data);
    assert!(has(b"\0\x01disk") && has(b"\0\x02of a test"), "{replies:?}");
    let few = client.option(option::INFO, &query("disk", &[])).unwrap();
    assert_eq!(kinds(&few), [reply::INFO, reply::INFO, reply::ACK]);
    client.go("disk", Style::Simple);
}

#[test]
fn export_name_pads_unless_client_declines() {
    let served = serve(small());
    for (flags, padding) in [(BOTH, 0), (client_flag::FIXED_NEWSTYLE, 124)] {
        let mut stream = connect(&served.address);
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        let name = b"\0\0\0\x04disk";
        let flags = [0, 0, 0, u8::try_from(flags).unwrap()];
        stream.write_all(&[&flags[..], b"IHAVEOPT\0\0\0\x01", name].concat()).unwrap();
        // A request for nothing, whose answer follows the padding.
        let flush = [&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 3][..], &[0; 20]].concat();
        stream.write_all(&flush).unwrap();
        let mut data = vec![0; 10 + padding + 4];
        stream.read_exact(&mut data).unwrap();
        assert_eq!(data[..8], [0, 0, 0, 0, 0, 0x80, 0, 0]);
        assert_eq!(data[10 + padding..], [0x67, 0x44, 0x66, 0x98], "{padding}");
    }
}

#[test]
fn list_names_all_exports() {
    let export = |name| Export::new(name, "a disk", Arc::new(small()), Access::ReadWrite).unwrap();
    let exports = Exports::new(vec![export("one"), export("zwei ä")]).unwrap();
    let settings = settings(MEMORY_MAX, None);
    let server = Server::start(exports, settings, Arc::new(ManualClock::new(0))).unwrap();
    let mut client = Client::greet(&server.addresses()[0]);
    let replies = client.option(option::LIST, &[]).unwrap();
    assert_eq!(kinds(&replies), [reply::SERVER, reply::SERVER, reply::ACK]);
    assert_eq!(replies[0].data, b"\0\0\0\x03onea disk");
    assert_eq!(replies[1].data, "\0\0\0\u{7}zwei äa disk".as_bytes());
    // No name means nothing where there are two.
    let refused = client.option(option::GO, &query("", &[])).unwrap();
    assert_eq!(kinds(&refused), [reply::UNKNOWN]);
    client.go("zwei ä", Style::Structured);
}

#[test]
fn exports_of_one_name_are_refused() {
    let export = || Export::new("one", "", Arc::new(small()), Access::ReadWrite).unwrap();
    let refused = Exports::new(vec![export(), export()]).err().unwrap();
    assert_eq!(refused.to_string(), "\"one\" cannot be served: another export has this name");
    assert!(Export::new("a\nb", "", Arc::new(small()), Access::ReadWrite).is_err());
}

#[test]
fn option_that_makes_no_sense_is_refused() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    let long = vec![b'x'; 40_000];
    for (option, data, kind) in [
        (4, &b""[..], reply::UNSUPPORTED),
        (11, b"", reply::UNSUPPORTED),
        (0xffff_ffff, b"abc", reply::UNSUPPORTED),
        (option::LIST, b"x", reply::INVALID),
        (option::STRUCTURED_REPLY, b"x", reply::INVALID),
        (option::START_TLS, b"", reply::POLICY),
        (option::INFO, b"abc", reply::INVALID),
        (option::GO, &query("other", &[]), reply::UNKNOWN),
        (option::SET_META_CONTEXT, &context("disk", &[]), reply::INVALID),
        (option::GO, &long, reply::TOO_BIG),
    ] {
        assert_eq!(kinds(&client.option(option, data).unwrap()), [kind], "option {option}");
    }
    client.go("disk", Style::Structured);
}

#[test]
fn export_name_of_no_export_ends_connection() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    assert!(client.option(option::EXPORT_NAME, b"other").is_err());
}

#[test]
fn abort_is_acknowledged_and_ends_connection() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    assert_eq!(kinds(&client.option(option::ABORT, &[]).unwrap()), [reply::ACK]);
    assert!(client.has_ended());
}

#[test]
fn contexts_are_listed_by_wildcard_and_set_by_name() {
    let served = serve(small());
    let mut client = Client::greet(&served.address);
    client.option(option::STRUCTURED_REPLY, &[]).unwrap();
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    for (option, queries, count) in [
        (list, &[][..], 1),
        (list, &["base:"], 1),
        (list, &["qemu:dirty-bitmap:x"], 0),
        (set, &[], 0),
        (set, &["base:"], 0),
        (set, &["qemu:x", "base:allocation"], 1),
    ] {
        let replies = client.option(option, &context("disk", queries)).unwrap();
        assert_eq!(replies.len(), count + 1, "{option} {queries:?}");
        assert_eq!(replies[count].kind, reply::ACK);
        if count == 1 {
            assert_eq!(replies[0].kind, reply::META_CONTEXT);
            assert_eq!(&replies[0].data[4..], b"base:allocation");
        }
    }
    let unknown = client.option(set, &context("other", &["base:allocation"])).unwrap();
    assert_eq!(kinds(&unknown), [reply::UNKNOWN]);
}
