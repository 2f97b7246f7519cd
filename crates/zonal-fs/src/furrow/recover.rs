//! From a drive to a mounted state: superblock → manifest → checkpoint → journal → zone report.
//!
//! [`read`] writes nothing, so that a read-only mount and `check` use it as well;
//! [`Furrow::finish_recovery`] does what a writable mount needs: deletes unlinked files, gives the
//! journal a clean end, empties zones in which nothing lives.

use zerocopy::byteorder::little_endian::U32;
use zonal::{Zone, ZoneCond, ZoneId};

use super::Furrow;
use super::alloc::{Role, ZoneSlot, Zones};
use super::checkpoint::CheckpointLog;
use super::commit::Ending;
use super::format::manifest::Manifest;
use super::format::record::RecordKind;
use super::format::superblock::Superblock;
use super::format::{Address, BLOCK_SHIFT, blocks_for};
use super::invariant::{self as rule, Problems};
use super::io::Drive;
use super::journal::{Journal, Trust, first_valid, read_record};
use super::load::Rows;
use super::place::MapEntry;
use super::planted::{Planted, PlantedBug};
use super::replay::Reader;
use super::state::State;
use super::superlog::{self, Found};
use crate::FsError;
use crate::vfs::{Ino, Result};

/// Everything that a drive says.
pub(super) struct Loaded {
    pub(super) found: Vec<Found>,
    pub(super) superblock: Superblock,
    pub(super) manifest: Manifest,
    pub(super) journal: Journal,
    pub(super) state: State,
    pub(super) zones: Vec<Zone>,
    /// Ranges of files that the drive has lost: extents above a write pointer or in an offline
    /// zone.
    pub(super) losses: Losses,
    /// Batches replayed.
    pub(super) batches: u64,
}

/// Data that the drive no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The zone that held them.
    pub zone: ZoneId,
    /// Why they are gone.
    pub why: &'static str,
}

/// Losses, those of a file that lie side by side as one, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) found: Vec<Loss>,
    /// Those beyond the bound.
    pub(super) more: u64,
}

impl Losses {
    const KEPT_MAX: usize = 1000;

    fn add(&mut self, loss: Loss) {
        if let Some(last) = self.found.last_mut()
            && (last.ino, last.zone, last.why) == (loss.ino, loss.zone, loss.why)
            && last.offset + last.len == loss.offset
        {
            last.len += loss.len;
        } else if self.found.len() < Self::KEPT_MAX {
            self.found.push(loss);
        } else {
            self.more += 1;
        }
    }
}

/// Which copies of a checkpoint's pieces to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// The second one only where the first is bad.
    First,
    /// Both, to find bad ones.
    Both,
}

/// Reads all metadata. Problems that leave a usable state are added to `problems`.
pub(super) fn read(
    drive: &Drive,
    copies: Copies,
    planted: Planted,
    problems: &mut Problems,
) -> Result<Loaded> {
    let superlog::Search { found, bad, is_stale } = superlog::find_all(drive);
    let superblock = *superlog::newest(&found, &bad, planted)?;
    check_superblocks(drive, &found, &superblock, bad, problems);
    if is_stale {
        let epoch = superblock.epoch;
        let what = format!("neither pair of zones can be read behind epoch {epoch}");
        problems.add(rule::NEWEST, what);
    }
    check_geometry(drive, &superblock)?;
    let manifest = read_manifest(drive, &superblock, problems)?;
    let mut rows = read_checkpoint(drive, (&superblock, &manifest), copies, problems)?;
    let zones = drive.device.report_all()?;
    let identity = (superblock.uuid, superblock.epoch.get());
    let reader = Reader::new(drive, &zones, identity, &manifest, planted);
    let (journal, batches) = replay(reader, &mut rows, problems, planted)?;
    let slots = zone_slots(drive, (&superblock, &manifest), &zones);
    let slots = Zones::new(slots, drive.layout.zone_limits());
    let header = &manifest.header;
    let next = next_numbers(&rows, (header.next_ino.get(), header.next_extent.get()));
    let mut state = rows.build(slots, next, problems);
    state.totals.data_clock = header.data_clock.get();
    state.batch = journal.last_batch + 1;
    let losses = find_losses(drive, &state, &zones);
    Ok(Loaded { found, superblock, manifest, journal, state, zones, losses, batches })
}

