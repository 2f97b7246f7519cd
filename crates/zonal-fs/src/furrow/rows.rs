//! Rows from memory: the batch of what changed, and everything for a checkpoint.

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};

use super::format::record::RecordBuffer;
use super::format::row::{
    EntryRow, ExtentRow, InodeRow, MapRow, Place, Row, RowOp, SharedPlace, XattrRow, ZonePlace,
    encode,
};
use super::place::{Crcs, Extent, ExtentId, MapEntry};
use super::planted::{Planted, PlantedBug};
use super::state::{Body, Changes, Inode, RowKey, State};
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
pub(super) fn batch(state: &State, changes: &Changes, planted: Planted) -> RecordBuffer {
    let mut record = RecordBuffer::new();
    let body = record.body();
    for key in &changes.rows {
        if planted.has(PlantedBug::ForgetXattrRows) && matches!(key, RowKey::Xattr(..)) {
            continue;
        }
        encode_change(state, key, body, planted);
    }
    record
}

fn encode_change(state: &State, key: &RowKey, body: &mut Vec<u8>, planted: Planted) {
    match key {
        RowKey::Inode(ino) => match state.inodes.get(ino) {
            Some(inode) => encode_inode(body, *ino, inode, planted),
            None => {
                let mut row = InodeRow::ZERO;
                row.ino = U64::new(ino.get());
                encode(body, RowOp::Delete, &Row::Inode(row, &[]));
            }
        },
        RowKey::Entry(parent, name) => {
            let directory = state.inodes.get(parent).and_then(|inode| inode.directory().ok());
            match directory.and_then(|directory| directory.by_name.get(name)) {
                Some(entry) => encode_entry(body, *parent, name, (entry.ino, entry.cookie)),
                None if planted.has(PlantedBug::ForgetEntryDeletes) => {}
                None => {
                    let row = entry_row(*parent, (Ino::default(), 0));
                    encode(body, RowOp::Delete, &Row::Entry(row, name));
                }
            }
        }
        RowKey::Xattr(ino, name) => {
            let value = state.inodes.get(ino).and_then(|inode| inode.xattrs.get(name));
            let op = if value.is_some() { RowOp::Put } else { RowOp::Delete };
            encode_xattr(body, op, *ino, (name, value.map_or(&[], |value| value)));
        }
        RowKey::Extent(id) => match state.extents.get(id) {
            Some(extent) => encode_extent(body, *id, extent),
            None => {
                let mut row = ExtentRow::ZERO;
                row.id = U64::new(id.0);
                encode(body, RowOp::Delete, &Row::Extent(row, &[]));
            }
        },
        RowKey::Map(ino, first) => {
            let file = state.inodes.get(ino).and_then(|inode| inode.file().ok());
            match file.and_then(|file| file.map.get(first)) {
                Some(entry) => encode_map(body, *ino, *first, entry),
                None => {
                    let row = MapRow::new(ino.get(), *first, 0);
                    encode(body, RowOp::Delete, &Row::Map(row, Place::Preallocated));
                }
            }
        }
    }
}

/// Everything, in records of about `piece_bytes` each, and how many rows there are.
pub(super) fn all_rows(
    state: &State,
    piece_bytes: usize,
    planted: Planted,
) -> (Vec<RecordBuffer>, u64) {
    let mut pieces = vec![RecordBuffer::new()];
    let mut rows = 0;
    let mut each = |row: &dyn Fn(&mut Vec<u8>)| {
        rows += 1;
        let last = pieces.last_mut().expect("begins with one");
        let before = last.bytes();
        row(last.body());
        if last.body_bytes() > piece_bytes {
            let row = last.body().split_off(before);
            let mut next = RecordBuffer::new();
            next.body().extend_from_slice(&row);
            pieces.push(next);
        }
    };
    for (&ino, inode) in &state.inodes {
        each(&|body| encode_inode(body, ino, inode, planted));
    }
    for (&ino, inode) in &state.inodes {
        if let Body::Directory(directory) = &inode.body {
            for (name, entry) in &directory.by_name {
                each(&|body| encode_entry(body, ino, name, (entry.ino, entry.cookie)));
            }
        }
    }
    if !planted.has(PlantedBug::CheckpointWithoutXattrs) {
        for (&ino, inode) in &state.inodes {
            for (name, value) in &inode.xattrs {
                each(&|body| encode_xattr(body, RowOp::Put, ino, (name, value)));
            }
        }
    }
    for (&id, extent) in &state.extents {
        each(&|body| encode_extent(body, id, extent));
    }
    for (&ino, inode) in &state.inodes {
        if let Body::File(file) = &inode.body {
            for (&first, entry) in &file.map {
                each(&|body| encode_map(body, ino, first, entry));
            }
        }
    }
    (pieces, rows)
}

