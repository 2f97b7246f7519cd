//! Makes calls on a mount and reports their results.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};

use super::backing_device::BackingDevice;
use super::plan::{Allocation, Call, Fate, Flag, How, Mapping, SLOTS, Shape, Whence, Writes};
use super::result::{self, Answer};

/// Buffers start here: as much as any device asks of direct I/O.
const ALIGNMENT: usize = 4096;

/// A mount, and the files that are open on it.
pub(super) struct Session {
    root: PathBuf,
    slots: [Option<Open>; SLOTS],
    /// Makes the content of each write differ from all before.
    writes: u64,
    device: Option<BackingDevice>,
    /// Zones that have failed: `null_blk` would bring them back.
    failed: BTreeSet<u64>,
}

struct Open {
    file: File,
    path: String,
    flags: Vec<Flag>,
}

impl Open {
    /// Writes at the beginning of a mapping, and shows the content of the mapping then.
    fn write_a_little(&self, mut map: MmapMut) -> String {
        // Direct I/O: one side may be unable to map the file, so no write may make the files
        // differ.
        if !self.flags.contains(&Flag::Direct) {
            map[..8].copy_from_slice(b"by mmap ");
        }
        result::data(&map)
    }
}

impl Session {
    pub(super) fn new(root: &Path, device: Option<BackingDevice>) -> Self {
        Self {
            root: root.to_path_buf(),
            slots: Default::default(),
            writes: 0,
            device,
            failed: BTreeSet::new(),
        }
    }

    /// Slots with an open file.
    pub(super) fn open_slots(&self) -> Vec<usize> {
        (0..SLOTS).filter(|slot| self.slots[*slot].is_some()).collect()
    }

    /// The size, capacity and block size of an open file, for the planner.
    pub(super) fn shape(&self, slot: usize) -> Option<Shape> {
        let open = self.slots[slot].as_ref()?;
        let stat = rustix::fs::fstat(&open.file).ok()?;
        let block = u64::try_from(stat.st_blksize).ok()?;
        let capacity = u64::try_from(stat.st_blocks).ok()? * 512;
        let regular = FileType::from_raw_mode(stat.st_mode).is_file();
        let size = u64::try_from(stat.st_size).ok()?;
        let at_end = open.flags.contains(&Flag::Append);
        let writes = if at_end { Writes::AtEnd } else { Writes::Anywhere };
        (regular && capacity >= block).then_some(Shape { size, capacity, block, writes })
    }

    /// Makes the call; shows its result, and its effect on the file.
    pub(super) fn make(&mut self, call: &Call) -> String {
        let answer = result::show(&self.answer(call));
        match self.touched(call) {
            Some(path) => {
                let after = rustix::fs::stat(&path)
                    .map(|stat| format!("size {} mode {:o}", stat.st_size, stat.st_mode));
                format!("{answer}; {}", result::show(&after))
            }
            None => answer,
        }
    }

    /// The path of a slot and how it was opened, for the log.
    pub(super) fn slot_path(&self, call: &Call) -> Option<String> {
        self.open_file(call).map(|open| format!("{} {:?}", open.path, open.flags))
    }

    fn open_file(&self, call: &Call) -> Option<&Open> {
        let slot = match call {
            Call::Close { slot }
            | Call::Write { slot, .. }
            | Call::Read { slot, .. }
            | Call::TruncateOpen { slot, .. }
            | Call::Seek { slot, .. }
            | Call::Map { slot, .. }
            | Call::Fsync { slot }
            | Call::Fdatasync { slot }
            | Call::Allocate { slot, .. }
            | Call::Copy { to: slot, .. } => *slot,
            _ => return None,
        };
        self.slots[slot].as_ref()
    }

    fn touched(&self, call: &Call) -> Option<PathBuf> {
        match call {
            Call::Open { path, .. }
            | Call::Truncate { path, .. }
            | Call::Chmod { path, .. }
            | Call::Chown { path, .. } => Some(self.root.join(path)),
            _ => self.open_file(call).map(|open| self.root.join(&open.path)),
        }
    }

