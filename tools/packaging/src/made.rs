//! Files that packages contain and the repository does not: the program without its debug
//! information, the documents that it prints about its own command line, changelogs, and the
//! licences of all crates that are compiled in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::metadata::{self, list, text};
use xtask::{cargo, run};

use crate::archive::Program;
use crate::{Place, VERSION, epoch, fresh};

/// The control file of Debian's packages.
const CONTROL: &str = include_str!("../debian/control");

/// Makes all of it in `made`, and the source package that dpkg-dev's tools want to be in.
pub(super) fn all(place: &Place) -> Result<()> {
    let made = place.dist.join("made");
    fresh(&made)?;
    let zonal = made.join("zonal");
    strip(&place.built.join("zonal"), &zonal)?;
    library(place, &made)?;
    for library in
        ["libzonal_hint.so", "libzonal_fio.so", "libzonal_rocksdb.so", "libzonal_leveldb.so"]
    {
        strip(&place.built.join(library), &made.join(library))?;
    }
    let source = made.join("source/debian");
    fs::create_dir_all(&source)?;
    fs::write(source.join("control"), CONTROL)?;
    fs::write(source.join("changelog"), debian_changelog(&place.root)?)?;
    documents(&place.root, &Program::native(zonal), &made)
}

/// The C library in both forms, and the file that tells a compiler where it is.
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

/// Copies a program or a shared library without debug information.
pub(super) fn strip(from: &Path, to: &Path) -> Result<()> {
    strip_by("strip", from, to)
}

/// The same by a program of another processor's tools.
pub(super) fn strip_by(program: &str, from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new(program);
    strip.args(["--strip-unneeded", "--remove-section=.comment", "-o"]).arg(to).arg(from);
    run::quietly(&mut strip).map(drop)
}

/// Manual pages, completions, changelogs and licences, in `made`.
pub(super) fn documents(root: &Path, zonal: &Program, made: &Path) -> Result<()> {
    let mut packed = manual(zonal, made)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = run::quietly(zonal.command().args(["completions", shell]))?;
        fs::write(made.join(shell), script)?;
    }
    fs::copy(root.join("CHANGELOG.md"), made.join("changelog"))?;
    fs::write(made.join("changelog.Debian"), debian_changelog(root)?)?;
    fs::write(made.join("copyright"), copyright(root)?)?;
    fs::write(made.join("third-party"), third_party(root, "zonal-cli")?)?;
    packed.extend(["changelog", "changelog.Debian", "third-party"].map(|name| made.join(name)));
    run::quietly(Command::new("gzip").args(["-9", "-n"]).args(&packed)).map(drop)
}

/// The manual pages, each in the folder of its section: `man1/zonal-mount.1`.
fn manual(zonal: &Program, made: &Path) -> Result<Vec<PathBuf>> {
    let all = made.join("man");
    run::quietly(zonal.command().arg("man").arg(&all))?;
    let mut pages = Vec::new();
    for page in fs::read_dir(&all)? {
        let page = page?.path();
        let section = page.extension().context("a page's name ends in its section")?;
        let folder = made.join(format!("man{}", section.to_string_lossy()));
        let place = folder.join(page.file_name().context("a page has a name")?);
        fs::create_dir_all(&folder)?;
        fs::rename(&page, &place)?;
        pages.push(place);
    }
    fs::remove_dir(all)?;
    Ok(pages)
}

fn debian_changelog(root: &Path) -> Result<String> {
    let mut date = Command::new("date");
    let date = run::quietly(date.args(["--utc", "-R", "-d"]).arg(format!("@{}", epoch(root)?)))?;
    let (_, maintainer) = CONTROL.split_once("Maintainer: ").context("there is a maintainer")?;
    let maintainer = maintainer.lines().next().unwrap_or_default();
    Ok(format!(
        "zonal ({VERSION}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n \
         -- {maintainer}  {date}"
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

/// The licences of every crate that is compiled into one of ours, each text once.
pub(super) fn third_party(root: &Path, ours: &str) -> Result<String> {
    let mut all = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for crate_ in compiled_in(root, ours)? {
        let folder = Path::new(text(&crate_, "manifest_path")).parent().context("no folder")?;
        let name = format!("{} {}", text(&crate_, "name"), text(&crate_, "version"));
        writeln!(all, "{name}: {}", text(&crate_, "license"))?;
        for file in fs::read_dir(folder)? {
            let file = file?;
            let what = file.file_name().to_string_lossy().to_uppercase();
            if ["LICEN", "COPYING", "NOTICE"].iter().any(|start| what.starts_with(start))
                && let Ok(licence) = fs::read_to_string(file.path())
            {
                texts.entry(licence.trim().to_owned()).or_default().insert(name.clone());
            }
        }
    }
    for (licence, crates) in texts {
        let crates: Vec<String> = crates.into_iter().collect();
        write!(all, "\n{}\n{}:\n\n{licence}\n", "-".repeat(76), crates.join(", "))?;
    }
    Ok(all)
}

/// The crates of others that one of ours contains, by name, as `cargo metadata` describes them.
fn compiled_in(root: &Path, ours: &str) -> Result<Vec<Value>> {
    let arguments = ["tree", "--package", ours, "--edges=normal", "--prefix=none"];
    let tree = run::quietly(cargo(root).args(arguments).arg("--format={p} "))?;
    let used: BTreeSet<&str> = tree.lines().collect();
    let is_used = |package: &&Value| {
        let start = format!("{} v{} ", text(package, "name"), text(package, "version"));
        !package["source"].is_null() && used.iter().any(|line| line.starts_with(&start))
    };
    let metadata = metadata::metadata(root)?;
    let mut crates: Vec<Value> =
        list(&metadata, "packages").iter().filter(is_used).cloned().collect();
    crates.sort_by_key(|package| text(package, "name").to_owned());
    Ok(crates)
}
