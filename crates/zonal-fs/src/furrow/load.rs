//! From rows to memory: the state that the table and the batches after it describe.
//!
//! Rows come from a drive and may say anything: a row that breaks a rule is left out and reported.
//! A mount refuses a drive with any problem; check lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zerocopy::byteorder::little_endian::U32;

use super::alloc::{Role, ZoneSlot, Zones};
use super::format::BLOCK_BYTES;
use super::format::owners::OwnerRecord;
use super::format::row::{
    EntryRow, ExtentRow, InodeRow, Place, Row, SharedPlace, ZonePlace, decode, entry_bytes,
    extent_bytes, owners_bytes,
};
use super::held::Used;
use super::invariant::{self as rule, Invariant, Problems};
use super::known::Known;
use super::names::{NameKey, Names, names_bytes};
use super::place::{Crcs, Extent, ExtentId, MapEntry};
use super::rows::KINDS;
use super::state::{Body, Directory, Entry, File, Inode, State, Xattr, inode_bytes};
use super::sums::Base;
use super::table::key::Key;
use crate::rules;
use crate::vfs::{FileKind, Ino, InodeFlags, Timestamp};

/// Attributes by inode and slot.
type XattrRows = BTreeMap<(u64, u64), (Box<[u8]>, Box<[u8]>)>;

/// Entries by directory and cookie.
type EntryRows = BTreeMap<(u64, u64), (EntryRow, Box<[u8]>)>;

/// Cookies by directory and hash.
type NameRows = BTreeMap<(u64, u64), Vec<u64>>;

/// All rows, by kind and key.
#[derive(Debug, Default)]
pub(super) struct Rows {
    base: Base,
    inodes: BTreeMap<u64, (InodeRow, Box<[u8]>)>,
    entries: EntryRows,
    names: NameRows,
    xattrs: XattrRows,
    extents: BTreeMap<u64, Extent>,
    maps: BTreeMap<(u64, u64), MapEntry>,
    /// By zone and place: bytes of the row, and what it says.
    owners: BTreeMap<(u64, u64), (u32, Vec<OwnerRecord>)>,
}

/// Records in rows of owners, by zone.
pub(super) type OwnersOfZones = BTreeMap<u32, Vec<OwnerRecord>>;

impl Rows {
    /// Enters a row.
    pub(super) fn put(&mut self, key: Key, value: &[u8]) -> Result<(), String> {
        let (owner, at) = (key.owner(), key.at());
        let Some(row) = self.base.put(key, decode(key, value)?) else { return Ok(()) };
        match row {
            Row::Inode(row, target) => {
                self.inodes.insert(owner, (row, target.into()));
            }
            Row::Entry(row, name) => {
                self.entries.insert((owner, at), (row, name.into()));
            }
            Row::Xattr(name, value) => {
                self.xattrs.insert((owner, at), (name.into(), value.into()));
            }
            Row::Extent(row, crcs) => {
                self.extents.insert(owner, extent_of(&row, crcs));
            }
            Row::Owners(records) => {
                let row = (owners_bytes(value.len()), records.into_owned());
                self.owners.insert((owner, at), row);
            }
            // Taken by the base.
            Row::Totals(_) | Row::Zone(_) | Row::Orphan => {}
            Row::Name(cookies) => {
                let cookies = cookies.iter().map(|cookie| cookie.get()).collect();
                self.names.insert((owner, at), cookies);
            }
            Row::Map(blocks, place) => {
                self.maps.insert((owner, at), entry_of(blocks, &place));
            }
        }
        Ok(())
    }

