//! The steps of a copy.
//!
//! One step shares all whole blocks, with a short last one where both files end in it. Two steps
//! copy a part of a block: the first reads it, the second writes it, and other operations come in
//! between. If both places are at the start of a block, a step before them looks for a block to
//! share. The read takes the bytes that are there by then, so it can take a whole block of a source
//! that has grown since.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::model::{Op, Reply, State};
use crate::node::{BLOCK, hash_of};

/// Bytes that a copy reads at once.
const READ_MAX: u64 = 1 << 20;

/// How far an operation has come.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    /// A copy of so many bytes, and the bytes that it has read and not yet written.
    Copied(u64, Option<Arc<[u8]>>),
    /// A copy of so many bytes that found no block to share next, and has not read yet.
    Unshared(u64),
    /// A write in parts that began at `start`, up to byte `at` of the file.
    Written { start: u64, at: u64 },
    /// It has taken effect completely.
    Done,
}

impl Progress {
    /// The order of progress.
    fn key(&self) -> (u64, u64, u64) {
        match self {
            Self::Copied(bytes, None) => (*bytes, 0, 0),
            Self::Unshared(bytes) => (*bytes, 0, 1),
            Self::Copied(bytes, Some(held)) => (*bytes, held.len() as u64, hash_of(held)),
            Self::Written { start, at } => (*at, *start, u64::MAX),
            Self::Done => (u64::MAX, 0, 0),
        }
    }
}

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Progress {}

impl PartialOrd for Progress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Progress {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The states after the next step of a copy. First it finds out how much there is.
pub(crate) fn steps(
    state: &State,
    op: Op,
    reply: Option<&Reply>,
    progress: Option<&Progress>,
) -> Vec<(State, Progress)> {
    let Op::Copy { source, from, target, to, len } = op else { return Vec::new() };
    let has_failed = matches!(reply, Some(Reply::Full | Reply::Broken(_)));
    let done = |state: &State| (state.clone(), Progress::Done);
    let (Ok(source_node), Ok(target_node)) = (state.file(source), state.file(target)) else {
        let ends = has_failed || matches!(reply, Some(Reply::Refused(_)));
        return if ends { vec![done(state)] } else { Vec::new() };
    };
    let mut steps = Vec::new();
    let whole = match reply {
        Some(Reply::At(copied)) => *copied,
        Some(_) if has_failed => {
            steps.push(done(state));
            len
        }
        Some(_) | None => len.min(source_node.size.saturating_sub(from)),
    };
    let mut looks = true;
    let (at, held) = match progress {
        None if whole == 0 && source_node.size > from => return steps,
        None => (0, None),
        Some(Progress::Copied(at, held)) => (*at, held.clone()),
        Some(Progress::Unshared(at)) => {
            looks = false;
            (*at, None)
        }
        Some(Progress::Written { .. } | Progress::Done) => return steps,
    };
    let target_node = if source == target { source_node.clone() } else { target_node };
    let copied = |bytes: &[u8]| {
        let mut node = target_node.clone();
        node.write(to + at, bytes);
        let mut next = state.clone();
        next.put(target, node);
        let end = at + bytes.len() as u64;
        let is_over = end == whole && matches!(reply, Some(Reply::At(_)) | None);
        (next, if is_over { Progress::Done } else { Progress::Copied(end, None) })
    };
    if let Some(held) = held {
        steps.push(copied(&held));
        return steps;
    }
    if at >= whole {
        if matches!(reply, Some(Reply::At(_)) | None) {
            steps.push(done(state));
        }
        return steps;
    }
    let there = (whole - at).min(source_node.size.saturating_sub(from + at));
    let is_aligned = (from + at).is_multiple_of(BLOCK) && (to + at).is_multiple_of(BLOCK);
    if is_aligned && looks {
        let is_end = from + at + there == source_node.size && to + at + there >= target_node.size;
        let shared = if is_end { there } else { there / BLOCK * BLOCK };
        steps.push(if shared > 0 {
            copied(&source_node.read(from + at, shared))
        } else {
            (state.clone(), Progress::Unshared(at))
        });
    } else if there > 0 {
        let is_parallel = (from + at) % BLOCK == (to + at) % BLOCK;
        let most = if is_parallel { BLOCK - (to + at) % BLOCK } else { READ_MAX };
        let bytes = source_node.read(from + at, there.min(most));
        steps.push((state.clone(), Progress::Copied(at, Some(bytes.into()))));
    }
    steps
}
