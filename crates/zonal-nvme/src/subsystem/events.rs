//! The reports of a controller in addition to the completions of commands: zones that failed and
//! disks that were resized, by log pages and asynchronous events; and commands that failed, by the
//! Error Information log page.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::wire::event::Event;
use crate::wire::log::ErrorEntry;
use crate::wire::log::LogRead;
use zerocopy::FromZeros;
use zonal::Lba;
use zonal::nvme::{Nsid, NvmeStatus, SubmissionEntry, status};

use crate::namespace::{FailedZones, Namespace};

/// Outstanding Asynchronous Event Requests, and the zones and sizes that the host has learned.
#[derive(Default)]
pub(crate) struct AsyncEvents {
    /// Command identifiers of the requests.
    outstanding: BTreeSet<u16>,
    namespaces: BTreeMap<Nsid, ReportedFailures>,
    sizes: ReportedSizes,
}

/// The sizes of namespaces that the host has learned.
#[derive(Default)]
struct ReportedSizes {
    /// Blocks of each namespace when the controller was created, or when the host last read the log
    /// page.
    blocks: BTreeMap<Nsid, u64>,
    /// An event was sent. The next one is sent after the host has read the log page.
    reported: bool,
}

/// Blocks of every namespace now.
fn sizes<'a>(all: impl Iterator<Item = (Nsid, &'a Namespace)>) -> BTreeMap<Nsid, u64> {
    all.map(|(nsid, one)| (nsid, one.blocks())).collect()
}

/// The failed zones of a namespace that the host has learned.
#[derive(Default)]
struct ReportedFailures {
    /// Failed zones when the controller was created, or when the host last read the log page.
    failed: FailedZones,
    /// [`Namespace::failures`] when the controller last looked at its zones.
    failures: u64,
    /// An event was sent. The next one is sent after the host has read the log page.
    reported: bool,
}

impl ReportedFailures {
    fn of(namespace: &Namespace) -> Self {
        let failures = namespace.failures();
        Self { failed: namespace.failed_zones().unwrap_or_default(), failures, reported: false }
    }
}

impl AsyncEvents {
    /// For a new controller: zones that have failed already are no events. Asks the devices for
    /// them.
    pub(crate) fn since_now<'a>(all: impl Iterator<Item = (Nsid, &'a Namespace)>) -> Self {
        let seen = all.map(|(nsid, one)| ((nsid, ReportedFailures::of(one)), (nsid, one.blocks())));
        let (namespaces, blocks) = seen.unzip();
        let sizes = ReportedSizes { blocks, reported: false };
        Self { outstanding: BTreeSet::new(), namespaces, sizes }
    }

    /// Adds an Asynchronous Event Request.
    pub(crate) fn add_request(&mut self, id: u16, limit: usize) -> Result<(), NvmeStatus> {
        if self.outstanding.contains(&id) {
            return Err(status::ID_CONFLICT);
        }
        if self.outstanding.len() >= limit {
            return Err(status::EVENT_LIMIT);
        }
        self.outstanding.insert(id);
        Ok(())
    }

    /// Controller reset: drops the requests, which are never completed.
    pub(crate) fn reset(&mut self) {
        self.outstanding.clear();
        self.namespaces.values_mut().for_each(|known| known.reported = false);
        self.sizes.reported = false;
    }

    /// Namespaces whose size has changed since the host last read the log page.
    pub(crate) fn changed_namespaces<'a>(
        &mut self,
        all: impl Iterator<Item = (Nsid, &'a Namespace)>,
        read: LogRead,
    ) -> Vec<Nsid> {
        let now = sizes(all);
        let known = &mut self.sizes;
        let is_other = |nsid, blocks| known.blocks.get(nsid).is_some_and(|known| known != blocks);
        let changed = now.iter().filter(|&(nsid, blocks)| is_other(nsid, blocks));
        let changed = changed.map(|(&nsid, _)| nsid).collect();
        match read {
            LogRead::Clear => *known = ReportedSizes { blocks: now, reported: false },
            LogRead::Retain => {}
        }
        changed
    }

    /// An event about namespaces whose size has changed, and the request that it completes.
    pub(crate) fn next_resized<'a>(
        &mut self,
        all: impl Iterator<Item = (Nsid, &'a Namespace)>,
    ) -> Option<(u16, Event)> {
        let is_due = !self.outstanding.is_empty() && !self.sizes.reported;
        if !is_due || self.changed_namespaces(all, LogRead::Retain).is_empty() {
            return None;
        }
        self.sizes.reported = true;
        Some((self.outstanding.pop_first()?, Event::NamespacesChanged))
    }

    /// Which of `failed`, the failed zones of a namespace, have failed since the host last read the
    /// log page.
    pub(crate) fn changed_zones(
        &mut self,
        nsid: Nsid,
        failed: FailedZones,
        read: LogRead,
    ) -> Vec<Lba> {
        let known = self.namespaces.entry(nsid).or_default();
        let changed = failed.difference(&known.failed).map(|(start, _)| *start).collect();
        match read {
            LogRead::Clear => (known.failed, known.reported) = (failed, false),
            LogRead::Retain => {}
        }
        changed
    }

    /// Namespaces whose zones the controller has to look at for an event, and their counts of
    /// failures.
    pub(crate) fn due<'a>(
        &self,
        all: impl Iterator<Item = (Nsid, &'a Namespace)>,
    ) -> Vec<(Nsid, u64)> {
        if self.outstanding.is_empty() {
            return Vec::new();
        }
        let due = |nsid, failures| match self.namespaces.get(&nsid) {
            Some(known) => !known.reported && known.failures != failures,
            None => failures > 0,
        };
        let all = all.map(|(nsid, one)| (nsid, one.failures()));
        all.filter(|&(nsid, failures)| due(nsid, failures)).collect()
    }

    /// An event about a namespace that had `failures` before its failed zones were found to be
    /// `failed`, and the request that it completes.
    pub(crate) fn next(
        &mut self,
        nsid: Nsid,
        failures: u64,
        failed: &FailedZones,
    ) -> Option<(u16, Event)> {
        let known = self.namespaces.entry(nsid).or_default();
        known.failures = failures;
        failed.difference(&known.failed).next()?;
        let id = self.outstanding.pop_first()?;
        known.reported = true;
        Some((id, Event::ZonesChanged(nsid)))
    }
}

