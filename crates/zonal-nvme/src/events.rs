//! What a host is told besides the completions of its commands: zones that changed on their own,
//! by the log page of changed zones and by completing an event request; and the errors it made, by
//! the error log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::wire::event::Event;
use crate::wire::log::ErrorEntry;
use crate::wire::log::LogRead;
use zerocopy::FromZeros;
use zonal::nvme::{Nsid, NvmeStatus, SubmissionEntry, command_set, status};
use zonal::{Lba, ZoneCond};

use super::{Namespace, Subsystem};

/// Failed zones, and how they failed.
type Failed = BTreeSet<(Lba, ZoneCond)>;

/// Changed zones of every namespace, and the event requests that wait for such.
#[derive(Default)]
pub(super) struct News {
    held: BTreeSet<u16>,
    namespaces: BTreeMap<Nsid, Known>,
}

/// What the host knows of a namespace.
#[derive(Default)]
struct Known {
    /// Failed zones that were there at the start or in the log page.
    failed: Failed,
    /// The namespace's alarms when its zones were last looked at.
    alarms: u64,
    /// An event was sent. The next waits until the host has read the log page.
    told: bool,
}

impl Known {
    fn of(namespace: &Namespace) -> Self {
        let alarms = namespace.alarms();
        Self { failed: namespace.failed_zones().unwrap_or_default(), alarms, told: false }
    }
}

impl News {
    /// Zones that have failed so far are no news.
    pub(super) fn since_now(subsystem: &Subsystem) -> Self {
        let known = subsystem.namespaces().map(|(nsid, one)| (nsid, Known::of(one)));
        Self { held: BTreeSet::new(), namespaces: known.collect() }
    }

    /// Keeps an event request.
    pub(super) fn hold(&mut self, id: u16, limit: usize) -> Result<(), NvmeStatus> {
        if self.held.contains(&id) {
            return Err(status::ID_CONFLICT);
        }
        if self.held.len() >= limit {
            return Err(status::EVENT_LIMIT);
        }
        self.held.insert(id);
        Ok(())
    }

    /// Forgets the event requests, which are never completed.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.namespaces.values_mut().for_each(|known| known.told = false);
    }

    /// Zones of a namespace that failed since the host last asked.
    pub(super) fn changed_zones(
        &mut self,
        (nsid, namespace): (Nsid, &Namespace),
        read: LogRead,
    ) -> Result<Vec<Lba>, NvmeStatus> {
        let failed = namespace.failed_zones()?;
        let known = self.namespaces.entry(nsid).or_default();
        let changed = failed.difference(&known.failed).map(|(start, _)| *start).collect();
        match read {
            LogRead::Clear => (known.failed, known.told) = (failed, false),
            LogRead::Retain => {}
        }
        Ok(changed)
    }

    /// An event, and the request that it completes; `None` if there is none of either.
    pub(super) fn next(&mut self, subsystem: &Subsystem) -> Option<(u16, Event)> {
        let id = *self.held.first()?;
        for (nsid, namespace) in subsystem.namespaces() {
            let known = self.namespaces.entry(nsid).or_default();
            let alarms = namespace.alarms();
            if known.told || known.alarms == alarms {
                continue;
            }
            // Looking at the zones may fail: then it is tried again after the next alarm.
            known.alarms = alarms;
            let failed = namespace.failed_zones().unwrap_or_default();
            if failed.difference(&known.failed).next().is_some() {
                known.told = true;
                self.held.remove(&id);
                return Some((id, Event::ZonesChanged(nsid)));
            }
        }
        None
    }
}

/// Entries of the error log.
pub(super) const ERRORS_MAX: u8 = 64;

/// The error log: commands that failed, the newest first.
#[derive(Default)]
pub(super) struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

impl ErrorLog {
    /// How many there ever were.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Adds a command that failed.
    pub(super) fn add(&mut self, queue: u16, command: &SubmissionEntry, status: NvmeStatus) {
        self.count += 1;
        self.entries.truncate(usize::from(ERRORS_MAX) - 1);
        let mut entry = ErrorEntry::new_zeroed();
        entry.count = self.count.into();
        entry.queue = queue.into();
        entry.command = command.id;
        // As in the completion, whose phase tag is in bit 0.
        entry.status = status.field().into();
        // Which byte of the command: not told.
        entry.parameter = u16::MAX.into();
        if queue != 0 {
            let [low, high, ..] = command.cdw10;
            entry.lba = (u64::from(low.get()) | u64::from(high.get()) << 32).into();
        }
        entry.nsid = command.nsid;
        entry.transport = 3;
        entry.command_set = if queue == 0 { command_set::NVM } else { command_set::ZNS };
        entry.opcode = command.opcode;
        entry.version = 1;
        self.entries.push_front(entry);
    }

    /// The log page.
    pub(super) fn page(&self) -> Vec<ErrorEntry> {
        let mut page: Vec<_> = self.entries.iter().copied().collect();
        page.resize(ERRORS_MAX.into(), ErrorEntry::new_zeroed());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::nvme::Opcode;

    #[test]
    fn the_newest_errors_are_kept_and_all_are_counted() {
        let mut log = ErrorLog::default();
        for number in 0..100_u16 {
            let mut command = SubmissionEntry::new(Opcode::READ, Nsid::new(2));
            command.id = number.into();
            log.add(1, &command, status::ZONE_FULL);
        }
        let page = log.page();
        assert_eq!((log.count(), page.len()), (100, 64));
        assert_eq!((page[0].count.get(), page[0].command.get()), (100, 99));
        assert_eq!((page[63].count.get(), page[63].command.get()), (37, 36));
        assert_eq!(page[0].status.get(), status::ZONE_FULL.field());
    }
}
