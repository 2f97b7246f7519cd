//! The division of a drive: shares of metadata, of reclaim and of files.

use zonal::{Zone, ZoneCond, ZonedDevice};

use crate::furrow::drive::Drive;
use crate::furrow::drive::drives::Drives;
use crate::furrow::drive::layout::{Layout, RowBytes};
use crate::furrow::format::BLOCK_SHIFT;
use crate::furrow::invariant::Problems;
use crate::furrow::metadata::rows::totals::Totals;
use crate::furrow::planted::Planted;
use crate::furrow::recovery;
use crate::vfs::Result;

/// Bytes of the drive for data by their use. All from `failed` to `files`, but `table_now`, add up
/// to `drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Capacity of all zones.
    pub drive: u64,
    /// Zones that are read-only or offline.
    pub failed: u64,
    /// The superblock log.
    pub superblocks: u64,
    /// The journal, in two copies.
    pub journal: u64,
    /// The table, in two copies, once files fill their share.
    pub table: u64,
    /// Bytes of the table now, the zone that is being written included.
    pub table_now: u64,
    /// Reserved so that journal and table can go on.
    pub spare: u64,
    /// Reserved so that reclaim finds garbage, and room for the live blocks that it moves.
    pub reclaim: u64,
    /// Reserved for rows: overwriting every block by itself makes one for each.
    pub fragments: u64,
    /// For files.
    pub files: u64,
    /// Bytes of files in use.
    pub used: u64,
    /// The metadata drive, if there is one.
    pub metadata: Option<MetadataDivision>,
}

/// Bytes of a metadata drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataDivision {
    /// Capacity of all zones.
    pub drive: u64,
    /// Bytes that the first copies of all metadata need once files fill their share. Those without
    /// room there go to the drive for data.
    pub wanted: u64,
}

/// The division that [`mkfs`](crate::furrow::mkfs()) would make with this reserve. Writes nothing.
pub fn plan(drives: impl Into<Drives>, reserve_percent: u32) -> Result<Division> {
    let drives = drives.into();
    let layout = Layout::new(&drives)?;
    let zones = drives.device().report_all()?;
    Ok(divide(&layout, &zones, reserve_percent, &Totals::default(), RowBytes::default()))
}

/// The division of a drive that has a file system. Writes nothing.
pub fn division(drives: impl Into<Drives>) -> Result<Division> {
    let drive = Drive::of(&drives.into())?;
    let loaded = recovery::read_base(&drive, Planted::default(), &mut Problems::default())?;
    let reserve = loaded.superblock.reserve_percent.get();
    let totals = &loaded.state.rows.totals;
    let rows = totals.rows(loaded.table.view.packed_bytes(0));
    Ok(divide(&drive.layout, &loaded.zones, reserve, totals, rows))
}

fn divide(
    layout: &Layout,
    zones: &[Zone],
    reserve_percent: u32,
    totals: &Totals,
    rows: RowBytes,
) -> Division {
    let capacity = |zone: &Zone| u64::from(layout.capacity(zone.id.get()));
    let (zones, others) = zones.split_at(layout.data_zones as usize);
    let is_super = |zone: &&Zone| layout.is_superblock(zone.id.get());
    let has_failed = |zone: &&Zone| {
        !is_super(zone) && matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline)
    };
    let drive: u64 = zones.iter().map(capacity).sum();
    let superblocks: u64 = zones.iter().filter(is_super).map(capacity).sum();
    let failed: u64 = zones.iter().filter(has_failed).map(capacity).sum();
    let usable = drive - superblocks - failed;
    let shares = layout.shares(usable, reserve_percent, rows);
    let bytes = |blocks: u64| blocks << BLOCK_SHIFT;
    let rest = shares.journal + shares.table + shares.spare + shares.reclaim + shares.files;
    Division {
        drive: bytes(drive),
        failed: bytes(failed),
        superblocks: bytes(superblocks),
        journal: bytes(shares.journal),
        table: bytes(shares.table),
        table_now: layout.on_data_drive(2 * layout.pairs_for(rows.bytes())) * layout.zone_bytes(),
        spare: bytes(shares.spare),
        reclaim: bytes(shares.reclaim),
        fragments: bytes(usable.saturating_sub(rest)),
        files: bytes(shares.files),
        used: bytes(totals.live() + totals.preallocated()),
        metadata: (!others.is_empty()).then(|| MetadataDivision {
            drive: bytes(others.iter().map(capacity).sum()),
            wanted: layout.metadata_zones_wanted(shares.files) * layout.zone_bytes(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::{Furrow, MountOptions};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

    fn sum(division: &Division) -> u64 {
        let Division { failed, superblocks, journal, table, spare, .. } = *division;
        let Division { reclaim, fragments, files, .. } = *division;
        failed + superblocks + journal + table + spare + reclaim + fragments + files
    }

    #[test]
    fn division_shares_add_up_and_match_statfs() {
        for (zones, zone_blocks) in [(24, 64), (40, 512), (96, 1024), (1000, 64)] {
            let (drive, clock) = formatted(zones, zone_blocks);
            let planned = plan(drive.clone(), 7).unwrap();
            let made = division(drive.clone()).unwrap();
            assert_eq!((sum(&planned), sum(&made)), (planned.drive, made.drive), "{made:?}");
            assert_eq!(planned.drive, zones * zone_blocks * 4096);
            let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
            assert_eq!(planned.files, fs.statfs().unwrap().blocks * 4096);
            let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
            let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
            fs.write(file, 0, &vec![1; 9 * 4096], WriteFlags::empty()).unwrap();
            fs.shutdown().unwrap();
            let used = division(drive).unwrap();
            assert_eq!((used.used, sum(&used)), (9 * 4096, used.drive));
            assert!(used.table_now <= used.table, "{used:?}");
        }
    }
}
