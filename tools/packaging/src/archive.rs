//! A static program with its documents in an archive that is unpacked anywhere, on any Linux.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::tools::{self, Packaged};
use xtask::{cargo, run};

use crate::stage::copy_folder;
use crate::{VERSION, epoch, fresh, made};

/// Tools for programs of 64-bit Arm on another processor: the C compiler, which also links, and an
/// emulator.
const ARM: [Packaged; 2] =
    [("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"), ("qemu-aarch64", "qemu-user")];

/// A built command.
pub(super) struct Program {
    file: PathBuf,
    /// Runs it where this machine's processor does not.
    emulator: Option<&'static str>,
}

impl Program {
    /// One for this machine's processor.
    pub(super) fn native(file: PathBuf) -> Self {
        Self { file, emulator: None }
    }

    pub(super) fn command(&self) -> Command {
        let Some(emulator) = self.emulator else { return Command::new(&self.file) };
        let mut command = Command::new(emulator);
        command.arg(&self.file);
        command
    }
}

/// Builds the command for `target` and puts it, without debug information, into `folder`.
pub(super) fn program(root: &Path, target: &str, folder: &Path) -> Result<Program> {
    let std = run::quietly(
        Command::new("rustc").args(["--print=target-libdir", "--target", target]).current_dir(root),
    )?;
    ensure!(
        Path::new(std.trim()).exists(),
        "Rust's library for {target} is not installed: rustup target add {target}; or name a target that \
         is, as in --target x86_64-unknown-linux-gnu"
    );
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--release", "--package=zonal-cli", "--target", target]);
    if target.ends_with("gnu") {
        // With glibc a static program has to be asked for.
        build.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    }
    let is_foreign = !target.starts_with(ARCH);
    if is_foreign {
        ensure!(target.starts_with("aarch64-"), "{target} cannot be built for on {ARCH}");
        tools::require(&ARM)?;
        let variable = target.replace('-', "_");
        build.env(format!("CC_{variable}"), ARM[0].0);
        build.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), ARM[0].0);
    }
    run::quietly(&mut build)?;
    let file = folder.join("zonal");
    let strip = if is_foreign { "aarch64-linux-gnu-strip" } else { "strip" };
    made::strip_by(strip, &root.join("target").join(target).join("release/zonal"), &file)?;
    let linked = run::quietly(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&file))?;
    ensure!(!linked.contains("(NEEDED)"), "the program is not static:\n{linked}");
    Ok(Program { file, emulator: is_foreign.then_some(ARM[1].0) })
}

/// Files of the repository that the archive has at its top.
const FILES: [&str; 7] = [
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "tools/packaging/zonal-serve@.service",
    "tools/packaging/serve.conf",
    "tools/packaging/fstab",
    "tools/packaging/logrotate",
];

/// Builds for `target` and returns the archive.
pub(super) fn make(root: &Path, target: &str) -> Result<PathBuf> {
    let name = format!("zonal-{VERSION}-{target}");
    let (dist, folder) = (root.join("target/dist"), root.join("target/dist").join(&name));
    fresh(&folder)?;
    let zonal = program(root, target, &folder)?;
    made::documents(root, &zonal, &folder)?;
    copy_folder(&root.join("docs"), &folder.join("docs"), 0o644)?;
    for file in FILES {
        let from = root.join(file);
        let name = from.file_name().expect("each names a file");
        fs::copy(&from, folder.join(name)).with_context(|| format!("copying {file}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_archive_are_in_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in FILES {
            assert!(root.join(file).is_file(), "{file}");
        }
    }
}
