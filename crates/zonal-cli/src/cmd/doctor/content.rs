//! Rules on the content of a device: a Furrow that is not mounted, or data of no known kind.

use std::sync::Arc;
use std::time::Duration;

use zonal::{Clock, SystemClock, Zone, ZoneCond, ZonedDevice, shown};
use zonal_fs::furrow::{self, CheckReport, DataCheck, Furrow, Live, MountOptions};
use zonal_fs::signature;
use zonal_fs::vfs::{Access, FileSystem, Ino};

use super::finding::{Finding, Seen};
use super::probe::within;
use crate::output::{count, shell, size};

/// How long a check, and a mount in memory, may take.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

/// How far the time of a file may lie ahead: clocks of machines differ.
pub(super) const AHEAD_NS: i64 = 120_000_000_000;

/// Rules of the check that a write or reset below the file system breaks: an extent behind the
/// write pointer of its zone, or a zone that cannot be read.
const FOREIGN: [&str; 2] = ["C21", "C31"];

/// Looks at a Furrow, which nobody uses. Writes nothing.
pub(super) fn furrow(spec: &str, device: &Arc<dyn ZonedDevice>, zones: &[Zone], seen: &mut Seen) {
    let subject = shown(spec);
    seen.findings.extend(overwritten(&subject, &**device));
    let drive = Arc::clone(device);
    match within(CHECK_LIMIT, move || furrow::check(drive, DataCheck::Skip, &mut |_| ())) {
        None => seen.add(Finding::note(
            &subject,
            [
                &format!("a check of its metadata takes more than {} s", CHECK_LIMIT.as_secs()),
                "it is large, or the drive is slow; nothing was found so far",
                &format!("`zonal check {}`", shell::word(spec)),
            ],
        )),
        Some(Err(error)) => seen.add(Finding::broken(
            &subject,
            [
                &format!("its Furrow cannot be read: {error}"),
                "the file system cannot be mounted",
                "layers such as po2: in front of the device, as at mkfs; or else a backup",
            ],
        )),
        Some(Ok(report)) => {
            seen.findings.extend(foreign_writer(spec, &report, zones));
            seen.findings.extend(damaged(spec, &report));
        }
    }
    let drive = Arc::clone(device);
    if let Some(Some((live, newest_ns))) = within(CHECK_LIMIT, move || state_of(drive)) {
        let bytes = |blocks: u64| size(blocks.saturating_mul(live.block_bytes));
        let space = format!(
            "{} used, {} available, {} reclaimable",
            bytes(live.blocks.used),
            bytes(live.blocks.available),
            bytes(live.blocks.reclaimable)
        );
        seen.fact("space", space);
        seen.findings.extend(full(&subject, &live));
        seen.findings.extend(from_the_future(&subject, newest_ns, SystemClock::new().wall_ns()));
    }
}

/// The use of space, and the newest time of the root directory, by a mount in this process.
fn state_of(device: Arc<dyn ZonedDevice>) -> Option<(Live, i64)> {
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    let fs = Furrow::mount(device, Arc::new(SystemClock::new()), options).ok()?;
    let root = fs.getattr(Ino::ROOT).ok()?;
    Some((fs.live(), root.ctime.as_ns().max(root.btime.as_ns())))
}

/// A signature of another format at the beginning of a device that holds a Furrow.
fn overwritten(subject: &str, device: &dyn ZonedDevice) -> Option<Finding> {
    let geometry = device.geometry();
    let mut bytes = vec![0; signature::LOOKED_AT];
    let blocks = geometry.blocks(bytes.len()).ok()?;
    if blocks > geometry.block_count() || device.read(zonal::Lba::ZERO, &mut bytes).is_err() {
        return None;
    }
    let found = signature::of_bytes(&bytes)?;
    Some(foreign(subject, &format!("its first zone holds {found}, which Furrow did not write")))
}

fn foreign(subject: &str, finding: &str) -> Finding {
    Finding::broken(
        subject,
        [
            finding,
            "a foreign writer: another program wrote to the zones, or reset them, below the file system",
            "find and stop that program (an old fstab line, a partitioner, a virtual machine); \
             `zonal check --data DEVICE` lists what is lost",
        ],
    )
}

/// Data that is gone although its zone works.
fn foreign_writer(spec: &str, report: &CheckReport, zones: &[Zone]) -> Option<Finding> {
    let works = |zone: u32| {
        let cond = zones.get(zone as usize).map(|zone| zone.cond);
        !matches!(cond, None | Some(ZoneCond::Offline | ZoneCond::ReadOnly))
    };
    let lost = report.losses.iter().find(|loss| works(loss.zone.get()));
    let has_failed =
        zones.iter().any(|zone| matches!(zone.cond, ZoneCond::Offline | ZoneCond::ReadOnly));
    let broken = report
        .problems
        .iter()
        .find(|problem| FOREIGN.contains(&problem.invariant.id) && !has_failed);
    let what = match (lost, broken) {
        (Some(loss), _) => {
            format!("zone {} has lost data of files: it was reset or written anew", loss.zone)
        }
        (None, Some(problem)) => format!("a zone is not as Furrow left it: {}", problem.what),
        (None, None) => return None,
    };
    Some(foreign(&shown(spec), &what))
}

