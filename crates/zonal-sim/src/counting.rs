//! Counting mode from end to end: a workload drives a translation layer, and results are sampled on
//! the way.
//!
//! Nothing takes time here. [`Counting`] can stop at any point, so the same drive can be filled by
//! counting and then be handed to timed mode; [`run`] does a whole config.

use serde::Serialize;

use crate::Progress;
use crate::config::{Config, Kind, Layout, Pattern};
use crate::error::{Result, refused};
use crate::ftl::{Amplification, Counters, PageMapped, Translation, Unit, Wear, ZoneMapped};
use crate::host::HostLog;
use crate::load::{self, Op, Request, Workload};
use crate::report::{Cell, Table};
use crate::trace::Seen;

/// Requests made at once. Few enough to stay in the first level of cache.
const BATCH: usize = 512;

/// A drive that takes whole requests.
pub enum Drive {
    /// A conventional or FDP drive.
    Page(Box<PageMapped>),
    /// A zoned drive whose zones the host writes in order.
    Zones(Box<ZoneMapped>),
    /// A zoned drive below a log of the host, which overwrites anywhere.
    Log(Box<HostLog>),
}

impl Drive {
    /// An empty drive for a config's workload.
    pub fn new(config: &Config) -> Result<Self> {
        match config.drive.kind {
            Kind::Conventional | Kind::Fdp => Ok(Self::Page(Box::new(PageMapped::new(config)?))),
            Kind::Zns if matches!(config.workload.kind, Pattern::Zones | Pattern::Log) => {
                Ok(Self::Zones(Box::new(ZoneMapped::new(config)?)))
            }
            Kind::Zns => Ok(Self::Log(Box::new(HostLog::new(config)?))),
        }
    }

    /// The layout that the host of this drive sees.
    pub fn layout(&self) -> &Layout {
        match self {
            Self::Page(drive) => drive.layout(),
            Self::Zones(drive) => drive.layout(),
            Self::Log(log) => log.layout(),
        }
    }

    /// The translation layer, for steps and counters.
    pub fn layer(&self) -> &dyn Translation {
        match self {
            Self::Page(drive) => &**drive,
            Self::Zones(drive) => &**drive,
            Self::Log(log) => &**log,
        }
    }

    fn write(&mut self, units: &[Unit], handle: u8) {
        match self {
            Self::Page(drive) => drive.write(units, handle),
            Self::Zones(drive) => {
                drive.write(units).expect("each zone is written in order, few at once");
            }
            Self::Log(log) => log.write(units, handle),
        }
    }

    /// Finishes a zone, where the host sees zones.
    fn finish_zone(&mut self, unit: Unit) {
        if let Self::Zones(drive) = self {
            drive.finish_zone(unit);
        }
    }

    fn open_area(&mut self, unit: Unit) {
        if let Self::Zones(drive) = self {
            drive.open_area(unit);
        }
    }

    fn commit(&mut self, through: Unit) {
        if let Self::Zones(drive) = self {
            drive.commit(through);
        }
    }

    fn trim(&mut self, first: Unit, count: u32) {
        match self {
            Self::Page(drive) => drive.trim(first, count),
            Self::Zones(drive) => drive.trim(first, count),
            Self::Log(log) => log.trim(first, count),
        }
    }
}

/// A workload on a drive.
pub struct Counting {
    drive: Drive,
    workload: Box<dyn Workload>,
    batch: Vec<Request>,
    /// Units of consecutive writes by one handle, still to be given to the drive.
    units: Vec<Unit>,
    asked_bytes: u64,
    ended: bool,
}

impl Counting {
    /// An empty drive, and the workload from its first request on.
    pub fn new(config: &Config) -> Result<Self> {
        if config.workload.kind == Pattern::Mixed && config.workload.read_share >= 1.0 {
            let allowed = "below 1 where drive writes are counted";
            return Err(refused("workload.read_share", config.workload.read_share, allowed));
        }
        let drive = Drive::new(config)?;
        let workload = load::build(config, drive.layout())?;
        let batch = Vec::with_capacity(BATCH);
        Ok(Self { drive, workload, batch, units: Vec::new(), asked_bytes: 0, ended: false })
    }

