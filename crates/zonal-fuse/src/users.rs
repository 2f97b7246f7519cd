//! Processes that use a mount, for error messages.
//!
//! This reads the links and tables of /proc, but not their targets: that would be a request to the
//! file system, which may not answer. Only root sees the open files of other users.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A process that uses a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Process id.
    pub process: u32,
    /// Name of the program.
    pub program: String,
    /// A file or directory of the mount that it uses.
    pub uses: PathBuf,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, program, uses } = self;
        write!(f, "process {process} ({program}) uses {}", uses.display())
    }
}

/// Processes that have a file at or below `point` open or mapped, or their working directory there.
pub fn users_of(point: &Path) -> Vec<User> {
    // A dead mount has no canonical path.
    let point = point.canonicalize().or_else(|_| std::path::absolute(point));
    let (Ok(point), Ok(processes)) = (point, fs::read_dir("/proc")) else { return Vec::new() };
    let mut users: Vec<User> = processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let process = entry.file_name().to_str()?.parse().ok()?;
            let uses = used_by(&entry.path(), &point)?;
            let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            Some(User { process, program: program.trim_end().to_owned(), uses })
        })
        .collect();
    users.sort_by_key(|user| user.process);
    users
}

/// The first path at or below `point` that a process uses; `process` is its directory in /proc.
fn used_by(process: &Path, point: &Path) -> Option<PathBuf> {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let links = ["cwd", "root", "exe"].map(|name| process.join(name)).into_iter();
    let links = links.chain(open.map(|entry| entry.path()));
    let is_there = |used: &PathBuf| used.starts_with(point);
    links.filter_map(|link| fs::read_link(link).ok()).find(is_there).or_else(|| {
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        maps.split(|byte| *byte == b'\n').filter_map(mapped).find(is_there)
    })
}

/// The file in a line of /proc/PID/maps, after five words.
fn mapped(line: &[u8]) -> Option<PathBuf> {
    let path = line.iter().position(|byte| *byte == b'/')?;
    Some(OsStr::from_bytes(&line[path..]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_with_file_open_or_mapped_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let me =
            |users: Vec<User>| users.into_iter().find(|user| user.process == std::process::id());
        assert_eq!(me(users_of(&point)), None);
        let path = point.join("a file");
        let file = fs::File::create(&path).unwrap();
        let user = me(users_of(dir.path())).unwrap();
        assert_eq!(user.uses, path);
        assert!(user.to_string().starts_with(&format!("process {} (", user.process)), "{user}");
        drop(file);
        assert_eq!(me(users_of(&point)), None);
        let line = b"7f0-7f1 rw-s 00000000 00:2e 3        /mnt/a file";
        assert_eq!(mapped(line), Some("/mnt/a file".into()));
        assert_eq!(mapped(b"7f0-7f1 rw-p 00000000 00:00 0"), None);
    }
}
