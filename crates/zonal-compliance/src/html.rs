//! A report as one HTML page, which needs no other file and follows the reader's light or dark
//! mode.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::check::{Outcome, Report};

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1a1a1a;--bg:#fff;--line:#ccc;--pass:#1a7f37;--fail:#b3261e;\
--warn:#8a5a00;--dim:#666}\
@media(prefers-color-scheme:dark){:root{--fg:#e6e6e6;--bg:#16181c;--line:#3a3f47;--pass:#56c271;\
--fail:#ff7b72;--warn:#e3b341;--dim:#9aa4b2}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:72rem;\
margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%;margin:1rem 0}\
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}\
code,pre{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}\
.pass{color:var(--pass)}.fail{color:var(--fail)}.should{color:var(--warn)}.skip{color:var(--dim)}";

/// The page.
pub fn page(report: &Report) -> String {
    let Report { device, totals, interface, .. } = report;
    let verdict = if report.is_compliant() { "no rule broken" } else { "rules broken" };
    let written = match (report.first_zone, report.last_zone) {
        (Some(first), Some(last)) => format!("zones {first} to {last} were written"),
        _ => "nothing was written".to_owned(),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Compliance of " (device) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Compliance of " code { (device) } }
                p {
                    (verdict) ": " (totals.passed) " passed, "
                    span.fail { (totals.failed_must) " broken (must)" } ", "
                    span.should { (totals.failed_should) " broken (should)" } ", "
                    (totals.skipped) " not tried. By " (interface) ", rules of "
                    (report.rules.to_uppercase()) "; " (written) "."
                }
                (limits(report)) (failures(report)) (everything(report))
            }
        }
    };
    page.into_string()
}

fn limits(report: &Report) -> Markup {
    let number = |limit: Option<u32>, none: &str| {
        limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
    };
    html! {
        @if !report.limits.is_empty() {
            h2 { "Limits" }
            table {
                tr { th { "limit" } th { "reported" } th { "by trial" } }
                @for limit in &report.limits {
                    tr {
                        td { (limit.resource) }
                        td { (number(limit.reported_max, "none")) }
                        td { (number(limit.trial_max, "more than the range has")) }
                    }
                }
            }
        }
    }
}

/// The colour of a verdict.
fn class(outcome: &Outcome) -> &str {
    let is_advice = outcome.verdict == "fail" && outcome.level == "should";
    if is_advice { "should" } else { outcome.verdict }
}

fn failures(report: &Report) -> Markup {
    let broken = || report.outcomes.iter().filter(|outcome| outcome.verdict == "fail");
    html! {
        @if broken().next().is_some() { h2 { "Broken rules" } }
        @for outcome in broken() {
            h3 class=(class(outcome)) id=(outcome.rule_name) {
                code { (outcome.rule_name) } " (" (outcome.level) ")"
            }
            p { (outcome.requires) " " i { (outcome.clause) } }
            p {
                "Expected: " (outcome.expected.as_deref().unwrap_or_default()) br;
                "Found: " (outcome.observed.as_deref().unwrap_or_default())
            }
            @if !outcome.steps.is_empty() { pre { (outcome.steps.join("\n")) } }
        }
    }
}

fn everything(report: &Report) -> Markup {
    html! {
        h2 { "Every rule" }
        table {
            tr { th { "rule" } th { "level" } th { "requires" } th { "clause" } th {} }
            @for outcome in &report.outcomes {
                tr {
                    td { code { (outcome.rule_name) } }
                    td { (outcome.level) }
                    td { (outcome.requires) }
                    td { (outcome.clause) }
                    td class=(class(outcome)) {
                        (outcome.verdict)
                        @if let Some(reason) = &outcome.reason { ": " (reason) }
                    }
                }
            }
        }
    }
}
