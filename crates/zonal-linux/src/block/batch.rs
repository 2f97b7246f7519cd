//! Requests of a batch, side by side by `io_uring`. Without it they go one by one.

use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use zonal::{DeviceError, Io, Lba, LbaCount, Op, ZoneId, ZoneKind};

use super::{BlockDrive, lock};
use crate::Result;
use crate::by_zone::{self, Access, WriteRange};
use crate::ring::{FileRings, Transfer};
use crate::rounds::changed_zone;

/// A request that is passed on as one transfer.
struct PlannedTransfer<'r> {
    result: &'r mut Option<Result<Lba>>,
    lba: Lba,
    /// The zone that a write or an append changes, and by how many blocks.
    change: Option<(ZoneId, LbaCount)>,
    /// Bytes of the transfer; the kernel may move fewer.
    bytes: usize,
}

impl BlockDrive {
    /// Performs a round. Leaves a request without a result if it is not a plain transfer, or if it
    /// fails and a single call can retry it or explain the failure.
    pub(super) fn side_by_side(&self, rings: &FileRings, round: &mut [&mut Io<'_>]) {
        let _turns = self.turns(round);
        let (mut transfers, mut planned) = (Vec::new(), Vec::new());
        for io in &mut *round {
            let Io { op, result } = &mut **io;
            // A request that fails here fails in the same way when it is performed alone.
            let Ok(Some((transfer, lba, change))) = self.plan(op) else { continue };
            let bytes = transfer.len();
            transfers.push(transfer);
            planned.push(PlannedTransfer { result, lba, change, bytes });
        }
        match rings.run(self.file.as_file(), &mut transfers) {
            Ok(moved) => {
                for (planned, moved) in planned.into_iter().zip(moved) {
                    self.settle(planned, moved);
                }
            }
            // Out of file descriptors, which single calls do not need.
            Err(error) => tracing::debug!(%error, "no further io_uring for now"),
        }
    }

    /// Takes the turns of all zones that a round changes, in the order of zones, so that two rounds
    /// do not wait for each other.
    fn turns(&self, round: &[&mut Io<'_>]) -> Vec<MutexGuard<'_, ()>> {
        let changed = round.iter().filter_map(|io| changed_zone(&self.geometry, &io.op));
        let mut changed: Vec<ZoneId> = changed.collect();
        changed.sort_unstable();
        changed.dedup();
        let slots = changed.into_iter().filter_map(|zone| self.zones.get(zone.index()));
        slots.map(lock).collect()
    }

    /// The transfer of a request, its first block, and the change that it makes; `None` if the
    /// request is better performed alone.
    #[expect(clippy::type_complexity, reason = "one caller, which takes it apart")]
    fn plan<'a>(
        &self,
        op: &'a mut Op<'_>,
    ) -> Result<Option<(Transfer<'a>, Lba, Option<(ZoneId, LbaCount)>)>> {
        match op {
            Op::Read { lba, buffer } => {
                let blocks = self.geometry.blocks_at(*lba, buffer.len())?;
                if blocks == LbaCount::ZERO || !self.file.takes(buffer) {
                    return Ok(None);
                }
                let (zone, offset) = self.geometry.locate(*lba);
                let stored = match self.geometry.kind(zone) {
                    ZoneKind::Conventional => self.geometry.size_of(zone).get(),
                    ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                        self.slot(zone)?.written.load(Ordering::Acquire)
                    }
                };
                let is_there = (offset + blocks).get() <= stored;
                Ok(is_there.then(|| (Transfer::Fill(self.byte(*lba), buffer), *lba, None)))
            }
            Op::Write { lba, data } => {
                self.mode.check_writable()?;
                let Some(range) = WriteRange::of_write(&self.geometry, *lba, data.len())? else {
                    return Ok(None);
                };
                let WriteRange { zone, offset, blocks } = range;
                let is_next = self.geometry.kind(zone) == ZoneKind::Conventional
                    || self.slot(zone)?.written.load(Ordering::Acquire) == offset.get();
                if !is_next || !self.file.takes(data) {
                    return Ok(None);
                }
                Ok(Some((Transfer::Take(self.byte(*lba), data), *lba, Some((zone, blocks)))))
            }
            Op::Append { zone, data } => {
                self.mode.check_writable()?;
                let zone = *zone;
                let written = LbaCount::new(self.slot(zone)?.written.load(Ordering::Acquire));
                let blocks = by_zone::append_blocks(&self.geometry, data.len())?;
                let fits = written + blocks <= self.geometry.capacity_of(zone);
                let is_sequential = self.geometry.kind(zone).is_sequential();
                if !fits || !is_sequential || blocks == LbaCount::ZERO || !self.file.takes(data) {
                    return Ok(None);
                }
                let lba = self.geometry.zone_start(zone) + written;
                Ok(Some((Transfer::Take(self.byte(lba), data), lba, Some((zone, blocks)))))
            }
            Op::Flush => Ok(None),
        }
    }

    /// Gives a request its result: `moved` bytes, or a negative errno. The caller holds the turn of
    /// its zone.
    fn settle(&self, planned: PlannedTransfer<'_>, moved: i32) {
        let PlannedTransfer { result, lba, change, bytes } = planned;
        let whole = usize::try_from(moved).is_ok_and(|moved| moved == bytes);
        *result = match change {
            None => whole.then_some(Ok(lba)),
            Some((zone, blocks)) if whole => {
                if self.geometry.kind(zone).is_sequential() {
                    self.zones[zone.index()].written.fetch_add(blocks.get(), Ordering::AcqRel);
                }
                Some(Ok(lba))
            }
            Some((zone, _)) => {
                // A block device that moves a part has failed within the rest.
                let errno = if moved < 0 { -moved } else { Errno::IO.raw_os_error() };
                let source = io::Error::from_raw_os_error(errno);
                match self.explain(zone, lba, source, Access::Write) {
                    // Another program has written: `explain` has asked for the write pointer.
                    DeviceError::NotAtWritePointer { .. } => None,
                    error => Some(Err(error)),
                }
            }
        };
    }
}
