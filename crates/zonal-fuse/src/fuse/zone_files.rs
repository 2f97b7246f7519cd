//! Writes to files that are zones.
//!
//! The kernel sends them one after the other, with one exception: with `async-dio`, a large
//! asynchronous write becomes several requests that are on their way together, and our threads may
//! take them up in any order. So there, a write beyond the end of the file waits as long as one
//! before it is at work, and a moment more, before it is refused.
//!
//! After an asynchronous write that was to extend a file and failed, the kernel sets the file's
//! length to what it was before. On a zone that has grown behind the file's back this would be a
//! reset. The kernel's length is then 0 though ours is not: [`Front::takes_back_write`] finds that
//! out. Any other length cannot be set and does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zonal_fs::vfs::{Access, FileSystem, Ino, WriteFlags, Written};
use zonal_fuse_transport::{Errno, Header, NodeId, Reply};

use super::Front;
use crate::latency::Operation;
use crate::options::AsyncDirect;

/// How long a write waits for the one before it to be taken up. The kernel hands requests out in their
/// order, so that one is in the hands of a thread that has yet to run: this must be longer than a busy
/// machine leaves a thread waiting. After that the write is refused, which changes nothing.
const TURN_TIMEOUT: Duration = Duration::from_millis(250);

/// Writes at work, and writes that failed.
#[derive(Default)]
pub(super) struct ZoneWrites {
    state: Mutex<State>,
    ended: Condvar,
    /// Whether `unseen` has something in it: this is looked at with every reply of attributes.
    any_unseen: AtomicBool,
}

#[derive(Default)]
struct State {
    /// File and offset of each write at work.
    at_work: BTreeSet<(Ino, u64)>,
    /// Files that the kernel believes to be empty though they are not.
    unseen: BTreeSet<Ino>,
    /// Of these, the thread whose write failed last.
    failed: BTreeMap<Ino, u32>,
}

impl ZoneWrites {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the file has grown to `offset`, or no write is left that could make it so: nothing before it is at
    /// work, and it has not grown for a moment. One that is still in the kernel's hands comes once another has ended.
    fn wait_for_turn(&self, ino: Ino, offset: u64, size: impl Fn() -> u64) {
        let is_before =
            |state: &State| state.at_work.range((ino, 0)..(ino, offset)).next().is_some();
        let mut state = self.state();
        state.at_work.insert((ino, offset));
        loop {
            let (seen, was_before) = (size(), is_before(&state));
            if seen >= offset {
                break;
            }
            // Writes of other files end too.
            let stays = |_: &mut State| size() == seen;
            let waited = self.ended.wait_timeout_while(state, TURN_TIMEOUT, stays);
            let (now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if waited.timed_out() && !was_before && !is_before(&state) {
                break;
            }
        }
    }

    /// Remembers a failed write to a file that was `before` long.
    fn fail(&self, ino: Ino, (before, after): (u64, u64), thread: u32) {
        let mut state = self.state();
        if before == 0 && after > 0 {
            state.unseen.insert(ino);
            self.any_unseen.store(true, Ordering::Release);
        }
        if state.unseen.contains(&ino) {
            state.failed.insert(ino, thread);
        }
    }

    /// The kernel learns the length of a file.
    pub(super) fn see(&self, ino: Ino) {
        if self.any_unseen.load(Ordering::Acquire) {
            let mut state = self.state();
            state.unseen.remove(&ino);
            state.failed.remove(&ino);
            self.any_unseen.store(!state.unseen.is_empty(), Ordering::Release);
        }
    }

    fn end(&self, ino: Ino, offset: u64) {
        self.state().at_work.remove(&(ino, offset));
        self.ended.notify_all();
    }
}

impl Front {
    /// Writes to a zone file, in turn.
    pub(super) fn write_zone(
        &self,
        request: &Header,
        node: NodeId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written, Errno> {
        let fs = &*self.shared.fs;
        let ino = self.ino(node);
        let size = || size(fs, ino);
        let together = self.shared.async_direct == AsyncDirect::Together;
        if together {
            self.shared.zone_writes.wait_for_turn(ino, offset, size);
        }
        let before = size();
        // The kernel gives an append its place too. It must not go before what is missing there, but
        // it may find that the file has become longer than the kernel knows.
        let flags = if before < offset { flags - WriteFlags::APPEND } else { flags };
        let written =
            self.run(Operation::Write, node, |fs, ino| fs.write(ino, offset, data, flags));
        if together {
            self.shared.zone_writes.end(ino, offset);
        }
        match &written {
            Err(_) => self.shared.zone_writes.fail(ino, (before, size()), request.pid),
            Ok(written) if written.offset != offset => self.forget_attributes(node),
            Ok(_) => {}
        }
        written
    }

    /// Whether setting the length of a file to 0 is the kernel taking back a write that failed,
    /// though the file is not empty. Asked once, it is the kernel; asked again, a program.
    pub(super) fn takes_back_write(&self, request: &Header, node: NodeId) -> bool {
        let failed = self.shared.zone_writes.state().failed.remove(&self.ino(node));
        failed == Some(request.pid)
    }

    /// Answers a write that has failed. It may have changed the file, and the file system.
    pub(super) fn after_failed_write(&self, node: NodeId, reply: Reply, error: Errno) {
        let front = self.clone();
        self.shared.pages.settle(node, move || {
            front.forget_attributes(node);
            front.watch_access();
            reply.error(error);
        });
    }

    /// A read has failed, with the same consequences. It holds locks of pages until it is answered, so
    /// the answer must not wait.
    pub(super) fn after_failed_read(&self, node: NodeId) {
        self.shared.pages.settle_later(node);
        self.forget_attributes(node);
        self.watch_access();
    }

    /// Has the mount made read-only if the file system has become so.
    pub(super) fn watch_access(&self) {
        if self.shared.fs.access() == Access::ReadOnly {
            self.shared.became_read_only.fire();
        }
    }
}

fn size(fs: &dyn FileSystem, ino: Ino) -> u64 {
    fs.getattr(ino).map_or(0, |attr| attr.size)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    const INO: Ino = Ino::new(7);

    #[test]
    fn a_write_waits_as_long_as_the_file_grows() {
        let (writes, size) = (Arc::new(ZoneWrites::default()), Arc::new(AtomicU64::new(0)));
        let (waiting, grown) = (Arc::clone(&writes), Arc::clone(&size));
        let last = thread::spawn(move || {
            waiting.wait_for_turn(INO, 4, || grown.load(Ordering::SeqCst));
            grown.load(Ordering::SeqCst)
        });
        // Of those before it, each is taken up only after the one before it has ended.
        for offset in 0..4 {
            thread::park_timeout(TURN_TIMEOUT / 5);
            writes.wait_for_turn(INO, offset, || size.load(Ordering::SeqCst));
            size.store(offset + 1, Ordering::SeqCst);
            writes.end(INO, offset);
        }
        assert_eq!(last.join().unwrap(), 4);
    }

    #[test]
    fn a_write_beyond_the_end_is_refused_though_other_files_are_written() {
        let writes = Arc::new(ZoneWrites::default());
        let waiting = Arc::clone(&writes);
        let beyond = thread::spawn(move || waiting.wait_for_turn(INO, 4, || 0));
        while !beyond.is_finished() {
            writes.wait_for_turn(Ino::new(8), 0, || 0);
            writes.end(Ino::new(8), 0);
        }
        beyond.join().unwrap();
    }
}
