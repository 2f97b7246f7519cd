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
//! | `options` | the options in force, as JSON: [`Options`] |
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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use zonal::spec::Stack;
use zonal::{Clock, FailZone, ZonedDevice};
use zonal_fs::vfs::{FileSystem, Ino, Timestamp};

pub use self::inspect::{Inspect, ReclaimOrder};
pub use self::report::Report;

use crate::Transport;
use crate::latency::Latencies;
use crate::options::{AsyncDirect, MountConfig, Options, TransportChoice};
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
    /// How it was mounted, with the address of the metrics server.
    config: Mutex<MountConfig>,
    /// How the mount is served.
    served: OnceLock<Served>,
    /// Message of the first panic.
    panicked: OnceLock<String>,
    /// Owner of the directory: user and group.
    owner: (u32, u32),
    born: Timestamp,
}

impl Control {
    /// The control directory of `fs`, which lies on `stack` and is mounted as `config` says. Shows
    /// `latencies`, which the server fills.
    pub fn new<F>(
        fs: Arc<F>,
        stack: &Stack,
        config: MountConfig,
        latencies: Arc<Latencies>,
        clock: &dyn Clock,
    ) -> Self
    where
        F: FileSystem + Inspect + 'static,
    {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Self {
            inspected: Arc::clone(&fs) as _,
            fs,
            device: Arc::clone(&stack.device),
            failing: stack.failing.clone(),
            latencies,
            made: Mutex::default(),
            config: Mutex::new(config),
            served: OnceLock::new(),
            panicked: OnceLock::new(),
            owner: (uid.as_raw(), gid.as_raw()),
            born: Timestamp::from_ns(clock.wall_ns()),
        }
    }

    /// Shows the address of the metrics server.
    pub fn set_metrics(&self, address: SocketAddr) {
        self.config().metrics = Some(address);
    }

    /// Shows how the mount is served.
    pub fn set_served(&self, served: Served) {
        let first = self.served.set(served);
        assert!(first.is_ok(), "a mount has one session");
    }

    /// The options in force.
    pub fn options(&self) -> Options {
        let mut options = Options::new(self.config().clone(), self.inspected.options());
        options.mount.access = self.fs.access();
        if let Some(Served { transport, async_direct, .. }) = self.served.get() {
            options.mount.transport = match transport {
                Transport::Device => TransportChoice::Device,
                Transport::Rings => TransportChoice::Rings,
            };
            // A read-only mount makes no use of `noasync-dio`, and keeps it.
            if *async_direct == AsyncDirect::InTurn {
                options.mount.async_direct = AsyncDirect::InTurn;
            }
        }
        options
    }

    fn config(&self) -> MutexGuard<'_, MountConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the message of a panic; the first one stays.
    pub(crate) fn set_panicked(&self, message: &str) {
        self.panicked.get_or_init(|| message.to_owned());
    }
}

#[cfg(test)]
mod tests;
