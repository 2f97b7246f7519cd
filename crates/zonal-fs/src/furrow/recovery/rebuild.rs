//! Rebuilding: makes the totals, the rows of zones and the root directory again if both copies of
//! them are lost.
//!
//! A loss of other rows costs the files in its range, and no more. Without these rows nothing could
//! be reached, so a mount rebuilds them from all other rows, in a pass over the whole table. Totals
//! are then the sums of the rows that are left. The root directory keeps every row that can be
//! read, and the rest is as `mkfs` makes it. Inodes without an entry get one in the root, `lost-`
//! and their number, since their names may have been there.
//!
//! To readers, the new rows are part of a batch that a commit has taken and not yet written. So a
//! read-only mount shows them, and a writable one makes them durable with its first commit, before
//! any step of the table passes the lost range.

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::FromZeros;
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zonal::Zone;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::row::{
    EntryRow, INODE_BYTES, InodeRow, Place, Row, TotalsRow, ZoneRow, backrefs_bytes, decode,
    encode, entry_bytes, extent_bytes, map_bytes, shared_map_bytes, xattr_bytes,
};
use crate::furrow::format::row::{kind_of, number_of};
use crate::furrow::format::{Address, GENERATIONS};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::metadata::directory::names::entries_max;
use crate::furrow::metadata::directory::names::{NameKey, names_bytes};
use crate::furrow::metadata::map::place::Owner;
use crate::furrow::recovery::Opened;
use crate::furrow::recovery::ino_set::InoSet;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::lost::Remade;
use crate::furrow::table::memtable::{Memtable, Value};
use crate::furrow::table::view::View;
use crate::furrow::table::view::scan::Scanned;
use crate::furrow::zones::ZoneSlot;
use crate::vfs::{FileKind, Ino, Result};

/// The key after the rows of the root directory, which follow the totals and zones.
const ROOT_END: Key = Key::new(RowKind::Inode, 2, 0);

/// Rows of the root directory that a mount reads to find losses.
const ROOT_ROWS: usize = 1024;

/// Rows that one read returns.
const ROWS: usize = 4096;

