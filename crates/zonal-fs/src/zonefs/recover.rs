//! Recovery of a file after a failure of the device: the zone is reported, and `errors=` decides.
//!
//! | `errors=` | zone still good | zone read-only | zone offline |
//! | --- | --- | --- | --- |
//! | `remount-ro` | size is at most the write pointer | size stays, no writing | empty, no access |
//! | `zone-ro` | size stays, no writing | size stays, no writing | empty, no access |
//! | `zone-offline` | empty, no access | empty, no access | empty, no access |
//! | `repair` | size is the write pointer | size stays, no writing | empty, no access |
//!
//! `remount-ro` also makes all files read-only. A failed read changes nothing if the zone is good
//! and has the expected size. Source: the observed behaviour of Linux 7.3 (`fs/zonefs/super.c`);
//! its documentation promises a little more.
//!
//! If the report fails as well, Linux makes everything read-only. Here the file still needs a
//! report: its next use makes one, and fails as long as the device gives none.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use zonal::Zone;

use super::file::{Group, Health, Held, Writer, ZoneFile, written};
use super::{DeviceResult, ErrorPolicy, ZoneFs};
use crate::vfs::{Access, Result};

/// The operation that failed; of two, the write decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failed {
    Read,
    Write,
}

/// Whether a file was owed a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It was, and the report is made.
    Made,
    /// It was not.
    NotOwed,
}

/// State of the file and of the mount after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    health: Health,
    size: u64,
    access: Access,
}

impl ZoneFs {
    /// Makes all writes durable. A disk's refusal of an earlier write shows here: each file whose
    /// zone has lost blocks is treated as after a failed write.
    pub(super) fn flush(&self) -> Result<()> {
        let flushed = self.device.flush();
        if flushed.is_err() && self.is_rotational() {
            for file in self.tree.files_of(Group::Sequential) {
                self.find_out(file, &mut file.settled(), Failed::Read);
            }
        }
        Ok(flushed?)
    }

    /// Writes out the blocks of the elevator every few seconds: a daemon that is killed loses no
    /// older writes.
    pub(super) fn write_out_when_due(&self) {
        const AGE_NS: u64 = 5_000_000_000;
        let Some(elevator) = self.elevator.as_ref().filter(|elevator| elevator.holds_blocks())
        else {
            return;
        };
        let now = self.clock.monotonic_ns();
        if now.saturating_sub(self.written_out_ns.load(Ordering::Relaxed)) >= AGE_NS {
            self.written_out_ns.store(now, Ordering::Relaxed);
            elevator.write_out_all();
        }
    }

    /// Reports the zone of a file after a failure, and applies the policy to the file. If that
    /// fails, the file is owed a report.
    pub(super) fn find_out(&self, file: &ZoneFile, writer: &mut Writer, failed: Failed) {
        let Err(error) = self.apply_report(file, writer, failed) else { return };
        let (name, zone) = (self.tree.path(file), file.zone.get());
        tracing::error!(
            file = name, zone, %error,
            "the zone cannot be reported: the next use of the file tries it again"
        );
        file.owe_report(failed);
        // The table says so of every failed write.
        if failed == Failed::Write && self.options().errors == ErrorPolicy::RemountRo {
            self.become_read_only();
        }
    }

