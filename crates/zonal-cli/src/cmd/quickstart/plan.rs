//! Which tree is copied, and how much of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use zonal_fs::vfs::FileKind;

use super::tree::{Entries, Tree};

/// Most bytes and files of a default copy: enough to be real work, little enough for a minute in
/// all.
const DEFAULT_BYTES: u64 = 320 << 20;
const DEFAULT_FILES: u64 = 5_000;

/// Files from this size on are kept to three quarters of the bytes, so that small ones get a place.
const LARGE: u64 = 1 << 20;

/// The entries to copy.
pub(super) struct Plan {
    pub(super) source: PathBuf,
    pub(super) entries: Entries,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files and directories of the source that are left out.
    pub(super) left_out: u64,
}

impl Plan {
    /// All of `dir`, or a part of the machine's own Rust toolchain or of /usr/share.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self> {
        let Some(dir) = dir else {
            let source = toolchain().unwrap_or_else(|| PathBuf::from("/usr/share"));
            return Self::of(source, DEFAULT_BYTES, DEFAULT_FILES);
        };
        let source =
            dir.canonicalize().with_context(|| format!("looking for {}", dir.display()))?;
        ensure!(source.is_dir(), "{} is not a directory", source.display());
        Self::of(source, u64::MAX, u64::MAX)
    }

    /// Leaves out what this user cannot read.
    fn of(source: PathBuf, bytes_max: u64, files_max: u64) -> Result<Self> {
        let (mut entries, mut files, mut bytes, mut left_out) = (Entries::new(), 0, 0_u64, 0);
        Tree::new(&source, None).walk(Path::new(""), &mut entries, &mut |_| {
            left_out += 1;
            Ok(())
        })?;
        entries.retain(|(path, kind)| {
            if *kind != FileKind::Regular {
                return matches!(kind, FileKind::Directory | FileKind::Symlink);
            }
            let length = File::open(source.join(path)).and_then(|file| Ok(file.metadata()?.len()));
            let takes = length.is_ok_and(|length| {
                let limit = if length >= LARGE { bytes_max / 4 * 3 } else { bytes_max };
                let takes = bytes.saturating_add(length) <= limit && files < files_max;
                (files, bytes) = if takes { (files + 1, bytes + length) } else { (files, bytes) };
                takes
            });
            left_out += u64::from(!takes);
            takes
        });
        ensure!(files > 0, "{} holds no file that can be read", source.display());
        Ok(Self { source, entries, files, bytes, left_out })
    }
}

fn toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (output.status.success() && path.is_dir()).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn plan_lists_directories_first_within_limits() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/one"), [1; 10]).unwrap();
        fs::write(folder.path().join("a/two"), [2; 10]).unwrap();
        std::os::unix::fs::symlink("two", folder.path().join("a/link")).unwrap();
        let plan = Plan::of(folder.path().to_owned(), 15, 10).unwrap();
        let paths: Vec<_> = plan.entries.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/one", "a/link"]);
        assert_eq!((plan.files, plan.bytes, plan.left_out), (1, 10, 1));
        let error = Plan::new(Some(Path::new("/nonexistent/tree"))).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/tree"));
    }
}
