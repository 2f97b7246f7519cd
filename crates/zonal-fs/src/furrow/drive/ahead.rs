//! Reading ahead on a disk: where a read begins behind the end of another one, as in a large file
//! or in files that were written one after the other, Furrow reads on behind it as well. So one
//! command serves many small files.
//!
//! Blocks in memory are never outdated. The reader has their zone pinned, so no thread resets it,
//! and only blocks count whose write had ended before the read began; they do not change until the
//! reset, which forgets them.

use std::ops::Range;
use std::sync::Arc;

use zonal::DeviceError;

use crate::furrow::drive::reads::GAP_BLOCKS;
use crate::furrow::drive::{Drive, Result};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::sync::Mutex;

/// Windows in memory, at most.
pub(in crate::furrow) const WINDOWS: usize = 4;

/// Runs that are followed, at most. Random reads begin many, and few of these go on.
const RUNS: usize = 64;

/// Runs of reads, of which each read begins near the end of the one before.
pub(super) struct ReadAhead {
    /// Blocks of a window, at most.
    blocks_max: u32,
    /// The run that went on last is the last one.
    runs: Mutex<Vec<Run>>,
}

struct Run {
    zone: u32,
    /// Blocks of the window, or on their way there. It is empty where the run has no window, at the
    /// end of its last read.
    blocks: Range<u32>,
    window: SharedWindow,
}

/// Locked by the thread that reads blocks into it: others that want these blocks wait.
type SharedWindow = Arc<Mutex<Window>>;

/// Blocks of a zone in memory.
#[derive(Default)]
struct Window {
    /// Where the run began.
    start: u32,
    /// The first block in memory.
    first: u32,
    bytes: Vec<u8>,
    /// A device has refused to read ahead somewhere below this block.
    refused_below: u32,
}

impl ReadAhead {
    /// With windows of this many blocks.
    pub(super) fn new(blocks_max: u32) -> Self {
        Self { blocks_max, runs: Mutex::default() }
    }

    /// The window of the run that a read of `blocks` goes on with. If there is none, a run begins
    /// with this read.
    fn find(&self, zone: u32, blocks: &Range<u32>) -> Option<SharedWindow> {
        let mut runs = self.runs.lock().expect("no holder panicked");
        let goes_on = |run: &Run| {
            let near = run.blocks.start..=run.blocks.end.saturating_add(GAP_BLOCKS);
            run.zone == zone && near.contains(&blocks.start)
        };
        if let Some(at) = runs.iter().rposition(goes_on) {
            return Some(Arc::clone(&runs[at].window));
        }
        if runs.len() == RUNS {
            runs.remove(0);
        }
        let Range { start, end } = *blocks;
        let window = Window { start, first: end, ..Window::default() };
        runs.push(Run { zone, blocks: end..end, window: Arc::new(Mutex::new(window)) });
        None
    }

    /// From now on a run has these blocks. The oldest one loses its window if there are too many.
    fn go_on(&self, window: &SharedWindow, blocks: Range<u32>) {
        let mut runs = self.runs.lock().expect("no holder panicked");
        let Some(at) = runs.iter().position(|run| Arc::ptr_eq(&run.window, window)) else { return };
        let run = runs.remove(at);
        runs.push(Run { blocks, ..run });
        let has_window = |run: &Run| !run.blocks.is_empty();
        if runs.iter().filter(|run| has_window(run)).count() > WINDOWS {
            let oldest = runs.iter().position(has_window).expect("there are some");
            runs.remove(oldest);
        }
    }

    /// Forgets the blocks of a zone.
    pub(super) fn forget(&self, zone: u32) {
        self.runs.lock().expect("no holder panicked").retain(|run| run.zone != zone);
    }
}

impl Window {
    fn end(&self) -> u32 {
        self.first + blocks_in(&self.bytes)
    }

    /// Copies blocks from `block` on, as many as are in memory. Returns how many bytes.
    fn copy(&self, block: u32, buffer: &mut [u8]) -> usize {
        let skipped = block.checked_sub(self.first).map(|blocks| blocks as usize * BLOCK_BYTES);
        let held = skipped.and_then(|skipped| self.bytes.get(skipped..)).unwrap_or_default();
        let bytes = held.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&held[..bytes]);
        bytes
    }

    /// The blocks to read from the device for a read whose first block is not in memory: the gap
    /// before it too, and behind it as many blocks as the run has passed.
    fn wanted(&self, blocks: &Range<u32>, readable: u32, blocks_max: u32) -> Option<Range<u32>> {
        let end = self.end();
        let goes_on = (end..=end.saturating_add(GAP_BLOCKS)).contains(&blocks.start);
        let limit = readable.min(end.saturating_add(blocks_max));
        let ahead = blocks.end.saturating_add(blocks.end - self.start).min(limit);
        let is_wanted = goes_on && ahead > blocks.end && blocks.start >= self.refused_below;
        is_wanted.then_some(end..ahead)
    }

    /// The run goes on behind a block, without blocks in memory.
    fn clear(&mut self, end: u32) {
        (self.first, self.bytes) = (end, Vec::new());
    }
}

