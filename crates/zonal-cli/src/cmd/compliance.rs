//! `zonal compliance`: whether a device follows the rules of its specification.
//!
//! Requests reach a block device, an NVMe namespace or a SCSI disk as they are, without the checks
//! that Zonal adds elsewhere: the rules are for the device. The exit code is 4 if a rule of level
//! `must` is broken.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::{FileDrive, LbaCount, Rules, ZonedDevice, output};
use zonal_compliance::power::{self, Record};
use zonal_compliance::{Filters, Interface, Limit, Outcome, Report, Scope, Target, html};
use zonal_fs::furrow::Overwrite;
use zonal_fs::{FsError, signature};
use zonal_linux::raw::{RawBlock, RawNamespace, RawScsi};
use zonal_linux::scsi;

use crate::args::Global;
use crate::args::compliance::{Compliance, RuleSet, Shown, Zones};
use crate::device::{self, Base, OpenMode};
use crate::output::{count, json, progress, table};

/// The output: the findings, or with `--before-cut` the record of the writes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer<'a> {
    /// The findings on the device.
    Checked(Report),
    /// The record of the writes before a power cut.
    Prepared(Prepared<'a>),
}

/// The record of the writes before a power cut.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Prepared<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// File with the record, for the second run.
    record: &'a Path,
    /// How many zones were written.
    written_zones: u32,
}

/// The exit code if a rule of level `must` is broken: the one of `zonal check` for a finding.
const BROKEN: u8 = 4;

/// Reasons that are printed without `--all`.
const REASONS_SHOWN: usize = 6;

/// Bytes of one write to a device of this process.
const TRANSFER_BYTES: u64 = 1 << 20;

/// A device, opened without checks of ours that would hide how it behaves.
enum Opened {
    Library { device: Arc<dyn ZonedDevice>, rules: Rules },
    Block { device: RawBlock, rules: Rules },
    Nvme(RawNamespace),
    Scsi(RawScsi),
}

impl Opened {
    fn open(spec: &str, mode: OpenMode, overwrite: Overwrite) -> Result<Self> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let path = Path::new(spec);
        let found = path.metadata().ok();
        let kind = found.as_ref().map(std::fs::Metadata::file_type);
        let is_char = kind.is_some_and(|kind| kind.is_char_device());
        let is_scsi = is_char && found.is_some_and(|found| scsi::is_node(found.rdev()));
        let by_serial = spec.strip_prefix("sg:").map(scsi::find);
        if let Some(node) = by_serial.or_else(|| is_scsi.then(|| Ok(path.to_owned()))) {
            let device = node.and_then(|node| RawScsi::open(&node, mode));
            return device.map(Self::Scsi).with_context(|| format!("opening {spec}"));
        }
        if is_char {
            let device = RawNamespace::open(path, mode);
            return device.map(Self::Nvme).with_context(|| format!("opening {spec}"));
        }
        // A disk that `zonal create` gave zones is a drive file.
        let is_block = kind.is_some_and(|kind| kind.is_block_device())
            && FileDrive::open(path, OpenMode::ReadOnly).is_err();
        if is_block {
            let node = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let is_scsi =
                node.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"sd"));
            let rules = if is_scsi { Rules::Zbc } else { Rules::Zns };
            let device = RawBlock::open(path, mode).with_context(|| format!("opening {spec}"))?;
            return Ok(Self::Block { device, rules });
        }
        let stack = match mode {
            OpenMode::ReadWrite => device::open_to_change(spec, overwrite, &[])?,
            OpenMode::ReadOnly | OpenMode::ReadLocked => device::open_stack(spec, mode)?,
        };
        let rules = match &stack.base {
            Base::File(path) => {
                FileDrive::open(path, OpenMode::ReadOnly).map_or(Rules::Zns, |file| file.rules())
            }
            _ => Rules::Zns,
        };
        Ok(Self::Library { device: stack.device, rules })
    }

    fn target<'a>(&'a self, name: &'a str, asked: Option<RuleSet>) -> Target<'a> {
        let (device, interface, filters, rules): (&dyn ZonedDevice, _, Option<&dyn Filters>, _) =
            match self {
                Self::Library { device, rules } => (&**device, Interface::Library, None, *rules),
                Self::Block { device, rules } => (device, Interface::Block, None, *rules),
                Self::Nvme(device) => (device, Interface::Nvme, Some(device), Rules::Zns),
                Self::Scsi(device) => {
                    let filters = device.has_filters().then_some(device as &dyn Filters);
                    (device, Interface::Scsi, filters, Rules::Zbc)
                }
            };
        let transfer = match self {
            Self::Library { device, .. } => {
                LbaCount::new(TRANSFER_BYTES / device.geometry().block_size().bytes())
            }
            Self::Block { device, .. } => device.transfer(),
            Self::Nvme(device) => device.transfer(),
            Self::Scsi(device) => device.transfer(),
        };
        let rules = match asked {
            Some(RuleSet::Zns) => Rules::Zns,
            Some(RuleSet::Zbc) => Rules::Zbc,
            None => rules,
        };
        Target { name, device, interface, rules, transfer, filters }
    }
}

