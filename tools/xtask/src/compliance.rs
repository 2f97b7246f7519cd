//! The table of runs in `docs/compliance.md`, printed from `docs/compliance/`, where each file has
//! the findings of one run. Every broken rule needs a row of the page that explains it.
//!
//! ```text
//! <!-- runs -->
//! <!-- end -->
//! ```

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::deviations;

use crate::printed::{Printed, files_of};

const RUNS: &str = "docs/compliance";
const OPEN: &str = "<!-- runs -->\n";
const CLOSE: &str = "<!-- end -->";

/// Writes the table into the document.
pub(crate) fn refresh(root: &Path) -> Result<()> {
    printed(root).refresh()
}

/// Fails if the document differs from the runs.
pub(crate) fn compare(root: &Path) -> Result<()> {
    printed(root).compare()
}

fn printed(root: &Path) -> Printed<impl Fn(&str) -> Result<String>> {
    Printed {
        documents: vec![root.join("docs/compliance.md")],
        render: move |text: &str| render(text, &root.join(RUNS)),
        source: RUNS,
        command: "cargo xtask docs",
    }
}

fn render(text: &str, folder: &Path) -> Result<String> {
    let mut table = String::from(
        "| drive | reached by | rules of | followed | broken (must) | broken (should) | not tried |\n\
         | --- | --- | --- | --: | --: | --: | --: |\n",
    );
    let mut files = files_of(folder)?;
    files.sort();
    for path in files {
        let shown = || path.display().to_string();
        let run: Value = serde_json::from_str(&fs::read_to_string(&path)?).with_context(shown)?;
        add_row(&mut table, &run, text).with_context(shown)?;
    }
    let (before, rest) = text.split_once(OPEN).context("no table is asked for")?;
    let (_, after) = rest.split_once(CLOSE).with_context(|| format!("no `{CLOSE}`"))?;
    Ok([before, OPEN, &table, CLOSE, after].concat())
}

/// A run as a row, if the document explains the broken rules.
fn add_row(table: &mut String, run: &Value, document: &str) -> Result<()> {
    let word = |name: &str| run[name].as_str().with_context(|| format!("no {name}"));
    let drive = word("drive")?;
    let broken = run["broken"].as_array().context("no broken rules")?;
    let names: Vec<&str> = broken.iter().filter_map(|rule| rule["rule_name"].as_str()).collect();
    deviations::compare(document, drive, &names)?;
    write!(table, "| {drive} | {} | {} |", word("interface")?, word("rules")?)?;
    for name in ["passed", "failed_must", "failed_should", "skipped"] {
        let count = run["totals"][name].as_u64().with_context(|| format!("no total {name}"))?;
        write!(table, " {count} |")?;
    }
    table.push('\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_becomes_a_row_if_its_broken_rules_are_explained() {
        let folder = tempfile::tempdir().expect("a directory");
        let run = r#"{"drive": "d", "interface": "block device", "rules": "zns",
            "totals": {"passed": 5, "failed_must": 1, "failed_should": 0, "skipped": 2},
            "broken": [{"rule_name": "a.b"}]}"#;
        fs::write(folder.path().join("d.json"), run).expect("written");
        let page = |rows: &str| format!("x\n<!-- runs -->\nold\n<!-- end -->\n{rows}");
        let explained = page("| d | `a.b` | because |\n");
        let new = render(&explained, folder.path()).expect("a row explains it");
        assert!(new.contains("| d | block device | zns | 5 | 1 | 0 | 2 |\n<!-- end -->"), "{new}");
        assert_eq!(render(&new, folder.path()).expect("again"), new);
        let error = render(&page(""), folder.path()).expect_err("no row explains it");
        assert!(format!("{error:#}").contains("a.b"), "{error:#}");
    }
}
