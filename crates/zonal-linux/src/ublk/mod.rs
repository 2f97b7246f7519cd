//! ublk: a block device whose requests the kernel hands to this process, with zones or without.
//!
//! - [`serve`], [`Server`]: serve a device or an ordinary disk. Start here.
//! - [`list`], [`remove`]: the ublk devices of this machine, whoever created them.
//! - `Device`: one device from its creation to its removal; `queue`: the threads that serve
//!   requests.
//! - `zoned`: requests for a device; `batch`: several of them at once; `export`: the device.
//! - `disk`: requests for a disk; `unflushed`: keeps its unflushed changes when its server is
//!   killed.
//! - `shape`: which devices and disks Linux accepts, and their parameters.
//! - `control`: commands to the driver; `abi`: the structures of its header.
//!
//! Data is copied by reading and writing `/dev/ublkcN` ("user copy"), since the driver supports
//! zones only with that. A device outlives a server that was killed: I/O is queued until another
//! server takes over, or until the device is removed.

mod abi;
mod batch;
mod control;
mod disk;
mod error;
mod export;
mod mounted;
mod queue;
mod reissue;
mod server;
mod shape;
mod unflushed;
mod zoned;

use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use zonal::disk::DiskShape;

use self::abi::{DeviceInfo, Params, feature, state};
use self::control::{Control, Ended, Start};
pub use self::error::{Error, Result};
use self::queue::{Descriptors, Event, Shared, Target, Worker};
pub use self::server::{NamedDisk, Number, Server, Source, serve};

/// How long a removal waits for programs that still use the device, and a recovery for the driver
/// to notice that the last server is gone.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stack of a thread that serves requests. A server of a disk has all of it in memory.
const STACK_BYTES: usize = 512 << 10;

/// How requests are served.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// Number of queues; the kernel creates at most one for each processor.
    pub count: u16,
    /// Depth of each queue.
    pub depth: u16,
    /// Threads for each queue.
    pub threads: u16,
}

/// The facts about a device that the driver needs.
struct Outline {
    params: Params,
    /// [`shape::mark`] or [`shape::mark_of_disk`].
    mark: u64,
    /// Features that the driver must have.
    needed: u64,
}

/// A ublk device that is served by this process.
struct Device {
    id: u32,
    events: Receiver<Event>,
    /// Threads that have not ended.
    running: usize,
}

impl Device {
    /// Creates a device with number `id` or any free one, and starts it.
    fn create(
        outline: &Outline,
        id: Option<u32>,
        queues: Queues,
        target: impl FnOnce(u32, Start) -> Result<Target>,
    ) -> Result<Self> {
        let needed = outline.needed;
        let too_old = || {
            let is_zoned = needed & feature::ZONED != 0;
            if is_zoned { Error::NoZones } else { Error::NoUserCopy }
        };
        let mut control = Control::open()?;
        let mut info = DeviceInfo {
            queues: queues.count,
            depth: queues.depth.clamp(1, abi::DEPTH_MAX),
            io_bytes_max: abi::IO_BYTES_MAX,
            id: id.unwrap_or(u32::MAX),
            flags: needed
                | feature::CMD_IOCTL_ENCODE
                | feature::USER_RECOVERY
                | feature::USER_RECOVERY_REISSUE
                // An older driver leaves it out.
                | feature::UPDATE_SIZE,
            server_flags: outline.mark,
            ..DeviceInfo::default()
        };
        control.add(&mut info).map_err(|errno| match (errno, id) {
            (Errno::EXIST, Some(id)) => Error::Taken { id },
            (Errno::PERM, _) => Error::Denied,
            // An older kernel.
            (Errno::INVAL, _) => too_old(),
            (errno, _) => Error::refused("making a ublk device", errno),
        })?;
        let id = info.id;
        let started = (|| {
            if info.flags & needed != needed {
                return Err(too_old());
            }
            let described = control.set_params(id, outline.params);
            described.map_err(|errno| Error::of("describing", id, errno))?;
            Self::start(&mut control, &info, queues.threads, target(id, Start::New)?, Start::New)
        })();
        if started.is_err() {
            // The first error is the one to report.
            let _ = remove(id);
        }
        started
    }

