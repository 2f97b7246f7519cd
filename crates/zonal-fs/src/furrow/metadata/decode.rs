//! From rows to memory: each row in the form that the state has it.
//!
//! Rows come from a drive and may say anything.

use zerocopy::byteorder::little_endian::U32;
use zonal_placement::learned::Context;

use crate::furrow::format::row::{EntryRow, ExtentRow, InodeRow, Place, SharedPlace};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::invariant::{self as rule, Invariant};
use crate::furrow::metadata::encode::KINDS;
use crate::furrow::metadata::held::Used;
use crate::furrow::metadata::names::Names;
use crate::furrow::metadata::place::{Crcs, Extent, ExtentId, MapEntry};
use crate::furrow::metadata::xattrs::Xattrs;
use crate::furrow::metadata::{Body, Directory, Entry, File, Inode};
use crate::rules;
use crate::vfs::{FileKind, Ino, InodeFlags, Timestamp};

/// The inode that a row describes, without attributes, map and entries.
pub(in crate::furrow) fn inode_of(
    row: &InodeRow,
    target: &[u8],
) -> Result<Inode, (Invariant, String)> {
    let kind = KINDS.into_iter().find(|(number, _)| *number == row.kind);
    let (_, kind) = kind.ok_or_else(|| (rule::INODES, format!("kind {}", row.kind)))?;
    if row.size.get() > rules::FILE_SIZE_MAX {
        return Err((rule::SIZES, format!("size {}", row.size)));
    }
    if row.count.get() > rules::FILE_SIZE_MAX / BLOCK_BYTES as u64 + 1 {
        return Err((rule::COUNTS, format!("a count of {}", row.count)));
    }
    if kind == FileKind::Directory && row.next.get() > u64::MAX / 2 {
        return Err((rule::COOKIES, format!("next cookie {}", row.next)));
    }
    let [Some(atime), Some(mtime), Some(ctime), Some(btime)] = times(row) else {
        return Err((rule::INODES, "a time with a second or more of nanoseconds".into()));
    };
    let body = match kind {
        FileKind::Regular => {
            // All blocks of a deleted file wait to be removed, although its row may name only those
            // behind its end.
            let is_deleted = row.nlink.get() == 0;
            let truncate_from = row.truncate_from().map(|from| if is_deleted { 0 } else { from });
            Body::File(File { truncate_from, mapped: row.count.get(), ..File::default() })
        }
        FileKind::Directory => Body::Directory(Box::new(Directory {
            parent: Ino::new(row.parent.get()),
            next_cookie: row.next.get(),
            entries: row.count.get(),
            names: (row.indexed != 0).then(Names::default),
            ..Directory::default()
        })),
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
        context: row.context.get().checked_sub(1).and_then(Context::from_slot),
        xattrs: Xattrs::default(),
        body,
        used: Used::default(),
    })
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

/// The entry that a row describes.
pub(in crate::furrow) fn directory_entry(cookie: u64, row: &EntryRow) -> Option<Entry> {
    let (_, kind) = KINDS.into_iter().find(|(number, _)| *number == row.kind)?;
    Some(Entry { ino: Ino::new(row.ino.get()), cookie, kind })
}

fn crcs_of(raw: &[U32]) -> Crcs {
    let crcs: Vec<u32> = raw.iter().map(|crc| crc.get()).collect();
    Crcs::from(&crcs[..])
}

pub(in crate::furrow) fn extent_of(row: &ExtentRow, crcs: &[U32]) -> Extent {
    let ExtentRow { zone, block, refs, .. } = row;
    Extent { zone: zone.get(), block: block.get(), refs: refs.get(), crcs: crcs_of(crcs), used: 0 }
}

pub(in crate::furrow) fn entry_of(blocks: u32, place: &Place<'_>) -> MapEntry {
    match place {
        Place::Preallocated => MapEntry::Preallocated { blocks },
        Place::Zone(place, crcs) => {
            let Address { zone, block } = place.address();
            MapEntry::At { zone, block, crcs: crcs_of(crcs) }
        }
        Place::Shared(SharedPlace { extent, skip }, space) => {
            let (extent, skip) = (ExtentId(extent.get()), skip.get());
            MapEntry::Shared { extent, skip, blocks, space: *space }
        }
    }
}
