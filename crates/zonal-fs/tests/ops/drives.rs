//! Drives for tests, and a clock that stands still during an operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::image::Image;
use zonal::{
    BlockSize, Clock, Geometry, GeometrySpec, LbaCount, ZoneKind, ZoneRun, ZoneRuns, ZonedDevice,
};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{
    CheckOptions, DataCheck, Drives, Furrow, MkfsOptions, MountOptions, check, mkfs,
};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, Result, WriteFlags};

/// A drive's shape by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) spec: GeometrySpec,
}

impl Shape {
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::new(self.spec).expect("the shapes below are valid")
    }
}

/// Zones of 256 KiB: the smallest there can be, so that images are small and reclaim is never far.
pub(crate) const SMALL: Shape =
    Shape { name: "small", spec: GeometrySpec { max_append: LbaCount::new(32), ..shape(24, 64) } };

/// Conventional zones in three places.
const fn three(runs: [ZoneRun; 3]) -> ZoneRuns {
    let zones = ZoneRuns::NONE.and(runs[0]).expect("in order");
    zones.and(runs[1]).expect("in order").and(runs[2]).expect("in order")
}

const fn run(first: u32, count: u32) -> ZoneRun {
    ZoneRun { first, count }
}

/// Ten conventional zones, all for data, and as many sequential ones as a drive must have, and two
/// more.
pub(crate) const CONVENTIONAL: Shape = Shape {
    name: "ten conventional zones",
    spec: GeometrySpec {
        block_count: LbaCount::new(32 * 64),
        conventional_zones: ZoneRuns::leading(10),
        ..SMALL.spec
    },
};

/// Two drives, of which the second one has metadata. In memory they are one drive, so that a power
/// cut takes what it likes from the cache of each.
pub(crate) const METADATA: Shape = Shape {
    name: "a drive for metadata",
    spec: GeometrySpec {
        block_count: LbaCount::new((METADATA_DATA_ZONES as u64 + 9) * 64),
        max_open: None,
        max_active: None,
        ..SMALL.spec
    },
};

/// Zones of its data drive.
const METADATA_DATA_ZONES: u32 = 22;

/// The drives that a device stands for: two if its shape is that of [`METADATA`].
pub(crate) fn of(device: Arc<dyn ZonedDevice>) -> Drives {
    if *device.geometry().spec() == METADATA.spec {
        Drives::split(device, METADATA_DATA_ZONES)
    } else {
        device.into()
    }
}

/// Sequential write preferred zones, which have no limits.
#[allow(dead_code, reason = "each test uses a part of it")]
pub(crate) const PREFERRED: Shape = Shape {
    name: "sequential write preferred zones",
    spec: GeometrySpec {
        sequential_kind: ZoneKind::SequentialPreferred,
        max_open: None,
        max_active: None,
        ..SMALL.spec
    },
};

/// The shapes that the model test and the random crash test go through.
pub(crate) const SHAPES: [Shape; 9] = [
    SMALL,
    Shape {
        name: "zone size not a power of two, capacity smaller still",
        spec: GeometrySpec {
            block_count: LbaCount::new(26 * 96 + 70),
            zone_size: LbaCount::new(96),
            zone_capacity: LbaCount::new(75),
            ..SMALL.spec
        },
    },
    Shape {
        name: "blocks of 512 bytes",
        spec: GeometrySpec {
            block_size: BlockSize::B512,
            block_count: LbaCount::new(24 * 600),
            zone_size: LbaCount::new(600),
            zone_capacity: LbaCount::new(560),
            max_append: LbaCount::new(256),
            ..SMALL.spec
        },
    },
    Shape {
        name: "conventional zones at the start, in the middle and at the end",
        spec: GeometrySpec {
            block_count: LbaCount::new(28 * 64),
            conventional_zones: three([run(0, 1), run(13, 1), run(27, 1)]),
            ..SMALL.spec
        },
    },
    Shape {
        name: "four open zones",
        spec: GeometrySpec { max_open: Some(4), max_active: Some(4), ..SMALL.spec },
    },
    Shape {
        name: "no limits, a runt at the end",
        spec: GeometrySpec {
            block_count: LbaCount::new(22 * 128 + 40),
            zone_size: LbaCount::new(128),
            zone_capacity: LbaCount::new(128),
            max_open: None,
            max_active: None,
            ..SMALL.spec
        },
    },
    CONVENTIONAL,
    Shape {
        name: "eight conventional zones anywhere, four open zones, blocks of 512 bytes",
        spec: GeometrySpec {
            block_size: BlockSize::B512,
            block_count: LbaCount::new(32 * 512),
            zone_size: LbaCount::new(512),
            zone_capacity: LbaCount::new(512),
            conventional_zones: three([run(1, 2), run(9, 4), run(30, 2)]),
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: Some(4),
            max_active: Some(4),
            max_append: LbaCount::new(256),
        },
    },
    METADATA,
];

