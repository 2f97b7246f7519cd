//! `zonal zone`: zone management actions, and zones that fail on request.

use anyhow::{Context, Result, anyhow};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{Select, ZoneAction, ZoneFailure, ZoneId, ZonedDevice};

use crate::args::{FailTarget, Global, ZoneCommand, ZoneTarget};
use crate::device;
use crate::output::json;

/// An action that was done.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// The action: `open`, `close`, `finish`, `reset`, `read-only` or `offline`.
    action: &'static str,
    /// The zones; null with `--all`.
    zone_numbers: Option<&'a [u32]>,
}

/// Performs one action on the named zones, in that order.
pub(crate) fn run(global: &Global, command: &ZoneCommand) -> Result<()> {
    let (action, target) = match command {
        ZoneCommand::Open(target) => (ZoneAction::Open, target),
        ZoneCommand::Close(target) => (ZoneAction::Close, target),
        ZoneCommand::Finish(target) => (ZoneAction::Finish, target),
        ZoneCommand::Reset(target) => (ZoneAction::Reset, target),
        ZoneCommand::ReadOnly(target) => return fail(global, target, ZoneFailure::ReadOnly),
        ZoneCommand::Offline(target) => return fail(global, target, ZoneFailure::Offline),
    };
    let device = device::open_to_change(&target.device, target.force.overwrite(), &[])?.device;
    manage(&*device, target, action)?;
    device.flush().with_context(|| format!("flushing {}", target.device))?;
    let zone_numbers = (!target.all).then_some(&*target.zones);
    print(global, &Done { device: &target.device, action: action.name(), zone_numbers })
}

fn manage(device: &dyn ZonedDevice, target: &ZoneTarget, action: ZoneAction) -> Result<()> {
    if target.all {
        tracing::debug!(action = action.name(), "managing all zones");
        return device
            .manage(Select::All, action)
            .with_context(|| format!("cannot {} all zones of {}", action.name(), target.device));
    }
    for zone in &target.zones {
        device.manage(Select::One(ZoneId::new(*zone)), action).with_context(|| {
            format!("cannot {} zone {zone} of {}", action.name(), target.device)
        })?;
        tracing::debug!(zone, action = action.name(), "zone managed");
    }
    Ok(())
}

fn fail(global: &Global, target: &FailTarget, failure: ZoneFailure) -> Result<()> {
    let stack = device::open_to_change(&target.device, target.force.overwrite(), &[])?;
    let drive = stack.failing.ok_or_else(|| {
        anyhow!(
            "{} is a real drive: only zones of emulated drives can be made to fail",
            target.device
        )
    })?;
    for zone in &target.zones {
        drive.fail_zone(ZoneId::new(*zone), failure).with_context(|| {
            format!("cannot make zone {zone} of {} {}", target.device, failure.name())
        })?;
        tracing::debug!(zone, failure = failure.name(), "zone made to fail");
    }
    stack.device.flush().with_context(|| format!("flushing {}", target.device))?;
    let zone_numbers = Some(&*target.zones);
    print(global, &Done { device: &target.device, action: failure.name(), zone_numbers })
}

fn print(global: &Global, done: &Done<'_>) -> Result<()> {
    if global.json {
        json::document(done)?;
    }
    Ok(())
}
