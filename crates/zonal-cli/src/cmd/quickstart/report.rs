//! The output of quickstart: one line when a step ends, and a summary at the end.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use console::style;
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;
use zonal::Zone;
use zonal_fs::furrow::stats::Traffic;

use super::place::Place;
use super::plan::Plan;
use super::tree::{Sums, totals};
use crate::args::Global;
use crate::output::{self, count, json, map, progress, shell, size};
use crate::{clock, interrupt};

/// One step that ended well.
#[derive(Serialize, JsonSchema)]
struct Step {
    /// Name of the step.
    name: &'static str,
    /// Time that it took.
    seconds: f64,
    /// Its result or its speed, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// The whole run, as `--json` prints it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summary<'a> {
    /// The drive that was made.
    device: &'a Path,
    /// Mount point; null where it was used without a mount.
    mount: Option<&'a Path>,
    /// The tree that was copied.
    source: &'a Path,
    /// The steps of the run.
    steps: &'a [Step],
    /// Time of the whole run.
    seconds: f64,
    /// Files that were read back.
    verified_files: u64,
    /// Bytes that were read back.
    verified_bytes: u64,
    /// Bytes written to the drive, by kind of data.
    traffic: &'a Traffic,
    /// Write amplification of the file system.
    wa: f64,
}

/// Prints each step when it ends.
pub(super) struct Story<'a> {
    is_json: bool,
    plan: &'a Plan,
    place: &'a Place,
    steps: Vec<Step>,
    start: std::time::Instant,
}

impl<'a> Story<'a> {
    /// Prints the plan of the run.
    pub(super) fn new(global: &Global, plan: &'a Plan, place: &'a Place) -> Result<Self> {
        let (is_json, start) = (global.json, clock::now());
        let story = Self { is_json, plan, place, steps: Vec::new(), start };
        let used = match &place.mount {
            Ok(point) => format!("mounted at {}", point.display()),
            Err(why) => format!("used as a library, not mounted:\n         {why}"),
        };
        let part = match plan.left_out {
            0 => "",
            _ => "\n         (a part of it; --dir DIR copies all of a tree)",
        };
        story.say(&format!(
            "{}\n\n  drive  {}\n  files  Furrow, {used}\n  work   {} files, {}, from\n         {}{part}\n",
            style("A zoned drive in a file, and a file system on it").bold(),
            place.drive.display(),
            count(plan.files),
            size(plan.bytes),
            plan.source.display(),
        ))?;
        Ok(story)
    }

    /// Prints a line. Fails at a closed pipe: the caller has to unmount then.
    fn say(&self, text: &str) -> Result<()> {
        if self.is_json { Ok(()) } else { output::try_print(format_args!("{text}\n")) }
    }

    /// Does a step, with a bar for `total` bytes if that is not 0, and prints its line with a note
    /// on the result and the seconds that it took.
    pub(super) fn step<T>(
        &mut self,
        name: &'static str,
        total: u64,
        work: impl FnOnce(&ProgressBar) -> Result<T>,
        note: impl FnOnce(&T, f64) -> String,
    ) -> Result<T> {
        interrupt::check()?;
        tracing::debug!(step = name, "begins");
        let start = clock::now();
        let bar = match total {
            0 => ProgressBar::new_spinner().with_message(name),
            _ => progress::bar(total, progress::Unit::Bytes, name),
        };
        bar.enable_steady_tick(Duration::from_millis(120));
        let result = work(&bar)?;
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(step = name, seconds, "done");
        let (done, note) = (style("done").green(), note(&result, seconds));
        self.say(format!("  {done}  {name:20} {seconds:5.1} s  {note}").trim_end())?;
        self.steps.push(Step { name, seconds, note });
        Ok(result)
    }

    /// Does a step that has always the same note.
    pub(super) fn plain<T>(
        &mut self,
        name: &'static str,
        note: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.step(name, 0, |_| work(), |_, _| note.to_owned())
    }

    /// Prints the summary.
    pub(super) fn finish(&self, sums: &Sums, traffic: &Traffic, zones: &[Zone]) -> Result<()> {
        let (files, bytes) = totals(sums);
        let wa = traffic.amplification().unwrap_or(1.0);
        let seconds = self.start.elapsed().as_secs_f64();
        if self.is_json {
            return json::document(&Summary {
                device: &self.place.drive,
                mount: self.place.mount.as_deref().ok(),
                source: &self.plan.source,
                steps: &self.steps,
                seconds,
                verified_files: files,
                verified_bytes: bytes,
                traffic,
                wa,
            });
        }
        sayln!(
            "\n{} {} files, {}, read back after a remount: every byte as written.",
            style("All good:").green().bold(),
            count(files),
            size(bytes)
        );
        sayln!(
            "Write amplification {wa:.2}: {} data, {} metadata, {} moved by reclaim.\n\
             {seconds:.0} s in all.\n",
            size(traffic.user),
            size(traffic.meta),
            size(traffic.reclaim)
        );
        sayln!("{}", style("Zones of the drive").bold());
        sayln!("{}", map::draw(zones, map::terminal_width(), map::ink()));
        self.say_next();
        Ok(())
    }

    fn say_next(&self) {
        // The word by which the user has called this program.
        let program = shell::word(std::env::args_os().next().unwrap_or_else(|| "zonal".into()));
        let drive = shell::word(&self.place.drive);
        sayln!("{}", style("The drive is yours").bold());
        if let Ok(point) = &self.place.mount {
            let point = shell::word(point);
            sayln!("  mount it:       {program} mount {drive} {point}");
            sayln!("  unmount it:     {program} umount {point}");
        }
        sayln!("  see its zones:  {program} zones --map {drive}");
        sayln!("  check it:       {program} check {drive}");
        sayln!("  remove it:      {}", self.place.removal());
    }
}

/// Files and bytes per second.
pub(super) fn moved(sums: &Sums, seconds: f64) -> String {
    let (files, bytes) = totals(sums);
    format!("{}, {}", output::rate(bytes, seconds), per_second(files, seconds, "files/s"))
}

/// `123 UNIT`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
pub(super) fn per_second(done: u64, seconds: f64, unit: &str) -> String {
    format!("{} {unit}", count(output::per_second(done, seconds).round() as u64))
}
