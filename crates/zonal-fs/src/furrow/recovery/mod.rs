//! Recovery: reads the state of the last commit from a drive, in the order superblock → manifest →
//! journal → table → zone report.
//!
//! [`open`] finds the rows. [`read_base`] reads the few that a mount needs, and
//! [rebuilds](crate::furrow::recovery::rebuild) them if they are lost. Neither writes anything, so
//! a read-only mount and the tools use them as well; [`resume`] does the rest for a writable mount.

pub(super) mod contents;
pub(super) mod ino_set;
pub(super) mod losses;
pub(super) mod paths;
pub(super) mod rebuild;
pub(super) mod replay;
pub(super) mod resume;

use std::collections::BTreeSet;
use std::sync::Arc;

use zerocopy::byteorder::little_endian::U32;
use zonal::{Zone, ZoneCond};

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::manifest::Manifest;
use crate::furrow::format::record::RecordKind;
use crate::furrow::format::row::decode;
use crate::furrow::format::superblock::{ManifestPointer, Superblock, conventional_crc};
use crate::furrow::format::{Address, blocks_for};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::log::journal::{Journal, Trust, first_valid, read_record};
use crate::furrow::log::superblock_log::{self, FoundSuperblock};
use crate::furrow::metadata::State;
use crate::furrow::metadata::directory::names::NameKey;
use crate::furrow::metadata::state::sums::Base;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::recovery::contents::missing_error;
use crate::furrow::recovery::losses::Losses;
use crate::furrow::recovery::replay::{Batch, JournalReader};
use crate::furrow::table::Table;
use crate::furrow::table::key::{Key, KeySpan};
use crate::furrow::table::leaf::decode_rows;
use crate::furrow::table::levels::Levels;
use crate::furrow::table::memtable::Memtable;
use crate::furrow::table::view::View;
use crate::furrow::truncate::lost_blocks::lost_generations;
use crate::furrow::zones::{Role, ZoneSlot, Zones};
use crate::vfs::Result;

/// Bytes of leaves and indexes in the cache.
const CACHE_BYTES: usize = 64 << 20;

/// Rows of the base that one read returns.
const BASE_ROWS: usize = 4096;

/// Everything that recovery reads from a drive.
pub(super) struct LoadedDrive {
    pub(super) found: Vec<FoundSuperblock>,
    pub(super) superblock: Superblock,
    pub(super) journal: Journal,
    /// The table, with the rows of the journal in its memtable.
    pub(super) table: Table,
    pub(super) state: State,
    pub(super) zones: Vec<Zone>,
    /// Ranges of files that the drive has lost: above a write pointer or in an offline zone.
    pub(super) losses: Losses,
    /// Batches that the journal had.
    pub(super) batches: u64,
    pub(super) newest: NewestCommit,
}

/// The structures that lead to the rows.
pub(super) struct Opened {
    found: Vec<FoundSuperblock>,
    pub(super) superblock: Superblock,
    pub(super) manifest: Manifest,
    journal: Journal,
    /// The table, with the rows of the journal in its memtable.
    pub(super) table: Table,
    pub(super) zones: Vec<Zone>,
    /// Batches that the journal had.
    pub(super) batches: u64,
    pub(super) newest: NewestCommit,
}

impl Opened {
    /// Zones with the roles that superblock, manifest and zone report give them.
    pub(super) fn slots(&self, drive: &Drive) -> Vec<ZoneSlot> {
        zone_slots(drive, &self.superblock, &self.manifest, &self.zones)
    }

    /// Adds the state that the rows describe, and the ranges that the drive has lost.
    fn loaded(self, drive: &Drive, mut state: State) -> Result<LoadedDrive> {
        let Self { found, superblock, journal, table, zones, batches, newest, .. } = self;
        state.rows.batch.begin_at(journal.end.last + 1);
        let mut moved_from = table.view.remapped_zones();
        moved_from.extend(lost_generations(drive, &table.view, &state.zones)?);
        state.zones.restore_generations(&moved_from);
        let live_end = |zone| {
            let slot = state.zones.slot(zone);
            (slot.live > 0).then_some(slot.end)
        };
        let losses = Losses::find(drive, &table.view, &zones, live_end)?;
        Ok(LoadedDrive { found, superblock, journal, table, state, zones, losses, batches, newest })
    }
}

