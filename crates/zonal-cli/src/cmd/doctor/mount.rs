//! Rules on a mount: healthy, busy, hung, read-only, dead, and space that does not come back.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustix::event::{Timespec, poll};
use zonal::mounts::Mount;
use zonal::{Clock, SystemClock, claim, shown};
use zonal_fs::furrow::Live;
use zonal_fs::vfs::Access;
use zonal_fuse::control::Report;
use zonal_fuse::names::CONTROL_DIR;

use super::finding::{Finding, Seen};
use super::probe::{self, Answer, Refusal};
use super::{content, space};
use crate::output::{rate, shell, size};
use crate::{control, mounts};

/// How long the counters may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(4);

/// Seconds without any progress after which requests that wait hang.
const STILL_SECONDS: u64 = 3;

/// The meaning of a drive that does not answer a mount.
const HUNG_DRIVE: &str = "a hung drive: programs wait until it answers; what was synced is safe";

/// Operations that a look at a mount does not cause itself.
const OTHERS: [&str; 5] = ["read", "write", "fsync", "create", "setattr"];

/// Looks at a mount.
pub(super) fn look(mount: &Mount, seen: &mut Seen) -> Result<()> {
    let point = &mount.point;
    let subject = shown(point);
    seen.fact("mount", format!("{subject}, {}", shown(&mount.kind)));
    seen.fact("device", shown(&mount.source));
    let report = match ask(point)? {
        Answer::Said(said) => serde_json::from_value::<Report>(said)?,
        Answer::Silent => {
            seen.add(silent(&subject, point, daemon_state(mount).as_deref()));
            return Ok(());
        }
        Answer::Failed(refusal) => {
            seen.add(failed(&subject, point, &refusal));
            return Ok(());
        }
    };
    let options = control::options(point).ok();
    let access = options.map(|options| options.device);
    seen.findings.extend(of_report(&subject, point, &report, access));
    seen.findings.extend(watch(mount, &report)?);
    seen.findings.extend(space::look(&subject, point, &report));
    seen.findings.extend(set_back(&subject, point));
    facts(&report, seen);
    Ok(())
}

fn ask(point: &Path) -> Result<Answer> {
    probe::zonal(&[OsStr::new("stats"), point.as_os_str()], ANSWER_LIMIT)
}

fn facts(report: &Report, seen: &mut Seen) {
    seen.fact("access", report.setting("access"));
    let Some(live) = &report.live else { return };
    let bytes = |blocks: u64| size(blocks.saturating_mul(live.block_bytes));
    let blocks = &live.blocks;
    let [used, available, reclaimable, free] =
        [blocks.used, blocks.available, blocks.reclaimable, blocks.free].map(bytes);
    let space =
        format!("{used} used, {available} available, {reclaimable} reclaimable, {free} free");
    seen.fact("space", space);
}

/// A mount that does not answer. `state` is the letter of its daemon's state in `/proc`.
pub(super) fn silent(subject: &str, point: &Path, state: Option<&str>) -> Finding {
    let seconds = ANSWER_LIMIT.as_secs();
    let end = format!("`zonal umount --force {}` ends the mount", shell::word(point));
    let (why, means, remedy) = match state {
        Some("T" | "t") => (
            ", and its daemon is stopped",
            "a signal or a debugger has stopped the process that serves it; nothing is lost",
            "`kill -CONT` with the number of the daemon, which `zonal umount` names too".to_owned(),
        ),
        Some("D") => {
            (", and its daemon waits for the drive", HUNG_DRIVE, format!("look at `dmesg`; {end}"))
        }
        Some(_) | None => (
            "",
            "its daemon, or the drive below, does not go on; what was synced is safe",
            format!("look at `dmesg` and its log; {end}, then mount again"),
        ),
    };
    let symptom = format!("it hangs: no answer for {seconds} s{why}");
    Finding::broken(subject, [&symptom, means, &remedy])
}

