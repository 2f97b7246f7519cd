//! The work that needs no other program: a database that commits, and small files that come and go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tree::{Tree, in_two_threads};
use crate::{clock, interrupt};

/// How long, and how often at most, the database commits.
const TIME: Duration = Duration::from_secs(4);
const TRANSACTIONS: u64 = 1000;

/// Pages of the database, and pages that a transaction changes.
const PAGE: usize = 4096;
const PAGES: u64 = 2048;
const PAGES_CHANGED: usize = 8;

/// Number of small files that are made, moved and removed.
const MAILS: u64 = 3000;

/// Commits transactions, and returns how many.
///
/// Each transaction works as in SQLite with a rollback journal: the old pages go to a journal,
/// which becomes durable; then the new pages are written in place and become durable; then the
/// journal is removed.
pub(super) fn database(tree: &Tree) -> Result<u64> {
    let journal = Path::new("database/pages.db-journal");
    tree.make_dir(Path::new("database"))?;
    let pages = tree.create(Path::new("database/pages.db"))?;
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut page = vec![0; PAGE];
    for number in 0..PAGES {
        random.fill(&mut page[..]);
        pages.write_at(number * PAGE as u64, &page)?;
    }
    pages.sync()?;
    let start = clock::now();
    let mut done = 0;
    while done < TRANSACTIONS && start.elapsed() < TIME {
        interrupt::check()?;
        let changed: Vec<u64> =
            (0..PAGES_CHANGED).map(|_| random.random_range(0..PAGES) * PAGE as u64).collect();
        let old = tree.create(journal)?;
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
        tree.remove(journal)?;
        done += 1;
    }
    Ok(done)
}

/// Writes small files under one name, moves them over another, and removes some. Returns how many
/// it has written.
pub(super) fn churn(tree: &Tree) -> Result<u64> {
    tree.make_dir(Path::new("mailbox"))?;
    in_two_threads(0..MAILS, |number| {
        let mut random = ChaCha8Rng::seed_from_u64(number);
        let mut data = vec![0; random.random_range(200..20_000)];
        random.fill(&mut data[..]);
        let kept = PathBuf::from(format!("mailbox/{number}"));
        let new = kept.with_extension("new");
        tree.create(&new)?.write_at(0, &data)?;
        tree.rename(&new, &kept)?;
        if number % 3 == 0 { tree.remove(&kept) } else { Ok(()) }
    })?;
    Ok(MAILS)
}