    fn answer(&mut self, call: &Call) -> Answer {
        match call {
            Call::Open { slot, path, flags } => self.open(*slot, path, flags),
            Call::Close { slot } => {
                self.slots[*slot] = None;
                done()
            }
            Call::Write { slot, at, len, how } => self.write(*slot, *at, *len, *how),
            Call::Read { slot, at, len } => {
                let mut buffer = Buffer::new(*len);
                let count = rustix::io::pread(self.file(*slot)?, buffer.bytes(), *at)?;
                Ok(result::data(&buffer.bytes()[..count]))
            }
            Call::TruncateOpen { slot, size } => {
                rustix::fs::ftruncate(self.file(*slot)?, *size)?;
                done()
            }
            Call::Seek { slot, whence, at } => {
                let from = match whence {
                    Whence::Start => SeekFrom::Start(at.unsigned_abs()),
                    Whence::End => SeekFrom::End(*at),
                    Whence::Data => SeekFrom::Data(at.unsigned_abs()),
                    Whence::Hole => SeekFrom::Hole(at.unsigned_abs()),
                };
                Ok(rustix::fs::seek(self.file(*slot)?, from)?.to_string())
            }
            Call::Map { slot, mapping } => self.map(*slot, *mapping),
            Call::Fsync { slot } => {
                rustix::fs::fsync(self.file(*slot)?)?;
                done()
            }
            Call::Fdatasync { slot } => {
                rustix::fs::fdatasync(self.file(*slot)?)?;
                done()
            }
            Call::Allocate { slot, mode } => {
                let flags = match mode {
                    Allocation::Extend => FallocateFlags::empty(),
                    Allocation::KeepSize => FallocateFlags::KEEP_SIZE,
                    Allocation::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                };
                rustix::fs::fallocate(self.file(*slot)?, flags, 0, 8192)?;
                done()
            }
            Call::Copy { from, to, len } => {
                let (from, to) = (self.file(*from)?, self.file(*to)?);
                let end = rustix::fs::fstat(to)?.st_size;
                let mut at = u64::try_from(end).unwrap_or_default();
                let (mut start, len) = (0, *len);
                let count =
                    rustix::fs::copy_file_range(from, Some(&mut start), to, Some(&mut at), len)?;
                Ok(count.to_string())
            }
            Call::ChangeZone { path, fate } => self.change_zone(path, *fate),
            _ => self.answer_of_path(call),
        }
    }

    fn open(&mut self, slot: usize, path: &str, flags: &[Flag]) -> Answer {
        let bits = flags.iter().map(|flag| match flag {
            Flag::Rdonly => OFlags::RDONLY,
            Flag::Wronly => OFlags::WRONLY,
            Flag::Rdwr => OFlags::RDWR,
            Flag::Direct => OFlags::DIRECT,
            Flag::Append => OFlags::APPEND,
            Flag::Trunc => OFlags::TRUNC,
            Flag::Creat => OFlags::CREATE,
            Flag::Excl => OFlags::EXCL,
            Flag::Dsync => OFlags::DSYNC,
        });
        let bits = bits.fold(OFlags::CLOEXEC, |all, flag| all | flag);
        // Close the old file first, so that the result of the open does not depend on when it is
        // closed.
        self.slots[slot] = None;
        let file = rustix::fs::open(self.root.join(path), bits, Mode::from(0o644))?;
        self.slots[slot] =
            Some(Open { file: file.into(), path: path.to_owned(), flags: flags.to_vec() });
        done()
    }

