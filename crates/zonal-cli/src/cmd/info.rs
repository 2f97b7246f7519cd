//! `zonal info`: the shape of a device, how its zones are used, and what file system it holds.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{Geometry, Identity, Zone, ZoneCond, ZoneKind, ZoneRun, ZonedDevice};
use zonal_fs::{furrow, signature};
use zonal_linux::Facts;
use zonal_linux::scsi::zones::{Realm, ZoneDomain, ZoneType};

use super::division::Divided;
use crate::args::{Global, Info};
use crate::device::{self, OpenMode, Stack};
use crate::metadata;
use crate::output::{count, json, size, table};

/// A device, and its content.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The device, as the command line names it.
    device: String,
    /// Model, as the device reports it.
    model: Option<String>,
    /// Serial number, of a real drive.
    serial: Option<String>,
    /// Name that no other device has.
    unique_id: Option<String>,
    /// From the start of the first zone to the end of the last one.
    size_bytes: u64,
    /// Capacity of all zones together.
    capacity_bytes: u64,
    /// Size of a block, in which addresses are counted.
    block_size_bytes: u64,
    /// Number of zones.
    zones: u32,
    /// From the start of a zone to that of the next.
    zone_size_bytes: u64,
    /// Writable part of a zone.
    zone_capacity_bytes: u64,
    /// Zones that take writes anywhere.
    conventional_zones: u32,
    /// Where the conventional zones are.
    conventional_ranges: Vec<Range>,
    /// Kind of all other zones: `sequential` or `sequential-preferred`.
    sequential_kind: &'static str,
    /// Sequential write preferred zones that were written elsewhere than at their write pointer.
    non_sequential_zones: usize,
    /// Size of the last zone, which may be smaller than the others.
    last_zone_size_bytes: u64,
    /// Most zones that are open at once; null without a limit.
    open_zones_max: Option<u32>,
    /// Most zones that are active at once; null without a limit.
    active_zones_max: Option<u32>,
    /// Zones that are open now.
    open_zones: usize,
    /// Zones that are open or closed now.
    active_zones: usize,
    /// Largest zone append.
    append_bytes_max: u64,
    /// Bytes written in sequential zones.
    written_bytes: u64,
    /// Kind of content, by its signature.
    holds: Option<&'static str>,
    /// Label of the content.
    label: Option<String>,
    /// How Furrow divides the drive.
    division: Option<Divided>,
    /// Number of zones in each condition that occurs.
    conditions: BTreeMap<&'static str, usize>,
    /// Whether the medium turns, so that moving its head costs time.
    rotates: bool,
    /// How often the medium turns in a minute.
    rotations_per_minute: Option<u32>,
    /// Whether a real drive keeps writes in a volatile cache until a flush.
    write_cache: Option<bool>,
    /// Whether a real drive answers reads from a cache.
    read_cache: Option<bool>,
    /// Commands that may be at a real drive at once.
    queued_commands_max: Option<u32>,
    /// Whether a command to a real drive may have a priority (NCQ).
    queue_priority: Option<bool>,
    /// Whether a real drive refuses writes.
    write_protected: Option<bool>,
    /// Why zones of a real drive are not used, as sentences.
    left_out: Vec<String>,
    /// Zone domains of a real drive, as sentences.
    zone_domains: Vec<String>,
    /// Zone realms of a real drive, as sentences.
    zone_realms: Vec<String>,
}