/// A clock that moves only between operations, so that two file systems that do the same operation
/// read the same time.
#[derive(Debug, Default)]
pub(crate) struct StepClock(AtomicU64);

impl StepClock {
    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, Ordering::Relaxed);
    }

    /// How long it takes until the next operation begins: before a tick, more than the time
    /// between two commits.
    pub(crate) fn pause_ns(op: &super::Op) -> u64 {
        if *op == super::Op::Tick { 6_000_000_000 } else { 1_000_000 }
    }
}

impl Clock for StepClock {
    fn wall_ns(&self) -> i64 {
        1_700_000_000_000_000_000 + self.monotonic_ns().cast_signed()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Shape {
    /// Blocks of a file that leaves little room for anything else.
    pub(crate) fn ballast_max(&self) -> u64 {
        let clock = StepClock::default();
        let drive = Arc::new(Image::empty(&self.geometry()).power_on());
        format(of(drive.clone()), &clock);
        let fs = Furrow::mount(of(drive), Arc::new(clock), MountOptions::default());
        let space = fs.and_then(|fs| fs.statfs()).expect("a new file system tells its size");
        space.blocks_free.saturating_sub(300)
    }
}

/// Makes a file system.
pub(crate) fn format(drives: impl Into<Drives>, clock: &dyn Clock) {
    mkfs(drives, clock, &MkfsOptions::default(), &mut |_| ()).expect("the shapes can be formatted");
}

/// Problems of the file system on a drive, in words. After a mount there are no orphans.
pub(crate) fn problems(drives: impl Into<Drives>) -> Vec<String> {
    // With memory for a few zones at a time, as on a drive that is much larger.
    let options = CheckOptions { data: DataCheck::Read, memory: 4 << 10 };
    let report = match check(drives, options, &mut |_| ()) {
        Ok(report) => report,
        Err(error) => return vec![error.to_string()],
    };
    let problems = report.problems.iter().map(|problem| format!("{problem:?}"));
    let losses = report.losses.iter().map(|loss| format!("{loss:?}"));
    let orphans = (report.orphans > 0).then(|| format!("{} orphans", report.orphans));
    problems.chain(losses).chain(orphans).collect()
}

/// Fills a file with `blocks` blocks in an order that scatters garbage over the zones: every third
/// block is written again.
pub(crate) fn fill(fs: &dyn FileSystem, blocks: u64) -> Result<()> {
    let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
    let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"ballast", &new)?.ino;
    for first in (0..blocks).step_by(16) {
        let len = (blocks - first).min(16) as usize * 4096;
        fs.write(ino, first * 4096, &super::content(1, first * 4096, len), WriteFlags::DIRECT)?;
    }
    for block in (0..blocks).step_by(3) {
        fs.write(ino, block * 4096, &super::content(2, block * 4096, 4096), WriteFlags::empty())?;
    }
    fs.sync()
}
