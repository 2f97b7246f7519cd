//! The log: commits, the journal, the superblock log, and maintenance of the table.

pub(super) mod commit;
pub(super) mod committer;
pub(super) mod fresh;
pub(super) mod journal;
pub(super) mod maintenance;
mod manifest;
pub(super) mod reserve;
pub(super) mod superblock_log;
pub(super) mod trail;
pub(super) mod upkeep;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use zonal::Clock;
use zonal::retry::Retries;

use crate::furrow::drive::Drive;
use crate::furrow::format::blocks_for;
use crate::furrow::log::committer::{CommitTurns, Committer};
use crate::furrow::options::MountOptions;
use crate::furrow::sync::Mutex;
use crate::furrow::table::pairs::Pairs;
use crate::furrow::tree::Tree;
use crate::furrow::write::Writer;

/// Makes changes durable.
pub(super) struct Log {
    pub(super) tree: Arc<Tree>,
    pub(super) drive: Arc<Drive>,
    pub(super) writer: Arc<Writer>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) committer: Mutex<Committer>,
    /// Turns of the threads that commit.
    pub(super) commit_turns: CommitTurns,
    /// Where parts and manifests are written.
    pub(super) pairs: Mutex<Pairs>,
    /// Held by the thread that changes the levels of the table.
    pub(super) stepping: Mutex<Retries<()>>,
    /// The last batch that is durable.
    pub(super) durable_batch: AtomicU64,
    /// When the last commit took its batch.
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
            stepping: Mutex::default(),
            durable_batch: AtomicU64::new(last_batch),
            commit_age: options.commit_age(),
        }
    }

    /// Tells [`Space`](crate::furrow::space::Space) how much the journal can write to its pair.
    fn note_journal(&self, committer: &Committer) {
        let journal = &committer.journal;
        let blocks = if journal.is_impaired() { 0 } else { journal.room(&self.drive) };
        self.tree.space.pair_room.note_journal(blocks);
    }

    /// Tells [`Space`](crate::furrow::space::Space) whether another manifest fits into the parts'
    /// pair.
    fn note_parts(&self, pairs: &Pairs, committer: &Committer) {
        let last = committer.superblock.manifest[0].bytes.get() as usize;
        let room = pairs.open.map_or(0, |pair| pair.room(&self.drive));
        // It may be longer than the last one.
        self.tree.space.pair_room.note_parts(room as usize, blocks_for(last) + 2);
    }
}