/// Reads the rows that a mount needs at once. The state then has zones, totals, and in
/// `inodes.lives` the deleted and truncated files of which something is left; it has no inodes and
/// no extents.
pub(super) fn read_base(
    drive: &Drive,
    planted: Planted,
    problems: &mut Problems,
) -> Result<LoadedDrive> {
    let opened = open(drive, planted, problems)?;
    let base = match base_of(drive, &opened, problems) {
        Ok(base) if !rebuild::is_root_lost(drive, &opened.table.view)? => base,
        Ok(_) | Err(FsError::Corrupt { .. } | FsError::Refused { .. }) => {
            rebuild::rebuild(drive, &opened, problems)?;
            base_of(drive, &opened, problems)?
        }
        Err(error) => return Err(error),
    };
    let zones = Zones::new(opened.slots(drive), drive.layout.zone_limits());
    let state = base.into_state(zones, NameKey::of(opened.superblock.uuid), problems);
    opened.loaded(drive, state)
}

/// Reads the rows that a mount needs at once.
fn base_of(drive: &Drive, opened: &Opened, problems: &mut Problems) -> Result<Base> {
    let mut base = Base::default();
    let mut from = Key::MIN;
    while from < Key::BASE_END {
        let found = opened.table.view.rows(drive, KeySpan::new(from, Key::BASE_END), BASE_ROWS)?;
        for (key, value) in &found.rows {
            match decode(*key, value) {
                Ok(row) => base.put(*key, &row),
                Err(why) => problems.add(rule::ROWS, why),
            }
        }
        from = found.end;
    }
    Ok(base)
}

/// Opens the table and replays the journal into its memtable. Adds problems that leave the rows
/// usable to `problems`.
pub(super) fn open(drive: &Drive, planted: Planted, problems: &mut Problems) -> Result<Opened> {
    let superblock_log::SuperblockSearch { found, bad, is_stale } = superblock_log::find_all(drive);
    let newest = superblock_log::newest(&found, &bad, planted);
    let superblock = *newest.map_err(|error| missing_error(drive, error))?;
    for why in bad {
        problems.add(rule::SUPERBLOCKS, why);
    }
    if is_stale {
        let epoch = superblock.epoch;
        let what = format!("neither pair of zones can be read behind epoch {epoch}");
        problems.add(rule::NEWEST, what);
    }
    check_drives(drive, &found, &superblock)?;
    check_geometry(drive, &superblock)?;
    let manifest = read_manifest(drive, &superblock, problems)?;
    let levels = read_levels(drive, &manifest)?;
    let zones = drive.device.report_all()?;
    let reader = JournalReader::new(drive, &zones, &superblock, &manifest, planted);
    let mut memtable = Memtable::default();
    let known = superblock.last_batch.get();
    let Replayed { journal, batches, mut newest } = replay(reader, &mut memtable, problems)?;
    let goes_on = journal.end.last > known;
    let progress = if goes_on { JournalReach::Further } else { JournalReach::Superblock };
    newest.is_single |= check_superblocks(drive, &found, &superblock, progress, problems);
    if journal.end.last < known {
        let what = format!("the journal ends with batch {}, not {known}", journal.end.last);
        problems.add(rule::BATCHES, what);
    }
    let suspects = cut_off(drive, &levels, &zones);
    let view = View::new(superblock.uuid, levels, memtable, CACHE_BYTES);
    view.suspect(suspects);
    view.load_remaps(drive)?;
    let table = table_of(view, &superblock, &manifest);
    Ok(Opened { found, superblock, manifest, journal, table, zones, batches, newest })
}

