//! A static program with its documents in an archive that is unpacked anywhere, on any Linux.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::{cargo, run};

use crate::stage::copy_folder;
use crate::{VERSION, epoch, fresh, made};

/// Builds the command for `target` and puts it, without debug information, into `folder`.
pub(super) fn program(root: &Path, target: &str, folder: &Path) -> Result<PathBuf> {
    let std = run::quietly(
        Command::new("rustc").args(["--print=target-libdir", "--target", target]).current_dir(root),
    )?;
    ensure!(
        Path::new(std.trim()).exists(),
        "Rust's library for {target} is not installed: rustup target add {target}; or name a target that \
         is, as in --target x86_64-unknown-linux-gnu"
    );
    run::quietly(
        cargo(root)
            .args(["build", "--quiet", "--release", "--package=zonal-cli", "--target", target])
            // With glibc a static program has to be asked for.
            .env(
                "RUSTFLAGS",
                if target.ends_with("gnu") { "-Ctarget-feature=+crt-static" } else { "" },
            ),
    )?;
    let zonal = folder.join("zonal");
    made::strip(&root.join("target").join(target).join("release/zonal"), &zonal)?;
    let linked = run::quietly(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&zonal))?;
    ensure!(!linked.contains("(NEEDED)"), "the program is not static:\n{linked}");
    Ok(zonal)
}

/// Builds for `target` and returns the archive.
pub(super) fn make(root: &Path, target: &str) -> Result<PathBuf> {
    let name = format!("zonal-{VERSION}-{target}");
    let (dist, folder) = (root.join("target/dist"), root.join("target/dist").join(&name));
    fresh(&folder)?;
    let zonal = program(root, target, &folder)?;
    made::documents(root, &zonal, &folder)?;
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(root.join(file), folder.join(file)).with_context(|| format!("copying {file}"))?;
    }
    copy_folder(&root.join("docs"), &folder.join("docs"), 0o644)?;
    for file in ["zonal-serve@.service", "serve.conf", "fstab", "logrotate"] {
        fs::copy(root.join("packaging").join(file), folder.join(file))?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    run::quietly(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .arg(format!("--mtime=@{}", epoch(root)?))
            .args(["-I", "gzip -9n", "-C"])
            .arg(&dist)
            .arg("-cf")
            .args([&archive, Path::new(&name)]),
    )?;
    Ok(archive)
}
