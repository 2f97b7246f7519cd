//! Rows to memory: the state that a checkpoint and the batches after it describe.
//!
//! Rows come from a drive, so nothing about them is believed: whatever breaks a rule is left out
//! and reported. Mount refuses a drive with any problem; check lists them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::alloc::Zones;
use super::format::row::{EntryRow, ExtentRow, InodeRow, MapRow, Row, RowOp, decode};
use super::invariant::{self as rule, Problems};
use super::rows::KINDS;
use super::state::{
    Body, Directory, Entry, Extent, ExtentId, File, Inode, MAP_BYTES, MapEntry, State, entry_bytes,
    extent_bytes, inode_bytes,
};
use crate::rules;
use crate::vfs::{FileKind, Ino, InodeFlags, Timestamp};

/// Attributes by inode and name.
type XattrRows = BTreeMap<(u64, Box<[u8]>), Box<[u8]>>;

/// Rows by key, the latest of each.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) inodes: BTreeMap<u64, (InodeRow, Box<[u8]>)>,
    pub(super) entries: BTreeMap<(u64, Box<[u8]>), EntryRow>,
    pub(super) xattrs: XattrRows,
    pub(super) extents: BTreeMap<u64, (ExtentRow, Vec<u32>)>,
    pub(super) maps: BTreeMap<(u64, u64), MapRow>,
}

impl Rows {
    /// Applies all rows of a record's body and returns how many there were.
    pub(super) fn apply(&mut self, mut body: &[u8]) -> Result<u64, String> {
        let mut count = 0;
        while let Some((op, row)) = decode(&mut body)? {
            count += 1;
            match op {
                RowOp::Put => self.put(&row),
                RowOp::Delete => self.delete(&row),
            }
        }
        Ok(count)
    }

    fn put(&mut self, row: &Row<'_>) {
        match *row {
            Row::Inode(row, target) => {
                self.inodes.insert(row.ino.get(), (row, target.into()));
            }
            Row::Entry(row, name) => {
                self.entries.insert((row.parent.get(), name.into()), row);
            }
            Row::Xattr(row, name, value) => {
                self.xattrs.insert((row.ino.get(), name.into()), value.into());
            }
            Row::Extent(row, crcs) => {
                let crcs = crcs.iter().map(|crc| crc.get()).collect();
                self.extents.insert(row.id.get(), (row, crcs));
            }
            Row::Map(row) => {
                self.maps.insert((row.ino.get(), row.first.get()), row);
            }
        }
    }

    fn delete(&mut self, row: &Row<'_>) {
        match *row {
            Row::Inode(row, _) => {
                self.inodes.remove(&row.ino.get());
            }
            Row::Entry(row, name) => {
                self.entries.remove(&(row.parent.get(), Box::from(name)));
            }
            Row::Xattr(row, name, _) => {
                self.xattrs.remove(&(row.ino.get(), Box::from(name)));
            }
            Row::Extent(row, _) => {
                self.extents.remove(&row.id.get());
            }
            Row::Map(row) => {
                self.maps.remove(&(row.ino.get(), row.first.get()));
            }
        }
    }

    /// Builds the state. `zones` know their roles and capacities, and nothing of data yet.
    pub(super) fn build(self, zones: Zones, next: (u64, u64), problems: &mut Problems) -> State {
        let mut state = State::new(zones);
        (state.next_ino, state.next_extent) = next;
        build_inodes(&mut state, self.inodes, problems);
        build_xattrs(&mut state, self.xattrs, problems);
        build_entries(&mut state, self.entries, problems);
        build_extents(&mut state, &self.extents, problems);
        build_maps(&mut state, self.maps, problems);
        check_references(&mut state, &self.extents, problems);
        check_links(&state, problems);
        for inode in state.inodes.values() {
            state.totals.row_bytes += inode_bytes(inode);
        }
        state.changes = super::state::Changes::default();
        state
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
        let kind = KINDS.into_iter().find(|(number, _)| *number == row.kind);
        let Some((_, kind)) = kind.filter(|_| raw != 0 && raw < state.next_ino) else {
            let next = state.next_ino;
            let what = format!("inode {raw} has kind {}; the next inode is {next}", row.kind);
            problems.add(rule::INODES, what);
            continue;
        };
        let body = match kind {
            FileKind::Regular => Body::File(File::default()),
            FileKind::Directory => Body::Directory(Directory {
                parent: Ino::new(row.parent.get()),
                next_cookie: row.next_cookie.get(),
                ..Directory::default()
            }),
            FileKind::Symlink => Body::Symlink(target),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Body::Special
            }
        };
        if row.size.get() > rules::FILE_SIZE_MAX {
            problems.add(rule::SIZES, format!("inode {raw} has size {}", row.size));
            continue;
        }
        let [Some(atime), Some(mtime), Some(ctime), Some(btime)] = times(&row) else {
            let what = format!("inode {raw} has a time with a second or more of nanoseconds");
            problems.add(rule::INODES, what);
            continue;
        };
        let inode = Inode {
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
            pins: 0,
            body,
        };
        state.inodes.insert(Ino::new(raw), inode);
    }
}

fn build_xattrs(state: &mut State, rows: XattrRows, problems: &mut Problems) {
    for ((ino, name), value) in rows {
        if let Some(inode) = state.inodes.get_mut(&Ino::new(ino)) {
            inode.xattrs.insert(name, value);
        } else {
            let name = String::from_utf8_lossy(&name).into_owned();
            problems.add(rule::XATTRS, format!("{name} of inode {ino}, which does not exist"));
        }
    }
}

