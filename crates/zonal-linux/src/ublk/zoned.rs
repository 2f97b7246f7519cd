//! Performs the requests for a device with zones.
//!
//! Requests that have arrived together form one batch as far as they can (`batch.rs`).

use std::io;

use io_uring::IoUring;
use rustix::io::Errno;
use zerocopy::IntoBytes;
use zonal::{AlignedBytes, Lba, LbaCount, Select, ZoneAction, ZoneId};

use super::abi::{self, Descriptor, SECTOR_SHIFT, op};
use super::batch::data_bytes;
use super::export::Export;
use super::queue::{At, Worker};
use super::shape::{raw_zone, served_blocks};
use crate::ioctl::RawZone;

/// A thread that serves a device with zones.
pub(super) struct ZonedWork<'a> {
    pub(super) worker: &'a Worker,
    pub(super) export: &'a Export,
}

impl ZonedWork<'_> {
    /// Serves requests, and answers each as soon as its batch is done.
    pub(super) fn serve(
        &self,
        ring: &mut IoUring,
        arrived: &[u16],
        memory: &mut AlignedBytes,
    ) -> io::Result<()> {
        let mut rest = arrived;
        while let [first, others @ ..] = rest {
            match self.batch_len(rest) {
                0 => {
                    let request = self.worker.descriptors.get(*first);
                    let outcome = self.worker.guarded(|| self.perform(*first, request));
                    self.worker.push_answer(ring, *first, outcome);
                    rest = others;
                }
                count => {
                    self.serve_batch(ring, &rest[..count], memory)?;
                    rest = &rest[count..];
                }
            }
            if !rest.is_empty() {
                ring.submit()?;
            }
        }
        Ok(())
    }

    /// Performs a request that joins no others.
    fn perform(&self, tag: u16, request: Descriptor) -> Result<At, Errno> {
        match request.operation() {
            op::ZONE_OPEN => self.manage(ZoneAction::Open, request.sector),
            op::ZONE_CLOSE => self.manage(ZoneAction::Close, request.sector),
            op::ZONE_FINISH => self.manage(ZoneAction::Finish, request.sector),
            op::ZONE_RESET => self.manage(ZoneAction::Reset, request.sector),
            op::ZONE_RESET_ALL => {
                self.export.manage(Select::All, ZoneAction::Reset)?;
                Ok(At::bytes(0))
            }
            op::REPORT_ZONES => self.report(tag, request),
            op::DISCARD => self.discard(request),
            op::READ => self.read_at_end(tag, request),
            // Writing zeroes is not offered.
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn manage(&self, action: ZoneAction, sector: u64) -> Result<At, Errno> {
        let zones = Select::One(self.zone(sector)?);
        self.export.manage(zones, action).map(|()| At::bytes(0))
    }

    /// Whether a request reaches behind a smaller last zone.
    pub(super) fn is_at_end(&self, request: Descriptor) -> bool {
        let end = request.sector.saturating_add(u64::from(request.count)) >> self.block_shift();
        end > self.device_end().get()
    }

    /// Where the device's blocks end.
    pub(super) fn device_end(&self) -> Lba {
        Lba::ZERO + self.export.geometry().block_count()
    }

    fn read_at_end(&self, tag: u16, request: Descriptor) -> Result<At, Errno> {
        let mut data = AlignedBytes::zeroed(data_bytes(request)?);
        self.export.read_at_end(self.lba(request.sector)?, &mut data)?;
        self.worker.give(tag, &data)?;
        Ok(At::bytes(data.len()))
    }

    fn discard(&self, request: Descriptor) -> Result<At, Errno> {
        let (first, shift) = (self.lba(request.sector)?, self.block_shift());
        let blocks = LbaCount::new(u64::from(request.count) >> shift);
        if self.is_at_end(request) {
            // That zone is a sequential one.
            return Err(Errno::OPNOTSUPP);
        }
        for (lba, blocks) in self.export.geometry().by_zone(first, blocks) {
            self.export.deallocate(lba, blocks)?;
        }
        Ok(At::bytes((request.count as usize) << SECTOR_SHIFT))
    }

    /// Reports as many zones as requested, from the zone that contains the sector: a report may
    /// start anywhere in a zone, as that of fsck.f2fs does. The driver has zeroed the rest.
    fn report(&self, tag: u16, request: Descriptor) -> Result<At, Errno> {
        let first = self.zone_of(self.lba(request.sector)?);
        let limit = usize::try_from(request.count).map_err(|_| Errno::INVAL)?;
        let zones = self.export.report(first, limit)?;
        let raw: Vec<RawZone> =
            zones.iter().map(|zone| raw_zone(zone, self.block_shift())).collect();
        self.worker.give(tag, raw.as_bytes())?;
        // The driver expects the length of the whole buffer.
        Ok(At::bytes(abi::IO_BYTES_MAX as usize))
    }

    pub(super) fn block_shift(&self) -> u32 {
        self.export.geometry().block_size().shift() - SECTOR_SHIFT
    }

    /// The block that holds a sector; an error where it is beyond the last zone's end.
    pub(super) fn lba(&self, sector: u64) -> Result<Lba, Errno> {
        let lba = Lba::new(sector >> self.block_shift());
        if lba >= Lba::ZERO + served_blocks(self.export.geometry()) {
            return Err(Errno::IO);
        }
        Ok(lba)
    }

    /// The zone of a block, which may be behind a smaller last zone.
    fn zone_of(&self, lba: Lba) -> ZoneId {
        let zone = lba.get() / self.export.geometry().zone_size().get();
        ZoneId::new(u32::try_from(zone).expect("a block of the device"))
    }

    /// The zone that starts at a sector.
    pub(super) fn zone(&self, sector: u64) -> Result<ZoneId, Errno> {
        let lba = self.lba(sector)?;
        let zone = self.zone_of(lba);
        if self.export.geometry().zone_start(zone) == lba { Ok(zone) } else { Err(Errno::INVAL) }
    }
}
