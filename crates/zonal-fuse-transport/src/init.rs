//! INIT, the first request: server and kernel negotiate versions, flags and sizes.

use std::io;

use zerocopy::IntoBytes;

use crate::Errno;
use crate::abi::{self, InitFlags, opcode};
use crate::answer::{self, ReplySink, Status};
use crate::device::{Device, RequestBuffer};
use crate::fields::Fields;
use crate::request::{Malformed, parse_header};

/// Oldest minor version with the structures of [`abi`]: that of Linux 4.20.
const OLDEST_MINOR: u32 = 28;

/// Flags and sizes that a server asks the kernel for.
#[derive(Clone, Copy, Debug)]
pub struct InitRequest {
    /// Flags that a mount needs.
    pub required: InitFlags,
    /// Flags that are used if the kernel has them.
    pub optional: InitFlags,
    /// Largest read or write in bytes, a multiple of the page size.
    pub request_max: u32,
    /// Most background requests (readahead, asynchronous direct I/O) that the kernel sends at once.
    pub background_max: u16,
    /// Whether requests come over `io_uring`.
    pub rings: UseRings,
}

/// Whether requests come over `io_uring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseRings {
    /// No: by `/dev/fuse`.
    Never,
    /// If the kernel offers it, else by `/dev/fuse`.
    IfOffered,
    /// Over `io_uring`; if the kernel does not offer it, the mount fails.
    Required,
}

/// Flags that every server uses if the kernel has them.
const ALWAYS: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::INIT_EXT);

/// Outcome of one INIT.
pub(crate) enum Handshake {
    /// The flags are negotiated; requests follow.
    Done(InitFlags),
    /// The kernel sends another INIT, of our version.
    Again,
}

/// Answers one INIT.
pub(crate) fn handle_init(
    message: &[u8],
    request: &InitRequest,
    to: &dyn ReplySink,
) -> io::Result<Handshake> {
    let invalid = |error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error);
    let (header, number, rest) = parse_header(message).map_err(invalid)?;
    let refuse = |errno: Errno, why: String| {
        // The mount fails with this error whether or not the kernel takes the answer.
        let _ = answer::send(to, Status::failed(header.unique, errno), &[]);
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    };
    if number != opcode::INIT {
        return refuse(Errno::IO, format!("the kernel begins with request {number}"));
    }
    let offer = KernelInit::parse(rest).map_err(invalid)?;
    if offer.major > abi::MAJOR {
        let ours = abi::InitOut { major: abi::MAJOR, ..abi::InitOut::default() };
        answer::send(to, Status::ok(header.unique), &[ours.as_bytes()])?;
        return Ok(Handshake::Again);
    }
    if (offer.major, offer.minor) < (abi::MAJOR, OLDEST_MINOR) {
        let why = format!("the kernel is too old: FUSE {}.{}", offer.major, offer.minor);
        return refuse(Errno::PROTO, why);
    }
    let missing = request.required - offer.flags;
    if !missing.is_empty() {
        return refuse(Errno::PROTO, format!("the kernel is too old: FUSE lacks {missing:?}"));
    }
    let negotiated = (request.required | request.optional | ALWAYS) & offer.flags;
    let out = init_out(&offer, request, negotiated);
    answer::send(to, Status::ok(header.unique), &[out.as_bytes()])?;
    Ok(Handshake::Done(negotiated))
}

/// Answers the first messages of the kernel, until both sides speak our version. Returns the
/// negotiated flags.
pub(crate) fn negotiate(
    device: &Device,
    request: &InitRequest,
    request_max: usize,
) -> io::Result<InitFlags> {
    let mut buffer = RequestBuffer::new(request_max);
    loop {
        let message = buffer.receive(device)?;
        let message = message.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        match handle_init(message, request, device)? {
            Handshake::Done(negotiated) => return Ok(negotiated),
            Handshake::Again => {}
        }
    }
}

/// The INIT of the kernel.
struct KernelInit {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: InitFlags,
}