/// The letter of the state of a mount's daemon: `S` sleeping, `D` waiting for a device, `T`
/// stopped (proc(5)).
fn daemon_state(mount: &Mount) -> Option<String> {
    let process = claim::holder_of(Path::new(&mount.source))?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("State:"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// A mount whose counters cannot be read.
fn failed(subject: &str, point: &Path, refusal: &Refusal) -> Finding {
    // It has answered just now.
    let is_dead = fs::metadata(point).is_err_and(|error| zonal_fuse::unmount::is_dead(&error));
    let word = shell::word(point);
    if is_dead || refusal.message.contains("has died") {
        return Finding::broken(
            subject,
            [
                "it is dead: the process that served it has ended, and the mount is still there",
                "every call in it fails with ENOTCONN; what was synced is on the drive",
                &format!("`zonal umount {word}`, then mount again; its log says why it ended"),
            ],
        );
    }
    Finding::broken(
        subject,
        [
            &format!("its counters cannot be read: {}", refusal.message),
            "the user who mounted it can read them, and root",
            refusal.hint.as_deref().unwrap_or("run as that user"),
        ],
    )
}

/// Rules on the counters. `device` is the access with which the daemon has opened the device.
pub(super) fn of_report(
    subject: &str,
    point: &Path,
    report: &Report,
    device: Option<Access>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let panic = report.setting("panicked");
    if !panic.is_empty() {
        found.push(Finding::broken(
            subject,
            [
                &format!("its daemon has panicked: {panic}"),
                "a bug of Zonal: the mount is read-only, and what was not synced is lost",
                &format!(
                    "`zonal umount {}`, `zonal check DEVICE`, mount again; please report it with \
                     the file of `zonal doctor --bundle FILE`",
                    shell::word(point)
                ),
            ],
        ));
    } else if report.setting("access") == "read-only" {
        found.push(read_only(subject, report, device));
    }
    let leaves = report.counter("leaves_lost");
    if leaves > 0 {
        found.push(Finding::broken(
            subject,
            [
                &format!("{leaves} parts of its metadata can be read from neither copy"),
                "access to some files fails with EIO",
                "copy what can be read; unmount, and `zonal check DEVICE` names the files",
            ],
        ));
    }
    let failed = report.counter("zones_failed");
    if failed > 0 {
        found.push(Finding::risk(
            subject,
            [
                &format!("{failed} zones of its drive have failed"),
                "the drive has given them up for good; files in them may be lost",
                "`zonal zones DEVICE` shows which; copy the data, and replace the drive soon",
            ],
        ));
    }
    let advice = report.setting("advice");
    if !advice.is_empty() {
        found.push(Finding::note(subject, ["it sees many small writes", "slow writes", advice]));
    }
    if report.setting("reclaim") == "paused" {
        found.push(Finding::note(
            subject,
            [
                "reclaim in the background is paused",
                "space of deleted files comes back only while writers wait for it",
                &format!("`zonal reclaim --resume {}`", shell::word(point)),
            ],
        ));
    }
    found
}

fn read_only(subject: &str, report: &Report, device: Option<Access>) -> Finding {
    let zones = report.counter("read_only_files") + report.counter("offline_files");
    if device == Some(Access::ReadOnly) {
        return Finding::note(
            subject,
            [
                "it is read-only, because it was mounted so (option ro)",
                "programs that write get EROFS",
                "`zonal umount DIR`, and mount it without ro",
            ],
        );
    }
    let why = if zones > 0 {
        format!("it is read-only: {zones} of its zones cannot be written any more")
    } else {
        "it is read-only: a remount made it so, or a failed write with errors=remount-ro".to_owned()
    };
    Finding::broken(
        subject,
        [
            &why,
            "programs that write get EROFS",
            "its log has the error; `zonal mount -o remount,rw DEVICE DIR`, if the drive is well",
        ],
    )
}

/// Looks again where requests may wait, or reclaim works.
fn watch(mount: &Mount, first: &Report) -> Result<Option<Finding>> {
    let subject = shown(&mount.point);
    if !waits(mount, first) && !first.live.as_ref().is_some_and(is_reclaiming) {
        return Ok(None);
    }
    for _ in 0..STILL_SECONDS {
        pause();
        let report = match ask(&mount.point)? {
            Answer::Said(said) => serde_json::from_value::<Report>(said)?,
            Answer::Silent => {
                let state = daemon_state(mount);
                return Ok(Some(silent(&subject, &mount.point, state.as_deref())));
            }
            Answer::Failed(refusal) => return Ok(Some(failed(&subject, &mount.point, &refusal))),
        };
        let goes_on = done(&report) > done(first);
        if goes_on || !waits(mount, &report) {
            return Ok(busy(&subject, first, &report));
        }
    }
    Ok(Some(hung(&subject, &mount.point)))
}

/// A second.
fn pause() {
    // A signal that ends the pause early shortens one look.
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
}

/// Whether requests wait, by the kernel's count or by that of the mount.
fn waits(mount: &Mount, report: &Report) -> bool {
    let is_writing = report
        .live
        .as_ref()
        .is_some_and(|live| live.blocks.in_flight > 0 || live.reservations.waiting > 0);
    is_writing || waiting(mount).is_some_and(|requests| requests > 0)
}

/// Requests that the kernel has sent, or is about to send, and that have no answer.
fn waiting(mount: &Mount) -> Option<u64> {
    let text = fs::read_to_string(zonal_fuse::unmount::connection(mount)?.join("waiting")).ok()?;
    text.trim().parse().ok()
}

/// A number that grows with everything that completes.
fn done(report: &Report) -> u64 {
    let requests = report.operations.iter();
    let requests = requests.filter(|latency| OTHERS.contains(&&*latency.operation));
    let bytes = ["user_bytes", "reclaim_bytes", "meta_bytes", "read_bytes", "resets", "flushes"];
    let bytes: u64 = bytes.into_iter().map(|name| report.counter(name)).sum();
    requests.map(|latency| latency.count).sum::<u64>().saturating_add(bytes)
}

pub(super) fn hung(subject: &str, point: &Path) -> Finding {
    Finding::broken(
        subject,
        [
            &format!("it hangs: nothing completed for {STILL_SECONDS} s although requests wait"),
            HUNG_DRIVE,
            &format!(
                "look at `dmesg`, cable and power; `zonal umount --force {}` ends the mount",
                shell::word(point)
            ),
        ],
    )
}

/// Whether reclaim works because free space is short.
fn is_reclaiming(live: &Live) -> bool {
    let room = &live.reservations;
    !live.victims.is_empty() || room.waiting > 0 || room.room < room.low_mark
}

/// What reclaim did between two looks.
pub(super) fn busy(subject: &str, before: &Report, after: &Report) -> Option<Finding> {
    let live = after.live.as_ref().filter(|live| is_reclaiming(live))?;
    let seconds = after.seconds_since(before)?;
    let moved = after.counter("reclaim_bytes").saturating_sub(before.counter("reclaim_bytes"));
    if moved == 0 {
        return None;
    }
    let room = &live.reservations;
    let missing = room.low_mark.saturating_sub(room.room).saturating_mul(live.block_bytes);
    let ends = ends_in(missing, moved, seconds, live.reclaimed.ratio());
    let ends = ends.map_or(String::new(), |seconds| format!(", and ends in about {seconds} s"));
    Some(Finding::note(
        subject,
        [
            &format!("it is busy: reclaim moves {}{ends}", rate(moved, seconds)),
            "free space is short, so writers pay for reclaim and get slower",
            "more free space: delete files, or `zonal reclaim DIR` ahead of a burst of writes",
        ],
    ))
}

/// Seconds until reclaim has freed `missing` bytes, if it moves `moved` bytes in `seconds` and has
/// to move `ratio` bytes for one that it frees.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate in seconds"
)]
fn ends_in(missing: u64, moved: u64, seconds: f64, ratio: Option<f64>) -> Option<u64> {
    let ratio = ratio.filter(|ratio| *ratio > 0.0)?;
    (missing > 0 && moved > 0)
        .then(|| (missing as f64 * ratio * seconds / moved as f64).ceil() as u64)
}