    /// Builds the state. `zones` know their roles and capacities, and nothing of data yet.
    pub(super) fn build(
        self,
        begin: (Zones, NameKey),
        problems: &mut Problems,
    ) -> (State, OwnersOfZones) {
        let mut state = State::new(begin.0, begin.1);
        (state.next_ino, state.next_extent) = self.next_numbers();
        let counts: BTreeMap<Ino, u64> =
            self.inodes.iter().map(|(&ino, (row, _))| (Ino::new(ino), row.count.get())).collect();
        let before = problems.count();
        build_inodes(&mut state, self.inodes, problems);
        build_xattrs(&mut state, self.xattrs, problems);
        build_entries(&mut state, self.entries, problems);
        check_names(&mut state, self.names, problems);
        let mut taken = Taken::default();
        build_extents(&mut state, self.extents, &mut taken, problems);
        let references = build_maps(&mut state, self.maps, &mut taken, problems);
        check_references(&mut state, &references, problems);
        check_links(&state, problems);
        for inode in state.inodes.values() {
            state.totals.row_bytes += inode_bytes(inode);
        }
        for (bytes, _) in self.owners.values() {
            state.totals.add_place_bytes((*bytes).into());
        }
        state.totals.inodes = state.inodes.len() as u64;
        // Where rows were left out, all sums differ for that.
        if problems.count() == before {
            check_counts(&state, &counts, problems);
            self.base.compare(&state, problems);
        }
        self.base.apply_clocks(&mut state, problems);
        let owners = collect_owners(&state.zones, self.owners, problems);
        drop(state.take_changes());
        (state, owners)
    }

    /// Numbers are given on after these. Without totals, after the highest ones used.
    fn next_numbers(&self) -> (u64, u64) {
        // Saturation instead of overflow: such a row is then reported as out of range.
        let after = |last: Option<&u64>| last.map_or(1, |last| last.saturating_add(1));
        let found =
            || (after(self.inodes.keys().next_back()), after(self.extents.keys().next_back()));
        self.base.next_numbers().unwrap_or_else(found)
    }
}

/// Access, change of content, change of inode, birth.
fn times(row: &InodeRow) -> [Option<Timestamp>; 4] {
    let times = [
        (row.atime, row.atime_ns),
        (row.mtime, row.mtime_ns),
        (row.ctime, row.ctime_ns),
        (row.btime, row.btime_ns),
    ];
    times.map(|(secs, nanos)| Timestamp::new(secs.get(), nanos.get()))
}

fn build_inodes(
    state: &mut State,
    rows: BTreeMap<u64, (InodeRow, Box<[u8]>)>,
    problems: &mut Problems,
) {
    for (raw, (row, target)) in rows {
        if raw == 0 || raw >= state.next_ino {
            let what = format!("there is an inode {raw}; the next inode is {}", state.next_ino);
            problems.add(rule::INODES, what);
            continue;
        }
        match inode_of(&row, &target) {
            Ok(mut inode) => {
                match &mut inode.body {
                    Body::File(file) => (file.known, file.mapped) = (Known::all(), 0),
                    Body::Directory(directory) => {
                        (directory.known, directory.entries) = (Known::all(), 0);
                    }
                    Body::Symlink(_) | Body::Special => {}
                }
                if row.reaping != 0 {
                    state.reaping.insert(Ino::new(raw));
                }
                if inode.nlink == 0 {
                    state.unlinked.insert(Ino::new(raw));
                }
                state.inodes.insert(Ino::new(raw), inode);
            }
            Err((broken, why)) => problems.add(broken, format!("inode {raw} has {why}")),
        }
    }
}

