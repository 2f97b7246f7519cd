//! What server and kernel agree on before the first request.

use std::io;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{self, InitFlags, opcode};
use crate::fields::Fields;
use crate::reply::{self, Answer};
use crate::request::{Malformed, parse_header};

/// The oldest minor version with which the structures here are as they are: of Linux 4.20.
const OLDEST_MINOR: u32 = 28;

/// What a server wants of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Without these there is no mount.
    pub needed: InitFlags,
    /// These only where the kernel has them.
    pub wished: InitFlags,
    /// Bytes of the largest read or write, whole pages.
    pub request_max: u32,
    /// Requests in the background (readahead, asynchronous direct I/O) at once.
    pub background_max: u16,
    /// Whether requests are to come by `io_uring`.
    pub rings: Choice,
}

/// Whether something is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// In no case.
    Never,
    /// Where it can be.
    Possible,
    /// In every case: without it, there is no mount.
    Needed,
}

/// What transfers need, and nobody does without where the kernel has it.
const ALWAYS: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::INIT_EXT);

/// What the first message came to.
pub(crate) enum Shake {
    /// Requests follow.
    Agreed(InitFlags),
    /// The kernel asks again, in our version.
    Again,
}

/// Answers an INIT.
pub(crate) fn shake(message: &[u8], wishes: &Wishes, to: &dyn Answer) -> io::Result<Shake> {
    let invalid = |error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error);
    let (header, number, rest) = parse_header(message).map_err(invalid)?;
    let refuse = |errno: Errno, why: String| {
        // The mount fails with what is returned here, whatever the kernel hears.
        let _ = reply::send(to, (-errno.raw_os_error(), header.unique), &[]);
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    };
    if number != opcode::INIT {
        return refuse(Errno::IO, format!("the kernel begins with request {number}"));
    }
    let offer = Offer::parse(rest).map_err(invalid)?;
    if offer.major > abi::MAJOR {
        let ours = abi::InitOut { major: abi::MAJOR, ..abi::InitOut::default() };
        reply::send(to, (0, header.unique), &[ours.as_bytes()])?;
        return Ok(Shake::Again);
    }
    if (offer.major, offer.minor) < (abi::MAJOR, OLDEST_MINOR) {
        let why = format!("the kernel is too old: FUSE {}.{}", offer.major, offer.minor);
        return refuse(Errno::PROTO, why);
    }
    let missing = wishes.needed - offer.flags;
    if !missing.is_empty() {
        return refuse(Errno::PROTO, format!("the kernel is too old: FUSE lacks {missing:?}"));
    }
    let agreed = (wishes.needed | wishes.wished | ALWAYS) & offer.flags;
    let out = answer(&offer, wishes, agreed);
    reply::send(to, (0, header.unique), &[out.as_bytes()])?;
    Ok(Shake::Agreed(agreed))
}

/// What the kernel says.
struct Offer {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: InitFlags,
}

impl Offer {
    fn parse(rest: &[u8]) -> Result<Self, Malformed> {
        // A kernel without INIT_EXT sends less.
        let mut padded = [0; size_of::<abi::InitIn>()];
        let len = rest.len().min(padded.len());
        if len < 4 * size_of::<u32>() {
            return Err(Malformed { what: "shorter than any INIT" });
        }
        padded[..len].copy_from_slice(&rest[..len]);
        let raw: abi::InitIn = Fields(&padded).take()?;
        let mut flags = InitFlags::from_bits_retain(u64::from(raw.flags));
        if flags.contains(InitFlags::INIT_EXT) {
            flags |= InitFlags::from_bits_retain(u64::from(raw.flags2) << 32);
        }
        let abi::InitIn { major, minor, max_readahead, .. } = raw;
        Ok(Self { major, minor, max_readahead, flags })
    }
}

