//! A report as one HTML page, which needs no other file and follows the reader's light or dark
//! mode.

use std::fmt::Write;

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

/// `text` with the special characters of HTML escaped.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let device = escape(&report.device);
    let totals = report.totals;
    let verdict = if report.is_compliant() { "no rule broken" } else { "rules broken" };
    let written = match (report.first_zone, report.last_zone) {
        (Some(first), Some(last)) => format!("zones {first} to {last} were written"),
        _ => "nothing was written".to_owned(),
    };
    let head = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Compliance of {device}</title>\
         <style>{STYLE}</style></head><body>\n<h1>Compliance of <code>{device}</code></h1>\n\
         <p>{verdict}: {} passed, <span class=\"fail\">{} broken (must)</span>, \
         <span class=\"should\">{} broken (should)</span>, {} not tried. By {}, rules of {}; \
         {written}.</p>\n",
        totals.passed,
        totals.failed_must,
        totals.failed_should,
        totals.skipped,
        report.interface,
        report.rules.to_uppercase(),
    );
    out.push_str(&head);
    limits(&mut out, report);
    failures(&mut out, report);
    everything(&mut out, report);
    out.push_str("</body></html>\n");
    out
}

fn limits(out: &mut String, report: &Report) {
    if report.limits.is_empty() {
        return;
    }
    out.push_str("<h2>Limits</h2>\n<table><tr><th>limit<th>reported<th>by trial</tr>\n");
    for limit in &report.limits {
        let number = |limit: Option<u32>, none: &str| {
            limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
        };
        let reported = number(limit.reported_max, "none");
        let found = number(limit.trial_max, "more than the range has");
        writeln!(out, "<tr><td>{}<td>{reported}<td>{found}</tr>", limit.resource)
            .expect("a string");
    }
    out.push_str("</table>\n");
}

fn failures(out: &mut String, report: &Report) {
    let mut broken = report.outcomes.iter().filter(|outcome| outcome.verdict == "fail").peekable();
    if broken.peek().is_none() {
        return;
    }
    out.push_str("<h2>Broken rules</h2>\n");
    for outcome in broken {
        let class = if outcome.level == "must" { "fail" } else { "should" };
        let text = |text: &Option<String>| escape(text.as_deref().unwrap_or_default());
        writeln!(
            out,
            "<h3 class=\"{class}\" id=\"{}\"><code>{}</code> ({})</h3>\n<p>{} <i>{}</i></p>\n\
             <p>Expected: {}<br>Found: {}</p>",
            escape(&outcome.rule_name),
            escape(&outcome.rule_name),
            outcome.level,
            escape(&outcome.requires),
            escape(outcome.clause),
            text(&outcome.expected),
            text(&outcome.observed),
        )
        .expect("a string");
        if !outcome.steps.is_empty() {
            writeln!(out, "<pre>{}</pre>", escape(&outcome.steps.join("\n"))).expect("a string");
        }
    }
}

fn everything(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>Every rule</h2>\n<table><tr><th>rule<th>level<th>requires<th>clause<th></tr>\n",
    );
    for outcome in &report.outcomes {
        let Outcome { rule_name: rule, level, requires, clause, verdict, reason, .. } = outcome;
        let class = if *verdict == "fail" && *level == "should" { "should" } else { verdict };
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {}", escape(reason)));
        writeln!(
            out,
            "<tr><td><code>{}</code><td>{level}<td>{}<td>{}<td class=\"{class}\">{verdict}{why}</tr>",
            escape(rule),
            escape(requires),
            escape(clause),
        )
        .expect("a string");
    }
    out.push_str("</table>\n");
}