/// The inode that a row describes, without attributes, map and entries.
pub(super) fn inode_of(row: &InodeRow, target: &[u8]) -> Result<Inode, (Invariant, String)> {
    let kind = KINDS.into_iter().find(|(number, _)| *number == row.kind);
    let (_, kind) = kind.ok_or_else(|| (rule::INODES, format!("kind {}", row.kind)))?;
    if row.size.get() > rules::FILE_SIZE_MAX {
        return Err((rule::SIZES, format!("size {}", row.size)));
    }
    if row.count.get() > rules::FILE_SIZE_MAX / BLOCK_BYTES as u64 + 1 {
        return Err((rule::COUNTS, format!("a count of {}", row.count)));
    }
    if row.next_cookie.get() > u64::MAX / 2 {
        return Err((rule::COOKIES, format!("next cookie {}", row.next_cookie)));
    }
    let [Some(atime), Some(mtime), Some(ctime), Some(btime)] = times(row) else {
        return Err((rule::INODES, "a time with a second or more of nanoseconds".into()));
    };
    let body = match kind {
        FileKind::Regular => {
            let reap_from = (row.reaping != 0).then(|| row.size.get().div_ceil(BLOCK_BYTES as u64));
            Body::File(File { reap_from, mapped: row.count.get(), ..File::default() })
        }
        FileKind::Directory => Body::Directory(Directory {
            parent: Ino::new(row.parent.get()),
            next_cookie: row.next_cookie.get(),
            entries: row.count.get(),
            names: (row.indexed != 0).then(Names::default),
            ..Directory::default()
        }),
        FileKind::Symlink => Body::Symlink(target.into()),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            Body::Special
        }
    };
    Ok(Inode {
        kind,
        perm: row.perm.get() & rules::PERM_MASK,
        nlink: row.nlink.get(),
        uid: row.uid.get(),
        gid: row.gid.get(),
        rdev: row.rdev.get(),
        size: row.size.get(),
        atime,
        mtime,
        ctime,
        btime,
        flags: InodeFlags::from_bits_truncate(row.flags),
        xattrs: BTreeMap::new(),
        body,
        used: Used::default(),
    })
}

/// The entry that a row describes.
pub(super) fn directory_entry(cookie: u64, row: &EntryRow) -> Option<Entry> {
    let (_, kind) = KINDS.into_iter().find(|(number, _)| *number == row.kind)?;
    Some(Entry { ino: Ino::new(row.ino.get()), cookie, kind })
}

fn build_xattrs(state: &mut State, rows: XattrRows, problems: &mut Problems) {
    for ((ino, slot), (name, value)) in rows {
        let text = || format!("{} of inode {ino}", String::from_utf8_lossy(&name));
        let Some(inode) = state.inodes.get_mut(&Ino::new(ino)) else {
            problems.add(rule::XATTRS, format!("{}, which does not exist", text()));
            continue;
        };
        if inode.xattrs.contains_key(&name) {
            problems.add(rule::XATTRS, format!("{} is there twice", text()));
            continue;
        }
        inode.xattrs.insert(name, Xattr { slot, value });
    }
}

fn build_entries(state: &mut State, rows: EntryRows, problems: &mut Problems) {
    for ((parent, cookie), (row, name)) in rows {
        let ino = Ino::new(row.ino.get());
        let text = || format!("entry {:?} of inode {parent}", String::from_utf8_lossy(&name));
        let kind = state.inodes.get(&ino).map(|inode| inode.kind);
        let stated =
            KINDS.into_iter().find(|(number, _)| *number == row.kind).map(|(_, kind)| kind);
        let Some(kind) = kind.filter(|_| stated == kind && rules::check_name(&name).is_ok()) else {
            let what = format!("{} leads to inode {ino}, of kind {}", text(), row.kind);
            problems.add(rule::ENTRIES, what);
            continue;
        };
        let inode = state.inodes.get_mut(&Ino::new(parent));
        let Some(directory) = inode.and_then(|inode| inode.directory_mut().ok()) else {
            problems.add(rule::ENTRIES, format!("{} is in no directory", text()));
            continue;
        };
        if directory.by_name.contains_key(&name[..]) {
            problems.add(rule::ENTRIES, format!("{} is there twice", text()));
            continue;
        }
        if cookie >= directory.next_cookie {
            problems.add(rule::COOKIES, format!("{} has cookie {cookie}", text()));
            continue;
        }
        let name: Arc<[u8]> = name.into();
        state.totals.row_bytes += entry_bytes(&name);
        directory.by_cookie.insert(cookie, Arc::clone(&name));
        if let Some(names) = &mut directory.names {
            names.add(state.name_key.hash(&name), cookie);
        }
        directory.by_name.insert(name, Entry { ino, cookie, kind });
        directory.entries += 1;
    }
}

