//! `zonal check`: every rule of [`invariant`](crate::furrow::invariant) against a drive. Writes nothing.
//!
//! A drive can have more metadata than there is memory, so nothing here holds all of it. The table is
//! read part by part, and then the rows in passes, in the order of their keys:
//!
//! | file | question |
//! | --- | --- |
//! | [`pass`] | where do rows come from? |
//! | [`survey`], [`orphans`] | what does a row say by itself, or beside those of its inode, and what are the sums? |
//! | [`links`], [`reach`] | do entries and inodes fit, and is everything reachable? |
//! | [`names`] | can large directories be searched by name? |
//! | [`shared`] | do shared extents have the references that they say? |
//! | [`zones`], [`data`] | do blocks have one owner each, is it listed, and is the data right? |
//! | [`lost`], [`paths`](crate::furrow::metadata::paths) | which files are hurt, where are they, and what can be said nevertheless? |

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
use std::sync::Arc;

use zonal::ZonedDevice;

use crate::furrow::drive::Drive;
use crate::furrow::drive::layout::Layout;
use crate::furrow::format::row::{Place, Row, ZoneRow};
use crate::furrow::invariant::{Problem, Problems};
use crate::furrow::metadata::names::NameKey;
use crate::furrow::metadata::paths::{Entries, Paths};
use crate::furrow::planted::Planted;
use crate::furrow::recovery::losses::{Loss, Losses};
use crate::furrow::recovery::{self, Opened};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::verify::check_levels;
use crate::vfs::{Ino, Result};
use pass::{Item, Source};
pub(in crate::furrow) use reach::Inos;
use survey::{Found, Survey, Surveyed};

/// Whether to read the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataCheck {
    /// Metadata only.
    #[default]
    Skip,
    /// Every block of every file, against its checksum.
    Read,
}

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Whether to read the data.
    pub data: DataCheck,
    /// Bytes for what is compared, beside some 100 MiB that a check takes in any case. With less
    /// there are more passes over the metadata.
    pub memory: u64,
}

impl CheckOptions {
    /// Bytes unless the caller wants another number.
    pub const MEMORY: u64 = 256 << 20;
}

impl From<DataCheck> for CheckOptions {
    fn from(data: DataCheck) -> Self {
        Self { data, memory: Self::MEMORY }
    }
}

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckPhase {
    /// Both copies of the table's parts are read.
    Table,
    /// All rows are looked at.
    Rows,
    /// Entries and inodes that do not fit are searched.
    Links,
    /// Names of large directories are compared.
    Names,
    /// Shared extents are compared with what refers to them.
    Shared,
    /// Owners of blocks are compared.
    Zones,
    /// Data is read.
    Data,
    /// Paths of what was found are searched.
    Paths,
}

