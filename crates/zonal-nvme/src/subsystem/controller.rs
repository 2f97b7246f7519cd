//! A controller, which belongs to one host: properties, queues, features, event requests.
//!
//! A controller exists from the Connect command of its admin queue until the connection of that
//! queue ends, for whatever reason; its I/O queues are closed then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::event;
use crate::wire::fabrics::{DiscoveryEntry, Property};
use crate::wire::log::ErrorEntry;
use crate::wire::log::LogRead;
use zonal::Lba;
use zonal::nvme::{Nsid, NvmeStatus, SubmissionEntry, command_set, status};

use super::Subsystem;
use super::events::{AsyncEvents, ErrorLog};
use crate::namespace::Namespace;

/// Most I/O queues of a controller.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Most entries of an I/O queue.
pub(crate) const ENTRIES_MAX: u32 = 1024;
/// Most entries of the admin queue.
pub(crate) const ADMIN_ENTRIES_MAX: u16 = 128;
/// Most bytes of in-capsule data.
pub(crate) const IN_CAPSULE_MAX: u32 = 8192;

/// The transport's end of a queue.
pub(crate) trait Link: Send + Sync {
    /// Closes the connection; its thread ends after the running command.
    fn close(&self);
}

/// The purpose of a controller.
#[derive(Debug)]
pub(crate) enum Role {
    /// An I/O controller.
    Io,
    /// A discovery controller. Its log page has this entry if the host may connect.
    Discovery(Box<DiscoveryEntry>),
}

/// The host that a controller belongs to.
#[derive(Debug)]
pub(crate) struct Host {
    /// HOSTNQN.
    pub(crate) nqn: String,
    /// HOSTID.
    pub(crate) id: [u8; 16],
}

/// A controller.
pub(crate) struct Controller {
    id: u16,
    role: Role,
    host: Host,
    subsystem: Arc<Subsystem>,
    /// CC.
    configuration: AtomicU32,
    /// KATO in milliseconds; 0: no timer.
    keep_alive_ms: AtomicU32,
    /// Whether a command arrived on an I/O queue since the admin queue last checked.
    used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<u16, Arc<dyn Link>>,
    features: Features,
    events: AsyncEvents,
    errors: ErrorLog,
    ended: bool,
}

/// Features that a host can change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Asynchronous Event Configuration.
    pub(crate) async_events: u32,
    /// Arbitration: stored without effect; queues are served by threads.
    pub(crate) arbitration: u32,
    /// Error Recovery: stored without effect; nothing is retried.
    pub(crate) error_recovery: u32,
}

impl Features {
    /// Whether the host enabled these events.
    const fn wants(&self, events: u32) -> bool {
        self.async_events & events == events
    }
}

/// CC bit 0: enabled.
const ENABLE: u32 = 1;
/// CC bits 4-6: command sets; 6 is all that the controller supports.
const COMMAND_SETS_ALL: u32 = 6;
/// CSTS bit 0: ready.
const READY: u32 = 1;
/// CSTS bit 1: controller fatal status; the configuration is not supported.
const FATAL: u32 = 1 << 1;
/// CSTS bits 2-3: shutdown processing is complete.
const SHUT_DOWN: u32 = 2 << 2;
/// CAP.TO and CRTO.CRWMT: how long the controller may take to become ready, in 500 ms. Linux wants
/// both to be the same.
const READY_TIMEOUT: u64 = 15;
/// VS: 2.0.
pub(crate) const VERSION: u32 = 0x0002_0000;