fn encode_inode(body: &mut Vec<u8>, ino: Ino, inode: &Inode, planted: Planted) {
    let (kind, _) =
        KINDS.into_iter().find(|(_, kind)| *kind == inode.kind).expect("every kind has a number");
    let (parent, next_cookie) = match &inode.body {
        Body::Directory(directory) => (directory.parent, directory.next_cookie),
        Body::File(_) | Body::Symlink(_) | Body::Special => (Ino::default(), 0),
    };
    let target: &[u8] = match &inode.body {
        Body::Symlink(target) => target,
        Body::File(_) | Body::Directory(_) | Body::Special => &[],
    };
    let nlink = if planted.has(PlantedBug::ForgetLinkCount) { 1 } else { inode.nlink };
    let row = InodeRow {
        ino: U64::new(ino.get()),
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
        nlink: U32::new(nlink),
        uid: U32::new(inode.uid),
        gid: U32::new(inode.gid),
        rdev: U32::new(inode.rdev),
        perm: U16::new(inode.perm),
        kind,
        flags: inode.flags.bits(),
        reaping: u8::from(inode.file().is_ok_and(|file| file.reap_from.is_some())),
        reserved: [0; 3],
    };
    encode(body, RowOp::Put, &Row::Inode(row, target));
}

fn entry_row(parent: Ino, (ino, cookie): (Ino, u64)) -> EntryRow {
    EntryRow { parent: U64::new(parent.get()), ino: U64::new(ino.get()), cookie: U64::new(cookie) }
}

fn encode_entry(body: &mut Vec<u8>, parent: Ino, name: &[u8], leads_to: (Ino, u64)) {
    encode(body, RowOp::Put, &Row::Entry(entry_row(parent, leads_to), name));
}

fn encode_xattr(body: &mut Vec<u8>, op: RowOp, ino: Ino, (name, value): (&[u8], &[u8])) {
    let name_bytes = u32::try_from(name.len()).expect("names are short");
    let row = XattrRow {
        ino: U64::new(ino.get()),
        name_bytes: U32::new(name_bytes),
        reserved: U32::new(0),
    };
    encode(body, op, &Row::Xattr(row, name, value));
}

fn raw_crcs(crcs: &Crcs) -> Vec<U32> {
    crcs.as_slice().iter().map(|&crc| U32::new(crc)).collect()
}

fn encode_extent(body: &mut Vec<u8>, id: ExtentId, extent: &Extent) {
    let row = ExtentRow {
        id: U64::new(id.0),
        zone: U32::new(extent.zone),
        block: U32::new(extent.block),
        refs: U32::new(extent.refs),
        reserved: U32::new(0),
    };
    encode(body, RowOp::Put, &Row::Extent(row, &raw_crcs(&extent.crcs)));
}

fn encode_map(body: &mut Vec<u8>, ino: Ino, first: u64, entry: &MapEntry) {
    let row = MapRow::new(ino.get(), first, entry.blocks());
    match entry {
        MapEntry::Preallocated { .. } => {
            encode(body, RowOp::Put, &Row::Map(row, Place::Preallocated));
        }
        MapEntry::At { zone, block, crcs } => {
            let place = ZonePlace { zone: U32::new(*zone), block: U32::new(*block) };
            encode(body, RowOp::Put, &Row::Map(row, Place::Zone(place, &raw_crcs(crcs))));
        }
        MapEntry::Shared { extent, skip, .. } => {
            let place = SharedPlace { extent: U64::new(extent.0), skip: U32::new(*skip) };
            encode(body, RowOp::Put, &Row::Map(row, Place::Shared(place)));
        }
    }
}
