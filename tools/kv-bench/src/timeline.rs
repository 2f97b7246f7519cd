//! The jobs of a store in virtual time: a thread that puts, flushes, compactions and readers share
//! a drive.
//!
//! The reads and writes of each job are recorded ([`jobs`](crate::jobs)); their times follow from
//! the drive. A job begins as soon as the tables that it merges are there and a thread is free, the
//! first recorded one first. The thread that puts fills the log and waits as RocksDB lets it wait:
//! for the flush of the memtable before the last, and for compactions that had ended when the
//! record was at a memtable [`MEMTABLES_AHEAD`] before this one. Each step (a piece of the log, a
//! piece of a table) begins when its thread is there, the earliest first.

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal_fs::lifetime::WriteLifetime;
use zonal_sim::files::BLOCK_BYTES;
use zonal_sim::ssd::Account;

use crate::child;
use crate::jobs::{Job, Kind, Recorded, TableId};
use crate::stores::Store;

/// Bytes of a request, as RocksDB has it for direct I/O.
const REQUEST: u64 = 1 << 20;

/// Bytes of the log that are written at once.
const LOG_REQUEST: u64 = 256 << 10;

/// Memtables: one is filled, one is flushed.
const MEMTABLES: usize = 2;

/// By how many memtables the thread that puts may be further ahead of compactions than it was when
/// they were recorded.
const MEMTABLES_AHEAD: usize = 4;

/// Compactions among which the next one is looked for.
const LOOK_AHEAD: usize = 64;

/// How often a file system is given time for its own work.
const WORK_NS: u64 = 10_000_000;

/// Steps between two looks at signals.
const STEPS: u64 = 1 << 16;

/// How fast the program is, and how many threads it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Time of a put without the drive.
    pub(crate) put_ns: f64,
    /// Time of a byte of a table that a flush or a compaction writes, without the drive.
    pub(crate) flush_ns: f64,
    pub(crate) merge_ns: f64,
    /// Threads that flush, and that compact.
    pub(crate) flushes: usize,
    pub(crate) compactions: usize,
    /// Threads that read blocks of tables one after the other, in the last phase.
    pub(crate) readers: usize,
}

/// Measurements of a phase of the program.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) puts: f64,
    pub(crate) ns: u64,
    /// Bytes of logs and tables.
    pub(crate) file_bytes: u64,
    /// Before and after.
    pub(crate) accounts: [Account; 2],
    /// Times of reads, in their order.
    pub(crate) reads_ns: Vec<u64>,
}

impl Phase {
    /// Puts a second.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn rate(&self) -> f64 {
        self.puts * 1e9 / self.ns.max(1) as f64
    }

    /// The time in which this many of 100 reads are done.
    pub(crate) fn read_ns(&self, percent: usize) -> Option<u64> {
        self.reads_ns
            .get((self.reads_ns.len() * percent / 100).min(self.reads_ns.len().max(1) - 1))
            .copied()
    }
}

/// A record, and how it is replayed.
#[derive(Clone, Copy)]
pub(crate) struct Replay<'a> {
    pub(crate) recorded: &'a Recorded,
    pub(crate) program: Program,
    /// Bytes of a file for each recorded one: as many puts stand behind each put.
    pub(crate) scale: f64,
    /// The first memtable of each phase but the first, and one behind the last.
    pub(crate) phases: &'a [usize],
    pub(crate) seed: u64,
}

impl Replay<'_> {
    /// Runs it on a store.
    pub(crate) fn run<S: Store>(&self, store: &mut S) -> Result<Vec<Phase>> {
        Timeline::new(self, store).run()
    }

    /// Bytes of a file, in whole blocks.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bytes below 2^52"
    )]
    fn bytes(&self, recorded: u64) -> u64 {
        ((recorded as f64 * self.scale) as u64).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)
    }
}

