//! A zoned device as a zoned namespace: its Identify data structures, its zone reports, and the
//! rules of the command set that a [`ZonedDevice`] does not have.
//!
//! NVMe has no conventional zones, so a device with conventional zones is refused. All zones of a
//! namespace have one size: a smaller last zone is served with full size and less capacity, and its
//! gap reads as zeroes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, IntoBytes};
use zonal::nvme::decode::{
    ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend, ZoneSendAction,
};
use zonal::nvme::identify::{
    self, BlockFormat, IdentifyNamespace, IdentifyZonedNamespace, ZoneFormat,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::nvme::{NvmeStatus, status};
use zonal::spec::Stack;
use zonal::{
    DeviceError, FailZone, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond,
    ZoneFailure, ZoneId, ZoneKind, ZonedDevice,
};

use super::access::Usage;
use crate::command::TRANSFER_MAX;
use crate::error::Error;
use crate::extension::{ExtensionSize, Extensions};

/// Zones that are read from the device at once.
const REPORT_STEP: usize = 1024;

/// Zones that are ReadOnly or Offline, by their first block.
pub(crate) type FailedZones = BTreeSet<(Lba, ZoneCond)>;

/// A device that is served as a namespace.
pub(crate) struct ZonedNamespace {
    device: Arc<dyn ZonedDevice>,
    failing: Option<Arc<dyn FailZone>>,
    usage: Usage,
    extensions: Option<Extensions>,
    /// Counts errors that may mean that a zone has failed.
    failures: AtomicU64,
    /// ReadOnly zones that a host took offline, which is no event to report.
    offlined: Mutex<BTreeSet<Lba>>,
}

impl ZonedNamespace {
    /// The device of `stack`, which errors call `name`.
    pub(crate) fn new(stack: Stack, name: &str) -> Result<Self, Error> {
        let geometry = stack.device.geometry();
        if geometry.sequential_kind() == ZoneKind::SequentialPreferred {
            let why = "NVMe has no sequential write preferred zones".to_owned();
            return Err(Error::Export { device: name.to_owned(), why });
        }
        let conventional = geometry.spec().conventional_zones;
        if !conventional.is_empty() {
            let stretches = conventional.stretches(geometry.zone_count());
            let sequential = stretches.filter(|stretch| !stretch.is_in).map(|stretch| stretch.run);
            let mut why = "NVMe has no conventional zones".to_owned();
            if let Some(longest) = sequential.max_by_key(|run| run.count) {
                let (first, end) = (longest.first, longest.end());
                let last = if end == geometry.zone_count() {
                    String::new()
                } else {
                    (end - 1).to_string()
                };
                why = format!("{why}; try: `slice({first}-{last}):` in front of it");
            }
            return Err(Error::Export { device: name.to_owned(), why });
        }
        let Stack { device, failing, .. } = stack;
        Ok(Self {
            device,
            failing,
            usage: Usage::default(),
            extensions: None,
            failures: AtomicU64::new(0),
            offlined: Mutex::default(),
        })
    }

    /// Adds zone descriptor extensions, which are kept while the namespace is served.
    pub(crate) fn with_extensions(self, size: ExtensionSize) -> Self {
        Self { extensions: Some(Extensions::new(size)), ..self }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    pub(crate) const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Blocks of the namespace: whole zones.
    pub(crate) fn block_count(&self) -> LbaCount {
        let geometry = self.geometry();
        LbaCount::new(u64::from(geometry.zone_count()) * geometry.zone_size().get())
    }

    /// Bytes of a range of blocks; an error if the range is not within the namespace.
    pub(crate) fn check(&self, first: Lba, blocks: LbaCount) -> Result<usize, NvmeStatus> {
        let end = (first - Lba::ZERO).checked_add(blocks);
        if end.is_none_or(|end| end > self.block_count()) {
            return Err(status::LBA_OUT_OF_RANGE);
        }
        self.bytes(blocks)
    }

    /// Bytes of this many blocks; an error if they exceed one transfer.
    pub(crate) fn bytes(&self, blocks: LbaCount) -> Result<usize, NvmeStatus> {
        let bytes = usize::try_from(self.geometry().bytes(blocks).get());
        let bytes = bytes.ok().filter(|&bytes| bytes <= TRANSFER_MAX);
        bytes.ok_or(status::INVALID_FIELD)
    }

    /// The status of a write that failed.
    pub(crate) fn failed_write(&self, error: DeviceError) -> NvmeStatus {
        match error {
            // Within the namespace, but in the gap of a smaller last zone.
            DeviceError::OutOfRange { .. } => status::ZONE_BOUNDARY,
            error => self.failed(error),
        }
    }

    pub(crate) fn device(&self) -> &dyn ZonedDevice {
        &*self.device
    }

    pub(crate) fn flush(&self) -> Result<(), NvmeStatus> {
        self.device.flush().map_err(|error| self.failed(error))
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

    /// Bytes that Zone Management Send transfers for an action.
    pub(crate) fn send_bytes(&self, send: &ZoneSend) -> Result<Option<usize>, NvmeStatus> {
        match send.action {
            ZoneSendAction::Manage(_) | ZoneSendAction::Offline => Ok(None),
            ZoneSendAction::SetExtension if send.zones == SendTarget::All => {
                Err(status::INVALID_FIELD)
            }
            ZoneSendAction::SetExtension => {
                let extensions = self.extensions.as_ref().ok_or(status::INVALID_FIELD)?;
                Ok(Some(extensions.size.bytes()))
            }
            // There is no zone random write area.
            ZoneSendAction::FlushZrwa => Err(status::INVALID_FIELD),
        }
    }

    pub(crate) fn manage(&self, zones: Select, action: ZoneAction) -> Result<(), NvmeStatus> {
        let done = match (&self.extensions, action) {
            (Some(extensions), ZoneAction::Reset) => extensions.reset(&*self.device, zones),
            (Some(_) | None, _) => self.device.manage(zones, action),
        };
        done.map_err(|error| self.failed(error))
    }

    /// Sets the descriptor extension of a zone.
    pub(crate) fn extend(&self, zone: ZoneId, data: &[u8]) -> Result<(), NvmeStatus> {
        let extensions = self.extensions.as_ref().ok_or(status::INVALID_FIELD)?;
        extensions.attach(&*self.device, zone, data)
    }

    pub(crate) fn take_offline(&self, zones: Select) -> Result<(), NvmeStatus> {
        let offline = |zone: &Zone| {
            let failing = self.failing.as_ref().ok_or(status::INVALID_FIELD)?;
            failing.fail_zone(zone.id, ZoneFailure::Offline).map_err(|error| self.failed(error))?;
            self.offlined().insert(zone.start);
            Ok(())
        };
        match zones {
            Select::One(zone) => {
                let zone = self.device.zone(zone).map_err(|error| self.failed(error))?;
                match zone.cond {
                    ZoneCond::Offline => Ok(()),
                    ZoneCond::ReadOnly => offline(&zone),
                    ZoneCond::NotWp
                    | ZoneCond::Empty
                    | ZoneCond::ImplicitOpen
                    | ZoneCond::ExplicitOpen
                    | ZoneCond::Closed
                    | ZoneCond::Full => Err(status::INVALID_TRANSITION),
                }
            }
            Select::All => {
                let failed = self.scan(ZoneId::ZERO, |zone| match zone.cond {
                    ZoneCond::ReadOnly => match offline(zone) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(status) => ControlFlow::Break(status),
                    },
                    ZoneCond::NotWp
                    | ZoneCond::Empty
                    | ZoneCond::ImplicitOpen
                    | ZoneCond::ExplicitOpen
                    | ZoneCond::Closed
                    | ZoneCond::Full
                    | ZoneCond::Offline => ControlFlow::Continue(()),
                })?;
                failed.map_or(Ok(()), Err)
            }
        }
    }

    /// Visits the zones from `first` on until `visit` breaks, with at most [`REPORT_STEP`] zones in
    /// memory.
    fn scan<B>(
        &self,
        first: ZoneId,
        mut visit: impl FnMut(&Zone) -> ControlFlow<B>,
    ) -> Result<Option<B>, NvmeStatus> {
        let (mut next, mut zones) = (first, Vec::new());
        while next.get() < self.geometry().zone_count() {
            zones.clear();
            let reported = self.device.report(next, &mut zones, REPORT_STEP);
            reported.map_err(|error| self.failed(error))?;
            for zone in &zones {
                next = zone.id.next();
                if let ControlFlow::Break(result) = visit(zone) {
                    return Ok(Some(result));
                }
            }
        }
        Ok(None)
    }

    fn offlined(&self) -> MutexGuard<'_, BTreeSet<Lba>> {
        self.offlined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts errors that may mean that a zone has failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Zones that are ReadOnly or Offline. One that a host took offline counts as ReadOnly, which
    /// it was before.
    pub(crate) fn failed_zones(&self) -> Result<FailedZones, NvmeStatus> {
        let mut failed = FailedZones::new();
        self.scan(ZoneId::ZERO, |zone| {
            match zone.cond {
                ZoneCond::Offline if self.offlined().contains(&zone.start) => {
                    failed.insert((zone.start, ZoneCond::ReadOnly));
                }
                ZoneCond::ReadOnly | ZoneCond::Offline => {
                    failed.insert((zone.start, zone.cond));
                }
                ZoneCond::NotWp
                | ZoneCond::Empty
                | ZoneCond::ImplicitOpen
                | ZoneCond::ExplicitOpen
                | ZoneCond::Closed
                | ZoneCond::Full => {}
            }
            ControlFlow::<()>::Continue(())
        })?;
        Ok(failed)
    }

    /// The status of a failure, which is logged as an error unless it is the host's own.
    #[expect(clippy::needless_pass_by_value, reason = "as an error is mapped")]
    pub(crate) fn failed(&self, error: DeviceError) -> NvmeStatus {
        let status = error.nvme_status();
        if matches!(status, status::INTERNAL | status::UNRECOVERED_READ) {
            tracing::error!(%error, "the device failed");
        } else {
            tracing::debug!(%error, "refused");
        }
        if matches!(
            status,
            status::INTERNAL
                | status::UNRECOVERED_READ
                | status::ZONE_READ_ONLY
                | status::ZONE_OFFLINE
                | status::INVALID_TRANSITION
        ) {
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        status
    }

    /// Zone Management Receive.
    pub(crate) fn report(&self, asked: &ZoneReceive, out: &mut [u8]) -> Result<(), NvmeStatus> {
        let extensions = match asked.form {
            ReportForm::Plain => None,
            ReportForm::Extended => Some(self.extensions.as_ref().ok_or(status::INVALID_FIELD)?),
        };
        self.check(asked.first, LbaCount::new(1))?;
        let first = asked.first.get() / self.geometry().zone_size().get();
        let first = ZoneId::new(u32::try_from(first).expect("a block of the namespace"));
        let (head, body) = out.split_at_mut(out.len().min(size_of::<ReportHeader>()));
        let extension_bytes = extensions.map_or(0, |extensions| extensions.size.bytes());
        let mut slots = body.chunks_exact_mut(size_of::<ZoneDescriptor>() + extension_bytes);
        let mut matching = 0_u64;
        self.scan(first, |zone| {
            if asked.only.is_some_and(|cond| cond != zone.cond) {
                return ControlFlow::Continue(());
            }
            match (slots.next(), asked.count) {
                (Some(slot), _) => describe(zone, extensions, slot),
                (None, ReportCount::Matching) => {}
                (None, ReportCount::Reported) => return ControlFlow::Break(()),
            }
            matching += 1;
            ControlFlow::Continue(())
        })?;
        let header = ReportHeader { zone_count: matching.into(), reserved: [0; 56] };
        head.copy_from_slice(&header.as_bytes()[..head.len()]);
        Ok(())
    }

    /// The Identify Namespace data structure of the NVM command set, apart from the fields that all
    /// namespaces have.
    pub(crate) fn identify(&self) -> IdentifyNamespace {
        let geometry = self.geometry();
        let mut answer = IdentifyNamespace::read_from_bytes(&[0; identify::BYTES]).expect("4096");
        answer.size = self.block_count().get().into();
        answer.capacity = answer.size;
        answer.used = answer.size;
        answer.deallocation = 1;
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
        let extension = self.extensions.as_ref().map_or(0, |extensions| extensions.size.units());
        answer.zone_formats[0] = ZoneFormat { zone_size, extension, reserved: [0; 7] };
        answer
    }
}

/// Writes a zone descriptor into `slot`, followed by its extension.
fn describe(zone: &Zone, extensions: Option<&Extensions>, slot: &mut [u8]) {
    let (descriptor, extension) = slot.split_at_mut(size_of::<ZoneDescriptor>());
    let mut described = ZoneDescriptor::encode(zone);
    if extensions.and_then(|extensions| extensions.copy(zone, extension)).is_some() {
        described = described.with_extension();
    }
    descriptor.copy_from_slice(described.as_bytes());
}
