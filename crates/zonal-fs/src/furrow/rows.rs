//! From memory to rows: the batch of everything that changed.

use std::collections::BTreeSet;

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};

use super::format::row::{
    EntryRow, ExtentRow, InodeRow, Place, Row, SharedPlace, ZonePlace, encode,
};
use super::place::{Crcs, Extent, ExtentId, MapEntry};
use super::planted::{Planted, PlantedBug};
use super::state::{Body, Inode, State};
use super::sums::{totals_row, zone_row};
use super::table::key::{Key, RowKind};
use super::table::memtable::{Memtable, Value};
use crate::vfs::{FileKind, Ino};

/// Kinds by their number on disk.
pub(super) const KINDS: [(u8, FileKind); 7] = [
    (1, FileKind::Regular),
    (2, FileKind::Directory),
    (3, FileKind::Symlink),
    (4, FileKind::Fifo),
    (5, FileKind::Socket),
    (6, FileKind::CharDevice),
    (7, FileKind::BlockDevice),
];

/// The rows that changed, with their present values.
pub(super) fn batch(state: &State, changed: &BTreeSet<Key>, planted: Planted) -> Memtable {
    let mut rows = Memtable::default();
    for &key in changed {
        if is_left_out(key.kind(), planted) {
            continue;
        }
        let value = present_value(state, key, planted);
        let is_forgotten = planted.has(PlantedBug::ForgetEntryDeletes)
            && value.is_none()
            && key.kind() == RowKind::Entry;
        if !is_forgotten {
            rows.insert(key, value);
        }
    }
    rows
}

/// Whether a planted mistake leaves out rows of a kind.
fn is_left_out(kind: RowKind, planted: Planted) -> bool {
    let kinds = [
        (PlantedBug::ForgetXattrRows, RowKind::Xattr),
        (PlantedBug::ForgetTotals, RowKind::Totals),
        (PlantedBug::ForgetZoneRows, RowKind::Zone),
        (PlantedBug::ForgetOrphanRows, RowKind::Orphan),
        (PlantedBug::ForgetNames, RowKind::Name),
    ];
    kinds.into_iter().any(|(bug, left_out)| kind == left_out && planted.has(bug))
}

/// The value of a row; `None` if there is no such row any more.
fn present_value(state: &State, key: Key, planted: Planted) -> Value {
    let inode = || state.inodes.get(&Ino::new(key.owner()));
    match key.kind() {
        RowKind::Totals => Some(encode(&Row::Totals(totals_row(state)))),
        RowKind::Zone => {
            let zone = u32::try_from(key.owner()).expect("zone numbers are u32");
            let mut row = zone_row(state.zones.slot(zone))?;
            row.listed |= u8::from(planted.has(PlantedBug::ListOpenZones));
            Some(encode(&Row::Zone(row)))
        }
        RowKind::Orphan => is_orphan(inode()?).then(|| encode(&Row::Orphan)),
        RowKind::Inode => Some(encode_inode(inode()?, planted)),
        RowKind::Xattr => {
            let mut xattrs = inode()?.xattrs.iter();
            let (name, xattr) = xattrs.find(|(_, xattr)| xattr.slot == key.at())?;
            Some(encode(&Row::Xattr(name, xattr)))
        }
        RowKind::Map => Some(encode_map(inode()?.file().ok()?.map.get(&key.at())?)),
        RowKind::Entry => {
            let directory = inode()?.directory().ok()?;
            let name = directory.by_cookie.get(&key.at())?;
            let entry = directory.by_name.get(name)?;
            let row = EntryRow { ino: U64::new(entry.ino.get()), kind: kind_number(entry.kind) };
            Some(encode(&Row::Entry(row, name)))
        }
        RowKind::Extent => state.extents.get(&ExtentId(key.owner())).map(encode_extent),
        RowKind::Name => {
            let cookies = inode()?.directory().ok()?.names.as_ref()?.cookies(key.at());
            let cookies: Vec<U64> = cookies.iter().map(|&cookie| U64::new(cookie)).collect();
            (!cookies.is_empty()).then(|| encode(&Row::Name(&cookies)))
        }
        RowKind::Owners => None,
    }
}

/// Whether it is to be deleted, or something of it waits to be removed.
fn is_orphan(inode: &Inode) -> bool {
    inode.nlink == 0 || inode.file().is_ok_and(|file| file.reap_from.is_some())
}

/// A kind's number on disk.
fn kind_number(kind: FileKind) -> u8 {
    let found = KINDS.into_iter().find(|(_, other)| *other == kind);
    found.expect("every kind has a number").0
}

fn encode_inode(inode: &Inode, planted: Planted) -> Box<[u8]> {
    let (parent, next_cookie) = match &inode.body {
        Body::Directory(directory) => (directory.parent, directory.next_cookie),
        Body::File(_) | Body::Symlink(_) | Body::Special => (Ino::default(), 0),
    };
    let target: &[u8] = match &inode.body {
        Body::Symlink(target) => target,
        Body::File(_) | Body::Directory(_) | Body::Special => &[],
    };
    let nlink = if planted.has(PlantedBug::ForgetLinkCount) { 1 } else { inode.nlink };
    let count = if planted.has(PlantedBug::ForgetCount) { 0 } else { inode.count() };
    let row = InodeRow {
        size: U64::new(inode.size),
        atime: I64::new(inode.atime.secs()),
        atime_ns: U32::new(inode.atime.nanos()),
        mtime: I64::new(inode.mtime.secs()),
        mtime_ns: U32::new(inode.mtime.nanos()),
        ctime: I64::new(inode.ctime.secs()),
        ctime_ns: U32::new(inode.ctime.nanos()),
        btime: I64::new(inode.btime.secs()),
        btime_ns: U32::new(inode.btime.nanos()),
        parent: U64::new(parent.get()),
        next_cookie: U64::new(next_cookie),
        count: U64::new(count),
        nlink: U32::new(nlink),
        uid: U32::new(inode.uid),
        gid: U32::new(inode.gid),
        rdev: U32::new(inode.rdev),
        perm: U16::new(inode.perm),
        kind: kind_number(inode.kind),
        flags: inode.flags.bits(),
        reaping: u8::from(inode.file().is_ok_and(|file| file.reap_from.is_some())),
        indexed: u8::from(inode.directory().is_ok_and(|directory| directory.names.is_some())),
        reserved: [0; 2],
    };
    encode(&Row::Inode(row, target))
}

fn raw_crcs(crcs: &Crcs) -> Vec<U32> {
    crcs.as_slice().iter().map(|&crc| U32::new(crc)).collect()
}

fn encode_extent(extent: &Extent) -> Box<[u8]> {
    let row = ExtentRow {
        zone: U32::new(extent.zone),
        block: U32::new(extent.block),
        refs: U32::new(extent.refs),
    };
    encode(&Row::Extent(row, &raw_crcs(&extent.crcs)))
}

fn encode_map(entry: &MapEntry) -> Box<[u8]> {
    let blocks = entry.blocks();
    match entry {
        MapEntry::Preallocated { .. } => encode(&Row::Map(blocks, Place::Preallocated)),
        MapEntry::At { zone, block, crcs } => {
            let place = ZonePlace { zone: U32::new(*zone), block: U32::new(*block) };
            encode(&Row::Map(blocks, Place::Zone(place, &raw_crcs(crcs))))
        }
        MapEntry::Shared { extent, skip, .. } => {
            let place = SharedPlace { extent: U64::new(extent.0), skip: U32::new(*skip) };
            encode(&Row::Map(blocks, Place::Shared(place)))
        }
    }
}
