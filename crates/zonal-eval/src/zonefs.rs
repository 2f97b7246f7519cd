//! zonefs on a simulated ZNS SSD, with the program that it needs: zone files only grow, so a
//! program that replaces and deletes has a log of its own over them.
//!
//! The log is the [host's](zonal_sim::host), with zone files as its zones. The program knows how
//! long its data will live and keeps two streams apart. It keeps the places of its data in memory;
//! a real program would write them down too, a fraction of a percent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use zonal_fs::vfs::{Caller, FileSystem, Ino, SetAttr, WriteFlags};
use zonal_fs::zonefs::{self, Group, MkfsOptions, MountOptions, ZoneFs};
use zonal_sim::files::{Extent, FileOp, FileStore, Life, Space};
use zonal_sim::ftl::{PageMapped, Slot, Translation, Unit, Work};
use zonal_sim::host;
use zonal_sim::ssd::Account;
use zonal_sim::{Config, SimSsd};

use crate::content::{BLOCK, Content, count};
use crate::{During, EvalError, Result, mismatch};

/// Blocks that reclaim copies with one read: 1 MiB of a zone, dead blocks included.
const COPY_BLOCKS: u32 = 256;

/// A mounted zonefs, and a log over its files.
pub(super) struct ZonefsStore {
    fs: ZoneFs,
    drive: Arc<SimSsd>,
    /// Blocks of the program's address space → places in zone files.
    log: PageMapped,
    space: Space,
    files: BTreeMap<u32, (Life, Vec<Extent>)>,
    content: Content,
    zone_files: Vec<Ino>,
    zone_blocks: u32,
    /// Placed blocks that follow each other in a zone file and are still to be written.
    pending: Pending,
}

#[derive(Default)]
struct Pending {
    first: Slot,
    data: Vec<u8>,
}

/// Blocks that reclaim moves out of a victim together.
struct Batch {
    zone: u32,
    copies: Vec<(Unit, Slot)>,
}

impl ZonefsStore {
    /// A new file system on a new drive.
    pub(super) fn new(config: &Config) -> Result<Self> {
        let drive = Arc::new(SimSsd::new(config)?);
        let clock = drive.clock();
        let made = zonefs::mkfs(&*drive, &MkfsOptions::default(), &mut |_| ())
            .during("making a zonefs")?;
        let fs = ZoneFs::mount(drive.clone(), clock, MountOptions::default())
            .during("mounting the zonefs")?;
        let zone_files: Vec<Ino> =
            (0..made.usable).filter_map(|zone| fs.file(Group::Sequential, zone)).collect();
        let zones = u32::try_from(zone_files.len()).expect("zones are numbered by 32 bits");
        let log = PageMapped::new(&host::log_config(config, zones)?)?;
        let layout = *log.layout();
        Ok(Self {
            fs,
            drive,
            log,
            space: Space::new(0..layout.user_units),
            files: BTreeMap::new(),
            content: Content::default(),
            zone_files,
            zone_blocks: layout.block_units,
            pending: Pending::default(),
        })
    }

    /// The zone file of a place of the log, and the offset in it.
    fn place_of(&self, slot: Slot) -> (Ino, u64) {
        let (zone, block) = (slot / self.zone_blocks, slot % self.zone_blocks);
        (self.zone_files[zone as usize], u64::from(block) * BLOCK as u64)
    }

    /// Takes a placed block; writes the pending blocks before it unless it follows them.
    fn put(&mut self, slot: Slot, block: &[u8]) -> Result<()> {
        let blocks = u32::try_from(self.pending.data.len() / BLOCK).expect("at most COPY_BLOCKS");
        let follows = self.pending.first + blocks == slot && !slot.is_multiple_of(self.zone_blocks);
        if !follows || blocks == COPY_BLOCKS {
            self.write_pending()?;
            self.pending.first = slot;
        }
        self.pending.data.extend_from_slice(block);
        Ok(())
    }

    fn write_pending(&mut self) -> Result<()> {
        if !self.pending.data.is_empty() {
            let (ino, offset) = self.place_of(self.pending.first);
            let written = self.fs.write(ino, offset, &self.pending.data, WriteFlags::DIRECT);
            written.during("writing a zone file")?;
            self.pending.data.clear();
        }
        Ok(())
    }