    /// Takes over a device whose server is gone.
    fn recover(
        outline: &Outline,
        id: u32,
        threads: u16,
        target: impl FnOnce(u32, Start) -> Result<Target>,
    ) -> Result<Self> {
        let mut control = Control::open()?;
        let info = control.info(id).map_err(|errno| Error::of("looking at", id, errno))?;
        if info.flags & feature::USER_RECOVERY == 0 {
            return Err(Error::NotRecoverable { id, why: "it was not made for that" });
        }
        if info.state == state::DEAD {
            return Err(Error::NotRecoverable { id, why: "it was never started, or is stopped" });
        }
        let found = control.params(id).map_err(|errno| Error::of("looking at", id, errno))?;
        shape::compare(id, &found, &shape::as_made(outline.params, &found))?;
        shape::compare_marks(id, info.server_flags, outline.mark)?;
        take_over(&mut control, id)?;
        Self::start(&mut control, &info, threads, target(id, Start::Recovered)?, Start::Recovered)
    }

    fn start(
        control: &mut Control,
        info: &DeviceInfo,
        threads: u16,
        target: Target,
        start: Start,
    ) -> Result<Self> {
        let id = info.id;
        let failed = |source| Error::refused(format!("serving ublk device {id}"), source);
        let path = format!("/dev/ublkc{id}");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| Error::refused(format!("opening {path}"), source))?;
        let shared = Arc::new(Shared { file, target });
        let (sender, events) = mpsc::channel();
        // An older driver allows one thread for each queue.
        let threads = match info.flags & feature::PER_IO_DAEMON {
            0 => 1,
            _ => threads.clamp(1, info.depth),
        };
        let mut running = 0;
        for queue in 0..info.queues {
            let descriptors = Descriptors::map(&shared.file, queue, info.depth).map_err(failed)?;
            let descriptors = Arc::new(descriptors);
            for first in 0..threads {
                let worker = Worker {
                    shared: Arc::clone(&shared),
                    descriptors: Arc::clone(&descriptors),
                    queue,
                    tags: (first..info.depth).step_by(threads.into()).collect(),
                };
                let sender = sender.clone();
                let name = format!("ublk{id}-{queue}");
                let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
                thread.spawn(move || worker.run(&sender)).map_err(failed)?;
                running += 1;
            }
        }
        let device = Self { id, events, running };
        for _ in 0..running {
            // Otherwise the driver would wait for the thread that has failed.
            if let Ok(Event::Ended(outcome)) = device.events.recv() {
                return Err(failed(outcome.err().unwrap_or_else(|| Errno::NODEV.into())));
            }
        }
        control.start(id, start).map_err(|errno| Error::of("starting", id, errno))?;
        Ok(device)
    }

    /// Its number.
    const fn id(&self) -> u32 {
        self.id
    }

    /// Serves until this process or another stops the device; then calls `end`, and removes the
    /// device. After an error the device is still there, and can be recovered when this process has
    /// ended.
    fn wait(mut self, end: impl FnOnce() -> Result<()>) -> Result<()> {
        let id = self.id;
        while self.running > 0 {
            match self.events.recv() {
                Ok(Event::Ended(outcome)) => {
                    outcome.map_err(|source| {
                        Error::refused(format!("serving ublk device {id}"), source)
                    })?;
                    self.running -= 1;
                }
                Ok(Event::Ready) => {}
                Err(_) => break,
            }
        }
        end()?;
        match remove(id) {
            // The program that stopped it may have removed it as well.
            Err(Error::Missing { .. }) => Ok(()),
            removed => removed,
        }
    }
}

/// A ublk device, whoever created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub id: u32,
    /// Whether it is served.
    pub state: State,
    /// The process that serves it.
    pub server: Option<u32>,
    /// Whether it is zoned.
    pub zoned: bool,
}

/// State of a ublk device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started, or stopped.
    Dead,
    /// Served.
    Live,
    /// Its server is gone; I/O is queued until another takes over.
    Waiting,
    /// Its server is gone; I/O fails.
    Failing,
}

impl State {
    /// The word the command prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Live => "live",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
        }
    }
}

