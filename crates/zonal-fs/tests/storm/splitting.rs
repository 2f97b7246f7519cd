//! The parts of a write.
//!
//! A drive so full that reclaim makes room for half a zone at a time takes a longer write in parts,
//! each of which ends at a multiple of that in the file. Other operations come in between.

use crate::copying::Progress;
use crate::model::{Op, Reply, State};
use crate::node::content;
use zonal_fs::vfs::WriteFlags;

/// The states after the next part of a write, if the write is longer than `atomic` bytes.
pub(crate) fn steps(
    state: &State,
    op: Op,
    reply: Option<&Reply>,
    progress: Option<&Progress>,
    atomic: u64,
) -> Vec<(State, Progress)> {
    let Op::Write { ino, offset, len, tag, flags } = op else { return Vec::new() };
    let Ok(mut node) = state.file(ino) else { return Vec::new() };
    let appends = flags.contains(WriteFlags::APPEND);
    let (start, at) = match progress {
        None if len <= atomic => return Vec::new(),
        None if appends => (node.size, node.size),
        None => (offset, offset),
        Some(Progress::Written { start, at }) => (*start, *at),
        Some(Progress::Copied(..) | Progress::Unshared(_) | Progress::Done) => return Vec::new(),
    };
    let mut steps = Vec::new();
    match reply {
        Some(Reply::Full | Reply::Broken(_)) if at > start => {
            steps.push((state.clone(), Progress::Done));
        }
        Some(Reply::At(told)) if *told != start => return steps,
        Some(_) | None => {}
    }
    let end = start + len;
    let next = if end - at <= atomic { end } else { (at / atomic + 1) * atomic };
    // The bytes of an append cannot depend on the end of the file, which moves.
    let base = if appends { 0 } else { offset };
    node.write(at, &content(tag, base + (at - start), next - at));
    let mut written = state.clone();
    written.put(ino, node);
    let is_over = next == end && matches!(reply, Some(Reply::At(_)) | None);
    let progress = if is_over { Progress::Done } else { Progress::Written { start, at: next } };
    if at < end {
        steps.push((written, progress));
    }
    steps
}