/// A log that is filled.
struct Log {
    at_ns: u64,
    /// The memtable, by number.
    number: usize,
    bytes: u64,
    written: u64,
    puts: f64,
    state: LogState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogState {
    /// It waits for flushes or compactions.
    Waits,
    Filling,
    /// All puts are done.
    Done,
}

/// A job that runs.
struct Running {
    job: usize,
    at_ns: u64,
    /// The table that is written, and how much of it.
    output: usize,
    offset: u64,
    /// Bytes of all outputs that are written, and of all.
    written: u64,
    bytes: u64,
    /// Bytes of inputs that are read, and of all.
    read: u64,
    input_bytes: u64,
}

/// The start of a phase, and the counts at that time.
struct PhaseStart {
    at_ns: u64,
    file_bytes: u64,
    account: Account,
}

/// The thread that takes the next step.
#[derive(Clone, Copy, Debug)]
enum Actor {
    Log,
    Job(usize),
    Reader(usize),
    Worker,
}

struct Timeline<'a, S> {
    replay: &'a Replay<'a>,
    store: &'a mut S,
    /// The job of each memtable's flush, and its puts.
    flushes: Vec<(usize, u64)>,
    log: Log,
    running: Vec<Running>,
    has_begun: Vec<bool>,
    has_ended: Vec<bool>,
    /// How many of the first recorded ends have come.
    ends: usize,
    flushes_begun: usize,
    is_there: Vec<bool>,
    live: Vec<TableId>,
    readers: Vec<u64>,
    worker_ns: u64,
    file_bytes: u64,
    random: ChaCha8Rng,
    phases: Vec<Phase>,
    phase_start: PhaseStart,
    reads_ns: Vec<u64>,
}

