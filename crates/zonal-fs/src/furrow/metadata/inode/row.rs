//! Rows of inodes.
//!
//! Rows come from a drive and may say anything.

use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zonal_placement::learned::Context;

use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::format::row::{InodeRow, Row, encode, kind_of, number_of};
use crate::furrow::invariant::{self as rule, Invariant};
use crate::furrow::metadata::directory::Directory;
use crate::furrow::metadata::directory::names::NameIndex;
use crate::furrow::metadata::inode::xattrs::Xattrs;
use crate::furrow::metadata::inode::{Body, Inode};
use crate::furrow::metadata::map::File;
use crate::furrow::metadata::residency::used::Used;
use crate::furrow::planted::{Planted, PlantedBug};
use crate::furrow::table::memtable::Value;
use crate::rules;
use crate::vfs::{FileKind, Ino, InodeFlags, Timestamp};

pub(in crate::furrow::metadata) fn encode_inode(inode: &Inode, planted: Planted) -> Box<[u8]> {
    let (parent, next) = match &inode.body {
        Body::Directory(directory) => (directory.parent, directory.next_cookie),
        Body::File(file) => (Ino::default(), file.truncate_from.map_or(0, |from| from + 1)),
        Body::Symlink(_) | Body::Special => (Ino::default(), 0),
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
        next: U64::new(next),
        count: U64::new(count),
        nlink: U32::new(nlink),
        uid: U32::new(inode.uid),
        gid: U32::new(inode.gid),
        rdev: U32::new(inode.rdev),
        perm: U16::new(inode.perm),
        kind: number_of(inode.kind),
        flags: inode.flags.bits(),
        indexed: u8::from(inode.directory().is_ok_and(|directory| directory.index.is_some())),
        context: U16::new(inode.context.map_or(0, |context| context.slot() + 1)),
        reserved: 0,
    };
    encode(&Row::Inode(row, target))
}

/// The row of an attribute at a place.
pub(in crate::furrow::metadata) fn encode_xattr(inode: &Inode, slot: u64) -> Value {
    let xattr = inode.xattrs.at(slot)?;
    Some(encode(&Row::Xattr(&xattr.name, &xattr.value)))
}

/// The inode that a row describes, without attributes, map and entries.
pub(in crate::furrow) fn inode_of(
    row: &InodeRow,
    target: &[u8],
) -> Result<Inode, (Invariant, String)> {
    let kind = kind_of(row.kind).ok_or_else(|| (rule::INODES, format!("kind {}", row.kind)))?;
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
            index: (row.indexed != 0).then(NameIndex::default),
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
