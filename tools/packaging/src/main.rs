//! `cargo xtask dist`: packages for Debian, a static archive, a wheel for Python, an RPM and an
//! image for containers, under `target/dist`.
//!
//! - `tools/packaging/files` lists the files of each package and their places; `stage.rs` lays them
//!   out, with the files that `made.rs` makes.
//! - `deb.rs` makes a package of that, `archive.rs` an archive for any Linux, `wheel.rs` a wheel,
//!   `rpm.rs` a package for distributions that use RPM, `image.rs` an image for containers.
//! - `--test` has the packages used in a fresh Debian in a virtual machine, by
//!   `tools/kernel-tests`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program: its output is its result")]

mod archive;
mod deb;
mod image;
mod made;
mod rpm;
mod stage;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use xtask::tally::tallied;
use xtask::tools::{self, CPP_COMPILER, LEVELDB_HEADERS, Packaged, ROCKSDB_HEADERS};
use xtask::{cargo, plugins, run};

/// The version of every package: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The programs that make the packages.
const PROGRAMS: [Packaged; 6] = [
    ("dpkg-deb", "dpkg"),
    ("dpkg-gencontrol", "dpkg-dev"),
    ("strip", "binutils"),
    CPP_COMPILER,
    ROCKSDB_HEADERS,
    LEVELDB_HEADERS,
];

/// The packages to build: the command, the C library, the library that carries hints, fio's engine,
/// and the plugins.
const BUILT: [&str; 6] = [
    "--package=zonal-cli",
    "--package=zonal-ffi",
    "--package=zonal-hint",
    "--package=zonal-fio",
    "--package=zonal-rocksdb",
    "--package=zonal-leveldb",
];

#[derive(Parser)]
#[command(name = "cargo xtask dist", bin_name = "cargo xtask dist")]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
#[command(
    about = "Make the packages, the static archive, the wheel, or what else is asked for, in target/dist"
)]
struct Args {
    /// Only packages
    #[arg(long)]
    deb: bool,
    /// Only the static archive
    #[arg(long, conflicts_with = "deb")]
    archive: bool,
    /// Only the wheel for Python
    #[arg(long, conflicts_with_all = ["deb", "archive"])]
    wheel: bool,
    /// Only a package for distributions that use RPM, with a static program
    #[arg(long, conflicts_with_all = ["deb", "archive", "wheel"])]
    rpm: bool,
    /// Only an image for containers, an OCI archive, with a static program
    #[arg(long, conflicts_with_all = ["deb", "archive", "wheel", "rpm"])]
    image: bool,
    /// What static programs are built for; a glibc target makes a static program too
    #[arg(long, value_name = "TRIPLE", default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Build packages of the development profile, install them into a fresh Debian in a virtual
    /// machine, and use them there
    #[arg(long)]
    test: bool,
}

/// The folders in which packages are made.
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

fn main() -> ExitCode {
    let args = Args::parse();
    let root = xtask::root();
    let outcome = if args.test { test(&root) } else { make(&root, &args) };
    outcome.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn make(root: &Path, args: &Args) -> Result<ExitCode> {
    if args.rpm {
        println!("{}", rpm::make(root, &args.target)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    if args.image {
        println!("{}", image::make(root, &args.target)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let all = !(args.deb || args.archive || args.wheel);
    if all || args.deb {
        run::quietly(cargo(root).args(["build", "--quiet", "--release"]).args(BUILT))?;
        for file in packages(root, "release")? {
            println!("{}", file.display());
        }
    }
    if all || args.archive {
        println!("{}", archive::make(root, &args.target)?.display());
    }
    if all || args.wheel {
        println!("{}", wheel::make(root)?.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes packages of the development profile, and has them used in a fresh Debian.
fn test(root: &Path) -> Result<ExitCode> {
    // Elsewhere than on Debian there is nothing to make them with.
    if let Err(error) = tools::require(&PROGRAMS) {
        let skip = |why: &str| tallied(|tally| tally.skip("packages in a fresh Debian", why));
        return Ok(skip(&format!("{error:#}")));
    }
    // Exactly the build of `cargo xtask test`: other features would replace programs that its tests
    // run.
    let mut same = cargo(root);
    same.args(["build", "--quiet"]).args(plugins::workspace(root));
    run::quietly(same.args(["--lib", "--bins", "--tests"]))?;
    let files = packages(root, "debug")?;
    let mut machine = run::ends_with_us(root.join("target/debug/kernel-tests"));
    let status = machine.arg("packages").args(files).status().context("starting kernel-tests")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes all packages from the programs that cargo has built in `folder`.
fn packages(root: &Path, folder: &str) -> Result<Vec<PathBuf>> {
    tools::require(&PROGRAMS)?;
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

/// Empties a folder, or makes it.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

/// The time of the last commit, so that the same source gives the same file.
fn epoch(root: &Path) -> Result<String> {
    let told =
        run::quietly(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    Ok(told.trim().to_owned())
}

/// Debian's name for this architecture, in this variable.
fn architecture(variable: &str) -> Result<String> {
    let told = run::quietly(Command::new("dpkg-architecture").arg("--query").arg(variable))?;
    Ok(told.trim().to_owned())
}
