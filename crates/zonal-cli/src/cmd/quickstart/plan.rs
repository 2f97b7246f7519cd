//! Which tree is copied, and how much of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Most bytes and files of a default copy: enough to be real work, little enough for a minute in
/// all.
const DEFAULT_BYTES: u64 = 320 << 20;
const DEFAULT_FILES: usize = 5_000;

/// Files from this size on are kept to three quarters of the bytes, so that small ones get a place.
const LARGE: u64 = 1 << 20;

/// A file to be copied: path below the source, and length.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The entries to copy. A directory comes before its own entries.
pub(super) struct Plan {
    pub(super) source: PathBuf,
    pub(super) dirs: Vec<PathBuf>,
    pub(super) links: Vec<PathBuf>,
    pub(super) files: Vec<File>,
    pub(super) bytes: u64,
    /// Files of the source that are left out.
    pub(super) left_out: usize,
}

impl Plan {
    /// All of `dir`, or a part of the machine's own Rust toolchain or of /usr/share.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self> {
        if let Some(dir) = dir {
            let source =
                dir.canonicalize().with_context(|| format!("looking for {}", dir.display()))?;
            if !source.is_dir() {
                bail!("{} is not a directory", source.display());
            }
            return Self::of(source, u64::MAX, usize::MAX);
        }
        let source = toolchain().unwrap_or_else(|| PathBuf::from("/usr/share"));
        Self::of(source, DEFAULT_BYTES, DEFAULT_FILES)
    }

    fn of(source: PathBuf, bytes_max: u64, files_max: usize) -> Result<Self> {
        let mut plan = Self {
            source,
            dirs: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            bytes: 0,
            left_out: 0,
        };
        plan.walk(Path::new(""), bytes_max, files_max)?;
        if plan.files.is_empty() {
            bail!("{} holds no file that can be read", plan.source.display());
        }
        Ok(plan)
    }

    /// Adds the entries of a directory. Leaves out unreadable ones, and all but files, directories
    /// and links.
    fn walk(&mut self, below: &Path, bytes_max: u64, files_max: usize) -> Result<()> {
        let folder = self.source.join(below);
        let Ok(entries) = fs::read_dir(&folder) else {
            self.left_out += 1;
            return Ok(());
        };
        let mut entries: Vec<_> = entries
            .collect::<Result<_, _>>()
            .with_context(|| format!("listing {}", folder.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = below.join(entry.file_name());
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                self.dirs.push(path.clone());
                self.walk(&path, bytes_max, files_max)?;
            } else if meta.is_symlink() {
                self.links.push(path);
            } else if meta.is_file() {
                self.take(File { path, bytes: meta.len() }, bytes_max, files_max);
            }
        }
        Ok(())
    }

    fn take(&mut self, file: File, bytes_max: u64, files_max: usize) {
        let limit = if file.bytes >= LARGE { bytes_max / 4 * 3 } else { bytes_max };
        let fits = self.bytes.saturating_add(file.bytes) <= limit && self.files.len() < files_max;
        if fits && fs::File::open(self.source.join(&file.path)).is_ok() {
            self.bytes += file.bytes;
            self.files.push(file);
        } else {
            self.left_out += 1;
        }
    }
}

fn toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (output.status.success() && path.is_dir()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_lists_directories_first_within_limits() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/one"), [1; 10]).unwrap();
        fs::write(folder.path().join("a/two"), [2; 10]).unwrap();
        std::os::unix::fs::symlink("two", folder.path().join("a/link")).unwrap();
        let plan = Plan::of(folder.path().to_owned(), 15, 10).unwrap();
        assert_eq!(plan.dirs, [Path::new("a"), Path::new("a/b")]);
        assert_eq!((plan.files.len(), plan.bytes, plan.left_out), (1, 10, 1));
        assert_eq!(plan.links, [Path::new("a/link")]);
    }

    #[test]
    fn plan_names_missing_directory() {
        let error = Plan::new(Some(Path::new("/nonexistent/tree"))).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/tree"));
    }
}