impl CheckPhase {
    /// A word or two for it.
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

/// How far a check has got. A phase can come more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// What it is doing.
    pub phase: CheckPhase,
    /// Of that, so much is done.
    pub done: u64,
    /// And so much is to be done.
    pub total: u64,
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

/// Bytes of leaves that are kept between two steps of a pass.
const CACHE_BYTES: usize = 16 << 20;

/// Checks a device. An error means that there is nothing to check: no superblock, or a manifest of
/// which no copy is left.
pub fn check(
    device: Arc<dyn ZonedDevice>,
    options: impl Into<CheckOptions>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let layout = Layout::new(device.geometry())?;
    let drive = Drive::new(device, layout);
    let mut problems = Problems::default();
    let opened = recovery::open(&drive, Planted::default(), &mut problems)?;
    opened.table.view.limit_cache(CACHE_BYTES);
    let levels = opened.table.view.levels();
    check_levels(&drive, opened.superblock.uuid, &levels, &mut problems, &mut |done, total| {
        progress(CheckProgress { phase: CheckPhase::Table, done, total });
    });
    check_rows(&drive, &opened, (&options.into(), problems), progress)
}

/// Checks all rows.
fn check_rows(
    drive: &Drive,
    opened: &Opened,
    (options, mut problems): (&CheckOptions, Problems),
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let slots = opened.slots(drive);
    let mut source = Source::new(drive, opened, progress);
    let mut survey = Survey::new(&source, (&slots, &opened.zones), options.memory);
    source.pass(CheckPhase::Rows, (Key::MIN, Key::MAX), &mut |item| survey.put(item))?;
    survey.end();
    let Surveyed { found, zones, zone_rows, tree, lost, sums, mut others, rows } =
        survey.surveyed();
    let mut broken = rows;
    let key = NameKey::of(opened.superblock.uuid);
    let large: Vec<u64> = tree.large().collect();
    tree.check(&mut source, (key, options.memory, &lost), &mut broken)?;
    if found.shared + found.sharers > 0 {
        shared::check(&mut source, (options.memory, &lost), &mut broken)?;
    }
    let is_listed = |(zone, row): (u64, &Option<ZoneRow>)| {
        !lost.touch_zone(zone) && row.as_ref().is_some_and(|row| row.listed == 1)
    };
    let listed: Vec<bool> = (0..).zip(&zone_rows).map(is_listed).collect();
    let looked = zones::Zones {
        slots: &slots,
        counts: &zones,
        listed: &listed,
        may_lack: lost.touch_places(),
        options,
    };
    let blocks_read = looked.check(&mut source, (&mut broken, &mut others))?;
    if broken.count() == 0 {
        broken = sums;
    }
    problems.append(broken);
    problems.append(others);
    let live = |zone: u32| {
        let count = &zones[zone as usize];
        (u32::try_from(count.live).unwrap_or(u32::MAX), count.end)
    };
    let mut losses = Losses::find(drive, &opened.table.view, (&opened.zones, &live))?;
    if !lost.is_empty() {
        lost::report(&mut source, (&lost, &large), &mut problems)?;
    }
    add_paths(&mut source, &mut problems, &mut losses)?;
    Ok(report(opened, (problems, losses), &found, blocks_read))
}

/// Says where what was found is.
fn add_paths(source: &mut Source<'_>, problems: &mut Problems, losses: &mut Losses) -> Result<()> {
    let of_problems = problems.found.iter().filter_map(|problem| problem.ino);
    let of_losses = losses.found.iter().map(|loss| loss.ino);
    let wanted: BTreeSet<u64> = of_problems.chain(of_losses).map(Ino::get).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut paths = Paths::of(entries_of(source, &wanted)?);
    let rows = (source.drive, source.view);
    for problem in &mut problems.found {
        problem.path = problem.ino.and_then(|ino| paths.path(rows, ino));
    }
    for loss in &mut losses.found {
        loss.path = paths.path(rows, loss.ino);
    }
    Ok(())
}

/// An entry that leads to each of these inodes, by one pass over all entries.
fn entries_of(source: &mut Source<'_>, wanted: &BTreeSet<u64>) -> Result<Entries> {
    let mut entries = Entries::new();
    if wanted.iter().all(|&ino| ino == Ino::ROOT.get()) {
        return Ok(entries);
    }
    let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
    source.pass(CheckPhase::Paths, range, &mut |item| {
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
    (problems, losses): (Problems, Losses),
    found: &Found,
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

/// Spreads a number over 64 bits.
fn mix(number: u64) -> u64 {
    // The finalizer of splitmix64.
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// What a map row says, in words.
fn place_text(blocks: u32, place: &Place<'_>) -> String {
    match place {
        Place::Preallocated => format!("{blocks} blocks, preallocated"),
        Place::Zone(place, _) => {
            let generation = place.generation();
            let (zone, generation) = (generation.zone(), generation.generation());
            format!("{blocks} blocks at zone {zone} block {}, generation {generation}", place.block)
        }
        Place::Shared(place) => {
            format!("{blocks} blocks behind {} of extent {}", place.skip, place.extent)
        }
    }
}
