//! How long operations take, from the request to the answer.
//!
//! Each kind of operation has a histogram of atomics, on a logarithmic scale with eight buckets for
//! each power of two: a percentile is at most an eighth above the true one. Recording is two
//! readings of the clock and three additions, with no lock
//! (`cargo bench -p zonal-fuse --bench watching`). The latencies of the last minute are the
//! difference to an older copy of the histograms; a copy is made every five seconds.
//! docs/decisions/own-latency-histograms.md says why the histogram is our own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use zonal::Clock;

use crate::small_writes::SmallWrites;

/// Buckets for each power of two, as a power of two.
const FINE_BITS: u32 = 3;

/// Values below this have a bucket each.
const EXACT: u64 = 2 << FINE_BITS;

/// Powers of two that are told apart: up to 2⁴⁰ ns, 18 minutes.
const POWERS: u32 = 40;

const BUCKETS: usize = (2 << FINE_BITS) + (((POWERS - FINE_BITS - 1) as usize) << FINE_BITS);

/// The time between two copies of the histograms.
const INTERVAL_NS: u64 = 5_000_000_000;

/// The length of the last minute.
const MINUTE_NS: u64 = 60_000_000_000;

/// Exponents of the bounds by which [`Latencies::coarse`] counts: 1 µs, 4 µs, ... 17 s.
const COARSE: [u32; 13] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// Declares the operations with their names.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// A kind of request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $variant,)*
        }

        impl Operation {
            /// All of them, in the order in which they are shown.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

operations! {
    /// read(2), as far as the page cache does not answer it.
    Read "read",
    /// write(2); one that has to be durable has [`Self::Fsync`] too.
    Write "write",
    /// fsync(2), with the time in which others are committed first.
    Fsync "fsync",
    /// open(2) of a file.
    Open "open",
    /// The last close(2).
    Release "release",
    /// A name in a directory.
    Lookup "lookup",
    /// stat(2).
    Getattr "getattr",
    /// chmod(2), chown(2), truncate(2), utimes(2).
    Setattr "setattr",
    /// A new file, directory or other node.
    Create "create",
    /// unlink(2).
    Unlink "unlink",
    /// rmdir(2).
    Rmdir "rmdir",
    /// rename(2).
    Rename "rename",
    /// link(2).
    Link "link",
    /// readlink(2).
    Readlink "readlink",
    /// A part of a listing.
    Readdir "readdir",
    /// The attributes of one entry of a listing.
    Readdirplus "readdirplus",
    /// fallocate(2).
    Fallocate "fallocate",
    /// lseek(2) for data or a hole.
    Seek "seek",
    /// `copy_file_range(2)`.
    CopyFileRange "copy_file_range",
    /// getxattr(2).
    Getxattr "getxattr",
    /// setxattr(2).
    Setxattr "setxattr",
    /// listxattr(2).
    Listxattr "listxattr",
    /// removexattr(2).
    Removexattr "removexattr",
    /// statfs(2).
    Statfs "statfs",
    /// ioctl(2).
    Ioctl "ioctl",
    /// The kernel needs an inode no longer.
    Forget "forget",
}

/// How long operations of one kind took, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Latency {
    /// The operation's name.
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// The sum of their durations.
    pub total_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1,000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Operations of one kind by how long they took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coarse {
    /// For each bound in nanoseconds, how many took no longer.
    pub below: Vec<(u64, u64)>,
    /// How many there were.
    pub count: u64,
    /// The sum of their durations, in nanoseconds.
    pub total_ns: u64,
}

/// How long all operations of a mount took.
pub struct Latencies {
    clock: Arc<dyn Clock>,
    histograms: [Histogram; Operation::ALL.len()],
    samples: Mutex<VecDeque<Sample>>,
    small_writes: SmallWrites,
}

/// The histograms at a time.
struct Sample {
    at_ns: u64,
    /// In the order of [`Operation::ALL`]; `None` for a kind without operations.
    taken: Vec<Option<Taken>>,
}

/// A histogram's numbers.
struct Taken {
    counts: Vec<u64>,
    total_ns: u64,
}

struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Latencies {
    /// Nothing was measured yet; `clock` measures.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let first = Sample { at_ns: clock.monotonic_ns(), taken: Vec::new() };
        let histograms = std::array::from_fn(|_| Histogram::new());
        let samples = Mutex::new([first].into());
        Self { clock, histograms, samples, small_writes: SmallWrites::default() }
    }

    /// Time now, to be given to [`record`](Self::record).
    pub fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// The counts of small writes.
    pub fn small_writes(&self) -> &SmallWrites {
        &self.small_writes
    }

    /// An operation that began at `since_ns` is over.
    pub fn record(&self, operation: Operation, since_ns: u64) {
        let ns = self.now_ns().saturating_sub(since_ns);
        self.histograms[operation as usize].add(ns);
    }

    /// The latencies of all kinds with at least one operation.
    pub fn all(&self) -> Vec<Latency> {
        let all = Operation::ALL.into_iter().zip(&self.histograms);
        let all = all.map(|(operation, histogram)| histogram.latency(operation));
        all.filter(|latency| latency.count > 0).collect()
    }

    /// The same of the last minute, or since the beginning if that is less. If
    /// [`sample`](Self::sample) is called once a second, that is up to six seconds more than a
    /// minute.
    pub fn minute(&self) -> Vec<Latency> {
        let samples = self.samples();
        let before = samples.front().expect("there is one from the beginning");
        let all = Operation::ALL.into_iter().zip(&self.histograms);
        let all = all.map(|(operation, histogram)| {
            let before = before.taken.get(operation as usize).and_then(Option::as_ref);
            let now = histogram.take().since(before);
            // The longest is known as exactly as the others.
            let longest = now.counts.iter().rposition(|count| *count > 0).map_or(0, last_of);
            let max_ns = longest.min(histogram.max_ns.load(Ordering::Relaxed));
            now.latency(operation, max_ns)
        });
        all.filter(|latency| latency.count > 0).collect()
    }

    /// Notes the histograms of now, once in five seconds at most. To be called regularly.
    pub fn sample(&self) {
        let (mut samples, now_ns) = (self.samples(), self.now_ns());
        let last = samples.back().expect("there is one from the beginning");
        if now_ns.saturating_sub(last.at_ns) < INTERVAL_NS {
            return;
        }
        let taken = |histogram: &Histogram| {
            Some(histogram.take()).filter(|taken| taken.counts.iter().any(|count| *count > 0))
        };
        samples.push_back(Sample {
            at_ns: now_ns,
            taken: self.histograms.iter().map(taken).collect(),
        });
        // The first one is the last that is a minute old.
        while samples.get(1).is_some_and(|next| now_ns.saturating_sub(next.at_ns) >= MINUTE_NS) {
            samples.pop_front();
        }
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        self.samples.lock().expect("no holder panicked")
    }

    /// The same as [`all`](Self::all) by few bounds, which are the same for all.
    pub fn coarse(&self) -> Vec<(Operation, Coarse)> {
        let all = Operation::ALL.into_iter().zip(&self.histograms);
        let all = all.map(|(operation, histogram)| (operation, histogram.coarse()));
        all.filter(|(_, coarse)| coarse.count > 0).collect()
    }
}

