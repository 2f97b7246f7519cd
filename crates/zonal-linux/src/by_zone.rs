//! The steps that both kinds of drive take zone by zone.

use zonal::{
    DeviceError, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
    ZonedDevice, state,
};

use crate::Result;

/// Which way data goes.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    /// From the drive.
    Read,
    /// To the drive.
    Write,
}

/// Fills `buffer` from `lba` on. `read_in_zone` gets a zone, an offset in it, and the part of the
/// buffer that the zone fills.
pub(crate) fn read(
    geometry: &Geometry,
    lba: Lba,
    buffer: &mut [u8],
    mut read_in_zone: impl FnMut(ZoneId, LbaCount, &mut [u8]) -> Result<()>,
) -> Result<()> {
    geometry.blocks_at(lba, buffer.len())?;
    let (mut at, mut rest) = (lba, buffer);
    while !rest.is_empty() {
        let (zone, offset) = geometry.locate(at);
        let left = geometry.bytes(geometry.size_of(zone) - offset).get();
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let (head, tail) = rest.split_at_mut(len);
        read_in_zone(zone, offset, head)?;
        at += geometry.blocks(len)?;
        rest = tail;
    }
    Ok(())
}

/// Runs `manage_one` for one zone, or for all zones that `action` concerns. Drives also have one
/// command for all zones; one by one, the stored write pointer of each zone changes with the zone.
pub(crate) fn manage(
    drive: &impl ZonedDevice,
    zones: Select,
    action: ZoneAction,
    manage_one: impl Fn(ZoneId) -> Result<()>,
) -> Result<()> {
    match zones {
        Select::One(zone) => manage_one(zone),
        Select::All => {
            for zone in drive.report_all()? {
                if state::selected_by_all(action, zone.cond) {
                    manage_one(zone.id)?;
                }
            }
            Ok(())
        }
    }
}

/// Where `bytes` bytes from `lba` on are to be written.
#[derive(Clone, Copy)]
pub(crate) struct WriteRange {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Blocks from its start.
    pub(crate) offset: LbaCount,
    /// How many; not 0.
    pub(crate) blocks: LbaCount,
}

impl WriteRange {
    /// Where a write goes: into one zone, below its capacity. `None` for an empty one.
    pub(crate) fn of_write(geometry: &Geometry, lba: Lba, bytes: usize) -> Result<Option<Self>> {
        let blocks = geometry.blocks_at(lba, bytes)?;
        if blocks == LbaCount::ZERO {
            return Ok(None);
        }
        let (zone, offset) = geometry.locate(lba);
        if offset + blocks > geometry.capacity_of(zone) {
            return Err(DeviceError::CrossesZone { zone, lba, blocks });
        }
        Ok(Some(Self { zone, offset, blocks }))
    }
}

/// The blocks of an append of `bytes` bytes; an error if they are more than the device takes.
pub(crate) fn append_blocks(geometry: &Geometry, bytes: usize) -> Result<LbaCount> {
    let (blocks, limit) = (geometry.blocks(bytes)?, geometry.max_append());
    if blocks > limit {
        return Err(DeviceError::AppendTooLarge { blocks, limit });
    }
    Ok(blocks)
}

/// The reason why a zone refuses a write at `lba`, if a report shows it.
pub(crate) fn refusal(zone: &Zone, lba: Lba) -> Option<DeviceError> {
    let id = zone.id;
    match zone.cond {
        ZoneCond::ReadOnly => Some(DeviceError::ZoneReadOnly { zone: id }),
        ZoneCond::Offline => Some(DeviceError::ZoneOffline { zone: id }),
        ZoneCond::NotWp => None,
        _ if zone.kind == ZoneKind::SequentialPreferred => None,
        ZoneCond::Full => Some(DeviceError::ZoneFull { zone: id }),
        _ => {
            let wp = zone.wp.filter(|wp| *wp != lba)?;
            Some(DeviceError::NotAtWritePointer { zone: id, wp, lba })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::{BlockSize, GeometrySpec, MemoryDrive, ZoneKind, ZoneRuns};

    const ZONE: LbaCount = LbaCount::new(30);

    fn drive() -> MemoryDrive {
        MemoryDrive::new(GeometrySpec {
            block_size: BlockSize::B512,
            block_count: LbaCount::new(100),
            zone_size: ZONE,
            zone_capacity: ZONE,
            conventional_zones: ZoneRuns::NONE,
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: None,
            max_active: None,
            max_append: LbaCount::new(1),
        })
        .unwrap()
    }

    #[test]
    fn read_is_split_at_zone_ends() {
        let drive = drive();
        let mut parts = Vec::new();
        let mut buffer = vec![0; 45 * 512];
        let number = |zone: ZoneId, _, part: &mut [u8]| {
            part.fill(zone.index().to_le_bytes()[0]);
            Ok(())
        };
        read(drive.geometry(), Lba::new(55), &mut buffer, number).unwrap();
        assert!(buffer.chunk_by(u8::eq).map(<[u8]>::len).eq([5 * 512, 30 * 512, 10 * 512]));
        read(drive.geometry(), Lba::new(29), &mut buffer[..1024], |zone, offset, part| {
            parts.push((zone.get(), offset.get(), part.len()));
            Ok(())
        })
        .unwrap();
        assert_eq!(parts, [(0, 29, 512), (1, 0, 512)]);
        let beyond = read(drive.geometry(), Lba::new(99), &mut buffer, |_, _, _| unreachable!());
        assert!(matches!(beyond, Err(DeviceError::OutOfRange { .. })), "{beyond:?}");
    }

    #[test]
    fn action_for_all_zones_skips_inapplicable_ones() {
        let drive = drive();
        for zone in [1, 3] {
            drive.append(ZoneId::new(zone), &[1; 512]).unwrap();
        }
        let reset = |zones| {
            let done = std::cell::RefCell::new(Vec::new());
            manage(&drive, zones, ZoneAction::Reset, |zone| {
                done.borrow_mut().push(zone.get());
                Ok(())
            })
            .unwrap();
            done.into_inner()
        };
        assert_eq!(reset(Select::All), [1, 3]);
        assert_eq!(reset(Select::One(ZoneId::ZERO)), [0]);
    }
}
