//! `zonal info`: the shape of a device, how its zones are used, and what file system it holds.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use zonal::{Geometry, Identity, Zone, ZoneKind, ZonedDevice};
use zonal_fs::{furrow, signature};

use super::division::Divided;
use crate::args::{Global, Info};
use crate::device::{self, OpenMode};
use crate::output::{count, json, size, table};

#[derive(Serialize)]
struct Report {
    device: String,
    /// What it says it is.
    model: Option<String>,
    serial: Option<String>,
    unique: Option<String>,
    bytes: u64,
    block_size: u64,
    zones: u32,
    zone_size_blocks: u64,
    zone_capacity_blocks: u64,
    conventional_zones: u32,
    last_zone_blocks: u64,
    max_open: Option<u32>,
    max_active: Option<u32>,
    max_append_blocks: u64,
    written_bytes: u64,
    /// What it holds, by its signature, and the label of that.
    holds: Option<&'static str>,
    label: Option<String>,
    /// How Furrow divides the drive.
    division: Option<Divided>,
    /// Number of zones in each condition that occurs.
    conditions: BTreeMap<&'static str, usize>,
}

/// Prints the report.
pub(crate) fn run(global: &Global, args: &Info) -> Result<()> {
    let device = device::open(&args.device, OpenMode::ReadOnly)?;
    let zones = device::report(&*device)?;
    let mut report = Report::new(&args.device, &*device, &zones);
    let found = signature::find(&*device).context("identifying what the device holds")?;
    if let Some(found) = found {
        report.holds = Some(found.kind.name());
        report.label = found.label;
        // What cannot be read is a matter of the check.
        let is_furrow = found.kind == signature::Content::Furrow;
        let division = is_furrow.then(|| furrow::division(device.clone()).ok());
        report.division = division.flatten().map(Divided::from);
    }
    if global.json {
        return json::document(&report);
    }
    say!("{}", report.text(device.geometry()));
    if let Some(division) = &report.division {
        say!("\n{}", division.text());
    }
    Ok(())
}

impl Report {
    fn new(name: &str, device: &dyn ZonedDevice, zones: &[Zone]) -> Self {
        let (geometry, identity) = (device.geometry(), device.identity());
        let spec = geometry.spec();
        let mut conditions = BTreeMap::new();
        for zone in zones {
            *conditions.entry(zone.cond.name()).or_insert(0) += 1;
        }
        let sequential = zones.iter().filter(|zone| zone.kind == ZoneKind::SequentialRequired);
        let written: u64 =
            sequential.filter_map(Zone::written).map(|blocks| geometry.bytes(blocks).get()).sum();
        Self {
            device: name.to_owned(),
            model: identity.model,
            serial: identity.serial,
            unique: identity.unique,
            bytes: geometry.bytes(geometry.block_count()).get(),
            block_size: geometry.block_size().bytes(),
            zones: geometry.zone_count(),
            zone_size_blocks: spec.zone_size.get(),
            zone_capacity_blocks: spec.zone_capacity.get(),
            conventional_zones: spec.conventional_zones,
            last_zone_blocks: zones.last().map_or(0, |zone| zone.size.get()),
            max_open: spec.max_open,
            max_active: spec.max_active,
            max_append_blocks: spec.max_append.get(),
            written_bytes: written,
            holds: None,
            label: None,
            division: None,
            conditions,
        }
    }

    fn identity(&self) -> Identity {
        let (model, serial) = (self.model.clone(), self.serial.clone());
        Identity { model, serial, unique: self.unique.clone() }
    }

    fn text(&self, geometry: &Geometry) -> String {
        let blocks = |blocks: u64| size(blocks * self.block_size);
        let limit = |limit: Option<u32>| limit.map_or("no limit".into(), |limit| limit.to_string());
        let power = if geometry.zone_size().get().is_power_of_two() { "" } else { "not " };
        let mut lines = vec![
            ("device", self.device.clone()),
            ("identity", self.identity().to_string()),
            ("size", format!("{} in {} zones", size(self.bytes), count(self.zones.into()))),
            ("block size", size(self.block_size)),
            ("zone size", format!("{}, {power}a power of two", blocks(self.zone_size_blocks))),
            ("zone capacity", blocks(self.zone_capacity_blocks)),
        ];
        lines.retain(|(_, value)| !value.is_empty());
        if self.last_zone_blocks < self.zone_size_blocks {
            lines.push(("last zone", blocks(self.last_zone_blocks)));
        }
        let conditions: Vec<String> =
            self.conditions.iter().map(|(name, zones)| format!("{zones} {name}")).collect();
        lines.extend([
            ("conventional", format!("{} zones", count(self.conventional_zones.into()))),
            ("open zones", format!("at most {}", limit(self.max_open))),
            ("active zones", format!("at most {}", limit(self.max_active))),
            ("append", format!("at most {}", blocks(self.max_append_blocks))),
            ("written", size(self.written_bytes)),
            ("zones", conditions.join(", ")),
        ]);
        if let Some(name) = self.holds {
            let label = self.label.as_deref().filter(|label| !label.is_empty());
            let label = label.map_or(String::new(), |label| format!(", label {label:?}"));
            lines.push(("holds", format!("{name}{label}")));
        }
        table::properties(&lines).replace("at most no limit", "no limit")
    }
}
