//! Keeps the unflushed changes of a disk when its server is killed.
//!
//! The kernel that uses a ublk disk goes on when the server dies: it expects that every answered
//! write is there when another server takes over. A disk in this process has such writes in memory
//! until the next flush. So each is also noted in a file in memory that outlives the process, and
//! the server that takes over writes it again. A power cut loses the notes, as it loses a disk's
//! cache.
//!
//! Two halves of the file take turns. A flush begins with the other half, and once it is durable
//! the half that it has covered is empty again. If it fails, the next flush covers that half first.
//! A full half makes its writer flush. A note has the content of its blocks, so writing all notes
//! again in order gives the same disk, even if a flush had covered some of them. Overlapping
//! changes wait for one another, so that notes have the order of the changes.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::disk::{Disk, DiskError, DiskExtent, DiskShape, Durability, Result, ZeroedSpace};
use zonal::{AlignedBytes, Lba, LbaCount};

use super::abi::IO_BYTES_MAX;

/// The first bytes of the file, with the version of its form.
const MAGIC: u64 = u64::from_le_bytes(*b"ZNLUNFL\x01");

/// Bytes before the halves.
const HEAD_BYTES: u64 = 4096;

/// Bytes of a half: the most notes between two flushes.
const HALF_BYTES: u64 = 32 << 20;

const FILE_BYTES: u64 = HEAD_BYTES + 2 * HALF_BYTES;

/// The start of the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: u64,
    /// The half that takes notes.
    active: u64,
    /// [`super::shape::mark_of_disk`].
    mark: u64,
}

/// The start of a note; the data of a write follows. Zeroes end a half.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct NoteHead {
    /// One of [`kind`].
    kind: u64,
    lba: u64,
    blocks: u64,
    data_bytes: u64,
}

const NOTE_BYTES: u64 = size_of::<NoteHead>() as u64;

mod kind {
    pub(super) const WRITE: u64 = 1;
    pub(super) const DISCARD: u64 = 2;
    pub(super) const ZEROES: u64 = 3;
    pub(super) const ZEROES_KEPT: u64 = 4;
}

/// A change of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change<'a> {
    kind: u64,
    lba: Lba,
    blocks: LbaCount,
    data: &'a [u8],
}

impl Change<'_> {
    fn apply(&self, disk: &dyn Disk) -> Result<()> {
        let later = Durability::Later;
        match self.kind {
            kind::WRITE => disk.write(self.lba, self.data, later),
            kind::DISCARD => disk.discard(self.lba, self.blocks),
            kind::ZEROES => disk.write_zeroes(self.lba, self.blocks, ZeroedSpace::Free, later),
            _ => disk.write_zeroes(self.lba, self.blocks, ZeroedSpace::Keep, later),
        }
    }
}

/// The file of notes.
#[derive(Debug)]
struct Notes {
    file: File,
    mark: u64,
    active: usize,
    /// Bytes of notes in each half.
    len: [u64; 2],
    /// The half that a running flush covers.
    flushing: Option<usize>,
}

