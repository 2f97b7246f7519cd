//! The same random calls on two zoned block devices of one shape: the kernel's own `null_blk`, and
//! one that Zonal serves. Every answer, every zone and every byte read must be the same.
//!
//! Runs in a virtual machine, as `SERVED=/dev/ublkb0 KERNEL=/dev/nullb0 side_by_side --ignored`;
//! `SEED` and `COUNT` repeat and prolong a run.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../src/ioctl.rs"]
mod ioctl;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use ioctl::{Range, RawZone};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, OFlags};
use zonal::{ZoneAction, repeat};

/// Calls, unless `COUNT` says otherwise.
const COUNT: u64 = 1500;

/// Bytes of a sector, the unit of the zone ioctls.
const SECTOR: u64 = 512;

/// Conditions of `enum blk_zone_cond`.
const IMPLICIT_OPEN: u8 = 2;
const EXPLICIT_OPEN: u8 = 3;
const CLOSED: u8 = 4;
const FULL: u8 = 14;

/// `BLK_ZONE_TYPE_SEQWRITE_REQ`.
const SEQUENTIAL: u8 = 2;

/// One call. Places are bytes.
#[derive(Clone, Copy, Debug)]
enum Call {
    Write { at: u64, blocks: u64 },
    Read { at: u64, blocks: u64 },
    Zero { at: u64, blocks: u64 },
    Manage { action: ZoneAction, first: u64, len: u64 },
    Sync,
}

/// `ETOOMANYREFS` and `EOVERFLOW`: a limit of open or of active zones is reached.
const LIMITS: [i32; 2] = [109, 75];

impl Call {
    /// Whether answers may differ: `null_blk` finishes an empty zone only if it could be opened,
    /// the specification lets it become Full at any time (ZNS, section 2.1.1.4.1). And the kernel
    /// sends an action on several zones as requests side by side: where some are refused, their
    /// order decides which.
    fn may_differ(self, zone_bytes: u64, theirs: Answer, ours: Answer) -> bool {
        let Self::Manage { action, len, .. } = self else { return false };
        let finish = action == ZoneAction::Finish
            && ours.is_ok()
            && theirs.is_err_and(|errno| LIMITS.contains(&errno));
        finish || (len > zone_bytes && theirs.is_err() && ours.is_err())
    }
}

#[test]
#[ignore = "needs two zoned block devices; run by cargo xtask test in a virtual machine"]
fn served_drive_answers_like_null_blk() {
    let (seed, count) = (repeat::seed(1), repeat::count(COUNT));
    let (theirs, ours) = (Device::open("KERNEL"), Device::open("SERVED"));
    let shape = Shape::of(&theirs, &ours);
    let mut random = StdRng::seed_from_u64(seed);
    let mut log = Log::default();
    let mut before = theirs.zones();
    for number in 0..count {
        let call = shape.call(&mut random, &before);
        let (expected, answer) =
            (theirs.answer(call, number, &before), ours.answer(call, number, &before));
        log.line(&format!("{number}: {call:x?} = {expected:?}"));
        if call.may_differ(shape.zone_bytes, expected, answer) {
            let again = Call::Manage { action: ZoneAction::Reset, first: 0, len: shape.size };
            assert_eq!(theirs.answer(again, number, &[]), ours.answer(again, number, &[]));
        } else {
            assert!(expected == answer, "{log}{answer:?} of the served drive");
        }
        let (expected, zones) = (theirs.zones(), ours.zones());
        for (index, (expected, zone)) in expected.iter().zip(&zones).enumerate() {
            let (expected, zone) = (shape.comparable(expected), shape.comparable(zone));
            assert!(
                format!("{expected:?}") == format!("{zone:?}"),
                "{log}zone {index}: {expected:x?} of null_blk\nzone {index}: {zone:x?} of the served drive"
            );
        }
        before = zones;
    }
    log.assert_varied(count);
}

/// The last lines, for a failure, and how often each kind of answer came.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
    succeeded: u64,
    failed: u64,
}

impl Log {
    fn line(&mut self, line: &str) {
        if line.contains("Err") {
            self.failed += 1;
        } else {
            self.succeeded += 1;
        }
        self.lines.push(line.to_owned());
    }

    /// A run in which everything or nothing succeeds says little.
    fn assert_varied(&self, count: u64) {
        eprintln!("{} calls succeeded, {} failed", self.succeeded, self.failed);
        assert!(self.succeeded * 4 > count, "{} of {count} calls succeeded", self.succeeded);
        assert!(self.failed * 50 > count, "{} of {count} calls failed", self.failed);
    }
}

