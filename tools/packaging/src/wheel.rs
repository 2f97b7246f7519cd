//! A wheel of the bindings for Python, which pip installs on any Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::tools::{self, Packaged};
use xtask::{cargo, run};

use crate::{VERSION, epoch, made};

/// The programs that make the wheel.
const PROGRAMS: [Packaged; 3] =
    [("python3", "python3"), ("strip", "binutils"), ("readelf", "binutils")];

/// Builds the library and returns the wheel.
pub(super) fn make(root: &Path) -> Result<PathBuf> {
    tools::require(&PROGRAMS)?;
    run::quietly(cargo(root).args(["build", "--quiet", "--release", "--package=zonal-python"]))?;
    let dist = root.join("target/dist");
    let made = dist.join("python");
    fs::create_dir_all(&made).with_context(|| format!("making {}", made.display()))?;
    let library = made.join("_zonal.abi3.so");
    made::strip(&root.join("target/release/libzonal_python.so"), &library)?;
    let third_party = made.join("third-party");
    fs::write(&third_party, made::third_party(root, "zonal-python")?)?;
    let mut wheel = Command::new("python3");
    wheel.arg(root.join("crates/zonal-python/wheel.py")).arg("--library").arg(library);
    wheel.args(["--version", VERSION, "--epoch", &epoch(root)?]).arg("--out").arg(&dist);
    for licence in [root.join("LICENSE-MIT"), root.join("LICENSE-APACHE"), third_party] {
        wheel.arg("--licence").arg(licence);
    }
    Ok(PathBuf::from(run::quietly(&mut wheel)?.trim_end()))
}
