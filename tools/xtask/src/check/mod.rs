//! `cargo xtask check`: checks of the source that do not run it. One file per question that needs
//! more than a command.

mod arrows;
mod clocks;
mod comments;
mod floors;
mod leftovers;
mod licences;
mod links;
mod results;
mod sizes;
mod subjects;
mod test_names;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xtask::tally::Tally;
use xtask::{cargo, metadata, plugins, run};

use crate::{compliance, docs, figures};

/// Every check.
pub(crate) fn all(root: &Path, tally: &mut Tally) {
    quick(root, tally);
    compiled(root, tally);
    for absent in plugins::absent(root) {
        tally.skip(absent.plugin, &absent.why);
    }
}

/// Checks that compile nothing.
pub(crate) fn quick(root: &Path, tally: &mut Tally) {
    tally.check("format", || quiet(cargo(root).args(["fmt", "--all", "--check"])));
    tally.check("leftovers", || leftovers::check(root));
    tally.check("file sizes and headers", || sizes::check(root));
    tally.check("floors inside folders", || floors::check(root));
    tally.check("limits of time in tests", || clocks::check(root));
    tally.check("names of tests", || test_names::check(root));
    tally.check("links between documents", || links::check(root));
    tally.check("retired words", || words::check(root));
    tally.check("columns of comments", || comments::check_columns(root));
    tally.check("subjects of comments", || comments::check_subjects(root));
    tally.check("byte tables of docs/format", || docs::compare(root));
    tally.check("table of docs/compliance.md", || compliance::compare(root));
    subjects::check(root, tally);
    results::check(root, tally);
    tally.check("tables of docs/performance", || figures::compare(root));
    match metadata::metadata(root) {
        Ok(metadata) => {
            tally.check("dependency arrows", || arrows::check(root, &metadata));
            tally.check("licences", || licences::check(&metadata));
        }
        Err(error) => tally.fail(format!("cargo metadata: {error:#}")),
    }
}

/// Checks that need the compiler.
pub(crate) fn compiled(root: &Path, tally: &mut Tally) {
    tally.check("clippy", || {
        let mut clippy = cargo(root);
        clippy.args(["clippy", "--quiet"]).args(plugins::workspace(root));
        quiet(clippy.args(["--all-targets", "--", "-Dwarnings"]))
    });
    tally.check("crates can be packaged", || packaged(root));
    tally.check("documentation builds", || documented(root));
}

/// The pages of every crate, private items included: an error in a public item is an error here.
/// Cargo documents the command only by its own name: a library is called `zonal` too.
fn documented(root: &Path) -> Result<()> {
    let command = ["--package=zonal-cli", "--bin=zonal"].map(str::to_owned);
    for which in [plugins::workspace(root), command.to_vec()] {
        let mut doc = cargo(root);
        doc.args(["doc", "--quiet", "--no-deps", "--document-private-items"]).args(which);
        let output =
            doc.env("RUSTDOCFLAGS", "-Dwarnings").output().context("starting cargo doc")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && !told.contains("warning:"), "{told}");
    }
    Ok(())
}

/// Every crate that is more than a tool of this workspace, without as much as a warning.
fn packaged(root: &Path) -> Result<()> {
    let tools = ["bench-support", "xtask", "kernel-tests", "kv-bench", "packaging"]
        .map(|name| format!("--exclude={name}"));
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
    ensure!(!found.is_empty(), "no file below {} ends in {endings:?}", root.display());
    found.sort();
    Ok(found)
}

/// Files of ours below `root` whose name ends in one of `endings`: path from `root`, and text.
fn texts(root: &Path, endings: &[&str]) -> Result<Vec<(String, String)>> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        Ok((path.strip_prefix(root).unwrap_or(&path).display().to_string(), text))
    };
    files(root, endings)?.into_iter().map(read).collect()
}

/// Fails with all that `wrong` finds in the text of these files, if that is anything.
fn refuse(root: &Path, endings: &[&str], wrong: impl Fn(&str, &str) -> Vec<String>) -> Result<()> {
    let mut found = Vec::new();
    for (path, text) in texts(root, endings)? {
        found.extend(wrong(&path, &text).iter().map(|what| format!("{path}{what}")));
    }
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}

/// The errors that `wrong` finds, each with the number of its line.
fn by_line(text: &str, wrong: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let numbered = text.lines().zip(1..);
    numbered.filter_map(|(line, at)| wrong(line).map(|what| format!(":{at}: {what}"))).collect()
}