impl Controller {
    pub(crate) fn new(
        id: u16,
        role: Role,
        host: Host,
        subsystem: Arc<Subsystem>,
        events: AsyncEvents,
    ) -> Self {
        let state = State { events, ..State::default() };
        Self {
            id,
            role,
            host,
            subsystem,
            configuration: AtomicU32::new(0),
            keep_alive_ms: AtomicU32::new(0),
            used: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) const fn id(&self) -> u16 {
        self.id
    }

    pub(crate) const fn role(&self) -> &Role {
        &self.role
    }

    pub(crate) const fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn subsystem(&self) -> &Subsystem {
        &self.subsystem
    }

    /// Whether it belongs to the host of this HOSTNQN and HOSTID.
    pub(crate) fn is_of(&self, nqn: &str, id: [u8; 16]) -> bool {
        self.host.nqn == nqn && self.host.id == id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue. One that exists cannot be connected again.
    pub(crate) fn add_queue(&self, queue: u16, link: Arc<dyn Link>) -> Result<(), NvmeStatus> {
        let mut state = self.state();
        let fits = queue == 0 || (queue <= QUEUES_MAX && matches!(self.role, Role::Io));
        if state.ended || !fits || state.queues.contains_key(&queue) {
            return Err(status::CONNECT_PARAMETERS);
        }
        if queue != 0 && !self.is_ready() {
            return Err(status::SEQUENCE);
        }
        state.queues.insert(queue, link);
        Ok(())
    }

    /// Whether an I/O queue is connected.
    pub(crate) fn has_io_queue(&self) -> bool {
        self.state().queues.keys().any(|&queue| queue != 0)
    }

    /// Removes a queue whose connection has ended. Without its admin queue the controller ends.
    pub(crate) fn remove_queue(&self, queue: u16) {
        let mut state = self.state();
        state.queues.remove(&queue);
        if queue == 0 {
            state.ended = true;
            for link in state.queues.values() {
                link.close();
            }
            drop(state);
            self.subsystem.remove_controller(self.id);
        }
    }

    /// KATO: the keep alive timeout, in milliseconds.
    pub(crate) fn keep_alive_ms(&self) -> Option<u32> {
        Some(self.keep_alive_ms.load(Ordering::Relaxed)).filter(|&ms| ms != 0)
    }

    pub(crate) fn set_keep_alive_ms(&self, ms: Option<u32>) {
        self.keep_alive_ms.store(ms.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes that a command arrived on an I/O queue.
    pub(crate) fn note_use(&self) {
        // Called for every command: the cache line is only written if the flag has to change.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a command arrived on an I/O queue since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// A property's value.
    pub(crate) fn property(&self, property: Property) -> u64 {
        match property {
            Property::Capabilities => {
                let entries = u64::from(ENTRIES_MAX - 1);
                let contiguous = 1 << 16;
                let timeout = READY_TIMEOUT << 24;
                let command_sets = match self.role {
                    // The NVM command set, and I/O command sets (CSS bits 0 and 6).
                    Role::Io => 0x41 << 37,
                    Role::Discovery(_) => 0x01 << 37,
                };
                let ready_with_media = 1 << 59;
                entries | contiguous | timeout | command_sets | ready_with_media
            }
            Property::Version => VERSION.into(),
            Property::Configuration => self.configuration.load(Ordering::Acquire).into(),
            Property::Status => self.status().into(),
            Property::ReadyTimeouts => READY_TIMEOUT,
        }
    }

    /// Sets a property.
    pub(crate) fn set_property(&self, property: Property, value: u64) -> Result<(), NvmeStatus> {
        match property {
            Property::Configuration => {
                let value = u32::try_from(value).map_err(|_| status::INVALID_FIELD)?;
                let before = self.configuration.swap(value, Ordering::AcqRel);
                if before & ENABLE != 0 && value & ENABLE == 0 {
                    self.reset();
                }
                Ok(())
            }
            Property::Capabilities
            | Property::Version
            | Property::Status
            | Property::ReadyTimeouts => Err(status::INVALID_FIELD),
        }
    }

    /// Controller reset: closes the I/O queues and resets the features.
    fn reset(&self) {
        let mut state = self.state();
        state.features = Features::default();
        state.events.reset();
        for (_, link) in state.queues.iter().filter(|(queue, _)| **queue != 0) {
            link.close();
        }
    }

    fn status(&self) -> u32 {
        let configuration = self.configuration.load(Ordering::Acquire);
        let mut status = 0;
        if configuration & ENABLE != 0 {
            status |= if is_possible(configuration) { READY } else { FATAL };
        }
        if configuration >> 14 & 3 != 0 {
            status |= SHUT_DOWN;
        }
        status
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.status() & READY != 0
    }

    /// Whether the host selected all command sets (CC.CSS). If not, it gets no zoned namespaces.
    pub(crate) fn sees_zoned(&self) -> bool {
        self.configuration.load(Ordering::Acquire) >> 4 & 7 == COMMAND_SETS_ALL
    }

    pub(crate) fn features(&self) -> Features {
        self.state().features
    }

    pub(crate) fn set_features(&self, change: impl FnOnce(&mut Features)) {
        change(&mut self.state().features);
    }

    /// Adds an Asynchronous Event Request, of at most `limit`.
    pub(crate) fn add_event_request(&self, id: u16, limit: usize) -> Result<(), NvmeStatus> {
        self.state().events.add_request(id, limit)
    }

    /// The next event: the identifier of the Asynchronous Event Request that it completes, and its
    /// result. To be called now and then.
    pub(crate) fn event(&self) -> Option<(u16, u64)> {
        if !self.is_ready() {
            return None;
        }
        let due = {
            let mut state = self.state();
            if state.features.wants(event::NAMESPACE_NOTICES)
                && let Some((id, event)) = state.events.next_resized(self.subsystem.namespaces())
            {
                return Some((id, event.encode()));
            }
            if !state.features.wants(event::ZONE_NOTICES) {
                return None;
            }
            state.events.due(self.subsystem.namespaces())
        };
        due.into_iter().find_map(|(nsid, failures)| {
            // Without the lock: a device may take its time. If it fails, the next failure of the
            // namespace is the next attempt.
            let failed = self.subsystem.namespace(nsid).and_then(Namespace::failed_zones);
            let mut state = self.state();
            let next = state.events.next(nsid, failures, &failed.unwrap_or_default());
            next.map(|(id, event)| (id, event.encode()))
        })
    }

    /// Namespaces that were resized since the host last read this log page.
    pub(crate) fn changed_namespaces(&self, read: LogRead) -> Vec<Nsid> {
        self.state().events.changed_namespaces(self.subsystem.namespaces(), read)
    }

    /// Zones that failed since the host last read this log page.
    pub(crate) fn changed_zones(&self, nsid: Nsid, read: LogRead) -> Result<Vec<Lba>, NvmeStatus> {
        let failed = self.subsystem.namespace(nsid)?.failed_zones()?;
        Ok(self.state().events.changed_zones(nsid, failed, read))
    }

    /// Adds a command that failed to the error log.
    pub(crate) fn log_error(&self, queue: u16, entry: &SubmissionEntry, status: NvmeStatus) {
        let command_set = match self.subsystem.namespace(entry.nsid()) {
            Ok(namespace) if queue != 0 => namespace.command_set(),
            Ok(_) | Err(_) => command_set::NVM,
        };
        self.state().errors.add(queue, entry, command_set, status);
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.state().errors.count()
    }

    pub(crate) fn error_log(&self) -> Vec<ErrorEntry> {
        self.state().errors.page()
    }
}

/// Whether a controller can be enabled with this CC: pages of 4 KiB, the NVM command set or all,
/// queue entries of 64 and 16 bytes.
fn is_possible(configuration: u32) -> bool {
    let field = |shift: u32, mask: u32| configuration >> shift & mask;
    let (pages, command_sets) = (field(7, 0xf), field(4, 7));
    let (submission, completion) = (field(16, 0xf), field(20, 0xf));
    pages == 0
        && matches!(command_sets, 0 | COMMAND_SETS_ALL)
        && matches!(submission, 0 | 6)
        && matches!(completion, 0 | 4)
}

/// IOCCSZ: the submission queue entry and in-capsule data, in 16 bytes.
pub(crate) const COMMAND_CAPSULE: u32 = (64 + IN_CAPSULE_MAX) / 16;