/// Checks the device and prints the report.
pub(crate) fn run(global: &Global, args: &Compliance) -> Result<ExitCode> {
    let scope = args.zones.map_or(Scope::ReadOnly, Zones::scope);
    for file in args.html.iter().chain(&args.before_cut) {
        output::check(file, &[]).with_context(|| format!("writing {}", file.display()))?;
    }
    let mode = match scope {
        Scope::ReadOnly => OpenMode::ReadLocked,
        Scope::Zones { .. } => OpenMode::ReadWrite,
    };
    let overwrite = if args.force { Overwrite::Force } else { Overwrite::Refuse };
    let opened = Opened::open(&args.device, mode, overwrite)?;
    let target = opened.target(&args.device, args.rules);
    let zones = target.device.geometry().zone_count();
    if let Some(range) = args.zones.filter(|range| range.last >= zones) {
        bail!("{} has no zone {}: its last one is {}", args.device, range.last, zones - 1);
    }
    if let Some(range) = args.zones.filter(|_| !args.force) {
        refuse_data(target.device, &args.device, range)?;
    }
    if let Some(record) = &args.before_cut {
        return before_cut(global, &target, scope, record);
    }
    let report = match &args.after_cut {
        Some(record) => after_cut(&target, record)?,
        None => check(&target, scope)?,
    };
    if let Some(file) = &args.html {
        output::write(file, html::page(&report), &[])
            .with_context(|| format!("writing {}", file.display()))?;
    }
    let is_compliant = report.is_compliant();
    if global.json {
        json::document(&Answer::Checked(report))?;
    } else {
        print(&report, args.shown());
    }
    Ok(if is_compliant { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

/// Refuses a device with a file system, or a range with data.
fn refuse_data(device: &dyn ZonedDevice, name: &str, range: Zones) -> Result<()> {
    device::keep_file_system(device, name, Overwrite::Refuse)?;
    let held = signature::data_in(device, &device::report(device)?, range.first..=range.last)?;
    match held {
        Some(what) => Err(FsError::Occupied { what }).with_context(|| format!("checking {name}")),
        None => Ok(()),
    }
}

/// Tries the rules that only read, and shows no progress.
pub(super) fn short(spec: &str) -> Result<Report> {
    let opened = Opened::open(spec, OpenMode::ReadOnly, Overwrite::Refuse)?;
    let target = opened.target(spec, None);
    Ok(zonal_compliance::check(&target, Scope::ReadOnly, &mut |_, _| ())?)
}

fn check(target: &Target<'_>, scope: Scope) -> Result<Report> {
    let bar = progress::bar(0, progress::Unit::Share, "checking");
    let report = zonal_compliance::check(target, scope, &mut |rule, rules| {
        bar.set_length(rules as u64);
        bar.inc(1);
        tracing::debug!(rule, "trying a rule");
    });
    bar.finish_and_clear();
    report.with_context(|| format!("cannot check {}", target.name))
}

/// A number that differs from run to run, so that this run does not mistake older data for its own.
fn seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

fn before_cut(global: &Global, target: &Target<'_>, scope: Scope, file: &Path) -> Result<ExitCode> {
    let record = power::before_cut(target, scope, seed())
        .map_err(|why| anyhow::anyhow!("cannot prepare {}: {why}", target.name))?;
    let text = serde_json::to_string_pretty(&record).context("turning the record into JSON")?;
    output::write(file, text, &[]).with_context(|| format!("writing {}", file.display()))?;
    let written_zones = u32::try_from(record.zones.len()).unwrap_or(u32::MAX);
    if global.json {
        let (device, record) = (target.name, file);
        json::document(&Answer::Prepared(Prepared { device, record, written_zones }))?;
    } else {
        let (name, file) = (target.name, file.display());
        sayln!("{name}: {written_zones} zones written, as noted in {file}");
        sayln!("Cut the power of the device now. When it is back:");
        sayln!("  zonal compliance {name} --after-cut {file}");
    }
    Ok(ExitCode::SUCCESS)
}

fn after_cut(target: &Target<'_>, file: &Path) -> Result<Report> {
    let reading = || format!("reading {}", file.display());
    let text = std::fs::read_to_string(file).with_context(reading)?;
    let record: Record = serde_json::from_str(&text).with_context(reading)?;
    power::after_cut(target, &record).map_err(|why| {
        anyhow::anyhow!("cannot compare {} with {}: {why}", target.name, file.display())
    })
}

fn print(report: &Report, shown: Shown) {
    for outcome in &report.outcomes {
        match outcome.verdict {
            "fail" => print_broken(outcome),
            verdict if shown == Shown::All => {
                let why = outcome.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
                sayln!("{verdict} {}{why}", outcome.rule_name);
            }
            _ => {}
        }
    }
    if !report.limits.is_empty() {
        say!("{}", limits(&report.limits));
    }
    if shown == Shown::Broken && report.totals.skipped > 0 {
        say!("{}", reasons(&report.outcomes));
    }
    let totals = report.totals;
    sayln!(
        "{}: {} rules followed, {} broken (must), {} broken (should), {} not tried",
        report.device,
        count(totals.passed),
        count(totals.failed_must),
        count(totals.failed_should),
        count(totals.skipped)
    );
}

fn print_broken(outcome: &Outcome) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    sayln!("BROKEN {} ({})", outcome.rule_name, outcome.level);
    let mut lines = vec![
        ("  rule", outcome.requires.clone()),
        ("  clause", outcome.clause.to_owned()),
        ("  expected", text(&outcome.expected)),
        ("  found", text(&outcome.observed)),
    ];
    if !outcome.steps.is_empty() {
        lines.push(("  steps", outcome.steps.join("; ")));
    }
    say!("{}", table::properties(&lines));
}

/// Why rules were not tried: the commonest reasons, each with its number of rules.
fn reasons(outcomes: &[Outcome]) -> String {
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.verdict == "skip") {
        *rules.entry(outcome.reason.as_deref().unwrap_or("no reason")).or_default() += 1;
    }
    let mut reasons: Vec<(&str, u64)> = rules.into_iter().collect();
    // The sort is stable: reasons with equally many rules stay in alphabetical order.
    reasons.sort_by_key(|(_, rules)| Reverse(*rules));
    let mut text = table::Table::new(1, &["not tried because", "rules"]);
    for (reason, rules) in reasons.iter().take(REASONS_SHOWN) {
        text.row(vec![(*reason).to_owned(), count(*rules)]);
    }
    let others: u64 = reasons.iter().skip(REASONS_SHOWN).map(|(_, rules)| rules).sum();
    if others > 0 {
        text.row(vec!["of other reasons: --all".to_owned(), count(others)]);
    }
    text.text()
}

fn limits(limits: &[Limit]) -> String {
    let mut text = table::Table::new(1, &["limit", "reported", "by trial"]);
    for limit in limits {
        let number = |number: Option<u32>, none: &str| {
            number.map_or_else(|| none.to_owned(), |number| number.to_string())
        };
        let found = number(limit.trial_max, "not reached");
        text.row(vec![limit.resource.to_owned(), number(limit.reported_max, "none"), found]);
    }
    text.text()
}