/// Compares the rows of names with the entries.
fn check_names(state: &mut State, mut rows: NameRows, problems: &mut Problems) {
    for (&ino, inode) in &state.inodes {
        let names = inode.directory().ok().and_then(|directory| directory.names.as_ref());
        for (hash, cookies) in names.into_iter().flat_map(Names::rows) {
            state.totals.row_bytes += names_bytes(cookies.len());
            let stated = rows.remove(&(ino.get(), hash)).unwrap_or_default();
            if stated != cookies {
                let what = format!(
                    "hash {hash:016x} of inode {ino} leads to {stated:?} and not to {cookies:?}"
                );
                problems.add(rule::NAMES, what);
            }
        }
    }
    for ((ino, hash), cookies) in rows {
        let what =
            format!("hash {hash:016x} of inode {ino} leads to {cookies:?}, and nothing has it");
        problems.add(rule::NAMES, what);
    }
}

fn crcs_of(raw: &[U32]) -> Crcs {
    let crcs: Vec<u32> = raw.iter().map(|crc| crc.get()).collect();
    Crcs::from(&crcs[..])
}

pub(super) fn extent_of(row: &ExtentRow, crcs: &[U32]) -> Extent {
    let ExtentRow { zone, block, refs, .. } = row;
    Extent { zone: zone.get(), block: block.get(), refs: refs.get(), crcs: crcs_of(crcs), used: 0 }
}

pub(super) fn entry_of(blocks: u32, place: &Place<'_>) -> MapEntry {
    match place {
        Place::Preallocated => MapEntry::Preallocated { blocks },
        Place::Zone(ZonePlace { zone, block }, crcs) => {
            MapEntry::At { zone: zone.get(), block: block.get(), crcs: crcs_of(crcs) }
        }
        Place::Shared(SharedPlace { extent, skip }) => {
            MapEntry::Shared { extent: ExtentId(extent.get()), skip: skip.get(), blocks }
        }
    }
}

/// Runs of blocks that somebody has: the block behind each, by zone and first block.
#[derive(Default)]
struct Taken(BTreeMap<(u32, u32), u32>);

impl Taken {
    /// Enters a run, or says which rule it breaks, beside those that are there already.
    fn enter(
        &mut self,
        state: &mut State,
        (zone, block): (u32, u32),
        crcs: &Crcs,
    ) -> Result<(), Invariant> {
        let blocks = crcs.blocks();
        let slot = state.zones.slots.get(zone as usize).ok_or(rule::EXTENTS)?;
        let end = block.checked_add(blocks).filter(|end| *end <= slot.capacity);
        let end = end.filter(|_| blocks > 0).ok_or(rule::EXTENTS)?;
        if matches!(slot.role, Role::Super | Role::Meta) {
            return Err(rule::META_ZONES);
        }
        let before = self.0.range((zone, 0)..(zone, end)).next_back();
        if before.is_some_and(|(_, before_ends)| *before_ends > block) {
            return Err(rule::DISJOINT);
        }
        self.0.insert((zone, block), end);
        state.zones.add_live(zone, block, blocks);
        state.totals.live += u64::from(blocks);
        Ok(())
    }
}

/// Records by zone, of rows that can be.
fn collect_owners(
    zones: &Zones,
    rows: BTreeMap<(u64, u64), (u32, Vec<OwnerRecord>)>,
    problems: &mut Problems,
) -> OwnersOfZones {
    let mut owners = OwnersOfZones::new();
    let mut found: BTreeMap<u32, u32> = BTreeMap::new();
    for ((zone, at), (bytes, records)) in rows {
        let known = u32::try_from(zone).ok().filter(|zone| zones.ids().contains(zone));
        let slot = known.map(|zone| (zone, zones.slot(zone)));
        let is_inside =
            |slot: &ZoneSlot| records.iter().all(|record| record.end() <= slot.capacity);
        let slot = slot.filter(|(_, slot)| {
            slot.live > 0 && at < u64::from(slot.next_owners) && is_inside(slot)
        });
        let Some((zone, _)) = slot else {
            problems.add(rule::OWNERS, format!("owners of zone {zone}, row {at}"));
            continue;
        };
        *found.entry(zone).or_default() += bytes;
        owners.entry(zone).or_default().extend(records);
    }
    for zone in zones.ids() {
        let (stated, found) =
            (zones.slot(zone).owner_bytes, found.get(&zone).copied().unwrap_or(0));
        if stated != found {
            let what = format!("zone {zone} states {stated} bytes of owners and has {found}");
            problems.add(rule::OWNERS, what);
        }
    }
    owners
}

