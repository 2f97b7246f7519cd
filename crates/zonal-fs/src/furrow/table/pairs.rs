//! Pairs of zones that mirror parts and manifests: each write goes to the same block of both zones.
//!
//! One pair is open for writing. If a write fails in either zone, the pair is sealed and the write
//! goes to another pair, so both copies always have the same block number.

use std::borrow::Cow;
use std::collections::BTreeSet;

use zonal::DeviceError;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::vfs::Result;

/// Pairs that may fail before a write gives up.
const FAILURES_MAX: usize = 4;

/// Pairs of zones that a step needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct PairNeed {
    pub(in crate::furrow) pairs: usize,
}

/// A source of zones for metadata: a mounted file system, or an empty drive.
pub(in crate::furrow) trait MetaZones {
    /// Takes a free zone for the first or the second copy of metadata: 0 or 1.
    fn take(&mut self, copy: usize) -> Option<u32>;
    /// All zones that metadata has.
    fn taken(&self) -> Vec<u32>;
    /// Notes that the drive has refused to reset a zone without live data.
    fn reset_refused(&mut self, zone: u32);
    /// Takes back a zone that has been reset.
    fn release(&mut self, zone: u32);
}

/// Takes two zones for metadata, or none.
pub(in crate::furrow) fn take_two(zones: &mut dyn MetaZones) -> Result<[u32; 2]> {
    let first = zones.take(0).ok_or(FsError::NoSpace)?;
    match zones.take(1) {
        Some(second) => Ok([first, second]),
        None => {
            zones.release(first);
            Err(FsError::NoSpace)
        }
    }
}

/// Resets a zone that metadata no longer needs, and gives it back.
pub(in crate::furrow) fn give_back(drive: &Drive, zones: &mut dyn MetaZones, zone: u32) {
    match drive.reset(zone) {
        Ok(()) => zones.release(zone),
        Err(error) => {
            tracing::warn!(zone, %error, "a zone of metadata was not reset; it is tried again");
            zones.reset_refused(zone);
        }
    }
}

/// The pair that is open for writing.
#[derive(Clone, Copy, Debug)]
pub(in crate::furrow) struct OpenPair {
    pub(in crate::furrow) zones: [u32; 2],
    /// The next block, in both zones.
    pub(super) next: u32,
}

impl OpenPair {
    /// Blocks of each copy that can still be written.
    pub(in crate::furrow) fn room(&self, drive: &Drive) -> u32 {
        drive.blocks_after(Address { zone: self.zones[0], block: self.next })
    }
}

/// The open pair, and zones in use that no manifest names yet.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Pairs {
    pub(in crate::furrow) open: Option<OpenPair>,
    /// Zones to which the running step has written parts.
    unnamed: BTreeSet<u32>,
    /// Pairs that it has reserved and not written to.
    reserved: Vec<[u32; 2]>,
}

/// Data to write in two copies, which may contain their own address.
pub(in crate::furrow) trait Copies {
    /// Blocks of each copy.
    fn blocks(&self) -> usize;
    /// The bytes of each copy for the addresses `at`.
    fn bytes_at(&mut self, at: [Address; 2]) -> [Cow<'_, [u8]>; 2];
}

/// Data with the same bytes in both copies.
impl Copies for &[u8] {
    fn blocks(&self) -> usize {
        self.len() / BLOCK_BYTES
    }

