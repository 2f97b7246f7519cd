//! `zonal check`: whether a Furrow file system is intact. It refuses a mounted one, whose device
//! lags behind the mount and changes while the check reads it.
//!
//! Exit codes are fsck's: 0 clean, 4 problems found and not corrected, 8 the check itself failed,
//! 16 wrong usage. Nothing is ever written.

use std::process::ExitCode;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_fs::furrow::{self, CheckOptions, CheckReport, DataCheck};

use crate::args::{Check, Global};
use crate::device::OpenMode;
use crate::metadata;
use crate::output::{count, json, progress};

/// fsck's "errors left uncorrected".
const UNCORRECTED: u8 = 4;

/// The findings of a check.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report<'a> {
    /// The device, as the command line names it.
    device: &'a str,
    /// Label of the file system.
    label: &'a str,
    /// Whether the check found no problem. Blocks that the drive has lost are no problem in this
    /// sense.
    clean: bool,
    /// Broken invariants.
    problems: Vec<Problem<'a>>,
    /// Number of problems that the list leaves out.
    problems_more: u64,
    /// Data that the drive has lost.
    losses: Vec<Loss<'a>>,
    /// Number of losses that the list leaves out.
    losses_more: u64,
    /// Number of inodes.
    inodes: u64,
    /// Number of extents.
    extents: u64,
    /// Blocks of data that were read and compared, with `--data`.
    read_blocks: u64,
    /// Batches of the journal that were applied.
    batches_replayed: u64,
}

/// A broken invariant.
#[derive(Serialize, JsonSchema)]
struct Problem<'a> {
    /// Id of the invariant.
    invariant: &'static str,
    /// The rule of the invariant.
    rule: &'static str,
    /// How the file system breaks it.
    what: &'a str,
    /// The file that breaks it, if it is known.
    path: Option<&'a str>,
}

/// A part of a file that the drive has lost.
#[derive(Serialize, JsonSchema)]
struct Loss<'a> {
    /// Number of the file.
    inode: u64,
    /// The file, if it is known.
    path: Option<&'a str>,
    /// Offset in the file.
    offset_bytes: u64,
    /// Length of the part.
    bytes: u64,
    /// The zone that held it.
    zone: u32,
}

/// Checks the file system and prints the report.
pub(crate) fn run(global: &Global, args: &Check) -> Result<ExitCode> {
    let drives = metadata::open(&args.device, OpenMode::ReadLocked)?;
    let data = if args.data { DataCheck::Read } else { DataCheck::Skip };
    let options = CheckOptions { data, memory: args.memory.get() };
    let bar = progress::bar(0, progress::Unit::Share, "checking");
    let mut phase = None;
    let report = furrow::check(drives, options, &mut |progress| {
        if phase.replace(progress.phase) != Some(progress.phase) {
            bar.reset();
            bar.set_message(progress.phase.name());
            tracing::info!(phase = progress.phase.name(), "checking");
        }
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        tracing::debug!(phase = progress.phase.name(), done = progress.done, of = progress.total);
    });
    bar.finish_and_clear();
    let report = report.with_context(|| format!("cannot check {}", args.device))?;
    if global.json {
        json::document(&as_json(&args.device, &report))?;
    } else {
        print(&args.device, &report);
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(UNCORRECTED) })
}

fn as_json<'a>(device: &'a str, report: &'a CheckReport) -> Report<'a> {
    let problem = |problem: &'a furrow::Problem| Problem {
        invariant: problem.invariant.id,
        rule: problem.invariant.rule,
        what: &problem.what,
        path: problem.path.as_deref(),
    };
    let loss = |loss: &'a furrow::Loss| Loss {
        inode: loss.ino.get(),
        path: loss.path.as_deref(),
        offset_bytes: loss.offset,
        bytes: loss.len,
        zone: loss.zone.get(),
    };
    Report {
        device,
        label: &report.label,
        clean: report.is_clean(),
        problems: report.problems.iter().map(problem).collect(),
        problems_more: report.problems_more,
        losses: report.losses.iter().map(loss).collect(),
        losses_more: report.losses_more,
        inodes: report.inodes,
        extents: report.extents,
        read_blocks: report.blocks_read,
        batches_replayed: report.batches,
    }
}

fn print(device: &str, report: &CheckReport) {
    for problem in &report.problems {
        sayln!("{}: {}", problem.invariant.id, problem.what);
        if let Some(path) = &problem.path {
            sayln!("     file: {path}");
        }
        sayln!("     rule: {}", problem.invariant.rule);
    }
    if report.problems_more > 0 {
        sayln!("and {} more", count(report.problems_more));
    }
    for loss in &report.losses {
        let file = match &loss.path {
            Some(path) => path.clone(),
            None => format!("inode {}", loss.ino),
        };
        sayln!(
            "lost by the drive: {file}, {} bytes at {} (zone {})",
            loss.len,
            loss.offset,
            loss.zone
        );
    }
    if report.losses_more > 0 {
        sayln!("and {} more ranges lost", count(report.losses_more));
    }
    let read = match report.blocks_read {
        0 => String::new(),
        blocks => format!(", {} blocks of data read", count(blocks)),
    };
    let verdict = if report.is_clean() { "clean" } else { "NOT CLEAN" };
    sayln!(
        "{device}: {verdict}, {} inodes, {} extents{read}",
        count(report.inodes),
        count(report.extents)
    );
}
