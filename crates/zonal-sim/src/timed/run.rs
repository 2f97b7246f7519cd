//! Timed mode from end to end: counting mode brings the drive into its steady state, then timed
//! mode measures.

use serde::Serialize;

use crate::Progress;
use crate::config::{Config, Layout};
use crate::counting::{Counting, Drive, per_asked_byte};
use crate::error::{Result, refused};
use crate::ftl::{Counters, Translation, Wear};
use crate::load::Workload;
use crate::report::{Cell, Table};
use crate::timed::{Job, LatencySummary, Outcome, Pacing, Reads, Timed, Until};
use crate::trace::{Seen, from_now};

/// Share of `run.seconds` that passes before anything is measured: 30 of 180 seconds, as in
/// zbdbench's `fio_zone_mixed`.
const RAMP: f64 = 1.0 / 6.0;

/// Progress is reported in so many parts of each half, and of the first one in so many steps.
const HALF: u64 = 1000;
const WARM_UP_STEPS: u64 = 100;

/// Bytes of the random reads.
const READ_BYTES: u32 = 4096;

/// Results of a config in timed mode.
#[derive(Clone, Debug)]
pub struct Measured {
    /// All of the config.
    pub config: Config,
    /// The layout of the drive.
    pub layout: Layout,
    /// (raw − user) / user of all the flash.
    pub op_nominal: f64,
    /// The same of the flash in which data can rest.
    pub op_effective: f64,
    /// The results.
    pub outcome: Outcome,
}

/// The same in figures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// All of the config.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    pub config: Config,
    /// (raw − user) / user of all the flash.
    pub op_nominal: f64,
    /// The same of the flash in which data can rest.
    pub op_effective: f64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Writes accepted, 10^6 bytes a second.
    #[serde(rename = "write_mb_per_s")]
    pub write_mb_s: f64,
    /// Reads, 10^6 bytes a second.
    #[serde(rename = "read_mb_per_s")]
    pub read_mb_s: f64,
    /// Bytes programmed per byte that the host asked to write. Requests smaller than a unit make it
    /// larger than `wa`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub flash_per_asked_byte: f64,
    /// Write amplification of the host's log in that time; 1 where there is none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub host_wa: f64,
    /// Write amplification of the drive.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub drive_wa: f64,
    /// Their product; null where nothing was written, as the ratios before it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub wa: f64,
    /// Erase counts at the end, since the drive was new.
    pub erases: Wear,
    /// Latency of reads.
    pub reads: LatencySummary,
    /// Latency of writes.
    pub writes: LatencySummary,
    /// Latency of commits of random write areas that the host asked for.
    pub commits: LatencySummary,
    /// Counters of the drive, in its units.
    pub drive_counters: Counters,
    /// Figures of the trace, if one was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Seen>,
}

impl Measured {
    /// The figures.
    pub fn summary(&self) -> Summary {
        let outcome = &self.outcome;
        Summary {
            config: self.config.clone(),
            op_nominal: self.op_nominal,
            op_effective: self.op_effective,
            seconds: outcome.seconds,
            write_mb_s: outcome.write_mb_s,
            read_mb_s: outcome.read_mb_s,
            flash_per_asked_byte: self.flash_per_asked(),
            host_wa: outcome.amplification.host,
            drive_wa: outcome.amplification.drive,
            wa: outcome.wa(),
            erases: outcome.erases,
            reads: outcome.reads.summary(),
            writes: outcome.writes.summary(),
            commits: outcome.commits.summary(),
            drive_counters: outcome.drive,
            trace: outcome.trace,
        }
    }

    /// Bytes programmed per byte that the host asked to write; NaN where it asked for nothing.
    pub fn flash_per_asked(&self) -> f64 {
        let flash_bytes = self.outcome.drive.programs() * self.layout.unit;
        per_asked_byte(flash_bytes, self.outcome.written_bytes)
    }

