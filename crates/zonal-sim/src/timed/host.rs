//! The host: jobs that send requests, by queue depth, by rate or by arrival times.

use std::collections::VecDeque;
use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::outcome::Latency;
use super::place::Places;
use crate::error::Result;
use crate::ftl::{Translation, Unit};
use crate::load::{Op, Request, Workload};
use crate::request::Seen;

/// Requests taken from a workload at once.
const BATCH: usize = 256;

/// Most requests in flight of a job whose requests have arrival times: the entries of one NVMe
/// queue (Base Specification, `CAP.MQES`). A drive that cannot keep up would have more and more.
const ARRIVALS_MAX: u32 = 1 << 16;

/// Tries to find a written address for a random read; after that the read finds nothing.
const TRIES: u32 = 64;

/// When a job sends its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// So many are kept in flight.
    Depth(u32),
    /// At most so many 10^6 bytes a second, and so many in flight, as fio's `rate`: a job that
    /// could not keep up catches up.
    Rate {
        /// 10^6 bytes a second.
        mb_s: f64,
        /// Requests in flight.
        depth: u32,
    },
    /// When each arrives by its own time, this many times as fast; with 65,536 in flight it waits.
    /// Latency is measured from the arrival.
    Arrivals {
        /// Speed-up; 1: as recorded.
        speed: f64,
    },
}

/// One user of the drive.
pub struct Job {
    name: String,
    source: JobRequests,
    pacing: Pacing,
}

enum JobRequests {
    Workload { workload: Box<dyn Workload>, batch: Vec<Request>, next: usize },
    RandomReads { range: Range<u64>, bytes: u32, random: Box<ChaCha8Rng> },
}

impl Job {
    /// A job that sends the requests of a workload.
    pub fn new(name: &str, workload: Box<dyn Workload>, pacing: Pacing) -> Self {
        let source = JobRequests::Workload { workload, batch: Vec::with_capacity(BATCH), next: 0 };
        Self { name: name.to_owned(), source, pacing }
    }

    /// Endless random reads of `bytes` bytes, aligned to their size, over the written part of
    /// `range`.
    pub fn random_reads(name: &str, range: Range<u64>, bytes: u32, reads: Reads) -> Self {
        assert!(range.end - range.start >= u64::from(bytes), "a read fits into the range");
        let random = Box::new(ChaCha8Rng::seed_from_u64(reads.seed));
        let source = JobRequests::RandomReads { range, bytes, random };
        Self { name: name.to_owned(), source, pacing: Pacing::Depth(reads.depth) }
    }
}

/// How random reads are sent.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Reads in flight.
    pub depth: u32,
    /// The seed of their addresses.
    pub seed: u64,
}

/// The drive, as far as jobs need it to make their requests.
pub(super) struct View<'a, T> {
    pub(super) ftl: &'a T,
    pub(super) places: &'a Places,
    pub(super) user_units: u32,
}

impl<T: Translation> View<'_, T> {
    fn unit(&self, offset: u64) -> Option<Unit> {
        let unit = u32::try_from(offset / self.places.unit_bytes()).ok()?;
        (unit < self.user_units).then_some(unit)
    }

    /// Whether there is data at this place.
    fn is_written(&self, offset: u64) -> bool {
        self.unit(offset).is_some_and(|unit| self.ftl.locate(unit).is_some())
    }

    /// A request for this place is going to come.
    fn touch(&self, offset: u64) {
        if let Some(unit) = self.unit(offset) {
            self.ftl.touch(unit);
        }
    }
}

impl JobRequests {
    /// The next request, if there is one.
    fn next(&mut self, view: &View<'_, impl Translation>) -> Result<Option<Request>> {
        match self {
            Self::Workload { workload, batch, next } => {
                if *next == batch.len() {
                    *next = 0;
                    workload.fill(batch)?;
                    for request in batch.iter() {
                        view.touch(request.offset);
                    }
                }
                let request = batch.get(*next).copied();
                *next += usize::from(request.is_some());
                Ok(request)
            }
            Self::RandomReads { range, bytes, random } => {
                let places = (range.end - range.start) / u64::from(*bytes);
                let mut draw = || range.start + random.random_range(0..places) * u64::from(*bytes);
                let mut offset = draw();
                for _ in 1..TRIES {
                    if view.is_written(offset) {
                        break;
                    }
                    offset = draw();
                }
                Ok(Some(Request { at_ns: 0, offset, bytes: *bytes, op: Op::Read, handle: 0 }))
            }
        }
    }
}