/// Whether a pair lacks the newest superblock. That is no problem if the power failed during its
/// write: the pair ends with the superblock before, and no later batch proves that the newest one
/// was durable.
fn check_superblocks(
    drive: &Drive,
    found: &[FoundSuperblock],
    newest: &Superblock,
    progress: JournalReach,
    problems: &mut Problems,
) -> bool {
    let mut is_single = false;
    for pair in drive.layout.superblock_pairs {
        let of_pair = superblock_log::newest_of(found, pair);
        if of_pair.is_some_and(|found| found.superblock.epoch == newest.epoch) {
            continue;
        }
        is_single = true;
        let is_before =
            |found: &FoundSuperblock| found.superblock.epoch.get() + 1 == newest.epoch.get();
        let is_cut_off = of_pair.is_some_and(|found| is_before(found) && found.is_last);
        if !is_cut_off || progress == JournalReach::Further {
            let what = format!("neither of zones {pair:?} has epoch {}", newest.epoch);
            problems.add(rule::SUPERBLOCKS, what);
        }
    }
    is_single
}

/// How far the journal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalReach {
    /// Up to the batch that was durable at the time of the newest superblock.
    Superblock,
    /// Beyond that batch: so the superblock was durable, too.
    Further,
}

/// Refuses a data drive without its metadata drive, and drives of different file systems.
fn check_drives(drive: &Drive, found: &[FoundSuperblock], superblock: &Superblock) -> Result<()> {
    let refused = |why: &str| Err(FsError::MetadataDrive { why: why.into() });
    let layout = &drive.layout;
    let has_two = layout.has_metadata_drive();
    if has_two != (superblock.data_zones.get() > 0) {
        return refused(if has_two {
            "the file system has none"
        } else {
            "it is missing, and the file system needs both drives"
        });
    }
    let others = found.iter().filter(|other| other.superblock.uuid != superblock.uuid);
    if has_two && others.count() > 0 {
        return refused("it has the metadata of another file system");
    }
    let [_, pair] = layout.superblock_pairs;
    let is_empty = pair.iter().all(|&zone| drive.cond(zone) == Some(ZoneCond::Empty));
    if has_two && is_empty {
        return refused("it is empty");
    }
    Ok(())
}

/// Refuses a drive whose geometry is not the one that mkfs found.
fn check_geometry(drive: &Drive, superblock: &Superblock) -> Result<()> {
    let spec = drive.layout.geometry.spec();
    let drive_has = [
        spec.block_size.bytes(),
        spec.block_count.get(),
        spec.zone_size.get(),
        spec.zone_capacity.get(),
        u64::from(spec.conventional_zones.zone_count()),
        u64::from(conventional_crc(&spec.conventional_zones)),
        u64::from(superblock.data_zones.get().min(drive.layout.data_zones)),
    ];
    let formatted = [
        u64::from(superblock.device_block.get()),
        superblock.device_blocks.get(),
        superblock.zone_size.get(),
        superblock.zone_capacity.get(),
        u64::from(superblock.conventional.get()),
        u64::from(superblock.conventional_crc.get()),
        u64::from(superblock.data_zones.get()),
    ];
    if drive_has == formatted {
        return Ok(());
    }
    let what = format!(
        "that one had [block size, blocks, zone size, zone capacity, conventional \
         zones, checksum of their numbers, zones of the data drive] = {formatted:?}, \
         this one has {drive_has:?}"
    );
    Err(FsError::OtherShape { what })
}

