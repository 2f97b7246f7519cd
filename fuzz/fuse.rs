//! The fuzz target `fuse` parses bytes as a FUSE request of the kernel. Nothing may panic, and
//! every part of a request lies within it.
//!
//! `cargo fuzz run fuse` runs it with libFuzzer; `crates/zonal-fuse-transport/tests/fuzz.rs` runs
//! it over requests of every kind and mutations of them.

use zonal_fuse_transport::Op;
use zonal_fuse_transport::request::{SetTime, parse};

/// Bytes of the header, and nanoseconds of a second.
const HEADER: usize = 40;
const SECOND_NS: u32 = 1_000_000_000;

/// The bytes as a request, with the length that they have.
pub(crate) fn fuse(data: &[u8]) {
    let as_they_are = parse(data);
    let mut message = data.to_vec();
    let Some(len) = message.first_chunk_mut::<4>() else {
        return assert!(as_they_are.is_err(), "shorter than a header");
    };
    *len = u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes();
    let Ok((_, op)) = parse(&message) else {
        return assert!(data.len() < HEADER, "a header is all that there must be");
    };
    let Ok(op) = op else { return };
    let within = |name: &[u8], least: usize| {
        assert!(name.len() >= least && name.len() < data.len() - HEADER);
        assert!(least == 0 || !name.contains(&b'/') && !name.contains(&0));
    };
    match op {
        Op::Lookup { name }
        | Op::Unlink { name }
        | Op::Rmdir { name }
        | Op::Mknod { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Create { name, .. }
        | Op::Link { name, .. }
        | Op::Symlink { name, .. } => within(name, 1),
        Op::Rename { name, new_name, .. } => {
            within(name, 1);
            within(new_name, 1);
        }
        Op::Write(write) => within(write.data, 0),
        Op::Setxattr { name, value, .. } => within(&[name, value].concat(), 0),
        Op::Ioctl { input, .. } => within(input, 0),
        Op::BatchForget(forgets) => assert!(forgets.count() * 16 < data.len()),
        Op::Setattr(set) => {
            for time in [set.atime, set.mtime] {
                assert!(!matches!(time, Some(SetTime::To(time)) if time.nanos >= SECOND_NS));
            }
        }
        _ => {}
    }
}
