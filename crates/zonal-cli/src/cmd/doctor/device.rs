//! Rules on one device: its answers, its zones, its rules, its users, its content.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustix::io::Errno;
use zonal::{Zone, ZoneCond, ZonedDevice, claim, mounts, shown};
use zonal_fs::signature::{self, Content};
use zonal_linux::machine::{Disk, Facts};

use super::content;
use super::finding::{Finding, Seen};
use super::probe::{self, Answer, Refusal, within};
use super::{Place, disks};
use crate::advice::Reported;
use crate::cmd::compliance;
use crate::device::{self, OpenMode};
use crate::output::{shell, size};

/// How long a device may take to answer. A large drive that was just switched on needs seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);

/// How long the rules may take.
const RULES_LIMIT: Duration = Duration::from_secs(4);

/// Looks at a device.
pub(super) fn look(spec: &str, machine: &Facts, place: &Place, seen: &mut Seen) -> Result<()> {
    let path = Path::new(spec).canonicalize().ok();
    let is_it = |disk: &Disk| {
        let mut nodes = disk.block.iter().chain(&disk.generic);
        path.as_ref().is_some_and(|path| nodes.any(|node| node.path == *path))
    };
    disks::look(machine, is_it, |node| place.is_mounted(node), seen);
    match probe::zonal(&["info", spec].map(OsStr::new), ANSWER_LIMIT)? {
        Answer::Said(_) => opened(spec, place, seen),
        Answer::Silent => {
            seen.add(hung(spec));
            Ok(())
        }
        Answer::Failed(refusal) => {
            let is_missing = refusal.errno == Some(Errno::NOENT.raw_os_error()) && path.is_none();
            if is_missing {
                let Refusal { message, errno, .. } = refusal;
                return Err(Reported { message, errno }.into());
            }
            seen.add(not_opened(spec, &refusal));
            Ok(())
        }
    }
}

fn hung(spec: &str) -> Finding {
    Finding::broken(
        &shown(spec),
        [
            &format!("the drive has not answered for {} s", ANSWER_LIMIT.as_secs()),
            "it hangs: the drive, its cable or its controller, or the file system below a drive file",
            "look at `dmesg`; a drive that wakes up or resets all zones answers later: try once more",
        ],
    )
}

/// A device that cannot be opened.
pub(super) fn not_opened(spec: &str, refusal: &Refusal) -> Finding {
    let Refusal { message, errno, hint } = refusal;
    let word = shell::word(spec);
    let is = |errors: &[Errno]| {
        errno.is_some_and(|errno| errors.iter().any(|error| error.raw_os_error() == errno))
    };
    if is(&[Errno::ACCESS, Errno::PERM]) {
        return Finding::broken(
            &shown(spec),
            [
                &format!("this user may not open it: {message}"),
                "wrong rights: every command on it fails",
                &format!("run as root, or let `ls -l {word}` give this user read and write"),
            ],
        );
    }
    if message.contains("reporting") {
        return Finding::broken(
            &shown(spec),
            [
                &format!("REPORT ZONES fails: {message}"),
                "the drive, its controller or its bridge does not say where its zones are",
                "the node /dev/sgN of the same drive, which is asked by ATA commands too; another \
                 cable or controller; `dmesg`",
            ],
        );
    }
    let remedy = hint.as_deref().unwrap_or("`zonal doctor` without a DEVICE lists the disks");
    let means = if message.contains("has no zones") {
        "a conventional disk: Zonal needs zones, which it can give to a disk"
    } else {
        "no command of Zonal can use it"
    };
    Finding::broken(&shown(spec), [&format!("it cannot be opened: {message}"), means, remedy])
}

fn opened(spec: &str, place: &Place, seen: &mut Seen) -> Result<()> {
    let stack = device::open_stack(spec, OpenMode::ReadOnly)?;
    let zones = device::report(&*stack.device)?;
    let found = signature::find(&*stack.plain)?;
    let device = Arc::clone(&stack.device);
    facts(spec, &*device, &zones, seen);
    seen.fact("holds", found.as_ref().map_or_else(|| "nothing known".into(), ToString::to_string));
    for finding in of_zones(spec, &zones) {
        seen.add(finding);
    }
    let user = user_of(&stack.files, place);
    if let Some(user) = &user {
        seen.fact("used by", user.clone());
    } else if let Some(broken) = broken_rules(spec) {
        seen.findings.extend(broken);
    }
    match found.as_ref().map(|found| found.kind) {
        Some(Content::Furrow) if user.is_some() => {
            seen.add(Finding::note(
                &shown(spec),
                [
                    "it is in use, so its file system was not checked",
                    "a running file system changes while a check reads it",
                    "`zonal doctor DIR` with its mount point; or unmount it first",
                ],
            ));
        }
        Some(Content::Furrow) => content::furrow(spec, &device, &zones, seen),
        Some(Content::Zonefs | Content::Foreign(_)) => {}
        None => seen.add(content::nothing_known(spec, &*device, &zones)),
    }
    if !matches!(found.map(|found| found.kind), Some(Content::Furrow)) {
        seen.findings.extend(all_active(spec, &*device, &zones));
    }
    Ok(())
}

