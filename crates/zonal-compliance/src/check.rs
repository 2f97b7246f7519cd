//! Performs rules, and reports their outcomes.

use serde::Serialize;
use zonal::{Lba, Zone, ZoneCond, ZoneId, ZonedDevice};

use crate::bench::{self, Bench, Checked, Stop};
use crate::cases::{self, Case};
use crate::limits::{self, Limit};
use crate::rule::{Level, Needs, Row, Rule, Try, Verdict};
use crate::target::Target;
use crate::{all, appends, conventional, filters, preferred, reads, reports, zones};

/// The zones that a check may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing.
    ReadOnly,
    /// The zones from one to another; their data is lost.
    Zones {
        /// The first.
        first: ZoneId,
        /// The last.
        last: ZoneId,
    },
}

impl Scope {
    fn has(self, zone: ZoneId) -> bool {
        match self {
            Self::ReadOnly => false,
            Self::Zones { first, last } => first <= zone && zone <= last,
        }
    }
}

/// The outcome of a rule.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Name of the rule.
    pub rule_name: String,
    /// Where the specification has it.
    pub clause: &'static str,
    /// `must` or `should`.
    pub level: &'static str,
    /// The requirement, as a sentence.
    pub requires: String,
    /// `pass`, `fail` or `skip`.
    pub verdict: &'static str,
    /// The behaviour that it demands here, if the device breaks it.
    pub expected: Option<String>,
    /// The behaviour of the device.
    pub observed: Option<String>,
    /// The requests that show it, in order.
    pub steps: Vec<String>,
    /// Why it was not tried, if it was not.
    pub reason: Option<String>,
}

/// How many rules came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Rules that the device follows.
    pub passed: u64,
    /// Rules of level `must` that it breaks.
    pub failed_must: u64,
    /// Rules of level `should` that it breaks.
    pub failed_should: u64,
    /// Rules that were not tried.
    pub skipped: u64,
}

/// The outcomes of all rules on a device.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The device, as the command line names it.
    pub device: String,
    /// How it was reached.
    pub interface: &'static str,
    /// `zns` or `zbc`: whose rules it was held to where they differ.
    pub rules: &'static str,
    /// First zone that was written; null if none was.
    pub first_zone: Option<u32>,
    /// Last zone that was written; null if none was.
    pub last_zone: Option<u32>,
    /// How many rules came out how.
    pub totals: Totals,
    /// Limits by trial; empty if nothing was written.
    pub limits: Vec<Limit>,
    /// Every rule.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Whether the device follows every rule of level `must` that was tried.
    pub const fn is_compliant(&self) -> bool {
        self.totals.failed_must == 0
    }
}

/// How a rule is tried.
#[derive(Clone, Copy)]
enum Check {
    /// By a function of its own.
    By(Try),
    /// By a case of the state machine.
    Case(Case),
}

/// Every rule, in the order in which they are tried, as one set of rules words it.
pub fn rules(set: zonal::Rules) -> Vec<Rule> {
    trials(set).into_iter().map(|(rule, _)| rule).collect()
}

fn trials(set: zonal::Rules) -> Vec<(Rule, Check)> {
    let by = |(rule, check)| (rule, Check::By(check));
    let of = |rows: &[&'static [Row]]| {
        rows.iter().copied().flatten().map(Row::rule).map(by).collect::<Vec<_>>()
    };
    let mut trials = of(&[reports::ROWS, reads::ROWS, zones::ROWS, appends::ROWS]);
    trials.extend(filters::rules().into_iter().map(by));
    trials.extend(cases::rules(set).into_iter().map(|(rule, case)| (rule, Check::Case(case))));
    trials.extend(of(&[limits::ROWS, all::ROWS, conventional::ROWS]));
    if set == zonal::Rules::Zbc {
        trials.extend(of(&[preferred::ROWS]));
    }
    trials
}

