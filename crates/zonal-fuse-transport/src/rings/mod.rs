//! Requests over `io_uring` instead of `/dev/fuse`. Kernels have it from Linux 6.14 on, switched
//! off by default.
//!
//! Each processor has a queue of its own: a request goes to the queue of the processor on which its
//! caller runs. Each thread of a queue has one entry and one ring, so a request that waits for the
//! device blocks no other. A queue begins with one entry and gets more when they are needed.
//!
//! - `queue`: how many entries a queue has, and how deadlock is avoided. Start there.
//! - `entry`: one entry and its thread.
//! - `affinity`: the processor on which a thread runs.
//! - `slot`: takes the answer.
//!
//! Requests without an answer and notifications still go by `/dev/fuse`.

mod affinity;
mod entry;
mod queue;
mod slot;

use std::fs;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::Errno;
use crate::mount::Mount;
use crate::serve::Serve;
use crate::worker_pool::join_all;
use queue::{EntryThread, Processor, Queue, RingShared};

pub(crate) use queue::RingSizes;

/// Parameter of the kernel module that switches it on.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel's lists of possible and of online processors.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The queues of a mount, each with its first entry.
pub(crate) struct Rings {
    shared: Arc<RingShared>,
    queues: Vec<Arc<Queue>>,
    started: Vec<EntryThread>,
}

impl Rings {
    /// Makes the queues, before INIT.
    pub(crate) fn new(mount: &Arc<Mount>, sizes: RingSizes) -> io::Result<Self> {
        check_parameter(&fs::read_to_string(PARAMETER).unwrap_or_default())?;
        let possible = numbers(&fs::read_to_string(POSSIBLE)?)?;
        let online = numbers(&fs::read_to_string(ONLINE)?)?;
        let shared = Arc::new(RingShared::new(Arc::clone(mount), sizes)?);
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
            let queue = Queue::new(Arc::clone(&shared), number, processor, entry::run);
            rings.started.push(queue.start()?);
            rings.queues.push(queue);
        }
        for started in &rings.started {
            started.report().map_err(|error| explained("making a ring", &error))?;
        }
        Ok(rings)
    }

    /// Registers the entries, after INIT. If one fails, the kernel continues with `/dev/fuse`.
    pub(crate) fn register(&self) -> io::Result<()> {
        for started in &self.started {
            let _ = started.orders.send(queue::EntryOrder::Register);
        }
        for started in &self.started {
            started.report().map_err(|error| explained("registering an entry", &error))?;
        }
        Ok(())
    }

    /// Lets the threads serve requests.
    pub(crate) fn serve(self, server: &Arc<dyn Serve>) -> RingThreads {
        for started in &self.started {
            let _ = started.orders.send(queue::EntryOrder::Serve(Arc::clone(server)));
        }
        let (shared, queues, server) = (self.shared, self.queues, Arc::clone(server));
        let watched = Arc::clone(&shared);
        let watcher = thread::Builder::new().name("fuse-watch".to_owned());
        let watcher = watcher.spawn(move || Queue::watch(&queues, &server, &watched.watchdog));
        let watcher =
            watcher.inspect_err(|error| tracing::warn!(%error, "no watchdog for the rings")).ok();
        RingThreads { shared, watcher }
    }
}

/// The threads of all queues.
pub(crate) struct RingThreads {
    shared: Arc<RingShared>,
    watcher: Option<JoinHandle<()>>,
}

impl RingThreads {
    /// Waits until the mount has ended.
    pub(crate) fn join(mut self) -> io::Result<()> {
        let outcome = join_all(&self.shared.threads);
        self.shared.watchdog.end();
        if self.watcher.take().is_some_and(|watcher| watcher.join().is_err()) {
            tracing::error!("the watchdog of the rings panicked");
        }
        // The watchdog may have started a thread meanwhile.
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

/// Parses a list of numbers such as `0-3,8`.
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
    fn processor_lists_are_parsed() {
        assert_eq!(numbers("0-1\n").unwrap(), [0, 1]);
        assert_eq!(numbers("0,2-3,7").unwrap(), [0, 2, 3, 7]);
        assert!(numbers("").is_err());
        assert!(numbers("0-x").is_err());
    }

    #[test]
    fn uring_parameter_error_says_what_to_do() {
        assert!(check_parameter("Y\n").is_ok());
        assert!(check_parameter("N\n").unwrap_err().to_string().contains("write Y to /sys/"));
        assert!(check_parameter("").unwrap_err().to_string().contains("6.14"));
    }
}
