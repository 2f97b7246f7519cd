//! The devices that are open in this process: jobs that name the same one share it.
//!
//! A drive belongs to one process at a time. Where fio's jobs are threads, a device is open from
//! its first job to the end of fio, so that a drive in memory keeps its data from job to job. Where
//! jobs are processes, each opens the device for itself, and closes it when it ends; the process
//! that forks keeps nothing open.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::parent_id;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::spec::{OpenError, Openers};
use zonal::{DeviceError, Lba, LbaCount, OpenMode, SystemClock, ZonedDevice};
use zonal_fs::signature;

use crate::abi::Thread;
use crate::edge;
use crate::error::{Error, Result};
use crate::pool::Pool;

/// The variable of the environment that lets jobs write to a device with a file system.
const FORCE: &str = "ZONAL_FIO_FORCE";

/// An open device.
pub(crate) struct Drive {
    // Its threads end before the device goes.
    pool: Pool,
    device: Arc<dyn ZonedDevice>,
    mode: OpenMode,
}

impl Drive {
    pub(crate) fn device(&self) -> &dyn ZonedDevice {
        &*self.device
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The block at byte `offset`, or the one behind the last.
    pub(crate) fn block(&self, offset: u64) -> Result<Lba> {
        let geometry = self.device.geometry();
        let block_size = geometry.block_size().bytes();
        if !offset.is_multiple_of(block_size) {
            return Err(DeviceError::Unaligned { bytes: offset, block_size }.into());
        }
        let lba = Lba::new(offset / block_size);
        if lba > Lba::ZERO + geometry.block_count() {
            return Err(DeviceError::OutOfRange { lba, blocks: LbaCount::ZERO }.into());
        }
        Ok(lba)
    }
}

/// The access of a job to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

struct Table {
    /// The process that has opened them.
    process: u32,
    open: BTreeMap<String, Arc<Drive>>,
    /// The devices that jobs name, in the order in which fio has prepared them.
    named: BTreeMap<Thread, Vec<String>>,
    /// The devices that some job writes to.
    written: BTreeSet<String>,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    process: 0,
    open: BTreeMap::new(),
    named: BTreeMap::new(),
    written: BTreeSet::new(),
});

/// The process that has loaded this library, and may fork the jobs.
static LOADER: AtomicU32 = AtomicU32::new(0);

/// This process has loaded the library.
pub(crate) fn loaded() {
    LOADER.store(process::id(), Ordering::Relaxed);
}

fn is_forked() -> bool {
    LOADER.load(Ordering::Relaxed) != process::id()
}

fn table() -> MutexGuard<'static, Table> {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if table.process != process::id() {
        // The parent process owns these devices, their threads and their locks: do not drop them
        // here.
        std::mem::forget(std::mem::take(&mut table.open));
        table.process = process::id();
    }
    table
}

/// Notes, before jobs begin, that a job names a device.
pub(crate) fn will_be_opened(thread: Thread, spec: &str) {
    let mut table = table();
    let specs = table.named.entry(thread).or_default();
    if !specs.iter().any(|named| named == spec) {
        specs.push(spec.to_owned());
    }
    if thread.writes() {
        table.written.insert(spec.to_owned());
    }
}

/// The devices that a job names.
pub(crate) fn named(thread: Thread) -> Vec<String> {
    table().named.get(&thread).cloned().unwrap_or_default()
}

/// A device for a single question: the open one, or one that is open as long as the result lives.
pub(crate) fn look(spec: &str, access: Access) -> Result<Arc<Drive>> {
    if let Some(drive) = table().open.get(spec) {
        return Ok(Arc::clone(drive));
    }
    let mode = match access {
        Access::Read => OpenMode::ReadOnly,
        Access::Write => OpenMode::ReadWrite,
    };
    open_in(spec, mode)
}

/// The device for a job, for as long as it wants. Jobs that only read let other processes read too.
pub(crate) fn open(spec: &str, access: Access) -> Result<Arc<Drive>> {
    let mut table = table();
    if let Some(drive) = table.open.get(spec) {
        if access == Access::Write && drive.mode != OpenMode::ReadWrite {
            return Err(Error::OpenForReading { spec: spec.to_owned() });
        }
        return Ok(Arc::clone(drive));
    }
    let is_written = access == Access::Write || table.written.contains(spec);
    let mode = if is_written { OpenMode::ReadWrite } else { OpenMode::ReadLocked };
    let drive = open_in(spec, mode)?;
    if !is_forked() && table.open.is_empty() {
        // SAFETY: the library stays loaded, by build.rs.
        unsafe { libc::atexit(close_all) };
    }
    table.open.insert(spec.to_owned(), Arc::clone(&drive));
    Ok(drive)
}

/// Refuses to write to a device that holds a file system, unless an environment
/// variable allows it: external engines have no options of their own.
fn keep_file_system(spec: &str, device: &dyn ZonedDevice) -> Result<()> {
    if std::env::var_os(FORCE).is_some_and(|value| value == "1") {
        return Ok(());
    }
    match signature::find(device) {
        Ok(Some(held)) => Err(Error::Holds { spec: spec.to_owned(), held }),
        // A device that cannot be read fails the job itself.
        Ok(None) | Err(_) => Ok(()),
    }
}

fn open_in(spec: &str, mode: OpenMode) -> Result<Arc<Drive>> {
    let openers = Openers::builtin()
        .with_schemes(&[zonal_sim::SCHEME])
        .with_schemes(&zonal_linux::SCHEMES)
        .with_paths(zonal_linux::open);
    let device = match openers.open(spec, mode, Arc::new(SystemClock::new())) {
        Ok(stack) => {
            if mode == OpenMode::ReadWrite {
                keep_file_system(spec, &*stack.plain)?;
            }
            stack.device
        }
        Err(OpenError::Device(DeviceError::Locked { by: Some(by), .. })) if is_of_us(by) => {
            return Err(Error::Job { spec: spec.to_owned() });
        }
        Err(source) => {
            let before = spec.split('(').next().unwrap_or_default();
            let is_cut = openers.schemes().iter().any(|scheme| scheme.name == before);
            return Err(match (source, spec.to_owned()) {
                (source, spec) if is_cut && !spec.contains(':') => Error::Colon { spec, source },
                (source, spec) => Error::Open { spec, source },
            });
        }
    };
    Ok(Arc::new(Drive { pool: Pool::new(Arc::clone(&device)), device, mode }))
}

/// Whether a process is a job of the same fio, or that fio.
fn is_of_us(process: u32) -> bool {
    if !is_forked() {
        return process == process::id();
    }
    // The fourth word, behind a name in parentheses that may have any letters: proc_pid_stat(5).
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
    process == parent_id() || parent.and_then(|parent| parent.parse().ok()) == Some(parent_id())
}

/// A job has ended. A job that is a process closes the devices that it has opened.
pub(crate) fn release() {
    if is_forked() {
        table().open.retain(|_, drive| Arc::strong_count(drive) > 1);
    }
}

/// fio ends: closes all devices, so that traces and drives are complete.
extern "C" fn close_all() {
    let _ = edge::guard(|| {
        let open = std::mem::take(&mut table().open);
        drop(open);
        Ok(())
    });
}