/// Checks `target`. `progress` gets the name of each rule, and how many there are.
pub fn check(
    target: &Target<'_>,
    scope: Scope,
    progress: &mut dyn FnMut(&str, usize),
) -> zonal::error::Result<Report> {
    let before = target.device.report_all()?;
    let samples = samples(target.device, &before, scope);
    let bench = Bench::new(target, before.clone(), |zone| scope.has(zone));
    let trials = trials(target.rules);
    let mut outcomes = Vec::with_capacity(trials.len() + 1);
    let mut run = Run { bench: &bench, scope, last: None };
    for (rule, check) in &trials {
        progress(&rule.id, trials.len());
        let verdict = run.verdict(rule, *check);
        outcomes.push(outcome(rule, verdict));
    }
    let mut found_limits = Vec::new();
    if scope != Scope::ReadOnly {
        found_limits = limits::found(&bench);
        // The next user of the device finds empty zones. If a reset fails, a rule has shown that.
        let _ = bench.reset_range();
        for zone in &bench.preferred {
            let _ = bench.reset(zone);
        }
    }
    outcomes.push(outside(target.device, scope, &before, &samples));
    Ok(summary(target, scope, found_limits, outcomes))
}

/// A run over the rules.
struct Run<'a> {
    bench: &'a Bench<'a>,
    scope: Scope,
    last: Option<Last>,
}

/// The last case, whose aspects are rules one after the other.
struct Last {
    case: Case,
    seen: Result<cases::Observation, Stop>,
    steps: Vec<String>,
}

impl Run<'_> {
    fn verdict(&mut self, rule: &Rule, check: Check) -> Verdict {
        if let Err(Stop::Skip(reason)) = self.meets(rule.needs) {
            return Verdict::Skip { reason };
        }
        match check {
            Check::By(check) => {
                self.bench.take_steps();
                let checked = check(self.bench);
                verdict(checked, || self.bench.take_steps())
            }
            Check::Case(case) => self.case(case),
        }
    }

    fn meets(&self, needs: Needs) -> Checked {
        let skip = |reason: String| Err(Stop::Skip(reason));
        if needs != Needs::Reading && self.scope == Scope::ReadOnly {
            return skip("it writes, and no zones may be written".to_owned());
        }
        match needs {
            Needs::Zones(count) if self.bench.zones.len() < count => {
                skip(format!("it needs {count} sequential zones in the range"))
            }
            Needs::Conventional if self.bench.conventional.is_empty() => {
                skip("the range has no conventional zone".to_owned())
            }
            Needs::Preferred if self.bench.preferred.is_empty() => {
                skip("the range has no sequential write preferred zone".to_owned())
            }
            Needs::Reading | Needs::Zones(_) | Needs::Conventional | Needs::Preferred => Ok(()),
        }
    }

    fn case(&mut self, case: Case) -> Verdict {
        let same =
            |last: &Last| last.case.start == case.start && last.case.operation == case.operation;
        if !self.last.as_ref().is_some_and(same) {
            let seen = cases::observe(self.bench, case);
            let steps = self.bench.take_steps();
            self.last = Some(Last { case, seen, steps });
        }
        let last = self.last.as_ref().expect("it was just made");
        let checked = match &last.seen {
            Ok(seen) => cases::judge(self.bench, case, seen),
            Err(stop) => Err(stop.clone()),
        };
        verdict(checked, || last.steps.clone())
    }
}

fn verdict(checked: Checked, steps: impl FnOnce() -> Vec<String>) -> Verdict {
    match checked {
        Ok(()) => Verdict::Pass,
        Err(Stop::Skip(reason)) => Verdict::Skip { reason },
        Err(Stop::Fail { expected, found }) => Verdict::Fail { expected, found, steps: steps() },
    }
}

