//! Files of a store on simulated drives, each call at a time of its own thread: a file system of
//! Zonal on `zn540`, and one that overwrites in place on a conventional drive.
//!
//! File systems on zones run as they are. Their device hands each command to the drive's
//! [queue](zonal::VirtualQueue) at the time of the thread that makes the call, so the commands of
//! several threads overlap. Resets and finishes take time of the drive, but no thread waits for
//! them. All data is zeroes, which take no memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use zonal::{
    Clock, Geometry, Io, Lba, LbaCount, Op, Select, VirtualQueue, Zone, ZoneAction, ZoneId,
    ZonedDevice,
};
use zonal_fs::lifetime::{LIFETIME_XATTR, WriteLifetime};
use zonal_fs::vfs::{
    Caller, FileKind, FileSystem, Ino, NewInode, OpenFor, SyncKind, WriteFlags, XattrMode,
};
use zonal_sim::SimSsd;
use zonal_sim::files::{BLOCK_BYTES, FileOp, FileStore, InPlace, Life};
use zonal_sim::ssd::Account;

/// Files on a drive.
pub(crate) trait Store {
    /// Says that the next calls are by a thread whose time is `at_ns`. Returns the time at which
    /// they begin: not before the calls of other threads have begun.
    fn begin_at(&mut self, at_ns: u64) -> u64;

    /// When the last call ended.
    fn now_ns(&self) -> u64;

    /// Makes a file of at most `bytes` bytes.
    fn create(&mut self, file: u32, bytes: u64, life: WriteLifetime) -> Result<()>;

