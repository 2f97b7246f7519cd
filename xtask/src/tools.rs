//! Programs that the suites use: found, or installed where this user may.
//!
//! A program that is absent is no failure: the suite that needs it skips and says so.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::tally::Tally;
use crate::{cargo, run};

/// Programs of the distribution, with the Debian package that has them.
const PACKAGED: &[(&str, &str)] = &[
    ("fio", "fio"),
    ("fusermount3", "fuse3"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("getfattr", "attr"),
    ("getfacl", "acl"),
    ("python3", "python3"),
];

/// Programs from the Rust registry, with the version that the suites are written for.
const BUILT: &[(&str, &str)] = &[("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Programs that make and run the virtual machine.
const MACHINE: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("depmod", "kmod"), ("mke2fs", "e2fsprogs")];

/// Installs the packages that are absent, of the suites and of the virtual machine, in one go: apt
/// runs once at a time.
pub fn install_packages(root: &Path) {
    let path = search_path(root);
    let wanted = PACKAGED.iter().chain(MACHINE);
    let missing = wanted.filter(|(program, _)| find(program, &path).is_none());
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !packages.is_empty()
        && let Err(error) = apt_get(&packages)
    {
        println!("could not install {}: {error:#}", packages.join(", "));
    }
}

/// Builds the programs from the registry that are absent.
pub fn build(root: &Path) {
    let path = search_path(root);
    for (program, version) in BUILT {
        if find(program, &path).is_none()
            && let Err(error) = cargo_install(root, program, version)
        {
            println!("could not build {program} {version}: {error:#}");
        }
    }
}

/// Counts every program that the suites lack as skipped.
pub fn count_missing(root: &Path, tally: &mut Tally) {
    let path = search_path(root);
    for (program, _) in PACKAGED.iter().chain(BUILT) {
        if find(program, &path).is_none() {
            tally.skip(program, "not installed, and could not be: see above");
        }
    }
}

/// The search path with which the suites run.
pub fn search_path(root: &Path) -> OsString {
    with_front(&root.join("target/tools/bin"))
}

/// A program that something cannot do without, and the Debian package that has it.
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Finds all of `programs`, or installs their packages; an error says what is missing.
pub fn require(programs: &[Program]) -> anyhow::Result<()> {
    let path = with_front(Path::new("/usr/bin"));
    let missing = || programs.iter().filter(|program| find(program.name, &path).is_none());
    let packages: Vec<&str> = missing().map(|program| program.package).collect();
    if !packages.is_empty() {
        apt_get(&packages).with_context(|| format!("installing {}", packages.join(", ")))?;
    }
    match missing().next() {
        Some(program) => anyhow::bail!("{} is not installed", program.name),
        None => Ok(()),
    }
}

/// Installs the first of `packages` that this release has.
pub fn install_first_of(packages: &[&str]) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    for package in packages {
        outcome = apt_get(&[package]).with_context(|| format!("installing {package}"));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn apt_get(packages: &[&str]) -> anyhow::Result<()> {
    let command = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        run::quietly(&mut command)
    };
    command(&["update", "-q"])?;
    command(&[&["install", "-q", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}

fn cargo_install(root: &Path, program: &str, version: &str) -> anyhow::Result<()> {
    println!("building {program} {version}");
    let tools = root.join("target/tools");
    run::quietly(
        cargo(root)
            .args(["install", "--quiet", "--locked", "--version", version, "--root"])
            .arg(&tools)
            .arg(program)
            .env("CARGO_TARGET_DIR", tools.join("build")),
    )?;
    Ok(())
}

/// The search path with `folder` in front, and with the places where administration programs lie.
fn with_front(folder: &Path) -> OsString {
    let current = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf())
        .chain(std::env::split_paths(&current))
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    // A folder with a colon in its name cannot be on any path: then go without ours.
    std::env::join_paths(folders).unwrap_or(current)
}

/// The first file of that name on `path`.
fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_of_the_path_is_searched_first() {
        let path = with_front(Path::new("/nonexistent"));
        assert!(std::env::split_paths(&path).next().is_some_and(|f| f.ends_with("nonexistent")));
        assert!(find("sh", &path).is_some());
        assert!(find("a-program-of-no-one", &path).is_none());
    }
}
