//! `zonal zone`: zone management actions, and zones that fail on request.

use anyhow::{Context, Result, anyhow};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{Select, ZoneAction, ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::furrow::Overwrite;
use zonal_linux::scsi;

use crate::args::{FailTarget, Global, RealmTarget, ZoneCommand, ZoneTarget};
use crate::device::{self, OpenMode};
use crate::output::json;

/// An action that was done.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// The action: `open`, `close`, `finish`, `reset`, `read-only`, `offline` or `activate`.
    action: &'static str,
    /// The zones; null with `--all`, and for a realm.
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
        ZoneCommand::Activate(target) => return activate(global, target),
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

fn activate(global: &Global, target: &RealmTarget) -> Result<()> {
    let name = &target.device;
    if target.force.overwrite() == Overwrite::Refuse {
        let device = device::open(name, OpenMode::ReadOnly)?;
        device::keep_file_system(&*device, name, Overwrite::Refuse)?;
    }
    let path = match name.strip_prefix("sg:") {
        Some(serial) => scsi::find(serial).with_context(|| format!("opening {name}"))?,
        None => name.into(),
    };
    scsi::realms::activate(&path, target.realm, target.domain)?;
    print(global, &Done { device: name, action: "activate", zone_numbers: None })
}

fn print(global: &Global, done: &Done<'_>) -> Result<()> {
    if global.json {
        json::document(done)?;
    }
    Ok(())
}