    /// Writes the next part of a file.
    fn write(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()>;

    /// Reads a part of it.
    fn read(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()>;

    /// Makes it durable; nothing more will be written to it.
    fn complete(&mut self, file: u32) -> Result<()>;

    /// Deletes it.
    fn delete(&mut self, file: u32) -> Result<()>;

    /// Does work in the background.
    fn work(&mut self) -> Result<()>;

    /// Counts of the drive so far.
    fn account(&self) -> Account;
}

/// A zoned drive whose commands begin at the time of the thread that makes the call.
pub(crate) struct Queued {
    drive: Arc<SimSsd>,
    now_ns: AtomicU64,
    /// When the last command began.
    begun_ns: AtomicU64,
}

impl Queued {
    pub(crate) fn new(drive: Arc<SimSsd>) -> Self {
        let now_ns = drive.clock().monotonic_ns();
        Self { drive, now_ns: AtomicU64::new(now_ns), begun_ns: AtomicU64::new(now_ns) }
    }

    /// A thread at this time makes the next calls.
    fn begin_at(&self, at_ns: u64) -> u64 {
        let begin = at_ns.max(self.begun_ns.load(Ordering::Relaxed));
        self.now_ns.store(begin, Ordering::Relaxed);
        begin
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// The time at which the next command begins; moves the clock there.
    fn begin(&self) -> u64 {
        let begin = self.now_ns();
        let before = self.begun_ns.fetch_max(begin, Ordering::Relaxed);
        self.drive.clock().advance_ns(begin.saturating_sub(before));
        begin
    }

    fn perform(&self, op: Op<'_>) -> zonal::error::Result<Lba> {
        let mut io = Io::new(op);
        let end = self.drive.perform_at(&mut io, self.begin());
        self.now_ns.store(end, Ordering::Relaxed);
        io.outcome()
    }
}

impl ZonedDevice for Queued {
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn report(
        &self,
        first: ZoneId,
        zones: &mut Vec<Zone>,
        limit: usize,
    ) -> zonal::error::Result<()> {
        self.drive.report(first, zones, limit)
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> zonal::error::Result<()> {
        self.perform(Op::Read { lba, buffer }).map(drop)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> zonal::error::Result<()> {
        self.perform(Op::Write { lba, data }).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> zonal::error::Result<Lba> {
        self.perform(Op::Append { zone, data })
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut at = self.begin();
        let mut end = at;
        for io in batch {
            let is_flush = matches!(io.op, Op::Flush);
            if is_flush {
                at = end;
            }
            end = end.max(self.drive.perform_at(io, at));
            if is_flush {
                at = end;
            }
        }
        self.now_ns.store(end, Ordering::Relaxed);
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> zonal::error::Result<()> {
        self.drive.manage_at(zones, action, self.begin()).map(drop)
    }

    fn flush(&self) -> zonal::error::Result<()> {
        self.perform(Op::Flush).map(drop)
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> zonal::error::Result<()> {
        self.drive.deallocate(lba, blocks)
    }
}

/// A file system on a zoned drive.
pub(crate) struct OnZones<F> {
    fs: F,
    queue: Arc<Queued>,
    files: BTreeMap<u32, Ino>,
    /// Zeroes to write, and a buffer for reads.
    buffer: Vec<u8>,
    hints: Hints,
}

/// Whether a file system takes hints about lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    Taken,
    Unknown,
}

impl<F: FileSystem> OnZones<F> {
    pub(crate) fn new(fs: F, queue: Arc<Queued>, hints: Hints) -> Self {
        Self { fs, queue, files: BTreeMap::new(), buffer: Vec::new(), hints }
    }
}

impl<F: FileSystem> Store for OnZones<F> {
    fn begin_at(&mut self, at_ns: u64) -> u64 {
        self.queue.begin_at(at_ns)
    }

    fn now_ns(&self) -> u64 {
        self.queue.now_ns()
    }

    fn create(&mut self, file: u32, _: u64, life: WriteLifetime) -> Result<()> {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let name = file.to_string();
        let ino = self.fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new)?.ino;
        if self.hints == Hints::Taken {
            let (name, value) = (LIFETIME_XATTR.as_bytes(), life.name().as_bytes());
            self.fs.setxattr(&Caller::ROOT, ino, name, value, XattrMode::Any)?;
        }
        self.fs.open(ino, OpenFor::Writing)?;
        self.files.insert(file, ino);
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()> {
        self.buffer.clear();
        self.buffer.resize(usize::try_from(bytes)?, 0);
        self.fs.write(self.files[&file], offset, &self.buffer, WriteFlags::DIRECT)?;
        Ok(())
    }

    fn read(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()> {
        self.buffer.resize(usize::try_from(bytes)?, 0);
        let read = self.fs.read(self.files[&file], offset, &mut self.buffer)?;
        anyhow::ensure!(read as u64 == bytes, "file {file} has fewer bytes");
        Ok(())
    }

    fn complete(&mut self, file: u32) -> Result<()> {
        let ino = self.files[&file];
        self.fs.fsync(ino, SyncKind::Full)?;
        self.fs.close(ino, OpenFor::Writing);
        Ok(())
    }

    fn delete(&mut self, file: u32) -> Result<()> {
        self.files.remove(&file);
        self.fs.unlink(Ino::ROOT, file.to_string().as_bytes())?;
        Ok(())
    }

    fn work(&mut self) -> Result<()> {
        self.fs.tick()?;
        Ok(())
    }

    fn account(&self) -> Account {
        self.queue.drive.account()
    }
}

/// A file system that overwrites in place.
pub(crate) struct OnBlocks {
    fs: InPlace,
    begun_ns: u64,
}

impl OnBlocks {
    pub(crate) const fn new(fs: InPlace) -> Self {
        Self { fs, begun_ns: 0 }
    }
}

impl Store for OnBlocks {
    fn begin_at(&mut self, at_ns: u64) -> u64 {
        self.begun_ns = self.begun_ns.max(at_ns);
        self.fs.begin_at(self.begun_ns);
        self.begun_ns
    }

    fn now_ns(&self) -> u64 {
        self.fs.now_ns()
    }

    fn create(&mut self, file: u32, bytes: u64, _: WriteLifetime) -> Result<()> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        Ok(self.fs.preallocate(file, bytes, Life::Long)?)
    }

    fn write(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()> {
        Ok(self.fs.apply(&FileOp::Overwrite { file, offset, bytes })?)
    }

    fn read(&mut self, file: u32, offset: u64, bytes: u64) -> Result<()> {
        self.fs.read(file, offset, bytes);
        Ok(())
    }

    fn complete(&mut self, _: u32) -> Result<()> {
        Ok(self.fs.apply(&FileOp::Sync)?)
    }

    fn delete(&mut self, file: u32) -> Result<()> {
        Ok(self.fs.apply(&FileOp::Delete { file })?)
    }

    fn work(&mut self) -> Result<()> {
        Ok(())
    }

    fn account(&self) -> Account {
        self.fs.account()
    }
}