fn answer(offer: &Offer, wishes: &Wishes, agreed: InitFlags) -> abi::InitOut {
    // Where pages are larger than 4 KiB this allows for longer reads, but not for longer writes.
    let pages = wishes.request_max.div_ceil(4096);
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
    abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        // It is the kernel's to know what its devices like.
        max_readahead: offer.max_readahead,
        flags: half(agreed.bits()),
        flags2: half(agreed.bits() >> 32),
        max_background: wishes.background_max,
        // Where the kernel calls the device congested: at three quarters, as by default.
        congestion_threshold: wishes.background_max / 4 * 3,
        max_write: wishes.request_max,
        // Times are kept to the nanosecond.
        time_gran: 1,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        // Backing files lie on mounts that have none themselves.
        max_stack_depth: u32::from(agreed.contains(InitFlags::PASSTHROUGH)),
        ..abi::InitOut::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Mutex;

    use zerocopy::FromBytes;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<u8>>);

    impl Answer for Heard {
        fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            *self.0.lock().unwrap() = parts.iter().flat_map(|part| part.to_vec()).collect();
            Ok(())
        }
    }

    const WISHES: Wishes = Wishes {
        needed: InitFlags::DONT_MASK,
        wished: InitFlags::ALLOW_IDMAP.union(InitFlags::POSIX_ACL),
        request_max: 1 << 20,
        background_max: 64,
        rings: Choice::Never,
    };

    fn message(major: u32, minor: u32, flags: InitFlags) -> Vec<u8> {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap();
        let init = abi::InitIn {
            major,
            minor,
            max_readahead: 131_072,
            flags: half(flags.bits()),
            flags2: half(flags.bits() >> 32),
            unused: [0; 11],
        };
        let header = abi::InHeader { len: 104, opcode: opcode::INIT, unique: 2, ..empty() };
        [header.as_bytes(), init.as_bytes()].concat()
    }

    fn empty() -> abi::InHeader {
        abi::InHeader::read_from_bytes(&[0; 40]).unwrap()
    }

    fn answered(heard: &Heard) -> (abi::OutHeader, Option<abi::InitOut>) {
        let bytes = heard.0.lock().unwrap();
        let (header, rest) = abi::OutHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!(usize::try_from(header.len).unwrap(), bytes.len());
        (header, abi::InitOut::read_from_bytes(rest).ok())
    }

    #[test]
    fn only_what_both_have_is_agreed_on() {
        let heard = Heard::default();
        let offer = ALWAYS | InitFlags::DONT_MASK | InitFlags::ALLOW_IDMAP;
        let Ok(Shake::Agreed(agreed)) = shake(&message(7, 45, offer), &WISHES, &heard) else {
            panic!("agreed");
        };
        assert_eq!(agreed, offer);
        let (header, out) = answered(&heard);
        assert_eq!((header.error, header.unique), (0, 2));
        let out = out.unwrap();
        assert_eq!((out.major, out.minor, out.max_write), (7, 45, 1 << 20));
        assert_eq!((out.max_background, out.congestion_threshold), (64, 48));
        assert_eq!(out.flags2, 1 << 8, "flag 40");
        assert_eq!(out.max_readahead, 131_072);
    }

    #[test]
    fn files_of_another_mount_are_allowed_where_both_know_them() {
        let wishes = Wishes { wished: InitFlags::PASSTHROUGH, ..WISHES };
        for (offered, depth) in [(InitFlags::PASSTHROUGH, 1), (InitFlags::empty(), 0)] {
            let heard = Heard::default();
            shake(&message(7, 45, ALWAYS | InitFlags::DONT_MASK | offered), &wishes, &heard)
                .unwrap();
            assert_eq!(answered(&heard).1.unwrap().max_stack_depth, depth);
        }
    }

    #[test]
    fn flags_beyond_32_count_only_where_they_are_announced() {
        let heard = Heard::default();
        let offer = InitFlags::DONT_MASK | InitFlags::ALLOW_IDMAP;
        let shaken = shake(&message(7, 31, offer), &WISHES, &heard);
        assert!(matches!(shaken, Ok(Shake::Agreed(agreed)) if agreed == InitFlags::DONT_MASK));
    }

    #[test]
    fn a_kernel_without_what_is_needed_is_refused() {
        let heard = Heard::default();
        for message in [message(7, 45, ALWAYS), message(7, 12, InitFlags::DONT_MASK)] {
            let refused = shake(&message, &WISHES, &heard).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
            assert!(refused.to_string().contains("too old"), "{refused}");
            assert_eq!(answered(&heard).0.error, -Errno::PROTO.raw_os_error());
        }
    }

    #[test]
    fn a_newer_kernel_is_asked_to_come_down() {
        let heard = Heard::default();
        let shaken = shake(&message(8, 0, ALWAYS), &WISHES, &heard);
        assert!(matches!(shaken, Ok(Shake::Again)));
        assert_eq!(answered(&heard).1.unwrap().major, 7);
    }
}
