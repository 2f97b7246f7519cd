//! The zone ioctls of block devices: `include/uapi/linux/blkzoned.h`.
#![expect(unsafe_code, reason = "an ioctl is told by hand what the kernel reads and writes")]

use std::fs::File;

use rustix::io;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};
use zerocopy::{Immutable, IntoBytes};
use zonal::ZoneAction;

/// Zones that one report asks for.
pub(crate) const REPORT_ZONES: usize = 240;

const REPORT: Opcode = 0xc010_1282;
const RESET: Opcode = 0x4010_1283;
const OPEN: Opcode = 0x4010_1286;
const CLOSE: Opcode = 0x4010_1287;
const FINISH: Opcode = 0x4010_1288;

/// `struct blk_zone`: one zone of a report. Sectors are of 512 bytes.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawZone {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) wp: u64,
    pub(crate) kind: u8,
    pub(crate) cond: u8,
    pub(crate) non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    pub(crate) capacity: u64,
    more: [u8; 24],
}

const _: () = assert!(size_of::<RawZone>() == 64);

/// `struct blk_zone_report` with room for zones.
#[repr(C)]
struct Report {
    sector: u64,
    zones: u32,
    flags: u32,
    list: [RawZone; REPORT_ZONES],
}

const _: () = assert!(size_of::<Report>() == 16 + 64 * REPORT_ZONES);

/// `BLK_ZONE_REP_CAPACITY`: the capacities are filled in.
const HAS_CAPACITY: u32 = 1;

/// `struct blk_zone_range`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Range {
    /// First sector.
    pub(crate) start: u64,
    /// How many.
    pub(crate) len: u64,
}

/// The zones from a sector on, as many as one report holds.
pub(crate) fn report(device: &File, sector: u64) -> io::Result<Vec<RawZone>> {
    let list = [RawZone::default(); REPORT_ZONES];
    let zones = u32::try_from(REPORT_ZONES).expect("small");
    let mut report = Box::new(Report { sector, zones, flags: 0, list });
    // SAFETY: BLKREPORTZONE takes a `struct blk_zone_report` whose `nr_zones` says how many zones
    // there is room for behind it: `Report` is that, and lives during the call.
    let request = unsafe { Updater::<REPORT, Report>::new(&mut report) };
    // SAFETY: as above; the kernel writes nothing but this struct.
    unsafe { ioctl(device, request) }?;
    let count = usize::try_from(report.zones).unwrap_or(usize::MAX).min(REPORT_ZONES);
    let mut zones = report.list[..count].to_vec();
    if report.flags & HAS_CAPACITY == 0 {
        // A kernel that reports no capacities: each zone's capacity is its size.
        for zone in &mut zones {
            zone.capacity = zone.len;
        }
    }
    Ok(zones)
}

/// Performs an action on all zones in a range.
pub(crate) fn manage(device: &File, action: ZoneAction, range: Range) -> io::Result<()> {
    match action {
        ZoneAction::Reset => set::<RESET>(device, range),
        ZoneAction::Open => set::<OPEN>(device, range),
        ZoneAction::Close => set::<CLOSE>(device, range),
        ZoneAction::Finish => set::<FINISH>(device, range),
    }
}

fn set<const OPCODE: Opcode>(device: &File, range: Range) -> io::Result<()> {
    // SAFETY: the four zone actions take a `struct blk_zone_range` and only read it.
    let request = unsafe { Setter::<OPCODE, Range>::new(range) };
    // SAFETY: as above.
    unsafe { ioctl(device, request) }
}
