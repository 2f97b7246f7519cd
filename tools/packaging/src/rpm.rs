//! A package for distributions that use RPM: the static program, its manual pages, and helpers of
//! mount(8).
//!
//! rpmbuild(8) makes it of `tools/packaging/zonal.spec`. It contains the same files as the Debian
//! package `zonal`, except shared libraries.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::run;
use xtask::tools::{self, Packaged};

use crate::{Place, VERSION, archive, epoch, fresh, made, stage};

/// The program that makes such a package.
const RPMBUILD: Packaged = ("rpmbuild", "rpm");

/// Folders that belong to the package, and not to the distribution.
const OWN: [&str; 1] = ["usr/share/doc/zonal"];

/// Builds the program for `target` and returns the package.
pub(super) fn make(root: &Path, target: &str) -> Result<PathBuf> {
    tools::require(&[RPMBUILD])?;
    let place = static_place(root, target)?;
    let staged = stage::command(&place)?;
    // RPM's distributions look for zsh completions in another folder than Debian's zsh.
    let zsh = staged.join("usr/share/zsh");
    fs::rename(zsh.join("vendor-completions"), zsh.join("site-functions"))?;
    fs::remove_file(staged.join("usr/share/doc/zonal/changelog.Debian.gz"))?;
    pack(root, &staged, &place.dist.join("rpm"))
}

/// A folder of its own with a static program, and its documents in `made`.
fn static_place(root: &Path, target: &str) -> Result<Place> {
    let dist = root.join("target/dist/static");
    let made = dist.join("made");
    fresh(&made)?;
    let zonal = archive::program(root, target, &made)?;
    made::documents(root, &zonal, &made)?;
    let (root, built) = (root.to_owned(), made);
    Ok(Place { root, dist, built, multiarch: String::new() })
}

/// Makes a package of the files in `staged`, in a folder of its own.
fn pack(root: &Path, staged: &Path, folder: &Path) -> Result<PathBuf> {
    fresh(folder)?;
    let listed = folder.join("files");
    fs::write(&listed, list(staged)?)?;
    let set = |name: &str, value: &str| format!("--define={name} {value}");
    let text = |path: &Path| path.display().to_string();
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--quiet"]).arg(root.join("tools/packaging/zonal.spec"));
    rpmbuild.arg(set("_topdir", &text(folder))).arg(set("_rpmdir", &text(folder)));
    rpmbuild.arg(set("staged", &text(staged))).arg(set("listed", &text(&listed)));
    rpmbuild.arg(set("zonal_version", VERSION)).arg(set("_build_id_links", "none"));
    // The program is stripped and the pages are packed: nothing is to be done after the copy.
    rpmbuild.arg(set("__os_install_post", "%{nil}")).arg(set("_buildhost", "localhost"));
    rpmbuild.arg(set("use_source_date_epoch_as_buildtime", "1"));
    rpmbuild.arg(set("clamp_mtime_to_source_date_epoch", "1"));
    run::quietly(rpmbuild.env("SOURCE_DATE_EPOCH", epoch(root)?))?;
    let mut made =
        found(folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rpm"));
    let made = made.next().context("rpmbuild made no package")?;
    let to = root.join("target/dist").join(made.file_name().context("a package has a name")?);
    fs::copy(&made, &to).with_context(|| format!("copying {}", made.display()))?;
    Ok(to)
}

/// The list for `%files`: every file and link, and the folders that go with the package.
fn list(staged: &Path) -> Result<String> {
    let mut lines = String::from("%defattr(-,root,root)\n");
    for own in OWN {
        let _ = writeln!(lines, "%dir /{own}");
    }
    let mut paths = found(staged)?;
    paths.sort();
    for path in paths {
        let path = path.strip_prefix(staged)?.display().to_string();
        let keep = if path.starts_with("etc/") { "%config(noreplace) " } else { "" };
        let _ = writeln!(lines, "{keep}\"/{path}\"");
    }
    Ok(lines)
}

/// Every file and link in a folder and below it.
fn found(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.extend(found(&entry.path())?);
        } else {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpm_lists_every_file_and_keeps_settings() {
        let staged = tempfile::tempdir().unwrap();
        for file in ["etc/logrotate.d/zonal", "usr/bin/zonal", "usr/share/doc/zonal/a b"] {
            let path = staged.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let expected = "%defattr(-,root,root)\n%dir /usr/share/doc/zonal\n\
                        %config(noreplace) \"/etc/logrotate.d/zonal\"\n\"/usr/bin/zonal\"\n\
                        \"/usr/share/doc/zonal/a b\"\n";
        assert_eq!(list(staged.path()).unwrap(), expected);
    }
}