/// Numbers are given on after the highest one used, also by batches after the checkpoint.
fn next_numbers(rows: &Rows, (ino, extent): (u64, u64)) -> (u64, u64) {
    // Saturation instead of overflow: such a row is then reported as out of range.
    let inode = rows.inodes.keys().next_back().map_or(0, |last| last.saturating_add(1));
    let last_extent = rows.extents.keys().next_back().map_or(0, |last| last.saturating_add(1));
    (ino.max(inode).max(2), extent.max(last_extent).max(1))
}

fn check_superblocks(
    drive: &Drive,
    found: &[Found],
    newest: &Superblock,
    bad: Vec<String>,
    problems: &mut Problems,
) {
    for why in bad {
        problems.add(rule::SUPERBLOCKS, why);
    }
    for pair in drive.layout.superblock_pairs {
        let current = found
            .iter()
            .any(|found| pair.contains(&found.at.zone) && found.superblock.epoch == newest.epoch);
        if !current {
            let what = format!("neither of zones {pair:?} has epoch {}", newest.epoch);
            problems.add(rule::SUPERBLOCKS, what);
        }
    }
}

/// The drive must be the one that was formatted.
fn check_geometry(drive: &Drive, superblock: &Superblock) -> Result<()> {
    let spec = drive.layout.geometry.spec();
    let drive_has = [
        spec.block_size.bytes(),
        spec.block_count.get(),
        spec.zone_size.get(),
        spec.zone_capacity.get(),
        u64::from(spec.conventional_zones),
    ];
    let formatted = [
        u64::from(superblock.device_block.get()),
        superblock.device_blocks.get(),
        superblock.zone_size.get(),
        superblock.zone_capacity.get(),
        u64::from(superblock.conventional.get()),
    ];
    if drive_has == formatted {
        return Ok(());
    }
    let what = format!(
        "that one had [block size, blocks, zone size, zone capacity, conventional] = {formatted:?}, \
         this one has {drive_has:?}"
    );
    Err(FsError::OtherShape { what })
}

