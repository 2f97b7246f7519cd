//! The part of a file system that a drive holds: all of it, its data or its metadata.

use zonal::{Geometry, LbaCount, ZoneId, ZonedDevice};

use crate::furrow::format::superblock::Superblock;
use crate::furrow::format::{Address, BLOCK_BYTES};

/// The part of a file system that a drive holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Its label.
    pub label: String,
    /// Which part.
    pub kind: PartKind,
}

/// Which part of a file system a drive holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// All of it.
    Whole,
    /// The data, and a copy of the metadata.
    Data {
        /// Name of the metadata drive when mkfs made the file system.
        metadata: String,
        /// Device blocks of the metadata drive.
        metadata_blocks: LbaCount,
    },
    /// A copy of the metadata.
    Metadata,
}

impl Part {
    /// Whether `other` has the metadata whose data is here.
    pub fn belongs_to(&self, other: &Self) -> bool {
        self.uuid == other.uuid
            && matches!((&self.kind, &other.kind), (PartKind::Data { .. }, PartKind::Metadata))
    }
}

/// The `nth` sequential zone from a zone on, and the one behind it.
pub(in crate::furrow) fn sequential_pair(
    geometry: &Geometry,
    from: u32,
    nth: u32,
) -> Option<[u32; 2]> {
    let conventional = geometry.spec().conventional_zones;
    let stretches = conventional.stretches(geometry.zone_count());
    let sequential = stretches.filter(|stretch| !stretch.is_in);
    let zones = sequential.flat_map(|stretch| stretch.run.first..stretch.run.end());
    let mut zones = zones.skip_while(|&zone| zone < from).skip(nth as usize);
    Some([zones.next()?, zones.next()?])
}

/// The superblock, of any version, at the start of a zone, and by how much the number that the zone
/// has in the file system exceeds its number on this drive.
fn superblock_at(device: &dyn ZonedDevice, zone: u32) -> Option<(Superblock, u32)> {
    let mut block = [0; BLOCK_BYTES];
    device.read(device.geometry().zone_start(ZoneId::new(zone)), &mut block).ok()?;
    [0, Superblock::data_zones_of(&block)].into_iter().find_map(|before| {
        let own = Address { zone: zone.checked_add(before)?, block: 0 };
        Some((Superblock::decode_any_version(&block, own).ok()?, before))
    })
}

/// The part of a file system of this version that a drive holds, if it holds one.
pub fn part_of(device: &dyn ZonedDevice) -> Option<Part> {
    let zones = sequential_pair(device.geometry(), 0, 0)?;
    let (superblock, before) = zones.into_iter().find_map(|zone| superblock_at(device, zone))?;
    let kind = match (superblock.data_zones.get(), before) {
        _ if superblock.check_version().is_err() => return None,
        (0, _) => PartKind::Whole,
        (_, 0) => PartKind::Data {
            metadata: text(&superblock.metadata),
            metadata_blocks: superblock.metadata_blocks(),
        },
        (_, _) => PartKind::Metadata,
    };
    Some(Part { uuid: superblock.uuid, label: text(&superblock.label), kind })
}

/// The label of the file system, of any version, of which a device has a part: each zone of the log
/// that is in use begins with a superblock.
pub(crate) fn label_of(device: &dyn ZonedDevice) -> Option<String> {
    let geometry = device.geometry();
    let pairs = [0, geometry.sequential_count() / 2];
    let zones = pairs.into_iter().filter_map(|nth| sequential_pair(geometry, 0, nth)).flatten();
    let (superblock, _) = zones.into_iter().find_map(|zone| superblock_at(device, zone))?;
    Some(text(&superblock.label))
}

/// Text up to the zeroes that pad it.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}
