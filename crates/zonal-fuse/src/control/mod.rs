//! The control directory: `.zonal` in the root of a mount. It shows counters and zones, and takes
//! commands that no system call has.
//!
//! | file | content |
//! | --- | --- |
//! | `stats` | type, settings, counters and latencies of the file system, as JSON: [`Report`] |
//! | `page` | the same as text of at most 80 columns |
//! | `metrics` | the same for Prometheus |
//! | `map` | the use of each zone of a Furrow, one short line per zone: [`map`] |
//! | `zones` | the zone report, one line per zone |
//! | `command` | takes one command per write(2) |
//! | others | one counter each, as in the sysfs of Linux: [`Inspect::attributes`] |
//!
//! A lookup finds it; listings and sizes leave it out. Its inodes have numbers that no file system
//! uses ([`names`](crate::names)), and the server of the mount routes requests about them here
//! instead of to the file system. The content of its files is made when it is read, so the kernel
//! must not cache it. It belongs to the user who mounted.

mod command;
mod content;
mod files;
mod inspect;
pub mod map;
pub mod metrics;
pub mod page;
mod report;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use zonal::spec::Stack;
use zonal::{Clock, FailZone, ZonedDevice};
use zonal_fs::vfs::{Access, FileSystem, Ino, Timestamp};

pub use self::inspect::{Inspect, ReclaimOrder};
pub use self::report::Report;

use crate::latency::Latencies;
use crate::served::Served;

/// The control directory of a file system.
pub struct Control {
    fs: Arc<dyn FileSystem>,
    inspected: Arc<dyn Inspect>,
    device: Arc<dyn ZonedDevice>,
    failing: Option<Arc<dyn FailZone>>,
    latencies: Arc<Latencies>,
    /// Content of files that are being read, by inode.
    made: Mutex<BTreeMap<Ino, Arc<str>>>,
    /// Address of the metrics server.
    metrics: OnceLock<SocketAddr>,
    /// Number of serving threads, if it is not the default.
    threads: OnceLock<u16>,
    /// Options that hold until the unmount.
    options: OnceLock<String>,
    /// How the mount is served.
    served: OnceLock<Served>,
    /// Message of the first panic.
    panicked: OnceLock<String>,
    /// The mount point.
    point: OnceLock<PathBuf>,
    /// Access with which the device is open.
    device_access: Access,
    /// Owner of the directory: user and group.
    owner: (u32, u32),
    born: Timestamp,
}

impl Control {
    /// The control directory of `fs`, which lies on `stack`. If `fs` is read-only now, the device
    /// counts as read-only. Shows `latencies`, which the server fills.
    pub fn new<F>(fs: Arc<F>, stack: &Stack, latencies: Arc<Latencies>, clock: &dyn Clock) -> Self
    where
        F: FileSystem + Inspect + 'static,
    {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            device_access: fs.access(),
            inspected: Arc::clone(&fs) as _,
            fs,
            device: Arc::clone(&stack.device),
            failing: stack.failing.clone(),
            latencies,
            made: Mutex::default(),
            metrics: OnceLock::new(),
            threads: OnceLock::new(),
            options: OnceLock::new(),
            served: OnceLock::new(),
            panicked: OnceLock::new(),
            point: OnceLock::new(),
            owner: (uid.as_raw(), gid.as_raw()),
            born: Timestamp::from_ns(clock.wall_ns()),
        }
    }

    /// Shows the address of the metrics server.
    pub fn set_metrics(&self, address: SocketAddr) {
        let first = self.metrics.set(address);
        assert!(first.is_ok(), "metrics are served at one address");
    }

    /// Shows the number of serving threads.
    pub fn set_threads(&self, threads: u16) {
        let first = self.threads.set(threads);
        assert!(first.is_ok(), "the number of threads stays");
    }

    /// Shows the options that hold until the unmount.
    pub fn set_options(&self, options: String) {
        let first = self.options.set(options);
        assert!(first.is_ok(), "these options stay");
    }

    /// Shows how the mount is served.
    pub fn set_served(&self, served: Served) {
        let first = self.served.set(served);
        assert!(first.is_ok(), "a mount has one session");
    }

    /// Shows the mount point.
    pub fn set_mount(&self, point: PathBuf) {
        let first = self.point.set(point);
        assert!(first.is_ok(), "a mount has one place");
    }

    /// Shows the message of a panic; the first one stays.
    pub(crate) fn set_panicked(&self, message: &str) {
        self.panicked.get_or_init(|| message.to_owned());
    }
}

#[cfg(test)]
mod tests;
