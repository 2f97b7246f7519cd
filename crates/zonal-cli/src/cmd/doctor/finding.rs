//! A finding, and the report that has all of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use zonal::shown;

use crate::output::table;

/// How bad a finding is. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Something does not work.
    Broken,
    /// It works, but slowly, or it may fail or lose data.
    Risk,
    /// Nothing is wrong; it is good to know.
    Note,
}

impl Severity {
    const fn name(self) -> &'static str {
        match self {
            Self::Broken => "BROKEN",
            Self::Risk => "RISK",
            Self::Note => "NOTE",
        }
    }
}

/// A symptom, its meaning, and a remedy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Finding {
    /// How bad it is: `broken`, `risk` or `note`.
    pub(super) severity: Severity,
    /// The disk, device, mount or part of the machine.
    pub(super) subject: String,
    /// The symptom.
    pub(super) symptom: String,
    /// Its meaning.
    pub(super) consequence: String,
    /// The remedy.
    pub(super) remedy: String,
}

impl Finding {
    /// A finding with its text: symptom, meaning, remedy.
    pub(super) fn new(
        severity: Severity,
        subject: &str,
        [symptom, means, remedy]: [&str; 3],
    ) -> Self {
        Self {
            severity,
            subject: subject.to_owned(),
            symptom: symptom.to_owned(),
            consequence: means.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// The finding for people.
    fn text(&self) -> String {
        let [subject, symptom, means, remedy] =
            [&self.subject, &self.symptom, &self.consequence, &self.remedy].map(shown);
        let lines = table::properties(&[("  meaning", means), ("  try", remedy)]);
        format!("\n{} {subject}: {symptom}\n{lines}", self.severity.name())
    }

    pub(super) fn broken(subject: &str, text: [&str; 3]) -> Self {
        Self::new(Severity::Broken, subject, text)
    }

    pub(super) fn risk(subject: &str, text: [&str; 3]) -> Self {
        Self::new(Severity::Risk, subject, text)
    }

    pub(super) fn note(subject: &str, text: [&str; 3]) -> Self {
        Self::new(Severity::Note, subject, text)
    }
}

/// Facts by name, and findings so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) facts: BTreeMap<String, String>,
    pub(super) findings: Vec<Finding>,
}

impl Seen {
    pub(super) fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.insert(name.into(), value.into());
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}

/// All that the command saw.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The subject: `machine`, or a device or mount point as the command line names it.
    looked_at: String,
    /// Whether nothing is wrong: all findings are notes.
    pub(super) healthy: bool,
    /// The findings, the worst first.
    findings: Vec<Finding>,
    /// Facts, by name.
    pub(super) facts: BTreeMap<String, String>,
}

impl Report {
    pub(super) fn new(looked_at: &str, seen: Seen) -> Self {
        let Seen { facts, mut findings } = seen;
        // The sort is stable: rules that look first come first.
        findings.sort_by_key(|finding| finding.severity);
        let healthy = findings.iter().all(|finding| finding.severity == Severity::Note);
        Self { looked_at: looked_at.to_owned(), healthy, findings, facts }
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let facts: Vec<(&str, String)> =
            self.facts.iter().map(|(name, value)| (&**name, shown(value))).collect();
        let mut text = table::properties(&facts);
        for finding in &self.findings {
            text.push_str(&finding.text());
        }
        let wrong = self.findings.iter().filter(|found| found.severity != Severity::Note).count();
        let verdict = match wrong {
            0 => "nothing is wrong".to_owned(),
            1 => "1 thing is wrong".to_owned(),
            wrong => format!("{wrong} things are wrong"),
        };
        text + &format!("\n{}: {verdict}\n", shown(&self.looked_at))
    }
}
