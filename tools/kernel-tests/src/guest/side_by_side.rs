//! The same random calls on the kernel's `null_blk` and on a drive that `zonal serve` serves: the
//! test `side_by_side` of `zonal-linux` makes them.

use std::path::Path;

use anyhow::Result;

use super::export::{Export, Way};
use super::libtest;
use super::null_blk::NullBlk;
use super::shape::Shape;
use xtask::tally::Tally;

/// `null_blk` at both limits at once opens no closed zone, which other drives do: one limit each.
const SHAPES: [Shape; 3] = [
    Shape { name: "open limit", open: 3, ..PLAIN },
    Shape { name: "active limit", active: 4, ..PLAIN },
    Shape { name: "blocks of 512", block: 512, ..PLAIN },
];

/// A shape that NVMe cannot have.
const CONVENTIONAL: [Shape; 1] =
    [Shape { name: "conventional zones", capacity_mib: 4, conventional: 2, ..PLAIN }];

const PLAIN: Shape = Shape {
    name: "",
    block: 4096,
    size_mib: 48,
    zone_mib: 4,
    capacity_mib: 3,
    conventional: 0,
    open: 0,
    active: 0,
};

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for way in Way::ALL {
        let more = match way {
            Way::NvmeTcp => [].as_slice(),
            Way::Ublk => &CONVENTIONAL,
        };
        for shape in SHAPES.iter().chain(more) {
            tally.check(&format!("calls on a drive over {way}, {}", shape.name), || {
                let theirs = NullBlk::new(shape)?;
                let (export, ours) = Export::start(way, &shape.memory_drive())?;
                compare(theirs.path(), &ours)?;
                export.end()
            });
        }
    }
}

fn compare(theirs: &Path, ours: &Path) -> Result<()> {
    libtest::run(
        "side_by_side",
        &["--nocapture"],
        &[("KERNEL", theirs.as_os_str()), ("SERVED", ours.as_os_str())],
    )
}