    fn write(&mut self, units: impl Iterator<Item = Unit>, data: &[u8], life: Life) -> Result<()> {
        for (unit, block) in units.zip(data.chunks_exact(BLOCK)) {
            self.reclaim()?;
            let slot = self.log.place(unit, life as u8).expect("reclaim has made room");
            self.put(slot, block)?;
        }
        self.write_pending()
    }

    /// Runs the log's steps of reclaim: copies out of a victim, then a reset.
    fn reclaim(&mut self) -> Result<()> {
        let mut batch = Batch { zone: 0, copies: Vec::new() };
        loop {
            match self.log.work() {
                Some(Work::Copy { unit, from }) => {
                    let start = batch.copies.first().map_or(from, |&(_, slot)| slot);
                    if batch.zone != from / self.zone_blocks || from - start >= COPY_BLOCKS {
                        self.copy(&mut batch)?;
                    }
                    batch.zone = from / self.zone_blocks;
                    batch.copies.push((unit, from));
                }
                Some(Work::Erase(zone)) => {
                    self.write_pending()?;
                    let reset = SetAttr { size: Some(0), ..SetAttr::default() };
                    let ino = self.zone_files[zone as usize];
                    self.fs.setattr(&Caller::ROOT, ino, &reset).during("resetting a zone file")?;
                    self.log.erased(zone);
                }
                // A victim is reset only after its copies are answered.
                None if !batch.copies.is_empty() => self.copy(&mut batch)?,
                None => return Ok(()),
            }
        }
    }

    fn copy(&mut self, batch: &mut Batch) -> Result<()> {
        let copies = std::mem::take(&mut batch.copies);
        let (Some(&(_, first)), Some(&(_, last))) = (copies.first(), copies.last()) else {
            return Ok(());
        };
        self.write_pending()?;
        let data = self.read(first..last + 1)?;
        for (unit, from) in copies {
            if let Some(slot) = self.log.moved(unit, from) {
                let at = (from - first) as usize * BLOCK;
                self.put(slot, &data[at..at + BLOCK])?;
            }
        }
        Ok(())
    }

    fn read(&self, slots: Range<Slot>) -> Result<Vec<u8>> {
        let (ino, offset) = self.place_of(slots.start);
        let mut data = vec![0; slots.len() * BLOCK];
        let read = self.fs.read(ino, offset, &mut data);
        data.truncate(read.during("reading a zone file")?);
        Ok(data)
    }

    /// Compares the byte counts of log and drive, and reads every file.
    pub(super) fn verify(mut self) -> Result<()> {
        self.write_pending()?;
        let (log, drive) = (self.log.counters(), self.drive.account().host_bytes);
        // One block more: the super block.
        let wrote = (log.host + log.moved + 1) * BLOCK as u64;
        if wrote != drive {
            let what = format!("the log counts {wrote} bytes, its drive {drive}");
            return Err(mismatch(what));
        }
        for (file, _) in self.content.files() {
            let mut data = Vec::new();
            for unit in units(&self.files[&file].1) {
                let slot = self.log.locate(unit).expect("a live block is mapped");
                data.extend(self.read(slot..slot + 1)?);
            }
            self.content.compare(file, &data)?;
        }
        self.fs.shutdown().during("unmounting")
    }
}

/// The blocks of extents, in order.
fn units(extents: &[Extent]) -> impl Iterator<Item = Unit> {
    extents.iter().flat_map(|extent| extent.first..extent.first + extent.count)
}

impl FileStore for ZonefsStore {
    type Error = EvalError;

    fn apply(&mut self, op: &FileOp) -> Result<()> {
        let data = self.content.bytes_of(op);
        match *op {
            FileOp::Create { file, bytes, life } => {
                let blocks = u32::try_from(count(bytes)).expect("a file has few blocks");
                let extents = self.space.allocate(blocks).ok_or(EvalError::LogFull)?;
                self.write(units(&extents), &data, life)?;
                self.files.insert(file, (life, extents));
            }
            FileOp::Overwrite { file, offset, .. } => {
                let (life, extents) = self.files[&file].clone();
                self.write(units(&extents).skip(count(offset)), &data, life)?;
            }
            FileOp::Delete { file } => {
                let (_, extents) =
                    self.files.remove(&file).expect("operations name files that live");
                for extent in extents {
                    self.log.trim(extent.first, extent.count);
                    self.space.release(extent);
                }
            }
            FileOp::Sync => self.fs.sync().during("syncing")?,
        }
        Ok(())
    }

    fn account(&self) -> Account {
        self.drive.account()
    }
}