impl std::fmt::Display for Log {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let recent = &self.lines[self.lines.len().saturating_sub(12)..];
        recent.iter().try_for_each(|line| writeln!(to, "{line}"))
    }
}

/// An open device.
struct Device {
    file: File,
    sectors: u64,
}

/// A number that the kernel reports of a block device.
fn attribute(device: u64, name: &str) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{name}"));
    text.unwrap().trim().parse().unwrap()
}

/// The answer to a call: the number of bytes and a sum of them, or an errno.
type Answer = Result<(usize, u32), i32>;

impl Device {
    /// Opens the device that the environment names.
    fn open(name: &str) -> Self {
        let path = PathBuf::from(std::env::var_os(name).expect(name));
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        let file = File::options().read(true).write(true).custom_flags(direct).open(&path);
        let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let number = file.metadata().unwrap().rdev();
        let device = Self { file, sectors: attribute(number, "size") };
        device.manage(ZoneAction::Reset, 0, device.sectors * SECTOR).unwrap();
        device
    }

    fn zones(&self) -> Vec<RawZone> {
        let mut zones: Vec<RawZone> = Vec::new();
        let mut next = 0;
        while next < self.sectors {
            zones.extend(ioctl::report(&self.file, next).unwrap());
            next = zones.last().map(|last| last.start + last.len).unwrap();
        }
        zones
    }

    fn manage(&self, action: ZoneAction, first: u64, len: u64) -> io::Result<()> {
        let range = Range { start: first / SECTOR, len: len / SECTOR };
        Ok(ioctl::manage(&self.file, action, range)?)
    }

    fn answer(&self, call: Call, number: u64, zones: &[RawZone]) -> Answer {
        let done = match call {
            Call::Write { at, blocks } => {
                let mut memory = Memory::new(blocks);
                memory.fill(number);
                self.file.write_at(memory.bytes(), at).map(|len| (len, 0))
            }
            Call::Read { at, blocks } => {
                let mut memory = Memory::new(blocks);
                let read = self.file.read_at(memory.bytes(), at);
                memory.forget_unwritten(at, zones);
                read.map(|len| (len, sum(&memory.bytes()[..len])))
            }
            Call::Zero { at, blocks } => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, flags, at, blocks * BLOCK)
                    .map(|()| (0, 0))
                    .map_err(io::Error::from)
            }
            Call::Manage { action, first, len } => self.manage(action, first, len).map(|()| (0, 0)),
            Call::Sync => self.file.sync_data().map(|()| (0, 0)),
        };
        done.map_err(|error| match call {
            // If several requests fail, the kernel returns the error of any.
            Call::Write { blocks, .. } if blocks > ONE_REQUEST => 0,
            _ => error.raw_os_error().unwrap_or(0),
        })
    }
}

/// Bytes of a block: both sizes of blocks divide it.
const BLOCK: u64 = 4096;

/// Blocks that every device takes at once.
const ONE_REQUEST: u64 = 16;

/// Memory that direct I/O takes.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    fn new(blocks: u64) -> Self {
        let (len, page) = (usize::try_from(blocks * BLOCK).unwrap(), 4096);
        let bytes = vec![0; len + page];
        let start = bytes.as_ptr().align_offset(page);
        Self { bytes, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// The drive decides the data beyond a write pointer: `null_blk` returns ones, others zeroes.
    fn forget_unwritten(&mut self, at: u64, zones: &[RawZone]) {
        let zone_bytes = zones[0].len * SECTOR;
        for (index, block) in self.bytes().chunks_exact_mut(4096).enumerate() {
            let at = at + index as u64 * BLOCK;
            let Some(zone) = zones.get(usize::try_from(at / zone_bytes).unwrap()) else { return };
            let end = match zone.cond {
                FULL => zone.start + zone.capacity,
                _ => zone.wp,
            };
            if zone.kind == SEQUENTIAL && at >= end * SECTOR {
                block.fill(0);
            }
        }
    }

    /// Fills it with data that no other call writes.
    fn fill(&mut self, number: u64) {
        for (at, word) in self.bytes().chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(number << 32 | at as u64).to_le_bytes());
        }
    }
}