impl<'a, S: Store> Timeline<'a, S> {
    fn new(replay: &'a Replay<'a>, store: &'a mut S) -> Self {
        let recorded = replay.recorded;
        let at_ns = store.now_ns();
        let phase_start = PhaseStart { at_ns, file_bytes: 0, account: store.account() };
        Self {
            replay,
            store,
            flushes: recorded.flushes().collect(),
            log: Log { at_ns, number: 0, bytes: 0, written: 0, puts: 0.0, state: LogState::Waits },
            running: Vec::new(),
            has_begun: vec![false; recorded.jobs.len()],
            has_ended: vec![false; recorded.jobs.len()],
            ends: 0,
            flushes_begun: 0,
            is_there: vec![false; recorded.tables.len()],
            live: Vec::new(),
            readers: Vec::new(),
            worker_ns: at_ns,
            file_bytes: 0,
            random: ChaCha8Rng::seed_from_u64(replay.seed),
            phases: Vec::new(),
            phase_start,
            reads_ns: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<Phase>> {
        let mut steps = 0_u64;
        self.proceed(self.log.at_ns)?;
        while self.log.state != LogState::Done {
            ensure!(
                self.log.state == LogState::Filling || !self.running.is_empty(),
                "the log waits for memtable {}, and nothing runs",
                self.log.number
            );
            match self.next() {
                Actor::Log => self.put()?,
                Actor::Job(at) => self.work(at)?,
                Actor::Reader(at) => self.read(at)?,
                Actor::Worker => {
                    let begin = self.store.begin_at(self.worker_ns);
                    self.store.work()?;
                    self.worker_ns = self.store.now_ns().max(begin + WORK_NS);
                }
            }
            steps += 1;
            if steps.is_multiple_of(STEPS) {
                child::check_interrupted()?;
            }
        }
        Ok(self.phases)
    }

    /// The thread that is the earliest.
    fn next(&self) -> Actor {
        let mut first = (self.worker_ns, Actor::Worker);
        let mut see = |at_ns, actor| {
            if at_ns < first.0 {
                first = (at_ns, actor);
            }
        };
        if self.log.state == LogState::Filling {
            see(self.log.at_ns, Actor::Log);
        }
        self.running.iter().enumerate().for_each(|(at, job)| see(job.at_ns, Actor::Job(at)));
        self.readers.iter().enumerate().for_each(|(at, &ns)| see(ns, Actor::Reader(at)));
        first.1
    }

    const fn job(&self, job: usize) -> &'a Job {
        &self.replay.recorded.jobs.as_slice()[job]
    }

    fn log_file(&self, number: usize) -> u32 {
        u32::try_from(self.is_there.len() + number).expect("files are few")
    }

    fn table_file(table: TableId) -> u32 {
        u32::try_from(table).expect("files are few")
    }

    fn table_bytes(&self, table: TableId) -> u64 {
        self.replay.bytes(self.replay.recorded.tables[table])
    }

    /// Begins every job that can begin at this time.
    fn proceed(&mut self, now_ns: u64) -> Result<()> {
        let full = self.log.number;
        let count = |kind: fn(&Kind) -> bool, timeline: &Self| {
            timeline.running.iter().filter(|one| kind(&timeline.job(one.job).kind)).count()
        };
        let is_flush = |kind: &Kind| matches!(kind, Kind::Flush { .. });
        while self.flushes_begun < full && count(is_flush, self) < self.replay.program.flushes {
            self.begin(self.flushes[self.flushes_begun].0, now_ns);
            self.flushes_begun += 1;
        }
        while count(|kind| *kind == Kind::Compaction, self) < self.replay.program.compactions {
            let Some(job) = self.next_compaction() else { break };
            self.begin(job, now_ns);
        }
        if self.log.state == LogState::Waits {
            self.begin_log(now_ns)?;
        }
        Ok(())
    }

    /// The first compaction whose tables are there.
    fn next_compaction(&self) -> Option<usize> {
        let jobs = self.replay.recorded.jobs.iter().enumerate();
        jobs.filter(|&(at, job)| job.kind == Kind::Compaction && !self.has_begun[at])
            .take(LOOK_AHEAD)
            .find(|(_, job)| job.inputs.iter().all(|&table| self.is_there[table]))
            .map(|(at, _)| at)
    }

    fn begin(&mut self, number: usize, now_ns: u64) {
        let job = self.job(number);
        self.has_begun[number] = true;
        let sum = |tables: &[TableId]| tables.iter().map(|&table| self.table_bytes(table)).sum();
        let (bytes, input_bytes) = (sum(&job.outputs), sum(&job.inputs));
        self.running.push(Running {
            job: number,
            at_ns: now_ns,
            output: 0,
            offset: 0,
            written: 0,
            bytes,
            read: 0,
            input_bytes,
        });
    }

    /// Begins the next log, if the program may put.
    fn begin_log(&mut self, now_ns: u64) -> Result<()> {
        let number = self.log.number;
        let is_flushed = |at: usize| self.has_ended[self.flushes[at].0];
        let compacted = number.checked_sub(MEMTABLES_AHEAD);
        let wanted = compacted.map_or(0, |at| self.job(self.flushes[at].0).ended);
        if !number.checked_sub(MEMTABLES).is_none_or(is_flushed) || self.ends < wanted {
            return Ok(());
        }
        self.log.at_ns = self.log.at_ns.max(now_ns);
        let (job, puts) = self.flushes[number];
        let Kind::Flush { bytes, .. } = self.job(job).kind else { unreachable!("it is a flush") };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let puts = puts as f64 * self.replay.scale;
        let log = &mut self.log;
        (log.bytes, log.written, log.puts) = (self.replay.bytes(bytes), 0, puts);
        log.state = LogState::Filling;
        self.log.at_ns = self.store.begin_at(self.log.at_ns);
        self.store.create(self.log_file(number), self.log.bytes, WriteLifetime::Short)?;
        self.log.at_ns = self.store.now_ns();
        Ok(())
    }

    /// Puts, and writes the log for that.
    fn put(&mut self) -> Result<()> {
        let (file, log) = (self.log_file(self.log.number), &mut self.log);
        let bytes = LOG_REQUEST.min(log.bytes - log.written);
        let begin = self.store.begin_at(log.at_ns);
        self.store.write(file, log.written, bytes)?;
        self.file_bytes += bytes;
        let share = ratio(bytes, log.bytes) * log.puts;
        // The kernel, or the plugin, writes the log while the next puts are made.
        log.at_ns = self.store.now_ns().max(begin + time(share * self.replay.program.put_ns));
        log.written += bytes;
        if log.written < log.bytes {
            return Ok(());
        }
        let now_ns = log.at_ns;
        log.number += 1;
        log.state = LogState::Waits;
        self.end_phase(now_ns);
        if self.log.number == self.replay.phases.last().copied().unwrap_or(self.flushes.len()) {
            self.log.state = LogState::Done;
            return Ok(());
        }
        self.proceed(now_ns)
    }

    /// Ends the phase, if the memtable that was filled was its last.
    fn end_phase(&mut self, now_ns: u64) {
        let ended = self.phases.len();
        if self.replay.phases.get(ended) != Some(&self.log.number) {
            return;
        }
        let first = ended.checked_sub(1).map_or(0, |before| self.replay.phases[before]);
        let puts: u64 = self.flushes[first..self.log.number].iter().map(|&(_, puts)| puts).sum();
        let account = self.store.account();
        let next = PhaseStart { at_ns: now_ns, file_bytes: self.file_bytes, account };
        let start = std::mem::replace(&mut self.phase_start, next);
        let mut reads_ns = std::mem::take(&mut self.reads_ns);
        reads_ns.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        self.phases.push(Phase {
            puts: puts as f64 * self.replay.scale,
            ns: now_ns - start.at_ns,
            file_bytes: self.file_bytes - start.file_bytes,
            accounts: [start.account, self.phase_start.account.clone()],
            reads_ns,
        });
        if self.phases.len() + 1 == self.replay.phases.len() {
            self.readers = vec![now_ns; self.replay.program.readers];
        }
    }

    /// A step of a job: a piece of its inputs is read, or a piece of a table is written.
    fn work(&mut self, at: usize) -> Result<()> {
        let (number, now_ns) = (self.running[at].job, self.running[at].at_ns);
        let job = self.job(number);
        let Some(&table) = job.outputs.get(self.running[at].output) else {
            self.running.swap_remove(at);
            return self.end(number, now_ns);
        };
        let (file, bytes) = (Self::table_file(table), self.table_bytes(table));
        let one = &self.running[at];
        let piece = REQUEST.min(bytes - one.offset);
        let wanted = u128::from(one.input_bytes) * u128::from(one.written + piece);
        if u128::from(one.read) * u128::from(one.bytes) < wanted {
            let (file, offset, bytes) = self.input(job, one.read);
            self.store.begin_at(now_ns);
            self.store.read(file, offset, bytes)?;
            let one = &mut self.running[at];
            (one.read, one.at_ns) = (one.read + bytes, self.store.now_ns());
            return Ok(());
        }
        self.store.begin_at(now_ns);
        if one.offset == 0 {
            self.store.create(file, bytes, lifetime(job.level))?;
        }
        self.store.write(file, one.offset, piece)?;
        self.file_bytes += piece;
        let is_complete = one.offset + piece == bytes;
        if is_complete {
            self.store.complete(file)?;
        }
        let program = &self.replay.program;
        let byte_ns =
            if job.kind == Kind::Compaction { program.merge_ns } else { program.flush_ns };
        let one = &mut self.running[at];
        // The program's work for the next piece comes after the write of this one.
        one.at_ns = self.store.now_ns() + time(byte_ns * ratio(piece, 1));
        one.written += piece;
        (one.output, one.offset) =
            if is_complete { (one.output + 1, 0) } else { (one.output, one.offset + piece) };
        Ok(())
    }

    /// The part of the inputs behind the first `skip` bytes.
    fn input(&self, job: &Job, mut skip: u64) -> (u32, u64, u64) {
        for &table in &job.inputs {
            let bytes = self.table_bytes(table);
            if skip < bytes {
                return (Self::table_file(table), skip, REQUEST.min(bytes - skip));
            }
            skip -= bytes;
        }
        unreachable!("no more is read than there is")
    }

    /// A job ends: its tables are there, and its inputs are deleted.
    fn end(&mut self, number: usize, now_ns: u64) -> Result<()> {
        let job = self.job(number);
        self.has_ended[number] = true;
        let ends = &self.replay.recorded.ends;
        while ends.get(self.ends).is_some_and(|&job| self.has_ended[job]) {
            self.ends += 1;
        }
        for &table in &job.outputs {
            self.is_there[table] = true;
            self.live.push(table);
        }
        self.store.begin_at(now_ns);
        for &table in &job.inputs {
            self.is_there[table] = false;
            self.live.retain(|&live| live != table);
            self.store.delete(Self::table_file(table))?;
        }
        if job.kind != Kind::Compaction {
            let log = self.flushes.iter().position(|&(flush, _)| flush == number);
            self.store.delete(self.log_file(log.expect("a flush has a log")))?;
        }
        self.proceed(now_ns)
    }

    /// Reads a block of a table.
    fn read(&mut self, at: usize) -> Result<()> {
        let table = self.live[self.random.random_range(0..self.live.len())];
        let blocks = self.table_bytes(table) / BLOCK_BYTES;
        let offset = self.random.random_range(0..blocks) * BLOCK_BYTES;
        let begin = self.store.begin_at(self.readers[at]);
        self.store.read(Self::table_file(table), offset, BLOCK_BYTES)?;
        self.readers[at] = self.store.now_ns();
        self.reads_ns.push(self.readers[at] - begin);
        Ok(())
    }
}

/// The lifetime hint that RocksDB gives to tables of a level.
const fn lifetime(level: u64) -> WriteLifetime {
    match level {
        0 | 1 => WriteLifetime::Medium,
        2 => WriteLifetime::Long,
        _ => WriteLifetime::Extreme,
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes below 2^52")]
fn ratio(above: u64, below: u64) -> f64 {
    above as f64 / below as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^52")]
const fn time(ns: f64) -> u64 {
    ns as u64
}

#[cfg(test)]
mod tests;