/// A job at work.
pub(super) struct Running {
    pub(super) name: String,
    source: JobRequests,
    pacing: Pacing,
    started_ns: u64,
    issued_bytes: u64,
    in_flight: u32,
    /// Taken from the source, and not sent yet.
    next: Option<Request>,
    /// Whether the source has no more.
    dry: bool,
    /// When it may send the next one, if that is a matter of time.
    due_ns: Option<u64>,
    pub(super) reads: Latency,
    pub(super) writes: Latency,
    pub(super) commits: Latency,
    pub(super) others: u64,
    pub(super) refused: u64,
}

/// A request between host and drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) request: Request,
    job: u32,
    /// Its round of jobs: requests of an earlier round are not counted any more.
    round: u32,
    start_ns: u64,
    /// A write: units placed so far. A read: parts that are missing.
    pub(super) units: u32,
    /// Time from the drive's end of it to the host hearing of it.
    pub(super) rest_ns: u64,
}

/// All jobs, and the requests that are on their way to the drive.
pub(super) struct Host {
    pub(super) jobs: Vec<Running>,
    /// Whether any of them has sent its last request.
    dry: bool,
    round: u32,
    requests: Vec<InFlight>,
    free: Vec<u32>,
    /// Reads in the firmware, and writes; each takes its constant time, so they stay in order.
    pub(super) reads: VecDeque<(u64, u32)>,
    pub(super) writes: VecDeque<(u64, u32)>,
    /// Answers on their way to the host: of reads, and of all others.
    pub(super) delivered: VecDeque<(u64, u32)>,
    pub(super) answered: VecDeque<(u64, u32)>,
}

impl Host {
    pub(super) fn new() -> Self {
        Self {
            jobs: Vec::new(),
            dry: false,
            round: 0,
            requests: Vec::new(),
            free: Vec::new(),
            reads: VecDeque::with_capacity(64),
            writes: VecDeque::with_capacity(64),
            delivered: VecDeque::new(),
            answered: VecDeque::new(),
        }
    }

    /// Replaces all jobs.
    pub(super) fn set_jobs(&mut self, jobs: Vec<Job>, now_ns: u64) {
        self.round += 1;
        let running = jobs.into_iter().map(|Job { name, source, pacing }| Running {
            name,
            source,
            pacing,
            started_ns: now_ns,
            issued_bytes: 0,
            in_flight: 0,
            next: None,
            dry: false,
            due_ns: None,
            reads: Latency::default(),
            writes: Latency::default(),
            commits: Latency::default(),
            others: 0,
            refused: 0,
        });
        self.jobs = running.collect();
        self.dry = false;
    }

    /// Whether every job that has an end has reached it.
    pub(super) fn at_end(&self) -> bool {
        let at_end = |job: &Running| match job.source {
            JobRequests::Workload { .. } => job.dry && job.in_flight == 0,
            JobRequests::RandomReads { .. } => true,
        };
        self.dry && self.jobs.iter().all(at_end)
    }

