//! Layers: a device that wraps a device, or joins several. They stack in any order.

use crate::error::Result;
use crate::state::selected_by_all;
use crate::{
    DeviceError, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZonedDevice,
};

pub mod concat;
pub mod delay;
pub mod elevator;
pub mod fault;
pub mod limited;
pub mod meter;
pub mod po2;
pub mod record;
pub mod slice;
pub mod trace;

/// Why a drive refuses a write that begins in `zone` and ends behind it.
fn refusal_of_crossing(zone: &Zone, lba: Lba, blocks: LbaCount) -> DeviceError {
    let id = zone.id;
    let is_anywhere = zone.kind == ZoneKind::SequentialPreferred;
    match (zone.cond, zone.wp) {
        (ZoneCond::Full, _) if !is_anywhere => DeviceError::ZoneFull { zone: id },
        (ZoneCond::ReadOnly, _) => DeviceError::ZoneReadOnly { zone: id },
        (ZoneCond::Offline, _) => DeviceError::ZoneOffline { zone: id },
        (_, Some(wp)) if wp != lba && !is_anywhere => {
            DeviceError::NotAtWritePointer { zone: id, wp, lba }
        }
        (_, _) => DeviceError::CrossesZone { zone: id, lba, blocks },
    }
}

/// [`Select::All`] on `device`, zone by zone.
fn manage_each<D: ZonedDevice + ?Sized>(device: &D, action: ZoneAction) -> Result<()> {
    let zones = device.report_all()?;
    if action == ZoneAction::Open
        && let Some(limit) = device.geometry().max_open()
    {
        let stays = |zone: &&Zone| matches!(zone.cond, ZoneCond::ExplicitOpen | ZoneCond::Closed);
        if zones.iter().filter(stays).count() > limit as usize {
            return Err(DeviceError::TooManyOpen { zone: ZoneId::ZERO, limit });
        }
    }
    for zone in zones {
        // An open of another zone may have closed this one since.
        let cond = match action {
            ZoneAction::Open if zone.cond.is_open() => device.zone(zone.id)?.cond,
            ZoneAction::Open | ZoneAction::Close | ZoneAction::Finish | ZoneAction::Reset => {
                zone.cond
            }
        };
        if selected_by_all(action, cond) {
            device.manage(Select::One(zone.id), action)?;
        }
    }
    Ok(())
}