fn build_extents(
    state: &mut State,
    rows: BTreeMap<u64, Extent>,
    taken: &mut Taken,
    problems: &mut Problems,
) {
    for (id, extent) in rows {
        let Extent { zone, block, ref crcs, .. } = extent;
        let blocks = crcs.blocks();
        let sane = id != 0 && id < state.next_extent;
        let checked = if sane { Ok(()) } else { Err(rule::EXTENTS) };
        if let Err(broken) = checked.and_then(|()| taken.enter(state, (zone, block), crcs)) {
            let what = format!("extent {id} at zone {zone} block {block}, {blocks} blocks");
            problems.add(broken, what);
            continue;
        }
        state.totals.add_place_bytes(extent_bytes(blocks));
        state.extents.insert(ExtentId(id), extent);
    }
}

/// Enters what a map entry has, or says which rule it breaks by itself.
fn enter_entry(state: &mut State, taken: &mut Taken, entry: &MapEntry) -> Result<(), Invariant> {
    match entry {
        MapEntry::Preallocated { blocks } => (*blocks > 0).then_some(()).ok_or(rule::MAPS),
        MapEntry::At { zone, block, crcs } => taken.enter(state, (*zone, *block), crcs),
        MapEntry::Shared { extent, skip, blocks } => {
            let extent = state.extents.get(extent).ok_or(rule::MAPS)?;
            let end = skip.checked_add(*blocks).filter(|_| *blocks > 0);
            end.filter(|end| *end <= extent.crcs.blocks()).map(drop).ok_or(rule::MAPS)
        }
    }
}

/// Returns how many entries refer to each shared extent.
fn build_maps(
    state: &mut State,
    rows: BTreeMap<(u64, u64), MapEntry>,
    taken: &mut Taken,
    problems: &mut Problems,
) -> BTreeMap<ExtentId, u32> {
    let mut references = BTreeMap::new();
    let limit = rules::FILE_SIZE_MAX.div_ceil(BLOCK_BYTES as u64);
    for ((raw, first), entry) in rows {
        let (ino, blocks) = (Ino::new(raw), u64::from(entry.blocks()));
        let file = state.inodes.get(&ino).and_then(|inode| inode.file().ok());
        let checked = match file.map(|file| file.map.iter().next_back()) {
            None => Err(rule::MAPS),
            Some(_) if first.checked_add(blocks).is_none_or(|end| end > limit) => Err(rule::SIZES),
            Some(Some((start, other))) if start + u64::from(other.blocks()) > first => {
                Err(rule::MAP_ORDER)
            }
            Some(_) => enter_entry(state, taken, &entry),
        };
        let file = state.inodes.get_mut(&ino).and_then(|inode| inode.file_mut().ok());
        let (Some(file), Ok(())) = (file, checked) else {
            let broken = checked.err().unwrap_or(rule::MAPS);
            problems.add(broken, format!("inode {raw} block {first}: {}", entry_text(&entry)));
            continue;
        };
        state.totals.add_place_bytes(entry.row_bytes());
        file.mapped += blocks;
        match &entry {
            MapEntry::Preallocated { .. } => state.totals.preallocated += blocks,
            MapEntry::At { .. } => {}
            MapEntry::Shared { extent, .. } => *references.entry(*extent).or_default() += 1,
        }
        file.map.insert(first, entry);
    }
    references
}

