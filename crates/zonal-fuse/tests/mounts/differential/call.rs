//! System calls as values, and the code that makes them: an answer is a text, or an errno.

use std::collections::BTreeMap;
use std::fs::read_dir;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{
    self as sys, Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags,
    RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use serde::{Deserialize, Serialize};

/// A system call of a process. Descriptors are named by the slot that holds them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    Open { slot: usize, path: String, flags: u32, mode: u32 },
    Close { slot: usize },
    Read { slot: usize, at: u64, len: usize },
    ReadOn { slot: usize, len: usize },
    Write { slot: usize, at: u64, len: usize, byte: u8 },
    WriteOn { slot: usize, len: usize, byte: u8 },
    Truncate { slot: usize, len: u64 },
    Allocate { slot: usize, mode: u32, at: u64, len: u64 },
    Copy { from: usize, from_at: u64, to: usize, to_at: u64, len: usize },
    Sync { slot: usize },
    Lock { slot: usize, how: Lock },
    Link { from: String, to: String, follow: bool },
    LinkOpen { slot: usize, to: String },
    Unlink { path: String },
    RemoveDir { path: String },
    MakeDir { path: String, mode: u32 },
    MakeNode { path: String, kind: Node, mode: u32 },
    Symlink { target: String, path: String },
    ReadLink { path: String },
    Rename { from: String, to: String, flags: u32 },
    Chmod { path: String, mode: u32 },
    ChmodOpen { slot: usize, mode: u32 },
    Chown { path: String, user: Option<u32>, group: Option<u32> },
    Times { path: String, access: Time, modify: Time },
    SetAttribute { path: String, name: String, len: usize, flags: u32 },
    GetAttribute { path: String, name: String },
    ListAttributes { path: String },
    RemoveAttribute { path: String, name: String },
    Access { path: String, mode: u32 },
    List { path: String },
    Umask { mode: u32 },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Lock {
    Shared,
    Exclusive,
    None,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Node {
    Fifo,
    Socket,
    File,
    Null,
}

/// A time for utimensat(2).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Time {
    Second(i64),
    Now,
    Omit,
}

impl Time {
    fn value(self) -> Timespec {
        match self {
            Time::Second(tv_sec) => Timespec { tv_sec, tv_nsec: 0 },
            Time::Now => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_NOW },
            Time::Omit => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT },
        }
    }
}

/// The result of a call as text, or the errno.
pub(crate) type Answer = Result<String, i32>;

/// The descriptors of a process.
#[derive(Default)]
pub(crate) struct Process {
    open: BTreeMap<usize, OwnedFd>,
}

/// The end of a path in /proc that leads to an open file.
fn way_to(file: &OwnedFd) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}

/// Bytes as a short text: their number, and the places where they change.
fn runs(bytes: &[u8]) -> String {
    let starts = bytes.chunk_by(|a, b| a == b).scan(0, |at, run| {
        let start = *at;
        *at += run.len();
        Some(format!("{start}:{}", run[0]))
    });
    format!("{} bytes: {}", bytes.len(), starts.collect::<Vec<_>>().join(" "))
}

impl Process {
    /// Performs a call.
    pub(crate) fn perform(&mut self, call: &Call) -> Answer {
        self.try_to(call).map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    fn file(&self, slot: usize) -> io::Result<&OwnedFd> {
        self.open.get(&slot).ok_or_else(|| rustix::io::Errno::BADF.into())
    }

    fn try_to(&mut self, call: &Call) -> io::Result<String> {
        match call {
            Call::Open { slot, path, flags, mode } => {
                let flags = OFlags::from_bits_retain(*flags) | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = sys::open(path.as_str(), flags, Mode::from_raw_mode(*mode))?;
                self.open.insert(*slot, file);
                Ok(String::new())
            }
            Call::Close { slot } => {
                self.open.remove(slot);
                Ok(String::new())
            }
            Call::Umask { mode } => {
                let old = rustix::process::umask(Mode::from_raw_mode(*mode));
                Ok(format!("{:o}", old.as_raw_mode()))
            }
            Call::Read { .. }
            | Call::ReadOn { .. }
            | Call::Write { .. }
            | Call::WriteOn { .. }
            | Call::Truncate { .. }
            | Call::Allocate { .. }
            | Call::Copy { .. }
            | Call::Sync { .. }
            | Call::Lock { .. }
            | Call::LinkOpen { .. }
            | Call::ChmodOpen { .. } => self.with_open_files(call),
            Call::SetAttribute { .. }
            | Call::GetAttribute { .. }
            | Call::ListAttributes { .. }
            | Call::RemoveAttribute { .. } => attributes(call),
            _ => with_names(call),
        }
    }

    fn with_open_files(&self, call: &Call) -> io::Result<String> {
        match call {
            Call::Read { slot, at, len } => {
                let mut bytes = vec![0; *len];
                let read = rustix::io::pread(self.file(*slot)?, &mut bytes, *at)?;
                Ok(runs(&bytes[..read]))
            }
            Call::ReadOn { slot, len } => {
                let mut bytes = vec![0; *len];
                let read = rustix::io::read(self.file(*slot)?, &mut bytes)?;
                Ok(runs(&bytes[..read]))
            }
            Call::Write { slot, at, len, byte } => {
                Ok(rustix::io::pwrite(self.file(*slot)?, &vec![*byte; *len], *at)?.to_string())
            }
            Call::WriteOn { slot, len, byte } => {
                Ok(rustix::io::write(self.file(*slot)?, &vec![*byte; *len])?.to_string())
            }
            Call::Truncate { slot, len } => nothing(sys::ftruncate(self.file(*slot)?, *len)),
            Call::Allocate { slot, mode, at, len } => {
                let mode = FallocateFlags::from_bits_retain(*mode);
                nothing(sys::fallocate(self.file(*slot)?, mode, *at, *len))
            }
            Call::Copy { from, from_at, to, to_at, len } => {
                let (mut from_at, mut to_at) = (*from_at, *to_at);
                let (from, to) = (self.file(*from)?, self.file(*to)?);
                let copied =
                    sys::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), *len)?;
                Ok(copied.to_string())
            }
            Call::Sync { slot } => nothing(sys::fsync(self.file(*slot)?)),
            Call::Lock { slot, how } => {
                let how = match how {
                    Lock::Shared => FlockOperation::NonBlockingLockShared,
                    Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
                    Lock::None => FlockOperation::NonBlockingUnlock,
                };
                nothing(sys::flock(self.file(*slot)?, how))
            }
            Call::LinkOpen { slot, to } => {
                let file = way_to(self.file(*slot)?);
                nothing(sys::linkat(CWD, file, CWD, to.as_str(), AtFlags::SYMLINK_FOLLOW))
            }
            Call::ChmodOpen { slot, mode } => {
                nothing(sys::fchmod(self.file(*slot)?, Mode::from_raw_mode(*mode)))
            }
            other => unreachable!("{other:?} needs no open file"),
        }
    }
}

