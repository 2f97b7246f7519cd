//! A zoned NVMe namespace without Zonal's checks: one command for each request.

use std::path::Path;

use zerocopy::FromBytes;
use zonal::nvme::command::Opcode;
use zonal::nvme::decode::{
    ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend, ZoneSendAction,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::{
    DeviceError, Lba, LbaCount, OpenMode, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice,
};

use super::command::Command;
use super::{PassthroughDrive, SubmissionPath, shape};
use crate::Result;
use crate::by_zone::Access;
use crate::data::Data;

/// An open namespace whose commands are sent as they are.
pub struct RawNamespace {
    drive: PassthroughDrive,
}

impl RawNamespace {
    /// Opens a namespace.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let drive = PassthroughDrive::open(path, mode, SubmissionPath::Ioctl)?;
        Ok(Self { drive })
    }

    /// Most blocks of one command.
    pub fn transfer(&self) -> LbaCount {
        self.drive.limits.transfer
    }

    /// Reports zones in condition `only` from the one that holds `first` on, with room for `room`:
    /// the count that the header states, and the zones.
    pub fn filtered_report(
        &self,
        first: Lba,
        only: Option<ZoneCond>,
        count: ReportCount,
        room: usize,
    ) -> Result<(u64, Vec<Zone>)> {
        let most = self.drive.byte_len(self.drive.limits.transfer);
        let mut report = vec![0; shape::report_bytes(room).min(most)];
        let form = ReportForm::Plain;
        let receive = ZoneReceive { first, bytes: report.len(), form, only, count };
        let entry = receive.encode(self.drive.nsid);
        let mut command = Command::new(entry, Data::Fill(&mut report));
        let run = self.drive.channel.run(&self.drive.file, &mut command);
        run.map_err(|failure| self.drive.failed("reporting zones of", failure))?;
        let wrong = || self.drive.wrong("reports an impossible zone".to_owned());
        let (header, rest) = ReportHeader::read_from_prefix(&report).map_err(|_| wrong())?;
        let stated = header.zone_count.get();
        let zones = rest
            .chunks_exact(size_of::<ZoneDescriptor>())
            .take(usize::try_from(stated).unwrap_or(usize::MAX))
            .map(|bytes| self.zone_of(bytes).ok_or_else(wrong))
            .collect::<Result<_>>()?;
        Ok((stated, zones))
    }

    fn zone_of(&self, bytes: &[u8]) -> Option<Zone> {
        let geometry = &self.drive.geometry;
        let descriptor = ZoneDescriptor::ref_from_bytes(bytes).ok()?;
        let start = Lba::new(descriptor.start.get());
        if start >= Lba::ZERO + geometry.block_count() {
            return None;
        }
        let id = geometry.locate(start).0;
        descriptor.decode(id, geometry.size_of(id))
    }

    /// The zone of a block, or the last one for a block beyond the end.
    fn zone_at(&self, lba: Lba) -> ZoneId {
        let geometry = &self.drive.geometry;
        let last = geometry.block_count().get() - 1;
        geometry.locate(Lba::new(lba.get().min(last))).0
    }

    fn run(&self, opcode: Opcode, lba: Lba, data: Data<'_>, access: Access) -> Result<u64> {
        let blocks = self.drive.geometry.blocks(data.len())?;
        if blocks == LbaCount::ZERO || blocks > self.drive.limits.transfer {
            let what = format!("a command of {blocks} blocks");
            return Err(DeviceError::Geometry { what });
        }
        let mut command = Command::new(self.drive.blocks(opcode, lba, data.len())?, data);
        let run = self.drive.channel.run(&self.drive.file, &mut command);
        run.map_err(|why| self.drive.explain(self.zone_at(lba), lba, blocks, access, why))
    }
}

impl ZonedDevice for RawNamespace {
    zonal::pass_on!(drive: geometry, report, flush, identity, rotates);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.run(Opcode::READ, lba, Data::Fill(buffer), Access::Read).map(drop)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.run(Opcode::WRITE, lba, Data::Take(data), Access::Write).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let start = self.drive.geometry.zone_start(zone);
        self.run(Opcode::ZONE_APPEND, start, Data::Take(data), Access::Write).map(Lba::new)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let (zone, target) = match zones {
            Select::One(zone) => (zone, SendTarget::Start(self.drive.geometry.zone_start(zone))),
            Select::All => (ZoneId::ZERO, SendTarget::All),
        };
        let send = ZoneSend { action: ZoneSendAction::Manage(action), zones: target };
        let mut command = Command::new(send.encode(self.drive.nsid), Data::Nothing);
        let run = self.drive.channel.run(&self.drive.file, &mut command);
        run.map(drop).map_err(|failure| self.drive.explain_action(zone, action, failure))
    }
}