/// A sum that depends on every byte and its place (FNV-1a).
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The shape of both devices.
struct Shape {
    zones: u64,
    zone_bytes: u64,
    size: u64,
    /// Whether open zones are limited, so that others are closed for them.
    limited: bool,
    /// Whether both do the same with an open zone that is closed while it holds nothing: `null_blk`
    /// and ZBC make it Empty, NVMe makes it Closed.
    close_alike: bool,
}

impl Shape {
    /// The shape of both, which must be the same.
    fn of(theirs: &Device, ours: &Device) -> Self {
        let (zones, others) = (theirs.zones(), ours.zones());
        assert_eq!(format!("{zones:?}"), format!("{others:?}"), "one shape");
        let number = theirs.file.metadata().unwrap().rdev();
        let limit = attribute(number, "queue/max_open_zones");
        let limited = limit != 0;
        let zone_bytes = zones[0].len * SECTOR;
        eprintln!("{} zones of {zone_bytes} bytes, {limit} open", zones.len());
        let closed = [theirs, ours].map(|device| {
            let last = (zones.len() as u64 - 1) * zone_bytes;
            for action in [ZoneAction::Open, ZoneAction::Close] {
                device.manage(action, last, zone_bytes).unwrap();
            }
            let cond = device.zones().last().unwrap().cond;
            device.manage(ZoneAction::Reset, last, zone_bytes).unwrap();
            cond
        });
        let close_alike = closed[0] == closed[1];
        let size = theirs.sectors * SECTOR;
        Self { zones: zones.len() as u64, zone_bytes, size, limited, close_alike }
    }

    /// The drive decides which zone it closes to open another: an implicitly open zone and a closed
    /// one answer alike to every call.
    fn comparable(&self, zone: &RawZone) -> RawZone {
        let mut zone = *zone;
        if zone.cond == FULL {
            // There is none: drivers say the end of the zone or of its capacity.
            zone.wp = 0;
        }
        if self.limited && zone.cond == IMPLICIT_OPEN {
            zone.cond = CLOSED;
        }
        zone
    }

    fn call(&self, random: &mut StdRng, zones: &[RawZone]) -> Call {
        let index = random.random_range(0..self.zones);
        let start = index * self.zone_bytes;
        let zone = &zones[usize::try_from(index).unwrap()];
        let wp = match zone.wp {
            wp if wp >= zone.start && wp <= zone.start + zone.len => wp * SECTOR,
            _ => start,
        };
        // The blocks that a write leaves when it fails half way depend on how the kernel cut it
        // into requests: so a write that does not fit is small enough to be one request.
        let room = (start + zone.capacity * SECTOR).saturating_sub(wp) / BLOCK;
        let blocks = match random.random_range(0..12) {
            0 => room.max(1),
            1 => random.random_range(1..=room.max(1)),
            _ => random.random_range(1..=ONE_REQUEST),
        };
        let anywhere = start + random.random_range(0..self.zone_bytes / BLOCK) * BLOCK;
        match random.random_range(0..100) {
            0..40 => Call::Write { at: wp, blocks },
            40..45 => Call::Write { at: anywhere, blocks: blocks.min(ONE_REQUEST) },
            45..55 => Call::Read { at: anywhere, blocks },
            55..62 => Call::Read { at: start, blocks: blocks * 4 },
            62..66 => Call::Zero { at: wp, blocks: blocks.min(ONE_REQUEST) },
            66..68 => Call::Sync,
            _ => self.manage(random, start, zones),
        }
    }

    fn manage(&self, random: &mut StdRng, start: u64, zones: &[RawZone]) -> Call {
        let action = ZoneAction::ALL[random.random_range(0..ZoneAction::ALL.len())];
        let (first, len) = match random.random_range(0..40) {
            0 => (0, self.size),
            1 => (start + BLOCK, self.zone_bytes),
            2 => (start, self.zone_bytes / 2),
            3..8 => {
                let len = random.random_range(2..5) * self.zone_bytes;
                (start, len.min(self.size - start))
            }
            _ => (start, self.zone_bytes),
        };
        let closes_nothing = zones.iter().any(|zone| {
            let inside = (first..first + len).contains(&(zone.start * SECTOR));
            inside && zone.cond == EXPLICIT_OPEN && zone.wp == zone.start
        });
        match action {
            ZoneAction::Close if closes_nothing && !self.close_alike => Call::Sync,
            // Half of the resets of all zones are left out: few zones would be written.
            ZoneAction::Reset if len == self.size && random.random_ratio(1, 2) => Call::Sync,
            _ => Call::Manage { action, first, len },
        }
    }
}
