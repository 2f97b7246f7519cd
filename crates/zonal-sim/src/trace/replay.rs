//! A trace as a workload: which request comes when.
//!
//! Requests come in the order of the trace. One that is earlier than its predecessor, as happens
//! where several disks were traced, comes at the same time as that. A trace that begins anew goes
//! on from the time its last request came.

use std::path::PathBuf;

use super::fit::Fitting;
use super::{Reader, Record, ReplayTimes, Seen, Trace};
use crate::config::{Config, Layout};
use crate::error::{Result, refused};
use crate::request::{Op, Request, Workload};

/// A trace that is being replayed on a drive.
pub(crate) struct Replay {
    path: PathBuf,
    options: Trace,
    reader: Reader,
    fitting: Fitting,
    handles: u32,
    /// The rest of a request that is split.
    rest: Option<(Record, u64)>,
    clock: Clock,
    seen: Seen,
    /// Whether this pass has written anything: an endless replay must.
    wrote: bool,
    bad_lines: u64,
}

/// Times of a trace, as times of the replay.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The time in the trace of this pass's first request.
    first: Option<u64>,
    /// The time of the replay at which this pass began, and of the last request.
    began: u64,
    last: u64,
}

impl Clock {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates; parts of a nanosecond do not count"
    )]
    fn at(&mut self, at_ns: u64, speed: f64) -> u64 {
        let since = at_ns.saturating_sub(*self.first.get_or_insert(at_ns));
        let since = (since as f64 / speed) as u64;
        self.last = self.last.max(self.began.saturating_add(since));
        self.last
    }
}

impl Replay {
    pub(crate) fn open(config: &Config, layout: &Layout) -> Result<Self> {
        if config.workload.trace.is_empty() {
            return Err(refused("workload.trace", "\"\"", "the path of a trace"));
        }
        let path = PathBuf::from(&config.workload.trace);
        let options = config.trace.clone();
        Ok(Self {
            reader: Reader::open(&path, &options)?,
            fitting: Fitting::new(options.fit, layout.user_bytes()),
            handles: u32::from(config.handles()),
            path,
            options,
            rest: None,
            clock: Clock::default(),
            seen: Seen { loops: 1, ..Seen::default() },
            wrote: false,
            bad_lines: 0,
        })
    }

    /// The next request of the drive.
    fn next(&mut self) -> Result<Option<Request>> {
        let (record, at_ns) = match self.rest.take() {
            Some(rest) => rest,
            None => match self.record()? {
                Some(record) => {
                    let at_ns = self.clock.at(record.at_ns, self.options.speed);
                    let at_ns = if self.has_times() { at_ns } else { 0 };
                    (record, at_ns)
                }
                None => return Ok(None),
            },
        };
        let ((offset, bytes), left) =
            self.fitting.piece(record.volume, record.offset, record.bytes);
        if left > 0 {
            let offset = record.offset + u64::from(bytes);
            self.rest = Some((Record { offset, bytes: left, ..record }, at_ns));
        }
        let handle = (record.volume % self.handles).to_le_bytes()[0];
        Ok(Some(Request { at_ns, offset, bytes, op: record.op, handle }))
    }

    /// The next request of the trace, which may begin anew.
    fn record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(record) = self.reader.record()? {
                self.seen.requests += 1;
                match record.op {
                    Op::Read => {
                        self.seen.reads += 1;
                        self.seen.read_bytes += record.bytes;
                    }
                    Op::Write => self.wrote = true,
                    Op::Trim | Op::Reset | Op::OpenArea | Op::Commit | Op::Finish => {}
                }
                return Ok(Some(record));
            }
            if self.seen.requests == 0 {
                return Err(self.reader.wrong(match self.options.volume.as_str() {
                    "" => "the trace ends without a request".to_owned(),
                    volume => format!("the trace ends without a request of volume {volume}"),
                }));
            }
            if self.options.loops > 0 && self.seen.loops >= self.options.loops {
                return Ok(None);
            }
            if self.options.loops == 0 && !self.wrote {
                let what = "the trace ends and writes nothing: no drive write can be reached";
                return Err(self.reader.wrong(what.to_owned()));
            }
            self.bad_lines += self.reader.bad_lines();
            self.reader.begin(&self.path, &self.options)?;
            self.seen.loops = self.seen.loops.saturating_add(1);
            self.clock = Clock { first: None, began: self.clock.last, last: self.clock.last };
        }
    }
}

impl Workload for Replay {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        while batch.len() < room {
            match self.next()? {
                Some(request) => batch.push(request),
                None => break,
            }
        }
        Ok(())
    }

    fn has_times(&self) -> bool {
        self.options.times == ReplayTimes::Own && self.reader.has_times()
    }

    fn seen(&self) -> Option<Seen> {
        let touched_bytes = self.fitting.touched();
        let (reached_bytes, shared) = self.fitting.reached();
        let bad_lines = self.bad_lines + self.reader.bad_lines();
        Some(Seen { bad_lines, touched_bytes, reached_bytes, shared, ..self.seen })
    }
}

/// The rest of a workload with times of its own: its next request comes now.
pub(crate) fn from_now(workload: Box<dyn Workload>) -> Box<dyn Workload> {
    Box::new(FromNow { workload, first: None })
}

struct FromNow {
    workload: Box<dyn Workload>,
    first: Option<u64>,
}

impl Workload for FromNow {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        self.workload.fill(batch)?;
        for request in batch {
            let first = *self.first.get_or_insert(request.at_ns);
            request.at_ns -= first; // times never go back
        }
        Ok(())
    }

    fn has_times(&self) -> bool {
        self.workload.has_times()
    }

    fn seen(&self) -> Option<Seen> {
        self.workload.seen()
    }
}