    /// The time series as a table.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub fn table(&self) -> Table {
        let columns = ["seconds", "drive_writes", "written_bytes", "mb_s", "wa"];
        let mut table = Table::new("timed", &columns);
        for sample in &self.outcome.samples {
            let written = sample.written_bytes as f64;
            let drive_writes = written / self.layout.user_bytes() as f64;
            let cells = [sample.seconds, drive_writes, written, sample.mb_s, sample.wa];
            table.row(cells.map(Cell::from).to_vec());
        }
        table
    }

    /// Whether the drive took the writes at the rate that was asked for, within a hundredth.
    pub fn reaches_rate(&self) -> bool {
        self.outcome.write_mb_s >= 0.99 * self.config.workload.write_mb_s
    }
}

/// Runs a config in timed mode: `run.warm_up` drive writes are counted only; then the host writes
/// and reads for `run.seconds`, or until `run.drive_writes`.
pub fn run(config: &Config) -> Result<Measured> {
    run_watched(config, &mut |_| {})
}

/// The same, with reports of progress: the first half is the warm-up of the drive.
pub fn run_watched(config: &Config, progress: &mut dyn FnMut(Progress)) -> Result<Measured> {
    config.check()?;
    let mut half = |first, at: Progress| {
        let done = first + at.done.saturating_mul(HALF).checked_div(at.total).unwrap_or(0);
        progress(Progress { done, total: 2 * HALF });
    };
    let mut counting = Counting::new(config)?;
    let layout = *counting.drive().layout();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "drive writes are at most 10^6"
    )]
    let total = (config.run.warm_up * f64::from(layout.user_units)) as u64;
    for step in 1..=WARM_UP_STEPS {
        counting.until(total * step / WARM_UP_STEPS)?;
        half(0, Progress { done: step, total: WARM_UP_STEPS });
    }
    let (drive, workload) = counting.into_parts();
    let jobs = jobs(config, &layout, workload)?;
    let progress: &mut dyn FnMut(Progress) = &mut |at| half(HALF, at);
    let outcome = match drive {
        Drive::Page(drive) => pass(config, *drive, jobs, progress),
        Drive::Zones(drive) => pass(config, *drive, jobs, progress),
        Drive::Log(log) => pass(config, *log, jobs, progress),
    }?;
    Ok(Measured {
        config: config.clone(),
        layout,
        op_nominal: layout.op_nominal(),
        op_effective: layout.op_effective(),
        outcome,
    })
}

/// Simulates.
fn pass<T: Translation>(
    config: &Config,
    drive: T,
    jobs: Vec<Job>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let mut timed = Timed::new(config, drive, jobs)?;
    if config.run.seconds > 0.0 {
        timed.run(Until::Seconds(config.run.seconds * RAMP))?;
        return timed.run_watched(Until::Seconds(config.run.seconds), progress);
    }
    let drive_writes = config.run.drive_writes - config.run.warm_up;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "far below 2^53"
    )]
    let bytes = (drive_writes * config.layout()?.user_bytes() as f64) as u64;
    timed.run_watched(Until::Written(bytes), progress)
}

