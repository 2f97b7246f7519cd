//! An image for containers, as an OCI archive that docker and podman load: the static program
//! alone.
//!
//! buildah(1) makes it of `tools/packaging/Containerfile`, without a registry and without a
//! container.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::run;
use xtask::tools::{self, Packaged};

use crate::{VERSION, archive, epoch, fresh};

/// The program that makes an image.
const BUILDAH: Packaged = ("buildah", "buildah");

/// Builds the program for `target` and returns the archive.
pub(super) fn make(root: &Path, target: &str) -> Result<PathBuf> {
    tools::require(&[BUILDAH])?;
    let folder = root.join("target/dist/image");
    let context = folder.join("context");
    fresh(&context)?;
    archive::program(root, target, &context)?;
    let image = root.join("target/dist").join(format!("zonal-{VERSION}-image.tar"));
    if image.exists() {
        std::fs::remove_file(&image).with_context(|| format!("removing {}", image.display()))?;
    }
    let mut buildah = Command::new("buildah");
    // Storage of its own, so that images of this machine's users stay untouched.
    buildah.args(["--storage-driver", "vfs", "--root"]).arg(folder.join("root"));
    buildah.arg("--runroot").arg(folder.join("run"));
    buildah.args(["build", "--isolation", "chroot", "--timestamp", &epoch(root)?]);
    buildah.arg("--file").arg(root.join("tools/packaging/Containerfile"));
    buildah.args(["--tag", &format!("oci-archive:{}:zonal:{VERSION}", image.display())]);
    run::quietly(buildah.arg(&context))?;
    Ok(image)
}
