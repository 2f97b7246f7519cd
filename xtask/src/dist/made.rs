//! What packages contain and the repository does not: the program without its debug information,
//! what it says about its own command line, changelogs, and the licences of all that is compiled in.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::{cargo, run};

use super::{Place, VERSION, epoch, fresh};
use crate::check::{self, list, text};

/// Makes all of it in `made`.
pub(super) fn all(place: &Place) -> Result<()> {
    let made = place.dist.join("made");
    fresh(&made)?;
    let zonal = made.join("zonal");
    strip(&place.built.join("zonal"), &zonal)?;
    library(place, &made)?;
    documents(&place.root, &zonal, &made)
}

/// The C library in both forms, and what tells a compiler where it is.
fn library(place: &Place, made: &Path) -> Result<()> {
    strip(&place.built.join("libzonal_c.so"), &made.join("libzonal.so.0"))?;
    let mut archive = Command::new("strip");
    archive.args(["--strip-debug", "--enable-deterministic-archives", "-o"]);
    run::quietly(archive.args([made.join("libzonal.a"), place.built.join("libzonal_c.a")]))?;
    let config = fs::read_to_string(place.root.join("crates/zonal-ffi/zonal.pc.in"))?
        .replace("@prefix@", "/usr")
        .replace("@version@", VERSION)
        .replace("${prefix}/lib", &format!("${{prefix}}/lib/{}", place.multiarch));
    Ok(fs::write(made.join("zonal.pc"), config)?)
}

/// Copies a program or a shared library without what only debuggers read.
pub(super) fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(to).arg(from);
    run::quietly(&mut strip).map(drop)
}

/// Manual pages, completions, changelogs and licences, in `made`.
pub(super) fn documents(root: &Path, zonal: &Path, made: &Path) -> Result<()> {
    let man = made.join("man1");
    run::quietly(Command::new(zonal).arg("man").arg(&man))?;
    for shell in ["bash", "zsh", "fish"] {
        let script = run::quietly(Command::new(zonal).args(["completions", shell]))?;
        fs::write(made.join(shell), script)?;
    }
    fs::copy(root.join("CHANGELOG.md"), made.join("changelog"))?;
    fs::write(made.join("changelog.Debian"), debian_changelog(root)?)?;
    fs::write(made.join("copyright"), copyright(root)?)?;
    fs::write(made.join("third-party"), third_party(root)?)?;
    let mut pages = fs::read_dir(&man)?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    pages.extend(["changelog", "changelog.Debian", "third-party"].map(|name| made.join(name)));
    run::quietly(Command::new("gzip").args(["-9", "-n"]).args(&pages)).map(drop)
}

fn debian_changelog(root: &Path) -> Result<String> {
    let date = run::quietly(
        Command::new("date").args(["--utc", "-R", "-d"]).arg(format!("@{}", epoch(root)?)),
    )?;
    Ok(format!(
        "zonal ({VERSION}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n \
         -- {}  {date}",
        super::deb::MAINTAINER
    ))
}

/// Our licence. Debian wants no second copy of Apache's.
fn copyright(root: &Path) -> Result<String> {
    let ours = fs::read_to_string(root.join("LICENSE-MIT"))?;
    Ok(format!(
        "Zonal is copyright (c) 2026 The Zonal authors. Licence: MIT or Apache-2.0, as you like; \
         on\nDebian systems the second is in /usr/share/common-licenses/Apache-2.0. The licences \
         of\nwhat is compiled in are in third-party.gz.\n\n{ours}"
    ))
}

/// The licences of every crate that is compiled in, each text once.
fn third_party(root: &Path) -> Result<String> {
    let mut all = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crate_ in compiled_in(root)? {
        let folder = Path::new(text(&crate_, "manifest_path")).parent().context("no folder")?;
        let name = format!("{} {}", text(&crate_, "name"), text(&crate_, "version"));
        writeln!(all, "{name}: {}", text(&crate_, "license"))?;
        for file in fs::read_dir(folder)? {
            let file = file?.path();
            let is_licence = file.file_name().is_some_and(|name| {
                let name = name.to_string_lossy().to_uppercase();
                ["LICEN", "COPYING", "NOTICE"].iter().any(|start| name.starts_with(start))
            });
            if is_licence && let Ok(licence) = fs::read_to_string(&file) {
                let names = texts.entry(licence.trim().to_owned()).or_default();
                if !names.contains(&name) {
                    names.push(name.clone());
                }
            }
        }
    }
    for (licence, mut crates) in texts {
        crates.sort();
        write!(all, "\n{}\n{}:\n\n{licence}\n", "-".repeat(76), crates.join(", "))?;
    }
    Ok(all)
}

/// The crates of others that the command contains, by name, as `cargo metadata` describes them.
fn compiled_in(root: &Path) -> Result<Vec<Value>> {
    let tree = run::quietly(cargo(root).args([
        "tree",
        "--package=zonal-cli",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
    ]))?;
    // `NAME vVERSION (more)`
    let used: Vec<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let metadata = check::metadata(root)?;
    let mut crates: Vec<Value> = list(&metadata, "packages")
        .iter()
        .filter(|package| !package["source"].is_null())
        .filter(|package| used.contains(&(text(package, "name"), text(package, "version"))))
        .cloned()
        .collect();
    crates.sort_by_key(|package| text(package, "name").to_owned());
    Ok(crates)
}
