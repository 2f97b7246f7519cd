//! A zoned SCSI or SATA disk without Zonal's checks: one command for each request.

use std::path::Path;

use rustix::io::Errno;
use zonal::nvme::decode::{ReportCount, SendTarget};
use zonal::{
    DeviceError, Lba, LbaCount, OpenMode, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice,
};

use super::ata::PAGE_BYTES;
use super::cdb::{ReportZones, ZoneFilter};
use super::channel::{Dialect, Doubt};
use super::transport::Failure;
use super::zones::{Descriptor, ENTRY_BYTES, ReportHeader};
use super::{ScsiDrive, discover, shape};
use crate::Result;
use crate::by_zone::Access;

/// An open drive whose commands are sent as they are.
///
/// Only a zone that Zonal leaves out gets none: programs that test a drive write to it.
pub struct RawScsi {
    drive: ScsiDrive,
}

impl RawScsi {
    /// Opens a drive by its SCSI generic node.
    ///
    /// # Errors
    /// [`ScsiDrive::open`] refuses the drive.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        ScsiDrive::open(path, mode).map(Self::over)
    }

    /// The same drive without checks.
    pub(super) const fn over(drive: ScsiDrive) -> Self {
        Self { drive }
    }

    /// Most blocks of one command.
    pub fn transfer(&self) -> LbaCount {
        self.drive.shape.limits.transfer
    }

    /// Whether [`filtered_report`](Self::filtered_report) tells of the drive itself. Translations
    /// to ATA return whole pages of 512 bytes, so a report has more zones than were asked for.
    pub fn has_filters(&self) -> bool {
        self.drive.channel.dialect == Dialect::Scsi && !self.drive.is_translated
    }

    /// Reports zones in condition `only` from the one that holds `first` on, with room for `room`:
    /// the count that the header states, and the zones. Gap zones are left out.
    ///
    /// # Errors
    /// The drive refuses the command, or reports an impossible zone.
    pub fn filtered_report(
        &self,
        first: Lba,
        only: Option<ZoneCond>,
        count: ReportCount,
        room: usize,
    ) -> Result<(u64, Vec<Zone>)> {
        let geometry = &self.drive.shape.geometry;
        let has_gaps = geometry.spec().zone_capacity < geometry.zone_size();
        let only = match only {
            Some(cond) => ZoneFilter::Condition(cond),
            // A drive without gap zones need not know the option.
            None if has_gaps => ZoneFilter::NoGaps,
            None => ZoneFilter::All,
        };
        let most =
            self.drive.byte_len(self.drive.shape.limits.transfer).min(discover::REPORT_BYTES);
        let len = room.saturating_add(1).saturating_mul(ENTRY_BYTES).min(most.max(PAGE_BYTES));
        let mut report = vec![0; len];
        let bytes = u32::try_from(len).expect("a report has less than 4 GiB");
        let what = ReportZones { first: self.drive.drive_lba(first), bytes, only, count };
        let got = self.drive.channel.report_zones(what, &mut report, Doubt::Repeated);
        let got = got.map_err(|failure| self.drive.failed("reporting zones of", failure))?;
        let wrong = || self.drive.wrong("reports an impossible zone".to_owned());
        let (order, report) = (self.drive.channel.order(), &report[..got]);
        let header = ReportHeader::decode(order, report).ok_or_else(wrong)?;
        let stated = u64::from(header.list_bytes) / ENTRY_BYTES as u64;
        let zones = report
            .chunks_exact(ENTRY_BYTES)
            .skip(1)
            .take(usize::try_from(stated).unwrap_or(usize::MAX))
            .map(|bytes| {
                let found = Descriptor::decode(order, bytes).ok_or_else(wrong)?;
                self.zone_of(found).ok_or_else(wrong)
            })
            .collect::<Result<_>>()?;
        Ok((stated, zones))
    }

    fn zone_of(&self, found: Descriptor) -> Option<Zone> {
        let geometry = &self.drive.shape.geometry;
        let limits = &self.drive.shape.limits;
        let start = Lba::new(found.start.get().checked_sub(limits.base)? >> limits.shift);
        if start >= Lba::ZERO + geometry.block_count() {
            return None;
        }
        let id = geometry.locate(start).0;
        shape::zone(Some(found), geometry, limits, id).ok()
    }

    /// The zone of a block, or the last one for a block beyond the end; an error if Zonal leaves
    /// the zone out.
    fn zone_at(&self, lba: Lba) -> Result<ZoneId> {
        let geometry = &self.drive.shape.geometry;
        let last = geometry.block_count().get() - 1;
        let zone = geometry.locate(Lba::new(lba.get().min(last))).0;
        self.drive.slot(zone).map(|_| zone)
    }

    /// Runs a command on blocks, whose bytes are whole blocks of one command.
    fn run(
        &self,
        lba: Lba,
        bytes: usize,
        access: Access,
        run: impl FnOnce(Lba) -> std::result::Result<(), Failure>,
    ) -> Result<()> {
        let blocks = self.drive.shape.geometry.blocks(bytes)?;
        if blocks == LbaCount::ZERO || blocks > self.drive.shape.limits.transfer {
            let what = format!("a command of {blocks} blocks");
            return Err(DeviceError::Geometry { what });
        }
        let zone = self.zone_at(lba)?;
        let at = self.address(lba).ok_or(DeviceError::OutOfRange { lba, blocks })?;
        run(at).map_err(|failure| {
            let now = self.drive.zone(zone);
            self.drive.explain(zone, (lba, blocks), access, now, failure)
        })
    }

    /// The address of any block in the drive's own; `None` if a command has no such address. One of
    /// ATA has 48 bits, and would go to another block.
    fn address(&self, lba: Lba) -> Option<Lba> {
        let scaled = lba.get().checked_mul(1 << self.drive.shape.limits.shift)?;
        let address = scaled.checked_add(self.drive.shape.limits.base)?;
        let most = match self.drive.channel.dialect {
            Dialect::Scsi => u64::MAX,
            Dialect::Ata => (1 << 48) - 1,
        };
        (address <= most).then_some(Lba::new(address))
    }
}

impl ZonedDevice for RawScsi {
    zonal::pass_on!(drive: geometry, report, identity, rotates);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len();
        self.run(lba, len, Access::Read, |at| self.drive.channel.read(at, buffer))
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.drive.mode.check_writable()?;
        self.run(lba, data.len(), Access::Write, |at| self.drive.channel.write(at, data))
    }

    fn append(&self, zone: ZoneId, _: &[u8]) -> Result<Lba> {
        Err(DeviceError::Io {
            what: format!("appending to zone {zone} of {}", self.drive.path.display()),
            source: Errno::OPNOTSUPP.into(),
        })
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.drive.mode.check_writable()?;
        let (zone, target) = match zones {
            Select::One(zone) => {
                self.drive.slot(zone)?;
                let start = self.drive.drive_lba(self.drive.shape.geometry.zone_start(zone));
                (zone, SendTarget::Start(start))
            }
            Select::All => (ZoneId::ZERO, SendTarget::All),
        };
        self.drive.channel.manage(action, target).map_err(|failure| {
            let now = self.drive.zone(zone);
            self.drive.explain_action(zone, action, now, failure)
        })
    }

    /// Write pointers that became lower are no loss here: they are not followed.
    fn flush(&self) -> Result<()> {
        self.drive.channel.flush().map_err(|failure| self.drive.failed("flushing", failure))
    }
}
