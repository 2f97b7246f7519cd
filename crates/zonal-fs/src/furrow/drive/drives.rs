//! The drives of a file system: one, or one for data and another one for metadata.
//!
//! Two drives are joined by a [`Concat`], the zones of the data drive first, so every zone has one
//! number. The first copy of each superblock, of the journal and of each part of the table goes to
//! the metadata drive and the second one to the data drive: either drive may be lost without the
//! metadata being lost. A drive that has no zone left for its copy lets the other one have both.

use std::sync::Arc;

use zonal::layer::concat::Concat;
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::{Geometry, GeometrySpec, MemoryDrive, ZoneFailure, ZoneId, ZoneRuns, ZonedDevice};

use crate::FsError;
use crate::furrow::drive::part::{PartKind, part_of};
use crate::vfs::Result;

/// Sequential zones below which a drive cannot hold metadata: 2 for superblocks, 1 for a copy of
/// the journal, 1 for a copy of the table, and 2 for the successors of both.
const METADATA_ZONES_MIN: u32 = 6;

/// The drives of a file system.
///
/// One drive turns into this by itself, so functions that take it take an `Arc` of a device.
#[derive(Clone)]
pub struct Drives {
    device: Arc<dyn ZonedDevice>,
    data: Geometry,
    /// The metadata drive is missing.
    lacks_metadata: bool,
}

impl Drives {
    /// A drive for data, and another one for metadata. The zones of both have the same size and
    /// capacity. A smaller last zone of the data drive stays unused.
    ///
    /// # Errors
    ///
    /// [`FsError::Unsuitable`] if the drives cannot be joined, or the metadata drive is too small.
    pub fn with_metadata(
        data: Arc<dyn ZonedDevice>,
        metadata: Arc<dyn ZonedDevice>,
    ) -> Result<Self> {
        let data = whole_zones(data)?;
        let zones = metadata.geometry().sequential_count();
        if zones < METADATA_ZONES_MIN {
            let why = format!(
                "the metadata drive has {zones} sequential zones; {METADATA_ZONES_MIN} are needed"
            );
            return Err(FsError::Unsuitable { why });
        }
        let geometry = *data.geometry();
        let joined = Concat::new(vec![data, metadata]).map_err(|error| FsError::Unsuitable {
            why: format!("the metadata drive does not fit: {error}"),
        })?;
        Ok(Self { device: Arc::new(joined), data: geometry, lacks_metadata: false })
    }

    /// A drive for data whose metadata drive is missing. It can be read only: the copies on the
    /// data drive show the state of the last commit or, on a disk, of up to a second earlier.
    ///
    /// # Errors
    ///
    /// [`FsError::Unsuitable`] if the drive holds all of its file system, or none.
    pub fn without_metadata(data: Arc<dyn ZonedDevice>) -> Result<Self> {
        let held = part_of(&*data).map(|part| part.kind);
        let Some(PartKind::Data { metadata_blocks, .. }) = held else {
            let why = "it holds no file system that has a metadata drive".into();
            return Err(FsError::Unsuitable { why });
        };
        let spec = *data.geometry().spec();
        let missing = MemoryDrive::new(GeometrySpec {
            block_count: metadata_blocks,
            conventional_zones: ZoneRuns::NONE,
            ..spec
        })?;
        for zone in missing.geometry().zones() {
            missing.fail_zone(zone, ZoneFailure::Offline)?;
        }
        let drives = Self::with_metadata(data, Arc::new(missing))?;
        Ok(Self { lacks_metadata: true, ..drives })
    }

    /// One device as two drives: the zones from `data_zones` on stand for a metadata drive.
    #[cfg(feature = "testing")]
    pub fn split(device: Arc<dyn ZonedDevice>, data_zones: u32) -> Self {
        let spec = *device.geometry().spec();
        let block_count = zonal::LbaCount::new(spec.zone_size.get() * u64::from(data_zones));
        let data = Geometry::new(GeometrySpec { block_count, ..spec }).expect("a smaller drive");
        Self { device, data, lacks_metadata: false }
    }

    /// The device that has all zones.
    pub(in crate::furrow) fn device(&self) -> &Arc<dyn ZonedDevice> {
        &self.device
    }

    /// Whether the metadata drive is missing: nothing may be written then.
    pub(in crate::furrow) fn lacks_metadata(&self) -> bool {
        self.lacks_metadata
    }

    /// The shape of all zones.
    pub(in crate::furrow) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// The shape of the drive that data goes to.
    pub(in crate::furrow) fn data(&self) -> &Geometry {
        &self.data
    }

    /// Sequential zones of the metadata drive; `None` if one drive has everything.
    pub(in crate::furrow) fn metadata_zones(&self) -> Option<u32> {
        let others = self.geometry().sequential_count() - self.data.sequential_count();
        (others > 0).then_some(others)
    }
}

impl<D: ZonedDevice + 'static> From<Arc<D>> for Drives {
    fn from(drive: Arc<D>) -> Self {
        Self::from(drive as Arc<dyn ZonedDevice>)
    }
}

impl From<Arc<dyn ZonedDevice>> for Drives {
    fn from(device: Arc<dyn ZonedDevice>) -> Self {
        let data = *device.geometry();
        Self { device, data, lacks_metadata: false }
    }
}

/// The drive without its smaller last zone, which only the last one of joined drives may have.
fn whole_zones(drive: Arc<dyn ZonedDevice>) -> Result<Arc<dyn ZonedDevice>> {
    let geometry = drive.geometry();
    let last = ZoneId::new(geometry.zone_count() - 1);
    if geometry.size_of(last) == geometry.zone_size() {
        return Ok(drive);
    }
    let before = ZoneId::new(last.get().saturating_sub(1));
    let range = ZoneRange { first: ZoneId::ZERO, last: Some(before) };
    Ok(Arc::new(Slice::new(drive, range)?))
}