    /// Goes on until the host has written `units` in all, or the workload has ended. May go on a
    /// little longer: to the end of a batch.
    pub fn until(&mut self, units: u64) -> Result<()> {
        while !self.ended && self.drive.layer().counters().host < units {
            self.workload.fill(&mut self.batch)?;
            self.ended = self.batch.is_empty();
            self.apply();
        }
        Ok(())
    }

    /// Whether the workload has ended.
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// The drive.
    pub const fn drive(&self) -> &Drive {
        &self.drive
    }

    /// Bytes that the host asked to write. Units hold more bytes where requests are smaller.
    pub const fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }

    /// The drive and the workload, to go on with in timed mode.
    pub fn into_parts(self) -> (Drive, Box<dyn Workload>) {
        (self.drive, self.workload)
    }

    /// Gives the batch to the drive: writes of one handle together, in order.
    fn apply(&mut self) {
        let layout = self.drive.layout();
        let (shift, unit) = (layout.unit.trailing_zeros(), layout.unit);
        let narrow = |units: u64| u32::try_from(units).expect("requests lie in the user capacity");
        let (mut handle, mut asked) = (0, 0);
        let is_zoned = matches!(self.drive, Drive::Zones(_));
        self.units.clear();
        for request in &self.batch {
            match request.op {
                Op::Read => {}
                Op::Write => {
                    // A request to a zone is one write: it moves the write pointer at once.
                    let is_apart = request.handle != handle || is_zoned;
                    if is_apart && !self.units.is_empty() {
                        self.drive.write(&self.units, handle);
                        self.units.clear();
                    }
                    handle = request.handle;
                    asked += u64::from(request.bytes);
                    // Every unit that is touched is written.
                    let limit = request.offset + u64::from(request.bytes) + (unit - 1);
                    self.units.extend(narrow(request.offset >> shift)..narrow(limit >> shift));
                }
                Op::OpenArea | Op::Commit | Op::Finish => {
                    self.drive.write(&self.units, handle);
                    self.units.clear();
                    let unit = narrow(request.offset >> shift);
                    if request.op == Op::OpenArea {
                        self.drive.open_area(unit);
                    } else if request.op == Op::Commit {
                        self.drive.commit(unit);
                    } else {
                        self.drive.finish_zone(unit);
                    }
                }
                Op::Trim | Op::Reset => {
                    self.drive.write(&self.units, handle);
                    self.units.clear();
                    // A conventional host that begins a zone anew does not say so.
                    if request.op == Op::Trim || is_zoned {
                        // A trim forgets only units that it covers whole.
                        let first = narrow((request.offset + (unit - 1)) >> shift);
                        let limit = narrow((request.offset + u64::from(request.bytes)) >> shift);
                        self.drive.trim(first, limit.saturating_sub(first));
                    }
                }
            }
        }
        self.drive.write(&self.units, handle);
        self.asked_bytes += asked;
    }
}

/// One sample of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Writes of the whole user capacity so far.
    pub drive_writes: f64,
    /// Bytes the host has written so far.
    pub host_bytes: u64,
    /// Write amplification of the drive since the sample before.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub wa: f64,
    /// The same since the beginning.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub wa_total: f64,
}

/// Results of a config in counting mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// All of the config.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    pub config: Config,
    /// Sizes of the drive, as the host's writes meet them.
    pub layout: Layout,
    /// (raw − user) / user of all the flash.
    pub op_nominal: f64,
    /// The same of the flash in which data can rest.
    pub op_effective: f64,
    /// Writes of the whole user capacity, after warm-up.
    pub drive_writes: f64,
    /// Bytes the host asked to write, in all.
    pub asked_bytes: u64,
    /// Everything since the beginning.
    pub counters: Counters,
    /// Everything after warm-up.
    pub measured: Counters,
    /// Counters of the drive after warm-up: the same, unless a log of the host is on it.
    pub drive_counters: Counters,
    /// Bytes programmed per byte that the host asked to write, after warm-up. Requests smaller than
    /// a unit make it larger than `wa`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub flash_per_asked_byte: f64,
    /// Write amplification of the host's log after warm-up; 1 where there is none.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub host_wa: f64,
    /// Write amplification of the drive after warm-up.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub drive_wa: f64,
    /// Their product; null where nothing was written after warm-up, as the ratios before it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<f64>"))]
    pub wa: f64,
    /// Erase counts at the end.
    pub erases: Wear,
    /// Figures of the trace, if one was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Seen>,
    /// Samples at intervals, in order.
    pub samples: Vec<Sample>,
}

