//! Timed mode: a translation layer driven by discrete events.
//!
//! ```text
//! jobs ─ requests ─> firmware ─> buffer ─ place() ─> programs ─┐
//!                       └── reads ── locate() ──> reads ───────┼─> dies and channels
//!                    GC: work() ── reads ── moved() ── programs, erases
//! ```
//!
//! [`Timed::new`] takes any [`Translation`], new or warmed up in counting mode, and a list of
//! [`Job`]s; [`Timed::run`] simulates for a while and returns the results. It may be called again:
//! each call measures from where the one before ended, so a ramp is a run whose [`Outcome`] is
//! dropped. [`Timed::set_pacing`] and [`Timed::set_jobs`] change the jobs in between,
//! [`Timed::into_ftl`] gives the layer back.
//!
//! The model, and its limits:
//!
//! * A die does one thing at a time, all its planes together, with the priorities in `die.rs`. A
//!   channel moves one thing at a time in chunks of 16 KiB.
//! * A write is acknowledged when the buffer has it. The buffer holds `drive.buffer_programs`
//!   complete programs per die, wherever they go, and all incomplete ones. It is
//!   backed by capacitors: a program is issued when its 96 KiB are there, and not before.
//! * A part of a unit is written as a whole unit; nothing is read for the rest of it.
//! * While GC works the host may write [`Translation::pace`] units for each unit moved, and GC is
//!   at most a stripe of the host's ahead, so it works as evenly as the host writes. Copies are
//!   read page by page, `drive.gc_reads` at once.
//! * A read takes `drive.read_firmware_us`, then the flash; nothing else if the data is still in
//!   the buffer or was never written. A write, trim or reset takes 10 µs before the buffer sees it
//!   (assumed). The host's link is never the limit. A [controller](config::Controller) has times of
//!   its own for all of these.

mod bus;
mod calendar;
mod die;
mod flash_array;
mod flow;
mod gc;
mod host;
mod outcome;
mod place;
mod run;
#[cfg(test)]
mod tests;

pub use host::{Job, Pacing, Reads};
pub use outcome::{Busy, Ended, JobOutcome, Latency, LatencySummary, Outcome, Sample};
pub use run::{Measured, Summary, run, run_watched};

use self::bus::BusTime;
use self::calendar::NEVER;
use self::die::{DieTime, Kind};
use self::flash_array::FlashArray;
use self::flow::{Buffer, TIMER_JOBS};
use self::gc::Collector;
use self::host::Host;
use self::place::Places;
use crate::Progress;
use crate::config::{self, Config};
use crate::controller::{OwnStripes, Processor, ns};
use crate::error::Result;
use crate::ftl::{Amplification, Counters, Translation, Wear};

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// So many simulated seconds more.
    Seconds(f64),
    /// So many bytes more that the host writes, or fewer if all jobs that have an end are at it.
    Written(u64),
    /// All jobs are at their end, and the drive has nothing to do.
    Idle,
}

/// A drive in simulated time.
///
/// ```
/// use zonal_sim::ftl::PageMapped;
/// use zonal_sim::timed::{Job, Pacing, Timed, Until};
/// use zonal_sim::{Config, load};
///
/// let mut config = Config::default();
/// config.flash = config.flash.shrunk(2);
/// let writes = load::build(&config, &config.layout()?)?;
/// let jobs = vec![Job::new("writes", writes, Pacing::Rate { mb_s: 100.0, depth: 32 })];
/// let mut timed = Timed::new(&config, PageMapped::new(&config)?, jobs)?;
/// let outcome = timed.run(Until::Seconds(0.1))?;
/// assert!((outcome.write_mb_s - 100.0).abs() < 0.1);
/// assert!(outcome.writes.mean_us() < 20.0);
/// # Ok::<(), zonal_sim::SimError>(())
/// ```
pub struct Timed<T> {
    ftl: T,
    flash_array: FlashArray,
    places: Places,
    host: Host,
    buffer: Buffer,
    gc: Collector,
    drive: config::Kind,
    read_firmware_ns: u64,
    processor: Option<Processor>,
    own_stripes: OwnStripes,
    user_units: u32,
    /// Bytes of writes accepted, ever.
    written_bytes: u64,
    samples: Samples,
    /// Counts at the begin of a run.
    begin: Mark,
}

/// Events between two reports of progress: some milliseconds.
const PROGRESS_EVENTS: u32 = 1 << 16;

/// Timers of the host in the flash array's calendar.
const TIMERS: usize = 5;

/// Samples to take.
struct Samples {
    every_bytes: u64,
    next_bytes: u64,
    before: (u64, u64, Counters),
    taken: Vec<Sample>,
}