impl Notes {
    /// Creates an empty file. All of its memory is there at once, so that no write fails for want
    /// of it.
    fn create(path: &Path, mark: u64) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?;
        let notes = Self { file, mark, active: 0, len: [0; 2], flushing: None };
        notes.write_head(notes.active)?;
        Ok(notes)
    }

    /// Opens the file that a killed server of the same disk has left.
    fn open(path: &Path, mark: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let mut head = Head { magic: 0, active: 0, mark: 0 };
        file.read_exact_at(head.as_mut_bytes(), 0)?;
        if head.magic != MAGIC || head.mark != mark || head.active > 1 {
            return Err(io::Error::other("they are of another disk, or of another version"));
        }
        let active = usize::from(head.active == 1);
        Ok(Self { file, mark, active, len: [0; 2], flushing: None })
    }

    fn write_head(&self, active: usize) -> io::Result<()> {
        let head = Head { magic: MAGIC, active: active as u64, mark: self.mark };
        self.file.write_all_at(head.as_bytes(), 0)
    }

    const fn start(half: usize) -> u64 {
        HEAD_BYTES + half as u64 * HALF_BYTES
    }

    /// Notes a change; `false` if there is no room.
    fn note(&mut self, change: &Change<'_>) -> io::Result<bool> {
        let (half, len) = (self.active, self.len[self.active]);
        let bytes = NOTE_BYTES + change.data.len() as u64;
        // The zeroes that end the half need room too.
        if len + bytes + NOTE_BYTES > HALF_BYTES {
            return Ok(false);
        }
        let at = Self::start(half) + len;
        let head = NoteHead {
            kind: change.kind,
            lba: change.lba.get(),
            blocks: change.blocks.get(),
            data_bytes: change.data.len() as u64,
        };
        // The head comes last: a kill before it leaves no part of a note.
        self.file.write_all_at(change.data, at + NOTE_BYTES)?;
        self.file.write_all_at(NoteHead::default().as_bytes(), at + bytes)?;
        self.file.write_all_at(head.as_bytes(), at)?;
        self.len[half] += bytes;
        Ok(true)
    }

    /// Begins a flush. Returns the half that it covers; `None` if it may empty none, since another
    /// flush runs or there are no notes. A half that a failed flush has left comes first: its notes
    /// precede the notes of the active half, which takes notes on.
    fn begin_flush(&mut self) -> io::Result<Option<usize>> {
        let other = 1 - self.active;
        if self.flushing.is_some() || self.len == [0; 2] {
            return Ok(None);
        }
        if self.len[other] == 0 {
            self.write_head(other)?;
            self.active = other;
        }
        self.flushing = Some(1 - self.active);
        Ok(self.flushing)
    }

    /// Empties a half, whose changes are durable.
    fn empty(&mut self, half: usize) -> io::Result<()> {
        self.file.write_all_at(NoteHead::default().as_bytes(), Self::start(half))?;
        self.len[half] = 0;
        Ok(())
    }

    /// Makes all changes again, in order, and returns how many there are.
    fn replay(&mut self, disk: &dyn Disk) -> Result<u64> {
        let mut count = 0;
        let mut memory = AlignedBytes::zeroed(IO_BYTES_MAX as usize);
        for half in [1 - self.active, self.active] {
            let mut len = 0;
            while len + NOTE_BYTES <= HALF_BYTES {
                let (at, mut head) = (Self::start(half) + len, NoteHead::default());
                self.file.read_exact_at(head.as_mut_bytes(), at).map_err(failed)?;
                if head.kind == 0 {
                    break;
                }
                let bytes = usize::try_from(head.data_bytes).unwrap_or(usize::MAX);
                let Some(data) = memory.get_mut(..bytes) else {
                    return Err(failed(io::Error::other("a note is damaged")));
                };
                self.file.read_exact_at(data, at + NOTE_BYTES).map_err(failed)?;
                let (lba, blocks) = (Lba::new(head.lba), LbaCount::new(head.blocks));
                Change { kind: head.kind, lba, blocks, data }.apply(disk)?;
                len += NOTE_BYTES + head.data_bytes;
                count += 1;
            }
            self.len[half] = len;
        }
        Ok(count)
    }
}

/// The blocks that are being changed.
#[derive(Debug, Default)]
struct Ranges {
    held: Mutex<Vec<Range<u64>>>,
    released: Condvar,
}

impl Ranges {
    /// Waits until no other change overlaps, and holds the range until the guard is dropped.
    fn hold(&self, range: Range<u64>) -> HeldRange<'_> {
        let overlaps = |held: &mut Vec<Range<u64>>| {
            held.iter().any(|other| other.start < range.end && range.start < other.end)
        };
        let held = lock(&self.held);
        let mut held =
            self.released.wait_while(held, overlaps).unwrap_or_else(PoisonError::into_inner);
        held.push(range.clone());
        HeldRange { ranges: self, range }
    }
}

struct HeldRange<'a> {
    ranges: &'a Ranges,
    range: Range<u64>,
}

impl Drop for HeldRange<'_> {
    fn drop(&mut self) {
        let mut held = lock(&self.ranges.held);
        if let Some(place) = held.iter().position(|range| *range == self.range) {
            held.swap_remove(place);
        }
        drop(held);
        self.ranges.released.notify_all();
    }
}

/// A disk of which no answered change is lost when its server is killed.
pub(super) struct SurvivingDisk {
    disk: Arc<dyn Disk>,
    notes: Mutex<Notes>,
    /// Wakes writers that found no room when a flush has ended.
    flushed: Condvar,
    ranges: Ranges,
}

impl SurvivingDisk {
    /// A disk without a killed server: it starts without notes.
    fn create(disk: Arc<dyn Disk>, path: &Path, mark: u64) -> io::Result<Self> {
        Ok(Self::new(disk, Notes::create(path, mark)?))
    }