impl Report {
    /// The samples as a table.
    pub fn table(&self) -> Table {
        let mut table = Table::new("counting", &["drive_writes", "host_bytes", "wa", "wa_total"]);
        for sample in &self.samples {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let host_bytes = sample.host_bytes as f64;
            let cells = [sample.drive_writes, host_bytes, sample.wa, sample.wa_total];
            table.row(cells.map(Cell::from).to_vec());
        }
        table
    }
}

/// Runs a config in counting mode, from an empty drive through `run.warm_up` to
/// `run.drive_writes`.
pub fn run(config: &Config, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    config.check()?;
    let mut run = Counting::new(config)?;
    let layout = *run.drive().layout();
    let user = f64::from(layout.user_units);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "drive writes are at most 10^6"
    )]
    let units = |drive_writes: f64| (drive_writes * user) as u64;
    let (total, warm_up) = (units(config.run.drive_writes), units(config.run.warm_up));
    let step = units(config.run.sample).max(1);
    let (mut samples, mut next) = (Vec::new(), step);
    let (mut now, mut before, mut warm) = <(Counters, Counters, Counters)>::default();
    let (mut below_warm, mut asked_warm) = (Counters::default(), 0);
    while now.host < total && !run.ended() {
        let warming = now.host < warm_up;
        run.until(next.min(total).min(if warming { warm_up } else { u64::MAX }))?;
        now = run.drive().layer().counters();
        if warming && now.host >= warm_up {
            (warm, asked_warm) = (now, run.asked_bytes());
            below_warm = run.drive().layer().below().unwrap_or_default();
        }
        if now.host >= next || now.host >= total || run.ended() {
            let since = now.since(&before);
            if since.host > 0 {
                samples.push(sample(&now, &since, &layout));
            }
            before = now;
            next = (now.host / step + 1) * step;
            progress(Progress { done: now.host.min(total), total });
        }
    }
    let layer = run.drive().layer();
    let counters = layer.counters();
    let measured = counters.since(&warm);
    let below = layer.below().map(|below| below.since(&below_warm));
    let wa = Amplification::of(&measured, below);
    let drive_counters = below.unwrap_or(measured);
    let flash_bytes = drive_counters.programs() * layout.unit;
    Ok(Report {
        config: config.clone(),
        layout,
        op_nominal: layout.op_nominal(),
        op_effective: layout.op_effective(),
        drive_writes: drive_writes(measured.host, &layout),
        asked_bytes: run.asked_bytes(),
        counters,
        measured,
        drive_counters,
        flash_per_asked_byte: per_asked_byte(flash_bytes, run.asked_bytes() - asked_warm),
        host_wa: wa.host,
        drive_wa: wa.drive,
        wa: wa.whole(),
        erases: Wear::of(layer.erases()),
        trace: run.workload.seen(),
        samples,
    })
}

fn sample(now: &Counters, since: &Counters, layout: &Layout) -> Sample {
    Sample {
        drive_writes: drive_writes(now.host, layout),
        host_bytes: now.host * layout.unit,
        wa: since.wa(),
        wa_total: now.wa(),
    }
}

