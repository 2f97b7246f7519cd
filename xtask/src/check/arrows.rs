//! Which crate may depend on which: the arrows of `ARCHITECTURE.md`, compared with what
//! `cargo metadata` says.

use anyhow::{Result, bail};
use serde_json::Value;

use super::{list, text};

/// Every crate of the workspace, with the crates of the workspace that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("zonal", &[]),
    ("zonal-eval", &["zonal", "zonal-fs", "zonal-sim"]),
    ("zonal-ffi", &["zonal", "zonal-fs", "zonal-linux"]),
    ("zonal-fs", &["zonal"]),
    ("zonal-fuse", &["zonal", "zonal-fs"]),
    ("zonal-linux", &["zonal"]),
    ("zonal-nvme", &["zonal"]),
    ("zonal-sim", &["zonal"]),
    (
        "zonal-cli",
        &[
            "zonal",
            "zonal-eval",
            "zonal-fs",
            "zonal-fuse",
            "zonal-linux",
            "zonal-nvme",
            "zonal-sim",
        ],
    ),
    ("xtask", &[]),
    ("kernel-tests", &["xtask"]),
];

/// Compares.
pub(super) fn check(metadata: &Value) -> Result<()> {
    let members: Vec<&str> =
        list(metadata, "workspace_members").iter().filter_map(Value::as_str).collect();
    let packages: Vec<&Value> = list(metadata, "packages")
        .iter()
        .filter(|package| members.contains(&text(package, "id")))
        .collect();
    let names: Vec<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = text(package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} is not in the list of {}", file!()));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let target = text(dependency, "name");
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

    fn metadata(name: &str, dependency: &str) -> Value {
        json!({
            "workspace_members": ["a", "b"],
            "packages": [
                { "id": "a", "name": name, "dependencies": [{ "name": dependency }] },
                { "id": "b", "name": "zonal-fs", "dependencies": [{ "name": "serde" }] },
            ],
        })
    }

    #[test]
    fn an_arrow_upwards_is_refused() {
        assert!(check(&metadata("zonal-fuse", "zonal-fs")).is_ok());
        assert!(check(&metadata("zonal-fuse", "bitflags")).is_ok());
        assert!(check(&metadata("zonal", "zonal-fs")).is_err());
    }

    #[test]
    fn a_crate_that_is_not_listed_is_refused() {
        assert!(check(&metadata("zonal-util", "serde")).is_err());
    }
}
