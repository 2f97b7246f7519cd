//! Groups and capabilities of a caller, from `/proc/PID/status`.
//!
//! A FUSE request carries user, group and process id only. Whether setgid may stay depends on
//! supplementary groups and `CAP_FSETID`. The caller waits in its system call while we look, so its
//! number is its own. Reading takes some 20 µs: ask only where the answer matters.

use std::fs;

/// `CAP_FOWNER`: such a process may do what a file's owner may.
const CAP_FOWNER: u32 = 3;

/// `CAP_FSETID`: setuid and setgid stay when such a process writes.
const CAP_FSETID: u32 = 4;

/// `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u32 = 21;

/// Credentials of a process. A process that cannot be seen has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    capabilities: u64,
    groups: Vec<u32>,
}

impl Credentials {
    /// Those of a process or thread.
    pub(super) fn of(pid: u32) -> Self {
        fs::read_to_string(format!("/proc/{pid}/status"))
            .map(|status| Self::parse(&status))
            .unwrap_or_default()
    }

    fn parse(status: &str) -> Self {
        let mut credentials = Self::default();
        for line in status.lines() {
            if let Some(mask) = line.strip_prefix("CapEff:") {
                credentials.capabilities = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
            } else if let Some(groups) = line.strip_prefix("Groups:") {
                credentials.groups.extend(numbers(groups));
            } else if let Some(gids) = line.strip_prefix("Gid:") {
                // Real, effective, saved, file system.
                credentials.groups.extend(numbers(gids).nth(3));
            }
        }
        credentials
    }

    /// Whether setuid and setgid stay when it changes a file.
    pub(super) fn keeps_setid(&self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Whether it may do what the owner of any file may.
    pub(super) fn owns_files(&self) -> bool {
        self.has(CAP_FOWNER)
    }

    /// Whether it may administer the system.
    pub(super) fn administers(&self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// Whether its group or one of its supplementary groups is `gid`.
    pub(super) fn is_in(&self, gid: u32) -> bool {
        self.groups.contains(&gid)
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().filter_map(|number| number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups_and_capabilities() {
        let status = "Name:\tcat\nUid:\t7\t7\t7\t7\nGid:\t1\t2\t3\t9\nGroups:\t4 27 65534 \nCapEff:\t0000000000200010\n";
        let credentials = Credentials::parse(status);
        assert!(credentials.keeps_setid() && credentials.administers());
        assert!(!credentials.owns_files());
        assert!(credentials.is_in(27) && credentials.is_in(9) && !credentials.is_in(7));
    }

    #[test]
    fn a_process_that_is_not_there_has_nothing() {
        assert_eq!(Credentials::of(u32::MAX), Credentials::default());
        assert_eq!(Credentials::parse("CapEff:\tnonsense\nGroups:"), Credentials::default());
    }
}
