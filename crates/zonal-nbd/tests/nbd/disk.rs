//! A disk in memory, which counts, fails and waits as a test wants it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use rustix::io::Errno;
use zonal::disk::{Content, DiskExtent, Durability, Result, ZeroedSpace};
use zonal::{BlockSize, ByteCount, Disk, DiskError, DiskShape, Lba, LbaCount};

/// Blocks that hold data, or zeroes that take space.
pub(crate) type Blocks = BTreeMap<u64, Option<Vec<u8>>>;

pub(crate) struct TestDisk {
    pub(crate) block_size: BlockSize,
    pub(crate) blocks: AtomicU64,
    pub(crate) is_read_only: bool,
    /// Reads of this block fail.
    pub(crate) bad: Option<Lba>,
    /// Reads from this block on panic.
    pub(crate) trap: Option<Lba>,
    /// Reads wait here for each other.
    pub(crate) meeting: Option<Barrier>,
    pub(crate) content: Mutex<Blocks>,
    pub(crate) flushes: AtomicU64,
    /// Writes that were durable at once.
    pub(crate) forced: AtomicU64,
}

impl TestDisk {
    pub(crate) fn new(block_size: BlockSize, blocks: u64) -> Self {
        Self {
            block_size,
            blocks: AtomicU64::new(blocks),
            is_read_only: false,
            bad: None,
            trap: None,
            meeting: None,
            content: Mutex::default(),
            flushes: AtomicU64::new(0),
            forced: AtomicU64::new(0),
        }
    }

    fn block_bytes(&self) -> usize {
        1 << self.block_size.shift()
    }

    fn note(&self, durability: Durability) {
        if durability == Durability::AtOnce {
            self.forced.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(DiskError::ReadOnly) } else { Ok(()) }
    }
}

impl Disk for TestDisk {
    fn shape(&self) -> DiskShape {
        DiskShape {
            block_size: self.block_size,
            physical_size: BlockSize::B4096,
            blocks: LbaCount::new(self.blocks.load(Ordering::Relaxed)),
            atomic: ByteCount::new(1 << 20),
            is_read_only: self.is_read_only,
        }
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.shape().range_of(lba, buffer.len())?;
        assert!(self.trap != Some(lba), "a mistake in a disk");
        if let Some(meeting) = &self.meeting {
            meeting.wait();
        }
        let content = self.content.lock().unwrap();
        for (block, number) in buffer.chunks_mut(self.block_bytes()).zip(lba.get()..) {
            if self.bad == Some(Lba::new(number)) {
                let source = Box::new(io::Error::other("a scratch in the disk"));
                return Err(DiskError::Below { errno: Errno::IO, source });
            }
            match content.get(&number) {
                Some(Some(data)) => block.copy_from_slice(data),
                Some(None) | None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.check_writable()?;
        self.shape().range_of(lba, data.len())?;
        self.note(durability);
        let mut content = self.content.lock().unwrap();
        for (block, number) in data.chunks(self.block_bytes()).zip(lba.get()..) {
            content.insert(number, Some(block.to_vec()));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.write_zeroes(lba, blocks, ZeroedSpace::Free, Durability::Later)
    }

    fn write_zeroes(
        &self,
        lba: Lba,
        blocks: LbaCount,
        space: ZeroedSpace,
        durability: Durability,
    ) -> Result<()> {
        self.check_writable()?;
        self.shape().range(lba, blocks)?;
        self.note(durability);
        let mut content = self.content.lock().unwrap();
        for number in lba.get()..lba.get() + blocks.get() {
            match space {
                ZeroedSpace::Free => drop(content.remove(&number)),
                ZeroedSpace::Keep => drop(content.insert(number, None)),
            }
        }
        Ok(())
    }

    fn extents(
        &self,
        lba: Lba,
        blocks: LbaCount,
        each: &mut dyn FnMut(DiskExtent) -> bool,
    ) -> Result<()> {
        self.shape().range(lba, blocks)?;
        let content = self.content.lock().unwrap();
        let mut found: Option<DiskExtent> = None;
        for number in lba.get()..lba.get() + blocks.get() {
            let content = match content.get(&number) {
                Some(Some(_)) => Content::Data,
                Some(None) => Content::Zeroes { takes_space: true },
                None => Content::Zeroes { takes_space: false },
            };
            match &mut found {
                Some(extent) if extent.content == content => extent.blocks += LbaCount::new(1),
                Some(extent) => {
                    if !each(*extent) {
                        return Ok(());
                    }
                    *extent =
                        DiskExtent { lba: Lba::new(number), blocks: LbaCount::new(1), content };
                }
                None => {
                    let blocks = LbaCount::new(1);
                    found = Some(DiskExtent { lba: Lba::new(number), blocks, content });
                }
            }
        }
        if let Some(extent) = found {
            each(extent);
        }
        Ok(())
    }
}
