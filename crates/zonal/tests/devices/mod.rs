//! Shapes of devices, and every kind and stack of device in each shape.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use zonal::file::{CreateOptions, Overwrite};
use zonal::image::Image;
use zonal::layer::concat::Concat;
use zonal::layer::delay::Delay;
use zonal::layer::elevator::Elevator;
use zonal::layer::fault::{Fault, FaultPlan};
use zonal::layer::limited::{Limited, ZoneLimits};
use zonal::layer::meter::Meter;
use zonal::layer::po2::PowerOfTwo;
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::layer::trace::{Trace, TraceContent};
use zonal::{
    BlockSize, ByteCount, DeviceError, FileDrive, Geometry, GeometrySpec, LbaCount, ManualClock,
    MemoryDrive, OpenMode, Rules, ZoneId, ZoneKind, ZoneRun, ZoneRuns, ZonedDevice,
};

/// A device, and the directory that it needs.
pub struct Device {
    pub device: Box<dyn ZonedDevice>,
    _dir: Option<TempDir>,
}

/// Makes a fresh device of a shape.
pub type Make = fn(GeometrySpec) -> Device;

/// Every kind of device, and stacks of layers.
pub const DEVICES: &[(&str, Make)] = &[
    ("mem", |spec| plain(memory(spec))),
    ("image", |spec| plain(Image::empty(&Geometry::new(spec).unwrap()).power_on())),
    ("file", |spec| {
        let (drive, dir) = file(spec);
        Device { device: Box::new(drive), _dir: Some(dir) }
    }),
    ("pieces", |spec| {
        let (drive, dir) = pieces(spec);
        Device { device: Box::new(drive), _dir: Some(dir) }
    }),
    ("po2:mem", |spec| plain(PowerOfTwo::new(memory(spec)).unwrap())),
    ("po2:file", |spec| {
        let (drive, dir) = file(spec);
        Device { device: Box::new(PowerOfTwo::new(drive).unwrap()), _dir: Some(dir) }
    }),
    ("po2:po2:mem", |spec| plain(PowerOfTwo::new(PowerOfTwo::new(memory(spec)).unwrap()).unwrap())),
    ("delay:mem", |spec| plain(Delay::new(memory(spec), Duration::ZERO))),
    ("elevator:mem", |spec| plain(elevator(memory(spec)))),
    ("po2:elevator:slice:mem", |spec| plain(PowerOfTwo::new(elevator(slice(spec))).unwrap())),
    ("meter:mem", |spec| plain(meter(memory(spec)))),
    ("trace:mem", |spec| {
        plain(Trace::new(memory(spec), std::io::sink(), TraceContent::Data).unwrap())
    }),
    ("fault():mem", |spec| plain(Fault::new(memory(spec), FaultPlan::default()))),
    ("meter:po2:trace:fault():file", |spec| {
        let (drive, dir) = file(spec);
        let fault = Fault::new(drive, FaultPlan::default());
        let trace = Trace::new(fault, std::io::sink(), TraceContent::Checksums).unwrap();
        let device = Box::new(meter(PowerOfTwo::new(trace).unwrap()));
        Device { device, _dir: Some(dir) }
    }),
    ("shared mem", |spec| plain(Arc::new(memory(spec)))),
    ("limited:mem", |spec| {
        let limits = ZoneLimits { open: spec.max_open, active: spec.max_active };
        let unlimited = memory(GeometrySpec { max_open: None, max_active: None, ..spec });
        plain(Limited::new(unlimited, limits).unwrap())
    }),
    ("slice:mem", |spec| plain(slice(spec))),
    ("concat(mem,mem)", |spec| plain(concat(spec, memory))),
    ("po2:concat(mem,mem)", |spec| plain(PowerOfTwo::new(concat(spec, memory)).unwrap())),
    ("concat(slice:mem,slice:mem)", |spec| plain(concat(spec, slice))),
    ("slice:concat(po2:mem,po2:mem)", |spec| {
        let below = concat(spec, |spec| PowerOfTwo::new(memory(spec)).unwrap());
        plain(Slice::new(below, ZoneRange { first: ZoneId::ZERO, last: None }).unwrap())
    }),
];

/// The zones of the shape from a drive with one more before, and one behind unless the last is
/// a runt.
fn slice(spec: GeometrySpec) -> Slice<MemoryDrive> {
    let zones = u32::try_from(spec.block_count.get().div_ceil(spec.zone_size.get())).unwrap();
    let is_whole = spec.block_count.get().is_multiple_of(spec.zone_size.get());
    let more = spec.zone_size.get() * if is_whole { 2 } else { 1 };
    let runs = spec.conventional_zones.runs().iter();
    let runs = runs.map(|run| ZoneRun { first: run.first + 1, ..*run });
    // The one before has the kind of the first one.
    let before =
        ZoneRun { first: 0, count: u32::from(spec.conventional_zones.leading_count() > 0) };
    let conventional_zones = ZoneRuns::new(std::iter::once(before).chain(runs)).unwrap();
    let block_count = spec.block_count + LbaCount::new(more);
    let below = memory(GeometrySpec { block_count, conventional_zones, ..spec });
    let range = ZoneRange { first: ZoneId::new(1), last: Some(ZoneId::new(zones)) };
    Slice::new(below, range).unwrap()
}

