//! A package of Debian, of files that lie where they belong, made by the tools of dpkg-dev:
//! dpkg-shlibdeps finds the needed libraries, dpkg-gencontrol completes its part of
//! `tools/packaging/debian/control`, and dpkg-deb packs it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::run;

use crate::stage::Staged;
use crate::{Place, VERSION, architecture, epoch};

/// Files for dpkg in addition to the control file, each with its mode: scripts that it runs, and
/// lists.
const CONTROL: [(&str, u32); 6] = [
    ("postinst", 0o755),
    ("prerm", 0o755),
    ("postrm", 0o755),
    ("triggers", 0o644),
    ("shlibs", 0o644),
    ("conffiles", 0o644),
];

/// Makes the package and returns its file.
pub(super) fn make(place: &Place, package: &Staged) -> Result<PathBuf> {
    let Staged { name, folder } = package;
    let (control, sums) = (folder.join("DEBIAN"), sums(folder)?);
    // The tools run in a source package.
    let source = place.dist.join("made/source");
    let needs = format!("-Vshlibs:Depends={}", libraries(&source, folder)?);
    fs::create_dir_all(&control)?;
    let mut complete = Command::new("dpkg-gencontrol");
    complete.arg(format!("-p{name}")).arg(format!("-P{}", folder.display())).arg(needs);
    complete.arg(format!("-O{}", control.join("control").display())).current_dir(&source);
    run::quietly(&mut complete)?;
    fs::write(control.join("md5sums"), sums)?;
    for (part, mode) in CONTROL {
        let from = place.root.join("tools/packaging/debian").join(format!("{name}.{part}"));
        if from.exists() {
            fs::copy(&from, control.join(part))?;
            fs::set_permissions(control.join(part), Permissions::from_mode(mode))?;
        }
    }
    let file =
        place.dist.join(format!("{name}_{VERSION}-1_{}.deb", architecture("DEB_HOST_ARCH")?));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "--build"]).args([folder, &file]);
    run::quietly(pack.env("SOURCE_DATE_EPOCH", epoch(&place.root)?))?;
    Ok(file)
}

/// The packages of the libraries with which the programs and libraries below `folder` are linked.
fn libraries(source: &Path, folder: &Path) -> Result<String> {
    let mut find = Command::new("find");
    find.arg(folder).args(["-type", "f", "(", "-path", "*/bin/*", "-o", "-name", "*.so*", ")"]);
    let found = run::quietly(&mut find)?;
    if found.is_empty() {
        return Ok(String::new());
    }
    let mut needs = Command::new("dpkg-shlibdeps");
    let told = run::quietly(needs.arg("-O").args(found.lines()).current_dir(source))?;
    let needed = told.trim().strip_prefix("shlibs:Depends=");
    needed.map(ToOwned::to_owned).context("dpkg-shlibdeps named no libraries")
}

/// The checksums that dpkg verifies, of all files except those in /etc, which users change: dpkg
/// keeps their checksums itself.
fn sums(folder: &Path) -> Result<String> {
    let script = "find . -path ./etc -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -r0 md5sum";
    run::quietly(Command::new("sh").args(["-c", script]).current_dir(folder))
}
