//! The output of quickstart: one line when a step ends, and a summary at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use console::style;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;
use zonal::Zone;
use zonal_fs::furrow::stats::Traffic;

use super::place::Place;
use super::plan::Plan;
use super::session::Way;
use super::verify::{self, Sums};
use crate::args::Global;
use crate::clock;
use crate::output::{self, count, json, map, progress, shell, size};

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
pub(super) struct Story {
    json: bool,
    source: PathBuf,
    drive: PathBuf,
    way: Way,
    /// The command that removes everything that the run made.
    removal: String,
    steps: Vec<Step>,
    start: std::time::Instant,
}

impl Story {
    /// Prints the plan of the run.
    pub(super) fn new(global: &Global, plan: &Plan, place: &Place) -> Result<Self> {
        let story = Self {
            json: global.json,
            source: plan.source.clone(),
            drive: place.drive.clone(),
            way: place.way.clone(),
            removal: place.removal(),
            steps: Vec::new(),
            start: clock::now(),
        };
        let part = match plan.left_out {
            0 => "",
            _ => "\n         (a part of it; --dir DIR copies all of a tree)",
        };
        let used = match &place.way {
            Way::Mount(point) => format!("mounted at {}", point.display()),
            Way::Library(why) => {
                format!("used as a library, not mounted:\n         {why}")
            }
        };
        story.say(&format!(
            "{}\n\n  drive  {}{}\n  files  Furrow, {used}\n  work   {} files, {}, from\n         {}{part}\n",
            style("A zoned drive in a file, and a file system on it").bold(),
            place.drive.display(),
            left_alone(&place.earlier),
            count(plan.files.len() as u64),
            size(plan.bytes),
            plan.source.display(),
        ))?;
        Ok(story)
    }

    /// Prints a line. Fails at a closed pipe: the caller has to unmount then.
    fn say(&self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { output::try_print(format_args!("{text}\n")) }
    }

    /// A bar for `total` bytes; of unknown length if 0.
    pub(super) fn bar(total: u64, what: &'static str) -> ProgressBar {
        if total == 0 {
            return Self::spinner(what);
        }
        progress::bar(total, progress::Unit::Bytes, what)
    }

    /// Shows progress where the amount of work is unknown.
    pub(super) fn spinner(what: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template("  {spinner}     {msg:20} {elapsed}")
            .expect("the template is well formed");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
            .with_style(style)
            .with_message(what);
        bar.enable_steady_tick(Duration::from_millis(120));
        bar
    }

    /// Does a step and prints its line.
    pub(super) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<String>,
    ) -> Result<()> {
        self.step_with(name, || work().map(|note| ((), note)))
    }

    /// Does a step that has a result and a note.
    pub(super) fn step_with<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(T, String)>,
    ) -> Result<T> {
        tracing::debug!(step = name, "begins");
        let (start, spinner) = (clock::now(), Self::spinner(name));
        let (result, note) = work()?;
        spinner.finish_and_clear();
        self.note(name, start.elapsed().as_secs_f64(), note)?;
        Ok(result)
    }

    /// Does a step whose note has its speed.
    pub(super) fn timed<T>(
        &mut self,
        name: &'static str,
        note: impl FnOnce(f64, &T) -> String,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = clock::now();
        let result = work()?;
        let seconds = start.elapsed().as_secs_f64();
        self.note(name, seconds, note(seconds, &result))?;
        Ok(result)
    }

    /// Prints the line of a step that ended, and keeps it for the summary.
    pub(super) fn note(&mut self, name: &'static str, seconds: f64, note: String) -> Result<()> {
        tracing::info!(step = name, seconds, "done");
        let done = style("done").green();
        self.say(format!("  {done}  {name:20} {seconds:5.1} s  {note}").trim_end())?;
        self.steps.push(Step { name, seconds, note });
        Ok(())
    }

    /// Prints the summary.
    pub(super) fn finish(&self, sums: &Sums, counts: &Traffic, zones: &[Zone]) -> Result<()> {
        let (files, bytes) = verify::totals(sums);
        let amplification = counts.amplification().unwrap_or(1.0);
        let seconds = self.start.elapsed().as_secs_f64();
        if self.json {
            return json::document(&Summary {
                device: &self.drive,
                mount: match &self.way {
                    Way::Mount(point) => Some(point),
                    Way::Library(_) => None,
                },
                source: &self.source,
                steps: &self.steps,
                seconds,
                verified_files: files,
                verified_bytes: bytes,
                traffic: counts,
                wa: amplification,
            });
        }
        sayln!(
            "\n{} {} files, {}, read back after a remount: every byte as written.",
            style("All good:").green().bold(),
            count(files),
            size(bytes)
        );
        sayln!(
            "Write amplification {amplification:.2}: {} data, {} metadata, {} moved by reclaim.\n\
             {seconds:.0} s in all.\n",
            size(counts.user),
            size(counts.meta),
            size(counts.reclaim)
        );
        sayln!("{}", style("Zones of the drive").bold());
        sayln!("{}", map::draw(zones, map::terminal_width(), map::ink()));
        self.say_next();
        Ok(())
    }

    fn say_next(&self) {
        let (program, drive) = (shell::word(program()), shell::word(&self.drive));
        sayln!("{}", style("The drive is yours").bold());
        let mut next = Vec::new();
        if let Way::Mount(point) = &self.way {
            let point = shell::word(point);
            next.push((format!("mount {drive} {point}"), "mount it"));
            next.push((format!("umount {point}"), "unmount it"));
        }
        next.push((format!("zones --map {drive}"), "see its zones"));
        next.push((format!("check {drive}"), "check it"));
        for (arguments, what) in &next {
            sayln!("  {:15} {program} {arguments}", format!("{what}:"));
        }
        sayln!("  {:15} {}", "remove it:", self.removal);
    }
}

/// A line that names the directories of earlier runs.
fn left_alone(earlier: &[PathBuf]) -> String {
    if earlier.is_empty() {
        return String::new();
    }
    let names: Vec<_> = earlier.iter().map(|folder| folder.display().to_string()).collect();
    format!("\n         (was there before and stays as it is: {})", names.join(", "))
}

/// Files and bytes per second.
pub(super) fn moved(sums: &Sums, seconds: f64) -> String {
    let (files, bytes) = verify::totals(sums);
    format!(
        "{}, {} files/s",
        output::rate(bytes, seconds),
        rounded(output::per_second(files, seconds))
    )
}

/// `123 UNIT`.
pub(super) fn per_second(done: u64, seconds: f64, unit: &str) -> String {
    format!("{} {unit}", rounded(output::per_second(done, seconds)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
fn rounded(rate: f64) -> String {
    count(rate.round() as u64)
}

/// The word that starts this program from here: its name if the shell finds it, else its path.
fn program() -> PathBuf {
    let Ok(own) = std::env::current_exe() else { return "zonal".into() };
    // The kernel appends this to the path of a replaced program; its successor has the path.
    let own = match own.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => PathBuf::from(path),
        None => own,
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("zonal")).find(|file| file.is_file());
    if found.and_then(|file| file.canonicalize().ok()).as_deref() == Some(&own) {
        return "zonal".into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    own.strip_prefix(&here).unwrap_or(&own).to_owned()
}
