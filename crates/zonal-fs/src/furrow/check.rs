//! `zonal check`: every rule of [`invariant`](super::invariant) against a drive. Writes nothing.

use std::cell::OnceCell;
use std::sync::Arc;

use zonal::{ZoneCond, ZonedDevice};

use super::alloc::Listed;
use super::format::owners::OwnerRecord;
use super::format::{Address, BLOCK_BYTES};
use super::invariant::{self as rule, Problem, Problems};
use super::io::Drive;
use super::layout::Layout;
use super::losses::Loss;
use super::owners::all_runs;
use super::place::{ExtentId, MapEntry, Owner};
use super::planted::Planted;
use super::records::settle;
use super::recover::{self, Copies, Loaded};
use crate::mkfs::Progress;
use crate::vfs::{Ino, Result};

/// Whether to read the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataCheck {
    /// Metadata only.
    #[default]
    Skip,
    /// Every block of every file, against its checksum.
    Read,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Rules that do not hold, the first thousand.
    pub problems: Vec<Problem>,
    /// Those beyond the first thousand.
    pub problems_more: u64,
    /// Data that the drive no longer has: the drive's failure, not the file system's.
    pub losses: Vec<Loss>,
    /// Losses beyond the first thousand.
    pub losses_more: u64,
    /// Name of the file system.
    pub label: String,
    /// Superblocks written over its life.
    pub epoch: u64,
    /// Batches of the journal that had to be replayed.
    pub batches: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes without a link, which the next mount deletes.
    pub orphans: u64,
    /// Extents: runs of blocks that a map entry has alone, or that several share.
    pub extents: u64,
    /// Blocks in extents.
    pub blocks: u64,
    /// Blocks read and verified.
    pub blocks_read: u64,
}

impl CheckReport {
    /// Whether every rule holds and nothing is lost.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.losses.is_empty()
    }
}

/// Checks a device. An error means that there is nothing to check: no superblock, or metadata of
/// which no copy is left.
pub fn check(
    device: Arc<dyn ZonedDevice>,
    data: DataCheck,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let layout = Layout::new(device.geometry())?;
    let drive = Drive::new(device, layout);
    let mut problems = Problems::default();
    let loaded = recover::read(&drive, Copies::Both, Planted::default(), &mut problems)?;
    let runs = all_runs(&loaded.state);
    check_zones(&drive, (&loaded, &runs), &mut problems);
    check_owners(&loaded, &mut problems);
    let blocks_read = match data {
        DataCheck::Skip => 0,
        DataCheck::Read => check_data(&drive, (&loaded, &runs), &mut problems, progress),
    };
    let label = String::from_utf8_lossy(&loaded.superblock.label);
    let state = &loaded.state;
    Ok(CheckReport {
        problems: problems.found,
        problems_more: problems.more,
        label: label.trim_end_matches('\0').to_owned(),
        epoch: loaded.superblock.epoch.get(),
        batches: loaded.batches,
        inodes: state.inodes.len() as u64,
        orphans: state.inodes.values().filter(|inode| inode.nlink == 0).count() as u64,
        extents: runs.len() as u64,
        blocks: state.totals.live,
        blocks_read,
        losses: loaded.losses.found,
        losses_more: loaded.losses.more,
    })
}

/// Compares extents with the zone report.
fn check_zones(
    drive: &Drive,
    (loaded, runs): (&Loaded, &[(u32, OwnerRecord)]),
    problems: &mut Problems,
) {
    let state = &loaded.state;
    for zone in &loaded.zones {
        let slot = state.zones.slot(zone.id.get());
        if zone.cond == ZoneCond::Offline {
            if slot.live > 0 {
                let what = format!("zone {} is offline and held {} blocks", zone.id, slot.live);
                problems.add(rule::ZONES, what);
            }
            continue;
        }
        let Some(written) = zone.written() else { continue };
        let written = written.get() / drive.layout.per_block;
        for run in runs_of(runs, zone.id.get()) {
            let end = u64::from(run.end());
            if end > written {
                let (zone, text) = (zone.id, owner_text(run.owner));
                let what =
                    format!("{text} ends at block {end} of zone {zone}, written up to {written}");
                problems.add(rule::WRITTEN, what);
            }
        }
    }
}

