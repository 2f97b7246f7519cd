//! A drive in a block device without zones: the bytes of a drive file on a whole disk or partition,
//! which then has virtual zones.
//!
//! A new file reads as zeroes and can be locked. A disk is zeroed where it is read before it is
//! written, and claimed for its user; one that holds data is refused unless it is to be
//! overwritten.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::{io, iter};

use rustix::fs::FallocateFlags;
use zerocopy::IntoBytes;

use super::backing::host_len;
use super::format::{self, Description, Layout};
use super::table::BootId;
use super::{CreateOptions, Overwrite, io_error};
use crate::claim::{Claim, OpenMode};
use crate::error::Result;
use crate::{ByteCount, DeviceError, Lba, ZoneId};

/// Bytes zeroed per call, so that progress can be reported in between.
const STEP: u64 = 64 << 20;

/// Bytes at the disk's end that are zeroed, where partition tables and others keep copies.
const END: u64 = 1 << 20;

/// Whether a path names a block device.
pub(super) fn is_disk(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Opens a disk that is [claimed](Claim).
pub(super) fn open(path: &Path, mode: OpenMode) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(mode == OpenMode::ReadWrite);
    options.open(path).map_err(|source| io_error("opening", path, source))
}

/// Bytes of a disk.
pub fn disk_len(path: &Path) -> Result<ByteCount> {
    let failed = |source| io_error("opening", path, source);
    let file = File::open(path).map_err(failed)?;
    host_len(&file).map(ByteCount::new).map_err(failed)
}

/// How many zones of a size fit on a disk together with the format's own bytes.
pub fn zones_that_fit(disk: ByteCount, zone: ByteCount) -> u32 {
    let zone = zone.get().max(1);
    let fits = |zones: u64| {
        let data_at = format::data_at(zones, format::JOURNAL_LEN);
        zones
            .checked_mul(zone)
            .and_then(|data| data.checked_add(data_at))
            .is_some_and(|end| end <= disk.get())
    };
    let mut zones = (disk.get() / zone).min(crate::Geometry::ZONE_COUNT_MAX.into());
    while zones > 0 && !fits(zones) {
        zones -= 1;
    }
    u32::try_from(zones).expect("at most ZONE_COUNT_MAX")
}

/// Identity of this run of the kernel with this disk: a disk that is taken away and comes back may
/// have lost unflushed data, and counts as another one (Linux 5.15, `diskseq` in sysfs).
pub(super) fn boot_id(file: &File, boot: BootId) -> BootId {
    let number = file.metadata().ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let place = format!("/sys/dev/block/{major}:{minor}");
    // A partition is as old as its disk.
    let text = fs::read_to_string(format!("{place}/diskseq"))
        .or_else(|_| fs::read_to_string(format!("{place}/../diskseq")))
        .ok()?;
    let sequence: u64 = text.trim().parse().ok()?;
    let mut identity = boot?;
    for (byte, mixed) in identity.iter_mut().zip(sequence.to_le_bytes()) {
        *byte ^= mixed;
    }
    Some(identity)
}

/// Makes a disk a drive. `progress` gets the number of bytes that are zeroed, and of all to be
/// zeroed.
pub(super) fn create(
    path: &Path,
    options: &CreateOptions,
    drive: &Description,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let failed = |source| io_error("creating", path, source);
    let _claim = Claim::take(path, OpenMode::ReadWrite)?;
    let file = open(path, OpenMode::ReadWrite)?;
    let (layout, disk_len) = (Layout::new(drive), host_len(&file).map_err(failed)?);
    if layout.file_len > disk_len {
        let (path, needed) = (path.display(), layout.file_len);
        let what = format!("{path} has {disk_len} bytes; the zones and their table need {needed}");
        return Err(DeviceError::Geometry { what });
    }
    if options.overwrite == Overwrite::Refuse && !is_empty(&file, disk_len).map_err(failed)? {
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "the disk holds data");
        return Err(failed(source));
    }
    write_new(&file, drive, disk_len, progress).map_err(failed)
}

/// Whether a disk is zeroes where file systems and partition tables begin and end.
fn is_empty(file: &File, disk_len: u64) -> io::Result<bool> {
    let part = END.min(disk_len);
    let mut bytes = vec![0; usize::try_from(part).expect("1 MiB at most")];
    for at in [0, disk_len - part] {
        file.read_exact_at(&mut bytes, at)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Zeroes the parts that are read before they are written, and those where signatures of earlier
/// content may be; writes the headers when that is durable.
fn write_new(
    file: &File,
    drive: &Description,
    disk_len: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<()> {
    let (layout, geometry) = (Layout::new(drive), &drive.geometry);
    let byte = |zone: u32| {
        let blocks = geometry.block_count().min(geometry.zone_start(ZoneId::new(zone)) - Lba::ZERO);
        layout.data_at + geometry.bytes(blocks).get()
    };
    let conventional = geometry.spec().conventional_zones;
    let runs = conventional.runs().iter().map(|run| byte(run.first)..byte(run.end()));
    let ranges = iter::once(0..layout.data_at)
        .chain(runs)
        .chain(iter::once(layout.data_at.max(disk_len.saturating_sub(END))..disk_len));
    // The last ones may overlap.
    let total = ranges.clone().map(|range| range.end - range.start).sum();
    let mut done = 0;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let step = STEP.min(range.end - at);
            zero(file, at, step)?;
            (at, done) = (at + step, done + step);
            progress(done, total);
        }
    }
    file.sync_all()?;
    for copy in [1, 0] {
        let header = format::encode_header(drive, copy);
        file.write_all_at(header.as_bytes(), u64::from(copy) * format::PAGE)?;
    }
    file.sync_all()
}

/// Zeroes a range, by the disk itself where it can.
fn zero(file: &File, at: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(file, flags, at, len).is_ok() {
        return Ok(());
    }
    let zeroes = vec![0; 1 << 20];
    let mut left = len;
    while left > 0 {
        let part = left.min(zeroes.len() as u64);
        file.write_all_at(
            &zeroes[..usize::try_from(part).expect("1 MiB at most")],
            at + len - left,
        )?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn disk_takes_as_many_zones_as_fit(disk in 0..1_u64 << 42, zone_blocks in 1..1_u64 << 20) {
            let zone = zone_blocks * 4096 * 64;
            let count = u64::from(zones_that_fit(ByteCount::new(disk), ByteCount::new(zone)));
            let end = |zones| format::data_at(zones, format::JOURNAL_LEN) + zones * zone;
            prop_assert!(count == 0 || end(count) <= disk);
            prop_assert!(end(count + 1) > disk);
        }
    }
}