    fn write(&mut self, slot: usize, at: u64, len: usize, how: How) -> Answer {
        self.writes += 1;
        let mut buffer = Buffer::new(len);
        let mut word = self.writes << 32;
        for chunk in buffer.bytes().chunks_mut(8) {
            word += 1;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        let flags = match how {
            How::Plain => ReadWriteFlags::empty(),
            How::Append => ReadWriteFlags::APPEND,
            How::Dsync => ReadWriteFlags::DSYNC,
            How::Nowait => ReadWriteFlags::NOWAIT,
        };
        let slices = [IoSlice::new(buffer.bytes())];
        Ok(rustix::io::pwritev2(self.file(slot)?, &slices, at, flags)?.to_string())
    }

    /// Maps the first page and reads it; where writing is allowed, may write a little too.
    #[expect(unsafe_code, reason = "to map a file is unsafe: others could change it")]
    fn map(&mut self, slot: usize, mapping: Mapping) -> Answer {
        let open = self.slots[slot].as_ref().ok_or(Errno::BADF)?;
        let file = &open.file;
        let size = rustix::fs::fstat(file)?.st_size;
        let length = usize::try_from(size).unwrap_or_default().min(4096);
        if length == 0 {
            return Ok("nothing to map".to_owned());
        }
        let mut options = MmapOptions::new();
        let wanted = options.len(length);
        let mapped = match mapping {
            // SAFETY: no other process uses the mount, and this process makes no other call before
            // it drops the mapping.
            Mapping::SharedRead => unsafe { wanted.map(file) }.map(|map| result::data(&map)),
            Mapping::SharedWrite => {
                // SAFETY: the same.
                unsafe { wanted.map_mut(file) }.map(|map| open.write_a_little(map))
            }
            Mapping::PrivateWrite => {
                // SAFETY: the same.
                unsafe { wanted.map_copy(file) }.map(|map| open.write_a_little(map))
            }
        };
        mapped.map_err(|error| raw(&error))
    }

    fn change_zone(&mut self, path: &str, fate: Fate) -> Answer {
        // The inode number of a file is that of its zone.
        let zone = rustix::fs::stat(self.root.join(path))?.st_ino;
        let fails = match fate {
            Fate::ReadOnly | Fate::Offline => true,
            Fate::Written => false,
        };
        if self.failed.contains(&zone) {
            return Ok("failed before".to_owned());
        }
        // A read-only mount of ours takes no commands.
        if touch(&self.root) == Err(Errno::ROFS) {
            return Ok("read-only".to_owned());
        }
        if fails {
            self.failed.insert(zone);
        }
        let device = self.device.as_ref().expect("planned only where there is a way");
        // The ways differ, and so do their errors.
        Ok(device.act(zone, fate).map_or("refused", |()| "done").to_owned())
    }

    fn file(&self, slot: usize) -> Result<&File, Errno> {
        self.slots[slot].as_ref().map(|open| &open.file).ok_or(Errno::BADF)
    }

    fn answer_of_path(&self, call: &Call) -> Answer {
        let at = |path: &str| self.root.join(path);
        match call {
            Call::Stat { path } => return Ok(result::stat(&rustix::fs::lstat(at(path))?)),
            Call::Statfs => return Ok(result::statfs(&rustix::fs::statfs(&self.root)?)),
            Call::List { dir } => return list(&at(dir)),
            Call::FsyncDir { dir } => {
                rustix::fs::fsync(File::open(at(dir)).map_err(|error| raw(&error))?)?;
            }
            Call::Truncate { path, size } => {
                let size = i64::try_from(*size).map_err(|_| Errno::FBIG)?;
                // The only one that rustix lacks.
                nix::unistd::truncate(&at(path), size)
                    .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
            }
            Call::Chmod { path, mode } => rustix::fs::chmod(at(path), Mode::from(*mode))?,
            Call::Chown { path, uid, gid } => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                rustix::fs::chown(at(path), Some(uid), Some(gid))?;
            }
            Call::Touch { path } => touch(&at(path))?,
            Call::Unlink { path } => rustix::fs::unlink(at(path))?,
            Call::Rmdir { path } => rustix::fs::rmdir(at(path))?,
            Call::Mkdir { path } => rustix::fs::mkdir(at(path), Mode::from(0o755))?,
            Call::Mknod { path } => {
                rustix::fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from(0o644), 0)?;
            }
            Call::Symlink { path } => rustix::fs::symlink("target", at(path))?,
            Call::Tmpfile { dir } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                rustix::fs::open(at(dir), flags, Mode::from(0o600))?;
            }
            Call::Link { from, to } => rustix::fs::link(at(from), at(to))?,
            Call::Rename { from, to } => rustix::fs::rename(at(from), at(to))?,
            Call::SetXattr { path } => {
                rustix::fs::setxattr(at(path), "user.name", b"value", XattrFlags::empty())?;
            }
            Call::GetXattr { path } => {
                rustix::fs::getxattr(at(path), "user.name", &mut [0_u8; 64])?;
            }
            Call::ListXattr { path } => {
                let length = rustix::fs::listxattr(at(path), &mut [0_u8; 1024])?;
                return Ok(format!("{length} bytes"));
            }
            Call::DropCaches => {
                std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|error| raw(&error))?;
            }
            _ => unreachable!("calls on open files are made elsewhere"),
        }
        done()
    }
}

/// Sets the times of a file.
fn touch(path: &Path) -> Result<(), Errno> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
}

/// The entries in the order in which they come.
fn list(path: &Path) -> Answer {
    let folder = File::open(path).map_err(|error| raw(&error))?;
    let mut shown = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = match entry.file_type() {
            FileType::Directory => "/",
            FileType::RegularFile => "",
            _ => "?",
        };
        // Above the root lies another file system.
        let ino = if name == ".." { 0 } else { entry.ino() };
        shown.push(format!("{name}{kind}={ino}"));
    }
    Ok(shown.join(" "))
}

#[expect(clippy::unnecessary_wraps, reason = "it ends a match on calls that may fail")]
fn done() -> Answer {
    Ok("done".to_owned())
}

fn raw(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Memory that direct I/O takes.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
