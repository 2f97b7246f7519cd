//! Requests by `io_uring` instead of `/dev/fuse`, which kernels have from Linux 6.14 on, switched off as delivered.
//!
//! Each processor has a queue of its own: a request goes to that of the processor on which it is made. The
//! threads of a queue have one entry and one ring each, so that one which the device keeps waiting holds up nothing
//! but its request. A queue begins with one; further ones are started when they are needed.
//!
//! - `queue`: how many entries a queue has, and why nothing waits for ever. Start there.
//! - `entry`: one entry and its thread.
//! - `placing`: where a thread runs.
//! - `slot`: where the answer is put.
//!
//! What the kernel tells without waiting for an answer, and what it is told unasked, goes by `/dev/fuse` as before.

mod entry;
mod placing;
mod queue;
mod slot;

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::Errno;
use crate::crew::join_all;
use crate::mount::Mount;
use crate::session::Serve;
use queue::{Processor, Queue, Shared, Started};

/// Says whether the kernel offers this.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Processors that there may be, and those that are there.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Queues with their first entries.
pub(crate) struct Rings {
    shared: Arc<Shared>,
    queues: Vec<Arc<Queue>>,
    started: Vec<Started>,
}

impl Rings {
    /// Makes all that is needed before the kernel is told. Entries may hold requests of `sizes.0` bytes, and each queue
    /// has up to `sizes.1` of them, beside those that wait for others.
    pub(crate) fn new(mount: &Arc<Mount>, sizes: (usize, usize)) -> io::Result<Self> {
        check_parameter(&fs::read_to_string(PARAMETER).unwrap_or_default())?;
        let possible = numbers(&fs::read_to_string(POSSIBLE)?)?;
        let online = numbers(&fs::read_to_string(ONLINE)?)?;
        let shared = Arc::new(Shared::new(Arc::clone(mount), sizes)?);
        let queues = Vec::new();
        let mut rings = Self { shared: Arc::clone(&shared), queues, started: Vec::new() };
        for (index, number) in possible.into_iter().enumerate() {
            if index != usize::from(number) {
                return Err(unsupported("the numbers of processors have gaps"));
            }
            let is_online = online.contains(&number);
            let processor = if is_online { Processor::Online } else { Processor::Offline };
            if is_online && !shared.everywhere.is_set(index) {
                let why = format!("this process is kept away from processor {number}");
                return Err(unsupported(&why));
            }
            let queue = Queue::new(Arc::clone(&shared), number, processor);
            rings.started.push(queue.start()?);
            rings.queues.push(queue);
        }
        for started in &rings.started {
            started.report().map_err(|error| explained("making a ring", &error))?;
        }
        Ok(rings)
    }

    /// Registers the entries; the kernel has agreed. If one fails, the kernel goes on by `/dev/fuse`.
    pub(crate) fn register(&self) -> io::Result<()> {
        for started in &self.started {
            let _ = started.steps.send(queue::Step::Register);
        }
        for started in &self.started {
            started.report().map_err(|error| explained("registering an entry", &error))?;
        }
        Ok(())
    }

    /// Has the requests served. Returns what waits for the threads to end.
    pub(crate) fn serve(self, server: &Arc<dyn Serve>) -> Threads {
        for started in &self.started {
            let _ = started.steps.send(queue::Step::Serve(Arc::clone(server)));
        }
        let (shared, queues, server) = (self.shared, self.queues, Arc::clone(server));
        let watched = Arc::clone(&shared);
        let watcher = thread::Builder::new().name("fuse-watch".to_owned());
        let watcher = watcher.spawn(move || Queue::watch(&queues, &server, &watched.alarm));
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "no thread that watches the rings"))
            .ok();
        Threads { shared, watcher }
    }
}

/// The threads of all queues.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

impl Threads {
    /// Waits until the mount has ended.
    pub(crate) fn join(mut self) -> io::Result<()> {
        let outcome = join_all(&self.shared.threads);
        self.shared.alarm.end();
        if self.watcher.take().is_some_and(|watcher| watcher.join().is_err()) {
            tracing::error!("the thread that watches the rings panicked");
        }
        // It may have started one meanwhile.
        outcome.and(join_all(&self.shared.threads))
    }
}

fn check_parameter(value: &str) -> io::Result<()> {
    match value.trim() {
        "Y" | "1" => Ok(()),
        "" => Err(unsupported("the kernel has it from Linux 6.14 on, and not in every build")),
        _ => Err(unsupported(&format!("the kernel has it switched off: write Y to {PARAMETER}"))),
    }
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why.to_owned())
}

fn explained(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> io::Result<Vec<u16>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parsed = first.parse::<u16>().ok().zip(last.parse().ok());
        let (first, last) = parsed.ok_or_else(|| io::Error::from(Errno::INVAL))?;
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(numbers("0-1\n").unwrap(), [0, 1]);
        assert_eq!(numbers("0,2-3,7").unwrap(), [0, 2, 3, 7]);
        assert!(numbers("").is_err());
        assert!(numbers("0-x").is_err());
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(check_parameter("Y\n").is_ok());
        assert!(check_parameter("N\n").unwrap_err().to_string().contains("write Y to /sys/"));
        assert!(check_parameter("").unwrap_err().to_string().contains("6.14"));
    }
}
