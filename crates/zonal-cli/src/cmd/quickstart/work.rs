//! The work that needs no other program: copying the tree, and a database that commits.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::plan::{File, Plan};
use super::stop::Stop;
use super::verify::{Content, PIECE, Sums, in_parallel};
use super::volume::{Handle, Volume};
use crate::clock;

/// Directory that the tree is copied to.
pub(super) const TREE: &str = "tree";

/// Copies the plan's tree and returns its contents, as read from the source.
pub(super) fn copy(
    plan: &Plan,
    volume: &dyn Volume,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Sums> {
    let tree = Path::new(TREE);
    let mut sums = Sums::from([(tree.to_owned(), Content::Directory)]);
    volume.make_dir(tree)?;
    for path in &plan.dirs {
        stop.check()?;
        volume.make_dir(&tree.join(path))?;
        sums.insert(tree.join(path), Content::Directory);
    }
    for path in &plan.links {
        let target = std::fs::read_link(plan.source.join(path))
            .with_context(|| format!("reading link {}", path.display()))?;
        volume.make_link(&tree.join(path), &target)?;
        sums.insert(tree.join(path), Content::Link(target));
    }
    let copied = in_parallel(&plan.files, |file| {
        stop.check()?;
        Ok((tree.join(&file.path), copy_file(&plan.source, file, volume, progress)?))
    })?;
    sums.extend(copied);
    Ok(sums)
}

fn copy_file(
    source: &Path,
    file: &File,
    volume: &dyn Volume,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Content> {
    use std::io::Read;
    let path = source.join(&file.path);
    let mut from =
        std::fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let to = volume.create(&Path::new(TREE).join(&file.path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let read = from.read(&mut buffer).with_context(|| format!("reading {}", path.display()))?;
        if read == 0 {
            return Ok(Content::File { bytes, sha256: hash.finalize().into() });
        }
        hash.update(&buffer[..read]);
        to.write_at(bytes, &buffer[..read])?;
        bytes += read as u64;
        progress(read as u64);
    }
}

/// Pages of the database, and pages that a transaction changes.
const PAGE: usize = 4096;
const PAGES: u64 = 2048;
const PAGES_CHANGED: usize = 8;

/// Commits transactions until `limit` or until there are `most` of them; returns how many.
///
/// Each transaction works as in SQLite with a rollback journal: the old pages go to a journal,
/// which becomes durable; then the new pages are written in place and become durable; then the
/// journal is removed.
pub(super) fn database(
    volume: &dyn Volume,
    most: u64,
    limit: Duration,
    stop: &Stop,
) -> Result<u64> {
    let (folder, journal) = (Path::new("database"), Path::new("database/pages.db-journal"));
    volume.make_dir(folder)?;
    let pages = volume.create(&folder.join("pages.db"))?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut page = vec![0; PAGE];
    for number in 0..PAGES {
        random.fill(&mut page[..]);
        pages.write_at(number * PAGE as u64, &page)?;
    }
    pages.sync()?;
    let start = clock::now();
    let mut done = 0;
    while done < most && start.elapsed() < limit {
        stop.check()?;
        transaction(volume, &*pages, journal, &mut random)?;
        done += 1;
    }
    Ok(done)
}

fn transaction(
    volume: &dyn Volume,
    pages: &dyn Handle,
    journal: &Path,
    random: &mut ChaCha8Rng,
) -> Result<()> {
    let changed: Vec<u64> =
        (0..PAGES_CHANGED).map(|_| random.random_range(0..PAGES) * PAGE as u64).collect();
    let old = volume.create(journal)?;
    let mut page = vec![0; PAGE];
    for (index, at) in changed.iter().enumerate() {
        pages.read_at(*at, &mut page)?;
        old.write_at((index * PAGE) as u64, &page)?;
    }
    old.sync()?;
    for at in changed {
        random.fill(&mut page[..]);
        pages.write_at(at, &page)?;
    }
    pages.sync()?;
    volume.remove(journal)
}

/// Small files are written under one name and moved over another, and some are removed. Returns how
/// many were written.
pub(super) fn churn(volume: &dyn Volume, count: u64, stop: &Stop) -> Result<u64> {
    let folder = Path::new("mailbox");
    volume.make_dir(folder)?;
    let made = AtomicU64::new(0);
    let numbers: Vec<u64> = (0..count).collect();
    in_parallel(&numbers, |number| {
        stop.check()?;
        let mut random = ChaCha8Rng::seed_from_u64(*number);
        let mut data = vec![0; random.random_range(200..20_000)];
        random.fill(&mut data[..]);
        let (new, kept) = (folder.join(format!("{number}.new")), folder.join(format!("{number}")));
        volume.create(&new)?.write_at(0, &data)?;
        volume.rename(&new, &kept)?;
        made.fetch_add(1, Ordering::Relaxed);
        if number % 3 == 0 { volume.remove(&kept) } else { Ok(()) }
    })?;
    Ok(made.into_inner())
}

#[cfg(test)]
mod tests {
    use super::super::verify::{differences, scan, totals};
    use super::super::volume::Mounted;
    use super::*;

    #[test]
    fn copy_equals_its_source() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(source.path().join("d")).unwrap();
        std::fs::write(source.path().join("d/f"), [3; 5000]).unwrap();
        std::os::unix::fs::symlink("f", source.path().join("d/l")).unwrap();
        let plan = Plan::new(Some(source.path())).unwrap();
        let volume = Mounted::new(target.path());
        let sums = copy(&plan, &volume, &Stop::default(), &|_| ()).unwrap();
        assert_eq!(totals(&sums), (1, 5000));
        let found = scan(&volume, &Stop::default(), &|_| ()).unwrap();
        assert_eq!(differences(&sums, &found), [""; 0]);
    }

    #[test]
    fn database_and_mailbox_do_what_they_count() {
        let target = tempfile::tempdir().unwrap();
        let volume = Mounted::new(target.path());
        let done = database(&volume, 3, Duration::from_mins(1), &Stop::default()).unwrap();
        assert_eq!(done, 3);
        assert_eq!(churn(&volume, 9, &Stop::default()).unwrap(), 9);
        assert_eq!(std::fs::read_dir(target.path().join("mailbox")).unwrap().count(), 6);
    }
}
