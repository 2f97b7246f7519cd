//! Clocks: of the machine, and of the processor time of threads and processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use zonal::Clock;

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Clock for Machine {
    fn wall_ns(&self) -> i64 {
        ns(ClockId::Realtime).cast_signed()
    }
    fn monotonic_ns(&self) -> u64 {
        ns(ClockId::Monotonic)
    }
}

/// Processor time of this process, all threads together, in user space and kernel.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime;

impl Clock for ProcessorTime {
    fn wall_ns(&self) -> i64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        ns(ClockId::ProcessCPUTime)
    }
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("after 1970")
}

/// Nanoseconds of processor time of this thread.
pub fn thread_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

/// Nanoseconds of processor time of each thread of a process, without threads that have ended.
pub fn threads_ns(process: u32) -> BTreeMap<PathBuf, u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the process lives");
    let times = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        // A thread may end just now.
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        Some((path, text.split_whitespace().next()?.parse().ok()?))
    });
    times.collect()
}

/// Nanoseconds of processor time of all threads of a process.
pub fn process_ns(process: u32) -> u64 {
    threads_ns(process).into_values().sum()
}

/// How long some work took, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// By the clock.
    pub wall: f64,
    /// Processor time of all threads of this process.
    pub processor: f64,
}

/// Times some work.
#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
pub fn timed<R>(work: impl FnOnce() -> R) -> (Took, R) {
    let now = || (Machine.monotonic_ns(), ProcessorTime.monotonic_ns());
    let start = now();
    let outcome = work();
    let end = now();
    let seconds = |from: u64, to: u64| (to - from) as f64 / 1e9;
    (Took { wall: seconds(start.0, end.0), processor: seconds(start.1, end.1) }, outcome)
}
