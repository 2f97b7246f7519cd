//! The attributes and contents of all names in the tree, on both sides, as texts to compare.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use zonal::wait::wait_until;

use super::call::{Call, Process};

/// Times before this second were set by a call, and must be the same.
const FIRST_OF_THE_CLOCK: i64 = 1_000_000_000;

/// How far to look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The result of stat(2).
    Attributes,
    /// Contents and extended attributes too.
    Contents,
}

/// Waits until the kernel's clock for files shows a time that no file has.
pub(crate) fn wait_for_the_next_tick() {
    let before = clock_gettime(ClockId::RealtimeCoarse);
    wait_until(|| clock_gettime(ClockId::RealtimeCoarse) != before);
}

/// The times of a file: of modification, of change. Not of access: a server sees openings and
/// pages that are read, and no read of a page in the cache.
type Times = [(i64, i64); 2];

/// Both sides, and the times that their files had when they were looked at last.
pub(crate) struct Looks {
    roots: [PathBuf; 2],
    seen: [BTreeMap<String, (u64, Times)>; 2],
}

fn times(meta: &Metadata) -> Times {
    [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())]
}

/// All paths below a directory, and the directory as "". Reading them leaves no trace.
fn paths(root: &Path, below: &str, found: &mut Vec<String>) {
    found.push(below.to_owned());
    let meta = fs::symlink_metadata(root.join(below)).unwrap();
    if meta.is_dir() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
        let dir = rustix::fs::open(root.join(below), flags, Mode::empty()).unwrap();
        for entry in Dir::new(dir).unwrap() {
            let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            paths(root, &path, found);
        }
    }
}

/// The content, read without a trace.
fn content(path: &Path) -> Vec<u8> {
    const O_NOATIME: i32 = 0o1_000_000;
    let mut bytes = Vec::new();
    let mut file = File::options().read(true).custom_flags(O_NOATIME).open(path).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

impl Looks {
    pub(crate) fn new(roots: [PathBuf; 2]) -> Self {
        Looks { roots, seen: Default::default() }
    }

    /// The first difference between the sides.
    pub(crate) fn difference(&mut self, depth: Depth) -> Option<String> {
        let [ours, theirs] = self.roots.each_ref().map(|root| {
            let mut found = Vec::new();
            paths(root, "", &mut found);
            found.sort_unstable();
            found
        });
        if ours != theirs {
            return Some(format!("there are {ours:?}, on ext4 {theirs:?}"));
        }
        let metas = self.roots.each_ref().map(|root| {
            let meta = |path| fs::symlink_metadata(root.join(path)).unwrap();
            ours.iter().map(meta).collect::<Vec<_>>()
        });
        for (number, path) in ours.iter().enumerate() {
            let texts = metas.each_ref().map(|metas| shown(metas, number, &ours));
            if texts[0] != texts[1] {
                return Some(format!("{path:?} is {}, on ext4 {}", texts[0], texts[1]));
            }
            let pair = metas.each_ref().map(|metas| &metas[number]);
            // Writing to a FIFO moves its times on ext4; no server hears of it.
            let kind = pair[0].file_type();
            if (kind.is_file() || kind.is_dir() || kind.is_symlink())
                && let Some(difference) = self.difference_of_times(path, pair)
            {
                return Some(difference);
            }
            if depth == Depth::Contents
                && let Some(difference) = self.difference_inside(path, pair[0])
            {
                return Some(difference);
            }
        }
        None
    }

    fn difference_of_times(&mut self, path: &str, metas: [&Metadata; 2]) -> Option<String> {
        let now = metas.map(|meta| (meta.ino(), times(meta)));
        let before: [_; 2] =
            std::array::from_fn(|side| self.seen[side].insert(path.to_owned(), now[side]));
        for (kind, name) in ["modification", "change"].into_iter().enumerate() {
            let set = now.map(|(_, times)| times[kind].0 < FIRST_OF_THE_CLOCK);
            let exactly = now.map(|(_, times)| times[kind]);
            if set[0] != set[1] || (set[0] && exactly[0] != exactly[1]) {
                return Some(format!("the time of {name} of {path:?}: {exactly:?}"));
            }
            // A name may have come to another file: then nothing is known of its times before.
            let [Some(our), Some(their)] = before else { continue };
            if (our.0, their.0) != (now[0].0, now[1].0) {
                continue;
            }
            let moved = [our, their].map(|(_, times)| times[kind]);
            let moved = [moved[0] != exactly[0], moved[1] != exactly[1]];
            if moved[0] != moved[1] {
                return Some(format!("the time of {name} of {path:?} moved: {moved:?}"));
            }
        }
        None
    }

    /// Of the content and the extended attributes of one path.
    fn difference_inside(&self, path: &str, meta: &Metadata) -> Option<String> {
        if meta.is_file() {
            let [our, their] = self.roots.each_ref().map(|root| content(&root.join(path)));
            if our != their {
                let at = our.iter().zip(&their).position(|(our, their)| our != their);
                return Some(format!("the content of {path:?} differs at {at:?}"));
            }
        }
        let [our, their] = self.roots.each_ref().map(|root| {
            let path = root.join(path).into_os_string().into_string().unwrap();
            Process::default().perform(&Call::ListAttributes { path })
        });
        (our != their).then(|| format!("{path:?} has the attributes {our:?}, on ext4 {their:?}"))
    }
}

/// The result of stat(2) for a path, without the values that each file system decides for itself:
/// inode numbers and the sizes of directories. An inode is named by the first path that leads to
/// it.
fn shown(metas: &[Metadata], number: usize, paths: &[String]) -> String {
    let meta = &metas[number];
    let first = metas.iter().position(|other| other.ino() == meta.ino()).unwrap();
    let size = if meta.is_dir() { 0 } else { meta.len() };
    format!(
        "mode {:o}, {} links, owner {}:{}, {} bytes, device {}, the file of {:?}",
        meta.mode(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        size,
        meta.rdev(),
        paths[first],
    )
}