fn build_entries(
    state: &mut State,
    rows: BTreeMap<(u64, Box<[u8]>), EntryRow>,
    problems: &mut Problems,
) {
    for ((parent, name), row) in rows {
        let ino = Ino::new(row.ino.get());
        let text = || format!("entry {:?} of inode {parent}", String::from_utf8_lossy(&name));
        if rules::check_name(&name).is_err() || !state.inodes.contains_key(&ino) {
            problems.add(rule::ENTRIES, format!("{} leads to inode {ino}", text()));
            continue;
        }
        let inode = state.inodes.get_mut(&Ino::new(parent));
        let Some(directory) = inode.and_then(|inode| inode.directory_mut().ok()) else {
            problems.add(rule::ENTRIES, format!("{} is in no directory", text()));
            continue;
        };
        let cookie = row.cookie.get();
        if cookie >= directory.next_cookie || directory.by_cookie.contains_key(&cookie) {
            problems.add(rule::COOKIES, format!("{} has cookie {cookie}", text()));
            continue;
        }
        let name: Arc<[u8]> = name.into();
        state.totals.row_bytes += entry_bytes(&name);
        directory.by_cookie.insert(cookie, Arc::clone(&name));
        directory.by_name.insert(name, Entry { ino, cookie });
    }
}

fn build_extents(
    state: &mut State,
    rows: &BTreeMap<u64, (ExtentRow, Vec<u32>)>,
    problems: &mut Problems,
) {
    use super::alloc::Role;
    for (&id, (row, crcs)) in rows {
        let (zone, block, blocks) = (row.zone.get(), row.block.get(), row.blocks.get());
        let text = || format!("extent {id} at zone {zone} block {block}, {blocks} blocks");
        let slot = state.zones.slots.get(zone as usize);
        let inside = slot
            .is_some_and(|slot| block.checked_add(blocks).is_some_and(|end| end <= slot.capacity));
        let sane = id != 0 && id < state.next_extent && blocks > 0 && row.unit_shift == 0;
        if !inside || !sane || crcs.len() != blocks as usize {
            problems.add(rule::EXTENTS, text());
            continue;
        }
        let slot = state.zones.slot(zone);
        if matches!(slot.role, Role::Super | Role::Meta) {
            problems.add(rule::META_ZONES, text());
            continue;
        }
        let end_of = |other: &ExtentId| {
            state.extents.get(other).map_or(0, |extent| extent.block + extent.blocks())
        };
        let before = slot.extents.range(..=block).next_back();
        let after = slot.extents.range(block..).next();
        if before.is_some_and(|(_, other)| end_of(other) > block)
            || after.is_some_and(|(&start, _)| start < block + blocks)
        {
            problems.add(rule::DISJOINT, text());
            continue;
        }
        state.zones.add_live(zone, block, blocks, ExtentId(id));
        state.totals.live += u64::from(blocks);
        state.totals.add_place_bytes(extent_bytes(blocks));
        let owner = (Ino::default(), 0);
        let extent = Extent { zone, block, refs: 0, owner, crcs: crcs.clone() };
        state.extents.insert(ExtentId(id), extent);
    }
}

fn build_maps(state: &mut State, rows: BTreeMap<(u64, u64), MapRow>, problems: &mut Problems) {
    for ((raw, first), row) in rows {
        let (ino, id) = (Ino::new(raw), ExtentId(row.extent.get()));
        let entry = MapEntry { extent: id, skip: row.skip.get(), blocks: row.blocks.get() };
        let text = || format!("inode {raw} block {first}: {entry:?}");
        let extent = state.extents.get(&id);
        let inside = match extent {
            _ if entry.blocks == 0 => false,
            None => id == ExtentId::PREALLOCATED && entry.skip == 0,
            Some(extent) => {
                entry.skip.checked_add(entry.blocks).is_some_and(|end| end <= extent.blocks())
            }
        };
        let file = state.inodes.get_mut(&ino).and_then(|inode| inode.file_mut().ok());
        let (Some(file), true) = (file, inside) else {
            problems.add(rule::MAPS, text());
            continue;
        };
        let limit = rules::FILE_SIZE_MAX.div_ceil(super::format::BLOCK_BYTES as u64);
        if first.checked_add(u64::from(entry.blocks)).is_none_or(|end| end > limit) {
            problems.add(rule::SIZES, text());
            continue;
        }
        let before = file.map.iter().next_back();
        if before.is_some_and(|(start, other)| start + u64::from(other.blocks) > first) {
            problems.add(rule::MAP_ORDER, text());
            continue;
        }
        file.map.insert(first, entry);
        file.mapped += u64::from(entry.blocks);
        state.totals.add_place_bytes(MAP_BYTES);
        if let Some(extent) = state.extents.get_mut(&id) {
            extent.refs += 1;
            extent.owner = (ino, first);
        } else {
            state.totals.preallocated += u64::from(entry.blocks);
        }
    }
}

/// Compares reference counts, and drops extents that nothing refers to.
fn check_references(
    state: &mut State,
    rows: &BTreeMap<u64, (ExtentRow, Vec<u32>)>,
    problems: &mut Problems,
) {
    let mut unused = Vec::new();
    for (&id, extent) in &state.extents {
        let stored = rows.get(&id.0).map_or(0, |(row, _)| row.refs.get());
        if stored != extent.refs || extent.refs == 0 {
            let what = format!("extent {} says {stored} references and has {}", id.0, extent.refs);
            problems.add(rule::REFERENCES, what);
        }
        if extent.refs == 0 {
            unused.push(id);
        }
    }
    for id in unused {
        let extent = state.extents.remove(&id).expect("just seen");
        state.zones.remove_live(extent.zone, extent.block, extent.blocks());
        state.totals.live -= u64::from(extent.blocks());
        state.totals.remove_place_bytes(extent_bytes(extent.blocks()));
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