impl KernelInit {
    fn parse(rest: &[u8]) -> Result<Self, Malformed> {
        // A kernel without INIT_EXT sends a shorter structure.
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

fn init_out(offer: &KernelInit, request: &InitRequest, negotiated: InitFlags) -> abi::InitOut {
    // Where pages are larger than 4 KiB this allows for longer reads, but not for longer writes.
    let pages = request.request_max.div_ceil(4096);
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
    abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        // The kernel knows its devices: its value stays.
        max_readahead: offer.max_readahead,
        flags: half(negotiated.bits()),
        flags2: half(negotiated.bits() >> 32),
        max_background: request.background_max,
        // The kernel calls the device congested at three quarters, as by default.
        congestion_threshold: request.background_max / 4 * 3,
        max_write: request.request_max,
        // Times are kept to the nanosecond.
        time_gran: 1,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        // Backing files lie on mounts that have none themselves.
        max_stack_depth: u32::from(negotiated.contains(InitFlags::PASSTHROUGH)),
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

    impl ReplySink for Heard {
        fn answer(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            *self.0.lock().unwrap() = parts.iter().flat_map(|part| part.to_vec()).collect();
            Ok(())
        }
    }

    const REQUEST: InitRequest = InitRequest {
        required: InitFlags::DONT_MASK,
        optional: InitFlags::ALLOW_IDMAP.union(InitFlags::POSIX_ACL),
        request_max: 1 << 20,
        background_max: 64,
        rings: UseRings::Never,
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
    fn init_agrees_on_common_flags_only() {
        let heard = Heard::default();
        let offer = ALWAYS | InitFlags::DONT_MASK | InitFlags::ALLOW_IDMAP;
        let Ok(Handshake::Done(negotiated)) = handle_init(&message(7, 45, offer), &REQUEST, &heard)
        else {
            panic!("negotiated");
        };
        assert_eq!(negotiated, offer);
        let (header, out) = answered(&heard);
        assert_eq!((header.error, header.unique), (0, 2));
        let out = out.unwrap();
        assert_eq!((out.major, out.minor, out.max_write), (7, 45, 1 << 20));
        assert_eq!((out.max_background, out.congestion_threshold), (64, 48));
        assert_eq!(out.flags2, 1 << 8, "flag 40");
        assert_eq!(out.max_readahead, 131_072);
    }

    #[test]
    fn init_allows_passthrough_if_both_know_it() {
        let request = InitRequest { optional: InitFlags::PASSTHROUGH, ..REQUEST };
        for (offered, depth) in [(InitFlags::PASSTHROUGH, 1), (InitFlags::empty(), 0)] {
            let heard = Heard::default();
            handle_init(&message(7, 45, ALWAYS | InitFlags::DONT_MASK | offered), &request, &heard)
                .unwrap();
            assert_eq!(answered(&heard).1.unwrap().max_stack_depth, depth);
        }
    }

    #[test]
    fn init_ignores_high_flags_unless_announced() {
        let heard = Heard::default();
        let offer = InitFlags::DONT_MASK | InitFlags::ALLOW_IDMAP;
        let outcome = handle_init(&message(7, 31, offer), &REQUEST, &heard);
        assert!(
            matches!(outcome, Ok(Handshake::Done(negotiated)) if negotiated == InitFlags::DONT_MASK)
        );
    }

    #[test]
    fn init_refuses_kernel_without_needed_features() {
        let heard = Heard::default();
        for message in [message(7, 45, ALWAYS), message(7, 12, InitFlags::DONT_MASK)] {
            let refused = handle_init(&message, &REQUEST, &heard).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
            assert!(refused.to_string().contains("too old"), "{refused}");
            assert_eq!(answered(&heard).0.error, -Errno::PROTO.raw_os_error());
        }
    }

    #[test]
    fn init_asks_newer_kernel_to_step_down() {
        let heard = Heard::default();
        let outcome = handle_init(&message(8, 0, ALWAYS), &REQUEST, &heard);
        assert!(matches!(outcome, Ok(Handshake::Again)));
        assert_eq!(answered(&heard).1.unwrap().major, 7);
    }
}