/// Bytes of flash for each byte that the host asked to write; NaN where it asked for nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
pub(crate) fn per_asked_byte(flash_bytes: u64, asked_bytes: u64) -> f64 {
    if asked_bytes == 0 { f64::NAN } else { flash_bytes as f64 / asked_bytes as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
fn drive_writes(units: u64, layout: &Layout) -> f64 {
    units as f64 / f64::from(layout.user_units)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1024 superblocks of 384 KiB.
    const SMALL: &str = "[flash]\nchannels = 2\ndies_per_channel = 1\nprograms_per_block = 2\n\
                         superblocks = 1024\n[drive]\nop = 0.28\n";

    fn report(text: &str) -> Report {
        let config = Config::parse(&format!("{SMALL}{text}")).expect("a config");
        let mut last = None;
        let report = run(&config, &mut |progress| last = Some(progress)).expect("runs");
        let last = last.expect("progress is told");
        assert_eq!(last.done, last.total);
        report
    }

    #[test]
    fn report_of_nothing_written_has_no_amplification() {
        let report = report("[run]\ndrive_writes = 2\nwarm_up = 2");
        assert_eq!(report.measured.host, 0);
        assert!(report.wa.is_nan() && report.flash_per_asked_byte.is_nan());
        assert!(report.samples.iter().all(|sample| sample.wa >= 1.0), "the warm-up wrote");
    }

    #[test]
    fn report_measures_after_warm_up() {
        let report = report("[run]\ndrive_writes = 8\nwarm_up = 6\nsample = 0.5");
        assert_eq!(report.samples.len(), 16);
        let near = |units, wanted: f64| (drive_writes(units, &report.layout) - wanted).abs() < 0.01;
        assert!(near(report.counters.host, 8.0) && near(report.measured.host, 2.0));
        assert_eq!(report.asked_bytes, report.counters.host * 4096);
        assert!((report.flash_per_asked_byte / report.wa - 1.0).abs() < 1e-9);
        // GC moves nothing before the flash is full once; then theory predicts the amplification of
        // 28 %.
        assert!((report.samples[0].wa - 1.0).abs() < 1e-9);
        assert!((2.3..2.5).contains(&report.wa), "{}", report.wa);
        let last = report.samples.last().expect("samples");
        assert!((last.wa_total - report.counters.wa()).abs() < 1e-9);
        assert!(report.erases.min > 0 && report.erases.mean <= f64::from(report.erases.max));
    }

    #[test]
    fn sequential_writes_and_zones_need_no_gc() {
        let sequential = report("[workload]\nkind = \"sequential\"");
        assert!((sequential.wa - 1.0).abs() < 0.01, "{}", sequential.wa);
        let zones = "[workload]\nkind = \"zones\"\nio = \"64KiB\"\nopen_zones = 4\n";
        let zoned = Config::parse(&format!("{SMALL}kind = \"zns\"\n{zones}")).expect("a config");
        let zoned = run(&zoned, &mut |_| {}).expect("runs");
        assert!((zoned.wa - 1.0).abs() < 1e-9 && zoned.counters.erased > 0);
        assert!(zoned.op_nominal.abs() < 1e-9);
        let flat = report(zones);
        assert!(flat.wa > 1.1, "the same on a conventional drive: {}", flat.wa);
    }

    #[test]
    fn zones_let_host_move_what_drive_would() {
        let drive = report("");
        let log = report("kind = \"zns\"\n");
        assert!((log.drive_wa - 1.0).abs() < 1e-9, "{}", log.drive_wa);
        assert!((log.host_wa / drive.wa - 1.0).abs() < 0.02, "{} {}", log.host_wa, drive.wa);
        assert!((log.wa - log.host_wa).abs() < 1e-9 && (drive.host_wa - 1.0).abs() < 1e-9);
    }

    #[test]
    fn requests_smaller_than_unit_write_whole_units() {
        let report = report("[workload]\nio = 512\n[run]\ndrive_writes = 1\nwarm_up = 0");
        assert_eq!(report.asked_bytes * 8, report.counters.host * 4096);
    }

    #[test]
    fn files_deleted_leave_room() {
        let files = "[workload]\nkind = \"files\"\nfill = 0.5";
        let half = report(files);
        assert!(half.counters.trimmed > half.counters.host / 4);
        let full = report(&files.replace("0.5", "0.95"));
        assert!(half.wa < full.wa, "{} {}", half.wa, full.wa);
    }

    /// 1024 zones of 96 units, four of them open.
    fn zoned(text: &str) -> Report {
        report(&format!(
            "kind = \"zns\"\n[zones]\nzrwa = \"64KiB\"\n\
             [workload]\nkind = \"zones\"\nio = \"16KiB\"\nopen_zones = 4\n{text}"
        ))
    }

    #[test]
    fn zones_finished_early_are_padded() {
        let report = zoned("finish_at = 0.25");
        // 24 of 96 units are written, the rest of the superblock is padding.
        assert!((report.wa - 4.0).abs() < 0.01, "{}", report.wa);
        let Counters { host, padded, .. } = report.measured;
        assert!(padded.abs_diff(3 * host) < host / 100, "{padded} {host}");
        let whole = zoned("finish_at = 1.0");
        assert_eq!(whole.counters.padded, 0);
        // A drive without zones is written elsewhere, and nothing is padded.
        let zones = "[workload]\nkind = \"zones\"\nio = \"16KiB\"\nfinish_at = 0.25\n";
        assert_eq!(self::report(zones).counters.padded, 0);
    }

    #[test]
    fn zones_written_again_in_their_area_save_flash() {
        let report = zoned("rewrite_share = 0.5");
        assert!((report.wa - 0.5).abs() < 0.02, "{}", report.wa);
        let Counters { host, rewritten, .. } = report.measured;
        assert!((2 * rewritten).abs_diff(host) < host / 25, "{rewritten} {host}");
        let text = "[drive]\nkind = \"zns\"\n[workload]\nkind = \"zones\"\nrewrite_share = 0.5";
        let config = Config::parse(text).expect("a config");
        let error = run(&config, &mut |_| {}).expect_err("no area").to_string();
        assert!(error.contains("0, unless zones.zrwa is at least 4KiB"), "{error}");
        let error = Config::parse("[zones]\nzrwa = 6000").expect_err("no unit").to_string();
        assert!(error.contains("zones.zrwa = 6kB is not possible: a multiple"), "{error}");
    }

    #[test]
    fn logs_write_last_page_again_for_free_with_area() {
        let log = |drive: &str| {
            report(&format!(
                "{drive}[workload]\nkind = \"log\"\nio = \"1KiB\"\nopen_zones = 4\n\
                 [run]\ndrive_writes = 4\nwarm_up = 1\n"
            ))
        };
        let padded = log("kind = \"zns\"\n");
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.01;
        assert!(near(padded.wa, 1.0) && near(padded.flash_per_asked_byte, 4.0), "{}", padded.wa);
        let area = log("kind = \"zns\"\n[zones]\nzrwa = \"64KiB\"\n");
        assert!(near(area.wa, 0.25), "{}", area.wa);
        assert!(near(area.flash_per_asked_byte, 1.0), "{}", area.flash_per_asked_byte);
        let Counters { implicit_commits, explicit_commits, .. } = area.measured;
        assert!(implicit_commits > 50 * explicit_commits && explicit_commits > 0);
        // Two of four logs have an area.
        let some = log("kind = \"zns\"\n[zones]\nzrwa = \"64KiB\"\nzrwa_zones = 2\n");
        assert!(near(some.flash_per_asked_byte, 2.5), "{}", some.flash_per_asked_byte);
        // A drive without zones writes the page again elsewhere, and has to move others.
        let flat = log("");
        assert!(flat.flash_per_asked_byte >= 4.0, "{}", flat.flash_per_asked_byte);
    }

    #[test]
    fn logs_that_commit_often_pay_with_padding() {
        let log = |every: &str| {
            report(&format!(
                "kind = \"zns\"\n[zones]\nzrwa = \"64KiB\"\nzrwa_granule = \"16KiB\"\n\
                 [workload]\nkind = \"log\"\nio = \"4KiB\"\nopen_zones = 4\n\
                 commit_every = \"{every}\"\n"
            ))
        };
        let whole = log("16KiB");
        assert_eq!(whole.measured.commit_padded, 0);
        assert!(whole.measured.explicit_commits > 0 && whole.measured.implicit_commits == 0);
        let parts = log("4KiB");
        assert!((parts.wa - 4.0).abs() < 0.05, "{}", parts.wa);
        assert_eq!(parts.measured.saved(), -(parts.measured.commit_padded.cast_signed()));
    }

    #[test]
    fn log_of_host_writes_hot_data_again_in_its_area() {
        let hot = |zrwa: &str| {
            report(&format!(
                "kind = \"zns\"\n[zones]\nzrwa = \"{zrwa}\"\n\
                 [workload]\nkind = \"zipf\"\ntheta = 1.2\n"
            ))
        };
        let (without, with) = (hot("0"), hot("256KiB"));
        assert_eq!(without.drive_counters.rewritten, 0);
        let share = |report: &Report| {
            let Counters { rewritten, host, .. } = report.drive_counters;
            (rewritten * 100).checked_div(host).expect("writes")
        };
        assert!(share(&with) > 10, "{} %", share(&with));
        assert!(with.wa < 0.9 * without.wa, "{} {}", with.wa, without.wa);
    }

    #[test]
    fn report_of_same_config_is_same() {
        let text = |report: &Report| serde_json::to_string(report).expect("JSON");
        let one = text(&report("[workload]\nkind = \"files\""));
        assert_eq!(one, text(&report("[workload]\nkind = \"files\"")));
        assert!(one.len() > 1000);
    }
}