/// Counts when a run began.
#[derive(Default)]
struct Mark {
    now_ns: u64,
    written_bytes: u64,
    counters: Counters,
    below: Option<Counters>,
    dies: Vec<DieTime>,
    buses: Vec<BusTime>,
    events: u64,
}

impl<T: Translation> Timed<T> {
    /// A drive of a config, with a layer of the same config. Erases that counting mode has put off
    /// are done before time begins.
    pub fn new(config: &Config, ftl: T, jobs: Vec<Job>) -> Result<Self> {
        config.check()?;
        let layout = config.layout()?;
        let places = Places::new(&config.flash, &layout);
        let flash_array = FlashArray::new(config, TIMERS);
        let programs = config.drive.buffer_programs * config.flash.dies();
        let mut timed = Self {
            buffer: Buffer::new(programs, places.programs(layout.raw_blocks)),
            gc: Collector::new(config, &places),
            host: Host::new(),
            drive: config.drive.kind,
            read_firmware_ns: ns(config.drive.read_firmware_us),
            processor: Processor::new(config),
            own_stripes: OwnStripes::new(config),
            user_units: layout.user_units,
            written_bytes: 0,
            samples: Samples {
                every_bytes: sample_bytes(config, layout.user_bytes()),
                next_bytes: 0,
                before: (0, 0, Counters::default()),
                taken: Vec::new(),
            },
            begin: Mark::default(),
            ftl,
            flash_array,
            places,
        };
        timed.erase_leftovers();
        timed.set_jobs(jobs);
        Ok(timed)
    }

    /// Replaces the jobs. Requests in flight are finished, and not counted.
    pub fn set_jobs(&mut self, jobs: Vec<Job>) {
        self.host.set_jobs(jobs, self.flash_array.now_ns);
    }

    /// Lets a job, counted from 0, go on with its workload at another pace.
    pub fn set_pacing(&mut self, job: usize, pacing: Pacing) {
        self.host.set_pacing(job, pacing, self.flash_array.now_ns);
    }