fn facts(spec: &str, device: &dyn ZonedDevice, zones: &[Zone], seen: &mut Seen) {
    let (geometry, identity) = (device.geometry(), device.identity().to_string());
    let shape = format!(
        "{} in {} zones of {}",
        size(geometry.bytes(geometry.block_count()).get()),
        zones.len(),
        size(geometry.bytes(geometry.zone_size()).get())
    );
    seen.fact("device", shown(spec));
    seen.fact("shape", shape);
    if !identity.is_empty() {
        seen.fact("identity", identity);
    }
    let conditions = ZoneCond::ALL.into_iter().filter_map(|cond| {
        let count = zones.iter().filter(|zone| zone.cond == cond).count();
        (count > 0).then(|| format!("{count} {}", cond.name()))
    });
    seen.fact("zones", conditions.collect::<Vec<_>>().join(", "));
}

/// Zones that have failed.
pub(super) fn of_zones(spec: &str, zones: &[Zone]) -> Vec<Finding> {
    let of = |cond| {
        let mut failed = zones.iter().filter(|zone| zone.cond == cond);
        let first = failed.next()?.id;
        Some((1 + failed.count(), first))
    };
    let means = "the drive has given up these zones for good, and more may follow";
    let offline = of(ZoneCond::Offline).map(|(count, first)| {
        Finding::risk(
            &shown(spec),
            [
                &format!("offline zones: {count}, the first is zone {first}"),
                &format!("{means}; data in them is lost"),
                "`zonal check DEVICE` lists lost files; copy the others, and replace the drive soon",
            ],
        )
    });
    let read_only = of(ZoneCond::ReadOnly).map(|(count, first)| {
        Finding::risk(
            &shown(spec),
            [
                &format!("read-only zones: {count}, the first is zone {first}"),
                &format!("{means}; data in them can be read and not be replaced"),
                "copy the data while it can be read, and replace the drive soon",
            ],
        )
    });
    offline.into_iter().chain(read_only).collect()
}

/// A limit of active zones that is used up.
fn all_active(spec: &str, device: &dyn ZonedDevice, zones: &[Zone]) -> Option<Finding> {
    let limit = device.geometry().spec().max_active?;
    let active = zones.iter().filter(|zone| zone.cond.is_active()).count();
    if active < limit as usize {
        return None;
    }
    Some(Finding::risk(
        &shown(spec),
        [
            &format!("{active} zones are active, which is the drive's limit"),
            "no other zone can be written: such writes fail",
            "`zonal zone finish DEVICE ZONE`, or reset a zone whose data is not needed",
        ],
    ))
}

/// The user of a device: a mount, or a process.
fn user_of(files: &[PathBuf], place: &Place) -> Option<String> {
    let all = mounts::all().unwrap_or_default();
    files.iter().find_map(|file| {
        let path = file.canonicalize().unwrap_or_else(|_| file.clone());
        if let Some(point) = place.point_of(&path) {
            return Some(format!("the mount at {}", shown(point)));
        }
        if let Some(mount) = all.iter().find(|mount| mount.source == path.as_os_str()) {
            return Some(format!("the kernel, mounted at {}", shown(&mount.point)));
        }
        let process = claim::holder_of(&path)?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        Some(format!("process {process} ({})", shown(name.trim())))
    })
}

/// Rules of the specification that it breaks; `None` if they could not be tried.
fn broken_rules(spec: &str) -> Option<Vec<Finding>> {
    let name = spec.to_owned();
    let report = within(RULES_LIMIT, move || compliance::short(&name))?.ok()?;
    let broken = report.outcomes.iter().filter(|outcome| outcome.verdict == "fail");
    let finding = |outcome: &zonal_compliance::Outcome| {
        let observed = outcome.observed.as_deref().unwrap_or("another behaviour");
        let severity = if outcome.level == "must" { Finding::risk } else { Finding::note };
        severity(
            &shown(spec),
            [
                &format!(
                    "it breaks the rule {} ({}): {observed}",
                    outcome.rule_name, outcome.clause
                ),
                &format!("the specification demands: {}", outcome.requires),
                "`zonal compliance DEVICE` tells more; ask its maker for newer firmware",
            ],
        )
    };
    Some(broken.map(finding).collect())
}
