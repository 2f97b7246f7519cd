//! Parses requests.
//!
//! [`parse`] takes any bytes and never panics. An [`Op`] borrows names and data from them.

use crate::abi::{
    self, FattrFlags, GetattrFlags, NodeId, ReadFlags, SetxattrFlags, WriteFlags, opcode,
};
use crate::fields::Fields;
pub use crate::fields::Malformed;

/// Bytes of a WRITE before its data. A buffer begins this far before a page, to align the data.
pub const BEFORE_DATA: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

/// Header of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the request; the answer carries it too.
    pub unique: u64,
    /// The inode that it is about, in most requests.
    pub node: NodeId,
    /// User of the caller, if the kernel fills it in.
    pub uid: u32,
    /// Group of the caller, if the kernel fills it in.
    pub gid: u32,
    /// Thread of the caller.
    pub pid: u32,
}

/// A point in time: whole seconds, and nanoseconds after them, less than a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

/// New value of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This time.
    To(Time),
}

/// Changes of a SETATTR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Kind and permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, from a kernel that keeps times itself (`WRITEBACK_CACHE`).
    pub ctime: Option<Time>,
    /// Handle of the open file through which the caller makes the change.
    pub handle: Option<u64>,
    /// Clear setuid and setgid: the owner changes, or a caller without `CAP_FSETID` changes the
    /// length. Only with `HANDLE_KILLPRIV_V2`.
    pub kill_suidgid: bool,
}

/// Parameters of CREATE and TMPFILE, which make and open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// Flags of open(2).
    pub flags: i32,
    /// Kind and permission bits.
    pub mode: u32,
    /// Umask of the caller.
    pub umask: u32,
}

/// A READ, or a part of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Handle of the open file.
    pub handle: u64,
    /// Offset in the file; in a listing, the cookie of the entry before.
    pub offset: u64,
    /// Most bytes of the answer.
    pub size: u32,
    /// Flags of a READ; empty for a listing.
    pub how: ReadFlags,
    /// Flags of open(2).
    pub flags: i32,
}

/// A WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Handle of the open file.
    pub handle: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// Flags of the WRITE.
    pub how: WriteFlags,
    /// Flags of open(2).
    pub flags: i32,
}

/// Width of the count in the answer to `copy_file_range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountWidth {
    /// 32 bits.
    Narrow,
    /// 64 bits.
    Wide,
}

/// A `copy_file_range(2)` out of the node of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Offset in the source.
    pub source_offset: u64,
    /// The target.
    pub target: NodeId,
    /// Offset in the target.
    pub target_offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Width of the count in the answer.
    pub width: CountWidth,
}

/// Nodes of a `BATCH_FORGET`, each with the number of lookups that the kernel takes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let mut fields = Fields(self.0);
        let one: abi::ForgetOne = fields.take().ok()?;
        self.0 = fields.0;
        Some((NodeId(one.nodeid), one.nlookup))
    }
}

/// A request. Names are bytes without a slash, and not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields have the names of system call parameters")]
pub enum Op<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// Not answered.
    Forget {
        lookups: u64,
    },
    /// Not answered.
    BatchForget(Forgets<'a>),
    Getattr {
        /// The request is for an open file, as before a write(2) or read(2); never from stat(2).
        open: bool,
    },
    Statx,
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The node of the header is the directory.
    Link {
        source: NodeId,
        name: &'a [u8],
    },
    Open {
        flags: i32,
    },
    Opendir,
    Create {
        name: &'a [u8],
        how: Create,
    },
    Tmpfile(Create),
    Read(Read),
    Write(Write<'a>),
    Release {
        handle: u64,
        flags: i32,
    },
    Flush,
    Fsync {
        datasync: bool,
    },
    Fsyncdir {
        datasync: bool,
    },
    Syncfs,
    Readdir(Read),
    Readdirplus(Read),
    Statfs,
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
        /// Flags about the caller; empty without `SETXATTR_EXT`.
        caller: SetxattrFlags,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Ioctl {
        command: u32,
        input: &'a [u8],
    },
    Fallocate {
        offset: u64,
        len: u64,
        mode: i32,
    },
    Lseek {
        offset: u64,
        whence: i32,
    },
    CopyFileRange(CopyRange),
    /// A process that waits for an answer has got a signal.
    Interrupt,
    /// The mount ends.
    Destroy,
    /// An opcode that this crate does not know.
    Other(u32),
}

impl Op<'_> {
    /// Whether it gets an answer.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Forget { .. } | Self::BatchForget(_))
    }
}

