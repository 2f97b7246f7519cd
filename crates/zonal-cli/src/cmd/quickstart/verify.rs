//! Checksums of a whole tree, and the differences between two trees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::stop::Stop;
use super::volume::{Kind, Volume};

/// Bytes that are read at once.
pub(super) const PIECE: usize = 1 << 20;

/// Threads that read or copy files.
pub(super) const THREADS: usize = 2;

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Directory,
    Link(PathBuf),
    File { bytes: u64, sha256: [u8; 32] },
}

/// Every path of a tree, with its content.
pub(super) type Sums = BTreeMap<PathBuf, Content>;

/// Reads every byte of `volume`, and reports to `progress` how many it has read.
pub(super) fn scan(
    volume: &dyn Volume,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Sums> {
    let mut sums = Sums::new();
    let mut files = Vec::new();
    walk(volume, PathBuf::new(), &mut sums, &mut files)?;
    let read = in_parallel(&files, |path| {
        stop.check()?;
        Ok((path.clone(), sum_file(volume, path, progress)?))
    })?;
    sums.extend(read);
    Ok(sums)
}

fn walk(
    volume: &dyn Volume,
    below: PathBuf,
    sums: &mut Sums,
    files: &mut Vec<PathBuf>,
) -> Result<()> {
    let mut waiting = vec![below];
    while let Some(folder) = waiting.pop() {
        for (name, kind) in volume.list(&folder)? {
            let path = folder.join(name);
            match kind {
                Kind::Directory => {
                    sums.insert(path.clone(), Content::Directory);
                    waiting.push(path);
                }
                Kind::Link => {
                    let target = volume.link_target(&path)?;
                    sums.insert(path, Content::Link(target));
                }
                Kind::File => files.push(path),
            }
        }
    }
    Ok(())
}

fn sum_file(volume: &dyn Volume, path: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<Content> {
    let file = volume.open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = file.read_at(bytes, &mut buffer)?;
        if read == 0 {
            return Ok(Content::File { bytes, sha256: hash.finalize().into() });
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
        progress(read as u64);
    }
}

/// Does `work` for each item on [`THREADS`] threads; the results come in any order.
pub(super) fn in_parallel<I: Sync, O: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Ok(Vec::with_capacity(items.len())));
    let locked = || results.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = work(item);
                    match (&mut *locked(), outcome) {
                        (Ok(done), Ok(result)) => done.push(result),
                        (Err(_), _) => return,
                        (slot, Err(error)) => {
                            *slot = Err(error);
                            return;
                        }
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// At most five lines about differences; none if the trees are equal.
pub(super) fn differences(expected: &Sums, found: &Sums) -> Vec<String> {
    let missing = expected.iter().filter_map(|(path, content)| match found.get(path) {
        None => Some(format!("{} is missing", path.display())),
        Some(other) if other != content => Some(format!("{} differs", path.display())),
        Some(_) => None,
    });
    let surplus = found
        .keys()
        .filter(|path| !expected.contains_key(*path))
        .map(|path| format!("{} came from nowhere", path.display()));
    missing.chain(surplus).take(5).collect()
}

/// Number and bytes of the files.
pub(super) fn totals(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |(files, sum), content| match content {
        Content::File { bytes, .. } => (files + 1, sum + bytes),
        Content::Directory | Content::Link(_) => (files, sum),
    })
}

#[cfg(test)]
mod tests {
    use super::super::volume::Mounted;
    use super::*;

    fn scan_dir(path: &Path) -> Sums {
        scan(&Mounted::new(path), &Stop::default(), &|_| ()).unwrap()
    }

    #[test]
    fn verify_detects_one_changed_byte() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/f"), vec![7; 3 << 20]).unwrap();
        std::os::unix::fs::symlink("f", folder.path().join("d/l")).unwrap();
        let before = scan_dir(folder.path());
        assert_eq!(totals(&before), (1, 3 << 20));
        assert_eq!(differences(&before, &scan_dir(folder.path())), [""; 0]);
        let mut changed = vec![7; 3 << 20];
        changed[2 << 20] = 8;
        std::fs::write(folder.path().join("d/f"), changed).unwrap();
        std::fs::write(folder.path().join("d/new"), "").unwrap();
        let found = differences(&before, &scan_dir(folder.path()));
        assert_eq!(found, ["d/f differs", "d/new came from nowhere"]);
    }

    #[test]
    fn parallel_work_stops_at_first_error() {
        let items: Vec<u32> = (0..100).collect();
        let outcome = in_parallel(&items, |item| {
            anyhow::ensure!(*item != 50, "fifty");
            Ok(*item)
        });
        assert_eq!(outcome.unwrap_err().to_string(), "fifty");
        assert_eq!(in_parallel(&items, |item| Ok(*item)).unwrap().len(), 100);
    }
}
