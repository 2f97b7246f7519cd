//! `zonal reclaim`: empties zones of a mounted Furrow ahead of need, or pauses and resumes reclaim.
//!
//! The mount takes one step for each command that it gets, so the work ends with this process.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_fs::furrow::stats::Blocks;

use crate::args::{Global, Reclaim};
use crate::control::{command, report};
use crate::mounts;
use crate::output::progress::{Unit, bar};
use crate::output::{json, size};

/// The result of reclaim.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// Bytes of live data that were moved.
    moved_bytes: u64,
    /// Free space before, in bytes.
    free_bytes_before: u64,
    /// Free space now, in bytes.
    free_bytes: u64,
    /// Written space that nothing uses, in bytes.
    reclaimable_bytes: u64,
    /// Why it ended: `reached` or `nothing worth it`.
    end: &'static str,
}

/// Performs the command.
pub(crate) fn run(global: &Global, args: &Reclaim) -> Result<()> {
    let dir = &mounts::dir_of(&args.dir)?;
    tracing::info!(mount = zonal::shown(dir), "asking the mount to reclaim");
    if args.pause || args.resume {
        let order = if args.pause { "pause" } else { "resume" };
        return send(dir, &format!("reclaim {order}"));
    }
    let answer = empty_zones(dir, args.until.unwrap_or(100).into())?;
    if global.json {
        return json::document(&answer);
    }
    let Answer { moved_bytes, free_bytes_before, free_bytes, reclaimable_bytes, end } = answer;
    let reason = if end == "reached" { "" } else { "; no other zone is worth being emptied" };
    sayln!(
        "{} moved; {} free (before: {}), {} reclaimable{reason}",
        size(moved_bytes),
        size(free_bytes),
        size(free_bytes_before),
        size(reclaimable_bytes)
    );
    Ok(())
}

/// Space of a mount at one moment, in bytes.
struct Space {
    free: u64,
    reclaimable: u64,
    /// Bytes moved since the mount.
    moved: u64,
}

impl Space {
    fn of(dir: &Path) -> Result<Self> {
        let report = report(dir)?;
        let Some(live) = &report.live else {
            bail!("{}: a {} has nothing to reclaim", dir.display(), report.kind);
        };
        let Blocks { free, reclaimable, .. } = live.blocks;
        let moved = report.counter("reclaim_bytes");
        Ok(Self {
            free: free * live.block_bytes,
            reclaimable: reclaimable * live.block_bytes,
            moved,
        })
    }

    /// Free space as a share of the unused space.
    fn percent(&self) -> u64 {
        self.free * 100 / (self.free + self.reclaimable).max(1)
    }
}

/// Lets the mount empty zones until `percent` % of the unused space are free.
fn empty_zones(dir: &Path, percent: u64) -> Result<Answer> {
    let before = Space::of(dir)?;
    let bar = bar(percent.saturating_sub(before.percent()).max(1), Unit::Share, "reclaim");
    let mut now = Space::of(dir)?;
    let end = loop {
        if now.percent() >= percent {
            break "reached";
        }
        bar.set_position(now.percent().saturating_sub(before.percent()));
        if !step(dir)? {
            break "nothing worth it";
        }
        now = Space::of(dir)?;
    };
    bar.finish_and_clear();
    Ok(Answer {
        moved_bytes: now.moved - before.moved,
        free_bytes_before: before.free,
        free_bytes: now.free,
        reclaimable_bytes: now.reclaimable,
        end,
    })
}

/// Has the mount take a step; `false` if no zone is worth it.
fn step(dir: &Path) -> Result<bool> {
    match command(dir, "reclaim") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error).with_context(|| format!("reclaim in {}", dir.display())),
    }
}

fn send(dir: &Path, line: &str) -> Result<()> {
    // A directory that is no mount of Furrow has no such counters, and the error names it.
    Space::of(dir)?;
    command(dir, line).with_context(|| format!("{line} in {}", dir.display()))
}
