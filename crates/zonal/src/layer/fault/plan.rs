//! Fault plans: which operation fails, when, and how. Written as text on the command line.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::ZoneAction;

/// Which faults a [`Fault`](super::Fault) layer makes.
///
/// As text: rules separated by `;`, each a list of words separated by `,`. The first word is the
/// operation: `read`, `write` (appends too), `append`, `flush`, `deallocate`, `open`, `close`,
/// `finish`, `reset`, `manage` (the last four) or `any`. The others, in any order:
///
/// | word | meaning |
/// | --- | --- |
/// | `zone=3`, `zone=3-5` | only in these zones |
/// | `nth=4` | the fourth such operation, once |
/// | `from=4` | the fourth and all after it |
/// | `times=2` | at most twice |
/// | `p=0.01` | with this probability |
/// | `medium` | fails with a medium error (if nothing else is said) |
/// | `late` | is done, and fails all the same |
/// | `torn` | a write: a part of its blocks is stored, then it fails |
/// | `flip` | a read: returns data with one bit changed, always the same bit of a block |
/// | `active-limit`, `open-limit` | fails as if too many zones were active or open |
/// | `readonly`, `offline` | fails, and its zone with it, for good |
/// | `power-cut` | the power is gone: see [`Fault`](super::Fault) |
///
/// `seed=7` as a rule of its own sets the seed of everything random.
///
/// ```
/// use zonal::layer::fault::FaultPlan;
/// let plan: FaultPlan = "write,zone=3-5,nth=4;read,p=0.01,flip;seed=7".parse()?;
/// assert_eq!(plan.to_string(), "write,zone=3-5,from=4,times=1,medium;read,p=0.01,flip;seed=7");
/// # Ok::<(), zonal::layer::fault::PlanError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// The rules. The first that fires decides.
    pub rules: Vec<FaultRule>,
    /// Seed of everything random.
    pub seed: u64,
}

/// One rule of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Which operations it is for.
    pub op: FaultOp,
    /// Which zones; `None`: all. A read or write counts by its first block's zone.
    pub zones: Option<RangeInclusive<u32>>,
    /// The first operation, counted from 1, that it can fire at.
    pub from: u64,
    /// How often it fires at most.
    pub times: Option<u64>,
    /// How likely it fires.
    pub probability: f64,
    /// The effect.
    pub kind: FaultKind,
}

impl FaultRule {
    /// A rule that fires at each `op`.
    pub const fn new(op: FaultOp, kind: FaultKind) -> Self {
        Self { op, zones: None, from: 1, times: None, probability: 1.0, kind }
    }

    /// The same rule, but it fires once, at the `nth` operation, counted from 1.
    #[must_use]
    pub fn at_nth(self, nth: u64) -> Self {
        Self { from: nth, times: Some(1), ..self }
    }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// Read.
    Read,
    /// Write or append.
    Write,
    /// Append.
    Append,
    /// Flush.
    Flush,
    /// Deallocation.
    Deallocate,
    /// One zone action.
    Action(ZoneAction),
    /// Any zone action.
    Manage,
    /// Anything but a report.
    Any,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Fails with [`DeviceError::Medium`](crate::DeviceError::Medium); nothing is done.
    Medium,
    /// Is done, and fails with a medium error all the same.
    Late,
    /// A write stores a part of its blocks, then fails with a medium error.
    Torn,
    /// A read returns data with one bit changed.
    Flip,
    /// Fails with [`DeviceError::TooManyActive`](crate::DeviceError::TooManyActive).
    ActiveLimit,
    /// Fails with [`DeviceError::TooManyOpen`](crate::DeviceError::TooManyOpen).
    OpenLimit,
    /// The zone becomes ReadOnly.
    ReadOnly,
    /// The zone becomes Offline.
    Offline,
    /// The power is gone.
    PowerCut,
}

const OPS: [(&str, FaultOp); 11] = [
    ("read", FaultOp::Read),
    ("write", FaultOp::Write),
    ("append", FaultOp::Append),
    ("flush", FaultOp::Flush),
    ("deallocate", FaultOp::Deallocate),
    ("open", FaultOp::Action(ZoneAction::Open)),
    ("close", FaultOp::Action(ZoneAction::Close)),
    ("finish", FaultOp::Action(ZoneAction::Finish)),
    ("reset", FaultOp::Action(ZoneAction::Reset)),
    ("manage", FaultOp::Manage),
    ("any", FaultOp::Any),
];

const KINDS: [(&str, FaultKind); 9] = [
    ("medium", FaultKind::Medium),
    ("late", FaultKind::Late),
    ("torn", FaultKind::Torn),
    ("flip", FaultKind::Flip),
    ("active-limit", FaultKind::ActiveLimit),
    ("open-limit", FaultKind::OpenLimit),
    ("readonly", FaultKind::ReadOnly),
    ("offline", FaultKind::Offline),
    ("power-cut", FaultKind::PowerCut),
];

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault rule '{rule}': {what}")]
pub struct PlanError {
    /// The rule.
    pub rule: String,
    /// The reason.
    pub what: String,
}

