//! Rules on space of a mount that does not come back, and on zones that somebody else has written.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zonal_fuse::control::Report;
use zonal_fuse::control::map::LINE_BYTES;

use super::content;
use super::finding::Finding;
use crate::control;
use crate::output::{shell, size};

/// Everything about space.
pub(super) fn look(subject: &str, point: &Path, report: &Report) -> Vec<Finding> {
    let Some(live) = &report.live else { return Vec::new() };
    let mut found: Vec<Finding> = content::full(subject, live).into_iter().collect();
    found.extend(owed(subject, report));
    found.extend(deleted(subject, &deleted_open(Path::new("/proc"), point)));
    found.extend(snapshots(subject, point));
    // A zone may be reset between two reads. So it has to be in two looks.
    let twice = written_free(point).zip(written_free(point));
    if let Some((first, second)) = twice {
        found.extend(foreign(subject, &first, &second));
    }
    found
}

/// Space that Furrow could not give back.
pub(super) fn owed(subject: &str, report: &Report) -> Vec<Finding> {
    let [resets, removals, unread] =
        ["resets_owed", "removals_owed", "zones_unread"].map(|name| report.counter(name));
    let causes = [
        (resets, "zones could not be reset: the drive refused", "the drive refuses resets"),
        (removals, "deleted files could not be removed", "metadata of them cannot be read"),
        (unread, "zones could not be emptied by reclaim", "the drive refuses to read them"),
    ];
    let found = causes.into_iter().filter(|(count, ..)| *count > 0);
    let finding = |(count, what, why): (u64, &str, &str)| {
        Finding::risk(
            subject,
            [
                &format!("{count} {what}"),
                &format!("their space does not come back: {why}; Furrow tries again now and then"),
                "its log and `dmesg` have the error; `zonal zones DEVICE` shows failed zones",
            ],
        )
    };
    found.map(finding).collect()
}

/// A process that holds deleted files of a mount open.
#[derive(Default)]
struct Holder {
    process: u32,
    program: String,
    files: u64,
    bytes: u64,
}

/// The processes that hold deleted files at or below `point` open.
fn deleted_open(processes: &Path, point: &Path) -> Vec<Holder> {
    const DELETED: &[u8] = b" (deleted)";
    let mut found = Vec::new();
    for entry in fs::read_dir(processes).into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let mut holder = Holder { process, ..Holder::default() };
        for file in fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            let is_it = fs::read_link(file.path()).is_ok_and(|target| {
                target.starts_with(point) && target.as_os_str().as_bytes().ends_with(DELETED)
            });
            if is_it {
                holder.files += 1;
                let blocks = fs::metadata(file.path()).map_or(0, |found| found.blocks());
                holder.bytes = holder.bytes.saturating_add(blocks.saturating_mul(512));
            }
        }
        if holder.files > 0 {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            name.trim().clone_into(&mut holder.program);
            found.push(holder);
        }
    }
    found
}

fn deleted(subject: &str, holders: &[Holder]) -> Option<Finding> {
    let most = holders.iter().max_by_key(|holder| holder.bytes)?;
    let files: u64 = holders.iter().map(|holder| holder.files).sum();
    let bytes: u64 = holders.iter().map(|holder| holder.bytes).sum();
    let Holder { process, program, .. } = most;
    Some(Finding::note(
        subject,
        [
            &format!("{files} deleted files are still open and hold {}", size(bytes)),
            "their space comes back when the programs close them",
            &format!("close or restart process {process} ({program}), which holds most of it"),
        ],
    ))
}

/// Snapshots of disks, which keep the blocks that their disks have replaced.
fn snapshots(subject: &str, point: &Path) -> Option<Finding> {
    let names = fs::read_dir(point.join("disks")).ok()?.flatten();
    let count = names.filter(|name| name.file_name().as_bytes().contains(&b'@')).count();
    (count > 0).then(|| {
        Finding::note(
            subject,
            [
                &format!("{count} snapshots of disks keep blocks that the disks have replaced"),
                "space of data that was overwritten or deleted on a disk does not come back",
                "`zonal disk list DEVICE` shows them, `zonal disk rm DEVICE NAME` removes one",
            ],
        )
    })
}

/// Zones that are empty for Furrow and have data for the drive.
fn written_free(point: &Path) -> Option<Vec<u32>> {
    let zones = control::read(point, "zones").ok()?;
    let map = control::read(point, "map").ok()?;
    Some(free_with_data(&map, &zones))
}

/// The zones that a map has as free, and a report of the drive as written.
pub(super) fn free_with_data(map: &str, zones: &str) -> Vec<u32> {
    let uses = map.as_bytes().chunks(LINE_BYTES).map(|line| line.first().copied());
    let written = zones.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [first, .., last] = words[..] else { return None };
        Some((first.parse::<u32>().ok()?, last.parse::<u64>().is_ok_and(|blocks| blocks > 0)))
    });
    let both = uses.zip(written).filter(|(role, (_, written))| *role == Some(b'.') && *written);
    both.map(|(_, (zone, _))| zone).collect()
}

pub(super) fn foreign(subject: &str, first: &[u32], second: &[u32]) -> Option<Finding> {
    let both: Vec<String> =
        first.iter().filter(|zone| second.contains(zone)).map(ToString::to_string).collect();
    let shown = both.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    (!both.is_empty()).then(|| {
        Finding::broken(
            subject,
            [
                &format!("{} zones have data that Furrow did not write: {shown}", both.len()),
                "a foreign writer: another program writes to the drive below the mount",
                &format!(
                    "`fuser -v` on the drive shows programs; stop it, `zonal umount {}`, and \
                     `zonal check --data DEVICE`",
                    shell::word(subject)
                ),
            ],
        )
    })
}