fn entry_text(entry: &MapEntry) -> String {
    match entry {
        MapEntry::Preallocated { blocks } => format!("{blocks} blocks, preallocated"),
        MapEntry::At { zone, block, crcs } => {
            format!("{} blocks at zone {zone} block {block}", crcs.blocks())
        }
        MapEntry::Shared { extent, skip, blocks } => {
            format!("{blocks} blocks behind {skip} of extent {}", extent.0)
        }
    }
}

/// Compares reference counts, and drops extents that nothing refers to.
fn check_references(
    state: &mut State,
    references: &BTreeMap<ExtentId, u32>,
    problems: &mut Problems,
) {
    let mut unused = Vec::new();
    for (&id, extent) in &mut state.extents {
        let refs = references.get(&id).copied().unwrap_or(0);
        if extent.refs != refs || refs == 0 {
            let what = format!("extent {} says {} references and has {refs}", id.0, extent.refs);
            problems.add(rule::REFERENCES, what);
        }
        extent.refs = refs;
        if refs == 0 {
            unused.push(id);
        }
    }
    for id in unused {
        let Extent { zone, crcs, .. } = state.extents.remove(&id).expect("just seen");
        state.zones.remove_live(zone, crcs.blocks());
        state.totals.live -= u64::from(crcs.blocks());
        state.totals.remove_place_bytes(extent_bytes(crcs.blocks()));
    }
}

/// Compares counts of blocks and of entries with those that the inodes' rows state.
fn check_counts(state: &State, stated: &BTreeMap<Ino, u64>, problems: &mut Problems) {
    for (ino, inode) in &state.inodes {
        let stated = stated.get(ino).copied().unwrap_or(0);
        let count = inode.count();
        if stated != count {
            problems.add(rule::COUNTS, format!("inode {ino} states {stated} and has {count}"));
        }
    }
}

/// Checks the tree: root, parents, link counts, reachability.
fn check_links(state: &State, problems: &mut Problems) {
    let root = state.inodes.get(&Ino::ROOT).and_then(|inode| inode.directory().ok());
    if root.is_none_or(|root| root.parent != Ino::ROOT) {
        problems.add(rule::ROOT, "inode 1 is no directory, or not its own parent".into());
        return;
    }
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    for (&parent, inode) in &state.inodes {
        let Ok(directory) = inode.directory() else { continue };
        for (name, entry) in &directory.by_name {
            *links.entry(entry.ino).or_default() += 1;
            let child = state.inodes.get(&entry.ino).and_then(|child| child.directory().ok());
            let Some(child) = child else { continue };
            *links.entry(parent).or_default() += 1;
            if child.parent != parent || entry.ino == Ino::ROOT {
                let name = String::from_utf8_lossy(name);
                let what = format!("directory {} is {name:?} in {parent}", entry.ino);
                problems.add(rule::PARENTS, what);
            }
        }
    }
    for (ino, inode) in &state.inodes {
        let mut expected = links.get(ino).copied().unwrap_or(0);
        // A directory counts itself as `.`, and its entry or, for the root, itself as `..`.
        let is_linked_directory = inode.kind == FileKind::Directory && expected > 0;
        if is_linked_directory || *ino == Ino::ROOT {
            expected += if *ino == Ino::ROOT { 2 } else { 1 };
        }
        if inode.nlink != expected {
            let what = format!("inode {ino} says {} links and has {expected}", inode.nlink);
            problems.add(rule::LINKS, what);
        }
    }
    let mut reached = BTreeSet::from([Ino::ROOT]);
    let mut queue = vec![Ino::ROOT];
    while let Some(ino) = queue.pop() {
        let Some(directory) = state.inodes.get(&ino).and_then(|inode| inode.directory().ok())
        else {
            continue;
        };
        for entry in directory.by_name.values() {
            if reached.insert(entry.ino) {
                queue.push(entry.ino);
            }
        }
    }
    for (ino, inode) in &state.inodes {
        if inode.nlink > 0 && !reached.contains(ino) {
            problems.add(rule::REACHABLE, format!("inode {ino}"));
        }
    }
}