    /// Simulated time so far, in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.flash_array.now_ns)
    }

    /// The translation layer.
    pub const fn ftl(&self) -> &T {
        &self.ftl
    }

    /// Ends the jobs, lets GC finish its work, and gives the translation layer back, fit for
    /// counting mode.
    pub fn into_ftl(mut self) -> T {
        let impossible = "no workload is left that could fail";
        self.host.set_jobs(Vec::new(), self.flash_array.now_ns);
        self.set_timer(TIMER_JOBS, NEVER);
        self.gc.finish();
        self.advance().expect(impossible);
        loop {
            let (at_ns, slot) = self.flash_array.calendar.first();
            if at_ns == NEVER {
                return self.ftl;
            }
            self.flash_array.now_ns = at_ns;
            self.fire(slot).expect(impossible);
        }
    }

    /// Simulates.
    pub fn run(&mut self, until: Until) -> Result<Outcome> {
        self.run_watched(until, &mut |_| {})
    }

    /// The same, with reports of progress, in simulated nanoseconds or in bytes written.
    pub fn run_watched(
        &mut self,
        until: Until,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Outcome> {
        self.begin_run();
        let (begin_ns, begin_bytes) = (self.flash_array.now_ns, self.written_bytes);
        let (mut end_ns, mut end_bytes) = (NEVER, u64::MAX);
        match until {
            Until::Seconds(seconds) => end_ns = begin_ns + ns(seconds * 1e6),
            Until::Written(bytes) => end_bytes = begin_bytes.saturating_add(bytes),
            Until::Idle => {}
        }
        for job in 0..self.host.jobs.len() {
            self.send(job)?;
        }
        let mut events = 0_u32;
        let ended = loop {
            if self.written_bytes >= end_bytes {
                break Ended::Reached;
            }
            if self.host.at_end() && matches!(until, Until::Written(_)) {
                break Ended::Idle;
            }
            let (at_ns, slot) = self.flash_array.calendar.first();
            if at_ns > end_ns {
                self.flash_array.now_ns = end_ns;
                break Ended::Reached;
            }
            if at_ns == NEVER {
                break if until == Until::Idle { Ended::Reached } else { Ended::Idle };
            }
            self.flash_array.now_ns = at_ns;
            self.fire(slot)?;
            events = events.wrapping_add(1);
            if events.is_multiple_of(PROGRESS_EVENTS) {
                let passed = Progress { done: at_ns - begin_ns, total: end_ns - begin_ns };
                let written = self.written_bytes - begin_bytes;
                progress(match until {
                    Until::Seconds(_) => passed,
                    Until::Written(total) => Progress { done: written, total },
                    Until::Idle => Progress { done: 0, total: 0 },
                });
            }
        };
        Ok(self.end_run(ended))
    }

    /// Handles one event.
    #[inline]
    fn fire(&mut self, slot: usize) -> Result<()> {
        let timers = self.flash_array.timers();
        if slot >= timers {
            return self.fire_timer(slot - timers);
        }
        let Some(op) = self.flash_array.fire(slot) else {
            return Ok(());
        };
        match op.kind {
            Kind::HostRead => return self.read_part(op.tag),
            Kind::GcRead => self.copied(op.tag),
            Kind::HostProgram | Kind::GcProgram => self.programmed(op),
            Kind::Erase => self.erased(op.tag),
        }
        self.advance()
    }

    fn begin_run(&mut self) {
        let counters = self.ftl.counters();
        for job in &mut self.host.jobs {
            job.reads = Latency::default();
            job.writes = Latency::default();
            job.commits = Latency::default();
            job.others = 0;
            job.refused = 0;
        }
        self.begin = Mark {
            now_ns: self.flash_array.now_ns,
            written_bytes: self.written_bytes,
            counters,
            below: self.ftl.below(),
            dies: self.flash_array.die_times(),
            buses: self.flash_array.bus_times(),
            events: self.flash_array.events,
        };
        let samples = &mut self.samples;
        samples.before = (self.flash_array.now_ns, self.written_bytes, counters);
        samples.next_bytes = self.written_bytes.saturating_add(samples.every_bytes);
        samples.taken = Vec::new();
    }

    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    fn end_run(&mut self, ended: Ended) -> Outcome {
        let begin = std::mem::take(&mut self.begin);
        let passed_ns = self.flash_array.now_ns - begin.now_ns;
        let run_seconds = seconds(passed_ns);
        let after = self.flash_array.die_times();
        let dies: Vec<Busy> = begin
            .dies
            .iter()
            .zip(&after)
            .map(|(before, after)| Busy::new(before, after, passed_ns))
            .collect();
        let per_second = |amount: u64| {
            if passed_ns == 0 { 0.0 } else { amount as f64 / run_seconds }
        };
        let channels = begin.buses.iter().zip(self.flash_array.bus_times());
        let channels = channels
            .map(|(before, after)| per_second(after.busy_ns - before.busy_ns) / 1e9)
            .collect();
        let [mut reads, mut writes, mut commits] = std::array::from_fn(|_| Latency::default());
        let jobs = self.host.jobs.iter().map(|job| {
            reads.add(&job.reads);
            writes.add(&job.writes);
            commits.add(&job.commits);
            JobOutcome {
                name: job.name.clone(),
                reads: job.reads.clone(),
                writes: job.writes.clone(),
                others: job.others,
                refused: job.refused,
            }
        });
        let jobs = jobs.collect();
        let written_bytes = self.written_bytes - begin.written_bytes;
        let counters = self.ftl.counters().since(&begin.counters);
        let below = self.ftl.below().zip(begin.below).map(|(now, then)| now.since(&then));
        Outcome {
            seconds: run_seconds,
            ended,
            written_bytes,
            read_bytes: reads.bytes(),
            write_mb_s: per_second(written_bytes) / 1e6,
            read_mb_s: per_second(reads.bytes()) / 1e6,
            reads,
            writes,
            commits,
            jobs,
            drive: below.unwrap_or(counters),
            counters,
            amplification: Amplification::of(&counters, below),
            erases: Wear::of(self.ftl.erases()),
            busy: Busy::mean(&dies),
            dies,
            channels,
            trace: self.host.seen(),
            samples: std::mem::take(&mut self.samples.taken),
            events: self.flash_array.events - begin.events,
        }
    }

    /// Takes a sample, if one is due.
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    fn sample(&mut self) {
        if self.written_bytes < self.samples.next_bytes {
            return;
        }
        let (now_ns, counters) = (self.flash_array.now_ns, self.ftl.counters());
        let (before_ns, before_bytes, before) = self.samples.before;
        let bytes = self.written_bytes - before_bytes;
        let passed = seconds(now_ns - before_ns);
        self.samples.taken.push(Sample {
            seconds: seconds(now_ns - self.begin.now_ns),
            written_bytes: self.written_bytes - self.begin.written_bytes,
            mb_s: if passed > 0.0 { bytes as f64 / passed / 1e6 } else { 0.0 },
            wa: counters.since(&before).wa(),
        });
        self.samples.before = (now_ns, self.written_bytes, counters);
        self.samples.next_bytes = self.written_bytes.saturating_add(self.samples.every_bytes);
    }
}

/// Bytes between two samples.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "saturates at more than any drive takes"
)]
fn sample_bytes(config: &Config, user_bytes: u64) -> u64 {
    ((config.run.sample * user_bytes as f64) as u64).max(1)
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 for 100 days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