impl Drive {
    /// Reads whole blocks of a pinned zone, and reads on behind them. The zone's first `readable`
    /// blocks have data that no write changes. A block that nobody wants may be bad, and fails no
    /// read of others.
    pub(super) fn read_on(&self, at: Address, buffer: &mut [u8], readable: u32) -> Result<()> {
        let blocks = at.block..at.block + blocks_in(buffer);
        if self.ahead.blocks_max == 0 || blocks.end > readable {
            return self.read(at, buffer);
        }
        let Some(shared) = self.ahead.find(at.zone, &blocks) else { return self.read(at, buffer) };
        let mut window = shared.lock().expect("no holder panicked");
        let copied = window.copy(at.block, buffer);
        let buffer = &mut buffer[copied..];
        if buffer.is_empty() {
            return Ok(());
        }
        let blocks = blocks.end - blocks_in(buffer)..blocks.end;
        let at = Address { block: blocks.start, ..at };
        let Some(wanted) = window.wanted(&blocks, readable, self.ahead.blocks_max) else {
            if blocks.end >= window.end() {
                window.clear(blocks.end);
                self.ahead.go_on(&shared, blocks.end..blocks.end);
            }
            drop(window);
            return self.read(at, buffer);
        };
        self.ahead.go_on(&shared, wanted.clone());
        window.first = wanted.start;
        window.bytes.resize(wanted.len() * BLOCK_BYTES, 0);
        match self.read(Address { block: wanted.start, ..at }, &mut window.bytes) {
            Ok(()) => {
                window.copy(blocks.start, buffer);
                Ok(())
            }
            Err(error) => {
                window.refused_below = wanted.end;
                window.clear(blocks.end);
                self.ahead.go_on(&shared, blocks.end..blocks.end);
                drop(window);
                match error {
                    DeviceError::PowerCut => Err(error),
                    _ => self.read(at, buffer),
                }
            }
        }
    }
}

fn blocks_in(buffer: &[u8]) -> u32 {
    u32::try_from(buffer.len() / BLOCK_BYTES).expect("inside a zone")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::furrow::drive::host::OnFullHost;
    use crate::furrow::drive::reads::tests::{Worn, ZONE, byte_of, worn};

    const WINDOW: u16 = 64;

    /// Reads these blocks one after the other, and returns how many reads the device gets.
    fn reads(drive: &Drive, device: &Worn, blocks: impl IntoIterator<Item = u32>) -> u32 {
        let before = device.reads.load(Ordering::Relaxed);
        for block in blocks {
            let mut found = [0; BLOCK_BYTES];
            drive.read_on(Address { zone: ZONE, block }, &mut found, 2048).unwrap();
            assert!(found.iter().all(|&byte| byte == byte_of(block)), "block {block}");
        }
        device.reads.load(Ordering::Relaxed) - before
    }

    #[test]
    fn reads_that_go_on_take_few_commands() {
        let (device, drive) = worn(WINDOW);
        // They end at the blocks 1, 4, 10, 22, 46 and 94, and take 64 from then on.
        assert_eq!(reads(&drive, &device, 100..1000), 6 + (900_u32 - 94).div_ceil(64));
        let (device, drive) = worn(WINDOW);
        assert_eq!(reads(&drive, &device, (100..1000).step_by(3)), 18, "gaps are read");
        let (device, drive) = worn(WINDOW);
        assert_eq!(reads(&drive, &device, (100..164).rev()), 64, "no read goes on");
        let (device, drive) = worn(0);
        assert_eq!(reads(&drive, &device, 100..164), 64, "windows of no blocks");
    }

    #[test]
    fn runs_keep_windows_beside_random_reads() {
        let (device, drive) = worn(WINDOW);
        let starts = [100, 600, 1100, 1600];
        let side_by_side = (0..128).flat_map(|step| starts.map(|start| start + step));
        assert_eq!(reads(&drive, &device, side_by_side), 4 * 7);
        let (device, drive) = worn(WINDOW);
        let random = |step: u32| 2047 - step * 7 % 128;
        let mixed = (0..128).flat_map(|step| [100 + step, random(step)]);
        assert!(reads(&drive, &device, mixed) <= 128 + 8);
        // More than there are windows: no worse than without.
        let (device, drive) = worn(WINDOW);
        let many = (0..32).flat_map(|step| (0..6).map(move |run| 12 + run * 330 + step));
        assert!(reads(&drive, &device, many) <= 6 * 32);
    }

    #[test]
    fn bad_block_ahead_fails_no_read() {
        let (device, drive) = worn(WINDOW);
        // The fourth read fails at block 11, and takes its own block alone then.
        assert_eq!(reads(&drive, &device, 0..11), 5);
        let mut found = [0; BLOCK_BYTES];
        let outcome = drive.read_on(Address { zone: ZONE, block: 11 }, &mut found, 2048);
        assert!(matches!(outcome, Err(DeviceError::Medium { .. })), "{outcome:?}");
        // Up to the end of the window that has failed, each block is read by itself.
        assert_eq!(reads(&drive, &device, 12..22), 10);
        assert!(reads(&drive, &device, 22..200) < 10);
    }

    #[test]
    fn blocks_behind_those_that_are_written_are_not_read() {
        let (device, drive) = worn(WINDOW);
        let mut found = [0; BLOCK_BYTES];
        for block in 100..120 {
            drive.read_on(Address { zone: ZONE, block }, &mut found, 120).unwrap();
        }
        let held = drive.ahead.runs.lock().unwrap().last().unwrap().blocks.clone();
        assert_eq!(held.end, 120);
        assert!(device.reads.load(Ordering::Relaxed) < 10);
    }

    #[test]
    fn reset_forgets_blocks_of_zone() {
        let (device, drive) = worn(WINDOW);
        reads(&drive, &device, 100..130);
        drive.reset(ZONE).unwrap();
        let at = Address { zone: ZONE, block: 0 };
        let _placing = drive.lock_placing();
        for _ in 0..3 {
            drive.place(at, &vec![9; 64 * BLOCK_BYTES], OnFullHost::Fail).unwrap();
        }
        let mut found = [0; BLOCK_BYTES];
        drive.read_on(Address { zone: ZONE, block: 131 }, &mut found, 192).unwrap();
        assert_eq!(found, [9; BLOCK_BYTES]);
    }
}