    /// Counts of the trace that a job replays.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.jobs.iter().find_map(|job| match &job.source {
            JobRequests::Workload { workload, .. } => workload.seen(),
            JobRequests::RandomReads { .. } => None,
        })
    }

    /// Changes when a job sends its further requests.
    pub(super) fn set_pacing(&mut self, job: usize, pacing: Pacing, now_ns: u64) {
        let running = &mut self.jobs[job];
        running.pacing = pacing;
        running.started_ns = now_ns;
        running.issued_bytes = 0;
    }

    /// The next request that a job may send now, as in flight.
    pub(super) fn send(
        &mut self,
        job: usize,
        now_ns: u64,
        view: &View<'_, impl Translation>,
    ) -> Result<Option<(u32, Op)>> {
        let running = &mut self.jobs[job];
        let Some((request, start_ns)) = running.take(now_ns, view)? else {
            self.dry |= running.dry;
            return Ok(None);
        };
        let job = u32::try_from(job).expect("a few jobs");
        let in_flight =
            InFlight { request, job, round: self.round, start_ns, units: 0, rest_ns: 0 };
        let id = if let Some(id) = self.free.pop() {
            self.requests[id as usize] = in_flight;
            id
        } else {
            self.requests.push(in_flight);
            u32::try_from(self.requests.len() - 1).expect("requests fit into memory")
        };
        Ok(Some((id, request.op)))
    }

    /// A request in flight.
    pub(super) fn request(&mut self, id: u32) -> &mut InFlight {
        &mut self.requests[id as usize]
    }

    /// Forgets a request; returns the job that may now send another one.
    pub(super) fn complete(&mut self, id: u32, outcome: Completion, now_ns: u64) -> Option<usize> {
        let InFlight { request, job, round, start_ns, .. } = self.requests[id as usize];
        self.free.push(id);
        if round != self.round {
            return None;
        }
        let running = &mut self.jobs[job as usize];
        running.in_flight -= 1;
        match (outcome, request.op) {
            (Completion::Refused, _) => running.refused += 1,
            (Completion::Done, Op::Read) => running.reads.record(now_ns - start_ns, request.bytes),
            (Completion::Done, Op::Write) => {
                running.writes.record(now_ns - start_ns, request.bytes);
            }
            (Completion::Done, Op::Commit) => running.commits.record(now_ns - start_ns, 0),
            (Completion::Done, Op::Trim | Op::Reset | Op::OpenArea | Op::Finish) => {
                running.others += 1;
            }
        }
        Some(job as usize)
    }

    /// The first time that a job waits for, and the job.
    pub(super) fn due(&self) -> Option<(u64, usize)> {
        let due = self.jobs.iter().enumerate().filter_map(|(at, job)| Some((job.due_ns?, at)));
        due.min()
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Done,
    /// A write the drive's rules forbid, or for which it will never have room.
    Refused,
}

impl Running {
    /// The next request, if it may be sent now, and the time from which its latency is measured.
    fn take(
        &mut self,
        now_ns: u64,
        view: &View<'_, impl Translation>,
    ) -> Result<Option<(Request, u64)>> {
        self.due_ns = None;
        let depth = match self.pacing {
            Pacing::Depth(depth) | Pacing::Rate { depth, .. } => depth,
            Pacing::Arrivals { .. } => ARRIVALS_MAX,
        };
        if self.in_flight >= depth {
            return Ok(None);
        }
        if self.next.is_none() {
            self.next = self.source.next(view)?;
            self.dry = self.next.is_none();
        }
        let Some(request) = self.next else {
            return Ok(None);
        };
        let due_ns = self.started_ns + self.wait_ns(&request);
        if now_ns < due_ns {
            self.due_ns = Some(due_ns);
            return Ok(None);
        }
        self.next = None;
        self.in_flight += 1;
        if matches!(request.op, Op::Read | Op::Write) {
            self.issued_bytes += u64::from(request.bytes);
        }
        let start_ns = match self.pacing {
            Pacing::Depth(_) | Pacing::Rate { .. } => now_ns,
            Pacing::Arrivals { .. } => due_ns,
        };
        Ok(Some((request, start_ns)))
    }

    /// How long after the start of the job a request may be sent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "below 2^53 for 100 days and for petabytes"
    )]
    fn wait_ns(&self, request: &Request) -> u64 {
        match self.pacing {
            Pacing::Depth(_) => 0,
            Pacing::Rate { mb_s, .. } => (self.issued_bytes as f64 * 1000.0 / mb_s) as u64,
            Pacing::Arrivals { speed } => (request.at_ns as f64 / speed) as u64,
        }
    }
}
