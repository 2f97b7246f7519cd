//! Results of a timed run.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::die::{DieTime, Kind};
use crate::ftl::{Amplification, Counters, Wear};
use crate::request::Seen;

/// The longest latency that is recorded: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Latencies of one kind of request.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    histogram_ns: Histogram<u64>,
    sum_ns: u128,
    bytes: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds are in order and three digits are allowed");
        Self { histogram_ns, sum_ns: 0, bytes: 0 }
    }
}

#[expect(clippy::cast_precision_loss, reason = "times and counts for people")]
impl Latency {
    #[inline]
    pub(super) fn record(&mut self, ns: u64, bytes: u32) {
        self.histogram_ns.saturating_record(ns);
        self.sum_ns += u128::from(ns);
        self.bytes += u64::from(bytes);
    }

    /// Adds another job's.
    pub fn add(&mut self, other: &Self) {
        self.histogram_ns.add(&other.histogram_ns).expect("the bounds are the same");
        self.sum_ns += other.sum_ns;
        self.bytes += other.bytes;
    }

    /// Requests.
    pub fn count(&self) -> u64 {
        self.histogram_ns.len()
    }

    /// Their bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The mean, exact; 0 without requests.
    pub fn mean_us(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 / 1e3 }
    }

    /// The latency that `share` of the requests stay within, to three digits; 0 without requests.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.histogram_ns.value_at_quantile(share) as f64 / 1e3
    }

    /// The distribution, in ns.
    pub const fn histogram_ns(&self) -> &Histogram<u64> {
        &self.histogram_ns
    }

    /// The usual figures.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_us: self.mean_us(),
            p50_us: self.quantile_us(0.5),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            p9999_us: self.quantile_us(0.9999),
            max_us: self.quantile_us(1.0),
        }
    }
}

/// The usual figures of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencySummary {
    /// Requests.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// 99.99 %.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Results of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// Its reads that completed.
    pub reads: Latency,
    /// Its writes that were acknowledged.
    pub writes: Latency,
    /// Its trims, resets, opened and finished zones.
    pub others: u64,
    /// Its writes that the drive refused.
    pub refused: u64,
}

/// How the time of a die was used, as shares of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// Reads for the host, their time on the bus included.
    pub host_read: f64,
    /// Reads for GC, their time on the bus included.
    pub gc_read: f64,
    /// Programs that the host filled, their time on the bus included.
    pub host_program: f64,
    /// Programs that GC filled, their time on the bus included.
    pub gc_program: f64,
    /// Erases.
    pub erase: f64,
    /// Suspending and resuming programs and erases.
    pub suspend: f64,
}

impl Busy {
    #[expect(clippy::cast_precision_loss, reason = "shares for people")]
    pub(super) fn new(before: &DieTime, after: &DieTime, ns: u64) -> Self {
        let share = |ns_after: u64, ns_before: u64| {
            if ns == 0 { 0.0 } else { (ns_after - ns_before) as f64 / ns as f64 }
        };
        let of = |kind: Kind| share(after.busy_ns[kind as usize], before.busy_ns[kind as usize]);
        Self {
            host_read: of(Kind::HostRead),
            gc_read: of(Kind::GcRead),
            host_program: of(Kind::HostProgram),
            gc_program: of(Kind::GcProgram),
            erase: of(Kind::Erase),
            suspend: share(after.suspend_ns, before.suspend_ns),
        }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.host_read
            + self.gc_read
            + self.host_program
            + self.gc_program
            + self.erase
            + self.suspend
    }

    /// The mean of some dies.
    #[expect(clippy::cast_precision_loss, reason = "a few thousand dies")]
    pub(super) fn mean(dies: &[Self]) -> Self {
        let mean = |field: fn(&Self) -> f64| {
            dies.iter().map(field).sum::<f64>() / dies.len().max(1) as f64
        };
        Self {
            host_read: mean(|busy| busy.host_read),
            gc_read: mean(|busy| busy.gc_read),
            host_program: mean(|busy| busy.host_program),
            gc_program: mean(|busy| busy.gc_program),
            erase: mean(|busy| busy.erase),
            suspend: mean(|busy| busy.suspend),
        }
    }
}

/// A point of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the run began.
    pub seconds: f64,
    /// Bytes the host has written since the run began.
    pub written_bytes: u64,
    /// 10^6 bytes a second written since the sample before.
    pub mb_s: f64,
    /// Write amplification since the sample before.
    pub wa: f64,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It reached its end.
    Reached,
    /// Nothing was left to do before that.
    Idle,
}

/// Results of a run, from its begin to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Simulated seconds.
    pub seconds: f64,
    /// Why it ended.
    pub ended: Ended,
    /// Bytes of the host's writes that were acknowledged.
    pub written_bytes: u64,
    /// Bytes of the host's reads that completed.
    pub read_bytes: u64,
    /// 10^6 bytes a second written.
    pub write_mb_s: f64,
    /// 10^6 bytes a second read.
    pub read_mb_s: f64,
    /// Latency of all reads.
    pub reads: Latency,
    /// Latency of all writes, until they are in the drive's buffer.
    pub writes: Latency,
    /// Latency of commits of random write areas that the host asked for.
    pub commits: Latency,
    /// Each job by itself.
    pub jobs: Vec<JobOutcome>,
    /// Counters of the translation layer; a log of the host counts the units that it moved itself.
    pub counters: Counters,
    /// Counters of the drive: the same, unless a log of the host is on it.
    pub drive: Counters,
    /// Where writes were amplified.
    pub amplification: Amplification,
    /// Erase counts at the end, since the drive was new.
    pub erases: Wear,
    /// How the time of each die was used.
    pub dies: Vec<Busy>,
    /// The mean of `dies`.
    pub busy: Busy,
    /// The busy share of each channel.
    pub channels: Vec<f64>,
    /// Figures of the trace, if one was replayed.
    pub trace: Option<Seen>,
    /// Points in between.
    pub samples: Vec<Sample>,
    /// Events handled.
    pub events: u64,
}

impl Outcome {
    /// Write amplification over the run, of the drive and of a log of the host on it.
    pub fn wa(&self) -> f64 {
        self.amplification.whole()
    }
}