fn read_manifest(
    drive: &Drive,
    superblock: &Superblock,
    problems: &mut Problems,
) -> Result<Manifest> {
    let crc_at = |at: Address| {
        let is_it =
            |copy: &&ManifestPointer| (copy.zone.get(), copy.block.get()) == (at.zone, at.block);
        superblock.manifest.iter().find(is_it).map(|copy| copy.crc)
    };
    let read = |at: Address| {
        let (header, body) = read_record(drive, at, RecordKind::Manifest, Trust::Verify)?;
        if header.uuid != superblock.uuid || Some(header.crc) != crc_at(at) {
            return Err("not the manifest that the superblock names".into());
        }
        Manifest::decode(&body)
    };
    let copies = superblock
        .manifest
        .map(|pointer| Address { zone: pointer.zone.get(), block: pointer.block.get() });
    let corrupt = |why| FsError::Corrupt { what: "manifest", why };
    for at in copies {
        check_zone(drive, at.zone).map_err(corrupt)?;
    }
    let manifest = first_valid(copies, "manifest", read_checked(drive, read))?;
    let parts = manifest.parts.iter().flat_map(|part| part.zone);
    let journal = manifest.journal.iter().flat_map(|pair| pair.zone);
    for zone in parts.chain(journal) {
        check_zone(drive, zone.get()).map_err(corrupt)?;
    }
    report_bad_copies(copies, &read_checked(drive, read), |what| {
        problems.add(rule::MANIFESTS, what);
    });
    Ok(manifest)
}

/// The levels as the manifest names them.
fn read_levels(drive: &Drive, manifest: &Manifest) -> Result<Levels> {
    let corrupt = |why| FsError::Corrupt { what: "manifest", why };
    let levels = Levels::from_manifest(manifest).map_err(corrupt)?;
    for part in levels.parts() {
        let blocks = blocks_for(part.summary.bytes as usize);
        if part.at.into_iter().any(|at| (drive.blocks_after(at) as usize) < blocks) {
            let number = part.summary.number;
            return Err(corrupt(format!("part {number} ends behind its zone")));
        }
    }
    Ok(levels)
}

fn table_of(view: View, superblock: &Superblock, manifest: &Manifest) -> Table {
    let manifest_at = superblock
        .manifest
        .map(|pointer| Address { zone: pointer.zone.get(), block: pointer.block.get() });
    let next_part = manifest.header.next_part.get();
    Table { next_part, manifest: manifest_at, ..Table::new(Arc::new(view)) }
}

/// Parts with a copy above a write pointer or in an offline zone.
fn cut_off(drive: &Drive, levels: &Levels, zones: &[Zone]) -> BTreeSet<u64> {
    let is_whole = |at: Address, bytes: u32| {
        let Some(zone) = zones.get(at.zone as usize) else { return false };
        let end = u64::from(at.block) + blocks_for(bytes as usize) as u64;
        zone.cond != ZoneCond::Offline
            && zone.written().is_none_or(|written| written.get() >= end * drive.layout.per_block)
    };
    let cut =
        levels.parts().filter(|part| !part.at.iter().all(|&at| is_whole(at, part.summary.bytes)));
    cut.map(|part| part.summary.number).collect()
}

/// How the last commit was found, which a power cut may have cut off.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewestCommit {
    /// The newest batch is in one copy of the journal only, or the newest superblock in one pair.
    pub(super) is_single: bool,
    /// The newest batch is whole, but its data is not there: so the batch does not count.
    pub(super) is_refused: bool,
}

/// The result of a replay.
struct Replayed {
    journal: Journal,
    batches: u64,
    newest: NewestCommit,
}

/// Applies the batches of the journal. A missing batch is a problem; those before it are applied.
fn replay(
    mut reader: JournalReader<'_>,
    rows: &mut Memtable,
    problems: &mut Problems,
) -> Result<Replayed> {
    let mut count = 0;
    let mut newest = NewestCommit::default();
    // One behind the reader: the last batch may not count.
    let mut held: Option<Batch> = None;
    loop {
        let batch = match reader.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                newest.is_single = held.as_ref().is_some_and(|batch| batch.is_in.contains(&false));
                let refused = held.as_ref().and_then(|newest| reader.refuse(newest));
                if let Some(why) = refused {
                    tracing::warn!("the newest batch was never durable: it lacks {why}");
                    (held, newest.is_refused) = (None, true);
                }
                break;
            }
            Err(why) => {
                problems.add(rule::BATCHES, why);
                break;
            }
        };
        if let Some(batch) = held.replace(batch) {
            note_copies(&batch, problems);
            apply_batch(rows, &batch.bodies)?;
            count += 1;
        }
    }
    if let Some(batch) = held.as_ref().filter(|batch| !reader.is_cut_off(batch)) {
        note_copies(batch, problems);
    }
    mistake!(reader, ReplayStopsEarly, held = None);
    if let Some(batch) = held {
        apply_batch(rows, &batch.bodies)?;
        count += 1;
    }
    Ok(Replayed { journal: reader.into_journal(), batches: count, newest })
}

