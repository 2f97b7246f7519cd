//! One method per FUSE request: arguments in, one call of the file system, reply out.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};
use zonal_fs::FsError;
use zonal_fs::vfs::{FileKind, FileModel, NewInode, SetAttr, SyncKind, WriteFlags, XattrMode};

use super::actions::{perm_after_change, xattr_caller};
use super::reply::{GENERATION, Route, ttl};
use super::{Front, REQUEST_MAX, convert, reply};
use crate::latency::Operation;
use crate::options::DirectWrites;
use crate::unmount::DAEMON_XATTR;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

thread_local! {
    /// Where reads land before the kernel takes them: one per serving thread, kept.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; REQUEST_MAX as usize]);
}

fn is_daemon_xattr(ino: INodeNo, name: &OsStr) -> bool {
    ino == INodeNo::ROOT && name == DAEMON_XATTR
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, kernel: &mut KernelConfig) -> io::Result<()> {
        self.negotiate(kernel)
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.run(Operation::Lookup, parent, |fs, parent| {
            // Only file handles ask for ".", and of any inode, not only of directories.
            if name == "." {
                return self.entered(fs, &fs.getattr(parent)?);
            }
            match fs.lookup(parent, name.as_bytes()) {
                Ok(attr) => self.entered(fs, &attr),
                Err(FsError::NotFound) => Ok(convert::absent()),
                Err(error) => Err(error),
            }
        });
        reply::entry(reply, found);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.forget_lookups(self.ino(ino), lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let result =
            self.run(Operation::Getattr, ino, |fs, ino| fs.getattr(ino).map(|a| self.attr(&a)));
        reply::attr(reply, result);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if handle.is_some() && size == Some(0) && self.takes_back_write(request, ino) {
            return reply.error(Errno::EIO);
        }
        let result = self.run(Operation::Setattr, ino, |fs, ino| {
            let mut set = SetAttr {
                perm: mode.map(convert::perm),
                uid,
                gid,
                size,
                atime: atime.map(convert::set_time),
                mtime: mtime.map(convert::set_time),
                kill_privileges: uid.is_some() || gid.is_some(),
                flags: None,
            };
            if set == SetAttr::default() {
                // With nothing to set, the kernel wants setuid and setgid cleared: chown(-1, -1),
                // or a change of the content by an unprivileged process.
                set.kill_privileges = true;
            } else if size.is_some() {
                set.perm = set.perm.or(perm_after_change(fs, request, ino)?);
            }
            fs.setattr(&convert::caller(request, 0), ino, &set).map(|attr| self.attr(&attr))
        });
        if size.is_some() {
            self.shared.pages.settle(ino, move || reply::attr(reply, result));
        } else {
            reply::attr(reply, result);
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.run(Operation::Readlink, ino, |fs, ino| fs.readlink(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = convert::node_kind(mode) else {
            return reply.error(Errno::EINVAL);
        };
        let new = NewInode { kind, perm: convert::perm(mode), rdev, target: &[] };
        reply::entry(reply, self.make(&convert::caller(request, umask), parent, name, &new));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let perm = convert::perm(mode);
        let new = NewInode { kind: FileKind::Directory, perm, rdev: 0, target: &[] };
        reply::entry(reply, self.make(&convert::caller(request, umask), parent, name, &new));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply::empty(
            reply,
            self.run(Operation::Unlink, parent, |fs, dir| fs.unlink(dir, name.as_bytes())),
        );
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply::empty(
            reply,
            self.run(Operation::Rmdir, parent, |fs, dir| fs.rmdir(dir, name.as_bytes())),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let new = NewInode { kind: FileKind::Symlink, perm: 0o777, rdev: 0, target };
        reply::entry(reply, self.make(&convert::caller(request, 0), parent, name, &new));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = convert::rename_flags(flags).and_then(|flags| {
            self.run(Operation::Rename, parent, |fs, parent| {
                let target = (self.ino(new_parent), new_name.as_bytes());
                fs.rename((parent, name.as_bytes()), target, flags)
            })
        });
        reply::empty(reply, result);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let result = self.run(Operation::Link, ino, |fs, ino| {
            self.entered(fs, &fs.link(ino, self.ino(new_parent), new_name.as_bytes())?)
        });
        reply::entry(reply, result);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags.0) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(ino, handle, flags.0);
        reply.ok();
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let caller = convert::caller(request, umask);
        match self.create_and_open(&caller, parent, name, convert::perm(mode), flags) {
            Ok((attr, handle, flags)) => {
                reply.created(&ttl(&attr), &attr, GENERATION, handle, flags);
            }
            // The kernel holds the directory and knows that the name is free.
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let target = &mut buffer[..size];
            let read =
                self.run(Operation::Read, ino, |fs, ino| match flags.0 & convert::O_DIRECT {
                    0 => fs.read(ino, offset, target),
                    _ => fs.read_direct(ino, offset, target),
                });
            match read {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => {
                    self.after_failed_read(ino);
                    reply.error(error);
                }
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: fuser::WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let route = Route::from(handle);
        let mut how = convert::write_flags(write_flags, flags, route);
        if self.shared.model == FileModel::Zones {
            how |= convert::append(write_flags, flags);
        }
        let model = self.shared.fs.model(self.ino(ino));
        let durable = model == FileModel::Posix && how.contains(WriteFlags::DURABLE);
        let written = match model {
            FileModel::Posix => self.run(Operation::Write, ino, |fs, ino| {
                fs.write(ino, offset, data, how - WriteFlags::DURABLE)
            }),
            FileModel::Zones => self.write_zone(request, ino, offset, data, how),
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => return self.after_failed_write(ino, reply, error),
        };
        let len = u32::try_from(written.len).expect("at most one request");
        // What is written twice could be read between the two from pages that are old.
        let warms = model == FileModel::Zones && self.shared.direct_writes == DirectWrites::Cache;
        let warm = warms.then(|| (written.offset, Box::from(&data[..len as usize])));
        let front = self.clone();
        let answer = move || {
            if durable {
                let synced = front.clone();
                return front.sync_then(ino, SyncKind::Data, move |outcome| match outcome {
                    Ok(()) => reply.written(len),
                    Err(error) => synced.after_failed_write(ino, reply, error),
                });
            }
            reply.written(len);
            if let Some((offset, data)) = warm {
                front.shared.pages.store(ino, offset, data);
            }
        };
        if !convert::bypasses_pages(write_flags, flags, route) {
            return answer();
        }
        let Some(stale) = self.shared.pins.stale(self.ino(ino), written.offset, written.len) else {
            return answer();
        };
        let front = self.clone();
        self.shared.pages.drop(ino, stale.range, move || {
            front.shared.pins.dropped(front.ino(ino), stale);
            answer();
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let kind = if datasync { SyncKind::Data } else { SyncKind::Full };
        self.sync_then(ino, kind, move |synced| reply::empty(reply, synced));
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel then opens directories without asking again, and keeps their listings until
        // it changes the directory: nobody else does.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.list(ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list_plus(ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(request, ino, handle, datasync, reply);
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.run(Operation::Statfs, ino, |fs, _| fs.statfs()) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_free,
                stat.inodes.saturating_add(stat.inodes_free),
                stat.inodes_free,
                stat.block_size,
                u32::try_from(stat.name_max).unwrap_or(u32::MAX),
                stat.block_size,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if is_daemon_xattr(ino, name) {
            return reply.error(Errno::EPERM);
        }
        let mode = match flags {
            0 => XattrMode::Any,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let result = self.run(Operation::Setxattr, ino, |fs, ino| {
            let caller = xattr_caller(fs, request, ino, name.as_bytes())?;
            fs.setxattr(&caller, ino, name.as_bytes(), value, mode)
        });
        reply::empty(reply, result);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = if is_daemon_xattr(ino, name) {
            Ok(std::process::id().to_string().into_bytes())
        } else {
            self.run(Operation::Getxattr, ino, |fs, ino| fs.getxattr(ino, name.as_bytes()))
        };
        reply::xattr(reply, size, value);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.run(Operation::Listxattr, ino, |fs, ino| fs.listxattr(ino)).map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        reply::xattr(reply, size, names);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if is_daemon_xattr(ino, name) {
            return reply.error(Errno::EPERM);
        }
        let result =
            self.run(Operation::Removexattr, ino, |fs, ino| fs.removexattr(ino, name.as_bytes()));
        reply::empty(reply, result);
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.control(request, ino, command, input) {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let result = convert::allocate(mode).and_then(|how| {
            self.run(Operation::Fallocate, ino, |fs, ino| {
                fs.fallocate(ino, how, offset, length)?;
                if let Some(perm) = perm_after_change(fs, request, ino)? {
                    let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
                    fs.setattr(&convert::caller(request, 0), ino, &set)?;
                }
                Ok(())
            })
        });
        reply::empty(reply, result);
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let front = self.clone();
        // There may be data that only the kernel has.
        self.once_sent(move |sent| {
            let result = sent.and_then(|()| convert::seek(whence)).and_then(|what| {
                let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                front.run(Operation::Seek, ino, |fs, ino| fs.seek(ino, what, offset))
            });
            match result.map(i64::try_from) {
                Ok(Ok(offset)) => reply.offset(offset),
                Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
                Err(error) => reply.error(error),
            }
        });
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        source: INodeNo,
        _source_handle: FileHandle,
        source_offset: u64,
        target: INodeNo,
        _target_handle: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply has room for 32 bits; the kernel asks again for the rest.
        let length = length.min(u64::from(u32::MAX) & !0xfff);
        let result = self.run(Operation::CopyFileRange, source, |fs, source| {
            let target = (self.ino(target), target_offset);
            fs.copy_range((source, source_offset), target, length, WriteFlags::empty())
        });
        match result {
            Ok(copied) => reply.written(u32::try_from(copied).expect("at most what was asked")),
            Err(error) => reply.error(error),
        }
    }
}
