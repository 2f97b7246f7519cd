//! Reads of several places at once: side by side, or with the gaps between them where a jump takes
//! longer.

use std::sync::atomic::Ordering;

use zonal::{DeviceError, Io};

use crate::furrow::drive::{Drive, Result};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::options::Seeks;

/// Blocks between two places that a disk reads sooner than that it jumps: 1 MiB takes half as long
/// as a turn.
pub(super) const GAP_BLOCKS: u32 = 256;

/// Blocks of places that are read together, with the gaps between them, at most: 4 MiB.
const SPAN_BLOCKS: u32 = 1024;

/// A place on the drive, and the memory for its blocks.
pub(in crate::furrow) struct Wanted<'a> {
    pub(in crate::furrow) at: Address,
    pub(in crate::furrow) buffer: &'a mut [u8],
    /// The zone's blocks up to here have data that no write changes, so others near the place may
    /// be kept in memory, or come from there; 0 to read nothing but the place, from the device.
    pub(in crate::furrow) readable: u32,
}

impl Drive {
    /// Reads whole blocks at several places.
    pub(in crate::furrow) fn read_all(&self, mut wanted: &mut [Wanted<'_>]) -> Result<()> {
        if self.layout.seeks == Seeks::Free {
            return self.read_apart(wanted);
        }
        while let [first, ..] = wanted {
            let limit = first.at.block.saturating_add(SPAN_BLOCKS);
            let goes_on = |pair: &&[Wanted<'_>]| is_near(&pair[0], &pair[1], limit);
            let count = 1 + wanted.windows(2).take_while(goes_on).count();
            let near;
            (near, wanted) = std::mem::take(&mut wanted).split_at_mut(count);
            self.read_with_gaps(near)?;
        }
        Ok(())
    }

    /// Reads places side by side.
    fn read_apart(&self, wanted: &mut [Wanted<'_>]) -> Result<()> {
        if let [Wanted { at, buffer, .. }] = wanted {
            return self.read(*at, buffer);
        }
        let bytes: usize = wanted.iter().map(|to| to.buffer.len()).sum();
        for to in &*wanted {
            self.note_transfer(to.at, to.buffer.len());
        }
        let mut batch: Vec<Io<'_>> =
            wanted.iter_mut().map(|to| Io::read(self.lba(to.at), to.buffer)).collect();
        self.counts.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.device.submit(&mut batch);
        batch.into_iter().try_for_each(|io| io.outcome().map(drop))
    }

    /// Reads places of one zone that lie near each other, in their order, as one.
    fn read_with_gaps(&self, wanted: &mut [Wanted<'_>]) -> Result<()> {
        if let [Wanted { at, buffer, readable }] = wanted {
            return self.read_on(*at, buffer, *readable);
        }
        let [Wanted { at: first, readable, .. }, .., last] = &*wanted else { return Ok(()) };
        let (first, readable, blocks) = (*first, *readable, end_of(last) - first.block);
        let mut span = vec![0; blocks as usize * BLOCK_BYTES];
        match self.read_on(first, &mut span, readable) {
            Ok(()) => {}
            Err(error @ DeviceError::PowerCut) => return Err(error),
            // A block that nobody wants may be bad.
            Err(_) => return self.read_apart(wanted),
        }
        for Wanted { at, buffer, .. } in wanted {
            let from = (at.block - first.block) as usize * BLOCK_BYTES;
            buffer.copy_from_slice(&span[from..from + buffer.len()]);
        }
        Ok(())
    }
}

/// The block behind a place.
fn end_of(place: &Wanted<'_>) -> u32 {
    place.at.block + u32::try_from(place.buffer.len() / BLOCK_BYTES).expect("inside a zone")
}

/// Whether a place follows another one in its zone with a short gap, and ends at `limit` or before.
fn is_near(place: &Wanted<'_>, next: &Wanted<'_>, limit: u32) -> bool {
    let (end, block) = (end_of(place), next.at.block);
    let is_behind = place.at.zone == next.at.zone && (end..=end + GAP_BLOCKS).contains(&block);
    is_behind && end_of(next) <= limit
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use zonal::{Lba, MemoryDrive, ZoneId, ZonedDevice};

    use super::*;
    use crate::furrow::drive::drives::Drives;
    use crate::furrow::drive::layout::Layout;
    use crate::furrow::sample::shape;

    pub(in crate::furrow::drive) const ZONE: u32 = 5;
    const BAD: u64 = ZONE as u64 * 2048 + 11;

    /// A drive that counts its reads, and fails each read of one block.
    pub(in crate::furrow::drive) struct Worn {
        drive: MemoryDrive,
        pub(in crate::furrow::drive) reads: AtomicU32,
    }

    impl ZonedDevice for Worn {
        zonal::pass_on!(drive: geometry, report, write, append, manage, flush);

        fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let blocks = lba.get()..lba.get() + (buffer.len() / BLOCK_BYTES) as u64;
            if blocks.contains(&BAD) {
                return Err(DeviceError::Medium { lba: Lba::new(BAD) });
            }
            self.drive.read(lba, buffer)
        }
    }

    /// A drive of which one zone is full, with windows of so many blocks.
    pub(in crate::furrow::drive) fn worn(window_blocks: u16) -> (Arc<Worn>, Drive) {
        let drive = MemoryDrive::new(shape(32, 2048)).unwrap();
        let data: Vec<u8> = (0..2048).flat_map(|block| [byte_of(block); BLOCK_BYTES]).collect();
        for part in data.chunks(64 * BLOCK_BYTES) {
            drive.append(ZoneId::new(ZONE), part).unwrap();
        }
        let device = Arc::new(Worn { drive, reads: AtomicU32::new(0) });
        let mut layout = Layout::new(&Drives::from(device.clone())).unwrap();
        (layout.seeks, layout.window_blocks) = (Seeks::Cost, window_blocks);
        (device.clone(), Drive::new(device, &layout))
    }

    /// The content of a block.
    pub(in crate::furrow::drive) fn byte_of(block: u32) -> u8 {
        block.to_le_bytes()[0]
    }

    fn wanted(block: u32, buffer: &mut [u8]) -> Wanted<'_> {
        Wanted { at: Address { zone: ZONE, block }, buffer, readable: 0 }
    }

    /// Reads these blocks of a zone, and returns the number of reads.
    fn reads(blocks: &[u32]) -> Result<u32> {
        let (device, drive) = worn(0);
        let mut memory = vec![0; blocks.len() * BLOCK_BYTES];
        let places = blocks.iter().zip(memory.chunks_mut(BLOCK_BYTES));
        let mut places: Vec<_> = places.map(|(&block, buffer)| wanted(block, buffer)).collect();
        drive.read_all(&mut places)?;
        for (&block, found) in blocks.iter().zip(memory.chunks(BLOCK_BYTES)) {
            assert!(found.iter().all(|&byte| byte == byte_of(block)), "block {block}");
        }
        Ok(device.reads.load(Ordering::Relaxed))
    }

    #[test]
    fn near_blocks_are_read_as_one_on_disk() {
        assert_eq!(reads(&[20]).unwrap(), 1);
        assert_eq!(reads(&[20, 21, 30, 280]).unwrap(), 1);
        // The gap is too long, the span is, or the order is another.
        assert_eq!(reads(&[20, 278]).unwrap(), 2);
        assert_eq!(reads(&[20, 270, 520, 770, 1020, 1270]).unwrap(), 2);
        assert_eq!(reads(&[30, 20]).unwrap(), 2);
    }

    #[test]
    fn bad_block_between_others_fails_none_of_them() {
        // All as one, and then each.
        assert_eq!(reads(&[10, 12, 14]).unwrap(), 4);
        assert!(matches!(reads(&[10, 11, 12]), Err(DeviceError::Medium { .. })));
    }
}
