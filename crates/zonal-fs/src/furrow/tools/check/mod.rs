//! `zonal check`: every rule of [`invariant`](crate::furrow::invariant) against a drive. Read-only.
//!
//! A drive can have more metadata than the machine has memory. So a check reads the table part by
//! part, and then all rows in several passes, in the order of their keys:
//!
//! | file | question |
//! | --- | --- |
//! | [`pass`] | where do rows come from? |
//! | [`survey`], [`orphans`] | is each row right, and each inode with its rows, and are the sums? |
//! | [`links`], [`reach`] | do entries and inodes fit, and is everything reachable? |
//! | [`names`] | can large directories be searched by name? |
//! | [`shared`] | do shared extents have the references that they say? |
//! | [`zones`], [`data`] | do blocks have one owner each, is it listed, and is the data right? |
//! | [`lost`], [`paths`](crate::furrow::recovery::paths) | which files are hurt, and where? |

mod data;
mod links;
mod lost;
mod names;
mod orphans;
mod pass;
mod reach;
mod shared;
mod survey;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::BTreeSet;

use crate::furrow::drive::Drive;
use crate::furrow::drive::drives::Drives;
use crate::furrow::format::row::{CopySpace, Place, Row, ZoneRow};
use crate::furrow::invariant::{Problem, Problems};
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::planted::Planted;
use crate::furrow::recovery::losses::{Loss, Losses};
use crate::furrow::recovery::paths::{Entries, Paths};
use crate::furrow::recovery::{self, Opened};
use crate::furrow::table::key::KeySpan;
use crate::furrow::table::verify::check_levels;
use crate::vfs::{Ino, Result};
use pass::{Item, RowSource};
use survey::{Survey, SurveyTotals, Surveyed};

/// Whether a check reads data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataCheck {
    /// Metadata only.
    #[default]
    Skip,
    /// Every block of every file, against its checksum.
    Read,
}

/// Options of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Whether to read the data.
    pub data: DataCheck,
    /// Bytes of memory for comparisons, in addition to some 100 MiB that a check takes anyway. With
    /// less memory it makes more passes over the metadata.
    pub memory: u64,
}

impl CheckOptions {
    /// Default of `memory`, in bytes.
    pub const MEMORY: u64 = 256 << 20;
}

impl From<DataCheck> for CheckOptions {
    fn from(data: DataCheck) -> Self {
        Self { data, memory: Self::MEMORY }
    }
}

/// A phase of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckPhase {
    /// Reads both copies of the table's parts.
    Table,
    /// Reads all rows.
    Rows,
    /// Finds entries and inodes that do not match.
    Links,
    /// Compares the names of large directories.
    Names,
    /// Compares shared extents with the map entries that name them.
    Shared,
    /// Compares owners of blocks with back-references.
    Zones,
    /// Reads data.
    Data,
    /// Finds paths of the inodes with problems.
    Paths,
}

impl CheckPhase {
    /// Name of the phase, for a progress display.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "copies",
            Self::Rows => "rows",
            Self::Links => "links",
            Self::Names => "names",
            Self::Shared => "shared extents",
            Self::Zones => "zones",
            Self::Data => "data",
            Self::Paths => "paths",
        }
    }
}

/// Progress of a check. A phase can come more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// The phase.
    pub phase: CheckPhase,
    /// Work done, in units of the phase: bytes, rows or blocks.
    pub done: u64,
    /// Work in all, in the same unit.
    pub total: u64,
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Violations of rules, at most the first thousand.
    pub problems: Vec<Problem>,
    /// Number of further violations.
    pub problems_more: u64,
    /// Files with data that the drive has lost, at most the first thousand.
    pub losses: Vec<Loss>,
    /// Number of further losses.
    pub losses_more: u64,
    /// Name of the file system.
    pub label: String,
    /// Superblocks written over its life.
    pub epoch: u64,
    /// Batches of the journal that the check has replayed in memory.
    pub batches: u64,
    /// Inodes.
    pub inodes: u64,
    /// Inodes without a link, which the next mount deletes.
    pub orphans: u64,
    /// Runs of blocks: those of map entries and shared extents.
    pub extents: u64,
    /// Blocks in these runs.
    pub blocks: u64,
    /// Blocks read and verified.
    pub blocks_read: u64,
}

impl CheckReport {
    /// Whether all rules hold and no data is lost.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.losses.is_empty()
    }
}

/// Size of the leaf cache during a check, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Checks the file system on a device, and calls `progress` meanwhile.
///
/// # Errors
///
/// The device has no valid superblock or no readable manifest. All else that is wrong is in the
/// report.
pub fn check(
    drives: impl Into<Drives>,
    options: impl Into<CheckOptions>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let drive = Drive::of(&drives.into())?;
    let mut problems = Problems::default();
    let opened = recovery::open(&drive, Planted::default(), &mut problems)?;
    opened.table.view.limit_cache(CACHE_BYTES);
    let levels = opened.table.view.levels();
    check_levels(&drive, opened.superblock.uuid, &levels, &mut problems, &mut |done, total| {
        progress(CheckProgress { phase: CheckPhase::Table, done, total });
    });
    check_rows(&drive, &opened, &options.into(), problems, progress)
}

