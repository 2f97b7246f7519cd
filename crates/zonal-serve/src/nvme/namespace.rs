//! One zoned device as a zoned namespace: what Identify says about it, its reports, and the rules
//! of the command set that a [`ZonedDevice`] does not have.
//!
//! NVMe has no conventional zones, so a device with some is refused. All its zones have one size: a
//! smaller last zone is served as one of full size and less capacity, whose gap reads as zeroes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, IntoBytes};
use zonal::nvme::decode::{Durability, ReportCount, ReportForm, ZoneReceive, ZoneSendAction};
use zonal::nvme::identify::{
    self, BlockFormat, IdentifyCommon, IdentifyNamespace, IdentifyZonedNamespace, ZoneFormat,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::nvme::{NvmeStatus, status};
use zonal::spec::Stack;
use zonal::{
    DeviceError, FailZone, Geometry, Lba, LbaCount, Select, ZoneAction, ZoneCond, ZoneFailure,
    ZoneId, ZoneKind, ZonedDevice,
};

use crate::ServeError;

/// Zones that are looked at together while a report is made.
const REPORT_STEP: usize = 1024;

/// What was done on a namespace since it is served.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

impl Usage {
    fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn written(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A device that is served.
pub struct Namespace {
    device: Arc<dyn ZonedDevice>,
    failing: Option<Arc<dyn FailZone>>,
    uuid: [u8; 16],
    usage: Usage,
}

impl Namespace {
    /// The device of `stack`, which the command line calls `name`; `uuid` is its identity for hosts.
    pub fn new(stack: Stack, name: &str, uuid: [u8; 16]) -> Result<Self, ServeError> {
        let geometry = stack.device.geometry();
        let conventional = |zone| geometry.kind(zone) == ZoneKind::Conventional;
        if conventional(ZoneId::ZERO) {
            let (device, why) = (name.to_owned(), "NVMe has no conventional zones".to_owned());
            return Err(ServeError::Export { device, why });
        }
        let Stack { device, failing, counters: _ } = stack;
        Ok(Self { device, failing, uuid, usage: Usage::default() })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(crate) const fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Blocks of the namespace: whole zones.
    fn block_count(&self) -> LbaCount {
        let geometry = self.geometry();
        LbaCount::new(u64::from(geometry.zone_count()) * geometry.zone_size().get())
    }

    /// Bytes of a range of blocks; an error where they are not all in the namespace.
    pub(crate) fn check(&self, first: Lba, blocks: LbaCount) -> Result<usize, NvmeStatus> {
        let end = (first - Lba::ZERO).checked_add(blocks);
        if end.is_none_or(|end| end > self.block_count()) {
            return Err(status::LBA_OUT_OF_RANGE);
        }
        self.bytes(blocks)
    }

    /// Bytes of so many blocks, if one command may move them.
    pub(crate) fn bytes(&self, blocks: LbaCount) -> Result<usize, NvmeStatus> {
        let bytes = usize::try_from(self.geometry().bytes(blocks).get());
        let bytes = bytes.ok().filter(|&bytes| bytes <= super::TRANSFER_MAX);
        bytes.ok_or(status::INVALID_FIELD)
    }

    pub(crate) fn read(&self, first: Lba, buffer: &mut [u8]) -> Result<(), NvmeStatus> {
        let end = Lba::ZERO + self.geometry().block_count();
        let there = if first < end { self.geometry().bytes(end - first).get() } else { 0 };
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(buffer.len());
        if there > 0 {
            self.device.read(first, &mut buffer[..there]).map_err(failed)?;
        }
        self.usage.read(buffer.len());
        Ok(())
    }

    pub(crate) fn write(
        &self,
        first: Lba,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), NvmeStatus> {
        self.device.write(first, data).map_err(|error| match error {
            // It is in the namespace: the gap of a smaller last zone.
            DeviceError::OutOfRange { .. } => status::ZONE_BOUNDARY,
            error => failed(error),
        })?;
        self.settle(data.len(), durability)
    }

    pub(crate) fn append(
        &self,
        start: Lba,
        data: &[u8],
        durability: Durability,
    ) -> Result<Lba, NvmeStatus> {
        let at = self.device.append(self.zone_at(start)?, data).map_err(failed)?;
        self.settle(data.len(), durability)?;
        Ok(at)
    }

    fn settle(&self, bytes: usize, durability: Durability) -> Result<(), NvmeStatus> {
        self.usage.written(bytes);
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Durable => self.flush(),
        }
    }

    pub(crate) fn flush(&self) -> Result<(), NvmeStatus> {
        self.device.flush().map_err(failed)
    }

    /// The zone that starts at `start`.
    pub(crate) fn zone_at(&self, start: Lba) -> Result<ZoneId, NvmeStatus> {
        self.check(start, LbaCount::new(1))?;
        let size = self.geometry().zone_size().get();
        if !start.get().is_multiple_of(size) {
            return Err(status::INVALID_FIELD);
        }
        let number = u32::try_from(start.get() / size).expect("a block of the namespace");
        Ok(ZoneId::new(number))
    }

    pub(crate) fn send(&self, zones: Select, action: ZoneSendAction) -> Result<(), NvmeStatus> {
        match action {
            ZoneSendAction::Manage(action) => self.manage(zones, action),
            ZoneSendAction::Offline => self.take_offline(zones),
            // Zones have no extension and no random write area.
            ZoneSendAction::SetExtension | ZoneSendAction::FlushZrwa => Err(status::INVALID_FIELD),
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<(), NvmeStatus> {
        self.device.manage(zones, action).map_err(failed)
    }

    fn take_offline(&self, zones: Select) -> Result<(), NvmeStatus> {
        let offline = |zone| match &self.failing {
            Some(failing) => failing.fail_zone(zone, ZoneFailure::Offline).map_err(failed),
            None => Err(status::INVALID_FIELD),
        };
        match zones {
            Select::One(zone) => match self.device.zone(zone).map_err(failed)?.cond {
                ZoneCond::Offline => Ok(()),
                ZoneCond::ReadOnly => offline(zone),
                ZoneCond::NotWp
                | ZoneCond::Empty
                | ZoneCond::ImplicitOpen
                | ZoneCond::ExplicitOpen
                | ZoneCond::Closed
                | ZoneCond::Full => Err(status::INVALID_TRANSITION),
            },
            Select::All => {
                let zones = self.device.report_all().map_err(failed)?;
                let read_only = zones.iter().filter(|zone| zone.cond == ZoneCond::ReadOnly);
                read_only.map(|zone| zone.id).try_for_each(offline)
            }
        }
    }

    /// Zones that nobody can write any more, by their first block.
    pub(crate) fn failed_zones(&self) -> Result<BTreeSet<(Lba, u8)>, NvmeStatus> {
        let zones = self.device.report_all().map_err(failed)?;
        let failed = |cond| matches!(cond, ZoneCond::ReadOnly | ZoneCond::Offline);
        let failed = zones.iter().filter(|zone| failed(zone.cond));
        Ok(failed.map(|zone| (zone.start, zone.cond.code())).collect())
    }

    /// Zone Management Receive.
    pub(crate) fn report(&self, asked: &ZoneReceive, out: &mut [u8]) -> Result<(), NvmeStatus> {
        if asked.form == ReportForm::Extended {
            // Zones have no extension (ZNS, section 3.4.2.2.2).
            return Err(status::INVALID_FIELD);
        }
        self.check(asked.first, LbaCount::new(1))?;
        let first = asked.first.get() / self.geometry().zone_size().get();
        let mut next = ZoneId::new(u32::try_from(first).expect("a block of the namespace"));
        let (head, body) = out.split_at_mut(out.len().min(size_of::<ReportHeader>()));
        let mut slots = body.chunks_exact_mut(size_of::<ZoneDescriptor>());
        let mut matching = 0_u64;
        let mut zones = Vec::new();
        'zones: while next.get() < self.geometry().zone_count() {
            zones.clear();
            self.device.report(next, &mut zones, REPORT_STEP).map_err(failed)?;
            for zone in &zones {
                next = zone.id.next();
                if asked.only.is_some_and(|cond| cond != zone.cond) {
                    continue;
                }
                match (slots.next(), asked.count) {
                    (Some(slot), _) => {
                        slot.copy_from_slice(ZoneDescriptor::encode(zone).as_bytes());
                    }
                    (None, ReportCount::Matching) => {}
                    (None, ReportCount::Reported) => break 'zones,
                }
                matching += 1;
            }
        }
        let header = ReportHeader { zone_count: matching.into(), reserved: [0; 56] };
        head.copy_from_slice(&header.as_bytes()[..head.len()]);
        Ok(())
    }

    /// What Identify says, as the structure `what` of a command set.
    pub(crate) fn identify(&self) -> IdentifyNamespace {
        let geometry = self.geometry();
        let mut answer = IdentifyNamespace::read_from_bytes(&[0; identify::BYTES]).expect("4096");
        answer.size = self.block_count().get().into();
        answer.capacity = answer.size;
        answer.used = answer.size;
        answer.sharing = 1;
        answer.deallocation = 1;
        answer.guid = self.uuid;
        answer.block_formats[0] = BlockFormat {
            metadata: 0.into(),
            block_shift: u8::try_from(geometry.block_size().shift()).expect("9 or 12"),
            performance: 0,
        };
        answer
    }

    pub(crate) fn identify_zoned(&self) -> IdentifyZonedNamespace {
        let geometry = self.geometry();
        let mut answer =
            IdentifyZonedNamespace::read_from_bytes(&[0; identify::BYTES]).expect("4096");
        answer.zone_features = 1.into();
        answer.active_max = identify::encode_limit(geometry.max_active());
        answer.open_max = identify::encode_limit(geometry.max_open());
        let zone_size = geometry.zone_size().get().into();
        answer.zone_formats[0] = ZoneFormat { zone_size, extension: 0, reserved: [0; 7] };
        answer
    }

    pub(crate) fn identify_common() -> IdentifyCommon {
        let mut answer = IdentifyCommon::read_from_bytes(&[0; identify::BYTES]).expect("4096");
        answer.sharing = 1;
        answer.status = 1;
        answer
    }
}

/// The status of a failure, which is logged where it is not the host's own mistake.
#[expect(clippy::needless_pass_by_value, reason = "as an error is mapped")]
fn failed(error: DeviceError) -> NvmeStatus {
    let status = error.nvme_status();
    if status == status::INTERNAL || status == status::UNRECOVERED_READ {
        tracing::error!(%error, "the device failed");
    } else {
        tracing::debug!(%error, "refused");
    }
    status
}