fn note_copies(batch: &Batch, problems: &mut Problems) {
    if batch.is_in.contains(&false) && !batch.trails {
        problems.add(rule::JOURNAL, format!("batch {} is in one copy only", batch.seq));
    }
}

fn apply_batch(rows: &mut Memtable, bodies: &[Vec<u8>]) -> Result<()> {
    let corrupt = |why| FsError::Corrupt { what: "journal", why };
    for body in bodies {
        let mut each = |key, value: Option<&[u8]>| {
            rows.insert(key, value.map(Box::from));
            Ok(())
        };
        decode_rows(body, &mut each).map_err(corrupt)?;
    }
    Ok(())
}

/// Checks, before a read at an address from the drive, that the zone can hold metadata.
fn read_checked<T>(
    drive: &Drive,
    read: impl Fn(Address) -> std::result::Result<T, String>,
) -> impl Fn(Address) -> std::result::Result<T, String> {
    move |at| check_zone(drive, at.zone).and_then(|()| read(at))
}

fn check_zone(drive: &Drive, zone: u32) -> std::result::Result<(), String> {
    let layout = &drive.layout;
    let exists = zone < layout.geometry.zone_count();
    if exists && !layout.is_conventional(zone) && !layout.is_superblock(zone) {
        Ok(())
    } else {
        Err(format!("zone {zone} cannot hold metadata"))
    }
}

fn report_bad_copies<T>(
    copies: [Address; 2],
    read: &impl Fn(Address) -> std::result::Result<T, String>,
    mut report: impl FnMut(String),
) {
    for at in copies {
        if let Err(why) = read(at) {
            report(format!("zone {} block {}: {why}", at.zone, at.block));
        }
    }
}

/// Roles of all zones, before the rows of zones are read.
fn zone_slots(
    drive: &Drive,
    superblock: &Superblock,
    manifest: &Manifest,
    zones: &[Zone],
) -> Vec<ZoneSlot> {
    let layout = &drive.layout;
    let mut slots: Vec<ZoneSlot> = zones
        .iter()
        .map(|zone| {
            let number = zone.id.get();
            let role = if layout.is_superblock(number) {
                Role::Super
            } else {
                match zone.cond {
                    ZoneCond::ReadOnly | ZoneCond::Offline => Role::Failed,
                    ZoneCond::Empty | ZoneCond::NotWp => Role::Free,
                    ZoneCond::ImplicitOpen
                    | ZoneCond::ExplicitOpen
                    | ZoneCond::Closed
                    | ZoneCond::Full => Role::Sealed,
                }
            };
            let mut slot = ZoneSlot::new(role, layout.capacity(number));
            if role != Role::Free {
                slot.written = slot.capacity;
            }
            slot.unreadable = zone.cond == ZoneCond::Offline;
            slot
        })
        .collect();
    let parts = manifest.parts.iter().flat_map(|part| part.zone);
    let journal = manifest.journal.iter().flat_map(|pair| pair.zone);
    let own = superblock.manifest.iter().map(|copy| copy.zone);
    for zone in parts.chain(journal).chain(own).map(U32::get) {
        if let Some(slot) = slots.get_mut(zone as usize)
            && slot.role != Role::Super
        {
            slot.role = Role::Meta;
        }
    }
    slots
}