/// Splits a request into its header, its opcode, and the rest.
pub(crate) fn parse_header(message: &[u8]) -> Result<(Header, u32, &[u8]), Malformed> {
    let mut fields = Fields(message);
    let raw: abi::InHeader = fields.take()?;
    if usize::try_from(raw.len) != Ok(message.len()) {
        return Err(Malformed { what: "not as long as it says" });
    }
    let abi::InHeader { unique, nodeid, uid, gid, pid, .. } = raw;
    let header = Header { unique, node: NodeId(nodeid), uid, gid, pid };
    Ok((header, raw.opcode, fields.0))
}

/// Parses a request. The inner error is that of a request with a valid header.
pub fn parse(message: &[u8]) -> Result<(Header, Result<Op<'_>, Malformed>), Malformed> {
    let (header, opcode, rest) = parse_header(message)?;
    Ok((header, parse_op(opcode, Fields(rest))))
}

fn parse_op(number: u32, mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    Ok(match number {
        opcode::LOOKUP => Op::Lookup { name: fields.name()? },
        opcode::FORGET => Op::Forget { lookups: fields.take::<abi::ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => parse_batch(fields)?,
        opcode::GETATTR => {
            let flags = fields.take::<abi::GetattrIn>()?.getattr_flags;
            let flags = GetattrFlags::from_bits_retain(flags);
            Op::Getattr { open: flags.contains(GetattrFlags::FH) }
        }
        opcode::STATX => {
            fields.take::<abi::StatxIn>()?;
            Op::Statx
        }
        opcode::SETATTR => parse_setattr(&fields.take()?)?,
        opcode::READLINK => Op::Readlink,
        opcode::UNLINK => Op::Unlink { name: fields.name()? },
        opcode::RMDIR => Op::Rmdir { name: fields.name()? },
        opcode::OPEN => Op::Open { flags: fields.take::<abi::OpenIn>()?.flags },
        opcode::OPENDIR => Op::Opendir,
        opcode::READ => Op::Read(parse_read(fields)?),
        opcode::READDIR => Op::Readdir(parse_read(fields)?),
        opcode::READDIRPLUS => Op::Readdirplus(parse_read(fields)?),
        opcode::WRITE => parse_write(fields)?,
        opcode::RELEASE => {
            let abi::ReleaseIn { fh: handle, flags, .. } = fields.take()?;
            Op::Release { handle, flags }
        }
        opcode::FLUSH => Op::Flush,
        opcode::FSYNC => Op::Fsync { datasync: is_datasync(fields)? },
        opcode::FSYNCDIR => Op::Fsyncdir { datasync: is_datasync(fields)? },
        opcode::SYNCFS => Op::Syncfs,
        opcode::STATFS => Op::Statfs,
        opcode::FALLOCATE => {
            let abi::FallocateIn { offset, length: len, mode, .. } = fields.take()?;
            Op::Fallocate { offset, len, mode }
        }
        opcode::LSEEK => {
            let abi::LseekIn { offset, whence, .. } = fields.take()?;
            Op::Lseek { offset, whence }
        }
        opcode::COPY_FILE_RANGE => parse_copy(fields, CountWidth::Narrow)?,
        opcode::COPY_FILE_RANGE_64 => parse_copy(fields, CountWidth::Wide)?,
        opcode::IOCTL => {
            let abi::IoctlIn { cmd: command, in_size, .. } = fields.take()?;
            Op::Ioctl { command, input: fields.bytes(in_size)? }
        }
        opcode::INTERRUPT => Op::Interrupt,
        opcode::DESTROY => Op::Destroy,
        opcode::CREATE | opcode::TMPFILE | opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK => {
            parse_new(number, fields)?
        }
        opcode::LINK | opcode::RENAME | opcode::RENAME2 => parse_move(number, fields)?,
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            parse_xattr(number, fields)?
        }
        other => Op::Other(other),
    })
}

/// Parses requests that make an inode.
fn parse_new(number: u32, mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    Ok(match number {
        opcode::CREATE | opcode::TMPFILE => {
            let abi::CreateIn { flags, mode, umask, .. } = fields.take()?;
            let how = Create { flags, mode, umask };
            // A TMPFILE has a meaningless name.
            if number == opcode::TMPFILE {
                Op::Tmpfile(how)
            } else {
                Op::Create { name: fields.name()?, how }
            }
        }
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = fields.take()?;
            Op::Mknod { name: fields.name()?, mode, rdev, umask }
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = fields.take()?;
            Op::Mkdir { name: fields.name()?, mode, umask }
        }
        opcode::SYMLINK => Op::Symlink { name: fields.name()?, target: fields.text()? },
        other => Op::Other(other),
    })
}

/// Parses requests that give an existing inode a name.
fn parse_move(number: u32, mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    let (newdir, flags) = match number {
        opcode::LINK => {
            let source = NodeId(fields.take::<abi::LinkIn>()?.oldnodeid);
            return Ok(Op::Link { source, name: fields.name()? });
        }
        opcode::RENAME => (fields.take::<abi::RenameIn>()?.newdir, 0),
        opcode::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = fields.take()?;
            (newdir, flags)
        }
        other => return Ok(Op::Other(other)),
    };
    let name = fields.name()?;
    Ok(Op::Rename { name, new_parent: NodeId(newdir), new_name: fields.name()?, flags })
}