/// Checks all rows.
fn check_rows(
    drive: &Drive,
    opened: &Opened,
    options: &CheckOptions,
    mut problems: Problems,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let slots = opened.slots(drive);
    let mut source = RowSource::new(drive, opened, progress);
    let mut survey = Survey::new(&source, &slots, &opened.zones, options.memory);
    source.pass(CheckPhase::Rows, KeySpan::ALL, &mut |item| survey.put(item))?;
    survey.end();
    let Surveyed { found, zones, zone_rows, tree, lost, sums, mut others, rows } =
        survey.surveyed();
    let mut broken = rows;
    let key = NameKey::of(opened.superblock.uuid);
    let large: Vec<u64> = tree.large().collect();
    tree.check(&mut source, key, options.memory, &lost, &mut broken)?;
    if found.shared + found.sharers > 0 {
        shared::check(&mut source, options.memory, &lost, &mut broken)?;
    }
    let is_listed = |(zone, row): (u64, &Option<ZoneRow>)| {
        !lost.touch_zone(zone) && row.as_ref().is_some_and(|row| row.listed == 1)
    };
    let listed: Vec<bool> = (0..).zip(&zone_rows).map(is_listed).collect();
    let looked = zones::ZonePass {
        slots: &slots,
        counts: &zones,
        listed: &listed,
        may_lack: lost.touch_places(),
        options,
    };
    let blocks_read = looked.check(&mut source, &mut broken, &mut others)?;
    if broken.count() == 0 {
        broken = sums;
    }
    problems.append(broken);
    problems.append(others);
    let live_end = |zone: u32| {
        let count = &zones[zone as usize];
        (count.live > 0).then_some(count.end)
    };
    let mut losses = Losses::find(drive, &opened.table.view, &opened.zones, live_end)?;
    if !lost.is_empty() {
        lost::report(&mut source, &lost, &large, &mut problems)?;
    }
    add_paths(&mut source, &mut problems, &mut losses)?;
    Ok(report(opened, problems, losses, &found, blocks_read))
}

/// Fills in the paths of problems and losses.
fn add_paths(
    source: &mut RowSource<'_>,
    problems: &mut Problems,
    losses: &mut Losses,
) -> Result<()> {
    let of_problems = problems.found.iter().filter_map(|problem| problem.ino);
    let of_losses = losses.found.iter().map(|loss| loss.ino);
    let wanted: BTreeSet<u64> = of_problems.chain(of_losses).map(Ino::get).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut paths = Paths::of(entries_of(source, &wanted)?);
    let (drive, view) = (source.drive, source.view);
    for problem in &mut problems.found {
        problem.path = problem.ino.and_then(|ino| paths.path(drive, view, ino));
    }
    for loss in &mut losses.found {
        loss.path = paths.path(drive, view, loss.ino);
    }
    Ok(())
}

/// Finds one entry of each of these inodes, by one pass over all entries.
fn entries_of(source: &mut RowSource<'_>, wanted: &BTreeSet<u64>) -> Result<Entries> {
    let mut entries = Entries::new();
    if wanted.iter().all(|&ino| ino == Ino::ROOT.get()) {
        return Ok(entries);
    }
    source.pass(CheckPhase::Paths, KeySpan::INODES, &mut |item| {
        if let Item::Row(key, Row::Entry(row, name), _) = item
            && wanted.contains(&row.ino.get())
        {
            entries.entry(row.ino.get()).or_insert_with(|| (key.owner(), name.into()));
        }
    })?;
    Ok(entries)
}

fn report(
    opened: &Opened,
    problems: Problems,
    losses: Losses,
    found: &SurveyTotals,
    blocks_read: u64,
) -> CheckReport {
    let label = String::from_utf8_lossy(&opened.superblock.label);
    CheckReport {
        problems: problems.found,
        problems_more: problems.more,
        label: label.trim_end_matches('\0').to_owned(),
        epoch: opened.superblock.epoch.get(),
        batches: opened.batches,
        inodes: found.inodes,
        orphans: found.unlinked,
        extents: found.runs,
        blocks: found.live,
        blocks_read,
        losses: losses.found,
        losses_more: losses.more,
    }
}

/// Hashes a number to 64 bits.
fn mix(number: u64) -> u64 {
    // The finalizer of splitmix64.
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Describes the place of a map row.
fn place_text(blocks: u32, place: &Place<'_>) -> String {
    match place {
        Place::Preallocated => format!("{blocks} blocks, preallocated"),
        Place::Zone(place, _) => {
            let generation = place.generation();
            let (zone, generation) = (generation.zone(), generation.generation());
            format!("{blocks} blocks at zone {zone} block {}, generation {generation}", place.block)
        }
        Place::Shared(place, space) => {
            let text = format!("{blocks} blocks behind {} of extent {}", place.skip, place.extent);
            match space {
                CopySpace::None => text,
                CopySpace::Preallocated => text + ", with space for a copy",
            }
        }
    }
}