/// The shape in two members, the first of three zones.
fn concat<D: ZonedDevice>(spec: GeometrySpec, make: fn(GeometrySpec) -> D) -> Concat<D> {
    let first = LbaCount::new(3 * spec.zone_size.get());
    let rest = spec.block_count - first;
    let part =
        |from: u32, to: u32| spec.conventional_zones.within(ZoneId::new(from), ZoneId::new(to));
    let head = GeometrySpec { block_count: first, conventional_zones: part(0, 2), ..spec };
    let tail = GeometrySpec { block_count: rest, conventional_zones: part(3, u32::MAX), ..spec };
    Concat::new(vec![make(head), make(tail)]).unwrap()
}

fn plain(device: impl ZonedDevice + 'static) -> Device {
    Device { device: Box::new(device), _dir: None }
}

fn memory(spec: GeometrySpec) -> MemoryDrive {
    MemoryDrive::new(spec).unwrap()
}

/// With room for a part of what the tests write.
fn elevator<D: ZonedDevice>(below: D) -> Elevator<D> {
    Elevator::new(below, ByteCount::new(100 << 10)).unwrap()
}

fn meter<D: ZonedDevice>(below: D) -> Meter<D> {
    Meter::new(below, Arc::new(ManualClock::new(0)))
}

/// A drive file in a directory of its own, in memory where the host has such a place.
pub fn file(spec: GeometrySpec) -> (FileDrive, TempDir) {
    created(spec, |path, options| FileDrive::create(path, options))
}

/// The same in pieces of a MiB.
pub fn pieces(spec: GeometrySpec) -> (FileDrive, TempDir) {
    let piece = ByteCount::new(1 << 20);
    created(spec, |path, options| FileDrive::create_in_pieces(path, options, piece))
}

fn created(
    spec: GeometrySpec,
    create: impl FnOnce(&Path, &CreateOptions) -> Result<(), DeviceError>,
) -> (FileDrive, TempDir) {
    let dir = scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (Rules::Zns, [7; 16], Overwrite::Refuse);
    create(&path, &CreateOptions { geometry: spec, rules, uuid, overwrite }).unwrap();
    (FileDrive::open(&path, OpenMode::ReadWrite).unwrap(), dir)
}

pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Shapes of sequential write preferred zones.
pub fn preferred_shapes() -> Vec<(&'static str, GeometrySpec)> {
    let sequential_kind = ZoneKind::SequentialPreferred;
    let base = GeometrySpec { sequential_kind, max_open: None, max_active: None, ..shapes()[0].1 };
    let odd = GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(7 * 24 + 11),
        zone_size: LbaCount::new(24),
        zone_capacity: LbaCount::new(24),
        ..base
    };
    vec![
        ("preferred", base),
        ("preferred, capacity 9 of 16", GeometrySpec { zone_capacity: LbaCount::new(9), ..base }),
        (
            "preferred, conventional zones and a runt",
            GeometrySpec { conventional_zones: ZoneRuns::leading(2), ..odd },
        ),
        (
            "preferred, conventional zones in the middle",
            GeometrySpec { conventional_zones: "1,5-6".parse().unwrap(), ..odd },
        ),
    ]
}

/// Shapes that differ in everything that matters.
pub fn shapes() -> Vec<(&'static str, GeometrySpec)> {
    let base = GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(8 * 16),
        zone_size: LbaCount::new(16),
        zone_capacity: LbaCount::new(16),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(3),
        max_active: Some(5),
        max_append: LbaCount::new(4),
    };
    let odd = GeometrySpec {
        block_count: LbaCount::new(8 * 24),
        zone_size: LbaCount::new(24),
        zone_capacity: LbaCount::new(24),
        ..base
    };
    let count = LbaCount::new;
    vec![
        ("4096, power of two", base),
        ("512", GeometrySpec { block_size: BlockSize::B512, ..base }),
        ("24-block zones", odd),
        (
            "512, 24-block zones, capacity 17",
            GeometrySpec { block_size: BlockSize::B512, zone_capacity: count(17), ..odd },
        ),
        ("capacity 9 of 16", GeometrySpec { zone_capacity: count(9), ..base }),
        (
            "conventional zones and a runt",
            GeometrySpec {
                block_count: count(7 * 24 + 11),
                conventional_zones: ZoneRuns::leading(2),
                ..odd
            },
        ),
        (
            "conventional zones in the middle and at the end",
            GeometrySpec {
                conventional_zones: "1,5-6,11".parse().unwrap(),
                block_count: count(11 * 24 + 11),
                ..odd
            },
        ),
        ("a runt of one block", GeometrySpec { block_count: count(7 * 24 + 1), ..odd }),
        ("limits of one", GeometrySpec { max_open: Some(1), max_active: Some(1), ..base }),
        ("open limit alone", GeometrySpec { max_open: Some(2), max_active: None, ..odd }),
        ("active limit alone", GeometrySpec { max_open: None, max_active: Some(2), ..odd }),
        ("no limits", GeometrySpec { max_open: None, max_active: None, ..odd }),
        (
            "zones of one block",
            GeometrySpec {
                block_count: count(8),
                zone_size: count(1),
                zone_capacity: count(1),
                ..base
            },
        ),
    ]
}