/// Entries of the error log.
pub(crate) const ERRORS_MAX: u8 = 64;

/// The error log: commands that failed, the newest first.
#[derive(Default)]
pub(crate) struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

impl ErrorLog {
    /// How many errors there ever were.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Adds a command of a command set, which failed.
    pub(crate) fn add(
        &mut self,
        queue: u16,
        command: &SubmissionEntry,
        command_set: u8,
        status: NvmeStatus,
    ) {
        self.count += 1;
        self.entries.truncate(usize::from(ERRORS_MAX) - 1);
        let mut entry = ErrorEntry::new_zeroed();
        entry.count = self.count.into();
        entry.queue = queue.into();
        entry.command = command.id;
        // As in the completion queue entry.
        entry.status = status.field().into();
        // No parameter error location.
        entry.parameter = u16::MAX.into();
        if queue != 0 {
            let [low, high, ..] = command.cdw10;
            entry.lba = (u64::from(low.get()) | u64::from(high.get()) << 32).into();
        }
        entry.nsid = command.nsid;
        entry.transport = 3;
        entry.command_set = command_set;
        entry.opcode = command.opcode;
        entry.version = 1;
        self.entries.push_front(entry);
    }

    /// The log page.
    pub(crate) fn page(&self) -> Vec<ErrorEntry> {
        let mut page: Vec<_> = self.entries.iter().copied().collect();
        page.resize(ERRORS_MAX.into(), ErrorEntry::new_zeroed());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::nvme::{Opcode, command_set};

    #[test]
    fn error_log_keeps_newest_and_counts_all() {
        let mut log = ErrorLog::default();
        for number in 0..100_u16 {
            let mut command = SubmissionEntry::new(Opcode::READ, Nsid::new(2));
            command.id = number.into();
            log.add(1, &command, command_set::ZNS, status::ZONE_FULL);
        }
        let page = log.page();
        assert_eq!((log.count(), page.len()), (100, 64));
        assert_eq!((page[0].count.get(), page[0].command.get()), (100, 99));
        assert_eq!((page[63].count.get(), page[63].command.get()), (37, 36));
        assert_eq!(page[0].status.get(), status::ZONE_FULL.field());
    }
}
