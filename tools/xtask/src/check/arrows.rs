//! Which crate may depend on which: the table of `ARCHITECTURE.md`, compared with the output of
//! `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use xtask::metadata::{list, text};

/// Compares.
pub(super) fn check(root: &Path, metadata: &Value) -> Result<()> {
    let table = std::fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    compare(&arrows(&table), metadata)
}

/// Every crate of the table, with the crates of the workspace that it may use.
fn arrows(table: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let rows = table.split_once("## Crates").map_or("", |(_, rest)| rest).lines();
    for row in rows.take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> = row.split(" |").collect();
        let [name, .., uses, _] = cells[..] else { continue };
        let Some(name) = quoted(name).next() else { continue };
        let uses = match uses.trim() {
            "all of these" => found.iter().map(|(name, _)| *name).collect(),
            uses => quoted(uses).collect(),
        };
        found.push((name, uses));
    }
    found
}

/// The words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn compare(arrows: &[(&str, Vec<&str>)], metadata: &Value) -> Result<()> {
    ensure!(!arrows.is_empty(), "ARCHITECTURE.md has no table of crates");
    let members: Vec<&str> =
        list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
    let packages = list(metadata, "packages").iter();
    let packages: Vec<&Value> =
        packages.filter(|package| members.contains(&text(package, "id"))).collect();
    let names: Vec<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = text(package, "name");
        let Some((_, allowed)) = arrows.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} is not in the table of ARCHITECTURE.md"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let target = text(dependency, "name");
            // Benchmarks of every crate may use it, and nothing that ships.
            if target == "bench-support" && text(dependency, "kind") == "dev" {
                continue;
            }
            // Tests of a crate may need a feature of it.
            if target != name && names.contains(&target) && !allowed.contains(&target) {
                wrong.push(format!("{name} must not depend on {target}"));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: &str = "| `x` | y | |\n## Crates\n| crate | one line | may use |\n| --- | --- | --- |\n\
        | `low` | at the bottom | |\n| `mid` | the middle | `low` |\n| `top` | `mid` and more | all of these |\n\
        ## Else\n| `z` | a | |\n";

    #[test]
    fn arrows_are_rows_of_table() {
        let expected = [("low", vec![]), ("mid", vec!["low"]), ("top", vec!["low", "mid"])];
        assert_eq!(arrows(TABLE), expected);
    }

    #[test]
    fn bench_support_is_free_for_benchmarks_only() {
        let compared = |kind: &str| {
            let used = json!({ "name": "bench-support", "kind": kind });
            let metadata = json!({
                "workspace_members": ["a", "b"],
                "packages": [
                    { "id": "a", "name": "low", "dependencies": [used] },
                    { "id": "b", "name": "bench-support", "dependencies": [] },
                ],
            });
            let table = TABLE.replace("| `low`", "| `bench-support` | benches | |\n| `low`");
            compare(&arrows(&table), &metadata)
        };
        assert!(compared("dev").is_ok());
        assert!(compared("build").is_err());
    }

    #[test]
    fn arrow_missing_from_table_is_refused() {
        let compared = |name: &str, dependency: &str| {
            let metadata = json!({
                "workspace_members": ["a", "b"],
                "packages": [
                    { "id": "a", "name": name, "dependencies": [{ "name": dependency }] },
                    { "id": "b", "name": "mid", "dependencies": [{ "name": "serde" }] },
                ],
            });
            compare(&arrows(TABLE), &metadata)
        };
        assert!(compared("top", "mid").is_ok());
        assert!(compared("top", "bitflags").is_ok());
        assert!(compared("low", "mid").is_err());
        assert!(compared("util", "serde").is_err());
    }
}