impl FromStr for FaultPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for rule in text.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let error = |what| PlanError { rule: rule.to_owned(), what };
            match rule.strip_prefix("seed=") {
                Some(seed) => plan.seed = number(seed).map_err(error)?,
                None => plan.rules.push(parse_rule(rule).map_err(error)?),
            }
        }
        Ok(plan)
    }
}

fn parse_rule(rule: &str) -> Result<FaultRule, String> {
    let mut words = rule.split(',').map(str::trim);
    let first = words.next().unwrap_or_default();
    let op = OPS.iter().find(|(name, _)| *name == first).map(|(_, op)| *op);
    let op = op.ok_or_else(|| format!("'{first}' is no operation; try {}", names(&OPS)))?;
    let mut rule = FaultRule::new(op, FaultKind::Medium);
    for word in words {
        if let Some((_, kind)) = KINDS.iter().find(|(name, _)| *name == word) {
            rule.kind = *kind;
            continue;
        }
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "zone" => rule.zones = Some(parse_zones(value)?),
            "nth" => rule = rule.at_nth(ordinal(value)?),
            "from" => rule.from = ordinal(value)?,
            "times" => rule.times = Some(number(value)?),
            "p" => rule.probability = parse_probability(value)?,
            _ => return Err(format!("'{word}' is no fault; try {}", names(&KINDS))),
        }
    }
    let fits = match rule.kind {
        FaultKind::Flip => op == FaultOp::Read,
        FaultKind::Torn => matches!(op, FaultOp::Write | FaultOp::Append),
        FaultKind::ReadOnly | FaultKind::Offline => op != FaultOp::Flush,
        FaultKind::Medium
        | FaultKind::Late
        | FaultKind::ActiveLimit
        | FaultKind::OpenLimit
        | FaultKind::PowerCut => true,
    };
    if fits { Ok(rule) } else { Err(format!("'{first}' cannot fail in this way")) }
}

fn names<T>(table: &[(&str, T)]) -> String {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number that fits"))
}

/// Operations are counted from 1 on.
fn ordinal(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("there is no operation 0: the first is 1".into()),
        ordinal => Ok(ordinal),
    }
}

fn parse_zones(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let zones = number(first)?..=number(last)?;
    if zones.is_empty() {
        Err(format!("zones {text}: the last is before the first"))
    } else {
        Ok(zones)
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let probability: f64 = number(text)?;
    let valid = (0.0..=1.0).contains(&probability);
    if valid { Ok(probability) } else { Err(format!("a probability of {text}")) }
}

/// The text that [`FromStr`] reads.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rule in &self.rules {
            write!(f, "{rule};")?;
        }
        write!(f, "seed={}", self.seed)
    }
}

impl fmt::Display for FaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = OPS.iter().find(|(_, op)| *op == self.op).expect("every operation has a name");
        let kind =
            KINDS.iter().find(|(_, kind)| *kind == self.kind).expect("every kind has a name");
        f.write_str(op.0)?;
        match &self.zones {
            Some(zones) if zones.start() == zones.end() => write!(f, ",zone={}", zones.start())?,
            Some(zones) => write!(f, ",zone={}-{}", zones.start(), zones.end())?,
            None => {}
        }
        if self.from > 1 {
            write!(f, ",from={}", self.from)?;
        }
        if let Some(times) = self.times {
            write!(f, ",times={times}")?;
        }
        if self.probability < 1.0 {
            write!(f, ",p={}", self.probability)?;
        }
        write!(f, ",{}", kind.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plan_parse_explains_errors() {
        for (text, part) in [
            ("wrote", "'wrote' is no operation"),
            ("write,nth=x", "'x' is not a number"),
            ("write,zone=5-3", "the last is before the first"),
            ("read,nth=0", "the first is 1"),
            ("read,torn", "cannot fail in this way"),
            ("read,p=1.5", "probability"),
            ("read,p=NaN", "probability"),
            ("read,sometimes", "'sometimes' is no fault"),
            ("seed=-1", "not a number"),
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!("".parse(), Ok(FaultPlan::default()));
    }

    proptest! {
        #[test]
        fn plan_text_round_trips(text in "((read|write|reset|any)(,(zone=[0-9]{1,3}|nth=[0-9]{1,3}|from=[1-9]|times=[0-9]|p=0\\.[0-9]{1,3}|late|power-cut)){0,4};?){0,3}") {
            if let Ok(plan) = text.parse::<FaultPlan>() {
                prop_assert_eq!(plan.to_string().parse::<FaultPlan>(), Ok(plan));
            }
        }

        #[test]
        fn plan_parse_handles_any_text(text in "\\PC*") {
            let _ = text.parse::<FaultPlan>();
        }
    }
}
