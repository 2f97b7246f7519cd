//! The same random calls on the kernel's zonefs and on ours, answer by answer.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::shape::{DISK, FAILING, MIXED, SSD, Shape};
use super::side::Drive;
use crate::calls::compare::{self, Row, Used};
use xtask::run;
use xtask::tally::Tally;

/// The user that makes the calls.
#[derive(Clone, Copy)]
enum Caller {
    Root,
    User,
}

/// A change of zones behind the back of the file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zones {
    /// Nothing.
    Work,
    /// Zones become read-only or offline, or are written to.
    Fail,
}

/// One pair of mounts.
struct Session {
    name: &'static str,
    shape: &'static Shape,
    format: &'static [&'static str],
    mount: &'static str,
    caller: Caller,
    zones: Zones,
}

const SESSIONS: [Session; 11] = [
    Session {
        name: "disk",
        shape: &DISK,
        format: &[],
        mount: "errors=remount-ro",
        caller: Caller::Root,
        zones: Zones::Work,
    },
    Session {
        name: "disk, aggregated",
        shape: &DISK,
        format: &["-o", "aggr_cnv,perm=600"],
        mount: "errors=zone-ro",
        caller: Caller::Root,
        zones: Zones::Work,
    },
    Session {
        name: "disk, as a user",
        shape: &DISK,
        format: &["-o", "uid=1000,gid=1000"],
        mount: "errors=repair",
        caller: Caller::User,
        zones: Zones::Work,
    },
    Session {
        name: "ssd, errors=repair",
        shape: &SSD,
        format: &[],
        mount: "errors=repair",
        caller: Caller::Root,
        zones: Zones::Work,
    },
    Session {
        name: "ssd, explicit open",
        shape: &SSD,
        format: &[],
        mount: "explicit-open,errors=zone-offline",
        caller: Caller::Root,
        zones: Zones::Work,
    },
    Session {
        name: "mixed, explicit open",
        shape: &MIXED,
        format: &[],
        mount: "explicit-open",
        caller: Caller::Root,
        zones: Zones::Work,
    },
    Session {
        name: "failing, errors=remount-ro",
        shape: &FAILING,
        format: &[],
        mount: "errors=remount-ro",
        caller: Caller::Root,
        zones: Zones::Fail,
    },
    Session {
        name: "failing, errors=zone-ro",
        shape: &FAILING,
        format: &[],
        mount: "errors=zone-ro",
        caller: Caller::Root,
        zones: Zones::Fail,
    },
    Session {
        name: "failing, errors=zone-offline",
        shape: &FAILING,
        format: &[],
        mount: "errors=zone-offline",
        caller: Caller::Root,
        zones: Zones::Fail,
    },
    Session {
        name: "failing, errors=repair",
        shape: &FAILING,
        format: &[],
        mount: "errors=repair",
        caller: Caller::Root,
        zones: Zones::Fail,
    },
    Session {
        name: "failing, explicit open",
        shape: &FAILING,
        format: &[],
        mount: "errors=repair,explicit-open",
        caller: Caller::Root,
        zones: Zones::Fail,
    },
];

/// Calls of one session, unless `COUNT` in the environment says otherwise.
const COUNT: u64 = 1000;

/// All checks of this file. Seeds follow from `SEED` in the environment.
pub(super) fn checks(rows: &[Row], tally: &mut Tally) -> Used {
    let seed = number("SEED").unwrap_or(1);
    let mut used = Used::new();
    for (index, session) in SESSIONS.iter().enumerate() {
        let seed = seed + index as u64;
        tally.check(&format!("zonefs calls, {}, SEED={seed}", session.name), || {
            let kernel = Drive::kernel(session.shape)?;
            let theirs = log(session, &kernel, seed).context("on the kernel's zonefs")?;
            drop(kernel);
            let here = Drive::here(session.shape)?;
            let ours = log(session, &here, seed).context("on ours")?;
            for (row, count) in compare::logs(&theirs, &ours, rows)? {
                *used.entry(row).or_default() += count;
            }
            Ok(())
        });
    }
    used
}

fn log(session: &Session, drive: &Drive, seed: u64) -> Result<String> {
    drive.format(session.format)?;
    let mount = drive.mount(session.mount)?;
    let log = calls(session, drive, mount.path(), seed)?;
    let side = match drive {
        Drive::Kernel(_) => "kernel",
        Drive::Here { .. } => "here",
    };
    fs::write(format!("/share/calls-{seed}-{side}.log"), &log).context("keeping the log")?;
    mount.unmount()?;
    Ok(log)
}

/// Makes the calls in a process of their own: it may have to be another user's.
fn calls(session: &Session, drive: &Drive, dir: &Path, seed: u64) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("calls").arg(dir);
    command
        .arg(format!("--seed={seed}"))
        .arg(format!("--count={}", number("COUNT").unwrap_or(COUNT)));
    if session.zones == Zones::Fail {
        command.arg("--device").arg(match drive {
            Drive::Kernel(device) => device.path(),
            Drive::Here { .. } => dir,
        });
    } else if session.shape.open > 0 {
        command.arg("--limited");
    }
    if let Caller::User = session.caller {
        std::os::unix::process::CommandExt::uid(&mut command, 1000);
        std::os::unix::process::CommandExt::gid(&mut command, 1000);
    }
    run::quietly(&mut command)
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