    /// Locks the state of a file that is to be changed, once no append is in flight and the report
    /// is made that the file is owed.
    pub(super) fn known<'a>(&self, file: &'a ZoneFile) -> Result<MutexGuard<'a, Writer>> {
        let mut writer = file.settled();
        if self.make_owed_report(file, &mut writer)? == Report::Made {
            self.check_writable(file)?;
        }
        Ok(writer)
    }

    /// Makes the report that a file is owed. Size and health may change by it.
    pub(super) fn make_owed_report(&self, file: &ZoneFile, writer: &mut Writer) -> Result<Report> {
        let Some(failed) = file.owed_report() else { return Ok(Report::NotOwed) };
        self.apply_report(file, writer, failed)?;
        Ok(Report::Made)
    }

    fn apply_report(
        &self,
        file: &ZoneFile,
        writer: &mut Writer,
        failed: Failed,
    ) -> DeviceResult<()> {
        let (cond_health, data) = self.look(file)?;
        let failed = file.settle_report().map_or(failed, |owed| owed.max(failed));
        let size = file.size();
        let health = file.health().max(cond_health);
        if failed == Failed::Read && health == Health::Good && size == data {
            return Ok(());
        }
        let outcome = decide(self.options().errors, health, size, data);
        let (zone, new_size) = (file.zone.get(), outcome.size);
        tracing::warn!(
            file = self.tree.path(file), zone, ?cond_health, size, data, new_size,
            health = ?outcome.health, "a zone file after a failure"
        );
        file.degrade(outcome.health);
        if outcome.health != Health::Good {
            // The zone is no longer open, so no close will follow.
            writer.held = Held::No;
        }
        if outcome.access == Access::ReadOnly {
            self.become_read_only();
        }
        file.set_size(writer, outcome.size);
        self.in_use.account(file, writer);
        Ok(())
    }

    /// Health of a file by the condition of its zone, and the bytes that the zone holds.
    pub(super) fn look(&self, file: &ZoneFile) -> DeviceResult<(Health, u64)> {
        if file.group == Group::Conventional {
            // A report says nothing about failures of a conventional zone.
            return Ok((Health::Good, file.capacity));
        }
        let zone: Zone = self.device.zone(file.zone)?;
        let data = written(self.device.geometry(), &zone);
        Ok((Health::of(zone.cond), data.unwrap_or_else(|| file.size())))
    }

    /// Makes the file system read-only.
    pub(super) fn become_read_only(&self) {
        if self.access.replace(Access::ReadOnly) == Access::ReadWrite {
            tracing::error!("the file system is read-only from now on");
        }
    }
}

/// The table above, for a file of `size` bytes whose zone holds `data` bytes.
fn decide(policy: ErrorPolicy, health: Health, size: u64, data: u64) -> Outcome {
    let health = match policy {
        ErrorPolicy::ZoneOffline => Health::Offline,
        ErrorPolicy::ZoneRo => health.max(Health::ReadOnly),
        ErrorPolicy::RemountRo | ErrorPolicy::Repair => health,
    };
    let size = match (health, policy) {
        (Health::Offline, _) => 0,
        (Health::ReadOnly, _) => size,
        // Another program has written the bytes beyond.
        (Health::Good, ErrorPolicy::RemountRo) => size.min(data),
        (Health::Good, _) => data,
    };
    let access = match policy {
        ErrorPolicy::RemountRo => Access::ReadOnly,
        ErrorPolicy::ZoneRo | ErrorPolicy::ZoneOffline | ErrorPolicy::Repair => Access::ReadWrite,
    };
    Outcome { health, size, access }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_matches_policy_table() {
        use ErrorPolicy::{RemountRo, Repair, ZoneOffline, ZoneRo};
        use Health::{Good, Offline, ReadOnly};
        // A file of 50 bytes; the condition of its zone, and the bytes in it.
        for (policy, found, data, health, size) in [
            (RemountRo, Good, 40, Good, 40),
            (RemountRo, Good, 60, Good, 50),
            (RemountRo, ReadOnly, 50, ReadOnly, 50),
            (RemountRo, Offline, 50, Offline, 0),
            (ZoneRo, Good, 40, ReadOnly, 50),
            (ZoneRo, Good, 60, ReadOnly, 50),
            (ZoneRo, ReadOnly, 50, ReadOnly, 50),
            (ZoneRo, Offline, 50, Offline, 0),
            (ZoneOffline, Good, 40, Offline, 0),
            (ZoneOffline, ReadOnly, 50, Offline, 0),
            (ZoneOffline, Offline, 50, Offline, 0),
            (Repair, Good, 40, Good, 40),
            (Repair, Good, 60, Good, 60),
            (Repair, ReadOnly, 50, ReadOnly, 50),
            (Repair, Offline, 50, Offline, 0),
        ] {
            let outcome = decide(policy, found, 50, data);
            let case = format!("{policy:?} {found:?} {data}");
            assert_eq!((outcome.health, outcome.size), (health, size), "{case}");
            assert_eq!(outcome.access == Access::ReadOnly, policy == RemountRo, "{case}");
        }
    }
}