/// Prints the report.
pub(crate) fn run(global: &Global, args: &Info) -> Result<()> {
    let stack = device::open_stack(&args.device, OpenMode::ReadOnly)?;
    let Stack { device, files, .. } = &stack;
    let zones = device::report(&**device)?;
    let mut report = Report::new(&args.device, &**device, &zones);
    // A stack over several drives has no facts in common.
    if let [file] = &**files {
        match zonal_linux::facts(file) {
            Ok(facts) => report.add(facts.unwrap_or_default()),
            Err(error) => tracing::debug!(%error, "the drive does not say more of itself"),
        }
    }
    let found = signature::find(&**device).context("identifying what the device holds")?;
    if let Some(found) = found {
        report.holds = Some(found.kind.name());
        report.label = found.label;
        // `zonal check` reports why a file system cannot be read.
        let is_furrow = found.kind == signature::Content::Furrow;
        let drives = is_furrow.then(|| metadata::drives(&stack, OpenMode::ReadOnly, None).ok());
        let division = drives.flatten().and_then(|opened| furrow::division(opened.drives).ok());
        report.division = division.map(Divided::from);
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

/// Zones from one to another.
#[derive(Serialize, JsonSchema)]
struct Range {
    /// Number of the first one.
    first_zone: u32,
    /// Number of the last one.
    last_zone: u32,
}

impl Range {
    const fn of(run: ZoneRun) -> Self {
        Self { first_zone: run.first, last_zone: run.end() - 1 }
    }
}

impl Report {
    fn new(name: &str, device: &dyn ZonedDevice, zones: &[Zone]) -> Self {
        let (geometry, identity) = (device.geometry(), device.identity());
        let spec = geometry.spec();
        let mut conditions = BTreeMap::new();
        for zone in zones {
            *conditions.entry(zone.cond.name()).or_insert(0) += 1;
        }
        let has =
            |conds: &[ZoneCond]| zones.iter().filter(|zone| conds.contains(&zone.cond)).count();
        let open_zones = has(&[ZoneCond::ImplicitOpen, ZoneCond::ExplicitOpen]);
        let active_zones = open_zones + has(&[ZoneCond::Closed]);
        let sequential = zones.iter().filter(|zone| zone.kind.is_sequential());
        let bytes = |blocks| geometry.bytes(blocks).get();
        let written: u64 = sequential.filter_map(Zone::written).map(bytes).sum();
        Self {
            device: name.to_owned(),
            model: identity.model,
            serial: identity.serial,
            unique_id: identity.unique,
            size_bytes: bytes(geometry.block_count()),
            capacity_bytes: zones.iter().map(|zone| bytes(zone.capacity)).sum(),
            block_size_bytes: geometry.block_size().bytes(),
            zones: geometry.zone_count(),
            zone_size_bytes: bytes(spec.zone_size),
            zone_capacity_bytes: bytes(spec.zone_capacity),
            conventional_zones: spec.conventional_zones.zone_count(),
            conventional_ranges: spec
                .conventional_zones
                .runs()
                .iter()
                .copied()
                .map(Range::of)
                .collect(),
            sequential_kind: spec.sequential_kind.name(),
            non_sequential_zones: zones.iter().filter(|zone| zone.non_sequential).count(),
            last_zone_size_bytes: zones.last().map_or(0, |zone| bytes(zone.size)),
            open_zones_max: spec.max_open,
            active_zones_max: spec.max_active,
            open_zones,
            active_zones,
            append_bytes_max: bytes(spec.max_append),
            written_bytes: written,
            holds: None,
            label: None,
            division: None,
            conditions,
            rotates: device.rotates(),
            rotations_per_minute: None,
            write_cache: None,
            read_cache: None,
            queued_commands_max: None,
            queue_priority: None,
            write_protected: None,
            left_out: Vec::new(),
            zone_domains: Vec::new(),
            zone_realms: Vec::new(),
        }
    }

    fn add(&mut self, facts: Facts) {
        self.rotations_per_minute = facts.rotation_rate.map(u32::from);
        (self.write_cache, self.read_cache) = (facts.write_cache, facts.read_cache);
        (self.queued_commands_max, self.queue_priority) = (facts.queue_depth, facts.queue_priority);
        self.write_protected = facts.write_protected;
        self.left_out = facts.left_out;
        self.zone_domains = facts.domains.iter().map(domain_text).collect();
        self.zone_realms =
            facts.realms.iter().map(|realm| realm_text(realm, &facts.domains)).collect();
    }

    /// The medium, if it turns, and the facts of a real drive.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        if self.rotates {
            let often = self
                .rotations_per_minute
                .map_or(String::new(), |rate| format!(", {} times a minute", count(rate.into())));
            lines.push(("medium", format!("turns{often}")));
        }
        let cache = |is_on| if is_on { "yes" } else { "no" }.to_owned();
        lines.extend(self.write_cache.map(|is_on| ("write cache", cache(is_on))));
        lines.extend(self.read_cache.map(|is_on| ("read cache", cache(is_on))));
        if let Some(depth) = self.queued_commands_max {
            let priority = if self.queue_priority == Some(true) { ", with priorities" } else { "" };
            lines.push(("queue", format!("{depth} commands{priority}")));
        }
        if self.write_protected == Some(true) {
            lines.push(("writes", "refused: the drive is write-protected".to_owned()));
        }
        lines.extend(self.left_out.iter().map(|text| ("left out", text.clone())));
        lines.extend(self.zone_domains.iter().map(|text| ("zone domain", text.clone())));
        lines.extend(self.zone_realms.iter().map(|text| ("zone realm", text.clone())));
        lines
    }

    fn identity(&self) -> Identity {
        let (model, serial) = (self.model.clone(), self.serial.clone());
        Identity { model, serial, unique: self.unique_id.clone() }
    }

    fn text(&self, geometry: &Geometry) -> String {
        let most = |limit: Option<u32>| {
            limit.map_or_else(|| "no limit".to_owned(), |limit| format!("at most {limit}"))
        };
        let power = if geometry.zone_size().get().is_power_of_two() { "" } else { "not " };
        let mut lines = vec![
            ("device", self.device.clone()),
            ("identity", self.identity().to_string()),
            ("size", format!("{} in {} zones", size(self.size_bytes), count(self.zones.into()))),
            ("block size", size(self.block_size_bytes)),
            ("zone size", format!("{}, {power}a power of two", size(self.zone_size_bytes))),
            ("zone capacity", size(self.zone_capacity_bytes)),
        ];
        lines.retain(|(_, value)| !value.is_empty());
        if self.last_zone_size_bytes < self.zone_size_bytes {
            lines.push(("last zone", size(self.last_zone_size_bytes)));
        }
        let places = match geometry.spec().conventional_zones {
            none if none.is_empty() => String::new(),
            zones => format!(": {zones}"),
        };
        let conditions: Vec<String> =
            self.conditions.iter().map(|(name, zones)| format!("{zones} {name}")).collect();
        lines.extend([(
            "conventional",
            format!("{} zones{places}", count(self.conventional_zones.into())),
        )]);
        if geometry.sequential_kind() == ZoneKind::SequentialPreferred {
            let written = count(self.non_sequential_zones as u64);
            let text = format!("preferred in all other zones; not so in {written}");
            lines.push(("sequential write", text));
        }
        lines.extend([
            ("open zones", format!("{}, {}", self.open_zones, most(self.open_zones_max))),
            ("active zones", format!("{}, {}", self.active_zones, most(self.active_zones_max))),
            ("append", format!("at most {}", size(self.append_bytes_max))),
            ("written", size(self.written_bytes)),
            ("zones", conditions.join(", ")),
        ]);
        lines.extend(self.facts());
        if let Some(name) = self.holds {
            let label = self.label.as_deref().filter(|label| !label.is_empty());
            let label = label.map_or(String::new(), |label| format!(", label {label:?}"));
            lines.push(("holds", format!("{name}{label}")));
        }
        table::properties(&lines)
    }
}

/// A zone domain in a sentence, which counts in blocks of the drive.
fn domain_text(domain: &ZoneDomain) -> String {
    let kind = match ZoneType::from_code(domain.kind) {
        Some(ZoneType::Conventional) => "conventional",
        Some(ZoneType::SequentialRequired) => "sequential",
        Some(ZoneType::SequentialPreferred) => "sequential-preferred",
        Some(ZoneType::SequentialOrBeforeRequired) => "sequential or before required",
        Some(ZoneType::Gap) | None => "other",
    };
    let ZoneDomain { id, zones, first, last, .. } = *domain;
    format!("{id}: {} {kind} zones, blocks {first} to {last}", count(zones))
}

/// A realm in a sentence.
fn realm_text(realm: &Realm, domains: &[ZoneDomain]) -> String {
    let places: Vec<String> = domains
        .iter()
        .zip(&realm.ranges)
        .filter(|(_, (_, last))| last.get() > 0)
        .map(|(domain, (first, last))| format!("{first} to {last} in {}", domain.id))
        .collect();
    format!(
        "{}: active in zone domain {}; blocks {}",
        realm.id,
        realm.active_domain,
        places.join(", ")
    )
}