impl Histogram {
    fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            total_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn take(&self) -> Taken {
        Taken { counts: self.counts(), total_ns: self.total_ns.load(Ordering::Relaxed) }
    }

    fn latency(&self, operation: Operation) -> Latency {
        self.take().latency(operation, self.max_ns.load(Ordering::Relaxed))
    }

    fn coarse(&self) -> Coarse {
        let counts = self.counts();
        let below = COARSE.map(|power| {
            let limit = 1_u64 << power;
            (limit - 1, counts[..bucket(limit)].iter().sum())
        });
        let total_ns = self.total_ns.load(Ordering::Relaxed);
        Coarse { below: below.into(), count: counts.iter().sum(), total_ns }
    }
}

impl Taken {
    /// The numbers since an earlier sample.
    fn since(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before {
            for (now, before) in self.counts.iter_mut().zip(&before.counts) {
                *now -= before;
            }
            self.total_ns -= before.total_ns;
        }
        self
    }

    fn latency(&self, operation: Operation, max_ns: u64) -> Latency {
        let count: u64 = self.counts.iter().sum();
        let percentile = |per_mille: u64| {
            let wanted = (count * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let reaches = |count: &u64| {
                seen += count;
                seen >= wanted
            };
            self.counts.iter().position(reaches).map_or(0, |index| last_of(index).min(max_ns))
        };
        Latency {
            operation: operation.name().to_owned(),
            count,
            total_ns: self.total_ns,
            p50_ns: percentile(500),
            p99_ns: percentile(990),
            p999_ns: percentile(999),
            max_ns,
        }
    }
}

/// Which bucket a value belongs to. The last one takes everything from 2⁴⁰ on.
fn bucket(ns: u64) -> usize {
    if ns < EXACT {
        return usize::try_from(ns).expect("a few");
    }
    let power = ns.ilog2();
    let fine = (ns >> (power - FINE_BITS)) & ((1 << FINE_BITS) - 1);
    let coarse = u64::from(power - FINE_BITS - 1) << FINE_BITS;
    usize::try_from(EXACT + coarse + fine).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The largest value of a bucket.
fn last_of(index: usize) -> u64 {
    let index = index as u64;
    if index < EXACT {
        return index;
    }
    let (coarse, fine) = ((index - EXACT) >> FINE_BITS, (index - EXACT) & ((1 << FINE_BITS) - 1));
    ((fine + 1 + (1 << FINE_BITS)) << (coarse + 1)) - 1
}

#[cfg(test)]
mod tests {
    use zonal::ManualClock;

    use super::*;

    #[test]
    fn histogram_buckets_leave_no_gap() {
        for index in 0..BUCKETS - 1 {
            let last = last_of(index);
            assert_eq!(bucket(last), index, "{last}");
            assert_eq!(bucket(last + 1), index + 1, "{last}");
            let first = if index == 0 { 0 } else { last_of(index - 1) + 1 };
            assert!(last - first <= first / 8, "{first} to {last} is more than an eighth");
        }
        assert_eq!(last_of(BUCKETS - 1), (1 << POWERS) - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn histogram_percentiles_are_close_to_exact() {
        let histogram = Histogram::new();
        for ns in 1..=10_000_u64 {
            histogram.add(ns * 1000);
        }
        let latency = histogram.latency(Operation::Read);
        assert_eq!((latency.count, latency.max_ns), (10_000, 10_000_000));
        assert_eq!(latency.total_ns, 50_005_000_000);
        for (found, exact) in
            [(latency.p50_ns, 5_000_000), (latency.p99_ns, 9_900_000), (latency.p999_ns, 9_990_000)]
        {
            assert!(found >= exact && found <= exact * 9 / 8, "{found}, not {exact}");
        }
        // One alone is all percentiles.
        let histogram = Histogram::new();
        histogram.add(77_777);
        let latency = histogram.latency(Operation::Write);
        assert_eq!([latency.p50_ns, latency.p99_ns, latency.p999_ns], [77_777; 3]);
    }

    #[test]
    fn histogram_bounds_count_values_below() {
        let histogram = Histogram::new();
        for ns in [0, 1023, 1024, 5000, u64::MAX / 2] {
            histogram.add(ns);
        }
        let coarse = histogram.coarse();
        assert_eq!(coarse.below[..3], [(1023, 2), (4095, 3), (16_383, 4)]);
        assert_eq!((coarse.below.last().unwrap().1, coarse.count), (4, 5));
    }

    #[test]
    fn latencies_of_last_minute_forget_older() {
        const SECOND_NS: u64 = 1_000_000_000;
        let clock = Arc::new(ManualClock::new(0));
        let latencies = Latencies::new(clock.clone());
        let slow = latencies.now_ns();
        clock.advance_ns(SECOND_NS);
        latencies.record(Operation::Fsync, slow);
        latencies.record(Operation::Read, slow);
        assert_eq!(latencies.minute(), latencies.all().as_slice(), "there was no more");
        for second in 1..200 {
            latencies.sample();
            let since = latencies.now_ns();
            clock.advance_ns(1000 * second);
            latencies.record(Operation::Read, since);
            clock.advance_ns(SECOND_NS - 1000 * second);
        }
        assert!(latencies.samples().len() <= 14, "{}", latencies.samples().len());
        let [read] = &latencies.minute()[..] else { panic!("no fsync for a minute") };
        assert!((60..=66).contains(&read.count), "{read:?}");
        // Operations of seconds 134 to 199, in microseconds.
        let microseconds = [read.p50_ns, read.max_ns].map(|ns| ns / 1000);
        assert!((160..195).contains(&microseconds[0]), "{read:?}");
        assert!((199..225).contains(&microseconds[1]), "{read:?}");
        let [all, _] = &latencies.all()[..] else { panic!("two kinds") };
        assert!(all.count == 200 && all.max_ns >= SECOND_NS, "{all:?}");
    }

    #[test]
    fn latencies_show_only_what_happened() {
        let clock = Arc::new(ManualClock::new(0));
        let latencies = Latencies::new(clock.clone());
        let since = latencies.now_ns();
        clock.advance_ns(1_000_000);
        latencies.record(Operation::Fsync, since);
        let [one] = &latencies.all()[..] else { panic!("one kind") };
        assert_eq!((one.operation.as_str(), one.count), ("fsync", 1));
        assert!((1_000_000..1_000_010).contains(&one.max_ns));
        assert_eq!(latencies.coarse().len(), 1);
    }
}