    fn bytes_at(&mut self, _: [Address; 2]) -> [Cow<'_, [u8]>; 2] {
        [Cow::Borrowed(self), Cow::Borrowed(self)]
    }
}

impl Pairs {
    /// Takes the zones that a step needs, or none. Its writes go there.
    pub(in crate::furrow) fn reserve(
        &mut self,
        zones: &mut dyn MetaZones,
        need: PairNeed,
    ) -> Result<()> {
        while self.reserved.len() < need.pairs {
            match take_two(zones) {
                Ok(pair) => self.reserved.push(pair),
                Err(error) => {
                    self.end_reservation(zones);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn end_reservation(&mut self, zones: &mut dyn MetaZones) {
        for zone in std::mem::take(&mut self.reserved).into_iter().flatten() {
            zones.release(zone);
        }
    }

    /// Makes sure that the open pair has room for `blocks` blocks.
    pub(in crate::furrow) fn make_room(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        blocks: u32,
    ) -> Result<()> {
        if blocks > drive.layout.zone_blocks {
            return Err(FsError::NoSpace);
        }
        self.with_room(drive, zones, blocks).map(drop)
    }

    /// Writes both copies and returns their addresses.
    pub(in crate::furrow) fn write(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        what: &mut dyn Copies,
    ) -> Result<[Address; 2]> {
        let blocks = u32::try_from(what.blocks()).unwrap_or(u32::MAX);
        if blocks > drive.layout.zone_blocks {
            return Err(FsError::NoSpace);
        }
        let mut failures = 0;
        loop {
            let pair = self.with_room(drive, zones, blocks)?;
            let at = pair.zones.map(|zone| Address { zone, block: pair.next });
            let [first, second] = what.bytes_at(at);
            let outcomes = drive.write_copies(at, [&first, &second]);
            // Lack of space on the host is no fault of a zone, and has left both as they were.
            let is_full = |outcome: &std::result::Result<_, _>| {
                matches!(outcome, Err(DeviceError::NoSpace { .. }))
            };
            let lacks_room = outcomes.iter().all(is_full);
            let error = match outcomes {
                [Ok(()), Ok(())] => {
                    self.open = Some(OpenPair { next: pair.next + blocks, ..pair });
                    return Ok(at);
                }
                [Err(error), _] | [_, Err(error)] => error,
            };
            if lacks_room {
                return Err(error.into());
            }
            tracing::warn!(zones = ?pair.zones, %error, "a write of metadata failed");
            self.give_up(drive, zones, pair);
            failures += 1;
            let is_final = matches!(error, DeviceError::NoSpace { .. } | DeviceError::PowerCut);
            if failures >= FAILURES_MAX || is_final {
                return Err(error.into());
            }
        }
    }

    /// Writes both copies of a part, and notes its zones, which no manifest names yet.
    pub(super) fn write_part(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        mut part: &[u8],
    ) -> Result<[Address; 2]> {
        let at = self.write(drive, zones, &mut part)?;
        self.unnamed.extend(at.map(|copy| copy.zone));
        Ok(at)
    }

    /// The open pair, or a new one if `blocks` blocks do not fit there.
    fn with_room(
        &mut self,
        drive: &Drive,
        zones: &mut dyn MetaZones,
        blocks: u32,
    ) -> Result<OpenPair> {
        let fits = |pair: &OpenPair| pair.room(drive) >= blocks;
        if let Some(pair) = self.open.filter(fits) {
            return Ok(pair);
        }
        let taken = match self.reserved.pop() {
            Some(taken) => taken,
            None => take_two(zones)?,
        };
        self.seal(drive, zones);
        let pair = OpenPair { zones: taken, next: 0 };
        self.open = Some(pair);
        Ok(pair)
    }

    /// Stops writing to the open pair after a failed write. Zones without other data are free again
    /// at once: on a full drive the next attempt may find no others.
    fn give_up(&mut self, drive: &Drive, zones: &mut dyn MetaZones, pair: OpenPair) {
        if pair.next > 0 {
            return self.seal(drive, zones);
        }
        self.open = None;
        pair.zones.into_iter().for_each(|zone| give_back(drive, zones, zone));
    }

    /// Stops writing to the open pair. Zones to which nothing was written are free again.
    pub(in crate::furrow) fn seal(&mut self, drive: &Drive, zones: &mut dyn MetaZones) {
        let Some(pair) = self.open.take() else { return };
        for zone in pair.zones {
            if pair.next > 0 {
                drive.finish(zone);
            } else {
                zones.release(zone);
            }
        }
    }

    /// Whether a zone is open, reserved, or holds a part that no manifest names yet.
    pub(in crate::furrow) fn holds(&self, zone: u32) -> bool {
        let mut pairs = self.reserved.iter().chain(self.open.as_ref().map(|pair| &pair.zones));
        self.unnamed.contains(&zone) || pairs.any(|pair| pair.contains(&zone))
    }

    /// Ends a step: a manifest names its parts now, or they are garbage. Zones that it has reserved
    /// and not used are free again.
    pub(in crate::furrow) fn end_step(&mut self, zones: &mut dyn MetaZones) {
        self.unnamed.clear();
        self.end_reservation(zones);
    }

    /// Opens the pair that holds the manifest again, if both its zones can be written. After a
    /// power cut one zone may have more blocks than the other (`next`), which then gets zeroes up
    /// to the same block. A recovery calls it before its first manifest: that one goes to another
    /// pair if none is open, and releases this one.
    pub(in crate::furrow) fn resume(&mut self, drive: &Drive, zones: [u32; 2], next: [u32; 2]) {
        assert!(self.open.is_none(), "a manifest has opened another pair");
        let end = next[0].max(next[1]);
        for copy in 0..2 {
            let at = Address { zone: zones[copy], block: next[copy] };
            if let Err(error) = write_zeroes(drive, at, end) {
                tracing::warn!(zone = at.zone, %error, "a pair of metadata zones is given up");
                for zone in zones {
                    drive.finish(zone);
                }
                return;
            }
        }
        self.open = Some(OpenPair { zones, next: end });
    }
}

/// Writes zeroes from a zone's write pointer up to block `end`.
fn write_zeroes(drive: &Drive, mut at: Address, end: u32) -> std::result::Result<(), DeviceError> {
    let zeroes = vec![0; (end.saturating_sub(at.block)).min(256) as usize * BLOCK_BYTES];
    while at.block < end {
        let count = (end - at.block).min(256);
        drive.write(at, &zeroes[..count as usize * BLOCK_BYTES])?;
        at.block += count;
    }
    Ok(())
}