/// Broken invariants, and lost data.
fn damaged(spec: &str, report: &CheckReport) -> Vec<Finding> {
    let word = shell::word(spec);
    let mut found = Vec::new();
    let problems = report.problems.len() as u64 + report.problems_more;
    if let Some(first) = report.problems.first() {
        // A path is the user's; the text of the problem has none.
        found.push(Finding::broken(
            &shown(spec),
            [
                &format!(
                    "{} rules of its metadata are broken, first {}",
                    count(problems),
                    first.invariant.id
                ),
                &format!("damage to metadata: not so that {}", first.invariant.rule),
                &format!("`zonal check {word}` lists all; a mount repairs single bad copies"),
            ],
        ));
    }
    let losses = report.losses.len() as u64 + report.losses_more;
    if losses > 0 {
        found.push(Finding::broken(
            &shown(spec),
            [
                &format!("the drive has lost {} parts of files", count(losses)),
                "reads of these parts fail with EIO; all other files are whole",
                &format!("`zonal check {word}` names the files: restore them from a backup"),
            ],
        ));
    }
    found
}

/// A file system that files cannot fill any further.
pub(super) fn full(subject: &str, live: &Live) -> Option<Finding> {
    let blocks = &live.blocks;
    // Below a hundredth of what there is, and of what reclaim needs to work on.
    if blocks.capacity == 0 || blocks.available > blocks.capacity / 100 {
        return None;
    }
    let bytes = |blocks: u64| size(blocks.saturating_mul(live.block_bytes));
    let dead = blocks.reclaimable.saturating_sub(blocks.reserved);
    let available = bytes(blocks.available);
    Some(if dead <= blocks.capacity / 100 {
        Finding::broken(
            subject,
            [
                &format!("it is full: files can take {available} more, and nothing is reclaimable"),
                "everything on it is in use, so writes fail with ENOSPC and no reclaim helps",
                "delete or move files, and close deleted ones; snapshots and clones keep blocks too",
            ],
        )
    } else {
        Finding::risk(
            subject,
            [
                &format!("it is full: files can take {available} more"),
                &format!(
                    "reclaim can free {} for the file system, none of it for files",
                    bytes(dead)
                ),
                "delete or move files",
            ],
        )
    })
}

/// Times of files that lie ahead of the clock.
pub(super) fn from_the_future(subject: &str, newest_ns: i64, now_ns: i64) -> Option<Finding> {
    let ahead = newest_ns.saturating_sub(now_ns);
    if ahead <= AHEAD_NS {
        return None;
    }
    let seconds = u64::try_from(ahead / 1_000_000_000).unwrap_or(0);
    Some(Finding::risk(
        subject,
        [
            &format!("it has times that lie {} s ahead of the clock", count(seconds)),
            "the clock was set back, or was ahead when they were written: make, rsync and backups \
             take old files for new",
            "`timedatectl` shows the clock; `touch` gives files the present time",
        ],
    ))
}

/// Data without a signature: metadata of a Furrow whose superblock is not there, or other data.
pub(super) fn nothing_known(spec: &str, device: &dyn ZonedDevice, zones: &[Zone]) -> Finding {
    /// Zones that are looked at: mkfs writes to the first ones that are empty.
    const LOOKED_AT: usize = 64;
    let word = shell::word(spec);
    let written = |zone: &&Zone| {
        zone.kind.is_sequential() && zone.written().is_some_and(|written| written.get() > 0)
    };
    let geometry = device.geometry();
    let mut block = vec![0; 4096];
    let is_metadata = |zone: &Zone| {
        let fits = geometry
            .blocks(4096)
            .is_ok_and(|blocks| zone.written().is_some_and(|written| written >= blocks));
        fits && device.read(zone.start, &mut block).is_ok() && signature::is_metadata(&block)
    };
    let mut sequential = zones.iter().filter(written).take(LOOKED_AT);
    if sequential.any(is_metadata) {
        return Finding::broken(
            &shown(spec),
            [
                "it has metadata of a Furrow and no superblock: mkfs was interrupted",
                "a half-written file system: nothing can be mounted, and no file was on it yet, \
                 unless a foreign program has reset its superblocks",
                &format!("`zonal mkfs --force {word}`, if nothing on it is needed"),
            ],
        );
    }
    let is_empty = !zones.iter().any(|zone| written(&zone));
    let make = format!("`zonal mkfs {word}` makes a Furrow, `zonal mkzonefs {word}` a zonefs");
    let look = format!("`zonal zones {word}` shows which zones hold data");
    let text = if is_empty {
        ["it is empty", "a drive without a file system", &make]
    } else {
        [
            "it holds data of no known kind",
            "a program uses its zones as they are, or a signature was overwritten",
            &look,
        ]
    };
    Finding::note(&shown(spec), text)
}
