//! The fuzz target of requests without a fuzzer: over requests of every kind, and over mutations of
//! them by seed.
//!
//! `SEED=n COUNT=n` choose the mutations and how many there are of each kind.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../fuzz/fuse.rs"]
mod fuse;
#[path = "../../../fuzz/mutants.rs"]
mod mutants;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal_fuse_transport::abi::SetxattrFlags;
use zonal_fuse_transport::request::parse;
use zonal_fuse_transport::{NodeId, Op};

use mutants::mutate;

/// Numbers of requests there are, and a few more.
const KINDS: u32 = 56;

/// Reads a variable as `zonal::repeat` does: this crate does not depend on `zonal`.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
}

/// A request with the right length.
fn message(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).unwrap();
    let mut message = Vec::new();
    message.extend(len.to_le_bytes());
    message.extend(kind.to_le_bytes());
    message.extend(77_u64.to_le_bytes());
    message.extend(1_u64.to_le_bytes());
    message.extend([1_u32, 2, 3, 0].map(u32::to_le_bytes).concat());
    message.extend(body);
    message
}

/// Bytes that every kind of request can begin with: small numbers, then names.
fn body(rng: &mut ChaCha8Rng, words: usize) -> Vec<u8> {
    let mut body: Vec<u8> =
        (0..words).flat_map(|_| rng.random_range(0..20_u32).to_le_bytes()).collect();
    body.extend(b"name\0another name\0");
    body.extend([0x55; 64]);
    body
}

#[test]
fn fuzz_requests_never_panic_parser() {
    let (seed, count) = (number("SEED", 1), number("COUNT", 300));
    println!("SEED={seed} COUNT={count}");
    let mut understood = 0;
    for kind in 0..KINDS {
        for turn in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (u64::from(kind) << 40) ^ turn);
            let words = rng.random_range(0..24);
            let mut bytes = message(kind, &body(&mut rng, words));
            understood += u64::from(matches!(parse(&bytes), Ok((_, Ok(_)))));
            fuse::fuse(&bytes);
            mutate(&mut rng, &mut bytes);
            let outcome = std::panic::catch_unwind(|| fuse::fuse(&bytes));
            assert!(outcome.is_ok(), "SEED={seed}, request {kind}, {turn}: {bytes:?}");
        }
    }
    assert!(understood > u64::from(KINDS) * count / 3, "most have to say something: {understood}");
}

#[test]
fn request_fields_are_found() {
    let write = [7_u64, 4096].map(u64::to_le_bytes).concat();
    let write = [write, [5_u32, 1, 0, 0, 0x4000, 0].map(u32::to_le_bytes).concat()].concat();
    let bytes = message(16, &[&write[..], b"12345"].concat());
    let (header, op) = parse(&bytes).unwrap();
    assert_eq!((header.unique, header.node), (77, NodeId::ROOT));
    assert_eq!((header.uid, header.gid, header.pid), (1, 2, 3));
    let Ok(Op::Write(write)) = op else { panic!("{op:?}") };
    assert_eq!((write.handle, write.offset, write.data), (7, 4096, &b"12345"[..]));
    assert_eq!(write.flags, 0x4000);
    let bytes =
        message(45, &[&[9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], &b"a\0b\0"[..]].concat());
    let (_, op) = parse(&bytes).unwrap();
    let renamed = Op::Rename { name: b"a", new_parent: NodeId(9), new_name: b"b", flags: 2 };
    assert_eq!(op, Ok(renamed));
    let bytes =
        message(42, &[2, 0, 0, 0, 0, 0, 0, 0].into_iter().chain([1; 32]).collect::<Vec<_>>());
    let Ok((_, Ok(Op::BatchForget(forgets)))) = parse(&bytes) else { panic!("a batch") };
    let one = u64::from_le_bytes([1; 8]);
    assert_eq!(forgets.collect::<Vec<_>>(), [(NodeId(one), one); 2]);
}

#[test]
fn setxattr_parses_in_short_and_long_form() {
    for (name, value) in [(&b"user.a"[..], &b"value"[..]), (b"", b""), (b"\x01", b"\0")] {
        let size = u32::try_from(value.len()).unwrap();
        for (more, kills) in [(None, 0), (Some(0_u32), 0), (Some(1), 1)] {
            let mut body = [size, 2].map(u32::to_le_bytes).concat();
            body.extend(more.into_iter().flat_map(|more| [more, 0]).flat_map(u32::to_le_bytes));
            body.extend([name, b"\0", value].concat());
            let bytes = message(21, &body);
            let caller = SetxattrFlags::from_bits_retain(kills);
            let expected = Op::Setxattr { name, value, flags: 2, caller };
            assert_eq!(parse(&bytes).unwrap().1, Ok(expected), "{more:?}");
        }
    }
}

#[test]
fn request_cut_off_or_nameless_is_refused() {
    let refused = |kind, body: &[u8]| parse(&message(kind, body)).unwrap().1.is_err();
    assert!(refused(1, b"no end"));
    assert!(refused(1, b"\0"), "no name at all");
    assert!(refused(1, b"a/b\0"));
    assert!(!refused(1, b"..\0"));
    assert!(refused(16, &[1; 40]), "data that is not there");
    assert!(refused(42, &[0xff; 24]), "more nodes than there are bytes");
    let mut shorter = message(1, b"name\0");
    shorter.pop();
    assert!(parse(&shorter).is_err());
    assert!(parse(&[0; 39]).is_err());
}
