//! Clocks, and what is made of what they say.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of processor time of this thread.
pub(crate) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("not negative")
}

/// Nanoseconds of processor time that a process has used, all threads together.
pub(crate) fn processor_ns(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("the daemon lives");
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    times.sum()
}

/// The middle of these.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of the ratios of what was measured in the same rounds.
pub(crate) fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(of.iter().zip(to).map(|(of, to)| of / to).collect())
}