/// A clock that was set back since the mount: the control directory has the time of the mount.
fn set_back(subject: &str, point: &Path) -> Option<Finding> {
    let now_ns = SystemClock::new().wall_ns();
    let time = |path: PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some(found.ctime().saturating_mul(1_000_000_000))
    };
    let newest = [point.join(CONTROL_DIR), point.to_owned()].into_iter().filter_map(time).max()?;
    content::from_the_future(subject, newest, now_ns)
}

/// The mount that a user names: by its directory, or by the device that is mounted there.
pub(super) fn named(name: &str) -> Option<Mount> {
    let all = zonal::mounts::all().ok()?;
    let path = Path::new(name);
    // stat(2) does not return from a mount that hangs, so this asks the directory above alone.
    let absolute = std::path::absolute(path).ok()?;
    let above = absolute.parent().and_then(|above| above.canonicalize().ok());
    let point = above.zip(absolute.file_name()).map(|(above, name)| above.join(name));
    let is_there = |mount: &&Mount| {
        mounts::is_ours(mount) && (mount.point == absolute || Some(&mount.point) == point.as_ref())
    };
    if let Some(mount) = all.iter().rfind(is_there) {
        return Some(mount.clone());
    }
    let device = path.canonicalize().ok()?;
    all.into_iter().rfind(|mount| mounts::is_of(mount, &device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_reclaim_is_estimated_from_its_pace() {
        assert_eq!(ends_in(100, 50, 1.0, Some(1.0)), Some(2));
        assert_eq!(ends_in(100, 50, 2.0, Some(3.0)), Some(12));
        assert_eq!(ends_in(0, 50, 1.0, Some(1.0)), None);
        assert_eq!(ends_in(100, 50, 1.0, None), None);
    }
}
