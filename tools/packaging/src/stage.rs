//! Lays out the files of each package below a folder of its own, as `tools/packaging/files` says.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{Place, fresh};

/// A package whose files lie where they belong, below `folder`.
pub(super) struct Staged {
    /// Its name.
    pub(super) name: String,
    /// The folder that stands for the root directory.
    pub(super) folder: PathBuf,
}

/// A line of `tools/packaging/files`.
struct Row<'a> {
    package: &'a str,
    mode: &'a str,
    source: &'a str,
    destination: &'a str,
}

/// Lays out all packages, in the order of the list.
pub(super) fn all(place: &Place) -> Result<Vec<Staged>> {
    those(place, |_| true)
}

/// Lays out the package of the command without shared libraries, which a static program does
/// without.
pub(super) fn command(place: &Place) -> Result<PathBuf> {
    let of_command = |row: &Row<'_>| {
        row.package == "zonal"
            && Path::new(row.source).extension().is_none_or(|ending| ending != "so")
    };
    let staged =
        those(place, of_command)?.pop().context("tools/packaging/files has no package zonal")?;
    Ok(staged.folder)
}

fn those(place: &Place, wanted: impl Fn(&Row<'_>) -> bool) -> Result<Vec<Staged>> {
    let list = fs::read_to_string(place.root.join("tools/packaging/files"))
        .context("reading tools/packaging/files")?;
    let mut staged: Vec<Staged> = Vec::new();
    for row in rows(&list)?.into_iter().filter(wanted) {
        if !staged.iter().any(|package| package.name == row.package) {
            let folder = place.dist.join(row.package);
            fresh(&folder)?;
            staged.push(Staged { name: row.package.to_owned(), folder });
        }
        let folder = place.dist.join(row.package);
        row.lay_out(place, &folder).with_context(|| format!("laying out {}", row.destination))?;
    }
    Ok(staged)
}

fn rows(list: &str) -> Result<Vec<Row<'_>>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [package, mode, source, destination] => Ok(Row { package, mode, source, destination }),
            _ => bail!("tools/packaging/files: {line:?} is not package, mode, source, destination"),
        })
        .collect()
}

impl Row<'_> {
    fn lay_out(&self, place: &Place, package: &Path) -> Result<()> {
        let to = package.join(self.destination.replace("@multiarch@", &place.multiarch));
        fs::create_dir_all(to.parent().context("a destination lies in a folder")?)?;
        if self.mode == "link" {
            return Ok(symlink(self.source, to)?);
        }
        let from = match self.source.strip_prefix("made/") {
            Some(name) => place.dist.join("made").join(name),
            None => place.root.join(self.source),
        };
        let mode = u32::from_str_radix(self.mode, 8).context("a mode is octal, or `link`")?;
        if !self.source.ends_with('/') {
            return copy(&from, &to, mode);
        }
        copy_folder(&from, &to, mode)
    }
}

/// Copies all files in a folder and the folders below it.
pub(super) fn copy_folder(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let file = file?;
        let to = to.join(file.file_name());
        if file.file_type()?.is_dir() {
            copy_folder(&file.path(), &to, mode)?;
        } else {
            copy(&file.path(), &to, mode)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(fs::set_permissions(to, Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_line_has_four_words() {
        let found = rows("# comment\n\na  755  made/zonal  usr/bin/zonal\n").unwrap();
        assert_eq!((found.len(), found[0].package, found[0].mode), (1, "a", "755"));
        assert!(rows("a 755 made/zonal\n").is_err());
    }

    #[test]
    fn list_sources_not_built_are_in_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        for row in rows(&fs::read_to_string(root.join("tools/packaging/files")).unwrap()).unwrap() {
            let is_ours = row.mode != "link" && !row.source.starts_with("made/");
            assert!(!is_ours || root.join(row.source).exists(), "{}", row.source);
        }
    }

    #[test]
    fn folder_is_copied_with_subfolders() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let place = tempfile::tempdir().unwrap();
        copy_folder(&root.join("docs"), place.path(), 0o644).unwrap();
        for file in ["grafana.json", "guide/start/install.md", "format/furrow-v8.md"] {
            let mode = place.path().join(file).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644, "{file}");
        }
    }

    /// A package that changes a file in /etc has to list it, or dpkg replaces the user's version.
    #[test]
    fn conffiles_cover_every_file_below_etc() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        for row in rows(&fs::read_to_string(folder.join("files")).unwrap()).unwrap() {
            let list = folder.join(format!("debian/{}.conffiles", row.package));
            let listed = fs::read_to_string(list).unwrap_or_default();
            let is_listed = listed.lines().any(|line| line == format!("/{}", row.destination));
            assert_eq!(row.destination.starts_with("etc/"), is_listed, "{}", row.destination);
        }
    }
}
