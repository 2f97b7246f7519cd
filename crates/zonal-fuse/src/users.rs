//! Processes that use a mount, for messages: no permission depends on this information.
//!
//! This reads the links and tables of /proc, but not their targets: that would be a request to the
//! file system, which may not answer. Only root sees the open files of other users.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use zonal::mounts::{self, Mount};

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

/// Text for the users of a mount: the first few by name.
pub fn listed(users: &[User]) -> String {
    const SHOWN: usize = 5;
    if users.is_empty() {
        return "a process has a file open there or works in it".to_owned();
    }
    let mut shown: Vec<String> = users.iter().take(SHOWN).map(ToString::to_string).collect();
    if let Some(more) = users.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

/// Processes that have a file at or below `point` open or mapped, or their working directory there.
pub fn users_of(point: &Path) -> Vec<User> {
    // A dead mount has no canonical path.
    let point = point.canonicalize().or_else(|_| std::path::absolute(point));
    let Ok(point) = point else { return Vec::new() };
    let user = |process| Some(User::new(process, used_by(&process_dir(process), &point)?));
    processes().into_iter().filter_map(user).collect()
}

/// Processes that see a mount that `is_it`: one of each mount namespace that has it, and where it
/// is there.
pub fn namespaces_with(is_it: impl Fn(&Mount) -> bool) -> Vec<User> {
    let mut seen = BTreeSet::new();
    let user = |process| {
        let mounts = mounts::of_process(process).ok()?;
        let mount = mounts.into_iter().rfind(|mount| is_it(mount))?;
        // Only root can read this link of other users' processes; for other users each such process
        // counts as a namespace of its own.
        let namespace = fs::read_link(process_dir(process).join("ns/mnt"));
        let is_new = namespace.map_or(true, |namespace| seen.insert(namespace));
        is_new.then(|| User::new(process, mount.point))
    };
    processes().into_iter().filter_map(user).collect()
}

impl User {
    fn new(process: u32, uses: PathBuf) -> Self {
        let program = fs::read_to_string(process_dir(process).join("comm")).unwrap_or_default();
        Self { process, program: program.trim_end().to_owned(), uses }
    }

    /// The path that it uses, as this process reaches it, also in another mount namespace.
    pub fn path(&self) -> PathBuf {
        let root = process_dir(self.process).join("root");
        root.join(self.uses.strip_prefix("/").unwrap_or(&self.uses))
    }
}

fn process_dir(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

/// All processes, by number.
fn processes() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
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
