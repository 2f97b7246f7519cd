//! A package of Debian, of files that lie where they belong: dpkg-deb does the work, and all that it
//! wants to be told is the control file, which says what the package needs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::run;

use super::stage::Staged;
use super::{Place, VERSION, architecture, epoch};

/// Who answers for the packages.
pub(super) const MAINTAINER: &str = "The Zonal authors <zonal@packages.invalid>";

/// What dpkg is told beside the control file, with its mode: scripts that it runs, and lists.
const CONTROL: [(&str, u32); 5] = [
    ("postinst", 0o755),
    ("prerm", 0o755),
    ("postrm", 0o755),
    ("triggers", 0o644),
    ("shlibs", 0o644),
];

/// Makes the package and returns its file.
pub(super) fn make(place: &Place, package: &Staged) -> Result<PathBuf> {
    let Staged { name, folder } = package;
    let given = place.root.join("packaging/debian");
    let control = folder.join("DEBIAN");
    let sums = sums(folder)?;
    fs::create_dir_all(&control)?;
    fs::write(control.join("md5sums"), sums)?;
    fs::write(control.join("control"), control_file(&given, place, package)?)?;
    for (part, mode) in CONTROL {
        let from = given.join(format!("{name}.{part}"));
        if from.exists() {
            fs::copy(&from, control.join(part))?;
            fs::set_permissions(control.join(part), Permissions::from_mode(mode))?;
        }
    }
    let file =
        place.dist.join(format!("{name}_{VERSION}-1_{}.deb", architecture("DEB_HOST_ARCH")?));
    run::quietly(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .args([folder, &file])
            .env("SOURCE_DATE_EPOCH", epoch(&place.root)?),
    )?;
    Ok(file)
}

/// The one in `packaging/debian`, with what is the same in all packages, and what has to be measured.
fn control_file(given: &Path, place: &Place, package: &Staged) -> Result<String> {
    let path = given.join(format!("{}.control", package.name));
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let size =
        run::quietly(Command::new("du").args(["-sk", "--apparent-size"]).arg(&package.folder))?;
    let size = size.split_whitespace().next().context("du printed no size")?;
    let architecture = architecture("DEB_HOST_ARCH")?;
    Ok(text
        .replace("${libraries}", &libraries(place, &package.folder)?)
        .replace("${version}", &format!("{VERSION}-1"))
        .replacen(
            "\nDescription:",
            &format!(
                "\nVersion: {VERSION}-1\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
                 Installed-Size: {size}\nDescription:"
            ),
            1,
        ))
}

/// What the programs and libraries below `folder` are linked with, as Debian's own tool says it.
fn libraries(place: &Place, folder: &Path) -> Result<String> {
    let found = run::quietly(
        Command::new("find")
            .arg(folder)
            .args(["-type", "f", "(", "-path", "*/bin/*", "-o", "-name", "*.so.*", ")"]),
    )?;
    if found.is_empty() {
        return Ok(String::new());
    }
    // It wants to be in a source package.
    let source = place.dist.join("made/source");
    fs::create_dir_all(source.join("debian"))?;
    fs::write(
        source.join("debian/control"),
        "Source: zonal\n\nPackage: zonal\nArchitecture: any\n",
    )?;
    let told = run::quietly(
        Command::new("dpkg-shlibdeps").arg("-O").args(found.lines()).current_dir(&source),
    )?;
    let needed = told.trim().strip_prefix("shlibs:Depends=");
    needed.map(ToOwned::to_owned).context("dpkg-shlibdeps named no libraries")
}

/// The checksum of every file, as dpkg verifies them.
fn sums(folder: &Path) -> Result<String> {
    let script = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -r0 md5sum";
    run::quietly(Command::new("sh").args(["-c", script]).current_dir(folder))
}
