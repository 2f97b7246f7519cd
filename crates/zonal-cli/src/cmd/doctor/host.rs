//! Rules on the machine: kernel, interfaces, rights, clock.

use rustix::io::Errno;
use zonal_linux::machine::{Access, Facts, Readable};

use super::finding::{Finding, Seen};

/// 2025-01-01 in nanoseconds since 1970. A clock before that was never set.
const BUILT_NS: i64 = 1_735_689_600_000_000_000;

/// Looks at the machine. `wall_ns` is the time of day, and `fuse` what opening `/dev/fuse` gave.
pub(super) fn look(facts: &Facts, wall_ns: i64, fuse: Result<(), Errno>, seen: &mut Seen) {
    let zoned = match facts.option("CONFIG_BLK_DEV_ZONED") {
        Some('n') => "without zoned block devices",
        Some(_) => "with zoned block devices",
        None => "build options unknown",
    };
    seen.fact("kernel", format!("{}, {zoned}", facts.release));
    let word = |access| match access {
        Access::Missing => "missing",
        Access::Denied => "not for this user",
        Access::Usable => "usable",
    };
    seen.fact("/dev/fuse", word(facts.fuse.access));
    seen.fact("/dev/ublk-control", word(facts.ublk.access));
    if facts.log == Readable::No {
        seen.fact("kernel log", "not for this user: `sudo zonal doctor` sees more");
    }
    if let Some(finding) = no_fuse(facts, fuse) {
        seen.add(finding);
    }
    match facts.io_uring_disabled {
        Some(level @ 1..) => {
            let whom = if level == 1 { "users without privileges" } else { "all programs" };
            seen.fact("io_uring", format!("off for {whom}"));
            seen.add(Finding::note(
                "io_uring",
                [
                    &format!("kernel.io_uring_disabled is {level}: off for {whom}"),
                    "Zonal uses other system calls, which take more processor time",
                    "`sysctl kernel.io_uring_disabled=0` as root, where the speed matters",
                ],
            ));
        }
        Some(_) => seen.fact("io_uring", "on"),
        None => {}
    }
    if wall_ns < BUILT_NS {
        seen.add(Finding::risk(
            "clock",
            [
                "the time of day is before 2025: the clock was set back, or never set",
                "files get wrong times, and programs such as make and rsync take old for new",
                "`timedatectl set-ntp true`, or set the clock before you mount",
            ],
        ));
    }
}

fn no_fuse(facts: &Facts, opened: Result<(), Errno>) -> Option<Finding> {
    let subject = "/dev/fuse";
    let missing = match facts.option("CONFIG_FUSE_FS") {
        Some('n') => {
            "a kernel with CONFIG_FUSE_FS; without it `zonal cp`, `ls` and `serve nbd` work all the same"
        }
        _ => {
            "`modprobe fuse` as root; a container has to be given /dev/fuse; without it `zonal cp`, \
             `ls` and `serve nbd` work all the same"
        }
    };
    match (facts.fuse.access, opened) {
        (Access::Missing, _) => {
            let text = ["there is no /dev/fuse", "nothing can be mounted", missing];
            Some(Finding::broken(subject, text))
        }
        (Access::Denied, _) => Some(Finding::broken(
            subject,
            [
                "this user may not open /dev/fuse",
                "this user can mount nothing",
                "mount as root, or `chmod 666 /dev/fuse` as root, as most systems have it",
            ],
        )),
        (Access::Usable, Err(errno)) => Some(Finding::broken(
            subject,
            [
                &format!("/dev/fuse is there and cannot be opened: {errno}"),
                "nothing can be mounted: most containers refuse the device in spite of its mode",
                missing,
            ],
        )),
        (Access::Usable, Ok(())) => None,
    }
}