pub(crate) fn outcome(rule: &Rule, verdict: Verdict) -> Outcome {
    let mut outcome = Outcome {
        rule_name: rule.id.clone(),
        clause: rule.clause,
        level: rule.level.name(),
        requires: rule.requires.clone(),
        verdict: "pass",
        expected: None,
        observed: None,
        steps: Vec::new(),
        reason: None,
    };
    match verdict {
        Verdict::Pass => {}
        Verdict::Fail { expected, found, steps } => {
            outcome.verdict = "fail";
            (outcome.expected, outcome.observed, outcome.steps) =
                (Some(expected), Some(found), steps);
        }
        Verdict::Skip { reason } => (outcome.verdict, outcome.reason) = ("skip", Some(reason)),
    }
    outcome
}

pub(crate) fn summary(
    target: &Target<'_>,
    scope: Scope,
    limits: Vec<Limit>,
    outcomes: Vec<Outcome>,
) -> Report {
    let mut totals = Totals::default();
    for outcome in &outcomes {
        let count = match (outcome.verdict, outcome.level) {
            ("pass", _) => &mut totals.passed,
            ("skip", _) => &mut totals.skipped,
            (_, "must") => &mut totals.failed_must,
            _ => &mut totals.failed_should,
        };
        *count += 1;
    }
    let (first_zone, last_zone) = match scope {
        Scope::ReadOnly => (None, None),
        Scope::Zones { first, last } => (Some(first.get()), Some(last.get())),
    };
    Report {
        device: target.name.to_owned(),
        interface: target.interface.name(),
        rules: match target.rules {
            zonal::Rules::Zns => "zns",
            zonal::Rules::Zbc => "zbc",
        },
        first_zone,
        last_zone,
        totals,
        limits,
        outcomes,
    }
}

/// Zones outside the range of which a block is compared.
const SAMPLES: usize = 64;

/// The first block of a zone.
struct Sample {
    lba: Lba,
    data: Option<Vec<u8>>,
}

fn first_block(device: &dyn ZonedDevice, lba: Lba) -> Option<Vec<u8>> {
    let block = usize::try_from(device.geometry().block_size().bytes()).expect("a block");
    bench::read(device, lba, block).ok()
}

fn samples(device: &dyn ZonedDevice, zones: &[Zone], scope: Scope) -> Vec<Sample> {
    let outside = zones.iter().filter(|zone| !scope.has(zone.id) && scope != Scope::ReadOnly);
    let holds = |zone: &&Zone| zone.wp != Some(zone.start);
    let sample = |zone: &Zone| Sample { lba: zone.start, data: first_block(device, zone.start) };
    outside.filter(holds).take(SAMPLES).map(sample).collect()
}

/// Whether zones outside the range are as they were.
fn outside(device: &dyn ZonedDevice, scope: Scope, before: &[Zone], samples: &[Sample]) -> Outcome {
    let changed = |(old, new): &(&Zone, &Zone)| {
        let closed = old.cond == ZoneCond::ImplicitOpen && new.cond == ZoneCond::Closed;
        !scope.has(old.id) && (old.wp != new.wp || old.cond != new.cond && !closed)
    };
    let verdict = match device.report_all() {
        Err(error) => Err(error.to_string()),
        Ok(after) => match before.iter().zip(&after).find(changed) {
            Some((old, new)) => {
                Err(format!("zone {} was {} and is {}", old.id, old.cond.name(), new.cond.name()))
            }
            None => samples
                .iter()
                .find(|sample| first_block(device, sample.lba) != sample.data)
                .map_or(Ok(()), |sample| Err(format!("block {} has changed", sample.lba))),
        },
    };
    let rule = Rule {
        id: "range.outside".to_owned(),
        clause: "ZNS 1.1, 2.1.1 (a zone changes by requests for it)",
        requires: "Zones for which there was no request are as they were.".to_owned(),
        level: Level::Must,
        needs: Needs::Reading,
    };
    let verdict = match verdict {
        Ok(()) => Verdict::Pass,
        Err(found) => {
            let expected = "no change of a zone outside the range".to_owned();
            Verdict::Fail { expected, found, steps: Vec::new() }
        }
    };
    outcome(&rule, verdict)
}