fn parse_xattr(number: u32, mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    Ok(match number {
        opcode::SETXATTR => parse_setxattr(fields)?,
        opcode::GETXATTR => {
            let size = fields.take::<abi::GetxattrIn>()?.size;
            Op::Getxattr { name: fields.text()?, size }
        }
        opcode::LISTXATTR => Op::Listxattr { size: fields.take::<abi::GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Op::Removexattr { name: fields.text()? },
        other => Op::Other(other),
    })
}

/// Parses a SETXATTR, whose structure is longer with `SETXATTR_EXT`. The lengths tell which one it
/// is: name and value fill the rest of the request exactly only after the short one.
fn parse_setxattr(mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    let abi::SetxattrIn { size, flags } = fields.take()?;
    let mut short = Fields(fields.0);
    let is_short = short.text().is_ok() && short.bytes(size).is_ok() && short.0.is_empty();
    let caller = if is_short {
        SetxattrFlags::empty()
    } else {
        SetxattrFlags::from_bits_retain(fields.take::<abi::SetxattrMore>()?.setxattr_flags)
    };
    Ok(Op::Setxattr { name: fields.text()?, value: fields.bytes(size)?, flags, caller })
}

fn parse_batch(mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    let count = fields.take::<abi::BatchForgetIn>()?.count;
    let one = u32::try_from(size_of::<abi::ForgetOne>()).expect("a small structure");
    let bytes = count.checked_mul(one).ok_or(Malformed { what: "more than fit in a request" })?;
    Ok(Op::BatchForget(Forgets(fields.bytes(bytes)?)))
}

fn parse_setattr(raw: &abi::SetattrIn) -> Result<Op<'static>, Malformed> {
    let valid = FattrFlags::from_bits_retain(raw.valid);
    let given = |set: FattrFlags, secs, nanos| {
        if !valid.contains(set) {
            return Ok(None);
        }
        if nanos >= SECOND_NS {
            return Err(Malformed { what: "a time with more than a second of nanoseconds" });
        }
        Ok(Some(Time { secs, nanos }))
    };
    let time = |set: FattrFlags, now: FattrFlags, secs, nanos| {
        if valid.contains(now) {
            return Ok(Some(SetTime::Now));
        }
        Ok(given(set, secs, nanos)?.map(SetTime::To))
    };
    Ok(Op::Setattr(SetAttr {
        mode: valid.contains(FattrFlags::MODE).then_some(raw.mode),
        uid: valid.contains(FattrFlags::UID).then_some(raw.uid),
        gid: valid.contains(FattrFlags::GID).then_some(raw.gid),
        size: valid.contains(FattrFlags::SIZE).then_some(raw.size),
        atime: time(FattrFlags::ATIME, FattrFlags::ATIME_NOW, raw.atime, raw.atimensec)?,
        mtime: time(FattrFlags::MTIME, FattrFlags::MTIME_NOW, raw.mtime, raw.mtimensec)?,
        ctime: given(FattrFlags::CTIME, raw.ctime, raw.ctimensec)?,
        handle: valid.contains(FattrFlags::FH).then_some(raw.fh),
        kill_suidgid: valid.contains(FattrFlags::KILL_SUIDGID),
    }))
}

fn parse_read(mut fields: Fields<'_>) -> Result<Read, Malformed> {
    let abi::ReadIn { fh: handle, offset, size, read_flags, flags, .. } = fields.take()?;
    Ok(Read { handle, offset, size, how: ReadFlags::from_bits_retain(read_flags), flags })
}

fn parse_write(mut fields: Fields<'_>) -> Result<Op<'_>, Malformed> {
    let abi::WriteIn { fh: handle, offset, size, write_flags, flags, .. } = fields.take()?;
    let how = WriteFlags::from_bits_retain(write_flags);
    Ok(Op::Write(Write { handle, offset, data: fields.bytes(size)?, how, flags }))
}

fn is_datasync(mut fields: Fields<'_>) -> Result<bool, Malformed> {
    Ok(fields.take::<abi::FsyncIn>()?.fsync_flags & 1 != 0)
}

fn parse_copy(mut fields: Fields<'_>, width: CountWidth) -> Result<Op<'_>, Malformed> {
    let abi::CopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = fields.take()?;
    let target = NodeId(nodeid_out);
    let (source_offset, target_offset) = (off_in, off_out);
    Ok(Op::CopyFileRange(CopyRange { source_offset, target, target_offset, len, width }))
}