/// Whether rows of the root directory are lost. It reads only the first rows of a large one; for
/// the rest it asks the parts for the ranges that they know to be lost.
pub(super) fn is_root_lost(drive: &Drive, view: &View) -> Result<bool> {
    let mut from = Key::BASE_END;
    if view.knows_lost(drive, KeySpan::new(from, ROOT_END)) {
        return Ok(true);
    }
    let mut count = 0;
    while from < ROOT_END && count < ROOT_ROWS {
        match view.rows(drive, KeySpan::new(from, ROOT_END), ROOT_ROWS) {
            Ok(found) => {
                count += found.rows.len();
                from = found.end;
            }
            Err(FsError::Corrupt { .. } | FsError::Refused { .. }) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Rebuilds totals, zones and root from the rows that are left.
pub(super) fn rebuild(drive: &Drive, opened: &Opened, problems: &mut Problems) -> Result<()> {
    let view = &*opened.table.view;
    let mut found = FoundRows::default();
    view.scan(drive, KeySpan::ALL, &mut |scanned| found.put(scanned))?;
    let mut rows = Memtable::default();
    found.make_root(opened, &mut rows);
    let unnamed = found.unnamed(drive, view)?;
    let names = NameKey::of(opened.superblock.uuid);
    found.enter_root(unnamed, names, drive.layout.zone_blocks, &mut rows);
    found.make_sums(&opened.slots(drive), &opened.zones, &mut rows);
    if let Some((from, below)) = &found.lost_here {
        let what = format!(
            "no copy has sums or rows of the root directory, from {from:?} up to {below:?}: they are made anew"
        );
        problems.add_of(rule::PARTS, Ino::ROOT, what);
    }
    let parts_below = opened.table.next_part;
    view.note_remade(Remade { from: Key::MIN, below: ROOT_END, parts_below });
    // Older runs may have outdated rows in the lost range: delete those.
    let mut from = Key::MIN;
    while from < ROOT_END {
        let there = view.rows(drive, KeySpan::new(from, ROOT_END), ROWS)?;
        for (key, _) in &there.rows {
            if rows.get(*key).is_none() && !found.kept.contains(key) {
                rows.insert(*key, None);
            }
        }
        from = there.end;
    }
    view.add_unwritten(rows);
    Ok(())
}

/// Sums of the rows that name blocks of a zone.
#[derive(Clone, Copy, Debug, Default)]
struct ZoneSum {
    live: u64,
    end: u32,
    next_owners: u32,
    owner_bytes: u32,
    /// Live blocks by the generation that their rows name. Only one has any, unless a remap table
    /// is lost.
    generations: [u32; GENERATIONS as usize],
}

impl ZoneSum {
    fn generation(&self) -> u8 {
        let most = (0..).zip(self.generations).max_by_key(|(_, blocks)| *blocks);
        most.map_or(0, |(generation, _)| generation)
    }
}

/// Sums of all rows so far.
#[derive(Default)]
struct FoundRows {
    totals: Option<TotalsRow>,
    zone_rows: BTreeMap<u64, ZoneRow>,
    zones: BTreeMap<u32, ZoneSum>,
    orphans: BTreeSet<u64>,
    listed_orphans: BTreeSet<u64>,
    inodes: u64,
    preallocated: u64,
    row_bytes: u64,
    place_bytes: u64,
    ino_max: u64,
    extent_max: u64,
    /// Inodes that have an entry.
    named: InoSet,
    root: Option<InodeRow>,
    /// Entries of the root by cookie.
    root_entries: BTreeMap<u64, (Box<[u8]>, FileKind)>,
    /// Keys of rows of the root that stay as they are.
    kept: BTreeSet<Key>,
    /// The first lost range of totals, zones or root.
    lost_here: Option<(Key, Key)>,
    has_lost_owners: bool,
}

impl FoundRows {
    fn put(&mut self, scanned: Scanned<'_>) {
        match scanned {
            Scanned::Lost(from, below) => self.put_lost(from, below),
            Scanned::Row(key, value) => {
                if let Ok(row) = decode(key, value) {
                    self.put_row(key, &row, value.len());
                }
            }
        }
    }

    fn put_lost(&mut self, from: Key, below: Key) {
        if from < ROOT_END {
            self.lost_here.get_or_insert((from, below));
        }
        let last = below.predecessor();
        // Files may have used numbers in the range.
        if from < Key::new(RowKind::Extent, 0, 0) && last >= Key::BASE_END {
            let is_inode = last.kind().group() == RowKind::Inode.group();
            self.ino_max = self.ino_max.max(if is_inode { last.owner() } else { from.owner() });
        }
        if last.kind() == RowKind::Extent {
            self.extent_max = self.extent_max.max(last.owner());
        }
        self.has_lost_owners |= last >= Key::new(RowKind::Backrefs, 0, 0) && from < Key::REMAPS;
    }

    fn put_row(&mut self, key: Key, row: &Row<'_>, bytes: usize) {
        let owner = key.owner();
        if key >= Key::BASE_END && key < ROOT_END {
            self.kept.insert(key);
        }
        match row {
            Row::Totals(row) => self.totals = Some(*row),
            Row::Zone(row) => drop(self.zone_rows.insert(owner, *row)),
            Row::Orphan => drop(self.listed_orphans.insert(owner)),
            // Rows that can be read stay.
            Row::Learned(_) | Row::Discard(_) | Row::Remap(..) => {}
            Row::Inode(row, target) => {
                self.ino_max = self.ino_max.max(owner);
                if owner == Ino::ROOT.get() {
                    self.root = Some(*row);
                    return;
                }
                self.inodes += 1;
                self.row_bytes += (INODE_BYTES + target.len()) as u64;
                if row.nlink.get() == 0 || row.truncate_from().is_some() {
                    self.orphans.insert(owner);
                }
            }
            Row::Xattr(name, value) => self.row_bytes += xattr_bytes(name, value),
            Row::Map(blocks, place) => self.put_map(*blocks, place),
            // `enter_root` rebuilds the index of the root.
            Row::Name(_) if owner == Ino::ROOT.get() => drop(self.kept.remove(&key)),
            Row::Name(cookies) => self.row_bytes += names_bytes(cookies.len()),
            Row::Entry(row, name) => {
                self.ino_max = self.ino_max.max(row.ino.get());
                self.named.insert(row.ino.get());
                self.row_bytes += entry_bytes(name);
                if let (Ino::ROOT, Some(kind)) = (Ino::new(owner), kind_of(row.kind)) {
                    self.root_entries.insert(key.at(), ((*name).into(), kind));
                }
            }
            Row::Extent(row, crcs) => {
                self.extent_max = self.extent_max.max(owner);
                let blocks = u32::try_from(crcs.len()).unwrap_or(u32::MAX);
                self.put_blocks(Address { zone: row.zone.get(), block: row.block.get() }, blocks);
                self.add_place_bytes(extent_bytes(blocks));
            }
            Row::Backrefs(records) => {
                let zone = u32::try_from(owner).unwrap_or(u32::MAX);
                let sum = self.zones.entry(zone).or_default();
                let next = u32::try_from(key.at()).unwrap_or(u32::MAX).saturating_add(1);
                sum.next_owners = sum.next_owners.max(next);
                sum.owner_bytes = sum.owner_bytes.saturating_add(backrefs_bytes(bytes));
                self.add_place_bytes(backrefs_bytes(bytes).into());
                for record in records.iter() {
                    if let Owner::Extent(id) = record.owner {
                        self.extent_max = self.extent_max.max(id.0);
                    }
                }
            }
        }
    }

    fn put_map(&mut self, blocks: u32, place: &Place<'_>) {
        match place {
            Place::Preallocated => {
                self.preallocated += u64::from(blocks);
                self.add_place_bytes(map_bytes(0));
            }
            Place::Zone(place, _) => {
                let generation = usize::from(place.generation().generation());
                let sum = self.put_blocks(place.address(), blocks);
                sum.generations[generation] = sum.generations[generation].saturating_add(blocks);
                self.add_place_bytes(map_bytes(blocks));
            }
            Place::Shared(place, space) => {
                self.preallocated += space.preallocated(blocks);
                self.extent_max = self.extent_max.max(place.extent.get());
                self.add_place_bytes(shared_map_bytes());
            }
        }
    }

    fn put_blocks(&mut self, at: Address, blocks: u32) -> &mut ZoneSum {
        let sum = self.zones.entry(at.zone).or_default();
        sum.live += u64::from(blocks);
        sum.end = sum.end.max(at.block.saturating_add(blocks));
        sum
    }

    fn add_place_bytes(&mut self, bytes: u64) {
        self.place_bytes += bytes;
        self.row_bytes += bytes;
    }

    /// Makes the inode of the root unless it was read; `enter_root` sets its counts.
    fn make_root(&mut self, opened: &Opened, rows: &mut Memtable) {
        let root = self.root.get_or_insert_with(|| {
            let created = opened.superblock.created_ns.get();
            let second = 1_000_000_000;
            let secs = I64::new(i64::try_from(created / second).unwrap_or(0));
            let nanos = U32::new(u32::try_from(created % second).expect("below a second"));
            InodeRow {
                parent: U64::new(Ino::ROOT.get()),
                perm: U16::new(0o755),
                kind: number_of(FileKind::Directory),
                atime: secs,
                mtime: secs,
                ctime: secs,
                btime: secs,
                atime_ns: nanos,
                mtime_ns: nanos,
                ctime_ns: nanos,
                btime_ns: nanos,
                ..InodeRow::new_zeroed()
            }
        });
        let last = self.root_entries.last_key_value().map_or(2, |(&cookie, _)| cookie);
        // Entries may have used cookies in the range.
        let lost = self.lost_here.map(|(_, below)| below.predecessor());
        let lost = lost.filter(|last| last.kind() == RowKind::Entry && *last < ROOT_END);
        let lost = lost.map_or(2, Key::at);
        let next = root.next.get().max(last + 1).max(lost + 1).min(u64::MAX / 2);
        root.next = U64::new(next);
        self.inodes += 1;
        self.row_bytes += INODE_BYTES as u64;
        rows.insert(Key::new(RowKind::Inode, Ino::ROOT.get(), 0), None);
    }

    /// Inodes without an entry that may have had one in the root.
    fn unnamed(&self, drive: &Drive, view: &View) -> Result<Vec<(u64, FileKind)>> {
        let mut unnamed = Vec::new();
        view.scan(drive, KeySpan::INODES, &mut |scanned| {
            if let Scanned::Row(key, value) = scanned
                && let Ok(Row::Inode(row, _)) = decode(key, value)
                && let Some(kind) = kind_of(row.kind)
                && key.owner() != Ino::ROOT.get()
                && row.nlink.get() > 0
                && !self.named.contains(key.owner())
                && (kind != FileKind::Directory || row.parent.get() == Ino::ROOT.get())
            {
                unnamed.push((key.owner(), kind));
            }
        })?;
        Ok(unnamed)
    }

    /// Completes the root: entries for inodes without one, counts, and an index if it is large.
    fn enter_root(
        &mut self,
        unnamed: Vec<(u64, FileKind)>,
        names: NameKey,
        zone_blocks: u32,
        rows: &mut Memtable,
    ) {
        let owner = Ino::ROOT.get();
        let mut root = self.root.expect("it was made");
        let taken: BTreeSet<&[u8]> = self.root_entries.values().map(|(name, _)| &**name).collect();
        let mut new = Vec::new();
        for (ino, kind) in unnamed {
            let mut name = format!("lost-{ino}");
            while taken.contains(name.as_bytes()) {
                name.push('_');
            }
            let cookie = root.next.get();
            root.next += U64::new(1);
            let row = EntryRow { ino: U64::new(ino), kind: number_of(kind) };
            let value = encode(&Row::Entry(row, name.as_bytes()));
            rows.insert(Key::new(RowKind::Entry, owner, cookie), Some(value));
            self.row_bytes += entry_bytes(name.as_bytes());
            new.push((cookie, (name.into_bytes().into_boxed_slice(), kind)));
        }
        self.root_entries.extend(new);
        let kinds = self.root_entries.values().map(|(_, kind)| *kind);
        let directories = kinds.filter(|kind| *kind == FileKind::Directory).count();
        root.nlink = U32::new(u32::try_from(directories + 2).unwrap_or(u32::MAX));
        root.count = U64::new(self.root_entries.len() as u64);
        let is_large = root.count.get() > entries_max(zone_blocks);
        root.indexed = u8::from(is_large);
        if is_large {
            let mut index: BTreeMap<u64, Vec<U64>> = BTreeMap::new();
            for (&cookie, (name, _)) in &self.root_entries {
                index.entry(names.hash(name)).or_default().push(U64::new(cookie));
            }
            for (hash, cookies) in index {
                let value: Value = Some(encode(&Row::Name(&cookies)));
                rows.insert(Key::new(RowKind::Name, owner, hash), value);
                self.row_bytes += names_bytes(cookies.len());
            }
        }
        let value = encode(&Row::Inode(root, &[]));
        rows.insert(Key::new(RowKind::Inode, owner, 0), Some(value));
    }

    /// Makes totals, zones, and the list of deleted files.
    fn make_sums(&self, slots: &[ZoneSlot], report: &[Zone], rows: &mut Memtable) {
        let mut live = 0;
        let mut clock = self.totals.map_or(0, |totals| totals.data_clock.get());
        for (zone, slot) in (0_u32..).zip(slots.iter().take(report.len())) {
            let sum = self.zones.get(&zone).copied().unwrap_or_default();
            let before = self.zone_rows.get(&u64::from(zone));
            let row = u32::try_from(sum.live).ok().filter(|live| *live > 0).map(|live| ZoneRow {
                live: U32::new(live),
                end: U32::new(
                    before.map_or(0, |row| row.end.get()).max(sum.end).min(slot.capacity),
                ),
                last_write: before.map_or(U64::new(0), |row| row.last_write),
                born: before.map_or(U64::new(0), |row| row.born),
                next_owners: U32::new(sum.next_owners),
                owner_bytes: U32::new(sum.owner_bytes),
                // Back-references may be lost: then the zone needs a scan.
                listed: before.filter(|_| !self.has_lost_owners).map_or(0, |row| row.listed),
                moved: before.map_or(0, |row| row.moved),
                generation: before.map_or(sum.generation(), |row| row.generation),
                reserved: 0,
            });
            live += row.as_ref().map_or(0, |row| u64::from(row.live.get()));
            clock = clock.max(row.as_ref().map_or(0, |row| row.last_write.get()));
            let key = Key::new(RowKind::Zone, zone.into(), 0);
            rows.insert(key, row.map(|row| encode(&Row::Zone(row))));
        }
        for &ino in &self.listed_orphans {
            rows.insert(Key::new(RowKind::Orphan, ino, 0), None);
        }
        for &ino in &self.orphans {
            rows.insert(Key::new(RowKind::Orphan, ino, 0), Some(encode(&Row::Orphan)));
        }
        let before = self.totals.as_ref();
        let next_ino = before.map_or(0, |row| row.next_ino.get()).max(self.ino_max + 1);
        let next_extent = before.map_or(0, |row| row.next_extent.get()).max(self.extent_max + 1);
        let totals = TotalsRow {
            next_ino: U64::new(next_ino),
            next_extent: U64::new(next_extent),
            inodes: U64::new(self.inodes),
            live: U64::new(live),
            preallocated: U64::new(self.preallocated),
            row_bytes: U64::new(self.row_bytes),
            place_bytes: U64::new(self.place_bytes),
            data_clock: U64::new(clock),
        };
        rows.insert(Key::MIN, Some(encode(&Row::Totals(totals))));
    }
}
