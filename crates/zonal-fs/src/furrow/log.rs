//! The log: commits, the journal, and the table that takes its rows over.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use zonal::Clock;

use super::committer::{CommitTurns, Committer};
use super::io::Drive;
use super::options::MountOptions;
use super::sync::Mutex;
use super::table::pairs::Pairs;
use super::tree::Tree;
use super::writer::Writer;

/// Makes changes durable.
pub(super) struct Log {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) writer: Arc<Writer>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) committer: Mutex<Committer>,
    /// Who commits.
    pub(super) commit_turns: CommitTurns,
    /// Where parts and manifests are written.
    pub(super) pairs: Mutex<Pairs>,
    /// One changes the levels of the table at a time.
    pub(super) stepping: Mutex<()>,
    /// The last batch that is durable.
    pub(super) durable_batch: AtomicU64,
    /// When the last batch was taken.
    pub(super) last_commit_ns: AtomicU64,
    /// Age of the last commit at which the next one is due.
    pub(super) commit_age: Duration,
}

impl Log {
    pub(super) fn new(
        writer: Arc<Writer>,
        clock: Arc<dyn Clock>,
        committer: Committer,
        options: &MountOptions,
    ) -> Self {
        let last_batch = committer.durable_record;
        Self {
            tree: Arc::clone(&writer.tree),
            drive: Arc::clone(&writer.drive),
            writer,
            last_commit_ns: AtomicU64::new(clock.monotonic_ns()),
            clock,
            committer: Mutex::new(committer),
            commit_turns: CommitTurns::new(options.planted),
            pairs: Mutex::default(),
            stepping: Mutex::new(()),
            durable_batch: AtomicU64::new(last_batch),
            commit_age: options.commit_age(),
        }
    }
}