fn read_manifest(
    drive: &Drive,
    superblock: &Superblock,
    problems: &mut Problems,
) -> Result<Manifest> {
    let read = |at: Address| {
        let (header, body) = read_record(drive, at, RecordKind::Manifest, Trust::Verify)?;
        if header.uuid != superblock.uuid || header.epoch != superblock.epoch {
            return Err(format!("of epoch {}, not {}", header.epoch, superblock.epoch));
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
    let pieces = manifest.pieces.iter().flat_map(|piece| piece.zone);
    let journal = manifest.journal.iter().flat_map(|zones| zones.zone);
    for zone in pieces.chain(journal) {
        check_zone(drive, zone.get()).map_err(corrupt)?;
    }
    report_bad_copies(copies, &read_checked(drive, read), |what| {
        problems.add(rule::MANIFESTS, what);
    });
    Ok(manifest)
}

/// Pieces are read one after the other; a bad copy is reported and the other one taken.
fn read_checkpoint(
    drive: &Drive,
    (superblock, manifest): (&Superblock, &Manifest),
    wanted: Copies,
    problems: &mut Problems,
) -> Result<Rows> {
    let mut rows = Rows::default();
    let mut prev = 0;
    for (seq, piece) in (0u64..).zip(&manifest.pieces) {
        let read = |at: Address| {
            let (header, body) = read_record(drive, at, RecordKind::Run, Trust::Verify)?;
            let is_it = header.uuid == superblock.uuid
                && header.epoch == superblock.epoch
                && header.seq.get() == seq
                && header.prev.get() == prev
                && header.chain == piece.chain;
            if is_it { Ok(body) } else { Err("not the piece that the manifest names".into()) }
        };
        let copies = [0, 1]
            .map(|copy| Address { zone: piece.zone[copy].get(), block: piece.block[copy].get() });
        let (mut body, mut bad) = (None, Vec::new());
        for at in copies {
            if body.is_some() && wanted == Copies::First {
                break;
            }
            match read_checked(drive, read)(at) {
                Ok(found) => body = body.or(Some(found)),
                Err(why) => {
                    bad.push(format!("piece {seq} at zone {} block {}: {why}", at.zone, at.block));
                }
            }
        }
        let body =
            body.ok_or_else(|| FsError::Corrupt { what: "checkpoint", why: bad.join("; ") })?;
        for what in bad {
            problems.add(rule::PIECES, what);
        }
        prev = piece.chain.get();
        let applied = rows.apply(&body);
        applied.map_err(|why| FsError::Corrupt { what: "checkpoint", why })?;
    }
    Ok(rows)
}

/// Applies the journal. Batches that are missing are a problem; what is before them is applied.
fn replay(
    mut reader: Reader<'_>,
    rows: &mut Rows,
    problems: &mut Problems,
    planted: Planted,
) -> Result<(Journal, u64)> {
    let mut count = 0;
    let mut held: Option<Vec<u8>> = None;
    loop {
        let batch = match reader.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(why) => {
                problems.add(rule::BATCHES, why);
                break;
            }
        };
        if batch.is_in.contains(&false) {
            problems.add(rule::JOURNAL, format!("batch {} is in one copy only", batch.seq));
        }
        // Batches are applied one behind, so that a planted bug can drop the last.
        if let Some(body) = held.replace(batch.body) {
            apply_batch(rows, &body)?;
            count += 1;
        }
    }
    if let Some(body) = held
        && !planted.has(PlantedBug::ReplayStopsEarly)
    {
        apply_batch(rows, &body)?;
        count += 1;
    }
    Ok((reader.into_journal(), count))
}

fn apply_batch(rows: &mut Rows, body: &[u8]) -> Result<()> {
    rows.apply(body).map(drop).map_err(|why| FsError::Corrupt { what: "journal", why })
}

/// A read at an address that came from the drive: the zone must be one that can hold metadata.
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

/// Roles of all zones before any data is known.
fn zone_slots(
    drive: &Drive,
    (superblock, manifest): (&Superblock, &Manifest),
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
    let pieces = manifest.pieces.iter().flat_map(|piece| piece.zone);
    let journal = manifest.journal.iter().flat_map(|zones| zones.zone);
    // The manifest may be alone in its zone, where the last piece filled the one before.
    let own = superblock.manifest.iter().map(|copy| copy.zone);
    for zone in pieces.chain(journal).chain(own).map(U32::get) {
        if let Some(slot) = slots.get_mut(zone as usize)
            && slot.role != Role::Super
        {
            slot.role = Role::Meta;
        }
    }
    slots
}

/// Blocks that the drive cannot give back.
fn find_losses(drive: &Drive, state: &State, zones: &[Zone]) -> Losses {
    let mut losses = Losses::default();
    let lost = |entry: &MapEntry| -> Option<(ZoneId, &'static str)> {
        let stored = state.stored(entry)?;
        let zone = zones.get(stored.zone as usize)?;
        if zone.cond == ZoneCond::Offline {
            return Some((zone.id, "the zone is offline"));
        }
        let written = zone.written()?.get() / drive.layout.per_block;
        let end = u64::from(stored.block) + stored.crcs.len() as u64;
        (end > written).then_some((zone.id, "the zone's write pointer is below it"))
    };
    for (&ino, inode) in &state.inodes {
        let Ok(file) = inode.file() else { continue };
        // What waits to be removed is no loss.
        let end = if inode.is_deleted() { 0 } else { file.reap_from.unwrap_or(u64::MAX) };
        for (&first, entry) in file.map.range(..end) {
            if let Some((zone, why)) = lost(entry) {
                let len = u64::from(entry.blocks()) << BLOCK_SHIFT;
                let offset = first << BLOCK_SHIFT;
                losses.add(Loss { ino, offset, len, zone, why });
            }
        }
    }
    losses
}

/// Zones of the current checkpoint and where its log goes on, from the manifest and the report.
pub(super) fn resume_checkpoints(drive: &Drive, loaded: &Loaded) -> CheckpointLog {
    let mut log = CheckpointLog::default();
    let mut add = |zone: u32| {
        if !log.zones.contains(&zone) {
            log.zones.push(zone);
        }
    };
    for piece in &loaded.manifest.pieces {
        piece.zone.into_iter().for_each(|zone| add(zone.get()));
    }
    for copy in 0..2 {
        let pointer = &loaded.superblock.manifest[copy];
        let zone = pointer.zone.get();
        add(zone);
        let Some(report) = loaded.zones.get(zone as usize) else { continue };
        let end = blocks_for(pointer.bytes.get() as usize) + pointer.block.get() as usize;
        let written = report.written().and_then(|written| drive.layout.whole_blocks(written));
        // Behind a torn checkpoint the next one would be unreadable only by accident, but a
        // finished zone takes no more writes.
        if let Some(block) = written
            && !drive.layout.few_active_zones
            && report.cond != ZoneCond::Full
            && block as usize >= end
        {
            log.next[copy] = Some(Address { zone, block });
        }
    }
    log
}

/// Whether both copies of the journal end where their zones' pointers are, so that it can go on.
fn journal_is_whole(drive: &Drive, loaded: &Loaded) -> bool {
    let journal = &loaded.journal;
    let zones = journal.zones[journal.index];
    !journal.is_impaired()
        && (0..2).all(|copy| {
            let Some(report) = loaded.zones.get(zones.zone[copy].get() as usize) else {
                return false;
            };
            let written = report.written().and_then(|written| drive.layout.whole_blocks(written));
            report.cond != ZoneCond::Full && written == Some(journal.next[copy])
        })
}

impl Furrow {
    /// Makes the drive ready for writing after [`read`].
    pub(super) fn finish_recovery(&self, loaded: &RecoveryFacts) -> Result<()> {
        {
            let mut state = self.write_state();
            self.settle_zones(&mut state, &loaded.zones);
            if self.layout().few_active_zones {
                self.finish_metadata(&state, loaded);
            }
            // F3: what was read is durable, so nothing durable refers to them.
            let emptied = state.zones.take_emptied(|_| true);
            drop(state);
            let is_active = |zone: u32| {
                loaded.zones.get(zone as usize).is_some_and(|zone| zone.cond.is_active())
            };
            let (active, others): (Vec<u32>, Vec<u32>) =
                emptied.into_iter().partition(|&zone| is_active(zone));
            // Active zones are few, and each is needed; the others can wait until after the mount.
            for zone in active {
                self.reset_zone(zone);
            }
            self.write_accounts().zones.allow_resets(&others);
            let mut state = self.write_state();
            if !self.has_planted(PlantedBug::ForgetOrphans) {
                let orphans: Vec<Ino> = state
                    .inodes
                    .iter()
                    .filter(|(_, inode)| inode.nlink == 0)
                    .map(|(&ino, _)| ino)
                    .collect();
                for ino in orphans {
                    state.delete_if_unused(ino);
                }
            }
        }
        let whole =
            loaded.journal_is_whole || self.has_planted(PlantedBug::ContinueBehindTornRecord);
        if !whole {
            // The checkpoint would go on in the same zones, where the next batch would find only
            // one copy.
            self.committer.lock().expect("no holder panicked").journal.failed = [true; 2];
        }
        if whole && loaded.copies_are_whole {
            self.commit(Ending::Record)
        } else {
            self.commit(Ending::Checkpoint)
        }
    }

    /// Gives up the active zones of metadata that is not continued: the power may have gone
    /// between writing and finishing them, and each one is needed.
    fn finish_metadata(&self, state: &State, loaded: &RecoveryFacts) {
        for zone in loaded.zones.iter().filter(|zone| zone.cond.is_active()) {
            let number = zone.id.get();
            let is_meta = matches!(state.zones.slot(number).role, Role::Super | Role::Meta);
            if is_meta && !loaded.journal_zones.contains(&number) {
                self.drive.finish(number);
            }
        }
    }

    /// Decides what becomes of each zone that is neither free nor metadata: writing goes on in
    /// zones that have room, the others are sealed, and those that stayed active are finished.
    fn settle_zones(&self, state: &mut State, zones: &[Zone]) {
        for zone in zones {
            let number = zone.id.get();
            let layout = self.layout();
            match state.zones.slot(number).role {
                Role::Sealed => {}
                Role::Free if layout.is_conventional(number) => {
                    Self::settle_conventional(state, number);
                    continue;
                }
                Role::Free if state.zones.slot(number).live > 0 => {
                    // It has lost all that it held. To write there again would give those who still
                    // refer to it what belongs to others.
                    state.zones.claim(number);
                    state.zones.seal(number);
                    continue;
                }
                Role::Super
                | Role::Meta
                | Role::Free
                | Role::Failed
                | Role::PendingReset
                | Role::Open(_) => continue,
            }
            let written = zone.written().and_then(|written| layout.whole_blocks(written));
            let has_data = state.zones.slot(number).live > 0;
            let resumed = match written {
                Some(written) if zone.cond != ZoneCond::Full && has_data => {
                    let end = live_end(state, number);
                    end <= written && state.zones.resume(number, written)
                }
                _ => false,
            };
            if !resumed {
                if zone.cond.is_active() && has_data {
                    self.drive.finish(number);
                }
                state.zones.seal(number);
            }
        }
    }

    /// A conventional zone has no pointer: what lies behind the last extent is free.
    fn settle_conventional(state: &mut State, zone: u32) {
        if state.zones.slot(zone).live == 0 {
            return;
        }
        let end = live_end(state, zone);
        state.zones.claim(zone);
        if !state.zones.resume(zone, end) {
            state.zones.seal(zone);
        }
    }
}

/// What [`Furrow::finish_recovery`] needs to know of what was read.
pub(super) struct RecoveryFacts {
    pub(super) zones: Vec<Zone>,
    /// Those that the journal goes on in.
    journal_zones: [u32; 2],
    journal_is_whole: bool,
    copies_are_whole: bool,
}

impl RecoveryFacts {
    pub(super) fn of(drive: &Drive, loaded: &Loaded, problems: &Problems) -> Self {
        Self {
            zones: loaded.zones.clone(),
            journal_zones: loaded.journal.zones[loaded.journal.index].zone.map(U32::get),
            journal_is_whole: journal_is_whole(drive, loaded),
            copies_are_whole: problems.found.is_empty(),
        }
    }
}

/// The block behind the last one of a zone that somebody has.
fn live_end(state: &State, zone: u32) -> u32 {
    let last = state.zones.slot(zone).owners(..).next_back();
    let run = last.and_then(|(_, owner)| state.stored_by(owner));
    let end = run.map_or(0, |run| run.block as usize + run.crcs.len());
    u32::try_from(end).expect("inside the zone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_side_by_side_are_one_and_there_is_a_bound() {
        let mut losses = Losses::default();
        let loss = |ino, offset| {
            let (zone, why) = (ZoneId::new(3), "the zone is offline");
            Loss { ino: Ino::new(ino), offset, len: 4096, zone, why }
        };
        (0..50).for_each(|block| losses.add(loss(2, block * 4096)));
        assert_eq!(losses.found, [Loss { len: 50 * 4096, ..loss(2, 0) }]);
        (3..5003).for_each(|ino| losses.add(loss(ino, 0)));
        assert_eq!((losses.found.len(), losses.more), (Losses::KEPT_MAX, 4001));
    }
}
