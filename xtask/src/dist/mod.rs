//! `cargo xtask dist`: packages for Debian and a static archive, under `target/dist`.
//!
//! - `packaging/files` says what lies where; `stage.rs` lays it out.
//! - `deb.rs` makes a package of that, `archive.rs` an archive for any Linux.
//! - `--test` installs the packages into a fresh Debian in a virtual machine: `machine.rs`.

mod archive;
mod deb;
mod machine;
mod made;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use xtask::tally::{Tally, tallied};
use xtask::tools::{self, Program};
use xtask::{cargo, run};

use crate::libtest::Tier;

/// The version of every package: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What this is done with.
const PROGRAMS: [Program; 3] = [
    Program { name: "dpkg-deb", package: "dpkg" },
    Program { name: "dpkg-shlibdeps", package: "dpkg-dev" },
    Program { name: "strip", package: "binutils" },
];

/// Makes the packages, or tests them.
#[derive(Args)]
pub(crate) struct Dist {
    /// Only packages
    #[arg(long)]
    deb: bool,
    /// Only the static archive
    #[arg(long, conflicts_with = "deb")]
    archive: bool,
    /// What the static archive is built for; a glibc target makes a static program too
    #[arg(long, value_name = "TRIPLE", default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Build packages of the development profile, install them into a fresh Debian in a virtual
    /// machine, and use them there
    #[arg(long)]
    test: bool,
}

/// Where things are while packages are made.
struct Place {
    /// The workspace.
    root: PathBuf,
    /// `target/dist`.
    dist: PathBuf,
    /// Where cargo has put the program and the libraries.
    built: PathBuf,
    /// The folder of libraries of this architecture in Debian's `/usr/lib`.
    multiarch: String,
}

/// Does what the command line asks for.
pub(crate) fn main(root: &Path, dist: &Dist) -> Result<std::process::ExitCode> {
    if dist.test {
        return Ok(tallied(|tally| tally.join(tests(root, Tier::All))));
    }
    if !dist.archive {
        for file in packages(root, "release")? {
            println!("{}", file.display());
        }
    }
    if !dist.deb {
        println!("{}", archive::make(root, &dist.target)?.display());
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// Installs the packages into a fresh Debian in a virtual machine and uses them there.
pub(crate) fn tests(root: &Path, tier: Tier) -> Tally {
    let mut tally = Tally::default();
    if tier != Tier::All {
        tally.leave(machine::COUNT);
        return tally;
    }
    match machine::Image::prepare(root) {
        Ok(image) => {
            let tested =
                packages(root, "dev").and_then(|packages| image.test(root, &packages, &mut tally));
            if let Err(error) = tested {
                tally.fail(format!("packages in a fresh Debian: {error:#}"));
            }
        }
        Err(error) => tally.skip("packages in a fresh Debian", &format!("{error:#}")),
    }
    tally
}

/// Builds with this profile of cargo's and makes all packages.
fn packages(root: &Path, profile: &str) -> Result<Vec<PathBuf>> {
    tools::require(&PROGRAMS)?;
    run::quietly(cargo(root).args(["build", "--quiet", "--profile", profile]).args(BUILT))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let place = Place {
        root: root.to_owned(),
        dist: root.join("target/dist"),
        built: root.join("target").join(folder),
        multiarch: architecture("DEB_HOST_MULTIARCH")?,
    };
    made::all(&place)?;
    let staged = stage::all(&place)?;
    staged.iter().map(|package| deb::make(&place, package)).collect()
}

/// What is built: the command and the C library.
const BUILT: [&str; 2] = ["--package=zonal-cli", "--package=zonal-ffi"];

/// An empty folder, whatever was there.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

/// The time of the last commit: what is made of the same source is the same file.
fn epoch(root: &Path) -> Result<String> {
    let told =
        run::quietly(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    Ok(told.trim().to_owned())
}

/// What Debian calls this architecture, somewhere.
fn architecture(variable: &str) -> Result<String> {
    let told = run::quietly(Command::new("dpkg-architecture").arg("--query").arg(variable))?;
    Ok(told.trim().to_owned())
}