    /// A disk whose server was killed; `path` has its notes. All of them are durable on return.
    fn recover(disk: Arc<dyn Disk>, path: &Path, mark: u64) -> io::Result<Self> {
        let mut notes = Notes::open(path, mark)?;
        let count = notes.replay(&*disk).map_err(io::Error::other)?;
        disk.flush().map_err(io::Error::other)?;
        for half in [0, 1] {
            notes.empty(half)?;
        }
        tracing::info!(count, "made again what the killed server had answered and not flushed");
        Ok(Self::new(disk, notes))
    }

    fn new(disk: Arc<dyn Disk>, notes: Notes) -> Self {
        let (flushed, ranges) = (Condvar::new(), Ranges::default());
        Self { disk, notes: Mutex::new(notes), flushed, ranges }
    }

    fn change(&self, change: &Change<'_>, durability: Durability) -> Result<()> {
        let end = change.lba.get().saturating_add(change.blocks.get());
        let held = self.ranges.hold(change.lba.get()..end);
        change.apply(&*self.disk)?;
        self.note(change)?;
        drop(held);
        match durability {
            Durability::Later => Ok(()),
            Durability::AtOnce => self.flush(),
        }
    }

    /// Notes a change. If there is no room for it, a flush makes room: the running one, or one of
    /// our own, whose failure is that of the change.
    fn note(&self, change: &Change<'_>) -> Result<()> {
        let mut notes = lock(&self.notes);
        while !notes.note(change).map_err(failed)? {
            if notes.flushing.is_some() {
                notes = self.flushed.wait(notes).unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(notes);
                self.flush()?;
                notes = lock(&self.notes);
            }
        }
        Ok(())
    }
}

impl Disk for SurvivingDisk {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.disk.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let blocks = LbaCount::new(data.len() as u64 >> self.shape().block_size.shift());
        self.change(&Change { kind: kind::WRITE, lba, blocks, data }, durability)
    }

    fn flush(&self) -> Result<()> {
        let covered = lock(&self.notes).begin_flush().map_err(failed)?;
        let flushed = self.disk.flush();
        let Some(half) = covered else { return flushed };
        let mut notes = lock(&self.notes);
        notes.flushing = None;
        let ended = flushed.and_then(|()| notes.empty(half).map_err(failed));
        drop(notes);
        self.flushed.notify_all();
        ended
    }

    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.change(&Change { kind: kind::DISCARD, lba, blocks, data: &[] }, Durability::Later)
    }

    fn write_zeroes(
        &self,
        lba: Lba,
        blocks: LbaCount,
        space: ZeroedSpace,
        durability: Durability,
    ) -> Result<()> {
        let kind = match space {
            ZeroedSpace::Free => kind::ZEROES,
            ZeroedSpace::Keep => kind::ZEROES_KEPT,
        };
        self.change(&Change { kind, lba, blocks, data: &[] }, durability)
    }

    fn extents(
        &self,
        lba: Lba,
        blocks: LbaCount,
        each: &mut dyn FnMut(DiskExtent) -> bool,
    ) -> Result<()> {
        self.disk.extents(lba, blocks, each)
    }
}

fn failed(source: io::Error) -> DiskError {
    let errno = rustix::io::Errno::from_io_error(&source).unwrap_or(rustix::io::Errno::IO);
    DiskError::Below { errno, source: Box::new(source) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory for the notes of ublk device `id`. The kernel never swaps its memory out: without
/// a server, no program could read notes back from a disk that is swap space.
fn folder(id: u32) -> PathBuf {
    PathBuf::from(format!("/run/zonal/ublk{id}"))
}

fn file(id: u32) -> PathBuf {
    folder(id).join("unflushed")
}

/// The disk for a new ublk device.
pub(super) fn create(disk: Arc<dyn Disk>, id: u32, mark: u64) -> io::Result<SurvivingDisk> {
    // Another program may have removed a device of this number.
    discard(id);
    let folder = folder(id);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"zonal", &folder, c"tmpfs", flags, c"noswap,mode=0700,size=80m")?;
    SurvivingDisk::create(disk, &file(id), mark).inspect_err(|_| discard(id))
}

/// The disk for a ublk device whose server was killed.
pub(super) fn recover(disk: Arc<dyn Disk>, id: u32, mark: u64) -> io::Result<SurvivingDisk> {
    SurvivingDisk::recover(disk, &file(id), mark)
}

/// Throws the notes of a ublk device away, if there are any.
pub(super) fn discard(id: u32) {
    let folder = folder(id);
    if unmount(&folder, UnmountFlags::DETACH).is_ok() {
        // Only an empty directory is left.
        let _ = fs::remove_dir(&folder);
    }
}

#[cfg(test)]
mod tests;