/// The jobs of the host: the workload's writes, and random reads beside them.
fn jobs(config: &Config, layout: &Layout, writes: Box<dyn Workload>) -> Result<Vec<Job>> {
    let workload = &config.workload;
    let mut jobs = Vec::new();
    if workload.write_depth > 0 {
        let (mb_s, depth) = (workload.write_mb_s, workload.write_depth);
        let (writes, pacing) = match workload.kind {
            _ if writes.has_times() => (from_now(writes), Pacing::Arrivals { speed: 1.0 }),
            _ if mb_s > 0.0 => (writes, Pacing::Rate { mb_s, depth }),
            _ => (writes, Pacing::Depth(depth)),
        };
        jobs.push(Job::new("write", writes, pacing));
    }
    if workload.read_depth > 0 {
        let reads = Reads { depth: workload.read_depth, seed: config.seed };
        jobs.push(Job::random_reads("read", 0..layout.user_bytes(), READ_BYTES, reads));
    }
    if jobs.is_empty() || (workload.write_depth == 0 && config.run.seconds == 0.0) {
        let allowed = "at least 1, or read_depth at least 1 and run.seconds above 0";
        return Err(refused("workload.write_depth", workload.write_depth, allowed));
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 512 superblocks of 2 MiB, in 8 dies.
    fn run(text: &str) -> Result<Measured> {
        run_of("64KiB", text)
    }

    /// The same with writes of another size.
    fn run_of(io: &str, text: &str) -> Result<Measured> {
        let small = "[flash]\nchannels = 4\ndies_per_channel = 2\nprograms_per_block = 3\n\
                     superblocks = 512\nerase_us = 100\n[workload]\n";
        super::run(&Config::parse(&format!("{small}io = \"{io}\"\n{text}"))?)
    }

    #[test]
    fn drive_reaches_steady_state_before_timing() {
        let drive =
            "write_depth = 16\n[drive]\nop = 0.28\nunit = \"32KiB\"\n[run]\nsample = 0.25\n";
        let fresh = run(&format!("{drive}drive_writes = 0.5\nwarm_up = 0")).expect("runs");
        let steady = run(&format!("{drive}drive_writes = 6.5\nwarm_up = 6")).expect("runs");
        let wa = |run: &Measured| run.outcome.wa();
        assert!((wa(&fresh) - 1.0).abs() < 1e-9, "{}", wa(&fresh));
        assert!((2.0..2.8).contains(&wa(&steady)), "{}", wa(&steady));
        // Throughput falls with GC's writes, and with its reads for them.
        let ratio = fresh.outcome.write_mb_s / steady.outcome.write_mb_s;
        assert!((0.9..1.3).contains(&(ratio / wa(&steady))), "{ratio} {}", wa(&steady));
        assert_eq!(steady.table().rows.len(), 2);
        assert!(steady.op_effective < steady.op_nominal);
    }

    #[test]
    fn reads_wait_for_writes_and_rate_is_kept() {
        let mixed = "read_depth = 1\nwrite_mb_s = 20\n[drive]\nop = 0.28\nunit = \"32KiB\"\n\
                     [run]\ndrive_writes = 2\nwarm_up = 2\nseconds = 1\n";
        let beside = run(mixed).expect("runs");
        assert!(beside.reaches_rate() && (beside.outcome.write_mb_s - 20.0).abs() < 0.5);
        let alone = run(&mixed.replace("write_mb_s = 20", "write_depth = 0")).expect("runs");
        assert_eq!(alone.outcome.written_bytes, 0);
        let mean = |run: &Measured| run.outcome.reads.mean_us();
        assert!(mean(&beside) > 1.1 * mean(&alone), "{} {}", mean(&beside), mean(&alone));
        let much = run(&mixed.replace("= 20", "= 2000")).expect("runs");
        assert!(!much.reaches_rate(), "no drive of 8 dies writes 2 GB/s");
    }

    #[test]
    fn zones_are_reset_on_zoned_drives_only() {
        let zones = "kind = \"zones\"\nopen_zones = 4\n[drive]\nunit = \"32KiB\"\nop = 0.2\n\
                     [run]\ndrive_writes = 3\nwarm_up = 2\n";
        let conventional = run(zones).expect("runs");
        assert_eq!(conventional.outcome.counters.trimmed, 0);
        let zoned = run(&zones.replace("[drive]", "[drive]\nkind = \"zns\"")).expect("runs");
        assert!(zoned.outcome.counters.trimmed > 0);
        assert!((zoned.outcome.wa() - 1.0).abs() < 1e-9);
        assert!(conventional.outcome.wa() > 1.2);
    }

    #[test]
    fn zones_finished_early_take_time_of_their_padding() {
        let rate = |zones: &str| {
            let text = format!(
                "kind = \"zones\"\nopen_zones = 4\n{zones}[drive]\nkind = \"zns\"\n\
                 unit = \"32KiB\"\n[zones]\nzrwa = \"64KiB\"\n\
                 [run]\ndrive_writes = 3\nwarm_up = 1\n"
            );
            run(&text).expect("runs").outcome
        };
        let whole = rate("");
        let half = rate("finish_at = 0.5\n");
        let again = rate("rewrite_share = 0.5\n");
        let Counters { host, padded, .. } = half.counters;
        assert!(padded.abs_diff(host) < host / 100, "half of each zone: {padded} {host}");
        let share = half.write_mb_s / whole.write_mb_s;
        assert!((0.4..0.65).contains(&share), "{share}");
        let gain = again.write_mb_s / whole.write_mb_s;
        assert!((1.7..2.3).contains(&gain), "{gain}: the flash takes half of the writes");
    }

    #[test]
    fn logs_with_area_are_faster_and_their_commits_take_time() {
        let log = |more: &str| {
            let text = format!(
                "kind = \"log\"\nopen_zones = 4\ncommit_every = \"256KiB\"\n\
                 [drive]\nkind = \"zns\"\nunit = \"32KiB\"\n[zones]\n{more}\n\
                 [run]\ndrive_writes = 2\nwarm_up = 1\n"
            );
            run_of("8KiB", &text).expect("runs")
        };
        let padded = log("");
        assert_eq!(padded.outcome.commits.count(), 0);
        assert!((padded.flash_per_asked() - 4.0).abs() < 0.05, "{}", padded.flash_per_asked());
        let area = log("zrwa = \"512KiB\"");
        assert!((area.flash_per_asked() - 1.0).abs() < 0.05, "{}", area.flash_per_asked());
        let gain = area.outcome.write_mb_s / padded.outcome.write_mb_s;
        assert!(gain > 2.5, "{gain}");
        assert!(area.outcome.commits.count() > 0);
        let (commits, writes) = (area.outcome.commits.mean_us(), area.outcome.writes.mean_us());
        assert!(commits > writes, "a commit waits for the write buffer: {commits} {writes}");
        assert_eq!(area.outcome.jobs.iter().map(|job| job.refused).sum::<u64>(), 0);
    }

    #[test]
    fn host_log_with_areas_goes_on_beside_gc() {
        let log = run("kind = \"zipf\"\ntheta = 1.2\n\
                       [drive]\nkind = \"zns\"\nunit = \"32KiB\"\nop = 0.28\n\
                       [zones]\nzrwa = \"512KiB\"\n[run]\ndrive_writes = 4\nwarm_up = 3\n");
        let outcome = log.expect("runs").outcome;
        assert_eq!(outcome.jobs.iter().map(|job| job.refused).sum::<u64>(), 0);
        assert!(outcome.drive.rewritten > 0 && outcome.drive.implicit_commits > 0);
        // One write of the log may still be under way at the end, and at the begin.
        let log = outcome.counters.host + outcome.counters.moved;
        assert!(log.abs_diff(outcome.drive.host) <= 1, "{log} {}", outcome.drive.host);
    }

    #[test]
    fn host_log_writes_are_not_drive_writes() {
        let log = run("[drive]\nkind = \"zns\"\nunit = \"32KiB\"\nop = 0.28\n\
                       [run]\ndrive_writes = 4\nwarm_up = 3\n");
        let summary = log.expect("runs").summary();
        assert!((2.0..2.8).contains(&summary.host_wa), "{}", summary.host_wa);
        assert!((summary.drive_wa - 1.0).abs() < 1e-9, "{}", summary.drive_wa);
        assert!((summary.wa / summary.host_wa - 1.0).abs() < 1e-9);
        assert!(summary.erases.mean > 3.0, "{:?}", summary.erases);
    }

    #[test]
    fn run_without_jobs_is_refused() {
        let error = run("write_depth = 0\n").expect_err("no job").to_string();
        assert!(error.starts_with("workload.write_depth = 0 is not possible"), "{error}");
    }
}
