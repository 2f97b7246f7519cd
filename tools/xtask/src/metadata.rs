//! The data of `cargo metadata` about the workspace and all its dependencies.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{cargo, run};

/// All of it, for this machine's target.
pub fn metadata(root: &Path) -> Result<Value> {
    let version = run::quietly(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    let arguments = ["metadata", "--format-version=1", "--filter-platform", host];
    let json = run::quietly(cargo(root).args(arguments))?;
    serde_json::from_str(&json).context("cargo metadata is not JSON")
}

/// The string under `key`, or nothing.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The elements of the array under `key`.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}
