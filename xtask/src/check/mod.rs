//! `cargo xtask check`: what can be said about the source without running it. One file per
//! question that needs more than a command.

mod arrows;
mod leftovers;
mod licences;
mod links;
mod sizes;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xtask::tally::Tally;
use xtask::{cargo, run};

use crate::docs;

/// Every check.
pub(crate) fn all(root: &Path, tally: &mut Tally) {
    quick(root, tally);
    compiled(root, tally);
}

/// Those that compile nothing.
pub(crate) fn quick(root: &Path, tally: &mut Tally) {
    tally.check("format", || quiet(cargo(root).args(["fmt", "--all", "--check"])));
    tally.check("leftovers", || leftovers::check(root));
    tally.check("file sizes and headers", || sizes::check(root));
    tally.check("links between documents", || links::check(root));
    tally.check("retired words", || words::check(root));
    tally.check("byte tables of docs/format", || docs::compare(root));
    match metadata(root) {
        Ok(metadata) => {
            tally.check("dependency arrows", || arrows::check(&metadata));
            tally.check("licences", || licences::check(&metadata));
        }
        Err(error) => tally.fail(format!("cargo metadata: {error:#}")),
    }
}

/// Those that take the compiler.
pub(crate) fn compiled(root: &Path, tally: &mut Tally) {
    tally.check("clippy", || {
        quiet(cargo(root).args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-Dwarnings",
        ]))
    });
    tally.check("crates can be packaged", || packaged(root));
    tally.check("documentation builds", || {
        quiet(
            cargo(root)
                .args(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"])
                // Who reads the source follows links to what is private.
                .env("RUSTDOCFLAGS", "-Dwarnings -Arustdoc::private-intra-doc-links"),
        )
    });
}

/// Every crate that is more than a tool of this workspace, without as much as a warning.
fn packaged(root: &Path) -> Result<()> {
    let tools = ["xtask", "kernel-tests"].map(|name| format!("--exclude={name}"));
    let mut package = cargo(root);
    package.args(["package", "--workspace", "--offline", "--no-verify", "--allow-dirty"]);
    let output = package.args(tools).output().context("starting cargo package")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && !told.contains("warning:"), "{told}");
    Ok(())
}

fn quiet(command: &mut Command) -> Result<()> {
    run::quietly(command).map(|_| ())
}

pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let version = run::quietly(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV names no host")?;
    let json = run::quietly(cargo(root).args([
        "metadata",
        "--format-version=1",
        "--filter-platform",
        host,
    ]))?;
    serde_json::from_str(&json).context("cargo metadata is not JSON")
}

/// The string under `key`, or nothing.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The elements of the array under `key`.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Files of ours below `root` whose name ends in one of `endings`, sorted.
fn files(root: &Path, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let listed = run::quietly(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )?;
    let mut found: Vec<_> = listed
        .split('\0')
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .map(|name| root.join(name))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    Ok(found)
}

/// Fails if `wrong` says of a line in one of these files what is wrong with it; lists all such lines.
fn refuse_lines(
    root: &Path,
    endings: &[&str],
    wrong: impl Fn(&Path, &str) -> Option<String>,
) -> Result<()> {
    let mut found = Vec::new();
    for path in files(root, endings)? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        for (index, line) in text.lines().enumerate() {
            if let Some(what) = wrong(&path, line) {
                found.push(format!("{}:{}: {what}", shown(root, &path), index + 1));
            }
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}

/// `path` as a person would name it.
fn shown<'a>(root: &Path, path: &'a Path) -> std::path::Display<'a> {
    path.strip_prefix(root).unwrap_or(path).display()
}
