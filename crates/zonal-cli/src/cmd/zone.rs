//! `zonal zone`: zone management actions.

use anyhow::{Context, Result};
use serde::Serialize;
use zonal::{Select, ZoneAction, ZoneId, ZonedDevice};

use crate::args::{Global, ZoneCommand, ZoneTarget};
use crate::device::{self, OpenMode};
use crate::output::json;

#[derive(Serialize)]
struct Done<'a> {
    action: &'static str,
    /// Empty: all for which it makes sense.
    zones: &'a [u32],
}

/// Performs one action on the zones named, in that order.
pub(crate) fn run(global: &Global, command: &ZoneCommand) -> Result<()> {
    let (action, target) = match command {
        ZoneCommand::Open(target) => (ZoneAction::Open, target),
        ZoneCommand::Close(target) => (ZoneAction::Close, target),
        ZoneCommand::Finish(target) => (ZoneAction::Finish, target),
        ZoneCommand::Reset(target) => (ZoneAction::Reset, target),
    };
    let device = device::open(&target.device, OpenMode::ReadWrite)?;
    manage(&*device, target, action)?;
    device.flush().with_context(|| format!("flushing {}", target.device))?;
    if global.json {
        json::document(&Done { action: action.name(), zones: &target.zones })?;
    }
    Ok(())
}

fn manage(device: &dyn ZonedDevice, target: &ZoneTarget, action: ZoneAction) -> Result<()> {
    if target.all {
        return device
            .manage(Select::All, action)
            .with_context(|| format!("cannot {} all zones of {}", action.name(), target.device));
    }
    for zone in &target.zones {
        device.manage(Select::One(ZoneId::new(*zone)), action).with_context(|| {
            format!("cannot {} zone {zone} of {}", action.name(), target.device)
        })?;
    }
    Ok(())
}