fn nothing(outcome: rustix::io::Result<()>) -> io::Result<String> {
    Ok(outcome.map(|()| String::new())?)
}

fn attributes(call: &Call) -> io::Result<String> {
    let mut buffer = vec![0; 4096];
    match call {
        Call::SetAttribute { path, name, len, flags } => {
            let flags = XattrFlags::from_bits_retain(*flags);
            nothing(sys::lsetxattr(path.as_str(), name.as_str(), &vec![b'v'; *len], flags))
        }
        Call::GetAttribute { path, name } => {
            let len = sys::lgetxattr(path.as_str(), name.as_str(), &mut buffer[..])?;
            Ok(runs(&buffer[..len]))
        }
        Call::ListAttributes { path } => {
            let len = sys::llistxattr(path.as_str(), &mut buffer[..])?;
            let mut names: Vec<_> = buffer[..len].split(|&byte| byte == 0).collect();
            names.sort_unstable();
            Ok(names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>().join(" "))
        }
        Call::RemoveAttribute { path, name } => {
            nothing(sys::lremovexattr(path.as_str(), name.as_str()))
        }
        other => unreachable!("{other:?} is not of an attribute"),
    }
}

fn with_names(call: &Call) -> io::Result<String> {
    match call {
        Call::Link { from, to, follow } => {
            let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            nothing(sys::linkat(CWD, from.as_str(), CWD, to.as_str(), flags))
        }
        Call::Unlink { path } => nothing(sys::unlink(path.as_str())),
        Call::RemoveDir { path } => nothing(sys::rmdir(path.as_str())),
        Call::MakeDir { path, mode } => {
            nothing(sys::mkdir(path.as_str(), Mode::from_raw_mode(*mode)))
        }
        Call::MakeNode { path, kind, mode } => {
            let (kind, device) = match kind {
                Node::Fifo => (FileType::Fifo, 0),
                Node::Socket => (FileType::Socket, 0),
                Node::File => (FileType::RegularFile, 0),
                Node::Null => (FileType::CharacterDevice, sys::makedev(1, 3)),
            };
            nothing(sys::mknodat(CWD, path.as_str(), kind, Mode::from_raw_mode(*mode), device))
        }
        Call::Symlink { target, path } => nothing(sys::symlink(target.as_str(), path.as_str())),
        Call::ReadLink { path } => Ok(format!("{:?}", sys::readlink(path.as_str(), Vec::new())?)),
        Call::Rename { from, to, flags } => {
            let flags = RenameFlags::from_bits_retain(*flags);
            nothing(sys::renameat_with(CWD, from.as_str(), CWD, to.as_str(), flags))
        }
        Call::Chmod { path, mode } => {
            nothing(sys::chmod(path.as_str(), Mode::from_raw_mode(*mode)))
        }
        Call::Chown { path, user, group } => {
            let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
            nothing(sys::chownat(CWD, path.as_str(), user, group, AtFlags::SYMLINK_NOFOLLOW))
        }
        Call::Times { path, access, modify } => {
            let times =
                Timestamps { last_access: access.value(), last_modification: modify.value() };
            nothing(sys::utimensat(CWD, path.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW))
        }
        Call::Access { path, mode } => {
            nothing(sys::access(path.as_str(), Access::from_bits_retain(*mode)))
        }
        Call::List { path } => {
            let mut names = Vec::new();
            for entry in read_dir(path)? {
                let entry = entry?;
                names.push(format!("{} {:?}", entry.file_name().display(), entry.file_type()?));
            }
            names.sort_unstable();
            Ok(names.join(", "))
        }
        other => unreachable!("{other:?} is no call on names"),
    }
}