/// The block device of number `id`.
pub fn node(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{id}"))
}

/// Every ublk device.
pub fn list() -> Result<Vec<Listed>> {
    const CLASS: &str = "/sys/class/ublk-char";
    let mut control = Control::open()?;
    let failed = |source| Error::refused(format!("listing {CLASS}"), source);
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(CLASS).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
        ids.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    ids.sort_unstable();
    let mut devices = Vec::new();
    for id in ids {
        match control.info(id) {
            Ok(info) => devices.push(Listed {
                id,
                state: match info.state {
                    state::LIVE => State::Live,
                    state::QUIESCED => State::Waiting,
                    state::FAIL_IO => State::Failing,
                    _ => State::Dead,
                },
                server: u32::try_from(info.server).ok().filter(|server| *server > 0),
                zoned: info.flags & feature::ZONED != 0,
            }),
            // Removed meanwhile.
            Err(Errno::NODEV) => {}
            Err(errno) => return Err(Error::of("looking at", id, errno)),
        }
    }
    Ok(devices)
}

/// Gives the block device `id` the size of its disk, if that is another.
fn update_size(id: u32, disk: &DiskShape) -> Result<()> {
    let failed = |errno| Error::of("changing the size of", id, errno);
    let mut control = Control::open()?;
    let sectors = shape::disk_params(disk).basic.device_sectors;
    if control.params(id).map_err(failed)?.basic.device_sectors == sectors {
        return Ok(());
    }
    if control.info(id).map_err(failed)?.flags & feature::UPDATE_SIZE == 0 {
        return Err(Error::FixedSize { id });
    }
    control.update_size(id, sectors).map_err(failed)?;
    tracing::info!(id, bytes = disk.bytes(), "the block device has the new size of its disk");
    Ok(())
}

/// Stops the block device after its running requests; its server ends then.
fn stop(id: u32) -> Result<()> {
    Control::open()?.stop(id).map_err(|errno| Error::of("stopping", id, errno))
}

/// Stops and removes a device. I/O that waits for a server fails, and changes that a killed server
/// of a disk has answered and not flushed are lost.
pub fn remove(id: u32) -> Result<()> {
    stop(id)?;
    unflushed::discard(id);
    removed(id, Control::open()?.delete(id, REMOVE_TIMEOUT))
}

/// The result of deleting a stopped device.
fn removed(id: u32, deleted: std::result::Result<Ended, Errno>) -> Result<()> {
    match deleted {
        // The server of a stopped device removes it too, and may have been faster.
        Ok(Ended::Yes) | Err(Errno::NODEV) => Ok(()),
        Ok(Ended::NotYet) => {
            tracing::warn!(
                id,
                "the device is still in use; its number becomes free when the last program closes it"
            );
            Ok(())
        }
        Err(errno) => Err(Error::of("removing", id, errno)),
    }
}

/// Starts the recovery, once the driver has noticed that the last server is gone.
fn take_over(control: &mut Control, id: u32) -> Result<()> {
    const STEP: Duration = Duration::from_millis(20);
    let mut left = REMOVE_TIMEOUT;
    loop {
        match control.start_recovery(id) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if left > Duration::ZERO => {
                pause(STEP);
                left = left.saturating_sub(STEP);
            }
            Err(Errno::BUSY) => {
                let server = control.info(id).ok().and_then(|info| u32::try_from(info.server).ok());
                return Err(Error::Served { id, server: server.unwrap_or(0) });
            }
            Err(errno) => return Err(Error::of("recovering", id, errno)),
        }
    }
}

/// The driver sends no notification when it has finished with a process that was killed.
fn pause(time: Duration) {
    let (never, unused) = (Mutex::new(()), Condvar::new());
    let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
    drop(unused.wait_timeout(guard, time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_succeeds_if_server_was_faster() {
        for deleted in [Ok(Ended::Yes), Ok(Ended::NotYet), Err(Errno::NODEV)] {
            assert!(removed(3, deleted).is_ok(), "{deleted:?}");
        }
        assert!(matches!(removed(3, Err(Errno::PERM)), Err(Error::Denied)));
    }
}