/// Compares the lists of owners with what lives in their zones.
fn check_owners(loaded: &Loaded, problems: &mut Problems) {
    let zones = &loaded.state.zones;
    for zone in zones.ids() {
        let slot = zones.slot(zone);
        if slot.listed != Listed::Yes || slot.live == 0 {
            continue;
        }
        let mut records = loaded.owners.get(&zone).cloned().unwrap_or_default();
        settle(&mut records);
        let pieces = records.iter().filter_map(|record| loaded.state.pieces_at(zone, record).ok());
        let found: u32 = pieces.flatten().map(|piece| piece.blocks()).sum();
        if found != slot.live {
            let what = format!("zone {zone} lists owners of {found} blocks of {}", slot.live);
            problems.add(rule::LISTED, what);
        }
    }
}

/// Those in a zone.
fn runs_of(runs: &[(u32, OwnerRecord)], zone: u32) -> impl Iterator<Item = &OwnerRecord> {
    let first = runs.partition_point(|(other, _)| *other < zone);
    runs[first..].iter().take_while(move |(other, _)| *other == zone).map(|(_, run)| run)
}

fn owner_text(owner: Owner) -> String {
    match owner {
        Owner::Entry(ino, first) => format!("inode {ino} block {first}"),
        Owner::Extent(id) => format!("extent {}", id.0),
    }
}

/// Reads every extent, zone by zone, and names the file of each wrong block.
fn check_data(
    drive: &Drive,
    (loaded, runs): (&Loaded, &[(u32, OwnerRecord)]),
    problems: &mut Problems,
    progress: &mut dyn FnMut(Progress),
) -> u64 {
    let total = runs.chunk_by(|left, right| left.0 == right.0).count() as u64;
    let (mut done, mut blocks) = (0, 0);
    let sharers = OnceCell::new();
    for zone in runs.chunk_by(|left, right| left.0 == right.0) {
        progress(Progress { done, total });
        for (zone, run) in zone {
            // All of it is in memory.
            for piece in loaded.state.pieces_at(*zone, run).into_iter().flatten() {
                let owner_of = |index| match piece.owner {
                    Owner::Entry(ino, first) => Some((ino, first + u64::from(index))),
                    Owner::Extent(id) => {
                        sharers.get_or_init(|| Sharers::of(loaded)).find(id, index)
                    }
                };
                let at = Address { zone: *zone, block: piece.block };
                check_run(drive, (at, &piece.crcs), owner_of, problems);
                blocks += u64::from(piece.blocks());
            }
        }
        done += 1;
    }
    progress(Progress { done, total });
    blocks
}

fn check_run(
    drive: &Drive,
    (at, crcs): (Address, &[u32]),
    owner_of: impl Fn(u32) -> Option<(Ino, u64)>,
    problems: &mut Problems,
) {
    let mut buffer = vec![0; crcs.len() * BLOCK_BYTES];
    let wrong = match drive.read_verified(at, crcs, &mut buffer) {
        Ok(wrong) => wrong,
        Err(error) => {
            problems.add(rule::DATA, format!("zone {} block {}: {error}", at.zone, at.block));
            return;
        }
    };
    for index in wrong {
        let (zone, block) = (at.zone, at.block + index);
        let what = match owner_of(index) {
            Some((ino, block_of_file)) => format!(
                "zone {zone} block {block}: byte {} of inode {ino}",
                block_of_file * BLOCK_BYTES as u64
            ),
            None => format!("zone {zone} block {block}"),
        };
        problems.add(rule::DATA, what);
    }
}

/// Map entries of shared extents, made when the first wrong block of one is found: a drive can have
/// millions.
struct Sharers(Vec<Sharer>);

/// In the order of extents and of blocks in them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sharer {
    extent: ExtentId,
    skip: u32,
    ino: Ino,
    first: u64,
    blocks: u32,
}

impl Sharers {
    fn of(loaded: &Loaded) -> Self {
        let mut sharers = Vec::new();
        for (&ino, inode) in &loaded.state.inodes {
            let Ok(file) = inode.file() else { continue };
            for (&first, entry) in &file.map {
                if let MapEntry::Shared { extent, skip, blocks } = *entry {
                    sharers.push(Sharer { extent, skip, ino, first, blocks });
                }
            }
        }
        sharers.sort_unstable();
        Self(sharers)
    }

    /// A file that has a block of an extent, and which of its blocks it is.
    fn find(&self, id: ExtentId, index: u32) -> Option<(Ino, u64)> {
        let start = self.0.partition_point(|sharer| sharer.extent < id);
        let of_extent = self.0[start..].iter().take_while(|sharer| sharer.extent == id);
        let mut of_extent = of_extent.take_while(|sharer| sharer.skip <= index);
        let sharer = of_extent.find(|sharer| index < sharer.skip + sharer.blocks)?;
        Some((sharer.ino, sharer.first + u64::from(index - sharer.skip)))
    }
}
